"""The diagrams of the report, as SVG text."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from rewardkit import metrics
from rewardkit.evaluation import Settings

MOST_PANELS = 8
_RIGHT, _WRONG, _LINE = "#2c7a4b", "#b5483a", "#2b5c8a"


@dataclass(frozen=True)
class Figure:
    """A diagram and what it shows."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Series:
    """The confidences of one group, all in [0, 1], whether each answer was right, and on which side bins are closed."""

    name: str
    confidence: Any
    correct: Any
    edge: Any


@dataclass(frozen=True)
class Step:
    """One step of a training run: its number, and the mean of each quantity (NaN where unknown)."""

    source: str
    step: float
    values: Mapping[str, float]


def calibration(series: Sequence[Series], settings: Settings) -> list[Figure]:
    """Reliability diagrams, histograms of confidence and the risk-coverage curve, the largest groups first."""
    if not series:
        return []
    shown = sorted(series, key=lambda one: -len(one.confidence))[:MOST_PANELS]
    left_out = f" The {len(shown)} largest of {len(series)} groups." if len(shown) < len(series) else ""
    return [
        Figure(
            _grid(shown, lambda axes, one: _reliability(axes, one, settings)),
            f"Reliability: accuracy against mean confidence per bin ({settings.bins} {settings.scheme} bins), with 95 % Wilson "
            f"intervals; the area of a dot is the share of answers. On the diagonal a confidence means what it says.{left_out}",
        ),
        Figure(
            _grid(shown, _histogram),
            f"How confident right (green) and wrong (red) answers are.{left_out}",
        ),
        Figure(
            _risk_coverage(shown),
            "Risk and coverage: the error rate when only the most confident share of the answers is kept. Confidences that rank well "
            f"fall steeply to the left.{left_out}",
        ),
    ]


def curve(steps: Sequence[Step]) -> Figure | None:
    """Quantities over the steps of training; ``None`` with fewer than two steps."""
    if len({step.step for step in steps}) < 2:
        return None
    names = [name for name in steps[0].values if not all(math.isnan(step.values[name]) for step in steps)]
    with _style():
        from matplotlib.figure import Figure as Canvas

        figure = Canvas(figsize=(3.1 * len(names), 2.8), layout="constrained")
        for axes, name in zip(np.atleast_1d(figure.subplots(1, len(names))), names, strict=True):
            for source in dict.fromkeys(step.source for step in steps):
                own = sorted((step.step, step.values[name]) for step in steps if step.source == source)
                axes.plot(*zip(*own, strict=True), marker=".", label=source)
            axes.set_title(name)
            axes.set_xlabel("step")
        if len({step.source for step in steps}) > 1:
            figure.axes[0].legend(frameon=False, fontsize=8)
        return Figure(_svg(figure), "Means over the rollouts of each step.")


def _reliability(axes: Any, one: Series, settings: Settings) -> None:
    found = metrics.reliability(
        confidence=one.confidence,
        correct=one.correct,
        bins=settings.bins,
        scheme=settings.scheme,  # type: ignore[arg-type]
        edge=one.edge,
    )
    used = found.count > 0
    x, y = found.mean_confidence[used], found.accuracy[used]
    axes.plot([0, 1], [0, 1], color="#999999", linewidth=1, linestyle="--")
    spread = np.clip(np.vstack([y - found.low[used], found.high[used] - y]), 0, None)
    axes.errorbar(x, y, yerr=spread, fmt="none", ecolor=_LINE, elinewidth=1, alpha=0.6)
    axes.scatter(x, y, s=12 + 260 * found.count[used] / found.count.sum(), color=_LINE, alpha=0.85, linewidths=0)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="confidence", ylabel="accuracy", aspect="equal")
    null = found.ece.null
    level = f" (null {float(null):.3f})" if null is not None else ""
    axes.set_title(f"{_short(one.name)}\nECE {float(found.ece):.3f}{level}, n {len(one.confidence):,}")


def _histogram(axes: Any, one: Series) -> None:
    edges = np.linspace(0, 1, 21)
    right = one.correct.astype(bool)
    axes.hist(
        [one.confidence[right], one.confidence[~right]], bins=edges, stacked=True, color=[_RIGHT, _WRONG], alpha=0.85
    )
    axes.set(xlim=(0, 1), xlabel="confidence", ylabel="answers")
    axes.set_title(_short(one.name))


def _risk_coverage(series: Sequence[Series]) -> str:
    with _style():
        from matplotlib.figure import Figure as Canvas

        figure = Canvas(figsize=(6.2, 3.6), layout="constrained")
        axes = figure.subplots()
        for one in series:
            found = metrics.risk_coverage(confidence=one.confidence, correct=one.correct)
            keep = np.unique(np.linspace(0, len(found.coverage) - 1, 400).astype(int))
            axes.step(
                np.concatenate([[0.0], found.coverage[keep]]),
                np.concatenate([found.risk[:1], found.risk[keep]]),
                where="pre",
                label=f"{_short(one.name)} (area {found.area:.3f})",
            )
        axes.set(xlim=(0, 1), ylim=(0, None), xlabel="coverage", ylabel="error rate")
        axes.legend(frameon=False, fontsize=8)
        return _svg(figure)


def _grid(series: Sequence[Series], draw: Any) -> str:
    with _style():
        from matplotlib.figure import Figure as Canvas

        columns = min(4, len(series))
        rows = math.ceil(len(series) / columns)
        figure = Canvas(figsize=(3.0 * columns, 3.2 * rows), layout="constrained")
        panels = np.atleast_1d(figure.subplots(rows, columns)).ravel()
        for axes, one in zip(panels, series, strict=False):
            draw(axes, one)
        for axes in panels[len(series) :]:
            axes.set_axis_off()
        return _svg(figure)


def _short(name: str, limit: int = 32) -> str:
    printable = "".join(character if character.isprintable() else " " for character in name)
    return printable if len(printable) <= limit else printable[: limit - 1] + "…"


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib

    # Group names may hold anything: no dollar sign starts a formula. Fixed ids make equal data equal pages.
    settings: dict[Any, Any] = {
        "text.parse_math": False,
        "svg.fonttype": "none",
        "svg.hashsalt": "rewardkit",
        "font.size": 9,
    }
    with matplotlib.rc_context({**settings, "axes.titlesize": 9, "axes.spines.top": False, "axes.spines.right": False}):
        yield


def _svg(figure: Any) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()[text.getvalue().index("<svg") :]
