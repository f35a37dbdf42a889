"""Rollout files as arrays: which column is what, what each completion claims and whether it is right.

A file is read once, in batches; of the text only the answers are kept. Columns are found by their usual names (verl's and TRL's dumps
included) unless they are named; what was used is part of the result, so that nothing is guessed in silence.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np

from rewardkit import matching, parsing, shaping
from rewardkit.data.files import Batch, PathLike, RowFile, missing_column
from rewardkit.errors import DataError, InvalidArgumentError, UnknownNameError
from rewardkit.types import GOLD_KIND_PATHS, Bool, Float64, Forecast, GoldKind, Outcome, References

NONE = "none"
"""As a column's name: do not use such a column, even if there is one."""

USUAL_NAMES: Mapping[str, tuple[str, ...]] = {
    "completion": ("completion", "completions", "response", "responses", "output", "generation", "generated_text"),
    "references": (
        "references",
        "reference",
        "golds",
        "gold",
        "ground_truth",
        "gts",
        "reward_model.ground_truth",
        "answers",
        "answer",
        "target",
        "solution",
    ),
    "label": ("label", "correct", "is_correct", "acc"),
    "confidence": ("confidence",),
    "wellformed": ("wellformed", "conf_format"),
    "prompt": ("prompt_id", "uid", "question_id", "id", "problem", "question", "prompt", "input"),
    "tokens": ("tokens", "n_tokens", "num_tokens", "completion_tokens", "response_length"),
    "prior_logprob": ("prior_logprob",),
    "set_construction": ("set_construction",),
    "source": ("data_source", "source", "dataset"),
}
"""For each role, the column names that are tried in this order."""

_RLCR_MARKS = frozenset({"class_output", "conf_format"})
_ITEM = re.compile(r"^(?P<column>.+?)(?:\[(?P<index>[0-9]+)\]|\.(?P<key>[^.\[\]]+))$", re.DOTALL)

Compat = Literal["auto", "none", "rlcr"]
Missing = Literal["drop", "zero", "half"]
Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Reading:
    """How a rollout file is read.

    Attributes:
        columns: Role (a key of :data:`USUAL_NAMES`) to column. A column may be an item of another (``class_output[1]``,
            ``reward_model.ground_truth``); "none" switches a role off. ``confidence`` may be several, of which the first
            that is not null counts.
        format: A name of :data:`rewardkit.parsing.FORMATS`, "stored" (read no text), or "auto".
        mode: "lenient", "strict" or "rlcr" parsing; ``None`` takes what ``compat`` wants.
        max_answers: K of formats with several answers, the number asked for; ``None`` takes the most that a row gives (up to
            64), and for the strict reading of sets, which wants one number of all rows, the usual number in the first rows.
        matcher: Name of a matcher, where labels are computed.
        matchers: Other matchers for rows of some data sources, by the value of the column ``source``.
        match_mode: "numeric_safe" or "official".
        gold_kind: How a flat list of references is read.
        missing: What a missing confidence counts as; ``None`` takes what ``compat`` wants ("drop", or "zero" for rlcr).
        compat: "rlcr" follows the released RLCR evaluation (linspace edges, missing confidence is 0, a classifier's output
            replaces the confidence); "auto" does so for files that have that code's columns.
    """

    columns: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    format: str = "auto"
    mode: str | None = None
    max_answers: int | None = None
    matcher: str = "exact"
    matchers: Mapping[str, str] = field(default_factory=dict)
    match_mode: str = "numeric_safe"
    gold_kind: GoldKind | None = None
    missing: Missing | None = None
    compat: Compat = "auto"

    def __post_init__(self) -> None:
        for role in self.columns:
            if role not in USUAL_NAMES:
                raise UnknownNameError("role of a column", role, USUAL_NAMES)
        for name, known in (
            ("compat", ("auto", "none", "rlcr")),
            ("missing", (None, "drop", "zero", "half")),
            ("mode", (None, "lenient", "strict", "rlcr")),
            ("match_mode", ("numeric_safe", "official")),
            ("gold_kind", (None, "aliases", "set")),
        ):
            if getattr(self, name) not in known:
                raise UnknownNameError(name, getattr(self, name), [str(k) for k in known if k])
        if self.format not in ("auto", "stored"):
            parsing.get_format(self.format)
        for matcher in (self.matcher, *self.matchers.values()):
            matching.relation(matcher, mode=self.match_mode)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Rollouts:
    """A rollout file as arrays of N rows and K answer slots.

    Equal answers of one row are one answer here, as the matcher has it (in strict reading they make the row ill-formed): the
    first is kept, with the sum of the weights where answers exclude each other (hypotheses), else with the highest confidence.

    Attributes:
        file: Where it was read from.
        kind: "single" (one answer), "set" (several, each with its own confidence) or "hypotheses" (weights and Other).
        used: What was used: role to column, plus format, mode, matcher and where label and confidence came from.
        notes: Sentences a reader should know.
        confidence: float64 ``[N, K]``, NaN where there is none.
        correct: bool ``[N, K]``.
        mask: bool ``[N, K]``, which slots hold an answer.
        other: float64 ``[N]``, weight of Other (hypotheses).
        found: bool ``[N, M]``, which references were named.
        n_golds: int64 ``[N]``; 0 where the references were not read.
        wellformed: bool ``[N]``: the format was followed (and the confidence can be read).
        reason: ``[N]`` why not, "" where it was.
        distinct: int64 ``[N]`` different answers of a row.
        merged: int64 ``[N]`` answers of a row that were merged into an equal one before them.
        answers: ``[N][<=K]`` the answers themselves; empty where no text was read.
        chars: int64 ``[N]`` length of the completion in characters; -1 where no text was read.
        tokens: float64 ``[N]``, NaN where unknown.
        prior_logprob: float64 ``[N]``, NaN where unknown.
        prompt: ``[N]`` the prompt of each row, as text.
        keys: ``[N]`` the values to group by, one tuple per row.
        set_construction: What the file says, or ``None``.
        compat: "none" or "rlcr".
    """

    file: str
    kind: Literal["single", "set", "hypotheses"]
    used: Mapping[str, Any]
    notes: tuple[str, ...]
    confidence: Float64
    correct: Bool
    mask: Bool
    other: Float64
    found: Bool
    n_golds: Any
    wellformed: Bool
    reason: list[str]
    distinct: Any
    merged: Any
    answers: list[list[str]]
    chars: Any
    tokens: Float64
    prior_logprob: Float64
    prompt: list[str]
    keys: list[tuple[str, ...]]
    set_construction: str | None
    compat: str

    def __len__(self) -> int:
        return len(self.reason)


