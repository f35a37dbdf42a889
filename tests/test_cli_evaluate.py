"""``rewardkit evaluate``: published numbers, every kind of rollout file, and bad input."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rewardkit import metrics
from rewardkit.data.files import row_writer
from rewardkit.data.rollouts import Reading, read_rollouts

PUBLISHED = {
    "accuracy": "accuracy",
    "brier_score": "brier_loss",
    "ece": "ece",
    "auroc": "auroc",
    "confidence level": "mean_confidence",
    "confidence format adherence": "format_adherence",
    "completion length": "completion_length",
}


def write(path: Path, rows: list[dict]) -> Path:
    with row_writer(path) as writer:
        writer.write({name: [row.get(name) for row in rows] for name in rows[0]})
    return path


def completion(answer: str, confidence: object) -> str:
    return f"<think>…</think>\n<answer>{answer}</answer>\n<confidence>{confidence}</confidence>"


def rollouts(n: int = 60, shift: float = 0.0, seed: int = 0) -> list[dict]:
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        q = rng.choice([0.3, 0.6, 0.9])
        answer = "Paris" if rng.random() < q else "Rome"
        stated = min(1.0, round(q + shift, 2))
        rows.append({"id": i, "completion": completion(answer, stated), "answer": "Paris", "method": "ab"[i % 2]})
    return rows


@pytest.mark.parametrize("dataset", ["math-500", "commonsenseqa"])
def test_published_numbers_of_rlcr(shared: Path, cli, dataset: str) -> None:
    published = json.loads((shared / "data/rlcr/published_metrics.json").read_text())["Hotpot-models"][dataset]
    result = cli("evaluate", shared / f"data/rlcr/{dataset}.parquet", "--by", "method", "--json", "--draws", "0")
    assert result.code == 0
    (file,) = json.loads(result.out)["files"]
    assert file["used"]["compat"] == "rlcr"
    assert set(file["groups"]) == set(published)
    for method, expected in published.items():
        for theirs, ours in PUBLISHED.items():
            assert file["groups"][method][ours] == pytest.approx(expected[theirs], abs=1e-12), (method, ours)


def test_stated_confidences_of_rlcr_are_read_from_the_text(shared: Path, cli) -> None:
    path = shared / "data/rlcr/math-500.parquet"
    published = json.loads((shared / "data/rlcr/published_metrics.json").read_text())["Hotpot-models"]["math-500"]
    columns = ["--confidence", "none", "--wellformed", "none"]
    result = cli("evaluate", path, "--by", "method", "--json", "--draws", 0, *columns)
    groups = json.loads(result.out)["files"][0]["groups"]
    for method in ("Base", "RLVR", "RLCR"):  # the other two have their confidence from elsewhere
        for theirs, ours in PUBLISHED.items():
            assert groups[method][ours] == pytest.approx(published[method][theirs], abs=1e-12), (method, ours)


def test_single_answers_with_labels_from_references(tmp_path: Path, cli) -> None:
    rows = rollouts()
    rows[3]["completion"] = "no tags at all"
    rows[5]["completion"] = completion("Paris", "very sure")
    path = write(tmp_path / "x.jsonl", rows)
    (file,) = json.loads(cli("evaluate", path, "--json").out)["files"]
    found = file["groups"]["all"]
    assert found["n"] == 60
    assert file["used"]["labels"] == "matched"
    q = np.array(
        [
            float(row["completion"].split("<confidence>")[1].split("<")[0])
            for i, row in enumerate(rows)
            if i not in (3, 5)
        ]
    )
    y = np.array(["Paris" in row["completion"] for i, row in enumerate(rows) if i not in (3, 5)])
    assert found["ece"] == pytest.approx(float(metrics.ece(confidence=q, correct=y)), abs=1e-12)
    assert found["accuracy"] == pytest.approx((y.sum() + 1) / 60)
    assert found["confidence_missing"] == 2
    assert found["null"]["ece"]["mean"] > 0
    assert found["intervals"]["accuracy"][0] < found["accuracy"] < found["intervals"]["accuracy"][1]
    assert sum(found["status"].values()) == 60
    zero = json.loads(cli("evaluate", path, "--json", "--missing", "zero").out)["files"][0]["groups"]["all"]
    assert zero["confidence_missing"] == 0
    assert zero["mean_confidence"] < found["mean_confidence"]


def test_a_stored_confidence_replaces_the_stated_one_and_invalid_is_counted(tmp_path: Path, cli) -> None:
    rows = [row | {"probe": 0.7 if i else 85.0, "label": i % 2} for i, row in enumerate(rollouts())]
    path = write(tmp_path / "x.parquet", rows)
    result = json.loads(cli("evaluate", path, "--confidence", "probe", "--json").out)["files"][0]
    found = result["groups"]["all"]
    assert result["used"]["confidences"] == "stored"
    assert found["confidence_invalid"] == 1
    assert found["ece"] == pytest.approx(abs(0.7 - 30 / 59))
    assert found["auroc"] is not None


def test_sets(tmp_path: Path, cli) -> None:
    def text(a: str, p: float, b: str, q: float) -> str:
        return (
            f"<think>t</think><answer1>{a}</answer1><confidence1>{p}</confidence1><answer2>{b}</answer2>"
            f"<confidence2>{q}</confidence2><analysis>z</analysis>"
        )

    rows = [
        {"id": 1, "response": text("flu", 0.6, "cold", 0.3), "golds": ["flu"]},
        {"id": 2, "response": text("gout", 0.2, "cold", 0.5), "golds": ["cold"]},
        {"id": 3, "response": text("gout", 0.2, "gout", 0.1), "golds": ["flu"]},
    ]
    path = write(tmp_path / "x.jsonl", rows)
    (file,) = json.loads(cli("evaluate", path, "--json", "-k", 2).out)["files"]
    found = file["groups"]["all"]
    assert file["kind"] == "set"
    assert found["set_accuracy"] == pytest.approx(2 / 3)
    assert found["pass@1_first"] == pytest.approx(1 / 3)
    assert found["pass@1_max_conf"] == found["accuracy"] == pytest.approx(2 / 3)
    assert found["precision"] == pytest.approx(1 / 3)
    assert found["uniqueness"] == pytest.approx(5 / 6)
    assert found["set_brier"] == pytest.approx(
        np.mean([(0.16 + 0.09) / 2, (0.04 + 0.25) / 2, 0.04])
    )  # gout named twice
    assert (found["merged_rows"], found["merged_answers"]) == (1, 1)
    assert "label" in cli.refuses("evaluate", path, "--label", "id")


def test_hypotheses(tmp_path: Path, cli) -> None:
    def text(weights: list[tuple[str, float]], other: float) -> str:
        listed = "".join(f"<h{i}>{h}</h{i}><w{i}>{w}</w{i}>" for i, (h, w) in enumerate(weights, 1))
        return f"<think>t</think><hypotheses>{listed}<other>{other}</other></hypotheses>"

    rows = [
        {"id": 1, "completion": text([("A1", 0.6), ("B1", 0.3)], 0.1), "answer": "A1", "prior_logprob": -2.0},
        {"id": 2, "completion": text([("A1", 0.5)], 0.5), "answer": "C1", "prior_logprob": -1.0},
    ]
    (file,) = json.loads(cli("evaluate", write(tmp_path / "x.jsonl", rows), "--json").out)["files"]
    found = file["groups"]["all"]
    assert file["kind"] == "hypotheses"
    assert found["listed"] == 0.5
    assert found["mean_other"] == pytest.approx(0.3)
    assert found["event_nll"] == pytest.approx(-(math.log(0.6) + math.log(0.5)) / 2)
    assert found["nll"] == pytest.approx(-(math.log(0.6) + math.log(0.5 * math.exp(-1))) / 2)


def hypotheses(listed: list[tuple[str, float]], other: float) -> str:
    inner = "".join(f"<h{i}>{h}</h{i}><w{i}>{w}</w{i}>" for i, (h, w) in enumerate(listed, 1))
    return f"<think>t</think><hypotheses>{inner}<other>{other}</other></hypotheses>"


def answer_set(*answers: tuple[str, float]) -> str:
    inner = "".join(
        f"<answer{i}>{a}</answer{i}><confidence{i}>{q}</confidence{i}>" for i, (a, q) in enumerate(answers, 1)
    )
    return f"<think>t</think>{inner}<analysis>z</analysis>"


def measured(cli, path: Path, *arguments: object) -> tuple[dict, dict]:
    (file,) = json.loads(cli("evaluate", path, "--json", "--draws", 0, *arguments).out)["files"]
    return file, file["groups"]["all"]


def test_equal_hypotheses_are_one_with_the_sum_of_their_weights(tmp_path: Path, cli) -> None:
    text = hypotheses([("flu", 0.3), ("the flu", 0.2), ("cold", 0.4)], 0.1)
    path = write(tmp_path / "x.jsonl", [{"completion": text, "answer": "flu"}] * 2)
    file, found = measured(cli, path)
    assert found["accuracy"] == 1
    assert found["mean_confidence"] == pytest.approx(0.5)
    assert found["event_nll"] == pytest.approx(-math.log(0.5))
    assert found["p_gold_gap"] == pytest.approx(0.5 - (0.5**2 + 0.4**2 + 0.1**2))
    assert found["hypotheses"] == 2
    assert found["uniqueness"] == pytest.approx(2 / 3)
    assert (found["merged_answers"], found["merged_rows"]) == (2, 2)
    assert any("2 merged in 2 rows" in note for note in file["notes"])


def test_all_ways_to_write_the_gold_add_up_among_hypotheses(tmp_path: Path, cli) -> None:
    """The relation cannot know that NYC is New York City; the gold's aliases do."""
    text = hypotheses([("NYC", 0.3), ("New York City", 0.2), ("Boston", 0.4)], 0.1)
    row = {"completion": text, "answer": ["New York City", "NYC"]}
    _, found = measured(cli, write(tmp_path / "x.jsonl", [row]), "--gold-kind", "aliases")
    assert found["event_nll"] == pytest.approx(-math.log(0.5))


