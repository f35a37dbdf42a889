"""Readable twins of the log-probability kernels: the whole row in float64, then the definition.

The kernels take raw pointers so that they need no tensor library. A twin turns each pointer into a numpy view and is plain
numpy from there on. ``threads``, ``device`` and ``stream`` mean nothing here.
"""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]

_STORED = {"float32": np.float32, "bfloat16": np.uint16, "float16": np.float16, "float64": np.float64}


def view(pointer: int, dtype: npt.DTypeLike, rows: int, columns: int = 1, row_stride: int | None = None) -> npt.NDArray:
    """The memory at ``pointer`` as ``[rows, columns]``, writable, without a copy."""
    kind = np.dtype(dtype)
    stride = columns if row_stride is None else row_stride
    if rows == 0 or columns == 0:
        return np.empty((rows, columns), dtype=kind)
    low, high = min(0, (rows - 1) * stride), max(0, (rows - 1) * stride) + columns
    memory = (ctypes.c_char * ((high - low) * kind.itemsize)).from_address(pointer + low * kind.itemsize)
    flat = np.frombuffer(memoryview(memory), dtype=kind)
    return np.lib.stride_tricks.as_strided(
        flat[-low:], shape=(rows, columns), strides=(stride * kind.itemsize, kind.itemsize)
    )


def as_float64(stored: npt.NDArray, dtype: str) -> Float64:
    """Numbers as they are stored (bfloat16 as its bits) as float64, exactly."""
    if dtype == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return stored.astype(np.float64)


def as_stored(values: Float64, dtype: str) -> npt.NDArray:
    """float64 numbers rounded to float32 and then to ``dtype``, ties to even; bfloat16 as its bits."""
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    if dtype != "bfloat16":
        with np.errstate(over="ignore"):
            return single.astype(_STORED[dtype])
    bits = single.view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(single), ((bits >> 16) | 0x40).astype(np.uint16), rounded)


def _log_softmax(rows: Float64) -> tuple[Float64, Float64]:
    """Log softmax ``[N, V]`` and log-sum-exp ``[N]``; NaN for a row that is no distribution."""
    with np.errstate(all="ignore"):
        top = rows.max(axis=1, keepdims=True)
        lse = top + np.log(np.exp(rows - top).sum(axis=1, keepdims=True))
        return rows - lse, lse[:, 0]


def _entropy(log_p: Float64) -> Float64:
    with np.errstate(all="ignore"):
        p = np.exp(log_p)
        return -np.where(p == 0, 0.0, p * log_p).sum(axis=1)


def _first_invalid(targets: npt.NDArray[np.int64], vocab: int, ignore_index: int) -> int:
    bad = ((targets < 0) | (targets >= vocab)) & (targets != ignore_index)
    return int(np.argmax(bad)) if bad.any() else -1


def token_logprobs(
    logits: int,
    dtype: str,
    rows: int,
    vocab: int,
    row_stride: int,
    targets: int,
    temperature: float,
    ignore_index: int,
    logprob: int,
    entropy: int,
    lse: int,
    threads: int,
    device: int,
    stream: int,
) -> int:
    """Log-probability of each row's target (see :func:`rewardkit.likelihood.token_logprobs`).

    Returns:
        -1, or the first row whose target is neither in the vocabulary nor ``ignore_index``; then nothing is written.
    """
    target = view(targets, np.int64, rows)[:, 0]
    invalid = _first_invalid(target, vocab, ignore_index)
    if invalid >= 0:
        return invalid
    keep = target != ignore_index
    x = as_float64(view(logits, _STORED[dtype], rows, vocab, row_stride)[keep], dtype) / temperature
    log_p, log_z = _log_softmax(x) if x.size else (x, np.zeros(len(x)))
    wanted = {
        logprob: np.minimum(log_p[np.arange(len(x)), target[keep]], 0.0) if x.size else np.zeros(len(x)),
        entropy: np.maximum(_entropy(log_p), 0.0),
        lse: log_z,
    }
    for pointer, values in wanted.items():
        if pointer:
            out = view(pointer, np.float32, rows)[:, 0]
            out[:] = 0.0
            with np.errstate(over="ignore"):
                out[keep] = values
    return -1


def token_logprobs_backward(
    logits: int,
    dtype: str,
    rows: int,
    vocab: int,
    row_stride: int,
    targets: int,
    temperature: float,
    ignore_index: int,
    lse: int,
    entropy: int,
    grad_logprob: int,
    grad_entropy: int,
    grad_logits: int,
    grad_row_stride: int,
    threads: int,
    device: int,
    stream: int,
) -> None:
    """Gradient of ``sum(grad_logprob * logprob + grad_entropy * entropy)`` with respect to the logits."""
    target = view(targets, np.int64, rows)[:, 0]
    x = as_float64(view(logits, _STORED[dtype], rows, vocab, row_stride), dtype) / temperature
    with np.errstate(all="ignore"):
        log_p = x - as_float64(view(lse, np.float32, rows), "float32")
        p = np.exp(log_p)
        gradient = np.zeros_like(x)
        if grad_logprob:
            scale = as_float64(view(grad_logprob, np.float32, rows), "float32")
            one_hot = np.arange(vocab)[None, :] == target[:, None]
            gradient += scale * (one_hot - p)
        if grad_entropy:
            scale = as_float64(view(grad_entropy, np.float32, rows), "float32")
            level = as_float64(view(entropy, np.float32, rows), "float32")
            gradient -= scale * np.where(p == 0, 0.0, p * (log_p + level))
    gradient[target == ignore_index] = 0.0
    view(grad_logits, _STORED[dtype], rows, vocab, grad_row_stride)[:] = as_stored(gradient / temperature, dtype)