def read_rollouts(
    path: PathLike, reading: Reading | None = None, *, by: Sequence[str] = (), progress: Progress | None = None
) -> Rollouts:
    """Reads, parses and judges a rollout file.

    Args:
        path: JSON Lines or Parquet.
        reading: How; ``None`` detects everything.
        by: Columns to group by.
        progress: Called with rows done and rows in all (``None`` if unknown).

    Raises:
        FileNotFoundError, DataError: The file, a column or a value is not what was expected.
        InvalidArgumentError, UnknownNameError: A setting is wrong.
    """
    rows = RowFile.open(path)
    return _Reader(rows, reading or Reading(), tuple(by)).read(progress)


def join_rollouts(runs: Sequence[Rollouts]) -> Rollouts:
    """Runs of one kind, one after another, as one: the files that a trainer dumps step by step.

    Raises:
        DataError: They are of different kinds (one answer, sets, hypotheses), or read by different conventions.
    """
    first = runs[0]
    if len(runs) == 1:
        return first
    joined: dict[str, Any] = {}
    for run in runs:
        for name in ("kind", "compat", "set_construction"):
            if getattr(run, name) != getattr(first, name):
                raise DataError(
                    f"rollouts like those of {first.file} ({name} {getattr(first, name)!r})",
                    f"{name} {getattr(run, name)!r}",
                    file=run.file,
                )
    for item in fields(Rollouts):
        parts = [getattr(run, item.name) for run in runs]
        if item.name in ("file", "kind", "used", "compat", "set_construction"):
            joined[item.name] = parts[0]
        elif item.name == "notes":
            joined[item.name] = tuple(dict.fromkeys(note for part in parts for note in part))
        elif isinstance(parts[0], list):
            joined[item.name] = [value for part in parts for value in part]
        elif parts[0].ndim == 2:
            joined[item.name] = _stack(parts)
        else:
            joined[item.name] = np.concatenate(parts)
    widest = [run.used["max_answers"] for run in runs if "max_answers" in run.used]
    if widest:  # found in each file of its own
        joined["used"] = {**first.used, "max_answers": max(widest)}
    return Rollouts(**joined)


