"""RLVR and RLCR, and what every reward promises of itself."""

from __future__ import annotations

import doctest
import importlib
import math
import pickle
import pkgutil
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardkit import rewards, scoring
from rewardkit.errors import HarmfulSettingWarning, InvalidArgumentError, UnknownNameError
from rewardkit.rewards.compose import Part

unit = st.floats(0.0, 1.0)


def ta(answer: str) -> str:
    return f"<think>…</think><answer>{answer}</answer>"


def tac(answer: str, confidence: object) -> str:
    return f"{ta(answer)}<confidence>{confidence}</confidence>"


def quietly(name: str, **params) -> rewards.Reward:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HarmfulSettingWarning)
        return rewards.get(name, **params)


@pytest.mark.parametrize("name", [m.name for m in pkgutil.iter_modules(rewards.__path__, "rewardkit.rewards.")])
def test_examples_in_docstrings(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_rlvr() -> None:
    got = rewards.get("rlvr")([ta("Paris"), ta("Rome"), "Paris"], ["paris", "paris", "paris"])
    assert got.values.tolist() == [1.0, 0.0, -0.1]
    assert got.status == ["ok", "ok", "unparsed"]
    assert got.reason == ["", "", "think_missing"]
    assert {name: column.tolist() for name, column in got.components.items()} == {
        "correct": [1.0, 0.0, 0.0],
        "wellformed": [1.0, 1.0, 0.0],
    }


def test_rlcr_by_hand() -> None:
    texts, golds = [tac("Paris", 0.8), tac("Rome", 0.8), "?"], ["Paris"] * 3
    assert rewards.get("rlcr")(texts, golds).values == pytest.approx([0.96, -0.64, -1.1])
    assert rewards.get("rlcr", shift=True)(texts, golds).values == pytest.approx([1.96, 0.36, -0.1])
    weighted = rewards.get("rlcr", weights={"correctness": 2.0, "calibration": 0.5})
    assert weighted(texts, golds).values == pytest.approx([1.98, -0.32, -0.6])


@given(q=unit, right=st.booleans())
def test_BR_101_accuracy_and_brier_make_the_value(q: float, right: bool) -> None:
    """The paper's c - (q - c)^2 and the released c + 1 - (q - c)^2 differ by the constant 1."""
    text, gold = [tac("a1", repr(q))], ["a1" if right else "b1"]
    paper, released = rewards.get("rlcr")(text, gold), rewards.get("rlcr", shift=True)(text, gold)
    total = paper.components["correct"] + paper.components["brier"]
    assert total[0] == pytest.approx(released.values[0], abs=1e-12)
    assert total[0] == pytest.approx(paper.values[0] + 1.0, abs=1e-12)


@given(q=unit, right=st.booleans())
def test_without_calibration_rlcr_is_rlvr(q: float, right: bool) -> None:
    text, gold = [tac("a1", repr(q))], ["a1" if right else "b1"]
    rlcr = quietly("rlcr", weights=(1.0, 0.0))
    assert rlcr(text, gold).values.tolist() == rewards.get("rlvr", format="tac")(text, gold).values.tolist()
    assert not rlcr.proper


# ---- the theorem -----------------------------------------------------------------------------------------------------


def honest_value(reward: rewards.Reward, p: np.ndarray) -> np.ndarray:
    """Expected reward of stating p, from the reward itself."""
    texts = [tac("a1", repr(float(one))) for one in p]
    right, wrong = reward(texts, ["a1"] * len(p)), reward(texts, ["b1"] * len(p))
    assert right.status == ["ok"] * len(p)
    return p * right.values + (1.0 - p) * wrong.values


P = np.linspace(0.001, 0.999, 999)


def test_honest_value_of_brier_rlcr_is_p_squared() -> None:
    np.testing.assert_allclose(honest_value(rewards.get("rlcr"), P), P**2, atol=1e-14)


@pytest.mark.parametrize(
    ("rule", "epsilon", "weight", "rises"),
    [
        ("brier", 0.01, 1.0, True),
        ("brier", 0.01, 0.99, False),
        ("spherical", 0.01, 1.0, True),
        ("spherical", 0.01, 0.99, False),
        ("log", 0.01, 4.59, False),
        ("log", 0.01, 4.60, True),
        ("log", 0.05, 2.94, False),
        ("log", 0.05, 2.95, True),
    ],
)
def test_theorem_table_and_its_warning(rule: str, epsilon: float, weight: float, rises: bool) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reward = rewards.get("rlcr", rule=rule, weights=(weight, 1.0), epsilon=epsilon)
    assert [one.category for one in caught] == ([] if rises else [HarmfulSettingWarning])
    fine = np.linspace(1e-5, 0.05, 500) if rule == "log" else np.linspace(1e-5, 0.9999, 999)
    assert bool((np.diff(honest_value(reward, fine)) > 0.0).all()) == rises


def test_brier_with_too_little_correctness_pays_for_hopeless_answers() -> None:
    value = honest_value(quietly("rlcr", weights=(1.0, 2.0)), P)
    assert (value[P < 0.5 - 1e-9] < 0.0).all()
    assert (value[P > 0.5 + 1e-9] > 0.0).all()


@pytest.mark.parametrize(
    ("weight", "minimum", "at", "zero"), [(1.0, -0.3133, 0.2689, 0.6484), (2.0, None, None, 0.3092)]
)
def test_log_with_weight_one_prefers_a_knowingly_wrong_answer(weight, minimum, at, zero) -> None:
    value = honest_value(quietly("rlcr", rule="log", epsilon=1e-4, weights=(weight, 1.0)), P)
    inside = P > 1e-3
    if minimum is not None:
        assert value.min() == pytest.approx(minimum, abs=1e-4)
        assert P[value.argmin()] == pytest.approx(at, abs=2e-3)
    crossing = P[inside][np.flatnonzero(np.diff(np.sign(value[inside])))[-1]]
    assert crossing == pytest.approx(zero, abs=2e-3)


@pytest.mark.parametrize("rule", ["brier", "log", "spherical"])
@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.62, 0.9])
def test_honest_confidence_is_best(rule: str, p: float) -> None:
    reward = quietly("rlcr", rule=rule)
    grid = np.round(np.linspace(0.0, 1.0, 101), 2)
    texts = [tac("a1", q) for q in grid]
    expected = p * reward(texts, ["a1"] * 101).values + (1.0 - p) * reward(texts, ["b1"] * 101).values
    assert grid[expected.argmax()] == p


