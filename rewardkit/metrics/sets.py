"""Metrics of answer sets: one completion, or one prompt, with several answers.

Shapes: ``[B, K]`` arrays hold one row per set and one column per answer slot; ``mask`` says which slots hold an answer
(all, by default). A set without any answer is wrong, and stays in every denominator.

Metrics of correctness take ``valid``, which outputs followed their format: to leave the others out hides a model that breaks it
whenever a question is hard, so they count as wrong unless ``on_invalid="drop"`` says otherwise.

Pooled and set metrics of sets from one generation and of sets put together from independent samples measure different things:
say which with ``set_construction``, and comparisons between the two are refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from rewardkit import arrays
from rewardkit.errors import InvalidArgumentError
from rewardkit.metrics import calibration, inputs
from rewardkit.metrics.result import Metric
from rewardkit.types import Bool, Float64

SetConstruction = Literal["single_gen", "independent_samples"]
Select = Literal["first", "max_conf", "random"]
OnInvalid = Literal["zero", "drop"]
SET_CONSTRUCTIONS = ("single_gen", "independent_samples", None)


def set_accuracy(*, correct: Any, mask: Any = None, valid: Any = None, on_invalid: OnInvalid = "zero") -> Metric:
    """Share of sets with at least one right answer.

    Args:
        correct: bool ``[B, K]``.
        mask: bool ``[B, K]``.
        valid: bool ``[B]``, which outputs could be read at all; all, by default.
        on_invalid: Others count "zero" and stay in the denominator, or are left out ("drop"). Their share is
            ``settings["invalid_rate"]``.

    Raises:
        InvalidArgumentError: A bad shape.
    """
    right, _ = _correct(correct, mask)
    return _over_valid("set_accuracy", right.any(axis=1), valid, on_invalid)


def coverage(*, found: Any, valid: Any = None, on_invalid: OnInvalid = "zero") -> Metric:
    """Mean number of distinct references that a set names.

    Args:
        found: bool ``[B, M]``, which references were named (:attr:`rewardkit.types.Outcome.found`).
        valid: bool ``[B]``, which outputs could be read at all; all, by default.
        on_invalid: Others count "zero" and stay in the denominator, or are left out ("drop"). Their share is
            ``settings["invalid_rate"]``.

    Raises:
        InvalidArgumentError: A bad shape.
    """
    return _over_valid("coverage", inputs.matrix("found", found).sum(axis=1), valid, on_invalid)


def recall(*, found: Any, n_golds: Any, valid: Any = None, on_invalid: OnInvalid = "zero") -> Metric:
    """Mean share of a row's references that its set names.

    Args:
        found: bool ``[B, M]``.
        n_golds: int ``[B]``, how many references each row has, at least 1.
        valid: bool ``[B]``, which outputs could be read at all; all, by default.
        on_invalid: Others count "zero" and stay in the denominator, or are left out ("drop"). Their share is
            ``settings["invalid_rate"]``.

    Raises:
        InvalidArgumentError: A bad shape, a row without references, or one that names more than it has.
    """
    named = inputs.matrix("found", found)
    expected = f"{len(named)} whole numbers >= 1"
    golds = arrays.floats("n_golds", n_golds, expected)
    if golds.shape != named.shape[:1] or not (np.isfinite(golds) & (golds >= 1) & (golds == np.floor(golds))).all():
        raise InvalidArgumentError("n_golds", expected=expected, got=n_golds)
    count = named.sum(axis=1)
    if (count > golds).any():
        row = int(np.flatnonzero(count > golds)[0])
        raise InvalidArgumentError(
            "found",
            expected=f"at most n_golds[{row}] = {golds[row]:g} found references in row {row}",
            got=int(count[row]),
        )
    return _over_valid("recall", count / golds, valid, on_invalid)


def precision(*, correct: Any, slots: int | None = None, valid: Any = None, on_invalid: OnInvalid = "zero") -> Metric:
    """Mean share of a set's slots that hold a right answer.

    Args:
        correct: bool ``[B, K]``.
        slots: How many answers were asked for; ``None`` takes K. An answer that is missing counts as wrong.
        valid: bool ``[B]``, which outputs could be read at all; all, by default.
        on_invalid: Others count "zero" and stay in the denominator, or are left out ("drop"). Their share is
            ``settings["invalid_rate"]``.

    Raises:
        InvalidArgumentError: A bad shape, or fewer slots than answers.
    """
    right, _ = _correct(correct, None)
    asked = _slot_count(slots, right.shape[1])
    return _over_valid("precision", right.sum(axis=1) / asked, valid, on_invalid, slots=asked)


def pass_at_1(
    *,
    correct: Any,
    select: Select,
    confidence: Any = None,
    mask: Any = None,
    valid: Any = None,
    on_invalid: OnInvalid = "zero",
) -> Metric:
    """Accuracy of the one answer taken from each set.

    Args:
        correct: bool ``[B, K]``.
        select: "first", "max_conf" (ties: the earlier one) or "random" (its expectation over the set's answers).
        confidence: float ``[B, K]``, needed for "max_conf"; finite where there is an answer.
        mask: bool ``[B, K]``.
        valid: bool ``[B]``, which outputs could be read at all; all, by default.
        on_invalid: Others count "zero" and stay in the denominator, or are left out ("drop"). Their share is
            ``settings["invalid_rate"]``.

    Raises:
        InvalidArgumentError: A bad shape, or ``confidence`` is missing or not finite.
    """
    inputs.choice("select", select, ("first", "max_conf", "random"))
    right, present = _correct(correct, mask)
    if select == "random":
        mean = right.sum(axis=1) / np.maximum(1, present.sum(axis=1))
        return _over_valid("pass_at_1", mean, valid, on_invalid, select=select)
    rank = _rank(confidence if select == "max_conf" else np.zeros(right.shape), present)
    chosen = rank.argmax(axis=1) if right.shape[1] else np.zeros(len(right), int)
    picked = right[np.arange(len(right)), chosen] if right.shape[1] else np.zeros(len(right), bool)
    return _over_valid("pass_at_1", picked, valid, on_invalid, select=select)


def correct_at(*, correct: Any, confidence: Any = None, mask: Any = None) -> tuple[Float64, Float64]:
    """Ranked by confidence (or in the order given): right answers among the first i, and whether there is any.

    Args:
        correct: bool ``[B, K]``.
        confidence: float ``[B, K]`` to rank by, ties in the order given, finite; ``None`` keeps the order.
        mask: bool ``[B, K]``.

    Returns:
        ``num_correct@i`` and ``pass@i`` for i = 1 … K, float64 ``[K]`` each, means over sets.

    Raises:
        InvalidArgumentError: A bad shape, or a confidence that is not finite.
    """
    right, present = _correct(correct, mask)
    if confidence is not None:
        order = np.argsort(-_rank(confidence, present), axis=1, kind="stable")
        right = np.take_along_axis(right, order, axis=1)
    counts = np.cumsum(right, axis=1)
    if not len(right):
        return np.full(right.shape[1], math.nan), np.full(right.shape[1], math.nan)
    return counts.mean(axis=0), (counts > 0).mean(axis=0)


def pass_at_k(n: Any, c: Any, k: int) -> Any:
    r"""Chance that at least one of k samples is right, without bias, from n samples of which c are right.

    .. math:: 1 - \binom{n - c}{k} \Big/ \binom{n}{k}

    Putting c/n into :math:`1 - (1 - p)^k` instead is biased: for p = .3, n = 10, k = 3 its mean is .614, not .657.

    Args:
        n: Samples; a number, or ``[prompts]``.
        c: Right ones among them; a number, or ``[prompts]``.
        k: At most the smallest n.

    Returns:
        A float for numbers, float64 ``[prompts]`` for arrays.

    Raises:
        InvalidArgumentError: k is larger than n, or c is not in [0, n].

    Source:
        Chen et al. 2021 (arXiv:2107.03374), eq. (1).
    """
    k = arrays.whole("k", k)
    samples, right = arrays.numeric("n", n, "whole numbers"), arrays.numeric("c", c, "whole numbers")
    for name, array, given in (("n", samples, n), ("c", right, c)):
        if array.dtype.kind == "b" or not (np.isfinite(array) & (array == np.floor(array))).all():
            raise InvalidArgumentError(name, expected="whole numbers", got=given)
    if samples.ndim and right.ndim and samples.shape != right.shape:
        raise InvalidArgumentError("c", expected=f"the shape of n, {samples.shape}", got=f"shape {right.shape}")
    samples, right = np.broadcast_arrays(samples, right)
    if samples.size and samples.min() < k:
        raise InvalidArgumentError("k", expected=f"at most the number of samples, {samples.min()}", got=k)
    if ((right < 0) | (right > samples)).any():
        raise InvalidArgumentError("c", expected="0 to n right samples", got=c)
    # The ratio of binomials as a product of k factors, each in [0, 1]: no overflow, and exactly 0 where n - c < k.
    steps = np.arange(k)
    factors = (samples[..., None] - right[..., None] - steps) / (samples[..., None] - steps)
    result = 1.0 - np.clip(factors, 0.0, 1.0).prod(axis=-1)
    return float(result) if result.ndim == 0 else result


def uniqueness(classes: Any, *, slots: int | None = None) -> Metric:
    """Mean number of different answers per set, as a share of the slots.

    Args:
        classes: int ``[B, K]`` equivalence classes, -1 where there is no answer
            (:func:`rewardkit.matching.equivalence_classes`; with ``matcher="code_ast"`` for programs).
        slots: How many answers were asked for; ``None`` takes K.

    Returns:
        In [0, 1]; the mean number itself is ``settings["mean_distinct"]``.

    Raises:
        InvalidArgumentError: A bad shape.
    """
    expected = "whole numbers >= -1, [sets, slots]"
    ids = arrays.numeric("classes", classes, expected)
    if ids.ndim != 2 or ids.dtype.kind not in "iu" or (ids < -1).any():
        raise InvalidArgumentError("classes", expected=expected, got=classes)
    asked = _slot_count(slots, ids.shape[1])
    ordered = np.sort(ids, axis=1)
    new = np.ones(ids.shape, bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    distinct = (new & (ordered >= 0)).sum(axis=1)
    mean = float(distinct.mean()) if len(distinct) else math.nan
    return _mean("uniqueness", distinct / asked, slots=asked, mean_distinct=mean)


def set_brier(
    *,
    confidence: Any,
    correct: Any,
    mask: Any = None,
    reduce: Literal["mean", "sum"] = "mean",
    set_construction: SetConstruction | None = None,
) -> Metric:
    """Squared error of each slot, averaged (or summed) over a set's answers, then averaged over sets.

    Args:
        confidence: float ``[B, K]`` in [0, 1].
        correct: bool ``[B, K]``.
        mask: bool ``[B, K]``; sets without an answer take no part.
        reduce: "mean", or "sum" as the released multi-answer code reports.
        set_construction: How the sets came about.

    Raises:
        InvalidArgumentError: A bad shape, or a confidence that is NaN or outside [0, 1].
    """
    inputs.choice("reduce", reduce, ("mean", "sum"))
    q, right, present = _slots(confidence, correct, mask)
    error = np.where(present, (q - right) ** 2, 0.0).sum(axis=1)
    filled = present.any(axis=1)
    values = error[filled] / (present.sum(axis=1)[filled] if reduce == "mean" else 1)
    return _mean("set_brier", values, reduce=reduce, **_construction(set_construction))


def pooled_brier(
    *, confidence: Any, correct: Any, mask: Any = None, set_construction: SetConstruction | None = None
) -> Metric:
    """Brier loss over all slots of all sets, flattened.

    Args:
        confidence: float ``[B, K]`` in [0, 1].
        correct: bool ``[B, K]``.
        mask: bool ``[B, K]``.
        set_construction: How the sets came about.

    Raises:
        InvalidArgumentError: A bad shape, or a NaN.
    """
    q, right, present = _slots(confidence, correct, mask)
    result = calibration.brier_loss(confidence=q[present], correct=right[present])
    return _renamed(result, "pooled_brier", set_construction)


def pooled_ece(
    *, confidence: Any, correct: Any, mask: Any = None, set_construction: SetConstruction | None = None, **settings: Any
) -> Metric:
    """ECE over all slots of all sets, flattened.

    Args:
        confidence: float ``[B, K]`` in [0, 1].
        correct: bool ``[B, K]``.
        mask: bool ``[B, K]``.
        set_construction: How the sets came about.
        **settings: bins, scheme, edge, norm, seed, as for :func:`rewardkit.metrics.ece`.

    Raises:
        InvalidArgumentError: A bad shape or setting, or a NaN.
    """
    q, right, present = _slots(confidence, correct, mask)
    result = calibration.ece(confidence=q[present], correct=right[present], **settings)
    return _renamed(result, "pooled_ece", set_construction)


def set_confidence(*, confidence: Any, mask: Any = None, exclusive: bool) -> Float64:
    """The stated chance that a set holds a right answer, float64 ``[B]``.

    Args:
        confidence: float ``[B, K]`` in [0, 1].
        mask: bool ``[B, K]``.
        exclusive: Whether at most one answer can be right: then the chances add up, ``min(1, sum q)``. Otherwise slots
            count as independent, ``1 - prod(1 - q)``.

    Raises:
        InvalidArgumentError: A bad shape, or a confidence that is NaN or outside [0, 1].
    """
    exclusive = _flag("exclusive", exclusive)
    q = arrays.floats("confidence", confidence, "stated confidences")
    if q.ndim != 2:
        raise InvalidArgumentError("confidence", expected="shape [sets, slots]", got=f"shape {q.shape}")
    q, _, present = _slots(q, np.zeros(q.shape, bool), mask)
    q = np.where(present, q, 0.0)
    return np.minimum(1.0, q.sum(axis=1)) if exclusive else 1.0 - (1.0 - q).prod(axis=1)


def set_ece(
    *,
    confidence: Any,
    correct: Any,
    mask: Any = None,
    exclusive: bool,
    set_construction: SetConstruction | None = None,
    **settings: Any,
) -> Metric:
    """ECE of the stated chance that a set holds a right answer.

    The two definitions are not interchangeable: the sum on tasks with several right answers is off by about .13, the
    product on tasks with one by about .10, for a perfectly calibrated model. The product assumes independent slots: with
    dependent ones it is a diagnostic only.

    Args:
        confidence: float ``[B, K]`` in [0, 1].
        correct: bool ``[B, K]``.
        mask: bool ``[B, K]``.
        exclusive: Whether at most one answer can be right; see :func:`set_confidence`.
        set_construction: How the sets came about.
        **settings: bins, scheme, edge, norm, seed, as for :func:`rewardkit.metrics.ece`.

    Returns:
        In [0, 1]. With one slot, both definitions are the ordinary ECE.

    Raises:
        InvalidArgumentError: A bad shape or setting, or a confidence that is NaN or outside [0, 1].

    Source:
        Multi-answer RL, arXiv:2603.24844.
    """
    exclusive = _flag("exclusive", exclusive)
    _, right, present = _slots(confidence, correct, mask)
    stated = set_confidence(confidence=confidence, mask=present, exclusive=exclusive)
    result = calibration.ece(confidence=stated, correct=right.any(axis=1), **settings)
    return _renamed(result, "set_ece", set_construction, exclusive=exclusive)


def confidence_mass(*, prompt: Sequence[Any], answer_class: Sequence[Any], confidence: Any) -> Metric:
    """Per prompt, the mean confidence of each different answer, added up over these answers; then the mean over prompts.

    On a task with a single right answer the stated chances of different answers should not add up to more than 1.

    Args:
        prompt: ``[N]`` which prompt each sample belongs to.
        answer_class: ``[N]`` which answer it gives: equal values within a prompt are one answer.
        confidence: ``[N]`` in [0, 1].

    Returns:
        At least 0; the share of prompts above 1 is ``settings["share_above_1"]``.

    Raises:
        InvalidArgumentError: A bad shape, or a confidence that is NaN or outside [0, 1].

    Source:
        RLCR, arXiv:2507.16806, the section on consistency between samples.
    """
    q = _unit("confidence", inputs.scores("confidence", confidence))
    for name, values in (("prompt", prompt), ("answer_class", answer_class)):
        _keys(name, values, len(q))
    totals: dict[Any, list[float]] = {}
    for where, which, value in zip(prompt, answer_class, q.tolist(), strict=True):
        cell = totals.setdefault((where, which), [0.0, 0.0])
        cell[0] += value
        cell[1] += 1
    mass: dict[Any, float] = {}
    for (where, _), (total, count) in totals.items():
        mass[where] = mass.get(where, 0.0) + total / count
    values = np.array(list(mass.values()))
    above = float((values > 1 + 1e-9).mean()) if len(values) else math.nan
    return _mean("confidence_mass", values, share_above_1=above)


def average_tokens(*, tokens: Any, prompt: Any = None) -> Metric:
    """Mean number of tokens spent per question: independent samples of one prompt add up.

    Args:
        tokens: ``[N]`` tokens of each completion.
        prompt: ``[N]`` which prompt each belongs to; ``None`` counts every completion as a question of its own.

    Raises:
        InvalidArgumentError: A bad shape, or a negative count.
    """
    counts = inputs.scores("tokens", tokens).astype(np.float64)
    bad = ~((counts >= 0) & np.isfinite(counts))
    if bad.any():
        raise InvalidArgumentError("tokens", expected="counts >= 0", got=counts[bad][0].item())
    if prompt is None:
        return _mean("average_tokens", counts)
    _, index = inputs.group_ids("prompt", prompt, like=counts)
    return _mean("average_tokens", np.bincount(index, weights=counts))


def _keys(name: str, values: Any, length: int) -> None:
    """Raises InvalidArgumentError unless there are so many values that can be told apart by equality."""
    expected = f"{length} values, one per confidence"
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or not hasattr(values, "__iter__"):
        raise InvalidArgumentError(name, expected=expected, got=values)
    if len(values) != length:
        raise InvalidArgumentError(name, expected=expected, got=f"{len(values)} values")
    for value in values:
        try:
            hash(value)
        except TypeError:
            raise InvalidArgumentError(name, expected="strings, numbers or tuples of them", got=value) from None


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidArgumentError(name, expected="True or False", got=value)
    return bool(value)


def _slot_count(slots: int | None, width: int) -> int:
    return max(1, width) if slots is None else arrays.whole("slots", slots, low=max(1, width))


def _correct(correct: Any, mask: Any) -> tuple[Bool, Bool]:
    right = inputs.matrix("correct", correct)
    present = inputs.mask(mask, right)
    return right & present, present


def _slots(confidence: Any, correct: Any, mask: Any) -> tuple[Float64, Bool, Bool]:
    right, present = _correct(correct, mask)
    q = _confidence(confidence, right)
    _unit("confidence", q[present])
    return q, right, present


def _confidence(confidence: Any, like: Bool) -> Float64:
    q = arrays.floats("confidence", confidence, "stated confidences")
    if q.shape != like.shape:
        raise InvalidArgumentError("confidence", expected=f"shape {like.shape}", got=f"shape {q.shape}")
    return q


def _rank(confidence: Any, present: Bool) -> Float64:
    """What answers are ranked by, -inf in empty slots."""
    q = _confidence(confidence, present)
    bad = present & ~np.isfinite(q)
    if bad.any():
        raise InvalidArgumentError(
            "confidence", expected="finite numbers where there is an answer", got=q[bad][0].item()
        )
    return np.where(present, q, -np.inf)


def _unit(name: str, array: Any) -> Any:
    bad = ~((array >= 0) & (array <= 1))
    if bad.any():
        raise InvalidArgumentError(name, expected="numbers in [0, 1]", got=array[bad][0].item())
    return array


def _mean(name: str, values: Any, **settings: Any) -> Metric:
    values = np.asarray(values, np.float64)
    value = float(values.mean()) if len(values) else math.nan
    return Metric(value, name=name, n=len(values), settings=settings, undefined="" if len(values) else "no sets")


def _over_valid(name: str, values: Any, valid: Any, on_invalid: str, **settings: Any) -> Metric:
    """The mean over sets, of which those that could not be read count 0 or are left out."""
    inputs.choice("on_invalid", on_invalid, ("zero", "drop"))
    if valid is None:
        if on_invalid == "drop":
            raise InvalidArgumentError("valid", expected="which outputs could be read, to drop the others", got=None)
        return _mean(name, values, **settings)
    good = inputs.labels("valid", valid).astype(bool)
    if len(good) != len(values):
        raise InvalidArgumentError("valid", expected=f"{len(values)} booleans, one per set", got=f"{len(good)}")
    rate = float((~good).mean()) if len(good) else math.nan
    settings |= {"on_invalid": on_invalid, "invalid_rate": rate}
    kept = np.where(good, values, 0.0) if on_invalid == "zero" else np.asarray(values)[good]
    result = _mean(name, kept, **settings)
    result.invalid = len(values) - result.n
    return result


def _construction(value: str | None) -> dict[str, Any]:
    inputs.choice("set_construction", value, SET_CONSTRUCTIONS)
    return {} if value is None else {"set_construction": value}


def _renamed(result: Metric, name: str, set_construction: str | None, **settings: Any) -> Metric:
    merged = {**result.settings, **settings, **_construction(set_construction)}
    return Metric(
        float(result),
        name=name,
        n=result.n,
        invalid=result.invalid,
        settings=merged,
        undefined=result.undefined,
        null=(lambda: result.null) if name.endswith("ece") else None,  # type: ignore[arg-type, return-value]
    )
