"""``rewardkit info``: what was built and what runs here, for bug reports."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import sys
from typing import Annotated, Any

import typer
from rich.table import Table

import rewardkit
from rewardkit import _kernels, rewards
from rewardkit.cli.app import app, out

_PACKAGES = ("numpy", "torch", "transformers", "verl", "trl", "math-verify", "pyarrow", "ray")


def collect() -> dict[str, Any]:
    """Facts about this installation, JSON-safe."""
    packages: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            packages[name] = None
    modules = _kernels.built_modules()
    cpu = _kernels.kernel("build_info")() if modules["_cpu"] is None else None
    return {
        "rewardkit": rewardkit.__version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "backend": _kernels.backend(),
        "native": {name: {"usable": reason is None, "reason": reason} for name, reason in modules.items()},
        "cpu": cpu,
        "packages": packages,
        "rewards": list(rewards.available()),
    }


@app.command()
def info(as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False) -> None:
    """Show what was built and what can run here."""
    facts = collect()
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    table = Table("what", "value", title="rewardkit info", title_justify="left")
    for key in ("rewardkit", "python", "platform", "backend"):
        table.add_row(key, str(facts[key]))
    for name, state in facts["native"].items():
        table.add_row(name, "usable" if state["usable"] else f"not usable: {state['reason']}")
    for key, value in (facts["cpu"] or {}).items():
        table.add_row(f"cpu {key}", str(value))
    for name, value in facts["packages"].items():
        table.add_row(name, value or "not installed")
    table.add_row("rewards", ", ".join(facts["rewards"]))
    out.print(table)