def test_linear_rule_warns_and_is_not_proper() -> None:
    with pytest.warns(HarmfulSettingWarning, match="not proper"):
        reward = rewards.get("rlcr", rule="linear")
    assert not reward.proper


# ---- bad calls -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "argument"),
    [
        ({"weights": (1.0, -1.0)}, "weights"),
        ({"weights": (1.0, math.nan)}, "weights"),
        ({"weights": (1.0,)}, "weights"),
        ({"weights": {"brier": 1.0}}, "weights"),
        ({"weights": "11"}, "weights"),
        ({"epsilon": 0.5}, "epsilon"),
        ({"margin": -1.0}, "margin"),
        ({"fail_reward": 0.0}, "fail_reward"),
        ({"on_duplicate": "drop"}, "on_duplicate"),
        ({"mode": "stict"}, "mode"),
        ({"lambda_": 1.0}, "lambda_"),
        ({"parse_options": {"nonsense": 1}}, "parse_options"),
    ],
)
def test_bad_parameters_are_named_at_once(params, argument) -> None:
    with pytest.raises(InvalidArgumentError, match=argument):
        rewards.get("rlcr", **params)


def test_a_parameter_without_a_default_is_asked_for() -> None:
    with pytest.raises(InvalidArgumentError, match=r"compose\(parts=…\): expected a value.*got \{\}"):
        rewards.get("compose")


def test_unknown_names_suggest() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'rlcr'"):
        rewards.get("rlcrr")
    with pytest.raises(UnknownNameError, match="brier"):
        rewards.get("rlcr", rule="bier")
    with pytest.raises(UnknownNameError, match="tac"):
        rewards.get("rlcr", format="ta")
    with pytest.raises(UnknownNameError, match="exact"):
        rewards.get("rlcr", matcher="exat")


@pytest.mark.parametrize("references", [["Paris"], "Paris", None, 3, [["Paris", "paris"], "x"], [[""], "x"]])
def test_bad_references_raise(references) -> None:
    with pytest.raises((InvalidArgumentError, ValueError), match=r"reference|gold_kind"):
        rewards.get("rlcr")([tac("a", 1), tac("b", 1)], references)


@pytest.mark.parametrize("completions", ["<think>", None, 3, [3], [None]])
@pytest.mark.parametrize("reward", [rewards.get("rlcr"), rewards.compose({"rlcr": ("rlcr", 1.0)})])
def test_bad_completions_raise(reward, completions) -> None:
    with pytest.raises(InvalidArgumentError, match="completions"):
        reward(completions, ["a"])


def test_failure_reward_of_zero_in_the_papers_form_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="allow_inversion"):
        rewards.get("rlcr", fail_reward=0.0)
    assert rewards.get("rlcr", fail_reward=0.0, allow_inversion=True)(["?"], ["a"]).values.tolist() == [0.0]
    assert rewards.get("rlcr", fail_reward=0.0, shift=True)(["?"], ["a"]).values.tolist() == [0.0]


# ---- confidence text, errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "-inf", "1.0000001", "-0.1", "0_5", "٠.٥", "", "95%", "high"])
def test_SR_01_BR_020_BR_055_bad_confidence_fails_and_is_counted(text: str) -> None:
    got = rewards.get("rlcr")([tac("Paris", text)], ["Paris"])
    assert got.values.tolist() == [-1.1]
    assert got.status == ["unparsed"]
    assert got.reason[0].startswith("number_")
    assert got.components["wellformed"].tolist() == [0.0]
    assert all(np.isfinite(column).all() for column in got.components.values())


