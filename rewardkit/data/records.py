"""Reads the files that data sets are released as, one record at a time and in constant memory."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

from rewardkit.data.files import RowFile, existing_file, is_row_file
from rewardkit.errors import DataError

Record = dict[str, Any]

_BATCH_ROWS = 256
_CHUNK = 1 << 20
_LONGEST_RECORD = 256 << 20


def read_records(path: str | Path) -> Iterator[Record]:
    """Yields the records of a file.

    Args:
        path: JSON Lines, a JSON list, CSV or Parquet, told apart by the name; ``.gz`` and a ``.zip`` with one file in it are
            read as what they hold.

    Raises:
        DataError: The file is not what its name says; file and row are named.
        FileNotFoundError: There is no such file.
    """
    path = existing_file(path)
    if is_row_file(path):
        for batch in RowFile.open(path).batches(batch_rows=_BATCH_ROWS):
            yield from batch.records()
        return
    try:
        with ExitStack() as stack:
            name, stream = _open_text(path, stack)
            if name.endswith((".csv", ".txt")) or "." not in name:
                yield from _csv(stream, path)
            elif name.endswith((".json", ".jsonl")):
                yield from _json(stream, path)
            else:
                raise DataError(
                    ".parquet, .json, .jsonl or .csv (also inside .gz or .zip)", Path(name).suffix, file=str(path)
                )
    except (zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DataError("a whole archive, as the file's name says", str(error), file=str(path)) from error


def _open_text(path: Path, stack: ExitStack) -> tuple[str, TextIO]:
    """The name of what is inside, lower-cased, and a stream of its text."""
    if path.suffix == ".gz":
        return path.stem.lower(), stack.enter_context(gzip.open(path, "rt", encoding="utf-8", newline=""))
    if path.suffix == ".zip":
        archive = stack.enter_context(zipfile.ZipFile(path))
        members = [member for member in archive.namelist() if not member.endswith("/")]
        if len(members) != 1:
            raise DataError("an archive with one file in it", f"{len(members)} files", file=str(path))
        binary = stack.enter_context(archive.open(members[0]))
        return Path(members[0]).name.lower(), io.TextIOWrapper(binary, encoding="utf-8", newline="")
    return path.name.lower(), stack.enter_context(open(path, encoding="utf-8", newline=""))


def _csv(stream: TextIO, path: Path) -> Iterator[Record]:
    csv.field_size_limit(_LONGEST_RECORD)
    reader = csv.DictReader(stream, strict=True)
    try:
        for row, record in enumerate(reader, 2):  # the header is line 1
            if None in record or None in record.values():
                raise DataError(f"{len(reader.fieldnames or ())} columns", "another number", file=str(path), row=row)
            yield record
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError("a CSV file in UTF-8", str(error), file=str(path)) from error


def _json(stream: TextIO, path: Path) -> Iterator[Record]:
    try:
        head = _skip_blank(stream)
        if head == "[":
            yield from _json_list(stream, path)
        elif head:
            yield from _json_lines(stream, head, path)
    except UnicodeDecodeError as error:
        raise DataError("text in UTF-8", str(error), file=str(path)) from error


def _skip_blank(stream: TextIO) -> str:
    """The first character that is not blank, "" at the end."""
    while True:
        character = stream.read(1)
        if not character or not (character.isspace() or character == codecs.BOM_UTF8.decode()):
            return character


def _json_lines(stream: TextIO, head: str, path: Path) -> Iterator[Record]:
    row = 1
    line = head + stream.readline()
    while line:
        if not line.isspace():
            try:
                yield _record(json.loads(line), path, row)
            except (ValueError, RecursionError) as error:
                raise DataError("one JSON object per line", str(error), file=str(path), row=row) from error
        row += 1
        line = stream.readline()


def _json_list(stream: TextIO, path: Path) -> Iterator[Record]:
    """Decodes element by element what stands after the list's bracket."""
    decode = json.JSONDecoder().raw_decode
    buffer, at, row = "", 0, 1
    wants_comma = False
    while True:
        while at < len(buffer) and (buffer[at].isspace() or (buffer[at] == "," and wants_comma)):
            wants_comma = wants_comma and buffer[at] != ","
            at += 1
        # A list ends after an element, or before the first one.
        if at < len(buffer) and buffer[at] == "]" and (wants_comma or row == 1):
            return
        if at < len(buffer) and wants_comma:
            raise DataError("a comma or ] after a record", repr(buffer[at]), file=str(path), row=row)
        found, end, fault = None, 0, "the end of the file"
        if at < len(buffer):
            try:
                found, end = decode(buffer, at)
            except json.JSONDecodeError as error:
                fault = str(error)
                # Of a record that is cut off by the end of the buffer, more has to be read; other faults stay.
                cut_off = error.pos > len(buffer) - 16 or error.msg.startswith("Unterminated string")
                if not cut_off or len(buffer) - at > _LONGEST_RECORD:
                    raise DataError("a JSON list of objects", fault, file=str(path), row=row) from error
            except RecursionError as error:
                raise DataError("a JSON list of objects", "one nested too deep", file=str(path), row=row) from error
        # A number or word that ends where the buffer ends may go on in the next chunk; an object cannot.
        if found is not None and (isinstance(found, dict) or end < len(buffer)):
            yield _record(found, path, row)
            at, row, wants_comma = end, row + 1, True
            continue
        # What is asked for doubles, so that a long record is not decoded over and over again.
        more = stream.read(max(_CHUNK, len(buffer) - at))
        if not more:
            raise DataError("a JSON list that ends with ]", fault, file=str(path), row=row)
        buffer, at = buffer[at:] + more, 0


def _record(value: Any, path: Path, row: int) -> Record:
    if not isinstance(value, dict):
        raise DataError("a JSON object", type(value).__name__, file=str(path), row=row)
    return value
