"""Multi-answer rewards: credit modes, Brier per slot, the sum rule, and what they must not pay for."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardkit import rewards
from rewardkit.errors import HarmfulSettingWarning, InvalidArgumentError
from tests.completions import multi, single

MODES = ("sum", "frac", "any", "recall")
NAMES = ("alpha", "beta", "gamma", "delta")
unit = st.floats(0.0, 1.0)
confidences = st.lists(unit, min_size=3, max_size=3)


def quietly(name: str, **params) -> rewards.Reward:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HarmfulSettingWarning)
        return rewards.get(name, **params)


def value(reward: rewards.Reward, text: str, golds: list[str]) -> float:
    got = reward([text], [golds], gold_kind="set")
    assert got.status == ["ok"], got.reason
    return float(got.values[0])


def expected(reward: rewards.Reward, text: str, p: list[float]) -> float:
    """Over independent truths of the answers in NAMES, beside two golds that nobody names."""
    outcomes = list(itertools.product((0, 1), repeat=len(p)))
    chance = [math.prod(q if c else 1.0 - q for q, c in zip(p, right, strict=True)) for right in outcomes]
    golds = [[name for name, c in zip(NAMES, right, strict=False) if c] + ["n1", "n2"] for right in outcomes]
    got = reward([text] * len(outcomes), golds, gold_kind="set")
    assert set(got.status) == {"ok"}, got.reason
    return float(np.dot(chance, got.values))


# ---- credit ----------------------------------------------------------------------------------------------------------


def test_credit_modes_by_hand() -> None:
    text = multi(("alpha", 0), ("beta", 0), ("x", 0), format="multi_rlvr")
    got = {mode: value(rewards.get("multi_rlvr", credit_mode=mode), text, [*NAMES]) for mode in MODES}
    assert got == pytest.approx({"sum": 2.0, "frac": 2 / 3, "any": 1.0, "recall": 0.5})


def test_two_ways_to_write_one_gold_credit_once() -> None:
    text, golds = multi(("NYC", 0), ("New York", 0), format="multi_rlvr"), [[["NYC", "New York"], ["Rome"]]]
    distinct = rewards.get("multi_rlvr", max_answers=2)([text], golds)
    assert distinct.values.tolist() == [1.0]
    assert {k: v.tolist() for k, v in distinct.components.items()} == {
        "correct": [1.0],
        "found": [1.0],
        "coverage": [0.5],
        "n_answers": [2.0],
        "unique": [2.0],
        "wellformed": [1.0],
    }
    assert rewards.get("multi_rlvr", max_answers=2, credit="independent")([text], golds).values.tolist() == [2.0]


@given(right=st.booleans(), mode=st.sampled_from(MODES))
def test_one_answer_is_rlvr(right: bool, mode: str) -> None:
    gold = ["alpha" if right else "x"]
    one = rewards.get("multi_rlvr", max_answers=1, credit_mode=mode)
    text = multi(("alpha", 0), format="multi_rlvr")
    assert value(one, text, gold) == value(rewards.get("rlvr"), single("alpha", format="ta"), gold)


@given(golds=st.sets(st.sampled_from(["alpha", "beta", "x"]), min_size=1, max_size=1))
def test_with_one_gold_sum_is_any(golds: set[str]) -> None:
    text = multi(*((name, 0) for name in NAMES[:3]), format="multi_rlvr")
    got = [value(rewards.get("multi_rlvr", credit_mode=mode), text, [*golds]) for mode in ("sum", "any")]
    assert got[0] == got[1]


def test_as_many_answers_as_golds_are_best() -> None:
    reward = rewards.get("multi_rlvr", max_answers=4)
    every = [
        multi(*((name, 0) for name in names), format="multi_rlvr") for names in itertools.permutations((*NAMES, "x"), 4)
    ]
    got = reward(every, [list(NAMES)] * len(every), gold_kind="set").values
    assert got.max() == reward.max_value == 4.0
    assert {every[i].count("x") for i in np.flatnonzero(got == 4.0)} == {0}


# ---- duplicates ------------------------------------------------------------------------------------------------------


def test_copies_pay_only_where_every_guard_is_off() -> None:
    """p = (.5, .2, .1): three copies of the best answer expect 1.5 under independent credit, three answers .8."""
    copies = multi(*[("alpha", 0)] * 3, format="multi_rlvr")
    honest = multi(*((name, 0) for name in NAMES[:3]), format="multi_rlvr")
    with pytest.warns(HarmfulSettingWarning, match="copies"):
        off = rewards.get("multi_rlvr", credit="independent", on_duplicate="allow")
    assert expected(off, copies, [0.5, 0.2, 0.1]) == pytest.approx(1.5)
    assert expected(off, honest, [0.5, 0.2, 0.1]) == pytest.approx(0.8)
    guarded = rewards.get("multi_rlvr")([copies], [["alpha"]])
    assert (guarded.status, guarded.reason) == (["unparsed"], ["duplicate_answers"])
    for one in (
        rewards.get("multi_rlvr", on_duplicate="merge", credit="independent"),
        rewards.get("multi_rlvr", on_duplicate="allow"),
    ):
        assert expected(one, copies, [0.5, 0.2, 0.1]) == pytest.approx(0.5)


def test_duplicates_are_judged_by_the_relation_that_judges_correctness() -> None:
    """ "the flu" and "flu": the released check strips and lowers, and calls them different; then both score."""
    text = multi(("the flu", 0.5), ("Flu", 0.4), ("cold", 0.1))
    strict = rewards.get("multi_rlcr", match_mode="official")([text], ["flu"])
    assert strict.reason == ["duplicate_answers"]
    lenient = rewards.get("multi_rlcr", match_mode="official", mode="lenient")([text], ["flu"])
    assert lenient.components["n_answers"].tolist() == lenient.components["unique"].tolist() == [2.0]
    assert lenient.components["confidence_sum"] == pytest.approx([0.6])  # the larger of .5 and .4, and .1
    assert lenient.components["found"].tolist() == [1.0]


def test_unique_is_counted_where_duplicates_are_let_be() -> None:
    got = rewards.get("multi_rlcr", on_duplicate="allow")([multi(("a1", 0.2), ("A1", 0.1), ("b1", 0.1))], ["b1"])
    assert (got.components["n_answers"].tolist(), got.components["unique"].tolist()) == ([3.0], [2.0])


# ---- calibration -----------------------------------------------------------------------------------------------------


@given(q=unit, right=st.booleans(), mode=st.sampled_from(MODES))
def test_one_answer_is_rlcr(q: float, right: bool, mode: str) -> None:
    gold = ["alpha" if right else "x"]
    one = rewards.get("multi_rlcr", max_answers=1, credit_mode=mode)
    assert value(one, multi(("alpha", q)), gold) == pytest.approx(
        value(rewards.get("rlcr"), single("alpha", q), gold), abs=1e-15
    )


@given(q=confidences, golds=st.sets(st.sampled_from([*NAMES]), min_size=2), order=st.permutations(range(3)))
def test_order_of_answers_is_no_matter(q: list[float], golds: set[str], order: list[int]) -> None:
    pairs = list(zip(NAMES, q, strict=False))
    for mode in ("sum", "frac", "recall"):
        reward = rewards.get("multi_rlcr", credit_mode=mode)
        assert value(reward, multi(*pairs), sorted(golds)) == pytest.approx(
            value(reward, multi(*(pairs[i] for i in order)), sorted(golds)), abs=1e-15
        )


@given(q=confidences, golds=st.sets(st.sampled_from([*NAMES]), min_size=2))
def test_value_is_credit_less_squared_errors_and_logged(q: list[float], golds: set[str]) -> None:
    errors = [(one - (name in golds)) ** 2 for one, name in zip(q, NAMES, strict=False)]
    reward, total = rewards.get("multi_rlcr"), rewards.get("multi_rlcr", reduce="sum")
    right = len(golds & set(NAMES[:3]))
    assert value(reward, multi(*zip(NAMES, q, strict=False)), sorted(golds)) == pytest.approx(right - sum(errors) / 3)
    assert value(total, multi(*zip(NAMES, q, strict=False)), sorted(golds)) == pytest.approx(right - sum(errors))
    got = reward([multi(*zip(NAMES, q, strict=False))], [sorted(golds)], gold_kind="set")
    assert got.components["found"] + got.components["brier"] - 1.0 == pytest.approx(got.values)


def test_best_confidence_is_each_marginal_whatever_the_dependence() -> None:
    rng = np.random.default_rng(0)
    grid = [multi(("alpha", a / 10), ("beta", b / 10)) for a in range(11) for b in range(11)]
    reward = rewards.get("multi_rlcr", max_answers=2)
    outcomes = [["nobody", "none"], ["alpha", "none"], ["beta", "none"], ["alpha", "beta"]]
    table = np.array([reward(grid, [golds] * len(grid), gold_kind="set").values for golds in outcomes])
    for _ in range(50):
        both = rng.integers(0, 11)  # joint chances in tenths, from perfectly exclusive to perfectly tied
        joint = np.array([0, rng.integers(0, 11 - both), 0, both])
        joint[2] = rng.integers(0, 11 - joint.sum())
        joint[0] = 10 - joint.sum()
        best = int((joint / 10 @ table).argmax())
        assert divmod(best, 11) == (joint[1] + joint[3], joint[2] + joint[3])


@pytest.mark.parametrize("format", ["multi", "multi_split", "multi_noanalysis"])
def test_all_layouts_score_alike(format: str) -> None:
    pairs = [("alpha", 0.5), ("beta", 0.3), ("gamma", 0.1)]
    assert value(rewards.get("multi_rlcr", format=format), multi(*pairs, format=format), ["beta"]) == pytest.approx(
        1.0 - (0.25 + 0.49 + 0.01) / 3
    )


# ---- the sum rule ----------------------------------------------------------------------------------------------------


def test_SR_05_sum_rule_has_a_tolerance_and_spares_several_golds() -> None:
    reward = rewards.get("multi_rlcr", max_answers=4)
    exact = multi(*zip(NAMES, (0.05, 0.55, 0.3, 0.1), strict=True))
    assert 0.05 + 0.55 + 0.3 + 0.1 > 1.0
    assert reward([exact], ["alpha"]).status == ["ok"]
    nearly = multi(("alpha", 1.0), ("beta", 2e-10), ("gamma", 0.0), ("delta", 0.0))
    assert reward([nearly], ["alpha"]).status == ["ok"]
    over = multi(("alpha", 0.5), ("beta", 0.52), ("gamma", 0.0), ("delta", 0.0))
    assert reward([over], ["alpha"]).reason == ["confidences_over_one"]
    assert reward([over], [["alpha", "beta"]], gold_kind="set").status == ["ok"]
    assert rewards.get("multi_rlcr", max_answers=4, exclusive=False)([over], ["alpha"]).status == ["ok"]
    assert rewards.get("multi_rlcr", max_answers=4, exclusive=True)([over], [["a", "b"]], gold_kind="set").status == [
        "unparsed"
    ]
    lenient = rewards.get("multi_rlcr", max_answers=4, mode="lenient")([over], ["alpha"])
    assert lenient.components["confidence_sum"] == pytest.approx([1.0])


@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_SR_05_every_two_decimal_list_that_sums_to_one_passes(k: int) -> None:
    rng = np.random.default_rng(k)
    cuts = np.sort(rng.integers(0, 101, size=(2000, k - 1)), axis=1)
    shares = np.diff(np.concatenate([np.zeros((2000, 1)), cuts, np.full((2000, 1), 100)], axis=1), axis=1) / 100
    texts = [multi(*((f"n{i}", float(q)) for i, q in enumerate(row))) for row in shares]
    assert set(rewards.get("multi_rlcr", max_answers=k)(texts, ["x"] * 2000).status) == {"ok"}


def test_sum_rule_with_several_golds_would_make_honest_forecasters_shrink() -> None:
    """Best confidences under the rule are the projection (.9, .8, .7) - 1.4/3, in thirtieths (13, 10, 7)."""
    near = [(a, b, c) for a in range(10, 17) for b in range(7, 14) for c in range(4, 11) if a + b + c <= 30]
    reward = rewards.get("multi_rlcr", exclusive=True)
    values = [
        expected(reward, multi(*zip(NAMES, (a / 30, b / 30, c / 30), strict=False)), [0.9, 0.8, 0.7])
        for a, b, c in near
    ]
    assert near[int(np.argmax(values))] == (13, 10, 7)
    free = rewards.get("multi_rlcr", exclusive=False)
    honest = expected(free, multi(("alpha", 0.9), ("beta", 0.8), ("gamma", 0.7)), [0.9, 0.8, 0.7])
    shrunk = expected(free, multi(("alpha", 13 / 30), ("beta", 1 / 3), ("gamma", 7 / 30)), [0.9, 0.8, 0.7])
    assert honest > shrunk


def test_sum_rule_does_not_bind_where_answers_exclude_each_other() -> None:
    reward = rewards.get("multi_rlcr", max_answers=2)
    grid = [(a, b) for a in range(11) for b in range(11 - a)]
    texts = [multi(("alpha", a / 10), ("beta", b / 10)) for a, b in grid]
    table = np.array([reward(texts, [gold] * len(texts)).values for gold in ("alpha", "beta", "x")])
    assert grid[int((np.array([0.6, 0.3, 0.1]) @ table).argmax())] == (6, 3)


# ---- range -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sum", "frac", "any"])
@pytest.mark.parametrize("exclusive", [None, True])
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (0.1, 1.0), (2.0, 0.5), (0.0, 1.0)])
def test_declared_range_is_the_brute_forced_one(mode: str, exclusive: bool | None, k: int, weights) -> None:
    reward = quietly("multi_rlcr", max_answers=k, credit_mode=mode, exclusive=exclusive, weights=weights, force=True)
    levels = sorted({0.0, 1.0, *(1.0 / n for n in range(1, k + 1))})
    texts = [multi(*zip(NAMES, q, strict=False)) for q in itertools.product(levels, repeat=k)]
    golds = [
        [name for name, c in zip(NAMES, right, strict=False) if c] + ["n1", "n2"]
        for right in itertools.product((0, 1), repeat=k)
    ]
    seen = []
    for gold in golds:
        got = reward(texts, [gold] * len(texts), gold_kind="set")
        seen += [v for v, status in zip(got.values, got.status, strict=True) if status == "ok"]
    assert min(seen) == pytest.approx(reward.min_value, abs=1e-12)
    assert max(seen) == pytest.approx(reward.max_value, abs=1e-12)


def test_published_minima() -> None:
    for k in (1, 2, 3, 5):
        assert rewards.get("multi_rlcr", max_answers=k).min_value == -1.0
        assert rewards.get("multi_rlcr", max_answers=k, exclusive=True).min_value == pytest.approx(-1.0 / k)
        assert rewards.get("multi_rlcr", max_answers=k).max_value == k


# ---- harmful settings ------------------------------------------------------------------------------------------------


def test_any_credit_with_several_golds_pays_for_junk() -> None:
    honest, junk = multi(("alpha", 0.9), ("beta", 0.3)), multi(("alpha", 0.9), ("junk", 0.0))
    pays = rewards.get("multi_rlcr", max_answers=2, credit_mode="any", exclusive=False, force=True)
    assert expected(pays, honest, [0.9, 0.3]) == pytest.approx(0.780)
    assert expected(pays, junk, [0.9, 0.3]) == pytest.approx(0.855)
    for mode in ("sum", "frac"):
        reward = rewards.get("multi_rlcr", max_answers=2, credit_mode=mode)
        assert expected(reward, honest, [0.9, 0.3]) > expected(reward, junk, [0.9, 0.3])


def test_any_credit_with_several_golds_is_refused_or_warned_of() -> None:
    with pytest.raises(InvalidArgumentError, match="credit_mode"):
        rewards.get("multi_rlcr", credit_mode="any", exclusive=False)
    reward = rewards.get("multi_rlcr", credit_mode="any", max_answers=1)
    reward([multi(("alpha", 0.5))], ["alpha"])
    with pytest.warns(HarmfulSettingWarning, match="junk"):
        reward([multi(("alpha", 0.5))], [["alpha", "beta"]], gold_kind="set")


@pytest.mark.parametrize(
    ("params", "warns"),
    [
        ({"weights": (1 / 3, 1.0)}, False),
        ({"weights": (0.33, 1.0)}, True),
        ({"weights": (1.0, 1.0), "credit_mode": "frac"}, False),
        ({"weights": (0.99, 1.0), "credit_mode": "frac"}, True),
        ({"weights": (0.99, 1.0), "reduce": "sum"}, True),
        ({"weights": (0.0, 1.0)}, True),
    ],
)
def test_too_little_credit_for_a_right_answer_warns(params, warns) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rewards.get("multi_rlcr", **params)
    assert [one.category for one in caught] == [HarmfulSettingWarning] * warns


@pytest.mark.parametrize(
    ("params", "argument"),
    [
        ({"max_answers": 0}, "max_answers"),
        ({"max_answers": 2.0}, "max_answers"),
        ({"max_answers": True}, "max_answers"),
        ({"credit_mode": "all"}, "credit_mode"),
        ({"credit": "greedy"}, "credit"),
        ({"exclusive": "yes"}, "exclusive"),
        ({"reduce": "max"}, "reduce"),
    ],
)
def test_bad_parameters_are_named(params, argument) -> None:
    with pytest.raises(InvalidArgumentError, match=argument):
        rewards.get("multi_rlcr", **params)


# ---- edge cases ------------------------------------------------------------------------------------------------------


def test_number_of_answers() -> None:
    two, four = (multi(*((f"n{i}", 0.1) for i in range(n))) for n in (2, 4))
    strict = rewards.get("multi_rlcr")([two, four], ["n1", "n3"])
    assert strict.reason == ["too_few_answers", "too_many_answers"]
    lenient = rewards.get("multi_rlcr", mode="lenient")([two, four], ["n1", "n3"])
    assert lenient.values == pytest.approx([1.0 - (0.81 + 0.01) / 3, -0.03 / 3])  # the denominator stays K


def test_SR_08_columns_do_not_depend_on_what_completions_say() -> None:
    reward = rewards.get("multi_rlcr", mode="lenient")
    texts = [multi(*((f"n{i}", 0.1) for i in range(n))) for n in (1, 2, 3)] + ["?"]
    for batch in (texts, texts[::-1], texts[:1], texts[3:]):
        got = reward(batch, ["n0"] * len(batch))
        assert tuple(got.components) == reward.component_names
        assert {column.shape for column in got.components.values()} == {(len(batch),)}
        assert {column.dtype for column in got.components.values()} == {np.dtype(np.float64)}


def test_BR_062_a_missing_closing_tag_fails_the_row_and_no_other() -> None:
    text = multi(("a", 0.1), ("b", 0.2), ("c", 0.3))
    broken = [text.replace(f"</answer{i}>", "") for i in (1, 2, 3)]
    got = rewards.get("multi_rlcr")([text, *broken], ["b"] * 4)
    assert got.status == ["ok"] + ["unparsed"] * 3
