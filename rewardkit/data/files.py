"""Reading and writing row files (JSON Lines and Parquet), for every command.

Reading streams in batches, so that a file may be larger than memory, and every complaint names the file, the row, the
column, what was expected and what was found. Rows count from 1, as editors count lines (a blank line counts, and is
skipped). Writing goes to a temporary file beside the target, which takes its place only when everything is written.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import math
import os
import re
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from rewardkit.errors import DataError, InvalidArgumentError, UnknownNameError
from rewardkit.parsing import completion_texts
from rewardkit.types import Bool, Float64

PathLike = str | os.PathLike[str]
SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".jsonl.gz": "jsonl", ".parquet": "parquet"}
BATCH_ROWS = 8192


def file_format(path: PathLike) -> str:
    """Which of the known formats a file name stands for: "jsonl" or "parquet".

    Raises:
        DataError: The name ends in none of the known suffixes.
    """
    name = Path(path).name.lower()
    for suffix, kind in SUFFIXES.items():
        if name.endswith(suffix):
            return kind
    raise DataError(f"a file name that ends in {', '.join(SUFFIXES)}", repr(Path(path).name), file=str(path))


def is_row_file(path: PathLike) -> bool:
    """Whether a name is that of a file of rows."""
    return Path(path).name.lower().endswith(tuple(SUFFIXES))


def existing_file(path: PathLike) -> Path:
    """The path, after making sure that a file is there.

    Raises:
        FileNotFoundError: Nothing is.
        DataError: It is a directory.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    if path.is_dir():
        raise DataError("a file", "a directory", file=str(path))
    return path