def _stack(parts: Sequence[Any]) -> Any:
    """Arrays ``[n, K]`` one after another; where K differs, the rest is NaN or False."""
    width = max(part.shape[1] for part in parts)
    empty = math.nan if parts[0].dtype.kind == "f" else False
    return np.concatenate([np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=empty) for part in parts])


@dataclass(frozen=True)
class Column:
    """A column, or an item of each of its values: ``name``, ``name[0]`` or ``name.key``."""

    text: str
    base: str
    item: int | str | None = None

    @classmethod
    def of(cls, text: str, available: Iterable[str]) -> Column | None:
        """The column of that name, or the item it describes; ``None`` when the file has neither."""
        if text in available:
            return cls(text, text)
        found = _ITEM.match(text)
        if found is None or found["column"] not in available:
            return None
        return cls(text, found["column"], found["key"] if found["index"] is None else int(found["index"]))

    def values(self, batch: Batch) -> list[Any]:
        """The values of a batch; null where a value has no such item."""
        values = batch.column(self.base)
        return values if self.item is None else [_item(value, self.item) for value in values]

    def part(self, batch: Batch) -> Batch:
        """The batch with this column under its full name, for the typed readers of :class:`Batch`."""
        return batch if self.item is None else replace(batch, columns={self.text: self.values(batch)})


def find_column(text: str, file: str, available: Sequence[str]) -> Column:
    """A column that was named.

    Raises:
        DataError: The file has none of that name.
    """
    column = Column.of(text, available)
    if column is None:
        raise missing_column(file, text, available)
    return column