def test_BR_055_lenient_reading_accepts_percent() -> None:
    got = rewards.get("rlcr", mode="lenient")([tac("Paris", "95%")], ["Paris"])
    assert got.components["confidence"].tolist() == [0.95]


def test_SR_13_wrong_unparsed_and_failed_are_told_apart() -> None:
    def judge(prediction: str, reference: str) -> bool:
        if prediction == "boom":
            raise TimeoutError("the judge took too long")
        return prediction == reference

    got = rewards.get("rlcr", matcher=judge)([tac("a", 0.5), tac("boom", 0.5), "?"], ["b", "b", "b"])
    assert got.status == ["ok", "failed:TimeoutError", "unparsed"]
    assert got.reason == ["", "TimeoutError: the judge took too long", "think_missing"]
    assert got.values == pytest.approx([-0.25, -0.25, -1.1])


def test_chats_truncation_and_empty_batch() -> None:
    reward = rewards.get("rlcr")
    chat = [{"role": "user", "content": tac("Rome", 1)}, {"role": "assistant", "content": tac("Paris", 1)}]
    assert reward([chat], ["Paris"]).values.tolist() == [1.0]
    cut = reward([tac("Paris", 1)], ["Paris"], truncated=[True])
    assert (cut.values.tolist(), cut.reason) == ([-1.1], ["truncated"])
    empty = reward([], [])
    assert empty.values.shape == (0,)
    assert set(empty.components) == set(reward.component_names)


def test_rewards_pickle_and_compare() -> None:
    reward = rewards.get("rlcr", rule="log", weights=(5.0, 1.0))
    assert pickle.loads(pickle.dumps(reward)) == reward


def test_other_rules_have_their_own_column() -> None:
    reward = rewards.get("rlcr", rule="log", weights=(5.0, 1.0))
    got = reward([tac("Paris", 0.8)], ["Paris"])
    assert got.components["log"] == pytest.approx(scoring.log_reward(confidence=[0.8], correct=[1]))
    assert got.values == pytest.approx(5.0 + np.log(0.8))


@pytest.mark.parametrize(
    ("name", "params", "argument"),
    [
        ("rlvr", {"parse_options": None}, "parse_options"),
        ("rlvr", {"parse_options": ["tags"]}, "parse_options"),
        ("rlvr", {"parse_options": {"tags": ["a"]}}, "tags"),
        ("rlvr", {"parse_options": {"tags": {"answer": 5}}}, r"tags\['answer'\]"),
        ("rlvr", {"parse_options": {"special_tokens": None}}, "special_tokens"),
        ("rlvr", {"allow_inversion": "false"}, "allow_inversion"),
        ("rlcr", {"shift": "false"}, "shift"),
        ("hypotheses_brier", {"halve": 1}, "halve"),
        ("hypotheses_backoff", {"lift": "no"}, "lift"),
        ("hypotheses_backoff", {"clip_valid": None}, "clip_valid"),
        ("hypotheses_backoff", {"percentile": 5.0, "training_logprob": "abc"}, "training_logprob"),
        ("hypotheses_backoff", {"percentile": 5.0, "training_logprob": 5}, "training_logprob"),
        ("hypotheses_backoff", {"percentile": 5.0, "training_logprob": []}, "training_logprob"),
        ("hypotheses_backoff", {"percentile": "5", "training_logprob": [-1.0]}, "percentile"),
        ("multi_rlcr", {"force": "x"}, "force"),
        ("rlpr", {"gate": "false"}, "gate"),
        ("rlpr", {"debias": "false"}, "debias"),
        ("rlpr", {"clip": 0}, "clip"),
        ("repetition", {"window": 2.5}, "window"),
        ("repetition", {"window": True}, "window"),
        ("repetition", {"limit": 2.5}, "limit"),
        ("repetition", {"limit": 1}, "limit"),
        ("compose", {"parts": {"rlvr": {5: 1}}}, r"parts\['rlvr'\]"),
        ("compose", {"parts": {"rlvr": Part("rlvr", weight="x")}}, r"parts\['rlvr'\]\.weight"),
    ],
)
def test_a_bad_parameter_is_named_when_the_reward_is_made(name: str, params: dict, argument: str) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"^{argument}: expected .*, got "):
        rewards.get(name, **params)


@pytest.mark.parametrize("bad", [["x"], {}, None, 5])
def test_what_is_no_name_is_unknown(bad: object) -> None:
    for call in (rewards.get, rewards.reward_class):
        with pytest.raises(UnknownNameError, match="unknown reward"):
            call(bad)  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="unknown matcher"):
        rewards.get("rlvr", matcher=bad)
