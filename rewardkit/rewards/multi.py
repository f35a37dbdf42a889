"""What the multi-answer rewards share: K answers per completion, and how right ones are credited."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from rewardkit.arrays import whole
from rewardkit.parsing.grammar import MAX_ANSWERS
from rewardkit.rewards.text import TextReward
from rewardkit.shaping import check_choice, count_classes
from rewardkit.types import Float64, Forecast, Outcome

CreditMode = Literal["sum", "frac", "any", "recall"]
PAIRED = ("multi", "multi_split", "multi_noanalysis")


@dataclass(frozen=True, kw_only=True)
class MultiReward(TextReward):
    """A reward of a set of answers.

    Attributes:
        max_answers: K, the number of answers asked for; strict parsing wants exactly so many.
        credit_mode: What finding j of N references is worth: "sum" j, "frac" j / K, "any" 1 if j > 0, "recall" j / N.
        credit: "distinct" credits each reference once (maximum matching), "independent" every answer that equals any
            reference, which without the duplicates rule pays K times for K copies of one answer.
    """

    max_answers: int = 3
    credit_mode: CreditMode = "sum"
    credit: Literal["distinct", "independent"] = "distinct"

    set_components: ClassVar[tuple[str, ...]] = ("correct", "found", "coverage", "n_answers", "unique", "wellformed")

    def check(self) -> None:
        """Warns where copies of an answer would pay."""
        super().check()
        whole("max_answers", self.max_answers, high=MAX_ANSWERS)
        check_choice("credit_mode", self.credit_mode, ("sum", "frac", "any", "recall"))
        check_choice("credit", self.credit, ("distinct", "independent"))
        if self.credit == "independent" and self.on_duplicate == "allow" and self.max_answers > 1:
            self.warn(
                "independent credit without a duplicates rule pays for copies of one answer", "on_duplicate='fail'"
            )

    def reading(self) -> dict[str, Any]:
        """The options of :func:`rewardkit.parsing.parse`."""
        return {**super().reading(), "max_answers": self.max_answers}

    def crediting(self) -> Literal["distinct", "independent"]:
        """Whether a reference credits one answer or every answer that equals it."""
        return self.credit

    def credit_of(self, outcome: Outcome) -> Float64:
        """What the found references are worth, float64 ``[B]``."""
        right = outcome.correct.sum(axis=1)
        if self.credit_mode == "recall":
            return outcome.found.sum(axis=1) / outcome.n_golds
        if self.credit_mode == "any":
            return (right > 0).astype(np.float64)
        return right / (self.max_answers if self.credit_mode == "frac" else 1.0)

    def least_credit(self, right: int) -> float:
        """The least that ``right`` right answers are worth, over all numbers of references."""
        return {"sum": right, "frac": right / self.max_answers, "any": min(right, 1), "recall": 0.0}[self.credit_mode]

    def most_credit(self, right: int) -> float:
        """The most that ``right`` right answers are worth, over all numbers of references."""
        return float(min(right, 1)) if self.credit_mode == "recall" else self.least_credit(right)

    def set_parts(self, forecast: Forecast, outcome: Outcome) -> Mapping[str, Any]:
        """The components of a set of answers."""
        found, given = outcome.found.sum(axis=1), forecast.mask.sum(axis=1)
        return {
            "correct": outcome.correct.any(axis=1),
            "found": found,
            "coverage": found / outcome.n_golds,
            "n_answers": given,
            # Duplicates have failed or were merged, unless they are let be.
            "unique": count_classes(self.classes(forecast)) if self.on_duplicate == "allow" else given,
        }
