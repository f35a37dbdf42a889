"""The job that is checked: its rewards, rows, tokenizer and config, with what several checks want to know of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rewardkit import parsing
from rewardkit.errors import DataError, InvalidArgumentError
from rewardkit.rewards import Reward
from rewardkit.rewards.text import TextReward
from rewardkit.types import GOLD_KIND_PATHS, GoldKind, References

ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "nothing"})()
"""What stands for a value that is not there, which is not the same as a null."""

Golds = tuple[tuple[str, ...], ...]

# What verl 0.9.1 assumes where a config says nothing (verl/trainer/config/ppo_trainer.yaml and the files it includes).
VERL_DEFAULTS: Mapping[str, Any] = {
    "algorithm.adv_estimator": "gae",
    "algorithm.norm_adv_by_std_in_grpo": True,
    "data.max_prompt_length": 512,
    "data.max_response_length": 512,
    "data.prompt_key": "prompt",
    "data.train_batch_size": 1024,
    "reward.num_workers": 8,
    "reward.reward_manager.name": "naive",
    "actor_rollout_ref.rollout.n": 1,
    "actor_rollout_ref.rollout.temperature": 1.0,
    "actor_rollout_ref.rollout.top_p": 1,
    "actor_rollout_ref.rollout.top_k": -1,
    "actor_rollout_ref.rollout.calculate_log_probs": True,
    "actor_rollout_ref.rollout.agent.default_agent_loop": "single_turn_agent",
    "trainer.use_v1": True,
    "trainer.v1.trainer_mode": "sync",
}


@dataclass(frozen=True)
class Term:
    """One reward of the job and the rows it speaks about; verl's settings have a class of the same shape."""

    reward: Reward
    gold_kind: GoldKind | None = None
    data_sources: frozenset[str] = frozenset()
    weight: float = 1.0
    label: str = ""

    def applies_to(self, data_source: str) -> bool:
        """Whether rows of that source earn this reward."""
        return not self.data_sources or data_source in self.data_sources


# Further settings that checks read as numbers; verl's default for them is null.
_OPTIONAL_NUMBERS = ("actor_rollout_ref.rollout.max_model_len", "data.gen_batch_size")

_INTERPOLATION = re.compile(r"\$\{[\w.:,/\[\]-]+\}")
"""A reference to another setting that is still to be resolved, as in ``${data.train_batch_size}``."""


@dataclass(frozen=True)
class Config:
    """A verl config, whole or in part, as plain mappings.

    Raises:
        InvalidArgumentError: It is no mapping.
    """

    values: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.values, Mapping):
            raise InvalidArgumentError("config", expected="verl's config as plain mappings", got=self.values)

    def get(self, path: str, default: Any = None) -> Any:
        """The value at a dotted path, else what verl assumes, else ``default``; None where only the job will know it."""
        found = lookup(self.values, path)
        if isinstance(found, str) and _INTERPOLATION.search(found):
            return None
        return VERL_DEFAULTS.get(path, default) if found is ABSENT else found

    def number(self, path: str) -> float | None:
        """The number at a dotted path, verl's default where there is none or a null; None where it cannot be read."""
        value = self.get(path)
        if lookup(self.values, path) is None:
            value = VERL_DEFAULTS.get(path)
        return _number(value)

    def unresolved(self) -> list[tuple[str, str]]:
        """The settings that checks read and that refer to what is not in this config: path and text."""
        found = [(path, lookup(self.values, path)) for path in (*VERL_DEFAULTS, *_OPTIONAL_NUMBERS)]
        return [(path, value) for path, value in found if isinstance(value, str) and _INTERPOLATION.search(value)]

    def no_numbers(self) -> list[tuple[str, Any]]:
        """The settings that have to be numbers and are not: path and value."""
        numbers = [path for path, value in VERL_DEFAULTS.items() if _number(value) is not None]
        found = [(path, self.get(path)) for path in (*numbers, *_OPTIONAL_NUMBERS)]
        return [(path, value) for path, value in found if value is not None and _number(value) is None]

    def says(self, path: str) -> bool:
        """Whether the config itself has the path."""
        return lookup(self.values, path) is not ABSENT


@dataclass(frozen=True)
class Job:
    """What is checked.

    Attributes:
        terms: The rewards.
        tokenizer: The policy's, as transformers gives it; None where there is none at hand.
        config: verl's; None for another trainer, or none yet.
        reference: Dotted path of the references in a row; None finds it.
        columns: Where a column that a reward requires stands in a row, by dotted path.
        max_response_length: In tokens; None where it is not known.
        max_reference_length: Longer references are told, in tokens.
        template_edits: ``(old, new)`` replacements that are meant to be made in the chat template.
        references_are_json: Whether references are JSON text.
    """

    terms: Sequence[Any]
    tokenizer: Any = None
    config: Config | None = None
    reference: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    max_response_length: int | None = None
    max_reference_length: int = 256
    template_edits: Sequence[tuple[str, str]] = ()
    references_are_json: bool = False

    @cached_property
    def rewards(self) -> list[Reward]:
        """The rewards, with the parts of composed ones in their place."""
        return [reward for term in self.terms for reward in parts(term.reward)]

    @cached_property
    def text_rewards(self) -> list[TextReward]:
        """Those that read the completion's text."""
        return [reward for reward in self.rewards if isinstance(reward, TextReward)]

    @cached_property
    def format_rewards(self) -> list[Any]:
        """Those that ask for a format: the rewards of text, and the format term of the likelihood rewards."""
        return [reward for reward in self.rewards if isinstance(getattr(reward, "format", None), str)]

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """The literal tags of all formats of the job."""
        return tuple(dict.fromkeys(tag for reward in self.rewards for tag in literal_tags(reward)))

    @property
    def proper_terms(self) -> list[Any]:
        """The terms whose reward is a proper scoring rule of a stated probability."""
        return [term for term in self.terms if term.reward.proper and term.weight]


