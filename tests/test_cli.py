"""The command line as a whole: every command is registered, and a bad call is one line and exit code 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = sorted(
    path.stem
    for path in (ROOT / "rewardkit" / "cli").glob("*.py")
    if "@app.command" in path.read_text() or "app.add_typer" in path.read_text()
)


def rewardkit(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rewardkit", *arguments], capture_output=True, text=True, cwd=ROOT, check=False
    )


def test_every_command_is_listed() -> None:
    listed = rewardkit("--help").stdout
    assert len(COMMANDS) > 4
    for name in COMMANDS:
        assert f" {name} " in listed


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    done = rewardkit(name, "--help")
    assert done.returncode == 0
    assert len(done.stdout.split()) > 20


def test_a_missing_file_is_one_line_and_exit_code_2() -> None:
    done = rewardkit("evaluate", "nowhere.jsonl")
    assert done.returncode == 2
    assert done.stderr.startswith("rewardkit: error: ")
    assert "nowhere.jsonl" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
