from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from rewardkit.data import mbpp as module
from rewardkit.data.build import build
from rewardkit.data.mbpp import PassesTests, Tests, extract_code, mbpp, run_tests, verify
from rewardkit.data.records import read_records
from rewardkit.data.sandbox import Limits
from rewardkit.data.schema import MalformedRecordError
from rewardkit.errors import DataError, InvalidArgumentError


def record(**changes: Any) -> dict[str, Any]:
    return {
        "task_id": 11,
        "text": "Write a function to double a number.",
        "code": "def double(x):\r\n    return 2 * x",
        "test_list": ["assert double(2) == 4", "assert double(math.pi) == 2 * math.pi", "assert double(-1) == -2"],
        "test_setup_code": "import math",
        **changes,
    }


def test_the_gold_is_the_tests() -> None:
    example = mbpp(record())
    tests = Tests.from_json(str(example.gold))
    assert tests.asserts == tuple(record()["test_list"])
    assert tests.setup == "import math"
    assert "assert double(2) == 4" in example.question
    assert "double(-1)" not in example.question
    assert "double(-1)" in mbpp(record(), show_tests=None).question


def test_the_sanitized_release_reads_alike() -> None:
    sanitized = record(prompt=record()["text"], test_imports=["import math"])
    del sanitized["text"], sanitized["test_setup_code"]
    assert mbpp(sanitized).gold == mbpp(record()).gold
    assert mbpp(sanitized).question == mbpp(record()).question


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"text": None}, "task"),
        ({"test_list": []}, "tests"),
        ({"test_list": ["assert ("]}, "Python"),
        ({"test_list": [1]}, "tests"),
        ({"task_id": "x"}, "task_id"),
        ({"task_id": 1.5}, "task_id"),
        ({"task_id": True}, "task_id"),
        ({"task_id": 10**30}, "task_id"),
        ({"test_setup_code": 5}, "test_setup_code"),
        ({"test_setup_code": None, "test_imports": 5}, "test_imports"),
        ({"test_setup_code": None, "test_imports": ["import math", 5]}, "test_imports"),
        ({"code": ["x = 1"]}, "code"),
    ],
)
def test_malformed_records(change: dict[str, Any], match: str) -> None:
    with pytest.raises(MalformedRecordError, match=match):
        mbpp(record(**change))


def test_a_number_in_text_or_none_at_all_is_fine() -> None:
    assert mbpp(record(task_id="11")).extra["task_id"] == 11
    assert mbpp(record(task_id=None)).extra["task_id"] == -1


def test_a_bad_record_does_not_end_a_build(tmp_path: Path) -> None:
    records = [record(), record(task_id="x"), record(test_setup_code=5), record(task_id=12)]
    report = build(records, mbpp, tmp_path / "out.parquet", layout=module.LAYOUT)
    assert (report.kept, sum(report.dropped.values())) == (2, 2)


def test_show_tests_is_checked() -> None:
    for show_tests in (0, 1.5, "1", True):
        with pytest.raises(InvalidArgumentError, match="show_tests"):
            mbpp(record(), show_tests=show_tests)  # type: ignore[arg-type]


def test_building_runs_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("code was run")

    monkeypatch.setattr(module.sandbox, "run", refuse)
    mbpp(record(code="raise SystemExit"))


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("x = 1", "x = 1"),
        ("```python\nx = 1\n```", "x = 1"),
        ("Here:\n```py\nx = 1\n```\nand\n```\ny = 2\n```", "x = 1"),
        ("```\n    x = 1\n", "    x = 1"),
        ("`" * 100_000, "`" * 100_000),
    ],
)
def test_extract_code(answer: str, code: str) -> None:
    assert extract_code(answer) == code


@pytest.mark.parametrize(
    ("answer", "passes"),
    [
        ("def double(x):\n    return x + x", True),
        ("```python\ndef double(x):\n    return x + x\n```", True),
        ("def double(x):\n    return x ** 2", False),
        ("import sys; sys.exit(0)", False),
        ("", False),
    ],
)
def test_passes_tests(answer: str, passes: bool) -> None:
    matcher = pickle.loads(pickle.dumps(PassesTests(limits=Limits(wall_s=3, cpu_s=1))))
    assert matcher(answer, str(mbpp(record()).gold)) is passes


def test_a_gold_of_another_kind_is_an_error() -> None:
    for gold in ("Paris", "{}", '{"asserts": "x", "setup": ""}', json.dumps([1])):
        with pytest.raises(DataError, match="rewardkit data mbpp"):
            PassesTests()("x = 1", gold)


def test_real_tasks(shared: Path) -> None:
    full = [mbpp(row) for row in read_records(shared / "data/mbpp/mbpp.parquet")]
    clean = [mbpp(row) for row in read_records(shared / "data/mbpp/sanitized-mbpp.parquet")]
    assert (len(full), len(clean)) == (974, 427)
    assert len({example.id for example in full}) == 974
    assert verify(clean[:20]) == []
    wrong = run_tests("def nothing(): pass", Tests.from_json(str(clean[0].gold)))
    assert (wrong.status, wrong.passed) == ("failed", False)
