"""Checks of the reward against the trainer's settings, and of the columns that the two exchange."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rewardkit.integrations.verl.scaling import SETTING, group_std_harm
from rewardkit.preflight.check import Check, RowFinding, register
from rewardkit.preflight.findings import Finding
from rewardkit.preflight.job import ABSENT, Job, Rows, brief, lookup, parts
from rewardkit.rewards.base import ROLLOUT_COLUMNS
from rewardkit.rewards.reference_likelihood import LikelihoodReward
from rewardkit.rewards.reserved import TRL_ROW, VERL_EXTRA, VERL_ROW

_INSTALLED = Path(__file__).resolve().parents[2]
"""The folder that packages are installed to, where verl looks for relative paths too."""


@register
class FailReward(Check):
    """Ill-formed completions must not earn more than any well-formed one."""

    name = "fail-reward"
    about = "a failure reward above the reward's minimum"

    def before(self, job: Job) -> Iterator[Finding]:
        """Compares the two numbers that each reward declares."""
        for term in job.terms:
            reward = term.reward
            if reward.fail_reward > reward.min_value + 1e-12:
                yield self.error(
                    f"{reward.name} pays {reward.fail_reward:g} for an ill-formed completion and as little as "
                    f"{reward.min_value:g} for a well-formed one: a policy learns to abandon the format.",
                    f"leave fail_reward out, or set it to {reward.min_value:g} or less.",
                )
            elif term.weight < 0:
                yield self.error(
                    f"{reward.name} has weight {term.weight:g}: its failure reward becomes the best that can be earned.",
                    "use a weight of 0 or more.",
                )


@register
class ConfigValues(Check):
    """Settings that cannot be read here, so that no check can look at them."""

    name = "config-values"
    about = "a setting of the trainer that is no number, or refers to what is not in the config"

    def lacks(self, job: Job) -> str:
        """A config."""
        return "" if job.config is not None else "no trainer config (--verl-config)"

    def before(self, job: Job) -> Iterator[Finding]:
        """Looks at all settings that some check reads."""
        assert job.config is not None
        for path, value in job.config.no_numbers():
            yield self.error(f"{path} is {brief(value)}, which is no number.", f"correct {path}, or leave it out.")
        for path, text in job.config.unresolved():
            yield self.warning(
                f"{path} is {brief(text)}, which refers to what is not in this config: it is not checked.",
                "give the composed config (`python -m verl.trainer.main_ppo … --cfg job --resolve`).",
            )


@register
class GroupStd(Check):
    """GRPO's division by the group's standard deviation makes a proper reward improper (arXiv:2508.11800)."""

    name = "group-std"
    about = "group-std scaling of advantages with a calibration reward"

    def lacks(self, job: Job) -> str:
        """A config and a calibration reward."""
        if not job.proper_terms:
            return "no calibration reward"
        return "" if job.config is not None else "no trainer config (--verl-config)"

    def before(self, job: Job) -> Iterator[Finding]:
        """Looks at verl's estimator and its setting."""
        assert job.config is not None
        harm = group_std_harm(
            ", ".join(term.reward.name for term in job.proper_terms),
            estimator=job.config.get("algorithm.adv_estimator"),
            normalise=job.config.get(SETTING),
            default=not job.config.says(SETTING),
        )
        if harm is not None:
            yield self.warning(*harm)


@register
class GroupScatter(Check):
    """A reward of the group has to see the whole group in one place."""

    name = "group-scatter"
    about = "reward.num_workers that scatters a group when a reward needs groups"

    def lacks(self, job: Job) -> str:
        """A config and a reward of groups."""
        if not any(reward.needs_group for reward in job.rewards):
            return "no reward needs groups"
        return "" if job.config is not None else "no trainer config (--verl-config)"

    def before(self, job: Job) -> Iterator[Finding]:
        """Looks at the number of workers and of rollouts."""
        assert job.config is not None
        names = ", ".join(reward.name for reward in job.rewards if reward.needs_group)
        workers, rollouts = job.config.number("reward.num_workers"), job.config.number("actor_rollout_ref.rollout.n")
        if workers is not None and workers != 1:
            yield self.error(
                f"{names} needs all rollouts of a prompt at once, and reward.num_workers={workers} scatters them.",
                "reward.num_workers=1",
            )
        if rollouts is not None and rollouts < 2:
            yield self.error(
                f"{names} compares rollouts of a prompt, and actor_rollout_ref.rollout.n is below 2.",
                "actor_rollout_ref.rollout.n=8",
            )


