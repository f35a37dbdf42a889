"""The options that say how a rollout file is read, shared by the commands that read one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rewardkit.cli.app import err
from rewardkit.data.rollouts import Reading
from rewardkit.errors import InvalidArgumentError

COLUMNS = "columns (an item of a list is COL[1], of an object COL.key; 'none' switches one off)"

Completion = Annotated[
    str | None, typer.Option("--completion", metavar="COL", help="Text of the model.", rich_help_panel=COLUMNS)
]
References = Annotated[
    str | None, typer.Option("--references", metavar="COL", help="Right answers.", rich_help_panel=COLUMNS)
]
Label = Annotated[
    str | None,
    typer.Option(
        "--label", metavar="COL", help="Stored 0/1 label; 'none' compares with references.", rich_help_panel=COLUMNS
    ),
]
Confidence = Annotated[
    list[str] | None,
    typer.Option(
        "--confidence",
        metavar="COL",
        help="Confidence from elsewhere (classifier, probe), in place of the stated one; given twice, the first that is "
        "not null; 'none' reads the stated ones.",
        rich_help_panel=COLUMNS,
    ),
]
Wellformed = Annotated[
    str | None, typer.Option("--wellformed", metavar="COL", help="Stored 0/1 format flag.", rich_help_panel=COLUMNS)
]
Prompt = Annotated[
    str | None,
    typer.Option("--prompt", metavar="COL", help="Which prompt a row belongs to.", rich_help_panel=COLUMNS),
]
Tokens = Annotated[str | None, typer.Option("--tokens", metavar="COL", help="Token count.", rich_help_panel=COLUMNS)]
Prior = Annotated[
    str | None,
    typer.Option(
        "--prior-logprob",
        metavar="COL",
        help="A language model's log-probability of the gold.",
        rich_help_panel=COLUMNS,
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="NAME",
        help="auto, stored (read no text), or ta, tac, tabc, tbac, multi…, hypotheses, final.",
    ),
]
ParseMode = Annotated[
    str | None, typer.Option("--mode", metavar="NAME", help="Parsing: lenient (default), strict or rlcr.")
]
MaxAnswers = Annotated[
    int | None,
    typer.Option(
        "--max-answers", "-k", metavar="K", min=1, help="Answers asked for; default: the most that a row gives."
    ),
]
Matcher = Annotated[str, typer.Option("--matcher", metavar="NAME", help="exact, token_f1, fuzzy, math …")]
MatcherFor = Annotated[
    list[str] | None,
    typer.Option(
        "--matcher-for", metavar="SOURCE=MATCHER", help="Another matcher for rows of a data source (repeatable)."
    ),
]
Source = Annotated[
    str | None, typer.Option("--source", metavar="COL", help="Data source of a row.", rich_help_panel=COLUMNS)
]
MatchMode = Annotated[str, typer.Option("--match-mode", metavar="NAME", help="numeric_safe, or official (SQuAD).")]
GoldKind = Annotated[
    str | None,
    typer.Option(
        "--gold-kind",
        metavar="KIND",
        help="A flat list of references is: aliases (of one answer) or set; by default a row says it in gold_kind.",
    ),
]
Missing = Annotated[
    str | None, typer.Option("--missing", metavar="NAME", help="A missing confidence: drop, zero or half.")
]
Compat = Annotated[
    str,
    typer.Option(
        "--compat",
        metavar="NAME",
        help="rlcr: the released RLCR evaluation's conventions; auto: for its files; or none.",
    ),
]


def reading(
    *,
    completion: str | None,
    references: str | None,
    label: str | None,
    confidence: list[str] | None,
    wellformed: str | None,
    prompt: str | None,
    tokens: str | None,
    prior: str | None,
    source: str | None = None,
    matcher_for: list[str] | None = None,
    **settings: Any,
) -> Reading:
    """The options as a :class:`Reading`."""
    columns = {
        "completion": completion,
        "references": references,
        "label": label,
        "confidence": confidence or None,
        "wellformed": wellformed,
        "prompt": prompt,
        "tokens": tokens,
        "prior_logprob": prior,
        "source": source,
    }
    settings["matchers"] = assignments("--matcher-for", matcher_for)
    return Reading(columns={role: column for role, column in columns.items() if column is not None}, **settings)


def assignments(option: str, given: list[str] | None) -> dict[str, str]:
    """What a repeated option of the form NAME=VALUE says.

    Raises:
        InvalidArgumentError: One has another form.
    """
    result: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidArgumentError(option, expected="NAME=VALUE", got=text)
        result[name] = value
    return result


@contextmanager
def rows_progress(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar over rows on a terminal (stderr); nothing elsewhere."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
