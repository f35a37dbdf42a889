"""RLPR, DARL, VeriFree, NOVER, JEPO and the repetition penalty."""

from __future__ import annotations

import json
import math
import pickle
import time

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rewardkit import rewards
from rewardkit.errors import InvalidArgumentError, UnknownNameError
from rewardkit.likelihood.status import MODEL_FAULTS, OTHER_FAULTS
from rewardkit.rewards.repetition import repeats_itself

GOOD = "<think>…</think><answer>Paris</answer>"
BAD = "Paris"
LOOP = "and so it goes on and on and on again " * 12

probabilities = st.floats(1e-6, 1.0)
answers = st.lists(probabilities, min_size=1, max_size=8)


def logs(*rows: list[float]) -> list[np.ndarray]:
    return [np.log(row) for row in rows]


def value(name: str, *row: float, own: list[float] | None = None, **params) -> float:
    columns = {"own_logprobs": logs(own)} if own is not None else {}
    return rewards.get(name, **params)(reference_logprobs=logs(list(row)), **columns).values[0]


# ---- RLPR ------------------------------------------------------------------------------------------


def test_rlpr_is_the_mean_token_probability() -> None:
    assert value("rlpr", 0.99, 0.99, 0.01) == pytest.approx(1.99 / 3)
    assert value("rlpr", 0.99, 0.99, 0.01, reduce="geo_mean") ** 3 == pytest.approx(0.009801)
    assert value("rlpr", 0.99, 0.99, 0.01, reduce="prod") == pytest.approx(0.009801)
    assert value("rlpr", 0.5, 0.5, reduce="mean_log") == pytest.approx(math.log(0.5))


def test_rlpr_with_the_format_term_and_the_baseline() -> None:
    reward = rewards.get("rlpr")
    batch = reward(
        completions=[GOOD, BAD, GOOD], reference_logprobs=logs([0.8], [0.8], [0.3]), baseline=[0.5, 0.5, 0.5]
    )
    np.testing.assert_allclose(batch.values, [0.9 * 0.3 + 0.1, 0.9 * 0.3, 0.1])
    np.testing.assert_allclose(batch.components["baseline"], 0.5)
    assert batch.status == ["ok"] * 3


def test_debias_is_on_where_a_baseline_comes_off_where_it_is_said_so_and_demanded_where_asked_for() -> None:
    columns = {"reference_logprobs": logs([0.8]), "baseline": [0.5]}
    assert rewards.get("rlpr")(**columns).values[0] == pytest.approx(0.3)
    assert rewards.get("rlpr", debias=False)(**columns).values[0] == pytest.approx(0.8)
    assert rewards.get("rlpr", clip=False)(reference_logprobs=logs([0.2]), baseline=0.5).values[0] == pytest.approx(
        -0.3
    )
    with pytest.raises(InvalidArgumentError, match="baseline"):
        rewards.get("rlpr", debias=True)(reference_logprobs=logs([0.8]))
    assert "baseline" in rewards.get("rlpr", debias=True).requires
    assert rewards.get("darl")(**columns, own_logprobs=logs([0.9])).values[0] == pytest.approx(0.99 * 0.8)


@given(answers, st.floats(0, 1), st.floats(0, 1))
def test_the_gain_never_grows_with_the_baseline(row: list[float], one: float, other: float) -> None:
    low, high = sorted((one, other))
    for clip in (True, False):
        reward = rewards.get("rlpr", clip=clip)
        values = [reward(reference_logprobs=logs(row), baseline=r0).values[0] for r0 in (low, high)]
        assert values[0] >= values[1]


@given(answers, st.integers(0, 7), st.floats(0, 1))
def test_rlpr_and_verifree_are_monotone_in_every_token(row: list[float], index: int, share: float) -> None:
    better = list(row)
    i = index % len(row)
    better[i] += share * (1 - better[i])
    for name, params in (
        ("rlpr", {}),
        ("rlpr", {"reduce": "geo_mean"}),
        ("verifree", {}),
        ("rlpr", {"reduce": "sum_log"}),
    ):
        assert value(name, *better, **params) >= value(name, *row, **params) - 1e-12


