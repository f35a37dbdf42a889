"""The likelihood demo: its task, and (slow) a real verl job whose numbers equal a plain forward of the policy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from examples.likelihood import task  # noqa: E402
from rewardkit.likelihood import splice_reference  # noqa: E402
from rewardkit.likelihood.probes import span_logprobs  # noqa: E402


def reference_scores(policy: Path, rows: list[dict]) -> np.ndarray:
    """The mean probability of the reference's tokens after each row's reasoning, by plain forwards."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(policy)
    model = transformers.AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32).eval()
    scores = []
    for row in rows:
        subject = next(one for one in task.SUBJECTS if one in row["input"])
        chat = [{"role": "user", "content": subject}]
        prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        prompt_ids = tokenizer.encode(prompt, add_special_tokens=False)
        splice = splice_reference(tokenizer.encode(row["output"], add_special_tokens=False), tokenizer, row["gts"])
        if not splice.ok:
            scores.append(0.0)
            continue
        ids = [*prompt_ids, *splice.ids]
        with torch.no_grad():
            logprobs = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        span = range(len(prompt_ids) + splice.span.start, len(prompt_ids) + splice.span.stop)
        scores.append(np.mean([logprobs[i - 1, ids[i]].exp().item() for i in span]))
    return np.array(scores)


def test_thinking_decides_what_is_answered(tmp_path: Path) -> None:
    task.teach(tmp_path, seed=1, steps=120)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    sequences, spans = [], []
    for subject in task.SUBJECTS:
        chat = [{"role": "user", "content": subject}]
        prompt = tokenizer.encode(
            tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False), add_special_tokens=False
        )
        for thought in (task.right(subject), (task.right(subject) + 3) % len(task.THOUGHTS)):
            sampled = tokenizer.encode(task.completion(thought, 0), add_special_tokens=False)
            splice = splice_reference(sampled, tokenizer, task.ANSWERS[task.right(subject)])
            assert splice.ok
            sequences.append([*prompt, *splice.ids])
            spans.append(range(len(prompt) + splice.span.start, len(prompt) + splice.span.stop))
    logprobs, _ = span_logprobs(model, sequences, spans)
    scores = np.array([np.exp(row).mean() for row in logprobs]).reshape(-1, 2)
    assert (scores[:, 0] > scores[:, 1] + 0.2).all()


@pytest.mark.slow
def test_a_job_of_verl_scores_as_a_plain_forward_does(tmp_path: Path) -> None:
    pytest.importorskip("verl", reason="needs verl")
    from examples.demo import job
    from examples.likelihood.__main__ import LOOP

    policy, rows_file, loop = tmp_path / "policy", tmp_path / "rows.parquet", tmp_path / "loop.yaml"
    task.teach(policy, seed=1, steps=120)
    task.write_rows(rows_file, rows=12, seed=1, split="train")
    loop.write_text(LOOP.format(own_answer="true"))
    one = job.Job(
        tmp_path / "job",
        policy,
        rows_file,
        rows_file,
        {"reward": "darl", "params": {"format": "ta"}},
        steps=1,
        prompts=12,
        extra=(
            f"actor_rollout_ref.rollout.agent.agent_loop_config_path={loop}",
            "actor_rollout_ref.rollout.agent.default_agent_loop=rewardkit_reference",
            "actor_rollout_ref.rollout.calculate_log_probs=True",
        ),
    )
    job.run(one)
    lines = (tmp_path / "job" / "validation" / "0.jsonl").read_text().split("\n")  # before the first update
    rows = [json.loads(line) for line in lines if line]
    assert len(rows) == 12
    np.testing.assert_allclose([row["reference_score"] for row in rows], reference_scores(policy, rows), atol=1e-5)
    assert all(0 <= row["own_score"] <= 1 for row in rows)
