"""The layout is a promise: imports point one way, and the light things stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "rewardkit"

# Each layer may import from itself and from the layers above it in this list.
LAYERS = [
    {"errors", "types", "arrays"},
    {"reference", "_cpu", "_cuda", "_emu"},
    {"_kernels"},
    {"_device"},
    {"parsing", "matching", "likelihood", "scoring", "shaping", "torch_ops"},
    {"rewards", "metrics", "selection", "groups"},
    {"data", "prior", "evaluation", "report", "integrations", "preflight"},
    {"cli"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imported_parts(path: Path) -> set[str]:
    """The first-level parts of rewardkit that a file imports anywhere in it."""
    parts = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        parts |= {name.split(".")[1] for name in names if name.startswith("rewardkit.")}
    return parts


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    relative = path.relative_to(PACKAGE)
    own = relative.parts[0].removesuffix(".py")
    if own in ("__init__", "__main__"):
        return
    assert own in RANK, f"{own} has no place in the layout: add it to LAYERS, argued for"
    for part in imported_parts(path) & RANK.keys():
        assert RANK[part] <= RANK[own], f"{relative} imports {part}, which lies in a later layer"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_kernels_imports_native_modules(path: Path) -> None:
    if path.name == "_kernels.py":
        return
    assert not imported_parts(path) & {"_cpu", "_cuda", "_emu"}


def test_import_needs_numpy_alone() -> None:
    """`import rewardkit` and its text rewards load nothing heavy, and work where only numpy is installed."""
    code = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'torch','verl','trl','transformers','pyarrow','rich','typer','sklearn',"
        "'scipy','matplotlib','pandas','ray'}:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "import rewardkit, rewardkit.rewards\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
