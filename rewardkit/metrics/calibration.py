"""Whether stated confidences mean what they say: Brier, ECE and its relatives, reliability, smECE.

Shapes: all arrays are ``[N]``, one entry per answer. ``confidence`` is the stated probability that the answer is right,
``correct`` whether it is. Losses and errors: smaller is better.

**Invalid input.** A NaN confidence is an error of the caller. A confidence outside [0, 1] is counted in the result's
``invalid`` and takes no part: it is neither clipped nor put into a bin.

**Bins.** A confidence is compared with bin edges after rounding to float32, so that 0.3 as float32, as float64, as 30/100
and as 0.1 + 0.2 all lie exactly on the edge 3/10. With ``edge="left"`` (default) bins are ``[lo, hi)`` and 1.0 lies in the
last; with ``"right"`` they are ``(lo, hi]`` and 0.0 lies in the first. ``"rlcr"`` compares float64 values with
``numpy.linspace`` edges as the released RLCR code does, which drops exactly .3, .6 and .7 one bin down when there are ten;
it exists to reproduce published numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rewardkit import _device, _kernels, arrays
from rewardkit.errors import InvalidArgumentError
from rewardkit.metrics import inputs, on_device
from rewardkit.metrics.result import Metric, Null
from rewardkit.types import Float64

Scheme = Literal["width", "mass"]
Edge = Literal["left", "right", "rlcr"]
Int64 = npt.NDArray[np.int64]

SCHEMES = ("width", "mass")
EDGES = ("left", "right", "rlcr")
MAX_BINS = 65536
_EXACT_NULL_DRAWS = 20_000_000


@dataclass(frozen=True)
class Histogram:
    """Counts and exact sums per group and bin.

    Sums are whole multiples of ``2**-fraction_bits``, added as integers: the same whatever the order, the number of threads
    or the device.

    Attributes:
        edges: float64 ``[bins + 1]``, the nominal edges, from 0 to 1.
        count: int64 ``[G, bins]``.
        correct: int64 ``[G, bins]``, how many of them are right.
        confidence_sum: int64 ``[G, bins]``, the fixed-point sum of their confidences.
        squared_error_sum: int64 ``[G]``, the fixed-point sum of (confidence - correct)^2 over a group.
        invalid: int64 ``[G]``, confidences outside [0, 1], which are in no bin.
        fraction_bits: The binary places of the fixed-point sums.
        groups: ``[G]`` the group each row of the arrays belongs to; ``(None,)`` without groups.
        settings: bins, scheme and edge.
    """

    edges: Float64
    count: Int64
    correct: Int64
    confidence_sum: Int64
    squared_error_sum: Int64
    invalid: Int64
    fraction_bits: int
    groups: tuple[Any, ...]
    settings: dict[str, Any]

    @property
    def n(self) -> Int64:
        """int64 ``[G]``, valid confidences of each group."""
        return self.count.sum(axis=1)

    @property
    def gap(self) -> Float64:
        """float64 ``[G, bins]``: sum of confidence minus number correct, per bin; positive where overconfident."""
        whole = self.correct << np.int64(self.fraction_bits)
        return np.asarray((self.confidence_sum - whole) * 2.0**-self.fraction_bits, np.float64)

    @property
    def mean_confidence(self) -> Float64:
        """float64 ``[G, bins]``; NaN in empty bins."""
        return _divide(self.confidence_sum * 2.0**-self.fraction_bits, self.count)

    @property
    def accuracy(self) -> Float64:
        """float64 ``[G, bins]``; NaN in empty bins."""
        return _divide(self.correct, self.count)

    def brier(self) -> Float64:
        """float64 ``[G]``: mean (confidence - correct)^2; NaN for an empty group."""
        return _divide(self.squared_error_sum * 2.0**-self.fraction_bits, self.n)

    def ece(self, norm: int = 1) -> Float64:
        """float64 ``[G]``: expected calibration error of each group; NaN for an empty group."""
        if norm == 1:
            return _divide(np.abs(self.gap).sum(axis=1), self.n)
        per_bin = np.divide(self.gap**2, self.count, out=np.zeros(self.count.shape), where=self.count > 0)
        return np.sqrt(_divide(per_bin.sum(axis=1), self.n))


def calibration_histogram(
    confidence: Any,
    correct: Any,
    bins: int | Sequence[float] = 10,
    groups: Any = None,
    *,
    scheme: Scheme = "width",
    edge: Edge = "left",
) -> Histogram:
    """Counts and exact sums per bin, and per group, in one pass.

    Args:
        confidence: float32 or float64 ``[N]`` in [0, 1]; values outside are counted as invalid.
        correct: bool (or 0/1) ``[N]``.
        bins: How many bins, or the inner edges themselves, ascending (then ``scheme`` is "width", and ``edge`` not "rlcr").
        groups: ``[N]`` any values to group by, or ``None``.
        scheme: "width" (bins of equal width) or "mass" (of nearly equal count; equal confidences are never torn apart).
        edge: "left", "right" or "rlcr"; see the module's text.

    CUDA tensors (float32 or float64; then all must be tensors on one device, and the bins not by mass) are counted on their
    device, on its current stream; only the counts are fetched.

    Raises:
        InvalidArgumentError: A bad shape or setting, or a NaN.
    """
    if _device.is_for_device(confidence):
        return _histogram_on_device(confidence, correct, bins, groups, scheme, edge)
    q = inputs.numbers("confidence", confidence)
    y = inputs.labels("correct", correct, like=q)
    thresholds, edges, settings = _thresholds(q, bins, scheme, edge)
    names, index = (None, None) if groups is None else inputs.group_ids("groups", groups, like=q)
    n_groups = 1 if names is None else max(1, len(names))
    bits = fraction_bits(len(q))
    found = _kernels.kernel("calibration_histogram")(q, y, thresholds, index, n_groups, bits)
    if found[2].any():  # the kernel counts NaN among the invalid ones
        inputs.refuse_nan("confidence", q)
    return _histogram(*found, names=names, edges=edges, bits=bits, settings=settings)


def _histogram_on_device(
    confidence: Any, correct: Any, bins: int | Sequence[float], groups: Any, scheme: str, edge: str
) -> Histogram:
    if scheme == "mass":  # quantiles of the data, which only the host computes
        raise InvalidArgumentError("scheme", expected="'width', or inner edges, for tensors on a device", got=scheme)
    nothing = np.empty(0, on_device.confidence_dtype(confidence))
    thresholds, edges, settings = _thresholds(nothing, bins, scheme, edge)
    bits = fraction_bits(len(confidence))
    counts, squared, invalid, names = on_device.histogram(confidence, correct, thresholds, groups, bits)
    return _histogram(counts, squared, invalid, names=names, edges=edges, bits=bits, settings=settings)


def _histogram(
    counts: Int64,
    squared: Int64,
    invalid: Int64,
    *,
    names: npt.NDArray[Any] | None,
    edges: Float64,
    bits: int,
    settings: dict[str, Any],
) -> Histogram:
    return Histogram(
        edges=edges,
        count=counts[:, :, 0],
        correct=counts[:, :, 1],
        confidence_sum=counts[:, :, 2],
        squared_error_sum=squared,
        invalid=invalid,
        fraction_bits=bits,
        groups=(None,) if names is None else tuple(names.tolist()),
        settings=settings,
    )


def brier_loss(*, confidence: Any, correct: Any) -> Metric:
    r"""Mean squared distance of the stated confidence from the outcome; smaller is better.

    .. math:: \frac1n \sum_i (c_i - y_i)^2

    Args:
        confidence: ``[N]`` in [0, 1].
        correct: bool ``[N]``.

    Returns:
        In [0, 1]; NaN for empty input. Strictly proper for the probability of being right.

    Raises:
        InvalidArgumentError: A bad shape, or a NaN.

    Source:
        Brier 1950. scikit-learn calls it ``brier_score_loss``.
    """
    found = calibration_histogram(confidence, correct, 1)
    return _metric("brier_loss", found.brier()[0], found, {})


def ece(
    *,
    confidence: Any,
    correct: Any,
    bins: int | Sequence[float] = 10,
    scheme: Scheme = "width",
    edge: Edge = "left",
    norm: Literal[1, 2] = 1,
    seed: int = 0,
) -> Metric:
    r"""Expected calibration error: the gap between mean confidence and accuracy, averaged over bins; smaller is better.

    .. math:: \left(\sum_b \frac{n_b}{n} \left|\bar c_b - \bar y_b\right|^p\right)^{1/p}

    The result's ``null`` says what a perfectly calibrated forecaster would get by chance: an ECE means nothing without it.

    Args:
        confidence: ``[N]`` in [0, 1].
        correct: bool ``[N]``.
        bins: How many bins, or the inner edges themselves, ascending.
        scheme: "width" or "mass".
        edge: "left", "right" or "rlcr".
        norm: p, 1 or 2.
        seed: Of the null's redraws.

    Returns:
        In [0, 1]; NaN for empty input. Not a proper score: answering the base rate everywhere gives 0.

    Raises:
        InvalidArgumentError: A bad shape or setting, or a NaN.

    Source:
        Naeini et al. 2015; Guo et al. 2017 (arXiv:1706.04599), there with right-closed bins.
    """
    inputs.choice("norm", norm, (1, 2))
    found = calibration_histogram(confidence, correct, bins, scheme=scheme, edge=edge)
    value = found.ece(norm)[0]
    settings = {"bins": bins, "scheme": scheme, "edge": edge, "norm": norm}
    null = partial(_null, confidence, float(value), **settings, draws=1000, seed=seed)
    return _metric("ece", value, found, found.settings | {"norm": norm}, null=null)


def ece_null(
    confidence: Any,
    *,
    correct: Any = None,
    bins: int | Sequence[float] = 10,
    scheme: Scheme = "width",
    edge: Edge = "left",
    norm: Literal[1, 2] = 1,
    draws: int = 1000,
    seed: int = 0,
) -> Null:
    """The ECE that a perfectly calibrated forecaster with these confidences gets by chance.

    The outcomes are redrawn ``draws`` times, right with the stated probability.

    Args:
        confidence: ``[N]`` in [0, 1]; values outside take no part.
        correct: bool ``[N]``; with it, the p-value of the observed ECE is given.
        bins: As for :func:`ece`; the same for the other settings.
        scheme: As for :func:`ece`.
        edge: As for :func:`ece`.
        norm: As for :func:`ece`.
        draws: How many redraws.
        seed: Of the redraws.

    Returns:
        The mean (it is a float), with ``sd``, ``quantile95`` and ``p_value``. Where n times ``draws`` is over 2e7 and the
        confidences are mostly distinct, sums over bins are drawn from their normal limit instead.

    Raises:
        InvalidArgumentError: A bad shape or setting, or a NaN.
    """
    observed = math.nan
    if correct is not None:
        observed = float(ece(confidence=confidence, correct=correct, bins=bins, scheme=scheme, edge=edge, norm=norm))
    return _null(confidence, observed, bins=bins, scheme=scheme, edge=edge, norm=norm, draws=draws, seed=seed)


def mce(
    *,
    confidence: Any,
    correct: Any,
    bins: int | Sequence[float] = 10,
    scheme: Scheme = "width",
    edge: Edge = "left",
) -> Metric:
    """Maximum calibration error: the largest gap of any bin that is not empty; smaller is better.

    Args:
        confidence: ``[N]`` in [0, 1].
        correct: bool ``[N]``.
        bins: As for :func:`ece`.
        scheme: As for :func:`ece`.
        edge: As for :func:`ece`.

    Returns:
        In [0, 1]; NaN for empty input. Governed by the smallest bin: read it beside the counts of :func:`reliability`.

    Raises:
        InvalidArgumentError: A bad shape or setting, or a NaN.
    """
    found = calibration_histogram(confidence, correct, bins, scheme=scheme, edge=edge)
    gaps = np.abs(_divide(found.gap[0], found.count[0]))
    value = float(np.nanmax(gaps)) if found.n[0] else math.nan
    return _metric("mce", value, found, found.settings)


def ece_signed(*, confidence: Any, correct: Any) -> Metric:
    """Mean confidence minus accuracy: positive where overconfident, negative where underconfident.

    Args:
        confidence: ``[N]`` in [0, 1].
        correct: bool ``[N]``.

    Returns:
        In [-1, 1], whatever the bins (they cancel); NaN for empty input. ``abs`` of it never exceeds the ECE.

    Raises:
        InvalidArgumentError: A bad shape, or a NaN.
    """
    found = calibration_histogram(confidence, correct, 1)
    return _metric("ece_signed", float(_divide(found.gap.sum(), found.n.sum())), found, {})


def ece_debiased(
    *,
    confidence: Any,
    correct: Any,
    bins: int | Sequence[float] = 10,
    scheme: Scheme = "width",
    edge: Edge = "left",
) -> Metric:
    r"""The *squared* calibration error (norm 2, no root) without the upward bias of binning.

    .. math:: \sum_b \frac{n_b}{n} \left[(\bar y_b - \bar c_b)^2 - \frac{\bar y_b (1 - \bar y_b)}{n_b - 1}\right]

    Args:
        confidence: ``[N]`` in [0, 1].
        correct: bool ``[N]``.
        bins: As for :func:`ece`; bins with a single answer take no part.
        scheme: As for :func:`ece`.
        edge: As for :func:`ece`.

    Returns:
        About 0 at calibration, and below 0 about as often as above; NaN where no bin holds two answers.

    Raises:
        InvalidArgumentError: A bad shape or setting, or a NaN.

    Source:
        Kumar, Liang and Ma 2019 (arXiv:1909.10155).
    """
    found = calibration_histogram(confidence, correct, bins, scheme=scheme, edge=edge)
    count = found.count[0]
    full = count >= 2
    if not full.any():
        reason = "no bin holds two answers"
        n, invalid = int(count.sum()), int(found.invalid[0])
        return Metric(math.nan, name="ece_debiased", n=n, invalid=invalid, settings=found.settings, undefined=reason)
    n, accuracy, gap = count[full], found.accuracy[0][full], found.gap[0][full]
    terms = (gap / n) ** 2 - accuracy * (1 - accuracy) / (n - 1)
    return _metric("ece_debiased", float((n * terms).sum() / count.sum()), found, found.settings)


@dataclass(frozen=True)
class Reliability:
    """A reliability diagram as numbers: per bin, how confident and how right.

    Attributes:
        lower: float64 ``[bins]``, the bin's lower edge.
        upper: float64 ``[bins]``, the bin's upper edge.
        count: int64 ``[bins]``; empty bins are included.
        mean_confidence: float64 ``[bins]``; NaN in empty bins.
        accuracy: float64 ``[bins]``; NaN in empty bins.
        low: float64 ``[bins]``, lower end of the accuracy's Wilson interval; NaN in empty bins.
        high: float64 ``[bins]``, upper end.
        level: Of the intervals.
        ece: The ECE over the same bins; it carries their settings, the number of answers and of invalid confidences.
    """

    lower: Float64
    upper: Float64
    count: Int64
    mean_confidence: Float64
    accuracy: Float64
    low: Float64
    high: Float64
    level: float
    ece: Metric

    def rows(self) -> list[dict[str, Any]]:
        """One JSON-safe dictionary per bin that is not empty."""
        names = ("lower", "upper", "count", "mean_confidence", "accuracy", "low", "high")
        columns = [getattr(self, name).tolist() for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True) if row[2]]


def reliability(
    *,
    confidence: Any,
    correct: Any,
    bins: int | Sequence[float] = 10,
    scheme: Scheme = "width",
    edge: Edge = "left",
    level: float = 0.95,
) -> Reliability:
    """Per bin: count, mean confidence (not the bin's middle), accuracy and its Wilson interval.

    Args:
        confidence: ``[N]`` in [0, 1].
        correct: bool ``[N]``.
        bins: As for :func:`ece`.
        scheme: As for :func:`ece`.
        edge: As for :func:`ece`.
        level: Of the intervals, in (0, 1).

    Raises:
        InvalidArgumentError: A bad shape or setting, or a NaN.

    Source:
        DeGroot and Fienberg 1983; the intervals, Wilson 1927.
    """
    inputs.open_unit("level", level)
    found = calibration_histogram(confidence, correct, bins, scheme=scheme, edge=edge)
    settings: dict[str, Any] = {"bins": bins, "scheme": scheme, "edge": edge, "norm": 1}
    value = found.ece()[0]
    null = partial(_null, confidence, float(value), **settings, draws=1000, seed=0)
    low, high = wilson_interval(found.correct[0], found.count[0], level)
    return Reliability(
        lower=found.edges[:-1],
        upper=found.edges[1:],
        count=found.count[0],
        mean_confidence=found.mean_confidence[0],
        accuracy=found.accuracy[0],
        low=low,
        high=high,
        level=level,
        ece=_metric("ece", value, found, found.settings | {"norm": 1}, null=null),
    )


def wilson_interval(successes: Any, trials: Any, level: float = 0.95) -> tuple[Float64, Float64]:
    """Wilson's score interval of a proportion: lower and upper end, float64; NaN without trials.

    Args:
        successes: Any shape.
        trials: The same shape.
        level: In (0, 1).

    Raises:
        InvalidArgumentError: Other shapes, successes that are not in [0, trials], or a level out of range.
    """
    inputs.open_unit("level", level)
    n, right = arrays.floats("trials", trials), arrays.floats("successes", successes)
    if n.shape != right.shape:
        raise InvalidArgumentError("successes", expected=f"the shape of trials, {n.shape}", got=f"shape {right.shape}")
    if not ((right >= 0) & (right <= n) & np.isfinite(n)).all():
        raise InvalidArgumentError("successes", expected="numbers from 0 to trials", got=successes)
    z = NormalDist().inv_cdf(0.5 + level / 2)
    p = _divide(right, n)
    spread = z * np.sqrt(_divide(p * (1 - p), n) + _divide(z * z, 4 * n * n))
    middle, scale = p + _divide(z * z, 2 * n), 1 + _divide(z * z, n)
    # Without clipping, rounding puts the ends at 0 of n and n of n a hair outside.
    return np.clip((middle - spread) / scale, 0, 1), np.clip((middle + spread) / scale, 0, 1)


@dataclass(frozen=True)
class Murphy:
    """The Brier loss taken apart: ``brier = reliability - resolution + uncertainty``, exactly.

    Attributes:
        brier: The Brier loss.
        reliability: Squared distance of each stated value from the accuracy at it; smaller is better, 0 is calibrated.
        resolution: Squared distance of these accuracies from the overall accuracy; larger is better.
        uncertainty: Variance of the outcomes; nothing the forecaster could change.
        n: Answers.
        invalid: Confidences outside [0, 1], which take no part.
        values: Distinct confidences.
    """

    brier: float
    reliability: float
    resolution: float
    uncertainty: float
    n: int
    invalid: int
    values: int


def murphy(*, confidence: Any, correct: Any) -> Murphy:
    """Murphy's decomposition over the distinct confidences.

    Args:
        confidence: ``[N]`` in [0, 1]; values outside take no part.
        correct: bool ``[N]``.

    Raises:
        InvalidArgumentError: A bad shape, or a NaN.

    Source:
        Murphy 1973.
    """
    q = inputs.scores("confidence", confidence).astype(np.float64)
    y = inputs.labels("correct", correct, like=q)
    valid = (q >= 0) & (q <= 1)
    invalid = len(q) - int(valid.sum())
    q, y = q[valid], y[valid]
    if not len(q):
        return Murphy(math.nan, math.nan, math.nan, math.nan, 0, invalid, 0)
    value, index, count = np.unique(q, return_inverse=True, return_counts=True)
    accuracy = np.bincount(index, weights=y) / count
    base = float(y.mean())
    return Murphy(
        brier=float(np.mean((q - y) ** 2)),
        reliability=float(np.sum(count * (value - accuracy) ** 2) / len(q)),
        resolution=float(np.sum(count * (accuracy - base) ** 2) / len(q)),
        uncertainty=base * (1 - base),
        n=len(q),
        invalid=invalid,
        values=len(value),
    )


def grouped_calibration(
    *,
    confidence: Any,
    correct: Any,
    offsets: Any,
    bins: int | Sequence[float] = 10,
    edge: Edge = "left",
) -> tuple[Float64, Float64, Int64, Int64]:
    """ECE and Brier loss of each of many consecutive segments (groups of rollouts), in one pass.

    Args:
        confidence: ``[N]`` in [0, 1].
        correct: bool ``[N]``.
        offsets: int64 ``[S + 1]`` from 0 to N, ascending: segment s is ``[offsets[s], offsets[s + 1])``.
        bins: As for :func:`ece`, of equal width.
        edge: As for :func:`ece`.

    Returns:
        ``ece``, ``brier`` float64 ``[S]``, NaN for a segment without a valid confidence; ``n``, ``invalid`` int64 ``[S]``.

    Raises:
        InvalidArgumentError: A bad shape or setting, or a NaN.
    """
    q = inputs.numbers("confidence", confidence)
    y = inputs.labels("correct", correct, like=q)
    at = arrays.numeric("offsets", offsets, f"whole numbers, ascending from 0 to {len(q)}")
    whole = at.dtype.kind in "iu" and at.ndim == 1 and len(at) > 0
    at = np.ascontiguousarray(at, dtype=np.int64)
    if not whole or at[0] != 0 or at[-1] != len(q) or (np.diff(at) < 0).any():
        raise InvalidArgumentError("offsets", expected=f"whole numbers, ascending from 0 to {len(q)}", got=offsets)
    thresholds, _, _ = _thresholds(q, bins, "width", edge)
    result = _kernels.kernel("segmented_calibration")(q, y, at, thresholds, fraction_bits(len(q)))
    if result[3].any():
        inputs.refuse_nan("confidence", q)
    return result


def bin_thresholds(bins: int, *, edge: Edge = "left", dtype: npt.DTypeLike = np.float64) -> Floating:
    """The values from which on a confidence lies in bin 1, 2, …: ``[bins - 1]``, ascending, of the asked dtype.

    A confidence's bin is the number of thresholds that are <= it; every edge rule is expressed by the thresholds alone.

    Raises:
        InvalidArgumentError: ``bins`` or ``edge`` is out of range.
    """
    bins = arrays.whole("bins", bins, high=MAX_BINS)
    inputs.choice("edge", edge, EDGES)
    if edge == "rlcr":
        exact = np.linspace(0.0, 1.0, bins + 1)[1:-1]
        return exact if np.dtype(dtype) == np.float64 else _float32_at_least(exact)
    single = (np.arange(1, bins) / bins).astype(np.float32)
    if edge == "right":
        single = np.nextafter(single, np.float32(np.inf))
    return _from_single(single, dtype)


def fraction_bits(n: int) -> int:
    """How many binary places a sum of n numbers in [0, 1] can have in 63 bits, at most 48."""
    return max(0, min(48, 62 - int(n).bit_length()))


Floating = npt.NDArray[np.floating]


def _from_single(single: npt.NDArray[np.float32], dtype: npt.DTypeLike) -> Floating:
    """Thresholds for values of a dtype such that comparing equals rounding to float32 and comparing with ``single``."""
    if np.dtype(dtype) == np.float32:
        return single
    below = np.nextafter(single, np.float32(-np.inf)).astype(np.float64)
    middle = (below + single.astype(np.float64)) / 2  # exact; rounds to the even neighbour
    return np.where(middle.astype(np.float32) >= single, middle, np.nextafter(middle, np.inf))


def _float32_at_least(exact: Float64) -> npt.NDArray[np.float32]:
    single = exact.astype(np.float32)
    return np.where(single.astype(np.float64) < exact, np.nextafter(single, np.float32(np.inf)), single)


def _thresholds(
    confidence: Floating, bins: int | Sequence[float], scheme: str, edge: str
) -> tuple[Floating, Float64, dict[str, Any]]:
    inputs.choice("scheme", scheme, SCHEMES)
    inputs.choice("edge", edge, EDGES)
    if not isinstance(bins, (int, np.integer)):
        # Given edges say where bins are; a rule that would put them elsewhere contradicts them.
        if scheme != "width":
            raise InvalidArgumentError("scheme", expected="'width' where bins gives the inner edges", got=scheme)
        if edge == "rlcr":
            raise InvalidArgumentError("edge", expected="'left' or 'right' where bins gives the inner edges", got=edge)
        inner = arrays.floats("bins", bins, "a number of bins, or ascending inner edges in (0, 1)")
        if inner.ndim != 1 or not ((inner > 0) & (inner < 1)).all() or (np.diff(inner) <= 0).any():
            raise InvalidArgumentError(
                "bins", expected="a number of bins, or ascending inner edges in (0, 1)", got=bins
            )
        single = inner.astype(np.float32)
        single = np.nextafter(single, np.float32(np.inf)) if edge == "right" else single
        edges = np.concatenate([[0.0], inner, [1.0]])
        return _from_single(single, confidence.dtype), edges, {"bins": inner.tolist(), "scheme": "given", "edge": edge}
    bins = arrays.whole("bins", bins, high=MAX_BINS)
    settings = {"bins": bins, "scheme": scheme, "edge": edge}
    if scheme == "mass":
        if edge == "rlcr":
            raise InvalidArgumentError("edge", expected="'left' or 'right' with scheme='mass'", got=edge)
        thresholds = _mass_thresholds(confidence, bins)
        return thresholds, np.concatenate([[0.0], thresholds.astype(np.float64), [1.0]]), settings
    thresholds = bin_thresholds(bins, edge=edge, dtype=confidence.dtype)  # type: ignore[arg-type]
    return thresholds, np.arange(bins + 1) / bins, settings


def _mass_thresholds(confidence: Floating, bins: int) -> Floating:
    """Cuts a sorted array into parts of nearly equal size between different values, each cut where it is nearest."""
    # Equality is that of float32, as for the other schemes, so that float32 and float64 input give one result.
    ordered = np.sort(confidence[(confidence >= 0) & (confidence <= 1)].astype(np.float32))
    if ordered.size == 0:
        return np.empty(0, dtype=confidence.dtype)
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] > ordered[:-1]]))
    target = np.arange(1, bins) * (ordered.size / bins)
    after = np.searchsorted(starts, target, side="left").clip(max=len(starts) - 1)
    before = (after - 1).clip(min=0)
    nearest = np.where(np.abs(starts[after] - target) <= np.abs(starts[before] - target), after, before)
    nearest = np.unique(nearest[nearest > 0])
    return _from_single(ordered[starts[nearest]], confidence.dtype)


def _null(
    confidence: Any, observed: float, *, bins: Any, scheme: Any, edge: Any, norm: Any, draws: int, seed: int
) -> Null:
    inputs.choice("norm", norm, (1, 2))
    draws = arrays.whole("draws", draws)
    q = inputs.scores("confidence", confidence)
    thresholds, _, settings = _thresholds(q, bins, scheme, edge)
    q = q[(q >= 0) & (q <= 1)]
    settings = settings | {"norm": norm}
    results = np.empty(draws)
    if q.size == 0:
        return Null.of(results, observed, seed=seed, n=0, settings=settings)
    value, count = np.unique(q, return_counts=True)
    which = np.searchsorted(thresholds, value, side="right")
    value = value.astype(np.float64)
    starts = np.flatnonzero(np.concatenate([[True], which[1:] != which[:-1]]))
    size = np.add.reduceat(count, starts)
    rng = inputs.generator(seed, "ece_null")
    if len(value) * draws > _EXACT_NULL_DRAWS:
        spread = np.sqrt(np.add.reduceat(count * value * (1 - value), starts))
        gap = rng.standard_normal((draws, len(starts))) * spread
        results = _norm_of_gaps(gap, size, norm)
    else:
        rows = max(1, 2_000_000 // len(value))
        for first in range(0, draws, rows):
            part = slice(first, min(draws, first + rows))
            right = rng.binomial(count, value, size=(part.stop - first, len(value)))
            results[part] = _norm_of_gaps(np.add.reduceat(right - count * value, starts, axis=1), size, norm)
    return Null.of(results, observed, seed=seed, n=q.size, settings=settings)


def _norm_of_gaps(gap: Float64, size: Int64, norm: int) -> Float64:
    if norm == 1:
        return np.abs(gap).sum(axis=1) / size.sum()
    return np.sqrt((gap**2 / size).sum(axis=1) / size.sum())


def _metric(name: str, value: float, found: Histogram, settings: dict[str, Any], **rest: Any) -> Metric:
    n = int(found.n.sum())
    undefined = "" if n else "no valid confidence"
    return Metric(
        value, name=name, n=n, invalid=int(found.invalid.sum()), settings=settings, undefined=undefined, **rest
    )


def _divide(top: Any, bottom: Any) -> Float64:
    top, bottom = np.asarray(top, np.float64), np.asarray(bottom, np.float64)
    return np.divide(top, bottom, out=np.full(np.broadcast(top, bottom).shape, np.nan), where=bottom != 0)
