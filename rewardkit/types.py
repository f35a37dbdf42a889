"""The nouns that the five steps pass on, as frozen dataclasses.

Shape letters, the same everywhere: ``B`` rollouts, ``K`` answers, ``M`` references (golds), ``T`` tokens,
``V`` vocabulary, ``G`` group size.

A reward is a scoring rule applied to a :class:`Forecast` (what a completion claims) and an :class:`Outcome` (what turned
out true); the result is a :class:`RewardBatch`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from rewardkit.errors import DataError, InvalidArgumentError

Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]
GoldKind = Literal["aliases", "set"]
Golds = tuple[tuple[tuple[str, ...], ...], ...]

OK = "ok"
"""The completion followed its format and was scored."""
UNPARSED = "unparsed"
"""The completion did not follow its format; the reason stands beside it."""
FAILED = "failed"
"""Prefix of ``failed:<reason>``: the completion was readable, but a step could not judge it (a judge raised, a time-out, no
log-probabilities)."""


@dataclass(frozen=True)
class Forecast:
    """What each completion claims.

    Attributes:
        answers: ``[B][<=K]`` the answers of each completion, in the order given; empty where ill-formed.
        probs: float64 ``[B, K]``, the stated probability of each answer; NaN never occurs, absent slots are 0.
        mask: bool ``[B, K]``, which slots hold an answer.
        has_prob: bool ``[B, K]``, which slots hold a *stated* probability (lenient parsing may find an answer without one).
        other: float64 ``[B]``, mass on "something else" (0 where the format has no such slot).
        wellformed: bool ``[B]``.
        reason: ``[B]`` why a completion is ill-formed, "" where it is well-formed.
        analysis: ``[B]`` the text of the analysis block, "" where there is none.
    """

    answers: list[list[str]]
    probs: Float64
    mask: Bool
    has_prob: Bool
    other: Float64
    wellformed: Bool
    reason: list[str]
    analysis: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def status(self) -> list[str]:
        """``[B]`` "ok" or "unparsed"."""
        return [OK if good else UNPARSED for good in self.wellformed]


@dataclass(frozen=True)
class Outcome:
    """What turned out true.

    Attributes:
        correct: bool ``[B, K]``, whether each answer is credited.
        found: bool ``[B, M]``, whether each reference was named (M padded with False).
        n_golds: int64 ``[B]``, how many references each row has.
        error: ``[B]`` "" or why a row could not be judged; such a row counts as wrong, and says so in its status.
    """

    correct: Bool
    found: Bool
    n_golds: npt.NDArray[np.int64]
    error: list[str]


@dataclass(frozen=True)
class RewardBatch:
    """One scalar per completion for the trainer, and the parts that it is made of.

    Attributes:
        values: float64 ``[B]``, always finite.
        components: named float64 ``[B]`` columns, always finite, the same names whatever the completions say.
        status: ``[B]`` "ok", "unparsed" or "failed:<reason>".
        reason: ``[B]`` the detail behind a status that is not "ok" (why the format was not followed), else "".
    """

    values: Float64
    components: Mapping[str, Float64]
    status: list[str]
    reason: list[str]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[float]:
        return iter(self.values.tolist())


GOLD_KIND_PATHS = ("extra_info.gold_kind", "gold_kind")
"""Where a row of a data set says how its flat list of golds is read; the data builders write it there."""


@dataclass(frozen=True)
class References:
    """The golds of a batch in one shape: ``golds[b][m]`` holds the aliases of the m-th gold of row b."""

    golds: Golds

    def __len__(self) -> int:
        return len(self.golds)

    @classmethod
    def of(
        cls,
        references: Sequence[Any],
        *,
        gold_kind: GoldKind | None = None,
        rows: int | None = None,
        copy: bool = True,
    ) -> References:
        """Reads what people pass as references.

        Args:
            references: One entry per row. A string is one gold. A flat list (tuple, array) of strings is ambiguous, so
                ``gold_kind`` must say what it is: "aliases" (ways to write one gold) or "set" (distinct golds). A list of
                lists is a set of golds with their aliases.
            gold_kind: How to read a flat list; ``None`` reads it as aliases only when it has one element.
            rows: The number of completions, to be equal to the number of references.
            copy: Whether what has the shape already is copied, into tuples; a call that is done with it at once need not.

        Raises:
            InvalidArgumentError: Wrong type or length, or an ambiguous flat list.
            DataError: A row whose gold is empty: no completion could ever be right there.
        """
        if isinstance(references, References):
            if rows is not None and len(references) != rows:
                raise _wrong_length(len(references), rows)
            return references
        if isinstance(references, (str, bytes, Mapping)) or not hasattr(references, "__len__"):
            raise InvalidArgumentError("references", expected="one entry per completion", got=references)
        if gold_kind not in (None, "aliases", "set"):
            raise InvalidArgumentError("gold_kind", expected="'aliases' or 'set'", got=gold_kind)
        if rows is not None and len(references) != rows:
            raise _wrong_length(len(references), rows)
        if gold_kind != "aliases" and _is_nested(references):
            return cls(
                tuple([tuple(map(tuple, row)) for row in references]) if copy else cast(Golds, tuple(references))
            )
        return cls(tuple(_golds(entry, gold_kind, row) for row, entry in enumerate(references)))


def _wrong_length(found: int, rows: int) -> InvalidArgumentError:
    return InvalidArgumentError("references", expected=f"{rows} entries, one per completion", got=f"{found} entries")


def _is_nested(references: Sequence[Any]) -> bool:
    """Whether a batch holds lists of lists of strings with text in them, without a Python step per gold.

    Whatever is amiss is left for the row-by-row reading, which says in which row.
    """
    if not set(map(type, references)) <= {list, tuple}:
        return False
    golds = list(chain.from_iterable(references))
    if not set(map(type, golds)) <= {list, tuple}:
        return False
    try:
        return all(references) and all(golds) and all(map(str.strip, chain.from_iterable(golds)))
    except TypeError:  # an alias that is no string
        return False


def _golds(entry: Any, gold_kind: GoldKind | None, row: int) -> tuple[tuple[str, ...], ...]:
    if isinstance(entry, str):
        golds: tuple[tuple[str, ...], ...] = ((entry,),)
    else:
        if isinstance(entry, np.ndarray):
            entry = entry.tolist()
        if not isinstance(entry, (list, tuple)):
            raise InvalidArgumentError(
                f"references[{row}]", expected="a string, a list of strings or a list of lists", got=entry
            )
        if entry and all(isinstance(alias, str) for alias in entry):
            if gold_kind is None and len(entry) > 1:
                raise InvalidArgumentError(
                    "gold_kind",
                    expected=f"'aliases' or 'set', since references[{row}] is a flat list that could mean either",
                    got=gold_kind,
                )
            golds = tuple((alias,) for alias in entry) if gold_kind == "set" else (tuple(entry),)
        else:
            golds = tuple(_aliases(gold, row) for gold in entry)
            if gold_kind == "aliases" and len(golds) > 1:
                raise InvalidArgumentError(
                    f"references[{row}]", expected="aliases of one gold (gold_kind='aliases')", got="several golds"
                )
    if not golds or not all(golds) or not all(alias.strip() for aliases in golds for alias in aliases):
        raise DataError("a reference with text in it", "an empty reference", row=row)
    return golds


def _aliases(gold: Any, row: int) -> tuple[str, ...]:
    if isinstance(gold, np.ndarray):
        gold = gold.tolist()
    if isinstance(gold, str):
        return (gold,)
    if isinstance(gold, (list, tuple)) and all(isinstance(alias, str) for alias in gold):
        return tuple(gold)
    raise InvalidArgumentError(f"references[{row}]", expected="golds that are strings or lists of strings", got=gold)
