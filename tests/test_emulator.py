"""The CUDA kernels on the emulator, through the public functions: what a GPU would run, on tensors of the CPU."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from rewardkit import _kernels, likelihood, matching, metrics
from rewardkit.errors import BackendError, InvalidArgumentError

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.skipif(
    _kernels.built_modules()["_emu"] is not None, reason="the emulator is not built here (REWARDKIT_EMULATOR=ON)"
)


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch):
    """Routes CPU tensors through the emulated kernels, and says how many launches that took."""
    monkeypatch.setenv("REWARDKIT_BACKEND", "emulator")
    module = _kernels._module("_emu")
    before = module.stats()["launches"]
    yield lambda: module.stats()["launches"] - before
    module.set_order(0)


def reference(x: torch.Tensor, targets: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    return torch.log_softmax(x.double() / temperature, -1).gather(1, targets[:, None])[:, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("vocab", [1, 33, 4097, 12300])
def test_token_logprobs(emulator, dtype: torch.dtype, vocab: int) -> None:
    torch.manual_seed(vocab)
    x = (torch.randn(3, vocab) * 4 - 20).to(dtype)  # all below 0: a maximum that starts at 0 would be wrong
    targets = torch.tensor([0, vocab - 1, vocab // 2])
    got, entropy = likelihood.token_logprobs(x, targets, return_entropy=True)
    assert emulator() >= 1
    torch.testing.assert_close(got.double(), reference(x, targets), rtol=1e-6, atol=1e-6)
    p = torch.softmax(x.double(), -1)
    want = -(p * p.log().clamp(min=-800)).sum(-1)
    torch.testing.assert_close(entropy.double(), want, rtol=2e-6, atol=2e-6)


def test_strided_rows_and_odd_addresses(emulator) -> None:
    store = torch.randn(5, 301)
    for x in (store[:, 1:300], store[::2, 3:258], store.t()[:200]):
        targets = torch.arange(x.shape[0]) % x.shape[1]
        torch.testing.assert_close(
            likelihood.token_logprobs(x, targets).double(), reference(x, targets), rtol=1e-6, atol=1e-6
        )


def test_rows_that_are_not_read_and_targets_outside(emulator) -> None:
    x = torch.randn(4, 50)
    x[0] = torch.nan
    got, entropy = likelihood.token_logprobs(x, torch.tensor([-100, -1, 50, 3]), return_entropy=True)
    assert got[0] == 0
    assert entropy[0] == 0
    assert got[1:3].isnan().all()
    assert entropy[1:3].isnan().all()
    assert got[3].isfinite()


def test_a_row_has_the_same_bits_alone_and_in_company(emulator) -> None:
    x = torch.randn(30, 9000)
    targets = torch.randint(0, 9000, (30,))
    together = likelihood.token_logprobs(x, targets)
    for row in (0, 13, 29):
        assert likelihood.token_logprobs(x[row : row + 1], targets[row : row + 1])[0] == together[row]


@pytest.mark.parametrize("order", [1, 2, 77])
def test_the_order_of_threads_and_blocks_changes_nothing(emulator, order: int) -> None:
    x, targets = torch.randn(4, 5000), torch.tensor([1, 2, 3, 4])
    confidence, correct = torch.rand(1000), torch.rand(1000) < 0.5
    module = _kernels._module("_emu")
    first = likelihood.token_logprobs(x, targets), metrics.calibration_histogram(confidence, correct, 15)
    module.set_order(order)
    second = likelihood.token_logprobs(x, targets), metrics.calibration_histogram(confidence, correct, 15)
    assert torch.equal(first[0], second[0])
    assert np.array_equal(first[1].confidence_sum, second[1].confidence_sum)


def test_gradient(emulator) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 1030, dtype=torch.float32, requires_grad=True)
    targets, weights = torch.tensor([0, 1029, -100, 7]), torch.randn(4)
    logprob, entropy = likelihood.token_logprobs(x, targets, 0.7, return_entropy=True)
    (logprob * weights + 0.3 * entropy * (targets >= 0)).sum().backward()
    y = x.detach().double().requires_grad_()
    log_p = torch.log_softmax(y / 0.7, -1)
    want = log_p.gather(1, targets.clamp(min=0)[:, None])[:, 0] * weights - 0.3 * (log_p.exp() * log_p).sum(-1)
    (want * (targets >= 0)).sum().backward()
    torch.testing.assert_close(x.grad.double(), y.grad, rtol=1e-5, atol=1e-6)


def test_linear_and_spans(emulator) -> None:
    hidden, weight = torch.randn(5, 16), torch.randn(33_000, 16)  # three tiles
    targets = torch.tensor([0, 32_999, 16_384, 16_383, 5])
    got = likelihood.linear_token_logprobs(hidden, weight, targets)
    torch.testing.assert_close(got.double(), reference(hidden @ weight.t(), targets), rtol=1e-5, atol=1e-5)
    spans = likelihood.span_reduce(got, torch.tensor([0, 2, 2, 5]), "mean_prob")
    assert spans[0] == pytest.approx(got[:2].double().exp().mean().item())
    assert spans[1].isnan()
    assert emulator() >= 4


def test_calibration_histogram_equals_the_host_to_the_bit(emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    confidence = np.where(rng.random(4000) < 0.5, rng.integers(0, 101, 4000) / 100, rng.uniform(-0.1, 1.1, 4000))
    correct, groups = rng.random(4000) < 0.6, rng.integers(-2, 3, 4000)
    for dtype in (np.float32, np.float64):
        for by in (None, groups):
            monkeypatch.setenv("REWARDKIT_BACKEND", "emulator")
            got = metrics.calibration_histogram(
                torch.from_numpy(confidence.astype(dtype)),
                torch.from_numpy(correct),
                10,
                None if by is None else torch.from_numpy(by),
            )
            monkeypatch.setenv("REWARDKIT_BACKEND", "native")
            want = metrics.calibration_histogram(confidence.astype(dtype), correct, 10, by)
            for name in ("edges", "count", "correct", "confidence_sum", "squared_error_sum", "invalid"):
                np.testing.assert_array_equal(getattr(got, name), getattr(want, name), err_msg=name)
            assert (got.groups, got.settings, got.fraction_bits) == (want.groups, want.settings, want.fraction_bits)


def test_calibration_histogram_refuses_bad_tensors(emulator) -> None:
    q, y = torch.rand(10), torch.ones(10, dtype=torch.bool)
    with pytest.raises(InvalidArgumentError, match=r"confidence: expected no NaN, got 1"):
        metrics.calibration_histogram(torch.where(torch.arange(10) == 3, torch.nan, q), y)
    with pytest.raises(InvalidArgumentError, match="correct: expected booleans, or 0 and 1"):
        metrics.calibration_histogram(q, y.int() * 2)
    with pytest.raises(InvalidArgumentError, match="correct: expected 10 values"):
        metrics.calibration_histogram(q, y[:9])
    with pytest.raises(InvalidArgumentError, match="confidence"):
        metrics.calibration_histogram(q.half(), y)
    with pytest.raises(InvalidArgumentError, match="scheme"):
        metrics.calibration_histogram(q, y, 10, scheme="mass")
    with pytest.raises(InvalidArgumentError, match="groups"):
        metrics.calibration_histogram(q, y, 10, np.zeros(10, np.int64))
    assert metrics.calibration_histogram(q[:0], y[:0]).n.tolist() == [0]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_bag_f1_equals_the_host(emulator, monkeypatch: pytest.MonkeyPatch, dtype: type) -> None:
    rng = np.random.default_rng(5)

    def bags(rollouts: int, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows = np.concatenate([[0], rng.integers(0, 4, rollouts).cumsum()])
        offsets = np.concatenate([[0], rng.integers(0, most, rows[-1]).cumsum()])
        return rng.integers(0, 8, offsets[-1]).astype(dtype), offsets, rows

    (p, p_offsets, answers), (r, r_offsets, golds) = bags(20, 50), bags(20, 20)
    arguments = {
        "prediction_ids": p,
        "prediction_offsets": p_offsets,
        "reference_ids": r,
        "reference_offsets": r_offsets,
        "answer_rows": answers,
        "gold_rows": golds,
    }
    tensors = {name: torch.from_numpy(value) for name, value in arguments.items()}
    got = matching.bag_f1(**tensors)
    assert emulator() == 1
    assert got.dtype == torch.float64
    broken = {**tensors, "prediction_offsets": tensors["prediction_offsets"].flip(0)}
    with pytest.raises(InvalidArgumentError, match="prediction_offsets: expected offsets that rise from 0"):
        matching.bag_f1(**broken)
    monkeypatch.setenv("REWARDKIT_BACKEND", "native")
    np.testing.assert_array_equal(got.numpy(), matching.bag_f1(**arguments))


def test_several_threads_at_once(emulator) -> None:
    x, targets = torch.randn(3, 3000), torch.tensor([1, 2, 3])
    want = reference(x, targets)
    failures: list[BaseException] = []

    def score() -> None:
        try:
            for _ in range(5):
                torch.testing.assert_close(likelihood.token_logprobs(x, targets).double(), want, rtol=1e-6, atol=1e-6)
        except BaseException as error:  # noqa: BLE001  (whatever happens in a thread fails the test below)
            failures.append(error)

    threads = [threading.Thread(target=score) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_failed_launch_is_a_backend_error() -> None:
    module = _kernels._module("_emu")
    x, target, out = np.zeros((1, 8), np.float32), np.zeros(1, np.int64), np.zeros(1, np.float32)
    with pytest.raises(
        BackendError, match=r"token_logprobs: emulator error 101 \(invalid device ordinal\) on device 9"
    ):
        module.token_logprobs(
            x.ctypes.data, "float32", 1, 8, 8, target.ctypes.data, 1.0, -100, out.ctypes.data, 0, 0, 1, 9, 0
        )
    with pytest.raises(ValueError, match="temperature"):
        module.token_logprobs(
            x.ctypes.data, "float32", 1, 8, 8, target.ctypes.data, 0.0, -100, out.ctypes.data, 0, 0, 1, 0, 0
        )
