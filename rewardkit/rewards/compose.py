"""A weighted sum of rewards behind one gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rewardkit.errors import InvalidArgumentError
from rewardkit.parsing import completion_texts
from rewardkit.rewards import base, reserved
from rewardkit.rewards.base import Reward, register
from rewardkit.rewards.reference_likelihood import LikelihoodReward
from rewardkit.rewards.text import AUTO, Judged, TextReward
from rewardkit.shaping import check_number, derive_fail_reward, gate, weighted_range, weighted_sum
from rewardkit.types import OK, UNPARSED, Bool, RewardBatch

SHARED = ("correct", "confidence")
"""Components that stand under their own name too, from the first part that has them."""

_TAKEN = {
    **dict.fromkeys(reserved.VERL, "a name of verl's"),
    **dict.fromkeys(reserved.MANAGER, "a column that the manager for verl gives every row"),
    **dict.fromkeys((*SHARED, "wellformed"), "a column of the whole"),
}
"""What a part's column must not be called, and what it would overwrite."""


@dataclass(frozen=True)
class Part:
    """One term of the sum.

    Attributes:
        reward: The reward.
        weight: What it is multiplied with; may be negative.
        gate: Whether a completion that is ill-formed for this part, or that this part could not score, fails as a whole.
    """

    reward: Reward
    weight: float = 1.0
    gate: bool = True

    @property
    def range(self) -> tuple[float, float]:
        """What the part can earn where the gate is passed."""
        low, high = self.reward.min_value, self.reward.max_value
        if self.gate:
            return low, high
        fail = self.reward.fail_reward
        # A likelihood reward takes the penalty off a failure too.
        penalty = self.reward.repetition_penalty if isinstance(self.reward, LikelihoodReward) else 0.0
        return min(low, fail - penalty), max(high, fail)

    def scored(self, batch: RewardBatch) -> Bool:
        """Which rows this part could score: their value is no failure reward. bool ``[B]``.

        Where a matcher raised, a text reward counts the answer as wrong: the value is a score like any other.
        """
        if isinstance(self.reward, Compose):
            return batch.components["wellformed"] > 0.0
        if isinstance(self.reward, TextReward):
            return np.array([status != UNPARSED for status in batch.status], dtype=bool)
        return np.array([status == OK for status in batch.status], dtype=bool)