def test_SR_14_no_rounding_to_bfloat16_and_an_empty_reference_is_a_status() -> None:
    assert value("rlpr", 0.9039) == pytest.approx(0.9039, abs=1e-12)
    batch = rewards.get("rlpr")(
        reference_logprobs=[[], None, logs([0.5])[0]], reference_status=["empty_reference", "ok", "ok"]
    )
    assert batch.status == ["failed:empty_reference", "failed:no_reference_logprobs", "ok"]
    np.testing.assert_allclose(batch.values, [-0.1, -0.1, 0.5])


def test_BR_106_the_reference_is_what_is_scored_never_the_own_answer() -> None:
    with pytest.raises(InvalidArgumentError, match="reference_logprobs"):
        rewards.get("rlpr")(own_logprobs=logs([0.99]))
    reward = rewards.get("darl")
    low = reward(reference_logprobs=logs([0.01]), own_logprobs=logs([0.99])).values[0]
    assert low == pytest.approx(0.99 * 0.01)


def test_BR_080_every_value_is_finite_and_json_safe() -> None:
    rows = [[-np.inf], [np.nan], [-0.5, -np.inf], [], None, [0.5], [-1e300]]
    for name in ("rlpr", "darl", "verifree", "nover", "jepo"):
        batch = rewards.get(name)(
            reference_logprobs=rows,
            own_logprobs=rows,
            group_ids=list("aaaabbb"),
            reasoning_tokens=[1] * 7,
        )
        json.dumps([batch.values.tolist(), *(column.tolist() for column in batch.components.values())], allow_nan=False)
        assert batch.status[1] == "failed:nan_logprob"
        assert batch.status[3].startswith("failed:no_")


# ---- DARL ------------------------------------------------------------------------------------------


@given(answers, answers)
def test_darl_without_its_bonus_is_rlpr(reference: list[float], own: list[float]) -> None:
    assert value("darl", *reference, beta=0.0) == value("rlpr", *reference)
    assert value("darl", *reference, beta=0.0, over="verifree") == pytest.approx(value("verifree", *reference))
    alone = (1 - 0.01) * value("rlpr", *reference)
    assert value("darl", *reference, own=own, tau=0.0) == pytest.approx(alone, abs=1e-12)
    assert value("darl", *reference, own=own, gamma=math.inf) == pytest.approx(alone, abs=1e-12)
    assert value("darl", *reference, own=[1.0]) == pytest.approx(alone, abs=1e-12)


@given(st.integers(1, 1000), st.integers(1, 40))
@settings(max_examples=300)
def test_the_boundary_of_the_indicator_belongs_to_it(thousandths: int, tenths: int) -> None:
    reference, gamma = thousandths / 1000, 1 + tenths / 10
    own = reference * (1 - 1 / gamma)
    lead, beta = reference / gamma, 0.01
    on = value("darl", reference, own=[max(own, 1e-300)], gamma=gamma, beta=beta)
    assert on == pytest.approx((1 - beta) * reference + beta * lead, abs=1e-9)
    off = value("darl", reference, own=[own * (1 - 1e-3)], gamma=gamma, beta=beta)
    if own > 1e-4:
        assert off == pytest.approx((1 - beta) * reference, abs=1e-9)


def test_the_static_boundary() -> None:
    assert value("darl", 0.8, own=[0.5], tau=0.3) == pytest.approx(0.99 * 0.8 + 0.01 * 0.3)
    assert value("darl", 0.8, own=[0.49], tau=0.3) == pytest.approx(0.99 * 0.8)


def test_shape_in_the_own_likelihood() -> None:
    """Flat, a jump up at r*(1 - 1/gamma), falling with slope -beta to r*, flat again."""
    reference, beta, gamma = 0.8, 0.01, 8.0
    own = np.array([0.1, 0.69, 0.701, 0.75, 0.8, 0.95])
    values = np.array([value("darl", reference, own=[y], beta=beta, gamma=gamma) for y in own])
    flat = (1 - beta) * reference
    np.testing.assert_allclose(values, flat + beta * np.array([0, 0, 0.099, 0.05, 0, 0]), atol=1e-12)


