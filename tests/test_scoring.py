"""Scoring rules: closed forms, properness (and the control's lack of it), input checks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardkit import scoring
from rewardkit.errors import InvalidArgumentError, UnknownNameError

GRID = np.round(np.linspace(0.0, 1.0, 101), 2)
FUNCTIONS = {
    "brier": scoring.brier_reward,
    "log": scoring.log_reward,
    "spherical": scoring.spherical_reward,
    "linear": scoring.linear_reward,
}
unit = st.floats(0.0, 1.0)


def expected(rule: str, q: np.ndarray | float, p: float) -> np.ndarray:
    """``p S(q, 1) + (1 - p) S(q, 0)``."""
    q = np.asarray(q, dtype=float)
    score = scoring.scoring_rule(rule).score
    return p * score(q, np.ones_like(q)) + (1.0 - p) * score(q, np.zeros_like(q))


def entropy(p: float) -> float:
    return -sum(x * math.log(x) for x in (p, 1.0 - p) if x > 0.0)


@pytest.mark.parametrize("rule", ["brier", "log", "spherical"])
@pytest.mark.parametrize("p", GRID[2:-2])  # strictly inside the log rule's clip
def test_honest_report_is_the_unique_maximiser_on_a_grid(rule: str, p: float) -> None:
    values = expected(rule, GRID, p)
    best = np.flatnonzero(values >= values.max() - 1e-15)
    assert GRID[best].tolist() == [p]


def test_log_ties_beyond_its_clip() -> None:
    values = expected("log", np.array([0.0, 0.005, 0.01, 0.02]), 0.004)
    assert values[0] == values[1] == values[2] > values[3]


@given(p=unit, q=unit)
def test_brier_expected_loss_is_the_squared_distance(p: float, q: float) -> None:
    assert expected("brier", p, p) - expected("brier", q, p) == pytest.approx((q - p) ** 2, abs=1e-15)


@given(p=unit)
def test_closed_forms_at_honesty(p: float) -> None:
    assert expected("brier", p, p) == pytest.approx(-p * (1.0 - p), abs=1e-15)
    assert expected("spherical", p, p) == pytest.approx(math.hypot(p, 1.0 - p), abs=1e-15)
    if scoring.EPSILON <= p <= 1.0 - scoring.EPSILON:
        assert expected("log", p, p) == pytest.approx(-entropy(p), abs=1e-15)


@given(p=unit, q=unit)
def test_no_report_beats_honesty(p: float, q: float) -> None:
    for rule in ("brier", "spherical", "log"):
        assert expected(rule, q, p) <= expected(rule, p, p) + 1e-15


@given(p=unit, q=unit, r=unit)
def test_savage_tangent(p: float, q: float, r: float) -> None:
    """G is convex, and the score of q is its tangent there: the expected score is linear in p."""
    for rule in ("brier", "spherical", "log"):
        mix = 0.5 * (p + r)
        assert expected(rule, q, mix) == pytest.approx(
            0.5 * float(expected(rule, q, p)) + 0.5 * float(expected(rule, q, r)), abs=1e-14
        )


@pytest.mark.parametrize("p", [0.05, 0.3, 0.49, 0.51, 0.8, 0.95])
def test_linear_control_pays_for_extremes(p: float) -> None:
    assert GRID[int(np.argmax(expected("linear", GRID, p)))] == (1.0 if p > 0.5 else 0.0)


@pytest.mark.parametrize("name", FUNCTIONS)
@given(pairs=st.lists(st.tuples(unit, st.booleans()), max_size=20))
def test_range_shape_dtype_and_rows_alone(name: str, pairs: list[tuple[float, bool]]) -> None:
    q, c = np.array([q for q, _ in pairs], dtype=float), np.array([c for _, c in pairs], dtype=bool)
    rule, shift = scoring.scoring_rule(name), float(name == "brier")
    got = FUNCTIONS[name](confidence=q, correct=c)
    assert got.dtype == np.float64
    assert got.shape == q.shape
    assert np.isfinite(got).all()
    assert ((got >= rule.lowest + shift) & (got <= rule.highest + shift)).all()
    alone = [float(FUNCTIONS[name](confidence=one, correct=other)) for one, other in zip(q, c, strict=True)]
    assert got.tolist() == alone


@pytest.mark.parametrize("name", FUNCTIONS)
def test_declared_range_and_tension_are_exact(name: str) -> None:
    rule = scoring.scoring_rule(name)
    fine = np.linspace(0.0, 1.0, 100_001)
    right, wrong = rule.score(fine, np.ones_like(fine)), rule.score(fine, np.zeros_like(fine))
    assert min(right.min(), wrong.min()) == pytest.approx(rule.lowest, abs=1e-15)
    assert max(right.max(), wrong.max()) == pytest.approx(rule.highest, abs=1e-15)
    assert (wrong - right).max() == pytest.approx(rule.tension, abs=1e-12)


def test_golden_numbers() -> None:
    assert scoring.brier_reward(confidence=[0.9, 0.9], correct=[1, 0]) == pytest.approx([0.99, 0.19])
    assert scoring.brier_reward(confidence=[0.9], correct=[0], shift=False) == pytest.approx([-0.81])
    assert scoring.log_reward(confidence=[1.0], correct=[0], epsilon=0.05) == pytest.approx([-2.995732273553991])
    assert scoring.spherical_reward(confidence=[0.6], correct=[1]) == pytest.approx([0.6 / math.sqrt(0.52)])
    tensions = {e: scoring.scoring_rule("log", epsilon=e).tension for e in (0.05, 0.01, 0.001)}
    assert tensions == pytest.approx({0.05: 2.944439, 0.01: 4.595120, 0.001: 6.906755}, abs=1e-6)


def test_accepts_any_shape() -> None:
    q = np.full((2, 3), 0.5, dtype=np.float32)
    assert scoring.brier_reward(confidence=q, correct=np.zeros((2, 3), dtype=bool)).shape == (2, 3)
    assert scoring.brier_reward(confidence=[], correct=[]).shape == (0,)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize(
    ("confidence", "correct", "argument"),
    [
        ([0.5, 0.5], [True], "correct"),
        ([math.nan], [True], "confidence"),
        ([math.inf], [True], "confidence"),
        ([1.0000001], [True], "confidence"),
        ([-1e-12], [True], "confidence"),
        ([0.5], [2.0], "correct"),
        ([0.5], [math.nan], "correct"),
        (["high"], [True], "confidence"),
        ([None], [True], "confidence"),
        (["0.5"], [1], "confidence"),
        ("0.5", [1], "confidence"),
        (np.array(["0.5"]), [1], "confidence"),
        (np.array(["0.5"], dtype=object), [1], "confidence"),
        ([0.5], ["1"], "correct"),
        ([0.5], np.array(["1"], dtype=object), "correct"),
        ([0.5j], [1], "confidence"),
        ([[0.5], [0.5, 0.5]], [True], "confidence"),
    ],
)
def test_BR_020_bad_calls_name_the_argument(function, confidence, correct, argument) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        function(confidence=confidence, correct=correct)
    assert error.value.argument == argument


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, -0.1, math.nan, "0.1", None])
def test_epsilon_out_of_range(epsilon) -> None:
    with pytest.raises(InvalidArgumentError, match="epsilon"):
        scoring.log_reward(confidence=[0.5], correct=[True], epsilon=epsilon)


def test_unknown_rule() -> None:
    with pytest.raises(UnknownNameError, match=r"'bier'.*'brier'"):
        scoring.scoring_rule("bier")
