"""``rewardkit evaluate``: accuracy and calibration of rollout files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from rewardkit.cli import reading as options
from rewardkit.cli.app import app, err, out
from rewardkit.data.files import check_output, write_text
from rewardkit.evaluation import ALL, Settings
from rewardkit.evaluation import evaluate as run

_COLUMNS: tuple[tuple[str, str], ...] = (
    ("accuracy", "acc"),
    ("mean_confidence", "conf"),
    ("brier_loss", "Brier"),
    ("ece", "ECE"),
    ("auroc", "AUROC"),
    ("format_adherence", "format"),
)
_MORE: tuple[tuple[str, str], ...] = (
    ("set_accuracy", "any right"),
    ("coverage", "coverage"),
    ("precision", "precision"),
    ("set_ece", "Set ECE"),
    ("confidence_mass", "mass"),
    ("uniqueness", "unique"),
    ("event_nll", "NLL"),
    ("other_ece", "Other ECE"),
    ("event_ece", "event ECE"),
    ("p_gold_gap", "p_gold gap"),
)

_WIDE = 140  # columns of a terminal from which on intervals fit into the table


@app.command()
def evaluate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Rollouts, JSONL or Parquet; or directories.")],
    by: Annotated[list[str] | None, typer.Option("--by", metavar="COL", help="Group by a column (repeatable).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything as JSON on stdout.")] = False,
    markdown: Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Write the tables there.")] = None,
    bins: Annotated[int, typer.Option("--bins", metavar="N", help="Bins of calibration errors.")] = 10,
    scheme: Annotated[str, typer.Option("--scheme", metavar="NAME", help="width or mass.")] = "width",
    edge: Annotated[str | None, typer.Option("--edge", metavar="NAME", help="left (default), right or rlcr.")] = None,
    draws: Annotated[
        int, typer.Option("--draws", metavar="N", min=0, help="Bootstrap draws for intervals; 0 for none.")
    ] = 1000,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of redraws.")] = 0,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="GROUP", help="Compare the other groups with this one, paired by prompt."),
    ] = None,
    on_invalid: Annotated[
        str,
        typer.Option(
            "--on-invalid",
            metavar="NAME",
            help="Rows that do not follow the format: zero (a missing answer is wrong), or drop them.",
        ),
    ] = "zero",
    exclusive: Annotated[
        bool | None,
        typer.Option(
            "--exclusive/--independent", help="Whether at most one answer of a set can be right; default: by the golds."
        ),
    ] = None,
    set_construction: Annotated[
        str | None, typer.Option("--set-construction", metavar="NAME", help="single_gen or independent_samples.")
    ] = None,
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
    source: options.Source = None,
    matcher: options.Matcher = "exact",
    matcher_for: options.MatcherFor = None,
    match_mode: options.MatchMode = "numeric_safe",
    gold_kind: options.GoldKind = None,
    missing: options.Missing = None,
    compat: options.Compat = "auto",
) -> None:
    """Accuracy and calibration of rollouts, group by group.

    Several files are compared with the first, paired by prompt. Columns are found by their usual names, and what was used is printed. Every ECE comes with the level that a perfectly
    calibrated model would get by chance.
    """
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
            source=source,
            matcher_for=matcher_for,
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
        draws=draws,
        seed=seed,
        on_invalid=on_invalid,
        exclusive=exclusive,
        set_construction=set_construction,
        baseline=baseline,
    )
    check_output(markdown, files, option="--markdown")
    with options.rows_progress("reading") as progress:
        result = run(files, settings, progress=progress)
    if markdown is not None:
        write_text(markdown, to_markdown(result))
        err.print(f"wrote {markdown}", markup=False, highlight=False)
    if as_json:
        print(json.dumps(result, indent=1, allow_nan=False))
    elif markdown is None:
        _print(result)


def to_markdown(result: dict[str, Any]) -> str:
    """The result as Markdown tables."""
    lines: list[str] = []
    for file in result["files"]:
        lines += [f"## {file['file']}", "", _used(file), ""]
        lines += [f"- {note}" for note in file["notes"]] + ([""] if file["notes"] else [])
        header, rows = _rows(file, intervals=True)
        lines += [*_markdown_table(header, rows), ""]
    if result["comparisons"]:
        lines += [f"## {_comparison_title(result['comparisons'])}", ""]
        lines += [*_markdown_table(*_comparison_rows(result["comparisons"])), ""]
    return "\n".join(lines)


def _print(result: dict[str, Any]) -> None:
    for file in result["files"]:
        header, rows = _rows(file, intervals=out.width >= _WIDE)
        out.print(f"{file['file']}: {_used(file)}", markup=False, highlight=False, soft_wrap=True)
        for note in file["notes"]:
            out.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
        _table(header, rows)
    if result["comparisons"]:
        out.print(_comparison_title(result["comparisons"]), markup=False, highlight=False)
        _table(*_comparison_rows(result["comparisons"]))


def _table(header: list[str], rows: list[list[str]]) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for index, name in enumerate(header):
        table.add_column(name, justify="right" if index else "left", overflow="fold", no_wrap=index > 0)
    for row in rows:
        table.add_row(*map(Text, row))
    out.print(table)


def _used(file: dict[str, Any]) -> str:
    used = ", ".join(f"{role} {_plain(column)}" for role, column in file["used"].items())
    bins = file["bins"]
    return f"{file['n']} rollouts; {used}; {bins['bins']} bins of equal {bins['scheme']}, edge {bins['edge']}"


def _plain(value: Any) -> str:
    return " or ".join(value) if isinstance(value, list) else str(value)


def _rows(file: dict[str, Any], *, intervals: bool) -> tuple[list[str], list[list[str]]]:
    groups = file["groups"]
    columns = [*_COLUMNS, *(column for column in _MORE if any(column[0] in values for values in groups.values()))]
    header, keys = ["group", "n"], []
    for key, title in columns:
        header += [title, "null", "p"] if key == "ece" else [title]
        keys.append(key)
    rows = []
    for name, values in groups.items():
        cells = [name if name != ALL else "all rows", str(values["n"])]
        for key in keys:
            cells.append(_cell(values, key, intervals=intervals))
            if key == "ece":
                null = values["null"].get(key)
                cells += ["-", "-"] if null is None else [f"{null['mean']:.3f}", f"{null['p_value']:.3f}"]
        rows.append(cells)
    return header, rows


def _cell(values: dict[str, Any], key: str, *, intervals: bool) -> str:
    value = values.get(key)
    if value is None:
        return "undefined" if key in values.get("undefined", {}) else "-"
    interval = values.get("intervals", {}).get(key)
    return f"{value:.4f} [{interval[0]:.3f}, {interval[1]:.3f}]" if interval and intervals else f"{value:.4f}"


def _comparison_rows(comparisons: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    several = len({entry["file"] for entry in comparisons}) > 1
    rows = []
    for entry in comparisons:
        low, high, p_value = entry["low"], entry["high"], entry["p_value"]
        name = [Path(entry["file"]).name] if several or entry["group"] == ALL else []
        name += [entry["group"]] if entry["group"] != ALL else []
        rows.append(
            [
                ": ".join(name),
                entry["metric"],
                "-" if entry["value"] is None else f"{entry['value']:+.4f}",
                "-" if low is None else f"[{low:+.4f}, {high:+.4f}]",
                "-" if p_value is None else f"{p_value:.3f}",
            ]
        )
    return ["", "metric", "difference", "95 % interval", "p"], rows


def _comparison_title(comparisons: list[dict[str, Any]]) -> str:
    return f"Differences from {comparisons[0]['baseline']}, paired by prompt"


def _markdown_table(header: list[str], rows: list[list[str]]) -> list[str]:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return [line(header), "|" + "---|" * len(header), *map(line, rows)]
