"""GRPO with a likelihood reward where the rollout engine gives no prompt log-probabilities: the training engine scores.

Run it in place of ``python -m verl.trainer.main_ppo``, with the same overrides and one more::

    python examples/verl/trainer_side.py '+trainer_side={reward: rlpr, params: {}}' …

The reward manager runs as ever while rollouts come in (``reward: format`` is a fitting one); what it gave a row is replaced by
the likelihood reward before advantages are computed. Synchronous V1 trainer only.
"""

from __future__ import annotations

from typing import Any

import hydra
import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from rewardkit import rewards
from rewardkit.integrations.verl.reference_scoring import Options, reference_text
from rewardkit.integrations.verl.trainer_side import TrainerSideScorer, worker_group_log_prob


class TrainerSide(PPOTrainerSync):
    """verl's synchronous trainer, whose rewards come from a second forward pass."""

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_old_log_prob(batch, metrics)
        where = {"keys": batch.keys, "partition_id": batch.partition_id}
        data = tq.kv_batch_get(
            **where, select_fields=["prompts", "responses", "reward_model", "old_log_probs", "extra_info"]
        )
        responses = [ids.tolist() for ids in data["responses"].unbind()]
        reward, scorer = self._scoring()
        scores = scorer.score(
            prompt_ids=[ids.tolist() for ids in data["prompts"].unbind()],
            response_ids=responses,
            references=[
                reference_text(row["ground_truth"], place="reward_model.ground_truth") for row in data["reward_model"]
            ],
            old_log_probs=[row.tolist() for row in data["old_log_probs"].unbind()],
            policy_version=self.global_steps,
        )
        columns = {name: [getattr(row, name) for row in scores] for name in ("reference_logprobs", "reference_status")}
        columns |= {name: [getattr(row, name) for row in scores] for name in ("own_logprobs", "own_status")}
        columns |= {name: [row[name] for row in data["extra_info"]] for name in reward.requires if name == "baseline"}
        completions = self.tokenizer.batch_decode(responses)
        result = reward(completions=completions, group_ids=[key.split("_")[0] for key in batch.keys], **columns)
        given = []
        for ids, value in zip(responses, result.values, strict=True):
            given.append(torch.zeros(len(ids)))
            given[-1][-1] = float(value)
        rm_scores = torch.nested.as_nested_tensor(given, layout=torch.jagged)
        tq.kv_batch_put(**where, fields=TensorDict({"rm_scores": rm_scores}, batch_size=len(given)))
        metrics["trainer_side/reward"] = float(result.values.mean())
        metrics["trainer_side/scored"] = sum(status == "ok" for status in result.status) / len(given)
        return batch

    def _scoring(self) -> tuple[rewards.Reward, TrainerSideScorer]:
        if not hasattr(self, "_reward_and_scorer"):
            settings: Any = OmegaConf.to_container(self.config.trainer_side, resolve=True)
            reward = rewards.get(settings["reward"], **(settings.get("params") or {}))
            rollout, trainer = self.config.actor_rollout_ref.rollout, self.config.trainer
            micro_batch = 1 if rollout.log_prob_use_dynamic_bsz else rollout.log_prob_micro_batch_size_per_gpu
            scorer = TrainerSideScorer(
                worker_group_log_prob(self.actor_rollout_wg),
                self.tokenizer,
                pad_id=self.tokenizer.pad_token_id,
                divisor=trainer.n_gpus_per_node * trainer.nnodes * micro_batch,
                options=Options(own_answer="own_logprobs" in reward.requires),
            )
            self._reward_and_scorer = reward, scorer
        return self._reward_and_scorer


class Runner(TaskRunnerV1.__ray_metadata__.modified_class):
    """verl's task runner with that trainer."""

    trainer_class = TrainerSide

    def run(self, config: Any) -> None:
        """Trains."""
        TRAINER_REGISTRY["sync"] = self.trainer_class
        super().run(config)


@hydra.main(config_path="pkg://verl.trainer.config", config_name="ppo_trainer", version_base=None)
def main(config: Any) -> None:
    """Trains with verl's own config."""
    run_ppo(config, task_runner_class=ray.remote(Runner))


if __name__ == "__main__":
    main()
