"""``rewardkit evaluate`` on 100,000 rollouts of 2,000 characters, end to end in one process."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewardkit.evaluation import Settings, evaluate

ROLLOUTS, CHARACTERS, PER_PROMPT = 100_000, 2_000, 8


def make(path: Path) -> Path:
    rng = np.random.default_rng(0)
    thoughts = ["".join(rng.choice(list("abcdefghij klmnop"), CHARACTERS - 90)) for _ in range(50)]
    with path.open("w") as lines:
        for i in range(ROLLOUTS):
            q = rng.choice([0.3, 0.6, 0.8, 0.9])
            answer, stated = (
                ("Paris" if rng.random() < q else "Rome"),
                round(float(np.clip(rng.normal(q, 0.1), 0, 1)), 2),
            )
            text = f"<think>{thoughts[i % 50]}</think>\n<answer>{answer}</answer>\n<confidence>{stated}</confidence>"
            row = {"id": i // PER_PROMPT, "completion": text, "answer": "Paris", "method": "ab"[i % 2]}
            lines.write(json.dumps(row) + "\n")
    return path


def seconds(path: Path, draws: int) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = evaluate([path], Settings(by=("method",), draws=draws))
    assert sum(group["n"] for group in result["files"][0]["groups"].values()) == ROLLOUTS
    return time.perf_counter() - wall, time.process_time() - cpu


@pytest.mark.parametrize("draws", [0, 1000])
def test_evaluate(benchmark: Any, tmp_path: Path, draws: int) -> None:
    path = make(tmp_path / "rollouts.jsonl")
    benchmark.pedantic(seconds, args=(path, draws), rounds=1)


def main() -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = make(Path(folder) / "rollouts.jsonl")
        for draws in (0, 1000):
            wall, cpu = seconds(path, draws)
            print(
                f"{ROLLOUTS} rollouts of {CHARACTERS} characters, {draws} bootstrap draws: {wall:.1f} s wall, {cpu:.1f} s CPU"
            )


if __name__ == "__main__":
    main()
