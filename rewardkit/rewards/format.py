"""Format alone: a part of composed rewards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rewardkit.arrays import whole
from rewardkit.parsing import FORMATS
from rewardkit.parsing.grammar import MAX_ANSWERS
from rewardkit.rewards.base import register
from rewardkit.rewards.text import TextReward
from rewardkit.types import Float64, Forecast, Outcome


@register
@dataclass(frozen=True, kw_only=True)
class FormatReward(TextReward):
    """1 for a well-formed completion, ``1 - margin`` = 0 for any other.

    RLCR's released code adds it to its other terms with a weight of .5 each. In :class:`Compose` the gate does its work already: there it only
    raises well-formed completions further above the failure reward.

    Attributes:
        format: Any format.
        max_answers: As :func:`rewardkit.parsing.parse` takes it.

    Example:
        >>> FormatReward(format="ta")(["<think>…</think><answer>a</answer>", "a"], ["a", "a"]).values.tolist()
        [1.0, 0.0]
    """

    name: ClassVar[str] = "format"
    formats: ClassVar[tuple[str, ...]] = tuple(FORMATS)

    margin: float = 1.0
    max_answers: int | None = None

    def check(self) -> None:
        """Refuses a number of answers that no format has."""
        super().check()
        if self.max_answers is not None:
            whole("max_answers", self.max_answers, high=MAX_ANSWERS)

    def reading(self) -> dict[str, Any]:
        """The options of :func:`rewardkit.parsing.parse`."""
        asked = {} if self.max_answers is None else {"max_answers": self.max_answers}
        return {**super().reading(), **asked}

    @property
    def min_value(self) -> float:
        """Always 1."""
        return 1.0

    @property
    def max_value(self) -> float:
        """Always 1."""
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
        return ("wellformed",)

    def score(
        self, forecast: Forecast, outcome: Outcome, columns: Mapping[str, Any]
    ) -> tuple[Float64, Mapping[str, Any]]:
        """One."""
        return np.ones(len(forecast)), {}