def test_equal_answers_of_a_set_are_one_with_the_highest_confidence(tmp_path: Path, cli) -> None:
    text = answer_set(("flu", 0.2), ("the flu", 0.9), ("x", 0.0))
    file, found = measured(cli, write(tmp_path / "x.jsonl", [{"completion": text, "golds": ["flu"]}]))
    assert found["accuracy"] == found["pass@1_max_conf"] == 1
    assert found["mean_confidence"] == pytest.approx(0.9)
    assert found["brier_loss"] == pytest.approx(0.01)
    assert found["precision"] == pytest.approx(1 / 3)
    assert found["merged_answers"] == 1
    assert any("highest confidence" in note for note in file["notes"])


def test_two_ways_to_write_a_gold_are_one_answer_of_a_set(tmp_path: Path, cli) -> None:
    """Neither "NYC" nor "New York City" is wrong, in whatever order and however sure."""
    golds = [["New York City", "NYC"], ["LA", "Los Angeles"]]
    text = answer_set(("NYC", 0.2), ("Rome", 0.3), ("New York City", 0.9))
    _, found = measured(cli, write(tmp_path / "x.jsonl", [{"completion": text, "golds": golds[:1]}]))
    assert (found["accuracy"], found["pass@1_first"], found["merged_answers"]) == (1, 1, 1)
    assert found["mean_confidence"] == pytest.approx(0.9)
    assert found["precision"] == pytest.approx(1 / 3)
    assert found["set_brier"] == pytest.approx((0.01 + 0.09) / 2)
    text = answer_set(("LA", 0.5), ("NYC", 0.2), ("Los Angeles", 0.4), ("New York City", 0.3))
    run = read_rollouts(write(tmp_path / "y.jsonl", [{"completion": text, "golds": golds}]))
    assert run.answers == [["LA", "NYC"]]
    assert run.correct.tolist() == [[True, True, False, False]]
    np.testing.assert_array_equal(run.confidence, [[0.5, 0.3, np.nan, np.nan]])
    assert (run.merged.tolist(), run.distinct.tolist(), run.found.tolist()) == ([2], [2], [[True, True]])


