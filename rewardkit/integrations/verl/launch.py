"""What a script needs to start verl: values as Hydra reads them, and what a machine without a GPU asks for.

Loads neither verl nor Ray.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from rewardkit.errors import InvalidArgumentError

CPU_MODULE = "rewardkit.integrations.verl.cpu"
CPU_ROLLOUT = "rewardkit_cpu"
"""The value of ``actor_rollout_ref.rollout.name`` that :mod:`rewardkit.integrations.verl.cpu` serves."""

_KEY = re.compile(r"[A-Za-z_][\w.-]*")


def hydra(value: Any) -> str:
    """Writes a value as the right side of a Hydra override; strings may hold spaces, quotes and commas.

    >>> hydra({"reward": "rlcr", "params": {"format": "tac", "weights": [1.0, 0.5]}})
    "{reward: 'rlcr', params: {format: 'tac', weights: [1.0, 0.5]}}"

    Raises:
        InvalidArgumentError: A value that Hydra cannot write, or a key that is no name.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        # In a quoted string Hydra reads \' as ' and, at its end or before a quote, \\ as \; OmegaConf then reads ${ as a
        # reference unless its backslash is there.
        escaped = re.sub(r"(\\+)(?=\\?'|$)", lambda match: match[1] * 2, value).replace("'", "\\'")
        return f"'{escaped.replace('${', chr(92) + '${')}'"
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or not _KEY.fullmatch(key):
                raise InvalidArgumentError("key", expected="a name of letters, digits, '_', '.' and '-'", got=key)
        return "{" + ", ".join(f"{key}: {hydra(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(hydra(entry) for entry in value) + "]"
    raise InvalidArgumentError("value", expected="text, a number, a list or a mapping", got=value)


def cpu_environment() -> dict[str, str]:
    """The environment variables of a verl job on the CPU."""
    return {
        "VERL_USE_EXTERNAL_MODULES": CPU_MODULE,
        "VERL_PLATFORM": "cpu",
        # verl registers its FSDP engine for cuda and npu alone; this is its own switch to name another.
        "VERL_ENGINE_DEVICE": "cuda",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "disabled",
    }


def cpu_overrides() -> list[str]:
    """The Hydra overrides of verl 0.9.1 that make a job fit a machine without a GPU (one training rank)."""
    precision = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    return [
        f"actor_rollout_ref.rollout.name={CPU_ROLLOUT}",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
        "actor_rollout_ref.rollout.free_cache_engine=False",
        "actor_rollout_ref.rollout.agent.num_workers=1",
        "actor_rollout_ref.model.use_remove_padding=False",
        "actor_rollout_ref.model.enable_gradient_checkpointing=False",
        "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
        "actor_rollout_ref.actor.strategy=fsdp2",
        "actor_rollout_ref.actor.use_torch_compile=False",
        "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
        f"+actor_rollout_ref.actor.fsdp_config.mixed_precision={hydra(precision)}",
        "trainer.device=cpu",
        "trainer.n_gpus_per_node=1",
        "trainer.nnodes=1",
        "data.dataloader_num_workers=0",
        "data.filter_overlong_prompts=False",
        "trainer.v1.sampler.custom_sampler.path=pkg://rewardkit.integrations.verl.cpu_sampler",
        "trainer.v1.sampler.custom_sampler.name=FastPollReplayBuffer",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        # verl counts only GPUs, and starts more actors than a small machine has cores: Ray is told of both.
        "ray_kwargs.ray_init.num_cpus=8",
        "+ray_kwargs.ray_init.num_gpus=1",
        "+ray_kwargs.ray_init.include_dashboard=False",
    ]
