"""The probability of the reference after the policy's own reasoning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rewardkit.errors import InvalidArgumentError
from rewardkit.likelihood import REDUCTIONS, Reduction
from rewardkit.rewards.base import register
from rewardkit.rewards.reference_likelihood import (
    PROBABILITIES,
    LikelihoodReward,
    Scores,
    first_problem,
    per_row,
)
from rewardkit.shaping import check_choice
from rewardkit.types import Float64

ROUNDING = 1e-6
"""By how much a stored baseline may leave the range of what it is."""


@dataclass(frozen=True, kw_only=True)
class Debiased(LikelihoodReward):
    """A likelihood reward from which the likelihood without reasoning may be taken away.

    Attributes:
        debias: Whether the score is the gain over ``baseline``; ``None``: where the call brings one. In a trainer say true
            or false: only then is the column demanded.
        clip: Whether a gain is cut to [0, 1] (a log-probability's gain to [0, inf)).
    """

    debias: bool | None = None
    clip: bool = True

    def further_columns(self) -> tuple[str, ...]:
        """The baseline, where it is demanded."""
        return ("baseline",) if self.debias else ()

    def gain(self, score: Float64, columns: Mapping[str, Any], rows: int) -> tuple[Float64, Float64, list[str]]:
        """The score less the baseline, the baseline, and why a row has none."""
        given = columns.get("baseline")
        if self.debias and given is None:
            raise InvalidArgumentError("baseline", expected="the score without reasoning, per row", got=None)
        if self.debias is False or given is None:
            return score, np.zeros(rows), [""] * rows
        baseline = per_row(given, "baseline", rows)
        low, high = (0.0, 1.0) if self._is_probability else (-np.inf, 0.0)
        with np.errstate(invalid="ignore"):
            known = (baseline >= low - ROUNDING) & (baseline <= high + ROUNDING)
        baseline = np.clip(baseline, low if self._is_probability else self.floor, high)
        gain = score - np.where(known, baseline, 0.0)
        if self.clip:
            gain = np.clip(gain, 0.0, 1.0) if self._is_probability else np.maximum(gain, 0.0)
        return gain, baseline, ["" if one else "no_baseline" for one in known]

    @property
    def _is_probability(self) -> bool:
        return True

    def debiased_range(self, low: float, high: float) -> tuple[float, float]:
        """The range of the gain, from the range of the score."""
        if self.debias is False:
            return low, high
        least, most = (0.0, 1.0) if self._is_probability else (low, 0.0)  # of the baseline
        if self.clip:
            gain = (0.0, min(1.0, high) if self._is_probability else high - least)
        else:
            gain = (low - most, high - least)
        # With debias=None a call without a baseline earns the score itself.
        return gain if self.debias else (min(low, gain[0]), max(high, gain[1]))


@register
@dataclass(frozen=True, kw_only=True)
class RLPR(Debiased):
    r"""How probable the reference is to the policy after its own reasoning, as the mean of its tokens' probabilities.

    .. math:: r = (1 - f)\,\operatorname{clip}_{[0,1]}\Bigl(\tfrac1T \sum_t p_t - r_0\Bigr) + f \cdot \text{format}

    Attributes:
        reduce: "mean_prob" (the paper's choice; a mean bears one unlikely token, a product does not), "geo_mean", "prod",
            "mean_log" or "sum_log".
        format_weight: The paper's code: 0.1.

    Source:
        RLPR, arXiv 2506.18254, equations 3 to 6. The released code rounds the score to bfloat16, which is kept in float64
        here, and scores at the rollout's temperature; pass log-probabilities at temperature 1.

    Example:
        >>> import numpy as np
        >>> RLPR()(reference_logprobs=[np.log([0.9, 0.5])], baseline=[0.2]).values.round(6).tolist()
        [0.5]
    """

    name: ClassVar[str] = "rlpr"
    reduce: Reduction = "mean_prob"
    format_weight: float = 0.1

    def check(self) -> None:
        """A reduction that exists."""
        check_choice("reduce", self.reduce, REDUCTIONS)

    @property
    def _is_probability(self) -> bool:
        return self.reduce in PROBABILITIES

    @property
    def score_range(self) -> tuple[float, float]:
        """A probability, or a log-probability down to the floor; debiased or not."""
        return self.debiased_range(0.0 if self._is_probability else self.floor, 1.0 if self._is_probability else 0.0)

    @property
    def parts(self) -> tuple[str, ...]:
        """The score before and the baseline that was taken away."""
        return ("reference_score", "baseline")

    def score(self, rows: int, columns: Mapping[str, Any]) -> Scores:
        """The reduced log-probabilities less the baseline."""
        score, missing = self.reduced(columns["reference_logprobs"], self.reduce, name="reference_logprobs", rows=rows)
        gain, baseline, unknown = self.gain(score, columns, rows)
        return Scores(gain, {"reference_score": score, "baseline": baseline}, first_problem(missing, unknown))
