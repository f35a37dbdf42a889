"""Distributions over answers: log, Brier and backoff; what they elicit, and what they must not pay for."""

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
from rewardkit.groups import group_advantages
from tests.completions import hypotheses

NAMES = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
FINE = 1e-9  # a clip that stays out of the way of closed forms
BACKOFFS = ("drop", "residual", "renorm")


def quietly(name: str, **params) -> rewards.Reward:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HarmfulSettingWarning)
        return rewards.get(name, **params)


def value(reward: rewards.Reward, text: str, gold: object, **columns) -> float:
    got = reward([text], [gold], gold_kind="aliases", **{name: [column] for name, column in columns.items()})
    assert got.status == ["ok"], got.reason
    return float(got.values[0])


def split(tenths: tuple[int, ...]) -> str:
    """Hypotheses from NAMES with these weights in tenths, the rest on Other."""
    return hypotheses(*((NAMES[i], w / 10) for i, w in enumerate(tenths)), other=(10 - sum(tenths)) / 10)


@st.composite
def weights(draw: st.DrawFn, n: int = 3) -> list[float]:
    """n + 1 hundredths that sum to one."""
    cuts = sorted(draw(st.lists(st.integers(0, 100), min_size=n, max_size=n)))
    return [(b - a) / 100 for a, b in itertools.pairwise([0, *cuts, 100])]


def text_of(w: list[float]) -> str:
    return hypotheses(*zip(NAMES, w[:-1], strict=False), other=w[-1])


# ---- log and Brier ---------------------------------------------------------------------------------------------------


def test_by_hand() -> None:
    text = hypotheses(("flu", 0.6), ("cold", 0.3), other=0.1)
    log, brier = quietly("hypotheses_log"), rewards.get("hypotheses_brier")
    assert value(log, text, "flu") == pytest.approx(math.log(0.6))
    assert value(log, text, "measles") == pytest.approx(math.log(0.1))
    assert value(log, hypotheses(("flu", 1.0), other=0.0), "measles") == pytest.approx(math.log(0.01))
    assert value(brier, text, "flu") == pytest.approx(-(0.16 + 0.09 + 0.01))
    assert value(brier, text, "measles") == pytest.approx(-(0.36 + 0.09 + 0.81))
    assert value(rewards.get("hypotheses_brier", halve=True), text, "flu") == pytest.approx(-0.13)


def test_a_gold_written_in_two_ways_counts_together() -> None:
    text = hypotheses(("NYC", 0.3), ("New York", 0.2), other=0.5)
    gold = ["NYC", "New York"]
    assert value(quietly("hypotheses_log"), text, gold) == pytest.approx(math.log(0.5))
    assert value(rewards.get("hypotheses_brier"), text, gold) == pytest.approx(-0.5)
    got = quietly("hypotheses_log")([text], [gold], gold_kind="aliases")
    assert {name: column.tolist() for name, column in got.components.items()} == {
        "correct": [1.0],
        "confidence": [0.3],
        "found": [1.0],
        "assigned": [0.5],
        "other": [0.5],
        "n_answers": [2.0],
        "wellformed": [1.0],
    }


@given(w=weights(), cut=st.integers(0, 100))
def test_splitting_a_hypothesis_between_two_ways_to_write_it_changes_nothing(w: list[float], cut: int) -> None:
    whole = text_of(w)
    parts = hypotheses(
        ("NYC", w[0] * cut / 100),
        ("New York", w[0] * (100 - cut) / 100),
        *zip(NAMES[1:], w[1:3], strict=False),
        other=w[3],
    )
    for reward in (quietly("hypotheses_log"), rewards.get("hypotheses_brier")):
        for gold in (["alpha", "NYC", "New York"], ["beta"]):
            if gold == ["beta"] and reward.name == "hypotheses_brier":
                continue  # the quadratic rule sees how wrong weight is spread: only the gold's own class is merged
            assert value(reward, parts, gold) == pytest.approx(value(reward, whole, gold), abs=1e-12)


