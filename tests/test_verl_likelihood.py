"""Scoring references through a rollout server: alignment, the cached-prefix guard, failures; and verl's own classes."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from rewardkit import rewards  # noqa: E402
from rewardkit.errors import InvalidArgumentError  # noqa: E402
from rewardkit.integrations.verl.cpu_engine import Request, SamplingParams, TransformersEngine  # noqa: E402
from rewardkit.integrations.verl.reference_scoring import (  # noqa: E402
    Options,
    RowScores,
    read_tail,
    reference_text,
    score_row,
)
from rewardkit.integrations.verl.trainer_side import TrainerSideScorer  # noqa: E402
from rewardkit.likelihood import answer_span, splice_reference  # noqa: E402
from tests.test_splice import encode, response, small  # noqa: E402
from tests.tiny_qwen import tiny_qwen  # noqa: E402

BLOCK = 16


@pytest.fixture(scope="module")
def model():
    return tiny_qwen(len(small()))


@dataclass
class Output:
    extra_fields: dict[str, Any]
    stop_reason: str = "completed"
    token_ids: list[int] = field(default_factory=list)


class Server:
    """A server that keeps verl's contract on a real model, with vLLM's ways to treat a cached prefix.

    ``cached``: tokens of each prompt that lie in its cache. Reading it, the one runner returns only the uncached tail, the
    other a full list whose cached entries are whatever lay in memory.
    """

    def __init__(self, model, *, cached: int = 0, runner: str = "tail", steps: int = 7):
        self.engine = TransformersEngine(model, eos_ids=[0], pad_id=0)
        self.cached, self.runner, self.steps = cached, runner, steps
        self.requests: list[dict[str, Any]] = []
        self.abort = 0

    async def __call__(self, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Output:
        self.requests.append(dict(sampling_params))
        if self.abort:
            self.abort -= 1
            return Output({}, stop_reason="aborted")
        params = SamplingParams.of(sampling_params, default_max_tokens=1, limit=10)
        rows = self.engine.run([Request(prompt_ids, params)])[0].prompt_logprobs
        read = not sampling_params.get("skip_reading_prefix_cache", True)
        cached = min(self.cached, len(prompt_ids) - 1) if read else 0
        if cached and self.runner == "tail":
            rows = rows[cached:]
        elif cached:
            rows = [[-123.0]] * cached + rows[cached:]
        sampling_params.clear()  # servers write into what they get
        return Output({"prompt_logprobs": rows, "num_cached_tokens": cached, "global_steps": self.steps})


def plain_forward(model, ids: list[int], span: range) -> list[float]:
    with torch.no_grad():
        logprobs = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return [logprobs[i - 1, ids[i]].item() for i in span]


def run(server: Server, **kwargs: Any) -> RowScores:
    row: dict[str, Any] = {
        "prompt_ids": list(range(30, 50)),
        "response_ids": encode(small(), response("\n")),
        "response_logprobs": None,
        "reference": "Paris",
        "tokenizer": small(),
        "options": Options(),
    }
    return asyncio.run(score_row(server, **{**row, **kwargs}))


def test_numbers_equal_a_plain_forward(model) -> None:
    prompt, ids = list(range(30, 50)), encode(small(), response("\n"))
    scores = run(Server(model), options=Options(own_answer=True))
    splice, own = splice_reference(ids, small(), "Paris"), answer_span(ids, small())
    span = range(20 + splice.span.start, 20 + splice.span.stop)
    np.testing.assert_allclose(scores.reference_logprobs, plain_forward(model, prompt + splice.ids, span), atol=1e-5)
    own_span = range(20 + own.span.start, 20 + own.span.stop)
    np.testing.assert_allclose(scores.own_logprobs, plain_forward(model, prompt + ids, own_span), atol=1e-5)
    assert (scores.reference_status, scores.own_status, scores.policy_version, scores.calls) == ("ok", "ok", 7, 2)
    json.dumps(scores.as_dict(), allow_nan=False)


@pytest.mark.parametrize("runner", ["tail", "full"])
@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 2])
def test_a_cache_that_reaches_the_answer_is_asked_again(model, runner: str, offset: int) -> None:
    """Cached prefixes of a block less, a block, a block more: the numbers never change, only how often is asked."""
    ids = encode(small(), response("\n"))
    splice = splice_reference(ids, small(), "Paris")
    first = 20 + splice.span.start
    expected = run(Server(model)).reference_logprobs
    for cached in (BLOCK * 1 + offset, first - 1 + offset):
        server = Server(model, cached=cached, runner=runner)
        scores = run(server, options=Options(reuse_prefix=True))
        np.testing.assert_allclose(scores.reference_logprobs, expected, atol=1e-6)
        assert scores.calls == (2 if cached > first - 1 else 1)
        assert server.requests[-1].get("skip_reading_prefix_cache", True) is (cached > first - 1)


def test_the_cache_is_off_unless_asked_for_and_never_read_for_the_own_answer(model) -> None:
    server = Server(model, cached=1000, runner="full")
    run(server, options=Options(own_answer=True))
    assert all("skip_reading_prefix_cache" not in request for request in server.requests)
    server = Server(model, cached=1000, runner="full")
    scores = run(server, options=Options(own_answer=True, reuse_prefix=True))
    assert "skip_reading_prefix_cache" not in server.requests[-1]
    assert min(scores.own_logprobs) > -100


def test_every_call_gets_its_own_parameters(model) -> None:
    server = Server(model)
    run(server, options=Options(own_answer=True))
    assert server.requests[0] == server.requests[1]
    assert server.requests[0]["temperature"] == 1.0
    assert server.requests[0]["detokenize"] is False


def test_own_logprobs_are_free_where_the_sampler_gave_them(model) -> None:
    ids = encode(small(), response("\n"))
    given = [-0.01 * i for i in range(len(ids))]
    server = Server(model)
    scores = run(server, options=Options(own_answer=True), response_logprobs=given)
    assert len(server.requests) == 1
    assert scores.own_logprobs == [given[i] for i in answer_span(ids, small()).span]


def test_aborted_calls_are_repeated_and_give_up(model) -> None:
    server = Server(model)
    server.abort = 2
    assert run(server).reference_status == "ok"
    server.abort = 99
    assert run(server).reference_status == "no_prompt_logprobs"


def test_what_a_server_may_do_wrong_is_a_status(model) -> None:
    class Broken(Server):
        def __init__(self, change):
            super().__init__(model)
            self.change = change

        async def __call__(self, prompt_ids, sampling_params):
            output = await super().__call__(prompt_ids, sampling_params)
            self.change(output.extra_fields)
            return output

    assert run(Broken(lambda extra: extra.pop("prompt_logprobs"))).reference_status == "no_prompt_logprobs"
    short = Broken(lambda extra: extra.update(prompt_logprobs=extra["prompt_logprobs"][-1:]))
    assert run(short).reference_status == "no_prompt_logprobs"
    nan = Broken(lambda extra: extra.update(prompt_logprobs=[[math.nan]] * len(extra["prompt_logprobs"])))
    assert run(nan).reference_status == "nan_logprob"
    infinite = Broken(lambda extra: extra.update(prompt_logprobs=[[-math.inf]] * len(extra["prompt_logprobs"])))
    assert run(infinite).reference_status == "ok"
    json.dumps(run(infinite).as_dict(), allow_nan=False)


def test_statuses_of_rows(model) -> None:
    assert run(Server(model), response_ids=[]).reference_status == "empty_response"
    assert run(Server(model), response_ids=encode(small(), "Paris")).reference_status == "no_answer"
    assert run(Server(model), options=Options(max_model_len=25)).reference_status == "no_room"
    stale = run(Server(model), options=Options(same_policy=True), rollout_version=6)
    assert (stale.reference_status, stale.reference_logprobs) == ("stale_policy", [])
    both = run(Server(model), rollout_version=6)
    assert (both.rollout_version, both.policy_version, both.reference_status) == (6, 7, "ok")
    assert set(run(Server(model), response_ids=[]).as_dict()) == set(both.as_dict())


def test_read_tail_against_the_layout_of_verls_extractor() -> None:
    """verl drops the first None and appends a dummy: entry i speaks of token i + 1."""
    length = 40
    full = [[-float(token)] for token in range(1, length)] + [[0.0]]
    span = range(33, 36)
    for cached in (0, BLOCK - 1, BLOCK, BLOCK + 1, 32):
        assert read_tail(full[cached:], length=length, span=span) == [-33.0, -34.0, -35.0]
    assert read_tail(full[33:], length=length, span=span) is None
    assert read_tail(full, length=length, span=range(39, 40)) == [-39.0]
    assert read_tail(full, length=length, span=range(2)) is None
    assert read_tail(full, length=length, span=range(5, 5)) is None
    assert read_tail(None, length=length, span=span) is None
    assert read_tail([*full, [0.0]], length=length, span=span) is None


def test_reference_text() -> None:
    assert reference_text("Paris", place="x") == "Paris"
    assert reference_text(["Paris", "paris"], place="x") == "Paris"
    assert reference_text(np.array([["Paris"], ["Lyon"]], dtype=object), place="x") == "Paris"
    for bad in ([], None, 3, [[]]):
        with pytest.raises(InvalidArgumentError, match="x"):
            reference_text(bad, place="x")


def test_what_the_loop_leaves_is_what_the_rewards_take(model) -> None:
    rows = [
        run(Server(model), options=Options(own_answer=True)),
        run(Server(model), options=Options(own_answer=True), response_ids=encode(small(), "no tags")),
    ]
    columns = {name: [row.as_dict()[name] for row in rows] for name in rows[0].as_dict()}
    for name in ("rlpr", "darl", "verifree", "nover", "jepo"):
        reward = rewards.get(name)
        assert set(reward.requires) <= set(columns)
        batch = reward(completions=["x", "y"], group_ids=["q", "q"], **{key: columns[key] for key in reward.requires})
        assert batch.status == ["ok", "unparsed"]


def test_the_trainer_side_gives_the_same_numbers(model) -> None:
    def compute_log_prob(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        with torch.no_grad():
            logits = model(
                batch["input_ids"], attention_mask=batch["attention_mask"], position_ids=batch["position_ids"]
            ).logits
        width = batch["responses"].shape[1]
        logprobs = logits[:, -width - 1 : -1].log_softmax(-1)
        return logprobs.gather(-1, batch["responses"][..., None])[..., 0]

    prompts = [list(range(30, 50)), [40, 41], [42]]
    responses = [encode(small(), response("\n")), encode(small(), response(" ", "x")), encode(small(), "no tags")]
    old = [[-0.5] * len(one) for one in responses]
    for divisor in (1, 4):
        scorer = TrainerSideScorer(
            compute_log_prob, small(), pad_id=0, divisor=divisor, options=Options(own_answer=True)
        )
        rows = scorer.score(
            prompt_ids=prompts, response_ids=responses, references=["Paris"] * 3, old_log_probs=old, policy_version=3
        )
        assert [row.reference_status for row in rows] == ["ok", "ok", "no_answer"]
        for row, prompt, ids in zip(rows[:2], prompts, responses, strict=False):
            by_server = run(Server(model), prompt_ids=prompt, response_ids=ids)
            np.testing.assert_allclose(row.reference_logprobs, by_server.reference_logprobs, atol=1e-5)
        assert set(rows[0].own_logprobs) == {-0.5}
        assert rows[0].policy_version == 3
