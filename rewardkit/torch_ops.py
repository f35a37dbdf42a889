"""The log-probability kernels as torch operators, and the functions that check their arguments.

Registered by ``torch.library.Library`` with fake implementations, so that they trace under ``torch.compile``; the gradient
is an ``autograd.Function`` around the operator, used only where a gradient is wanted. Shape letters: ``N`` rows, ``V``
vocabulary, ``D`` hidden size.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from rewardkit import _kernels
from rewardkit.errors import BackendError, InvalidArgumentError
from rewardkit.likelihood.spans import refused_offsets

_DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
TILE = 1024
"""Columns of the vocabulary that :func:`linear_token_logprobs` holds at a time on a GPU, at least: 4 KiB a row."""

_MM_HAS_OUT_DTYPE = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 8)

_library = torch.library.Library("rewardkit", "DEF")
_library.define(
    "token_logprobs(Tensor logits, Tensor targets, float temperature, int ignore_index, bool with_entropy)"
    " -> (Tensor, Tensor, Tensor)"
)
_library.define(
    "token_logprobs_backward(Tensor logits, Tensor targets, Tensor lse, Tensor entropy, Tensor? grad_logprob,"
    " Tensor? grad_entropy, float temperature, int ignore_index) -> Tensor"
)
_library.define(
    "linear_token_logprobs(Tensor hidden, Tensor weight, Tensor targets, float temperature, int ignore_index,"
    " bool with_entropy) -> (Tensor, Tensor)"
)
_library.define("span_reduce(Tensor logprobs, Tensor offsets, str how) -> Tensor")


# ---- what a kernel needs to know of a tensor -------------------------------------------------------


def _kernel(name: str, like: Tensor) -> Any:
    return _kernels.kernel(name, "cuda" if like.is_cuda else "cpu")


def _where(like: Tensor) -> tuple[int, int, int]:
    """``threads, device, stream`` for a kernel on this tensor's device."""
    if like.is_cuda:
        return 1, like.device.index or 0, torch.cuda.current_stream(like.device).cuda_stream
    return torch.get_num_threads(), -1, 0


def _scratch(logits: Tensor) -> Tensor | None:
    """Device memory with which several blocks of the GPU share a row when rows are few; from torch's own allocator."""
    if not logits.is_cuda:
        return None
    needed = _kernel("token_logprobs_workspace", logits)(*logits.shape)
    return torch.empty(needed, dtype=torch.uint8, device=logits.device) if needed else None


def _dense_rows(logits: Tensor) -> Tensor:
    """Only the vocabulary axis must be dense; any row stride goes as it is."""
    return logits if logits.shape[1] <= 1 or logits.stride(1) == 1 else logits.contiguous()


def _pointer(tensor: Tensor | None) -> int:
    return 0 if tensor is None or tensor.numel() == 0 else tensor.data_ptr()


def _refuse_target(targets: Tensor, row: int, vocab: int, ignore_index: int) -> None:
    raise InvalidArgumentError(
        f"targets[{row}]",
        expected=f"a token in [0, {vocab}), or ignore_index {ignore_index}",
        got=int(targets[row]),
    )


# ---- the operators' implementations --------------------------------------------------------------


def _token_logprobs(
    logits: Tensor, targets: Tensor, temperature: float, ignore_index: int, with_entropy: bool
) -> tuple[Tensor, Tensor, Tensor]:
    rows, vocab = logits.shape
    x, t = _dense_rows(logits), targets.contiguous()
    logprob, lse = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
    entropy = torch.empty(rows if with_entropy else 0, dtype=torch.float32, device=x.device)
    scratch = _scratch(x)
    invalid = _kernel("token_logprobs", x)(
        _pointer(x),
        _DTYPES[x.dtype],
        rows,
        vocab,
        x.stride(0),
        _pointer(t),
        temperature,
        ignore_index,
        _pointer(logprob),
        _pointer(entropy),
        _pointer(lse),
        *_where(x),
        **({} if scratch is None else {"workspace": _pointer(scratch)}),
    )
    if invalid >= 0:
        _refuse_target(t, invalid, vocab, ignore_index)
    return logprob, entropy, lse


