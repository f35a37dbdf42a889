from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rewardkit.data import sandbox
from rewardkit.data.sandbox import Limits, run
from rewardkit.errors import BackendError, InvalidArgumentError

LIMITS = Limits(wall_s=3, cpu_s=1, memory_mb=256)


def test_runs_code_and_checks() -> None:
    result = run(
        ["def double(x):\n    return 2 * x"], checks=["assert double(2) == 4", "assert double(0) == 0"], limits=LIMITS
    )
    assert result.passed
    assert result.n_passed == 2
    assert result.isolation in ("seccomp", "namespace")


def test_a_failed_check_is_named() -> None:
    result = run(["x = 1"], checks=["assert x == 1", "assert x == 2"], limits=LIMITS)
    assert (result.status, result.n_passed) == ("failed", 1)
    assert "x == 2" in result.detail


ESCAPES = {
    "endless loop": "while True: pass",
    "memory": "a = [0] * 10**10",
    "memory in steps": "b = []\nwhile True: b.append(bytearray(1 << 20))",
    "fork bomb": "import os\nwhile True: os.fork()",
    "subprocess": "import subprocess; subprocess.run(['true'])",
    "exec": "import os; os.execv('/bin/true', ['true'])",
    "thread": "import threading\nt = threading.Thread(target=int)\nt.start()",
    "socket": "import socket; socket.socket()",
    "raw socket call": "import ctypes\nassert ctypes.CDLL(None).socket(2, 1, 0) >= 0",
    "http": "import urllib.request; urllib.request.urlopen('http://127.0.0.1')",
    "write a file": "open('x', 'w').write('x')",
    "write outside": "import tempfile; tempfile.NamedTemporaryFile(dir='/tmp')",
    "kill the parent": "import os; os.kill(os.getppid(), 9)",
    "raise a limit": "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "leave early": "import sys; sys.exit(0)",
    "leave at once": "import os; os._exit(0)",
    "crash": "import ctypes; ctypes.string_at(0)",
    "claim success": "import os\nfor fd in range(3, 30):\n  try: os.write(fd, b'check\\ndone\\n')\n  except OSError: pass\nos._exit(0)",
    "recursion": "def f(): f()\nf()",
    "third party": "import numpy",
    "lone surrogate": "x = '\ud800'",
    "syntax": "def f(:",
    "null": "x = 1\0",
}


@pytest.mark.parametrize("what", ESCAPES)
def test_what_code_cannot_do(what: str) -> None:
    started = time.monotonic()
    result = run([ESCAPES[what]], checks=["assert True"], limits=LIMITS)
    assert not result.passed, what
    assert result.status in ("error", "killed", "timeout")
    assert result.detail
    assert time.monotonic() - started < 30


def test_the_clock_ends_what_uses_no_processor() -> None:
    started = time.monotonic()
    result = run(["import time; time.sleep(60)"], limits=Limits(wall_s=0.5))
    assert result.status == "timeout"
    assert time.monotonic() - started < 30  # it would sleep for 60


def test_the_environment_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "1")
    assert run(["import os"], checks=["assert 'SECRET_TOKEN' not in os.environ", "assert os.listdir('.') == []"]).passed


def test_output_is_not_collected() -> None:
    assert run(["print('x' * 10**7)"], checks=["assert True"]).passed


def test_no_process_or_folder_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = set(os.listdir("/proc/self/fd"))
    for source in ("x = 1", "while True: pass", "import os; os._exit(1)"):
        run([source], limits=Limits(wall_s=0.3))
    assert list(tmp_path.iterdir()) == []
    assert set(os.listdir("/proc/self/fd")) == before


def test_it_refuses_where_the_network_stays_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without seccomp and namespaces is played by a child that cannot have either."""
    child = tmp_path / "child.py"
    source = Path(sandbox._CHILD).read_text()
    child.write_text(
        source.replace("def isolate():", "def isolate():\n    raise OSError('not here')\n\n\ndef _unused():")
    )
    monkeypatch.setattr(sandbox, "_CHILD", child)
    with pytest.raises(BackendError, match=r"cannot be switched off .*not here.*nothing was run"):
        run(["x = 1"], limits=LIMITS)
    allowed = run(["x = 1"], checks=["assert x == 1"], limits=LIMITS, allow_unisolated=True)
    assert allowed.passed
    assert allowed.isolation == "none"
    assert run(["while True: pass"], limits=LIMITS, allow_unisolated=True).status == "killed"


@pytest.mark.parametrize(("name", "value"), [("wall_s", 0), ("cpu_s", -1), ("memory_mb", 0), ("processes", -1)])
def test_limits_are_checked(name: str, value: int) -> None:
    with pytest.raises(InvalidArgumentError, match=name):
        Limits(**{name: value})