@given(w=weights(), order=st.permutations(range(3)))
def test_order_of_hypotheses_is_no_matter(w: list[float], order: list[int]) -> None:
    pairs = list(zip(NAMES, w[:3], strict=False))
    for reward in (quietly("hypotheses_log"), rewards.get("hypotheses_brier")):
        for gold in (*NAMES[:3], "x"):
            assert value(reward, hypotheses(*(pairs[i] for i in order), other=w[3]), gold) == pytest.approx(
                value(reward, hypotheses(*pairs, other=w[3]), gold), abs=1e-15
            )


@pytest.mark.parametrize("name", ["hypotheses_log", "hypotheses_brier"])
@pytest.mark.parametrize("p", [(5, 3), (1, 2), (4, 4), (2, 7)])
@pytest.mark.parametrize("extra", [{}, {"correctness_weight": 5.0}, {"min_k": 2, "soft_diversity": 4}])
def test_honest_weights_of_a_given_list_are_best(name: str, p: tuple[int, int], extra: dict) -> None:
    reward = quietly(name, **extra)
    grid = [(a, b) for a in range(11) for b in range(11 - a)]
    texts = [split(point) for point in grid]
    table = np.array([reward(texts, [gold] * len(texts)).values for gold in ("alpha", "beta", "x")])
    expected = np.array([*p, 10 - sum(p)]) / 10 @ table
    assert grid[int(expected.argmax())] == p
    assert np.sort(expected)[-2] < expected.max() - 1e-9


def test_splitting_other_lowers_the_expected_log_score_by_a_known_amount() -> None:
    """(1 - Q) h(r): the reason why a policy trained on the pure log score lists ever fewer hypotheses."""
    p_a, p_b = 0.5, 0.3
    one, two = hypotheses(("alpha", 0.5), other=0.5), hypotheses(("alpha", 0.5), ("beta", 0.3), other=0.2)
    reward = quietly("hypotheses_log")
    short, long = ([value(reward, text, gold) for gold in ("alpha", "beta", "x")] for text in (one, two))
    loss = np.dot([p_a, p_b, 0.2], np.subtract(short, long))
    r = p_b / (1.0 - p_a)
    assert loss == pytest.approx((1.0 - p_a) * -(r * math.log(r) + (1 - r) * math.log(1 - r)))


def test_pure_log_score_warns_and_a_junk_hypothesis_shows_why() -> None:
    with pytest.warns(HarmfulSettingWarning, match="junk"):
        pure = rewards.get("hypotheses_log")
    junk, honest = hypotheses(("junk", 0.0), other=1.0), hypotheses(("alpha", 0.6), other=0.4)

    def expected(reward: rewards.Reward, text: str) -> float:
        return 0.6 * value(reward, text, "alpha") + 0.4 * value(reward, text, "x")

    assert expected(pure, junk) == pytest.approx(0.0)
    assert expected(pure, junk) > expected(pure, honest)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        remedied = rewards.get("hypotheses_log", correctness_weight=4.6)
    assert expected(remedied, honest) > expected(remedied, junk)
    assert value(rewards.get("hypotheses_backoff"), junk, "alpha", prior_logprob=-3.0) == 0.0


def test_the_heaviest_is_the_first_of_equals() -> None:
    reward = rewards.get("hypotheses_brier", correctness_weight=10.0)
    text = hypotheses(("alpha", 0.4), ("beta", 0.4), other=0.2)
    assert value(reward, text, "alpha") - value(reward, text, "beta") == pytest.approx(10.0)


def test_diversity_terms_count_distinct_answers() -> None:
    plain, minimum, soft = (
        quietly("hypotheses_log", **extra) for extra in ({}, {"min_k": 3, "min_k_penalty": 0.5}, {"soft_diversity": 3})
    )
    for n in range(1, 6):
        text = hypotheses(*((name, 0.1) for name in NAMES[:n]), other=1.0 - n / 10)
        assert value(minimum, text, "x") - value(plain, text, "x") == pytest.approx(-0.5 if n < 3 else 0.0)
        assert value(soft, text, "x") - value(plain, text, "x") == pytest.approx(min(0.0, math.log(n / 3)))
    twice = hypotheses(("alpha", 0.1), ("Alpha", 0.2), ("beta", 0.1), other=0.6)
    assert minimum([twice], ["x"]).reason == ["duplicate_answers"]
    merged = quietly("hypotheses_log", min_k=3, min_k_penalty=0.5, on_duplicate="merge")
    assert value(merged, twice, "alpha") == pytest.approx(math.log(0.1 + 0.2) - 0.5)


