"""Every public bug case has a test that is named by its id; the two that belong to no module stand here."""

from __future__ import annotations

import json
import re
from pathlib import Path

from rewardkit import matching, parsing, rewards

HERE = Path(__file__).resolve().parent


def test_every_case_has_a_test(shared: Path) -> None:
    cases = [json.loads(line) for line in (shared / "cases" / "public_bug_cases.jsonl").read_text().splitlines()]
    text = "\n".join(path.read_text() for path in HERE.rglob("*.py"))
    named = {name.replace("-", "_") for name in re.findall(r"(?:BR|SR)[-_]\d+", text)}
    missing = [
        f"{case['id']} ({case['area']}): {case['symptom']}"
        for case in cases
        if case["id"].replace("-", "_") not in named
    ]
    assert not missing, "no test names these cases:\n" + "\n".join(missing)


def test_BR_110_an_answer_at_position_zero_or_at_the_very_end_is_an_answer() -> None:
    """Index 0 is a place like any other, for the text, for its spans and for the first of several answers."""
    (piece,) = parsing.spans(["<answer>a</answer>"], "ta", think="ignore")[0]
    assert (piece.outer_start, piece.start) == (0, 8)
    reward = rewards.get("rlvr", format="ta", think="ignore")
    assert reward(completions=["<answer>a</answer>"], references=["a"]).status == ["ok"]
    assert matching.token_f1(["x y z", "z y x"], ["x", "x"]).tolist() == [0.5, 0.5]


def test_BR_099_every_mode_of_verl_that_is_documented_as_run_is_run_by_a_test() -> None:
    page = (HERE.parent / "docs" / "verl.md").read_text()
    tests = "\n".join(path.read_text() for path in HERE.glob("test_verl*.py"))
    rows = [line for line in page.splitlines() if line.startswith("|") and "run in the tests" in line]
    assert len(rows) >= 2
    assert "use_v1=False" in page
    assert re.search(r"use_v1", tests)
