"""Correctness plus calibration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rewardkit.errors import InvalidArgumentError
from rewardkit.rewards.base import register
from rewardkit.rewards.text import CONFIDENT, TextReward
from rewardkit.scoring import EPSILON, Rule, brier_reward, scoring_rule
from rewardkit.shaping import check_number
from rewardkit.types import Float64, Forecast, Outcome

WEIGHT_NAMES = ("correctness", "calibration")


@register
@dataclass(frozen=True, kw_only=True)
class RLCR(TextReward):
    """``a c + b S(q, c)``: correctness, plus a scoring rule of the stated confidence.

    With the Brier rule and a = b = 1 (the default) that is ``c - (q - c)^2``: an honest forecaster whose answer is right
    with probability p expects exactly ``p^2``, so a likelier answer is always the better one.

    That is a theorem with a condition: honest value rises with p iff ``b (S(p, 0) - S(p, 1)) < a`` for all p. Where it fails, a knowingly
    wrong answer with confidence 0 beats an honest attempt (with the log rule and epsilon = 0.01: unless a >= 4.6 b), and the
    constructor warns.

    Attributes:
        format: "tac" (default), "tabc" or "tbac".
        weights: ``(a, b)``, or a mapping ``{"correctness": a, "calibration": b}``; both >= 0. They are not normalised.
        rule: "brier", "log", "spherical", or "linear" (improper: a control).
        epsilon: Clip of the log rule.
        shift: Adds the constant b, so that the Brier form reads ``a c + b (1 - (q - c)^2)``, as in RLCR's released code.
            The paper's form and this one have equal advantages, and failure rewards that differ by b.

    Source:
        RLCR, arXiv 2507.16806, equation 4 and theorem 1.

    Example:
        >>> text = "<think>…</think><answer>Paris</answer><confidence>0.8</confidence>"
        >>> RLCR()([text, text], ["Paris", "Rome"]).values.round(2).tolist()
        [0.96, -0.64]
    """

    name: ClassVar[str] = "rlcr"
    formats: ClassVar[tuple[str, ...]] = CONFIDENT

    weights: Any = (1.0, 1.0)
    rule: str = "brier"
    epsilon: float = EPSILON
    shift: bool = False

    def check(self) -> None:
        """Warns where the theorem does not hold."""
        super().check()
        object.__setattr__(self, "weights", read_weights(self.weights))
        a, b = self.weights
        if not self._rule.strict:
            self.warn(f"the rule {self.rule!r} is not proper: it teaches confidences of 0 and 1", "use rule='brier'")
        elif a < b * self._rule.tension:
            self.warn(
                f"with weights {a:g} and {b:g} an unlikely answer stated with low confidence beats a likelier one",
                f"a correctness weight of at least {b * self._rule.tension:.4g}",
            )

    @property
    def _rule(self) -> Rule:
        return scoring_rule(self.rule, epsilon=self.epsilon)

    @property
    def min_value(self) -> float:
        """A wrong answer at full confidence."""
        _, b = self.weights
        return b * (self._rule.lowest + self.shift)

    @property
    def max_value(self) -> float:
        """A right answer at full confidence."""
        a, b = self.weights
        return a + b * (self._rule.highest + self.shift)

    @property
    def proper(self) -> bool:
        """Whether stating the true probability is the unique best confidence."""
        return self._rule.strict and self.weights[1] > 0.0

    @property
    def proper_for(self) -> str:
        """The probability that the answer is right."""
        if not self.proper:
            return "nothing"
        return f"the probability that the given answer is right; unique for {self._rule.proper_for}"

    @property
    def component_names(self) -> tuple[str, ...]:
        """``brier`` is ``1 - (q - c)^2`` under any rule; another rule's own score stands beside it under its name."""
        return ("correct", "confidence", "brier", "wellformed") + (() if self.rule == "brier" else (self.rule,))

    def score(
        self, forecast: Forecast, outcome: Outcome, columns: Mapping[str, Any]
    ) -> tuple[Float64, Mapping[str, Any]]:
        """Correctness plus the rule's score."""
        a, b = self.weights
        confidence, correct = forecast.probs[:, 0], outcome.correct[:, 0].astype(np.float64)
        calibration = self._rule.score(confidence, correct)
        parts = {
            "correct": correct,
            "confidence": confidence,
            "brier": brier_reward(confidence=confidence, correct=correct),
            self.rule: calibration,
        }
        if self.rule == "brier":
            parts["brier"] = calibration + 1.0
        return a * correct + b * (calibration + self.shift), parts


def read_weights(weights: Any) -> tuple[float, float]:
    """The weights of correctness and calibration, from a pair or a mapping by name.

    Raises:
        InvalidArgumentError: Another shape or name, or a negative or non-finite number.
    """
    if isinstance(weights, Mapping):
        if set(weights) - set(WEIGHT_NAMES):
            raise InvalidArgumentError("weights", expected=f"the keys {', '.join(WEIGHT_NAMES)}", got=dict(weights))
        weights = [weights.get(name, 1.0) for name in WEIGHT_NAMES]
    if not hasattr(weights, "__len__") or isinstance(weights, str) or len(weights) != 2:
        raise InvalidArgumentError("weights", expected="two numbers (correctness, calibration)", got=weights)
    for name, weight in zip(WEIGHT_NAMES, weights, strict=True):
        check_number(f"weights[{name!r}]", weight, low=0.0)
    return float(weights[0]), float(weights[1])
