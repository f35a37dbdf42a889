"""RLPR's standard-deviation filter as verl's custom sampler.

verl's own filter drops groups whose rewards are all the same; a continuous reward has no such groups, except those in which
every rollout failed. Use ::

    trainer.v1.sampler.custom_sampler.path=pkg://rewardkit.integrations.verl.std_filter
    trainer.v1.sampler.custom_sampler.name=StdFilterReplayBuffer
    +trainer.v1.sampler.sampler_kwargs={train_batch_size: ${data.train_batch_size}, beta: 0.5}
    data.gen_batch_size=1

With the last line verl fetches as many prompts as were dropped, not whole batches alone.
verl gives a custom sampler none of ``algorithm.filter_groups``, so everything stands in ``sampler_kwargs``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import FILTER_GROUPS_REWARD_METRIC, ReplayBuffer

from rewardkit.errors import InvalidArgumentError
from rewardkit.groups import StdFilter

_KNOWN = ("train_batch_size", "metric", "max_inflight_gen_batches", "beta", "ema", "warmup", "poll_interval")


class StdFilterReplayBuffer(ReplayBuffer):
    """Keeps the groups whose rewards vary, as :class:`rewardkit.groups.StdFilter` says; verl refills what is dropped.

    ``sampler_kwargs``: ``train_batch_size`` (needed), ``metric`` ("reward", or a column of the rewards), ``beta``, ``ema`` and
    ``warmup`` (see StdFilter; a batch is all groups that finished during one trainer step, kept or not),
    ``max_inflight_gen_batches`` (1), ``poll_interval`` (seconds).
    """

    def __init__(self, *, sampler_kwargs: Any = None, **kwargs: Any):
        options = dict(sampler_kwargs or {})
        for name in options:
            if name not in _KNOWN:
                raise InvalidArgumentError("sampler_kwargs", expected=f"names among {', '.join(_KNOWN)}", got=name)
        if "train_batch_size" not in options:
            raise InvalidArgumentError(
                "sampler_kwargs.train_batch_size",
                expected="data.train_batch_size, which verl does not pass on",
                got=None,
            )
        if "poll_interval" in options:
            kwargs["poll_interval"] = float(options["poll_interval"])
        super().__init__(
            sampler_kwargs=sampler_kwargs,
            filter_groups_metric=str(options.get("metric", FILTER_GROUPS_REWARD_METRIC)),
            train_batch_size=int(options["train_batch_size"]),
            gen_batch_size=1,
            max_inflight_gen_batches=int(options.get("max_inflight_gen_batches", 1)),
            **kwargs,
        )
        self.std_filter = StdFilter(**{name: options[name] for name in ("beta", "ema", "warmup") if name in options})
        self._step: int | None = None
        self._seen: list[list[float]] = []

    def _terminal_eviction_reasons(
        self, global_steps: int, partition_id: str
    ) -> tuple[set[str], set[str], set[str], Counter]:
        if partition_id != "val" and global_steps != self._step:
            self._close_step()
            self._step = global_steps
        return super()._terminal_eviction_reasons(global_steps, partition_id)

    def _close_step(self) -> None:
        """Takes the groups of the step that ended into the moving average."""
        if self._seen:
            widest = max(2, *map(len, self._seen))
            table = np.full((len(self._seen), widest), np.nan)  # NaN: groups that lost a rollout do not count
            for row, rewards in enumerate(self._seen):
                if len(rewards) == widest:
                    table[row] = rewards
            self.std_filter(table)
        self._seen = []

    def _dapo_filtered_keys(self, partition_id: str) -> tuple[set[str], Counter]:
        """Finished groups to drop, with their mean reward for verl's diagnostics."""
        if partition_id == "val":
            return set(), Counter()
        finished, cache = self.finished_keys[partition_id], self._dapo_classification_cache[partition_id]
        for uid in cache.keys() - finished:
            del cache[uid]
        average = self.std_filter.average
        for uid, rewards in sorted(self._rewards_of(finished - cache.keys(), partition_id).items()):
            self._seen.append(rewards)
            deviation = float(np.std(rewards, ddof=1)) if len(rewards) > 1 else 0.0
            keep = average is None or deviation >= self.std_filter.beta * average
            cache[uid] = None if keep else float(np.mean(rewards))
        dropped = {uid: reward for uid, reward in cache.items() if reward is not None}
        return set(dropped), Counter(dropped.values())

    def _rewards_of(self, uids: set[str], partition_id: str) -> dict[str, list[float]]:
        keys = [key for key in self.partitions[partition_id] if key.split("_")[0] in uids]
        if not keys:
            return {}
        canonical = self.filter_groups_metric == FILTER_GROUPS_REWARD_METRIC
        field = "rm_scores" if canonical else "extra_fields"
        rewards: dict[str, list[float]] = defaultdict(list)
        data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=[field])
        for key, value in zip(keys, list(data[field]), strict=True):
            if canonical:
                reward = float(value.sum().item())
            else:
                fields: Any = getattr(value, "data", value)
                info = fields.get("reward_extra_info", {})
                if self.filter_groups_metric not in info:
                    raise InvalidArgumentError(
                        "sampler_kwargs.metric",
                        expected=f"'reward' or a column of the rewards: {', '.join(sorted(info))}",
                        got=self.filter_groups_metric,
                    )
                reward = float(info[self.filter_groups_metric])
            rewards[key.split("_")[0]].append(reward)
        return rewards
