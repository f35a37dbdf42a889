"""What a check is, and the register of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from rewardkit.preflight.findings import Finding, Level
from rewardkit.preflight.job import Job, Rows


@dataclass(frozen=True)
class RowFinding:
    """A fault of one row; the runner gathers those with the same ``kind`` into one finding.

    Attributes:
        index: Position in the batch.
        kind: What makes faults one fault.
        level: As in :class:`Finding`.
        reason: What is wrong with this row; the first one found is shown.
        fix: What to do.
    """

    index: int
    kind: str
    level: Level
    reason: str
    fix: str


class Check:
    """One thing that can be wrong with a job. Made anew for each run, so it may gather while rows pass by.

    Class attributes:
        name: What ``skip`` takes.
        about: What it catches; one line for the documentation and ``--list``.
    """

    name: ClassVar[str]
    about: ClassVar[str]

    def lacks(self, job: Job) -> str:
        """What it would need to run and does not have; "" where it can run."""
        return ""

    def before(self, job: Job) -> Iterator[Finding]:
        """What can be said without rows."""
        yield from ()

    def look_at(self, job: Job, rows: Rows) -> Iterator[RowFinding]:
        """What is wrong with some rows."""
        yield from ()

    def after(self, job: Job) -> Iterator[Finding]:
        """What can be said when all rows have passed by."""
        yield from ()

    def error(self, reason: str, fix: str) -> Finding:
        """A finding that is about no row."""
        return Finding(self.name, "error", reason, fix)

    def warning(self, reason: str, fix: str) -> Finding:
        """A finding that is about no row."""
        return Finding(self.name, "warning", reason, fix)


CHECKS: dict[str, type[Check]] = {}
"""All checks by name, in the order in which they run."""


def register(cls: type[Check]) -> type[Check]:
    """Class decorator: makes a check one of :data:`CHECKS`."""
    if cls.name in CHECKS:
        raise ValueError(f"a check named {cls.name!r} is registered already")
    CHECKS[cls.name] = cls
    return cls


def check_names() -> tuple[str, ...]:
    """The names that ``skip`` takes."""
    return tuple(CHECKS)
