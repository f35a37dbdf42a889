from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from rewardkit import parsing
from rewardkit.cli import commands  # noqa: F401
from rewardkit.cli.app import app
from rewardkit.data.build import build
from rewardkit.data.generic import generic, layout
from rewardkit.data.hotpotqa import LAYOUT, hotpot_modified
from rewardkit.data.schema import MalformedRecordError, draw
from rewardkit.errors import DataError, InvalidArgumentError

from .test_data_hotpotqa import record


def hotpot_records(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield record(_id=str(number)) if number % 10 else record(_id=str(number), answer="")


def test_verl_schema(tmp_path: Path) -> None:
    out = tmp_path / "train.parquet"
    report = build(
        hotpot_records(50),
        hotpot_modified,
        out,
        layout=LAYOUT,
        instructions="Use tags.",
        split="train",
        count=("gold_removed",),
    )
    assert (report.read, report.kept, dict(report.dropped)) == (50, 45, {"text in 'answer'": 5})
    assert sum(report.counts["gold_removed"].values()) == 45
    rows = pq.read_table(out).to_pylist()
    assert set(rows[0]) == {"data_source", "prompt", "ability", "reward_model", "extra_info"}
    assert [row["extra_info"]["index"] for row in rows] == list(range(45))
    assert rows[0]["prompt"][0] == {"role": "system", "content": "Use tags."}
    assert rows[0]["prompt"][1]["role"] == "user"
    assert rows[0]["reward_model"] == {"style": "rule", "ground_truth": "yes"}
    assert rows[0]["extra_info"]["split"] == "train"


def test_trl_schema(tmp_path: Path) -> None:
    out = tmp_path / "train.parquet"
    build(
        hotpot_records(20),
        hotpot_modified,
        out,
        layout=LAYOUT,
        trainer="trl",
        instructions="Use tags.",
        instructions_role="user",
    )
    row = pq.read_table(out).to_pylist()[0]
    assert [message["role"] for message in row["prompt"]] == ["user"]
    assert row["prompt"][0]["content"].endswith("\n\nUse tags.")
    assert (row["answer"], row["gold_kind"]) == ("yes", "aliases")


def test_the_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    def broken() -> Iterator[dict[str, Any]]:
        yield from hotpot_records(5000)
        raise KeyboardInterrupt

    out = tmp_path / "train.parquet"
    with pytest.raises(KeyboardInterrupt):
        build(broken(), hotpot_modified, out, layout=LAYOUT)
    with pytest.raises(DataError, match=r"none of 1.*'answer'"):
        build([record(answer="")], hotpot_modified, out, layout=LAYOUT)
    with pytest.raises(MalformedRecordError):
        build(hotpot_records(20), hotpot_modified, out, layout=LAYOUT, on_malformed="raise")
    with pytest.raises(DataError, match=r"\.parquet"):
        build(hotpot_records(5), hotpot_modified, tmp_path / "out.csv", layout=LAYOUT)
    assert list(tmp_path.iterdir()) == []


def test_limit_and_length(tmp_path: Path) -> None:
    out = tmp_path / "train.parquet"
    assert build(hotpot_records(5000), hotpot_modified, out, layout=LAYOUT, limit=1500).kept == 1500
    long = [record(_id="1"), record(_id="2", question="long? " * 2000)]
    report = build(long, hotpot_modified, out, layout=LAYOUT, max_chars=6000)
    assert (report.kept, report.examples) == (1, {"a question of at most 6000 characters": ["2"]})


def test_half_a_surrogate_pair_is_malformed(tmp_path: Path) -> None:
    out = tmp_path / "train.parquet"
    records = [record(_id="1"), record(_id="2", question="what \ud800?")]
    assert build(records, hotpot_modified, out, layout=LAYOUT).dropped == {"Unicode text": 1}


def test_memory_does_not_grow_with_the_records(tmp_path: Path) -> None:
    def peak(count: int) -> int:
        tracemalloc.start()
        build(hotpot_records(count), hotpot_modified, tmp_path / "out.parquet", layout=LAYOUT)
        _, top = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return top

    peak(100)
    assert peak(8000) < 1.5 * peak(2000)


def test_draw_depends_on_the_key_alone() -> None:
    assert draw("id", 0, "x") == 0xC8E5F149DAFE40FF  # the draw of released data sets: never to change
    assert draw("ab", "c") != draw("a", "bc")
    assert len({draw(n) for n in range(1000)}) == 1000
    assert abs(sum(draw(n) % 3 == 0 for n in range(3000)) - 1000) < 110


@pytest.mark.parametrize(
    ("answer", "kind", "gold", "read_as"),
    [
        ("Paris", None, "Paris", "aliases"),
        (42, None, "42", "aliases"),
        (["Paris", "paris"], "aliases", ["Paris", "paris"], "aliases"),
        (["a", "b"], "set", ["a", "b"], "set"),
        ([["a", "A"], "b"], None, [["a", "A"], ["b"]], "set"),
        (["one"], None, ["one"], "aliases"),
    ],
)
def test_generic_golds(answer: Any, kind: Any, gold: Any, read_as: str) -> None:
    example = generic({"question": "q?", "answer": answer}, gold_kind=kind)
    assert (example.gold, example.gold_kind) == (gold, read_as)


@pytest.mark.parametrize("answer", ["", None, [], [""], [None], {"a": 1}, True, float("nan"), float("inf")])
def test_generic_refuses_empty_golds(answer: Any) -> None:
    with pytest.raises(MalformedRecordError, match="gold"):
        generic({"question": "q?", "answer": answer})


def test_generic_calls_are_checked() -> None:
    with pytest.raises(InvalidArgumentError, match="gold_kind"):
        generic({"question": "q?", "answer": ["a", "b"]})
    with pytest.raises(InvalidArgumentError, match="column"):
        generic({"q": "q?", "answer": "a"})
    with pytest.raises(InvalidArgumentError, match="gold_kind"):
        generic({"question": "q?", "answer": "a"}, gold_kind="foo")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="shape"):
        generic({"question": "q?", "answer": "a"}, shape="list")  # type: ignore[arg-type]
    with pytest.raises(MalformedRecordError, match="one gold"):
        generic({"question": "q?", "answer": [["a"], ["b"]]}, gold_kind="aliases")


