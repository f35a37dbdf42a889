"""Whether confidence tells right answers from wrong ones."""

from __future__ import annotations

import math
from typing import Any

from rewardkit import _kernels
from rewardkit.metrics import inputs
from rewardkit.metrics.result import Metric


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
