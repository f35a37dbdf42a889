"""Correctness alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rewardkit.rewards.base import register
from rewardkit.rewards.text import SINGLE, TextReward
from rewardkit.types import Float64, Forecast, Outcome


@register
@dataclass(frozen=True, kw_only=True)
class RLVR(TextReward):
    """``c``: 1 for a right answer, 0 for a wrong one; less than 0 for an ill-formed completion.

    Says nothing about confidence: whatever a policy states beside its answer keeps the value that it started with.

    Attributes:
        format: "ta" (default), "tac", "tabc", "tbac" or "final".

    Source:
        RLVR as in RLCR, arXiv 2507.16806, section 2.

    Example:
        >>> RLVR()(["<think>…</think><answer>Paris</answer>"], ["Paris"]).values.tolist()
        [1.0]
    """

    name: ClassVar[str] = "rlvr"
    formats: ClassVar[tuple[str, ...]] = SINGLE
    format: str = "ta"

    @property
    def min_value(self) -> float:
        """A wrong answer."""
        return 0.0

    @property
    def max_value(self) -> float:
        """A right answer."""
        return 1.0

    @property
    def proper(self) -> bool:
        """Never: no forecast enters."""
        return False

    @property
    def proper_for(self) -> str:
        """Nothing."""
        return "nothing: no forecast enters the reward"

    @property
    def component_names(self) -> tuple[str, ...]:
        """The columns of the result."""
        return ("correct", "wellformed")

    def score(
        self, forecast: Forecast, outcome: Outcome, columns: Mapping[str, Any]
    ) -> tuple[Float64, Mapping[str, Any]]:
        """Correctness of the one answer."""
        correct = outcome.correct[:, 0].astype(np.float64)
        return correct, {"correct": correct}
