"""Completions for tests, written out so that the tests do not lean on the package's own renderer."""

from __future__ import annotations

from collections.abc import Sequence

Pairs = Sequence[tuple[str, float]]


def single(answer: str, confidence: object = None, *, format: str = "tac") -> str:
    parts = {
        "a": f"<answer>{answer}</answer>",
        "b": "<analysis>could be wrong</analysis>",
        "c": f"<confidence>{confidence!r}</confidence>",
        "t": "<think>hm</think>",
    }
    return "".join(parts[letter] for letter in format)


def multi(*pairs: tuple[str, float], format: str = "multi") -> str:
    answers = [f"<answer{i}>{answer}</answer{i}>" for i, (answer, _) in enumerate(pairs, 1)]
    stated = [f"<confidence{i}>{q!r}</confidence{i}>" for i, (_, q) in enumerate(pairs, 1)]
    both = "".join(one + other for one, other in zip(answers, stated, strict=True))
    analysis = "<analysis>weighed</analysis>"
    return (
        "<think>hm</think>"
        + {
            "multi": both + analysis,
            "multi_noanalysis": both,
            "multi_split": "".join(answers) + analysis + "".join(stated),
            "multi_rlvr": "".join(answers),
        }[format]
    )


def hypotheses(*pairs: tuple[str, float], other: float) -> str:
    listed = "".join(f"<h{i}>{answer}</h{i}><w{i}>{w!r}</w{i}>" for i, (answer, w) in enumerate(pairs, 1))
    return f"<think>hm</think><hypotheses>{listed}<other>{other!r}</other></hypotheses>"
