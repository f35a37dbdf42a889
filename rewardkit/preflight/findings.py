"""What a preflight found, and what it makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rewardkit.errors import RewardkitError

Level = Literal["error", "warning"]


class PreflightError(RewardkitError, ValueError):
    """A preflight found errors."""

    def __init__(self, report: Report):
        self.report = report
        lines = [f"{finding.check}: {finding.reason} Fix: {finding.fix}" for finding in report.errors]
        super().__init__(f"preflight found {len(lines)} error(s)\n" + "\n".join(f"  {line}" for line in lines))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.report,)


@dataclass(frozen=True)
class Finding:
    """One fault.

    Attributes:
        check: Name of the check; ``skip`` takes it.
        level: "error" spoils the run; "warning" probably does.
        reason: One line: what is wrong.
        fix: One line: what to do.
        rows: How many rows are concerned; 0 where it is not about rows.
        file: Where the first of them stands.
        examples: Numbers of the first rows concerned.
    """

    check: str
    level: Level
    reason: str
    fix: str
    rows: int = 0
    file: str = ""
    examples: tuple[int, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "check": self.check,
            "level": self.level,
            "reason": self.reason,
            "fix": self.fix,
            "rows": self.rows,
            "file": self.file,
            "examples": list(self.examples),
        }


@dataclass(frozen=True)
class Report:
    """All that was found.

    Attributes:
        findings: Errors first.
        checked: Names of the checks that ran.
        skipped: Names of those that did not, and why: nothing here was found to be right.
        rows: How many rows were read.
    """

    findings: Sequence[Finding]
    checked: Sequence[str]
    skipped: Mapping[str, str] = field(default_factory=dict)
    rows: int = 0

    @property
    def errors(self) -> list[Finding]:
        """The findings that spoil the run."""
        return [finding for finding in self.findings if finding.level == "error"]

    @property
    def warnings(self) -> list[Finding]:
        """The findings that probably do."""
        return [finding for finding in self.findings if finding.level == "warning"]

    def exit_code(self, *, strict: bool = False) -> int:
        """2 with errors, 1 with warnings when strict, else 0."""
        return 2 if self.errors else 1 if strict and self.warnings else 0

    def raise_for_errors(self) -> None:
        """Raises what was found to be wrong.

        Raises:
            PreflightError: There are errors.
        """
        if self.errors:
            raise PreflightError(self)

    def as_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "errors": len(self.errors),
            "warnings": len(self.warnings),
            "rows": self.rows,
            "findings": [finding.as_dict() for finding in self.findings],
            "checked": list(self.checked),
            "skipped": dict(self.skipped),
        }
