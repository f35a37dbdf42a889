"""``rewardkit score``: the rewards of a file, all or nothing, interrupted and resumed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rewardkit import rewards
from rewardkit.data.files import RowFile, row_writer
from rewardkit.rewards.rlcr import RLCR


def write(path: Path, rows: list[dict]) -> Path:
    with row_writer(path) as writer:
        writer.write({name: [row.get(name) for row in rows] for name in rows[0]})
    return path


def rollouts(n: int = 40) -> list[dict]:
    rows = []
    for i in range(n):
        text = f"<think>…</think><answer>{'Paris' if i % 3 else 'Rome'}</answer><confidence>{i % 11 / 10}</confidence>"
        rows.append({"id": i // 4, "completion": text if i % 7 else "no tags", "answer": "Paris", "extra": [i]})
    return rows


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_rows_come_back_with_their_rewards(tmp_path: Path, cli, name: str) -> None:
    rows = rollouts()
    source, target = write(tmp_path / "in.jsonl", rows), tmp_path / name
    result = cli("score", source, "--reward", "rlcr", "-o", target, "--batch-rows", 16, "--json")
    assert result.code == 0, result
    facts = json.loads(result.out)
    expected = rewards.get("rlcr")([row["completion"] for row in rows], [row["answer"] for row in rows])
    back = RowFile.open(target).read().columns
    np.testing.assert_array_equal(back["reward"], expected.values)
    assert back["reward_status"] == expected.status
    assert back["reward_reason"] == expected.reason
    assert back["extra"] == [row["extra"] for row in rows]
    for component in rewards.get("rlcr").component_names:
        np.testing.assert_array_equal(back[f"reward_{component}"], expected.components[component])
    assert facts["mean"] == pytest.approx(expected.values.mean())
    assert facts["std"] == pytest.approx(expected.values.std())
    assert facts["status"] == {"ok": expected.status.count("ok"), "unparsed": expected.status.count("unparsed")}
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["in.jsonl", name])


def test_parameters_and_a_summary_without_a_file(tmp_path: Path, cli) -> None:
    source = write(tmp_path / "in.parquet", rollouts())
    plain = json.loads(cli("score", source, "-r", "rlcr", "--json").out)
    shifted = json.loads(cli("score", source, "-r", "rlcr", "-p", "margin=0.5", "-p", "matcher=exact", "--json").out)
    assert shifted["min"] == pytest.approx(plain["min"] - 0.4)
    assert "margin=0.5" in shifted["settings"]
    assert "status unparsed" in cli("score", source, "-r", "rlcr").out


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path, cli, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = write(tmp_path / "in.jsonl", rollouts()), tmp_path / "out.jsonl"
    calls: list[int] = []
    original = RLCR.__call__

    def counted(self: RLCR, completions=(), references=(), **columns):
        if len(calls) == 3 and not getattr(counted, "healed", False):
            raise KeyboardInterrupt
        calls.append(len(completions))
        return original(self, completions, references, **columns)

    monkeypatch.setattr(RLCR, "__call__", counted)
    arguments = ("score", source, "-r", "rlcr", "-o", target, "--batch-rows", 10, "--resume")
    stopped = cli(*arguments)
    assert stopped.code == 130
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl.partial"]
    with (tmp_path / "out.jsonl.partial").open("a") as lines:
        lines.write('{"values": [0.1, 0.')  # as a kill in the middle of a line leaves it
    counted.healed = True  # type: ignore[attr-defined]
    again = cli(*arguments)
    assert again.code == 0
    assert "resuming after 3 batches" in again.err
    assert calls == [10, 10, 10, 10]  # the fourth batch alone was left
    fresh = tmp_path / "fresh.jsonl"
    cli("score", source, "-r", "rlcr", "-o", fresh)
    assert target.read_text() == fresh.read_text()
    assert not (tmp_path / "out.jsonl.partial").exists()


def test_kept_scores_of_other_settings_are_not_used(tmp_path: Path, cli) -> None:
    source, target = write(tmp_path / "in.jsonl", rollouts()), tmp_path / "out.jsonl"
    (tmp_path / "out.jsonl.partial").write_text('["another run"]\n{"values": [7.0]}\n')
    result = cli("score", source, "-r", "rlcr", "-o", target, "--resume")
    assert "resuming" not in result.err
    assert max(RowFile.open(target).read().columns["reward"]) <= 2


def test_columns_that_a_reward_needs(tmp_path: Path, cli) -> None:
    text = "<think>t</think><hypotheses><h1>Paris</h1><w1>0.6</w1><other>0.4</other></hypotheses>"
    rows = [{"completion": text, "answer": "Paris", "lp": -2.0}, {"completion": text, "answer": "Rome", "lp": -3.0}]
    source = write(tmp_path / "in.jsonl", rows)
    assert "column 'prior_logprob'" in cli.refuses("score", source, "-r", "hypotheses_backoff")
    result = cli("score", source, "-r", "hypotheses_backoff", "--column", "prior_logprob=lp", "--json")
    assert json.loads(result.out)["used"]["prior_logprob"] == "lp"
    broken = write(tmp_path / "broken.jsonl", [rows[0], rows[1] | {"lp": None}])
    line = cli.refuses("score", broken, "-r", "hypotheses_backoff", "--column", "prior_logprob=lp")
    assert "row 2, column 'lp'" in line


def test_a_column_of_nulls_alone_is_scored_as_beside_others(tmp_path: Path, cli) -> None:
    none = {"completion": "x", "answer": "y", "reference_logprobs": None, "reference_status": "no_answer"}
    some = none | {"reference_logprobs": [-0.5], "reference_status": "ok"}
    alone, both = write(tmp_path / "alone.jsonl", [none]), write(tmp_path / "both.jsonl", [some, none])
    lone = json.loads(cli("score", alone, "-r", "verifree", "--json").out)
    assert lone["status"] == {"unparsed": 1}
    assert lone["mean"] == json.loads(cli("score", both, "-r", "verifree", "--json").out)["min"] == -0.1
    # A batch of them is no other matter than a file of them.
    assert json.loads(cli("score", both, "-r", "verifree", "--batch-rows", 1, "--json").out)["n"] == 2
    priors = write(tmp_path / "priors.jsonl", [{"completion": "x", "answer": "y", "prior_logprob": None}])
    assert "priors.jsonl, row 1, column 'prior_logprob'" in cli.refuses("score", priors, "-r", "hypotheses_backoff")


def test_columns_that_a_reward_reads_where_they_are_there(tmp_path: Path, cli) -> None:
    row = {
        "completion": "x",
        "answer": "y",
        "reference_logprobs": [-0.5],
        "reference_status": "ok",
        "own_logprobs": None,
    }
    source = write(tmp_path / "in.jsonl", [row | {"own_status": "answer_not_closed"}])
    facts = json.loads(cli("score", source, "-r", "darl", "--json").out)
    assert facts["used"]["own_status"] == "own_status"
    assert facts["reasons"] == {"answer_not_closed": 1}
    without = json.loads(cli("score", write(tmp_path / "without.jsonl", [row]), "-r", "darl", "--json").out)
    assert without["reasons"] == {"no_own_logprobs": 1}


@pytest.mark.parametrize("name", ["in.jsonl", "in.parquet"])
def test_a_column_of_booleans_reaches_the_reward(tmp_path: Path, cli, name: str) -> None:
    text = "<think>t</think><answer>Paris</answer>"
    rows = [{"completion": text, "answer": "Paris", "cut": cut} for cut in (True, False)]
    source = write(tmp_path / name, rows)
    result = cli("score", source, "-r", "rlvr", "-p", "format=ta", "--column", "truncated=cut", "--json")
    assert json.loads(result.out)["status"] == {"ok": 1, "unparsed": 1}


@pytest.mark.parametrize("place", ["gold_kind", "extra_info"])
def test_a_rows_own_gold_kind_says_how_its_list_is_read(tmp_path: Path, cli, place: str) -> None:
    text = "<think>t</think><answer1>a</answer1><confidence1>0.5</confidence1><answer2>b</answer2><confidence2>0.5</confidence2>"
    kinds = ["set", "aliases", None]
    rows = [{"completion": text, "answers": ["a", "b"] if kind else "a", "gold_kind": kind} for kind in kinds]
    if place == "extra_info":
        rows = [row | {"extra_info": {"gold_kind": row.pop("gold_kind")}} for row in rows]
    source, target = write(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    arguments = ("score", source, "-r", "multi_rlvr", "-p", "format=multi_noanalysis", "-p", "max_answers=2")
    facts = json.loads(cli(*arguments, "-o", target, "--json").out)
    assert RowFile.open(target).read().columns["reward"] == [2.0, 1.0, 1.0]  # b is a gold of its own in the first alone
    assert facts["used"]["gold_kind"].endswith("gold_kind")
    assert json.loads(cli(*arguments, "--json").out)["mean"] == facts["mean"]
    assert json.loads(cli(*arguments, "--gold-kind", "set", "--json").out)["max"] == 2.0
    bad = write(
        tmp_path / "bad.jsonl", [*rows, {**rows[0], place: "alias" if place == "gold_kind" else {"gold_kind": "alias"}}]
    )
    assert "row 4, column" in cli.refuses(*("score", bad, *arguments[2:]))
    flat = write(
        tmp_path / "flat.jsonl", [{"completion": text, "answers": "a"}, {"completion": text, "answers": ["a", "b"]}]
    )
    assert "the reference of row 2" in cli.refuses(*("score", flat, *arguments[2:]))


@pytest.mark.parametrize(
    ("row", "arguments", "parts"),
    [
        ({"completion": "x", "answer": "y"}, ["-r", "rlrc"], ["unknown reward 'rlrc'", "Did you mean 'rl"]),
        ({"completion": "x", "answer": "y"}, ["-r", "rlcr", "-p", "margin=-1"], ["margin", "got -1"]),
        ({"completion": "x", "answer": "y"}, ["-r", "rlcr", "-p", "margn=1"], ["margn"]),
        ({"completion": "x", "answer": "y"}, ["-r", "rlcr", "-p", "margin"], ["--param", "NAME=VALUE"]),
        ({"completion": "x"}, ["-r", "rlcr"], ["in.jsonl", "a column of references", "--references"]),
        ({"text0": "x", "answer": "y"}, ["-r", "rlcr"], ["in.jsonl", "a column of completion", "text0"]),
        ({"completion": "x", "answer": " "}, ["-r", "rlcr"], ["in.jsonl, row 1, column 'answer'", "empty reference"]),
        ({"completion": "x", "answer": {"a": 1}}, ["-r", "rlcr"], ["in.jsonl, row 1, column 'answer'"]),
        ({"completion": 3, "answer": "y"}, ["-r", "rlcr"], ["in.jsonl, row 1, column 'completion'", "a number 3"]),
        ({"completion": "x", "answer": "y", "reward": 1}, ["-r", "rlcr"], ["--prefix", "reward"]),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    tmp_path: Path, cli, row: dict, arguments: list, parts: list
) -> None:
    source, target = write(tmp_path / "in.jsonl", [row]), tmp_path / "out.jsonl"
    line = cli.refuses("score", source, "-o", target, *arguments)
    for part in parts:
        assert part in line
    assert [p.name for p in tmp_path.iterdir()] == ["in.jsonl"]


def test_text_never_stops_scoring(tmp_path: Path, cli) -> None:
    hostile = ["", "\x00", "\ud800", "<answer>" * 20_000, "x" * 10**6, "<answer>1</answer><confidence>nan</confidence>"]
    source = write(tmp_path / "in.jsonl", [{"completion": text, "answer": "Paris"} for text in hostile])
    for target in (tmp_path / "o.jsonl", tmp_path / "o.parquet"):
        assert cli("score", source, "-r", "rlcr", "-o", target).code == 0
        assert np.isfinite(RowFile.open(target).read().columns["reward"]).all()