def test_duplicates_never_pay() -> None:
    """Merged weights add up, so naming an answer twice is naming it once with the sum."""
    once, twice = hypotheses(("alpha", 0.5), other=0.5), hypotheses(("alpha", 0.25), ("ALPHA", 0.25), other=0.5)
    for name in ("hypotheses_log", "hypotheses_brier"):
        assert quietly(name)([twice], ["alpha"]).status == ["unparsed"]
        for gold in ("alpha", "x"):
            merged = quietly(name, on_duplicate="merge")
            assert value(merged, twice, gold) == pytest.approx(value(merged, once, gold))
        with pytest.raises(InvalidArgumentError, match="on_duplicate"):
            rewards.get(name, on_duplicate="allow")


def test_several_golds_are_warned_of() -> None:
    text = hypotheses(("alpha", 0.6), ("beta", 0.3), other=0.1)
    with pytest.warns(HarmfulSettingWarning, match="several golds"):
        got = rewards.get("hypotheses_brier")([text], [["alpha", "beta"]], gold_kind="set")
    assert got.components["assigned"] == pytest.approx([0.9])


def test_weights_and_empty_lists() -> None:
    reward = rewards.get("hypotheses_brier")
    rows = [
        hypotheses(("alpha", 0.6), other=0.39),
        hypotheses(("alpha", 0.9), other=0.3),
        hypotheses(("alpha", 0.0), other=0.0),
        hypotheses(other=1.0),
        hypotheses(("alpha", 0.6), other=0.4).replace("<other>0.4</other>", ""),
    ]
    strict = reward(rows, ["alpha"] * 5)
    assert strict.reason[0] == ""
    assert strict.components["assigned"][0] == pytest.approx(0.6 / 0.99)
    assert strict.reason[1:3] == ["weights_bad_sum", "weights_all_zero"]
    assert strict.status == ["ok"] + ["unparsed"] * 4
    lenient = rewards.get("hypotheses_brier", mode="lenient")(rows, ["alpha"] * 5)
    assert lenient.components["assigned"] == pytest.approx([0.6 / 0.99, 0.75, 0.0, 0.0, 0.6])


# ---- backoff ---------------------------------------------------------------------------------------------------------


def columns(backoff: str, listed: float = -40.0) -> dict[str, float]:
    return {"listed_prior_logprob": listed} if backoff == "renorm" else {}


def test_backoff_by_hand() -> None:
    text, prior, mass = hypotheses(("alpha", 0.6), other=0.4), math.log(0.05), math.log(0.2)
    wanted = {"drop": (0.6, 0.4 * 0.05), "residual": (0.6 + 0.4 * 0.05, 0.4 * 0.05), "renorm": (0.6, 0.4 * 0.05 / 0.8)}
    for backoff, (listed, unlisted) in wanted.items():
        for lift in (True, False):
            reward = rewards.get("hypotheses_backoff", backoff=backoff, lift=lift, floor=None if lift else -10.0)
            extra = columns(backoff, mass)
            off = prior if lift else 0.0
            assert value(reward, text, "alpha", prior_logprob=prior, **extra) == pytest.approx(math.log(listed) - off)
            assert value(reward, text, "x", prior_logprob=prior, **extra) == pytest.approx(math.log(unlisted) - off)


def test_mode_names_the_backoff_too() -> None:
    assert rewards.get("hypotheses_backoff", mode="residual") == rewards.get("hypotheses_backoff", backoff="residual")
    assert rewards.get("hypotheses_backoff", mode="lenient").mode == "lenient"


