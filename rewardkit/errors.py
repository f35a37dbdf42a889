"""Everything that can go wrong in a call, on one screen.

A bad *call* raises one of these at once. A bad *completion* never raises: it is data, and gets a status.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any


class RewardkitError(Exception):
    """Base of all errors that rewardkit raises on purpose."""


class InvalidArgumentError(RewardkitError, ValueError):
    """An argument of a call has the wrong type, shape or value."""

    def __init__(self, argument: str, *, expected: str, got: Any):
        self.argument, self.expected = argument, expected
        self.got = got.text if isinstance(got, _Text) else _brief(got)
        super().__init__(f"{argument}: expected {expected}, got {self.got}")

    @property
    def cell(self) -> tuple[str, int] | None:
        """The column and the row, from 0, where the argument is one entry of a column: ``prior_logprob[3]``."""
        found = re.fullmatch(r"(\w+)\[([0-9]+)\]", self.argument)
        return None if found is None else (found[1], int(found[2]))

    def __reduce__(self):
        return _rebuild, (type(self), (self.argument,), {"expected": self.expected, "got": _Text(self.got)})


class UnknownNameError(RewardkitError, LookupError, ValueError):
    """A name (of a reward, a format, a matcher, …) that does not exist."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, where: str = ""):
        self.kind, self.name, self.known, self.where = kind, name, tuple(sorted(known)), where
        near = difflib.get_close_matches(str(name), self.known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        place = f"{where}: " if where else ""
        super().__init__(f"{place}unknown {kind} {name!r}.{hint} Known: {', '.join(self.known)}")

    def __reduce__(self):
        return _rebuild, (type(self), (self.kind, self.name, self.known), {"where": self.where})


class DataError(RewardkitError, ValueError):
    """A file, or a row or column of it, is not what was expected."""

    def __init__(
        self,
        expected: str,
        found: str,
        *,
        file: str | None = None,
        row: int | None = None,
        column: str | None = None,
    ):
        self.expected, self.found, self.file, self.row, self.column = expected, found, file, row, column
        where = [str(file)] if file is not None else []
        where += [f"row {row}"] if row is not None else []
        where += [f"column {column!r}"] if column is not None else []
        prefix = ", ".join(where) + ": " if where else ""
        super().__init__(f"{prefix}expected {expected}, found {found}")

    def __reduce__(self):
        where = {"file": self.file, "row": self.row, "column": self.column}
        return _rebuild, (type(self), (self.expected, self.found), where)


class BackendError(RewardkitError, RuntimeError):
    """A kernel was asked for that was not built or cannot run here. Nothing slower is used in its place."""


class MissingExtraError(RewardkitError, ImportError):
    """A feature needs an optional dependency that is not installed."""

    def __init__(self, feature: str, *, package: str, extra: str):
        self.feature, self.package, self.extra = feature, package, extra
        super().__init__(f"{feature} needs {package}: pip install 'rewardkit[{extra}]'")

    def __reduce__(self):
        return _rebuild, (type(self), (self.feature,), {"package": self.package, "extra": self.extra})


class HarmfulSettingWarning(UserWarning):
    """A legal setting that is known to ruin a training run; the text says how, and the remedy."""


class _Text:
    """A value that has been made brief already; only so that an error pickles to the same text."""

    def __init__(self, text: str):
        self.text = text


def _brief(value: Any, limit: int = 120) -> str:
    text = value if isinstance(value, str) and " " in value else repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _rebuild(cls: type, args: tuple, kwargs: dict[str, Any]):
    return cls(*args, **kwargs)
