"""Offline evaluation: how right and how calibrated a model is.

Every metric takes one-dimensional arrays by keyword and returns a :class:`Metric`: a float that also carries the number of
items, the number of invalid ones and all settings.
"""

from rewardkit.metrics.calibration import (
    Histogram,
    bin_thresholds,
    brier_loss,
    calibration_histogram,
    ece,
    ece_null,
)
from rewardkit.metrics.discrimination import auroc
from rewardkit.metrics.result import Metric, Null

__all__ = [
    "Histogram",
    "Metric",
    "Null",
    "auroc",
    "bin_thresholds",
    "brier_loss",
    "calibration_histogram",
    "ece",
    "ece_null",
]