def test_the_strict_reading_fails_duplicates_as_training_does(tmp_path: Path, cli) -> None:
    text = answer_set(("flu", 0.2), ("the flu", 0.3), ("x", 0.0))
    _, found = measured(cli, write(tmp_path / "x.jsonl", [{"completion": text, "golds": ["flu"]}]), "--mode", "strict")
    assert found["status"] == {"duplicate_answers": 1}
    assert (found["format_adherence"], found["set_accuracy"], found["confidence_missing"]) == (0, 0, 1)


def test_duplicates_are_those_of_the_rows_own_matcher(tmp_path: Path, cli) -> None:
    rows = [
        {"completion": answer_set(("x=1", 0.2), ("x = 1  # one", 0.6)), "golds": ["x = 1"], "data_source": source}
        for source in ("code", "words")
    ]
    path = write(tmp_path / "x.jsonl", rows)
    assert measured(cli, path)[1]["merged_answers"] == 0
    assert measured(cli, path, "--matcher-for", "code=code_ast")[1]["merged_answers"] == 1


def test_as_many_answers_count_as_a_row_gives(tmp_path: Path, cli) -> None:
    names = "abcdefg"
    seven = answer_set(*((name * 3, 0.1) for name in names))
    listed = hypotheses([(name * 3, 0.1) for name in names], 0.3)
    file, found = measured(cli, write(tmp_path / "h.jsonl", [{"completion": listed, "answer": "ggg"}]))
    assert file["used"]["max_answers"] == found["hypotheses"] == 7
    assert found["event_nll"] == pytest.approx(-math.log(0.1))
    rows = [{"completion": seven, "golds": ["ggg"]}, {"completion": answer_set(("ggg", 0.9)), "golds": ["ggg"]}]
    path = write(tmp_path / "s.jsonl", rows)
    file, found = measured(cli, path)
    assert file["used"]["max_answers"] == 7
    assert (found["set_accuracy"], found["precision"]) == (1, pytest.approx(1 / 7))
    assert any("K = 7" in note and "1 in 1 rows, 7 in 1 rows" in note for note in file["notes"])
    file, found = measured(cli, path, "-k", 3)
    assert file["used"]["max_answers"] == 3
    assert (found["set_accuracy"], found["precision"]) == (0.5, pytest.approx(1 / 6))
    assert any("1 rows give more than 3 answers" in note for note in file["notes"])


