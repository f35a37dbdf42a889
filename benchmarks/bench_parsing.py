"""Parsing against what the released RLCR reward functions do, and against the readable twin; CPU time, one thread.

The peer is written from the description of the released code: each reward function reads the completion by regular expressions of
its own (the format as one expression over the whole text, the last answer, the last confidence), and the Brier reward judges
the answer once more. All contestants run in turn in one process, and are checked to agree before anything is timed.
"""

from __future__ import annotations

import random
import re
import string
import tracemalloc
from typing import Any

import numpy as np
import pytest
from turns import cpu_seconds

from rewardkit import parsing
from rewardkit.parsing import grammar
from rewardkit.reference import parse_completions

ROUNDS = 5


def report(benchmark: Any, seconds: dict[str, float], ours: str = "rewardkit") -> None:
    for name, value in seconds.items():
        benchmark.extra_info[f"{name}_ms"] = round(value * 1e3, 2)
        if name != ours:
            benchmark.extra_info[f"times_faster_than_{name}"] = round(value / seconds[ours], 1)
    print("", dict(benchmark.extra_info))


# ---- texts ------------------------------------------------------------------------------------------------------------


def prose(rng: random.Random, size: int) -> str:
    words = [
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
        ",",
        ".",
    ]
    text = " ".join(rng.choices(words, k=size // 3))
    return text[:size].strip()


@pytest.fixture(scope="module")
def long_texts() -> list[str]:
    """8,192 completions of about 6,000 characters in the format "tabc"; the answers are names."""
    rng = random.Random(0)
    pool = prose(rng, 400_000)

    def some(size: int) -> str:
        start = rng.randrange(len(pool) - size)
        return pool[start : start + size]

    return [
        f"<think>{some(5450)}</think>\n<answer> Town {i % 97} </answer>\n<analysis>{some(420)}</analysis>\n"
        f"<confidence>{rng.randrange(101) / 100}</confidence>"
        for i in range(8192)
    ]


@pytest.fixture(scope="module")
def multi_texts() -> list[str]:
    """10,000 completions with five answers."""
    rng = random.Random(1)
    return [
        "<think>"
        + prose(rng, 200)
        + "</think>"
        + "".join(
            f"\n<answer{i}>Town {rng.randrange(500)}</answer{i}><confidence{i}>{rng.randrange(20) / 100}</confidence{i}>"
            for i in range(1, 6)
        )
        + f"\n<analysis>{prose(rng, 100)}</analysis>"
        for _ in range(10_000)
    ]


# ---- the peer ---------------------------------------------------------------------------------------------------------

WHOLE = re.compile(
    r"^.*?</think>\s*<answer>.*?</answer>\s*<analysis>.*?</analysis>\s*<confidence>.*?</confidence>\s*$", re.S
)
ANSWER = re.compile(r"<answer>(.*?)</answer>", re.S)
CONFIDENCE = re.compile(r"<confidence>(.*?)</confidence>", re.S)


def format_reward(texts: list[str]) -> list[float]:
    tags = ("</think>", "<answer>", "</answer>", "<analysis>", "</analysis>", "<confidence>", "</confidence>")
    return [float(bool(WHOLE.match(text)) and all(text.count(tag) == 1 for tag in tags)) for text in texts]


def last(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.findall(text)
    return found[-1].strip() if found else ""


def normal_form(text: str) -> str:
    text = "".join(char for char in text.lower() if char not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def accuracy_reward(texts: list[str], references: list[str]) -> list[float]:
    return [
        float(normal_form(last(ANSWER, text)) == normal_form(reference))
        for text, reference in zip(texts, references, strict=True)
    ]


def brier_reward(texts: list[str], references: list[str]) -> list[float]:
    correct = accuracy_reward(texts, references)
    result = []
    for text, label in zip(texts, correct, strict=True):
        try:
            confidence = float(last(CONFIDENCE, text))
        except ValueError:
            confidence = -1.0
        result.append(1.0 - (label - confidence) ** 2 if 0.0 <= confidence <= 1.0 else 0.0)
    return result


def twin(texts: list[str], format: str, max_answers: int) -> Any:
    return parse_completions(
        texts,
        grammar.program(parsing.FORMATS[format]),
        mode="strict",
        think="required",
        min_answers=max_answers,
        max_answers=max_answers,
        on_bad_sum="fail",
        sum_tol=0.02,
        special_tokens=parsing.SPECIAL_TOKENS,
    )


# ---- measurements -----------------------------------------------------------------------------------------------------


def test_parse_8192_long_completions(benchmark: Any, long_texts: list[str]) -> None:
    def ours() -> Any:
        return parsing.parse(long_texts, "tabc", threads=1)

    def peer() -> Any:
        return (
            format_reward(long_texts),
            [last(ANSWER, t) for t in long_texts],
            [last(CONFIDENCE, t) for t in long_texts],
        )

    forecast, (formats, answers, confidences) = ours(), peer()
    assert forecast.wellformed.tolist() == [bool(value) for value in formats]
    assert [found[0] for found in forecast.answers] == answers
    assert forecast.probs[:, 0].tolist() == [float(text) for text in confidences]
    slow = twin(long_texts[:512], "tabc", 1)
    assert slow[0] == forecast.answers[:512]
    np.testing.assert_array_equal(slow[1], forecast.probs[:512])

    seconds = cpu_seconds({"rewardkit": ours, "released": peer, "twin": lambda: twin(long_texts, "tabc", 1)}, 3)
    size = sum(map(len, long_texts))
    benchmark.extra_info["gigabytes_per_second"] = round(size / seconds["rewardkit"] / 1e9, 2)
    tracemalloc.start()
    ours()
    benchmark.extra_info["python_peak_over_text"] = round(tracemalloc.get_traced_memory()[1] / size, 4)
    tracemalloc.stop()
    report(benchmark, seconds)
    benchmark.pedantic(ours, rounds=ROUNDS)


def test_reward_of_8192_long_completions(benchmark: Any, long_texts: list[str]) -> None:
    """Parse, match and score, against format, accuracy and Brier reward functions."""
    from rewardkit import rewards

    references = [f"the Town {i % 89}" for i in range(len(long_texts))]
    reward = rewards.get("rlcr", format="tabc", shift=True, match_mode="official")

    def ours() -> Any:
        return reward(long_texts, references).values

    def peer() -> Any:
        format_reward(long_texts)
        return np.add(accuracy_reward(long_texts, references), brier_reward(long_texts, references))

    np.testing.assert_allclose(ours(), peer(), rtol=0, atol=1e-15)
    report(benchmark, cpu_seconds({"rewardkit": ours, "released": peer}, 3))
    benchmark.pedantic(ours, rounds=ROUNDS)


def test_parse_10000_completions_with_5_answers(benchmark: Any, multi_texts: list[str]) -> None:
    def ours() -> Any:
        return parsing.parse(multi_texts, "multi", max_answers=5, threads=1)

    forecast, slow = ours(), twin(multi_texts, "multi", 5)
    assert forecast.wellformed.all()
    assert forecast.answers == slow[0]
    np.testing.assert_array_equal(forecast.probs, slow[1])
    report(benchmark, cpu_seconds({"rewardkit": ours, "twin": lambda: twin(multi_texts, "multi", 5)}, 3))
    benchmark.pedantic(ours, rounds=ROUNDS)


@pytest.mark.parametrize("repeats", [100, 200, 400])
def test_repeated_tags(benchmark: Any, repeats: int) -> None:
    """The released expression is cubic in this text, and the parser linear."""
    text = "</think><answer></answer><confidence>" * repeats
    pattern = re.compile(r"^.*?</think>\s*<answer>.*?</answer>\s*<confidence>.*?</confidence>\s*$", re.S)

    def ours() -> Any:
        return parsing.parse([text], "tac", threads=1)

    def peer() -> Any:
        return pattern.match(text)

    assert not ours().wellformed.any()
    assert peer() is None
    report(benchmark, cpu_seconds({"rewardkit": ours, "released": peer}, 1))
    benchmark.pedantic(ours, rounds=ROUNDS)
