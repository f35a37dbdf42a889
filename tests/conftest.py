"""What all tests share: where the shared material lies, and the hypothesis profiles."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("REWARDKIT_SHARED", ROOT.parent / "shared"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and public bug cases; tests that need it skip where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"no shared material at {SHARED} (set REWARDKIT_SHARED)")
    return SHARED


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Calls the command line: ``cli("evaluate", path, "--json")`` gives its exit code and what it printed."""
    from tests.command_line import CommandLine

    return CommandLine(capsys, monkeypatch)