def test_more_answers_than_can_be_read_are_told(tmp_path: Path, cli) -> None:
    rows = [{"completion": answer_set(*((f"a{i}", 0.01) for i in range(n))), "golds": ["a69"]} for n in (70, 64)]
    file, found = measured(cli, write(tmp_path / "x.jsonl", rows))
    assert file["used"]["max_answers"] == 64
    assert found["set_accuracy"] == 0
    assert any("1 rows give more than 64 answers" in note for note in file["notes"])


def test_tags_in_the_reasoning_are_no_answers_beyond_k(tmp_path: Path, cli) -> None:
    text = "<think><answer9>x</answer9></think>" + answer_set(("a", 0.5)).removeprefix("<think>t</think>")
    file, _ = measured(cli, write(tmp_path / "x.jsonl", [{"completion": text, "golds": ["a"]}]), "-k", 1)
    assert not any("more than" in note for note in file["notes"])


def test_the_strict_reading_takes_the_usual_number_of_answers(tmp_path: Path, cli) -> None:
    four = [(name, 0.2) for name in "bcde"]
    rows = [{"completion": answer_set(*four[:n]), "golds": ["b"]} for n in (4, 4, 2)]
    file, found = measured(cli, write(tmp_path / "x.jsonl", rows), "--mode", "strict")
    assert file["used"]["max_answers"] == 4
    assert found["format_adherence"] == pytest.approx(2 / 3)
    assert any("K = 4, the usual number" in note for note in file["notes"])