def online_softmax_update(
    tile: int,
    dtype: str,
    rows: int,
    columns: int,
    row_stride: int,
    first_column: int,
    targets: int,
    temperature: float,
    state_max: int,
    state_sum: int,
    state_weighted: int,
    target_logit: int,
    threads: int,
    device: int,
    stream: int,
) -> None:
    """Adds a tile of columns to each row's running softmax; the state's ``max`` is a reference, not the exact maximum."""
    if columns == 0:
        return
    x = as_float64(view(tile, _STORED[dtype], rows, columns, row_stride), dtype) / temperature
    old_max, total = view(state_max, np.float32, rows)[:, 0], view(state_sum, np.float64, rows)[:, 0]
    with np.errstate(all="ignore"):
        new_max = np.maximum(old_max, x.max(axis=1).astype(np.float32))
        shift = old_max.astype(np.float64) - new_max
        scale = np.where(total == 0, 0.0, np.exp(shift))
        distance = x - new_max[:, None]
        # A row of only -inf so far has no reference: it has seen nothing.
        e = np.where(np.isneginf(x), 0.0, np.exp(distance))
        if state_weighted:
            weighted = view(state_weighted, np.float64, rows)[:, 0]
            carried = np.where(scale == 0, 0.0, (weighted + shift * total) * scale)
            weighted[:] = carried + np.where(e == 0, 0.0, distance * e).sum(axis=1)
        total[:] = np.where(total == 0, 0.0, total * scale) + e.sum(axis=1)
    old_max[:] = new_max
    column = view(targets, np.int64, rows)[:, 0] - first_column
    here = (column >= 0) & (column < columns)
    with np.errstate(over="ignore"):
        view(target_logit, np.float32, rows)[here, 0] = x[here, column[here]]


def linear_token_logprobs(
    hidden: int,
    dtype: str,
    rows: int,
    hidden_size: int,
    hidden_stride: int,
    weight: int,
    vocab: int,
    weight_stride: int,
    targets: int,
    temperature: float,
    ignore_index: int,
    logprob: int,
    entropy: int,
    threads: int,
    device: int,
    stream: int,
) -> int:
    """``token_logprobs`` of the logits ``hidden @ weight.T`` (see :func:`rewardkit.likelihood.linear_token_logprobs`).

    Returns:
        -1, or the first row whose target is neither in the vocabulary nor ``ignore_index``; then nothing is written.
    """
    h = as_float64(view(hidden, _STORED[dtype], rows, hidden_size, hidden_stride), dtype)
    w = as_float64(view(weight, _STORED[dtype], vocab, hidden_size, weight_stride), dtype)
    with np.errstate(invalid="ignore"):
        logits = np.ascontiguousarray(h @ w.T)
    return token_logprobs(
        logits.ctypes.data,
        "float64",
        rows,
        vocab,
        vocab,
        targets,
        temperature,
        ignore_index,
        logprob,
        entropy,
        0,
        threads,
        device,
        stream,
    )


def span_reduce(
    logprobs: int,
    dtype: str,
    tokens: int,
    offsets: int,
    spans: int,
    how: str,
    out: int,
    threads: int,
    device: int,
    stream: int,
) -> int:
    """One number per span of token log-probabilities (see :func:`rewardkit.likelihood.span_reduce`).

    Returns:
        -1, or the first span whose offsets decrease or leave ``[0, tokens]``; then nothing is written.
    """
    if how not in ("mean_prob", "sum_log", "mean_log", "geo_mean", "prod"):
        raise ValueError(f"how: expected mean_prob, sum_log, mean_log, geo_mean or prod, got {how}")
    bounds = view(offsets, np.int64, spans + 1)[:, 0]
    for i in range(spans):
        if not 0 <= bounds[i] <= bounds[i + 1] <= tokens:
            return i
    values = as_float64(view(logprobs, _STORED[dtype], tokens)[:, 0], dtype)
    result = view(out, np.float64, spans)[:, 0]
    for i in range(spans):
        span = np.minimum(values[bounds[i] : bounds[i + 1]], 0.0)
        result[i] = _reduce(span, how) if len(span) else np.nan
    return -1


def _reduce(span: Float64, how: str) -> float:
    if how == "mean_prob":
        return float(np.exp(span).mean())
    total = float(span.sum())
    mean = total / len(span)
    with np.errstate(under="ignore"):
        return {"sum_log": total, "mean_log": mean, "geo_mean": float(np.exp(mean)), "prod": float(np.exp(total))}[how]
