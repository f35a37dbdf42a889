"""Choosing one answer from several samples, and cheap ways to correct confidences afterwards.

A chooser takes the N samples of one prompt and returns the index of the chosen one. Which answers are the same is the caller's
relation, given as equivalence classes (:func:`rewardkit.matching.equivalence_classes`): the same one that decides correctness.

Identities (each has a test): one sample is chosen by every rule; with equal confidences the weighted vote is the majority vote;
the Brier loss of an average of confidences is never above the average of the Brier losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rewardkit.arrays import floats
from rewardkit.errors import InvalidArgumentError, MissingExtraError, UnknownNameError
from rewardkit.metrics import inputs
from rewardkit.shaping import check_number
from rewardkit.types import Float64

_TIE = 1e-12


def max_confidence(confidence: Sequence[float], classes: Sequence[int]) -> int:
    """The sample with the highest confidence; among equals one of the largest class, then the first.

    Args:
        confidence: ``[N]`` in [0, 1].
        classes: ``[N]`` equivalence class of each answer.

    Raises:
        InvalidArgumentError: No sample, other lengths, or a confidence outside [0, 1].
    """
    q, ids = _samples(confidence, classes)
    tied = [i for i, value in enumerate(q) if value >= max(q) - _TIE]
    sizes = {i: sum(ids[j] == ids[i] for j in tied) for i in tied}
    return min(tied, key=lambda i: (-sizes[i], i))


def majority_vote(classes: Sequence[int]) -> int:
    """The first sample of the largest class; among equals, of the class that appears first.

    Args:
        classes: ``[N]``.

    Raises:
        InvalidArgumentError: No sample.
    """
    _, ids = _samples(None, classes)
    return min(range(len(ids)), key=lambda i: (-ids.count(ids[i]), ids.index(ids[i]), i))


def weighted_vote(confidence: Sequence[float], classes: Sequence[int]) -> int:
    """The most confident sample of the class whose confidences add up to most.

    Ties go to the larger class, then to the one that appears first; if all confidences are 0, it is the majority vote.

    Args:
        confidence: ``[N]`` in [0, 1].
        classes: ``[N]``.

    Raises:
        InvalidArgumentError: No sample, other lengths, or a confidence outside [0, 1].
    """
    q, ids = _samples(confidence, classes)
    if not any(q):
        return majority_vote(ids)
    totals = {one: math.fsum(value for value, other in zip(q, ids, strict=True) if other == one) for one in ids}
    best = max(totals.values())
    tied = [one for one in totals if totals[one] >= best - _TIE]
    winner = min(tied, key=lambda one: (-ids.count(one), ids.index(one)))
    members = [i for i, one in enumerate(ids) if one == winner]
    return min(members, key=lambda i: (-q[i], i))


METHODS: dict[str, Callable[[Sequence[float], Sequence[int]], int]] = {
    "max_confidence": max_confidence,
    "majority": lambda _, classes: majority_vote(classes),
    "weighted": weighted_vote,
}
"""The choosers by name."""


def choose(method: str, confidence: Sequence[float], classes: Sequence[int]) -> int:
    """The chooser of a name of :data:`METHODS`, called.

    Raises:
        UnknownNameError: No method has that name.
        InvalidArgumentError: The samples are not what the method takes.
    """
    if not isinstance(method, str) or method not in METHODS:
        raise UnknownNameError("selection method", method, METHODS)
    return METHODS[method](confidence, classes)


def analysis_ensemble(confidence: Any) -> Float64:
    """The mean confidence of several analyses of one fixed answer.

    Args:
        confidence: float ``[…, K]`` in [0, 1], K analyses of each answer.

    Returns:
        float64 ``[…]``. By Jensen its Brier loss is at most the mean of the K losses.

    Raises:
        InvalidArgumentError: No analysis, or a confidence outside [0, 1].
    """
    q = _probabilities(confidence, "numbers in [0, 1], at least one per answer")
    if q.ndim < 1 or q.shape[-1] < 1:
        raise InvalidArgumentError("confidence", expected="at least one analysis of each answer", got=confidence)
    return q.mean(axis=-1)


@dataclass(frozen=True)
class TemperatureScaling:
    """``sigmoid(logit(c) / T)``: T > 1 tempers overconfidence. One parameter, so it keeps the order and the AUROC.

    Attributes:
        temperature: T, finite and above 0.

    Raises:
        InvalidArgumentError: T is not.
    """

    temperature: float

    _EPS = 1e-6

    def __post_init__(self) -> None:
        check_number("temperature", self.temperature)
        if self.temperature <= 0:
            raise InvalidArgumentError("temperature", expected="a finite number above 0", got=self.temperature)

    @classmethod
    def fit(cls, *, confidence: Any, correct: Any) -> TemperatureScaling:
        """The temperature of least negative log-likelihood, on data that is not evaluated on.

        Args:
            confidence: ``[N]`` in [0, 1]; the ends count as 1e-6 from them.
            correct: bool ``[N]``.

        Raises:
            InvalidArgumentError: A bad shape, no data, or a confidence outside [0, 1].

        Source:
            Guo et al. 2017 (arXiv:1706.04599).
        """
        q, y = _unit(confidence, correct)
        logit = _logit(q, cls._EPS)
        signed = np.where(y, logit, -logit)

        def loss(log_temperature: float) -> float:
            return float(np.logaddexp(0.0, -signed * math.exp(-log_temperature)).mean())

        # The loss is convex in 1/T, so unimodal in log T.
        low, high = math.log(1e-2), math.log(1e2)
        golden = (math.sqrt(5) - 1) / 2
        inner = [high - golden * (high - low), low + golden * (high - low)]
        values = [loss(inner[0]), loss(inner[1])]
        while high - low > 1e-7:
            if values[0] <= values[1]:
                high, inner[1], values[1] = inner[1], inner[0], values[0]
                inner[0] = high - golden * (high - low)
                values[0] = loss(inner[0])
            else:
                low, inner[0], values[0] = inner[0], inner[1], values[1]
                inner[1] = low + golden * (high - low)
                values[1] = loss(inner[1])
        return cls(math.exp((low + high) / 2))

    def __call__(self, confidence: Any) -> Float64:
        """Corrected confidences, float64 of the same shape.

        Raises:
            InvalidArgumentError: A confidence is NaN or outside [0, 1].
        """
        logit = _logit(_probabilities(confidence), self._EPS) / self.temperature
        return np.asarray(np.exp(-np.logaddexp(0.0, -logit)))


def isotonic(*, confidence: Any, correct: Any) -> Callable[[Any], Float64]:
    """The best rising step function from confidence to accuracy, on data that is not evaluated on.

    Args:
        confidence: ``[N]`` in [0, 1].
        correct: bool ``[N]``.

    Returns:
        A function of confidences ``[N]`` in [0, 1]; beyond those that were seen it goes on as at the nearest of them.

    Raises:
        MissingExtraError: scikit-learn is not installed.
        InvalidArgumentError: A bad shape, no data, or a confidence outside [0, 1].

    Source:
        Zadrozny and Elkan 2002.
    """
    try:
        from sklearn.isotonic import IsotonicRegression
    except ImportError as error:
        raise MissingExtraError("isotonic regression", package="scikit-learn", extra="posthoc") from error
    q, y = _unit(confidence, correct)
    model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(q, y)
    return lambda values: np.asarray(model.predict(_probabilities(values)), np.float64)


@dataclass(frozen=True)
class ConformalThreshold:
    """Keep the hypotheses of at least this weight: the right one is among them with the asked chance.

    Attributes:
        threshold: The weight; 0 where ``attainable`` is False.
        alpha: The chance of missing it that is allowed.
        n: Calibration examples.
        attainable: False where too few examples, or too many that do not list the right answer, leave no threshold that
            guarantees the chance; then even all listed hypotheses do not.
    """

    threshold: float
    alpha: float
    n: int
    attainable: bool


def threshold_for_coverage(confidence: Any, correct: Any, alpha: float) -> ConformalThreshold:
    """Split-conformal threshold for sets of hypotheses.

    Over new examples exchangeable with these, ``{h: weight of h >= threshold}`` holds the right answer with probability at
    least ``1 - alpha``, on average over draws of these examples; nothing is promised for one prompt.

    Args:
        confidence: float ``[N, K]`` weights in [0, 1].
        correct: bool ``[N, K]`` which hypotheses are right.
        alpha: In (0, 1).

    Raises:
        InvalidArgumentError: A bad shape, a weight outside [0, 1], or alpha out of range.

    Source:
        Vovk et al. 2005; Angelopoulos and Bates 2021 (arXiv:2107.07511).
    """
    inputs.open_unit("alpha", alpha)
    q, right = _probabilities(confidence, "weights in [0, 1]"), inputs.matrix("correct", correct)
    if q.shape != right.shape:
        raise InvalidArgumentError("confidence", expected="weights in [0, 1], of the shape of correct", got=confidence)
    best = np.where(right, q, -1.0).max(axis=1, initial=-1.0)
    n = len(best)
    rank = math.ceil((n + 1) * (1 - alpha) - 1e-9)  # so many examples must be covered
    value = float(np.sort(best)[n - rank]) if 0 < rank <= n else -1.0
    return ConformalThreshold(max(0.0, value), float(alpha), n, value >= 0)


def _samples(confidence: Sequence[float] | None, classes: Sequence[int]) -> tuple[list[float], list[int]]:
    ids = _listed("classes", classes, (int, np.integer), "whole numbers, one per sample")
    if not ids:
        raise InvalidArgumentError("classes", expected="at least one sample", got=classes)
    if confidence is None:
        return [1.0] * len(ids), ids
    q = _listed("confidence", confidence, (int, float, np.floating, np.integer), "numbers in [0, 1], one per sample")
    if len(q) != len(ids):
        raise InvalidArgumentError("confidence", expected=f"{len(ids)} values, one per sample", got=f"{len(q)}")
    for value in q:
        if not 0 <= value <= 1:
            raise InvalidArgumentError("confidence", expected="numbers in [0, 1]", got=value)
    return q, ids


def _listed(name: str, values: Any, types: tuple[type, ...], expected: str) -> list[Any]:
    """A handful of plain numbers; an array's are made plain by its own ``tolist``."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    if not isinstance(values, (list, tuple, range)):
        raise InvalidArgumentError(name, expected=expected, got=values)
    for value in values:
        if not isinstance(value, types) or isinstance(value, bool):
            raise InvalidArgumentError(name, expected=expected, got=value)
    return list(values)


def _probabilities(confidence: Any, expected: str = "numbers in [0, 1]") -> Float64:
    q = floats("confidence", confidence, expected)
    bad = ~((q >= 0) & (q <= 1))
    if bad.any():
        raise InvalidArgumentError("confidence", expected=expected, got=q[bad].flat[0].item())
    return q


def _unit(confidence: Any, correct: Any) -> tuple[Float64, Any]:
    q = inputs.scores("confidence", confidence).astype(np.float64)
    y = inputs.labels("correct", correct, like=q).astype(bool)
    bad = (q < 0) | (q > 1)
    if bad.any() or not len(q):
        got = q[bad][0] if bad.any() else "no data"
        raise InvalidArgumentError("confidence", expected="at least one number, all in [0, 1]", got=got)
    return q, y


def _logit(q: Float64, eps: float) -> Float64:
    clipped = np.clip(q, eps, 1 - eps)
    return np.log(clipped) - np.log1p(-clipped)