def test_what_a_prompts_answers_claim_together(tmp_path: Path, cli) -> None:
    """Two samples: flu .6 and .8 (mean .7), cold .3, gout .2; the next prompt claims .5."""
    rows = [
        {"id": 1, "completion": answer_set(("flu", 0.6), ("cold", 0.3)), "golds": ["flu"]},
        {"id": 1, "completion": answer_set(("the flu", 0.8), ("gout", 0.2)), "golds": ["flu"]},
        {"id": 2, "completion": answer_set(("flu", 0.4), ("cold", 0.1)), "golds": ["flu"]},
    ]
    _, found = measured(cli, write(tmp_path / "x.jsonl", rows))
    assert found["confidence_mass"] == pytest.approx((0.7 + 0.3 + 0.2 + 0.5) / 2)
    assert found["confidence_mass_above_1"] == 0.5
    several = [row | {"golds": [["flu"], ["cold"]]} for row in rows]
    assert "confidence_mass" not in measured(cli, write(tmp_path / "y.jsonl", several))[1]


def test_invalid_rows_count_as_wrong_or_are_dropped_and_told(tmp_path: Path, cli) -> None:
    good, bad = completion("Paris", 0.8), "no tags at all"
    rows = [{"id": i, "completion": text, "answer": "Paris"} for i, text in enumerate([good, good, good, bad])]
    rows[2]["completion"] = completion("Rome", 0.8)
    path = write(tmp_path / "x.jsonl", rows)
    _, found = measured(cli, path, "--format", "tac")
    assert (found["n"], found["accuracy"], found["format_adherence"]) == (4, 0.5, 0.75)
    arguments = ("--format", "tac", "--on-invalid", "drop")
    _, found = measured(cli, path, *arguments)
    assert (found["n"], found["dropped_invalid"], found["format_adherence"]) == (3, 1, 0.75)
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert sum(found["status"].values()) == 4
    path = write(tmp_path / "bad.jsonl", [{"id": 1, "completion": bad, "answer": "Paris"}] * 2)
    _, found = measured(cli, path, *arguments)
    assert (found["n"], found["accuracy"], found["format_adherence"]) == (0, None, 0)
    assert "no row follows the format" in found["undefined"]["accuracy"]
    assert cli("evaluate", path, *arguments).code == 0
    assert "on_invalid" in cli.refuses("evaluate", path, "--on-invalid", "dropp")


def test_files_are_compared_pairwise_and_written_as_markdown(tmp_path: Path, cli) -> None:
    base = write(tmp_path / "base.jsonl", rollouts(200))
    loud = write(tmp_path / "loud.jsonl", rollouts(200, shift=0.3)[::-1])
    result = json.loads(cli("evaluate", base, loud, "--by", "method", "--json").out)
    by_metric = {entry["metric"]: entry for entry in result["comparisons"] if entry["group"] == "a"}
    assert by_metric["accuracy"]["value"] == 0
    assert by_metric["mean_confidence"]["low"] > 0.1
    assert by_metric["brier_loss"]["value"] > 0
    report = tmp_path / "table.md"
    assert cli("evaluate", base, loud, "--markdown", report).code == 0
    text = report.read_text()
    assert "| all rows | 200 |" in text
    assert "Differences from" in text
    rows = [row | {"id": f"other {row['id']}"} for row in rollouts(200)]
    apart = json.loads(cli("evaluate", base, write(tmp_path / "c.jsonl", rows), "--json").out)
    assert apart["comparisons"] == []
    assert "no prompt in common" in apart["files"][1]["notes"][-1]


