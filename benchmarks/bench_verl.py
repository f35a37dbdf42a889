"""512 reward calls that arrive together: verl's own ``naive`` manager with a Python reward against rewardkit's manager.

Decoding is left out on both sides (it is the tokenizer's work): the tokenizer is a table. Both sides see the same real
``DataProto`` rows, on one event loop, in turns; their rewards are compared before anything is timed.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import string
import time
import unicodedata
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("verl")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from omegaconf import OmegaConf
    from tensordict import TensorDict
    from verl import DataProto
    from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager

    from rewardkit.integrations.verl.manager import RewardManager

CALLS, ROUNDS = 512, 9


class Table:
    """A tokenizer that knows every text by one number, so that decoding costs nothing."""

    eos_token_id, pad_token_id, all_special_ids = -1, -1, ()

    def __init__(self):
        self.texts: list[str] = []

    def encode(self, text, **options):
        self.texts.append(text)
        return [len(self.texts) - 1]

    def decode(self, token_ids, **options):
        return self.texts[int(token_ids[0])] if len(token_ids) and int(token_ids[0]) >= 0 else ""

    def batch_decode(self, rows, **options):
        return [self.decode(row) for row in rows]


STRICT = re.compile(
    r"\s*<think>(?:(?!</?think>).)*\S(?:(?!</?think>).)*</think>\s*"
    r"<answer>((?:(?!<).)*)</answer>\s*<confidence>([^<]*)</confidence>\s*",
    re.DOTALL,
)
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
ARTICLES = {"a", "an", "the"}


def normalise(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).lower()
    words = []
    for word in text.split():
        bare = word.strip(string.punctuation) if not NUMBER.fullmatch(word.strip(",;:!?")) else word.strip(",;:!?")
        if bare and bare not in ARTICLES:
            words.append(bare)
    return " ".join(words)


def python_rlcr(data_source, solution_str, ground_truth, extra_info=None, **more):
    """RLCR as one would write it in Python."""
    match = STRICT.fullmatch(solution_str)
    value = float(match[2]) if match and NUMBER.fullmatch(match[2].strip()) else None
    if match is None or not match[1].strip() or value is None or not 0.0 <= value <= 1.0:
        return {"score": -1.1, "acc": 0.0, "confidence": 0.0, "brier": 0.0, "wellformed": 0.0}
    correct = float(normalise(match[1]) == normalise(ground_truth))
    brier = 1.0 - (value - correct) ** 2
    return {"score": correct + brier - 1.0, "acc": correct, "confidence": value, "brier": brier, "wellformed": 1.0}


def rows(table: Table, thought: str) -> list[DataProto]:
    made = []
    for number in range(CALLS):
        answer = f"the {'New York City' if number % 2 else 'Lake Placid'}"
        text = f"<think>{thought}</think><answer>{answer}</answer><confidence>0.{number % 10}</confidence>"
        if number % 16 == 15:
            text = thought
        response = torch.tensor([table.encode(text)])
        prompt = torch.zeros((1, 8), dtype=torch.int64)
        fields = {
            "data_source": "bench",
            "reward_model": {"style": "rule", "ground_truth": "New York City"},
            "extra_info": {"split": "train", "index": number},
            "uid": f"{number // 8}",
            "__num_turns__": 2,
            "tool_extra_fields": {},
            "prompt_len": 8,
            "response_len": 1,
        }
        arrays = {}
        for name, value in fields.items():
            arrays[name] = np.empty(1, dtype=object)
            arrays[name][0] = value
        made.append(
            DataProto(
                batch=TensorDict(
                    {
                        "prompts": prompt,
                        "responses": response,
                        "attention_mask": torch.ones((1, 9), dtype=torch.int64),
                        "input_ids": torch.cat([prompt, response], dim=1),
                    },
                    batch_size=1,
                ),
                non_tensor_batch=arrays,
            )
        )
    return made


async def compare(thought: str) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    table = Table()
    batches = rows(table, thought)
    config = OmegaConf.create({"reward": {"reward_kwargs": {"reward": "rlcr", "params": {"format": "tac"}}}})
    ours = RewardManager(config=config, tokenizer=table, compute_score=None)
    theirs = NaiveRewardManager(config, table, python_rlcr)

    async def once(manager) -> tuple[tuple[float, float], list[dict]]:
        wall, cpu = time.perf_counter(), time.process_time()
        results = await asyncio.gather(*(manager.run_single(batch) for batch in batches))
        return (time.perf_counter() - wall, time.process_time() - cpu), results

    (_, one), (_, other) = await once(ours), await once(theirs)
    for a, b in zip(one, other, strict=True):
        assert a["reward_score"] == pytest.approx(b["reward_score"], abs=1e-12)
        for name in ("acc", "confidence", "brier", "wellformed"):
            assert a["reward_extra_info"][name] == pytest.approx(b["reward_extra_info"][name], abs=1e-12)
    times: tuple[list, list] = ([], [])
    for _ in range(ROUNDS):
        for place, manager in enumerate((ours, theirs)):
            times[place].append((await once(manager))[0])
    return times


@pytest.mark.parametrize("length", [200, 6000], ids=["200_characters", "6000_characters"])
def test_512_calls_at_once(length: int, capsys, benchmark) -> None:
    thought = ("some words about it. " * (length // 21 + 1))[:length]
    ours, theirs = asyncio.run(compare(thought))
    benchmark.pedantic(lambda: None, rounds=1)
    for place, clock in enumerate(("wall", "CPU")):
        mine, naive = (statistics.median(sample[place] for sample in times) for times in (ours, theirs))
        benchmark.extra_info[f"ratio_to_naive_{clock}"] = naive / mine
        with capsys.disabled():
            print(
                f"\n{CALLS} calls, {length} characters each, {clock} time: naive {naive * 1e3:.1f} ms, "
                f"rewardkit {mine * 1e3:.1f} ms, {naive / mine:.1f}x"
            )