def _token_logprobs_fake(
    logits: Tensor, targets: Tensor, temperature: float, ignore_index: int, with_entropy: bool
) -> tuple[Tensor, Tensor, Tensor]:
    rows = logits.shape[0]
    entropy_rows = rows if with_entropy else 0
    shapes = (rows, entropy_rows, rows)
    logprob, entropy, lse = (logits.new_empty(n, dtype=torch.float32) for n in shapes)
    return logprob, entropy, lse


def _token_logprobs_backward(
    logits: Tensor,
    targets: Tensor,
    lse: Tensor,
    entropy: Tensor,
    grad_logprob: Tensor | None,
    grad_entropy: Tensor | None,
    temperature: float,
    ignore_index: int,
) -> Tensor:
    rows, vocab = logits.shape
    x, t, z, h = _dense_rows(logits), targets.contiguous(), lse.contiguous(), entropy.contiguous()
    g = None if grad_logprob is None else grad_logprob.contiguous()
    gh = None if grad_entropy is None else grad_entropy.contiguous()
    gradient = torch.empty((rows, vocab), dtype=x.dtype, device=x.device)
    _kernel("token_logprobs_backward", x)(
        _pointer(x),
        _DTYPES[x.dtype],
        rows,
        vocab,
        x.stride(0),
        _pointer(t),
        temperature,
        ignore_index,
        _pointer(z),
        _pointer(h),
        _pointer(g),
        _pointer(gh),
        _pointer(gradient),
        vocab,
        *_where(x),
    )
    return gradient


def _token_logprobs_backward_fake(logits: Tensor, *_: Any) -> Tensor:
    return logits.new_empty(logits.shape)


def _linear_token_logprobs(
    hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float, ignore_index: int, with_entropy: bool
) -> tuple[Tensor, Tensor]:
    if hidden.is_cuda or _kernels.backend() == "emulator":
        return _linear_by_tiles(hidden, weight, targets, temperature, ignore_index, with_entropy)
    rows, vocab = hidden.shape[0], weight.shape[0]
    h, w, t = _dense_rows(hidden), _dense_rows(weight), targets.contiguous()
    logprob = torch.empty(rows, dtype=torch.float32)
    entropy = torch.empty(rows if with_entropy else 0, dtype=torch.float32)
    invalid = _kernel("linear_token_logprobs", h)(
        _pointer(h),
        _DTYPES[h.dtype],
        rows,
        h.shape[1],
        h.stride(0),
        _pointer(w),
        vocab,
        w.stride(0),
        _pointer(t),
        temperature,
        ignore_index,
        _pointer(logprob),
        _pointer(entropy),
        *_where(h),
    )
    if invalid >= 0:
        _refuse_target(t, invalid, vocab, ignore_index)
    return logprob, entropy


def _linear_by_tiles(
    hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float, ignore_index: int, with_entropy: bool
) -> tuple[Tensor, Tensor]:
    """On a GPU: torch's own product of one tile of the vocabulary at a time, and the kernel that adds it to the softmax."""
    rows, vocab = hidden.shape[0], weight.shape[0]
    scored, t = targets != ignore_index, targets.contiguous()
    state_max = torch.full((rows,), -math.inf, dtype=torch.float32, device=hidden.device)
    state_sum = torch.zeros(rows, dtype=torch.float64, device=hidden.device)
    state_weighted = torch.zeros_like(state_sum) if with_entropy else None
    target_logit = torch.full_like(state_max, math.nan)
    update, where = _kernel("online_softmax_update", hidden), _where(hidden)
    if not hidden.is_cuda:  # the emulator: only CUDA's product of half-precision numbers can give float32
        hidden, weight = hidden.float(), weight.float()
    width = _tile_columns(rows)
    buffer = torch.empty(rows * min(width, vocab), dtype=torch.float32, device=hidden.device)
    for first in range(0, vocab, width):
        right = weight[first : first + width]
        columns = right.shape[0]
        tile = buffer[: rows * columns].view(rows, columns)
        _product(hidden, right, tile)
        update(
            _pointer(tile),
            "float32",
            rows,
            columns,
            columns,
            first,
            _pointer(t),
            temperature,
            _pointer(state_max),
            _pointer(state_sum),
            _pointer(state_weighted),
            _pointer(target_logit),
            *where,
        )
    log_sum = torch.where(state_sum == 0, math.nan, state_sum).log()  # nothing but -inf is no distribution
    value = (target_logit.double() - (state_max.double() + log_sum)).clamp(max=0.0)
    logprob = torch.where(scored, value, 0.0).float()
    entropy = torch.empty(0, dtype=torch.float32, device=hidden.device)
    if state_weighted is not None:
        entropy = torch.where(scored, (log_sum - state_weighted / state_sum).clamp(min=0.0), 0.0).float()
    return logprob, entropy


