"""Parity rows of the calibration kernels."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from rewardkit.metrics.calibration import bin_thresholds
from tests.parity import Call, Row

# Exact edges, their neighbours in both precisions, the ends, and what is invalid.
_EDGES = [k / 100 for k in range(0, 101, 5)]
_NEAR = [float(np.nextafter(np.float32(q), np.float32(side))) for q in (0.1, 0.3, 0.5, 0.7) for side in (0, 1)]
_NEAR += [float(np.nextafter(q, side)) for q in (0.3, 0.6, 0.7) for side in (0, 1)]
_TINY = [5e-324, 1e-45, 2.0**-49, 3 * 2.0**-50, 1 - 2.0**-53, 1 - 2.0**-25]
_INVALID = [-0.1, 1.0000001, float("nan"), float("inf"), -float("inf"), 100.0]
_VALUES = st.sampled_from([*_EDGES, *_NEAR, *_TINY, -0.0]) | st.floats(0, 1)


_SIZES = st.sampled_from([0, 1, 15, 16, 17, 33, 250])


@st.composite
def _confidences(draw: st.DrawFn, *, invalid: bool = True, sizes: st.SearchStrategy[int] = _SIZES):
    size = draw(sizes)
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    pool = np.array(draw(st.lists(_VALUES, min_size=1, max_size=20)))
    if invalid and draw(st.booleans()):
        pool = np.append(pool, draw(st.lists(st.sampled_from(_INVALID), min_size=1, max_size=3)))
    values = np.where(rng.random(size) < 0.5, rng.choice(pool, size), rng.random(size))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return values.astype(dtype), rng.integers(0, 2, size).astype(np.uint8)


@st.composite
def _thresholds(draw: st.DrawFn, dtype: np.dtype) -> np.ndarray:
    if draw(st.booleans()):
        bins = draw(st.sampled_from([1, 2, 5, 10, 15, 16, 17, 20, 64, 65, 100]))
        return bin_thresholds(bins, edge=draw(st.sampled_from(["left", "right", "rlcr"])), dtype=dtype)
    return np.unique(draw(st.lists(_VALUES, max_size=12))).astype(dtype)


@st.composite
def _histogram_calls(draw: st.DrawFn) -> Call:
    confidence, correct = draw(_confidences())
    groups, n_groups = None, 1
    if draw(st.booleans()):
        n_groups = draw(st.integers(1, 5))
        groups = np.random.default_rng(draw(st.integers(0, 99))).integers(0, n_groups, len(confidence))
    return (
        confidence,
        correct,
        draw(_thresholds(confidence.dtype)),
        groups,
        n_groups,
        draw(st.sampled_from([0, 20, 37, 48])),
    ), {}


@st.composite
def _segmented_calls(draw: st.DrawFn) -> Call:
    confidence, correct = draw(_confidences())
    inner = draw(st.lists(st.integers(0, len(confidence)), max_size=12))
    offsets = np.array([0, *sorted(inner), len(confidence)], dtype=np.int64)
    return (confidence, correct, offsets, draw(_thresholds(confidence.dtype)), draw(st.sampled_from([20, 48]))), {}


@st.composite
def _auroc_calls(draw: st.DrawFn) -> Call:
    sizes = st.sampled_from([0, 1, 2, 40, 511, 512, 513, 3000])
    values, correct = draw(_confidences(invalid=False, sizes=sizes))
    if draw(st.booleans()):
        values = values * np.array(draw(st.sampled_from([-1.0, 1e30, -1e-30])), values.dtype)
    if draw(st.booleans()) and len(values):
        values[0], values[-1] = np.inf, -np.inf
    return (values, correct), {}


_Q, _Y, _T = np.full(3, 0.5), np.ones(3, np.uint8), np.array([0.5])
ROWS: list[Row] = [
    Row(
        "calibration_histogram",
        _histogram_calls(),
        bad_calls=[
            ((_Q, _Y[:2], _T, None, 1, 30), {}),
            ((_Q, _Y, _T, None, 1, 49), {}),
            ((_Q, _Y, _T, None, 0, 30), {}),
            ((_Q, _Y, _T, np.array([0, 1, 2]), 2, 30), {}),
            ((_Q, _Y, _T, np.array([0, -1, 1]), 2, 30), {}),
            ((_Q, _Y, _T, np.array([0, 1]), 2, 30), {}),
            ((_Q, _Y, _T.astype(np.float32), None, 1, 30), {}),
        ],
        max_examples=150,
    ),
    Row(
        "segmented_calibration",
        _segmented_calls(),
        bad_calls=[
            ((_Q, _Y, np.array([0, 2]), _T, 30), {}),
            ((_Q, _Y, np.array([1, 3]), _T, 30), {}),
            ((_Q, _Y, np.array([0, 3, 2, 3]), _T, 30), {}),
            ((_Q, _Y, np.array([], np.int64), _T, 30), {}),
        ],
        max_examples=100,
    ),
    Row("auroc_counts", _auroc_calls(), bad_calls=[((_Q, _Y[:2]), {})], max_examples=150),
]