@given(answers, answers, st.floats(0, 1), st.floats(0.2, 20))
def test_darl_stays_in_its_range(reference: list[float], own: list[float], beta: float, gamma: float) -> None:
    reward = rewards.get("darl", beta=beta, gamma=gamma)
    got = reward(reference_logprobs=logs(reference), own_logprobs=logs(own)).values[0]
    assert reward.min_value <= got <= reward.max_value + 1e-12
    if gamma >= 1:
        assert got <= np.mean(reference) + 1e-12


def test_darl_needs_the_own_answer_only_for_its_bonus() -> None:
    assert rewards.get("darl").requires == ("reference_logprobs", "reference_status", "own_logprobs")
    assert "own_logprobs" not in rewards.get("darl", beta=0.0).requires
    batch = rewards.get("darl")(reference_logprobs=logs([0.5], [0.5]), own_logprobs=[[], logs([0.5])[0]])
    assert batch.status == ["failed:no_own_logprobs", "ok"]
    with pytest.raises(InvalidArgumentError, match="own_logprobs"):
        rewards.get("darl")(reference_logprobs=logs([0.5]))


def test_darl_refuses_two_thresholds() -> None:
    with pytest.raises(InvalidArgumentError, match="one threshold"):
        rewards.get("darl", gamma=8.0, tau=0.1)
    with pytest.raises(InvalidArgumentError, match="gamma"):
        rewards.get("darl", gamma=0.0)
    with pytest.raises(InvalidArgumentError, match="over"):
        rewards.get("darl", over="nover")


# ---- VeriFree, JEPO, NOVER -------------------------------------------------------------------------


def test_products_of_500_tokens_stay_in_log_space() -> None:
    row = [0.9] * 500
    assert value("verifree", *row) == pytest.approx(0.9**500, rel=1e-9)
    tiny = [1e-3] * 500  # 1e-1500 is no double
    batch = rewards.get("jepo", floor=-1e5)(
        reference_logprobs=logs(tiny, [x * 1.01 for x in tiny]), group_ids=["q", "q"]
    )
    ratio = 500 * math.log(1.01)
    assert batch.values[1] == pytest.approx(math.log((1 + math.exp(ratio)) / 2), rel=1e-9)


@example([-1.0, -38.0])
@given(st.lists(st.floats(-60, 0), min_size=2, max_size=6))
def test_jepo_equals_its_definition(row: list[float]) -> None:
    batch = rewards.get("jepo")(reference_logprobs=[[one] for one in row], group_ids=["q"] * len(row))
    p = np.exp(np.array(row, dtype=np.longdouble))
    for i, got in enumerate(batch.values):
        expected = np.log(p.mean()) - np.log(np.delete(p, i).mean())
        assert got == pytest.approx(float(expected), abs=1e-9)
        assert rewards.get("jepo").min_value <= got <= rewards.get("jepo").max_value


def test_jepo_groups_by_id_in_any_order_and_leaves_failures_out() -> None:
    reward = rewards.get("jepo")
    rows = logs([0.5], [0.9], [0.1], [0.9])
    mixed = reward(reference_logprobs=rows, group_ids=["a", "b", "a", "b"])
    apart = reward(reference_logprobs=[rows[0], rows[2]], group_ids=["a", "a"])
    np.testing.assert_allclose(mixed.values[[0, 2]], apart.values)
    np.testing.assert_allclose(mixed.values[[1, 3]], 0.0, atol=1e-12)
    failed = reward(reference_logprobs=[rows[0], None], group_ids=["a", "a"])
    assert failed.values[0] == 0.0
    assert failed.values[1] == reward.fail_reward < reward.min_value


