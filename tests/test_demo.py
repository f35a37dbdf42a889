"""The demo's world and its evaluation, without a training job (those are in test_verl_jobs)."""

from __future__ import annotations

import json
import random
import re

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("matplotlib")

from examples.demo import __main__ as demo
from examples.demo import evaluation, job, world


def test_held_out_pairs_never_occur_in_training() -> None:
    train, held_out = world.questions(600, train=True, seed=1), world.questions(300, train=False, seed=1)
    seen = {(question.kind, question.subject) for question in train}
    assert seen.isdisjoint((question.kind, question.subject) for question in held_out)
    assert {question.subject for question in held_out} == set(world.SUBJECTS)
    assert world.questions(50, train=True, seed=1) != world.questions(50, train=True, seed=2)
    assert world.questions(50, train=True, seed=1) == world.questions(50, train=True, seed=1)


def test_the_best_answer_is_right_as_often_as_its_kind_says() -> None:
    rows = world.questions(20_000, train=True, seed=5)
    for kind, probability in world.KINDS.items():
        right = [row.right == world.best_answer(row.subject) for row in rows if row.kind == kind]
        assert np.mean(right) == pytest.approx(probability, abs=4 * (0.25 / len(right)) ** 0.5)


def test_lessons_follow_the_format_and_are_overconfident() -> None:
    rng = random.Random(0)
    rows = world.questions(4000, train=True, seed=1)
    dump = [
        {"input": row.text, "output": world.lesson(row, rng).removesuffix(world.END), "gts": row.right} for row in rows
    ]
    taught = read(dump)
    assert taught.wellformed.all()
    assert taught.confidence.mean() > taught.correct.mean() + 0.2


def read(rows, tmp_path=None):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        dump = Path(folder) / "0.jsonl"
        dump.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        return evaluation.read("before", dump)


def test_the_tokenizer_carries_every_tag_in_one_token(tmp_path) -> None:
    from transformers import AutoTokenizer

    tokenizer = world.make_tokenizer()
    model = world.make_model(tokenizer, seed=0)
    tokenizer.save_pretrained(tmp_path)
    model.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    for word in (*world.TAGS, *world.ANSWERS, *world.CONFIDENCES, *world.KINDS, *world.SUBJECTS, world.END):
        assert len(again.encode(word, add_special_tokens=False)) == 1
    text = world.lesson(world.Question("easy", "s01", "a1"), random.Random(0))
    assert again.decode(again.encode(text, add_special_tokens=False)) == text
    assert len(again.encode(text)) <= world.MAX_RESPONSE
    assert 80_000 < sum(parameter.numel() for parameter in model.parameters()) < 150_000


def test_evaluation_reads_a_dump_by_hand() -> None:
    good = "<think>hmm</think><answer>{}</answer><confidence>{}</confidence>"
    rows = [
        {"input": "user easy s01 assistant", "output": good.format("a1", 0.8), "gts": "a1"},
        {"input": "user easy s02 assistant", "output": good.format("a2", 0.8), "gts": "a1"},
        {"input": "user hard s03 assistant", "output": "\u2028 no format", "gts": "a1"},
    ]
    found = read(rows)
    assert found.correct.tolist() == [True, False, False]
    assert found.confidence.tolist() == [0.8, 0.8, 0.0]
    numbers = found.numbers
    assert numbers["accuracy"] == pytest.approx(1 / 3)
    assert numbers["brier"] == pytest.approx((0.04 + 0.64 + 0.0) / 3)
    assert numbers["wellformed"] == pytest.approx(2 / 3)
    assert found.by_kind() == {"hard": (0.0, 0.0), "easy": (0.5, pytest.approx(0.8))}


def test_table_and_plot(tmp_path) -> None:
    from rich.console import Console

    rng = np.random.default_rng(0)
    size = 200
    confidence = rng.integers(0, 11, size) / 10
    made = [
        evaluation.Evaluation(name, rng.random(size) < confidence, confidence, np.ones(size, bool), ["hard"] * size)
        for name in ("before", "RLVR", "RLCR")
    ]
    console = Console(record=True, width=120, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(evaluation.table(made))
        assert re.search(r"RLCR\s+│\s+0\.\d{3}", console.export_text())
    evaluation.plot(made, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000
    assert [file.name for file in tmp_path.iterdir()] == ["plot.png"]


def test_verdicts_say_what_was_not_seen() -> None:
    base = {
        "accuracy": 0.5,
        "confidence": 0.8,
        "ece": 0.3,
        "ece_null_95": 0.05,
        "by_kind": {"a": (0.3, 0.3), "b": (0.8, 0.7)},
    }
    rlvr = base | {"accuracy": 0.67, "confidence": 0.9, "ece": 0.24}
    good = base | {"accuracy": 0.66, "confidence": 0.66, "ece": 0.04}
    assert [held for _, held, _ in demo._verdicts({"before": base, "RLVR": rlvr, "RLCR": good})] == [True] * 4
    bad = base | {"accuracy": 0.5, "ece": 0.2, "by_kind": {"a": (0.3, 0.7), "b": (0.8, 0.7)}}
    assert [held for _, held, _ in demo._verdicts({"before": base, "RLVR": rlvr, "RLCR": bad})] == [
        True,
        False,
        False,
        False,
    ]


def test_only_marked_processes_are_ended() -> None:
    import subprocess
    import sys

    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    ours = subprocess.Popen(sleeper, env={job.MARK: "one"})
    other = subprocess.Popen(sleeper, env={job.MARK: "other"})
    try:
        assert job._marked("one") == [ours.pid]
        job._end(ours, "one")
        assert ours.poll() is not None
        assert other.poll() is None
    finally:
        for process in (ours, other):
            process.kill()
            process.wait()


def test_a_job_from_a_folder_with_spaces_and_quotes(tmp_path) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    folder = tmp_path / "it's a, {folder}"
    task = job.Job(folder, folder / "p", folder / "t", folder / "v", demo.REWARDS["RLCR"], steps=1)
    read_back = {o.key_or_group: o.value() for o in OverridesParser.create().parse_overrides(task.overrides())}
    assert read_back["data.train_files"] == str(folder / "t")
    assert read_back["reward.reward_kwargs"] == demo.REWARDS["RLCR"]
