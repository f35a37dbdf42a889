"""``rewardkit report``: one HTML file to look at rollouts, their calibration and their rewards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rewardkit.cli import reading as options
from rewardkit.cli.app import app, err
from rewardkit.data.files import check_output
from rewardkit.errors import InvalidArgumentError
from rewardkit.evaluation import Settings


@app.command()
def report(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Rollouts, JSONL or Parquet; a directory is one run (verl's dumps)."),
    ],
    output: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The HTML file to write.")] = Path(
        "report.html"
    ),
    by: Annotated[list[str] | None, typer.Option("--by", metavar="COL", help="Group by a column (repeatable).")] = None,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="Of the page.")] = None,
    reward: Annotated[
        str | None, typer.Option("--reward-column", metavar="COL", help="Reward; usual names are found.")
    ] = None,
    max_megabytes: Annotated[
        float, typer.Option("--max-megabytes", metavar="MB", help="Largest page; rollouts are sampled to fit.")
    ] = 30.0,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep the page up to date while a trainer writes into the directory.")
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="Seconds between looks with --follow.")
    ] = 10.0,
    bins: Annotated[int, typer.Option("--bins", metavar="N", help="Bins of calibration errors.")] = 10,
    scheme: Annotated[str, typer.Option("--scheme", metavar="NAME", help="width or mass.")] = "width",
    edge: Annotated[str | None, typer.Option("--edge", metavar="NAME", help="left (default), right or rlcr.")] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of the sample.")] = 0,
    completion: options.Completion = None,
    references: options.References = None,
    label: options.Label = None,
    confidence: options.Confidence = None,
    wellformed: options.Wellformed = None,
    prompt: options.Prompt = None,
    tokens: options.Tokens = None,
    prior: options.Prior = None,
    style: options.Format = "auto",
    mode: options.ParseMode = None,
    max_answers: options.MaxAnswers = None,
    matcher: options.Matcher = "exact",
    match_mode: options.MatchMode = "numeric_safe",
    gold_kind: options.GoldKind = None,
    missing: options.Missing = None,
    compat: options.Compat = "auto",
) -> None:
    """Write one HTML page to look at rollouts and calibration.

    Tables, reliability diagrams, statuses, and the rollouts to read. The page is self-contained and loads nothing from anywhere. Rollouts can be filtered by group, status, reward, confidence and text, and each is shown
    with its parsed parts marked and every component of its reward.
    """
    from rewardkit.report import Report, build_report
    from rewardkit.report import follow as follow_run

    settings = Settings(
        reading=options.reading(
            completion=completion,
            references=references,
            label=label,
            confidence=confidence,
            wellformed=wellformed,
            prompt=prompt,
            tokens=tokens,
            prior=prior,
            format=style,
            mode=mode,
            max_answers=max_answers,
            matcher=matcher,
            match_mode=match_mode,
            gold_kind=gold_kind,
            missing=missing,
            compat=compat,
        ),
        by=tuple(by or ()),
        bins=bins,
        scheme=scheme,
        edge=edge,
        draws=0,
        seed=seed,
    )
    keywords: dict[str, Any] = {
        "settings": settings,
        "title": title,
        "reward_column": reward,
        "max_megabytes": max_megabytes,
    }

    check_output(output, files)

    def say(written: Report) -> None:
        err.print(
            f"wrote {written.path}: {written.rollouts:,} rollouts, {written.shown:,} to read, {written.megabytes:.1f} MB",
            markup=False,
            highlight=False,
        )

    if follow:
        if not interval <= 86_400:
            raise InvalidArgumentError("--interval", expected="seconds, at most those of a day", got=interval)
        if len(files) != 1 or files[0].is_file():
            raise InvalidArgumentError("FILE", expected="one directory with --follow", got=" ".join(map(str, files)))
        err.print(f"following {files[0]}; end with Ctrl-C", markup=False, highlight=False)
        trouble = lambda line: err.print(f"not yet: {line}", markup=False, highlight=False)  # noqa: E731
        follow_run(files[0], output, interval=interval, on_report=say, on_trouble=trouble, **keywords)
        return
    with options.rows_progress("reading") as progress:
        written = build_report(files, output, progress=progress, **keywords)
    say(written)