def test_nover_ranks_ties_and_small_groups() -> None:
    reward = rewards.get("nover")
    rows = logs([0.9], [0.5], [0.5], [0.1])
    batch = reward(reference_logprobs=rows, reasoning_tokens=[10, 10, 10, 10], group_ids=["q"] * 4)
    np.testing.assert_allclose(batch.components["rank"], [1.0, 0.625, 0.625, 0.25])
    alone = reward(reference_logprobs=logs([0.2]), reasoning_tokens=[5], group_ids=["q"])
    assert (alone.components["rank"][0], alone.components["efficiency"][0]) == (1.0, 0.0)
    none = reward(reference_logprobs=[None, None], reasoning_tokens=[5, 5], group_ids=["q", "q"])
    assert none.status == ["failed:no_reference_logprobs"] * 2
    np.testing.assert_allclose(none.values, reward.fail_reward)


def test_nover_efficiency_counts_the_longer_and_worse() -> None:
    batch = rewards.get("nover")(
        reference_logprobs=logs([0.9], [0.5], [0.1]), reasoning_tokens=[10, 20, 5], group_ids=["q"] * 3
    )
    np.testing.assert_allclose(batch.components["efficiency"], [0.5, 0.0, 0.0])


# ---- failures, format, repetition ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rlpr", "darl", "verifree", "nover", "jepo"])
def test_what_cannot_be_scored_is_never_a_silent_zero(name: str) -> None:
    reward = rewards.get(name)
    statuses = [*MODEL_FAULTS, *OTHER_FAULTS]
    size = len(statuses)
    batch = reward(
        reference_logprobs=[[]] * size,
        reference_status=statuses,
        own_logprobs=[[]] * size,
        reasoning_tokens=[1] * size,
        group_ids=["q"] * size,
    )
    assert (batch.values == reward.fail_reward).all()
    assert reward.fail_reward < reward.min_value
    assert batch.reason == statuses
    assert batch.status == ["unparsed"] * len(MODEL_FAULTS) + [f"failed:{status}" for status in OTHER_FAULTS]
    assert set(batch.components) == set(reward.component_names)


def test_the_papers_zero_for_failures_is_allowed_where_it_is_the_minimum() -> None:
    assert rewards.get("verifree", fail_reward=0.0)(reference_logprobs=[None]).values[0] == 0.0
    with pytest.raises(InvalidArgumentError, match="fail_reward"):
        rewards.get("rlpr", fail_reward=0.05)


def test_the_repetition_penalty_reaches_rows_of_reward_zero() -> None:
    reward = rewards.get("rlpr", repetition_penalty=1.0, debias=True, fail_reward=-1.0)
    rows = logs([0.2], [0.2], [0.9])
    batch = reward(
        completions=[LOOP, BAD, LOOP], reference_logprobs=[*rows[:2], None], baseline=0.5, reference_status=["ok"] * 3
    )
    np.testing.assert_allclose(batch.values, [-1.0, 0.0, -2.0])
    assert batch.components["repetition"].tolist() == [1.0, 0.0, 1.0]
    assert reward.min_value == -1.0


def test_repetition_counts_windows_of_words() -> None:
    phrase = "one two three four five six seven eight nine ten "
    assert repeats_itself([phrase * 9, phrase * 10, phrase * 10 + "end", "a " * 18, "a " * 19]).tolist() == [
        False,
        True,
        True,
        False,
        True,
    ]
    assert rewards.get("repetition")([LOOP, "", GOOD]).values.tolist() == [-1.0, 0.0, 0.0]


def test_repetition_takes_linear_time() -> None:
    words = [f"w{i % 977}" for i in range(40_000)]
    short, long = " ".join(words[:20_000]), " ".join(words)

    def took(text: str) -> float:
        start = time.process_time()
        repeats_itself([text])
        return time.process_time() - start

    took(short)
    assert min(took(long) for _ in range(3)) < 4 * min(took(short) for _ in range(3)) + 0.01


