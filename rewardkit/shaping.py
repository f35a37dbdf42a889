"""Shape: from scores to the reward a trainer sees: the failure reward, gates, duplicates, weights, diversity terms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rewardkit.arrays import floats
from rewardkit.errors import InvalidArgumentError
from rewardkit.types import Bool, Float64, Forecast

SUM_TOLERANCE = 1e-6
"""By how much stated confidences may exceed 1 in sum: .05 + .55 + .3 + .1 is 1.0000000000000002 in floats."""

Merge = Literal["sum", "max"]


def derive_fail_reward(
    min_value: float, *, margin: float = 0.1, fail_reward: float | None = None, allow_inversion: bool = False
) -> float:
    """The reward of an ill-formed completion: the exact minimum over well-formed ones, less a margin.

    A failure reward above that minimum teaches the policy to break its format whenever it expects a bad answer: RLCR in
    its paper's form with 0 for failures goes from 94 % to 4 % well-formed in 40 steps of a toy (experiment T1). One far below
    is harmful too where advantages are divided by the group's standard deviation: it drowns the differences among valid
    answers (experiment T6). So it is derived, and an override is checked.

    Args:
        min_value: The reward's exact minimum over well-formed completions.
        margin: By how much a failure is worse than the worst well-formed completion, >= 0.
        fail_reward: A value to use instead.
        allow_inversion: Accepts an override above the minimum, for controls in experiments.

    Raises:
        InvalidArgumentError: ``margin`` is negative or not finite, or the override is not finite or above the minimum.
    """
    check_number("margin", margin, low=0.0)
    if fail_reward is None:
        return min_value - margin
    check_number("fail_reward", fail_reward)
    if fail_reward > min_value and not allow_inversion:
        raise InvalidArgumentError(
            "fail_reward",
            expected=f"at most {min_value:g}, the least that a well-formed completion can earn (a higher one pays the "
            "policy for breaking its format; allow_inversion=True if that is the experiment)",
            got=fail_reward,
        )
    return float(fail_reward)


def gate(values: Float64, *, passed: Bool, fail_reward: float | Float64) -> Float64:
    """``values`` where a completion passed, the failure reward elsewhere. float64 ``[B]``."""
    return np.where(passed, values, fail_reward)


def count_classes(classes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many distinct answers each row holds: int64 ``[B]`` from class ids ``[B, K]`` (-1 absent)."""
    return (classes == np.arange(classes.shape[1])).sum(axis=1)


def has_duplicates(classes: npt.NDArray[np.int64]) -> Bool:
    """Which rows hold two equal answers: bool ``[B]`` from class ids ``[B, K]`` (a class is named by its first member)."""
    return ((classes >= 0) & (classes != np.arange(classes.shape[1]))).any(axis=1)


def merge_duplicates(forecast: Forecast, classes: npt.NDArray[np.int64], *, probs: Merge) -> Forecast:
    """Keeps the first of equal answers, so that naming one twice cannot pay.

    Args:
        forecast: What the completions claim.
        classes: Class id of each answer, int64 ``[B, K]``, -1 where there is none.
        probs: What becomes of their probabilities: "sum" where answers exclude each other, else "max".
    """
    combine = {"sum": np.add, "max": np.maximum}[probs]
    answers, merged = list(forecast.answers), forecast.probs.copy()
    mask, has_prob = forecast.mask.copy(), forecast.has_prob.copy()
    for row in np.flatnonzero(has_duplicates(classes)):  # few rows, if any
        slots = range(len(answers[row]))
        firsts = [slot for slot in slots if classes[row, slot] == slot]
        pooled, stated = np.zeros(mask.shape[1]), np.zeros(mask.shape[1], dtype=bool)
        for slot in slots:
            pooled[classes[row, slot]] = combine(pooled[classes[row, slot]], merged[row, slot])
            stated[classes[row, slot]] |= has_prob[row, slot]
        kept = len(firsts)
        answers[row] = [answers[row][slot] for slot in firsts]
        merged[row], has_prob[row], mask[row] = 0.0, False, False
        merged[row, :kept], has_prob[row, :kept], mask[row, :kept] = pooled[firsts], stated[firsts], True
    return replace(forecast, answers=answers, probs=merged, mask=mask, has_prob=has_prob)


