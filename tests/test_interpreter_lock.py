"""A native kernel lets the other Python threads run while it works: no event loop and no Ray actor stands still (BR-059).

No clock decides: with a switch interval of hours, a thread that waits for the interpreter gets it only from a holder that
lets go of it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np
import pytest

from rewardkit import _kernels, parsing
from rewardkit.parsing import grammar

TEXT = "<think>" + "x " * 2000 + "</think><answer>a1</answer><confidence>0.8</confidence>"
PHRASE = "the quick brown fox jumps over a lazy dog"
SET = {"mode": "official", "theta": 0.75, "max_extra": 2, "yes_no": False, "split_cjk": False}
FUZZY = {"mode": "official", "theta": 0.75, "max_extra": 2, "split_cjk": False}
PARSE = {
    "mode": "strict",
    "think": "required",
    "min_answers": 1,
    "max_answers": 1,
    "on_bad_sum": "fail",
    "sum_tol": 0.02,
    "special_tokens": (),
}
KEEPS_IT = {"build_info", "normal_forms"}
"""What makes Python objects from start to end; no reward calls it."""


def _at(array: np.ndarray) -> int:
    return array.ctypes.data


@cache
def calls() -> dict[str, Callable[[], object]]:
    """For each kernel, a call that takes it some ten milliseconds."""
    kernel = partial(_kernels._lookup, "_cpu")
    rng = np.random.default_rng(0)
    phrases = [f"{PHRASE} {i}" for i in range(20_000)]
    sets = [[f"{PHRASE} {i} {k}" for k in range(5)] for i in range(2_000)]
    texts, program = [TEXT] * 2_000, grammar.program(parsing.FORMATS["tac"])
    rows = np.arange(0, 100_001, 10)
    bags = {
        "prediction_ids": rng.integers(0, 50, 1_000_000, dtype=np.int32),
        "prediction_offsets": np.arange(0, 1_000_001, 10),
    }
    bags |= {"reference_ids": bags["prediction_ids"], "reference_offsets": bags["prediction_offsets"]}
    confidence, correct = rng.random(1_000_000), rng.integers(0, 2, 1_000_000).astype(np.uint8)
    thresholds = np.linspace(0, 1, 11)[1:-1]
    n, vocab = 64, 100_000
    logits, targets = rng.normal(size=(n, vocab)).astype(np.float32), rng.integers(0, vocab, n)
    a, b, c, d = (np.zeros(n, np.float32) for _ in range(4))
    out, sums = np.zeros_like(logits), np.zeros((2, n))
    where = (_at(logits), "float32", n, vocab, vocab, _at(targets))
    hidden, weight, tokens = np.ones((n, 512), np.float32), logits[:, :65_536].reshape(8_192, 512), targets % 8_192
    product = (_at(hidden), "float32", n, 512, 512, _at(weight), len(weight), 512, _at(tokens), 1.0, -100)
    logprobs, offsets, spans = -rng.random(1_000_000), np.arange(0, 1_000_001, 10), np.zeros(100_000)
    keep = (
        logits,
        targets,
        hidden,
        weight,
        tokens,
        a,
        b,
        c,
        d,
        out,
        sums,
        logprobs,
        offsets,
        spans,
    )  # what the pointers below point at

    def raw(name: str, *arguments: object, keep: object = keep) -> Callable[[], object]:
        return lambda: (kernel(name)(*arguments, 1, 0, 0), keep)

    tile = (_at(logits), "float32", n, vocab, vocab, 0, _at(targets), 1.0)
    return {
        "parse_completions": partial(kernel("parse_completions"), texts, program, **PARSE),
        "parse_spans": partial(kernel("parse_spans"), texts, program, **PARSE),
        "exact_match": partial(kernel("exact_match"), phrases, phrases, mode="official"),
        "token_f1": partial(kernel("token_f1"), phrases, phrases, mode="official", yes_no=False, split_cjk=False),
        "fuzzy_match": partial(kernel("fuzzy_match"), phrases, phrases, **FUZZY),
        "score_matrix": partial(kernel("score_matrix"), sets, sets, matcher="token_f1", **SET),
        "match_sets": partial(kernel("match_sets"), sets, sets, matcher="exact", distinct=True, gold_kind="nested", **SET),
        "equivalence_classes": partial(kernel("equivalence_classes"), sets, matcher="exact", linkage="union", **SET),
        "assign": partial(kernel("assign"), rng.random((2_000, 16, 16)) < 0.5, distinct=True),
        "bag_f1": partial(kernel("bag_f1"), **bags, answer_rows=rows, gold_rows=rows),
        "calibration_histogram": partial(kernel("calibration_histogram"), confidence, correct, thresholds, None, 1, 30),
        "segmented_calibration": partial(
            kernel("segmented_calibration"), confidence, correct, np.array([0, len(correct)]), thresholds, 30
        ),
        "auroc_counts": partial(kernel("auroc_counts"), confidence, correct),
        "token_logprobs": raw("token_logprobs", *where, 1.0, -100, _at(a), _at(b), _at(c)),
        "token_logprobs_backward": raw(
            "token_logprobs_backward", *where, 1.0, -100, _at(a), _at(b), _at(c), _at(d), _at(out), vocab
        ),
        "online_softmax_update": raw("online_softmax_update", *tile, _at(a), _at(sums[0]), _at(sums[1]), _at(b)),
        "linear_token_logprobs": raw("linear_token_logprobs", *product, _at(a), _at(b)),
        "span_reduce": raw(
            "span_reduce", _at(logprobs), "float64", len(logprobs), _at(offsets), len(spans), "mean_prob", _at(spans)
        ),
    }  # fmt: skip


@pytest.fixture(autouse=True)
def _nobody_is_interrupted() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e6)
    yield
    sys.setswitchinterval(before)


def lets_go(call: Callable[[], object], attempts: int = 100) -> bool:
    """Whether a thread that was ready to run did so during one of several calls."""
    return any(_ran_during(call) for _ in range(attempts))


def _ran_during(call: Callable[[], object]) -> bool:
    gate, ran = threading.Lock(), []
    gate.acquire()

    def wait() -> None:
        with gate:
            ran.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    gate.release()  # from here on, the thread lacks nothing but the interpreter
    call()
    seen = bool(ran)
    thread.join()
    return seen


@pytest.mark.parametrize("name", sorted({name for name in dir(_kernels._module("_cpu")) if name[0] != "_"} - KEEPS_IT))
def test_BR_059_a_kernel_lets_other_threads_run(name: str) -> None:
    assert lets_go(calls()[name])


def test_a_call_that_keeps_the_interpreter_is_seen() -> None:
    numbers = np.random.default_rng(0).random(50_000).tolist()
    assert not lets_go(partial(sorted, numbers), attempts=10)
