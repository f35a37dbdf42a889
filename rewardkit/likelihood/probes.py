"""What a policy's likelihoods say about it: diversity of its answers, entropy of its reasoning, confidence in its answer.

Measurements for reports, not rewards. Each takes a plain model (transformers' interface) and tokens as they were sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rewardkit.errors import InvalidArgumentError
from rewardkit.likelihood.spans import reduce_rows
from rewardkit.likelihood.splice import answer_span, splice_reference
from rewardkit.torch_ops import token_logprobs
from rewardkit.types import Float64

NOT_FOUND = 0.5
"""The answer-probability baseline's confidence where a completion has no answer (RLCR's released evaluation)."""


@dataclass(frozen=True)
class Diversity:
    """The answer-diversity probe over a set of rollouts.

    Attributes:
        variants: float64 ``[B]``: mean log-likelihood of a rollout's answer variants, each per token; NaN where none could be
            scored.
        reference: float64 ``[B]``: the same of the reference.
        scored: How many variants were scored, of how many.
    """

    variants: Float64
    reference: Float64
    scored: tuple[int, int]

    @property
    def mean(self) -> float:
        """Mean over the rollouts that could be scored: higher means the policy accepts more ways to answer."""
        return float(np.nanmean(self.variants)) if np.isfinite(self.variants).any() else float("nan")


def span_logprobs(
    model: Any, sequences: Sequence[Sequence[int]], spans: Sequence[range], *, batch_tokens: int = 8192
) -> tuple[list[list[float]], list[list[float]]]:
    """Log-probabilities and entropies of the tokens in a span of each sequence, with logits at the spans alone.

    Args:
        model: A causal language model that takes ``logits_to_keep``.
        sequences: ``[B]`` tokens.
        spans: ``[B]`` which of them; none may hold the first token.
        batch_tokens: Padded tokens per forward.

    Returns:
        ``[B]`` lists of natural log-probabilities, and of the entropies (nats) of the distributions that they were drawn from.
    """
    logprobs: list[list[float]] = [[] for _ in sequences]
    entropies: list[list[float]] = [[] for _ in sequences]
    for row, span in enumerate(spans):
        if len(span) and not 0 < span.start < span.stop <= len(sequences[row]):
            raise InvalidArgumentError(
                f"spans[{row}]", expected=f"tokens 1 to {len(sequences[row]) - 1} of the sequence", got=span
            )
    # What follows a span cannot influence it: sequences are cut there, so that all spans end together on the right.
    order = sorted((row for row, span in enumerate(spans) if len(span)), key=lambda row: -spans[row].stop)
    while order:
        width = spans[order[0]].stop
        batch, order = order[: max(1, batch_tokens // width)], order[max(1, batch_tokens // width) :]
        longest = max(len(spans[row]) for row in batch)
        ids = torch.zeros((len(batch), width), dtype=torch.int64)
        mask = torch.zeros_like(ids)
        targets = torch.full((len(batch), longest), -100)
        for place, row in enumerate(batch):
            span = spans[row]
            ids[place, width - span.stop :] = torch.as_tensor(list(sequences[row][: span.stop]))
            mask[place, width - span.stop :] = 1
            targets[place, longest - len(span) :] = ids[place, width - len(span) :]
        device = next(model.parameters()).device
        with torch.inference_mode():
            logits = model(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                position_ids=(mask.cumsum(1) - 1).clamp(min=0).to(device),
                logits_to_keep=longest + 1,
            ).logits
            pair = token_logprobs(logits[:, :-1], targets.to(device), return_entropy=True)
        for place, row in enumerate(batch):
            start = longest - len(spans[row])
            logprobs[row] = pair[0][place, start:].double().tolist()
            entropies[row] = pair[1][place, start:].double().tolist()
    return logprobs, entropies


def span_entropy(model: Any, sequences: Sequence[Sequence[int]], spans: Sequence[range]) -> Float64:
    """Mean entropy in nats of the policy over a span of each sequence: float64 ``[B]``, NaN for an empty span."""
    _, entropies = span_logprobs(model, sequences, spans)
    return np.array([np.mean(row) if row else np.nan for row in entropies], dtype=np.float64)


def answer_diversity(
    model: Any,
    tokenizer: Any,
    *,
    prompt_ids: Sequence[Sequence[int]],
    response_ids: Sequence[Sequence[int]],
    references: Sequence[str],
    variants: Sequence[Sequence[str]],
) -> Diversity:
    """How likely a policy finds other ways to write the answer, after its own reasoning.

    Each variant takes the place of the rollout's answer, as the reference does in RLPR, and is scored per token. Followed over
    checkpoints it shows whether training narrows what the policy would answer.

    Args:
        model: The checkpoint.
        tokenizer: Its tokenizer.
        prompt_ids: ``[B]`` prompts.
        response_ids: ``[B]`` its own rollouts.
        references: ``[B]``.
        variants: ``[B]`` answers that are right too (paraphrases, other units, other forms).

    Source:
        DARL, arXiv 2601.14700, section on answer diversity (mean log-likelihood of a set of answer variants).
    """
    rows, sequences, spans = [], [], []
    wanted = 0
    for row, (prompt, response) in enumerate(zip(prompt_ids, response_ids, strict=True)):
        wanted += len(variants[row])
        for place, text in enumerate([references[row], *variants[row]]):
            splice = splice_reference(response, tokenizer, text)
            if splice.ok:
                rows.append((row, place))
                sequences.append([*prompt, *splice.ids])
                spans.append(range(len(prompt) + splice.span.start, len(prompt) + splice.span.stop))
    means = reduce_rows(span_logprobs(model, sequences, spans)[0], "mean_log")
    reference = np.full(len(references), np.nan)
    found: list[list[float]] = [[] for _ in references]
    for (row, place), value in zip(rows, means.tolist(), strict=True):
        if place == 0:
            reference[row] = value
        else:
            found[row].append(value)
    variant = np.array([np.mean(row) if row else np.nan for row in found], dtype=np.float64)
    return Diversity(variant, reference, (sum(map(len, found)), wanted))


def answer_probability(
    response_ids: Sequence[Sequence[int]],
    response_logprobs: Sequence[Sequence[float]],
    tokenizer: Any,
    *,
    geometric: bool = False,
) -> tuple[Float64, int]:
    """RLCR's answer-probability baseline: the mean probability of the tokens inside the answer's tags, as a confidence.

    Args:
        response_ids: ``[B]`` sampled tokens.
        response_logprobs: ``[B]`` their natural log-probabilities.
        tokenizer: The policy's tokenizer.
        geometric: The geometric mean instead.

    Returns:
        Confidences, float64 ``[B]`` in [0, 1], :data:`NOT_FOUND` where there is no answer; and how many those are.

    Source:
        RLCR, arXiv 2507.16806, baselines.
    """
    rows: list[list[float] | None] = []
    for ids, logprobs in zip(response_ids, response_logprobs, strict=True):
        own = answer_span(ids, tokenizer)
        rows.append([float(logprobs[i]) for i in own.span] if own.ok else None)
    values = reduce_rows(rows, "geo_mean" if geometric else "mean_prob", argument="response_logprobs")
    missing = np.isnan(values)
    return np.where(missing, NOT_FOUND, values), int(missing.sum())
