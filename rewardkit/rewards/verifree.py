"""The probability of the whole reference after the policy's own reasoning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rewardkit.rewards.base import register
from rewardkit.rewards.reference_likelihood import LikelihoodReward, Scores


@register
@dataclass(frozen=True, kw_only=True)
class VeriFree(LikelihoodReward):
    r"""``r = exp(sum_t log p(y*_t))``: what correctness by exact match would be on average over the policy's own answers.

    The sum runs in log space. For long references the product is 0 for everybody, whatever the reasoning (RLPR's mean is
    made for them). The paper's second term, the gradient of ``log p(y*)`` weighted by ``r``, is no reward and needs a loss of
    its own; this is the reward alone. Use leave-one-out advantages (:func:`rewardkit.groups.rloo`), as the paper does.

    Attributes:
        fail_reward: The paper gives 0, which is the minimum here too: pass 0 for parity.

    Source:
        VeriFree, arXiv 2505.21493, equation 6.

    Example:
        >>> import numpy as np
        >>> VeriFree()(reference_logprobs=[np.log([0.5, 0.5])]).values.round(6).tolist()
        [0.25]
    """

    name: ClassVar[str] = "verifree"

    @property
    def score_range(self) -> tuple[float, float]:
        """A probability."""
        return 0.0, 1.0

    @property
    def parts(self) -> tuple[str, ...]:
        """The score."""
        return ("reference_score",)

    def score(self, rows: int, columns: Mapping[str, Any]) -> Scores:
        """The product of the token probabilities."""
        score, missing = self.reduced(columns["reference_logprobs"], "prod", name="reference_logprobs", rows=rows)
        return Scores(score, {"reference_score": score}, missing)
