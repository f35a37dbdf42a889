"""From rollout files to the page: reads them, measures, draws, packs the texts and writes the file."""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import rewardkit
from rewardkit import metrics
from rewardkit.data.files import PathLike, check_output, write_text
from rewardkit.data.rollouts import Progress
from rewardkit.errors import InvalidArgumentError, MissingExtraError
from rewardkit.evaluation import Settings, edge_of, measure
from rewardkit.report import figures, rollouts
from rewardkit.report.rollouts import Source

MAX_MEGABYTES = 30.0
"""The largest page that a browser opens without pain, and that a person sends to a colleague."""
_LARGEST_MEGABYTES = 2000.0
_PAGE_MEGABYTES = 2.5
"""What the page weighs beside the rollouts: tables and diagrams."""

SUMMARY = {
    "n": "n",
    "accuracy": "accuracy",
    "mean_confidence": "mean confidence",
    "brier_loss": "Brier",
    "ece": "ECE",
    "auroc": "AUROC",
    "format_adherence": "format",
}
_BY_KIND = {
    "set": {"coverage": "coverage", "precision": "precision", "set_brier": "set Brier", "set_ece": "set ECE"},
    "hypotheses": {
        "hypotheses": "hypotheses",
        "mean_other": "Other",
        "other_ece": "Other ECE",
        "event_ece": "event ECE",
    },
}


@dataclass(frozen=True)
class Report:
    """What was written.

    Attributes:
        path: The page.
        rollouts: How many rollouts the tables and diagrams are about.
        shown: How many of them can be read in the page.
        megabytes: Its size.
    """

    path: Path
    rollouts: int
    shown: int
    megabytes: float


@dataclass(frozen=True)
class _Page:
    """The parts of the page, ready for the template."""

    summary: dict[str, Any]
    figures: list[figures.Figure]
    statuses: list[tuple[Any, ...]]
    curve: figures.Figure | None
    packed: rollouts.Packed
    notes: list[str] = field(default_factory=list)


