"""NOVER: the rank of the reference's perplexity within the group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rewardkit.errors import InvalidArgumentError
from rewardkit.rewards.base import register
from rewardkit.rewards.reference_likelihood import LikelihoodReward, Scores, first_problem, groups_of, per_row
from rewardkit.shaping import check_number

_LARGEST_LOG = 700.0
"""exp of it is still a float."""


@register
@dataclass(frozen=True, kw_only=True)
class NOVER(LikelihoodReward):
    r"""How well the reasoning explains the reference, by rank among the prompt's rollouts, plus a term for short reasoning.

    Perplexity is ``exp(nll / N)`` with ``nll`` the mean negative log-probability of the reference's tokens and ``N = max(1,
    1 + log10(reasoning tokens))``. Of the m scored rollouts of a prompt the best gets ``m / m``, the worst ``1 / m``; equal
    perplexities share the mean of their ranks. The efficiency of a rollout is the share of the others that are both longer and
    worse, 0 where there are no others.

    Attributes:
        rank_weight: Of the rank.
        efficiency_weight: Of the efficiency.
        format_weight: Share of the format term against both (the paper adds three terms of weight 1: 1/3).

    Source:
        NOVER, arXiv 2505.16022, released code. Its proxy model (a slow copy of the policy) is the caller's choice: pass
        log-probabilities from whatever model should judge. The released code takes the first prompt of a batch for all.

    Example:
        >>> import numpy as np
        >>> logprobs = [np.log([0.9]), np.log([0.5])]
        >>> NOVER(efficiency_weight=0.0)(
        ...     reference_logprobs=logprobs, reasoning_tokens=[10, 10], group_ids=["a", "a"]
        ... ).values.tolist()
        [1.0, 0.5]
    """

    name: ClassVar[str] = "nover"
    needs_group: ClassVar[bool] = True
    rank_weight: float = 1.0
    efficiency_weight: float = 1.0

    def check(self) -> None:
        """Weights."""
        check_number("rank_weight", self.rank_weight, low=0.0)
        check_number("efficiency_weight", self.efficiency_weight, low=0.0)

    def further_columns(self) -> tuple[str, ...]:
        """The length of the reasoning."""
        return ("reasoning_tokens",)

    @property
    def score_range(self) -> tuple[float, float]:
        """0 is the infimum (the worst of ever larger groups)."""
        return 0.0, self.rank_weight + self.efficiency_weight

    @property
    def parts(self) -> tuple[str, ...]:
        """Both terms and the perplexity."""
        return ("rank", "efficiency", "perplexity")

    def score(self, rows: int, columns: Mapping[str, Any]) -> Scores:
        """Rank and efficiency of each group."""
        mean_log, missing = self.reduced(
            columns["reference_logprobs"], "mean_log", name="reference_logprobs", rows=rows
        )
        if columns.get("reasoning_tokens") is None:
            raise InvalidArgumentError("reasoning_tokens", expected="the length of the reasoning per row", got=None)
        length = per_row(columns["reasoning_tokens"], "reasoning_tokens", rows)
        known = np.isfinite(length) & (length >= 0)
        missing = first_problem(missing, ["" if one else "no_reasoning_tokens" for one in known])
        shortened = np.maximum(1.0, 1.0 + np.log10(np.maximum(np.where(known, length, 1.0), 1.0)))
        log_perplexity = np.where(known, -mean_log / shortened, np.nan)
        rank, efficiency = np.zeros(rows), np.zeros(rows)
        for group in groups_of(columns.get("group_ids"), rows):
            members = group[~np.isnan(log_perplexity[group])]
            ours, tokens = log_perplexity[members], length[members]
            worse = ours[None, :] > ours[:, None]
            equal = ours[None, :] == ours[:, None]
            if not len(members):
                continue
            # (m - position) / m with positions from 0; equal ones share the mean of theirs.
            position = (ours[None, :] < ours[:, None]).sum(axis=1) + (equal.sum(axis=1) - 1) / 2
            rank[members] = (len(members) - position) / len(members)
            if len(members) > 1:
                longer = tokens[None, :] > tokens[:, None]
                efficiency[members] = (worse & longer).sum(axis=1) / (len(members) - 1)
        value = self.rank_weight * rank + self.efficiency_weight * efficiency
        perplexity = np.exp(np.minimum(log_perplexity, _LARGEST_LOG))
        return Scores(value, {"rank": rank, "efficiency": efficiency, "perplexity": perplexity}, missing)
