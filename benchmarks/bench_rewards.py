"""Whole rewards, from text to value: against the readable twins of all kernels, and against rewards as released code writes them.

The peer is written from the description of RLCR's reward functions: format, accuracy and Brier are functions of their own, each of which
reads the completion by regular expressions again. Contestants take turns in one process, agree before they are timed, and CPU
time counts.
"""

from __future__ import annotations

import os
import random
import re
import resource
import string
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from turns import cpu_seconds

from rewardkit import rewards

ROUNDS = 5


def report(benchmark: Any, seconds: dict[str, float]) -> None:
    for name, value in seconds.items():
        benchmark.extra_info[f"{name}_ms"] = round(value * 1e3, 1)
        if name != "rewardkit":
            benchmark.extra_info[f"times_faster_than_{name}"] = round(value / seconds["rewardkit"], 1)
    print("", dict(benchmark.extra_info))


def on_twins(run: Callable[[], Any]) -> Callable[[], Any]:
    """The same call on the readable twins."""

    def call() -> Any:
        before = os.environ.get("REWARDKIT_BACKEND")
        os.environ["REWARDKIT_BACKEND"] = "reference"
        try:
            return run()
        finally:
            os.environ.pop("REWARDKIT_BACKEND")
            if before is not None:
                os.environ["REWARDKIT_BACKEND"] = before

    return call


# ---- sets of answers --------------------------------------------------------------------------------------------------

CITIES = [
    f"{first} {second}"
    for first in ("New", "Old", "Upper", "Saint", "Port")
    for second in ("Haven", "Ulm", "York", "Arles", "Bern")
]


def set_row(rng: random.Random) -> tuple[str, list[list[str]]]:
    golds = [[name, f"the {name}", f"{name} ({rng.randrange(1000)})"] for name in rng.sample(CITIES, 5)]
    named = [rng.choice(gold) for gold in golds if rng.random() < 0.5]
    answers = (named + [f"Lower {rng.randrange(10**6)} {i}" for i in range(5)])[:5]
    rng.shuffle(answers)
    pairs = "".join(
        f"<answer{i}>{answer}</answer{i}><confidence{i}>{rng.randrange(101) / 100}</confidence{i}>"
        for i, answer in enumerate(answers, 1)
    )
    return f"<think>{'which of them could it be ' * 10}</think>{pairs}<analysis>the first is likelier</analysis>", golds


@pytest.mark.parametrize("name", ["multi_rlcr", "multi_rlvr"])
def test_10000_completions_with_5_answers_and_5_golds(benchmark: Any, name: str) -> None:
    """Goal: under 60 ms for the whole, and 50 times the twins."""
    rng = random.Random(0)
    texts, golds = map(list, zip(*(set_row(rng) for _ in range(10_000)), strict=True))
    reward = rewards.get(name, format="multi", max_answers=5)

    def ours(n: int = 10_000) -> Any:
        return reward(texts[:n], golds[:n], gold_kind="set")

    few = on_twins(lambda: ours(1000))
    np.testing.assert_array_equal(ours(1000).values, few().values)
    assert set(ours().status) == {"ok"}
    assert 1.0 < ours().components["found"].mean() < 4.0
    seconds = cpu_seconds({"rewardkit": ours})
    seconds["twins"] = 10.0 * cpu_seconds({"twins": few}, 1)["twins"]
    report(benchmark, seconds)
    benchmark.pedantic(ours, rounds=ROUNDS)


def test_10000_distributions(benchmark: Any) -> None:
    rng = random.Random(1)
    texts, golds = [], []
    for _ in range(10_000):
        names = rng.sample(CITIES, 6)
        cuts = sorted(rng.sample(range(1, 100), 5))
        weights = [(b - a) / 100 for a, b in zip([0, *cuts], [*cuts, 100], strict=True)]
        listed = "".join(
            f"<h{i}>{a}</h{i}><w{i}>{w}</w{i}>" for i, (a, w) in enumerate(zip(names[:5], weights[:5], strict=True), 1)
        )
        texts.append(f"<think>hm</think><hypotheses>{listed}<other>{weights[5]}</other></hypotheses>")
        golds.append(rng.choice(names))
    reward = rewards.get("hypotheses_backoff")
    priors = -20.0 * np.random.default_rng(0).random(10_000)

    def ours(n: int = 10_000) -> Any:
        return reward(texts[:n], golds[:n], prior_logprob=priors[:n])

    few = on_twins(lambda: ours(1000))
    np.testing.assert_array_equal(ours(1000).values, few().values)
    seconds = cpu_seconds({"rewardkit": ours})
    seconds["twins"] = 10.0 * cpu_seconds({"twins": few}, 1)["twins"]
    report(benchmark, seconds)
    benchmark.pedantic(ours, rounds=ROUNDS)


