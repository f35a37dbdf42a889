"""The Brier score of a distribution over answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rewardkit.rewards.base import register
from rewardkit.rewards.hypotheses import Claim, HypothesesReward
from rewardkit.types import Float64, Forecast, Outcome


@register
@dataclass(frozen=True, kw_only=True)
class HypothesesBrier(HypothesesReward):
    """``-sum_j (w_j - 1[j is the gold])^2 - (w_other - 1[unlisted])^2``, bounded where the log score is not.

    Hypotheses that are ways to write the gold count as one, with their weights added.

    Attributes:
        halve: Divides the score by 2, for a range of [-1, 0] instead of [-2, 0].

    Source:
        Multi-category quadratic rule, Brier 1950; Gneiting & Raftery 2007, section 3.1.

    Example:
        >>> text = ("<think>…</think><hypotheses><h1>flu</h1><w1>0.6</w1><h2>cold</h2><w2>0.3</w2>"
        ...     "<other>0.1</other></hypotheses>")
        >>> HypothesesBrier()([text, text], ["flu", "measles"]).values.round(2).tolist()
        [-0.26, -1.26]
    """

    name: ClassVar[str] = "hypotheses_brier"

    halve: bool = False

    @property
    def min_value(self) -> float:
        """All weight in one wrong place."""
        return self.range_with_terms(-1.0 if self.halve else -2.0, 0.0)[0]

    @property
    def max_value(self) -> float:
        """All weight on the gold."""
        return self.range_with_terms(-1.0 if self.halve else -2.0, 0.0)[1]

    @property
    def proper(self) -> bool:
        """For the weights of a given list."""
        return True

    @property
    def proper_for(self) -> str:
        """The weights of a given list."""
        return "the weights of a given list and of Other, with one reference; which hypotheses to list is not elicited"

    def score(
        self, forecast: Forecast, outcome: Outcome, columns: Mapping[str, Any]
    ) -> tuple[Float64, Mapping[str, Any]]:
        """Squared distance of the weights from what turned out."""
        claim = Claim.of(forecast, outcome)
        wrong = np.square(forecast.probs * ~outcome.correct).sum(axis=1)
        right = np.square(claim.assigned - claim.listed) + np.square(claim.other - ~claim.listed)
        return self.with_terms(-(wrong + right) / (2.0 if self.halve else 1.0), forecast, outcome)