def read_text(path: PathLike) -> str:
    """The text of a small file, such as a config.

    Raises:
        FileNotFoundError: There is none.
        DataError: It is a directory, or not in UTF-8.
    """
    path = existing_file(path)
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError("UTF-8 text", f"byte {error.start} is not UTF-8", file=str(path)) from error


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of a file, column by column.

    Attributes:
        file: Where they come from.
        rows: The row number of each, from 1.
        columns: name to the values of these rows, as JSON or Parquet gives them; a JSON row without the key has ``None``.
    """

    file: str
    rows: Sequence[int]
    columns: Mapping[str, list[Any]]

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> list[Any]:
        """The raw values of a column.

        Raises:
            DataError: There is no such column; the columns that exist are named.
        """
        if name not in self.columns:
            raise missing_column(self.file, name, self.columns, row=self.rows[0] if len(self.rows) else None)
        return self.columns[name]

    def bad(self, name: str, index: int, expected: str, value: Any = ...) -> DataError:
        """The error for one cell of this batch."""
        found = describe(self.columns[name][index] if value is ... else value)
        return DataError(expected, found, file=self.file, row=self.rows[index], column=name)

    def texts(self, name: str) -> list[str]:
        """A column of texts; a chat ``[{"role", "content"}, …]`` counts as its last message.

        Raises:
            DataError: A value is neither.
        """
        values = self.column(name)
        if all(type(value) is str for value in values):
            return values
        result = []
        for index, value in enumerate(values):
            try:
                result += completion_texts([value])
            except InvalidArgumentError:
                raise self.bad(name, index, "a string or a chat [{'role': …, 'content': …}, …]") from None
        return result

    def numbers(self, name: str, *, low: float = -math.inf, high: float = math.inf, optional: bool = False) -> Float64:
        """A column of numbers, float64 ``[rows]``.

        Args:
            name: The column.
            low: Smallest value allowed.
            high: Largest value allowed.
            optional: Whether ``null`` may stand in for a number; it becomes NaN.

        Raises:
            DataError: A value is not a number, is NaN, or lies outside the range.
        """
        values = self.column(name)
        span = "" if (low, high) == (-math.inf, math.inf) else f" in [{low:g}, {high:g}]"
        expected = f"a number{span}" + (" or null" if optional else "")
        result = np.empty(len(values))
        for index, value in enumerate(values):
            if value is None and optional:
                result[index] = math.nan
            elif isinstance(value, (int, float, np.number)) and not isinstance(value, (bool, np.bool_)):
                if not low <= value <= high:
                    raise self.bad(name, index, expected)
                result[index] = value
            else:
                raise self.bad(name, index, expected)
        return result

    def labels(self, name: str) -> Bool:
        """A column of right/wrong: booleans, or the numbers 0 and 1. bool ``[rows]``.

        Raises:
            DataError: A value is anything else.
        """
        values = self.column(name)
        for index, value in enumerate(values):
            if not isinstance(value, (bool, int, float, np.bool_, np.number)) or value not in (0, 1):
                raise self.bad(name, index, "true, false, 1 or 0")
        return np.fromiter((bool(value) for value in values), dtype=bool, count=len(values))

    def keys(self, name: str) -> list[str]:
        """A column to group by: strings, numbers, booleans or null, as text."""
        result = []
        for index, value in enumerate(self.column(name)):
            if isinstance(value, (list, dict)):
                raise self.bad(name, index, "a value to group by (a string, a number, true, false or null)")
            result.append("null" if value is None else value if isinstance(value, str) else str(value))
        return result

    def records(self) -> Iterator[dict[str, Any]]:
        """The batch row by row."""
        names = list(self.columns)
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(names, values, strict=True))


@dataclass(frozen=True)
class RowFile:
    """A file of rows that has been opened once to see its columns; nothing is held open.

    Attributes:
        path: The file.
        format: "jsonl" or "parquet".
        columns: The columns: of the schema for Parquet, of the first row for JSON Lines.
        n_rows: How many rows, ``None`` where only reading it all would tell.
    """

    path: Path
    format: str
    columns: tuple[str, ...]
    n_rows: int | None

    @classmethod
    def open(cls, path: PathLike) -> RowFile:
        """Looks at a file.

        Raises:
            FileNotFoundError: There is none.
            DataError: It is empty, or not what its name says.
        """
        path = existing_file(path)
        kind = file_format(path)
        if kind == "parquet":
            with _parquet(path) as parquet:
                n_rows, columns = parquet.metadata.num_rows, tuple(parquet.schema_arrow.names)
            if n_rows == 0:
                raise DataError("at least one row", "a Parquet file without rows", file=str(path))
            return cls(path, kind, columns, n_rows)
        for _, record in _json_rows(path):
            return cls(path, kind, tuple(record), None)
        raise DataError("at least one row", "an empty file", file=str(path))

    def require(self, *names: str) -> None:
        """Makes sure that columns exist before any work is done.

        Raises:
            DataError: One is missing.
        """
        for name in names:
            field = self.format == "parquet" and name.partition(".")[0] in self.columns
            if name not in self.columns and not field:
                raise missing_column(str(self.path), name, self.columns, row=1 if self.format == "jsonl" else None)

    def batches(self, columns: Sequence[str] | None = None, *, batch_rows: int = BATCH_ROWS) -> Iterator[Batch]:
        """The rows in order.

        Args:
            columns: Which columns to read (Parquet reads no others, and of ``column.field`` that field of the column alone);
                ``None`` reads all. For JSON Lines, columns that a row lacks are ``None`` there if the first row has them, and an
                error otherwise.
            batch_rows: At most so many rows at a time.

        Raises:
            DataError: A row that cannot be read.
        """
        if columns is not None:
            self.require(*columns)
        if self.format == "parquet":
            yield from self._parquet_batches(columns, batch_rows)
        else:
            yield from self._json_batches(columns, batch_rows)

    def _parquet_batches(self, columns: Sequence[str] | None, batch_rows: int) -> Iterator[Batch]:
        import pyarrow as pa

        first = 1
        with _parquet(self.path) as parquet:
            try:
                for part in parquet.iter_batches(
                    batch_size=batch_rows, columns=None if columns is None else list(columns)
                ):
                    values = {name: part.column(i).to_pylist() for i, name in enumerate(part.schema.names)}
                    yield Batch(str(self.path), range(first, first + part.num_rows), values)
                    first += part.num_rows
            except (pa.ArrowException, OSError) as error:
                raise DataError(
                    "readable Parquet data", str(error).split("\n")[0], file=str(self.path), row=first
                ) from error

    def _json_batches(self, columns: Sequence[str] | None, batch_rows: int) -> Iterator[Batch]:
        names = list(self.columns if columns is None else columns)
        fixed = columns is not None
        rows: list[int] = []
        records: list[dict[str, Any]] = []
        for row, record in _json_rows(self.path):
            if not fixed and not record.keys() <= set(names):
                names += [key for key in record if key not in names]
            rows.append(row)
            records.append(record)
            if len(rows) == batch_rows:
                yield Batch(str(self.path), rows, {name: [r.get(name) for r in records] for name in names})
                rows, records = [], []
        if rows:
            yield Batch(str(self.path), rows, {name: [r.get(name) for r in records] for name in names})

    def read(self, columns: Sequence[str] | None = None) -> Batch:
        """All rows as one batch, for files that fit in memory."""
        parts = list(self.batches(columns))
        names = list(dict.fromkeys(name for part in parts for name in part.columns))
        merged: dict[str, list[Any]] = {name: [] for name in names}
        rows: list[int] = []
        for part in parts:
            rows.extend(part.rows)
            for name in names:
                merged[name].extend(part.columns.get(name) or [None] * len(part))
        return Batch(str(self.path), rows, merged)


def missing_column(file: str, name: str, columns: Iterable[str], *, row: int | None = None) -> DataError:
    """The error for a column that a file lacks; a near miss is named first."""
    hint = str(UnknownNameError("column", name, columns)) if columns else "no columns"
    near = re.search(r"Did you mean .*?\?", hint)
    found = ("" if near is None else near.group() + " ") + f"columns {', '.join(sorted(columns)) or '(none)'}"
    return DataError(f"a column {name!r}", found, file=file, row=row, column=name)


def expand(paths: Iterable[PathLike]) -> list[Path]:
    """Files as given; a directory stands for its row files, in numeric order of their names (``2.jsonl`` before ``10.jsonl``).

    Raises:
        FileNotFoundError: A path does not exist.
        DataError: A directory without row files.
    """
    result: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = _row_files(path)
            if not inside:
                raise DataError(f"files that end in {', '.join(SUFFIXES)}", "none in this directory", file=str(path))
            result += sorted(inside, key=_natural)
        elif path.exists():
            result.append(path)
        else:
            raise FileNotFoundError(f"{path}: no such file")
    return result


def describe(value: Any) -> str:
    """What a bad value is, short enough for one line."""
    if value is None:
        return "null"
    kind = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    text = repr(value).replace("\n", " ")
    text = text if len(text) <= 60 else text[:59] + "…"
    return f"{kind.get(type(value), type(value).__name__)} {text}"


def check_output(output: PathLike | None, inputs: Iterable[PathLike] = (), *, option: str = "--out") -> None:
    """Makes sure, before any work, that a file can be written, and that none of the files it is made from is lost to it.

    Args:
        output: The file to be written; ``None`` where none is asked for.
        inputs: The files that are read; a directory stands for its row files.
        option: What the output was named with.

    Raises:
        InvalidArgumentError: The output is one of the inputs.
        FileNotFoundError: Its directory does not exist.
        DataError: It is a directory, or its directory cannot be written to.
    """
    if output is None:
        return
    target = Path(output)
    _temporary(target).unlink()
    for path in map(Path, inputs):
        held = _row_files(path) if path.is_dir() else [path]
        joins = path.is_dir() and is_row_file(target) and target.parent.samefile(path)
        if joins or (target.exists() and any(one.exists() and one.samefile(target) for one in held)):
            raise InvalidArgumentError(option, expected="another file than the input", got=str(output))


def _row_files(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if path.is_file() and is_row_file(path)]


def _temporary(target: Path) -> Path:
    """A new empty file beside the target."""
    if target.exists() and not target.is_file():  # replacing a device such as /dev/null would break the machine
        found = "a directory" if target.is_dir() else "a device or a pipe (results go to stdout without it)"
        raise DataError("a file to write to", found, file=str(target))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target.parent}: no such directory to write {target.name} into")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".tmp", dir=target.parent)
    except OSError as error:
        raise DataError(
            f"a directory to write {target.name} into",
            f"one that cannot be written to ({error.strerror})",
            file=str(target.parent),
        ) from error
    os.close(handle)
    return Path(name)


@contextlib.contextmanager
def atomic_path(path: PathLike) -> Iterator[Path]:
    """A temporary path beside ``path`` to write to; it becomes ``path`` on success and vanishes on any failure.

    Raises:
        FileNotFoundError: The directory does not exist.
        DataError: The path is a directory, or its directory cannot be written to.
    """
    target = Path(path)
    temporary = _temporary(target)
    try:
        yield temporary
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
        temporary.chmod(mode)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: PathLike, text: str) -> None:
    """Writes a text file whole or not at all (UTF-8; lone surrogates become escapes)."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(text.encode("utf-8", "backslashreplace"))