@given(w=weights(), prior=st.floats(-50.0, 0.0))
def test_recovered_identities(w: list[float], prior: float) -> None:
    drop, residual, renorm = (rewards.get("hypotheses_backoff", backoff=one) for one in BACKOFFS)
    text = text_of(w)
    unlisted = value(drop, text, "x", prior_logprob=prior)
    assert value(residual, text, "x", prior_logprob=prior) == pytest.approx(unlisted, abs=1e-12)
    for gold in ("alpha", "x"):
        nothing = value(renorm, text, gold, prior_logprob=prior, listed_prior_logprob=-math.inf)
        assert nothing == pytest.approx(value(drop, text, gold, prior_logprob=prior), abs=1e-12)


@given(
    w=st.lists(weights(), min_size=4, max_size=4), prior=st.floats(-30.0, -0.1), gold=st.sampled_from(["alpha", "x"])
)
def test_lift_changes_no_advantage(w: list[list[float]], prior: float, gold: str) -> None:
    for backoff in BACKOFFS:
        lift = rewards.get("hypotheses_backoff", backoff=backoff)
        plain = rewards.get("hypotheses_backoff", backoff=backoff, lift=False, fail_mode="per_example")
        extra = {name: [one] * 4 for name, one in columns(backoff, -1.0).items()}
        made = [
            one([text_of(row) for row in w], [gold] * 4, prior_logprob=[prior] * 4, **extra).values
            for one in (lift, plain)
        ]
        np.testing.assert_allclose(made[0] - made[1], -prior, atol=1e-9)
        for scale in ("none", "group"):
            np.testing.assert_allclose(
                group_advantages(made[0][None], scale=scale), group_advantages(made[1][None], scale=scale), atol=1e-9
            )


@pytest.mark.parametrize("backoff", BACKOFFS)
def test_other_alone_scores_nothing_over_the_prior(backoff: str) -> None:
    reward = rewards.get("hypotheses_backoff", backoff=backoff)
    text = hypotheses(("junk", 0.0), other=1.0)
    assert value(reward, text, "x", prior_logprob=-7.0, **columns(backoff)) == pytest.approx(0.0, abs=1e-12)


# Worlds of six answers: the truth p, the prior l over the same answers with some mass left for other strings.


def world(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(6, 0.8)), 0.9 * rng.dirichlet(np.full(6, 0.8))


def optimum(backoff: str, p: np.ndarray, prior: np.ndarray, listed: tuple[int, ...]) -> tuple[np.ndarray, float]:
    """Honest weights of a list, and Other's."""
    rest = 1.0 - p[list(listed)].sum()
    if backoff != "residual":
        return p[list(listed)], rest
    other = rest / (1.0 - prior[list(listed)].sum())
    return p[list(listed)] - other * prior[list(listed)], other


def honest(backoff: str, p: np.ndarray, prior: np.ndarray, listed: tuple[int, ...]) -> float | None:
    """Expected reward of a list with its best weights, computed by the reward; None where some weight would be negative."""
    w, other = optimum(backoff, p, prior, listed)
    if (w < 0.0).any():
        return None
    text = hypotheses(*((NAMES[i], float(one)) for i, one in zip(listed, w, strict=True)), other=float(other))
    extra = {"listed_prior_logprob": [math.log(prior[list(listed)].sum())] * 6} if backoff == "renorm" else {}
    reward = rewards.get("hypotheses_backoff", backoff=backoff, max_answers=6, epsilon=FINE)
    got = reward([text] * 6, list(NAMES), prior_logprob=np.log(prior), **extra)
    assert got.status == ["ok"] * 6, got.reason
    return float(p @ got.values)


def divergence(r: float, s: float) -> float:
    return r * math.log(r / s) + (1 - r) * math.log((1 - r) / (1 - s))


