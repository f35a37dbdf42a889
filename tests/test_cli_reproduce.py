"""``rewardkit reproduce``: every published number that the data holds comes out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def test_all_numbers_are_equal_or_explained(shared: Path, cli) -> None:
    result = cli("reproduce", "--data", shared / "data", "--json", "--quick")
    assert result.code == 0
    report = json.loads(result.out)
    assert report["unexplained"] == 0
    rows = report["rows"]
    sections: dict[str, list[dict]] = {}
    for row in rows:
        sections.setdefault(row["section"], []).append(row)
    assert sum(row["verdict"] == "equal" for row in sections["RLCR"]) == 2 * 5 * 8
    assert all(row["verdict"] == "equal" for row in sections["RLCR from text"])
    assert len(sections["NQ-open"]) == 24
    assert all(row["verdict"] == "equal" for row in sections["NQ-open"])
    for row in rows:
        assert row["verdict"] == "equal" or row["note"], row


@pytest.mark.slow
def test_math_labels(shared: Path, cli) -> None:
    pytest.importorskip("math_verify")
    rows = json.loads(cli("reproduce", "--data", shared / "data", "--json").out)["rows"]
    equal, parsed = (row for row in rows if row["section"] == "RLCR math labels")
    assert equal["recomputed"] == 2500
    assert parsed["recomputed"] > parsed["published"]
    assert "turn to right" in parsed["note"]


def test_what_is_not_in_the_folder_is_not_run(shared: Path, tmp_path: Path, cli) -> None:
    (tmp_path / "ddxplus").symlink_to(shared / "data" / "ddxplus")
    report = json.loads(cli("reproduce", "--data", tmp_path, "--json").out)
    assert report["verdicts"] == {"equal": 2, "not run": 6}
    absent = next(row for row in report["rows"] if row["section"] == "NQ-open")
    assert absent["note"] == "not in the folder: qa_preds/nq_open_predictions.parquet"
    shown = cli("reproduce", "--data", tmp_path)
    assert shown.code == 0
    assert "2 equal" in shown.out


def test_a_folder_must_be_named(cli) -> None:
    assert "--data" in cli("reproduce").err


def test_a_missing_folder_is_one_line(tmp_path: Path, cli) -> None:
    assert "--data DIR" in cli.refuses("reproduce", "--data", tmp_path / "absent")
