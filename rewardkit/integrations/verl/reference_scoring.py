"""Asks a rollout server for the log-probabilities of the spliced reference; knows neither verl nor Ray.

Everything here guards against numbers that look right and are not: a cached answer's log-probabilities are missing or
uninitialised, an aborted call has none, weights may change between the rollout and its scoring.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rewardkit.errors import InvalidArgumentError
from rewardkit.likelihood import Splice, answer_span, reasoning_tokens, splice_reference

Ask = Callable[[list[int], dict[str, Any]], Awaitable[Any]]
"""``await ask(prompt_ids, sampling_params)`` gives verl's ``TokenOutput``."""

_ABORTED = ("aborted", "abort")
_ATTEMPTS = 5


@dataclass(frozen=True)
class Options:
    """How references are scored.

    Attributes:
        own_answer: Also score the policy's own answer, for DARL.
        reuse_prefix: Let the server read its prefix cache for the reasoning, and ask again where it used it too far. Faster by
            about the length of the reasoning; off until a parity run on the engine at hand has shown equal numbers.
        same_policy: Refuse ("stale_policy") where the weights changed between rollout and scoring.
        max_reference_tokens: See :func:`rewardkit.likelihood.splice_reference`.
        score_tags: See there.
        tag: Name of the answer's tag.
        max_model_len: The model's context; ``None`` if unknown.
    """

    own_answer: bool = False
    reuse_prefix: bool = False
    same_policy: bool = False
    max_reference_tokens: int = 1024
    score_tags: bool = False
    tag: str = "answer"
    max_model_len: int | None = None


