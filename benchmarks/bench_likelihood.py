"""Log-probabilities against what people use instead, interleaved in one process; equality is checked before time.

CPU time of one thread, the least of some rounds in which every contestant runs once. What counts are the ratios: `x_<peer>` is
how many times longer the peer takes, `read_limit` the speed as a share of that at which torch merely reads the same buffer, from end
to end as one stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from turns import cpu_seconds

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from rewardkit.likelihood import linear_token_logprobs, token_logprobs  # noqa: E402

VOCAB, ROWS, ROUNDS = 151_936, 256, 7
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def report(benchmark: Any, ours: str, best: dict[str, float]) -> None:
    for name, seconds in best.items():
        benchmark.extra_info[f"ms_{name}"] = round(seconds * 1e3, 2)
        if name != ours:
            benchmark.extra_info[f"x_{name}"] = round(seconds / best[ours], 2)
    print(f"\n{benchmark.name}: " + ", ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in best.items()))


def logits_of(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(ROWS, VOCAB, generator=generator) * 2.5
    targets = torch.randint(VOCAB, (ROWS,), generator=generator)
    logits[torch.arange(ROWS), targets.roll(1)] += 20.0  # a dominant token, as language models have one
    return logits.to(dtype), targets


def read(logits: torch.Tensor) -> None:
    logits.view(torch.int64).sum()


def verl_functions() -> dict[str, Callable[..., Any]]:
    """verl's own, where it is installed."""
    try:
        from verl.utils import torch_functional as verl
    except ImportError:
        return {}
    return {
        "verl_v2": lambda x, t: verl.logprobs_from_logits_v2(x, t),
        "verl_naive": lambda x, t: verl.logprobs_from_logits_naive(x, t),
        "verl_entropy": lambda x, t: verl.entropy_from_logits_with_chunking(x),
    }


@pytest.mark.parametrize("dtype", DTYPES)
def test_token_logprobs(benchmark: Any, dtype: str) -> None:
    logits, targets = logits_of(DTYPES[dtype])
    exact = torch.log_softmax(logits[:32].double(), -1).gather(1, targets[:32, None])[:, 0]
    ours = token_logprobs(logits, targets)
    error = ((ours[:32] - exact).abs() / (1 + exact.abs())).max().item()
    assert error <= 1e-6
    compiled = torch.compile(lambda x, t: torch.log_softmax(x.float(), -1).gather(1, t[:, None])[:, 0])
    compiled(logits, targets)
    verl = verl_functions()
    contestants: dict[str, Callable[[], Any]] = {
        "rewardkit": lambda: token_logprobs(logits, targets),
        "rewardkit_entropy": lambda: token_logprobs(logits, targets, return_entropy=True),
        "read": lambda: read(logits),
        "log_softmax_gather": lambda: torch.log_softmax(logits, -1).gather(1, targets[:, None]),
        "float_log_softmax_gather": lambda: torch.log_softmax(logits.float(), -1).gather(1, targets[:, None]),
        "cross_entropy": lambda: F.cross_entropy(logits, targets, reduction="none"),
        "row_by_row": lambda: [torch.log_softmax(row.float(), -1) for row in logits],
        "torch_compile": lambda: compiled(logits, targets),
        **{name: (lambda run=run: run(logits, targets)) for name, run in verl.items()},
    }
    best = cpu_seconds(contestants, ROUNDS)
    if verl:
        best["verl_naive_and_entropy"] = best["verl_naive"] + best["verl_entropy"]
    eager = ("log_softmax_gather", "float_log_softmax_gather", "cross_entropy", "row_by_row", "verl_v2")
    benchmark.extra_info["error"] = error
    benchmark.extra_info["read_limit"] = round(best["read"] / best["rewardkit"], 3)
    benchmark.extra_info["entropy_costs"] = round(best["rewardkit_entropy"] / best["rewardkit"] - 1, 3)
    benchmark.extra_info["x_best_eager"] = round(min(best[n] for n in eager if n in best) / best["rewardkit"], 2)
    report(benchmark, "rewardkit", best)
    print({k: v for k, v in benchmark.extra_info.items() if not k.startswith("ms_")})
    benchmark.pedantic(contestants["rewardkit"], rounds=5, warmup_rounds=1)


@pytest.mark.parametrize("kept", [1, 8], ids=["all", "one_in_eight"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_linear_token_logprobs(benchmark: Any, dtype: str, kept: int) -> None:
    rows, hidden_size = (256, 1024) if dtype == "float32" else (64, 1024)
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, hidden_size, generator=generator).to(DTYPES[dtype])
    weight = (torch.randn(VOCAB, hidden_size, generator=generator) / 32).to(DTYPES[dtype])
    targets = torch.randint(VOCAB, (rows,), generator=generator)
    targets[torch.arange(rows) % kept != 0] = -100
    scored = targets != -100

    def full() -> torch.Tensor:
        return torch.log_softmax((hidden @ weight.t()).float(), -1).gather(1, targets.clamp(min=0)[:, None])[:, 0]

    ours, some = linear_token_logprobs(hidden, weight, targets), scored.nonzero()[:8, 0]
    exact = torch.cat([hidden[some].double() @ part.double().t() for part in weight.split(8192)], -1)
    exact = torch.log_softmax(exact, -1).gather(1, targets[some, None])[:, 0]
    benchmark.extra_info["error"] = error = (ours[some] - exact).abs().max().item()
    benchmark.extra_info["error_full_logits"] = (full()[some] - exact).abs().max().item()
    assert error <= 1e-5
    contestants = {
        "rewardkit": lambda: linear_token_logprobs(hidden, weight, targets),
        "rewardkit_entropy": lambda: linear_token_logprobs(hidden, weight, targets, return_entropy=True),
        "full_logits": full,
    }
    best = cpu_seconds(contestants, 4)
    report(benchmark, "rewardkit", best)
    print({k: v for k, v in benchmark.extra_info.items() if not k.startswith("ms_")})
    benchmark.pedantic(lambda: linear_token_logprobs(hidden, weight, targets), rounds=2)
