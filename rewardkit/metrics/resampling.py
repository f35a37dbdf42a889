"""How sure a metric is: cluster bootstrap over prompts, and paired differences between two systems.

Rollouts of one prompt are not independent, so prompts are drawn, with all their rollouts. Everything is seeded. The known
metrics are computed for all draws at once from per-prompt sums; any other function is called once per draw.

A bootstrap of an ECE is biased upward (resampling adds the same noise a second time): read it beside the ECE's ``null``.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rewardkit.arrays import whole
from rewardkit.errors import InvalidArgumentError, UnknownNameError
from rewardkit.metrics import calibration, inputs
from rewardkit.types import Float64

FAST = ("accuracy", "mean_confidence", "brier_loss", "ece", "ece_signed", "auroc")
"""Metrics that are resampled without a Python loop, by name."""

_ECE_SETTINGS: Mapping[str, Any] = {"bins": 10, "scheme": "width", "edge": "left", "norm": 1}

_CELLS = 4_000_000


@dataclass(frozen=True)
class Interval:
    """A value and how far chance moves it.

    Attributes:
        name: The metric.
        value: On all rows; for a paired comparison, first minus second.
        low: Lower end of the percentile interval.
        high: Upper end.
        sd: Standard deviation over draws.
        p_value: For a paired comparison, two-sided, how often a draw falls on the other side of 0; NaN otherwise.
        level: Of the interval.
        draws: Bootstrap draws; the ones where the metric was undefined are not among them.
        seed: Of the draws.
        clusters: How many prompts were drawn from.
        n: How many rows went into it (of both systems, for a paired comparison).
        invalid: How many rows of these take no part, since their confidence lies outside [0, 1].
        settings: Of the metric.
    """

    name: str
    value: float
    low: float
    high: float
    sd: float
    p_value: float
    level: float
    draws: int
    seed: int
    clusters: int
    n: int
    invalid: int
    settings: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe: NaN becomes ``None``."""
        result = {key: getattr(self, key) for key in ("value", "low", "high", "sd", "p_value")}
        result = {key: None if math.isnan(value) else value for key, value in result.items()}
        rest = {key: getattr(self, key) for key in ("level", "draws", "seed", "clusters", "n", "invalid")}
        return {"name": self.name, **result, **rest, **self.settings}


def bootstrap(
    metric: str | Callable[..., Any],
    *,
    clusters: Any = None,
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    **arrays: Any,
) -> Interval:
    """Percentile interval of a metric, prompts redrawn with replacement.

    Args:
        metric: One of :data:`FAST`, or any function of the arrays by keyword that returns a float (a function of this
            package that has a fast form is recognised).
        clusters: ``[N]`` which prompt each row belongs to; ``None`` takes every row for its own prompt.
        draws: How many redraws.
        level: In (0, 1).
        seed: Of the redraws.
        settings: Of the metric, by the names of its parameters: bins, scheme, edge and norm of an ECE.
        **arrays: The metric's arrays, ``[N, …]`` each: confidence, correct.

    Raises:
        UnknownNameError: No such metric.
        InvalidArgumentError: A bad shape, or a setting that the metric does not have.
    """
    sample = _prepare(metric, arrays, clusters, settings)
    _check(draws, level)
    statistic, count = sample.statistic, len(sample.ids)
    value = float(statistic(np.ones((1, count)))[0])
    results = np.concatenate([statistic(weights) for weights in _weights(count, draws, seed)])
    return _interval(sample.name, value, results, level, seed, count, [sample], paired=False)