@register
class LikelihoodSettings(Check):
    """RLPR, DARL and VeriFree need the policy's log-probabilities of the reference, which verl gives only if asked right."""

    name = "likelihood-settings"
    about = "log-probability settings that RLPR, DARL and VeriFree need"

    def lacks(self, job: Job) -> str:
        """A config and a likelihood reward."""
        if not likelihood_rewards(job):
            return "no reward needs log-probabilities"
        return "" if job.config is not None else "no trainer config (--verl-config)"

    def before(self, job: Job) -> Iterator[Finding]:
        """Looks at who asks for the log-probabilities, and whether the answer can be right."""
        assert job.config is not None
        config = job.config
        names = ", ".join(likelihood_rewards(job))
        rollout = "actor_rollout_ref.rollout"
        yield from self._agent_loop(job, names)
        mode = config.get("trainer.v1.trainer_mode")
        if mode not in (None, "sync"):
            yield self.error(
                f"trainer.v1.trainer_mode={mode} drops the prompt log-probabilities that {names} needs.",
                "trainer.v1.trainer_mode=sync",
            )
        if config.get(f"{rollout}.name") == "trtllm":
            yield self.error(
                f"the rollout engine trtllm gives no prompt log-probabilities, which {names} needs.",
                f"{rollout}.name=vllm",
            )
        for key, neutral in (("temperature", 1.0), ("top_p", 1.0), ("top_k", -1)):
            value = config.number(f"{rollout}.{key}")
            if value is not None and value != neutral:
                yield self.warning(
                    f"{rollout}.{key}={value}: the reasoning is sampled from another distribution than the one by which "
                    f"{names} scores the reference after it.",
                    f"{rollout}.{key}={neutral:g}",
                )
        longest = config.number(f"{rollout}.max_model_len")
        lengths = [config.number(f"data.{key}") for key in ("max_prompt_length", "max_response_length")]
        needed = sum(int(length) for length in lengths if length is not None)
        if longest is not None and None not in lengths and longest < needed + job.max_reference_length:
            yield self.warning(
                f"{rollout}.max_model_len={longest} has no room for prompt and response ({needed}) with a reference spliced in "
                f"(up to {job.max_reference_length}): such rows fail.",
                f"{rollout}.max_model_len={needed + job.max_reference_length}",
            )

    def _agent_loop(self, job: Job, names: str) -> Iterator[Finding]:
        """Whether an agent loop is named that asks the policy, and its file asks for all that the rewards need."""
        assert job.config is not None
        agent = "actor_rollout_ref.rollout.agent"
        loop = job.config.get(f"{agent}.default_agent_loop")
        fix = (
            f"{agent}.default_agent_loop=rewardkit_reference {agent}.agent_loop_config_path=FILE, where FILE is agents/… of "
            "`rewardkit recipe write`."
        )
        if loop is None:
            return  # ConfigValues tells of it
        if loop in ("single_turn_agent", "tool_agent"):
            yield self.error(
                f"{names} needs log-probabilities of the reference, and verl's own {loop} asks for none.", fix
            )
            return
        path = f"{agent}.agent_loop_config_path"
        given = job.config.get(path)
        if not given and job.config.says(path) and lookup(job.config.values, path):
            return  # an interpolation
        if not given:
            yield self.error(
                f"{agent}.default_agent_loop={loop} has no agent_loop_config_path, so verl does not know it.", fix
            )
            return
        try:
            entries = _agent_loops(str(given))
        except ValueError as error:
            yield self.error(f"{given} cannot be read as YAML: {error}.", "correct the file.")
            return
        if entries is None:
            return  # it lies on another machine, or names what only the job knows
        entry = next((one for one in entries if one.get("name") == loop), None)
        if entry is None:
            yield self.error(f"{given} describes no agent loop named {loop}.", fix)
            return
        comparing = ", ".join(reward.name for reward in job.rewards if "own_logprobs" in reward.requires)
        if comparing and not entry.get("own_answer"):
            yield self.error(
                f"{comparing} compares the reference with the policy's own answer, and {given} does not ask for that.",
                "own_answer: true in the agent loop's file (agents/reference_and_own.yaml of `rewardkit recipe write`).",
            )


