"""Calibration of whole distributions: listed hypotheses with weights, and the weight of Other.

Shapes: ``probs`` float ``[B, K]`` weights of the listed hypotheses (0 in empty slots), ``other`` float ``[B]`` the weight of
"something else", ``correct`` bool ``[B, K]`` which hypotheses match the reference (several forms of one answer may),
``mask`` bool ``[B, K]`` which slots hold a hypothesis.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rewardkit import arrays
from rewardkit.errors import InvalidArgumentError
from rewardkit.metrics import calibration, inputs
from rewardkit.metrics.result import Metric
from rewardkit.types import Bool, Float64


def top1_ece(*, probs: Any, correct: Any, mask: Any = None, **settings: Any) -> Metric:
    """ECE of the heaviest hypothesis (the first listed, among equals).

    Args:
        probs: float ``[B, K]``.
        correct: bool ``[B, K]``.
        mask: bool ``[B, K]``; rows without a hypothesis take no part.
        **settings: bins, scheme, edge, norm, seed, as for :func:`rewardkit.metrics.ece`.

    Raises:
        InvalidArgumentError: A bad shape or setting, or a weight that is NaN or outside [0, 1].
    """
    w, right, present, _ = _arrays(probs, correct, None, mask)
    rows = np.flatnonzero(present.any(axis=1))
    best = np.where(present, w, -1.0)[rows].argmax(axis=1) if len(rows) else rows
    result = calibration.ece(confidence=w[rows, best], correct=right[rows, best], **settings)
    return _renamed(result, "top1_ece")


def other_ece(*, other: Any, correct: Any, **settings: Any) -> Metric:
    """ECE of the weight of Other as the chance that the answer is not listed: the direct test of hidden underconfidence.

    Args:
        other: float ``[B]``.
        correct: bool ``[B, K]``.
        **settings: bins, scheme, edge, norm, seed, as for :func:`rewardkit.metrics.ece`.

    Raises:
        InvalidArgumentError: A bad shape or setting, or a NaN.
    """
    right = inputs.matrix("correct", correct)
    stated = arrays.floats("other", other)
    if stated.shape != right.shape[:1]:
        raise InvalidArgumentError("other", expected=f"{len(right)} numbers", got=f"shape {stated.shape}")
    result = calibration.ece(confidence=stated, correct=~right.any(axis=1), **settings)
    return _renamed(result, "other_ece")


def event_ece(*, probs: Any, correct: Any, other: Any, mask: Any = None, **settings: Any) -> Metric:
    """ECE over all stated events pooled: each hypothesis, and Other.

    Args:
        probs: float ``[B, K]``.
        correct: bool ``[B, K]``.
        other: float ``[B]``.
        mask: bool ``[B, K]``.
        **settings: bins, scheme, edge, norm, seed, as for :func:`rewardkit.metrics.ece`. The null takes events as
            independent, which those of one row are not; it is a guide.

    Raises:
        InvalidArgumentError: A bad shape or setting, or a weight that is NaN or outside [0, 1].
    """
    if other is None:
        raise InvalidArgumentError("other", expected="the weights of Other", got=None)
    w, right, present, w0 = _arrays(probs, correct, other, mask)
    stated = np.concatenate([w[present], w0])
    true = np.concatenate([right[present], ~right.any(axis=1)])
    return _renamed(calibration.ece(confidence=stated, correct=true, **settings), "event_ece")


def p_gold(*, probs: Any, correct: Any, other: Any = None, prior_logprob: Any = None) -> Float64:
    """The probability that each row gives its reference, float64 ``[B]``.

    The weights of all matching hypotheses add up. Where none matches, it is 0; or ``other * exp(prior_logprob)`` if a
    language model's log-probability of the reference is given (backoff).

    Args:
        probs: float ``[B, K]``.
        correct: bool ``[B, K]``.
        other: float ``[B]``, needed with ``prior_logprob``.
        prior_logprob: float ``[B]``, natural log of the whole reference, <= 0.

    Raises:
        InvalidArgumentError: A bad shape, a weight outside [0, 1], or a positive log-probability.
    """
    w, right, _, w0 = _arrays(probs, correct, other, None)
    stated = np.where(right, w, 0.0).sum(axis=1)
    if prior_logprob is None:
        return np.minimum(stated, 1.0)
    if other is None:
        raise InvalidArgumentError("other", expected="the weights of Other, with prior_logprob", got=None)
    prior = arrays.floats("prior_logprob", prior_logprob, f"{len(w0)} log-probabilities <= 0")
    if prior.shape != w0.shape or not (prior <= 1e-6).all():
        raise InvalidArgumentError("prior_logprob", expected=f"{len(w0)} log-probabilities <= 0", got=prior_logprob)
    return np.minimum(np.where(right.any(axis=1), stated, w0 * np.exp(prior)), 1.0)


def p_gold_ece(*, probs: Any, correct: Any, **settings: Any) -> Metric:
    """ECE of the reference's probability against the label 1. **Not a calibration error**: it measures sharpness.

    It equals 1 minus the mean probability, so sharpening lowers it, and a perfectly calibrated forecaster scores about
    ``1 - E[sum of squared weights]``. Kept since papers print it; use :func:`other_ece`, :func:`event_ece` and :func:`nll`.

    Args:
        probs: float ``[B, K]``.
        correct: bool ``[B, K]``.
        **settings: bins, scheme, edge, norm, as for :func:`rewardkit.metrics.ece`.

    Raises:
        InvalidArgumentError: A bad shape or setting, or a weight outside [0, 1].
    """
    chance = p_gold(probs=probs, correct=correct)
    result = calibration.ece(confidence=chance, correct=np.ones(len(chance), bool), **settings)
    return _renamed(result, "p_gold_ece", null=False, calibration_error=False)


def p_gold_backoff_ece(*, probs: Any, correct: Any, other: Any, prior_logprob: Any, **settings: Any) -> Metric:
    """:func:`p_gold_ece` where an unlisted reference gets ``other * exp(prior_logprob)``. Sharpness, not calibration.

    Args:
        probs: float ``[B, K]``.
        correct: bool ``[B, K]``.
        other: float ``[B]``.
        prior_logprob: float ``[B]``.
        **settings: bins, scheme, edge, norm, as for :func:`rewardkit.metrics.ece`.

    Raises:
        InvalidArgumentError: A bad shape or setting, or a weight outside [0, 1].
    """
    chance = p_gold(probs=probs, correct=correct, other=other, prior_logprob=prior_logprob)
    result = calibration.ece(confidence=chance, correct=np.ones(len(chance), bool), **settings)
    return _renamed(result, "p_gold_backoff_ece", null=False, calibration_error=False)


def p_gold_gap(*, probs: Any, correct: Any, other: Any) -> Metric:
    """Mean chance given to what happened minus the mean it would be at calibration: + underconfident, - overconfident.

    What happened is the listed reference, or Other where it is not listed; at calibration the mean is that of the sum of
    squared weights (of different answers: merge duplicates first).

    Args:
        probs: float ``[B, K]``.
        correct: bool ``[B, K]``.
        other: float ``[B]``.

    Raises:
        InvalidArgumentError: A bad shape, or a weight outside [0, 1].
    """
    if other is None:
        raise InvalidArgumentError("other", expected="the weights of Other", got=None)
    w, right, _, w0 = _arrays(probs, correct, other, None)
    got = np.where(right.any(axis=1), np.where(right, w, 0.0).sum(axis=1), w0)
    expected = (w**2).sum(axis=1) + w0**2
    value = float((got - expected).mean()) if len(w0) else math.nan
    return Metric(value, name="p_gold_gap", n=len(w0), undefined="" if len(w0) else "no rows")


def nll(*, prob: Any, floor: float = 0.01) -> Metric:
    """Mean negative log-probability of the reference, in nats; smaller is better. The headline for distributions.

    Args:
        prob: float ``[N]`` in [0, 1], the probability given to what happened (:func:`p_gold`).
        floor: Smaller probabilities count as this; the share that did is ``settings["share_floored"]``.

    Returns:
        In [0, -log floor]; NaN for empty input. Strictly proper above the floor.

    Raises:
        InvalidArgumentError: A bad shape, or a probability that is NaN or outside [0, 1].
    """
    if isinstance(floor, bool) or not isinstance(floor, (int, float, np.floating)) or not 0 < floor <= 1:
        raise InvalidArgumentError("floor", expected="a number in (0, 1]", got=floor)
    chance = inputs.scores("prob", prob).astype(np.float64)
    if ((chance < 0) | (chance > 1)).any():
        raise InvalidArgumentError("prob", expected="numbers in [0, 1]", got=chance[(chance < 0) | (chance > 1)][0])
    n = len(chance)
    settings = {"floor": floor, "share_floored": float((chance < floor).mean()) if n else math.nan}
    value = float(-np.log(np.maximum(chance, floor)).mean()) if n else math.nan
    return Metric(value, name="nll", n=n, settings=settings, undefined="" if n else "no rows")


def _arrays(probs: Any, correct: Any, other: Any, mask: Any) -> tuple[Float64, Bool, Bool, Float64]:
    """Weights (0 in empty slots), which are right, which slots are filled, and Other (0 where ``None``); all checked."""
    right = inputs.matrix("correct", correct)
    w = arrays.floats("probs", probs, "a two-dimensional array of weights")
    w0 = np.zeros(len(right)) if other is None else arrays.floats("other", other)
    if w.shape != right.shape:
        raise InvalidArgumentError("probs", expected=f"shape {right.shape}", got=f"shape {w.shape}")
    if w0.shape != right.shape[:1]:
        raise InvalidArgumentError("other", expected=f"{len(right)} numbers", got=f"shape {w0.shape}")
    present = inputs.mask(mask, right)
    w = np.where(present, w, 0.0)
    for name, array in (("probs", w), ("other", w0)):
        bad = ~((array >= 0) & (array <= 1))
        if bad.any():
            raise InvalidArgumentError(name, expected="numbers in [0, 1]", got=array[bad][0].item())
    return w, right & present, present, w0


def _renamed(result: Metric, name: str, *, null: bool = True, **settings: Any) -> Metric:
    return Metric(
        float(result),
        name=name,
        n=result.n,
        invalid=result.invalid,
        settings={**result.settings, **settings},
        undefined=result.undefined,
        null=(lambda: result.null) if null else None,  # type: ignore[arg-type, return-value]
    )
