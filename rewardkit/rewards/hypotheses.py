"""What the rewards of a distribution over answers share: listed hypotheses with weights, and a weight for Other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from rewardkit.arrays import whole
from rewardkit.errors import InvalidArgumentError
from rewardkit.parsing.grammar import MAX_ANSWERS
from rewardkit.rewards.text import TextReward
from rewardkit.scoring import EPSILON, check_epsilon
from rewardkit.shaping import check_number, min_k, soft_diversity
from rewardkit.types import Bool, Float64, Forecast, Outcome


@dataclass(frozen=True)
class Claim:
    """What a distribution says of the gold.

    Attributes:
        assigned: float64 ``[B]``, the weight of the hypotheses that match the gold, 0 where none does.
        listed: bool ``[B]``, whether one does.
        other: float64 ``[B]``, the weight of Other.
        top: bool ``[B]``, whether the heaviest hypothesis (the first of equals) matches.
    """

    assigned: Float64
    listed: Bool
    other: Float64
    top: Bool

    @classmethod
    def of(cls, forecast: Forecast, outcome: Outcome) -> Claim:
        """Reads it off: several ways to write the gold count together."""
        heaviest = np.where(forecast.mask, forecast.probs, -1.0).argmax(axis=1)
        return cls(
            assigned=(forecast.probs * outcome.correct).sum(axis=1),
            listed=np.asarray(outcome.correct.any(axis=1)),
            other=forecast.other,
            top=np.take_along_axis(outcome.correct, heaviest[:, None], axis=1)[:, 0],
        )


@dataclass(frozen=True, kw_only=True)
class HypothesesReward(TextReward):
    """A scoring rule of a distribution over exclusive answers, with terms that keep it from collapsing.

    Why the terms: a proper rule fixes the *weights* of a given list and says nothing for longer lists. Splitting Other strictly lowers the
    expected log score, so a policy comes to list one hypothesis, and then a junk one with all weight on Other.

    Attributes:
        max_answers: Most hypotheses that may be listed; none at all is ill-formed.
        epsilon: Clip of the log rules, in (0, 0.5).
        correctness_weight: Bonus for the heaviest hypothesis being right, >= 0. Stays proper where honest weights put the likeliest answer
            first.
        min_k: Hypotheses below which ``min_k_penalty`` is taken off; ``None`` for no such term.
        min_k_penalty: See there, >= 0.
        soft_diversity: K of the term ``min(0, log(n / K))`` for n listed hypotheses; ``None`` for no such term. Both terms count
            distinct answers, and both can be met with junk.
    """

    formats: ClassVar[tuple[str, ...]] = ("hypotheses",)
    exclusive_answers: ClassVar[bool] = True

    format: str = "hypotheses"
    max_answers: int = 5
    epsilon: float = EPSILON
    correctness_weight: float = 0.0
    min_k: int | None = None
    min_k_penalty: float = 1.0
    soft_diversity: int | None = None

    def check(self) -> None:
        """Refuses terms that no list can meet."""
        super().check()
        whole("max_answers", self.max_answers, high=MAX_ANSWERS)
        check_epsilon(self.epsilon)
        check_number("correctness_weight", self.correctness_weight, low=0.0)
        check_number("min_k_penalty", self.min_k_penalty, low=0.0)
        for name in ("min_k", "soft_diversity"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), high=self.max_answers)
        if self.on_duplicate == "allow":
            raise InvalidArgumentError(
                "on_duplicate", expected="'fail' or 'merge': hypotheses exclude each other", got="allow"
            )

    def reading(self) -> dict[str, Any]:
        """The options of :func:`rewardkit.parsing.parse`."""
        return {**super().reading(), "max_answers": self.max_answers}

    def crediting(self) -> Literal["distinct", "independent"]:
        """Every hypothesis that is a way to write the gold counts."""
        return "independent"

    @property
    def component_names(self) -> tuple[str, ...]:
        """``confidence`` is the heaviest weight, ``correct`` whether its hypothesis is right, ``assigned`` the gold's weight."""
        return ("correct", "confidence", "found", "assigned", "other", "n_answers", "wellformed")

    def with_terms(self, score: Float64, forecast: Forecast, outcome: Outcome) -> tuple[Float64, Mapping[str, Any]]:
        """A score with the correctness bonus and the diversity terms added, and the components."""
        if (outcome.n_golds > 1).any():
            self.warn(
                "rows with several golds are scored as if naming any of them were the truth, for which honest weights are "
                "not the best ones",
                "one gold per row, its aliases given with gold_kind='aliases'",
            )
        claim, counts = Claim.of(forecast, outcome), forecast.mask.sum(axis=1)
        value = score + self.correctness_weight * claim.top
        if self.min_k is not None:
            value = value + min_k(counts, k=self.min_k, penalty=self.min_k_penalty)
        if self.soft_diversity is not None:
            value = value + soft_diversity(counts, k=self.soft_diversity)
        parts = {
            "correct": claim.top,
            "confidence": forecast.probs.max(axis=1, initial=0.0),
            "found": claim.listed,
            "assigned": claim.assigned,
            "other": claim.other,
            "n_answers": counts,
        }
        return value, parts

    def range_with_terms(self, low: float, high: float) -> tuple[float, float]:
        """A score's range with those terms: the lowest with one wrong hypothesis, the highest with a right one among enough."""
        one = np.ones(1, dtype=np.int64)
        if self.min_k is not None:
            low += float(min_k(one, k=self.min_k, penalty=self.min_k_penalty)[0])
        if self.soft_diversity is not None:
            low += float(soft_diversity(one, k=self.soft_diversity)[0])
        return low, high + self.correctness_weight
