"""Runs the toy experiments: a table, a plot, and for each claim what was seen and whether it held."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from experiments.toy import Report

MODULES = {
    "t1": "t1_failure_reward",
    "t2": "t2_calibration_rewards",
    "t3": "t3_group_scaling",
    "t4": "t4_hypotheses",
    "t5": "t5_multi_answer",
    "t6": "t6_backoff_failure",
}


def run(name: str) -> Report:
    """Runs one experiment by its short name."""
    return importlib.import_module(f"experiments.{MODULES[name]}").run()


def show(report: Report, console: Console) -> None:
    console.rule(f"[bold]{report.name.upper()}: {escape(report.title)}")
    if report.note:
        console.print(escape(report.note))
    table = Table(*report.columns, show_edge=False)
    for row in report.rows:
        table.add_row(*map(escape, row))
    console.print(table)
    for finding in report.findings:
        mark = "[green]held        [/green]" if finding.held else "[red]did not hold[/red]"
        console.print(f"{mark}  {escape(finding.claim)}\n              seen: {escape(finding.seen)}")


def save(report: Report, folder: Path) -> Path:
    """Writes the plot and the findings, each by way of a temporary file."""
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(12, 5), layout="constrained")
    report.draw(figure)
    figure.suptitle(report.title)
    picture = folder / f"{report.name}.png"
    figure.savefig(picture.with_suffix(".part"), format="png", dpi=120)
    os.replace(picture.with_suffix(".part"), picture)
    facts = {
        "title": report.title,
        "columns": report.columns,
        "rows": report.rows,
        "findings": [{**vars(finding), "held": bool(finding.held)} for finding in report.findings],
    }
    text = folder / f"{report.name}.json"
    text.with_suffix(".json.part").write_text(json.dumps(facts, indent=2) + "\n")
    os.replace(text.with_suffix(".json.part"), text)
    return picture


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"any of {', '.join(MODULES)}; all of them if none is named"
    )
    parser.add_argument("--out", type=Path, default=Path("outputs/experiments"), help="folder for plots and numbers")
    arguments = parser.parse_args()
    names = [name.lower() for name in arguments.names] or list(MODULES)
    for name in names:
        if name not in MODULES:
            parser.error(f"no experiment {name!r}: choose from {', '.join(MODULES)}")
    console, reports, began = Console(), [], time.monotonic()
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task("", total=None)
        for name in names:
            progress.update(task, description=f"{name}: {MODULES[name]}")
            report = run(name)
            picture = save(report, arguments.out)
            reports.append(report)
            show(report, console)
            console.print(f"plot: {picture}\n")
    held = sum(finding.held for report in reports for finding in report.findings)
    claims = sum(len(report.findings) for report in reports)
    console.print(f"{held} of {claims} claims held, in {time.monotonic() - began:.0f} s.")


if __name__ == "__main__":
    main()
