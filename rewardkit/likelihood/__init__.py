"""Step three: token log-probabilities, and from them the probability of a reference answer.

:func:`token_logprobs` and :func:`linear_token_logprobs` are torch functions over the native kernels; :func:`span_reduce`
turns log-probabilities into one number per answer; :func:`splice_reference` puts the reference in the place of a sampled
answer. Importing this loads no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewardkit.errors import MissingExtraError
from rewardkit.likelihood.spans import REDUCTIONS, Reduction, is_missing, reduce_rows, span_reduce
from rewardkit.likelihood.splice import (
    AnswerSpan,
    Splice,
    SpliceCounts,
    answer_span,
    reasoning_tokens,
    splice_reference,
)
from rewardkit.likelihood.status import STATUSES

if TYPE_CHECKING:
    from rewardkit.torch_ops import linear_token_logprobs, token_logprobs

__all__ = [
    "REDUCTIONS",
    "STATUSES",
    "AnswerSpan",
    "Reduction",
    "Splice",
    "SpliceCounts",
    "answer_span",
    "is_missing",
    "linear_token_logprobs",
    "reasoning_tokens",
    "reduce_rows",
    "span_reduce",
    "splice_reference",
    "token_logprobs",
]

_NEED_TORCH = ("linear_token_logprobs", "token_logprobs")


def __getattr__(name: str) -> Any:
    if name not in _NEED_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"rewardkit.likelihood.{name}", package="torch", extra="torch") from error
    from rewardkit import torch_ops

    for needs_torch in _NEED_TORCH:
        globals()[needs_torch] = getattr(torch_ops, needs_torch)
    return globals()[name]
