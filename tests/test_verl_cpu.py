"""The CPU backend's engine, without verl and Ray: same answers as the model itself, one prompt at a time."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from rewardkit.errors import InvalidArgumentError  # noqa: E402
from rewardkit.integrations.verl.cpu_engine import (  # noqa: E402
    Request,
    SamplingParams,
    TransformersEngine,
    sample,
)
from rewardkit.integrations.verl.launch import cpu_environment, cpu_overrides, hydra  # noqa: E402
from tests.tiny_qwen import tiny_qwen  # noqa: E402

EOS, PAD, VOCABULARY = 1, 0, 37
PROMPTS = [[5, 6, 7], [8], [9, 10, 11, 12, 13, 14], [5, 6, 7]]


@pytest.fixture(scope="module")
def model():
    ends = {"eos_token_id": EOS, "pad_token_id": PAD, "bos_token_id": None}
    return tiny_qwen(VOCABULARY, positions=64, spread=0.4, **ends)


def engine_of(model, **options) -> TransformersEngine:
    return TransformersEngine(model, eos_ids=[EOS], pad_id=PAD, **{"seed": 3, **options})


def logprobs_of(model, token_ids) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([token_ids])).logits[0].log_softmax(-1)


def test_prompt_logprobs_are_those_of_an_unbatched_forward(model) -> None:
    params = SamplingParams(max_tokens=1, prompt_logprobs=0)
    for prompt, result in zip(PROMPTS, engine_of(model).run([Request(p, params) for p in PROMPTS]), strict=True):
        expected = logprobs_of(model, prompt)
        assert len(result.prompt_logprobs) == len(prompt)
        assert result.prompt_logprobs[-1] == [0.0]
        assert result.prompt_ids == [[token] for token in prompt[1:]] + [[0]]
        for place, token in enumerate(prompt[1:]):
            assert result.prompt_logprobs[place][0] == pytest.approx(expected[place, token].item(), abs=1e-5)
        assert len(result.token_ids) == 1  # a server of verl's generates at least one token


def test_prompt_logprobs_ignore_temperature_and_give_ranks(model) -> None:
    plain, hot = (
        engine_of(model).run([Request(PROMPTS[2], SamplingParams(max_tokens=1, prompt_logprobs=0, temperature=t))])[0]
        for t in (1.0, 7.0)
    )
    assert plain.prompt_logprobs == hot.prompt_logprobs
    ranked = engine_of(model).run([Request(PROMPTS[2], SamplingParams(max_tokens=1, prompt_logprobs=3))])[0]
    best = logprobs_of(model, PROMPTS[2])[0].topk(3)
    assert ranked.prompt_ids[0] == best.indices.tolist()
    assert ranked.prompt_logprobs[0] == pytest.approx(best.values.tolist(), abs=1e-5)
    assert ranked.prompt_logprobs[-1] == [0.0] * 3


def test_greedy_is_what_transformers_generates(model) -> None:
    params = SamplingParams(max_tokens=12, temperature=0.0)
    for prompt, result in zip(PROMPTS, engine_of(model).run([Request(p, params) for p in PROMPTS]), strict=True):
        expected = model.generate(
            torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=EOS, pad_token_id=PAD
        )[0, len(prompt) :].tolist()
        assert result.token_ids == expected


def test_sampling_does_not_depend_on_the_batch(model) -> None:
    params = SamplingParams(max_tokens=10)
    together = engine_of(model).run([Request(p, params) for p in PROMPTS])
    alone = engine_of(model)
    assert [alone.run([Request(p, params)])[0].token_ids for p in PROMPTS] == [r.token_ids for r in together]
    assert together[0].token_ids != together[3].token_ids  # the same prompt again draws anew
    other_seed = engine_of(model, seed=4).run([Request(p, params) for p in PROMPTS])
    assert [r.token_ids for r in other_seed] != [r.token_ids for r in together]


def test_scoring_a_prompt_does_not_shift_the_draws(model) -> None:
    params = SamplingParams(max_tokens=10)
    engine = engine_of(model)
    engine.run([Request(PROMPTS[0], SamplingParams(max_tokens=1, prompt_logprobs=0))])
    assert (
        engine.run([Request(PROMPTS[0], params)])[0].token_ids
        == engine_of(model).run([Request(PROMPTS[0], params)])[0].token_ids
    )


def test_logprobs_of_the_tokens_drawn(model) -> None:
    for processed, temperature in ((True, 0.5), (False, 0.5), (True, 1.0)):
        params = SamplingParams(max_tokens=6, temperature=temperature, logprobs=True)
        result = engine_of(model, processed_logprobs=processed).run([Request(PROMPTS[2], params)])[0]
        for place, token in enumerate(result.token_ids):
            raw = logprobs_of(model, PROMPTS[2] + result.token_ids[:place])[-1]
            expected = (raw / temperature).log_softmax(-1) if processed else raw
            assert result.logprobs[place] == pytest.approx(expected[token].item(), abs=1e-4)


def test_mixed_parameters_in_one_batch(model) -> None:
    requests = [
        Request(PROMPTS[0], SamplingParams(max_tokens=3, temperature=0.0)),
        Request(PROMPTS[1], SamplingParams(max_tokens=9, ignore_eos=True)),
        Request(PROMPTS[2], SamplingParams(max_tokens=1, prompt_logprobs=0)),
        Request(PROMPTS[3], SamplingParams(max_tokens=5, seed=1)),
    ]
    results = engine_of(model).run(requests)
    assert len(results[0].token_ids) <= 3
    assert len(results[1].token_ids) == 9
    assert results[2].prompt_logprobs is not None
    assert results[0].prompt_logprobs is None
    again = engine_of(model).run(requests[3:])
    assert results[3].token_ids == again[0].token_ids


def test_stops_at_end_and_stop_tokens(model) -> None:
    free = engine_of(model).run([Request(PROMPTS[0], SamplingParams(max_tokens=20, ignore_eos=True))])[0]
    stop = free.token_ids[4]
    stopped = engine_of(model).run(
        [Request(PROMPTS[0], SamplingParams(max_tokens=20, ignore_eos=True, stop_token_ids=(stop,)))]
    )[0]
    assert stopped.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]


def test_sample_follows_the_distribution() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]]).repeat(20_000, 1)
    draws = ((np.arange(20_000) + 0.5) / 20_000).tolist()
    params = [SamplingParams(max_tokens=1)] * 20_000
    tokens, logprobs = sample(logits, params, draws)
    expected = logits[0].softmax(-1)
    counts = torch.bincount(tokens, minlength=4) / 20_000
    assert torch.allclose(counts, expected, atol=1e-4)
    assert torch.allclose(logprobs, expected.log()[tokens], atol=1e-6)


@pytest.mark.parametrize(
    ("options", "kept"),
    [({"top_k": 2}, {1, 2}), ({"top_p": 0.6}, {2}), ({"top_p": 0.7}, {1, 2}), ({"top_p": 1e-9}, {2})],
)
def test_top_k_and_top_p(options, kept) -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]]).repeat(500, 1)  # softmax .087 .237 .644 .032
    params = [SamplingParams(max_tokens=1, **options)] * 500
    tokens, logprobs = sample(logits, params, ((np.arange(500) + 0.5) / 500).tolist())
    assert set(tokens.tolist()) == kept
    mass = sum(logits[0].softmax(-1)[token].item() for token in kept)
    for token, logprob in zip(tokens.tolist(), logprobs.tolist(), strict=True):
        assert logprob == pytest.approx(math.log(logits[0].softmax(-1)[token].item() / mass), abs=1e-5)


def test_draw_at_the_edges_is_a_possible_token() -> None:
    logits = torch.full((2, 5), -torch.inf)
    logits[:, 2] = 0.0
    tokens, logprobs = sample(logits, [SamplingParams(max_tokens=1)] * 2, [0.0, np.nextafter(1.0, 0.0)])
    assert tokens.tolist() == [2, 2]
    assert logprobs.tolist() == [0.0, 0.0]


def test_reads_the_parameters_that_verl_sends() -> None:
    verl = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}
    params = SamplingParams.of(verl, default_max_tokens=9, limit=5)
    assert (params.max_tokens, params.logprobs) == (5, True)
    scoring = {"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0, "detokenize": False}
    params = SamplingParams.of(scoring, default_max_tokens=9, limit=5)
    assert (params.max_tokens, params.prompt_logprobs) == (1, 0)


@pytest.mark.parametrize(
    "bad", [{"repetition_penalty": 1.2}, {"guided_json": "{}"}, {"temperature": -1.0}, {"top_p": 0.0}, {"n": 2}]
)
def test_refuses_what_it_cannot_do(bad) -> None:
    with pytest.raises(InvalidArgumentError, match="sampling_params"):
        SamplingParams.of(bad, default_max_tokens=9, limit=5)


def test_new_weights_change_the_answers(model) -> None:
    engine = engine_of(transformers.Qwen2ForCausalLM(model.config).eval())
    params = SamplingParams(max_tokens=1, prompt_logprobs=0)
    before = engine.run([Request(PROMPTS[2], params)])[0].prompt_logprobs
    engine.load_weights({name: tensor.to(torch.bfloat16) for name, tensor in model.state_dict().items()})
    after = engine.run([Request(PROMPTS[2], params)])[0].prompt_logprobs
    assert before != after
    assert engine.version == 1
    with pytest.raises(InvalidArgumentError, match="nonsense"):
        engine.load_weights({"nonsense": torch.zeros(1)})


def test_launch_needs_neither_verl_nor_ray() -> None:
    code = "import sys, rewardkit.integrations.verl.launch; assert not {'verl', 'ray', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert cpu_environment()["VERL_PLATFORM"] == "cpu"
    assert "trainer.device=cpu" in cpu_overrides()


AWKWARD = [
    "a b",
    "it's",
    'say "x"',
    "back\\slash",
    "end\\",
    "a,b",
    "{x}",
    "[1]",
    "k=v",
    "x: y",
    "é",
    "${x}",
    "\\'",
    "",
    "null",
]


@pytest.mark.parametrize("text", AWKWARD)
def test_hydra_reads_back_what_is_written(text) -> None:
    hydra_parser = pytest.importorskip("hydra.core.override_parser.overrides_parser").OverridesParser.create()
    omegaconf = pytest.importorskip("omegaconf")
    value = {"text": text, "list": [text, 1, 2.5, True, None], "inner": {"a-b": text}}
    override = hydra_parser.parse_override(f"+place={hydra(value)}")
    config = omegaconf.OmegaConf.create({"place": override.value()})
    assert omegaconf.OmegaConf.to_container(config, resolve=True)["place"] == value


def test_hydra_refuses_what_it_cannot_write() -> None:
    with pytest.raises(InvalidArgumentError, match="key"):
        hydra({"a b": 1})
    with pytest.raises(InvalidArgumentError, match="value"):
        hydra({1, 2})