@dataclass
class RowScores:
    """What a rollout carries to the reward: small lists and numbers, always the same names.

    Attributes:
        reference_logprobs: Natural log-probabilities of the reference's tokens; empty unless ``reference_status`` is "ok".
        reference_status: "ok" or a key of :data:`rewardkit.likelihood.STATUSES`.
        own_logprobs: The same of the policy's own answer; empty where not asked for or not possible.
        own_status: "ok", "not_asked" or a key of STATUSES.
        reasoning_tokens: Tokens before the answer's tag.
        policy_version: The trainer's step whose weights scored; -1 if unknown.
        rollout_version: The step whose weights generated; -1 if unknown.
        cached_tokens: How many tokens of the last scoring call the server read from its cache.
        calls: Scoring calls, repeats included.
        spills_left, spills_right, retokenized: See :class:`rewardkit.likelihood.Splice`.
    """

    reference_logprobs: list[float] = field(default_factory=list)
    reference_status: str = "ok"
    own_logprobs: list[float] = field(default_factory=list)
    own_status: str = "not_asked"
    reasoning_tokens: int = 0
    policy_version: int = -1
    rollout_version: int = -1
    cached_tokens: int = 0
    calls: int = 0
    spills_left: int = 0
    spills_right: int = 0
    retokenized: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain Python values, for ``extra_fields["rewardkit"]``."""
        return dict(vars(self))


async def score_row(
    ask: Ask,
    *,
    prompt_ids: Sequence[int],
    response_ids: Sequence[int],
    response_logprobs: Sequence[float] | None,
    reference: str,
    tokenizer: Any,
    options: Options,
    rollout_version: int | None = None,
) -> RowScores:
    """Scores the reference, and the policy's own answer where asked for, under the policy as it is now.

    Args:
        ask: Sends one request to the policy's server.
        prompt_ids: The prompt's tokens.
        response_ids: The sampled response, without padding.
        response_logprobs: Log-probabilities of the sampled tokens, where they are those of the model's own distribution
            (temperature 1, no top-p, no top-k); then the own answer costs nothing.
        reference: The reference answer.
        tokenizer: The policy's tokenizer.
        options: How.
        rollout_version: The step whose weights generated the response.
    """
    scores = RowScores(rollout_version=-1 if rollout_version is None else int(rollout_version))
    scores.reasoning_tokens = reasoning_tokens(response_ids, tokenizer, tag=options.tag)
    splice = splice_reference(
        response_ids,
        tokenizer,
        reference,
        tag=options.tag,
        max_reference_tokens=options.max_reference_tokens,
        score_tags=options.score_tags,
    )
    scores.reference_status = splice.status
    scores.spills_left, scores.spills_right = int(splice.spills_left), int(splice.spills_right)
    scores.retokenized = int(splice.retokenized)
    if splice.ok:
        await _score_reference(ask, scores, prompt_ids, splice, options)
    if options.own_answer:
        await _score_own(ask, scores, prompt_ids, response_ids, response_logprobs, tokenizer, options)
    return scores


async def _score_reference(
    ask: Ask, scores: RowScores, prompt_ids: Sequence[int], splice: Splice, options: Options
) -> None:
    ids = [*(int(i) for i in prompt_ids), *splice.ids]
    span = range(len(prompt_ids) + splice.span.start, len(prompt_ids) + splice.span.stop)
    scores.reference_status, scores.reference_logprobs = await _logprobs(ask, scores, ids, span, options)


async def _score_own(
    ask: Ask,
    scores: RowScores,
    prompt_ids: Sequence[int],
    response_ids: Sequence[int],
    response_logprobs: Sequence[float] | None,
    tokenizer: Any,
    options: Options,
) -> None:
    own = answer_span(response_ids, tokenizer, tag=options.tag)
    scores.own_status = own.status
    if not own.ok:
        return
    if response_logprobs is not None and len(response_logprobs) >= own.span.stop:
        values = [float(response_logprobs[i]) for i in own.span]
        scores.own_status, scores.own_logprobs = _checked(values)
        return
    ids = [*(int(i) for i in prompt_ids), *(int(i) for i in response_ids[: own.span.stop])]
    span = range(len(prompt_ids) + own.span.start, len(ids))
    # These tokens were just generated, so the server's cache holds them: never read it here.
    fresh = Options(**{**vars(options), "reuse_prefix": False})
    scores.own_status, scores.own_logprobs = await _logprobs(ask, scores, ids, span, fresh)


async def _logprobs(
    ask: Ask, scores: RowScores, ids: list[int], span: range, options: Options
) -> tuple[str, list[float]]:
    if options.max_model_len is not None and len(ids) + 1 > options.max_model_len:
        return "no_room", []
    reuse = options.reuse_prefix
    for _ in range(_ATTEMPTS):
        # A fresh mapping each time: servers and clients write into the one they get.
        params: dict[str, Any] = {"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0, "detokenize": False}
        if reuse:
            params["skip_reading_prefix_cache"] = False
        output = await ask(list(ids), params)
        scores.calls += 1
        if output.stop_reason in _ABORTED:
            continue
        extra = output.extra_fields
        scores.cached_tokens = int(extra.get("num_cached_tokens") or 0)
        version = extra.get("global_steps")
        scores.policy_version = -1 if version is None else int(version)
        # The first scored token is predicted from the one before it: if that one was cached, its log-probability is
        # missing or, on one of vLLM's runners, whatever lay in memory.
        if reuse and scores.cached_tokens > span.start - 1:
            reuse = False
            continue
        if options.same_policy and scores.rollout_version != scores.policy_version:
            return "stale_policy", []
        values = read_tail(extra.get("prompt_logprobs"), length=len(ids), span=span)
        return _checked(values) if values is not None else ("no_prompt_logprobs", [])
    return "no_prompt_logprobs", []


def read_tail(prompt_logprobs: Sequence[Sequence[float]] | None, *, length: int, span: range) -> list[float] | None:
    """The log-probabilities of a span of tokens from verl's ``prompt_logprobs``.

    verl's list has one entry per prompt token, shifted by one and closed by a dummy: entry i speaks of token i + 1. With a
    cached prefix some engines return only the tail of it. So it is read from its end, where both agree.

    Args:
        prompt_logprobs: ``[S][1]`` as verl's server returns it, S <= length.
        length: How many tokens the prompt had.
        span: Which of them, at least the second.

    Returns:
        One number per token of the span, or ``None`` where the list does not reach that far.
    """
    if prompt_logprobs is None or not 0 < span.start < span.stop <= length:
        return None
    back = [length - token + 1 for token in span]
    if max(back) > len(prompt_logprobs) or len(prompt_logprobs) > length:
        return None
    return [float(prompt_logprobs[-one][0]) for one in back]


def _checked(values: list[float]) -> tuple[str, list[float]]:
    if any(math.isnan(value) for value in values):
        return "nan_logprob", []
    # -inf is a log-probability, but no JSON number: the least float stands for it, and exp of it is 0.
    return "ok", [max(value, -1e30) for value in values]


def reference_text(value: Any, *, place: str) -> str:
    """The one string to score from a row's reference: itself, or the first alias of the first gold.

    Raises:
        InvalidArgumentError: There is none.
    """
    found = value
    while not isinstance(found, str) and hasattr(found, "__len__") and len(found):
        found = found[0]
    if not isinstance(found, str):
        raise InvalidArgumentError(place, expected="a reference as text, or a list that begins with one", got=value)
    return found
