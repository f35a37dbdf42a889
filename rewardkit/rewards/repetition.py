"""The repetition penalty of RLPR, which also reaches rows whose other rewards are 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rewardkit.arrays import whole
from rewardkit.errors import InvalidArgumentError
from rewardkit.parsing import completion_texts
from rewardkit.rewards.base import Reward, register
from rewardkit.types import OK, Bool, RewardBatch


def repeats_itself(completions: Sequence[Any], *, window: int = 10, limit: int = 10) -> Bool:
    """Which completions hold the same run of ``window`` words at least ``limit`` times. Linear in their length.

    Args:
        completions: ``[B]`` strings or chats.
        window: Words in a run; runs may overlap.
        limit: Occurrences from which a completion counts as looping.

    Returns:
        bool ``[B]``.

    Raises:
        InvalidArgumentError: ``window`` or ``limit`` is no positive integer.
    """
    whole("window", window)
    whole("limit", limit)
    found = np.zeros(len(completions), dtype=bool)
    for row, text in enumerate(completion_texts(completions)):
        words = text.split()
        runs = Counter(zip(*(words[start:] for start in range(window)), strict=False))
        found[row] = bool(runs) and max(runs.values()) >= limit
    return found


@register
@dataclass(frozen=True, kw_only=True)
class Repetition(Reward):
    """``-1`` for a completion that repeats a run of ten words ten times or more, else 0: a term to add to other rewards.

    RLPR's released code adds its penalty where the reward is not 0, so that looping junk without an answer (0) beats a looping
    answer (-0.9). Here every looping row pays.

    Attributes:
        window: Words in a run.
        limit: Occurrences from which it counts.

    Source:
        RLPR, arXiv 2506.18254, released code (``repetition_penalty``).

    Example:
        >>> Repetition()(["so it goes on and on and on like this " * 12, "Paris"]).values.tolist()
        [-1.0, 0.0]
    """

    name: ClassVar[str] = "repetition"
    window: int = 10
    limit: int = 10

    def __post_init__(self) -> None:
        whole("window", self.window)
        whole("limit", self.limit, low=2)

    @property
    def min_value(self) -> float:
        """A completion that repeats itself."""
        return -1.0

    @property
    def max_value(self) -> float:
        """Any other."""
        return 0.0

    @property
    def fail_reward(self) -> float:
        """Never used: no completion is ill-formed for this reward."""
        return -1.0

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
        return ("repetition",)

    def __call__(self, completions: Sequence[Any] = (), references: Sequence[Any] = (), **columns: Any) -> RewardBatch:
        """Scores a batch; ``references`` may be empty."""
        if len(references) not in (0, len(completions)):
            raise InvalidArgumentError("references", expected=f"{len(completions)} entries", got=len(references))
        loops = repeats_itself(completions, window=self.window, limit=self.limit).astype(np.float64)
        size = len(completions)
        return RewardBatch(values=0.0 - loops, components={"repetition": loops}, status=[OK] * size, reason=[""] * size)
