"""Calibration error without bins: smECE."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rewardkit.metrics import inputs
from rewardkit.metrics.result import Metric, Null
from rewardkit.types import Float64

_GRID = 1 << 14
_NULL_GRID = 1 << 10
_NULL_DRAWS = 200
_HALVINGS = 30
_SMALLEST = 1e-4


def smece(*, confidence: Any, correct: Any, seed: int = 0) -> Metric:
    r"""Smooth calibration error: the residual smoothed by a Gaussian, at the width that equals the error itself.

    .. math:: s_\sigma = \int_0^1 \Big|\frac1n \sum_i K_\sigma(t, c_i)\,(y_i - c_i)\Big|\,dt, \qquad s_\sigma = \sigma

    with K the Gaussian density reflected at 0 and 1. It has no bins, so no edges, and is continuous in the confidences.

    Args:
        confidence: ``[N]`` in [0, 1]; values outside are counted as invalid.
        correct: bool ``[N]``.
        seed: Of the null's redraws.

    Returns:
        In [0, 1]; NaN for empty input; resolved down to 1e-4. Like every calibration error it is positive for a
        calibrated forecaster with finitely many answers: see ``null``.

    Raises:
        InvalidArgumentError: A bad shape, or a NaN.

    Source:
        Błasiok and Nakkiran 2023 (arXiv:2309.12236).
    """
    q = inputs.scores("confidence", confidence).astype(np.float64)
    y = inputs.labels("correct", correct, like=q)
    valid = (q >= 0) & (q <= 1)
    invalid = len(q) - int(valid.sum())
    q, y = q[valid], y[valid]
    settings = {"kernel": "reflected Gaussian", "grid": _GRID}
    if not len(q):
        return Metric(math.nan, name="smece", n=0, invalid=invalid, settings=settings, undefined="no valid confidence")
    value = float(_fixed_point(_spread(q, y - q, _GRID)[None])[0])
    return Metric(value, name="smece", n=len(q), invalid=invalid, settings=settings, null=lambda: _null(q, value, seed))


def _spread(q: Float64, residual: Float64, grid: int) -> Float64:
    """The mean residual as masses on ``grid + 1`` points, each split linearly between its neighbours."""
    place = q * grid
    left = np.minimum(place.astype(np.int64), grid - 1)
    right_share = place - left
    mass = np.bincount(left, weights=residual * (1 - right_share), minlength=grid + 1)
    return (mass + np.bincount(left + 1, weights=residual * right_share, minlength=grid + 1)) / len(q)


def _fixed_point(mass: Float64) -> Float64:
    """Solves s_sigma = sigma for each row of masses ``[D, grid + 1]`` by bisection: s falls as sigma grows."""
    grid = mass.shape[1] - 1
    # Reflection at both ends is an even periodic continuation, so a convolution is a product of cosine coefficients.
    weights = mass.copy()
    weights[:, 0] *= 2
    weights[:, -1] *= 2
    mirrored = np.concatenate([weights, weights[:, -2:0:-1]], axis=1)
    coefficients = np.fft.rfft(mirrored, axis=1)
    frequency = np.arange(coefficients.shape[1]) * np.pi

    def smoothed(sigma: Float64) -> Float64:
        damped = coefficients * np.exp(-0.5 * (frequency * sigma[:, None]) ** 2)
        density = np.abs(np.fft.irfft(damped, n=2 * grid, axis=1)[:, : grid + 1])
        # Trapezoid over grid + 1 points; the density is in units of mass per grid step.
        return density.sum(axis=1) - (density[:, 0] + density[:, -1]) / 2

    low, high = np.full(len(mass), _SMALLEST), np.ones(len(mass))
    below = smoothed(low) <= low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = smoothed(middle) > middle
        low, high = np.where(above, middle, low), np.where(above, high, middle)
        if (high - low).max() < 1e-7:
            break
    # Where even the narrowest kernel gives less than its width, the error is that value.
    return np.where(below, smoothed(np.full(len(mass), _SMALLEST)), (low + high) / 2)


def _null(q: Float64, observed: float, seed: int) -> Null:
    rng = inputs.generator(seed, "smece_null")
    draws = []
    for _ in range(_NULL_DRAWS):
        draws.append(_spread(q, (rng.random(len(q)) < q) - q, _NULL_GRID))
    results = _fixed_point(np.stack(draws))
    settings = {"kernel": "reflected Gaussian", "grid": _NULL_GRID}
    return Null.of(results, observed, seed=seed, n=len(q), settings=settings)