@pytest.mark.parametrize("seed", range(6))
def test_listing_gain_is_a_divergence_under_renorm_and_a_threshold_under_drop(seed: int) -> None:
    p, prior = world(seed)
    lists = [one for n in range(1, 5) for one in itertools.combinations(range(6), n)]
    best = {backoff: {one: honest(backoff, p, prior, one) for one in lists} for backoff in ("drop", "renorm")}
    checked = 0
    for listed, b in itertools.product(lists, range(6)):
        longer = tuple(sorted((*listed, b)))
        if b in listed or longer not in best["drop"]:
            continue
        checked += 1
        rest, r = 1.0 - p[list(listed)].sum(), p[b] / (1.0 - p[list(listed)].sum())
        gain = {backoff: best[backoff][longer] - best[backoff][listed] for backoff in best}
        outside = prior[b] / (1.0 - prior[list(listed)].sum())
        assert gain["renorm"] == pytest.approx(rest * divergence(r, outside), abs=1e-8)
        assert (gain["drop"] > 0.0) == (prior[b] < r * (1.0 - r) ** ((1.0 - r) / r))
    assert checked > 100


@pytest.mark.parametrize(("r", "threshold"), [(0.05, 0.0189), (0.1, 0.0387), (0.2, 0.0819), (0.3, 0.1305), (0.5, 0.25)])
def test_listing_threshold_table(r: float, threshold: float) -> None:
    p = np.array([0.5, 0.5 * r, 0.5 * (1 - r), 0, 0, 0])
    for factor, pays in ((0.99, True), (1.01, False)):
        prior = np.array([0.1, threshold * factor, 0.1, 0.1, 0.1, 0.1])
        gain = [honest("drop", p, prior, one) for one in ((0,), (0, 1))]
        assert (gain[1] > gain[0]) == pays


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("backoff", BACKOFFS)
def test_no_other_weights_beat_the_honest_ones(seed: int, backoff: str) -> None:
    p, prior = world(seed)
    rng = np.random.default_rng(seed)
    found = ((one, honest(backoff, p, prior, one)) for one in itertools.combinations(range(6), 3))
    listed, best = next((one, best) for one, best in found if best is not None)
    reward = rewards.get("hypotheses_backoff", backoff=backoff, max_answers=6, epsilon=FINE)
    extra = {"listed_prior_logprob": [math.log(prior[list(listed)].sum())] * 6} if backoff == "renorm" else {}
    for row in rng.dirichlet(np.ones(4), size=100):
        text = hypotheses(*((NAMES[i], float(w)) for i, w in zip(listed, row, strict=False)), other=float(row[3]))
        assert p @ reward([text] * 6, list(NAMES), prior_logprob=np.log(prior), **extra).values < best


def test_residual_and_renorm_are_normalised_and_reach_the_same_maximum() -> None:
    p, prior = np.array([0.5, 0.3, 0.1, 0.05, 0.03, 0.02]), np.array([0.1, 0.2, 0.3, 0.1, 0.1, 0.2])
    listed = (0, 1)
    text = hypotheses(("alpha", 0.5), ("beta", 0.2), other=0.3)
    for backoff, total in (("drop", 1.0 - 0.3 * 0.3), ("residual", 1.0), ("renorm", 1.0)):
        reward = rewards.get("hypotheses_backoff", backoff=backoff, lift=False, floor=-20.0)
        extra = {"listed_prior_logprob": [math.log(0.3)] * 6} if backoff == "renorm" else {}
        mass = np.exp(reward([text] * 6, list(NAMES), prior_logprob=np.log(prior), **extra).values).sum()
        assert mass == pytest.approx(total)
    assert honest("residual", p, prior, listed) == pytest.approx(honest("renorm", p, prior, listed), abs=1e-9)


# ---- the failure reward of backoff -----------------------------------------------------------------------------------


def test_lift_has_one_minimum_for_every_prompt() -> None:
    reward = rewards.get("hypotheses_backoff")
    assert reward.min_value == pytest.approx(math.log(0.01))
    assert reward.max_value == math.inf
    assert rewards.get("hypotheses_backoff", floor=-20.0).max_value == 20.0
    wrong = hypotheses(("alpha", 1.0), other=0.0)
    priors = [-1.0, -10.0, -60.0]
    assert reward([wrong] * 3, ["x"] * 3, prior_logprob=priors).values == pytest.approx([math.log(0.01)] * 3)
    assert reward(["?"] * 3, ["x"] * 3, prior_logprob=priors).values == pytest.approx([math.log(0.01) - 0.1] * 3)


