"""Batched generation and prompt log-probabilities on a transformers model; knows torch, but neither verl nor Ray.

Same answers as verl's vLLM server gives for the same sampling parameters, so that what is built on the one runs on the
other. Sampling is reproducible: a row's draws depend on the seed, the weights' version, the prompt and how often that
prompt was asked under these weights, not on how requests happened to fall into batches.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from rewardkit.errors import InvalidArgumentError

# Parameters that change neither tokens nor log-probabilities here.
_IGNORED = {"detokenize", "skip_reading_prefix_cache", "skip_special_tokens", "priority", "extra_args"}


@dataclass(frozen=True)
class SamplingParams:
    """The sampling parameters that verl sends; see :meth:`of`."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    logprobs: bool = False
    prompt_logprobs: int | None = None
    ignore_eos: bool = False
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()

    @classmethod
    def of(cls, raw: Mapping[str, Any], *, default_max_tokens: int, limit: int) -> SamplingParams:
        """Reads what a caller passes to verl's rollout server.

        Args:
            raw: vLLM's names; ``max_new_tokens`` (SGLang's name) is read too.
            default_max_tokens: Where the caller gives none.
            limit: The tokens left in the model's context.

        Raises:
            InvalidArgumentError: A parameter that is unknown, out of range, or not supported here.
        """
        given = {key: value for key, value in raw.items() if value is not None and key not in _IGNORED}
        max_tokens = given.pop("max_tokens", given.pop("max_new_tokens", default_max_tokens))
        for key, neutral in (("repetition_penalty", 1.0), ("n", 1), ("min_p", 0.0), ("min_tokens", 0)):
            if given.pop(key, neutral) != neutral:
                raise InvalidArgumentError(
                    f"sampling_params[{key!r}]", expected=f"{neutral} on the CPU backend", got=raw[key]
                )
        given["logprobs"] = bool(given.get("logprobs", False))
        given["stop_token_ids"] = tuple(int(token) for token in given.get("stop_token_ids", ()))
        unknown = given.keys() - cls.__dataclass_fields__.keys()
        if unknown:
            raise InvalidArgumentError(
                "sampling_params", expected=f"names among {', '.join(cls.__dataclass_fields__)}", got=sorted(unknown)
            )
        params = cls(max_tokens=max(1, min(int(max_tokens), limit)), **given)
        if params.temperature < 0 or not 0 < params.top_p <= 1:
            raise InvalidArgumentError("sampling_params", expected="temperature >= 0 and 0 < top_p <= 1", got=dict(raw))
        return params


@dataclass(frozen=True)
class Request:
    """One prompt and how to continue it."""

    prompt_ids: Sequence[int]
    params: SamplingParams


@dataclass
class Generation:
    """What one request yields.

    Attributes:
        token_ids: The new tokens, the end token included where it was reached.
        logprobs: Natural log-probability of each new token, or ``None`` where it was not asked for.
        prompt_ids: ``[S][max(k, 1)]`` the tokens that ``prompt_logprobs`` belong to, or ``None``.
        prompt_logprobs: ``[S][max(k, 1)]``: row i holds log p(token i+1 | tokens up to i) for k = 0, or the k likeliest
            continuations in order of rank for k > 0, from the raw distribution (no temperature, no top-p); the last row is a
            dummy of zeros, as in verl's vLLM server. ``None`` where it was not asked for.
    """

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] | None = None
    prompt_ids: list[list[int]] | None = None
    prompt_logprobs: list[list[float]] | None = None


