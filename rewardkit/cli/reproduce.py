"""``rewardkit reproduce``: published numbers beside the ones computed here from the same data."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from rewardkit import matching, parsing
from rewardkit.cli.app import app, err, out
from rewardkit.data.files import RowFile
from rewardkit.data.rollouts import Reading
from rewardkit.errors import DataError, MissingExtraError
from rewardkit.evaluation import Settings, evaluate

_TOLERANCE = 1e-12
_RLCR = ("rlcr/published_metrics.json", "rlcr/math-500.parquet", "rlcr/commonsenseqa.parquet")
_DDXPLUS = ("ddxplus/release_conditions.json", "ddxplus/release_evidences.json")
_RLCR_METRICS = {
    "accuracy": "accuracy",
    "pass@1": "accuracy",
    "brier_score": "brier_loss",
    "ece": "ece",
    "auroc": "auroc",
    "confidence level": "mean_confidence",
    "confidence format adherence": "format_adherence",
    "completion length": "completion_length",
}
_RLCR_TEXT_METHODS = ("Base", "RLVR", "RLCR")
_RLCR_FAMILY = "Hotpot-models"  # the models whose outputs the data folder holds


@dataclass(frozen=True)
class Row:
    """One number.

    Attributes:
        section: Which publication.
        what: Which number.
        published: As published, or as the data set says; ``None`` where a whole section was not run.
        recomputed: From the data; ``None`` where it was not computed.
        verdict: "equal", "differs" or "not run".
        note: What explains a difference, or how it was computed.
    """

    section: str
    what: str
    published: float | None
    recomputed: float | None
    verdict: str
    note: str = ""


@app.command()
def reproduce(
    data: Annotated[
        Path,
        typer.Option("--data", metavar="DIR", help="Folder with rlcr/, qa_preds/, mbpp/, … (see docs/offline.md)."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Rows as JSON on stdout.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out what takes over ten seconds (math labels).")
    ] = False,
    failures: Annotated[bool, typer.Option("--failures", help="Show only rows that are not equal.")] = False,
) -> None:
    """Recompute published numbers from the data behind them.

    Prints every published number that the data allows to recompute, with a verdict per row; what is not in the folder is
    named. Exit code 1 if a number differs and no note explains why.
    """
    if not data.is_dir():
        raise DataError("a folder of data (--data DIR)", "none", file=str(data))
    if not any((data / name).is_file() for section in SECTIONS for name in section.files):
        needed = ", ".join(dict.fromkeys(name for section in SECTIONS for name in section.files))
        raise DataError(f"a folder with {needed} (some of them; docs/offline.md)", "none of them", file=str(data))
    rows: list[Row] = []
    for section in SECTIONS:
        absent = [name for name in section.files if not (data / name).is_file()]
        if absent or (quick and section.slow):
            note = f"not in the folder: {', '.join(absent)}" if absent else "left out by --quick"
            rows.append(Row(section.name, section.about, None, None, "not run", note))
            continue
        with err.status(section.about) if err.is_terminal else contextlib.nullcontext():
            rows += section.run(data)
    counts = Counter(row.verdict for row in rows)
    unexplained = sum(row.verdict == "differs" and not row.note for row in rows)
    if as_json:
        print(
            json.dumps(
                {"rows": [asdict(row) for row in rows], "verdicts": counts, "unexplained": unexplained}, indent=1
            )
        )
    else:
        _print([row for row in rows if not failures or row.verdict != "equal"], counts)
    if unexplained:
        raise typer.Exit(1)


def _row(
    section: str, what: str, published: float, recomputed: float, note: str = "", *, tolerance: float = 0.0
) -> Row:
    equal = abs(published - recomputed) <= tolerance
    return Row(section, what, published, recomputed, "equal" if equal else "differs", note)


def _rlcr(data: Path) -> Iterator[Row]:
    published = _published(data)
    held = 0
    for path in _rlcr_files(data):
        expected = published[_RLCR_FAMILY][path.stem]
        result = evaluate([path], Settings(by=("method",), draws=0))
        groups = result["files"][0]["groups"]
        for method, numbers in expected.items():
            for name, value in numbers.items():
                found = groups[method][_RLCR_METRICS[name]]
                yield _row("RLCR", f"{path.stem} {method} {name}", value, found, tolerance=_TOLERANCE)
                held += 1
    total = sum(
        len(numbers) for family in published.values() for methods in family.values() for numbers in methods.values()
    )
    note = f"the outputs of {total - held} of the {total} published numbers are not in the data folder"
    yield Row("RLCR", "numbers of other data sets and models", float(total - held), None, "not run", note)


def _rlcr_text(data: Path) -> Iterator[Row]:
    """Confidence and format from the completions instead of the stored columns."""
    published = _published(data)[_RLCR_FAMILY]
    reading = Reading(columns={"confidence": "none", "wellformed": "none"})
    for path in _rlcr_files(data):
        groups = evaluate([path], Settings(reading=reading, by=("method",), draws=0))["files"][0]["groups"]
        for method in _RLCR_TEXT_METHODS:
            for name in ("brier_score", "ece", "auroc", "confidence level", "confidence format adherence"):
                value, found = published[path.stem][method][name], groups[method][_RLCR_METRICS[name]]
                yield _row("RLCR from text", f"{path.stem} {method} {name}", value, found, tolerance=_TOLERANCE)


def _rlcr_labels(data: Path) -> Iterator[Row]:
    """The stored labels of math-500, judged again by math-verify."""
    section = "RLCR math labels"
    batch = RowFile.open(data / "rlcr" / "math-500.parquet").read(["completion", "answer", "label"])
    labels = batch.labels("label")
    forecast = parsing.parse(batch.texts("completion"), "ta", "rlcr")
    try:
        released = matching.match(forecast, batch.column("answer"), matcher="math", gold="raw", mode="official")
        parsed = matching.match(forecast, batch.column("answer"), matcher="math")
    except MissingExtraError as error:
        yield Row(section, "labels equal", float(len(labels)), None, "not run", str(error))
        return
    same = int((released.correct[:, 0] == labels).sum())
    yield _row(section, "labels equal, judged as the released code does", len(labels), same)
    now = parsed.correct[:, 0]
    note = (
        f"the released code passes the gold as an unparsed string, which misses right answers, and tries SQuAD's exact match "
        f"first, which deletes signs, so that 1 passes for -1; here {int((now & ~labels).sum())} labels turn to right and "
        f"{int((~now & labels).sum())} to wrong"
    )
    yield _row(section, "right answers, judged with the gold parsed", int(labels.sum()), int(now.sum()), note)


def _qa(data: Path) -> Iterator[Row]:
    section = "NQ-open"
    batch = RowFile.open(data / "qa_preds" / "nq_open_predictions.parquet").read(
        ["model", "answers", "prediction", "em", "f1"]
    )
    predictions, references = batch.texts("prediction"), batch.column("answers")
    exact = matching.exact_match(predictions, references, mode="official")
    f1 = matching.token_f1(predictions, references, mode="official")
    stored = {"EM": batch.numbers("em"), "F1": batch.numbers("f1")}
    models = np.array(batch.column("model"))
    for model in dict.fromkeys(models.tolist()):
        rows = models == model
        for name, found in (("EM", exact), ("F1", f1)):
            theirs = stored[name]
            same = int((np.abs(theirs[rows] - found[rows]) <= _TOLERANCE).sum())
            note = f"{same} of {rows.sum()} rows equal"
            value, recomputed = float(theirs[rows].mean()), float(found[rows].mean())
            yield _row(section, f"{model} {name}", value, recomputed, note, tolerance=_TOLERANCE)


def _mbpp(data: Path) -> Iterator[Row]:
    section = "MBPP sizes"
    mbpp = RowFile.open(data / "mbpp" / "mbpp.parquet").read(["task_id", "split"])
    yield _row(section, "tasks (Austin et al. 2021)", 974, len(mbpp))
    splits = Counter(mbpp.column("split"))
    for split, count in (("prompt", 10), ("test", 500), ("validation", 90), ("train", 374)):
        yield _row(section, split, count, splits[split])
    sanitized = RowFile.open(data / "mbpp" / "sanitized-mbpp.parquet")
    yield _row(section, "sanitized", 427, sanitized.n_rows or 0)


def _hotpotqa(data: Path) -> Iterator[Row]:
    section = "HotpotQA sizes"
    hotpot = RowFile.open(data / "hotpotqa" / "distractor.parquet").read(["context", "supporting_facts"])
    ten = sum(len(context) == 10 for context in hotpot.column("context"))
    note = "the distractor setting means 10 paragraphs; a few questions have fewer"
    yield _row(section, "questions with 10 paragraphs", len(hotpot), ten, note)
    two = sum(len({fact["title"] for fact in facts}) == 2 for facts in hotpot.column("supporting_facts"))
    yield _row(section, "questions with 2 supporting titles", len(hotpot), two)


def _ddxplus(data: Path) -> Iterator[Row]:
    for name, count in (("conditions", 49), ("evidences", 223)):
        held = json.loads((data / "ddxplus" / f"release_{name}.json").read_text("utf-8"))
        yield _row("DDXPlus sizes", f"{name} (Fansi Tchango et al. 2022)", count, len(held))


def _rlcr_files(data: Path) -> list[Path]:
    return [data / name for name in _RLCR if name.endswith(".parquet")]


def _published(data: Path) -> dict[str, Any]:
    return json.loads((data / "rlcr" / "published_metrics.json").read_text())


@dataclass(frozen=True)
class Section:
    """The numbers of one publication.

    Attributes:
        name: As :attr:`Row.section`.
        about: What is recomputed.
        files: What it needs, relative to the folder of data; ``docs/offline.md`` says where each is published.
        run: Yields its rows.
        slow: Whether ``--quick`` leaves it out.
    """

    name: str
    about: str
    files: tuple[str, ...]
    run: Callable[[Path], Iterator[Row]]
    slow: bool = False


SECTIONS = (
    Section("RLCR", "tables (arXiv:2507.16806)", _RLCR, _rlcr),
    Section("RLCR from text", "the same from the text", _RLCR, _rlcr_text),
    Section("RLCR math labels", "labels of math-500", ("rlcr/math-500.parquet",), _rlcr_labels, slow=True),
    Section("NQ-open", "official EM and F1", ("qa_preds/nq_open_predictions.parquet",), _qa),
    Section("MBPP sizes", "numbers of tasks", ("mbpp/mbpp.parquet", "mbpp/sanitized-mbpp.parquet"), _mbpp),
    Section("HotpotQA sizes", "paragraphs and supporting titles", ("hotpotqa/distractor.parquet",), _hotpotqa),
    Section("DDXPlus sizes", "conditions and evidences", _DDXPLUS, _ddxplus),
)


def _print(rows: list[Row], counts: Counter[str]) -> None:
    for section in dict.fromkeys(row.section for row in rows):
        table = Table(box=SIMPLE_HEAD, pad_edge=False, title=section, title_justify="left")
        for name in ("number", "published", "here", "verdict"):
            table.add_column(name, justify="right" if name in ("published", "here") else "left", overflow="fold")
        for row in rows:
            if row.section == section:
                numbers = ("-" if one is None else f"{one:.10g}" for one in (row.published, row.recomputed))
                table.add_row(Text(row.what), *numbers, row.verdict)
        out.print(table)
    for row in rows:
        if row.note and row.verdict != "equal":
            out.print(f"{row.what}: {row.note}", markup=False, highlight=False, soft_wrap=True)
    explained = sum(row.verdict == "differs" and bool(row.note) for row in rows)
    verdicts = [f"{count} {verdict}" for verdict, count in counts.items() if verdict != "differs"]
    if counts["differs"]:
        verdicts.append(f"{counts['differs']} different, of which the notes explain {explained}")
    out.print(", ".join(verdicts), highlight=False)
