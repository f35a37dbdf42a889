"""Every snippet of the documentation runs, in order, page by page.

A page's ``python`` blocks share one namespace and its ``bash`` blocks one folder, the same for both. Commands that start with
``make`` or ``pip`` are not run here (CI runs them); a target that they name must exist. A block whose fence says ``no-test`` must
say why in a comment on its first line; ``slow`` blocks run with the slow tests.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.M | re.S)


@dataclass(frozen=True)
class Block:
    language: str
    marks: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [Block(m.group(1), m.group(2), m.group(3), text.count("\n", 0, m.start()) + 1) for m in FENCE.finditer(text)]


def is_outside(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith(("make ", "pip ", "#"))


def run_session(text: str, names: dict, where: str) -> None:
    """A block that is an interactive session: what it prints is compared too."""
    example = doctest.DocTestParser().get_doctest(text, names, where, where, 0)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(example, out=report.append, clear_globs=False)
    names.update(example.globs)
    assert not runner.failures, "".join(report)


def run_page(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, *, slow: bool) -> None:
    monkeypatch.chdir(folder)
    names: dict = {"__name__": "snippet"}
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    for block in blocks(page):
        if "no-test" in block.marks or ("slow" in block.marks and not slow):
            continue
        where = f"{page.name}:{block.line}"
        if block.language == "python" and block.text.lstrip().startswith(">>>"):
            run_session(block.text, names, where)
        elif block.language == "python":
            exec(compile("\n" * block.line + block.text, str(page), "exec", dont_inherit=True), names)
        elif block.language in ("bash", "sh") and not all(is_outside(line) for line in block.text.splitlines()):
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.text],
                env=environment,
                capture_output=True,
                text=True,
                cwd=folder,
            )
            assert done.returncode == 0, f"{where}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.exists()], ids=lambda page: page.name)
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(page, tmp_path, monkeypatch, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.exists() and any("slow" in b.marks for b in blocks(p))], ids=lambda page: page.name
)
def test_slow_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(page, tmp_path, monkeypatch, slow=True)


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"`make ([a-z-]+)", page.read_text()) if page.exists() else []:
            assert re.search(rf"^{target}:", makefile, re.M), (
                f"{page.name} names `make {target}`, which the Makefile lacks"
            )


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text()) if page.exists() else []:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_blocks_left_out_say_why() -> None:
    for page in PAGES:
        for block in blocks(page) if page.exists() else []:
            if "no-test" in block.marks:
                assert block.text.lstrip().startswith("#"), (
                    f"{page.name}:{block.line} is not tested and does not say why"
                )