def test_a_directory_is_evaluated_file_by_file(tmp_path: Path, cli) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    for step in (2, 10):
        write(folder / f"{step}.jsonl", rollouts(20, seed=step))
    result = json.loads(cli("evaluate", folder, "--json").out)
    assert [Path(file["file"]).name for file in result["files"]] == ["2.jsonl", "10.jsonl"]
    assert result["comparisons"] == []


def test_sets_built_in_different_ways_are_not_compared(tmp_path: Path, cli) -> None:
    rows = rollouts(20)
    paths = []
    for how in ("single_gen", "independent_samples"):
        paths.append(write(tmp_path / f"{how}.jsonl", [row | {"set_construction": how} for row in rows]))
    assert "cannot be compared" in cli.refuses("evaluate", *paths)


def test_several_rollouts_per_prompt_give_pass_at_k(tmp_path: Path, cli) -> None:
    rows = [row | {"id": i // 4} for i, row in enumerate(rollouts(80))]
    found = json.loads(cli("evaluate", write(tmp_path / "x.jsonl", rows), "--json").out)["files"][0]["groups"]["all"]
    assert found["prompts"] == 20
    assert found["pass@1"] == pytest.approx(found["accuracy"])
    assert found["pass@1"] < found["pass@2"] < found["pass@4"]


def test_names_of_other_tools(tmp_path: Path) -> None:
    row = {"input": "q", "output": completion("Paris", 0.4), "gts": "Paris", "score": 1.0, "step": 3}
    run = read_rollouts(write(tmp_path / "1.jsonl", [row]))
    assert (run.used["completion"], run.used["references"], run.used["prompt"]) == ("output", "gts", "input")
    row = {"response": [{"role": "assistant", "content": row["output"]}], "reward_model": {"ground_truth": "Paris"}}
    run = read_rollouts(write(tmp_path / "2.jsonl", [row]), Reading())
    assert run.used["references"] == "reward_model.ground_truth"
    assert run.correct.tolist() == [[True]]


def test_SR_04_each_row_is_judged_by_the_matcher_of_its_own_source(tmp_path: Path, cli) -> None:
    def program(source: str) -> str:
        return completion(source, 0.5)

    rows = [
        {"completion": completion("the Paris", 0.5), "answer": "Paris", "data_source": "hotpot"},
        {"completion": program("x=1  # one"), "answer": "x = 1", "data_source": "code"},
        {"completion": program("y = 1"), "answer": "x = 1", "data_source": "code"},
    ]
    for order in (rows, rows[::-1]):
        path = write(tmp_path / "x.jsonl", order)
        file = json.loads(cli("evaluate", path, "--matcher-for", "code=code_ast", "--json").out)["files"][0]
        assert file["groups"]["all"]["accuracy"] == pytest.approx(2 / 3)
        assert file["used"]["source"] == "data_source"
    one_for_all = json.loads(cli("evaluate", path, "--json").out)["files"][0]
    assert one_for_all["groups"]["all"]["accuracy"] == pytest.approx(1 / 3)
    bare = write(tmp_path / "bare.jsonl", [{"completion": "x", "answer": "y"}])
    assert "--source" in cli.refuses("evaluate", bare, "--matcher-for", "code=code_ast")
    assert "--matcher-for: expected NAME=VALUE" in cli.refuses("evaluate", path, "--matcher-for", "code")


def test_text_never_stops_an_evaluation(tmp_path: Path, cli) -> None:
    hostile = [
        "",
        "\x00",
        "\ud800",
        "<answer>" * 20_000,
        "x" * 10**6,
        completion("Paris", "nan"),
        completion("Paris", "1e999"),
    ]
    rows = [{"id": i, "completion": text, "answer": "Paris"} for i, text in enumerate(hostile)]
    result = cli("evaluate", write(tmp_path / "x.jsonl", rows), "--json", "--format", "tac")
    assert result.code == 0
    assert json.loads(result.out)["files"][0]["groups"]["all"]["n"] == len(hostile)


def test_a_rows_own_gold_kind_says_how_its_list_is_read(tmp_path: Path, cli) -> None:
    text = "<answer1>a</answer1><confidence1>0.5</confidence1><answer2>b</answer2><confidence2>0.5</confidence2>"
    rows = [
        {"completion": text, "answer": ["a", "b"], "extra_info": {"gold_kind": kind, "long": "…" * 100}}
        for kind in ("set", "aliases")
    ]
    source = write(tmp_path / "x.jsonl", rows)
    arguments = ("evaluate", source, "--format", "multi_noanalysis", "--max-answers", 2, "--json")
    group = json.loads(cli(*arguments).out)["files"][0]["groups"]["all"]
    as_sets = json.loads(cli(*arguments, "--gold-kind", "set").out)["files"][0]["groups"]["all"]
    assert group != as_sets
    assert group["n"] == as_sets["n"] == 2


@pytest.mark.parametrize(
    ("rows", "arguments", "parts"),
    [
        ([{"completion": "x", "answer": "y"}], ["--by", "metod"], ["x.jsonl", "column 'metod'", "found"]),
        ([{"completion": "x"}], [], ["--references", "found columns completion"]),
        ([{"text0": "x", "answer": "y"}], [], ["--completion", "text0"]),
        ([{"completion": "x", "answer": ""}], [], ["row 1", "column 'answer'", "an empty reference"]),
        ([{"completion": "x", "answer": ["a", "b"]}], [], ["--gold-kind", "aliases"]),
        (
            [{"completion": "x", "answer": "y"}, {"completion": 5, "answer": "y"}],
            ["--format", "tac"],
            ["row 2", "column 'completion'", "a number 5"],
        ),
        (
            [{"completion": "x", "answer": "y", "c": "high"}],
            ["--confidence", "c"],
            ["row 1", "column 'c'", "a string 'high'"],
        ),
        (
            [{"completion": 5, "answer": "y"}],
            [],
            ["x.jsonl, row 1, column 'completion': expected a string or a chat", "found a number 5"],
        ),
        ([{"completion": None, "answer": "y"}], [], ["row 1, column 'completion'", "found null"]),
        ([{"completion": 5, "answer": "y"}], ["--format", "tac"], ["row 1, column 'completion'", "found a number 5"]),
        ([{"completion": "x", "label": "yes"}], [], ["row 1, column 'label': expected true, false", "a string 'yes'"]),
        ([{"completion": "x", "answer": {"a": 1}}], [], ["x.jsonl, row 1, column 'answer': expected"]),
        ([{"completion": "x", "answer": "y"}], ["--bins", "0"], ["bins", "got 0"]),
        ([{"completion": "x", "answer": "y"}], ["--edge", "lft"], ["edge", "lft"]),
        ([{"completion": "x", "answer": "y"}], ["--format", "tcaa"], ["format", "Did you mean"]),
        ([{"completion": "x", "answer": "y"}], ["--matcher", "exakt"], ["matcher", "Did you mean 'exact'"]),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path, cli, rows: list, arguments: list, parts: list) -> None:
    path = write(tmp_path / "x.jsonl", rows)
    line = cli.refuses("evaluate", path, "--markdown", tmp_path / "out.md", *arguments)
    for part in parts:
        assert part in line
    assert not (tmp_path / "out.md").exists()


def test_exit_code_of_the_process(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"completion": [1, 2], "answer": ["a", "b"]}), path)
    run = subprocess.run(
        [sys.executable, "-m", "rewardkit", "evaluate", str(path), "--completion", "completion", "--format", "tac"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert run.stdout == ""
    assert "x.parquet, row 1, column 'completion': expected a string" in run.stderr
    run = subprocess.run(
        [sys.executable, "-m", "rewardkit", "evaluate", "/absent.jsonl"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
    assert "/absent.jsonl: no such file" in run.stderr
