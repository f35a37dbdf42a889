"""``rewardkit data …``: builds training files from released data sets."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from rewardkit import parsing
from rewardkit.cli.app import App, app, err, out
from rewardkit.data import ddxplus as ddx
from rewardkit.data import generic as any_file
from rewardkit.data import hotpotqa as hotpot
from rewardkit.data import mbpp as code
from rewardkit.data.build import BuildReport, build
from rewardkit.data.files import check_output, missing_column, read_text
from rewardkit.data.records import read_records
from rewardkit.data.schema import Example, Layout
from rewardkit.errors import DataError, InvalidArgumentError, UnknownNameError

data = App(
    help="Build training files from released data sets, for verl or TRL.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(data, name="data")


def _input(help: str) -> Any:
    return typer.Argument(metavar="IN", help=help)


Output = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Parquet file to write.")]
ForTrainer = Annotated[str, typer.Option("--trainer", metavar="NAME", help="verl or trl: whose columns to write.")]
Role = Annotated[
    str,
    typer.Option("--instructions", metavar="WHERE", help="Where the format's instructions go: system, user or none."),
]
Split = Annotated[str, typer.Option("--split", metavar="NAME", help="Written into every row: train, validation, …")]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Stop after this many rows.")]
MaxChars = Annotated[
    int | None, typer.Option("--max-chars", metavar="N", min=1, help="Drop longer questions (characters).")
]
OnMalformed = Annotated[str, typer.Option("--on-malformed", metavar="WHAT", help="drop (and count) or raise.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Another seed draws other paragraphs.")]
MaxAnswers = Annotated[
    int | None, typer.Option("--max-answers", "-k", metavar="K", min=1, help="Answers asked for, where several are.")
]
Think = Annotated[
    bool,
    typer.Option(
        "--think/--no-think", help="Whether the instructions ask for a think block; not where the template does."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable report on stdout.")]


@data.command("hotpotqa")
def hotpotqa(
    source: Annotated[
        Path, _input("hotpot_train_v1.1.json or hotpot_dev_distractor_v1.json, or their mirror in Parquet.")
    ],
    to: Output,
    style: Annotated[
        str, typer.Option("--format", metavar="NAME", help="Format of the answers, see `rewardkit.parsing.FORMATS`.")
    ] = "tac",
    max_answers: MaxAnswers = None,
    think: Think = True,
    seed: Seed = 0,
    choice: Annotated[
        str,
        typer.Option(
            "--choice", metavar="N,…", help="Gold paragraphs to remove: 0, 1, 2 or several of them, as in 1,2."
        ),
    ] = "0,1,2",
    on_malformed: Annotated[
        str, typer.Option("--on-malformed", metavar="WHAT", help="drop (and count), flag or raise.")
    ] = "drop",
    trainer: ForTrainer = "verl",
    role: Role = "system",
    split: Split = "train",
    limit: Limit = None,
    max_chars: MaxChars = None,
    as_json: AsJson = False,
) -> None:
    """HotpotQA-Modified: questions with some evidence removed.

    Of the 10 paragraphs 8 are kept, without 0, 1 or 2 of those that the answer needs.
    """
    choices = _numbers(choice, "--choice")
    flag = "flag" if on_malformed == "flag" else "raise"
    _run(
        source,
        functools.partial(hotpot.hotpot_modified, seed=seed, choice=choices, on_malformed=flag),
        to,
        layout=hotpot.LAYOUT,
        style=style,
        max_answers=max_answers,
        think=think,
        role=role,
        as_json=as_json,
        count=("gold_removed", "type", "malformed"),
        trainer=trainer,
        split=split,
        limit=limit,
        max_chars=max_chars,
        on_malformed="drop" if on_malformed == "flag" else on_malformed,
    )


@data.command("ddxplus")
def ddxplus(
    source: Annotated[Path, _input("release_train_patients.csv (or the .zip with it), or the same rows in Parquet.")],
    to: Output,
    evidences: Annotated[
        Path | None,
        typer.Option("--evidences", metavar="FILE", help="release_evidences.json; by default the one beside IN."),
    ] = None,
    conditions: Annotated[
        Path | None,
        typer.Option("--conditions", metavar="FILE", help="release_conditions.json; by default the one beside IN."),
    ] = None,
    top_m: Annotated[
        int | None, typer.Option("--top-m", metavar="M", min=1, help="Keep the m most probable conditions.")
    ] = None,
    min_prob: Annotated[
        float, typer.Option("--min-prob", metavar="P", help="Keep conditions of at least this probability.")
    ] = 0.0,
    list_conditions: Annotated[bool, typer.Option(help="Name all conditions in the question.")] = True,
    style: Annotated[str, typer.Option("--format", metavar="NAME", help="Format of the answers.")] = "multi",
    max_answers: MaxAnswers = None,
    think: Think = True,
    trainer: ForTrainer = "verl",
    role: Role = "system",
    split: Split = "train",
    limit: Limit = None,
    max_chars: MaxChars = None,
    on_malformed: OnMalformed = "drop",
    as_json: AsJson = False,
) -> None:
    """DDXPlus: patients in prose, the golds several diagnoses.

    The golds are the conditions of the differential diagnosis, most probable first.
    """
    beside = (
        evidences or source.with_name("release_evidences.json"),
        conditions or source.with_name("release_conditions.json"),
    )
    check_output(to, beside)
    vocabulary = ddx.Vocabulary(evidences=_json(beside[0], "--evidences"), conditions=_json(beside[1], "--conditions"))
    _run(
        source,
        functools.partial(
            ddx.ddxplus, vocabulary=vocabulary, top_m=top_m, min_prob=min_prob, list_conditions=list_conditions
        ),
        to,
        layout=ddx.LAYOUT,
        style=style,
        max_answers=max_answers,
        think=think,
        role=role,
        as_json=as_json,
        count=("pathology",),
        trainer=trainer,
        split=split,
        limit=limit,
        max_chars=max_chars,
        on_malformed=on_malformed,
    )


@data.command("mbpp")
def mbpp(
    source: Annotated[Path, _input("mbpp.jsonl or sanitized-mbpp.json, or the same rows in Parquet.")],
    to: Output,
    show_tests: Annotated[
        str, typer.Option("--show-tests", metavar="N", help="How many tests the question shows: 1, 2, … or all.")
    ] = "1",
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Run each reference solution in the sandbox and drop what fails. Runs code."),
    ] = False,
    allow_unisolated: Annotated[
        bool, typer.Option("--allow-unisolated", help="With --verify: run even if the network cannot be switched off.")
    ] = False,
    style: Annotated[str, typer.Option("--format", metavar="NAME", help="Format of the answers.")] = "ta",
    max_answers: MaxAnswers = None,
    think: Think = True,
    trainer: ForTrainer = "verl",
    role: Role = "system",
    split: Split = "train",
    limit: Limit = None,
    max_chars: MaxChars = None,
    on_malformed: OnMalformed = "drop",
    as_json: AsJson = False,
) -> None:
    """MBPP: small Python tasks; the gold is their tests.

    No code runs without --verify.
    """
    shown = None if show_tests == "all" else _numbers(show_tests, "--show-tests")[0]
    make: Callable[[dict[str, Any]], Example] = functools.partial(code.mbpp, show_tests=shown)
    if verify:
        make = functools.partial(_verified, show_tests=shown, allow_unisolated=allow_unisolated)
    _run(
        source,
        make,
        to,
        layout=code.LAYOUT,
        style=style,
        max_answers=max_answers,
        think=think,
        role=role,
        as_json=as_json,
        count=("n_tests",),
        trainer=trainer,
        split=split,
        limit=limit,
        max_chars=max_chars,
        on_malformed=on_malformed,
    )


@data.command("generic")
def generic(
    source: Annotated[Path, _input("JSON, JSON Lines, CSV (these also as .gz or .zip) or Parquet.")],
    to: Output,
    question: Annotated[str, typer.Option("--question", metavar="COL", help="Column of the question.")] = "question",
    answer: Annotated[
        str, typer.Option("--answer", "--answers", metavar="COL", help="Column of the golds.")
    ] = "answer",
    gold_kind: Annotated[
        str | None,
        typer.Option(
            "--gold-kind", metavar="KIND", help="How to read a flat list: aliases (of one gold) or set (of golds)."
        ),
    ] = None,
    id_column: Annotated[
        str | None, typer.Option("--id", metavar="COL", help="Column of the id; by default a hash.")
    ] = None,
    data_source: Annotated[
        str | None, typer.Option("--data-source", metavar="NAME", help="Name that verl logs validation by.")
    ] = None,
    ability: Annotated[
        str, typer.Option("--ability", metavar="NAME", help="verl's coarse label of the task.")
    ] = "question_answering",
    style: Annotated[str, typer.Option("--format", metavar="NAME", help="Format of the answers.")] = "tac",
    max_answers: MaxAnswers = None,
    think: Think = True,
    trainer: ForTrainer = "verl",
    role: Role = "system",
    split: Split = "train",
    limit: Limit = None,
    max_chars: MaxChars = None,
    on_malformed: OnMalformed = "drop",
    as_json: AsJson = False,
) -> None:
    """Any file of questions and answers, by its column names."""
    if gold_kind not in (None, "aliases", "set"):
        raise UnknownNameError("gold kind", str(gold_kind), ("aliases", "set"))
    first = next(iter(read_records(source)), None)
    if first is None:
        raise DataError("at least one record", "none", file=str(source))
    for column in (question, answer, *([id_column] if id_column else [])):
        if column not in first:
            raise missing_column(str(source), column, first)
    shape = any_file.gold_shape(first[answer])
    _run(
        source,
        functools.partial(
            any_file.generic,
            question=question,
            answer=answer,
            gold_kind=gold_kind,  # type: ignore[arg-type]
            shape=shape,
            id_column=id_column,
            data_source=data_source or source.stem,
            ability=ability,
        ),
        to,
        layout=any_file.layout(shape),
        style=style,
        max_answers=max_answers,
        think=think,
        role=role,
        as_json=as_json,
        trainer=trainer,
        split=split,
        limit=limit,
        max_chars=max_chars,
        on_malformed=on_malformed,
    )


def _run(
    source: Path,
    make: Callable[[dict[str, Any]], Example],
    to: Path,
    *,
    layout: Layout,
    style: str,
    max_answers: int | None,
    think: bool,
    role: str,
    as_json: bool,
    trainer: str,
    on_malformed: str,
    **options: Any,
) -> None:
    check_output(to, [source])
    for what, value, known in (
        ("trainer", trainer, ("verl", "trl")),
        ("place for the instructions", role, ("system", "user", "none")),
        ("way with malformed records", on_malformed, ("drop", "raise")),
    ):
        if value not in known:
            raise UnknownNameError(what, value, known)
    instructions = "" if role == "none" else parsing.prompt(style, max_answers=max_answers, think=think)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task(f"writing {to}", total=options.get("limit"))

        def show(report: BuildReport) -> None:
            dropped = sum(report.dropped.values())
            progress.update(task, completed=report.kept, description=f"{report.kept:,} rows, {dropped:,} dropped")

        report = build(
            read_records(source),
            make,
            to,
            layout=layout,
            trainer=trainer,  # type: ignore[arg-type]
            instructions=instructions,
            instructions_role="user" if role == "user" else "system",
            on_malformed=on_malformed,  # type: ignore[arg-type]
            on_progress=show,
            **options,
        )
    if as_json:
        print(json.dumps(report.as_dict()))
        return
    out.print(_table(report))


def _table(report: BuildReport) -> Table:
    table = Table("records", "number", "for example", title=report.out, title_justify="left")
    table.add_row("read", f"{report.read:,}", "")
    table.add_row("written", f"{report.kept:,}", "")
    if report.flagged:
        table.add_row("of these malformed, flagged", f"{report.flagged:,}", "")
    for reason, number in report.dropped.most_common():
        table.add_row(f"dropped: expected {reason}", f"{number:,}", ", ".join(report.examples[reason]))
    for name, counter in report.counts.items():
        for value, number in sorted(counter.items()):
            if value and len(counter) <= 8:
                table.add_row(f"{name} = {value}", f"{number:,}", "")
    return table


def _verified(record: dict[str, Any], *, show_tests: int | None, allow_unisolated: bool) -> Example:
    example = code.mbpp(record, show_tests=show_tests)
    for _, result in code.verify([example], allow_unisolated=allow_unisolated):
        raise code.MalformedRecordError("a reference solution that passes its tests", result.detail, record=example.id)
    return example


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidArgumentError(option, expected="numbers, with commas between them", got=text) from None


def _json(path: Path, option: str) -> dict[str, Any]:
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file; name the release's file with {option}")
    text = read_text(path)
    try:
        found = json.loads(text)
    except ValueError as error:
        raise DataError("JSON", str(error), file=str(path)) from error
    if not isinstance(found, dict):
        raise DataError("a JSON object", type(found).__name__, file=str(path))
    return found
