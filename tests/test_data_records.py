from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rewardkit.data import records as records_module
from rewardkit.data.records import read_records
from rewardkit.errors import DataError

ROWS = [{"id": "a", "text": 'Zürich, {["]}'}, {"id": "b", "text": "line\nbreak"}]


def write(path: Path) -> Path:
    text = json.dumps(ROWS)
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    if path.name.endswith(".json.gz"):
        path.write_bytes(gzip.compress(text.encode()))
    elif path.name.endswith(".jsonl.gz"):
        path.write_bytes(gzip.compress(lines.encode()))
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("rows.csv", 'id,text\na,"Zürich, {[""]}"\nb,"line\nbreak"\n')
    elif path.name == "lines.json":
        path.write_text("\n" + lines)
    elif path.suffix == ".json":
        path.write_text("\ufeff " + text.replace("}, {", "} ,\n {"), encoding="utf-8")
    elif path.suffix == ".jsonl":
        path.write_text(lines)
    elif path.suffix == ".csv":
        path.write_text('id,text\na,"Zürich, {[""]}"\nb,"line\nbreak"\n')
    else:
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    return path


@pytest.mark.parametrize(
    "name",
    ["rows.json", "rows.json.gz", "lines.json", "rows.jsonl", "rows.jsonl.gz", "rows.csv", "rows.zip", "rows.parquet"],
)
def test_every_kind_of_file_gives_the_same_records(tmp_path: Path, name: str) -> None:
    assert list(read_records(write(tmp_path / name))) == ROWS


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_a_json_list_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(records_module, "_CHUNK", chunk)
    rows = [{"n": n, "nested": [{"x": "]"}, 1.5e10, None, True]} for n in range(50)]
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(rows))
    assert list(read_records(path)) == rows


def test_an_empty_list_has_no_records(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(" [ ] ")
    assert list(read_records(path)) == []


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("a.json", '[{"a": 1}, {"a": }, {"b": "' + "x" * 100 + '"}]', r"a\.json.*row 2"),
        ("a.json", '[{"a": 1}, {"a": "x', r"a\.json.*row 2.*\]"),
        ("a.json", "[1, 2]", "object"),
        ("a.json", '{"a": 1}\n{"a"\n', "row 2"),
        ("a.csv", "a,b\n1\n", r"a\.csv.*row 2"),
        ("a.yaml", "a: 1", "parquet"),
    ],
)
def test_broken_files_name_the_place(tmp_path: Path, name: str, content: str, match: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(DataError, match=match):
        list(read_records(path))


def test_an_archive_of_several_files_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.csv", "a\n1\n")
        archive.writestr("b.csv", "a\n1\n")
    with pytest.raises(DataError, match="2 files"):
        list(read_records(path))


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    ("text", "row"), [('[{"a": 1},]', 2), ('[{"a": 1},, {"a": 2}]', 2), ("[,]", 1), ('[{"a": 1} {"a": 2}]', 2)]
)
def test_a_json_list_is_separated_by_single_commas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, text: str, row: int
) -> None:
    monkeypatch.setattr(records_module, "_CHUNK", chunk)
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(DataError, match=rf"x\.json, row {row}: expected"):
        list(read_records(path))
