"""The reward manager that verl calls: ``reward.reward_manager.name=rewardkit``."""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from rewardkit.errors import HarmfulSettingWarning, InvalidArgumentError, RewardkitError
from rewardkit.integrations.verl.batching import MicroBatcher
from rewardkit.integrations.verl.data_check import check_files, check_job
from rewardkit.integrations.verl.decoding import Decoder, generation_eos_ids, literal_tags
from rewardkit.integrations.verl.grouping import GroupBarrier
from rewardkit.integrations.verl.rows import Row
from rewardkit.integrations.verl.scaling import SETTING, group_std_harm
from rewardkit.integrations.verl.scorer import Scored, Scorer
from rewardkit.integrations.verl.settings import PLACE, Settings

logger = logging.getLogger(__name__)


class RewardManager(RewardManagerBase):
    """Scores verl's rollouts with rewardkit's rewards, as ``reward.reward_kwargs`` of the job's config says.

    verl calls :meth:`run_single` once per finished rollout, many at a time; calls that are there together are scored as one
    native batch in a thread, so that the event loop, and with it the rollouts that are still running, never waits. The older
    interface, a whole batch at a time, is :meth:`__call__`. Picklable; works in threads, after a fork, in a Ray actor and
    in a daemon; starts no process.
    """

    def __init__(
        self,
        config: DictConfig | None = None,
        tokenizer: Any = None,
        compute_score: Any = None,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
        num_examine: int = 0,
        reward_fn_key: str = "data_source",
        **reward_kwargs: Any,
    ):
        """Reads the config and checks the job; what is wrong with it is told here, before the first step.

        Args:
            config: verl's whole config; the older interface gives none.
            tokenizer: The policy's tokenizer.
            compute_score: verl's own reward function; not used.
            reward_router_address: Of a reward model; not used.
            reward_model_tokenizer: Of a reward model; not used: what is decoded was written by the policy.
            num_examine: Of the older interface; not used.
            reward_fn_key: Of the older interface; must be "data_source".
            **reward_kwargs: The older interface's way to pass ``reward.reward_kwargs``.

        Raises:
            InvalidArgumentError: The config is wrong, or the tokenizer cannot carry the format's tags.
            UnknownNameError: A reward that does not exist.
            DataError: A row of the data files has no usable reference.
            PreflightError: Something else would spoil the run; each fault comes with its fix.
        """
        del compute_score, reward_router_address, reward_model_tokenizer, num_examine
        try:
            self._prepare(config, tokenizer, reward_fn_key, reward_kwargs)
        except RewardkitError as error:
            # verl notices a worker that cannot start by its silence, and ends with an error of its own that says nothing.
            logger.critical("rewardkit: the job cannot start: %s", error)
            raise

    def _prepare(
        self, config: DictConfig | None, tokenizer: Any, reward_fn_key: str, reward_kwargs: dict[str, Any]
    ) -> None:
        if reward_fn_key != "data_source":
            raise InvalidArgumentError("reward_fn_key", expected="'data_source'", got=reward_fn_key)
        config = OmegaConf.create({}) if config is None else config
        # Not super().__init__: it opens an event loop of its own where none runs, and never closes it.
        self.config, self.tokenizer, self.compute_score = config, tokenizer, None
        raw = _select(config, PLACE) or {}
        self.settings = Settings.of({**raw, **reward_kwargs})
        _check_job(config, self.settings)
        tags = [tag for term in self.settings.terms for tag in literal_tags(term.reward)]
        decoder = Decoder(
            tokenizer, tags=tags, eos_ids=generation_eos_ids(_select(config, "actor_rollout_ref.model.path"))
        )
        self.scorer = Scorer(self.settings, decoder)
        self.max_response_length = _select(config, "data.max_response_length")
        rollout = _select(config, "actor_rollout_ref.rollout") or {}
        self._train_size = int(rollout.get("n") or 1)
        self._validation_size = int((rollout.get("val_kwargs") or {}).get("n") or 1)
        if self.settings.check_data:
            agent_loop = (rollout.get("agent") or {}).get("default_agent_loop")
            check_files(
                self.settings,
                _data_files(config),
                group_sizes_differ=self._train_size != self._validation_size,
                columns_come_later=agent_loop not in (None, "single_turn_agent"),
            )
            if raw:  # the older interface gives no config to look at
                plain: Any = OmegaConf.to_container(config, resolve=True)
                check_job(self.settings, plain, tokenizer, _data_files(config))
        self._start()

    def _start(self) -> None:
        """What belongs to this process alone."""
        self._pid = os.getpid()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rewardkit")
        self._lanes: weakref.WeakKeyDictionary[Any, tuple[MicroBatcher[Row, Scored], GroupBarrier]] = (
            weakref.WeakKeyDictionary()
        )

    def __getstate__(self) -> dict[str, Any]:
        hidden = ("_executor", "_lanes", "_pid")
        return {key: value for key, value in self.__dict__.items() if key not in hidden}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start()

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Scores one trajectory; of one with several turns' outputs, the last.

        Returns:
            ``{"reward_score": float, "reward_extra_info": {column: float}}``, the same columns for every row of the job.
        """
        row = self._row(data, len(data) - 1)
        if self._pid != os.getpid():  # threads do not survive a fork
            self._start()
        loop = asyncio.get_running_loop()
        if loop not in self._lanes:
            batcher = MicroBatcher(self.scorer.score, executor=self._executor, max_size=int(self.settings.max_batch))
            barrier = GroupBarrier(
                batcher.submit,
                train_size=self._train_size,
                validation_size=self._validation_size,
                timeout=self.settings.group_timeout,
            )
            self._lanes[loop] = batcher, barrier
        batcher, barrier = self._lanes[loop]
        if any(term.reward.needs_group for term in self.settings.terms_for(row.data_source)):
            try:
                scored = await barrier.score(row)
            except asyncio.TimeoutError:
                scored = self.scorer.failed(row, "group timeout: a rollout of the same prompt never came")
            except InvalidArgumentError as error:  # a row that does not say its split; data files are checked at start
                scored = self.scorer.failed(row, str(error))
        else:
            scored = (await batcher.submit([row]))[0]
        return {"reward_score": scored.reward, "reward_extra_info": scored.columns}

    def __call__(self, data: DataProto, return_dict: bool = False) -> torch.Tensor | dict[str, Any]:
        """Scores a whole batch: the older interface.

        Args:
            data: The batch.
            return_dict: Whether the columns are wanted too.

        Returns:
            float32 ``[B, T]``, each row's reward at its last response token, zero elsewhere and in an empty row; or
            ``{"reward_tensor": that, "reward_extra_info": {column: [B] floats}}``.
        """
        scored = self.scorer.score([self._row(data, place) for place in range(len(data))])
        tensor = self.assemble_rm_scores(data, [row.reward for row in scored])
        if not return_dict:
            return tensor
        columns = {name: [row.columns[name] for row in scored] for name in self.settings.column_names}
        return {"reward_tensor": tensor, "reward_extra_info": columns}

    @classmethod
    def assemble_rm_scores(cls, data: DataProto, scores: list[float]) -> torch.Tensor:
        """Places each row's reward at its last response token; a row without one stays zero.

        verl's own version writes the reward of an empty response into the last column.
        """
        responses = data.batch["responses"]
        width = responses.shape[1]
        if not width:
            return torch.zeros_like(responses, dtype=torch.float32)
        lengths = data.batch["attention_mask"][:, -width:].sum(dim=1)
        rm_scores = torch.zeros_like(responses, dtype=torch.float32)
        filled = torch.nonzero(lengths > 0)[:, 0]
        rm_scores[filled, lengths[filled].long() - 1] = torch.tensor(scores, dtype=torch.float32)[filled]
        return rm_scores

    def _row(self, data: DataProto, place: int) -> Row:
        fields = {name: column[place] for name, column in data.non_tensor_batch.items()}
        token_ids = _response_ids(data, place, fields)
        limit = self.max_response_length
        truncated = bool(limit) and len(token_ids) >= limit and not self.scorer.decoder.ended(token_ids)
        return Row(token_ids=token_ids, fields=fields, truncated=truncated)


def _response_ids(data: DataProto, place: int, fields: Mapping[str, Any]) -> list[int]:
    """The tokens that the policy wrote: by mask and length alone, never by looking for an end token."""
    response = data.batch["responses"][place]
    written = data.batch.get("response_mask", None)
    if written is not None:
        return response[written[place].bool()].tolist()
    if "response_len" in fields:  # several outputs of one trajectory are padded apart, so their masks do not line up
        return response[: int(fields["response_len"])].tolist()
    width = response.shape[-1]
    return response[data.batch["attention_mask"][place][-width:].bool()].tolist() if width else []


def _select(config: DictConfig, path: str) -> Any:
    value = OmegaConf.select(config, path, default=None)
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def _data_files(config: DictConfig) -> list[str]:
    if _select(config, "data.custom_cls.path"):
        logger.warning("rewardkit: data.custom_cls makes its own rows; references are not checked at start")
        return []
    files: list[str] = []
    for key in ("data.train_files", "data.val_files"):
        value = _select(config, key)
        files += [value] if isinstance(value, str) else list(value or [])
    return files


def _check_job(config: DictConfig, settings: Settings) -> None:
    """Settings elsewhere in the config that would make these rewards wrong without a word."""
    if _select(config, "reward.custom_reward_function.path"):
        raise InvalidArgumentError(
            "reward.custom_reward_function.path",
            expected="null: the manager 'rewardkit' takes its rewards from reward.reward_kwargs",
            got=_select(config, "reward.custom_reward_function.path"),
        )
    if _select(config, "reward.reward_model.enable"):
        raise InvalidArgumentError(
            "reward.reward_model.enable",
            expected="false: with a reward model verl never calls the reward manager",
            got=True,
        )
    workers = _select(config, "reward.num_workers")
    if settings.needs_group and workers not in (None, 1):
        names = ", ".join(term.label for term in settings.terms if term.reward.needs_group)
        raise InvalidArgumentError(
            "reward.num_workers",
            expected=f"1: {names} needs all rollouts of a prompt at once, and verl scatters them over its workers",
            got=workers,
        )
    proper = [term.label for term in settings.terms if term.reward.proper and term.weight]
    normalise = _select(config, SETTING)
    harm = group_std_harm(
        ", ".join(proper),
        estimator=_select(config, "algorithm.adv_estimator"),
        normalise=True if normalise is None else normalise,
        default=normalise is None,
    )
    if proper and harm is not None:
        reason, remedy = harm
        warnings.warn(f"{reason} Remedy: {remedy}.", HarmfulSettingWarning, stacklevel=4)
