"""Matching against the official evaluation code in Python and against the readable twin; CPU time, one thread.

The peer is SQuAD's and HotpotQA's evaluation, written from its description. All contestants run in turn in one process, and are
checked to agree before anything is timed.
"""

from __future__ import annotations

import random
import re
import string
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from turns import cpu_seconds

from rewardkit import matching, reference
from rewardkit._kernels import kernel

ROUNDS = 5
F1 = {"matcher": "token_f1", "theta": 0.75, "max_extra": 2, "yes_no": False, "split_cjk": False}


def report(benchmark: Any, contestants: dict[str, tuple[int, Callable[[], Any]]], unit: str) -> None:
    """Times per unit of work, since the slow contestants get less of it; the first contestant is ours."""
    seconds = cpu_seconds({name: run for name, (_, run) in contestants.items()})
    per_unit = {name: value / contestants[name][0] for name, value in seconds.items()}
    ours = next(iter(per_unit))
    benchmark.extra_info[f"million_{unit}_per_s"] = round(1e-6 / per_unit[ours], 2)
    for name, value in per_unit.items():
        benchmark.extra_info[f"{name}_ns"] = round(value * 1e9, 1)
        if name != ours:
            benchmark.extra_info[f"times_faster_than_{name}"] = round(value / per_unit[ours], 1)
    print("", dict(benchmark.extra_info))


# ---- the peer -------------------------------------------------------------------------------------------------------


def official_tokens(text: str) -> list[str]:
    exclude = set(string.punctuation)
    text = "".join(char for char in text.lower() if char not in exclude)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split()).split()