class _Reader:
    """One pass over one file."""

    def __init__(self, rows: RowFile, reading: Reading, by: tuple[str, ...]):
        self.rows, self.reading, self.file = rows, reading, str(rows.path)
        self.notes: list[str] = []
        marks = rows.columns
        self.compat = reading.compat
        if reading.compat == "auto":
            self.compat = "rlcr" if set(marks) >= _RLCR_MARKS else "none"
            if self.compat == "rlcr":
                self.notes.append(
                    "columns class_output and conf_format: read as an output of RLCR's released evaluation, by its "
                    "conventions (linspace bin edges, missing confidence counts as 0); --compat none turns this off"
                )
        self.missing = reading.missing or ("zero" if self.compat == "rlcr" else "drop")
        self.by = [find_column(name, self.file, marks) for name in by]
        head = next(iter(rows.batches(batch_rows=64)))
        self.roles: dict[str, list[Column]] = {}
        for role in USUAL_NAMES:
            self.roles[role] = self._columns_of(role, head)
        self._choose_format(head)

    def _columns_of(self, role: str, head: Batch) -> list[Column]:
        wanted = self.reading.columns.get(role)
        if wanted is not None:
            names = [wanted] if isinstance(wanted, str) else list(wanted)
            if names == [NONE]:
                return []
            return [find_column(name, self.file, self.rows.columns) for name in names]
        if role == "confidence" and self.compat == "rlcr":
            found = [Column.of(name, self.rows.columns) for name in ("class_output[1]", "confidence")]
            return [column for column in found if column is not None]
        for name in USUAL_NAMES[role]:
            column = Column.of(name, self.rows.columns)
            if column is not None and _fits(role, column.values(head)):
                return [column]
        return []

    def _unfit(self, role: str) -> Column | None:
        """A column with a usual name of the role whose values are something else."""
        if self.reading.columns.get(role) is not None:
            return None
        columns = (Column.of(name, self.rows.columns) for name in USUAL_NAMES[role])
        return next((column for column in columns if column is not None), None)

    def _choose_format(self, head: Batch) -> None:
        self.format = self.reading.format
        stored = bool(self.roles["label"] and self.roles["confidence"])
        texts: list[str] = []
        if self.roles["completion"] and self.format != "stored":
            texts = self.roles["completion"][0].part(head).texts(self.roles["completion"][0].text)
        if self.format == "auto":
            self.format = _guess_format(texts) or ("stored" if stored else "")
            if not self.format and self.roles["completion"]:
                self.format = "tac"
                self.notes.append("no tags in the first rows: read as format tac")
        if self.format != "stored" and not self.roles["completion"]:
            if column := self._unfit("completion"):
                column.part(head).texts(column.text)  # says which cell is none
            raise DataError(
                "a column of completions (name it with --completion)",
                f"columns {', '.join(self.rows.columns)}",
                file=self.file,
            )
        form = None if self.format == "stored" else parsing.get_format(self.format)
        self.kind: Literal["single", "set", "hypotheses"] = "single"
        if form is not None and form.many:
            self.kind = "hypotheses" if form.name == "hypotheses" else "set"
        self.mode = self.reading.mode or ("rlcr" if self.compat == "rlcr" and self.kind == "single" else "lenient")
        self.max_answers = self.reading.max_answers
        if form is not None and form.many:
            name = next(part.name for part in form.parts if part.role == "answer")
            self.numbered = re.compile(rf"<{re.escape(name)}([0-9]{{1,9}})>")
            if self.max_answers is None and self.mode == "strict" and form.exact:
                self.max_answers = self._usual_number(texts)
        self.given: Counter[int] = Counter()  # answers of a row, and of how many rows
        self.beyond = 0  # rows that give more answers than are read
        if self.kind != "single":
            # A label or a confidence per row says nothing about each of several answers.
            for role in ("label", "confidence"):
                if self.roles[role] and self.reading.columns.get(role):
                    raise InvalidArgumentError(
                        f"--{role}",
                        expected="none, since these completions hold several answers",
                        got=self.roles[role][0].text,
                    )
                self.roles[role] = []
        if not self.roles["label"] and not self.roles["references"]:
            if column := self._unfit("references"):
                references_of(head, column, self.reading.gold_kind)  # says which cell is none
            if column := self._unfit("label"):
                column.part(head).labels(column.text)
            raise DataError(
                "a column of references (--references) or of labels (--label)",
                f"columns {', '.join(self.rows.columns)}",
                file=self.file,
            )
        if self.reading.matchers and not self.roles["source"]:
            raise DataError(
                "a column of data sources (name it with --source)",
                f"columns {', '.join(self.rows.columns)}",
                file=self.file,
            )
        if self.format == "stored" and not stored:
            raise InvalidArgumentError(
                "--format", expected="a format to parse, since label and confidence are not both stored", got="stored"
            )

    def read(self, progress: Progress | None) -> Rollouts:
        needed: list[str] = []
        own = [] if self.reading.gold_kind or self.roles["label"] else gold_kind_columns(self.rows.columns)
        for column in [*self.by, *(c for columns in self.roles.values() for c in columns), *own]:
            if column.base not in needed:
                needed.append(column.base)
        parts, done = [], 0
        for batch in self.rows.batches(needed):
            parts.append(self._batch(batch))
            done += len(batch)
            if progress is not None:
                progress(done, self.rows.n_rows)
        return self._join(parts)

    def _batch(self, batch: Batch) -> dict[str, Any]:
        n = len(batch)
        part: dict[str, Any] = {}
        forecast = None
        part["chars"] = np.full(n, -1, np.int64)
        if self.format != "stored" and self.roles["completion"]:
            column = self.roles["completion"][0]
            texts = column.part(batch).texts(column.text)
            part["chars"] = np.fromiter(map(len, texts), np.int64, n)
            forecast = self._parse(texts)
        elif self.roles["completion"]:
            column = self.roles["completion"][0]
            part["chars"] = np.fromiter(map(len, column.part(batch).texts(column.text)), np.int64, n)
        part["merged"] = np.zeros(n, np.int64)
        if forecast is not None and self.kind != "single":
            forecast, part["merged"] = self._without_duplicates(forecast, batch)
        outcome = None
        if not self.roles["label"]:
            assert forecast is not None
            references = references_of(batch, self.roles["references"][0], self.reading.gold_kind)
            outcome = self._judge(forecast, references, batch)
            if self.kind == "set" and self.mode != "strict":
                forecast, outcome, again = self._credited_once(forecast, outcome, references, batch)
                part["merged"] = part["merged"] + again
        width = 1 if forecast is None else forecast.mask.shape[1]
        part["answers"] = [[]] * n if forecast is None else forecast.answers
        part["mask"] = np.ones((n, 1), bool) if forecast is None else forecast.mask.copy()
        part["other"] = np.zeros(n) if forecast is None else forecast.other
        part["reason"] = [""] * n if forecast is None else list(forecast.reason)
        part["wellformed"] = np.ones(n, bool) if forecast is None else forecast.wellformed.copy()

        stated = np.full((n, width), math.nan)
        if forecast is not None:
            stated = np.where(forecast.has_prob, forecast.probs, math.nan)
            if self.mode == "rlcr":
                part["wellformed"] = forecast.has_prob[:, 0].copy()
        part["confidence"] = self._stored_confidence(batch) if self.roles["confidence"] else stated
        if self.roles["wellformed"]:
            column = self.roles["wellformed"][0]
            part["wellformed"] = column.part(batch).labels(column.text)

        part["found"], part["n_golds"] = np.zeros((n, 1), bool), np.zeros(n, np.int64)
        part["distinct"] = part["mask"].sum(axis=1)
        if outcome is None:
            column = self.roles["label"][0]
            part["correct"] = column.part(batch).labels(column.text)[:, None]
            part["mask"] = np.ones((n, 1), bool)
        else:
            part["correct"], part["found"], part["n_golds"] = outcome.correct, outcome.found, outcome.n_golds
            part["reason"] = [
                why or (f"failed: {error}" if error else "")
                for why, error in zip(part["reason"], outcome.error, strict=True)
            ]
        for role in ("tokens", "prior_logprob"):
            values = np.full(n, math.nan)
            if self.roles[role]:
                column = self.roles[role][0]
                values = column.part(batch).numbers(column.text, optional=True)
            part[role] = values
        column = self.roles["prompt"][0] if self.roles["prompt"] else None
        part["prompt"] = [_text_of(v) for v in column.values(batch)] if column else list(map(str, batch.rows))
        part["keys"] = list(zip(*(c.part(batch).keys(c.text) for c in self.by), strict=True)) if self.by else [()] * n
        built = self.roles["set_construction"]
        part["set_construction"] = set(built[0].part(batch).keys(built[0].text)) if built else set()
        return part

    def _parse(self, texts: list[str]) -> Forecast:
        """What the completions claim; of sets and hypotheses, as many answers as there are unless a number was given."""
        mode: Any = self.mode
        if self.kind == "single":
            return parsing.parse(texts, self.format, mode)
        limit = self.max_answers or parsing.MAX_ANSWERS
        forecast = parsing.parse(texts, self.format, mode, max_answers=limit)
        counts = forecast.mask.sum(axis=1)
        self.given.update(counts.tolist())
        if self.mode != "strict":  # which says of such rows that they are ill-formed
            self.beyond += self._rows_beyond(texts, limit)
        if self.max_answers is None:
            width = max(1, int(counts.max(initial=0)))
            slots = {name: getattr(forecast, name)[:, :width] for name in ("probs", "mask", "has_prob")}
            forecast = replace(forecast, **slots)
        return forecast

    def _rows_beyond(self, texts: list[str], limit: int) -> int:
        """How many completions give more than ``limit`` answers."""
        held = [text for text in texts if any(int(found[1]) > limit for found in self.numbered.finditer(text))]
        if not held:
            return 0
        # The tags may stand in the reasoning, or hold nothing: the parser knows.
        most = parsing.MAX_ANSWERS
        counts = parsing.parse(held, self.format, "lenient", max_answers=most).mask.sum(axis=1)
        return int((counts > limit).sum() if limit < most else (counts == most).sum())

    def _usual_number(self, texts: list[str]) -> int | None:
        """The number of answers that most completions give, the largest among equals; ``None`` where none gives any."""
        counts = parsing.parse(texts, self.format, "lenient", max_answers=parsing.MAX_ANSWERS).mask.sum(axis=1)
        numbers = Counter(counts[counts > 0].tolist())
        return max(numbers, key=lambda number: (numbers[number], number)) if numbers else None

    def _matcher_rows(self, batch: Batch) -> dict[str, list[int]]:
        """The matchers in use, and the rows of each."""
        if not self.reading.matchers:
            return {self.reading.matcher: list(range(len(batch)))}
        source = self.roles["source"][0]
        rows: dict[str, list[int]] = {}
        for row, key in enumerate(source.part(batch).keys(source.text)):
            rows.setdefault(self.reading.matchers.get(key, self.reading.matcher), []).append(row)
        return rows

    def _without_duplicates(self, forecast: Forecast, batch: Batch) -> tuple[Forecast, Any]:
        """Merges equal answers of a row (strict reading: rejects the row), and says how many were merged away."""
        width = forecast.mask.shape[1]
        classes = np.full((len(batch), width), -1, np.int64)
        mode: Any = self.reading.match_mode
        for name, rows in self._matcher_rows(batch).items():
            found = matching.equivalence_classes([forecast.answers[row] for row in rows], matcher=name, mode=mode)
            classes[rows, : found.shape[1]] = found
        before = forecast.mask.sum(axis=1)
        if self.mode == "strict":
            repeated = shaping.has_duplicates(classes)
            forecast = shaping.reject(forecast, repeated, "duplicate_answers")
            answers = [[] if again else row for again, row in zip(repeated, forecast.answers, strict=True)]
            keep = ~repeated[:, None]
            forecast = replace(
                forecast,
                answers=answers,
                probs=forecast.probs * keep,
                mask=forecast.mask & keep,
                has_prob=forecast.has_prob & keep,
                other=forecast.other * keep[:, 0],
            )
            return forecast, np.zeros(len(batch), np.int64)
        exclusive = self.kind == "hypotheses"
        forecast = shaping.merge_duplicates(forecast, classes, probs="sum" if exclusive else "max")
        return forecast, before - forecast.mask.sum(axis=1)

    def _judge(
        self, forecast: Forecast, references: References, batch: Batch, *, every_form: bool | None = None
    ) -> Outcome:
        """Compares with the references, each row by the matcher of its own data source.

        Of hypotheses, every way to write the gold counts, since they are one answer whose weights add up; of a set, each gold
        credits one answer, unless ``every_form`` of it is asked for.
        """
        mode: Any = self.reading.match_mode
        every_form = self.kind == "hypotheses" if every_form is None else every_form
        credit: Any = "independent" if every_form else "distinct"
        if not self.reading.matchers:
            return matching.match(forecast, references, matcher=self.reading.matcher, mode=mode, credit=credit)
        correct = np.zeros(forecast.mask.shape, bool)
        found = np.zeros((len(batch), max(map(len, references.golds))), bool)
        error = [""] * len(batch)
        for name, rows in self._matcher_rows(batch).items():
            golds = References(tuple(references.golds[row] for row in rows))
            answers = [forecast.answers[row] for row in rows]
            part = matching.match(answers, golds, matcher=name, mode=mode, credit=credit)
            correct[rows, : part.correct.shape[1]] = part.correct
            found[rows, : part.found.shape[1]] = part.found
            for row, why in zip(rows, part.error, strict=True):
                error[row] = why
        return Outcome(correct, found, np.array([len(golds) for golds in references.golds], np.int64), error)

    def _credited_once(
        self, forecast: Forecast, outcome: Outcome, references: References, batch: Batch
    ) -> tuple[Forecast, Outcome, Any]:
        """Merges the answers of a set that equal one gold, though not each other ("NYC", "New York City": two aliases of it).

        Else the gold would credit the first of them, and the others would count as wrong.
        """
        every = self._judge(forecast, references, batch, every_form=True).correct
        left_over = every & ~outcome.correct
        classes = np.where(forecast.mask, np.arange(forecast.mask.shape[1]), -1)
        correct = outcome.correct.copy()
        names = {row: name for name, rows in self._matcher_rows(batch).items() for row in rows}
        for row in np.flatnonzero(left_over.any(axis=1)).tolist():  # few rows, if any
            answers = forecast.answers[row]
            mode: Any = self.reading.match_mode
            equal = [  # per gold, which answers it is
                matching.match([answers], References(((gold,),)), matcher=names[row], mode=mode, credit="independent")
                for gold in references.golds[row]
            ]
            same = np.stack([part.correct[0] for part in equal])
            for slot in np.flatnonzero(left_over[row]).tolist():
                # Of a largest matching, every gold of an answer that has none is held by another answer.
                twins = np.flatnonzero(same[same[:, slot]].any(axis=0) & outcome.correct[row, : len(answers)])
                if not len(twins):  # a matcher of somebody's own that answers differently when asked again
                    continue
                joined = np.isin(classes[row], classes[row, [slot, twins[0]]])
                classes[row, joined] = np.flatnonzero(joined)[0]
            firsts = [slot for slot in range(len(answers)) if classes[row, slot] == slot]
            correct[row] = False
            correct[row, : len(firsts)] = [outcome.correct[row, classes[row] == first].any() for first in firsts]
        merged = shaping.merge_duplicates(forecast, classes, probs="max")
        again = forecast.mask.sum(axis=1) - merged.mask.sum(axis=1)
        return merged, replace(outcome, correct=correct), again

    def _stored_confidence(self, batch: Batch) -> Float64:
        result = np.full(len(batch), math.nan)
        for column in self.roles["confidence"]:
            values = column.part(batch).numbers(column.text, optional=True)
            result = np.where(np.isnan(result), values, result)
        return result[:, None]

    def _join(self, parts: list[dict[str, Any]]) -> Rollouts:
        def flat(name: str) -> Any:
            return np.concatenate([part[name] for part in parts])

        def wide(name: str, empty: Any) -> Any:
            width = max(part[name].shape[1] for part in parts)
            padded = [
                np.pad(part[name], ((0, 0), (0, width - part[name].shape[1])), constant_values=empty) for part in parts
            ]
            return np.concatenate(padded)

        confidence = wide("confidence", math.nan)
        correct, mask = wide("correct", False), wide("mask", False)
        if self.missing != "drop":
            fill = 0.0 if self.missing == "zero" else 0.5
            slots = np.zeros(confidence.shape, bool)
            slots[:, 0] = True
            confidence = np.where(np.isnan(confidence) & (mask | slots), fill, confidence)
        used: dict[str, Any] = {
            role: columns[0].text if len(columns) == 1 else [c.text for c in columns]
            for role, columns in self.roles.items()
            if columns
        }
        if not self.reading.matchers:
            used.pop("source", None)
        used["format"] = self.format
        if self.format != "stored":
            used["mode"] = self.mode
        if self.kind != "single":
            used["max_answers"] = self.max_answers or mask.shape[1]
            self._note_answers(used["max_answers"], flat("merged"))
        used["labels"] = "stored" if self.roles["label"] else "matched"
        if not self.roles["label"]:
            used |= {"matcher": self.reading.matcher, "match_mode": self.reading.match_mode}
            if self.reading.matchers:
                used["matchers"] = dict(self.reading.matchers)
            used.pop("label", None)
        else:
            used.pop("references", None)
        used["confidences"] = "stored" if self.roles["confidence"] else "stated"
        used["missing"] = self.missing
        used["compat"] = self.compat
        if not self.roles["prompt"]:
            self.notes.append("no column says which prompt a row belongs to: every row counts as a prompt of its own")
        built = set().union(*(part["set_construction"] for part in parts))
        if len(built) > 1:
            raise DataError(
                "one way of building sets in a file",
                " and ".join(sorted(built)),
                file=self.file,
                column="set_construction",
            )
        return Rollouts(
            file=self.file,
            kind=self.kind,
            used=used,
            notes=tuple(self.notes),
            confidence=confidence,
            correct=correct,
            mask=mask,
            other=flat("other"),
            found=wide("found", False),
            n_golds=flat("n_golds"),
            wellformed=flat("wellformed"),
            reason=[why for part in parts for why in part["reason"]],
            distinct=flat("distinct"),
            merged=flat("merged"),
            answers=[answers for part in parts for answers in part["answers"]],
            chars=flat("chars"),
            tokens=flat("tokens"),
            prior_logprob=flat("prior_logprob"),
            prompt=[prompt for part in parts for prompt in part["prompt"]],
            keys=[key for part in parts for key in part["keys"]],
            set_construction=next(iter(built), None),
            compat=self.compat,
        )

    def _note_answers(self, slots: int, merged: Any) -> None:
        """Says what was done with the answers of sets and hypotheses."""
        if merged.any():
            how = "their weights add up" if self.kind == "hypotheses" else "the highest confidence counts"
            self.notes.append(
                f"equal answers of a row are one answer, {how}: {merged.sum()} merged in {(merged > 0).sum()} rows"
            )
        if self.beyond:
            self.notes.append(f"{self.beyond} rows give more than {slots} answers, of which the first {slots} count")
        numbers = sorted(count for count in self.given if count)
        if self.kind == "set" and self.reading.max_answers is None and (len(numbers) > 1 or self.mode == "strict"):
            seen = ", ".join(f"{number} in {self.given[number]} rows" for number in numbers) or "none can be read"
            taken = "the usual number in the first rows" if self.mode == "strict" else "the most of a row"
            self.notes.append(
                f"answers were read with K = {slots}, {taken} ({seen}); shares of slots (precision, uniqueness) are of K: "
                "-k says how many answers were asked for"
            )