def test_without_lift_the_minimum_must_be_known() -> None:
    with pytest.raises(InvalidArgumentError, match="floor"):
        rewards.get("hypotheses_backoff", lift=False)
    clipped = rewards.get("hypotheses_backoff", lift=False, floor=-8.0)
    assert clipped.min_value == pytest.approx(math.log(0.01) - 8.0)
    wrong = hypotheses(("alpha", 1.0), other=0.0)
    got = clipped([wrong, wrong, "?"], ["x"] * 3, prior_logprob=[-3.0, -42.0, -42.0])
    assert got.values == pytest.approx([math.log(0.01) - 3.0, math.log(0.01) - 8.0, math.log(0.01) - 8.1])


def test_percentile_is_taken_from_the_training_set() -> None:
    made = rewards.get("hypotheses_backoff", lift=False, percentile=5.0, training_logprob=-np.arange(101.0))
    assert made.floor == pytest.approx(-95.0)
    for missing in (
        {"percentile": 5.0},
        {"training_logprob": [-1.0]},
        {"percentile": 5.0, "training_logprob": [-1.0], "floor": -2.0},
    ):
        with pytest.raises(InvalidArgumentError, match="percentile"):
            rewards.get("hypotheses_backoff", **missing)


def test_percentile_without_clipping_valid_rows_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="allow_inversion"):
        rewards.get("hypotheses_backoff", lift=False, floor=-8.0, clip_valid=False)
    hole = rewards.get("hypotheses_backoff", lift=False, floor=-8.0, clip_valid=False, allow_inversion=True)
    got = hole([hypotheses(("alpha", 1.0), other=0.0), "?"], ["x", "x"], prior_logprob=[-42.0, -42.0])
    assert got.values[0] < got.values[1]  # the hole that the refusal is about
    for useless in ({"lift": True, "floor": -8.0}, {"lift": False}):
        with pytest.raises(InvalidArgumentError, match="clip_valid"):
            rewards.get("hypotheses_backoff", clip_valid=False, **useless)


def test_per_example_failure_follows_the_prior() -> None:
    reward = rewards.get("hypotheses_backoff", lift=False, fail_mode="per_example", min_k=2, soft_diversity=2)
    wrong = hypotheses(("alpha", 1.0), other=0.0)
    got = reward([wrong, wrong, "?", "?"], ["x"] * 4, prior_logprob=[-3.0, -42.0, -3.0, -42.0]).values
    assert got[2:] == pytest.approx(got[:2] - 0.1)
    with pytest.raises(InvalidArgumentError, match="fail_reward"):
        rewards.get("hypotheses_backoff", lift=False, fail_mode="per_example", fail_reward=-100.0)


def test_constant_backoff_needs_no_column() -> None:
    reward = rewards.get("hypotheses_backoff", constant_logprob=-6.0)
    assert reward.requires == ()
    assert reward.max_value == 6.0
    assert value(reward, hypotheses(("alpha", 0.5), other=0.5), "alpha") == pytest.approx(math.log(0.5) + 6.0)
    plain = rewards.get("hypotheses_backoff", constant_logprob=-6.0, lift=False)
    assert plain.min_value == pytest.approx(math.log(0.01) - 6.0)
    per_row = rewards.get("hypotheses_backoff", constant_logprob=-6.0, lift=False, fail_mode="per_example")
    assert per_row(["?", "?"], ["a", "b"]).values == pytest.approx([math.log(0.01) - 6.1] * 2)
    assert rewards.get("hypotheses_backoff", backoff="renorm").requires == ("prior_logprob", "listed_prior_logprob")


def test_temperature_divides_the_prior() -> None:
    text = hypotheses(("alpha", 0.5), other=0.5)
    assert value(
        rewards.get("hypotheses_backoff", temperature=2.0), text, "alpha", prior_logprob=-6.0
    ) == pytest.approx(math.log(0.5) + 3.0)


