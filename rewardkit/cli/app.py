"""One typer application; each command lives in a module of its own beside this one and is imported when it is called."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleDimensions
from typer.core import TyperArgument, TyperCommand

import rewardkit
from rewardkit.errors import RewardkitError

TRACEBACK = "REWARDKIT_TRACEBACK"
"""The environment variable that shows the traceback of whatever a command fails with."""
PLAIN_WIDTH = 10_000
"""Columns of an output that is no terminal: nothing is wrapped, so that every row of a table is one line."""


class Command(TyperCommand):
    """A command whose help names its arguments without their Python types."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        for param in self.params:
            if isinstance(param, TyperArgument):
                vars(param)["display_type_rich"] = lambda ctx: None  # a method of newer typers


class App(typer.Typer):
    """An application, or a group of commands, of such commands."""

    def command(self, *args: Any, **options: Any) -> Callable[..., Any]:
        """Registers a command."""
        return super().command(*args, **{"cls": Command, **options})


app = App(
    name="rewardkit",
    help="Rewards for RL training of language models: score, evaluate, report and check rollouts and data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class _Results(Console):
    """A console as wide as its terminal, and as wide as needed where there is none."""

    @property
    def size(self) -> ConsoleDimensions:  # pyright: ignore[reportIncompatibleMethodOverride]  (a setter nobody needs)
        """Columns and lines."""
        size = super().size
        return size if self.is_terminal else ConsoleDimensions(PLAIN_WIDTH, size.height)


out: Console = _Results()
"""Results go here (stdout)."""
err = Console(stderr=True)
"""Progress and errors go here (stderr), so that ``--json`` output can be piped."""


def _print_version(asked: bool) -> None:
    if asked:
        print(f"rewardkit {rewardkit.__version__}")
        raise typer.Exit


@app.callback()
def _commands(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Rewards for RL training of language models: score, evaluate, report and check rollouts and data."""


def main() -> None:
    """Runs the command line. A bad call is one line on stderr and exit code 2."""
    from rewardkit.cli import commands  # noqa: F401  (imports register the commands)

    try:
        app()
    except KeyboardInterrupt:
        err.print("rewardkit: interrupted", markup=False)
        sys.exit(130)
    except Exception as error:  # the last place that can say it in one line
        if os.environ.get(TRACEBACK):
            raise
        err.print(f"rewardkit: {_in_one_line(error)}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)


def _in_one_line(error: Exception) -> str:
    """What a command failed with: its own words for a bad call, the system's for a file, and a pointer for a bug."""
    if isinstance(error, RewardkitError) or (isinstance(error, OSError) and error.strerror is None):
        return f"error: {error}"
    if isinstance(error, OSError):
        return f"error: {error.filename}: {error.strerror}" if error.filename else f"error: {error.strerror}"
    command = " ".join(["rewardkit", *sys.argv[1:2]])
    last = traceback.extract_tb(error.__traceback__)[-1]
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return (
        f"internal error in `{command}`: {what[:300]} ({Path(last.filename).name}:{last.lineno}). This is a fault of rewardkit or "
        f"of a library, not of your call; {TRACEBACK}=1 shows where"
    )


def quiet_transformers() -> None:
    """One progress bar is enough, and what goes wrong is told once."""
    try:
        from transformers.utils import logging
    except ImportError:  # told, with the remedy, where the model is loaded
        return
    logging.disable_progress_bar()
    logging.set_verbosity_error()
