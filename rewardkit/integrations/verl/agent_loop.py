"""verl agent loops that score the reference under the current policy, for RLPR, DARL, VeriFree, NOVER and JEPO.

Use: ``actor_rollout_ref.rollout.agent.agent_loop_config_path`` names a YAML file with ::

    - name: rewardkit_reference
      _target_: rewardkit.integrations.verl.agent_loop.ReferenceAgentLoop
      own_answer: true          # DARL

and ``actor_rollout_ref.rollout.agent.default_agent_loop=rewardkit_reference``. The loop leaves small lists in
``extra_fields["rewardkit"]``; rewardkit's reward manager does the arithmetic. ``docs/likelihood.md`` explains every option.
"""

from __future__ import annotations

import json
import logging
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
from verl.workers.rollout.llm_server import LLMServerClient

from rewardkit.errors import DataError, InvalidArgumentError
from rewardkit.integrations.verl.reference_scoring import Options, RowScores, reference_text, score_row
from rewardkit.integrations.verl.rows import ABSENT, lookup

if TYPE_CHECKING:
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase

    _Loop = AgentLoopBase
else:
    _Loop = object

logger = logging.getLogger(__name__)
PLACE = "rewardkit"
"""The key of ``extra_fields`` that the reward manager reads."""


class _Sticky:
    """The policy's client, remembering the id of the last generation: scoring goes to the replica that generated."""

    def __init__(self, client: Any):
        self._client = client
        self.request_id: str | None = None

    async def generate(self, *, request_id: str, **kwargs: Any) -> Any:
        self.request_id = request_id
        return await self._client.generate(request_id=request_id, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class ReferenceScoring(_Loop):
    """Mixin: runs an agent loop, then scores the reference in place of its answer."""

    def __init__(
        self,
        *args: Any,
        server_manager: Any,
        own_answer: bool = False,
        reuse_prefix: bool = False,
        same_policy: bool = False,
        max_reference_tokens: int = 1024,
        score_tags: bool = False,
        tag: str = "answer",
        reference: str = "reward_model.ground_truth",
        data_sources: Any = None,
        **kwargs: Any,
    ):
        """Takes verl's arguments and those of the YAML file.

        Args:
            *args: verl's.
            server_manager: The policy's client.
            own_answer: See :class:`~rewardkit.integrations.verl.reference_scoring.Options`.
            reuse_prefix: See there.
            same_policy: See there.
            max_reference_tokens: See there.
            score_tags: See there.
            tag: See there.
            reference: Dotted path of the reference in a row.
            data_sources: Score only rows of these sources; ``None`` for all. verl does not tell a loop whether it validates,
                so a validation set that is judged by a rule is left out by its source.
            **kwargs: verl's.
        """
        sticky: Any = _Sticky(server_manager)
        super().__init__(*args, server_manager=sticky, **kwargs)
        self._policy = server_manager
        self._reference_path = reference
        self._data_sources = None if data_sources is None else frozenset(data_sources)
        limit = self.rollout_config.get("max_model_len") or _context_length(
            str(self.config.actor_rollout_ref.model.path)
        )
        self._options = Options(
            own_answer=own_answer,
            reuse_prefix=reuse_prefix,
            same_policy=same_policy,
            max_reference_tokens=max_reference_tokens,
            score_tags=score_tags,
            tag=tag,
            max_model_len=limit,
        )

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        """One rollout with its scores in ``extra_fields["rewardkit"]``; the reward itself is left to the manager."""
        output = await super().run(dict(sampling_params), **kwargs)  # type: ignore[safe-super]
        final = output[-1] if isinstance(output, list) else output
        scores = await self._score(final, sampling_params, kwargs)
        final.extra_fields[PLACE] = scores.as_dict()
        return output

    async def _score(self, output: Any, sampling_params: dict[str, Any], row: dict[str, Any]) -> RowScores:
        if self._data_sources is not None and str(row.get("data_source", "")) not in self._data_sources:
            return RowScores(reference_status="not_asked")
        value = lookup(row, self._reference_path)
        if value is ABSENT:
            raise DataError("a reference", "no such column", column=self._reference_path)
        return await score_row(
            self._ask,
            prompt_ids=output.prompt_ids,
            response_ids=output.response_ids,
            response_logprobs=output.response_logprobs if _own_distribution(sampling_params) else None,
            reference=reference_text(value, place=self._reference_path),
            tokenizer=self.tokenizer,
            options=self._options,
            rollout_version=output.extra_fields.get("global_steps"),
        )

    async def _ask(self, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        # The client of the asynchronous trainers rebuilds each output and drops prompt_logprobs; its parent does not.
        if not isinstance(self._policy, LLMServerClient):
            generate = self._policy.generate
            return await generate(request_id=self._request_id, prompt_ids=prompt_ids, sampling_params=sampling_params)
        return await LLMServerClient.generate(
            self._policy, request_id=self._request_id, prompt_ids=prompt_ids, sampling_params=sampling_params
        )

    @property
    def _request_id(self) -> str:
        request_id = self.server_manager.request_id  # type: ignore[attr-defined]
        if request_id is None:
            raise InvalidArgumentError(
                "agent loop", expected="one that generates before it ends", got=type(self).__name__
            )
        return request_id


class ReferenceAgentLoop(ReferenceScoring, SingleTurnAgentLoop):
    """verl's single-turn loop with reference scoring."""


class ReferenceToolAgentLoop(ReferenceScoring, ToolAgentLoop):
    """verl's tool loop with reference scoring of its last answer."""


def _own_distribution(sampling_params: dict[str, Any]) -> bool:
    """Whether the sampled tokens' log-probabilities are the model's own."""
    neutral = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "min_p": 0.0}
    return all(sampling_params.get(name, value) in (value, None) for name, value in neutral.items())


@cache
def _context_length(model_path: str) -> int | None:
    file = Path(model_path) / "config.json"
    if not file.is_file():
        return None
    length = json.loads(file.read_text()).get("max_position_embeddings")
    return int(length) if length else None
