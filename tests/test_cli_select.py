"""``rewardkit select``: one row per prompt."""

from __future__ import annotations

import json
from pathlib import Path

from rewardkit.data.files import RowFile, row_writer


def write(path: Path, samples: list[tuple[int, str, object]]) -> Path:
    texts = [
        f"<think>t</think><answer>{a}</answer><confidence>{q}</confidence>" if a else "none" for _, a, q in samples
    ]
    with row_writer(path) as writer:
        writer.write({"id": [p for p, _, _ in samples], "completion": texts, "answer": ["Paris"] * len(samples)})
    return path


SAMPLES = [
    (1, "Rome", 0.2), (1, "the Paris", 0.9), (1, "Rome", 0.3),
    (2, "Rome", 0.9), (2, "Paris", 0.5), (2, "paris!", 0.6),
    (3, "", 0), (3, "Rome", 0.1), (3, "Paris", 0.8),
    (4, "", 0), (4, "", 0),
]  # fmt: skip


def test_each_method_chooses_what_it_should(tmp_path: Path, cli) -> None:
    path = write(tmp_path / "x.jsonl", SAMPLES)
    facts = json.loads(cli("select", path, "--json").out)
    assert facts["prompts"] == 4
    assert facts["accuracy"]["max_confidence"] == 0.5
    assert facts["accuracy"]["majority"] == 0.25
    assert facts["accuracy"]["weighted"] == 0.75
    assert facts["accuracy"]["any right"] == 0.75
    target = tmp_path / "chosen.parquet"
    assert cli("select", path, "-m", "weighted", "-o", target).code == 0
    chosen = RowFile.open(target).read().columns
    assert chosen["id"] == [1, 2, 3, 4]
    assert ["Paris" in text or "paris" in text for text in chosen["completion"]] == [True, True, True, False]


def test_bad_calls(tmp_path: Path, cli) -> None:
    path = write(tmp_path / "x.jsonl", SAMPLES)
    assert "Did you mean 'majority'" in cli.refuses("select", path, "-m", "majorty")
    single = write(tmp_path / "y.jsonl", [(i, "Rome", 0.5) for i in range(3)])
    assert "--prompt" in cli.refuses("select", single)
