"""What the verifier-free rewards share: which rows could be scored, the baseline, the format term, the repetition penalty.

None of them reads an answer: they are arithmetic on the log-probabilities that the policy gives to the reference's tokens
after its own reasoning. Where those come from is the trainer's matter (``docs/likelihood.md``).
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rewardkit.errors import InvalidArgumentError
from rewardkit.likelihood import Reduction, is_missing, reduce_rows
from rewardkit.likelihood.status import MODEL_FAULTS
from rewardkit.parsing import FORMATS, parse
from rewardkit.rewards.base import Reward, check_flags
from rewardkit.rewards.repetition import repeats_itself
from rewardkit.shaping import check_choice, check_number, derive_fail_reward
from rewardkit.types import FAILED, OK, UNPARSED, Bool, Float64, RewardBatch

PROBABILITIES: tuple[Reduction, ...] = ("mean_prob", "geo_mean", "prod")


@dataclass(frozen=True)
class Scores:
    """The rows' own numbers before shaping.

    Attributes:
        values: float64 ``[B]``; NaN where a row has none.
        parts: Named float64 ``[B]`` columns.
        missing: ``[B]`` why a row has none, "" where it has.
    """

    values: Float64
    parts: Mapping[str, Float64]
    missing: list[str]


@dataclass(frozen=True, kw_only=True)
class LikelihoodReward(Reward):
    r"""A reward made of the reference's log-probabilities: ``(1 - f) s + f format - repetition``.

    A row that cannot be scored gets :attr:`fail_reward`, never a 0 that looks like a score: "unparsed" where the completion
    has no place for the reference (no answer tag, two of them), ``failed:<reason>`` where the trainer could not say (no
    log-probabilities, a NaN).

    Attributes:
        format: The layout that the format term and ``gate`` ask for.
        format_weight: ``f``: the share of the format term. Without completions there is no format to judge, and the value
            is the score alone.
        gate: Whether an ill-formed completion gets the failure reward even where the reference could be scored.
        repetition_penalty: What a completion pays that repeats itself (see :class:`~rewardkit.rewards.repetition.Repetition`);
            also where it failed. RLPR: 1.
        floor: Where a score is a log-probability, what it is cut at.
        margin: By how much a row without a score earns less than the worst score.
        fail_reward: What such a row earns; derived from ``margin`` unless given.
        allow_inversion: Accepts a ``fail_reward`` above the minimum, for experiments.
    """

    requires: ClassVar[tuple[str, ...]] = ("reference_logprobs", "reference_status")

    format: str = "ta"
    format_weight: float = 0.0
    gate: bool = False
    repetition_penalty: float = 0.0
    floor: float = -100.0
    margin: float = 0.1
    fail_reward: float = None  # type: ignore[assignment]  # pyright: ignore
    allow_inversion: bool = False

    def __post_init__(self) -> None:
        check_flags(self)
        check_choice("format", str(self.format).lower(), tuple(FORMATS))
        check_number("format_weight", self.format_weight, low=0.0, high=1.0)
        check_number("repetition_penalty", self.repetition_penalty, low=0.0)
        check_number("floor", self.floor, high=0.0)
        self.check()
        fail = derive_fail_reward(
            self.min_value, margin=self.margin, fail_reward=self.fail_reward, allow_inversion=self.allow_inversion
        )
        object.__setattr__(self, "fail_reward", fail)
        object.__setattr__(self, "requires", (*type(self).requires, *self.further_columns()))

    def check(self) -> None:
        """Checks a reward's own parameters."""

    def further_columns(self) -> tuple[str, ...]:
        """Columns beside :attr:`LikelihoodReward.requires` that these parameters need."""
        return ()

    @property
    @abc.abstractmethod
    def score_range(self) -> tuple[float, float]:
        """The least and the largest score, before the format term."""

    @abc.abstractmethod
    def score(self, rows: int, columns: Mapping[str, Any]) -> Scores:
        """The reward's own lines."""

    @property
    @abc.abstractmethod
    def parts(self) -> tuple[str, ...]:
        """The reward's own components."""

    @property
    def min_value(self) -> float:
        """The least score, ill-formed and repeating itself."""
        low = self.score_range[0]
        return min(low, (1.0 - self.format_weight) * low) - self.repetition_penalty

    @property
    def max_value(self) -> float:
        """The largest score, well-formed."""
        high = self.score_range[1]
        return max(high, (1.0 - self.format_weight) * high + self.format_weight)

    @property
    def proper(self) -> bool:
        """Never: no stated forecast enters."""
        return False

    @property
    def proper_for(self) -> str:
        """Nothing."""
        return "nothing: the policy states no forecast"

    @property
    def component_names(self) -> tuple[str, ...]:
        """The columns of the result."""
        return (*self.parts, "format", "repetition")

    def __call__(
        self,
        completions: Sequence[Any] = (),
        references: Sequence[Any] = (),
        *,
        reference_logprobs: Sequence[Any] | None = None,
        reference_status: Sequence[str] | None = None,
        truncated: Sequence[bool] | None = None,
        **columns: Any,
    ) -> RewardBatch:
        """Scores a batch.

        Args:
            completions: ``[B]``, for the format term and the repetition penalty; may be left out where neither counts.
            references: Not read: the log-probabilities are the reference's.
            reference_logprobs: ``[B]`` natural log-probabilities of the reference's tokens, a list per row; ``None`` or
                empty for a row that could not be scored.
            reference_status: ``[B]`` "ok" or why there are none, as :func:`rewardkit.likelihood.splice_reference` says.
            truncated: ``[B]`` which completions were cut at the length limit: ill-formed.
            **columns: What the reward needs beside these; anything else is ignored.

        Raises:
            InvalidArgumentError: A column is missing or has another length.
        """
        if reference_logprobs is None:
            raise InvalidArgumentError(
                "reference_logprobs", expected="a list of log-probabilities per row", got=reference_logprobs
            )
        rows = len(reference_logprobs)
        for name, column in (
            ("completions", completions if len(completions) else None),
            ("truncated", truncated),
        ):
            if column is not None and len(column) != rows:
                raise InvalidArgumentError(name, expected=f"{rows} entries, one per row", got=f"{len(column)} entries")
        self._needs_completions(completions, rows)
        columns = {**columns, "reference_logprobs": reference_logprobs}
        scores = self.score(rows, columns)
        problems = first_problem(told(reference_status, "reference_status", rows), scores.missing)
        formed, loops = self._text_parts(completions, truncated, rows)
        if self.gate:
            problems = [
                problem or ("" if good else "ill_formed") for problem, good in zip(problems, formed, strict=True)
            ]
        scored = np.array([not problem for problem in problems], dtype=bool)
        weight = self.format_weight if len(completions) else 0.0
        judged = weight * formed.astype(np.float64)
        values = (1.0 - weight) * np.where(scored, scores.values, 0.0) + judged
        values = np.where(scored, values, self.fail_reward) - self.repetition_penalty * loops.astype(np.float64)
        parts = {name: np.where(scored, part, 0.0) for name, part in scores.parts.items()}
        parts |= {"format": formed.astype(np.float64), "repetition": loops.astype(np.float64)}
        return RewardBatch(
            values=values.astype(np.float64, copy=False),
            components={name: parts[name] for name in self.component_names},
            status=[_status(problem) for problem in problems],
            reason=problems,
        )

    def _needs_completions(self, completions: Sequence[Any], rows: int) -> None:
        if rows and not len(completions) and (self.gate or self.repetition_penalty):
            name = "gate" if self.gate else "repetition_penalty"
            raise InvalidArgumentError("completions", expected=f"{rows} entries, since {name} is on", got="none")

    def _text_parts(self, completions: Sequence[Any], truncated: Any, rows: int) -> tuple[Bool, Bool]:
        if not len(completions):
            return np.zeros(rows, dtype=bool), np.zeros(rows, dtype=bool)
        formed = parse(completions, self.format, "strict", truncated=truncated).wellformed
        loops = repeats_itself(completions) if self.repetition_penalty else np.zeros(rows, dtype=bool)
        return formed, loops

    def reduced(self, column: Any, how: Reduction, *, name: str, rows: int) -> tuple[Float64, list[str]]:
        """One number per row, and why a row has none."""
        if len(column) != rows:
            raise InvalidArgumentError(name, expected=f"{rows} entries, one per row", got=f"{len(column)} entries")
        values = reduce_rows(column, how, argument=name)
        missing = [
            "" if not math.isnan(value) else f"no_{name}" if is_missing(row) or not len(row) else "nan_logprob"
            for value, row in zip(values.tolist(), column, strict=True)
        ]
        return (values if how in PROBABILITIES else np.maximum(values, self.floor)), missing


