"""A task where reasoning decides the answer, and a tiny policy that does not reason well yet.

A question names a subject; each subject has one right answer of two words. The policy thinks one word and then answers what
the word stands for. Before RL it thinks the right word three times in ten. No verifier reads its answers: the reward is how
likely it finds the reference after what it thought, so what it has to learn is to think the right word.
"""

from __future__ import annotations

import random
from pathlib import Path

from examples.demo import world

COLOURS, SHAPES = ("red", "blue", "green", "black"), ("cube", "cone")
ANSWERS = [f"{colour} {shape}" for colour in COLOURS for shape in SHAPES]
THOUGHTS = [f"t{number}" for number in range(len(ANSWERS))]
SUBJECTS = world.SUBJECTS[:12]
KNOWS = 0.3
"""How often the taught policy thinks the right word."""
FOLLOWS = 0.98
"""How often the taught policy's answer is what its thought stands for.

The reward does not depend on the answer that was sampled, so the gradient through the answer's tokens is noise, the more of it
the less sure they are. At 0.92, with twice the learning rate and half the rollouts, it broke the link from thought to answer
faster than the right thoughts were learnt: reward and probability fell.
"""


def right(subject: str) -> int:
    """Which answer is right for a subject."""
    return (int(subject[1:]) * 3 + 1) % len(ANSWERS)


def completion(thought: int, answer: int) -> str:
    """What the policy writes."""
    return f"<think>{THOUGHTS[thought]}</think><answer> {ANSWERS[answer]} </answer>{world.END}"


def _lesson(subject: str, rng: random.Random) -> str:
    thought = right(subject) if rng.random() < KNOWS else rng.randrange(len(THOUGHTS))
    answer = thought if rng.random() < FOLLOWS else rng.randrange(len(ANSWERS))
    return completion(thought, answer)


def write_rows(path: Path, *, rows: int, seed: int, split: str, baselines: dict[str, float] | None = None) -> None:
    """Writes verl's rows; ``extra_info.baseline`` is the reference's likelihood without reasoning."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = random.Random(f"{seed} {split}")
    subjects = [SUBJECTS[place % len(SUBJECTS)] for place in range(rows)]
    rng.shuffle(subjects)
    table = [
        {
            "data_source": "demo/likelihood",
            "prompt": [{"role": "user", "content": subject}],
            "ability": "demo",
            "reward_model": {"style": "rule", "ground_truth": ANSWERS[right(subject)]},
            "extra_info": {"split": split, "index": index, "baseline": (baselines or {}).get(subject, 0.0)},
        }
        for index, subject in enumerate(subjects)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(table), path)


def teach(folder: Path, *, seed: int, steps: int, batch: int = 64) -> float:
    """Makes the policy and teaches it the format and to answer what it thinks; returns the last steps' cross-entropy."""
    from tokenizers import AddedToken

    tokenizer = world.make_tokenizer()
    words = [*COLOURS, *SHAPES, *THOUGHTS]
    tokenizer.add_tokens([AddedToken(word, normalized=False, special=False) for word in words])
    rng = random.Random(seed)

    def lessons() -> list[tuple[str, str]]:
        return [(subject, _lesson(subject, rng)) for subject in rng.choices(SUBJECTS, k=batch)]

    return world.supervise(folder, tokenizer, world.make_model(tokenizer, seed=seed), lessons, steps=steps)