def test_the_gate_fails_ill_formed_rows() -> None:
    batch = rewards.get("rlpr", gate=True)(completions=[GOOD, BAD], reference_logprobs=logs([0.5], [0.9]))
    assert batch.status == ["ok", "unparsed"]
    np.testing.assert_allclose(batch.values, [0.9 * 0.5 + 0.1, -0.1])
    with pytest.raises(InvalidArgumentError, match="completions"):
        rewards.get("rlpr", gate=True)(reference_logprobs=logs([0.5]))


def test_BR_050_only_the_response_is_read() -> None:
    """A prompt that shows the tags gives nothing: the reward never sees a prompt, and an empty response has no format."""
    batch = rewards.get("rlpr")(
        completions=["", GOOD], reference_logprobs=[[], logs([0.5])[0]], reference_status=["empty_response", "ok"]
    )
    assert batch.components["format"].tolist() == [0.0, 1.0]
    assert batch.status == ["unparsed", "ok"]


@pytest.mark.parametrize("name", ["rlpr", "darl", "verifree", "nover", "jepo", "repetition"])
def test_rewards_pickle_and_take_anything_else(name: str) -> None:
    reward = pickle.loads(pickle.dumps(rewards.get(name)))
    columns = {
        "reference_logprobs": logs([0.5], [0.9]),
        "own_logprobs": logs([0.5], [0.9]),
        "reasoning_tokens": [3, 4],
        "group_ids": ["q", "q"],
        "data_source": ["x", "y"],
        "gold_kind": None,
    }
    batch = reward(completions=[GOOD, BAD], references=["Paris", "Paris"], **columns)
    assert len(batch) == 2
    assert np.isfinite(batch.values).all()
    assert reward.proper is False


def test_lengths_must_agree() -> None:
    reward = rewards.get("darl")
    with pytest.raises(InvalidArgumentError, match="own_logprobs"):
        reward(reference_logprobs=logs([0.5]), own_logprobs=logs([0.5], [0.5]))
    with pytest.raises(InvalidArgumentError, match="completions"):
        reward(completions=[GOOD] * 2, reference_logprobs=logs([0.5]), own_logprobs=logs([0.5]))
    with pytest.raises(InvalidArgumentError, match="baseline"):
        rewards.get("rlpr")(reference_logprobs=logs([0.5]), baseline=[0.1, 0.2])
    with pytest.raises(InvalidArgumentError, match="group_ids"):
        rewards.get("jepo")(reference_logprobs=logs([0.5]))
    with pytest.raises((UnknownNameError, InvalidArgumentError)):
        rewards.get("rlpr", reduce="median")


def test_expected_verifree_is_accuracy_with_less_variance() -> None:
    """E over the own answer of 1[y = y*] is r; r itself has the smaller variance."""
    rng = np.random.default_rng(0)
    r = rng.beta(0.5, 1.0, size=20_000)
    correct = rng.random(r.size) < r
    values = rewards.get("verifree")(reference_logprobs=[[math.log(one)] for one in r]).values
    assert values.mean() == pytest.approx(correct.mean(), abs=0.01)
    assert values.var() == pytest.approx(0.0889, abs=0.005)
    assert correct.var() == pytest.approx(0.2222, abs=0.005)


# ---- rows that a table left empty -------------------------------------------------------------------


@pytest.mark.parametrize("nothing", [None, float("nan"), np.float32("nan"), []])
@pytest.mark.parametrize("status", [None, float("nan"), "", "ok"])
def test_what_a_table_has_no_value_for_is_no_score(nothing, status) -> None:
    batch = rewards.get("rlpr")(reference_logprobs=[nothing, [-0.1]], reference_status=[status, "ok"])
    assert batch.status == ["failed:no_reference_logprobs", "ok"]
    assert batch.values[0] == rewards.get("rlpr").fail_reward
    with pytest.raises(InvalidArgumentError, match=r"reference_status\[0\]"):
        rewards.get("rlpr")(reference_logprobs=[[-0.1]], reference_status=[3])
    with pytest.raises(InvalidArgumentError, match="reference_logprobs"):
        rewards.get("rlpr")(reference_logprobs=[-0.1, [-0.1]])


