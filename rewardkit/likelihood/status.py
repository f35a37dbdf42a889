"""Why the reference's likelihood could not be computed for a rollout, in one word each."""

from __future__ import annotations

MODEL_FAULTS: dict[str, str] = {
    "no_answer": "the response has no <answer> after its last </think>",
    "repeated_answer": "the response has more than one <answer> after its last </think>",
    "think_not_closed": "the response opens a think block and never closes it",
    "empty_answer": "the model's own answer is empty, and its likelihood was asked for",
    "answer_not_closed": "the model's own answer has no </answer>, and its likelihood was asked for",
    "truncated": "the response was cut at the length limit before its answer ended",
    "empty_response": "the response has no tokens",
    "ill_formed": "the completion does not follow the format, which the reward demands",
}
"""What the policy did wrong: the row counts as unparsed."""

OTHER_FAULTS: dict[str, str] = {
    "empty_reference": "the reference is empty after stripping whitespace",
    "reference_not_unicode": "the reference holds half of a surrogate pair, which no tokenizer can encode",
    "reference_too_long": "the reference has more tokens than allowed",
    "no_room": "response and reference do not fit into the model's context",
    "no_span": "no token of the suffix overlaps the reference",
    "special_token_in_reference": "the reference would be tokenised into a control token",
    "no_prompt_logprobs": "the rollout server returned no prompt log-probabilities",
    "nan_logprob": "a log-probability is NaN",
    "not_asked": "the row's data source is not among those to score",
    "stale_policy": "the weights changed between the rollout and its scoring",
    "no_reference_logprobs": "no log-probabilities of the reference came with the row",
    "no_own_logprobs": "no log-probabilities of the model's own answer came with the row",
    "no_reasoning_tokens": "the row does not say how long its reasoning is",
    "no_baseline": "the row has no baseline, or one outside the score's range",
}
"""What is no fault of the policy: the row has failed."""

STATUSES: dict[str, str] = {"ok": "scored", **MODEL_FAULTS, **OTHER_FAULTS}
"""Every status that :func:`rewardkit.likelihood.splice_reference` and the agent loop give, and what it means."""
