"""What every text reward promises, whatever it is made of: finite, in its declared range, failures never above the worst valid answer."""

from __future__ import annotations

import dataclasses
import itertools
import math
import pickle
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewardkit import rewards
from rewardkit.errors import HarmfulSettingWarning
from rewardkit.types import OK, UNPARSED
from tests.completions import hypotheses, multi, single

NAMES = ("alpha", "beta", "gamma", "delta", "x")
LEVELS = (0.0, 1 / 3, 0.5, 1.0)
MULTI = ("multi", "multi_split", "multi_noanalysis")


@dataclass(frozen=True)
class Case:
    """A reward, its well-formed completions at the extremes, and the references that go with them."""

    label: str
    reward: rewards.Reward
    texts: list[str]
    columns: dict[str, float] = dataclasses.field(default_factory=dict)
    tight: bool = True
    """Whether both ends of the declared range are attained."""

    def __str__(self) -> str:
        return self.label

    def call(self, texts: list[str], golds: list[list[str]], reward: rewards.Reward | None = None):
        columns = {name: [value] * len(texts) for name, value in self.columns.items()}
        return (reward or self.reward)(texts, golds, gold_kind="set", **columns)


def singles(format: str) -> list[str]:
    return [single(answer, q, format=format) for answer in ("alpha", "x") for q in LEVELS]


def sets(format: str, k: int) -> list[str]:
    answers = [*itertools.combinations(NAMES, k), ("x", *NAMES[: k - 1])]
    stated = [(0.5,) * k] if format == "multi_rlvr" else list(itertools.product(LEVELS, repeat=k))
    return [multi(*zip(names, q, strict=True), format=format) for names in answers for q in stated]


def lists() -> list[str]:
    shares = [
        (1.0, 0.0, 0.0, 0.0),
        (0.0, 1.0, 0.0, 0.0),
        (0.0, 0.0, 0.0, 1.0),
        (0.5, 0.25, 0.0, 0.25),
        (0.6, 0.2, 0.1, 0.1),
    ]
    made = [hypotheses(*zip(NAMES, w[:3], strict=False), other=w[3]) for w in shares]
    return made + [hypotheses((name, w), other=1.0 - w) for name in ("alpha", "x") for w in LEVELS]


def quietly(name: str, **params) -> rewards.Reward:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HarmfulSettingWarning)
        return rewards.get(name, **params)


def cases() -> list[Case]:
    made = [Case(f"rlvr-{f}", quietly("rlvr", format=f), singles(f.replace("final", "ta"))) for f in ("ta", "tac")]
    made += [
        Case(
            f"rlcr-{rule}-{weights}-{shift}",
            quietly("rlcr", format=f, rule=rule, weights=weights, shift=shift),
            singles(f),
        )
        for f, rule, weights, shift in (
            ("tac", "brier", (1.0, 1.0), False),
            ("tabc", "brier", (1.0, 1.0), True),
            ("tbac", "log", (5.0, 1.0), False),
            ("tac", "spherical", (1.0, 0.5), False),
            ("tac", "linear", (0.0, 2.0), True),
        )
    ]
    for mode in ("sum", "frac", "any", "recall"):
        made.append(
            Case(f"multi_rlvr-{mode}", quietly("multi_rlvr", max_answers=3, credit_mode=mode), sets("multi_rlvr", 3))
        )
    for n, (mode, weights, exclusive) in enumerate(
        itertools.product(("sum", "frac", "any"), ((1.0, 1.0), (0.2, 2.0)), (None, True))
    ):
        params = {
            "max_answers": 2,
            "credit_mode": mode,
            "weights": weights,
            "exclusive": exclusive,
            "format": MULTI[n % 3],
        }
        made.append(
            Case(
                f"multi_rlcr-{mode}-{weights}-{exclusive}",
                quietly("multi_rlcr", force=True, **params),
                sets(MULTI[n % 3], 2),
            )
        )
    terms = (
        {},
        {"correctness_weight": 5.0},
        {"min_k": 3, "min_k_penalty": 0.7, "soft_diversity": 3},
    )
    for n, extra in enumerate(terms):
        made.append(Case(f"hypotheses_log-{n}", quietly("hypotheses_log", **extra), lists()))
        made.append(Case(f"hypotheses_brier-{n}", quietly("hypotheses_brier", halve=bool(n), **extra), lists()))
        for backoff in ("drop", "residual", "renorm"):
            columns = {"prior_logprob": -6.0, "listed_prior_logprob": -math.inf}
            for lift in (True, False):
                reward = quietly("hypotheses_backoff", backoff=backoff, floor=-6.0, lift=lift, **extra)
                made.append(Case(f"backoff-{backoff}-{lift}-{n}", reward, lists(), columns))
    parts = {
        "rlcr": {"weight": 0.5, "shift": True},
        "format": ("format", 0.5),
        "rlvr": {"format": "tac", "weight": 2.0},
    }
    made.append(Case("compose", rewards.compose(parts), singles("tac")))
    opposed = {"rlcr": ("rlcr", 1.0), "log": {"reward": quietly("rlcr", rule="log"), "weight": -0.5}}
    made.append(Case("compose-negative", rewards.compose(opposed), singles("tac"), tight=False))
    return made


