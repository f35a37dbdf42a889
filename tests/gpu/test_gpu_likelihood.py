"""The log-probability kernels on a device: against float64, at their limits, on streams, in graphs, under torch.compile."""

from __future__ import annotations

import math

import pytest

from rewardkit import likelihood

torch = pytest.importorskip("torch")

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def reference(x, targets, temperature: float = 1.0):
    """In float64, a few rows at a time."""
    parts = []
    for some, their in zip(x.split(64), targets.split(64), strict=True):
        log_p = torch.log_softmax(some.double() / temperature, -1)
        p = log_p.exp()
        entropy = -torch.where(p == 0, 0.0, p * log_p).sum(-1)
        parts.append((log_p.gather(1, their[:, None])[:, 0], entropy))
    return tuple(torch.cat(part) for part in zip(*parts, strict=True))


def assert_right(x, targets, temperature: float = 1.0) -> None:
    got, entropy = likelihood.token_logprobs(x, targets, temperature, return_entropy=True)
    want, want_entropy = reference(x, targets, temperature)
    torch.testing.assert_close(got.double(), want, rtol=2e-6, atol=2e-6, equal_nan=True)
    torch.testing.assert_close(entropy.double(), want_entropy, rtol=1e-5, atol=1e-5, equal_nan=True)
    alone = likelihood.token_logprobs(x, targets, temperature)  # without the entropy: another kernel
    torch.testing.assert_close(alone.double(), want, rtol=2e-6, atol=2e-6, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "vocab"),
    [(1, 1), (3, 7), (1, 151936), (5, 50257), (64, 129920), (300, 4097), (2500, 8193), (4096, 32)],
)
def test_values(device, dtype, rows: int, vocab: int) -> None:
    x = (torch.randn(rows, vocab, device=device) * 3 - 40).to(dtype)  # all below 0
    x[0, vocab // 2] += 30
    targets = torch.randint(0, vocab, (rows,), device=device)
    targets[-1] = vocab - 1
    assert_right(x, targets)
    assert_right(x, targets, 0.6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_odd_addresses_and_strides(device, dtype) -> None:
    store = torch.randn(40, 6011, device=device).to(dtype)
    for x in (store[:, 1:], store[::3, 5:6000], store[:, :6000].flip(0), store.t()[:200]):
        assert_right(x, torch.arange(len(x), device=device) % x.shape[1])


def test_rows_that_are_no_distribution(device) -> None:
    x = torch.randn(6, 9000, device=device)
    x[0, :5000] = -math.inf
    x[1] = -math.inf
    x[2, 17] = math.inf
    x[3, 17] = math.nan
    x[4] = -3e38
    assert_right(x, torch.tensor([8000, 1, 2, 3, 4, 5], device=device))


def test_targets_outside_give_nan_and_leave_the_device_usable(device) -> None:
    x = torch.randn(4, 1000, device=device)
    got = likelihood.token_logprobs(x, torch.tensor([-100, -1, 1000, 2**62], device=device))
    assert got.tolist()[0] == 0
    assert got[1:].isnan().all()
    assert_right(x, torch.tensor([0, 1, 2, 3], device=device))


@pytest.mark.parametrize("rows", [1, 7, 100, 3000])
def test_a_row_has_the_same_bits_alone_in_company_and_again(device, rows: int) -> None:
    x = torch.randn(rows, 20480, device=device, dtype=torch.bfloat16)
    targets = torch.randint(0, 20480, (rows,), device=device)
    together = likelihood.token_logprobs(x, targets)
    assert torch.equal(together, likelihood.token_logprobs(x, targets))
    for row in {0, rows // 2, rows - 1}:
        assert torch.equal(likelihood.token_logprobs(x[row : row + 1], targets[row : row + 1]), together[row : row + 1])


def test_equals_the_cpu(device) -> None:
    x = torch.randn(20, 30011, device=device, dtype=torch.bfloat16)
    targets = torch.randint(0, 30011, (20,), device=device)
    on_gpu = likelihood.token_logprobs(x, targets, return_entropy=True)
    on_cpu = likelihood.token_logprobs(x.cpu(), targets.cpu(), return_entropy=True)
    for one, other in zip(on_gpu, on_cpu, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab", [33, 5001, 40960])
def test_gradient(device, dtype, vocab: int) -> None:
    x = (torch.randn(9, vocab, device=device) * 2).to(dtype).requires_grad_()
    targets = torch.randint(0, vocab, (9,), device=device)
    targets[4] = -100
    weight = torch.randn(9, device=device)
    logprob, entropy = likelihood.token_logprobs(x, targets, 0.8, return_entropy=True)
    (weight * logprob + 0.2 * entropy).sum().backward()
    y = x.detach().double().requires_grad_()
    kept = targets >= 0
    log_p = torch.log_softmax(y / 0.8, -1)
    want = weight * log_p.gather(1, targets.clamp(min=0)[:, None])[:, 0] - 0.2 * (log_p.exp() * log_p).sum(-1)
    (want * kept).sum().backward()
    tolerance = {torch.float32: (1e-5, 1e-6), torch.bfloat16: (8e-3, 1e-6), torch.float16: (2e-3, 1e-6)}[dtype]
    torch.testing.assert_close(x.grad.double(), y.grad, rtol=tolerance[0], atol=tolerance[1])


def test_more_than_2_31_elements_in_many_rows(device, gibibytes_free) -> None:
    rows, vocab = 15000, 151936
    gibibytes_free(12)
    x = torch.empty(rows, vocab, dtype=torch.bfloat16, device=device)
    for part in x.split(500):
        part.normal_(0, 3)
    targets = torch.randint(0, vocab, (rows,), device=device)
    got = likelihood.token_logprobs(x, targets)
    for picked in (slice(0, 20), slice(14120, 14150), slice(rows - 20, rows)):  # 2^31 elements end in row 14134
        torch.testing.assert_close(got[picked].double(), reference(x[picked], targets[picked])[0], rtol=2e-6, atol=2e-6)
    x.requires_grad_()
    likelihood.token_logprobs(x, targets).sum().backward()
    picked = slice(rows - 4, rows)
    want = -torch.softmax(x.detach()[picked].double(), -1)
    want[torch.arange(4), targets[picked]] += 1
    torch.testing.assert_close(x.grad[picked].double(), want, rtol=8e-3, atol=1e-6)


def test_more_than_2_31_elements_in_one_row(device, gibibytes_free) -> None:
    gibibytes_free(24)
    vocab = 2**31 + 1001
    x = torch.empty(1, vocab, dtype=torch.bfloat16, device=device)
    for part in x[0].split(2**28):
        part.normal_(0, 2)
    got = likelihood.token_logprobs(x, torch.tensor([vocab - 1], device=device))
    sums = torch.stack([part.double().exp().sum() for part in x[0].split(2**26)])
    want = x[0, -1].double() - sums.sum().log()
    torch.testing.assert_close(got[0].double(), want, rtol=2e-6, atol=2e-6)


def test_runs_on_the_current_stream(device) -> None:
    stream = torch.cuda.Stream(device)
    targets = torch.randint(0, 50000, (512,), device=device)
    source = torch.randn(512, 50000, device=device)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        x = torch.zeros_like(source)
        torch.cuda._sleep(200_000_000)  # the logits come late; whoever does not wait for the stream sees zeros
        x.copy_(source)
        got = likelihood.token_logprobs(x, targets)
    stream.synchronize()
    torch.testing.assert_close(got.double(), reference(source, targets)[0], rtol=2e-6, atol=2e-6)


def test_does_not_wait_for_the_device(device) -> None:
    x = torch.randn(64, 10000, device=device, requires_grad=True)
    targets = torch.randint(0, 10000, (64,), device=device)
    likelihood.token_logprobs(x, targets).sum().backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        logprob, entropy = likelihood.token_logprobs(x, targets, return_entropy=True)
        (logprob.sum() + entropy.sum()).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_takes_no_memory_of_the_logits_size(device) -> None:
    x = torch.randn(256, 151936, device=device, dtype=torch.bfloat16)
    targets = torch.randint(0, 151936, (256,), device=device)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    likelihood.token_logprobs(x, targets, return_entropy=True)
    assert torch.cuda.max_memory_allocated() - before < 1 << 20


@pytest.mark.parametrize("rows", [3, 4000])
def test_in_a_cuda_graph(device, rows: int) -> None:
    x = torch.randn(rows, 9000, device=device)
    targets = torch.randint(0, 9000, (rows,), device=device)
    offsets = torch.tensor([0, 1, 3], device=device)

    def score():
        logprob, entropy = likelihood.token_logprobs(x, targets, return_entropy=True)
        return logprob, entropy, likelihood.span_reduce(logprob, offsets, "mean_prob")

    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        score()  # modules are loaded at the first launch, which may not be captured
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logprob, entropy, spans = score()
    for seed in range(3):
        torch.manual_seed(seed)
        x.normal_(0, 3)
        graph.replay()
        want, want_entropy = reference(x, targets)
        torch.testing.assert_close(logprob.double(), want, rtol=2e-6, atol=2e-6)
        torch.testing.assert_close(entropy.double(), want_entropy, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(spans[1], want[1:3].exp().mean(), rtol=1e-5, atol=1e-6)


def test_under_torch_compile(device) -> None:
    def loss(x, targets):
        logprob, entropy = likelihood.token_logprobs(x * 2, targets, return_entropy=True)
        return (logprob * 0.5 + entropy).sum()

    x = torch.randn(8, 5000, device=device, requires_grad=True)
    targets = torch.randint(0, 5000, (8,), device=device)
    eager = torch.autograd.grad(loss(x, targets), x)[0]
    compiled = torch.compile(loss, fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(compiled(x, targets), x)[0], eager)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [3, 700])
def test_linear(device, dtype, rows: int) -> None:
    hidden = (torch.randn(rows, 256, device=device) * 0.5).to(dtype)
    weight = (torch.randn(33000, 256, device=device) * 0.5).to(dtype)
    targets = torch.randint(0, 33000, (rows,), device=device)
    targets[0] = -100
    got, entropy = likelihood.linear_token_logprobs(hidden, weight, targets, return_entropy=True)
    want, want_entropy = reference(hidden.double() @ weight.double().t(), targets.clamp(min=0))
    assert got[0] == 0
    torch.testing.assert_close(got[1:].double(), want[1:], rtol=1e-5, atol=2e-4)
    torch.testing.assert_close(entropy[1:].double(), want_entropy[1:], rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("how", likelihood.REDUCTIONS)
def test_spans(device, how: str) -> None:
    logprobs = -torch.rand(5000, device=device)
    bounds = torch.cat([torch.tensor([0]), torch.randint(0, 5000, (300,)).sort().values, torch.tensor([5000])])
    got = likelihood.span_reduce(logprobs, bounds.to(device), how)
    want = likelihood.span_reduce(logprobs.cpu(), bounds, how)
    torch.testing.assert_close(got.cpu(), want, rtol=1e-12, atol=1e-300, equal_nan=True)


def test_every_device_keeps_to_itself(device) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two devices")
    other = torch.device("cuda", 1 - torch.cuda.current_device())
    before = torch.cuda.current_device()
    x = torch.randn(5, 9000, device=other)
    assert_right(x, torch.arange(5, device=other))
    assert torch.cuda.current_device() == before
    with pytest.raises(ValueError, match="targets"):
        likelihood.token_logprobs(x, torch.arange(5, device=device))
