"""A world where the right confidence is known, and a tiny policy that speaks its language.

A question names a subject and a kind: ``hard s07``. Each subject has one best answer; the kind says how often that answer
turns out right. So the best policy always gives the subject's answer, and states the kind's probability. Which answer turns
out right is drawn anew for every row, so there is nothing to memorise; the pairs of kind and subject of the held-out
questions never occur in training.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KINDS = {"obscure": 0.3, "hard": 0.6, "fair": 0.8, "easy": 1.0}
"""How often the best answer to a question of each kind turns out right."""

SUBJECTS = [f"s{number:02d}" for number in range(24)]
ANSWERS = [f"a{number}" for number in range(8)]
CONFIDENCES = [f"{tenth / 10:.1f}" for tenth in range(11)]
TAGS = [f"<{slash}{name}>" for name in ("think", "answer", "confidence") for slash in ("", "/")]
PAD, START, END = "<|pad|>", "<|im_start|>", "<|im_end|>"
THOUGHT = "hmm"

# What the policy is taught before RL: the format, a fair guess at the answer, and far too much confidence. Like a pretrained
# model it has a faint sense of what is difficult, and states some of every confidence.
KNOWS_BEST_ANSWER = 0.7
TAUGHT_CONFIDENCE = {"obscure": 0.8, "hard": 0.9, "fair": 0.95, "easy": 1.0}
TAUGHT_SPREAD = 0.25

MAX_PROMPT, MAX_RESPONSE = 16, 16


@dataclass(frozen=True)
class Question:
    """One row: what is asked, and what turned out right this time."""

    kind: str
    subject: str
    right: str

    @property
    def text(self) -> str:
        """What the policy reads."""
        return f"{self.kind} {self.subject}"


def best_answer(subject: str) -> str:
    """The answer that is right most often."""
    return ANSWERS[(int(subject[1:]) * 5 + 3) % len(ANSWERS)]


def held_out(kind: str, subject: str) -> bool:
    """Whether a pair of kind and subject is kept from training: one subject in four, another one for each kind."""
    return (int(subject[1:]) + list(KINDS).index(kind)) % 4 == 0


def questions(rows: int, *, train: bool, seed: int) -> list[Question]:
    """Draws rows; every pair of kind and subject equally often, as far as ``rows`` allows."""
    rng = random.Random(f"{seed} {train}")
    pairs = [(kind, subject) for kind in KINDS for subject in SUBJECTS if held_out(kind, subject) != train]
    return [Question(*pair, _draw_right(*pair, rng)) for pair in _cycle(pairs, rows, rng)]


def _cycle(pairs: list[tuple[str, str]], rows: int, rng: random.Random) -> Iterator[tuple[str, str]]:
    for start in range(0, rows, len(pairs)):
        rng.shuffle(pairs)
        yield from pairs[: rows - start]


def _draw_right(kind: str, subject: str, rng: random.Random) -> str:
    best = best_answer(subject)
    if rng.random() < KINDS[kind]:
        return best
    return rng.choice([answer for answer in ANSWERS if answer != best])


def write_verl_rows(path: Path, rows: list[Question], *, split: str) -> None:
    """Writes a Parquet file as verl reads it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = [
        {
            "data_source": f"demo/{row.kind}",
            "prompt": [{"role": "user", "content": row.text}],
            "ability": "demo",
            "reward_model": {"style": "rule", "ground_truth": row.right},
            "extra_info": {"split": split, "index": index},
        }
        for index, row in enumerate(rows)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(table), path)


def make_tokenizer():
    """Qwen2's kind of tokenizer, on bytes, in which every tag, answer and confidence is one token."""
    from tokenizers import AddedToken, pre_tokenizers
    from transformers import Qwen2Tokenizer

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Qwen2Tokenizer(
        vocab={letter: place for place, letter in enumerate(letters)},
        merges=[],
        unk_token=None,
        eos_token=END,
        pad_token=PAD,
    )
    tokenizer.add_special_tokens({"additional_special_tokens": [START]})
    words = ["user", "assistant", *TAGS, THOUGHT, *CONFIDENCES, *ANSWERS, *KINDS, *SUBJECTS]
    tokenizer.add_tokens([AddedToken(word, normalized=False, special=False) for word in words])
    tokenizer.chat_template = (
        "{% for message in messages %}" + START + "{{ message['role'] }}{{ message['content'] }}" + END + "{% endfor %}"
        "{% if add_generation_prompt %}" + START + "assistant{% endif %}"
    )
    return tokenizer


def make_model(tokenizer, *, seed: int):
    """A Qwen2 of about 100k parameters."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    return Qwen2ForCausalLM(config)


def lesson(question: Question, rng: random.Random) -> str:
    """One completion to imitate: well-formed, right about the best answer most of the time, and overconfident."""
    answer = best_answer(question.subject) if rng.random() < KNOWS_BEST_ANSWER else rng.choice(ANSWERS)
    stated = min(1.0, max(0.0, rng.gauss(TAUGHT_CONFIDENCE[question.kind], TAUGHT_SPREAD)))
    confidence = CONFIDENCES[round(10 * stated)]
    return f"<think>{THOUGHT}</think><answer>{answer}</answer><confidence>{confidence}</confidence>{END}"


def teach(folder: Path, *, seed: int, steps: int = 300, batch: int = 64) -> float:
    """Makes a policy, teaches it the format by supervised steps, and saves it as transformers reads it.

    Returns:
        The mean cross-entropy of the last steps, in nats per token.
    """
    tokenizer = make_tokenizer()
    rng = random.Random(seed)
    # Confidence and format are taught on the questions of both splits, the right answers are not: a lesson never sees them.
    pool = questions(2000, train=True, seed=seed) + questions(1000, train=False, seed=seed)

    def lessons() -> list[tuple[str, str]]:
        return [(question.text, lesson(question, rng)) for question in rng.sample(pool, batch)]

    return supervise(folder, tokenizer, make_model(tokenizer, seed=seed), lessons, steps=steps)


def supervise(
    folder: Path, tokenizer: Any, model: Any, lessons: Callable[[], Sequence[tuple[str, str]]], *, steps: int
) -> float:
    """Teaches a model what to write, by supervised steps on fresh lessons, and saves it and its tokenizer.

    Args:
        folder: Where they go.
        tokenizer: With a chat template.
        model: Of transformers.
        lessons: Gives a step's questions, each with what is to be written after it.
        steps: How many.

    Returns:
        The mean cross-entropy of the last steps, in nats per token.
    """
    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.set_num_threads(1)  # so small a model gains nothing from a second one
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    losses = []
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = 3e-3 * min(1.0, (steps - step) / (0.3 * steps))
        inputs, labels = [], []
        for question, text in lessons():
            chat = [{"role": "user", "content": question}]
            prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
            prompt_ids = tokenizer.encode(prompt, add_special_tokens=False)
            text_ids = tokenizer.encode(text, add_special_tokens=False)
            inputs.append(prompt_ids + text_ids)
            labels.append([-100] * len(prompt_ids) + text_ids)
        loss = model(input_ids=torch.tensor(inputs), labels=torch.tensor(labels)).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return sum(losses[-20:]) / len(losses[-20:])
