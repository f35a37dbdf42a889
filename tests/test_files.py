"""Reading and writing row files: streams, errors that name the place, and all or nothing."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rewardkit.data.files import Batch, RowFile, atomic_path, check_output, expand, row_writer, write_text
from rewardkit.errors import DataError, InvalidArgumentError

ROWS = [{"text": f"a{i}", "score": i / 10, "good": i % 2 == 0, "tags": ["x"] * (i % 3)} for i in range(10)]


def make(path: Path, rows: list[dict] = ROWS) -> Path:
    with row_writer(path) as writer:
        for first in range(0, len(rows), 4):
            part = rows[first : first + 4]
            writer.write({name: [row[name] for row in part] for name in rows[0]})
    return path


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x.parquet"])
def test_round_trip_in_batches(tmp_path: Path, name: str) -> None:
    rows = RowFile.open(make(tmp_path / name))
    assert rows.columns == ("text", "score", "good", "tags")
    batches = list(rows.batches(batch_rows=3))
    assert [len(batch) for batch in batches] == [3, 3, 3, 1]
    assert [row for batch in batches for row in batch.rows] == list(range(1, 11))
    assert [record for batch in batches for record in batch.records()] == ROWS
    assert list(rows.read(["score"]).columns) == ["score"]
    assert sorted(p.name for p in tmp_path.iterdir()) == [name]


def test_typed_columns_name_the_cell() -> None:
    batch = Batch(
        "f.jsonl",
        [7, 8],
        {
            "text": ["a", 3],
            "chat": [[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "b"],
            "number": [0.5, "0.5"],
            "label": [1, 2],
            "nothing": [None, 0.5],
            "nan": [0.0, float("nan")],
        },
    )
    assert batch.texts("chat") == ["a", "b"]
    assert np.isnan(batch.numbers("nothing", optional=True)).tolist() == [True, False]
    for call, column, row, found in (
        (batch.texts, "text", 8, "a number 3"),
        (batch.numbers, "number", 8, "a string '0.5'"),
        (batch.numbers, "nothing", 7, "null"),
        (batch.numbers, "nan", 8, "nan"),
        (batch.labels, "label", 8, "a number 2"),
        (batch.labels, "nothing", 7, "null"),
    ):
        with pytest.raises(DataError, match=f"f.jsonl, row {row}, column '{column}': expected .*, found .*{found}"):
            call(column)
    with pytest.raises(DataError, match=r"column 'txt'.*Did you mean 'text'"):
        batch.column("txt")


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("a.jsonl", b'{"x": 1}\n\n{"x": 2\n', "row 3: expected one JSON object per line, found a broken one"),
        ("a.jsonl", b'{"x": 1}\n[1]\n', "row 2: expected one JSON object per line, found a list"),
        ("a.jsonl", b'{"x": 1}\n{"x": "\xff"}\n', "row 2: expected UTF-8 text"),
        ("a.jsonl", b'{"x": 1}\n' + b"[" * 100_000 + b"\n", "row 2: expected one JSON object"),
        ("a.jsonl", b"", "expected at least one row, found an empty file"),
        ("a.jsonl", b"\n  \n", "expected at least one row, found an empty file"),
        ("a.parquet", b"", "expected a Parquet file, found an empty file"),
        ("a.parquet", b"PAR1 not really PAR1", "expected a Parquet file"),
        ("a.jsonl.gz", gzip.compress(b'{"x": 1}\n' * 1000)[:-20], "expected a complete gzip file"),
        ("a.csv", b"x\n1\n", "expected a file name that ends in"),
    ],
)
def test_broken_files_name_file_and_row(tmp_path: Path, name: str, content: bytes, place: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        list(RowFile.open(path).batches())
    assert str(caught.value).startswith(str(path))
    assert place in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_byte_order_mark_and_a_missing_newline_are_fine(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"x": 1}\r\n{"x": 2}')
    assert RowFile.open(tmp_path / "a.jsonl").read().columns == {"x": [1, 2]}


def test_keys_that_come_and_go(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n{"x": 2, "y": 3}\n{"y": 4}\n')
    rows = RowFile.open(tmp_path / "a.jsonl")
    assert rows.read().columns == {"x": [1, 2, None], "y": [None, 3, 4]}
    with pytest.raises(DataError, match="row 1, column 'y'"):
        rows.read(["y"])


def test_parquet_without_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="without rows"):
        RowFile.open(tmp_path / "a.parquet")


def test_nothing_is_written_half(tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    target.write_text("before")
    with contextlib.suppress(RuntimeError), row_writer(target) as writer:
        writer.write({"x": [1, 2]})
        raise RuntimeError
    assert target.read_text() == "before"
    with contextlib.suppress(KeyboardInterrupt), atomic_path(tmp_path / "new.txt") as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert [p.name for p in tmp_path.iterdir()] == ["out.jsonl"]
    with pytest.raises(FileNotFoundError, match="no such directory"):
        write_text(tmp_path / "no" / "x.txt", "")


def test_values_that_files_do_not_have(tmp_path: Path) -> None:
    columns = {"x": np.array([1.5, 2.5]), "s": ["\ud800 lone", "fine"], "n": [np.int64(3), None]}
    for name in ("a.jsonl", "a.parquet"):
        with row_writer(tmp_path / name) as writer:
            writer.write(columns)
        back = RowFile.open(tmp_path / name).read().columns
        assert back["x"] == [1.5, 2.5]
        assert back["n"] == [3, None]
        assert back["s"][1] == "fine"
    assert json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])["s"] == "\ud800 lone"


def test_parquet_types_may_not_change(tmp_path: Path) -> None:
    rows = [{"x": 1}] * 4 + [{"x": "one"}]
    with pytest.raises(DataError, match="one type"):
        make(tmp_path / "a.parquet", rows)
    assert not list(tmp_path.iterdir())


def test_a_directory_is_its_files_in_numeric_order(tmp_path: Path) -> None:
    for step in (10, 9, 1):
        make(tmp_path / f"{step}.jsonl")
    (tmp_path / "notes.txt").touch()
    assert [p.name for p in expand([tmp_path])] == ["1.jsonl", "9.jsonl", "10.jsonl"]
    with pytest.raises(FileNotFoundError):
        expand([tmp_path / "absent"])


def test_a_device_or_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    link = tmp_path / "null.jsonl"
    link.symlink_to("/dev/null")
    for target in (pipe, link):
        with pytest.raises(DataError, match="a device or a pipe"):
            write_text(target, "x")
        with pytest.raises(DataError, match="a device or a pipe"):
            check_output(target)
    assert pipe.is_fifo()
    assert link.is_symlink()


def test_outputs_are_compared_with_inputs(tmp_path: Path) -> None:
    first, folder = make(tmp_path / "1.jsonl"), tmp_path / "folder"
    folder.mkdir()
    check_output(None, [first])
    check_output(tmp_path / "2.jsonl", [first, tmp_path / "absent.jsonl"])
    check_output(tmp_path / "table.md", [tmp_path])
    check_output(folder / "1.jsonl", [tmp_path])  # a directory stands for the row files in it, not below it
    for target, source in ((first, first), (first, tmp_path), (tmp_path / "2.jsonl", tmp_path)):
        with pytest.raises(InvalidArgumentError, match="--out: expected another file than the input"):
            check_output(target, [source])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.jsonl", "folder"]