@pytest.mark.parametrize(
    "bad", [None, [-1.0], [[-1.0, -1.0]], ["a", "b"], [math.nan, -1.0], [0.1, -1.0], [-1.0, -math.inf]]
)
def test_bad_priors_are_named(bad) -> None:
    with pytest.raises(InvalidArgumentError, match="prior_logprob"):
        rewards.get("hypotheses_backoff")([hypotheses(("alpha", 0.5), other=0.5)] * 2, ["a", "b"], prior_logprob=bad)


def test_ill_formed_rows_need_no_prior_of_a_list() -> None:
    reward = rewards.get("hypotheses_backoff", backoff="renorm")
    good = hypotheses(("alpha", 0.5), other=0.5)
    got = reward([good, "?"], ["x", "x"], prior_logprob=[-2.0, -2.0], listed_prior_logprob=[-1.0, math.nan])
    assert got.status == ["ok", "unparsed"]
    with pytest.raises(InvalidArgumentError, match=r"listed_prior_logprob\[0\]"):
        reward([good, "?"], ["x", "x"], prior_logprob=[-2.0, -2.0], listed_prior_logprob=[math.nan, -1.0])


def test_rounding_above_zero_is_taken_back_and_a_certain_prior_stays_finite() -> None:
    reward = rewards.get("hypotheses_backoff", backoff="renorm")
    got = reward([hypotheses(("alpha", 0.5), other=0.5)], ["x"], prior_logprob=[1e-7], listed_prior_logprob=[0.0])
    assert got.values == pytest.approx([math.log(0.5)])


@pytest.mark.parametrize(
    ("params", "argument"),
    [
        ({"backoff": "jacob"}, "backoff"),
        ({"floor": 1.0}, "floor"),
        ({"constant_logprob": 1.0}, "constant_logprob"),
        ({"floor": -1.0, "constant_logprob": -1.0}, "floor"),
        ({"temperature": 0.0}, "temperature"),
        ({"fail_mode": "none"}, "fail_mode"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"correctness_weight": -1.0}, "correctness_weight"),
        ({"min_k": 6}, "min_k"),
        ({"soft_diversity": 0}, "soft_diversity"),
        ({"min_k_penalty": -1.0}, "min_k_penalty"),
        ({"max_answers": 65}, "max_answers"),
    ],
)
def test_bad_parameters_are_named(params, argument) -> None:
    with pytest.raises(InvalidArgumentError, match=argument):
        rewards.get("hypotheses_backoff", **params)


def test_a_correctness_bonus_under_residual_is_not_proper_and_says_so() -> None:
    """Honest residual weights are p - other * prior, so the heaviest need not be the likeliest (found by search on a grid)."""
    chances, prior = np.array([0.5, 0.45, 0.05]), np.array([0.9, 0.001, 0.05])
    grid = [(a, b) for a in range(51) for b in range(51 - a)]
    texts = [
        f"<think>x</think><hypotheses><h1>a</h1><w1>{a / 50:.2f}</w1><h2>b</h2><w2>{b / 50:.2f}</w2>"
        f"<other>{(50 - a - b) / 50:.2f}</other></hypotheses>"
        for a, b in grid
    ]

    def best(weight: float) -> tuple[float, ...]:
        reward = rewards.get("hypotheses_backoff", backoff="residual", correctness_weight=weight)
        expected = sum(
            chance * reward(texts, [gold] * len(texts), prior_logprob=np.full(len(texts), np.log(level))).values
            for gold, chance, level in zip("abc", chances, prior, strict=True)
        )
        return tuple(part / 50 for part in grid[int(np.argmax(expected))])

    honest = best(0.0)
    assert honest[0] < honest[1]
    assert best(3.0) != honest
    assert rewards.get("hypotheses_backoff", backoff="residual").proper
    bonus = rewards.get("hypotheses_backoff", backoff="residual", correctness_weight=3.0)
    assert not bonus.proper
    assert bonus.proper_for.startswith("nothing")
    assert rewards.get("hypotheses_backoff", backoff="drop", correctness_weight=3.0).proper