def reject(forecast: Forecast, rows: Bool, reason: str) -> Forecast:
    """Marks rows as ill-formed for a reason, where they were well-formed."""
    rows = rows & forecast.wellformed
    if not rows.any():
        return forecast
    reasons = [reason if bad else old for bad, old in zip(rows, forecast.reason, strict=True)]
    return replace(forecast, wellformed=forecast.wellformed & ~rows, reason=reasons)


def exceeds_one(forecast: Forecast) -> Bool:
    """Which rows state confidences that sum to more than 1, beyond rounding. bool ``[B]``."""
    return forecast.probs.sum(axis=1) > 1.0 + SUM_TOLERANCE


def rescale_to_one(forecast: Forecast, rows: Bool) -> Forecast:
    """Divides the confidences of some rows by their sum."""
    if not rows.any():
        return forecast
    probs = forecast.probs.copy()
    probs[rows] /= probs[rows].sum(axis=1, keepdims=True)
    return replace(forecast, probs=probs)


def min_k(counts: npt.NDArray[np.int64], *, k: int, penalty: float) -> Float64:
    """``-penalty`` where a completion lists fewer than ``k`` distinct answers, else 0. float64 ``[B]``."""
    return np.where(counts < k, -float(penalty), 0.0)


def soft_diversity(counts: npt.NDArray[np.int64], *, k: int) -> Float64:
    """``min(0, log(n / k))`` for n >= 1 distinct answers: float64 ``[B]`` in [-log k, 0]."""
    return np.minimum(0.0, np.log(np.maximum(counts, 1) / k))


def prior_floor(prior_logprob: npt.ArrayLike, *, percentile: float = 5.0) -> float:
    """The log-prior below which priors are clipped: a percentile of the training set's.

    Args:
        prior_logprob: Total log-probability of each training gold under the frozen prior, in nats.
        percentile: In (0, 100).

    Raises:
        InvalidArgumentError: An empty or non-finite array, or a percentile out of range.
    """
    check_number("percentile", percentile, low=0.0, high=100.0)
    values = floats("prior_logprob", prior_logprob)
    if values.size == 0 or not np.isfinite(values).all():
        raise InvalidArgumentError("prior_logprob", expected="finite log-probabilities, at least one", got=values)
    return float(min(0.0, np.percentile(values, percentile)))


def weighted_sum(parts: Mapping[str, Float64], weights: Mapping[str, float]) -> Float64:
    """``sum of weight times part``: neither averaged nor normalised. float64 ``[B]``.

    >>> weighted_sum({"a": np.array([1.0]), "b": np.array([0.0])}, {"a": 0.7, "b": 0.3}).tolist()
    [0.7]
    """
    return np.sum([weights[name] * part for name, part in parts.items()], axis=0)


def weighted_range(ranges: Sequence[tuple[float, float]], weights: Sequence[float]) -> tuple[float, float]:
    """The range of a weighted sum of parts that vary freely: a negative weight swaps a part's ends."""
    ends = [
        sorted((weight * low, weight * high)) for (low, high), weight in zip(ranges, weights, strict=True) if weight
    ]
    return sum(low for low, _ in ends), sum(high for _, high in ends)


def check_number(name: str, value: Any, *, low: float = -math.inf, high: float = math.inf) -> None:
    """Raises InvalidArgumentError unless ``value`` is a finite number in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)):
        raise InvalidArgumentError(name, expected="a number", got=value)
    if not math.isfinite(value) or not low <= value <= high:
        span = (
            f"a finite number in [{low:g}, {high:g}]"
            if math.isfinite(low) or math.isfinite(high)
            else "a finite number"
        )
        raise InvalidArgumentError(name, expected=span, got=value)


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    """Raises InvalidArgumentError unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise InvalidArgumentError(name, expected=f"one of {', '.join(map(repr, choices))}", got=value)
