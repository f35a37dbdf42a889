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
    native = {name: {"usable": reason is None, "reason": reason} for name, reason in modules.items()}
    cuda = _kernels.kernel("cuda_info", "cuda")() if modules["_cuda"] is None else None
    if cuda is not None and not cuda["devices"]:
        native["_cuda"] = {"usable": False, "reason": f"it is built, but there is no device: {cuda['reason']}"}
    return {
        "rewardkit": rewardkit.__version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "backend": _kernels.backend(),
        "native": native,
        "cpu": cpu,
        "cuda": cuda,
        "packages": packages,
        "rewards": list(rewards.available()),
    }


def _version(number: int) -> str:
    """CUDA's 13000 as 13.0; 0 is a driver that is not there."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else "none"


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
    if facts["cuda"]:
        table.add_row("cuda built for", facts["cuda"]["architectures"])
        table.add_row("cuda runtime, driver", " / ".join(_version(facts["cuda"][key]) for key in ("runtime", "driver")))
        for device in facts["cuda"]["devices"]:
            memory = f"{device['memory_gib']:.0f} GiB"
            table.add_row(
                "cuda device", f"{device['name']}, sm_{device['compute_capability'].replace('.', '')}, {memory}"
            )
    for name, value in facts["packages"].items():
        table.add_row(name, value or "not installed")
    table.add_row("rewards", ", ".join(facts["rewards"]))
    out.print(table)