def build_report(
    paths: Sequence[PathLike],
    output: PathLike,
    *,
    settings: Settings | None = None,
    title: str | None = None,
    reward_column: str | None = None,
    max_megabytes: float = MAX_MEGABYTES,
    refresh_seconds: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Writes the page.

    Args:
        paths: Rollout files (JSON Lines or Parquet); a directory stands for the row files in it, as one run.
        output: The HTML file to write; it appears whole or not at all.
        settings: How files are read and grouped, and how errors of calibration are binned.
        title: Of the page.
        reward_column: The column of rewards; the usual names are tried when ``None``.
        max_megabytes: The largest page. When the rollouts need more, a seeded sample that keeps every group, status and
            outcome is in the page, and it says so; tables and diagrams are about all rollouts in any case.
        refresh_seconds: Makes the browser load the page again so often.
        progress: Called with rows done and rows in all while files are read.

    Returns:
        What was written.

    Raises:
        FileNotFoundError, DataError: A file, a column or a value is not what was expected.
        InvalidArgumentError, UnknownNameError: A setting is wrong.
        MissingExtraError: matplotlib or Jinja is not installed.
    """
    least = _PAGE_MEGABYTES + 0.5
    if not isinstance(max_megabytes, (int, float)) or not least <= max_megabytes <= _LARGEST_MEGABYTES:
        raise InvalidArgumentError(
            "max_megabytes", expected=f"a number in [{least:g}, {_LARGEST_MEGABYTES:g}]", got=max_megabytes
        )
    check_output(output, paths, option="output")
    _need_extras()
    settings = settings or Settings(draws=0)
    sources = rollouts.read_sources(paths, settings, progress=progress)
    groups = _groups(sources)
    packed = rollouts.pack(
        sources,
        groups,
        reward_column=reward_column,
        budget=int((max_megabytes - _PAGE_MEGABYTES) * 1e6),
        seed=settings.seed,
        progress=progress,
    )
    page = _Page(
        summary=_summary(sources, groups, settings),
        figures=_figures(sources, groups, settings),
        statuses=_statuses(sources, groups),
        curve=figures.curve(_steps(sources, settings, packed.rewards)),
        packed=packed,
        notes=[f"{source.label}: {note}" for source in sources for note in source.run.notes],
    )
    total = sum(len(source.run) for source in sources)
    text = _render(page, title or "Rollouts", sources, total, settings, refresh_seconds)
    write_text(output, text)
    return Report(Path(output), total, packed.shown, len(text.encode("utf-8", "backslashreplace")) / 1e6)


def _need_extras() -> None:
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("the report", package=str(error.name), extra="report") from error


@dataclass(frozen=True)
class Group:
    """Some rows of one source, under one name."""

    name: str
    source: int
    rows: Any


def _groups(sources: Sequence[Source]) -> list[Group]:
    result = []
    for number, source in enumerate(sources):
        members: dict[tuple[str, ...], list[int]] = {}
        for row, key in enumerate(source.run.keys):
            members.setdefault(key, []).append(row)
        for key, rows in members.items():
            parts = ([source.label] if len(sources) > 1 else []) + list(key)
            result.append(Group(" / ".join(parts) or "all", number, np.array(rows)))
    return result


def _summary(sources: Sequence[Source], groups: Sequence[Group], settings: Settings) -> dict[str, Any]:
    kinds = {source.run.kind for source in sources}
    columns = SUMMARY | {name: text for kind in sorted(kinds) for name, text in _BY_KIND.get(kind, {}).items()}
    rows, notes = [], []
    for group in groups:
        found = measure(sources[group.source].run, group.rows, settings)
        rows.append([group.name, *(_cell(found, name) for name in columns)])
        for name, why in found.get("undefined", {}).items():
            notes.append(f"{group.name}: {columns.get(name, name)} is undefined: {why}.")
        left_out = found["confidence_missing"] + found["confidence_invalid"]
        if left_out:
            notes.append(
                f"{group.name}: {found['confidence_missing']} confidences missing and {found['confidence_invalid']} outside [0, 1]; "
                "these rollouts are in no calibration figure."
            )
    edges = ", ".join(sorted({edge_of(source.run, settings) for source in sources}))
    notes.insert(
        0,
        f"ECE with {settings.bins} bins of equal {settings.scheme}, edge {edges}; in brackets its mean for a perfectly calibrated model with "
        "these confidences (what noise alone gives).",
    )
    return {"columns": ["group", *columns.values()], "rows": rows, "notes": notes}


def _cell(found: dict[str, Any], name: str) -> str:
    value = found.get(name)
    if value is None:
        return "–"
    if name == "n":
        return f"{value:,}"
    null = found["null"].get(name)
    return f"{value:.4f}" + (f" ({null['mean']:.4f})" if null and null.get("mean") is not None else "")


def _statuses(sources: Sequence[Source], groups: Sequence[Group]) -> list[tuple[Any, ...]]:
    result = []
    for group in groups:
        run = sources[group.source].run
        counts = Counter(rollouts.status_of(run, row) for row in group.rows.tolist())
        for (status, reason), count in sorted(counts.items(), key=lambda item: (item[0][0] != "ok", -item[1])):
            result.append((group.name, status, reason, f"{count:,}", f"{100 * count / len(group.rows):.2f} %"))
    return result


def _figures(sources: Sequence[Source], groups: Sequence[Group], settings: Settings) -> list[figures.Figure]:
    series = []
    for group in groups:
        q, y = sources[group.source].top
        q, y = q[group.rows], y[group.rows]
        usable = ~np.isnan(q) & (q >= 0) & (q <= 1)
        if usable.any():
            edge = edge_of(sources[group.source].run, settings)
            series.append(figures.Series(group.name, q[usable], y[usable], edge))
    return figures.calibration(series, settings)


def _steps(sources: Sequence[Source], settings: Settings, rewards: Sequence[Any]) -> list[figures.Step]:
    """The course of training, where a source is a run of numbered files (as verl dumps them) or has a column of steps."""
    result = []
    for source, reward in zip(sources, rewards, strict=True):
        for step, rows in source.steps():
            q, y = source.top[0][rows], source.top[1][rows]
            known = ~np.isnan(q) & (q >= 0) & (q <= 1)
            value = np.asarray(reward)[rows]
            value = value[~np.isnan(value)]
            gap = metrics.ece(
                confidence=q[known],
                correct=y[known],
                bins=settings.bins,
                scheme=settings.scheme,  # type: ignore[arg-type]
                edge=edge_of(source.run, settings),
            )
            result.append(
                figures.Step(
                    source.label,
                    step,
                    {
                        "reward": float(value.mean()) if len(value) else math.nan,
                        "accuracy": float(y.mean()),
                        "mean confidence": float(q[known].mean()) if known.any() else math.nan,
                        "ECE": float(gap),
                        "format": float(source.run.wellformed[rows].mean()),
                    },
                )
            )
    return result


def _render(
    page: _Page, title: str, sources: Sequence[Source], total: int, settings: Settings, refresh: int | None
) -> str:
    import jinja2

    files = importlib.resources.files("rewardkit.report")
    script = (files / "report.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string((files / "report.html.j2").read_text("utf-8"))
    shown = page.packed.shown
    sample = (
        "All rollouts are in this page."
        if shown == total
        else f"{shown:,} of {total:,} rollouts are in this page: a sample that keeps every group, status and outcome, so that the page "
        "stays small (a larger one: --max-megabytes). Tables and diagrams are about all of them."
    )
    used = "; ".join(
        f"{source.label}: " + ", ".join(f"{key} {json.dumps(value)}" for key, value in source.run.used.items())
        for source in sources
    )
    return template.render(
        title=title,
        subtitle=f"{total:,} rollouts from {', '.join(source.label for source in sources)} · rewardkit {rewardkit.__version__} · "
        f"read as: {used}",
        css=(files / "report.css").read_text("utf-8"),
        script=script,
        script_hash=digest,
        refresh=refresh,
        summary={**page.summary, "notes": page.summary["notes"] + page.notes},
        figures=page.figures,
        statuses=page.statuses,
        curve=page.curve,
        sample_note=sample,
        index=page.packed.index,
        chunks=page.packed.chunks,
    )
