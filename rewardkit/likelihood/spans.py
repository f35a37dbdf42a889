"""From token log-probabilities to one number per answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rewardkit import _kernels
from rewardkit.errors import InvalidArgumentError, UnknownNameError

Float64 = npt.NDArray[np.float64]
Reduction = Literal["mean_prob", "sum_log", "mean_log", "geo_mean", "prod"]
REDUCTIONS: tuple[Reduction, ...] = ("mean_prob", "sum_log", "mean_log", "geo_mean", "prod")


def span_reduce(logprobs: Any, offsets: Any, how: Reduction = "mean_prob") -> Any:
    r"""Reduces each span of token log-probabilities to one number.

    ======== ============================== =======================================
    mean_prob :math:`\frac1T\sum_t p_t`      RLPR, DARL; NOVER's perplexity uses
    sum_log   :math:`\sum_t \log p_t`        JEPO, LaTRO
    mean_log  :math:`\frac1T\sum_t \log p_t` RLPR's option
    geo_mean  :math:`(\prod_t p_t)^{1/T}`    RLPR's option
    prod      :math:`\prod_t p_t`            VeriFree
    ======== ============================== =======================================

    Products are sums of logarithms to the end, so that 500 tokens do not underflow before they must.

    Args:
        logprobs: Natural log-probabilities of all spans, one after the other: float32 or float64 ``[T]``, numpy or torch.
            Values above 0 (rounding of an engine) count as 0; NaN stays NaN.
        offsets: int64 ``[B + 1]``: span i is ``logprobs[offsets[i]:offsets[i + 1]]``.
        how: One of :data:`REDUCTIONS`.

    Returns:
        float64 ``[B]``, of the kind (numpy or torch) that came in. An empty span gives NaN: nothing is not 0.

    Raises:
        UnknownNameError: No such reduction.
        InvalidArgumentError: Offsets that decrease or leave the array; wrong shapes or dtypes.
    """
    if how not in REDUCTIONS:
        raise UnknownNameError("span reduction", how, REDUCTIONS)
    if type(logprobs).__module__.partition(".")[0] == "torch":
        from rewardkit.torch_ops import span_reduce_tensor

        return span_reduce_tensor(logprobs, offsets, how)
    values = np.ascontiguousarray(logprobs)
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float64)
    bounds = np.ascontiguousarray(offsets)
    if values.ndim != 1:
        raise InvalidArgumentError("logprobs", expected="shape [T]", got=f"shape {values.shape}")
    if bounds.ndim != 1 or len(bounds) == 0 or bounds.dtype.kind not in "iu":
        raise InvalidArgumentError("offsets", expected="integers of shape [B + 1]", got=bounds)
    bounds = bounds.astype(np.int64, copy=False)
    out = np.empty(len(bounds) - 1, dtype=np.float64)
    invalid = _kernels.kernel("span_reduce")(
        values.ctypes.data,
        values.dtype.name,
        len(values),
        bounds.ctypes.data,
        len(out),
        how,
        out.ctypes.data,
        1,
        -1,
        0,
    )
    if invalid >= 0:
        raise refused_offsets(invalid, bounds[invalid : invalid + 2].tolist(), len(values))
    return out


def refused_offsets(span: int, got: list[int], tokens: int) -> InvalidArgumentError:
    """The error for a span that is none."""
    return InvalidArgumentError(
        f"offsets[{span}:{span + 2}]", expected=f"non-decreasing bounds within [0, {tokens}]", got=got
    )


def is_missing(row: Any) -> bool:
    """Whether a table has nothing in a row: None, or the NaN that pandas puts there."""
    return row is None or (isinstance(row, (float, np.floating)) and math.isnan(row))


def _flat(row: Any) -> Float64:
    array = np.asarray(row, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"shape {array.shape}")
    return array


def reduce_rows(rows: Sequence[Any], how: Reduction, *, argument: str = "logprobs") -> Float64:
    """One number per row of a ragged list of log-probabilities.

    Args:
        rows: ``[B]`` sequences of natural log-probabilities; ``None`` (or pandas' NaN) for a row that could not be scored.
        how: One of :data:`REDUCTIONS`.
        argument: The name to use in errors.

    Returns:
        float64 ``[B]``; NaN for a row that is ``None``, empty or holds a NaN.

    Raises:
        InvalidArgumentError: A row is not a sequence of numbers.
    """
    try:
        parts = [np.empty(0) if is_missing(row) else _flat(row) for row in rows]
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(argument, expected="a list of log-probabilities per row", got=rows) from error
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    return span_reduce(np.concatenate(parts) if parts else np.empty(0), offsets, how)