def gold_kind_columns(available: Iterable[str]) -> list[Column]:
    """Where a row says itself how its flat list of golds is read, as the data builders write it."""
    available = tuple(available)
    found = [Column.of(name, available) for name in GOLD_KIND_PATHS]
    return [column for column in found if column is not None]


def references_of(batch: Batch, column: Column, gold_kind: GoldKind | None) -> References:
    """A batch's references; what is wrong with one is said with its file, row and column.

    Args:
        batch: The rows.
        column: The column of references.
        gold_kind: How a flat list is read; where it is None, each row says it in the columns of :func:`gold_kind_columns`.

    Raises:
        DataError: A reference is empty or has the wrong type.
        InvalidArgumentError: A flat list that neither ``gold_kind`` nor its row says how to read.
    """
    values = [_gold(value) for value in column.values(batch)]
    kinds: list[Any] = [gold_kind] * len(values) if gold_kind is not None else _own_gold_kinds(batch)
    golds: list[Any] = [()] * len(values)
    for kind in dict.fromkeys(kinds):
        rows = [row for row, own in enumerate(kinds) if own == kind]
        try:
            read = References.of([values[row] for row in rows], gold_kind=kind)
        except DataError as error:
            number = None if error.row is None else batch.rows[rows[error.row]]
            raise DataError(error.expected, error.found, file=batch.file, row=number, column=column.text) from None
        except InvalidArgumentError as error:
            index = re.search(r"references\[([0-9]+)\]", f"{error.argument} {error.expected}")
            number = batch.rows[rows[int(index[1]) if index else 0]]
            if error.argument == "gold_kind":
                expected = (
                    error.expected.replace(index[0], f"the reference of row {number}") if index else error.expected
                )
                raise InvalidArgumentError("--gold-kind", expected=expected, got=kind) from None
            raise DataError(error.expected, error.got, file=batch.file, row=number, column=column.text) from None
        for row, gold in zip(rows, read.golds, strict=True):
            golds[row] = gold
    return References(tuple(golds))


