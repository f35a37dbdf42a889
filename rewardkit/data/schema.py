"""One example of a data set, and the rows that verl and TRL read it as."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rewardkit.errors import DataError
from rewardkit.types import GoldKind

Role = Literal["system", "user"]
Trainer = Literal["verl", "trl"]
Gold = str | list[str] | list[list[str]]


class MalformedRecordError(DataError):
    """A record that a builder cannot use; builders count and drop it, or keep it flagged, but never silently."""

    def __init__(self, reason: str, found: str, record: str | None = None):
        self.reason, self.record = reason, record
        super().__init__(reason, found)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.found, self.record)


@dataclass(frozen=True)
class Example:
    """One question with its golds, before a prompt format and a trainer are chosen.

    Attributes:
        id: Stable identity of the record.
        question: The text of the user's turn: the task and all that belongs to it.
        gold: A string, a flat list (read by ``gold_kind``), or a list of golds with their aliases.
        gold_kind: How a flat list is read.
        data_source: Name of the data set, as verl logs validation by it.
        ability: verl's coarse label of the task.
        extra: Facts about the example, JSON scalars or lists of strings; the same keys for every example of a builder.
    """

    id: str
    question: str
    gold: Gold
    gold_kind: GoldKind
    data_source: str
    ability: str
    extra: Mapping[str, Any] = field(default_factory=dict)


def verl_row(
    example: Example, *, instructions: str, instructions_role: Role = "system", split: str = "train", index: int = 0
) -> dict[str, Any]:
    """The example as verl's ``RLHFDataset`` and reward managers read it.

    Args:
        example: The example.
        instructions: How to answer, from :func:`rewardkit.parsing.prompt`; "" for none.
        instructions_role: Whether they are a system message, or the end of the user's.
        split: Written into ``extra_info``, since verl's reward managers are not told which split a row is of.
        index: Position of the row in its file.
    """
    return {
        "data_source": example.data_source,
        "prompt": chat(example.question, instructions=instructions, instructions_role=instructions_role),
        "ability": example.ability,
        "reward_model": {"style": "rule", "ground_truth": example.gold},
        "extra_info": {
            "split": split,
            "index": index,
            "id": example.id,
            "gold_kind": example.gold_kind,
            **example.extra,
        },
    }


def trl_row(
    example: Example, *, instructions: str, instructions_role: Role = "system", split: str = "train", index: int = 0
) -> dict[str, Any]:
    """The example in TRL's conversational prompt-only schema; see :func:`verl_row` for the arguments."""
    return {
        "prompt": chat(example.question, instructions=instructions, instructions_role=instructions_role),
        "answer": example.gold,
        "gold_kind": example.gold_kind,
        "data_source": example.data_source,
        "split": split,
        "index": index,
        "id": example.id,
        **example.extra,
    }


def chat(question: str, *, instructions: str, instructions_role: Role) -> list[dict[str, str]]:
    """The messages of a prompt."""
    if not instructions:
        return [{"role": "user", "content": question}]
    if instructions_role == "user":
        return [{"role": "user", "content": f"{question}\n\n{instructions}"}]
    return [{"role": "system", "content": instructions}, {"role": "user", "content": question}]


def draw(*key: object) -> int:
    """A uniform 64-bit integer that depends on the key alone: not on the process, the order, or Python's hash seed.

    >>> draw("id", 0) == draw("id", 0), draw("id", 0) == draw("id", 1)
    (True, False)
    """
    # Lengths keep keys apart: ("ab", "c") and ("a", "bc") are different keys.
    text = "".join(f"{len(part)}:{part}" for part in map(str, key))
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def content_id(*parts: object) -> str:
    """An identity for a record that has none of its own: a hash of its content."""
    return f"{draw(*parts):016x}"


@dataclass(frozen=True)
class Layout:
    """The Arrow types of what differs between builders.

    Attributes:
        gold: Type of :attr:`Example.gold`.
        extra: Type of each entry of :attr:`Example.extra`, as pyarrow names it; "strings" is a list of strings.
    """

    gold: Literal["string", "strings", "lists of strings"]
    extra: Mapping[str, str] = field(default_factory=dict)

    def arrow_schema(self, trainer: Trainer):
        """The schema of :func:`verl_row` or :func:`trl_row`."""
        import pyarrow as pa

        gold = _arrow_type(self.gold)
        prompt = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
        extra = [(name, _arrow_type(kind)) for name, kind in self.extra.items()]
        place = [("split", pa.string()), ("index", pa.int64()), ("id", pa.string())]
        if trainer == "verl":
            return pa.schema(
                [
                    ("data_source", pa.string()),
                    ("prompt", prompt),
                    ("ability", pa.string()),
                    ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", gold)])),
                    ("extra_info", pa.struct([*place, ("gold_kind", pa.string()), *extra])),
                ]
            )
        return pa.schema(
            [
                ("prompt", prompt),
                ("answer", gold),
                ("gold_kind", pa.string()),
                ("data_source", pa.string()),
                *place,
                *extra,
            ]
        )


def _arrow_type(kind: str):
    import pyarrow as pa

    if kind == "strings":
        return pa.list_(pa.string())
    if kind == "lists of strings":
        return pa.list_(pa.list_(pa.string()))
    return pa.type_for_alias(kind)
