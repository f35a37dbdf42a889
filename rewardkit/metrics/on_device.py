"""The calibration histogram of tensors that live on a CUDA device: counted there, only the counts come back."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from rewardkit import _device
from rewardkit.errors import InvalidArgumentError

Int64 = npt.NDArray[np.int64]


def confidence_dtype(confidence: Any) -> np.dtype:
    """The numpy dtype of a confidence tensor.

    Raises:
        InvalidArgumentError: Not a flat float32 or float64 tensor.
    """
    flat = _device.dense_vector("confidence", confidence, ("float32", "float64"))
    return np.dtype(str(flat.dtype).removeprefix("torch."))


def histogram(
    confidence: Any, correct: Any, thresholds: npt.NDArray[np.floating], groups: Any, fraction_bits: int
) -> tuple[Int64, Int64, Int64, Int64 | None]:
    """Counts and exact sums as of the ``calibration_histogram`` kernel, and the groups' names.

    Runs on the current stream of the tensors' device, and waits for it once, to fetch the counts.

    Args:
        confidence: float32 or float64 tensor ``[N]``.
        correct: bool, or integers that are 0 or 1, ``[N]``, on the same device.
        thresholds: On the host, of the dtype of ``confidence``.
        groups: Integer tensor ``[N]`` on the same device, or ``None``.
        fraction_bits: Of the fixed-point sums.

    Raises:
        InvalidArgumentError: A wrong dtype, shape or device; a NaN; a ``correct`` other than 0 and 1.
    """
    torch = sys.modules["torch"]
    q = _device.dense_vector("confidence", confidence, ("float32", "float64"))
    y = _device.dense_vector("correct", correct, ("bool", "uint8", "int32", "int64"), like=q, length=len(q))
    wrong = torch.zeros((), dtype=torch.bool, device=q.device)
    if y.dtype != torch.bool:
        wrong = ((y != 0) & (y != 1)).any()
    y = y.to(torch.uint8)
    names, index = None, None
    if groups is not None:
        flat = _device.dense_vector("groups", groups, ("int32", "int64"), like=q, length=len(q))
        names, index = torch.unique(flat, return_inverse=True)
    n_groups = 1 if names is None else max(1, len(names))
    edges = torch.from_numpy(thresholds).to(q.device)
    bins = len(thresholds) + 1

    cells = n_groups * bins * 3
    out = torch.empty(cells + 2 * n_groups + 2, dtype=torch.int64, device=q.device)
    pointers = [out[start:].data_ptr() for start in (0, cells, cells + n_groups, cells + 2 * n_groups)]
    _device.kernel("calibration_histogram_into", q)(
        q.data_ptr(),
        str(q.dtype).removeprefix("torch."),
        y.data_ptr(),
        0 if index is None else index.data_ptr(),
        len(q),
        edges.data_ptr(),
        bins,
        n_groups,
        fraction_bits,
        *pointers,
        *_device.place(q),
    )
    found = torch.cat([out, wrong.to(torch.int64).view(1)]).cpu().numpy()
    if found[-1]:
        raise InvalidArgumentError("correct", expected="booleans, or 0 and 1", got="something else")
    if found[-2]:
        raise InvalidArgumentError("confidence", expected="no NaN", got=f"{found[-2]} of them")
    counts = found[:cells].reshape(n_groups, bins, 3)
    squared, invalid = found[cells : cells + n_groups], found[cells + n_groups : cells + 2 * n_groups]
    return counts, squared, invalid, None if names is None else names.cpu().numpy()
