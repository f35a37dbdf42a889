"""Score: scoring rules for a stated confidence, larger is better, all in float64.

Notation: ``q`` the stated confidence, ``c`` the outcome (0 or 1), ``p`` the true probability of ``c = 1``. A rule ``S(q, c)``
is *strictly proper* when ``q = p`` alone maximises ``p S(q, 1) + (1 - p) S(q, 0)``; that maximum is written ``G(p)``.

Source: Gneiting & Raftery 2007, "Strictly Proper Scoring Rules, Prediction, and Estimation", sections 2 and 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rewardkit.arrays import floats
from rewardkit.errors import InvalidArgumentError, UnknownNameError
from rewardkit.types import Bool, Float64

EPSILON = 0.01
"""How far the logarithmic rule stays away from certainty, so that one miss costs log(1/0.01) = 4.6 nats, not infinity."""


def brier_reward(*, confidence: npt.ArrayLike, correct: npt.ArrayLike, shift: bool = True) -> Float64:
    """The quadratic rule: ``1 - (q - c)^2``, or ``-(q - c)^2`` without the shift. Strictly proper for every p.

    The expected loss of stating q is exactly ``(q - p)^2`` above the best possible; ``G(p) = 1 - p (1 - p)``, less the 1
    without the shift.

    Args:
        confidence: Stated probability that the answer is right, float ``[…]`` in [0, 1].
        correct: Whether it is, bool or 0/1 ``[…]``, the same shape.
        shift: Whether to add the constant 1, as RLCR's released code does and its paper does not. The constant leaves
            every advantage as it is, but moves the range from [-1, 0] to [0, 1], and a failure reward with it.

    Returns:
        float64 ``[…]``.

    Raises:
        InvalidArgumentError: The shapes differ, a confidence is NaN or outside [0, 1], ``correct`` is not boolean.

    Source:
        RLCR, arXiv 2507.16806.

    Example:
        >>> brier_reward(confidence=[0.8, 0.8], correct=[True, False]).round(2).tolist()
        [0.96, 0.36]
    """
    q, c = _checked(confidence, correct)
    return float(shift) - np.square(q - c)


def log_reward(*, confidence: npt.ArrayLike, correct: npt.ArrayLike, epsilon: float = EPSILON) -> Float64:
    """The logarithmic rule: ``log q`` if correct, else ``log(1 - q)``, with q clipped to [epsilon, 1 - epsilon].

    Strictly proper for p inside [epsilon, 1 - epsilon], where ``G(p) = p log p + (1 - p) log(1 - p)``. Outside, every q
    beyond the clip earns the same, so honesty is a maximiser but not the only one.

    Args:
        confidence: Stated probability that the answer is right, float ``[…]`` in [0, 1].
        correct: Whether it is, bool or 0/1 ``[…]``, the same shape.
        epsilon: Clip, in (0, 0.5).

    Returns:
        float64 ``[…]`` in nats, in [log epsilon, log(1 - epsilon)].

    Raises:
        InvalidArgumentError: As :func:`brier_reward`, or ``epsilon`` is outside (0, 0.5).

    Example:
        >>> log_reward(confidence=[1.0, 1.0], correct=[True, False]).round(4).tolist()
        [-0.0101, -4.6052]
    """
    check_epsilon(epsilon)
    q, c = _checked(confidence, correct)
    q = np.clip(q, epsilon, 1.0 - epsilon)
    return np.log(np.where(c > 0.0, q, 1.0 - q))


def spherical_reward(*, confidence: npt.ArrayLike, correct: npt.ArrayLike) -> Float64:
    """The spherical rule: the probability given to what happened over ``sqrt(q^2 + (1 - q)^2)``. Strictly proper for every p.

    ``G(p) = sqrt(p^2 + (1 - p)^2)``.

    Args:
        confidence: Stated probability that the answer is right, float ``[…]`` in [0, 1].
        correct: Whether it is, bool or 0/1 ``[…]``, the same shape.

    Returns:
        float64 ``[…]`` in [0, 1].

    Raises:
        InvalidArgumentError: As :func:`brier_reward`.

    Example:
        >>> spherical_reward(confidence=[0.5], correct=[True]).round(4).tolist()
        [0.7071]
    """
    q, c = _checked(confidence, correct)
    return np.where(c > 0.0, q, 1.0 - q) / np.hypot(q, 1.0 - q)


def linear_reward(*, confidence: npt.ArrayLike, correct: npt.ArrayLike) -> Float64:
    """The absolute rule ``-|q - c|``. NOT proper: it pays for stating 0 below p = 1/2 and 1 above it.

    Here as the control of experiments and tests that ask whether a rule teaches calibration.

    Args:
        confidence: Stated probability that the answer is right, float ``[…]`` in [0, 1].
        correct: Whether it is, bool or 0/1 ``[…]``, the same shape.

    Returns:
        float64 ``[…]`` in [-1, 0].

    Raises:
        InvalidArgumentError: As :func:`brier_reward`.

    Example:
        >>> linear_reward(confidence=[0.75], correct=[True]).tolist()
        [-0.25]
    """
    q, c = _checked(confidence, correct)
    return -np.abs(q - c)


@dataclass(frozen=True)
class Rule:
    """A scoring rule with what a reward must know about it.

    Attributes:
        score: ``score(q, c)``, float64, of inputs that are known to be valid.
        lowest, highest: Exact range of the score, both attained.
        tension: The supremum over p of ``S(p, 0) - S(p, 1)``: how much more an honest forecaster can lose by being right
            than by being wrong. A reward ``a c + b S`` prefers likelier answers iff ``a >= b tension``.
        strict: Whether the rule is strictly proper.
        proper_for: Where it is.
    """

    score: Callable[[Float64, Bool | Float64], Float64]
    lowest: float
    highest: float
    tension: float
    strict: bool
    proper_for: str


def scoring_rule(name: str, *, epsilon: float = EPSILON) -> Rule:
    """The rule of that name as rewards use it: "brier" (unshifted), "log", "spherical" or "linear" (improper).

    Raises:
        UnknownNameError: There is no such rule.
        InvalidArgumentError: ``epsilon`` is outside (0, 0.5).
    """
    check_epsilon(epsilon)
    if name == "brier":
        return Rule(
            lambda q, c: brier_reward(confidence=q, correct=c, shift=False), -1.0, 0.0, 1.0, True, "every probability"
        )
    if name == "log":
        return Rule(
            lambda q, c: log_reward(confidence=q, correct=c, epsilon=epsilon),
            math.log(epsilon),
            math.log(1.0 - epsilon),
            math.log((1.0 - epsilon) / epsilon),
            True,
            f"probabilities in [{epsilon:g}, {1.0 - epsilon:g}]; beyond, all reports past the clip earn the same",
        )
    if name == "spherical":
        return Rule(lambda q, c: spherical_reward(confidence=q, correct=c), 0.0, 1.0, 1.0, True, "every probability")
    if name == "linear":
        return Rule(
            lambda q, c: linear_reward(confidence=q, correct=c), -1.0, 0.0, 1.0, False, "nothing: it rewards extremes"
        )
    raise UnknownNameError("scoring rule", name, RULES)


RULES = ("brier", "linear", "log", "spherical")


def check_epsilon(epsilon: float) -> None:
    """Raises InvalidArgumentError unless ``epsilon`` lies in (0, 0.5)."""
    if not isinstance(epsilon, (int, float)) or not 0.0 < epsilon < 0.5:
        raise InvalidArgumentError("epsilon", expected="a number in (0, 0.5)", got=epsilon)


def _checked(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> tuple[Float64, Float64]:
    q, c = floats("confidence", confidence), floats("correct", correct)
    if q.shape != c.shape:
        raise InvalidArgumentError(
            "correct", expected=f"the shape of confidence, {q.shape}", got=f"an array of shape {c.shape}"
        )
    if (bad := ~((q >= 0.0) & (q <= 1.0))).any():
        raise InvalidArgumentError("confidence", expected="probabilities in [0, 1]", got=float(q[bad].flat[0]))
    if (bad := (c != 0.0) & (c != 1.0)).any():
        raise InvalidArgumentError("correct", expected="booleans, or 0 and 1", got=float(c[bad].flat[0]))
    return q, c
