"""GRPO in TRL with a calibration reward.

    rewardkit data hotpotqa hotpot_train_v1.1.json -o train.parquet --trainer trl --format tac --max-chars 6000
    rewardkit validate --data train.parquet --reward rlcr --tokenizer Qwen/Qwen2.5-7B-Instruct
    python examples/trl/grpo.py --model Qwen/Qwen2.5-7B-Instruct --data train.parquet --reward rlcr

Add ``--cpu --steps 2`` with a small model to try it on a laptop.
"""

from __future__ import annotations

import argparse
import json

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from rewardkit.integrations.trl import reward_function


def main() -> None:
    """Reads the command line and trains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="name or folder of the policy")
    parser.add_argument("--data", required=True, help="Parquet file from `rewardkit data … --trainer trl`")
    parser.add_argument("--reward", default="rlcr", help="name of a reward, see `rewardkit info`")
    parser.add_argument("--params", default="{}", type=json.loads, help="its parameters as JSON")
    parser.add_argument("--output", default="outputs/trl", help="where checkpoints go")
    parser.add_argument("--steps", default=-1, type=int, help="training steps; -1 for one epoch")
    parser.add_argument("--cpu", action="store_true", help="a short run without a GPU")
    args = parser.parse_args()

    trainer = GRPOTrainer(
        args.model,
        reward_funcs=reward_function(args.reward, **args.params),
        train_dataset=Dataset.from_parquet(args.data),
        args=GRPOConfig(
            output_dir=args.output,
            max_steps=args.steps,
            # Dividing advantages by the group's standard deviation would undo the calibration.
            scale_rewards="none",
            learning_rate=1e-6,
            warmup_ratio=0.05,
            temperature=0.7,
            num_generations=4 if args.cpu else 32,
            per_device_train_batch_size=4 if args.cpu else 8,
            gradient_accumulation_steps=1 if args.cpu else 32,
            max_completion_length=96 if args.cpu else 1536,  # thoughts, an answer and a confidence have to fit
            use_cpu=args.cpu,
            bf16=not args.cpu,
            logging_steps=1,
            save_strategy="no" if args.cpu else "steps",
            save_steps=60,
            report_to=[],
        ),
    )
    trainer.train()


if __name__ == "__main__":
    main()