def paired_bootstrap(
    metric: str | Callable[..., Any],
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    *,
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> Interval:
    """Interval of the difference of a metric between two systems on the same prompts: first minus second.

    Every draw takes the same prompts for both, so that hard prompts do not count as a difference.

    Args:
        metric: As for :func:`bootstrap`.
        first: The arrays of the first system by name, with ``clusters`` (``[N]``, the prompt of each row), and
            ``set_construction`` where the metric is of answer sets.
        second: Of the second; another number of rows is fine, another set of prompts is not.
        draws: How many redraws.
        level: In (0, 1).
        seed: Of the redraws.
        settings: Of the metric.

    Raises:
        UnknownNameError: No such metric.
        InvalidArgumentError: A bad shape, other prompts, or sets that were built in different ways.
    """
    _check(draws, level)
    for which, side in (("first", first), ("second", second)):
        if not isinstance(side, Mapping):
            raise InvalidArgumentError(which, expected="the arrays of a system by name", got=side)
    built = [side.get("set_construction") for side in (first, second)]
    if built[0] != built[1]:
        raise InvalidArgumentError(
            "set_construction",
            expected="the same for both systems, since sets built in different ways cannot be compared",
            got=" and ".join(map(str, built)),
        )
    sides = []
    for which, side in (("first", first), ("second", second)):
        if side.get("clusters") is None:
            raise InvalidArgumentError(f"{which}['clusters']", expected="the prompt of each row", got=None)
        arrays = {key: value for key, value in side.items() if key not in ("clusters", "set_construction")}
        sides.append(_prepare(metric, arrays, side["clusters"], settings))
    ids, other_ids = (side.ids for side in sides)
    one, other = (side.statistic for side in sides)
    count = len(ids)
    if not np.array_equal(ids, other_ids):
        only = set(ids.tolist()) ^ set(other_ids.tolist())
        raise InvalidArgumentError(
            "second['clusters']",
            expected="the same prompts as first",
            got=f"{len(only)} prompts that only one of them has",
        )
    whole = np.ones((1, count))
    value = float(one(whole)[0] - other(whole)[0])
    results = np.concatenate([one(w) - other(w) for w in _weights(count, draws, seed)])
    return _interval(sides[0].name, value, results, level, seed, count, sides, paired=True)


def bootstrap_headline(
    *,
    correct: Any,
    confidence: Any,
    clusters: Any,
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Interval]:
    """Intervals of accuracy, mean confidence, Brier loss, ECE and AUROC from the same redraws.

    Args:
        correct: bool ``[N]``.
        confidence: ``[N]``, NaN where there is none: such rows count for the accuracy alone.
        clusters: ``[N]`` which prompt each row belongs to.
        draws: How many redraws.
        level: In (0, 1).
        seed: Of the redraws.
        settings: Of the ECE: bins, scheme, edge.

    Raises:
        InvalidArgumentError: A bad shape or setting.
    """
    _check(draws, level)
    q = inputs.numbers("confidence", confidence)
    y = inputs.labels("correct", correct, like=q)
    ids, index = inputs.group_ids("clusters", clusters, like=q)
    stated = ~np.isnan(q)
    samples = {"accuracy": _fast("accuracy", index, ids, None, correct=y)}
    if stated.any():
        for name in ("mean_confidence", "brier_loss", "ece", "auroc"):
            chosen = settings if name == "ece" else None
            samples[name] = _fast(name, index[stated], ids, chosen, confidence=q[stated], correct=y[stated])
    whole = np.ones((1, len(ids)))
    values = {name: float(sample.statistic(whole)[0]) for name, sample in samples.items()}
    results: dict[str, list[Float64]] = {name: [] for name in samples}
    for weights in _weights(len(ids), draws, seed):
        for name, sample in samples.items():
            results[name].append(sample.statistic(weights))
    return {
        name: _interval(name, values[name], np.concatenate(parts), level, seed, len(ids), [samples[name]], paired=False)
        for name, parts in results.items()
    }


Statistic = Callable[[Float64], Float64]


@dataclass(frozen=True)
class _Sample:
    """The rows of one system, ready to be redrawn.

    Attributes:
        name: Of the metric.
        statistic: The metric from how often each prompt is drawn, ``[D, clusters]`` to ``[D]``.
        ids: The prompts.
        n: Rows that take part.
        invalid: Rows that do not, for a confidence outside [0, 1].
        settings: All that the metric depends on.
    """

    name: str
    statistic: Statistic
    ids: Any
    n: int
    invalid: int
    settings: Mapping[str, Any]


def _check(draws: int, level: float) -> None:
    whole("draws", draws)
    inputs.open_unit("level", level)


def _weights(count: int, draws: int, seed: int) -> Iterator[Float64]:
    """How often each of ``count`` prompts is drawn, float64 ``[some draws, count]`` at a time."""
    rng = inputs.generator(seed, "bootstrap")
    step = max(1, _CELLS // max(1, count))
    for first in range(0, draws, step):
        rows = min(step, draws - first)
        picks = rng.integers(0, count, size=(rows, count)) + np.arange(rows)[:, None] * count
        yield np.bincount(picks.ravel(), minlength=rows * count).reshape(rows, count).astype(np.float64)


def _prepare(
    metric: str | Callable[..., Any], arrays: Mapping[str, Any], clusters: Any, settings: Mapping[str, Any] | None
) -> _Sample:
    if not arrays:
        raise InvalidArgumentError("arrays", expected="the metric's arrays by keyword", got="none")
    if settings is not None and not isinstance(settings, Mapping):
        raise InvalidArgumentError("settings", expected="the metric's settings by name", got=settings)
    for key, value in arrays.items():
        if isinstance(value, (str, bytes, Mapping)) or np.ndim(value) < 1:
            raise InvalidArgumentError(key, expected="an array with one entry per row", got=value)
    lengths = {key: len(value) for key, value in arrays.items()}
    rows = next(iter(lengths.values()))
    if len(set(lengths.values())) != 1 or rows == 0:
        raise InvalidArgumentError("arrays", expected="at least one row, the same number in each", got=str(lengths))
    if clusters is None:
        ids, index = np.arange(rows), np.arange(rows)
    else:
        ids, index = inputs.group_ids("clusters", clusters, like=np.empty(rows))
    if not isinstance(metric, str) and not callable(metric):
        raise InvalidArgumentError("metric", expected=f"a function, or one of {', '.join(FAST)}", got=metric)
    name = metric if isinstance(metric, str) else getattr(metric, "__name__", "metric")
    if isinstance(metric, str) and metric not in FAST:
        raise UnknownNameError("metric", metric, FAST)
    of_this_package = isinstance(metric, str) or getattr(metric, "__module__", "").startswith("rewardkit.metrics.")
    if name in FAST and of_this_package and arrays.keys() <= {"confidence", "correct"}:
        return _fast(name, index, ids, settings, **arrays)
    if isinstance(metric, str):
        raise InvalidArgumentError("arrays", expected="confidence and correct", got=", ".join(arrays))
    _check_keywords(metric, name, arrays, settings or {})
    statistic = _slow(partial(metric, **(settings or {})), arrays, index, len(ids))
    return _Sample(name, statistic, ids, rows, 0, dict(settings or {}))


def _check_keywords(
    metric: Callable[..., Any], name: str, arrays: Mapping[str, Any], settings: Mapping[str, Any]
) -> None:
    """Raises InvalidArgumentError where a function does not take what it would be called with."""
    try:
        signature = inspect.signature(metric)
    except (TypeError, ValueError):  # a built-in without one
        return
    try:
        signature.bind(**arrays, **settings)
    except TypeError as error:
        which = "settings" if settings else "arrays"
        raise InvalidArgumentError(which, expected=f"what {name}{signature} takes", got=str(error)) from None


def _fast(
    name: str,
    index: Any,
    ids: Any,
    settings: Mapping[str, Any] | None,
    *,
    correct: Any = None,
    confidence: Any = None,
) -> _Sample:
    known = _ECE_SETTINGS if name == "ece" else {}
    for key in settings or {}:
        if key not in known:
            expected = f"settings of {name}: {', '.join(known) or 'none'}"
            raise InvalidArgumentError("settings", expected=expected, got=key)
    chosen = {**known, **(settings or {})}
    count = len(ids)
    y = inputs.labels("correct", correct).astype(np.float64)
    if name == "accuracy":
        statistic = _ratio(np.bincount(index, weights=y, minlength=count), np.bincount(index, minlength=count))
        return _Sample(name, statistic, ids, len(y), 0, chosen)
    q = inputs.scores("confidence", confidence)
    if len(q) != len(y):
        raise InvalidArgumentError("correct", expected=f"{len(q)} values, one per confidence", got=f"{len(y)} values")
    if name == "auroc":
        return _Sample(name, _weighted_auroc(q, y > 0, index, count), ids, len(q), 0, chosen)
    valid = (q >= 0) & (q <= 1)
    n = int(valid.sum())
    if name == "ece":
        statistic = _binned(q, y, valid, index, count, **chosen)
        return _Sample(name, statistic, ids, n, len(q) - n, chosen)
    q, y, index = q[valid].astype(np.float64), y[valid], index[valid]
    term = {"brier_loss": (q - y) ** 2, "mean_confidence": q, "ece_signed": q - y}[name]
    size = np.bincount(index, minlength=count)
    statistic = _ratio(np.bincount(index, weights=term, minlength=count), size)
    return _Sample(name, statistic, ids, n, len(valid) - n, chosen)


def _binned(
    q: Any, y: Any, valid: Any, index: Any, count: int, *, bins: Any, scheme: Any, edge: Any, norm: Any
) -> Statistic:
    """The ECE from per-prompt sums over bins."""
    inputs.choice("norm", norm, (1, 2))
    thresholds, _, _ = calibration._thresholds(q, bins, scheme, edge)
    place = np.searchsorted(thresholds, q[valid], side="right")
    q, y, index = q[valid].astype(np.float64), y[valid], index[valid]
    size = np.bincount(index, minlength=count)
    width = len(thresholds) + 1
    cells = index * width + place
    gap = np.bincount(cells, weights=q - y, minlength=count * width).reshape(count, width)
    if norm == 1:
        return lambda weights: _over(np.abs(weights @ gap).sum(axis=1), weights @ size)
    counts = np.bincount(cells, minlength=count * width).reshape(count, width)
    return lambda weights: np.sqrt(
        _over(_over((weights @ gap) ** 2, weights @ counts, empty=0.0).sum(axis=1), weights @ size)
    )


def _ratio(top: Any, bottom: Any) -> Statistic:
    return lambda weights: _over(weights @ top, weights @ bottom)


def _weighted_auroc(score: Any, right: Any, index: Any, count: int) -> Statistic:
    _, place = np.unique(score, return_inverse=True)
    values = int(place.max()) + 1

    def area(positive: Any, negative: Any) -> Float64:
        below = np.cumsum(negative, axis=-1) - negative
        wins = (positive * (below + negative / 2)).sum(axis=-1)
        return _over(wins, positive.sum(axis=-1) * negative.sum(axis=-1))

    if count * values <= 5 * _CELLS:
        # Few distinct scores (stated confidences are round numbers): counts per prompt and score, all draws at once.
        cells = index * values + place
        tables = [
            np.bincount(cells[which], minlength=count * values).reshape(count, values).astype(np.float64)
            for which in (right, ~right)
        ]
        return lambda weights: area(weights @ tables[0], weights @ tables[1])

    def statistic(weights: Float64) -> Float64:
        result = np.empty(len(weights))
        for draw, row in enumerate(weights):
            w = row[index]
            positive = np.bincount(place[right], weights=w[right], minlength=values)
            negative = np.bincount(place[~right], weights=w[~right], minlength=values)
            result[draw] = area(positive, negative)
        return result

    return statistic


def _slow(metric: Callable[..., Any], arrays: Mapping[str, Any], index: Any, count: int) -> Statistic:
    whole = {key: np.asarray(value) for key, value in arrays.items()}
    order = np.argsort(index, kind="stable")
    starts = np.searchsorted(index[order], np.arange(count + 1))
    members = [order[starts[i] : starts[i + 1]] for i in range(count)]

    def statistic(weights: Float64) -> Float64:
        result = np.empty(len(weights))
        for draw, row in enumerate(weights):
            picks = np.repeat(np.arange(count), row.astype(np.int64))
            rows = np.concatenate([members[i] for i in picks])
            result[draw] = float(metric(**{key: value[rows] for key, value in whole.items()}))
        return result

    return statistic


def _over(top: Any, bottom: Any, empty: float = math.nan) -> Float64:
    return np.divide(top, bottom, out=np.full(np.shape(top), empty), where=bottom != 0)


def _interval(
    name: str,
    value: float,
    results: Float64,
    level: float,
    seed: int,
    clusters: int,
    samples: Sequence[_Sample],
    *,
    paired: bool,
) -> Interval:
    facts = {
        "clusters": clusters,
        "n": sum(sample.n for sample in samples),
        "invalid": sum(sample.invalid for sample in samples),
        "settings": dict(samples[0].settings),
    }
    results = results[~np.isnan(results)]
    if not len(results) or math.isnan(value):
        nan = math.nan
        return Interval(name, value, nan, nan, nan, nan, level, 0, seed, **facts)
    low, high = np.quantile(results, [(1 - level) / 2, (1 + level) / 2])
    p_value = math.nan
    if paired:
        tail = min((results <= 0).sum(), (results >= 0).sum())
        p_value = min(1.0, 2 * (1 + int(tail)) / (len(results) + 1))
    return Interval(
        name,
        value,
        float(low),
        float(high),
        float(results.std(ddof=1)) if len(results) > 1 else math.nan,
        p_value,
        level,
        len(results),
        seed,
        **facts,
    )
