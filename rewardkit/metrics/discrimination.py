"""Whether confidence tells right answers from wrong ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rewardkit import _kernels
from rewardkit.metrics import inputs
from rewardkit.metrics.result import Metric
from rewardkit.types import Float64


def auroc(*, confidence: Any, correct: Any) -> Metric:
    """Chance that a right answer has a higher confidence than a wrong one; ties count half. Larger is better.

    Args:
        confidence: ``[N]`` any numbers without NaN: only their order counts.
        correct: bool ``[N]``.

    Returns:
        In [0, 1], exact. NaN where all answers are right, or all are wrong (or there is none): ``undefined`` then says
        so, and the number is neither 0 nor .5.

    Raises:
        InvalidArgumentError: A bad shape, or a NaN.

    Source:
        The Mann-Whitney statistic; scikit-learn's ``roc_auc_score``.
    """
    q = inputs.scores("confidence", confidence)
    y = inputs.labels("correct", correct, like=q)
    twice_wins, right, wrong = _kernels.kernel("auroc_counts")(q, y)
    if right and wrong:
        value, undefined = twice_wins / (2 * right * wrong), ""
    else:
        kinds = "there are no answers" if len(q) == 0 else f"all answers are {'right' if right else 'wrong'}"
        value, undefined = math.nan, f"{kinds}, so there is no pair to compare"
    return Metric(value, name="auroc", n=len(q), undefined=undefined)


@dataclass(frozen=True)
class RiskCoverage:
    """What happens to the error rate when only the most confident answers are kept.

    Attributes:
        threshold: float64 ``[V]``, distinct confidences, falling: keep answers with at least this one.
        coverage: float64 ``[V]``, the share of answers kept, rising to 1.
        risk: float64 ``[V]``, the error rate among them.
        area: Area under risk over coverage (AURC), each answer of a tie counted at the tie's risk; smaller is better.
        n: Answers.
    """

    threshold: Float64
    coverage: Float64
    risk: Float64
    area: float
    n: int


def risk_coverage(*, confidence: Any, correct: Any) -> RiskCoverage:
    """The risk-coverage curve, with ties kept together.

    Args:
        confidence: ``[N]`` any numbers without NaN: only their order counts.
        correct: bool ``[N]``.

    Raises:
        InvalidArgumentError: A bad shape, or a NaN.

    Source:
        El-Yaniv and Wiener 2010; Geifman and El-Yaniv 2017 (arXiv:1705.08500).
    """
    q = inputs.scores("confidence", confidence).astype(np.float64)
    y = inputs.labels("correct", correct, like=q)
    value, index, count = np.unique(-q, return_inverse=True, return_counts=True)
    kept = np.cumsum(count)
    wrong = np.cumsum(np.bincount(index, weights=1.0 - y, minlength=len(value)))
    risk = wrong / kept
    area = float((risk * count).sum() / len(q)) if len(q) else math.nan
    return RiskCoverage(threshold=-value, coverage=kept / max(1, len(q)), risk=risk, area=area, n=len(q))
