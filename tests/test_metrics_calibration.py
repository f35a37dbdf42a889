"""Calibration metrics against an exact rational oracle, scikit-learn, simulations with their null, and known bugs."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardkit import metrics
from rewardkit.errors import InvalidArgumentError

BINS = (5, 10, 15, 20)
HUNDREDTHS = np.arange(101)


def oracle_bin(k: int, bins: int, edge: str) -> int:
    """The bin of k/100, in whole numbers."""
    if edge == "left":
        return min(k * bins // 100, bins - 1)
    return max(-(-k * bins // 100) - 1, 0)


def oracle_ece(ks: np.ndarray, correct: np.ndarray, bins: int, edge: str) -> Fraction:
    gaps = [Fraction(0)] * bins
    for k, y in zip(ks.tolist(), correct.tolist(), strict=True):
        gaps[oracle_bin(k, bins, edge)] += Fraction(k, 100) - y
    return sum(map(abs, gaps), Fraction(0)) / len(ks)


@pytest.mark.parametrize("edge", ["left", "right"])
@pytest.mark.parametrize("bins", BINS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_hundredth_lies_in_its_bin(bins: int, edge: str, dtype: type) -> None:
    confidence = (HUNDREDTHS / 100).astype(dtype)
    expected = np.zeros(bins, np.int64)
    for k in HUNDREDTHS:
        expected[oracle_bin(int(k), bins, edge)] += 1
    found = metrics.calibration_histogram(confidence, np.zeros(101, bool), bins, edge=edge)
    np.testing.assert_array_equal(found.count[0], expected)
    each = metrics.calibration_histogram(confidence, np.zeros(101, bool), bins, HUNDREDTHS, edge=edge)
    np.testing.assert_array_equal(each.count.argmax(axis=1), [oracle_bin(int(k), bins, edge) for k in HUNDREDTHS])


@given(
    ks=st.lists(st.integers(0, 100), min_size=1, max_size=200),
    seed=st.integers(0, 999),
    bins=st.sampled_from(BINS),
    edge=st.sampled_from(["left", "right"]),
)
def test_float32_float64_and_groups_equal_the_rational_oracle(ks: list[int], seed: int, bins: int, edge: str) -> None:
    k = np.array(ks)
    correct = np.random.default_rng(seed).random(len(k)) < 0.5
    exact = float(oracle_ece(k, correct, bins, edge))
    double = metrics.ece(confidence=k / 100, correct=correct, bins=bins, edge=edge)
    single = metrics.ece(confidence=(k / 100).astype(np.float32), correct=correct, bins=bins, edge=edge)
    assert float(double) == pytest.approx(exact, abs=1e-14)
    assert float(single) == pytest.approx(exact, abs=3e-8)  # what float32 itself lost
    offsets = np.array([0, len(k), len(k)])
    by_segment = metrics.grouped_calibration(confidence=k / 100, correct=correct, offsets=offsets, bins=bins, edge=edge)
    assert by_segment[0][0] == pytest.approx(exact, abs=1e-14)
    assert math.isnan(by_segment[0][1])
    twice = metrics.calibration_histogram(np.tile(k / 100, 2), np.tile(correct, 2), bins, np.repeat([7, 3], len(k)))
    if edge == "left":
        np.testing.assert_allclose(twice.ece(), [exact, exact], atol=1e-14)


@pytest.mark.parametrize("name", ["0.1 + 0.2", "1 - 0.7", "3 * 0.1", "30 / 100", "0.9 / 3"])
def test_a_tenth_computed_in_another_way_is_the_same_tenth(name: str) -> None:
    q = eval(name, {"__builtins__": {}})
    assert metrics.calibration_histogram([q], [True]).count[0, 3] == 1


def test_sums_do_not_depend_on_order() -> None:
    rng = np.random.default_rng(1)
    q, y = rng.random(50_000), rng.random(50_000) < 0.5
    order = rng.permutation(len(q))
    one = metrics.calibration_histogram(q, y, 15)
    other = metrics.calibration_histogram(q[order], y[order], 15)
    for name in ("count", "correct", "confidence_sum", "squared_error_sum"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("isa", ["portable", "avx2"])
def test_every_instruction_set_gives_the_same_bits(isa: str) -> None:
    code = (
        "import numpy as np; from rewardkit import metrics as m; rng = np.random.default_rng(5)\n"
        "for dtype in ('f', 'd'):\n"
        "  q = np.where(rng.random(5003) < .3, rng.integers(0, 101, 5003) / 100, rng.random(5003)).astype(dtype)\n"
        "  y = rng.random(5003) < q\n"
        "  for bins, edge in ((10, 'left'), (15, 'rlcr'), (20, 'right'), (40, 'left'), (100, 'right')):\n"
        "    h = m.calibration_histogram(q, y, bins, edge=edge)\n"
        "    s = m.grouped_calibration(confidence=q, correct=y, offsets=np.r_[0:5003:17, 5003], bins=bins, edge=edge)\n"
        "    print(h.count, h.confidence_sum, h.squared_error_sum, s[0].tobytes().hex(), s[1].tobytes().hex())\n"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "REWARDKIT_ISA": name},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for name in (isa, "avx512")
    ]
    assert runs[0] == runs[1]


def test_brier_and_auroc_equal_scikit_learn() -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(2)
    for n in (2, 17, 400, 20_000):
        q = np.where(rng.random(n) < 0.5, rng.integers(0, 21, n) / 20, rng.random(n))
        y = rng.random(n) < q
        y[:2] = True, False
        for values in (q, q.astype(np.float32)):
            brier = metrics.brier_loss(confidence=values, correct=y)
            assert brier == pytest.approx(sklearn.brier_score_loss(y, values.astype(float)), abs=1e-14)
            auroc = metrics.auroc(confidence=values, correct=y)
            assert auroc == pytest.approx(sklearn.roc_auc_score(y, values), abs=1e-13)


@given(seed=st.integers(0, 9999), n=st.integers(1, 400))
def test_laws(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    q = np.where(rng.random(n) < 0.5, rng.integers(0, 11, n) / 10, rng.random(n))
    y = rng.random(n) < 0.5
    values = {
        name: float(getattr(metrics, name)(confidence=q, correct=y))
        for name in ("ece", "brier_loss", "ece_signed", "mce", "smece")
    }
    assert values["ece"] <= math.sqrt(values["brier_loss"]) + 1e-12
    assert abs(values["ece_signed"]) <= values["ece"] + 1e-12 <= values["mce"] + 2e-12
    assert values["ece"] <= float(metrics.ece(confidence=q, correct=y, norm=2)) + 1e-12
    assert abs(values["ece_signed"]) <= values["smece"] + 1e-4
    parts = metrics.murphy(confidence=q, correct=y)
    assert parts.brier == pytest.approx(parts.reliability - parts.resolution + parts.uncertainty, abs=1e-12)
    assert parts.brier == pytest.approx(values["brier_loss"], abs=1e-12)
    shown = metrics.reliability(confidence=q, correct=y)
    assert shown.count.sum() == n
    filled = shown.count > 0
    assert (shown.low[filled] <= shown.accuracy[filled] + 1e-12).all()
    assert (shown.high[filled] >= shown.accuracy[filled] - 1e-12).all()


def test_mass_bins_are_balanced_and_keep_ties_together() -> None:
    rng = np.random.default_rng(3)
    q = rng.random(1000)
    assert metrics.calibration_histogram(q, q > 0.5, 10, scheme="mass").count[0].tolist() == [100] * 10
    tied = np.repeat([0.1, 0.2, 0.9], [10, 500, 490])
    found = metrics.calibration_histogram(tied, tied > 0.5, 4, scheme="mass")
    assert found.count[0].tolist() in ([510, 490], [10, 500, 490])
    single = metrics.calibration_histogram(tied.astype(np.float32), tied > 0.5, 4, scheme="mass")
    np.testing.assert_array_equal(single.count, found.count)


def test_rlcr_edges_are_those_of_linspace() -> None:
    q = HUNDREDTHS / 100
    found = metrics.calibration_histogram(q, q > 0.5, 10, edge="rlcr").count[0]
    expected = np.minimum(np.digitize(q, np.linspace(0, 1, 11)) - 1, 9)
    np.testing.assert_array_equal(found, np.bincount(expected, minlength=10))
    dropped = [
        k
        for k in range(0, 101, 10)
        if metrics.calibration_histogram([k / 100], [1], 10, edge="rlcr").count[0, k // 10 if k < 100 else 9] == 0
    ]
    assert dropped == [30, 60, 70]


def test_null_is_the_level_of_calibrated_forecasters() -> None:
    rng = np.random.default_rng(4)
    shapes = {"two": rng.choice([0.6, 0.9], 500), "narrow": rng.uniform(0.6, 0.9, 500), "uniform": rng.random(500)}
    for name, expected in (("two", 0.024), ("narrow", 0.030), ("uniform", 0.045)):
        q = shapes[name]
        null = metrics.ece_null(q)
        assert null == pytest.approx(expected, abs=0.008)
        observed = [float(metrics.ece(confidence=q, correct=rng.random(500) < q)) for _ in range(300)]
        assert np.mean(observed) == pytest.approx(float(null), abs=5 * null.sd / math.sqrt(300))
        assert np.mean(np.array(observed) > null.quantile95) < 0.12
    calibrated = [
        float(metrics.ece_debiased(confidence=shapes["uniform"], correct=rng.random(500) < shapes["uniform"]))
        for _ in range(300)
    ]
    assert abs(np.mean(calibrated)) < 5 * np.std(calibrated) / math.sqrt(300)
    far = metrics.ece(confidence=shapes["uniform"] ** 3, correct=rng.random(500) < shapes["uniform"])
    assert far.null is not None
    assert far.null.p_value < 0.01
    big = rng.random(200_000)
    limit, exact = metrics.ece_null(big, draws=400), metrics.ece_null(big[:40_000], draws=400)
    assert limit * math.sqrt(5) == pytest.approx(float(exact), rel=0.15)  # drawn from the normal limit, and not


def test_a_callers_seed_is_not_ours() -> None:
    rng = np.random.default_rng(0)
    q = rng.random(300)  # what default_rng(0) gives first must not be what the null redraws outcomes from
    assert metrics.smece(confidence=q, correct=q > 0.5, seed=0).null == pytest.approx(0.05, abs=0.04)


def test_smece_of_constant_gaps() -> None:
    for q, right in ((0.3, 70), (0.95, 80), (0.5, 50)):
        y = np.arange(100) < right
        assert metrics.smece(confidence=np.full(100, q), correct=y) == pytest.approx(abs(q - right / 100), abs=2e-3)


def test_smece_equals_direct_integration() -> None:
    rng = np.random.default_rng(6)
    t = np.linspace(0, 1, 4001)
    for q in (rng.random(40), np.round(rng.random(300), 1)):  # the second has masses exactly at 0 and 1
        y = rng.random(len(q)) < q**0.5

        def smoothed(sigma: float, q: np.ndarray = q, y: np.ndarray = y) -> float:
            images = [2 * k + sign * q[:, None] for k in range(-2, 3) for sign in (1, -1)]
            kernel = sum(np.exp(-0.5 * ((t - image) / sigma) ** 2) for image in images) / (
                sigma * math.sqrt(2 * math.pi)
            )
            density = np.abs(((y - q)[:, None] * kernel).mean(axis=0))
            return float(((density[1:] + density[:-1]) / 2).sum() * (t[1] - t[0]))

        found = float(metrics.smece(confidence=q, correct=y))
        assert smoothed(found) == pytest.approx(found, abs=1e-4)


def test_invalid_is_counted_and_nan_refused() -> None:
    """SR-10: one confidence above 1 must not change what the others mean, and a NaN must not vanish."""
    found = metrics.ece(confidence=[1.2, 0.9, -0.5, math.inf], correct=[1, 1, 0, 1])
    assert found == pytest.approx(0.1)
    assert (found.n, found.invalid) == (1, 3)
    assert metrics.brier_loss(confidence=[1.2, 0.9], correct=[1, 1]) == pytest.approx(0.01)
    for name in ("ece", "brier_loss", "mce", "auroc", "smece", "murphy", "reliability", "ece_signed", "ece_debiased"):
        with pytest.raises(InvalidArgumentError, match=r"confidence.*NaN at \[1\]"):
            getattr(metrics, name)(confidence=[0.5, math.nan, 0.5], correct=[1, 0, 1])
    with pytest.raises(InvalidArgumentError, match="NaN"):
        metrics.ece_null([0.5, math.nan])


def test_BR_032_confidence_one_lies_in_the_last_bin() -> None:
    assert metrics.ece(confidence=[0.95, 1.0], correct=[1, 0]) == pytest.approx(0.475)
    assert metrics.calibration_histogram([0.0, 1.0], [0, 1]).count[0].tolist() == [1, *[0] * 8, 1]


def test_BR_043_confidence_zero_lies_in_the_first_bin() -> None:
    for edge in ("left", "right", "rlcr"):
        found = metrics.calibration_histogram([1, 1, 1, 1, 0], [1, 1, 1, 1, 0], edge=edge).count[0]
        assert (found[0], found[-1]) == (1, 4)


@pytest.mark.parametrize("correct", [[], [True] * 3, [False] * 3])
def test_BR_034_auroc_of_one_class_is_undefined_and_says_so(correct: list[bool]) -> None:
    found = metrics.auroc(confidence=[0.1, 0.5, 0.9][: len(correct)], correct=correct)
    assert math.isnan(found)
    assert found.undefined
    assert found.to_dict()["value"] is None


def test_BR_067_brier_of_a_single_class() -> None:
    assert metrics.brier_loss(confidence=[1, 1, 1], correct=[1, 1, 1]) == 0.0
    assert metrics.brier_loss(confidence=[1.0, 1.0], correct=[0, 0]) == 1.0


def test_BR_096_mean_confidence_not_the_middle_of_the_bin() -> None:
    assert metrics.ece(confidence=[0.99] * 50, correct=[1] * 50) == pytest.approx(0.01)
    assert metrics.reliability(confidence=[0.99] * 50, correct=[1] * 50).mean_confidence[9] == pytest.approx(0.99)


def test_BR_103_the_result_carries_its_settings() -> None:
    found = metrics.ece(confidence=[0.5, 2.0], correct=[1, 1], bins=15, edge="right", norm=2)
    for part in ("bins=15", "edge='right'", "norm=2", "n=1", "invalid=1", "scheme='width'"):
        assert part in repr(found)
    stored = found.to_dict()
    assert stored["bins"] == 15
    assert stored["null"]["draws"] == 1000
    again = pickle.loads(pickle.dumps(found))
    assert (repr(again), float(again), again.null) == (repr(found), float(found), found.null)


def test_settings_are_never_lost() -> None:
    """However the bins come out: one by mass where all confidences are equal, one bin, given edges, no valid confidence."""
    q, y = [0.9] * 10, [1] * 10
    found = metrics.ece(confidence=q, correct=y, bins=10, scheme="mass", norm=2)
    assert found.settings == {"bins": 10, "scheme": "mass", "edge": "left", "norm": 2}
    stored = metrics.ece(confidence=[*q, 2.0], correct=[*y, 1], bins=1, norm=2, edge="right").to_dict()
    assert {key: stored[key] for key in ("bins", "scheme", "edge", "norm", "n", "invalid")} == {
        "bins": 1,
        "scheme": "width",
        "edge": "right",
        "norm": 2,
        "n": 10,
        "invalid": 1,
    }
    assert stored["null"]["bins"] == 1
    null = metrics.ece_null(q, bins=4, edge="right")
    assert null.settings == {"bins": 4, "scheme": "width", "edge": "right", "norm": 1}
    assert (null.n, pickle.loads(pickle.dumps(null)).settings) == (10, null.settings)
    for name in ("mce", "ece_debiased"):
        assert getattr(metrics, name)(confidence=q, correct=y, bins=1).settings["bins"] == 1
    assert metrics.reliability(confidence=q, correct=y, bins=1).ece.settings["bins"] == 1
    assert metrics.smece(confidence=[], correct=[]).settings == metrics.smece(confidence=q, correct=y).settings
    assert metrics.murphy(confidence=[0.5, 2.0], correct=[1, 1]).invalid == 1
    given = metrics.ece(confidence=q, correct=y, bins=[0.5])
    assert given.settings == {"bins": [0.5], "scheme": "given", "edge": "left", "norm": 1}


def test_given_edges_and_a_rule_that_would_move_them_contradict_each_other() -> None:
    """linspace(0, 1, 11)[3] is above .3, so "rlcr" puts .3 into another bin than those edges in float32 do."""
    inner = np.linspace(0, 1, 11)[1:-1].tolist()
    for keyword, value in (("edge", "rlcr"), ("scheme", "mass")):
        with pytest.raises(InvalidArgumentError, match=f"{keyword}.*inner edges"):
            metrics.calibration_histogram([0.3], [1], inner, **{keyword: value})
        with pytest.raises(InvalidArgumentError, match=keyword):
            metrics.ece_null([0.3], bins=inner, **{keyword: value})


def test_wilson_interval_refuses_what_is_no_proportion() -> None:
    low, high = metrics.wilson_interval([0, 3], [3, 3])
    assert low[0] == 0
    assert high[1] == 1
    for successes, trials, level, text in ((1, 3, 2, "level"), (4, 3, 0.9, "0 to trials"), ("a", 3, 0.9, "successes")):
        with pytest.raises(InvalidArgumentError, match=text):
            metrics.wilson_interval(successes, trials, level)
    with pytest.raises(InvalidArgumentError, match="shape"):
        metrics.wilson_interval([1, 2], [3])


def test_empty_input_is_undefined_not_zero() -> None:
    for name in ("ece", "brier_loss", "mce", "smece", "ece_signed", "ece_debiased"):
        found = getattr(metrics, name)(confidence=[], correct=[])
        assert math.isnan(found)
        assert found.undefined


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"confidence": [0.5], "correct": [1, 0]}, "correct: expected 1 values"),
        ({"confidence": [[0.5]], "correct": [1]}, "one-dimensional"),
        ({"confidence": [0.5], "correct": [2]}, "0 and 1"),
        ({"confidence": [0.5], "correct": [0.5]}, "0 and 1"),
        ({"confidence": ["a"], "correct": [1]}, "numbers"),
        ({"confidence": "0.5", "correct": [1]}, "numbers"),
        ({"confidence": [0.5], "correct": [1], "bins": 0}, "bins"),
        ({"confidence": [0.5], "correct": [1], "bins": [0.5, 0.2]}, "bins"),
        ({"confidence": [0.5], "correct": [1], "edge": "middle"}, "edge"),
        ({"confidence": [0.5], "correct": [1], "scheme": "mass", "edge": "rlcr"}, "edge"),
        ({"confidence": [0.5], "correct": [1], "norm": 3}, "norm"),
        ({"confidence": [0.5], "correct": [1], "bins": "ab"}, "bins"),
        ({"confidence": [0.5], "correct": [math.nan]}, "correct"),
        ({"confidence": ["0.5"], "correct": [1]}, "numbers"),
        ({"confidence": [0.5, None], "correct": [1, 1]}, "numbers"),
    ],
)
def test_bad_calls_name_the_argument(arguments: dict, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        metrics.ece(**arguments)


def test_risk_coverage_keeps_ties_together() -> None:
    curve = metrics.risk_coverage(confidence=[0.9, 0.9, 0.5, 0.1], correct=[1, 0, 1, 0])
    assert curve.threshold.tolist() == [0.9, 0.5, 0.1]
    assert curve.coverage.tolist() == [0.5, 0.75, 1.0]
    np.testing.assert_allclose(curve.risk, [0.5, 1 / 3, 0.5])
    assert curve.area == pytest.approx((0.5 * 2 + 1 / 3 + 0.5) / 4)
