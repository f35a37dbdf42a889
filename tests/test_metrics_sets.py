"""Metrics of answer sets and of distributions, against hand values and calibrated simulations."""

from __future__ import annotations

import math
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardkit import matching, metrics
from rewardkit.errors import InvalidArgumentError

RIGHT = np.array([[1, 0, 0], [0, 0, 0], [0, 1, 1]], bool)
STATED = np.array([[0.5, 0.3, 0.1], [0.2, 0.2, 0.2], [0.4, 0.4, 0.3]])


def test_hand_values() -> None:
    assert metrics.set_accuracy(correct=RIGHT) == pytest.approx(2 / 3)
    assert metrics.precision(correct=RIGHT) == pytest.approx(1 / 3)
    assert metrics.precision(correct=RIGHT, slots=6) == pytest.approx(1 / 6)
    assert metrics.coverage(found=RIGHT) == 1.0
    assert metrics.recall(found=RIGHT, n_golds=[1, 2, 4]) == pytest.approx((1 + 0 + 0.5) / 3)
    assert metrics.pass_at_1(correct=RIGHT, select="first") == pytest.approx(1 / 3)
    assert metrics.pass_at_1(correct=RIGHT, select="max_conf", confidence=STATED) == pytest.approx(1 / 3)  # tie: first
    assert metrics.pass_at_1(correct=RIGHT, select="random") == pytest.approx(1 / 3)
    only_last = np.array([[0, 0, 1]] * 3, bool)
    assert metrics.pass_at_1(correct=RIGHT, select="random", mask=only_last) == pytest.approx(1 / 3)
    many, any_ = metrics.correct_at(correct=RIGHT, confidence=STATED[:, ::-1])
    np.testing.assert_allclose(many, [1 / 3, 2 / 3, 1])
    np.testing.assert_allclose(any_, [1 / 3, 1 / 3, 2 / 3])
    assert metrics.average_tokens(tokens=[10, 20, 30], prompt=["a", "a", "b"]) == 30
    mass = metrics.confidence_mass(prompt=["p"] * 4, answer_class=["x", "x", "y", "z"], confidence=[0.6, 0.8, 0.5, 0.1])
    assert mass == pytest.approx(0.7 + 0.5 + 0.1)
    assert mass.settings["share_above_1"] == 1.0


def test_set_brier_reduces_to_brier_for_one_slot() -> None:
    q, y = np.array([0.3, 0.9, 0.5]), np.array([0, 1, 1])
    single = metrics.brier_loss(confidence=q, correct=y)
    for value in (
        metrics.set_brier(confidence=q[:, None], correct=y[:, None]),
        metrics.set_brier(confidence=q[:, None], correct=y[:, None], reduce="sum"),
        metrics.pooled_brier(confidence=q[:, None], correct=y[:, None]),
    ):
        assert value == pytest.approx(float(single))
    assert metrics.set_brier(confidence=STATED, correct=RIGHT, reduce="sum") == pytest.approx(
        3 * metrics.set_brier(confidence=STATED, correct=RIGHT)
    )


@given(seed=st.integers(0, 999), exclusive=st.booleans())
def test_set_ece_of_one_slot_is_the_ece(seed: int, exclusive: bool) -> None:
    rng = np.random.default_rng(seed)
    q, y = rng.random(50), rng.random(50) < 0.5
    found = metrics.set_ece(confidence=q[:, None], correct=y[:, None], exclusive=exclusive)
    assert found == pytest.approx(float(metrics.ece(confidence=q, correct=y)), abs=1e-12)


def test_set_ece_wants_the_definition_that_fits_the_task() -> None:
    rng = np.random.default_rng(0)
    n = 20_000
    # One gold: at most one slot right, with chances that add up to at most one.
    q = rng.dirichlet([1, 1, 1, 1], n)[:, :3]
    winner = (rng.random(n)[:, None] > np.cumsum(q, axis=1)).sum(axis=1)
    single = winner[:, None] == np.arange(3)
    # Several golds: independent slots.
    chance = rng.uniform(0.1, 0.6, (n, 3))
    multi = rng.random((n, 3)) < chance
    for confidence, correct, exclusive in ((q, single, True), (chance, multi, False)):
        fitting = metrics.set_ece(confidence=confidence, correct=correct, exclusive=exclusive)
        other = metrics.set_ece(confidence=confidence, correct=correct, exclusive=not exclusive)
        assert fitting.null is not None
        assert fitting < fitting.null.mean + 5 * fitting.null.sd
        assert other > 0.05


