"""Torch tensors for kernels that have no torch operator: where they live, and what a kernel needs to know of them.

Nothing here imports torch: whoever passes a tensor has.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from rewardkit import _kernels
from rewardkit.errors import InvalidArgumentError


def is_for_device(value: Any) -> bool:
    """Whether a value is a tensor for the CUDA kernels: on a CUDA device, or any while the emulator stands in for one."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return False
    return value.is_cuda or _kernels.backend() == "emulator"


def kernel(name: str, like: Any) -> Callable[..., Any]:
    """The kernel that runs where the tensor lives."""
    return _kernels.kernel(name, "cuda" if like.is_cuda else "cpu")


def place(like: Any) -> tuple[int, int]:
    """``device, stream``: the tensor's device and the current stream of that device (not of the current device)."""
    if not like.is_cuda:
        return -1, 0
    torch = sys.modules["torch"]
    return like.device.index or 0, torch.cuda.current_stream(like.device).cuda_stream


def dense_vector(name: str, value: Any, dtypes: tuple[str, ...], *, like: Any = None, length: int | None = None) -> Any:
    """The value as a dense one-dimensional tensor of one of the dtypes, on the device of ``like``.

    Raises:
        InvalidArgumentError: It is not one; nothing is copied from one device to another.
    """
    torch = sys.modules["torch"]
    kinds = " or ".join(dtypes)
    if not isinstance(value, torch.Tensor):
        raise InvalidArgumentError(name, expected=f"a {kinds} tensor, as the first argument is one", got=value)
    if str(value.dtype).removeprefix("torch.") not in dtypes or value.dim() != 1:
        raise InvalidArgumentError(name, expected=f"a flat {kinds} tensor", got=f"{value.dtype} {tuple(value.shape)}")
    if like is not None and value.device != like.device:
        raise InvalidArgumentError(name, expected=f"a tensor on {like.device}", got=f"one on {value.device}")
    if length is not None and len(value) != length:
        raise InvalidArgumentError(name, expected=f"{length} values", got=f"{len(value)} values")
    return value.detach().contiguous()
