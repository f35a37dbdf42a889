"""``rewardkit recipe …``: verl configurations of the papers, with their hyperparameters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from rewardkit.cli.app import App, app, out
from rewardkit.integrations.verl import recipes

recipe = App(
    help="verl configurations of the papers, with their hyperparameters.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(recipe, name="recipe")


@recipe.command("list")
def list_recipes(as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False) -> None:
    """Name all recipes."""
    found = [recipes.get(name) for name in recipes.names()]
    if as_json:
        print(json.dumps([{"name": one.name, "title": one.title, "paper": one.paper} for one in found], indent=1))
        return
    table = Table("name", "what it trains", "paper")
    for one in found:
        table.add_row(one.name, one.title, one.paper)
    out.print(table)


@recipe.command("show")
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="See `rewardkit recipe list`.")],
    cpu: Annotated[bool, typer.Option("--cpu", help="Show the command for a machine without a GPU.")] = False,
) -> None:
    """Print a recipe, and the command that runs it."""
    found = recipes.get(name)
    print(found.text)
    print(f"# {found.command(cpu=cpu)}")


@recipe.command("write")
def write(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write.")],
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Which recipes; all by default.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that differ.")] = False,
) -> None:
    """Write recipes to a folder, to be changed and run."""
    for path in recipes.write(folder, *(names or ()), force=force):
        print(path)
