"""The torch functions over the log-probability kernels, and the reduction of spans."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rewardkit import _kernels, likelihood
from rewardkit.errors import InvalidArgumentError, UnknownNameError
from rewardkit.likelihood import linear_token_logprobs, span_reduce, token_logprobs

ROOT = Path(__file__).resolve().parent.parent
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def definition(
    logits: torch.Tensor, targets: torch.Tensor, temperature: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    log_p = torch.log_softmax(logits.double() / temperature, -1)
    p = log_p.exp()
    entropy = -torch.where(p == 0, 0.0, p * log_p).sum(-1)
    return log_p.gather(-1, targets[..., None])[..., 0], entropy


def some_logits(
    rows: int, vocab: int, dtype: torch.dtype = torch.float32, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, vocab, generator=generator) * 2.5
    logits[:, 0] += 20.0  # language models are sure more often than not
    targets = torch.randint(vocab, (rows,), generator=generator)
    targets[0] = 0
    return logits.to(dtype), targets


@pytest.fixture(params=["native", "reference", "emulator"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "emulator" and (reason := _kernels.built_modules()["_emu"]):
        pytest.skip(reason)
    monkeypatch.setenv("REWARDKIT_BACKEND", request.param)
    return request.param


# ---- token_logprobs --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_equals_the_definition_in_float64(backend: str, dtype: torch.dtype, temperature: float) -> None:
    logits, targets = some_logits(4, 5003, dtype)
    logprob, entropy = token_logprobs(logits, targets, temperature, return_entropy=True)
    expected, expected_entropy = definition(logits, targets, temperature)
    assert logprob.dtype == entropy.dtype == torch.float32
    assert ((logprob - expected).abs() <= 1e-6 * (1 + expected.abs())).all()
    assert ((entropy - expected_entropy).abs() <= 2e-6 * (1 + expected_entropy.abs())).all()


def test_large_vocabulary_is_within_one_in_a_million() -> None:
    for dtype in DTYPES:
        logits, targets = some_logits(3, 151_936, dtype, seed=1)
        expected, _ = definition(logits, targets)
        error = (token_logprobs(logits, targets) - expected).abs() / (1 + expected.abs())
        assert error.max() <= 1e-6


def test_any_row_stride_and_any_vocabulary(backend: str) -> None:
    wide, _ = some_logits(12, 260)
    targets = torch.arange(6) * 3
    for logits in (wide[:6, 1:130], wide[::2, :127], wide[:6, :125].t().contiguous().t(), wide[:1].expand(6, -1)):
        expected, _ = definition(logits, targets)
        torch.testing.assert_close(token_logprobs(logits, targets).double(), expected, atol=1e-5, rtol=1e-6)


def test_leading_axes(backend: str) -> None:
    logits, _ = some_logits(12, 40)
    logits, targets = logits.view(3, 4, 40), torch.arange(12).view(3, 4)
    logprob, entropy = token_logprobs(logits, targets, return_entropy=True)
    assert logprob.shape == entropy.shape == (3, 4)
    torch.testing.assert_close(logprob.double(), definition(logits, targets)[0], atol=1e-5, rtol=1e-6)
    shifted = token_logprobs(logits[:, :-1], targets[:, 1:])  # rows that do not flatten
    torch.testing.assert_close(shifted.double(), definition(logits[:, :-1], targets[:, 1:])[0], atol=1e-5, rtol=1e-6)


def test_rows_that_are_no_distribution_give_nan_as_in_torch(backend: str) -> None:
    inf, nan = torch.inf, torch.nan
    logits = torch.tensor([[-inf] * 3, [0.0, inf, 1.0], [0.0, nan, 1.0], [0.0, -inf, 1.0], [0.0, -inf, 1.0]])
    targets = torch.tensor([0, 0, 0, 1, 2])
    logprob, entropy = token_logprobs(logits, targets, return_entropy=True)
    expected = torch.log_softmax(logits, -1).gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(logprob, expected, equal_nan=True)
    assert entropy[:3].isnan().all()
    torch.testing.assert_close(entropy[3:], definition(logits[3:], targets[3:])[1].float())


def test_ignored_rows_are_zero_and_not_read(backend: str) -> None:
    logits = torch.full((3, 8), torch.nan)
    logits[1] = 0.0
    targets = torch.tensor([-100, 3, -100])
    logprob, entropy = token_logprobs(logits, targets, return_entropy=True)
    assert logprob.tolist()[::2] == entropy.tolist()[::2] == [0.0, 0.0]
    assert logprob[1].item() == pytest.approx(-np.log(8))


def test_a_target_outside_the_vocabulary_raises() -> None:
    logits, _ = some_logits(3, 7)
    for bad in (7, -1, -101, 2**40):
        with pytest.raises(InvalidArgumentError, match=r"targets\[1\].*\[0, 7\)"):
            token_logprobs(logits, torch.tensor([0, bad, 2]))
        with pytest.raises(InvalidArgumentError, match=r"targets\[1\]"):
            linear_token_logprobs(logits, torch.randn(7, 7), torch.tensor([0, bad, 2]))


def test_log_probabilities_are_never_above_zero() -> None:
    logits = torch.tensor([[100.0, -100.0], [1e4, 0.0]])
    assert (token_logprobs(logits, torch.tensor([0, 0])) <= 0).all()


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, dtype=torch.long)), "logits"),
        ((torch.zeros(3), torch.zeros((), dtype=torch.long)), "logits"),
        ((np.zeros((2, 3)), torch.zeros(2, dtype=torch.long)), "logits"),
        ((torch.zeros(2, 3), torch.zeros(2)), "targets"),
        ((torch.zeros(2, 3), torch.zeros(3, dtype=torch.long)), "targets"),
        ((torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), 0.0), "temperature"),
        ((torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), float("nan")), "temperature"),
        ((torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), "1"), "temperature"),
        ((torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), None), "temperature"),
        ((torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), 1.0, "pad"), "ignore_index"),
    ],
)
def test_bad_calls_name_the_argument(arguments: tuple, name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=name):
        token_logprobs(*arguments)


def test_bad_calls_of_the_linear_form_name_the_argument() -> None:
    hidden, targets = torch.zeros(2, 3), torch.zeros(2, dtype=torch.long)
    for weight, rest, name in ((np.zeros((5, 3)), (), "weight"), (torch.zeros(5, 3), ("1",), "temperature")):
        with pytest.raises(InvalidArgumentError, match=name):
            linear_token_logprobs(hidden, weight, targets, *rest)  # type: ignore[arg-type]


def test_empty_batches(backend: str) -> None:
    logprob, entropy = token_logprobs(torch.zeros(0, 9), torch.zeros(0, dtype=torch.long), return_entropy=True)
    assert logprob.shape == entropy.shape == (0,)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient_equals_autograd(backend: str, dtype: torch.dtype) -> None:
    logits, targets = some_logits(5, 300, dtype)
    targets[3] = -100
    logits[4, 7] = -torch.inf
    weights, entropy_weights = torch.randn(5), torch.randn(5)

    ours = logits.clone().requires_grad_()
    logprob, entropy = token_logprobs(ours, targets, 0.7, return_entropy=True)
    (logprob * weights + entropy * entropy_weights).sum().backward()

    exact = logits.double().requires_grad_()
    log_p = torch.log_softmax(exact / 0.7, -1)
    plogp = torch.where(log_p == -torch.inf, 0.0, log_p.exp() * log_p.clamp(min=-1e30))
    kept = targets != -100
    picked = log_p.gather(1, targets.clamp(min=0)[:, None])[:, 0]
    ((picked * weights - plogp.sum(-1) * entropy_weights) * kept).sum().backward()
    assert ours.grad is not None
    assert exact.grad is not None
    assert ours.grad.dtype == dtype
    assert (ours.grad[3] == 0).all()
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}[dtype]
    torch.testing.assert_close(ours.grad.double(), exact.grad.nan_to_num(), atol=1e-5, rtol=tolerance)


def test_gradcheck_of_the_entropy_and_the_logprob_by_differences() -> None:
    logits, targets = some_logits(1, 6, seed=3)
    logits[0, 0] -= 20
    ours = logits.clone().requires_grad_()
    logprob, entropy = token_logprobs(ours, targets, return_entropy=True)
    (logprob + entropy).sum().backward()
    step = 1e-5
    for j in range(6):
        up, down = logits.double().clone(), logits.double().clone()
        up[0, j] += step
        down[0, j] -= step
        values = [sum(part.item() for part in definition(x, targets)) for x in (up, down)]
        assert ours.grad is not None
        assert ours.grad[0, j].item() == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-4)


# ---- as torch operators ----------------------------------------------------------------------------


def test_opcheck() -> None:
    logits, targets = some_logits(4, 33)
    targets[2] = -100
    ops = torch.ops.rewardkit
    torch.library.opcheck(ops.token_logprobs.default, (logits, targets, 1.0, -100, True))
    torch.library.opcheck(ops.token_logprobs.default, (logits, targets, 0.5, -100, False))
    logprob, entropy, lse = ops.token_logprobs(logits, targets, 1.0, -100, True)
    gradient = torch.ones_like(logprob)
    torch.library.opcheck(
        ops.token_logprobs_backward.default, (logits, targets, lse, entropy, gradient, None, 1.0, -100)
    )
    torch.library.opcheck(ops.linear_token_logprobs.default, (logits, torch.randn(50, 33), targets, 1.0, -100, True))
    torch.library.opcheck(ops.span_reduce.default, (logprob, torch.tensor([0, 2, 4]), "mean_prob"))


@pytest.mark.filterwarnings("ignore")  # Inductor's own
def test_compiles_in_one_graph_forward_and_backward() -> None:
    def objective(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logprob, entropy = token_logprobs(logits * 2, targets, return_entropy=True)
        return (logprob + 0.1 * entropy).sum()

    logits, targets = some_logits(4, 50)
    compiled = torch.compile(objective, fullgraph=True, backend="aot_eager")
    plain, traced = (logits.clone().requires_grad_() for _ in range(2))
    expected, got = objective(plain, targets), compiled(traced, targets)
    torch.testing.assert_close(got, expected)
    expected.backward()
    got.backward()
    torch.testing.assert_close(traced.grad, plain.grad)


@pytest.mark.filterwarnings("ignore")
def test_the_other_functions_compile_in_one_graph() -> None:
    def objective(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logprob = linear_token_logprobs(hidden, weight, targets)
        return span_reduce(logprob, torch.tensor([0, 1, 4]), "mean_prob")

    hidden, weight, targets = torch.randn(4, 16), torch.randn(90, 16), torch.tensor([0, 89, -100, 5])
    compiled = torch.compile(objective, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(hidden, weight, targets), objective(hidden, weight, targets))


def test_functions_are_reached_by_attribute_in_a_compiled_graph() -> None:
    logits, targets = some_logits(2, 9)
    compiled = torch.compile(lambda x, t: likelihood.token_logprobs(x, t), fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(logits, targets), token_logprobs(logits, targets))


# ---- linear_token_logprobs -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab", [1, 1000, 1024, 2049])
def test_linear_equals_full_logits(backend: str, dtype: torch.dtype, vocab: int) -> None:
    generator = torch.Generator().manual_seed(vocab)
    hidden = torch.randn(5, 24, generator=generator).to(dtype)
    weight = torch.randn(vocab, 24, generator=generator).to(dtype)
    targets = torch.tensor([0, vocab - 1, -100, vocab // 2, 0])
    logprob, entropy = linear_token_logprobs(hidden, weight, targets, 0.8, return_entropy=True)
    expected, expected_entropy = definition(hidden.double() @ weight.double().t(), targets.clamp(min=0), 0.8)
    kept = targets != -100
    torch.testing.assert_close(logprob[kept].double(), expected[kept], atol=5e-5, rtol=1e-6)
    torch.testing.assert_close(entropy[kept].double(), expected_entropy[kept], atol=5e-5, rtol=1e-6)
    assert logprob[2].item() == entropy[2].item() == 0.0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 3, 8, 9, 40, 300])
def test_linear_sums_in_float32_or_better(dtype: torch.dtype, rows: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    hidden = torch.randn(rows, 1537, generator=generator).to(dtype)
    weight = (torch.randn(3001, 1537, generator=generator) / 16).to(dtype)
    targets = torch.randint(3001, (rows,), generator=generator)
    logprob, entropy = linear_token_logprobs(hidden, weight, targets, return_entropy=True)
    expected, expected_entropy = definition(hidden.double() @ weight.double().t(), targets)
    assert ((logprob - expected).abs() <= 1e-5).all()
    assert ((entropy - expected_entropy).abs() <= 1e-5).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_linear_takes_any_row_stride(backend: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    wide = torch.randn(20, 64, generator=generator).to(dtype)
    wide_weight = torch.randn(150, 70, generator=generator).to(dtype)
    weight, targets = wide_weight[::3, 3:40], torch.arange(10) * 4
    for hidden in (wide[::2, 5:42], wide[:1, :37].expand(10, -1), wide[:10, :37].t().contiguous().t()):
        expected, _ = definition(hidden.double() @ weight.double().t(), targets)
        torch.testing.assert_close(
            linear_token_logprobs(hidden, weight, targets).double(), expected, atol=2e-5, rtol=1e-6
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_linear_threads_do_not_change_the_numbers(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(size, 96, generator=generator).to(dtype) for size in (300, 20_001))
    before = torch.get_num_threads()
    try:
        for rows in (5, 300):
            torch.set_num_threads(1)
            one = linear_token_logprobs(hidden[:rows], weight, torch.arange(rows), return_entropy=True)
            for threads in (2, 3, 7):
                torch.set_num_threads(threads)
                more = linear_token_logprobs(hidden[:rows], weight, torch.arange(rows), return_entropy=True)
                assert torch.equal(more[0], one[0])
                assert torch.equal(more[1], one[1])
    finally:
        torch.set_num_threads(before)


def test_linear_of_spans_reads_only_the_scored_rows(backend: str) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(80, 40, generator=generator), torch.randn(600, 40, generator=generator)
    targets = torch.arange(80) * 7
    targets[torch.arange(80) % 8 != 3] = -100
    scored = targets != -100
    full = linear_token_logprobs(hidden[scored], weight, targets[scored])
    if backend != "emulator":  # on a GPU, finding the scored rows would stall the stream
        hidden[~scored] = torch.nan
    got = linear_token_logprobs(hidden, weight, targets)
    torch.testing.assert_close(got[scored], full, rtol=1e-6, atol=1e-6)
    assert (got[~scored] == 0).all()


def test_linear_rows_that_are_no_distribution(backend: str) -> None:
    hidden = torch.tensor([[1.0, 0.0], [torch.nan, 0.0], [torch.inf, 1.0], [-1.0, 2.0]])
    weight = torch.tensor([[-torch.inf, 1.0], [-torch.inf, 0.5], [-torch.inf, 2.0]])
    targets = torch.tensor([0, 1, 2, 0])
    logprob, entropy = linear_token_logprobs(hidden, weight, targets, return_entropy=True)
    assert logprob.isnan().all()
    assert entropy.isnan().all()
    weight[1:, 0] = 1.0  # of the first row, one logit is -inf
    logprob, entropy = linear_token_logprobs(hidden[:1], weight, targets[:1], return_entropy=True)
    assert logprob.item() == -torch.inf
    assert entropy.item() == pytest.approx(np.log(2))


def test_linear_refuses_what_it_cannot_do() -> None:
    hidden, weight, targets = torch.randn(2, 4), torch.randn(9, 4), torch.tensor([0, 1])
    with pytest.raises(InvalidArgumentError, match="no_grad"):
        linear_token_logprobs(hidden.clone().requires_grad_(), weight, targets)
    with pytest.raises(InvalidArgumentError, match=r"shape \[V, 4\]"):
        linear_token_logprobs(hidden, weight[:, :3], targets)
    with pytest.raises(InvalidArgumentError, match="weight"):
        linear_token_logprobs(hidden, weight.bfloat16(), targets)


# ---- span_reduce -----------------------------------------------------------------------------------


def test_the_five_reductions_on_numbers_worked_out_by_hand(backend: str) -> None:
    logprobs = np.log(np.array([0.99, 0.99, 0.01]))
    values = {how: span_reduce(logprobs, np.array([0, 3]), how)[0] for how in likelihood.REDUCTIONS}
    assert values["mean_prob"] == pytest.approx(0.6633333333, abs=1e-9)
    assert values["geo_mean"] ** 3 == pytest.approx(0.009801)
    assert values["prod"] == pytest.approx(0.009801)
    assert values["sum_log"] == pytest.approx(np.log(0.009801))
    assert values["mean_log"] == pytest.approx(np.log(0.009801) / 3)


def test_products_of_500_tokens_do_not_underflow() -> None:
    logprobs = np.full(500, np.log(0.9), dtype=np.float32)
    assert span_reduce(logprobs, np.array([0, 500]), "prod")[0] == pytest.approx(0.9**500, rel=1e-5)
    assert span_reduce(np.full(500, -3.0), np.array([0, 500]), "sum_log")[0] == -1500.0
    assert span_reduce(np.full(500, -3.0), np.array([0, 500]), "geo_mean")[0] == pytest.approx(np.exp(-3.0))


def test_an_empty_span_is_nan_not_zero(backend: str) -> None:
    for how in likelihood.REDUCTIONS:
        values = span_reduce(np.array([-1.0]), np.array([0, 0, 1, 1]), how)
        assert np.isnan(values[[0, 2]]).all()
        assert np.isfinite(values[1])


def test_spans_of_tensors_are_tensors(backend: str) -> None:
    logprobs = torch.log(torch.tensor([0.5, 0.25, 1.0]))
    values = span_reduce(logprobs, torch.tensor([0, 2, 3]), "mean_prob")
    torch.testing.assert_close(values, torch.tensor([0.375, 1.0], dtype=torch.float64))


@pytest.mark.parametrize("offsets", [[0, 4], [2, 1], [-1, 2], [0, 2, 1]])
@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_bad_offsets_raise(offsets: list[int], kind) -> None:
    with pytest.raises(InvalidArgumentError, match="offsets"):
        span_reduce(kind([-1.0, -2.0, -3.0]), kind(offsets), "mean_prob")


def test_unknown_reduction() -> None:
    with pytest.raises(UnknownNameError, match="mean_prob"):
        span_reduce(np.zeros(1), np.array([0, 1]), "mean_probs")  # type: ignore[arg-type]


@given(st.lists(st.floats(-50, 0.5), min_size=1, max_size=20), st.floats(0.01, 3.0), st.integers(0, 19))
@settings(max_examples=100)
def test_every_reduction_is_monotone_in_every_token(logprobs: list[float], more: float, index: int) -> None:
    better = list(logprobs)
    better[index % len(better)] += more
    offsets = np.array([0, len(logprobs)])
    for how in likelihood.REDUCTIONS:
        low, high = (span_reduce(np.array(row), offsets, how)[0] for row in (logprobs, better))
        assert high >= low - 1e-12 * abs(low)


# ---- implementations and memory --------------------------------------------------------------------


@pytest.mark.parametrize("isa", ["portable", "avx2", "avx512"])
def test_every_instruction_set_passes_the_parity_table(isa: str) -> None:
    """The best one runs in this process; the lower ones need a fresh one, since the choice is made once."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/test_parity.py"]
    selection = "(token_logprobs or online_softmax_update) and _cpu"
    environment = {**os.environ, "REWARDKIT_ISA": isa, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "-k", selection], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    chosen = subprocess.run(
        [
            sys.executable,
            "-c",
            "from rewardkit import _kernels; print(_kernels.kernel('build_info')()['instruction_set'])",
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    lowest_first = ["portable", "avx2", "avx512"]
    assert chosen.stdout.strip() in lowest_first[: lowest_first.index(isa) + 1]


def test_threads_do_not_change_the_numbers() -> None:
    logits, targets = some_logits(64, 20_000)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = token_logprobs(logits, targets)
        torch.set_num_threads(4)
        assert torch.equal(token_logprobs(logits, targets), one)
    finally:
        torch.set_num_threads(before)


def growth_of_memory(setup: str, work: str) -> int:
    """By how many bytes a fresh process grows beyond all it has used before, while it does the work."""
    code = f"""
import re, torch
from rewardkit.likelihood import linear_token_logprobs, token_logprobs
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
torch.set_num_threads(1)
{setup}
before = peak()
{work}
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return int(done.stdout)


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for a process's peak memory")


@needs_proc
def test_no_extra_memory() -> None:
    """Peak resident memory over a 300 MB buffer grows by less than 1 % of it; one copy would be 100 %."""
    setup = """
logits = torch.zeros(512, 151_936)
logits[:, 0] = 1.0
targets = torch.zeros(512, dtype=torch.long)
token_logprobs(logits[:1], targets[:1], return_entropy=True)
logits.sum()
"""
    work = """
token_logprobs(logits, targets, return_entropy=True)
token_logprobs(logits.view(2, 256, -1)[:, :-1], targets.view(2, 256)[:, 1:])
"""
    assert growth_of_memory(setup, work) < 0.01 * 512 * 151_936 * 4


@needs_proc
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_linear_holds_4_KiB_a_row_and_one_tile_of_weights(dtype: str) -> None:
    rows, vocab, hidden_size = 256, 20_000, 256
    setup = f"""
hidden, weight = (torch.ones(n, {hidden_size}, dtype=torch.{dtype}) for n in ({rows}, {vocab}))
targets = torch.arange({rows})
linear_token_logprobs(hidden[:1], weight[:9], targets[:1], return_entropy=True)
torch.log_softmax((hidden[:1] @ weight[:9].t()).float(), -1)
weight.sum()
"""
    tile_of_weights, slack = 1024 * hidden_size * 4, 2 << 20
    limit = rows * 4096 + tile_of_weights + slack
    assert growth_of_memory(setup, "linear_token_logprobs(hidden, weight, targets, return_entropy=True)") < limit
    if dtype == "float32":  # what the limit is there to notice
        assert growth_of_memory(setup, "torch.log_softmax(hidden @ weight.t(), -1)") > 5 * limit


# ---- bugs that others had --------------------------------------------------------------------------


def test_BR_035_bfloat16_logits_give_float32_log_probabilities() -> None:
    logits, targets = some_logits(8, 32_000, torch.bfloat16)
    expected, _ = definition(logits, targets)
    rounding = torch.log_softmax(logits, -1).gather(1, targets[:, None])[:, 0].double() - expected
    assert rounding.abs().max() > 1e-3, "the peer's fault that this test is about"
    ours = token_logprobs(logits, targets)
    assert ours.dtype == torch.float32
    assert ((ours - expected).abs() <= 1e-6 * (1 + expected.abs())).all()


def test_BR_052_offsets_beyond_two_to_the_31() -> None:
    stride, vocab = 2**31 + 1000, 4096
    flat = torch.empty(stride + vocab, dtype=torch.float16)  # only the pages that are written take memory
    logits = flat.as_strided((2, vocab), (stride, 1))
    filled, targets = some_logits(2, vocab, torch.float16)
    logits.copy_(filled)
    assert torch.equal(token_logprobs(logits, targets), token_logprobs(filled, targets))


@pytest.mark.parametrize("vocab", [1025, 2049, 129, 65, 2048 * 2 + 1])
def test_BR_069_no_column_beyond_the_vocabulary_is_ever_matched(vocab: int) -> None:
    generator = torch.Generator().manual_seed(0)
    buffer = torch.full((2, vocab + 64), 1e4)  # what lies behind a row must not be read into it
    buffer[:, :vocab] = torch.randn(2, vocab, generator=generator)
    logits, targets = buffer[:, :vocab], torch.tensor([vocab - 1, 0])
    torch.testing.assert_close(
        token_logprobs(logits, targets).double(), definition(logits, targets)[0], atol=1e-5, rtol=1e-6
    )
    with pytest.raises(InvalidArgumentError):
        token_logprobs(logits, torch.tensor([vocab, 0]))
    hidden, weight = torch.randn(2, 8, generator=generator), torch.randn(vocab, 8, generator=generator)
    expected, _ = definition(hidden.double() @ weight.double().t(), targets)
    torch.testing.assert_close(linear_token_logprobs(hidden, weight, targets).double(), expected, atol=1e-5, rtol=1e-5)


def test_BR_080_masked_tokens_reduce_to_finite_probabilities() -> None:
    values = span_reduce(np.array([-np.inf, -0.5]), np.array([0, 2]), "mean_prob")
    assert json.dumps(values.tolist(), allow_nan=False) == json.dumps([np.exp(-0.5) / 2])
    assert span_reduce(np.array([-np.inf]), np.array([0, 1]), "prod")[0] == 0.0
