"""Failure rewards, duplicates, the sum rule, diversity terms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardkit import shaping
from rewardkit.errors import InvalidArgumentError
from rewardkit.types import Forecast

finite = st.floats(-1e6, 1e6)


def forecast(*rows: list[tuple[str, float]], width: int = 3) -> Forecast:
    probs, mask = np.zeros((len(rows), width)), np.zeros((len(rows), width), dtype=bool)
    for b, row in enumerate(rows):
        probs[b, : len(row)], mask[b, : len(row)] = [q for _, q in row], True
    return Forecast(
        answers=[[answer for answer, _ in row] for row in rows],
        probs=probs,
        mask=mask,
        has_prob=mask.copy(),
        other=np.zeros(len(rows)),
        wellformed=np.ones(len(rows), dtype=bool),
        reason=[""] * len(rows),
    )


@given(low=finite, margin=st.floats(0.0, 10.0))
def test_derived_failure_never_beats_the_minimum(low: float, margin: float) -> None:
    assert shaping.derive_fail_reward(low, margin=margin) <= low


def test_failure_above_the_minimum_needs_a_word() -> None:
    with pytest.raises(InvalidArgumentError, match="allow_inversion") as error:
        shaping.derive_fail_reward(-1.0, fail_reward=0.0)
    assert error.value.argument == "fail_reward"
    assert shaping.derive_fail_reward(-1.0, fail_reward=0.0, allow_inversion=True) == 0.0
    assert shaping.derive_fail_reward(-1.0, fail_reward=-1.0) == -1.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, "0", True, [0.0]])
def test_failure_reward_and_margin_are_numbers(bad) -> None:
    with pytest.raises(InvalidArgumentError, match="fail_reward"):
        shaping.derive_fail_reward(0.0, fail_reward=bad, allow_inversion=True)
    with pytest.raises(InvalidArgumentError, match="margin"):
        shaping.derive_fail_reward(0.0, margin=bad)
    with pytest.raises(InvalidArgumentError, match="margin"):
        shaping.derive_fail_reward(0.0, margin=-0.1)


CLASSES = np.array([[0, 1, 0], [0, 1, 2], [0, -1, -1], [-1, -1, -1], [0, 0, 0]])


def test_counts_and_duplicates() -> None:
    assert shaping.count_classes(CLASSES).tolist() == [2, 3, 1, 0, 1]
    assert shaping.has_duplicates(CLASSES).tolist() == [True, False, False, False, True]


@pytest.mark.parametrize(("how", "expected"), [("sum", [0.5, 0.3, 0.0]), ("max", [0.4, 0.3, 0.0])])
def test_merge_keeps_the_first(how, expected) -> None:
    given_rows = forecast([("Flu", 0.1), ("cold", 0.3), ("the flu", 0.4)], [("a", 0.1), ("b", 0.2), ("c", 0.3)])
    merged = shaping.merge_duplicates(given_rows, CLASSES[:2], probs=how)
    assert merged.answers == [["Flu", "cold"], ["a", "b", "c"]]
    assert merged.probs[0] == pytest.approx(expected)
    assert merged.mask.tolist() == [[True, True, False], [True, True, True]]
    assert merged.has_prob.tolist() == merged.mask.tolist()
    assert merged.probs[1].tolist() == [0.1, 0.2, 0.3]
    assert given_rows.answers[0] == ["Flu", "cold", "the flu"]  # the input is left as it was
    assert given_rows.probs[0].tolist() == [0.1, 0.3, 0.4]


def test_reject_keeps_an_earlier_reason() -> None:
    both = shaping.reject(forecast([("a", 0.1)], [("b", 0.1)]), np.array([True, False]), "first")
    again = shaping.reject(both, np.array([True, True]), "second")
    assert again.reason == ["first", "second"]
    assert again.wellformed.tolist() == [False, False]


def test_SR_05_every_list_on_the_grid_that_sums_to_one_passes() -> None:
    steps = range(1, 20)
    quadruples = [(a, b, c, 20 - a - b - c) for a in steps for b in steps for c in steps if a + b + c < 20]
    rows = forecast(*[[("x", n * 0.05) for n in row] for row in quadruples], width=4)
    assert (rows.probs.sum(axis=1) > 1.0).any()  # what a bare comparison with 1 would have refused
    assert not shaping.exceeds_one(rows).any()


def test_sum_rule_and_rescaling() -> None:
    rows = forecast([("a", 1.0), ("b", 2e-10)], [("a", 0.7), ("b", 0.32)], [("a", 0.0)])
    assert shaping.exceeds_one(rows).tolist() == [False, True, False]
    scaled = shaping.rescale_to_one(rows, shaping.exceeds_one(rows))
    assert scaled.probs[1].sum() == pytest.approx(1.0)
    assert scaled.probs[0].tolist() == rows.probs[0].tolist()


def test_diversity_terms() -> None:
    counts = np.array([0, 1, 2, 3, 5])
    assert shaping.min_k(counts, k=3, penalty=1.0).tolist() == [-1.0, -1.0, -1.0, 0.0, 0.0]
    assert shaping.soft_diversity(counts, k=3) == pytest.approx([-math.log(3)] * 2 + [math.log(2 / 3), 0.0, 0.0])


def test_prior_floor_is_the_percentile_and_never_above_zero() -> None:
    values = -np.arange(101.0)
    assert shaping.prior_floor(values, percentile=5.0) == pytest.approx(-95.0)
    assert shaping.prior_floor([0.0, 0.0]) == 0.0
    for bad in ([], [math.nan], [-math.inf]):
        with pytest.raises(InvalidArgumentError, match="prior_logprob"):
            shaping.prior_floor(bad)
    with pytest.raises(InvalidArgumentError, match="percentile"):
        shaping.prior_floor(values, percentile=101.0)


@given(
    parts=st.lists(st.tuples(finite, finite, st.floats(-5, 5), st.floats(0, 1)), min_size=1, max_size=4),
)
def test_weighted_range_contains_every_mixture(parts) -> None:
    ranges = [tuple(sorted((a, b))) for a, b, _, _ in parts]
    weights = [weight for _, _, weight, _ in parts]
    low, high = shaping.weighted_range(ranges, weights)
    points = [a + (b - a) * t for (a, b), (*_, t) in zip(ranges, parts, strict=True)]
    value = sum(weight * point for weight, point in zip(weights, points, strict=True))
    assert low - 1e-6 <= value <= high + 1e-6
