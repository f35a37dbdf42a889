"""Any file of questions and answers, by the names of its columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rewardkit.data.schema import Example, Gold, Layout, MalformedRecordError, content_id
from rewardkit.errors import InvalidArgumentError
from rewardkit.shaping import check_choice
from rewardkit.types import GoldKind

Shape = Literal["string", "strings", "lists of strings"]


def layout(shape: Shape) -> Layout:
    """The layout of a generic data set, whose golds have one shape throughout."""
    return Layout(gold=shape)


def gold_shape(value: Any) -> Shape:
    """Which of the three shapes of golds a value has."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        nested = any(isinstance(item, Sequence) and not isinstance(item, str) for item in value)
        return "lists of strings" if nested else "strings"
    return "string"


def generic(
    record: Mapping[str, Any],
    *,
    question: str = "question",
    answer: str = "answer",
    gold_kind: GoldKind | None = None,
    shape: Shape | None = None,
    id_column: str | None = None,
    data_source: str = "generic",
    ability: str = "question_answering",
) -> Example:
    """One record as an example.

    Args:
        record: The record.
        question: Column of the question.
        answer: Column of the golds: a string or number, a list, or a list of lists (golds with their aliases).
        gold_kind: How a flat list is read: "aliases" or "set". Needed where a list has more than one entry.
        shape: The shape of the golds throughout the file; None takes this record's.
        id_column: Column of the identity; None hashes question and answer.
        data_source: The name that verl logs validation by.
        ability: verl's coarse label of the task.

    Raises:
        MalformedRecordError: The question or answer is missing or empty, the golds have another shape, or there are several
            where ``gold_kind="aliases"`` says that there is one.
        InvalidArgumentError: A flat list of several golds, and no ``gold_kind`` to read it by; or another value of
            ``gold_kind`` or ``shape``.
    """
    check_choice("gold_kind", gold_kind, (None, "aliases", "set"))
    check_choice("shape", shape, (None, "string", "strings", "lists of strings"))
    for name in filter(None, (question, answer, id_column)):
        if name not in record:
            raise InvalidArgumentError("column", expected=f"one of {', '.join(sorted(record))}", got=name)
    text = record[question]
    if not isinstance(text, str) or not text.strip():
        raise MalformedRecordError(f"text in {question!r}", repr(text)[:80])
    value = record[answer]
    gold = _gold(value, shape or gold_shape(value), answer)
    if gold_kind is None and isinstance(gold, list) and len(gold) > 1 and isinstance(gold[0], str):
        raise InvalidArgumentError(
            "gold_kind",
            expected=f"'aliases' (ways to write one answer) or 'set' (several answers), since {answer!r} holds flat lists",
            got=gold_kind,
        )
    if gold_kind == "aliases" and isinstance(gold, list) and len(gold) > 1 and isinstance(gold[0], list):
        raise MalformedRecordError(f"aliases of one gold in {answer!r}", f"{len(gold)} golds")
    kind = gold_kind or ("set" if (shape or gold_shape(value)) == "lists of strings" else "aliases")
    return Example(
        id=str(record[id_column]) if id_column else content_id(text, repr(value)),
        question=text.strip(),
        gold=gold,
        gold_kind=kind,
        data_source=data_source,
        ability=ability,
    )


def _gold(value: Any, shape: Shape, column: str) -> Gold:
    if shape == "string":
        return _string(value, column)
    if isinstance(value, (str, int, float)):
        value = [value]
    if not isinstance(value, Sequence) or not value:
        raise MalformedRecordError(f"a gold in {column!r}", repr(value)[:80])
    if shape == "strings":
        return [_string(item, column) for item in value]
    nested = [list(item) if isinstance(item, Sequence) and not isinstance(item, str) else [item] for item in value]
    if not all(nested):
        raise MalformedRecordError(f"a gold in {column!r}", repr(value)[:80])
    return [[_string(alias, column) for alias in gold] for gold in nested]


def _string(value: Any, column: str) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise MalformedRecordError(f"a gold with text in {column!r}", repr(value)[:80])
    return value.strip()