@register
@dataclass(frozen=True, kw_only=True)
class Compose(Reward):
    """``sum over parts of weight * reward``, neither averaged nor normalised; one failure reward behind one gate.

    A completion that is ill-formed for a gating part, or that a gating part could not score (no log-probabilities), earns the
    single failure reward, never a sum of partial ones.

    Attributes:
        parts: ``{name: (reward, weight)}``, the reward an object or a registered name; or, as a config file gives it,
            ``{name: {"reward": "rlcr", "weight": 0.5, "gate": true, …parameters of the reward…}}``, where the reward is the part's own
            name unless given. A name must not make a column that overwrites another part's, the whole's (``correct``,
            ``confidence``, ``wellformed``) or a trainer's (``acc``, ``score``, …).
        margin: By how much an ill-formed completion earns less than the minimum.
        fail_reward: What an ill-formed completion earns; derived from ``margin`` unless given.
        allow_inversion: Accepts a ``fail_reward`` above the minimum.

    The declared range is that of parts that vary freely: a bound, attained where their extremes go together.

    Example:
        >>> reward = Compose(parts={"rlcr": {"weight": 0.5, "shift": True}, "format": ("format", 0.5)}, fail_reward=0.0)
        >>> text = "<think>…</think><answer>Paris</answer><confidence>0.8</confidence>"
        >>> reward([text, "Paris"], ["Paris", "Paris"]).values.round(2).tolist()
        [1.48, 0.0]
    """

    name: ClassVar[str] = "compose"

    parts: Mapping[str, Any]
    margin: float = 0.1
    fail_reward: float = AUTO  # pyright: ignore[reportIncompatibleMethodOverride]
    allow_inversion: bool = False

    def __post_init__(self) -> None:
        base.check_flags(self)
        if not isinstance(self.parts, Mapping) or not self.parts:
            raise InvalidArgumentError("parts", expected="a mapping of at least one part", got=self.parts)
        parts = {name: _part(name, part) for name, part in self.parts.items()}
        object.__setattr__(self, "parts", parts)
        _check_names(parts)
        formats = {one.reward.format for one in parts.values() if one.gate and isinstance(one.reward, TextReward)}
        if len({format.lower() for format in formats}) > 1:
            raise InvalidArgumentError(
                "parts", expected="one format for all gating parts, else nothing passes", got=sorted(formats)
            )
        object.__setattr__(self, "requires", tuple(dict.fromkeys(c for p in parts.values() for c in p.reward.requires)))
        object.__setattr__(self, "optional", tuple(dict.fromkeys(c for p in parts.values() for c in p.reward.optional)))
        object.__setattr__(self, "needs_group", any(part.reward.needs_group for part in parts.values()))
        fail = derive_fail_reward(
            self.min_value, margin=self.margin, fail_reward=self.fail_reward, allow_inversion=self.allow_inversion
        )
        object.__setattr__(self, "fail_reward", fail)

    @property
    def _range(self) -> tuple[float, float]:
        parts = self.parts.values()
        return weighted_range([part.range for part in parts], [part.weight for part in parts])

    @property
    def min_value(self) -> float:
        """The sum of the weighted minima; of maxima where a weight is negative."""
        return self._range[0]

    @property
    def max_value(self) -> float:
        """The sum of the weighted maxima; of minima where a weight is negative."""
        return self._range[1]

    @property
    def proper(self) -> bool:
        """Whether every part that a stated probability enters is proper, with a positive weight, and there is one."""
        stating = [part for part in self.parts.values() if part.weight and _states(part.reward)]
        return bool(stating) and all(part.reward.proper and part.weight > 0.0 for part in stating)

    @property
    def proper_for(self) -> str:
        """What the parts are proper for."""
        if not self.proper:
            return "nothing"
        return "; ".join(part.reward.proper_for for part in self.parts.values() if part.reward.proper)

    @property
    def component_names(self) -> tuple[str, ...]:
        """Each part's reward under its name, its components as ``<part>_<component>``, and those in :data:`SHARED`."""
        own = {name for part in self.parts.values() for name in part.reward.component_names}
        names = [shared for shared in SHARED if shared in own] + ["wellformed"]
        for name, part in self.parts.items():
            names += _columns(name, part)
        return tuple(names)

    def __call__(self, completions: Sequence[Any] = (), references: Sequence[Any] = (), **columns: Any) -> RewardBatch:
        """Scores a batch; see :meth:`rewardkit.rewards.base.Reward.__call__`."""
        batches = self._batches(completion_texts(completions), references, columns)
        passed = np.ones(len(next(iter(batches.values()))), dtype=bool)
        for name, batch in batches.items():
            if self.parts[name].gate:
                passed &= self.parts[name].scored(batch)
        values = {name: batch.values for name, batch in batches.items()}
        total = weighted_sum(values, {name: part.weight for name, part in self.parts.items()})
        columns_out = {"wellformed": passed.astype(np.float64)}
        for name, batch in batches.items():
            columns_out[name] = batch.values
            for component, column in batch.components.items():
                columns_out[f"{name}_{component}"] = column
                if component in SHARED:
                    columns_out.setdefault(component, column)
        faults = [self._fault(row, batches) for row in range(len(total))]
        return RewardBatch(
            values=gate(total, passed=passed, fail_reward=self.fail_reward),
            components={name: np.where(passed, columns_out[name], 0.0) for name in self.component_names},
            status=[status for status, _ in faults],
            reason=[reason for _, reason in faults],
        )

    def _fault(self, row: int, batches: Mapping[str, RewardBatch]) -> tuple[str, str]:
        """The row's status and reason: the first part that it is ill-formed for, else the first that could not judge it."""
        faults = [(batch.status[row], batch.reason[row], self.parts[name].gate) for name, batch in batches.items()]
        ill = [(status, reason) for status, reason, gates in faults if status == UNPARSED and gates]
        failed = [(status, reason) for status, reason, _ in faults if status not in (OK, UNPARSED)]
        return (ill or failed or [(OK, "")])[0]

    def _batches(
        self, completions: Sequence[Any], references: Sequence[Any], columns: Mapping[str, Any]
    ) -> dict[str, RewardBatch]:
        """Each part's result; parts that read and match in the same way do it once."""
        judged: dict[Any, Judged] = {}
        batches = {}
        for name, part in self.parts.items():
            reward = part.reward
            if not isinstance(reward, TextReward):
                batches[name] = reward(completions, references, **columns)
                continue
            key = reward.judgement_key()
            if key not in judged:
                judged[key] = reward.judge(
                    completions,
                    references,
                    gold_kind=columns.get("gold_kind"),
                    truncated=columns.get("truncated"),
                )
            batches[name] = reward.settle(judged[key], **columns)
        return batches


