"""Streams records through a builder into a Parquet file, and says what was kept and what was not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from rewardkit.data.files import atomic_path
from rewardkit.data.schema import Example, Layout, MalformedRecordError, Role, Trainer, trl_row, verl_row
from rewardkit.errors import DataError

OnMalformed = Literal["drop", "raise"]
_BATCH = 1024
_EXAMPLES_OF_A_REASON = 3


@dataclass
class BuildReport:
    """What became of the records.

    Attributes:
        out: The file that was written.
        read: Records read.
        kept: Rows written.
        flagged: Rows written though malformed, marked as such.
        dropped: Records left out, by reason.
        examples: Some ids or row numbers for each reason.
        counts: For each counted fact, how often each value occurs among the rows.
    """

    out: str
    read: int = 0
    kept: int = 0
    flagged: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    counts: dict[str, Counter[str]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "out": self.out,
            "read": self.read,
            "kept": self.kept,
            "flagged": self.flagged,
            "dropped": dict(self.dropped),
            "examples": self.examples,
            "counts": {name: dict(sorted(counter.items())) for name, counter in self.counts.items()},
        }


def build(
    records: Iterable[dict[str, Any]],
    make: Callable[[dict[str, Any]], Example],
    out: str | Path,
    *,
    layout: Layout,
    trainer: Trainer = "verl",
    instructions: str = "",
    instructions_role: Role = "system",
    split: str = "train",
    limit: int | None = None,
    max_chars: int | None = None,
    on_malformed: OnMalformed = "drop",
    count: tuple[str, ...] = (),
    on_progress: Callable[[BuildReport], None] | None = None,
) -> BuildReport:
    """Writes the examples that ``make`` makes of the records, in their order, in constant memory.

    Args:
        records: The records, read as they are needed.
        make: The builder.
        out: The Parquet file; it appears whole or not at all.
        layout: The builder's layout.
        trainer: "verl" or "trl".
        instructions: How to answer, from :func:`rewardkit.parsing.prompt`.
        instructions_role: Whether the instructions are a system message, or the end of the user's.
        split: Written into each row.
        limit: Stop after this many rows.
        max_chars: Drop examples whose question is longer.
        on_malformed: "drop" (and count), or "raise".
        count: Entries of ``extra`` whose values are counted in the report.
        on_progress: Called after every batch.

    Raises:
        MalformedRecordError: With ``on_malformed="raise"``.
        DataError: Not one row was left, or ``out`` is not a Parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = Path(out)
    if out.suffix != ".parquet":
        raise DataError("a file name that ends in .parquet", repr(out.name), file=str(out))
    report = BuildReport(str(out), counts={name: Counter() for name in count})
    schema = layout.arrow_schema(trainer)
    as_row = verl_row if trainer == "verl" else trl_row
    examples = _examples(records, make, report, on_malformed=on_malformed, max_chars=max_chars)
    with atomic_path(out) as temporary:
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            while batch := list(islice(examples, _BATCH if limit is None else min(_BATCH, limit - report.kept))):
                rows = [
                    as_row(
                        example,
                        instructions=instructions,
                        instructions_role=instructions_role,
                        split=split,
                        index=report.kept + offset,
                    )
                    for offset, example in enumerate(batch)
                ]
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                report.kept += len(batch)
                for example in batch:
                    report.flagged += bool(example.extra.get("malformed"))
                    for name, counter in report.counts.items():
                        counter[str(example.extra[name])] += 1
                if on_progress is not None:
                    on_progress(report)
        if not report.kept:
            reasons = "; ".join(
                f"{reason} ({number} records lack it)" for reason, number in report.dropped.most_common()
            )
            raise DataError(
                "at least one usable record", f"none of {report.read}. Expected of each: {reasons or 'any'}"
            )
    return report


def _examples(
    records: Iterable[dict[str, Any]],
    make: Callable[[dict[str, Any]], Example],
    report: BuildReport,
    *,
    on_malformed: OnMalformed,
    max_chars: int | None,
) -> Iterator[Example]:
    for record in records:
        report.read += 1
        try:
            example = make(record)
            if max_chars is not None and len(example.question) > max_chars:
                raise MalformedRecordError(
                    f"a question of at most {max_chars} characters", str(len(example.question)), record=example.id
                )
            _check_unicode(example)
        except MalformedRecordError as error:
            if on_malformed == "raise":
                raise
            report.dropped[error.reason] += 1
            shown = report.examples.setdefault(error.reason, [])
            if len(shown) < _EXAMPLES_OF_A_REASON:
                shown.append(error.record or f"record {report.read}")
            continue
        yield example


def _check_unicode(example: Example) -> None:
    """JSON can spell half of a surrogate pair, which no file in UTF-8 can hold."""
    for text in (example.question, str(example.gold), str(example.extra)):
        if not text.isascii():
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:
                raise MalformedRecordError("Unicode text", "half of a surrogate pair", record=example.id) from None