class TransformersEngine:
    """A causal language model that answers batches of requests; not safe for concurrent calls."""

    def __init__(
        self,
        model: Any,
        *,
        eos_ids: Sequence[int],
        pad_id: int,
        seed: int = 0,
        processed_logprobs: bool = True,
    ):
        """Wraps a transformers model.

        Args:
            model: A causal model in evaluation mode, float32.
            eos_ids: The tokens that end a completion.
            pad_id: Any valid token; padding is masked.
            seed: Of all sampling.
            processed_logprobs: Whether ``logprobs`` are those of the distribution sampled from (after temperature, top-k
                and top-p; verl's default) or of the model's own.
        """
        self.model, self.pad_id, self.seed = model, pad_id, seed
        self.eos_ids = frozenset(eos_ids)
        self.processed_logprobs = processed_logprobs
        self.version = 0
        self._asked: Counter[bytes] = Counter()

    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Replaces the weights; tied ones may be absent.

        Raises:
            InvalidArgumentError: Names that the model does not have, or that are missing.
        """
        own = self.model.state_dict(keep_vars=True)
        given = {own[name].data_ptr() for name in weights if name in own}
        unexpected = [name for name in weights if name not in own]
        missing = [name for name, tensor in own.items() if tensor.data_ptr() not in given]
        if missing or unexpected:
            raise InvalidArgumentError(
                "weights",
                expected="the model's parameters",
                got=f"unexpected {unexpected[:3]}, missing {missing[:3]}",
            )
        self.model.load_state_dict({name: tensor.to(torch.float32) for name, tensor in weights.items()}, strict=False)
        self.model.tie_weights()
        self.version += 1
        self._asked.clear()

    @torch.inference_mode()
    def run(self, requests: Sequence[Request]) -> list[Generation]:
        """Answers a batch of requests, each by its own parameters."""
        results = [Generation(logprobs=[] if request.params.logprobs else None) for request in requests]
        generators = [self._generator(request) for request in requests]
        longest = max(len(request.prompt_ids) for request in requests)
        ids = torch.full((len(requests), longest), self.pad_id)
        mask = torch.zeros_like(ids)
        for row, request in enumerate(requests):
            ids[row, longest - len(request.prompt_ids) :] = torch.as_tensor(list(request.prompt_ids))
            mask[row, longest - len(request.prompt_ids) :] = 1
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        all_logits = any(request.params.prompt_logprobs is not None for request in requests)
        output = self.model(
            ids,
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            **({} if all_logits else {"logits_to_keep": 1}),
        )
        if all_logits:
            for request, result, logits in zip(requests, results, output.logits, strict=True):
                if request.params.prompt_logprobs is not None:
                    _fill_prompt_logprobs(request, result, logits[longest - len(request.prompt_ids) :])

        rows = list(range(len(requests)))  # the requests that are still generating, by row of the model's batch
        logits, cache, positions = output.logits[:, -1], output.past_key_values, positions[:, -1:]
        while True:
            params = [requests[row].params for row in rows]
            draws = [generators[row].random() for row in rows]
            tokens, logprobs = sample(logits.float(), params, draws, processed=self.processed_logprobs)
            going = []
            for place, row in enumerate(rows):
                token, result = int(tokens[place]), results[row]
                result.token_ids.append(token)
                if result.logprobs is not None:
                    result.logprobs.append(float(logprobs[place]))
                ends = token in params[place].stop_token_ids or (token in self.eos_ids and not params[place].ignore_eos)
                if not ends and len(result.token_ids) < params[place].max_tokens:
                    going.append(place)
            if not going:
                return results
            if len(going) < len(rows):
                keep = torch.as_tensor(going)
                rows = [rows[place] for place in going]
                tokens, mask, positions = tokens[keep], mask[keep], positions[keep]
                cache.batch_select_indices(keep)
            mask = torch.cat([mask, mask.new_ones((len(rows), 1))], dim=1)
            positions = positions + 1
            output = self.model(
                tokens[:, None], attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
            )
            logits, cache = output.logits[:, -1], output.past_key_values

    def _generator(self, request: Request) -> np.random.Generator:
        if request.params.seed is not None:
            return np.random.default_rng(request.params.seed)
        prompt = hashlib.blake2b(np.asarray(request.prompt_ids, dtype=np.int64).tobytes(), digest_size=8).digest()
        # Scoring a prompt must not shift the draws of generating from it, so only real generation counts.
        nth = self._asked[prompt]
        self._asked[prompt] += request.params.prompt_logprobs is None
        return np.random.default_rng([self.seed, self.version, int.from_bytes(prompt, "little"), nth])


def _fill_prompt_logprobs(request: Request, result: Generation, logits: torch.Tensor) -> None:
    k = int(request.params.prompt_logprobs or 0)
    logprobs = logits[:-1].float().log_softmax(-1)  # row i speaks of token i+1
    if k == 0:
        following = torch.as_tensor(list(request.prompt_ids[1:]), dtype=torch.int64)[:, None]
        values = logprobs.gather(-1, following)
    else:
        values, following = logprobs.topk(k, dim=-1)
    result.prompt_logprobs = [*values.tolist(), [0.0] * max(k, 1)]
    result.prompt_ids = [*following.tolist(), [0] * max(k, 1)]


def sample(
    logits: torch.Tensor, params: Sequence[SamplingParams], draws: Sequence[float], *, processed: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draws one token per row by inverting the cumulative distribution.

    Args:
        logits: float32 ``[B, V]``.
        params: ``[B]``; temperature 0 takes the likeliest token.
        draws: ``[B]`` uniform in [0, 1).
        processed: Whether the log-probability returned is that of the distribution sampled from.

    Returns:
        The tokens, int64 ``[B]``, and their natural log-probabilities, float32 ``[B]``.
    """
    temperature = torch.tensor([p.temperature for p in params])
    greedy = temperature == 0
    raw = logits
    logits = logits / torch.where(greedy, 1.0, temperature)[:, None]
    vocabulary = logits.shape[-1]
    if any(p.top_p < 1 or 0 < p.top_k < vocabulary for p in params):
        top_k = torch.tensor([p.top_k if 0 < p.top_k < vocabulary else vocabulary for p in params])
        top_p = torch.tensor([p.top_p for p in params])
        ordered, order = logits.sort(-1, descending=True)
        probs = ordered.double().softmax(-1)
        # A token stays while the mass *before* it is below top_p, so the likeliest always stays.
        drop = (torch.arange(vocabulary) >= top_k[:, None]) | (probs.cumsum(-1) - probs >= top_p[:, None])
        logits = logits.masked_fill(torch.zeros_like(drop).scatter(-1, order, drop), -torch.inf)
    probs = logits.double().softmax(-1)
    cumulative = probs.cumsum(-1)
    target = torch.tensor(draws, dtype=torch.float64)[:, None] * cumulative[:, -1:]
    tokens = (cumulative <= target).sum(-1).clamp(max=vocabulary - 1)
    # Rounding could end on a token of probability 0 at the far end: then the likeliest one.
    likeliest = raw.argmax(-1)
    tokens = torch.where(greedy | (probs.gather(-1, tokens[:, None])[:, 0] <= 0), likeliest, tokens)
    source = logits if processed else raw
    return tokens, source.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
