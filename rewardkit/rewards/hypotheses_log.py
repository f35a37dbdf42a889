"""The log score of a distribution over answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rewardkit.rewards.base import register
from rewardkit.rewards.hypotheses import Claim, HypothesesReward
from rewardkit.types import Float64, Forecast, Outcome


@register
@dataclass(frozen=True, kw_only=True)
class HypothesesLog(HypothesesReward):
    """``log max(m, epsilon)`` if the gold is listed, with weight m in all; else ``log max(w_other, epsilon)``. In nats.

    On its own this is *not* a reward to train on, and the constructor warns: a junk hypothesis with all weight on Other earns ``log 1 = 0``, more
    than any honest uncertain forecast. Remedies: a ``correctness_weight`` of at least ``log((1 - epsilon) / epsilon)``, or
    :class:`HypothesesBackoff`, whose Other must pay for the gold's own improbability.

    Source:
        Logarithmic rule, Gneiting & Raftery 2007; hypotheses with Other: see ``docs/rewards.md``.

    Example:
        >>> text = ("<think>…</think><hypotheses><h1>flu</h1><w1>0.6</w1><h2>cold</h2><w2>0.3</w2>"
        ...     "<other>0.1</other></hypotheses>")
        >>> HypothesesLog(correctness_weight=5.0)([text, text], ["cold", "measles"]).values.round(4).tolist()
        [-1.204, -2.3026]
    """

    name: ClassVar[str] = "hypotheses_log"

    def check(self) -> None:
        """Warns of the pure log score."""
        super().check()
        needed = math.log((1.0 - self.epsilon) / self.epsilon)
        if self.correctness_weight < needed:
            self.warn(
                "a junk hypothesis with all weight on Other earns the maximum, so a policy learns to say nothing",
                f"correctness_weight of at least {needed:.3g}, or hypotheses_backoff",
            )

    @property
    def min_value(self) -> float:
        """No weight where the truth is."""
        return self.range_with_terms(math.log(self.epsilon), 0.0)[0]

    @property
    def max_value(self) -> float:
        """All weight on the gold."""
        return self.range_with_terms(math.log(self.epsilon), 0.0)[1]

    @property
    def proper(self) -> bool:
        """For the weights of a given list."""
        return True

    @property
    def proper_for(self) -> str:
        """The weights of a given list."""
        return (
            f"the weights of a given list and of Other, where they are at least {self.epsilon:g}, with one reference; "
            "which hypotheses to list is not elicited"
        )

    def score(
        self, forecast: Forecast, outcome: Outcome, columns: Mapping[str, Any]
    ) -> tuple[Float64, Mapping[str, Any]]:
        """The log of the weight that the truth was given."""
        claim = Claim.of(forecast, outcome)
        given = np.where(claim.listed, claim.assigned, claim.other)
        return self.with_terms(np.log(np.maximum(given, self.epsilon)), forecast, outcome)
