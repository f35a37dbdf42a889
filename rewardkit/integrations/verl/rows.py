"""One rollout as the scorer sees it, and how a value is found in a row of verl's data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rewardkit.errors import DataError, InvalidArgumentError
from rewardkit.types import GOLD_KIND_PATHS, GoldKind, References

ABSENT = object()
"""What :func:`lookup` returns where a path leads nowhere."""

_PLACES = ("tool_extra_fields.rewardkit.{}", "tool_extra_fields.{}", "extra_info.{}", "{}")


@dataclass(frozen=True)
class Row:
    """One rollout.

    Attributes:
        token_ids: The response's own tokens, without padding.
        fields: The row of the data set and what verl adds to it; by name.
        truncated: Whether the response ended because it was as long as it may be.
    """

    token_ids: list[int]
    fields: Mapping[str, Any]
    truncated: bool

    @property
    def data_source(self) -> str:
        """The row's data source, "" where it has none."""
        return str(self.fields.get("data_source", ""))


def lookup(fields: Mapping[str, Any], path: str) -> Any:
    """Follows a dotted path through mappings; :data:`ABSENT` where it leads nowhere."""
    value: Any = fields
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return ABSENT
        value = value[part]
    return value


def find_column(fields: Mapping[str, Any], name: str, places: Mapping[str, str]) -> Any:
    """A reward's further column in a row: where ``places`` says, else where agent loops and data sets leave such things."""
    if name in places:
        return lookup(fields, places[name])
    for path in _PLACES:
        value = lookup(fields, path.format(name))
        if value is not ABSENT:
            return value
    return ABSENT


def gold_kind_of(fields: Mapping[str, Any], configured: GoldKind | None) -> Any:
    """How a flat list of a row's golds is read: as the config says, else as the row does (the data builders write it)."""
    if configured is not None:
        return configured
    for path in GOLD_KIND_PATHS:
        value = lookup(fields, path)
        if value is not ABSENT and value is not None:
            return value
    return None


def read_reference(
    value: Any, *, path: str, as_json: bool, gold_kind: Any, file: str | None = None, row: int | None = None
) -> tuple[tuple[str, ...], ...]:
    """A row's golds, each with its aliases, checked.

    Raises:
        DataError: It is missing, empty, or of a type that is no reference; names file, row and column.
    """

    def bad(expected: str, found: str) -> DataError:
        return DataError(expected, found if len(found) < 120 else found[:119] + "…", file=file, row=row, column=path)

    if gold_kind not in (None, "aliases", "set"):
        raise DataError("aliases or set", repr(gold_kind), file=file, row=row, column="gold_kind")
    if value is ABSENT:
        raise bad("a reference", "no such column")
    if value is None:
        raise bad("a reference", "None")
    if as_json:
        if not isinstance(value, str):
            raise bad("a reference as JSON text", repr(value))
        try:
            value = json.loads(value)
        except ValueError as error:
            raise bad("a reference as JSON text", f"{value!r} ({error})") from error
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise bad("a reference that is text (write numbers as text, as the answer would be written)", repr(value))
    try:
        return References.of([value], gold_kind=gold_kind).golds[0]
    except DataError as error:
        raise bad(error.expected, error.found) from error
    except InvalidArgumentError as error:
        raise bad(error.expected, repr(value)) from error
