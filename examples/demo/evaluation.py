"""How right and how calibrated a policy is on the held-out questions, from what it wrote; and the table and plot of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rewardkit import matching, metrics, parsing

COLOURS = {"before": "#7f7f7f", "RLVR": "#d1495b", "RLCR": "#00798c"}


@dataclass(frozen=True)
class Evaluation:
    """A policy's answers to the held-out questions, read and compared.

    Attributes:
        name: "before", "RLVR" or "RLCR".
        correct: bool ``[N]``; an ill-formed answer is a wrong one.
        confidence: float64 ``[N]``; 0 where none could be read.
        wellformed: bool ``[N]``.
        kind: ``[N]`` each question's kind.
    """

    name: str
    correct: np.ndarray
    confidence: np.ndarray
    wellformed: np.ndarray
    kind: list[str]

    @property
    def numbers(self) -> dict[str, float]:
        """The line of the table."""
        stated = {"confidence": self.confidence, "correct": self.correct}
        ece = metrics.ece(**stated)
        null = metrics.ece_null(self.confidence, correct=self.correct)
        return {
            "n": len(self.correct),
            "accuracy": float(self.correct.mean()),
            "confidence": float(self.confidence.mean()),
            "brier": float(metrics.brier_loss(**stated)),
            "ece": float(ece),
            "ece_null": float(null),
            "ece_null_95": float(null.quantile95),
            "auroc": float(metrics.auroc(**stated)),
            "wellformed": float(self.wellformed.mean()),
        }

    def by_kind(self) -> dict[str, tuple[float, float]]:
        """Each kind's accuracy and mean stated confidence."""
        from examples.demo import world

        kinds = np.array(self.kind)
        return {
            kind: (float(self.correct[kinds == kind].mean()), float(self.confidence[kinds == kind].mean()))
            for kind in world.KINDS
            if (kinds == kind).any()
        }


def read(name: str, dump: Path) -> Evaluation:
    """Reads a dump of verl's validation: what was asked, what was answered, what turned out right."""
    from examples.demo import world

    rows = [json.loads(line) for line in dump.read_text().split("\n") if line]
    outputs = [row["output"] for row in rows]
    forecast = parsing.parse(outputs, format="tac", mode="strict")
    answers = [given[0] if given else "" for given in forecast.answers]
    equal = matching.exact_match(answers, [row["gts"] for row in rows])
    kinds = [next((kind for kind in world.KINDS if kind in row["input"]), "?") for row in rows]
    return Evaluation(
        name=name,
        correct=(equal > 0) & forecast.wellformed,
        confidence=np.where(forecast.wellformed, forecast.probs[:, 0], 0.0),
        wellformed=forecast.wellformed,
        kind=kinds,
    )


def table(evaluations: list[Evaluation]) -> Any:
    """A rich table: one row per policy."""
    from rich.table import Table

    result = Table(title=f"{len(evaluations[0].correct)} held-out questions", title_justify="left")
    result.add_column("policy")
    for heading in ("accuracy", "mean confidence", "Brier", "ECE", "ECE by chance (mean, 95%)", "well-formed"):
        result.add_column(heading, justify="right")
    for one in evaluations:
        found = one.numbers
        result.add_row(
            one.name,
            f"{found['accuracy']:.3f}",
            f"{found['confidence']:.3f}",
            f"{found['brier']:.3f}",
            f"{found['ece']:.3f}",
            f"{found['ece_null']:.3f}, {found['ece_null_95']:.3f}",
            f"{found['wellformed']:.0%}",
        )
    return result


def kinds_table(evaluations: list[Evaluation]) -> Any:
    """A rich table: what each policy states for each kind, beside what is true."""
    from rich.table import Table

    from examples.demo import world

    result = Table(title="mean stated confidence by kind of question", title_justify="left")
    result.add_column("kind")
    result.add_column("best answer is right", justify="right")
    for one in evaluations:
        result.add_column(one.name, justify="right")
    for kind, truth in world.KINDS.items():
        stated = [one.by_kind()[kind][1] for one in evaluations]
        result.add_row(kind, f"{truth:.1f}", *(f"{value:.2f}" for value in stated))
    return result


def plot(evaluations: list[Evaluation], path: Path) -> None:
    """Writes the reliability diagram: stated confidence against how often it was right, with 95% intervals."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(evaluations), figsize=(3.6 * len(evaluations), 4.4), sharey=True, squeeze=False, layout="constrained"
    )
    for place, (one, axis) in enumerate(zip(evaluations, axes[0], strict=True)):
        bins = metrics.reliability(confidence=one.confidence, correct=one.correct)
        used = np.asarray(bins.count) > 0
        x, y = np.asarray(bins.mean_confidence)[used], np.asarray(bins.accuracy)[used]
        low, high = np.asarray(bins.low)[used], np.asarray(bins.high)[used]
        weight = np.asarray(bins.count)[used] / len(one.correct)
        colour = COLOURS.get(one.name, "#333333")
        axis.plot([0, 1], [0, 1], color="#bbbbbb", linewidth=1, zorder=1)
        spread = np.clip([y - low, high - y], 0.0, None)  # at 0 and 1 an interval ends at y, up to rounding
        axis.errorbar(x, y, yerr=spread, fmt="none", ecolor=colour, alpha=0.5, zorder=2)
        axis.scatter(x, y, s=20 + 500 * weight, color=colour, alpha=0.85, edgecolor="white", zorder=3)
        found = one.numbers
        axis.set_title(f"{one.name}\naccuracy {found['accuracy']:.2f}, ECE {found['ece']:.3f}", fontsize=10)
        axis.set_xlabel("stated confidence")
        axis.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
        if place == 0:
            axis.set_ylabel("how often right")
    figure.supxlabel("area: share of answers; bars: 95% intervals", fontsize=8, color="#666666")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp.png")
    figure.savefig(unfinished, dpi=150)
    pyplot.close(figure)
    unfinished.replace(path)