class RowWriter:
    """Writes rows column by column; make one with :func:`row_writer`."""

    def __init__(self, path: Path, kind: str, gzipped: bool):
        self._path, self._kind = path, kind
        self._parquet: Any = None
        self._lines: IO[str] | None = None
        if kind == "jsonl":
            binary: Any = gzip.GzipFile(path, "wb") if gzipped else path.open("wb")
            self._lines = io.TextIOWrapper(binary, encoding="utf-8", newline="\n")
        self.n_rows = 0

    def write(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Appends rows: name to the values of a column, all of one length.

        Raises:
            DataError: The values do not fit the types of the rows before (Parquet).
        """
        values = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in columns.items()}
        if self._lines is not None:
            names = list(values)
            encode = json.JSONEncoder(ensure_ascii=True, default=_plain).encode
            for row in zip(*values.values(), strict=True):
                self._lines.write(encode(dict(zip(names, row, strict=True))) + "\n")
        else:
            self._write_parquet(values)
        self.n_rows += len(next(iter(values.values()), ()))

    def _write_parquet(self, values: Mapping[str, Sequence[Any]]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            clean = {name: [_without_surrogates(v) for v in column] for name, column in values.items()}
            if self._parquet is None:
                table = pa.table(clean)
                # A first batch of nulls says nothing about the type; text holds whatever comes later.
                fields = [pa.field(f.name, pa.string()) if pa.types.is_null(f.type) else f for f in table.schema]
                self._parquet = pq.ParquetWriter(self._path, pa.schema(fields), compression="zstd")
            self._parquet.write_table(pa.table(clean, schema=self._parquet.schema))
        except (pa.ArrowException, TypeError) as error:
            raise DataError(
                "rows whose columns keep one type",
                str(error).split("\n")[0],
                file=str(self._path),
                row=self.n_rows + 1,
            ) from error

    def close(self) -> None:
        """Finishes the file."""
        if self._lines is not None:
            self._lines.close()
        if self._parquet is not None:
            self._parquet.close()


@contextlib.contextmanager
def row_writer(path: PathLike) -> Iterator[RowWriter]:
    """Writes JSON Lines or Parquet (by the name) atomically: nothing appears at ``path`` unless the block succeeds."""
    kind = file_format(path)
    with atomic_path(path) as temporary:
        writer = RowWriter(temporary, kind, gzipped=str(path).lower().endswith(".gz"))
        try:
            yield writer
        finally:
            writer.close()


def _json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    gzipped = path.name.lower().endswith(".gz")
    opened: Any = gzip.GzipFile(path, "rb") if gzipped else path.open("rb")
    decode = json.JSONDecoder().decode
    with opened as lines:
        row = 0
        while True:
            row += 1
            try:
                line = lines.readline()
            except (EOFError, zlib.error, OSError) as error:
                raise DataError("a complete gzip file", str(error), file=str(path), row=row) from error
            if not line:
                return
            if not line.strip():
                continue
            try:
                record = decode(line.decode("utf-8-sig" if row == 1 else "utf-8"))
            except UnicodeDecodeError as error:
                raise DataError("UTF-8 text", f"byte {error.start} is not UTF-8", file=str(path), row=row) from error
            except (json.JSONDecodeError, RecursionError) as error:
                found = f"a broken one ({error})" if isinstance(error, json.JSONDecodeError) else "one nested too deep"
                raise DataError("one JSON object per line", found, file=str(path), row=row) from error
            if not isinstance(record, dict):
                raise DataError("one JSON object per line", describe(record), file=str(path), row=row)
            yield row, record


@contextlib.contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.stat().st_size == 0:
        raise DataError("a Parquet file", "an empty file", file=str(path))
    try:
        parquet = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError("a Parquet file", str(error).split("\n")[0], file=str(path)) from error
    with parquet:
        yield parquet


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return str(value)


def _without_surrogates(value: Any) -> Any:
    # Parquet text is UTF-8, which has no lone surrogates; a model's text may.
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_surrogates(item) for key, item in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def _natural(path: Path) -> list[tuple[int, int, str]]:
    parts = re.split(r"([0-9]+)", path.name)
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts if part]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