def per_row(value: Any, name: str, rows: int) -> Float64:
    """A number, or one per row, as float64 ``[B]``."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(name, expected="a number, or one per row", got=value) from error
    if array.ndim > 1 or (array.ndim == 1 and len(array) != rows):
        raise InvalidArgumentError(name, expected=f"a number, or {rows} of them", got=f"shape {array.shape}")
    return np.broadcast_to(array, (rows,)).copy()


def told(column: Sequence[Any] | None, name: str, rows: int) -> list[str]:
    """What a column of statuses says is wrong with each row; "" for "ok", and where it says nothing (None, or pandas' NaN)."""
    if column is None:
        return [""] * rows
    if isinstance(column, str) or len(column) != rows:
        raise InvalidArgumentError(name, expected=f"{rows} entries, one per row", got=column)
    said = ["" if is_missing(status) else status for status in column]
    for row, status in enumerate(said):
        if not isinstance(status, str):
            raise InvalidArgumentError(f"{name}[{row}]", expected="'ok' or a word for what is wrong", got=status)
    return ["" if status == OK else status for status in said]


def first_problem(*columns: Sequence[str]) -> list[str]:
    """The first thing that is wrong with each row, "" where nothing is."""
    return [next((problem for problem in row if problem), "") for row in zip(*columns, strict=True)]


def groups_of(group_ids: Any, rows: int) -> list[npt.NDArray[np.intp]]:
    """The rows of each group, in the order in which groups appear.

    Raises:
        InvalidArgumentError: There is no id per row.
    """
    if group_ids is None or len(group_ids) != rows:
        raise InvalidArgumentError(
            "group_ids",
            expected=f"{rows} ids, the prompt of each row",
            got=None if group_ids is None else len(group_ids),
        )
    members: dict[Any, list[int]] = {}
    for row, group in enumerate(group_ids):
        members.setdefault(group, []).append(row)
    return [np.array(group, dtype=np.intp) for group in members.values()]


def _status(problem: str) -> str:
    if not problem:
        return OK
    return UNPARSED if problem in MODEL_FAULTS else f"{FAILED}:{problem}"
