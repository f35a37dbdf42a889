"""How many of the right answers were named, plus the calibration of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from rewardkit.errors import InvalidArgumentError
from rewardkit.rewards.base import register
from rewardkit.rewards.multi import PAIRED, MultiReward
from rewardkit.rewards.rlcr import read_weights
from rewardkit.rewards.text import Judged
from rewardkit.shaping import check_choice, exceeds_one, reject, rescale_to_one
from rewardkit.types import Bool, Float64, Forecast, GoldKind, Outcome


@register
@dataclass(frozen=True, kw_only=True)
class MultiRLCR(MultiReward):
    """``a credit - b (1/K) sum_i (q_i - c_i)^2``: credit for the set, and a Brier term per answer.

    Each slot's best confidence is the probability that its answer is credited, whatever the dependence between slots.

    With one reference the answers exclude each other, so stating confidences that sum to more than 1 is a failure. With several it
    is not: there the rule would force honest forecasters to shrink, and it is off unless asked for.

    Attributes:
        format: "multi" (default), "multi_split" or "multi_noanalysis".
        weights: ``(a, b)``, or ``{"correctness": a, "calibration": b}``; both >= 0.
        exclusive: Whether confidences must sum to at most 1 (beyond rounding): ``None`` (default) for rows with one
            reference. In lenient mode they are rescaled instead.
        reduce: "mean" (default) or "sum" of the slots' Brier terms; the released evaluation reports the sum.
        force: Accepts ``credit_mode="any"`` with ``exclusive=False``, where a deliberate junk answer with confidence 0
            earns more than an honest second answer.

    Source:
        Multi-answer RL, arXiv 2603.24844 (there a = b = 1).

    Example:
        >>> text = "<think>…</think><answer1>a</answer1><confidence1>0.5</confidence1><answer2>b</answer2>" + (
        ...     "<confidence2>0.5</confidence2><analysis>…</analysis>")
        >>> MultiRLCR(max_answers=2)([text], ["a"]).values.tolist()
        [0.75]
    """

    name: ClassVar[str] = "multi_rlcr"
    formats: ClassVar[tuple[str, ...]] = PAIRED

    format: str = "multi"
    weights: Any = (1.0, 1.0)
    exclusive: bool | None = None
    reduce: Literal["mean", "sum"] = "mean"
    force: bool = False

    def check(self) -> None:
        """Refuses "any" credit for several right answers, and warns where a right answer is worth too little."""
        super().check()
        object.__setattr__(self, "weights", read_weights(self.weights))
        check_choice("exclusive", self.exclusive, (None, True, False))
        check_choice("reduce", self.reduce, ("mean", "sum"))
        if self.credit_mode == "any" and self.exclusive is False and not self.force:
            raise InvalidArgumentError(
                "credit_mode",
                expected="'sum', 'frac' or 'recall' when several answers can be right: 'any' then pays for a junk answer with "
                "confidence 0 once one answer is nearly certain (force=True if that is the experiment)",
                got="any",
            )
        per_answer = self.weights[0] / (self.max_answers if self.credit_mode == "frac" else 1)
        if per_answer < self._slot_weight:
            self.warn(
                "a right answer is worth less than its slot's Brier term, so an unlikely one with confidence 0 can win",
                f"a correctness weight of at least {self.weights[0] * self._slot_weight / per_answer:.4g}"
                if per_answer
                else "a positive correctness weight",
            )

    @property
    def _slot_weight(self) -> float:
        return self.weights[1] / (self.max_answers if self.reduce == "mean" else 1)

    @property
    def min_value(self) -> float:
        """All answers wrong and certain; where confidences sum to 1, right ones at 0 beside one wrong and certain."""
        a, w, k = self.weights[0], self._slot_weight, self.max_answers
        if self.exclusive is not True:
            return -w * k
        return min(*(a * self.least_credit(j) - w * (j + 1) for j in range(k)), a * self.least_credit(k) - w * k)

    @property
    def max_value(self) -> float:
        """All answers right and certain; where confidences sum to 1, they share it."""
        a, w, k = self.weights[0], self._slot_weight, self.max_answers
        if self.exclusive is not True:
            return a * self.most_credit(k)
        return max(0.0, *(a * self.most_credit(j) - w * (j - 1) ** 2 / j for j in range(1, k + 1)))

    @property
    def proper(self) -> bool:
        """Whether the honest confidences are the unique best ones."""
        return self.weights[1] > 0.0

    @property
    def proper_for(self) -> str:
        """The probabilities that the answers are credited."""
        if not self.proper:
            return "nothing"
        where = "" if self.exclusive is False else ", as long as they sum to at most 1 where confidences must"
        return f"each given answer's probability of being credited, whatever the dependence between answers{where}"

    @property
    def component_names(self) -> tuple[str, ...]:
        """``brier`` is 1 less the mean squared error over the K slots; ``confidence`` the mean over the answers given."""
        return (*self.set_components, "confidence", "confidence_sum", "brier")

    def judge(
        self,
        completions: Sequence[Any],
        references: Sequence[Any],
        *,
        gold_kind: GoldKind | None = None,
        truncated: Sequence[bool] | None = None,
    ) -> Judged:
        """Parses, applies the duplicates rule, matches, and applies the rule on the sum of confidences."""
        judged = super().judge(completions, references, gold_kind=gold_kind, truncated=truncated)
        over = exceeds_one(judged.forecast) & self._exclusive_rows(judged.outcome)
        if self.mode == "strict":
            return replace(judged, forecast=reject(judged.forecast, over, "confidences_over_one"))
        return replace(judged, forecast=rescale_to_one(judged.forecast, over))

    def judgement_key(self) -> tuple[Any, ...]:
        """See :meth:`TextReward.judgement_key`."""
        return (*super().judgement_key(), self.exclusive)

    def score(
        self, forecast: Forecast, outcome: Outcome, columns: Mapping[str, Any]
    ) -> tuple[Float64, Mapping[str, Any]]:
        """Credit less the squared errors."""
        if self.credit_mode == "any" and self.exclusive is None and not self.force and (outcome.n_golds > 1).any():
            self.warn("credit_mode='any' with several references pays for junk answers", "credit_mode='sum'")
        errors = np.square(forecast.probs - outcome.correct).sum(axis=1)
        total = forecast.probs.sum(axis=1)
        parts = {
            **self.set_parts(forecast, outcome),
            "confidence": total / np.maximum(forecast.mask.sum(axis=1), 1),
            "confidence_sum": total,
            "brier": 1.0 - errors / self.max_answers,
        }
        return self.weights[0] * self.credit_of(outcome) - self._slot_weight * errors, parts

    def _exclusive_rows(self, outcome: Outcome) -> Bool:
        return outcome.n_golds == 1 if self.exclusive is None else np.full(len(outcome.n_golds), self.exclusive)
