"""Names that trainers use themselves (verl 0.9.1, TRL), so that no column of a reward or of a data set may have them."""

from __future__ import annotations

VERL_ROW = frozenset(
    [
        "uid",
        "index",
        "session_id",
        "global_steps",
        "raw_prompt",
        "dummy_tensor",
        "tools_kwargs",
        "interaction_kwargs",
        "prompts",
        "responses",
        "input_ids",
        "attention_mask",
        "position_ids",
        "response_mask",
        "loss_mask",
        "prompt_len",
        "response_len",
        "num_turns",
        "__num_turns__",
        "extra_fields",
        "tool_extra_fields",
        "reward_extra_info",
        "reward_scores",
        "rm_scores",
        "token_level_scores",
        "token_level_rewards",
        "old_log_probs",
        "ref_log_prob",
        "rollout_log_probs",
        "advantages",
        "returns",
        "values",
        "multi_modal_data",
        "multi_modal_inputs",
        "metrics",
        "is_padding",
        "routed_experts",
        "turn_scores",
        "tool_rewards",
        "min_global_steps",
        "max_global_steps",
    ]
)
"""What verl writes into a row or a batch: a column of the data set with such a name is overwritten, or taken for verl's own."""

VERL_EXTRA = frozenset(
    [
        "num_turns",
        "rollout_reward_scores",
        "reward",
        "score",
        "pred",
        "acc_success_only",
        "input",
        "output",
        "gts",
        "step",
        "reward_extra_info",
    ]
)
"""What verl's own reward managers write into ``extra_info``, or its dumps write beside a reward's columns."""

VERL_SCHEMA = frozenset(
    [
        "data_source",
        "prompt",
        "ability",
        "reward_model",
        "extra_info",
        "extras",
        "agent_name",
        "seq_reward",
        "seq_final_reward",
    ]
)
"""What verl reads from a row, and names of its metrics: a data set has them, a reward's column must not."""

VERL = VERL_ROW | VERL_EXTRA | VERL_SCHEMA
"""What a reward's column must not be called in verl."""

TRL_ROW = frozenset(
    [
        "prompts",
        "completions",
        "completion_ids",
        "trainer_state",
        "log_extra",
        "log_metric",
        "environments",
        "completion",
    ]
)
"""What TRL passes to a reward function beside the columns of the data set."""

MANAGER = ("acc", "wellformed", "status_ok", "status_unparsed", "status_failed", "truncated", "empty")
"""The columns that rewardkit's own manager for verl gives every row, whatever the rewards."""
