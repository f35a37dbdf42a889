"""The command line as a whole: every command is registered, and a bad call is one line and exit code 2."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import rewardkit as rewardkit_package
from rewardkit.data.files import row_writer

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = sorted(
    path.stem
    for path in (ROOT / "rewardkit" / "cli").glob("*.py")
    if "@app.command" in path.read_text() or "app.add_typer" in path.read_text()
)


LEAVES = [("data", name) for name in ("hotpotqa", "ddxplus", "mbpp", "generic")]
LEAVES += [("recipe", name) for name in ("list", "show", "write")]


def rewardkit(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rewardkit", *arguments], capture_output=True, text=True, cwd=ROOT, check=False
    )


def test_every_command_is_listed(cli) -> None:
    listed = cli("--help").out
    assert len(COMMANDS) > 4
    for name in COMMANDS:
        assert f" {name} " in listed


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(cli, name: str) -> None:
    done = cli(name, "--help")
    assert done.code == 0
    assert len(done.out.split()) > 20


@pytest.mark.parametrize("arguments", [(), *((name,) for name in COMMANDS), *LEAVES])
def test_help_is_whole_and_speaks_of_no_python_types(cli, arguments: tuple[str, ...]) -> None:
    shown = cli(*arguments, "--help").out
    assert "..." not in shown.replace("[ARGS]...", "").replace("}...", "").replace("]...", "")
    assert not re.search(r"<[a-zA-Z]+(\[\w+\]| range)?>", shown.replace("'<answer>", "").replace("<answer> '", "")), (
        shown
    )
    assert "--output" not in shown


def test_version(cli) -> None:
    assert cli("--version").out == f"rewardkit {rewardkit_package.__version__}\n"


def test_a_fault_of_the_library_is_one_line_that_says_how_to_see_it(cli, tmp_path: Path, monkeypatch) -> None:
    path = rows_file(tmp_path / "x.jsonl")

    def broken(*_: object, **__: object) -> None:
        raise TypeError("a fault\nof ours")

    monkeypatch.setattr("rewardkit.rewards.get", broken)
    line = cli.refuses("score", path, "-r", "rlcr", start="rewardkit: internal error in `rewardkit score`: ")
    assert "TypeError: a fault of ours (test_cli.py:" in line
    assert "REWARDKIT_TRACEBACK=1" in line
    monkeypatch.setenv("REWARDKIT_TRACEBACK", "1")
    with pytest.raises(TypeError, match="a fault"):
        cli("score", path, "-r", "rlcr")


# ---- inputs are never overwritten ---------------------------------------------------------------


def rows_file(path: Path) -> Path:
    text = "<think>…</think><answer>Paris</answer><confidence>0.5</confidence>"
    rows = [{"id": i // 2, "question": "q", "prompt": "q", "completion": text, "answer": "Paris"} for i in range(4)]
    with row_writer(path) as writer:
        writer.write({name: [row[name] for row in rows] for name in rows[0]})
    return path


OVERWRITING = {
    "score": ("score", "IN", "-r", "rlcr", "-o", "OUT"),
    "score --resume": ("score", "IN", "-r", "rlcr", "--resume", "-o", "OUT"),
    "select": ("select", "IN", "-o", "OUT"),
    "evaluate": ("evaluate", "IN", "--markdown", "OUT"),
    "report": ("report", "IN", "-o", "OUT"),
    "prior": ("prior", "IN", "--model", ".", "--reference", "answer", "-o", "OUT"),
    "prior --join": ("prior", "IN", "--model", ".", "--reference", "answer", "--join", "-o", "OUT"),
    "data generic": ("data", "generic", "IN", "-o", "OUT"),
    "data mbpp": ("data", "mbpp", "IN", "-o", "OUT"),
    "data hotpotqa": ("data", "hotpotqa", "IN", "-o", "OUT"),
}


@pytest.mark.parametrize("how", ["the same", "another spelling", "a symlink", "a hard link"])
@pytest.mark.parametrize("name", OVERWRITING)
def test_no_command_overwrites_its_input(cli, tmp_path: Path, name: str, how: str) -> None:
    source = rows_file(tmp_path / "in.parquet")
    before = source.read_bytes()
    target = tmp_path / "other.parquet"
    if how == "a symlink":
        target.symlink_to(source)
    elif how == "a hard link":
        target.hardlink_to(source)
    else:
        (tmp_path / "sub").mkdir()
        target = source if how == "the same" else tmp_path / "sub" / ".." / "in.parquet"
    line = cli.refuses(*(str(source) if a == "IN" else str(target) if a == "OUT" else a for a in OVERWRITING[name]))
    option = "--markdown" if name == "evaluate" else "--out"
    assert line == f"rewardkit: error: {option}: expected another file than the input, got {str(target)!r}\n"
    assert source.read_bytes() == before
    assert not list(tmp_path.glob("*.partial")) + list(tmp_path.glob(".*.tmp"))


def test_files_of_an_input_directory_are_not_overwritten_either(cli, tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    first = rows_file(folder / "1.jsonl")
    before = first.read_bytes()
    for target in (first, folder / "2.jsonl"):  # the second would be read as rollouts at the next look
        for arguments in (("evaluate", folder, "--markdown", target), ("report", folder, "-o", target)):
            assert "expected another file than the input" in cli.refuses(*arguments)
        assert "another file" in cli.refuses("report", "--follow", folder, "-o", target)
    assert first.read_bytes() == before
    assert cli("evaluate", folder, "--markdown", folder / "table.md").code == 0
    assert cli("evaluate", folder, "--markdown", folder / "table.md").code == 0


def test_the_other_files_of_a_release_are_not_overwritten(cli, tmp_path: Path) -> None:
    source = rows_file(tmp_path / "patients.parquet")
    facts = tmp_path / "facts.parquet"
    facts.write_text("{}")
    arguments = ("data", "ddxplus", source, "--evidences", facts, "--conditions", facts, "-o", facts)
    assert "another file than the input" in cli.refuses(*arguments)
    assert facts.read_text() == "{}"


# ---- what can be wrong with a path --------------------------------------------------------------


def test_places_that_cannot_be_read_or_written_are_told_in_words(cli, tmp_path: Path) -> None:
    source = rows_file(tmp_path / "in.jsonl")
    empty = tmp_path / "empty"
    empty.mkdir()
    absent, model = tmp_path / "absent" / "p.parquet", ("--model", empty, "--reference", "answer")
    directory = "expected a file, found a directory"
    for arguments, words in (
        (("score", empty, "-r", "rlcr"), directory),
        (("data", "generic", empty, "-o", tmp_path / "o.parquet"), directory),
        (("data", "ddxplus", source, "--evidences", empty, "-o", tmp_path / "o.parquet"), directory),
        (("validate", "--verl-config", empty), directory),
        (("validate", "--verl-config", source.with_name("none.yaml")), "none.yaml: no such file"),
        (("reproduce", "--data", empty), "expected a folder with "),
        (("reproduce", "--data", source), "expected a folder of data"),
        (("prior", source, *model, "-o", absent), "absent: no such directory to write p.parquet into"),
        (("score", source, "-r", "rlcr", "-o", absent), "absent: no such directory to write p.parquet into"),
        (("evaluate", source, "--markdown", absent), "absent: no such directory to write p.parquet into"),
        (("report", source, "-o", absent), "absent: no such directory to write p.parquet into"),
        (("data", "generic", source, "-o", absent), "absent: no such directory to write p.parquet into"),
        (("score", source, "-r", "rlcr", "-o", "/proc/x.jsonl"), "/proc: expected a directory to write x.jsonl into"),
        (("prior", source, *model, "-o", "/proc/x.jsonl"), "/proc: expected a directory to write x.jsonl into"),
        (("recipe", "write", source), "in.jsonl: expected a folder to write to, found a file"),
        (("prior", source, *model, "-o", tmp_path / "p.jsonl"), "empty: expected a folder with a tokenizer"),
        (("prior", source, *model, "--show"), "empty: expected a folder with a tokenizer"),
        (("prior", source, *model, "--device", "nope", "-o", tmp_path / "p.jsonl"), "device: expected a device"),
        (("prior", source, *model), "--out: expected a file to write"),
    ):
        line = cli.refuses(*arguments)
        assert words in line, line
        assert "Errno" not in line
    assert not list(tmp_path.glob("*.partial"))


def test_a_device_that_is_not_there(cli, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    source = rows_file(tmp_path / "in.jsonl")
    device = f"cuda:{torch.cuda.device_count()}"
    arguments = ("prior", source, "--model", tmp_path, "--reference", "answer", "-o", tmp_path / "p.jsonl")
    assert f"got {device!r}" in cli.refuses(*arguments, "--device", device)


def test_files_that_are_not_what_their_names_say(cli, tmp_path: Path) -> None:
    latin, folder = tmp_path / "latin.yaml", tmp_path / "recipes"
    latin.write_bytes(b"reward: {reward_kwargs: {reward: rlcr}} # \xe9\n")
    assert "latin.yaml: expected UTF-8 text, found byte 42" in cli.refuses("validate", "--verl-config", latin)
    folder.mkdir()
    (folder / "rlpr.yaml").write_bytes(b"\xe9")
    assert "rlpr.yaml: expected a file that is not there yet" in cli.refuses("recipe", "write", folder, "rlpr")
    for name in ("a.csv.gz", "a.json.zip"):
        (tmp_path / name).write_bytes(b"no archive")
        line = cli.refuses("data", "generic", tmp_path / name, "-o", tmp_path / "o.parquet")
        assert f"{name}: expected a whole archive" in line
    circle = tmp_path / "one.yaml"
    circle.write_text("defaults: [two]")
    (tmp_path / "two.yaml").write_text("defaults: [one]")
    assert "defaults that come to an end" in cli.refuses("validate", "--verl-config", circle)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("evaluate", "IN", "--set-construction", "x"), "unknown set construction 'x'"),
        (("evaluate", "IN", "--draws", 9_999_999_999), "--draws: expected a whole number in [0, 1000000]"),
        (("score", "IN", "-r", "rlcr", "--prefix", ""), "--prefix: expected"),
        (("score", "IN", "-r", "compose"), "compose(parts=…): expected a value"),
        (("data", "hotpotqa", "IN", "-o", "OUT", "--choice", "x"), "--choice: expected numbers"),
        (("data", "mbpp", "IN", "-o", "OUT", "--show-tests", "x"), "--show-tests: expected numbers"),
        (("data", "generic", "IN", "-o", "OUT", "--answer", "answr"), "Did you mean 'answer'?"),
        (("report", "IN", "-o", "OUT", "--max-megabytes", "inf"), "max_megabytes: expected a number in [3, 2000]"),
        (("report", "IN", "-o", "OUT", "--max-megabytes", "nan"), "max_megabytes: expected a number in [3, 2000]"),
        (("report", "--follow", ".", "-o", "OUT", "--interval", "inf"), "--interval: expected"),
        (("prior", "IN", "--model", ".", "-o", "OUT", "--drop-unscored"), "--drop-unscored: expected"),
    ],
)
def test_values_that_make_no_sense_are_refused(cli, tmp_path: Path, arguments: tuple, words: str) -> None:
    source = rows_file(tmp_path / "in.jsonl")
    places = {"IN": source, "OUT": tmp_path / "out.html"}
    assert words in cli.refuses(*(places.get(a, a) for a in arguments))


def test_tables_into_a_pipe_are_not_wrapped(tmp_path: Path) -> None:
    source = rows_file(tmp_path / f"{'long' * 30}.jsonl")
    done = rewardkit("evaluate", str(source), "--by", "completion")
    header, row = (next(i for i, line in enumerate(done.stdout.splitlines()) if w in line) for w in ("acc", "Paris"))
    assert row == header + 2
    assert "format" in done.stdout.splitlines()[header]


def test_a_missing_file_is_one_line_and_exit_code_2() -> None:
    done = rewardkit("evaluate", "nowhere.jsonl")
    assert done.returncode == 2
    assert done.stderr.startswith("rewardkit: error: ")
    assert "nowhere.jsonl" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