@register
class GroupFilter(Check):
    """The filter of groups by standard deviation asks verl for single prompts, which verl refuses hours into a run."""

    name = "group-filter"
    about = "settings with which verl cannot replace the groups that the standard-deviation filter drops"

    def lacks(self, job: Job) -> str:
        """A config with the filter."""
        if job.config is None:
            return "no trainer config (--verl-config)"
        used = job.config.get("trainer.v1.sampler.custom_sampler.name") == "StdFilterReplayBuffer"
        return "" if used else "no filter of groups (StdFilterReplayBuffer)"

    def before(self, job: Job) -> Iterator[Finding]:
        """Looks at how many prompts verl fetches at a time, and at the sampler's copy of the batch size."""
        assert job.config is not None
        config, sampler = job.config, "trainer.v1.sampler"
        if not config.get("trainer.use_v1"):
            yield self.error("trainer.use_v1=false has no custom sampler: no group is dropped.", "trainer.use_v1=true")
            return
        fetched = config.number("data.gen_batch_size")
        if fetched != 1 and not config.get("algorithm.filter_groups.enable"):  # with it, verl fetches one at a time
            yield self.error(
                f"data.gen_batch_size={'null' if fetched is None else fetched}: verl stops when the filter first asks for as "
                "many prompts as it has dropped groups, which is after its warm-up.",
                "data.gen_batch_size=1",
            )
        size, path = config.number("data.train_batch_size"), f"{sampler}.sampler_kwargs.train_batch_size"
        copied = config.get(path)
        unresolved = size is None or (copied is None and config.says(path) and lookup(config.values, path) is not None)
        if not unresolved and copied != size:
            yield self.error(
                f"{path}={copied} is not data.train_batch_size={size}, which verl does not "
                "pass on to a custom sampler.",
                f"+{path}={size}",
            )


class _RequiredColumns(Check):
    """Columns that a reward requires and that only the data set can bring."""

    is_prior: bool
    fix: str

    def __init__(self) -> None:
        self.wanted: tuple[str, ...] = ()

    def lacks(self, job: Job) -> str:
        """A reward that requires such a column."""
        names = (name for reward in job.rewards for name in data_columns(reward))
        there = (name for name in names if not job.columns.get(name, "").startswith("tool_extra_fields."))
        self.wanted = tuple(dict.fromkeys(name for name in there if ("prior" in name) == self.is_prior))
        return "" if self.wanted else f"no reward needs a {'prior' if self.is_prior else 'further column'}"

    def look_at(self, job: Job, rows: Rows) -> Iterator[RowFinding]:
        """Looks where verl's manager and TRL's adapter look."""
        for name, concerned in self._concerned(job, rows).items():
            paths = [job.columns[name]] if name in job.columns else [f"extra_info.{name}", name]
            for index in concerned:
                found = (rows.value(index, path) for path in paths)
                value = next((value for value in found if value is not ABSENT), None)
                if value is None:
                    reason = f"the reward needs {name}, and there is none in {' or '.join(paths)}."
                    yield RowFinding(index, f"{name} missing", "error", reason, self.fix)
                elif self.is_prior and not _is_logprob(value):
                    reason = f"{name} is {brief(value)}, and a log-probability is a finite number of at most 0."
                    fix = "compute it again with `rewardkit prior`: the total log-probability in nats, not the probability."
                    yield RowFinding(index, f"{name} invalid", "error", reason, fix)

    def _concerned(self, job: Job, rows: Rows) -> dict[str, list[int]]:
        """The rows that some reward needs each column of: those that the reward speaks about."""
        concerned: dict[str, set[int]] = {name: set() for name in self.wanted}
        for term in job.terms:
            needed = {name for reward in parts(term.reward) for name in data_columns(reward)}
            for name in needed & concerned.keys():
                concerned[name].update(rows.of(term))
        return {name: sorted(indices) for name, indices in concerned.items()}