def _tile_columns(rows: int) -> int:
    """As many as keep a float32 tile within 32 MiB, which a GPU's cache holds: few rows then take few launches."""
    return max(TILE, min(16 * TILE, (8 << 20) // max(rows, 1) // TILE * TILE))


def _product(left: Tensor, right: Tensor, out: Tensor) -> None:
    if out.dtype == left.dtype:
        torch.mm(left, right.t(), out=out)
    else:  # half precision in, float32 out: logits rounded to bfloat16 would be off by 0.06
        if not _MM_HAS_OUT_DTYPE:
            raise BackendError(
                "linear_token_logprobs of half-precision CUDA tensors needs torch >= 2.8 (float32 products of them); "
                f"this is {torch.__version__}"
            )
        torch.mm(left, right.t(), out_dtype=out.dtype, out=out)


def _linear_token_logprobs_fake(
    hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float, ignore_index: int, with_entropy: bool
) -> tuple[Tensor, Tensor]:
    rows = hidden.shape[0]
    return (
        hidden.new_empty(rows, dtype=torch.float32),
        hidden.new_empty(rows if with_entropy else 0, dtype=torch.float32),
    )


def _span_reduce(logprobs: Tensor, offsets: Tensor, how: str) -> Tensor:
    values, bounds = logprobs.contiguous(), offsets.contiguous()
    spans = bounds.shape[0] - 1
    out = torch.empty(spans, dtype=torch.float64, device=values.device)
    invalid = _kernel("span_reduce", values)(
        _pointer(values),
        "float64" if values.dtype == torch.float64 else "float32",
        values.shape[0],
        _pointer(bounds),
        spans,
        how,
        _pointer(out),
        *_where(values),
    )
    if invalid >= 0:
        raise refused_offsets(invalid, bounds[invalid : invalid + 2].tolist(), values.shape[0])
    return out


def _span_reduce_fake(logprobs: Tensor, offsets: Tensor, how: str) -> Tensor:
    return logprobs.new_empty(offsets.shape[0] - 1, dtype=torch.float64)


for _name, _implementation, _fake in (
    ("token_logprobs", _token_logprobs, _token_logprobs_fake),
    ("token_logprobs_backward", _token_logprobs_backward, _token_logprobs_backward_fake),
    ("linear_token_logprobs", _linear_token_logprobs, _linear_token_logprobs_fake),
    ("span_reduce", _span_reduce, _span_reduce_fake),
):
    for _key in ("CPU", "CUDA"):
        _library.impl(_name, _implementation, _key)
    torch.library.register_fake(f"rewardkit::{_name}", _fake, lib=_library)

_forward_op = torch.ops.rewardkit.token_logprobs.default
_backward_op = torch.ops.rewardkit.token_logprobs_backward.default
_linear_op = torch.ops.rewardkit.linear_token_logprobs.default
_span_op = torch.ops.rewardkit.span_reduce.default


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, temperature: float, ignore_index: int, with_entropy: bool
    ) -> tuple[Tensor, Tensor]:
        logprob, entropy, lse = _forward_op(logits, targets, temperature, ignore_index, with_entropy)
        ctx.save_for_backward(logits, targets, lse, entropy)
        ctx.temperature, ctx.ignore_index, ctx.with_entropy = temperature, ignore_index, with_entropy
        return logprob, entropy

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        logits, targets, lse, entropy = ctx.saved_tensors
        grad_entropy = grads[1] if ctx.with_entropy else None
        gradient = _backward_op(
            logits, targets, lse, entropy, grads[0], grad_entropy, ctx.temperature, ctx.ignore_index
        )
        return gradient, None, None, None, None


# ---- the public functions --------------------------------------------------------------------------


def _check(logits: Tensor, targets: Tensor, temperature: float, ignore_index: int, name: str) -> None:
    if not isinstance(logits, Tensor) or logits.dtype not in _DTYPES:
        raise InvalidArgumentError(
            name, expected="a float32, bfloat16 or float16 tensor", got=getattr(logits, "dtype", type(logits))
        )
    if logits.dim() < 2:
        raise InvalidArgumentError(name, expected="at least two axes", got=f"shape {tuple(logits.shape)}")
    if not isinstance(targets, Tensor) or targets.dtype.is_floating_point or targets.dtype == torch.bool:
        raise InvalidArgumentError(
            "targets", expected="a tensor of integers", got=getattr(targets, "dtype", type(targets))
        )
    if targets.shape != logits.shape[:-1]:
        raise InvalidArgumentError(
            "targets", expected=f"shape {tuple(logits.shape[:-1])}, as {name} has", got=f"shape {tuple(targets.shape)}"
        )
    if targets.device != logits.device:
        raise InvalidArgumentError("targets", expected=f"a tensor on {logits.device}, as {name}", got=targets.device)
    if isinstance(ignore_index, bool) or not isinstance(ignore_index, int):
        raise InvalidArgumentError("ignore_index", expected="an integer", got=ignore_index)
    number = isinstance(temperature, (int, float)) or hasattr(temperature, "__float__")
    if not number or not math.isfinite(temperature) or not temperature > 0:
        raise InvalidArgumentError("temperature", expected="a finite number above 0", got=temperature)


def token_logprobs(
    logits: Tensor,
    targets: Tensor,
    temperature: float = 1.0,
    ignore_index: int = -100,
    *,
    return_entropy: bool = False,
) -> Any:
    r"""Natural log-probability of each target under ``softmax(logits / temperature)``, in one pass and no extra memory.

    .. math:: \log p_i = z_{i, t_i} - \log \sum_j e^{z_{ij}}, \qquad z = \text{logits} / \text{temperature}

    Args:
        logits: float32, bfloat16 or float16 ``[..., V]``; read in its own dtype and summed in float64. Any row stride.
        targets: integers ``[...]``, on the same device.
        temperature: Finite and above 0. The papers' probabilities are at 1.
        ignore_index: A row with this target is not read: its log-probability and entropy are 0, and so is its gradient.
        return_entropy: Also return the entropy of each row in nats, from the same pass.

    Returns:
        float32 ``[...]``, at most 0; with ``return_entropy`` a pair of them. A row that is no distribution (a NaN, a +inf,
        or nothing but -inf) gives NaN, as in torch. Differentiable once with respect to ``logits``.

    Raises:
        InvalidArgumentError: Wrong dtype, shape or device; on the CPU also a target outside ``[0, V)`` that is not
            ``ignore_index`` (on a GPU such a row gives NaN, since looking would stall the stream).
    """
    _check(logits, targets, temperature, ignore_index, "logits")
    temperature = float(temperature)
    if logits.dim() > 2:
        if not _rows_are_even(logits):  # a slice such as logits[:, :-1]: flattening would copy it
            parts = [
                token_logprobs(x, t, temperature, ignore_index, return_entropy=True)
                for x, t in zip(logits, targets, strict=True)
            ]
            logprob, entropy = (torch.stack(part) for part in zip(*parts, strict=True))
            return (logprob, entropy) if return_entropy else logprob
        flat = token_logprobs(
            logits.reshape(-1, logits.shape[-1]),
            targets.reshape(-1),
            temperature,
            ignore_index,
            return_entropy=return_entropy,
        )
        if return_entropy:
            return flat[0].view(targets.shape), flat[1].view(targets.shape)
        return flat.view(targets.shape)
    targets = targets.long()
    if torch.is_grad_enabled() and logits.requires_grad:
        logprob, entropy = _TokenLogprobs.apply(logits, targets, temperature, ignore_index, return_entropy)  # type: ignore[misc]
    else:
        logprob, entropy, _ = _forward_op(logits, targets, temperature, ignore_index, return_entropy)
    return (logprob, entropy) if return_entropy else logprob


def _rows_are_even(logits: Tensor) -> bool:
    """Whether the leading axes flatten into one without a copy."""
    if logits.numel() == 0:
        return True
    expected = None
    for size, stride in reversed(list(zip(logits.shape[:-1], logits.stride()[:-1], strict=True))):
        if size == 1:
            continue
        if expected is not None and stride != expected:
            return False
        expected = stride * size
    return True


def linear_token_logprobs(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    temperature: float = 1.0,
    ignore_index: int = -100,
    *,
    return_entropy: bool = False,
) -> Any:
    """Log-probabilities straight from the last hidden states: ``[N, V]`` logits never exist.

    The same as ``token_logprobs(hidden @ weight.T, targets, …)``, one tile of the vocabulary at a time. On the CPU only the
    rows that are scored are multiplied, so that targets of ``ignore_index`` outside the spans of interest save their time.
    Products of half-precision inputs are summed in float32.

    Args:
        hidden: float32, bfloat16 or float16 ``[N, D]``.
        weight: The language-model head ``[V, D]``, same dtype and device.
        targets: integers ``[N]``.
        temperature: Finite and above 0.
        ignore_index: A row with this target is skipped and gives 0.
        return_entropy: Also return the entropies.

    Returns:
        float32 ``[N]``, or a pair of them. For scoring only: there is no backward.

    Raises:
        InvalidArgumentError: As :func:`token_logprobs`; or a gradient would be needed.
    """
    _check(hidden, targets, temperature, ignore_index, "hidden")
    if hidden.dim() != 2:
        raise InvalidArgumentError("hidden", expected="shape [N, D]", got=f"shape {tuple(hidden.shape)}")
    if not isinstance(weight, Tensor):
        raise InvalidArgumentError("weight", expected=f"a {hidden.dtype} tensor, as hidden", got=type(weight))
    if weight.dim() != 2 or weight.shape[1] != hidden.shape[1]:
        raise InvalidArgumentError(
            "weight", expected=f"shape [V, {hidden.shape[1]}]", got=f"shape {tuple(weight.shape)}"
        )
    if weight.dtype != hidden.dtype or weight.device != hidden.device:
        raise InvalidArgumentError(
            "weight",
            expected=f"{hidden.dtype} on {hidden.device}, as hidden",
            got=f"{weight.dtype} on {weight.device}",
        )
    if torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad):
        raise InvalidArgumentError(
            "hidden",
            expected="tensors without gradient (scoring has no backward: call it under torch.no_grad())",
            got="requires_grad=True",
        )
    logprob, entropy = _linear_op(hidden, weight, targets.long(), float(temperature), ignore_index, return_entropy)
    return (logprob, entropy) if return_entropy else logprob


def span_reduce_tensor(logprobs: Tensor, offsets: Tensor, how: str) -> Tensor:
    """:func:`rewardkit.likelihood.span_reduce` of tensors; no gradient."""
    if logprobs.dim() != 1 or not logprobs.dtype.is_floating_point:
        raise InvalidArgumentError(
            "logprobs", expected="floats of shape [T]", got=f"{logprobs.dtype} {tuple(logprobs.shape)}"
        )
    bounds = torch.as_tensor(offsets, device=logprobs.device)
    if bounds.dim() != 1 or bounds.numel() == 0 or bounds.dtype.is_floating_point:
        raise InvalidArgumentError(
            "offsets", expected="integers of shape [B + 1]", got=f"{bounds.dtype} {tuple(bounds.shape)}"
        )
    values = logprobs.detach()
    return _span_op(values if values.dtype == torch.float64 else values.float(), bounds.long(), how)
