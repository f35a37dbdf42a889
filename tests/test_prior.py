"""The prior of a frozen model: text, boundary, numbers, resuming, refusals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from rewardkit import prior  # noqa: E402
from rewardkit.data.files import RowFile  # noqa: E402
from rewardkit.errors import DataError, InvalidArgumentError, UnknownNameError  # noqa: E402
from tests.test_splice import small  # noqa: E402
from tests.tiny_qwen import tiny_qwen  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
ROWS = [
    {"prompt": f"Where is it, number {i}? " * (1 + i % 5), "reward_model": {"ground_truth": answer}}
    for i, answer in enumerate(["Paris", "42", "New York City", "yes", "(B)", "Lyon"] * 4)
]


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    tiny_qwen(len(small()), positions=256, spread=0.02).save_pretrained(path)
    small().save_pretrained(path)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


LOOSE = {"force": True}  # a model without training expects nothing: about -6 a token


def test_numbers_equal_a_plain_forward_of_each_row(model_path: Path, data: Path, tmp_path: Path) -> None:
    output = tmp_path / "priors.parquet"
    report = prior.run(data, str(model_path), output, settings=prior.Settings(batch_tokens=300), **LOOSE)
    rows = list(RowFile.open(output).read().records())
    assert [row["row"] for row in rows] == list(range(1, len(ROWS) + 1))
    model = transformers.AutoModelForCausalLM.from_pretrained(model_path).eval()
    settings, tokenizer = prior.Settings(), transformers.AutoTokenizer.from_pretrained(model_path)
    for question, row in zip(prior.read_questions(data, settings), rows, strict=True):
        one = prior.encode(prior.render(question.prompt, tokenizer, settings), question.answer, tokenizer)
        with torch.no_grad():
            logprobs = model(torch.tensor([one.ids])).logits[0].double().log_softmax(-1)
        start = len(one.ids) - one.answer_tokens
        expected = [logprobs[i - 1, one.ids[i]].item() for i in range(start, len(one.ids))]
        np.testing.assert_allclose(row["prior_token_logprobs"], expected, atol=1e-5)
        assert row["prior_logprob"] == pytest.approx(sum(expected), abs=1e-4)
        assert row["prior_mean_prob"] == pytest.approx(np.exp(expected).mean(), rel=1e-5)
        assert row["prior_tokens"] == one.answer_tokens
    assert report.scored == len(ROWS)
    assert report.boundary_merged == sum(row["boundary_merged"] for row in rows)
    assert not (tmp_path / "priors.parquet.partial").exists()


def test_a_merge_across_the_boundary_is_seen_and_counted() -> None:
    tokenizer = small()
    merged = prior.encode("<answer> Par", "is </answer>", tokenizer)
    assert merged.boundary_merged
    assert merged.answer_tokens >= 1
    assert tokenizer.decode(merged.ids) == "<answer> Paris </answer>"
    assert tokenizer.decode(merged.ids[-merged.answer_tokens :]) == "is </answer>"
    apart = prior.encode("so ", "q", tokenizer)
    assert not apart.boundary_merged
    assert apart.answer_tokens == 1


def test_a_template_edit_that_changes_nothing_fails() -> None:
    settings = prior.Settings(template_edits=(("<think>\n", ""),))
    with pytest.raises(DataError, match="does nothing"):
        prior.render("a prompt without it", small(), settings)
    assert prior.render("a <think>\nb", small(), settings) == "a bFinal answer: "


def test_chats_are_rendered_by_the_template() -> None:
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=small().backend_tokenizer, eos_token="<|end|>")
    chat = [{"role": "user", "content": "Where?"}]
    assert prior.render(chat, tokenizer, prior.Settings()) == "Where?\nFinal answer: "
    tokenizer.chat_template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %} [assistant] "
    assert prior.render(chat, tokenizer, prior.Settings()) == "[user] Where? [assistant] Final answer: "
    assert prior.render(chat, tokenizer, prior.Settings(chat_template=False)) == "Where?\nFinal answer: "
    with pytest.raises(DataError, match="chat"):
        prior.render(3, tokenizer, prior.Settings())


def test_priors_that_look_broken_are_refused(model_path: Path, data: Path, tmp_path: Path) -> None:
    output = tmp_path / "priors.parquet"
    with pytest.raises(DataError, match="mean log-probability per token"):
        prior.run(data, str(model_path), output)
    assert not output.exists()


def test_bad_data_names_the_row(tmp_path: Path, model_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(
        json.dumps(ROWS[0]) + "\n" + json.dumps({"prompt": "x", "reward_model": {"ground_truth": " "}}) + "\n"
    )
    with pytest.raises(DataError, match="row 2"):
        prior.run(path, str(model_path), tmp_path / "out.parquet")
    with pytest.raises(FileNotFoundError):
        prior.run(tmp_path / "none.jsonl", str(model_path), tmp_path / "out.parquet")
    with pytest.raises(InvalidArgumentError, match="dtype"):
        prior.Settings(dtype="int8")


def test_rows_that_are_too_long_have_a_status(model_path: Path, data: Path, tmp_path: Path) -> None:
    output = tmp_path / "priors.jsonl"
    report = prior.run(data, str(model_path), output, settings=prior.Settings(max_length=60), **LOOSE)
    rows = list(RowFile.open(output).read().records())
    long = [row for row in rows if row["status"] == "too_long"]
    assert 0 < len(long) < len(rows)
    assert all(row["prior_logprob"] is None for row in long)
    assert report.statuses["too_long"] == len(long)


def test_batches_have_similar_lengths_and_hold_every_row() -> None:
    rng = np.random.default_rng(0)
    rows = [prior.Encoded(i, [0] * int(rng.integers(1, 90)), 1, False) for i in range(200)]
    batches = list(prior.batches_by_length(rows, 400))
    assert sorted(one.row for batch in batches for one in batch) == list(range(200))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(len(one.ids) for one in batch) <= 400
    padded = sum(len(batch) * len(batch[0].ids) for batch in batches)
    assert padded < 1.1 * sum(len(one.ids) for one in rows)


def test_a_run_goes_on_where_it_stood(model_path: Path, data: Path, tmp_path: Path, monkeypatch) -> None:
    whole, output = tmp_path / "whole.parquet", tmp_path / "priors.parquet"
    settings = prior.Settings(batch_tokens=200)
    prior.run(data, str(model_path), whole, settings=settings, **LOOSE)
    scored: list[int] = []
    score = prior.PriorModel.score

    def failing(self, batch):
        if len(scored) > 8:
            raise KeyboardInterrupt
        scored.extend(one.row for one in batch)
        return score(self, batch)

    monkeypatch.setattr(prior.PriorModel, "score", failing)
    with pytest.raises(KeyboardInterrupt):
        prior.run(data, str(model_path), output, settings=settings, **LOOSE)
    lines = tmp_path / "priors.parquet.partial" / "rows.jsonl"
    with lines.open("ab") as torn:
        torn.write(b'{"row": 999, "prior_log')  # what a kill leaves of a line
    before = set(scored)
    scored.clear()
    monkeypatch.setattr(
        prior.PriorModel, "score", lambda self, batch: scored.extend(o.row for o in batch) or score(self, batch)
    )
    prior.run(data, str(model_path), output, settings=settings, **LOOSE)
    assert before.isdisjoint(scored)
    assert before | set(scored) == set(range(1, len(ROWS) + 1))
    got, expected = (RowFile.open(path).read().columns for path in (output, whole))
    assert got["row"] == expected["row"]
    np.testing.assert_allclose(got["prior_logprob"], expected["prior_logprob"], atol=1e-5)


# ---- the training file with its columns ----------------------------------------------------------


def verl_rows(n: int = 30) -> list[dict]:
    """Rows as the builders write them, with nested columns whose types no list of Python values tells."""
    return [
        {
            "data_source": "made",
            "prompt": [{"role": "user", "content": f"Where is it, number {i}? " * (1 + i % 5)}],
            "reward_model": {"style": "rule", "ground_truth": ["Paris", "42", "New York City"][i % 3]},
            "extra_info": {"index": i, "hint": None, "tags": []},
        }
        for i in range(n)
    ]


def verl_file(path: Path, n: int = 30) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    prompt = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    model = pa.struct([("style", pa.string()), ("ground_truth", pa.string())])
    extra = pa.struct([("index", pa.int32()), ("hint", pa.string()), ("tags", pa.list_(pa.int64()))])
    schema = pa.schema(
        [("data_source", pa.string()), ("prompt", prompt), ("reward_model", model), ("extra_info", extra)]
    )
    pq.write_table(pa.Table.from_pylist(verl_rows(n), schema=schema.with_metadata({"made": "here"})), path)
    return path


@pytest.mark.parametrize("batch_rows", [7, 8192])
def test_the_training_file_comes_back_with_its_columns(model_path, tmp_path, monkeypatch, batch_rows: int) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr(prior, "BATCH_ROWS", batch_rows)
    data, scores, joined = verl_file(tmp_path / "train.parquet"), tmp_path / "scores.parquet", tmp_path / "with.parquet"
    prior.run(data, str(model_path), scores, **LOOSE)
    prior.run(data, str(model_path), joined, join=("prior_logprob", "prior_mean_prob", "baseline"), **LOOSE)
    before, after = pq.read_table(data), pq.read_table(joined)
    assert after.drop_columns(["prior_logprob", "prior_mean_prob", "baseline"]) == before
    assert after.schema.metadata == before.schema.metadata
    columns = RowFile.open(scores).read().columns
    assert after["prior_logprob"].to_pylist() == columns["prior_logprob"]
    assert after["prior_mean_prob"].to_pylist() == after["baseline"].to_pylist() == columns["prior_mean_prob"]
    assert not list(tmp_path.glob("*.partial"))


def test_json_lines_are_joined_too_and_rows_without_a_prior_can_be_left_out(model_path, data, tmp_path) -> None:
    text = data.read_text().splitlines(keepends=True)
    data.write_text("".join([*text[:3], "\n", *text[3:]]))  # a blank line counts as a row number, and is no row
    settings = prior.Settings(max_length=60)
    kept, left = tmp_path / "kept.jsonl", tmp_path / "left.parquet"
    report = prior.run(data, str(model_path), kept, settings=settings, join=("prior_logprob",), **LOOSE)
    prior.run(data, str(model_path), left, settings=settings, join=("prior_logprob",), drop_unscored=True, **LOOSE)
    rows = list(RowFile.open(kept).read().records())
    assert [row["prompt"] for row in rows] == [row["prompt"] for row in ROWS]
    missing = [row["prior_logprob"] is None for row in rows]
    assert sum(missing) == report.statuses["too_long"] > 0
    scored = [row for row, none in zip(rows, missing, strict=True) if not none]
    back = list(RowFile.open(left).read().records())
    assert [row["prompt"] for row in back] == [row["prompt"] for row in scored]
    assert [row["prior_logprob"] for row in back] == [row["prior_logprob"] for row in scored]


def test_a_column_that_is_there_is_not_written_over(model_path, tmp_path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps({**ROWS[0], "baseline": 0.5}) + "\n")
    with pytest.raises(InvalidArgumentError, match="without a column 'baseline'"):
        prior.run(path, str(model_path), tmp_path / "out.jsonl", join=("baseline",), **LOOSE)
    with pytest.raises(UnknownNameError, match="baseline"):
        prior.run(path, str(model_path), tmp_path / "out.jsonl", join=("base",), **LOOSE)
    with pytest.raises(InvalidArgumentError, match="another file than the input"):
        prior.run(path, str(model_path), path, **LOOSE)
    assert [one.name for one in tmp_path.iterdir()] == ["data.jsonl"]


def test_from_a_data_set_to_a_file_that_the_job_takes(cli, model_path, tmp_path) -> None:
    """The way of docs/likelihood.md, command by command."""
    questions = tmp_path / "qa.jsonl"
    questions.write_text("".join(json.dumps({"question": f"Where, {i}?", "answer": "Paris"}) + "\n" for i in range(4)))
    for flag, reward, params in (("--join", "hypotheses_backoff", {}), ("--baseline", "rlpr", {"debias": True})):
        rows, joined = tmp_path / f"{reward}.parquet", tmp_path / f"{reward}-train.parquet"
        assert cli("data", "generic", questions, "--instructions", "none", "-o", rows).code == 0  # a small model
        check = ("validate", "--skip", "format-not-asked", "--reward", reward, "--params", json.dumps(params), "--data")
        assert cli(*check, rows).code == 2
        done = cli("prior", rows, "--model", model_path, flag, "-o", joined, "--force", "--json")
        assert done.code == 0, done.err
        assert cli(*check, joined, "--strict").code == 0
    settings = prior.Settings(answer_prefix="<answer> ", dtype="float32")
    prior.run(tmp_path / "rlpr.parquet", str(model_path), tmp_path / "scores.jsonl", settings=settings, **LOOSE)
    expected = RowFile.open(tmp_path / "scores.jsonl").read().columns["prior_mean_prob"]
    assert RowFile.open(tmp_path / "rlpr-train.parquet").read().columns["baseline"] == expected


def test_show_needs_no_output(cli, model_path, data) -> None:
    shown = cli("prior", data, "--model", model_path, "--show")
    assert shown.code == 0
    assert shown.out == "Where is it, number 0? Final answer: Paris\n"
    assert cli("prior", data, "--model", model_path, "--show", "--baseline").out.endswith("? <answer> Paris\n")


def test_a_run_that_scored_nothing_leaves_nothing(model_path, data, tmp_path, monkeypatch) -> None:
    def failing(self, batch):
        raise KeyboardInterrupt

    monkeypatch.setattr(prior.PriorModel, "score", failing)
    with pytest.raises(KeyboardInterrupt):
        prior.run(data, str(model_path), tmp_path / "out.jsonl", **LOOSE)
    assert [one.name for one in tmp_path.iterdir()] == ["data.jsonl"]
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{}")
    with pytest.raises(DataError, match="that transformers can load"):
        prior.run(data, str(tmp_path / "broken"), tmp_path / "out.jsonl", **LOOSE)
    assert not (tmp_path / "out.jsonl.partial").exists()


def test_another_run_does_not_take_over_a_journal(model_path: Path, data: Path, tmp_path: Path) -> None:
    output = tmp_path / "priors.parquet"
    journal = prior.Journal(output, prior.fingerprint(data, str(model_path), prior.Settings()))
    journal.add([{"row": 1, "status": "ok"}])
    with pytest.raises(DataError, match="settings"):
        prior.run(data, str(model_path), output, settings=prior.Settings(answer_prefix="A: "), **LOOSE)


@pytest.mark.slow
def test_kill_minus_nine_loses_and_doubles_nothing(model_path: Path, tmp_path: Path) -> None:
    path, output = tmp_path / "data.jsonl", tmp_path / "priors.parquet"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS * 40))
    command = [sys.executable, "-m", "rewardkit", "prior", str(path), "--model", str(model_path), "-o", str(output)]
    command += ["--force", "--batch-tokens", "300", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    lines = tmp_path / "priors.parquet.partial" / "rows.jsonl"
    kills = 0
    for _ in range(3):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        start = lines.stat().st_size if lines.exists() else 0
        while process.poll() is None and (not lines.exists() or lines.stat().st_size < start + 2000):
            time.sleep(0.005)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate()
    assert kills >= 2
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["rows"] == len(ROWS) * 40
    rows = RowFile.open(output).read().columns["row"]
    assert rows == list(range(1, len(ROWS) * 40 + 1))


@pytest.mark.slow
def test_ray_gives_the_same_numbers(model_path: Path, data: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray.data", reason="needs ray[data]")
    here, there = tmp_path / "here.jsonl", tmp_path / "there.jsonl"
    prior.run(data, str(model_path), here, **LOOSE)
    code = (
        "import sys; from pathlib import Path; from rewardkit import prior\n"
        "prior.run(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), ray_workers=1, force=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    subprocess.run([sys.executable, "-c", code, str(data), str(model_path), str(there)], env=environment, check=True)
    one, other = (RowFile.open(path).read().columns for path in (here, there))
    assert one["row"] == other["row"]
    np.testing.assert_allclose(one["prior_logprob"], other["prior_logprob"], atol=1e-5)
