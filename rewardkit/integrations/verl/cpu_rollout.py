"""verl's rollout interface on :class:`~rewardkit.integrations.verl.cpu_engine.TransformersEngine`: one Ray actor serves tokens.

Token in, token out, like verl's vLLM server, ``prompt_logprobs`` included. Calls that arrive while a batch runs form the
next batch.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

from rewardkit.errors import BackendError, InvalidArgumentError
from rewardkit.integrations.verl.cpu_engine import Request, SamplingParams, TransformersEngine
from rewardkit.integrations.verl.launch import CPU_ROLLOUT

logger = logging.getLogger(__name__)

_IDLE_SECONDS = 0.01  # a batch starts when no further call has come for so long …
_MAX_BATCH = 256  # … or when it is full


def server_name(replica_rank: int) -> str:
    """The Ray actor's name; verl names its own servers ``{rollout.name}_server_{replica}_{node}``."""
    return f"{CPU_ROLLOUT}_server_{replica_rank}_0"


class TransformersServer:
    """The Ray actor: queues calls, runs them in batches in a thread, swaps weights between batches."""

    def __init__(self, model_path: str, *, limits: dict[str, Any]):
        """Loads the model.

        Args:
            model_path: A folder that transformers reads.
            limits: ``prompt_length``, ``response_length``, ``max_model_len``, ``max_num_seqs``, ``seed``, ``logprobs_mode``
                of verl's rollout config.
        """
        from transformers import AutoModelForCausalLM, AutoTokenizer

        model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32, attn_implementation="sdpa").eval()
        tokenizer = AutoTokenizer.from_pretrained(model_path)
        ends = model.generation_config.eos_token_id
        eos_ids = set(ends if isinstance(ends, (list, tuple)) else [ends]) | {tokenizer.eos_token_id}
        eos_ids.discard(None)
        if not eos_ids:
            raise BackendError(f"{model_path}: neither the tokenizer nor generation_config.json names an end token")
        pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else min(eos_ids)
        self.limits = limits
        self.max_model_len = limits["max_model_len"] or model.config.max_position_embeddings
        self.max_batch = min(_MAX_BATCH, limits["max_num_seqs"])
        self.engine = TransformersEngine(
            model,
            eos_ids=sorted(eos_ids),
            pad_id=pad_id,
            seed=limits["seed"],
            processed_logprobs=limits["logprobs_mode"] == "processed_logprobs",
        )
        self.global_steps: int | None = None
        self.batches = 0
        self._queue: asyncio.Queue[tuple[Request, asyncio.Future]] = asyncio.Queue()
        self._batcher: asyncio.Task | None = None
        self._model_lock = asyncio.Lock()

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, **kwargs: Any
    ) -> TokenOutput:
        """Continues a prompt; the contract of verl's rollout servers.

        Raises:
            InvalidArgumentError: The prompt leaves no room in the model's context, or brings images, audio or video, or a
                sampling parameter is not supported.
        """
        for name in ("image_data", "video_data", "audio_data"):
            if kwargs.get(name):
                raise InvalidArgumentError(name, expected="text alone on the CPU backend", got=type(kwargs[name]))
        prompt = [int(token) for token in prompt_ids]
        room = self.max_model_len - len(prompt)
        if not prompt or room < 1:
            raise InvalidArgumentError(
                "prompt_ids", expected=f"1 to {self.max_model_len - 1} tokens", got=f"{len(prompt)} tokens"
            )
        response_length = self.limits["response_length"]
        default = min(response_length, self.limits["prompt_length"] + response_length - len(prompt))
        request = Request(prompt, SamplingParams.of(sampling_params, default_max_tokens=default, limit=room))
        if self._batcher is None:
            self._batcher = asyncio.create_task(self._run_batches())
        future = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((request, future))
        return await future

    async def _run_batches(self) -> None:
        while True:
            batch = [await self._queue.get()]
            while len(batch) < self.max_batch:
                try:
                    batch.append(await asyncio.wait_for(self._queue.get(), _IDLE_SECONDS))
                except asyncio.TimeoutError:
                    break
            async with self._model_lock:
                steps = self.global_steps
                try:
                    results = await asyncio.to_thread(self.engine.run, [request for request, _ in batch])
                except Exception as error:  # noqa: BLE001  (each waiting call must hear of it, whatever it is)
                    for _, future in batch:
                        if not future.done():
                            future.set_exception(error)
                    continue
            self.batches += 1
            for (_, future), result in zip(batch, results, strict=True):
                extra: dict[str, Any] = {"global_steps": steps, "num_cached_tokens": 0}
                if result.prompt_logprobs is not None:
                    extra |= {"prompt_ids": result.prompt_ids, "prompt_logprobs": result.prompt_logprobs}
                if not future.done():
                    future.set_result(
                        TokenOutput(
                            token_ids=result.token_ids,
                            log_probs=result.logprobs,
                            stop_reason="completed",
                            extra_fields=extra,
                        )
                    )

    async def load_weights(self, weights: dict[str, torch.Tensor], global_steps: int | None) -> None:
        """Takes the trainer's weights, after the batch that runs."""
        async with self._model_lock:
            await asyncio.to_thread(self.engine.load_weights, weights)
            if global_steps is not None:
                self.global_steps = global_steps

    async def set_global_steps(self, global_steps: int) -> None:
        """Which trainer step the weights belong to; returned with every generation."""
        self.global_steps = global_steps

    async def _nothing(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is held that could be released, aborted or profiled."""

    ready = wake_up = sleep = abort_all_requests = resume_generation = clear_kv_cache = _nothing
    release_kv_cache = resume_kv_cache = start_profile = stop_profile = _nothing


class TransformersReplica(RolloutReplica):
    """Starts one server; verl's half in the driver."""

    async def launch_servers(self) -> None:
        """Starts the server and waits for it.

        Raises:
            BackendError: More than one process per replica, or a reward or teacher model, was asked for.
        """
        if self.world_size != 1:
            raise BackendError(
                "the CPU backend has one process per rollout: set tensor_, data_ and pipeline_parallel_size to 1"
            )
        if self.is_reward_model or self.is_teacher_model:
            raise BackendError("the CPU backend serves the policy alone, no reward or teacher model")
        config = self.config
        limits = {
            "prompt_length": config.prompt_length,
            "response_length": config.response_length,
            "max_model_len": config.max_model_len,
            "max_num_seqs": config.max_num_seqs,
            "seed": config.seed + self.replica_rank,
            "logprobs_mode": config.logprobs_mode,
        }
        name = server_name(self.replica_rank)
        actor: Any = ray.remote(TransformersServer)
        server = actor.options(name=name, num_cpus=0, max_concurrency=self.max_concurrency).remote(
            self.model_config.path,  # type: ignore[attr-defined]
            limits=limits,
        )
        await server.ready.remote()
        self.servers, self._server_handle, self._server_address = [server], server, name


class TransformersServerAdapter(BaseRollout):
    """Sends the trainer's weights to the server; verl's half in the training process."""

    def __init__(self, *args: Any, replica_rank: int = -1, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.replica_rank = int(os.environ.get("RANK", "0")) if replica_rank == -1 else replica_rank

    async def resume(self, tags: list[str]) -> None:
        """Nothing was released."""

    async def release(self) -> None:
        """Nothing is held."""

    async def update_weights(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        weights: Any,
        global_steps: int | None = None,
        wire_format: str = "named_tensors",
        peft_config: Any = None,
        **kwargs: Any,
    ) -> None:
        """Sends all weights at once.

        Raises:
            BackendError: Delta updates or separate LoRA weights, which the CPU backend does not know.
        """
        if wire_format != "named_tensors" or peft_config is not None:
            raise BackendError(
                "the CPU backend takes whole weights: checkpoint_engine.backend=naive, and LoRA only merged"
            )
        state = {name: tensor.detach().to("cpu", copy=True) for name, tensor in weights}
        server = ray.get_actor(server_name(self.replica_rank))
        load: Callable[..., Any] = server.load_weights.remote
        await load(state, global_steps)
