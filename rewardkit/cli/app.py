"""One typer application; each command lives in a module of its own beside this one and is imported when it is called."""

from __future__ import annotations

import sys

import typer
from rich.console import Console

from rewardkit.errors import RewardkitError

app = typer.Typer(
    name="rewardkit",
    help="Rewards for RL training of language models: score, evaluate, report and check rollouts and data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

out = Console()
"""Results go here (stdout)."""
err = Console(stderr=True)
"""Progress and errors go here (stderr), so that ``--json`` output can be piped."""


@app.callback()
def _commands() -> None:
    """Rewards for RL training of language models: score, evaluate, report and check rollouts and data."""


def main() -> None:
    """Runs the command line. A bad call is one line on stderr and exit code 2."""
    from rewardkit.cli import commands  # noqa: F401  (imports register the commands)

    try:
        app()
    except (RewardkitError, FileNotFoundError, PermissionError, IsADirectoryError) as error:
        err.print(f"rewardkit: error: {error}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        err.print("rewardkit: interrupted", markup=False)
        sys.exit(130)
