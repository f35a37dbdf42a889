"""Calibration kernels against numpy and scikit-learn: equal first, then how many times faster.

Peers run in turn in one process, so that what else the machine does hits all of them; CPU time of one thread, the best of
several. ``make bench``, or ``python benchmarks/bench_metrics.py`` for the ratios alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from turns import cpu_seconds

from rewardkit import _kernels, metrics
from rewardkit.metrics.calibration import bin_thresholds, fraction_bits

BINS = 15


def data(n: int, dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    """Confidences of which a third are round numbers, as models state them."""
    rng = np.random.default_rng(0)
    q = np.where(rng.random(n) < 0.3, rng.integers(0, 21, n) / 20, rng.random(n))
    return q.astype(dtype), (rng.random(n) < q).astype(np.uint8)


def numpy_ece_brier(q: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    index = np.minimum((q * BINS).astype(np.int64), BINS - 1)
    gap = np.bincount(index, weights=q, minlength=BINS) - np.bincount(index, weights=y, minlength=BINS)
    return float(np.abs(gap).sum() / len(q)), float(np.mean((q - y) ** 2))


def ours_ece_brier(q: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    found = metrics.calibration_histogram(q, y, BINS)
    return float(found.ece()[0]), float(found.brier()[0])


def numpy_segmented(q: np.ndarray, y: np.ndarray, length: int, bins: int) -> np.ndarray:
    groups = len(q) // length
    cell = np.minimum((q * bins).astype(np.int64), bins - 1) + np.repeat(np.arange(groups) * bins, length)
    gap = np.bincount(cell, weights=q - y, minlength=groups * bins).reshape(groups, bins)
    return np.abs(gap).sum(axis=1) / length


def compare_ece(n: int) -> dict[str, float]:
    q, y = data(n)
    expected = numpy_ece_brier(q.astype(np.float64), y)
    np.testing.assert_allclose(ours_ece_brier(q, y), expected, atol=2e-6)  # numpy puts edges of float32 elsewhere
    calls = {
        "kernel": lambda: _kernels.kernel("calibration_histogram")(
            q, y, bin_thresholds(BINS, dtype=np.float32), None, 1, fraction_bits(n)
        ),
        "metrics": lambda: ours_ece_brier(q, y),
        "numpy bincount": lambda: numpy_ece_brier(q, y),
    }
    return cpu_seconds(calls, rounds=7)


def compare_auroc(n: int) -> dict[str, float]:
    sklearn = pytest.importorskip("sklearn.metrics")
    q, y = data(n)
    assert abs(metrics.auroc(confidence=q, correct=y) - sklearn.roc_auc_score(y, q)) < 1e-12
    rng = np.random.default_rng(1)
    wide = np.where(rng.random(n) < 0.3, q, rng.random(n))  # round numbers, and all 53 bits
    return cpu_seconds(
        {
            "float32": lambda: metrics.auroc(confidence=q, correct=y),
            "float64": lambda: metrics.auroc(confidence=wide, correct=y),
            "scikit-learn float32": lambda: sklearn.roc_auc_score(y, q),
            "scikit-learn float64": lambda: sklearn.roc_auc_score(y, wide),
        },
        rounds=3,
    )


def compare_segmented(groups: int = 100_000, length: int = 16, bins: int = 10) -> dict[str, float]:
    rng = np.random.default_rng(2)
    q, y = rng.random(groups * length).astype(np.float32), (rng.random(groups * length) < 0.5).astype(np.uint8)
    offsets = np.arange(0, groups * length + 1, length)
    ours = metrics.grouped_calibration(confidence=q, correct=y, offsets=offsets, bins=bins)[0]
    theirs = numpy_segmented(q.astype(np.float64), y, length, bins)
    assert np.mean(np.abs(ours - theirs) < 1e-6) > 0.9999
    return cpu_seconds(
        {
            "ours": lambda: metrics.grouped_calibration(confidence=q, correct=y, offsets=offsets, bins=bins),
            "numpy bincount": lambda: numpy_segmented(q, y, length, bins),
        },
        rounds=7,
    )


@pytest.mark.parametrize("n", [10**6, 10**7])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ece_and_brier(benchmark: Any, n: int, dtype: Any) -> None:
    q, y = data(n, dtype)
    benchmark(ours_ece_brier, q, y)
    if dtype is np.float32:
        times = compare_ece(n)
        benchmark.extra_info["elements per second"] = n / times["kernel"]
        benchmark.extra_info["times numpy bincount"] = times["numpy bincount"] / times["metrics"]


def test_auroc(benchmark: Any) -> None:
    q, y = data(10**6)
    benchmark(lambda: metrics.auroc(confidence=q, correct=y))
    times = compare_auroc(10**6)
    benchmark.extra_info["times scikit-learn"] = times["scikit-learn float32"] / times["float32"]
    benchmark.extra_info["times scikit-learn (float64)"] = times["scikit-learn float64"] / times["float64"]


def test_segmented(benchmark: Any) -> None:
    times = compare_segmented()
    benchmark.extra_info["times numpy bincount"] = times["numpy bincount"] / times["ours"]
    rng = np.random.default_rng(2)
    q, y = rng.random(1_600_000).astype(np.float32), rng.random(1_600_000) < 0.5
    benchmark(lambda: metrics.grouped_calibration(confidence=q, correct=y, offsets=np.arange(0, 1_600_001, 16)))


def main() -> None:
    for n in (10**6, 10**7):
        times = compare_ece(n)
        rate, ratio = n / times["kernel"] / 1e6, times["numpy bincount"] / times["metrics"]
        print(
            f"ECE + Brier, n = {n:.0e}: {rate:.0f} M elements/s, {ratio:.1f}x numpy bincount, {times['metrics'] * 1e3:.2f} ms"
        )
    times = compare_auroc(10**6)
    for dtype in ("float32", "float64"):
        ratio = times[f"scikit-learn {dtype}"] / times[dtype]
        print(f"AUROC, n = 1e6, {dtype}: {times[dtype] * 1e3:.1f} ms, {ratio:.1f}x scikit-learn")
    times = compare_segmented()
    print(
        f"segmented, 1e5 groups of 16: {times['ours'] * 1e3:.2f} ms, {times['numpy bincount'] / times['ours']:.1f}x numpy bincount"
    )


if __name__ == "__main__":
    main()
