"""Parity rows of the log-probability kernels.

The kernels take raw pointers. A row's call holds numpy arrays (bfloat16 as its bits), and the adapters below lay out the
memory, run a kernel on it and bring back what it wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from rewardkit.reference import logprob as twins
from tests.parity import Row

Array = npt.NDArray[Any]
IGNORE = -100
VOCABS = (1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 1000, 2047, 2048, 2049, 4100, 16_384, 19_001)
LAST = (1, 0, 0)
"""threads, device, stream."""


@dataclass
class Case:
    """Rows of logits in a buffer with gaps and an odd start, as the caller of a kernel may have them."""

    dtype: str
    vocab: int
    buffer: Array
    start: int
    row_stride: int
    targets: npt.NDArray[np.int64]
    temperature: float

    @property
    def rows(self) -> int:
        return len(self.targets)

    @property
    def pointer(self) -> int:
        return self.buffer.ctypes.data + self.start * self.buffer.itemsize

    def columns_from(self, first: int) -> int:
        return self.pointer + first * self.buffer.itemsize


def make_case(
    *, seed: int, dtype: str, rows: int, vocab: int, scale: float, shift: float, temperature: float, trouble: str
) -> Case:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, vocab)) * scale + shift
    if rows and vocab > 1:
        x[0].sort()  # every block has a new maximum
        x[-1, rng.integers(vocab)] += 40  # a dominant token
    if rows and trouble:
        row = rng.integers(rows)
        bits = {
            "masked": (rng.random(vocab) < 0.5, -np.inf),
            "masked with a number": (rng.random(vocab) < 0.5, -1e9 if dtype != "float16" else -6e4),
            "all masked": (np.ones(vocab, bool), -np.inf),
            "all masked with a number": (np.ones(vocab, bool), -1e9 if dtype != "float16" else -6e4),
            "nan": (np.arange(vocab) == rng.integers(vocab), np.nan),
            "inf": (np.arange(vocab) == rng.integers(vocab), np.inf),
            "millions": (rng.random(vocab) < 0.3, 3e7 if dtype != "float16" else 6e4),
        }
        where, value = bits[trouble]
        x[row, where] = value
    row_stride, start = vocab + int(rng.integers(0, 4)), int(rng.integers(0, 8))
    buffer = twins.as_stored(rng.normal(size=start + rows * row_stride + vocab + 16), dtype)
    stored = twins.as_stored(x, dtype)
    for i in range(rows):
        buffer[start + i * row_stride : start + i * row_stride + vocab] = stored[i]
    targets = rng.integers(0, vocab, size=rows)
    if rows > 1:
        targets[rng.integers(rows)] = IGNORE
        targets[rng.integers(rows)] = vocab - 1
    return Case(dtype, vocab, buffer, start, row_stride, targets, temperature)


TROUBLES = ("masked", "masked with a number", "all masked", "all masked with a number", "nan", "inf", "millions")


def cases(dtypes: tuple[str, ...] = ("float32", "bfloat16", "float16"), *, scales=(0.1, 2.5, 30.0), troubles=TROUBLES):
    built = st.builds(
        make_case,
        seed=st.integers(0, 2**32 - 1),
        dtype=st.sampled_from(dtypes),
        rows=st.integers(0, 5),
        vocab=st.sampled_from(VOCABS),
        scale=st.sampled_from(scales),
        shift=st.sampled_from((0.0, -60.0, 100.0)),
        temperature=st.sampled_from((1.0, 0.6, 2.5)),
        trouble=st.sampled_from(("", "", "", *troubles)),
    )
    return built.map(lambda case: ((case,), {}))


def _outputs(rows: int, count: int) -> list[npt.NDArray[np.float32]]:
    return [np.full(rows, 7.0, dtype=np.float32) for _ in range(count)]


def _at(array: Array) -> int:
    return array.ctypes.data


def forward(kernel: Callable[..., Any]) -> Callable[[Case], Any]:
    def run(case: Case) -> Any:
        where = (case.pointer, case.dtype, case.rows, case.vocab, case.row_stride, _at(case.targets))
        logprob, entropy, lse = _outputs(case.rows, 3)
        status = kernel(*where, case.temperature, IGNORE, _at(logprob), _at(entropy), _at(lse), *LAST)
        alone = _outputs(case.rows, 1)[0]  # without the entropy, the kernel takes another path
        kernel(*where, case.temperature, IGNORE, _at(alone), 0, 0, *LAST)
        return status, logprob, entropy, lse, alone

    return run


def backward(kernel: Callable[..., Any]) -> Callable[[Case], Any]:
    def run(case: Case) -> Any:
        where = (case.pointer, case.dtype, case.rows, case.vocab, case.row_stride, _at(case.targets))
        logprob, entropy, lse = _outputs(case.rows, 3)
        twins.token_logprobs(*where, case.temperature, IGNORE, _at(logprob), _at(entropy), _at(lse), *LAST)
        rng = np.random.default_rng(case.vocab)
        g, h = (rng.normal(size=case.rows).astype(np.float32) for _ in range(2))
        results = []
        for grad_logprob, grad_entropy in ((_at(g), 0), (_at(g), _at(h)), (0, _at(h))):
            out = twins.as_stored(np.full((case.rows, case.vocab + 3), 7.0), case.dtype)
            kernel(
                *where,
                case.temperature,
                IGNORE,
                _at(lse),
                _at(entropy),
                grad_logprob,
                grad_entropy,
                _at(out),
                case.vocab + 3,
                *LAST,
            )
            results.append(twins.as_float64(out, case.dtype))  # the gap of 3 must keep its 7
        return results

    return run


def online(kernel: Callable[..., Any]) -> Callable[[Case], Any]:
    def run(case: Case) -> Any:
        state_max, target_logit = (np.full(case.rows, start, dtype=np.float32) for start in (-np.inf, np.nan))
        plain_max, plain_target = state_max.copy(), target_logit.copy()
        state_sum, state_weighted, plain_sum = (np.zeros(case.rows) for _ in range(3))
        tile = max(1, case.vocab // 3)
        for first in range(0, case.vocab, tile):
            columns = min(tile, case.vocab - first)
            where = (
                case.columns_from(first),
                case.dtype,
                case.rows,
                columns,
                case.row_stride,
                first,
                _at(case.targets),
            )
            kernel(
                *where,
                case.temperature,
                _at(state_max),
                _at(state_sum),
                _at(state_weighted),
                _at(target_logit),
                *LAST,
            )
            kernel(*where, case.temperature, _at(plain_max), _at(plain_sum), 0, _at(plain_target), *LAST)
        with np.errstate(all="ignore"):
            lse = state_max + np.log(state_sum)
            entropy = np.log(state_sum) - state_weighted / state_sum
            return lse, entropy, target_logit, plain_max + np.log(plain_sum), plain_target

    return run


@dataclass
class Product:
    """Hidden states and weights in buffers with gaps and odd starts."""

    dtype: str
    hidden: Array  # [N, D + gap], of which the first D columns count
    weight: Array  # [V, D + another gap]
    hidden_size: int
    targets: npt.NDArray[np.int64]
    temperature: float


def make_product(
    *, seed: int, dtype: str, rows: int, hidden_size: int, vocab: int, temperature: float, trouble: str
) -> Product:
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(rows, hidden_size)) * 2
    weight = rng.normal(size=(vocab, hidden_size)) / max(1, hidden_size) ** 0.5
    if hidden_size:
        column, row = rng.integers(vocab), rng.integers(rows) if rows else 0
        if trouble == "dominant" and rows:
            weight[column] = hidden[row] * 20 / (hidden[row] @ hidden[row])
        elif trouble == "tiny":  # far below what the smallest normal numbers can add to a logit
            weight[:, rng.integers(hidden_size)] = 1e-39
            hidden[:, rng.integers(hidden_size)] = -1e-40
        elif trouble == "masked":  # -inf in a whole column of the vocabulary
            hidden[:, 0] = np.abs(hidden[:, 0]) + 1
            weight[rng.random(vocab) < 0.5, 0] = -np.inf
        elif trouble == "all masked":
            hidden[:, 0] = np.abs(hidden[:, 0]) + 1
            weight[:, 0] = -np.inf
        elif trouble == "opposite infinities" and rows:
            hidden[row, 0] = np.inf
        elif trouble == "nan in a weight":
            weight[column, rng.integers(hidden_size)] = np.nan
        elif trouble == "nan in a row" and rows:
            hidden[row, rng.integers(hidden_size)] = np.nan
    gaps = [np.full((len(part), int(rng.integers(0, 5))), np.nan) for part in (hidden, weight)]  # never to be read
    hidden, weight = (np.concatenate(pair, axis=1) for pair in zip((hidden, weight), gaps, strict=True))
    targets = rng.integers(0, vocab, size=rows)
    if rows > 1:
        targets[rng.integers(rows)] = IGNORE
        targets[rng.integers(rows)] = vocab - 1
    return Product(dtype, as_odd(hidden, dtype), as_odd(weight, dtype), hidden_size, targets, temperature)


def as_odd(values: npt.NDArray[np.float64], dtype: str) -> Array:
    """Stored as ``dtype``, one element after where an allocation starts."""
    stored = twins.as_stored(values, dtype)
    buffer = np.empty(stored.size + 1, dtype=stored.dtype)
    odd = buffer[1:].reshape(stored.shape)
    odd[...] = stored
    return odd


def linear(kernel: Callable[..., Any]) -> Callable[[Product], Any]:
    def run(case: Product) -> Any:
        rows, vocab = len(case.targets), len(case.weight)
        where = (_at(case.hidden), case.dtype, rows, case.hidden_size, case.hidden.shape[1])
        where += (_at(case.weight), vocab, case.weight.shape[1], _at(case.targets), case.temperature, IGNORE)
        logprob, entropy, alone = _outputs(rows, 3)
        status = kernel(*where, _at(logprob), _at(entropy), *LAST)
        kernel(*where, _at(alone), 0, *LAST)
        bad = case.targets.copy()
        bad[rows // 2 :] = vocab  # nothing may be written then
        untouched = _outputs(rows, 1)[0]
        refused = kernel(*where[:8], _at(bad), *where[9:], _at(untouched), 0, *LAST)
        return status, logprob, entropy, alone, refused, untouched

    return run


PRODUCTS = st.builds(
    make_product,
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(("float32", "bfloat16", "float16")),
    rows=st.sampled_from((0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 70)),
    hidden_size=st.sampled_from((0, 1, 2, 3, 7, 16, 31, 33, 64, 65, 257)),
    vocab=st.sampled_from((1, 2, 5, 6, 12, 13, 95, 96, 97, 193, 500)),
    temperature=st.sampled_from((1.0, 0.6, 2.5)),
    trouble=st.sampled_from(
        (
            "",
            "",
            "",
            "dominant",
            "tiny",
            "masked",
            "all masked",
            "opposite infinities",
            "nan in a weight",
            "nan in a row",
        )
    ),
).map(lambda case: ((case,), {}))


@dataclass
class Spans:
    logprobs: Array
    offsets: npt.NDArray[np.int64]
    how: str


def make_spans(*, seed: int, dtype: str, lengths: list[int], how: str, trouble: float) -> Spans:
    rng = np.random.default_rng(seed)
    values = (rng.normal(size=sum(lengths)) - 1.5).astype(dtype)  # some above 0
    if len(values):
        values[rng.integers(len(values))] = trouble
    return Spans(values, np.cumsum([0, *lengths]).astype(np.int64), how)


def spans(kernel: Callable[..., Any]) -> Callable[[Spans], Any]:
    def run(case: Spans) -> Any:
        out = np.full(len(case.offsets) - 1, 7.0)
        tokens = len(case.logprobs)
        status = kernel(
            _at(case.logprobs),
            case.logprobs.dtype.name,
            tokens,
            _at(case.offsets),
            len(out),
            case.how,
            _at(out),
            *LAST,
        )
        return status, out

    return run


SPAN_CALLS = st.builds(
    make_spans,
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(("float32", "float64")),
    lengths=st.lists(st.one_of(st.integers(0, 9), st.integers(0, 700)), max_size=6),
    how=st.sampled_from(("mean_prob", "sum_log", "mean_log", "geo_mean", "prod")),
    trouble=st.sampled_from((-0.5, 0.3, -np.inf, np.nan)),
).map(lambda case: ((case,), {}))

_FINITE = ("masked", "masked with a number", "nan", "inf")
_UNKNOWN = Spans(np.zeros(1), np.array([0, 1]), "median")

ROWS: list[Row] = [
    Row("token_logprobs", cases(), rtol=1e-6, atol=1e-6, max_examples=150, adapt=forward),
    Row(
        "token_logprobs_backward",
        cases(("float32",), troubles=_FINITE),
        rtol=1e-4,
        atol=1e-6,
        max_examples=60,
        adapt=backward,
    ),
    Row(
        "token_logprobs_backward",
        cases(("bfloat16", "float16"), troubles=_FINITE),
        rtol=2**-7,  # one unit in the last place of bfloat16
        atol=1e-6,
        max_examples=60,
        adapt=backward,
    ),
    Row("online_softmax_update", cases(), rtol=1e-6, atol=2e-6, max_examples=100, adapt=online),
    Row("linear_token_logprobs", PRODUCTS, rtol=2e-6, atol=1e-5, max_examples=200, adapt=linear),
    Row(
        "span_reduce",
        SPAN_CALLS,
        rtol=1e-12,
        atol=1e-300,
        max_examples=100,
        adapt=spans,
        bad_calls=[((_UNKNOWN,), {})],
    ),
]