def compose(parts: Mapping[str, Any], **params: Any) -> Compose:
    """:class:`Compose` of ``{name: (reward, weight)}``."""
    return Compose(parts=parts, **params)


def _columns(name: str, part: Part) -> list[str]:
    """The columns of a part: its reward's value, and each component."""
    return [name, *(f"{name}_{component}" for component in part.reward.component_names)]


def _check_names(parts: Mapping[str, Part]) -> None:
    """Refuses names whose columns would overwrite others."""
    taken = dict(_TAKEN)
    for name, part in parts.items():
        for column in _columns(name, part):
            if column in taken:
                raise InvalidArgumentError(
                    f"parts[{name!r}]",
                    expected=f"another name, since its column {column!r} is {taken[column]}",
                    got=name,
                )
            taken[column] = f"a column of the part {name!r}"


def _part(name: Any, spec: Any) -> Part:
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError("parts", expected="names that are texts", got=name)
    if isinstance(spec, Part):
        spec = {"reward": spec.reward, "weight": spec.weight, "gate": spec.gate}
    if isinstance(spec, Reward):
        spec = {"reward": spec}
    elif isinstance(spec, (tuple, list)) and len(spec) == 2:
        spec = {"reward": spec[0], "weight": spec[1]}
    if not isinstance(spec, Mapping):
        raise InvalidArgumentError(f"parts[{name!r}]", expected="(reward, weight) or a mapping", got=spec)
    spec = dict(spec)
    reward, weight, gates = spec.pop("reward", name), spec.pop("weight", 1.0), spec.pop("gate", True)
    params = spec.pop("params", {})
    if not isinstance(params, Mapping):
        raise InvalidArgumentError(f"parts[{name!r}].params", expected="a mapping of parameters", got=params)
    if not isinstance(gates, bool):  # the text "false" is true
        raise InvalidArgumentError(f"parts[{name!r}].gate", expected="true or false", got=gates)
    params = {**params, **spec}
    if not all(isinstance(key, str) for key in params):
        raise InvalidArgumentError(f"parts[{name!r}]", expected="parameters by name", got=params)
    check_number(f"parts[{name!r}].weight", weight)
    if isinstance(reward, str):
        reward = base.get(reward, **params)
    elif params:
        raise InvalidArgumentError(
            f"parts[{name!r}]", expected="no parameters beside a reward object", got=list(params)
        )
    if not isinstance(reward, Reward):
        raise InvalidArgumentError(f"parts[{name!r}].reward", expected="a reward or the name of one", got=reward)
    return Part(reward, float(weight), gates)


def _states(reward: Reward) -> bool:
    """Whether a stated probability enters a reward."""
    return reward.proper or any(name.endswith("confidence") for name in reward.component_names)
