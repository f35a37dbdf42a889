"""Calibration of a forecast over a fixed list of classes, class by class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rewardkit import arrays
from rewardkit.errors import InvalidArgumentError
from rewardkit.metrics import calibration, inputs
from rewardkit.metrics.calibration import Edge
from rewardkit.metrics.result import Metric, Null
from rewardkit.types import Float64

SUM_TOLERANCE = 1e-3
"""By how much a row's probabilities may miss 1: a softmax in half precision does."""

_NULL_DRAWS = 500


def classwise_ece(
    *, probs: Any, label: Any, bins: int | Sequence[float] = 10, edge: Edge = "left", seed: int = 0
) -> Metric:
    r"""Mean over classes of the ECE of each class's probability as the chance of that class; smaller is better.

    .. math:: \frac1C \sum_c \sum_b \frac{n_{bc}}{n} \left|\bar p_{bc} - \bar y_{bc}\right|

    The ECE of the top class says nothing of the others' probabilities; this does. With many classes most probabilities lie in the
    lowest bin, and the value is small whatever the forecast: read it beside its ``null``.

    Args:
        probs: float ``[N, C]`` in [0, 1], each row summing to 1 within 1e-3: multiple choice, a classifier's output.
        label: int ``[N]`` in [0, C), which class turned out true.
        bins: As for :func:`rewardkit.metrics.ece`, of equal width, or inner edges.
        edge: As for :func:`rewardkit.metrics.ece`.
        seed: Of the null's redraws.

    Returns:
        In [0, 1]; NaN for empty input. The null redraws each row's label from its own probabilities.

    Raises:
        InvalidArgumentError: A bad shape or setting, a probability that is NaN or outside [0, 1], rows that do not sum to 1,
            or a label that is no class.

    Source:
        Kull et al. 2019 (arXiv:1910.12656), classwise-ECE.
    """
    p = arrays.floats("probs", probs, "shape [N, C]")
    if p.ndim != 2 or p.shape[1] < 1:
        raise InvalidArgumentError("probs", expected="shape [N, C], at least one class", got=f"shape {p.shape}")
    bad = ~((p >= 0) & (p <= 1))
    if bad.any():
        raise InvalidArgumentError("probs", expected="numbers in [0, 1]", got=p[bad][0].item())
    sums = p.sum(axis=1)
    if (np.abs(sums - 1) > SUM_TOLERANCE).any():
        row = int(np.flatnonzero(np.abs(sums - 1) > SUM_TOLERANCE)[0])
        raise InvalidArgumentError("probs", expected="rows that sum to 1", got=f"{sums[row]:.6g} in row {row}")
    n, classes = p.shape
    y = _labels(label, n, classes)
    true = np.zeros(p.shape, bool)
    true[np.arange(n), y] = True
    which = np.tile(np.arange(classes), n)
    found = calibration.calibration_histogram(p.ravel(), true.ravel(), bins, which, edge=edge)
    settings = found.settings | {"norm": 1, "classes": classes}
    value = float(found.ece().mean()) if n else math.nan
    return Metric(
        value,
        name="classwise_ece",
        n=n,
        settings=settings,
        undefined="" if n else "no rows",
        null=lambda: _null(p, value, bins, edge, seed, settings),
    )


def _labels(label: Any, rows: int, classes: int) -> npt.NDArray[np.int64]:
    expected = f"{rows} whole numbers in [0, {classes}), one per row of probs"
    y = arrays.numeric("label", label, expected)
    whole = y.dtype.kind in "iu" or y.size == 0
    if not whole or y.shape != (rows,) or (rows and not 0 <= y.min() <= y.max() < classes):
        raise InvalidArgumentError("label", expected=expected, got=label)
    return y.astype(np.int64)


def _null(p: Float64, observed: float, bins: Any, edge: Any, seed: int, settings: dict[str, Any]) -> Null:
    n, classes = p.shape
    results = np.empty(_NULL_DRAWS)
    if not n:
        return Null.of(results, observed, seed=seed, n=0, settings=settings)
    thresholds, _, _ = calibration._thresholds(p.ravel(), bins, "width", edge)
    width = len(thresholds) + 1
    cell = np.searchsorted(thresholds, p, side="right") + np.arange(classes) * width
    stated = np.bincount(cell.ravel(), weights=p.ravel(), minlength=classes * width)
    # A row's label is where its draw falls among its cumulative probabilities; one search for all rows, each in its own unit.
    cumulative = np.cumsum(p, axis=1)
    steps = cumulative[:, :-1] / cumulative[:, -1:] + np.arange(n)[:, None]
    rng = inputs.generator(seed, "classwise_null")
    for draw in range(_NULL_DRAWS):
        place = np.searchsorted(steps.ravel(), rng.random(n) + np.arange(n), side="right")
        drawn = place - np.arange(n) * (classes - 1)
        right = np.bincount(cell[np.arange(n), drawn], minlength=classes * width)
        results[draw] = np.abs(stated - right).sum() / (n * classes)
    return Null.of(results, observed, seed=seed, n=n, settings=settings)
