"""How many of the right answers were named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rewardkit.rewards.base import register
from rewardkit.rewards.multi import PAIRED, MultiReward
from rewardkit.types import Float64, Forecast, Outcome


@register
@dataclass(frozen=True, kw_only=True)
class MultiRLVR(MultiReward):
    """The credit of a set of K answers, by ``credit_mode``.

    The optimum names the K likeliest answers. Nothing rewards naming the best one first. K = 1 is :class:`RLVR`; with one
    reference "sum" equals "any" (pass@K).

    Attributes:
        format: "multi_rlvr" (default: answers alone), "multi", "multi_split" or "multi_noanalysis".

    Source:
        Multi-answer RL, arXiv 2603.24844; its released default is "any".

    Example:
        >>> text = "<think>…</think><answer1>flu</answer1><answer2>cold</answer2>"
        >>> MultiRLVR(max_answers=2)([text], [["cold", "measles"]], gold_kind="set").values.tolist()
        [1.0]
    """

    name: ClassVar[str] = "multi_rlvr"
    formats: ClassVar[tuple[str, ...]] = ("multi_rlvr", *PAIRED)

    format: str = "multi_rlvr"

    @property
    def min_value(self) -> float:
        """No right answer."""
        return 0.0

    @property
    def max_value(self) -> float:
        """All answers right."""
        return self.most_credit(self.max_answers)

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
        return self.set_components

    def score(
        self, forecast: Forecast, outcome: Outcome, columns: Mapping[str, Any]
    ) -> tuple[Float64, Mapping[str, Any]]:
        """The credit."""
        return self.credit_of(outcome), self.set_parts(forecast, outcome)
