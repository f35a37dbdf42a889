"""A run's traces tell what its exit code does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rewardkit.integrations.verl.run_check import check_run, parse_step

STEP = "(TaskRunnerV1 pid=1) step:{step} - actor/grad_norm:{norm} - critic/score/mean:0.5 - timing_s/step:np.float64(1.5)\n"


def write_run(
    folder: Path, *, norms=(0.5, 0.25), prompts=2, group=2, log: str = "", empty: int = 0, lost: int = 0
) -> dict:
    """A run of a few steps as verl leaves it behind."""
    rollouts, validation = folder / "rollouts", folder / "validation"
    rollouts.mkdir()
    validation.mkdir()
    lines = ["step:0 - val-core/demo/acc/mean@1:np.float64(0.5)\n"]
    for step, norm in enumerate(norms, 1):
        lines.append(STEP.format(step=step, norm=norm))
        rows = [
            {"uid": f"prompt{prompt}_{session}_0", "output": "text", "score": 1.0}
            for prompt in range(prompts - lost)
            for session in range(group)
        ]
        rows += [{"uid": "made-up_0_0", "output": "", "score": 0.0}] * (lost * group)
        for row in rows[:empty]:
            row |= {"output": "", "score": 0.0}
        (rollouts / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for step in (0, len(norms)):
        (validation / f"{step}.jsonl").write_text("{}\n" * 5)
    (folder / "log.txt").write_text("".join(lines) + log)
    return {
        "log": folder / "log.txt",
        "steps": 2,
        "rollouts": rollouts,
        "prompts": prompts,
        "group": group,
        "validation": validation,
        "validation_rows": 5,
    }


def test_a_run_that_trained(tmp_path) -> None:
    trace = check_run(**write_run(tmp_path))
    assert trace.problems == []
    assert trace.steps[2] == {"actor/grad_norm": 0.25, "critic/score/mean": 0.5, "timing_s/step": 1.5}
    assert trace.steps[0] == {"val-core/demo/acc/mean@1": 0.5}


@pytest.mark.parametrize(
    ("run", "changes", "words"),
    [
        ({}, {"exit_code": 1}, "exit code 1"),
        ({}, {"steps": 3}, "2 training steps instead of 3"),
        ({"norms": (0.0, 0.0)}, {}, "nothing was learnt"),
        ({"norms": ("nan", 0.5)}, {}, "without a finite"),
        ({"log": "ERROR: Error in _run_prompt for uid=7\n"}, {}, "Error in _run_prompt"),
        ({"log": "Traceback (most recent call last):\n  File x\nValueError: y\n"}, {}, "Traceback"),
        ({"empty": 1}, {}, "1 empty rollouts"),
        ({"lost": 1}, {}, "2 empty rollouts"),
        ({}, {"prompts": 3}, "2 prompts instead of 3"),
        ({}, {"group": 4}, "4 rollouts instead of 8"),
        ({}, {"validation_rows": 8}, "5 validation rows instead of 8"),
    ],
)
def test_a_run_that_failed_without_a_word(tmp_path, run, changes, words) -> None:
    problems = check_run(**write_run(tmp_path, **run) | changes).problems
    assert any(words in problem for problem in problems), problems


def test_nothing_there_at_all(tmp_path) -> None:
    problems = check_run(
        log=tmp_path / "none", steps=1, rollouts=tmp_path, validation=tmp_path / "v", validation_rows=1
    ).problems
    assert any("0 training steps" in problem for problem in problems)
    assert any("no validation dump" in problem for problem in problems)


def test_what_verl_tries_and_does_without_is_no_trouble(tmp_path) -> None:
    log = "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'flash_attn'\n"
    assert check_run(**write_run(tmp_path, log=log)).problems == []


def test_reads_what_verl_prints() -> None:
    line = "(T pid=1) step:12 - a/b@1:np.float64(-1.5e-07) - c:3 - d_e/f:nan - g:np.int64(4)"
    step, metrics = parse_step(line)
    assert step == 12
    assert metrics.pop("d_e/f") != 0
    assert metrics == {"a/b@1": -1.5e-07, "c": 3.0, "g": 4.0}
    assert parse_step("Training Progress: 3/3") is None
