"""``rewardkit score``: rewards of a file of completions."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from rewardkit import rewards
from rewardkit.cli import reading as options
from rewardkit.cli.app import app, err, out
from rewardkit.data.files import BATCH_ROWS, Batch, RowFile, check_output, file_format, row_writer
from rewardkit.data.rollouts import Column, find_column, gold_kind_columns, references_of, usual_column
from rewardkit.errors import DataError, InvalidArgumentError
from rewardkit.rewards import Reward
from rewardkit.types import RewardBatch


@app.command()
def score(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Completions with references, JSONL or Parquet.")],
    reward: Annotated[
        str, typer.Option("--reward", "-r", metavar="NAME", help="Name of the reward, see `rewardkit info`.")
    ],
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param", "-p", metavar="NAME=VALUE", help="Parameter of the reward (repeatable); VALUE as JSON."
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Rows with their rewards, JSONL or Parquet.")
    ] = None,
    completion: options.Completion = None,
    references: options.References = None,
    gold_kind: options.GoldKind = None,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="NAME=COL", help="Column for what the reward needs, as prior_logprob=lp."),
    ] = None,
    group: Annotated[str | None, typer.Option("--group", metavar="COL", help="The prompt of a rollout.")] = None,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="NAME", help="Starts the names of the columns that are added.")
    ] = "reward",
    batch_rows: Annotated[
        int, typer.Option("--batch-rows", metavar="N", min=1, help="Rows scored together.")
    ] = BATCH_ROWS,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep scores in OUT.partial on the way, and go on from there.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Summary as JSON on stdout.")] = False,
) -> None:
    """Score every row of a file of completions.

    Prints a summary, and writes the rows with their rewards to --out. The file is read in batches, so it may be larger than memory. Nothing appears at --out unless all rows were scored.
    """
    if not prefix:
        raise InvalidArgumentError("--prefix", expected="the start of a column's name", got=prefix)
    chosen = rewards.get(reward, **_parameters(param))
    if resume and to is None:
        raise InvalidArgumentError("--resume", expected="--out, since scores are kept beside it", got=None)
    if to is not None:
        file_format(to)
    rows = RowFile.open(file)
    check_output(to, [file])
    scorer = _Scorer(
        chosen,
        rows,
        completion=completion,
        references=references,
        gold_kind=gold_kind,
        columns=options.assignments("--column", column),
        group=group,
    )
    added = [prefix, f"{prefix}_status", f"{prefix}_reason", *(f"{prefix}_{name}" for name in chosen.component_names)]
    clash = sorted(set(added) & set(rows.columns))
    if to is not None and clash:
        raise InvalidArgumentError(
            "--prefix",
            expected="a name for new columns that the file does not have",
            got=f"{prefix} ({', '.join(clash)})",
        )
    if chosen.needs_group:
        # A group may lie anywhere in the file, so it is scored at once.
        batch_rows = rows.n_rows or 1 << 62
    summary = _Summary(chosen)
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(options.rows_progress("scoring"))
        kept = stack.enter_context(_partial(to, scorer.fingerprint(batch_rows))) if resume and to else None
        writer = stack.enter_context(row_writer(to)) if to is not None else None
        done = 0
        needed = None if writer is not None else scorer.needed
        for index, batch in enumerate(rows.batches(needed, batch_rows=batch_rows)):
            result = kept.get(index, len(batch)) if kept is not None else None
            if result is None:
                result = scorer(batch)
                if kept is not None:
                    kept.add(result)
            summary.add(result)
            if writer is not None:
                parts: dict[str, Any] = {f"{prefix}_{name}": result.components[name] for name in chosen.component_names}
                extra: dict[str, Any] = {
                    prefix: result.values,
                    f"{prefix}_status": result.status,
                    f"{prefix}_reason": result.reason,
                }
                writer.write({**batch.columns, **extra, **parts})
            done += len(batch)
            progress(done, rows.n_rows)
    facts = {
        "file": str(file),
        "out": None if to is None else str(to),
        "reward": reward,
        "settings": repr(chosen),
        "used": scorer.used,
        **summary.to_dict(),
    }
    if as_json:
        print(json.dumps(facts, indent=1, allow_nan=False))
    else:
        _print(facts)


class _Scorer:
    """Calls the reward on batches of a file, with the columns it needs under the names it knows."""

    def __init__(
        self,
        reward: Reward,
        rows: RowFile,
        *,
        completion: str | None,
        references: str | None,
        gold_kind: Any,
        columns: Mapping[str, str],
        group: str | None,
    ):
        self.reward, self.gold_kind, self.rows = reward, gold_kind, rows
        self.completion = usual_column("completion", rows, completion)
        self.references = usual_column("references", rows, references)
        self.extra: dict[str, Column] = {}
        for name in reward.requires:
            self.extra[name] = find_column(columns.get(name, name), str(rows.path), rows.columns)
        for name in reward.optional:
            there = Column.of(name, rows.columns)
            if there is not None:
                self.extra[name] = there
        for name, column in columns.items():
            self.extra[name] = find_column(column, str(rows.path), rows.columns)
        self.group = usual_column("prompt", rows, group) if reward.needs_group or group is not None else None
        kinds = [] if gold_kind is not None else gold_kind_columns(rows.columns)
        self.used = {
            "completion": self.completion.text,
            "references": self.references.text,
            **{name: column.text for name, column in self.extra.items()},
            **({} if self.group is None else {"group": self.group.text}),
            **({"gold_kind": " or ".join(column.text for column in kinds)} if kinds else {}),
        }
        named = [self.completion, self.references, *self.extra.values(), *([self.group] if self.group else []), *kinds]
        self.needed = list(dict.fromkeys(column.base for column in named))

    def fingerprint(self, batch_rows: int) -> str:
        """Says what scores depend on: scores kept under another one are of no use."""
        stat = self.rows.path.stat()
        facts = [str(self.rows.path), stat.st_size, stat.st_mtime_ns, repr(self.reward), self.used, self.gold_kind]
        return json.dumps([*facts, batch_rows], default=str)

    def __call__(self, batch: Batch) -> RewardBatch:
        """The rewards of a batch.

        Raises:
            DataError: A cell is not what the reward takes; file, row and column are named.
        """
        columns: dict[str, Any] = {}
        for name, column in self.extra.items():
            values = column.values(batch)
            columns[name] = column.part(batch).numbers(column.text) if _is_numeric(values) else values
        if self.group is not None:
            columns["group_ids"] = self.group.part(batch).keys(self.group.text)
        texts = self.completion.part(batch).texts(self.completion.text)
        golds = references_of(batch, self.references, self.gold_kind)
        try:
            return self.reward(texts, golds.golds, **columns)
        except DataError as error:
            if error.file is not None:
                raise
            row = None if error.row is None else batch.rows[error.row]
            raise DataError(error.expected, error.found, file=batch.file, row=row, column=error.column) from error
        except InvalidArgumentError as error:
            name, index = error.cell or ("", 0)
            if name not in self.extra or index >= len(batch):
                raise
            row, column = batch.rows[index], self.extra[name].text
            raise DataError(error.expected, error.got, file=batch.file, row=row, column=column) from error


class _Kept:
    """Scores of batches that were done before an interruption."""

    def __init__(self, done: list[dict[str, Any]], lines: IO[str]):
        self.done, self.lines = done, lines

    def get(self, index: int, rows: int) -> RewardBatch | None:
        """The scores of a batch, if it was done."""
        if index >= len(self.done):
            return None
        part = self.done[index]
        if len(part["values"]) != rows:
            return None
        components = {name: np.array(values, np.float64) for name, values in part["components"].items()}
        return RewardBatch(np.array(part["values"], np.float64), components, part["status"], part["reason"])

    def add(self, result: RewardBatch) -> None:
        """Stores the scores of the next batch."""
        part = {
            "values": result.values.tolist(),
            "components": {name: np.asarray(values).tolist() for name, values in result.components.items()},
            "status": result.status,
            "reason": result.reason,
        }
        self.lines.write(json.dumps(part) + "\n")
        self.lines.flush()


@contextlib.contextmanager
def _partial(target: Path, fingerprint: str) -> Iterator[_Kept]:
    path = target.with_name(target.name + ".partial")
    done: list[dict[str, Any]] = []
    if path.exists():
        first, *rest = path.read_text().split("\n")
        if first == fingerprint:
            for line in rest[:-1]:  # the last line is empty, or was cut by the interruption
                done.append(json.loads(line))
            err.print(f"resuming after {len(done)} batches kept in {path}", markup=False, highlight=False)
    with path.open("w") as lines:
        lines.write(fingerprint + "\n")
        for part in done:
            lines.write(json.dumps(part) + "\n")
        lines.flush()
        yield _Kept(done, lines)
    path.unlink()  # only after success: an interruption leaves through the yield


class _Summary:
    """Running totals, so that no rewards need to be held."""

    def __init__(self, reward: Reward):
        self.n, self.total, self.squares = 0, 0.0, 0.0
        self.low, self.high = np.inf, -np.inf
        self.status: Counter[str] = Counter()
        self.reason: Counter[str] = Counter()
        self.components = dict.fromkeys(reward.component_names, 0.0)

    def add(self, result: RewardBatch) -> None:
        """Counts a batch in."""
        values = result.values
        self.n += len(values)
        self.total += float(values.sum())
        self.squares += float((values**2).sum())
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        self.status.update(result.status)
        self.reason.update(filter(None, result.reason))
        for name in self.components:
            self.components[name] += float(np.sum(result.components[name]))

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        mean = self.total / self.n
        return {
            "n": self.n,
            "mean": mean,
            "std": max(0.0, self.squares / self.n - mean**2) ** 0.5,
            "min": self.low,
            "max": self.high,
            "status": dict(sorted(self.status.items())),
            "reasons": dict(self.reason.most_common()),
            "components": {name: total / self.n for name, total in self.components.items()},
        }


def _is_numeric(values: list[Any]) -> bool:
    """Whether a column is of numbers; nulls alone, booleans and lists are for the reward to read."""
    given = [value for value in values if value is not None]
    return bool(given) and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in given)


def _parameters(given: list[str] | None) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, text in options.assignments("--param", given).items():
        value: Any = text
        with contextlib.suppress(json.JSONDecodeError):  # what is not JSON is a string
            value = json.loads(text)
        result[name] = tuple(value) if isinstance(value, list) else value
    return result


def _print(facts: dict[str, Any]) -> None:
    used = ", ".join(f"{role} {name}" for role, name in facts["used"].items())
    out.print(f"{facts['file']}: {facts['n']} rows; {used}", markup=False, highlight=False, soft_wrap=True)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    table.add_column("value", justify="right")
    for key in ("mean", "std", "min", "max"):
        table.add_row(f"reward {key}", f"{facts[key]:.4f}")
    for name, mean in facts["components"].items():
        table.add_row(f"mean {name}", f"{mean:.4f}")
    for name, count in facts["status"].items():
        table.add_row(f"status {name}", str(count))
    for name, count in facts["reasons"].items():
        table.add_row(f"reason {name}", str(count))
    out.print(table)
    if facts["out"]:
        out.print(f"wrote {facts['out']}", markup=False, highlight=False, soft_wrap=True)
