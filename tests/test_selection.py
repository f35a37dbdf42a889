"""Choosing answers: identities, ties, and corrections that must help."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardkit import metrics, selection
from rewardkit.errors import InvalidArgumentError, UnknownNameError

SAMPLES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), min_size=1, max_size=9)


@given(SAMPLES, st.integers(1, 20))
def test_equal_confidences_make_the_weighted_vote_a_majority(samples: list, level: int) -> None:
    classes = [one for one, _ in samples]
    assert selection.weighted_vote([level / 20] * len(classes), classes) == selection.majority_vote(classes)
    assert selection.weighted_vote([0.0] * len(classes), classes) == selection.majority_vote(classes)


@given(SAMPLES)
def test_every_rule_chooses_what_it_says(samples: list) -> None:
    classes, q = [one for one, _ in samples], [level / 20 for _, level in samples]
    assert q[selection.max_confidence(q, classes)] == max(q)
    winner = classes[selection.majority_vote(classes)]
    assert classes.count(winner) == max(map(classes.count, classes))
    total = {one: math.fsum(v for v, other in zip(q, classes, strict=True) if other == one) for one in classes}
    chosen = selection.weighted_vote(q, classes)
    assert total[classes[chosen]] == pytest.approx(max(total.values()))
    assert q[chosen] == max(v for v, one in zip(q, classes, strict=True) if one == classes[chosen])
    if len(samples) == 1:
        assert {selection.choose(name, q, classes) for name in selection.METHODS} == {0}


def test_ties() -> None:
    assert selection.max_confidence([0.5, 0.9, 0.9, 0.9], [0, 1, 2, 2]) == 2  # the larger class among the tied
    assert selection.max_confidence([0.9, 0.9], [0, 1]) == 0
    assert selection.majority_vote([3, 1, 1, 3]) == 0
    assert selection.weighted_vote([0.5, 0.25, 0.25], [0, 1, 1]) == 1  # equal weight: the larger class

    assert selection.weighted_vote([0.1, 0.2, 0.3], [0, 0, 1]) == 1  # 0.1 + 0.2 is 0.3, whatever floats say


def test_voting_beats_single_samples_where_it_should() -> None:
    rng = np.random.default_rng(0)
    p = np.array([0.4, 0.3, 0.2, 0.1])
    hits = dict.fromkeys(("first", *selection.METHODS), 0)
    for _ in range(800):
        truth = rng.choice(4, p=p)
        votes = rng.choice(4, size=8, p=0.5 * np.eye(4)[truth] + 0.5 * p)
        q = np.clip(np.where(votes == truth, 0.6, 0.3) + rng.normal(0, 0.2, 8), 0, 1)
        hits["first"] += votes[0] == truth
        for name in selection.METHODS:
            hits[name] += votes[selection.choose(name, q, votes)] == truth
    assert hits["first"] < hits["majority"] < hits["weighted"]


@given(st.integers(0, 999))
def test_the_ensemble_is_at_least_as_good_as_its_average_member(seed: int) -> None:
    rng = np.random.default_rng(seed)
    q, y = rng.random((30, 5)), rng.random(30) < 0.5
    mean = np.mean([float(metrics.brier_loss(confidence=q[:, k], correct=y)) for k in range(5)])
    assert metrics.brier_loss(confidence=selection.analysis_ensemble(q), correct=y) <= mean + 1e-12


def test_temperature_recovers_what_was_applied() -> None:
    rng = np.random.default_rng(1)
    p = rng.uniform(0.05, 0.95, 20_000)
    y = rng.random(20_000) < p
    for temperature in (0.5, 1.0, 3.0):
        stated = selection.TemperatureScaling(1 / temperature)(p)  # sharpened by it
        fitted = selection.TemperatureScaling.fit(confidence=stated, correct=y)
        assert fitted.temperature == pytest.approx(temperature, rel=0.05)
        np.testing.assert_allclose(selection.TemperatureScaling(temperature)(stated), p, atol=1e-4)
        assert metrics.auroc(confidence=fitted(stated), correct=y) == pytest.approx(
            float(metrics.auroc(confidence=stated, correct=y)), abs=1e-9
        )
    assert np.isfinite(selection.TemperatureScaling(2.0)([0.0, 1.0])).all()


def test_isotonic_calibrates() -> None:
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(2)
    p = rng.random(8000)
    y, stated = rng.random(8000) < p, p**3
    fitted = selection.isotonic(confidence=stated[:4000], correct=y[:4000])
    before = metrics.ece(confidence=stated[4000:], correct=y[4000:])
    after = metrics.ece(confidence=fitted(stated[4000:]), correct=y[4000:])
    assert after < before / 4


def test_conformal_sets_cover() -> None:
    rng = np.random.default_rng(3)

    def draw(n: int) -> tuple:
        w = rng.dirichlet([1, 1, 1, 1], n)
        truth = (rng.random(n)[:, None] > np.cumsum(w, axis=1)).sum(axis=1)
        return w[:, :3], truth[:, None] == np.arange(3)

    covered = []
    for _ in range(200):
        found = selection.threshold_for_coverage(*draw(100), alpha=0.4)
        assert found.attainable
        w, right = draw(200)
        covered.append(((w >= found.threshold) & right).any(axis=1).mean())
    assert 0.6 - 0.02 < np.mean(covered) < 0.66
    assert not selection.threshold_for_coverage(*draw(100), alpha=0.05).attainable  # a quarter is never listed
    assert not selection.threshold_for_coverage(*draw(3), alpha=0.1).attainable


def test_bad_calls() -> None:
    with pytest.raises(InvalidArgumentError, match="at least one sample"):
        selection.majority_vote([])
    with pytest.raises(InvalidArgumentError, match=r"numbers in \[0, 1\]"):
        selection.weighted_vote([1.5], [0])
    with pytest.raises(InvalidArgumentError, match="one per sample"):
        selection.max_confidence([0.5], [0, 1])
    with pytest.raises(UnknownNameError, match="Did you mean 'majority'"):
        selection.choose("majorty", [0.5], [0])
    with pytest.raises(InvalidArgumentError, match="alpha"):
        selection.threshold_for_coverage([[0.5]], [[True]], 1.5)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: selection.weighted_vote([0.5, None], [0, 1]), "confidence"),
        (lambda: selection.weighted_vote(["0.5"], [0]), "confidence"),
        (lambda: selection.weighted_vote([math.nan], [0]), "confidence"),
        (lambda: selection.weighted_vote(0.5, [0]), "confidence"),
        (lambda: selection.max_confidence([True], [0]), "confidence"),
        (lambda: selection.majority_vote("ab"), "classes"),
        (lambda: selection.majority_vote([0.5, 0.7]), "classes"),
        (lambda: selection.majority_vote([[0], [1]]), "classes"),
        (lambda: selection.majority_vote(np.array(3)), "classes"),
        (lambda: selection.analysis_ensemble([["a"]]), "confidence"),
        (lambda: selection.analysis_ensemble([["0.5"]]), "confidence"),
        (lambda: selection.analysis_ensemble([[0.5], [0.5, 0.6]]), "confidence"),
        (lambda: selection.analysis_ensemble(0.5), "confidence"),
        (lambda: selection.TemperatureScaling(0.0), "temperature"),
        (lambda: selection.TemperatureScaling(math.inf), "temperature"),
        (lambda: selection.TemperatureScaling("1"), "temperature"),
        (lambda: selection.TemperatureScaling(1.0)([2.0]), "confidence"),
        (lambda: selection.TemperatureScaling(1.0)([math.nan]), "confidence"),
        (lambda: selection.threshold_for_coverage([[0.5]], [["0"]], 0.1), "correct"),
        (lambda: selection.threshold_for_coverage([["a"]], [[1]], 0.1), "confidence"),
        (lambda: selection.threshold_for_coverage([[0.5]], [[1]], "a"), "alpha"),
    ],
)
def test_what_is_no_number_is_named(call, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        call()


def test_votes_take_arrays_too() -> None:
    q, ids = np.array([0.1, 0.7, 0.2], np.float32), np.array([0, 1, 0], np.int32)
    assert selection.weighted_vote(q, ids) == 1
    assert selection.majority_vote(ids) == 0
    assert selection.weighted_vote([np.float32(0.5)], [np.int64(0)]) == 0