def official_f1(prediction: str, gold: str) -> float:
    one, other = official_tokens(prediction), official_tokens(gold)
    same = sum((Counter(one) & Counter(other)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(one), same / len(other)
    return 2 * precision * recall / (precision + recall)


# ---- texts ----------------------------------------------------------------------------------------------------------


class Writer:
    """Sentences of 1 to 15 words, of which a share holds a character beyond ASCII."""

    def __init__(self, beyond_ascii: float):
        self.random = random.Random(0)
        self.share = beyond_ascii
        sizes = [max(1, min(14, int(self.random.gauss(6, 3)))) for _ in range(3000)]
        self.plain = ["".join(self.random.choices("etaoinshrdlucmfwypvbgk", k=size)) for size in sizes]
        self.other = [word[:2] + self.random.choice("éüßñøłжяλ北") + word[2:] for word in self.plain]

    def word(self) -> str:
        rng = self.random
        word = rng.choice(self.other if rng.random() < self.share else self.plain)
        if rng.random() < 0.08:
            word = rng.choice(["the", "a", "an"])
        if rng.random() < 0.15:
            word = word.capitalize()
        return word + rng.choice(",.;!") if rng.random() < 0.1 else word

    def sentence(self) -> str:
        return " ".join(self.word() for _ in range(self.random.randrange(1, 16)))

    def near(self, text: str) -> str:
        words = text.split()
        return (
            text
            if self.random.random() < 0.3
            else " ".join([*self.random.sample(words, len(words) // 2), self.sentence()])
        )

    def name(self) -> str:
        return " ".join(self.random.choice(self.plain).capitalize() for _ in range(self.random.randrange(1, 4)))


@pytest.mark.parametrize("beyond_ascii", [0.0, 0.15])
@pytest.mark.parametrize("mode", ["official", "numeric_safe"])
def test_token_f1_of_100k_pairs(benchmark: Any, mode: Any, beyond_ascii: float) -> None:
    writer = Writer(beyond_ascii)
    predictions = [writer.sentence() for _ in range(100_000)]
    references = [writer.near(text) for text in predictions]
    few = 2000
    options = {"mode": mode, "split_cjk": False}
    twin = reference.token_f1(predictions[:few], references[:few], yes_no=False, **options)
    ours = matching.token_f1(predictions, references, **options)
    np.testing.assert_array_equal(ours[:few], twin)

    def official() -> list[float]:
        return list(map(official_f1, predictions[:few], references[:few]))

    if mode == "official":
        np.testing.assert_array_equal(ours[:few], official())
    benchmark.pedantic(lambda: matching.token_f1(predictions, references, **options), rounds=1)
    contestants: dict[str, tuple[int, Callable[[], Any]]] = {
        "rewardkit": (len(predictions), lambda: matching.token_f1(predictions, references, **options)),
        "official_python": (few, official),
        "twin": (few, lambda: reference.token_f1(predictions[:few], references[:few], yes_no=False, **options)),
    }
    report(benchmark, contestants, "pairs")


@pytest.mark.parametrize("mode", ["official", "numeric_safe"])
def test_token_f1_of_8_answers_against_4_golds(benchmark: Any, mode: Any) -> None:
    writer = Writer(0.0)
    answers = [[writer.sentence() for _ in range(8)] for _ in range(5000)]
    golds = [[writer.near(row[m]) for m in range(4)] for row in answers]
    few = 100

    def ours() -> np.ndarray:
        return kernel("score_matrix")(answers, golds, mode=mode, **F1)

    def official() -> list[list[list[float]]]:
        rows = zip(answers[:few], golds[:few], strict=True)
        return [[[official_f1(answer, gold) for gold in named] for answer in given] for given, named in rows]

    def twin() -> np.ndarray:
        return reference.score_matrix(answers[:few], golds[:few], mode=mode, **F1)

    np.testing.assert_array_equal(ours()[:few], twin())
    if mode == "official":
        np.testing.assert_array_equal(ours()[:few], official())
    benchmark.pedantic(ours, rounds=1)
    report(
        benchmark,
        {"rewardkit": (5000 * 32, ours), "official_python": (few * 32, official), "twin": (few * 32, twin)},
        "pairs",
    )


@pytest.mark.parametrize("matcher", ["exact", "fuzzy"])
@pytest.mark.parametrize("rollouts", [1, 8])
def test_match_of_10000_completions_with_5_answers(benchmark: Any, matcher: str, rollouts: int) -> None:
    """5 answers against 5 golds of 3 aliases each, with bipartite matching; prompts have 1 or 8 completions."""
    writer = Writer(0.0)
    names = [writer.name() for _ in range(4000)]
    rng = writer.random
    prompts = [
        [[name, f"The {name}", f"{name}{rng.choice(['.', ' Jr', ''])}"] for name in rng.sample(names, 5)]
        for _ in range(10_000 // rollouts)
    ]
    golds = [golds for golds in prompts for _ in range(rollouts)]
    answers = [
        [rng.choice(rng.choice(row)).lower() if rng.random() < 0.6 else f"{rng.choice(names)}" for _ in range(5)]
        for row in golds
    ]
    few = 200

    def twin() -> Any:
        options = {**F1, "matcher": matcher, "mode": "numeric_safe"}
        return reference.match_sets(answers[:few], golds[:few], distinct=True, **options)

    def ours() -> Any:
        return matching.match(answers, golds, matcher=matcher)

    outcome, expected = ours(), twin()
    np.testing.assert_array_equal(outcome.correct[:few], expected[0])
    np.testing.assert_array_equal(outcome.found[:few], expected[1])
    benchmark.pedantic(ours, rounds=1)
    report(benchmark, {"rewardkit": (10_000, ours), "twin": (few, twin)}, "completions")


def test_bag_f1(benchmark: Any) -> None:
    rng = np.random.default_rng(0)
    rows, answers, golds, size = 2000, 8, 4, 12
    ids = {
        "prediction_ids": rng.integers(0, 200, rows * answers * size, dtype=np.int32),
        "prediction_offsets": np.arange(0, rows * answers * size + 1, size),
        "reference_ids": rng.integers(0, 200, rows * golds * size, dtype=np.int32),
        "reference_offsets": np.arange(0, rows * golds * size + 1, size),
        "answer_rows": np.arange(0, rows * answers + 1, answers),
        "gold_rows": np.arange(0, rows * golds + 1, golds),
    }
    np.testing.assert_array_equal(matching.bag_f1(**ids), reference.bag_f1(**ids))
    benchmark.pedantic(lambda: matching.bag_f1(**ids), rounds=1)
    pairs = rows * answers * golds
    report(
        benchmark,
        {"rewardkit": (pairs, lambda: matching.bag_f1(**ids)), "twin": (pairs, lambda: reference.bag_f1(**ids))},
        "pairs",
    )