def test_nover_leaves_a_row_without_a_length_out_of_the_ranking() -> None:
    columns = {"reference_logprobs": [[-0.1], [-0.5], [-0.9]], "group_ids": [1, 1, 1]}
    for broken in (None, float("nan"), float("inf"), -1):
        batch = rewards.get("nover")(reasoning_tokens=[broken, 10, 10], **columns)
        assert batch.status == ["failed:no_reasoning_tokens", "ok", "ok"]
        assert batch.components["rank"].tolist() == [0.0, 1.0, 0.5]
        assert np.isfinite(batch.values).all()
    far = rewards.get("nover", floor=-1e6)(
        reference_logprobs=[[-9e5], [-8e5]], reasoning_tokens=[1, 1], group_ids=[1, 1]
    )
    assert far.components["rank"].tolist() == [0.5, 1.0]
    assert np.isfinite(far.components["perplexity"]).all()


def test_darl_says_why_the_own_answer_has_no_likelihood() -> None:
    reward = rewards.get("darl")
    told = ["empty_answer", "no_prompt_logprobs", "ok", None]
    batch = reward(reference_logprobs=[[-0.1]] * 4, own_logprobs=[[], [], [-0.2], [-0.2]], own_status=told)
    assert batch.status == ["unparsed", "failed:no_prompt_logprobs", "ok", "ok"]
    assert batch.reason[:2] == told[:2]
    assert "own_status" in reward.optional
    assert rewards.get("darl", beta=0.0)(reference_logprobs=[[-0.1]], own_status=["not_asked"]).status == ["ok"]


@pytest.mark.parametrize(
    ("name", "params", "scores", "baselines"),
    [
        ("rlpr", {"clip": False}, (0.0, 1.0), (0.0, 1.0)),
        ("rlpr", {"clip": True}, (0.0, 1.0), (0.0, 1.0)),
        ("rlpr", {"clip": False, "reduce": "mean_log"}, (-200.0, 0.0), (-200.0, 0.0)),
        ("rlpr", {"clip": True, "reduce": "mean_log"}, (-200.0, 0.0), (-200.0, 0.0)),
        ("darl", {"alpha": 2.0, "clip": True}, (0.0, 1.0), (0.0, 1.0)),
        ("darl", {"alpha": 2.0, "clip": False, "beta": 0.0}, (0.0, 1.0), (0.0, 1.0)),
    ],
)
def test_the_declared_range_is_attained_with_a_baseline(name, params, scores, baselines) -> None:
    reward = rewards.get(name, debias=True, **params)
    found = []
    for score in scores:
        for baseline in baselines:
            log = score if params.get("reduce") else math.log(score) if score else -math.inf
            columns = {"own_logprobs": [[-math.inf]]} if name == "darl" else {}
            for texts in ([GOOD], [BAD], []):  # without completions there is no format term
                found += reward(texts, reference_logprobs=[[log]], baseline=[baseline], **columns).values.tolist()
    assert min(found) == pytest.approx(reward.min_value)
    if not (name == "darl" and reward.beta):  # whose bonus needs an own answer just so likely
        assert max(found) == pytest.approx(reward.max_value)
    assert max(found) <= reward.max_value + 1e-12
    for outside in (5.0, -0.5 if not params.get("reduce") else 0.5, float("nan")):
        row = reward([GOOD], reference_logprobs=[[-0.1]], own_logprobs=[[-0.1]], baseline=[outside])
        assert row.status == ["failed:no_baseline"]
        assert row.values[0] == reward.fail_reward


def test_jepo_attains_its_range() -> None:
    reward = rewards.get("jepo", floor=-30.0)
    batch = reward(reference_logprobs=[[0.0], [-50.0]], group_ids=[1, 1])
    assert batch.values.max() == pytest.approx(reward.max_value, abs=1e-12)
    assert batch.values.min() == pytest.approx(reward.min_value, abs=1e-9)
