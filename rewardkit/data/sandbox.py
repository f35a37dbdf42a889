"""Runs untrusted Python in a subprocess that can compute and do nothing else.

The child has no environment, an empty temporary directory, no network, no way to start a process or a thread, no way to write
a file, and limits on time and memory; what is left of it is killed as a process group. It runs in isolated mode without
site-packages, so that only the standard library is there.

What it is not: a judge that cannot be fooled. The tests run in the same interpreter as the code, so code that sets out to (an
object that equals everything, say) can pass them. Leaving early, by whatever way, does not pass.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rewardkit.errors import BackendError, InvalidArgumentError

Status = Literal["passed", "failed", "error", "timeout", "killed"]

_CHILD = Path(__file__).with_name("_sandbox_child.py")
_REPORT_BYTES = 64 << 10
_STARTUP_S = 10.0


@dataclass(frozen=True)
class Limits:
    """What the code may use.

    Attributes:
        wall_s: Seconds on the clock, for the code and its checks together.
        cpu_s: Seconds of processor time, rounded up.
        memory_mb: Address space, in MiB.
        file_mb: Size of a file, in MiB, where writing is possible at all (it is not under seccomp).
        processes: Processes and threads that it may start, where they can be started at all (not under seccomp).
    """

    wall_s: float = 5.0
    cpu_s: float = 4.0
    memory_mb: int = 512
    file_mb: int = 1
    processes: int = 0

    def __post_init__(self) -> None:
        for name in ("wall_s", "cpu_s", "memory_mb"):
            if not getattr(self, name) > 0:
                raise InvalidArgumentError(name, expected="a positive number", got=getattr(self, name))
        for name in ("file_mb", "processes"):
            if getattr(self, name) < 0:
                raise InvalidArgumentError(name, expected="0 or more", got=getattr(self, name))


@dataclass(frozen=True)
class Result:
    """How a run ended.

    Attributes:
        status: "passed" all checks; "failed" one of them; "error" in the code itself; "timeout"; "killed", which is what
            exhausting a limit, leaving early or crashing looks like.
        detail: One line on what happened, "" where it passed.
        n_passed: How many checks passed.
        isolation: What kept the network and processes off: "seccomp", "namespace" or "none".
    """

    status: Status
    detail: str
    n_passed: int
    isolation: str

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return self.status == "passed"


def run(
    sources: Sequence[str],
    *,
    checks: Sequence[str] = (),
    limits: Limits | None = None,
    allow_unisolated: bool = False,
) -> Result:
    """Runs the sources one after the other in one namespace, then each check in it.

    Args:
        sources: Python code; the first that raises ends the run.
        checks: Statements that raise where something is wrong.
        limits: What the code may use.
        allow_unisolated: Run even where neither seccomp nor a namespace can be had, with resource limits alone.

    Raises:
        BackendError: The network cannot be switched off here and ``allow_unisolated`` is False, or this is not Linux.
    """
    limits = limits or Limits()
    if sys.platform != "linux":
        raise BackendError("the sandbox needs Linux: model-written code is not run on other systems")
    nonce = secrets.token_hex(16)
    job = json.dumps(
        {
            "sources": [source for source in sources if source.strip()],
            "checks": list(checks),
            "limits": asdict(limits),
            "allow_unisolated": allow_unisolated,
            "nonce": nonce,
        }
    )
    with tempfile.TemporaryDirectory(prefix="rewardkit-sandbox-") as folder:
        report = _run_child(job.encode("utf-8", "backslashreplace"), folder, limits)
    return _judge(report, nonce, len(checks), limits)


@dataclass(frozen=True)
class _Report:
    lines: list[bytes]
    returncode: int
    timed_out: bool


def _run_child(job: bytes, folder: str, limits: Limits) -> _Report:
    read_end, write_end = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", str(_CHILD), str(write_end)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(write_end,),
            cwd=folder,
            env={},
            start_new_session=True,
        )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    try:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once; the report says so
            process.stdin.write(job)
            process.stdin.close()
        data, timed_out = _read(read_end, limits.wall_s)
    finally:
        os.close(read_end)
        _kill(process)
    return _Report(data.split(b"\n"), process.returncode, timed_out)


def _read(descriptor: int, wall_s: float) -> tuple[bytes, bool]:
    """What the child reports until it closes the pipe, and whether its time ran out; the clock starts when the child does."""
    data = b""
    deadline = time.monotonic() + _STARTUP_S
    started = False
    while len(data) < _REPORT_BYTES:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return data, True
        piece = os.read(descriptor, 4096)
        if not piece:
            break
        data += piece
        if not started and b"\n" in data:
            started, deadline = True, time.monotonic() + wall_s
    return data, False


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends the child and whatever is left in its process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # the group is gone already
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _judge(report: _Report, nonce: str, n_checks: int, limits: Limits) -> Result:
    """Reads the report. Only lines with the nonce count, which the code was never told."""
    messages = [
        line[len(nonce) + 1 :].decode("utf-8", "replace") for line in report.lines if line.startswith(nonce.encode())
    ]
    isolation = "none"
    n_passed = 0
    for message in messages:
        word, _, rest = message.partition(" ")
        if word == "isolation":
            isolation = rest
        elif word == "unavailable":
            raise BackendError(
                f"the network cannot be switched off for model-written code here ({rest}); nothing was run. Run it on a "
                "machine that allows seccomp filters or network namespaces, or pass allow_unisolated=True to run it with "
                "resource limits alone"
            )
        elif word == "check":
            n_passed += 1
        elif word == "error":
            return Result("error", rest, n_passed, isolation)
        elif word == "fail":
            return Result("failed", rest, n_passed, isolation)
        elif word == "done" and n_passed == n_checks:
            return Result("passed", "", n_passed, isolation)
    if report.timed_out:
        return Result("timeout", f"longer than {limits.wall_s:g} s", n_passed, isolation)
    if not messages:
        raise BackendError(
            f"the sandbox's interpreter did not start (exit status {report.returncode}); nothing was run"
        )
    return Result("killed", "it ended before its checks: a limit, an early exit or a crash", n_passed, isolation)