def _own_gold_kinds(batch: Batch) -> list[Any]:
    kinds: list[Any] = [None] * len(batch)
    for column in gold_kind_columns(batch.columns):
        for index, kind in enumerate(column.values(batch)):
            if kind not in (None, "aliases", "set"):
                raise column.part(batch).bad(column.text, index, "aliases, set or null")
            kinds[index] = kinds[index] or kind
    return kinds


def usual_column(role: str, rows: RowFile, wanted: str | None = None) -> Column:
    """The column of a role: the one that was named, or the first of the usual names that the file has.

    Raises:
        DataError: There is none.
    """
    if wanted is not None:
        return find_column(wanted, str(rows.path), rows.columns)
    for name in USUAL_NAMES[role]:
        column = Column.of(name, rows.columns)
        if column is not None:
            return column
    raise DataError(
        f"a column of {role} (name it with --{role})", f"columns {', '.join(rows.columns)}", file=str(rows.path)
    )


def _guess_format(texts: Sequence[str]) -> str:
    """The format whose tags most of the first completions hold; "" where there are none."""
    marks = (("hypotheses", "<hypotheses>"), ("multi", "<answer1>"), ("tac", "<answer>"), ("final", "Final answer:"))
    counts = {name: sum(mark in text for text in texts) for name, mark in marks}
    counts["final"] += sum("\\boxed{" in text and "Final answer:" not in text for text in texts)
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] * 4 >= max(1, len(texts)) else ""


def _fits(role: str, values: Sequence[Any]) -> bool:
    """Whether the first values of a column with a usual name look like its role; a column that was named is not asked."""
    known = [value for value in values if value is not None]
    if not known:
        return False
    if role in ("label", "wellformed"):
        return all(isinstance(value, (bool, int, float)) and value in (0, 1) for value in values)
    if role in ("confidence", "tokens", "prior_logprob"):
        return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in known)
    if role == "completion":
        return any(isinstance(value, (str, list)) for value in values)  # a bad cell among them is an error, not a hint
    if role == "references":
        return any(isinstance(value, (str, list, int, float)) for value in values)
    return True


def _item(value: Any, item: int | str) -> Any:
    if isinstance(item, str):
        return value.get(item) if isinstance(value, Mapping) else None
    if isinstance(value, (list, tuple)) and item < len(value):
        return value[item]
    return None


def _gold(value: Any) -> Any:
    """Numbers are golds too: 42 is the reference "42"."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return value


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
