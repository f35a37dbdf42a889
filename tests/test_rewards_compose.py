"""Composed rewards: the formula, one gate, ranges, shared work."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardkit import rewards
from rewardkit.errors import InvalidArgumentError, UnknownNameError
from rewardkit.rewards import compose, text

TEXTS = [
    "<think>…</think><answer>Paris</answer><confidence>0.8</confidence>",
    "<think>…</think><answer>Rome</answer><confidence>0.8</confidence>",
    "<answer>Paris</answer><confidence>0.8</confidence>",
]
GOLDS = ["Paris"] * 3


def test_BR_087_BR_100_the_value_is_the_weighted_sum_that_is_logged() -> None:
    reward = compose({"rlvr": (rewards.get("rlvr", format="tac"), 0.7), "rlcr": ("rlcr", 0.3)})
    got = reward(TEXTS, GOLDS)
    assert got.values == pytest.approx([0.7 + 0.3 * 0.96, 0.3 * -0.64, -0.3 - 0.1])
    logged = 0.7 * got.components["rlvr"] + 0.3 * got.components["rlcr"]
    assert logged[:2].tolist() == pytest.approx(got.values[:2].tolist(), abs=1e-15)
    assert tuple(got.components) == reward.component_names
    assert got.components["rlcr_confidence"].tolist() == [0.8, 0.8, 0.0]
    assert got.components["correct"].tolist() == [1.0, 0.0, 0.0]
    assert got.status == ["ok", "ok", "unparsed"]
    assert got.reason[2] == "think_missing"


def test_released_rlcr_with_its_format_term() -> None:
    parts = {"rlcr": {"weight": 0.5, "shift": True}, "format": {"weight": 0.5, "format": "tac"}}
    reward = rewards.get("compose", parts=parts, fail_reward=0.0)
    assert (reward.min_value, reward.max_value) == (0.5, 1.5)
    assert reward(TEXTS, GOLDS).values == pytest.approx([0.5 + 0.5 * 1.96, 0.5 + 0.5 * 0.36, 0.0])


def test_forms_of_a_part_are_equal() -> None:
    forms = [
        {"rlcr": ("rlcr", 0.5)},
        {"rlcr": {"weight": 0.5}},
        {"rlcr": {"reward": "rlcr", "weight": 0.5, "params": {"rule": "brier"}}},
        {"rlcr": {"reward": rewards.get("rlcr"), "weight": 0.5}},
        {"rlcr": [rewards.get("rlcr"), 0.5]},
    ]
    made = [compose(form) for form in forms]
    assert all(one == made[0] for one in made)
    assert pickle.loads(pickle.dumps(made[0])) == made[0]


@given(weights=st.tuples(st.floats(-3, 3), st.floats(-3, 3)))
def test_range_with_any_weights(weights) -> None:
    reward = compose({"rlvr": (rewards.get("rlvr", format="tac"), weights[0]), "rlcr": ("rlcr", weights[1])})
    got = reward(TEXTS[:2], GOLDS[:2]).values
    assert ((got >= reward.min_value - 1e-12) & (got <= reward.max_value + 1e-12)).all()
    assert reward.fail_reward < reward.min_value


def test_properness_of_a_sum() -> None:
    assert compose({"rlcr": ("rlcr", 1.0), "format": ("format", 0.5)}).proper
    assert not compose({"rlcr": ("rlcr", -1.0)}).proper
    assert not compose({"format": ("format", 1.0)}).proper
    assert compose({"rlcr": ("rlcr", 1.0), "log": {"reward": "rlcr", "rule": "log", "weights": (5, 1)}}).proper


def test_parts_that_read_alike_read_once(monkeypatch) -> None:
    calls = []
    real = text.parse
    reward = compose(
        {"rlvr": {"format": "tac"}, "rlcr": {}, "format": {"format": "tac"}, "l": {"reward": "rlcr", "mode": "lenient"}}
    )
    monkeypatch.setattr(text, "parse", lambda *a, **k: calls.append(k) or real(*a, **k))
    reward(TEXTS, GOLDS)
    assert len(calls) == 2  # the lenient one reads for itself


def test_a_part_that_does_not_gate() -> None:
    parts = {"rlvr": {"format": "ta"}, "rlcr": {"weight": 0.5, "gate": False}}
    reward = compose(parts)
    got = reward(["<think>…</think><answer>Paris</answer>", *TEXTS[:1]], GOLDS[:2])
    assert got.values == pytest.approx([1.0 + 0.5 * -1.1, reward.fail_reward])
    assert got.status == ["ok", "unparsed"]
    assert reward.min_value == pytest.approx(0.5 * -1.1)


def test_a_judge_that_fails_is_told() -> None:
    def judge(prediction: str, reference: str) -> bool:
        raise RuntimeError("no judge")

    reward = compose({"rlcr": {"reward": "rlcr", "matcher": judge}, "format": ("format", 1.0)})
    got = reward(TEXTS, GOLDS)
    assert got.status == ["failed:RuntimeError", "failed:RuntimeError", "unparsed"]


LIKELIHOODS = {"reference_logprobs": [[-0.5], [-0.5], None], "reference_status": ["ok", "nan_logprob", "no_answer"]}


@pytest.mark.parametrize(
    ("parts", "columns"),
    [
        ({"rlpr": ("rlpr", 1.0), "verifree": ("verifree", 1.0)}, {}),
        (
            {"darl": ("darl", -1.0), "fmt": {"reward": "format", "format": "ta", "weight": 0.5}},
            {"own_logprobs": [[-1.0]] * 3},
        ),
        ({"inner": (compose({"verifree": ("verifree", 1.0)}), 1.0), "fmt": {"reward": "format", "format": "ta"}}, {}),
    ],
)
def test_what_a_part_could_not_score_fails_as_a_whole(parts, columns) -> None:
    reward = compose(parts)
    texts = ["<think>…</think><answer>Paris</answer>"] * 3
    got = reward(texts, GOLDS, **LIKELIHOODS, **columns)
    assert reward.min_value <= got.values[0] <= reward.max_value
    assert got.values[1:].tolist() == [reward.fail_reward] * 2
    assert got.components["wellformed"].tolist() == [1.0, 0.0, 0.0]
    assert got.status == ["ok", "failed:nan_logprob", "unparsed"]
    assert not any(column[1:].any() for column in got.components.values())


def test_asks_for_what_its_parts_ask_for() -> None:
    reward = compose({"darl": ("darl", 1.0), "fmt": {"reward": "format", "format": "ta"}})
    assert reward.requires == rewards.get("darl").requires
    assert reward.optional == rewards.get("darl").optional != ()


def test_a_part_that_does_not_gate_may_fail_within_the_range() -> None:
    parts = {
        "rlpr": {"gate": False, "repetition_penalty": 1.0, "weight": 2.0},
        "fmt": {"reward": "format", "format": "ta"},
    }
    reward = compose(parts)
    looping = "<think>" + "so it goes on and on and on like this " * 12 + "</think><answer>Paris</answer>"
    got = reward([looping], ["Paris"], reference_logprobs=[None], reference_status=["nan_logprob"])
    assert got.values.tolist() == pytest.approx([reward.min_value])


@pytest.mark.parametrize(
    ("parts", "column"),
    [
        ({"correct": ("rlvr", 1.0)}, "correct"),
        ({"confidence": ("format", 1.0)}, "confidence"),
        ({"wellformed": ("format", 1.0)}, "wellformed"),
        ({"truncated": ("rlcr", 1.0)}, "truncated"),
        ({"acc": ("rlcr", 1.0)}, "acc"),
        ({"score": ("rlcr", 1.0)}, "score"),
        ({"reward": ("rlcr", 1.0)}, "reward"),
        ({"a": ("rlcr", 1.0), "a_correct": ("rlcr", 1.0)}, "a_correct"),
        ({"a_correct": ("rlcr", 1.0), "a": ("rlcr", 1.0)}, "a_correct"),
    ],
)
def test_a_part_s_columns_overwrite_no_others(parts, column) -> None:
    with pytest.raises(InvalidArgumentError, match=f"another name, since its column '{column}' is "):
        compose(parts)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"rlcr": {"gate": "false"}}, r"parts\['rlcr'\]\.gate: expected true or false"),
        ({"rlcr": {"params": None}}, r"parts\['rlcr'\]\.params: expected a mapping"),
        ({1: ("rlcr", 1.0)}, "parts: expected names"),
        ({}, "parts"),
        ([("rlcr", 1.0)], "parts"),
        ({"rlcr": ("rlcr", float("nan"))}, r"parts\['rlcr'\]\.weight"),
        ({"rlcr": ("rlcr", "1")}, r"parts\['rlcr'\]\.weight"),
        ({"rlcr": 1.0}, r"parts\['rlcr'\]"),
        ({"rlcr": (1.0, 1.0)}, r"parts\['rlcr'\]\.reward"),
        ({"rlcr": {"rul": "log"}}, "rul"),
        ({"rlvr": {"format": "ta"}, "rlcr": {"format": "tac"}}, "one format"),
        ({"rlcr": {"reward": rewards.get("rlcr"), "rule": "log"}}, "no parameters"),
    ],
)
def test_bad_parts_are_named(parts, message) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        compose(parts)


def test_unknown_part() -> None:
    with pytest.raises(UnknownNameError, match="rlcrr"):
        compose({"rlcrr": ("rlcrr", 1.0)})


def test_one_failure_reward_not_a_sum_of_them() -> None:
    reward = compose({"a": ("rlcr", 1.0), "b": ("rlcr", 1.0)})
    assert reward(["?"], ["x"]).values.tolist() == [reward.min_value - 0.1]
    assert np.isclose(reward.min_value, -2.0)
    with pytest.raises(InvalidArgumentError, match="allow_inversion"):
        compose({"a": ("rlcr", 1.0)}, fail_reward=0.0)
