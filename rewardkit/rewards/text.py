"""What the rewards of a completion's *text* share: parse, duplicates, match; then a reward's own few lines; then the gate."""

from __future__ import annotations

import abc
import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np

from rewardkit.errors import HarmfulSettingWarning, InvalidArgumentError, UnknownNameError
from rewardkit.matching import Mode, equivalence_classes, match
from rewardkit.parsing import completion_texts, parse
from rewardkit.rewards.base import Reward, check_flags
from rewardkit.shaping import check_choice, derive_fail_reward, gate, has_duplicates, merge_duplicates, reject
from rewardkit.types import FAILED, OK, UNPARSED, Float64, Forecast, GoldKind, Outcome, References, RewardBatch

AUTO: Final[Any] = None
"""As ``fail_reward``: derived from the reward's exact minimum."""

PARSE_OPTIONS = ("min_answers", "on_bad_sum", "sum_tol", "tags", "special_tokens", "threads")
SINGLE = ("ta", "tac", "tabc", "tbac", "final")
CONFIDENT = ("tac", "tabc", "tbac")


@dataclass(frozen=True)
class Judged:
    """A batch that was read and compared with its references, before any scoring."""

    forecast: Forecast
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class TextReward(Reward):
    """A reward of what a completion says.

    Attributes:
        format: The layout that completions must follow, see :data:`rewardkit.parsing.FORMATS`.
        mode: "strict" for training, "lenient" for evaluation, "rlcr" for the released evaluation's reading.
        think: Whether a think block is "required", "optional", "forbidden" or to "ignore"; the parser's default if None.
        matcher: Which answers count as equal: a name ("exact", "fuzzy", "math", …) or any callable
            ``(prediction, reference) -> bool``. One relation decides correctness, duplicates and merging.
        match_mode: "numeric_safe" (keeps signs, decimals, single letters) or "official" (SQuAD's normalisation).
        on_duplicate: "fail" (the default in strict mode), "merge" (the default in lenient mode) or "allow".
        parse_options: Further options of :func:`rewardkit.parsing.parse`, by name: those of :data:`PARSE_OPTIONS`.
        margin: By how much an ill-formed completion earns less than the worst well-formed one.
        fail_reward: What an ill-formed completion earns; derived from ``margin`` unless given.
        allow_inversion: Accepts a ``fail_reward`` above the minimum, for experiments that show what it does.
    """

    formats: ClassVar[tuple[str, ...]]
    """The formats that this reward can read."""
    exclusive_answers: ClassVar[bool] = False
    """Whether probabilities of merged answers add up (they exclude each other)."""

    format: str = "tac"
    mode: Literal["strict", "lenient", "rlcr"] = "strict"
    think: Literal["required", "optional", "forbidden", "ignore"] | None = None
    matcher: str | Callable[[str, str], Any] = "exact"
    match_mode: Mode = "numeric_safe"
    on_duplicate: Literal["fail", "merge", "allow"] | None = None
    parse_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    margin: float = 0.1
    fail_reward: float = AUTO  # pyright: ignore[reportIncompatibleMethodOverride]
    allow_inversion: bool = False

    def __post_init__(self) -> None:
        check_flags(self)
        self.check()
        fail = derive_fail_reward(
            self.min_value, margin=self.margin, fail_reward=self.fail_reward, allow_inversion=self.allow_inversion
        )
        object.__setattr__(self, "fail_reward", fail)
        self.judge([""], ["-"])  # whatever parse and match refuse, they refuse now and not in the trainer

    def check(self) -> None:
        """Refuses parameters that make no sense, and warns of those that are known to do harm."""
        if str(self.format).lower() not in self.formats:
            raise UnknownNameError(f"format of the reward {self.name!r}", self.format, self.formats)
        if not isinstance(self.parse_options, Mapping):
            raise InvalidArgumentError(
                "parse_options", expected=f"a mapping of {', '.join(PARSE_OPTIONS)}", got=self.parse_options
            )
        for option in self.parse_options:
            check_choice("parse_options", option, PARSE_OPTIONS)
        check_choice("on_duplicate", self.on_duplicate, (None, "fail", "merge", "allow"))

    def warn(self, what: str, remedy: str) -> None:
        """Warns of a setting that is known to do harm."""
        warnings.warn(f"{self.name}: {what}. Remedy: {remedy}.", HarmfulSettingWarning, stacklevel=6)

    def __call__(
        self,
        completions: Sequence[Any] = (),
        references: Sequence[Any] = (),
        *,
        gold_kind: GoldKind | None = None,
        truncated: Sequence[bool] | None = None,
        **columns: Any,
    ) -> RewardBatch:
        """Scores a batch; see :meth:`rewardkit.rewards.base.Reward.__call__`.

        ``truncated`` says which completions were cut at the length limit: these are ill-formed, whatever they say.
        """
        return self.settle(self.judge(completions, references, gold_kind=gold_kind, truncated=truncated), **columns)

    def judge(
        self,
        completions: Sequence[Any],
        references: Sequence[Any],
        *,
        gold_kind: GoldKind | None = None,
        truncated: Sequence[bool] | None = None,
    ) -> Judged:
        """Parses, applies the duplicates rule, matches."""
        texts = completion_texts(completions)
        golds = References.of(references, gold_kind=gold_kind, rows=len(texts), copy=False)
        forecast = parse(texts, self.format, self.mode, truncated=truncated, **self.reading())
        forecast = self.without_duplicates(forecast)
        outcome = match(forecast, golds, matcher=self.matcher, mode=self.match_mode, credit=self.crediting())
        return Judged(forecast, outcome)

    def settle(self, judged: Judged, **columns: Any) -> RewardBatch:
        """Scores what was judged, and gives ill-formed rows the failure reward."""
        passed = judged.forecast.wellformed
        values, parts = self.score(judged.forecast, judged.outcome, columns)
        components = {"wellformed": passed.astype(np.float64)}
        components |= {name: np.where(passed, part, 0.0) for name, part in parts.items()}
        return RewardBatch(
            values=gate(values, passed=passed, fail_reward=self.fail_values(columns)),
            components={name: components[name] for name in self.component_names},
            status=_status(judged),
            reason=_reason(judged),
        )

    @abc.abstractmethod
    def score(
        self, forecast: Forecast, outcome: Outcome, columns: Mapping[str, Any]
    ) -> tuple[Float64, Mapping[str, Any]]:
        """The reward's own lines: values ``[B]`` as if every row were well-formed, and its components."""

    def judgement_key(self) -> tuple[Any, ...]:
        """Equal for rewards that :meth:`judge` in the same way, so that a composed reward reads and matches once."""
        return (
            type(self).judge,
            self.format,
            self.mode,
            self.matcher if isinstance(self.matcher, str) else id(self.matcher),  # a callable need not be hashable
            self.match_mode,
            self.on_duplicate,
            self.exclusive_answers,
            self.crediting(),
            repr(sorted(self.reading().items(), key=str)),
        )

    def reading(self) -> dict[str, Any]:
        """The options of :func:`rewardkit.parsing.parse`."""
        return {"think": self.think, **self.parse_options}

    def crediting(self) -> Literal["distinct", "independent"]:
        """Whether a reference credits one answer or every answer that equals it."""
        return "distinct"

    def fail_values(self, columns: Mapping[str, Any]) -> float | Float64:
        """The failure reward of each row."""
        return self.fail_reward

    def without_duplicates(self, forecast: Forecast) -> Forecast:
        """Applies ``on_duplicate``: equal answers fail the row, are merged, or are let be."""
        rule = self.on_duplicate or ("fail" if self.mode == "strict" else "merge")
        if rule == "allow" or forecast.mask.shape[1] < 2:
            return forecast
        classes = self.classes(forecast)
        if rule == "fail":
            return reject(forecast, has_duplicates(classes), "duplicate_answers")
        return merge_duplicates(forecast, classes, probs="sum" if self.exclusive_answers else "max")

    def classes(self, forecast: Forecast) -> Any:
        """Which answers of a row are equal: int64 ``[B, K]``, the index of the first equal one, -1 where absent."""
        return _padded(
            equivalence_classes(forecast.answers, matcher=self.matcher, mode=self.match_mode), forecast.mask.shape[1]
        )


def _padded(classes: Any, width: int) -> Any:
    missing = width - classes.shape[1]
    return np.pad(classes, ((0, 0), (0, missing)), constant_values=-1) if missing else classes


def _status(judged: Judged) -> list[str]:
    errors = judged.outcome.error
    return [
        UNPARSED if not good else f"{FAILED}:{error.partition(':')[0]}" if error else OK
        for good, error in zip(judged.forecast.wellformed.tolist(), errors, strict=True)
    ]


def _reason(judged: Judged) -> list[str]:
    good = judged.forecast.wellformed.tolist()
    return [
        error if fine else reason
        for fine, reason, error in zip(good, judged.forecast.reason, judged.outcome.error, strict=True)
    ]