@dataclass
class Rows:
    """Consecutive rows of a file, with their references read once for all checks."""

    file: str
    numbers: Sequence[int]
    columns: Mapping[str, Sequence[Any]]
    job: Job
    _golds: dict[Any, list[Golds | Fault]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.numbers)

    def value(self, index: int, path: str) -> Any:
        """The value at a dotted path in one row, :data:`ABSENT` where there is none."""
        head, _, rest = path.partition(".")
        if head not in self.columns:
            return ABSENT
        value = self.columns[head][index]
        return lookup(value, rest) if rest else value

    @cached_property
    def reference_path(self) -> str:
        """Where the references stand: as the job says, else where verl's schema or TRL's has them."""
        if self.job.reference:
            return self.job.reference
        if "reward_model" in self.columns:
            return "reward_model.ground_truth"
        found = [name for name in ("answer", "ground_truth", "solution", "answers", "golds") if name in self.columns]
        return found[0] if found else "reward_model.ground_truth"

    @cached_property
    def sources(self) -> list[str]:
        """The data source of each row, "" where it has none."""
        return [
            str(value) if value is not ABSENT else ""
            for value in (self.value(i, "data_source") for i in range(len(self)))
        ]

    def of(self, term: Any) -> list[int]:
        """The rows that a reward speaks about."""
        if not term.data_sources:
            return list(range(len(self)))
        return [index for index, source in enumerate(self.sources) if term.applies_to(source)]

    def golds(self, term: Any) -> list[Golds | Fault]:
        """The golds of each row as the term reads them, or what is wrong with them."""
        key = term.gold_kind
        if key not in self._golds:
            path = self.reference_path
            self._golds[key] = [
                read_golds(self.value(i, path), key or self._own_kind(i), as_json=self.job.references_are_json)
                for i in range(len(self))
            ]
        return self._golds[key]

    def _own_kind(self, index: int) -> Any:
        """The kind that the data builders write beside the golds."""
        for path in GOLD_KIND_PATHS:
            kind = self.value(index, path)
            if kind in ("aliases", "set"):
                return kind
        return None


@dataclass(frozen=True)
class Fault:
    """Why a row's reference cannot be read: "missing", "empty", "ambiguous" or "type", and what was found."""

    kind: str
    found: str


def read_golds(value: Any, gold_kind: Any, *, as_json: bool = False) -> Golds | Fault:
    """A row's golds as a reward would read them."""
    if value is ABSENT or value is None:
        return Fault("missing", "no such column" if value is ABSENT else "null")
    if as_json:
        import json

        try:
            value = json.loads(value)
        except (TypeError, ValueError):
            return Fault("type", brief(value))
    try:
        return References.of([value], gold_kind=gold_kind).golds[0]
    except DataError:
        return Fault("empty", brief(value))
    except InvalidArgumentError as error:
        return Fault("ambiguous" if error.argument == "gold_kind" else "type", brief(value))


def parts(reward: Reward) -> Iterator[Reward]:
    """A reward, or the parts that it is composed of."""
    composed = getattr(reward, "parts", None)
    if isinstance(composed, Mapping):
        for part in composed.values():
            yield from parts(part.reward)
    else:
        yield reward


def reading(reward: Reward) -> Mapping[str, Any]:
    """The options with which a reward reads completions."""
    return reward.reading() if isinstance(reward, TextReward) else getattr(reward, "parse_options", None) or {}


def literal_tags(reward: Reward) -> tuple[str, ...]:
    """The tags that a reward reads; none where it reads no text."""
    name = getattr(reward, "format", None)
    if not isinstance(name, str):
        return ()
    options = reading(reward)
    return parsing.tags(name, options.get("max_answers"), tags=options.get("tags"))


def _number(value: Any) -> float | None:
    """A number, or a text that verl's typed config reads as one (YAML reads 1e-6 as text)."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
        value = int(value) if value.is_integer() else value
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return value if number else None


def lookup(value: Any, path: str) -> Any:
    """Follows a dotted path through mappings; :data:`ABSENT` where it leads nowhere."""
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return ABSENT
        value = value[part]
    return value


def brief(value: Any, limit: int = 60) -> str:
    """A value in one short line."""
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    return repr(text if len(text) <= limit else text[: limit - 1] + "…") if isinstance(value, str) else text[:limit]