CASES = cases()
by_case = pytest.mark.parametrize("case", CASES, ids=str)
GOLDS = [
    [*one, "n1"] if len(one) < 4 else list(one) for n in range(5) for one in itertools.combinations(NAMES[:4], n)
] + [
    ["alpha"],
    ["n1"],
]


@by_case
def test_declared_range_is_attained_and_failures_lie_below(case: Case) -> None:
    single_gold = not case.reward.name.startswith("multi")
    golds = [["alpha"], ["n1"]] if single_gold else GOLDS
    values = []
    for gold in golds:
        got = case.call(case.texts, [gold] * len(case.texts))
        values += [v for v, status in zip(got.values, got.status, strict=True) if status == OK]
    assert len(values) >= len(case.texts)
    assert min(values) >= case.reward.min_value - 1e-9
    assert max(values) <= case.reward.max_value + 1e-9
    if case.tight:
        assert min(values) == pytest.approx(case.reward.min_value, abs=1e-9)
        assert max(values) == pytest.approx(case.reward.max_value, abs=1e-9)
    assert case.reward.fail_reward <= case.reward.min_value
    assert case.call(["?"], [["alpha"]]).values.tolist() == [case.reward.fail_reward]


@by_case
def test_properness_is_declared_in_words(case: Case) -> None:
    assert case.reward.proper == (not case.reward.proper_for.startswith("nothing"))


@by_case
def test_rows_are_independent_of_their_batch(case: Case) -> None:
    texts = [*case.texts[:6], "?", *case.texts[-3:]]
    golds = [["alpha"], ["n1"]] * (len(texts) // 2)
    order = np.random.default_rng(0).permutation(len(texts))
    whole, shuffled = case.call(texts, golds), case.call([texts[i] for i in order], [golds[i] for i in order])
    assert shuffled.values.tolist() == whole.values[order].tolist()
    for row, text in enumerate(texts):
        alone = case.call([text], [golds[row]])
        assert alone.values[0] == whole.values[row]
        assert (alone.status[0], alone.reason[0]) == (whole.status[row], whole.reason[row])
        assert {name: column[0] for name, column in alone.components.items()} == {
            name: column[row] for name, column in whole.components.items()
        }


@by_case
def test_columns_are_fixed_and_empty_batches_work(case: Case) -> None:
    for texts in ([], ["?"], case.texts[:1]):
        got = case.call(texts, [["alpha"]] * len(texts))
        assert tuple(got.components) == case.reward.component_names
        assert {column.shape for column in got.components.values()} == {(len(texts),)}
        assert got.values.dtype == np.float64
    assert not {"reward", "score"} & set(case.reward.component_names)


@by_case
def test_pickles_and_runs_in_threads(case: Case) -> None:
    copy = pickle.loads(pickle.dumps(case.reward))
    assert copy == case.reward
    expected = case.call(case.texts, [["alpha"]] * len(case.texts)).values.tolist()
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(case.call, case.texts, [["alpha"]] * len(case.texts), copy) for _ in range(4)]
    assert all(run.result().values.tolist() == expected for run in runs)


# ---- fuzz ------------------------------------------------------------------------------------------------------------

PIECES = [
    *(
        f"<{slash}{name}>"
        for slash in ("", "/")
        for name in ("think", "answer", "confidence", "analysis", "other", "hypotheses")
    ),
    *(
        f"<{slash}{name}{i}>"
        for slash in ("", "/")
        for name in ("answer", "confidence", "h", "w")
        for i in (1, 2, 3, 10**12)
    ),
    *(
        "0.5",
        "1",
        "nan",
        "-1",
        "1e400",
        "٣",
        "%",
        "<",
        ">",
        "&amp;",
        "\x00",
        "\ud800",
        "é",
        "alpha",
        " ",
        "\n",
        "the",
        "1/0",
    ),
]


