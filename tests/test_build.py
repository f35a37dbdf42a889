"""What is installed: no torch in the build or in a binary, old clusters included, and the package says what it has.

The public faults that these guard against: BR-010 (torch needed at build time), BR-011 and BR-049 (undefined symbols after a
torch update), BR-012 (no nvcc), BR-048 (no GPU at build time), BR-070 (libstdc++ too new), BR-071 (no PTX), BR-097 (extension silently
missing).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from rewardkit import _kernels

ROOT = Path(__file__).resolve().parent.parent


def native_modules() -> list[Path]:
    folders = {Path(_kernels._module(name).__file__).parent for name in ("_cpu",)}
    return sorted(path for folder in folders for path in folder.glob("_c*.so"))


def run(*command: str, **options) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


needs_binutils = pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf (binutils) is not installed")


@needs_binutils
@pytest.mark.parametrize("path", native_modules(), ids=lambda path: path.name.split(".")[0])
def test_BR_011_BR_049_no_torch_symbol_in_any_binary(path: Path) -> None:
    symbols = run("readelf", "--wide", "--dyn-syms", str(path))
    assert not re.search(r"\b(_ZN?K?(2at|3c10|5torch|5caffe)|aoti_torch)", symbols)


@needs_binutils
@pytest.mark.parametrize("path", native_modules(), ids=lambda path: path.name.split(".")[0])
def test_BR_070_needs_only_the_c_library(path: Path) -> None:
    needed = set(re.findall(r"NEEDED.*\[(.*?)\]", run("readelf", "--wide", "--dynamic", str(path))))
    assert {name.split(".so")[0] for name in needed} <= {
        "libc",
        "libm",
        "libpthread",
        "libdl",
        "librt",
        "ld-linux-x86-64",
    }
    assert "GLIBCXX" not in run("readelf", "--wide", "--version-info", str(path))


def test_BR_097_info_says_what_is_built_and_why_not() -> None:
    facts = json.loads(run(sys.executable, "-m", "rewardkit", "info", "--json", cwd=ROOT))
    assert facts["native"]["_cpu"]["usable"]
    for state in facts["native"].values():
        assert state["usable"] or state["reason"]


@pytest.mark.slow
def test_BR_010_BR_012_BR_048_installs_without_torch_nvcc_or_gpu(tmp_path: Path) -> None:
    """From a copy of the tree, in a clean environment, with an isolated build: as a newcomer does it."""
    source = tmp_path / "source"
    files = run("git", "ls-files", "-z", cwd=ROOT).split("\0")
    for name in filter(None, files):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name)
    venv.create(tmp_path / "env", with_pip=True)
    python = str(tmp_path / "env" / "bin" / "python")
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    run(python, "-m", "pip", "install", "-q", str(source), env={**environment, "REWARDKIT_CUDA": "OFF"})
    packages = run(python, "-m", "pip", "list", "--format=freeze", env=environment).lower()
    assert "torch" not in packages
    facts = json.loads(
        run(str(tmp_path / "env" / "bin" / "rewardkit"), "info", "--json", cwd=tmp_path, env=environment)
    )
    assert facts["native"]["_cpu"]["usable"]
    assert not facts["native"]["_cuda"]["usable"]
    reward = (
        "from rewardkit import rewards; r = rewards.get('rlcr', format='tac'); "
        "print(r(completions=['<think>x</think><answer>4</answer><confidence>0.9</confidence>'], references=['4']).values[0])"
    )
    assert float(run(python, "-c", reward, cwd=tmp_path, env=environment)) == pytest.approx(0.99)