def test_generic_layout_has_one_type(tmp_path: Path) -> None:
    records = [{"question": "q?", "answer": ["a"]}, {"question": "r?", "answer": "b"}]
    out = tmp_path / "out.parquet"
    build(records, lambda r: generic(r, gold_kind="set", shape="strings"), out, layout=layout("strings"))
    assert pq.read_table(out).column("reward_model").to_pylist()[1]["ground_truth"] == ["b"]


def invoke(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def test_command_writes_the_prompt_of_the_format(tmp_path: Path) -> None:
    source = tmp_path / "in.json"
    source.write_text(json.dumps(list(hotpot_records(30))))
    out = tmp_path / "out.parquet"
    result = invoke("data", "hotpotqa", source, "-o", out, "--format", "multi", "-k", 4, "--choice", "1,2", "--json")
    facts = json.loads(result.stdout)
    assert (facts["kept"], set(facts["counts"]["gold_removed"])) == (27, {"1", "2"})
    rows = pq.read_table(out).to_pylist()
    assert rows[0]["prompt"][0]["content"] == parsing.prompt("multi", max_answers=4)
    assert "<answer4>" in rows[0]["prompt"][0]["content"]
    for row in rows:
        for tag in parsing.tags("multi", 4):
            assert tag not in row["prompt"][1]["content"]


def test_command_generic_by_column_names(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("q,a,n\nWho?,Ada,1\nWhere?,,2\n")
    out = tmp_path / "out.parquet"
    result = invoke(
        "data", "generic", source, "-o", out, "--question", "q", "--answer", "a", "--id", "n", "--trainer", "trl"
    )
    assert result.exit_code == 0, result.output
    assert "dropped" in result.stdout
    row = pq.read_table(out).to_pylist()[0]
    assert (row["answer"], row["id"], row["data_source"]) == ("Ada", "1", "in")
    with pytest.raises(DataError, match="'x'"):
        invoke("data", "generic", source, "-o", out, "--question", "x")


def test_command_on_all_three_real_sets(shared: Path, tmp_path: Path) -> None:
    for name, source, kept in (
        ("hotpotqa", "hotpotqa/distractor.parquet", 987),
        ("ddxplus", "ddxplus/test_patients_slice.parquet", 2611),
        ("mbpp", "mbpp/sanitized-mbpp.parquet", 427),
    ):
        out = tmp_path / f"{name}.parquet"
        result = invoke("data", name, shared / "data" / source, "-o", out, "--json")
        assert json.loads(result.stdout)["kept"] == kept
        table = pq.read_table(out)
        assert table.num_rows == kept
        assert isinstance(table.schema.field("reward_model").type, pa.StructType)
