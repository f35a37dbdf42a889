"""Twins of the calibration kernels: counts and exact sums per bin, and the statistic behind AUROC."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


def calibration_histogram(
    confidence: npt.NDArray[np.floating],
    correct: npt.NDArray[np.uint8],
    thresholds: npt.NDArray[np.floating],
    groups: npt.NDArray[np.int64] | None,
    n_groups: int,
    fraction_bits: int,
) -> tuple[Int64, Int64, Int64]:
    """Counts and fixed-point sums per group and bin; integers, so the same in any order and on any device.

    Args:
        confidence: float32 or float64 ``[N]``.
        correct: uint8 ``[N]``, 0 or 1.
        thresholds: ``[bins - 1]``, ascending, of the dtype of ``confidence``. A confidence lies in the bin whose number is
            the count of thresholds that are <= it.
        groups: int64 ``[N]`` in ``[0, n_groups)``, or ``None`` for one group.
        n_groups: How many groups.
        fraction_bits: ``F``, 0 to 48: a sum of x is stored as the sum of ``round_half_even(x * 2**F)``.

    Returns:
        ``histogram`` int64 ``[n_groups, bins, 3]`` (count, number correct, fixed-point sum of confidence);
        ``squared_error`` int64 ``[n_groups]``, the fixed-point sum of ``(confidence - correct)**2``, where the difference
        is rounded to float64 and its square is exact; ``invalid`` int64 ``[n_groups]``, how many confidences are NaN or
        outside [0, 1]: these are in no bin and in no sum.
    """
    _check(confidence, correct, thresholds, fraction_bits)
    if n_groups < 1:
        raise ValueError("calibration_histogram: n_groups must be at least 1")
    bins = len(thresholds) + 1
    histogram = np.zeros((n_groups, bins, 3), np.int64)
    squared_error = np.zeros(n_groups, np.int64)
    invalid = np.zeros(n_groups, np.int64)
    if groups is not None and len(groups) != len(confidence):
        raise ValueError("calibration_histogram: groups and confidence differ in length")
    edges = thresholds.tolist()
    for i, (q, y) in enumerate(zip(confidence.tolist(), correct.tolist(), strict=True)):
        group = 0 if groups is None else int(groups[i])
        if not 0 <= group < n_groups:
            raise ValueError("calibration_histogram: a group lies outside [0, n_groups)")
        if not 0.0 <= q <= 1.0:
            invalid[group] += 1
            continue
        cell = histogram[group, sum(edge <= q for edge in edges)]
        cell[0] += 1
        cell[1] += y != 0
        cell[2] += round(Fraction(q) * 2**fraction_bits)
        squared_error[group] += round(Fraction(q - (y != 0)) ** 2 * 2**fraction_bits)
    return histogram, squared_error, invalid


def segmented_calibration(
    confidence: npt.NDArray[np.floating],
    correct: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    thresholds: npt.NDArray[np.floating],
    fraction_bits: int,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], Int64, Int64]:
    """ECE (norm 1) and Brier of each of many segments, in one pass and without a histogram per segment.

    Args:
        confidence: float32 or float64 ``[N]``.
        correct: uint8 ``[N]``, 0 or 1.
        offsets: int64 ``[S + 1]``, ascending, from 0 to N: segment s is ``[offsets[s], offsets[s + 1])``.
        thresholds: As for :func:`calibration_histogram`.
        fraction_bits: As for :func:`calibration_histogram`.

    Returns:
        ``ece`` and ``brier`` float64 ``[S]`` (NaN for a segment without a valid confidence), ``n`` int64 ``[S]`` valid
        confidences, ``invalid`` int64 ``[S]``.
    """
    _check(confidence, correct, thresholds, fraction_bits)
    if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(confidence) or (np.diff(offsets) < 0).any():
        raise ValueError("segmented_calibration: offsets must ascend from 0 to the number of confidences")
    segments = len(offsets) - 1
    ece, brier = np.full(segments, np.nan), np.full(segments, np.nan)
    counts, invalid = np.zeros(segments, np.int64), np.zeros(segments, np.int64)
    scale = 2.0**-fraction_bits
    for s in range(segments):
        part = slice(offsets[s], offsets[s + 1])
        histogram, squared, bad = calibration_histogram(
            confidence[part], correct[part], thresholds, None, 1, fraction_bits
        )
        counts[s], invalid[s] = histogram[0, :, 0].sum(), bad[0]
        if counts[s]:
            gap = sum(abs(int(total) - (int(right) << fraction_bits)) for _, right, total in histogram[0])
            ece[s] = float(gap) * scale / float(counts[s])
            brier[s] = float(squared[0]) * scale / float(counts[s])
    return ece, brier, counts, invalid


def auroc_counts(score: npt.NDArray[np.floating], correct: npt.NDArray[np.uint8]) -> tuple[int, int, int]:
    """The Mann-Whitney statistic, exact: ties count half.

    Args:
        score: float32 or float64 ``[N]``, no NaN.
        correct: uint8 ``[N]``, 0 or 1.

    Returns:
        ``2 * wins + ties`` over all pairs of one correct and one wrong item, the number of correct and of wrong items.
    """
    if len(score) != len(correct):
        raise ValueError("auroc_counts: score and correct differ in length")
    right, wrong = score[correct != 0], np.sort(score[correct == 0])
    below = np.searchsorted(wrong, right, side="left")
    not_above = np.searchsorted(wrong, right, side="right")
    return int((below + not_above).sum()), len(right), len(wrong)


def _check(
    confidence: npt.NDArray[np.floating],
    correct: npt.NDArray[np.uint8],
    thresholds: npt.NDArray[np.floating],
    fraction_bits: int,
) -> None:
    if len(confidence) != len(correct):
        raise ValueError("confidence and correct differ in length")
    if not 0 <= fraction_bits <= 48:
        raise ValueError("fraction_bits must lie in [0, 48]")
    if thresholds.dtype != confidence.dtype:
        raise TypeError("thresholds must have the dtype of confidence")
