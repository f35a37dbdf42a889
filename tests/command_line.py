"""Runs the command line inside the test process: the same entry point, without the start of an interpreter."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from rewardkit.cli import main


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


class CommandLine:
    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
        self.capsys, self.monkeypatch = capsys, monkeypatch

    def __call__(self, *arguments: object) -> Result:
        self.capsys.readouterr()
        self.monkeypatch.setattr(sys, "argv", ["rewardkit", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = self.capsys.readouterr()
        return Result(code, captured.out, captured.err)

    def refuses(self, *arguments: object, start: str = "rewardkit: error: ") -> str:
        """The one line that a bad call gives, after checking that it is one line, with exit code 2 and no output."""
        result = self(*arguments)
        assert result.code == 2, result
        assert result.out == ""
        assert result.err.count("\n") == 1, result.err
        assert result.err.startswith(start)
        return result.err