def mutated(texts: list[str], n: int, rng: np.random.Generator) -> list[str]:
    """Completions with pieces put in, spans taken out, doubled or moved; about one in ten is left alone."""
    result = []
    for text in rng.choice(np.array(texts, dtype=object), size=n):
        for _ in range(rng.integers(0, 4) if rng.random() < 0.9 else 0):
            a, b = sorted(rng.integers(0, len(text) + 1, size=2))
            b = min(b, a + 20)
            kind = rng.integers(5)
            if kind == 0:
                text = text[:a] + PIECES[rng.integers(len(PIECES))] + text[a:]
            elif kind == 1:
                text = text[:a] + text[b:]
            elif kind == 2:
                text = text[:b] + text[a:]
            elif kind == 3:
                at = rng.integers(0, len(text) + 1)
                text = text[:at] + text[a:b] + text[at:]
            else:
                text = text[:a] + chr(int(rng.integers(1, 0x3000))) + text[a + 1 :]
        result.append(text)
    return result


FUZZED: dict[str, Callable[[], Case]] = {
    "ta": lambda: Case("", quietly("rlvr"), singles("ta")),
    "tac": lambda: Case("", quietly("rlcr"), singles("tac")),
    "tabc": lambda: Case("", quietly("rlcr", format="tabc", rule="log"), singles("tabc")),
    "tbac": lambda: Case("", quietly("rlcr", format="tbac", rule="spherical"), singles("tbac")),
    "multi": lambda: Case("", quietly("multi_rlcr", max_answers=2), sets("multi", 2)),
    "multi_split": lambda: Case("", quietly("multi_rlcr", max_answers=2, format="multi_split"), sets("multi_split", 2)),
    "multi_noanalysis": lambda: Case(
        "", quietly("multi_rlcr", max_answers=2, format="multi_noanalysis", exclusive=True), sets("multi_noanalysis", 2)
    ),
    "multi_rlvr": lambda: Case("", quietly("multi_rlvr", credit_mode="recall"), sets("multi_rlvr", 3)),
    "hypotheses": lambda: Case("", quietly("hypotheses_backoff", soft_diversity=3), lists(), {"prior_logprob": -5.0}),
    "final": lambda: Case(
        "", quietly("rlvr", format="final"), ["Final answer: alpha", "so \\boxed{alpha}", "Final answer: x"]
    ),
}


@pytest.mark.parametrize("mode", ["strict", "lenient"])
@pytest.mark.parametrize("format", FUZZED)
def test_SR_09_ten_thousand_mutated_completions(format: str, mode: str) -> None:
    case, rng = FUZZED[format](), np.random.default_rng(7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HarmfulSettingWarning)
        reward = dataclasses.replace(case.reward, mode=mode)
    texts = mutated(case.texts, 10_000, rng)
    second = ["beta"] if format == "hypotheses" else ["beta", "x"]  # a distribution is over exclusive answers
    golds = [[["alpha"], second][i] for i in rng.integers(0, 2, size=len(texts))]
    got = case.call(texts, golds, reward)
    ok = np.array([status == OK for status in got.status])
    assert set(got.status) <= {OK, UNPARSED}
    assert np.isfinite(got.values).all()
    assert all(np.isfinite(column).all() for column in got.components.values())
    assert (got.values[~ok] == reward.fail_reward).all()
    assert (got.values[ok] >= reward.min_value - 1e-9).all()
    assert (got.values[ok] <= reward.max_value + 1e-9).all()
    assert (got.values[ok] > reward.fail_reward).all()
    assert all(reason for reason, good in zip(got.reason, ok, strict=True) if not good)
    assert ok.sum() > 500
    assert format == "final" or (~ok).sum() > 500


@given(text=st.text(max_size=300) | st.text(alphabet="<>/answerconfidencethink123 .", max_size=300))
@settings(max_examples=100)
def test_any_text_at_all(text: str) -> None:
    for case in (CASES[0], CASES[2], CASES[-2]):
        got = case.call([text, "<think>x</think>" + text], [["alpha"]] * 2)
        assert np.isfinite(got.values).all()


@pytest.mark.parametrize(
    "text", ["<answer>" * 100_000, "x" * 1_000_000, "<think>" + "</think>" * 100_000, "\ud800" * 1000]
)
def test_huge_and_broken_text(text: str) -> None:
    for case in (
        CASES[2],
        CASES[-1],
        *(c for c in CASES if c.label in ("multi_rlcr-sum-(1.0, 1.0)-None", "hypotheses_log-0")),
    ):
        got = case.call([text], [["alpha"]])
        assert got.status == [UNPARSED]
        assert got.values.tolist() == [case.reward.fail_reward]
