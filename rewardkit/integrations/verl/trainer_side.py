"""The fallback where the rollout engine gives no prompt log-probabilities: a second forward of the training engine.

Exactly the numbers of ``old_log_probs``, for Megatron and FSDP alike, at the price of about one more ``compute_log_prob`` per
step, while the rollout servers sleep. Groups cannot be filtered by a reward that comes so late.

``examples/verl/trainer_side.py`` is a whole training script: a ``PPOTrainerSync`` that calls :meth:`TrainerSideScorer.score`
after ``_compute_old_log_prob`` and writes the rewards before ``_compute_advantage`` reads them. (Keep ``trainer_mode=sync``: under
another trainer name verl takes its asynchronous branches.)
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rewardkit.errors import InvalidArgumentError
from rewardkit.integrations.verl.reference_scoring import Options, RowScores
from rewardkit.likelihood import answer_span, reasoning_tokens, splice_reference

ComputeLogProb = Callable[[dict[str, Tensor]], Tensor]
"""``(batch) -> log_probs [B, R]`` of ``batch["responses"]``, at temperature 1."""


class TrainerSideScorer:
    """Scores references with the trainer's own forward pass; the same :class:`RowScores` as the agent loop's."""

    def __init__(
        self,
        compute_log_prob: ComputeLogProb,
        tokenizer: Any,
        *,
        pad_id: int,
        divisor: int = 1,
        options: Options | None = None,
    ):
        """Wraps a forward pass.

        Args:
            compute_log_prob: Takes left-padded prompts and right-padded responses as verl lays them out (``prompts``,
                ``responses``, ``input_ids``, ``attention_mask``, ``position_ids``). For the worker group of verl's V1 trainer:
                :func:`worker_group_log_prob`. For the legacy trainer's: convert with ``left_right_2_no_padding``, set
                temperature 1.0 and ``calculate_entropy=False``, call ``actor_rollout_wg.compute_log_prob`` and convert back.
            tokenizer: The policy's tokenizer.
            pad_id: Any valid token.
            divisor: Batches are filled up to a multiple of it: the data-parallel size, times ``log_prob_micro_batch_size_per_gpu``
                where verl does not choose micro-batches itself (``log_prob_use_dynamic_bsz``).
            options: As for the agent loop; what concerns a server is not used.
        """
        if divisor < 1:
            raise InvalidArgumentError("divisor", expected="at least 1", got=divisor)
        self.compute_log_prob, self.tokenizer, self.pad_id, self.divisor = compute_log_prob, tokenizer, pad_id, divisor
        self.options = options or Options()

    def score(
        self,
        *,
        prompt_ids: Sequence[Sequence[int]],
        response_ids: Sequence[Sequence[int]],
        references: Sequence[str],
        old_log_probs: Sequence[Sequence[float]] | None = None,
        policy_version: int = -1,
    ) -> list[RowScores]:
        """Scores a batch in one forward.

        Args:
            prompt_ids: ``[B]`` tokens without padding.
            response_ids: ``[B]`` tokens without padding.
            references: ``[B]``.
            old_log_probs: ``[B]`` the trainer's log-probabilities of the responses, which give the own answers' for free.
            policy_version: The trainer's step.
        """
        options, rows = self.options, []
        splices = []
        for place, (response, reference) in enumerate(zip(response_ids, references, strict=True)):
            splice = splice_reference(
                response,
                self.tokenizer,
                reference,
                tag=options.tag,
                max_reference_tokens=options.max_reference_tokens,
                score_tags=options.score_tags,
            )
            row = RowScores(
                reference_status=splice.status, policy_version=policy_version, rollout_version=policy_version
            )
            row.reasoning_tokens = reasoning_tokens(response, self.tokenizer, tag=options.tag)
            row.spills_left, row.spills_right = int(splice.spills_left), int(splice.spills_right)
            row.retokenized = int(splice.retokenized)
            if options.own_answer:
                self._own(row, response, None if old_log_probs is None else old_log_probs[place])
            rows.append(row)
            splices.append(splice)
        scored = [place for place, splice in enumerate(splices) if splice.ok]
        if scored:
            batch = self._batch([prompt_ids[place] for place in scored], [splices[place].ids for place in scored])
            logprobs = self.compute_log_prob(batch).float()
            for line, place in enumerate(scored):
                span = splices[place].span
                values = logprobs[line, span.start : span.stop]
                if values.isnan().any():
                    rows[place].reference_status = "nan_logprob"
                else:
                    rows[place].reference_logprobs = values.clamp(min=-1e30).tolist()
                    rows[place].calls = 1
        return rows

    def _own(self, row: RowScores, response: Sequence[int], old: Sequence[float] | None) -> None:
        own = answer_span(response, self.tokenizer, tag=self.options.tag)
        row.own_status = own.status
        if own.ok and old is None:
            row.own_status = "no_own_logprobs"
        elif own.ok and old is not None:
            row.own_logprobs = [float(old[i]) for i in own.span]

    def _batch(self, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> dict[str, Tensor]:
        size = -(-len(prompts) // self.divisor) * self.divisor
        left, right = max(map(len, prompts)), max(map(len, responses))
        ids = torch.full((size, left + right), self.pad_id, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row in range(size):
            prompt, response = prompts[row % len(prompts)], responses[row % len(prompts)]  # repeated rows fill it up
            ids[row, left - len(prompt) : left] = torch.as_tensor(list(prompt))
            ids[row, left : left + len(response)] = torch.as_tensor(list(response))
            mask[row, left - len(prompt) : left + len(response)] = 1
        return {
            "prompts": ids[:, :left],
            "responses": ids[:, left:],
            "input_ids": ids,
            "attention_mask": mask,
            "position_ids": (mask.cumsum(1) - 1).clamp(min=0),
        }


def worker_group_log_prob(worker_group: Any, *, partition: str = "rewardkit_reference") -> ComputeLogProb:
    """The forward pass of verl's V1 trainer, whose workers take their batches from TransferQueue and leave results there.

    Args:
        worker_group: The trainer's ``actor_rollout_wg``.
        partition: Where the spliced rows lie while they are scored; nothing else may use it.
    """
    import transfer_queue as tq
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict
    from verl.workers.utils.padding import response_from_nested

    def compute(batch: dict[str, Tensor]) -> Tensor:
        width = batch["prompts"].shape[1]
        keys, fields, tags = [], [], []
        for ids, mask in zip(batch["input_ids"], batch["attention_mask"].bool(), strict=True):
            prompt, response = ids[:width][mask[:width]], ids[width:][mask[width:]]
            written = torch.ones_like(response)
            keys.append(uuid.uuid4().hex)
            fields.append(
                {
                    "prompts": prompt,
                    "responses": response,
                    "input_ids": torch.cat([prompt, response]),
                    "position_ids": torch.arange(len(prompt) + len(response)),
                    "response_mask": written,
                    "loss_mask": written,
                    "multi_modal_inputs": {},
                }
            )
            lengths = {"prompt_len": len(prompt), "response_len": len(response)}
            tags.append({"status": "success", "seq_len": sum(lengths.values()), **lengths})
        meta = tq.kv_batch_put(keys=keys, fields=list_of_dict_to_tensordict(fields), tags=tags, partition_id=partition)
        try:
            meta.extra_info = {"calculate_entropy": False, "compute_loss": False, "temperature": 1.0}
            worker_group.compute_log_prob(meta)
            data = tq.kv_batch_get(keys=keys, partition_id=partition, select_fields=["log_probs", "response_mask"])
        finally:
            tq.kv_clear(keys=keys, partition_id=partition)
        nested = response_from_nested(data["log_probs"], data["response_mask"])
        return torch.nested.to_padded_tensor(nested, 0.0, (len(keys), batch["responses"].shape[1]))

    return compute