@register
class MissingPrior(_RequiredColumns):
    """Rewards that lean on a prior need its log-probability in every row."""

    name = "missing-prior"
    about = "a reward that needs a prior, and rows without one (or with one that is no log-probability)"
    is_prior = True
    fix = "write it with `rewardkit prior`, name its column (reward.reward_kwargs.columns in verl), or set constant_logprob."


@register
class MissingColumn(_RequiredColumns):
    """Whatever else a reward requires of a row."""

    name = "missing-column"
    about = "rows without a column that a reward requires"
    is_prior = False
    fix = (
        "add the column (`rewardkit prior --baseline` writes RLPR's), or name where it stands (columns= in TRL, "
        "reward.reward_kwargs.columns in verl; tool_extra_fields.NAME for what an agent loop of yours brings)."
    )


@register
class ReservedNames(Check):
    """Columns that a trainer overwrites, or takes for its own."""

    name = "reserved-names"
    about = "extras whose names verl or TRL reserves"

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def look_at(self, job: Job, rows: Rows) -> Iterator[RowFinding]:
        """Names are looked at once per file, where they come up first."""
        for_verl = job.config is not None or "reward_model" in rows.columns
        reserved, trainer = (VERL_ROW, "verl") if for_verl else (TRL_ROW, "TRL")
        for column in rows.columns:
            if column in reserved and column not in self._seen:
                self._seen[column] = "column"
                reason = f"the column {column!r} has a name that {trainer} writes itself: it is lost, or taken for {trainer}'s."
                yield RowFinding(0, column, "error", reason, f"rename the column {column!r}, or drop it.")
        extra = next((info for info in rows.columns.get("extra_info", ()) if isinstance(info, Mapping)), {})
        for key in extra if for_verl else ():
            if key in VERL_EXTRA and key not in self._seen:
                self._seen[key] = "extra_info"
                reason = f"extra_info.{key} has a name that verl writes itself: it is lost, or taken for verl's."
                yield RowFinding(0, f"extra_info.{key}", "error", reason, f"rename extra_info.{key}, or drop it.")

    def after(self, job: Job) -> Iterator[Finding]:
        """The columns that a reward itself adds."""
        if job.config is None:
            return
        for reward in job.rewards:
            clash = sorted(set(reward.component_names) & (VERL_ROW | VERL_EXTRA))
            if clash:
                yield self.warning(
                    f"the reward {reward.name} has components named {', '.join(clash)}, which are names of verl's; they are "
                    f"logged as {reward.name}_{clash[0]} and so on.",
                    "rename the components.",
                )


def likelihood_rewards(job: Job) -> list[str]:
    """The rewards that need log-probabilities which only the running policy can give."""
    return [reward.name for reward in job.rewards if isinstance(reward, LikelihoodReward)]


def data_columns(reward: Any) -> list[str]:
    """The columns that a reward requires of the data set; others come with each rollout."""
    return [name for name in reward.requires if name not in ROLLOUT_COLUMNS]


def _agent_loops(path: str) -> list[Mapping[str, Any]] | None:
    """The entries of verl's file of agent loops; None where it is not at hand. Relative paths are read as verl reads them.

    Raises:
        ValueError: It is no YAML in UTF-8.
    """
    found = next((place for place in (Path(path), _INSTALLED / path) if place.is_file()), None)
    if found is None:
        return None
    try:
        import yaml
    except ImportError:
        return None
    try:
        entries = yaml.safe_load(found.read_text("utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    return [one for one in entries if isinstance(one, Mapping)] if isinstance(entries, list) else []


def _is_logprob(value: Any) -> bool:
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    return number and math.isfinite(value) and bool(value <= 0)
