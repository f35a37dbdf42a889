"""``rewardkit select``: one answer per prompt from several rollouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from rewardkit import matching, selection
from rewardkit.cli import reading as options
from rewardkit.cli.app import app, out
from rewardkit.data.files import RowFile, check_output, file_format, row_writer
from rewardkit.data.rollouts import Rollouts, read_rollouts
from rewardkit.errors import DataError, InvalidArgumentError, UnknownNameError
from rewardkit.evaluation import top_answer


@app.command()
def select(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Several rollouts per prompt, JSONL or Parquet.")],
    method: Annotated[
        str,
        typer.Option(
            "--method", "-m", metavar="NAME", help=f"Whose choice --out holds: {', '.join(selection.METHODS)}."
        ),
    ] = "weighted",
    to: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="The chosen rows, one per prompt.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Result as JSON on stdout.")] = False,
    completion: options.Completion = None,
    references: options.References = None,
    label: options.Label = None,
    confidence: options.Confidence = None,
    wellformed: options.Wellformed = None,
    prompt: options.Prompt = None,
    style: options.Format = "auto",
    mode: options.ParseMode = None,
    matcher: options.Matcher = "exact",
    match_mode: options.MatchMode = "numeric_safe",
    gold_kind: options.GoldKind = None,
    compat: options.Compat = "auto",
) -> None:
    """Choose one answer per prompt from several rollouts.

    By confidence, majority or confidence-weighted vote; the methods are compared. Answers are the same where the matcher says so, as for correctness. A rollout without an answer has no vote; one without
    a confidence counts as confidence 0.
    """
    if method not in selection.METHODS:
        raise UnknownNameError("selection method", method, selection.METHODS)
    if style == "stored":
        raise InvalidArgumentError("--format", expected="a format whose answers can be read", got=style)
    if to is not None:
        file_format(to)
    check_output(to, [file])
    with options.rows_progress("reading") as progress:
        run = read_rollouts(
            file,
            options.reading(
                completion=completion,
                references=references,
                label=label,
                confidence=confidence,
                wellformed=wellformed,
                prompt=prompt,
                tokens=None,
                prior=None,
                format=style,
                mode=mode,
                matcher=matcher,
                match_mode=match_mode,
                gold_kind=gold_kind,
                compat=compat,
            ),
            progress=progress,
        )
    if run.kind != "single" or run.used["format"] == "stored":
        raise DataError("completions with one answer each", f"format {run.used['format']}", file=run.file)
    result, chosen = _choose(run, matcher, match_mode)
    if to is not None:
        _write(file, to, set(chosen[method]))
    facts = {
        "file": str(file),
        "out": None if to is None else str(to),
        "method": method,
        "used": dict(run.used),
        **result,
    }
    if as_json:
        print(json.dumps(facts, indent=1, allow_nan=False))
    else:
        _print(facts)


def _choose(run: Rollouts, matcher: str, match_mode: str) -> tuple[dict[str, Any], dict[str, list[int]]]:
    members: dict[str, list[int]] = {}
    for row, prompt in enumerate(run.prompt):
        members.setdefault(prompt, []).append(row)
    groups = list(members.values())
    if max(map(len, groups)) == 1:
        raise DataError(
            "several rollouts of a prompt (name the prompt's column with --prompt)", "one of each", file=run.file
        )
    voters = [[row for row in rows if run.answers[row]] for rows in groups]
    answers = [[run.answers[row][0] for row in rows] for rows in voters]
    classes = matching.equivalence_classes(answers, matcher=matcher, mode=match_mode)  # type: ignore[arg-type]
    q, correct = top_answer(run.confidence, run.correct, run.mask)
    q = np.where((q >= 0) & (q <= 1), q, 0.0)
    chosen: dict[str, list[int]] = {}
    for name in selection.METHODS:
        picks = []
        for rows, candidates, ids in zip(groups, voters, classes, strict=True):
            at = selection.choose(name, q[candidates].tolist(), ids[: len(candidates)].tolist()) if candidates else 0
            picks.append(candidates[at] if candidates else rows[0])
        chosen[name] = picks
    each = [correct[rows] for rows in groups]
    accuracy = {name: float(correct[picks].mean()) for name, picks in chosen.items()}
    return {
        "prompts": len(groups),
        "rollouts": len(run),
        "accuracy": {
            "one sample": float(np.mean([right.mean() for right in each])),
            **accuracy,
            "any right": float(np.mean([right.any() for right in each])),
        },
    }, chosen


def _write(source: Path, to: Path, rows: set[int]) -> None:
    position = 0
    with row_writer(to) as writer:
        for batch in RowFile.open(source).batches():
            keep = [i for i in range(len(batch)) if position + i in rows]
            position += len(batch)
            if keep:
                writer.write({name: [values[i] for i in keep] for name, values in batch.columns.items()})


def _print(facts: dict[str, Any]) -> None:
    used = ", ".join(f"{role} {name}" for role, name in facts["used"].items())
    out.print(
        f"{facts['file']}: {facts['rollouts']} rollouts of {facts['prompts']} prompts; {used}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("answer")
    table.add_column("accuracy", justify="right")
    for name, value in facts["accuracy"].items():
        table.add_row(name, f"{value:.4f}")
    out.print(table)
    if facts["out"]:
        out.print(f"wrote {facts['out']} ({facts['method']})", markup=False, highlight=False, soft_wrap=True)
