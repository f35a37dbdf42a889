"""Recipes: one configuration of verl per paper, with its hyperparameters and their sources, ready to run.

Each is a primary Hydra config on top of verl's own ``ppo_trainer``; ``+scale=cpu`` shrinks any of them to a machine without
a GPU. The files lie beside this one, so that they come with the package.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from rewardkit.data.files import write_text
from rewardkit.errors import DataError, UnknownNameError

_SHARED = ("base.yaml", "base_likelihood.yaml")


@dataclass(frozen=True)
class Recipe:
    """One recipe.

    Attributes:
        name: What ``--config-name`` takes.
        title: One line on what it trains.
        paper: Where the method is from.
        text: The configuration itself.
    """

    name: str
    title: str
    paper: str
    text: str

    def command(self, folder: str = ".", *, cpu: bool = False) -> str:
        """The command that runs the recipe from a folder that it was written to."""
        environment = f'REWARDKIT_RECIPES="$PWD/{folder}" ' if "REWARDKIT_RECIPES" in self.text else ""
        if cpu:
            from rewardkit.integrations.verl.launch import cpu_environment

            environment += " ".join(f"{key}={value}" for key, value in cpu_environment().items()) + " "
        return (
            f'{environment}python -m verl.trainer.main_ppo --config-path "$PWD/{folder}" --config-name {self.name} '
            f"{'+scale=cpu ' if cpu else ''}data.train_files=train.parquet data.val_files=test.parquet "
            "actor_rollout_ref.model.path=MODEL"
        )


def folder() -> Path:
    """Where the installed recipes lie; ``--config-path`` takes it."""
    return Path(str(resources.files(__package__ or __name__)))


def names() -> tuple[str, ...]:
    """The names of all recipes."""
    return tuple(sorted(path.stem for path in folder().glob("*.yaml") if path.name not in _SHARED))


def get(name: str) -> Recipe:
    """A recipe by its name.

    Raises:
        UnknownNameError: There is no such recipe.
    """
    if name not in names():
        raise UnknownNameError("recipe", name, names())
    text = (folder() / f"{name}.yaml").read_text("utf-8")
    title, paper = (line.removeprefix("# ") for line in text.splitlines()[:2])
    return Recipe(name, title, paper.removeprefix("Paper: ").removesuffix("."), text)


def write(to: Path, *selected: str, force: bool = False) -> list[Path]:
    """Writes recipes, and the files that they stand on, to a folder.

    Args:
        to: The folder; made where it does not exist.
        *selected: Names of recipes; all where none is named.
        force: Overwrite files that differ.

    Returns:
        The files.

    Raises:
        UnknownNameError: There is no such recipe.
        DataError: A file exists already and differs, or the folder is a file.
    """
    picked = [get(name).name for name in selected] or list(names())
    if to.exists() and not to.is_dir():
        raise DataError("a folder to write to", "a file", file=str(to))
    source = folder()
    files = [source / f"{name}.yaml" for name in picked] + [source / name for name in _SHARED]
    files += sorted(source.glob("agents/*.yaml")) + sorted(source.glob("scale/*.yaml"))
    written = []
    for file in files:
        target = to / file.relative_to(source)
        text = file.read_text("utf-8")
        if target.exists() and not force and target.read_bytes() != text.encode():
            raise DataError("a file that is not there yet (--force overwrites it)", "another one", file=str(target))
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, text)
        written.append(target)
    return written