# ---- long completions -------------------------------------------------------------------------------------------------

WHOLE = re.compile(
    r"^.*?</think>\s*<answer>.*?</answer>\s*<analysis>.*?</analysis>\s*<confidence>.*?</confidence>\s*$", re.S
)
ANSWER = re.compile(r"<answer>(.*?)</answer>", re.S)
CONFIDENCE = re.compile(r"<confidence>(.*?)</confidence>", re.S)
ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def last(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.findall(text)
    return found[-1].strip() if found else ""


def format_reward(texts: list[str]) -> list[float]:
    return [float(WHOLE.match(text) is not None) for text in texts]


def normal_form(text: str) -> str:
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def accuracy_reward(texts: list[str], references: list[str]) -> list[float]:
    return [
        float(normal_form(last(ANSWER, text)) == normal_form(reference)) * (WHOLE.match(text) is not None)
        for text, reference in zip(texts, references, strict=True)
    ]


def brier_reward(texts: list[str], references: list[str]) -> list[float]:
    result = []
    for text, correct in zip(texts, accuracy_reward(texts, references), strict=True):
        confidence = float(last(CONFIDENCE, text)) if WHOLE.match(text) else -1.0
        result.append(1.0 - (correct - confidence) ** 2 if 0.0 <= confidence <= 1.0 else 0.0)
    return result


def long_texts(count: int = 8192, size: int = 6000) -> list[str]:
    rng = random.Random(0)
    pool = " ".join(
        rng.choices(
            [
                "the",
                "model",
                "then",
                "asks",
                "whether",
                "a",
                "city",
                "on",
                "river",
                "had",
                "two",
                "names",
                "in",
                "1815",
                "or",
                "less",
                ",",
            ],
            k=100_000,
        )
    )

    def some(length: int) -> str:
        start = rng.randrange(len(pool) - length)
        return pool[start : start + length]

    return [
        f"<think>{some(size - 550)}</think>\n<answer> Town {i % 97} </answer>\n<analysis>{some(420)}</analysis>\n"
        f"<confidence>{rng.randrange(101) / 100}</confidence>"
        for i in range(count)
    ]


def test_8192_completions_of_6000_characters(benchmark: Any) -> None:
    """Goal: 20 times the released functions, and less than twice the text in extra memory."""
    texts = long_texts()
    references = [f"the Town {i % 89}" for i in range(len(texts))]
    reward = rewards.get("rlcr", format="tabc", shift=True, match_mode="official")

    def ours() -> Any:
        return reward(texts, references).values

    def peer() -> Any:
        format_reward(texts)
        return np.add(accuracy_reward(texts, references), brier_reward(texts, references))

    size = sum(map(len, texts))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ours()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    benchmark.extra_info["peak_rss_growth_over_text"] = round((after - before) * 1024 / size, 3)
    tracemalloc.start()
    ours()
    benchmark.extra_info["python_peak_over_text"] = round(tracemalloc.get_traced_memory()[1] / size, 3)
    tracemalloc.stop()
    np.testing.assert_allclose(ours(), peer(), rtol=0, atol=1e-15)
    report(benchmark, cpu_seconds({"rewardkit": ours, "released": peer}, 3))
    benchmark.pedantic(ours, rounds=ROUNDS)


def test_composed_parts_read_once(benchmark: Any) -> None:
    """Three parts that read alike cost hardly more than one."""
    texts = long_texts(2048)
    references = [f"the Town {i % 89}" for i in range(len(texts))]
    parts = {"rlcr": {"format": "tabc"}, "rlvr": {"format": "tabc"}, "format": {"format": "tabc"}}
    three, one = rewards.compose(parts), rewards.get("rlcr", format="tabc")
    assert three(texts, references).values == pytest.approx(
        1.0 + 2.0 * one(texts, references).components["correct"] + one(texts, references).components["brier"] - 1.0
    )
    report(
        benchmark,
        cpu_seconds({"rewardkit": lambda: three(texts, references), "one_part": lambda: one(texts, references)}),
    )
    benchmark.pedantic(lambda: three(texts, references), rounds=ROUNDS)