@given(n=st.integers(1, 40), data=st.data())
def test_pass_at_k_is_the_exact_ratio(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    exact = 1 - Fraction(comb(n - c, k), comb(n, k))
    assert metrics.pass_at_k(n, c, k) == pytest.approx(float(exact), abs=1e-12)


def test_pass_at_k_is_unbiased_where_the_plug_in_is_not() -> None:
    weights = np.array([comb(10, c) * 0.3**c * 0.7 ** (10 - c) for c in range(11)])
    estimates = metrics.pass_at_k(np.full(11, 10), np.arange(11), 3)
    assert weights @ estimates == pytest.approx(1 - 0.7**3)
    assert weights @ (1 - (1 - np.arange(11) / 10) ** 3) == pytest.approx(0.614, abs=1e-3)
    assert metrics.pass_at_k(100_000, 50_000, 1000) == 1.0
    with pytest.raises(InvalidArgumentError, match="k: expected at most"):
        metrics.pass_at_k([10, 4], [1, 1], 5)
    with pytest.raises(InvalidArgumentError, match="c: expected"):
        metrics.pass_at_k(10, 11, 1)


def test_uniqueness_of_text_and_code() -> None:
    found = metrics.uniqueness(np.array([[0, 0, 2], [0, 1, -1]]))
    assert found == pytest.approx((2 / 3 + 2 / 3) / 2)
    assert found.settings["mean_distinct"] == 2.0
    programs = [["x = 1", "x=1  # one", "y = 1"]]
    classes = matching.equivalence_classes(programs, matcher="code_ast")
    assert metrics.uniqueness(classes) == pytest.approx(2 / 3)
    assert metrics.uniqueness(classes, slots=4) == pytest.approx(2 / 4)


def test_hypotheses_at_calibration_and_away_from_it() -> None:
    rng = np.random.default_rng(1)
    n = 20_000
    p = rng.dirichlet([1.0, 0.6, 0.4, 0.6], n)
    truth = (rng.random(n)[:, None] > np.cumsum(p, axis=1)).sum(axis=1)
    correct = truth[:, None] == np.arange(3)
    gaps = {}
    for temperature in (0.5, 1.0, 2.0):
        w = p ** (1 / temperature)
        w /= w.sum(axis=1, keepdims=True)
        probs, other = w[:, :3], w[:, 3]
        found = [
            metrics.top1_ece(probs=probs, correct=correct),
            metrics.other_ece(other=other, correct=correct),
            metrics.event_ece(probs=probs, correct=correct, other=other),
        ]
        for value in found:
            assert value.null is not None
            if temperature == 1.0:
                assert value < value.null.mean + 5 * value.null.sd
            else:
                assert value > 0.03
        gaps[temperature] = metrics.p_gold_gap(probs=probs, correct=correct, other=other)
        sharp = metrics.p_gold_ece(probs=probs, correct=correct)
        assert sharp == pytest.approx(1 - metrics.p_gold(probs=probs, correct=correct).mean(), abs=1e-9)
        assert sharp.settings["calibration_error"] is False
        assert sharp.null is None
    assert gaps[0.5] < -0.02
    assert abs(gaps[1.0]) < 0.01
    assert gaps[2.0] > 0.02


def test_p_gold_with_backoff() -> None:
    probs, correct = np.array([[0.3, 0.2], [0.3, 0.2]]), np.array([[1, 1], [0, 0]], bool)
    chance = metrics.p_gold(probs=probs, correct=correct, other=[0.5, 0.5], prior_logprob=[-1.0, math.log(0.1)])
    np.testing.assert_allclose(chance, [0.5, 0.05])
    assert metrics.nll(prob=chance, floor=0.01) == pytest.approx(-(math.log(0.5) + math.log(0.05)) / 2)
    assert metrics.nll(prob=[0.0]) == pytest.approx(-math.log(0.01))
    with pytest.raises(InvalidArgumentError, match="prior_logprob"):
        metrics.p_gold(probs=probs, correct=correct, other=[0.5, 0.5], prior_logprob=[0.5, 0.5])


def test_bootstrap_covers_and_is_seeded() -> None:
    rng = np.random.default_rng(2)
    hits = 0
    for run in range(60):
        y = rng.random(200) < 0.7
        found = metrics.bootstrap("accuracy", correct=y, draws=300, seed=run)
        hits += found.low <= 0.7 <= found.high
    assert hits >= 48
    q, y, prompt = rng.random(400), rng.random(400) < 0.5, np.arange(400) // 4
    one = metrics.bootstrap("ece", confidence=q, correct=y, clusters=prompt, draws=200, seed=3)
    assert one == metrics.bootstrap(metrics.ece, confidence=q, correct=y, clusters=prompt, draws=200, seed=3)
    assert one != metrics.bootstrap("ece", confidence=q, correct=y, clusters=prompt, draws=200, seed=4)
    assert one.clusters == 100


@pytest.mark.parametrize("name", ["accuracy", "mean_confidence", "brier_loss", "ece", "ece_signed", "auroc"])
def test_fast_bootstrap_equals_the_plain_one(name: str) -> None:
    rng = np.random.default_rng(3)
    q, y, prompt = np.round(rng.random(120), 2), rng.random(120) < 0.5, rng.integers(0, 25, 120)
    plain = {
        "accuracy": lambda confidence, correct: correct.mean(),
        "mean_confidence": lambda confidence, correct: confidence.mean(),
    }.get(name) or (lambda confidence, correct: getattr(metrics, name)(confidence=confidence, correct=correct))
    fast = metrics.bootstrap(name, confidence=q, correct=y, clusters=prompt, draws=100)
    slow = metrics.bootstrap(plain, confidence=q, correct=y, clusters=prompt, draws=100)
    for field in ("value", "low", "high", "sd"):
        assert getattr(fast, field) == pytest.approx(getattr(slow, field), abs=1e-12)


def test_pairs_are_narrower_than_two_intervals_and_refuse_what_cannot_be_compared() -> None:
    rng = np.random.default_rng(4)
    hard = rng.random(300)
    a, b = hard < 0.55, hard < 0.5
    prompts = np.arange(300)
    first, second = {"correct": a, "clusters": prompts}, {"correct": b[::-1], "clusters": prompts[::-1]}
    paired = metrics.paired_bootstrap("accuracy", first, second)
    assert paired.value == pytest.approx(a.mean() - b.mean())
    alone = metrics.bootstrap("accuracy", correct=a)
    assert paired.high - paired.low < (alone.high - alone.low) / 2
    assert paired.low > 0
    assert paired.p_value < 0.01
    with pytest.raises(InvalidArgumentError, match="same prompts"):
        metrics.paired_bootstrap("accuracy", first, {"correct": b, "clusters": prompts + 1})
    with pytest.raises(InvalidArgumentError, match="set_construction"):
        metrics.paired_bootstrap(
            "accuracy",
            {**first, "set_construction": "single_gen"},
            {**second, "set_construction": "independent_samples"},
        )


NAN = math.nan


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("pass_at_1", {"correct": [[1, 0]], "confidence": [[NAN, 0.1]], "select": "max_conf"}, "confidence.*nan"),
        ("pass_at_1", {"correct": [[1, 0]], "confidence": [[math.inf, 0.1]], "select": "max_conf"}, "confidence"),
        ("pass_at_1", {"correct": [[1, 0]], "confidence": [["0.2", "0.1"]], "select": "max_conf"}, "confidence"),
        ("pass_at_1", {"correct": [[1, 0]], "select": "max_conf"}, "confidence"),
        ("correct_at", {"correct": [[1, 0]], "confidence": [[NAN, 0.1]]}, "confidence.*nan"),
        ("correct_at", {"correct": [[1, NAN]]}, "correct.*nan"),
        ("set_accuracy", {"correct": [[1, 2]]}, "correct"),
        ("set_accuracy", {"correct": [[1, NAN]]}, "correct.*nan"),
        ("set_accuracy", {"correct": [["1", "0"]]}, "correct"),
        ("set_accuracy", {"correct": [[1], [1, 0]]}, "correct"),
        ("set_accuracy", {"correct": [[1, 0]], "mask": [[1, NAN]]}, "mask.*nan"),
        ("set_accuracy", {"correct": [[1, 0]], "mask": [[1]]}, "mask.*shape"),
        ("coverage", {"found": [[1], [1, 0]]}, "found"),
        ("coverage", {"found": [[NAN]]}, "found"),
        ("recall", {"found": [[1, 1]], "n_golds": [1]}, "found.*row 0"),
        ("recall", {"found": [[1, 1]], "n_golds": [NAN]}, "n_golds"),
        ("recall", {"found": [[1, 1]], "n_golds": [2.5]}, "n_golds"),
        ("recall", {"found": [[1, 1]], "n_golds": ["2"]}, "n_golds"),
        ("precision", {"correct": [[0.5]]}, "correct"),
        ("set_brier", {"confidence": [["a"]], "correct": [[1]]}, "confidence"),
        ("set_brier", {"confidence": [["0.5"]], "correct": [[1]]}, "confidence"),
        ("set_brier", {"confidence": [[NAN]], "correct": [[1]]}, "confidence.*nan"),
        ("pooled_brier", {"confidence": [[NAN]], "correct": [[1]]}, "confidence.*nan"),
        ("pooled_ece", {"confidence": [[2.0]], "correct": [[1]]}, "confidence"),
        ("set_ece", {"confidence": [[NAN]], "correct": [[1]], "exclusive": True}, "confidence.*nan"),
        ("set_ece", {"confidence": [[0.5]], "correct": [[1]], "exclusive": "no"}, "exclusive"),
        ("set_confidence", {"confidence": 0.5, "exclusive": True}, "confidence"),
        ("set_confidence", {"confidence": [[0.5], [0.5, 0.1]], "exclusive": True}, "confidence"),
        ("uniqueness", {"classes": [[0], [0, 1]]}, "classes"),
        ("uniqueness", {"classes": [[0, -2]]}, "classes"),
        ("uniqueness", {"classes": [["a"]]}, "classes"),
        ("confidence_mass", {"prompt": [[1]], "answer_class": [1], "confidence": [0.5]}, "prompt"),
        ("confidence_mass", {"prompt": [1], "answer_class": [[1]], "confidence": [0.5]}, "answer_class"),
        ("confidence_mass", {"prompt": 1, "answer_class": [1], "confidence": [0.5]}, "prompt"),
        ("confidence_mass", {"prompt": [1], "answer_class": [1, 2], "confidence": [0.5]}, "answer_class"),
        ("confidence_mass", {"prompt": [1], "answer_class": [1], "confidence": [NAN]}, "confidence"),
        ("average_tokens", {"tokens": [math.inf]}, "tokens"),
        ("average_tokens", {"tokens": [1, 2], "prompt": [None, "a"]}, "prompt"),
        ("pass_at_k", {"n": [3, 3], "c": [1, 1, 1], "k": 1}, "c: .*shape of n"),
        ("pass_at_k", {"n": NAN, "c": 1, "k": 1}, "n: .*whole"),
        ("pass_at_k", {"n": 3, "c": math.inf, "k": 1}, "c: .*whole"),
        ("pass_at_k", {"n": 3, "c": None, "k": 1}, "c: .*whole"),
        ("pass_at_k", {"n": "3", "c": 1, "k": 1}, "n: .*whole"),
        ("top1_ece", {"probs": 0.3, "correct": [[1]]}, "probs"),
        ("top1_ece", {"probs": [[0.3]], "correct": [[NAN]]}, "correct.*nan"),
        ("top1_ece", {"probs": [[0.3]], "correct": [[2]]}, "correct"),
        ("top1_ece", {"probs": [[NAN]], "correct": [[1]]}, "probs.*nan"),
        ("top1_ece", {"probs": [["0.3"]], "correct": [[1]]}, "probs"),
        ("other_ece", {"other": 0.3, "correct": [[1]]}, "other"),
        ("other_ece", {"other": [NAN], "correct": [[1]]}, "NaN"),
        ("event_ece", {"probs": [[0.3]], "correct": [[1]], "other": None}, "other"),
        ("event_ece", {"probs": [[0.3]], "correct": [[1]], "other": [NAN]}, "other.*nan"),
        ("p_gold", {"probs": 3, "correct": [[1]]}, "probs"),
        ("p_gold", {"probs": [[0.3]], "correct": [[0.5]]}, "correct"),
        ("p_gold", {"probs": [[0.3]], "correct": [[0]], "other": [0.7], "prior_logprob": [NAN]}, "prior_logprob"),
        ("p_gold", {"probs": [[0.3]], "correct": [[0]], "other": [0.7], "prior_logprob": ["a"]}, "prior_logprob"),
        ("p_gold_gap", {"probs": [[0.3]], "correct": [[1]], "other": None}, "other"),
        ("nll", {"prob": [0.5], "floor": "a"}, "floor"),
        ("nll", {"prob": [NAN]}, "prob"),
    ],
)
def test_garbage_is_an_error_that_names_its_argument(name: str, arguments: dict, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        getattr(metrics, name)(**arguments)


def test_what_an_empty_slot_holds_does_not_matter() -> None:
    mask, q = [[True, False]], [[0.4, NAN]]
    assert metrics.pass_at_1(correct=[[1, 0]], confidence=q, select="max_conf", mask=mask) == 1
    assert metrics.correct_at(correct=[[1, 0]], confidence=q, mask=mask)[1].tolist() == [1, 1]
    assert metrics.set_brier(confidence=q, correct=[[1, 0]], mask=mask) == pytest.approx(0.36)
    assert metrics.set_ece(confidence=q, correct=[[1, 0]], mask=mask, exclusive=True) == pytest.approx(0.6)
    assert metrics.top1_ece(probs=q, correct=[[1, 0]], mask=mask) == pytest.approx(0.6)


def test_a_bootstrap_refuses_settings_that_its_metric_does_not_have_and_carries_all_others() -> None:
    arrays = {"confidence": [0.5, 0.9, 1.5], "correct": [1, 0, 1]}
    with pytest.raises(InvalidArgumentError, match="settings of ece: bins, scheme, edge, norm, got 'bin'"):
        metrics.bootstrap("ece", settings={"bin": 3}, draws=5, **arrays)
    with pytest.raises(InvalidArgumentError, match="settings of brier_loss: none"):
        metrics.bootstrap("brier_loss", settings={"bins": 3}, draws=5, **arrays)
    with pytest.raises(InvalidArgumentError, match="settings"):
        metrics.bootstrap(metrics.smece, settings={"bin": 3}, draws=5, **arrays)
    sides = [arrays | {"clusters": [1, 2, 3]}] * 2
    with pytest.raises(InvalidArgumentError, match="settings of ece"):
        metrics.paired_bootstrap("ece", *sides, draws=5, settings={"bin": 3})
    with pytest.raises(InvalidArgumentError, match="settings of ece"):
        metrics.bootstrap_headline(clusters=[1, 2, 3], draws=5, settings={"bin": 3}, **arrays)
    found = metrics.bootstrap("ece", settings={"bins": 3}, draws=5, **arrays)
    assert found.settings == {"bins": 3, "scheme": "width", "edge": "left", "norm": 1}
    assert (found.n, found.invalid) == (2, 1)
    assert found.to_dict()["invalid"] == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"metric": "accuracy", "correct": 1}, "correct"),
        ({"metric": "ece", "correct": None, "confidence": [0.5]}, "correct"),
        ({"metric": "ece", "correct": [1]}, "confidence"),
        ({"metric": "ece", "correct": [1], "confidence": [0.5], "settings": "bins"}, "settings"),
        ({"metric": "ece", "correct": [1], "confidence": [0.5], "clusters": [[1]]}, "clusters"),
        ({"metric": 3, "correct": [1]}, "metric"),
        ({"metric": "ece", "correct": [1], "confidence": [0.5], "level": 2}, "level"),
    ],
)
def test_a_bootstrap_names_what_is_wrong(arguments: dict, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        metrics.bootstrap(**arguments)
    with pytest.raises(InvalidArgumentError, match="first"):
        metrics.paired_bootstrap("ece", None, {})  # type: ignore[arg-type]


def test_outputs_that_could_not_be_read_count_as_wrong_or_are_dropped() -> None:
    valid = [True, False, True]
    calls = {
        "set_accuracy": {"correct": RIGHT},
        "coverage": {"found": RIGHT},
        "recall": {"found": RIGHT, "n_golds": [3, 3, 3]},
        "precision": {"correct": RIGHT},
        "pass_at_1": {"correct": RIGHT, "select": "first"},
    }
    for name, arguments in calls.items():
        metric = getattr(metrics, name)
        zero, drop = (metric(**arguments, valid=valid, on_invalid=how) for how in ("zero", "drop"))
        assert zero == metric(**arguments)  # nothing was right in the middle
        assert drop == pytest.approx(zero * 3 / 2)
        assert (zero.n, zero.invalid, drop.n, drop.invalid) == (3, 0, 2, 1)
        assert drop.settings["on_invalid"] == "drop"
        assert drop.settings["invalid_rate"] == pytest.approx(1 / 3)
        with pytest.raises(InvalidArgumentError, match="valid"):
            metric(**arguments, on_invalid="drop")
        with pytest.raises(InvalidArgumentError, match="valid"):
            metric(**arguments, valid=[True])
        with pytest.raises(InvalidArgumentError, match="on_invalid"):
            metric(**arguments, valid=valid, on_invalid="keep")
    assert metrics.set_accuracy(correct=RIGHT, valid=[False, True, True]) == pytest.approx(1 / 3)
    assert math.isnan(metrics.set_accuracy(correct=RIGHT, valid=[False] * 3, on_invalid="drop"))


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("edge", ["left", "right", "rlcr"])
def test_classwise_ece_is_the_mean_of_the_classes_eces(edge: str) -> None:
    rng = np.random.default_rng(4)
    probs, label = softmax(rng.normal(size=(300, 5))), rng.integers(0, 5, 300)
    found = metrics.classwise_ece(probs=probs, label=label, bins=7, edge=edge)
    each = [metrics.ece(confidence=probs[:, c], correct=label == c, bins=7, edge=edge) for c in range(5)]
    assert found == pytest.approx(np.mean(each), abs=1e-12)
    assert found.settings == {"bins": 7, "scheme": "width", "edge": edge, "norm": 1, "classes": 5}
    assert found.n == 300


def test_classwise_ece_tells_a_calibrated_forecaster_from_a_sharpened_one() -> None:
    rng = np.random.default_rng(5)
    probs = softmax(rng.normal(size=(2000, 4)))
    label = (rng.random(2000)[:, None] > probs.cumsum(axis=1)).sum(axis=1).clip(max=3)
    honest = metrics.classwise_ece(probs=probs, label=label)
    assert honest.null is not None
    assert honest.null.p_value > 0.02
    assert honest == pytest.approx(honest.null, abs=4 * honest.null.sd)
    sharp = metrics.classwise_ece(probs=softmax(3 * np.log(probs)), label=label)
    assert sharp.null is not None
    assert sharp.null.p_value < 0.01
    assert sharp > 2 * sharp.null.quantile95
    assert metrics.classwise_ece(probs=probs.astype(np.float16), label=label) == pytest.approx(honest, abs=2e-3)
    assert metrics.classwise_ece(probs=np.ones((3, 1)), label=[0, 0, 0]).null == 0
    assert math.isnan(metrics.classwise_ece(probs=np.empty((0, 2)), label=[]))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"probs": [[0.5, 0.5]], "label": [2]}, "label"),
        ({"probs": [[0.5, 0.5]], "label": [-1]}, "label"),
        ({"probs": [[0.5, 0.5]], "label": [0.5]}, "label"),
        ({"probs": [[0.5, 0.5]], "label": ["a"]}, "label"),
        ({"probs": [[0.5, 0.5]], "label": [0, 1]}, "label"),
        ({"probs": [[0.5, 0.3]], "label": [0]}, "sum to 1.*0.8 in row 0"),
        ({"probs": [[1.5, -0.5]], "label": [0]}, "probs"),
        ({"probs": [[NAN, 0.5]], "label": [0]}, "probs"),
        ({"probs": [0.5], "label": [0]}, "probs"),
        ({"probs": [[0.5, 0.5]], "label": [0], "bins": 0}, "bins"),
    ],
)
def test_classwise_ece_names_what_is_wrong(arguments: dict, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        metrics.classwise_ece(**arguments)
