"""The calibration histogram and bag F1 on a device: equal to the host to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from rewardkit import matching, metrics

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("groups", [0, 3, 500])
@pytest.mark.parametrize("size", [0, 1, 1000, 1_000_003])
def test_histogram(device, dtype: type, groups: int, size: int) -> None:
    rng = np.random.default_rng(size)
    grid = rng.integers(0, 101, size) / 100
    confidence = np.where(rng.random(size) < 0.5, grid, rng.uniform(-0.05, 1.05, size)).astype(dtype)
    correct = rng.random(size) < 0.6
    by = rng.integers(0, groups, size) if groups else None
    got = metrics.calibration_histogram(
        torch.from_numpy(confidence).to(device),
        torch.from_numpy(correct).to(device),
        15,
        None if by is None else torch.from_numpy(by).to(device),
    )
    want = metrics.calibration_histogram(confidence, correct, 15, by)
    for name in ("count", "correct", "confidence_sum", "squared_error_sum", "invalid"):
        np.testing.assert_array_equal(getattr(got, name), getattr(want, name), err_msg=name)
    assert got.groups == want.groups


def test_histogram_refuses_tensors_of_two_devices(device) -> None:
    with pytest.raises(ValueError, match="correct: expected a tensor on cuda"):
        metrics.calibration_histogram(torch.rand(5, device=device), torch.ones(5, dtype=torch.bool))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("most", [1, 12, 400])
def test_bags(device, dtype: type, most: int) -> None:
    rng = np.random.default_rng(most)

    def bags() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows = np.concatenate([[0], rng.integers(0, 5, 200).cumsum()])
        offsets = np.concatenate([[0], rng.integers(0, most, rows[-1]).cumsum()])
        return rng.integers(0, 30, offsets[-1]).astype(dtype), offsets, rows

    (p, p_offsets, answers), (r, r_offsets, golds) = bags(), bags()
    arguments = {
        "prediction_ids": p,
        "prediction_offsets": p_offsets,
        "reference_ids": r,
        "reference_offsets": r_offsets,
        "answer_rows": answers,
        "gold_rows": golds,
    }
    got = matching.bag_f1(**{name: torch.from_numpy(value).to(device) for name, value in arguments.items()})
    assert got.is_cuda
    np.testing.assert_array_equal(got.cpu().numpy(), matching.bag_f1(**arguments))
