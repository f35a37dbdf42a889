"""The one importer of the native modules: name a kernel and where its data lives, get the function that runs it.

A kernel has the same name in ``_cpu``, ``_cuda``, ``_emu`` and in its readable twin under :mod:`rewardkit.reference`.
``REWARDKIT_BACKEND`` asks for another implementation of all of them: ``native`` (default), ``reference`` (the twins) or
``emulator`` (CUDA kernels on the CPU, where ``_emu`` was built; the kernels that have no CUDA form stay native). A request
that cannot be met raises :class:`~rewardkit.errors.BackendError`: nothing slower takes its place.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any, Literal

from rewardkit.errors import BackendError, UnknownNameError

Device = Literal["cpu", "cuda"]
BACKENDS = ("native", "reference", "emulator")


def backend() -> str:
    """The backend that ``REWARDKIT_BACKEND`` asks for."""
    name = os.environ.get("REWARDKIT_BACKEND", "native")
    if name not in BACKENDS:
        raise UnknownNameError("backend in REWARDKIT_BACKEND", name, BACKENDS)
    return name


def kernel(name: str, device: Device = "cpu") -> Callable[..., Any]:
    """The function that runs a kernel on a device, by the backend asked for.

    Raises:
        BackendError: The module that holds it was not built, cannot be loaded, or lacks it.
    """
    chosen = backend()
    if device == "cuda":
        return _lookup("_cuda", name)
    if chosen == "reference":
        return _lookup("reference", name)
    if chosen == "emulator" and hasattr(_module("_emu"), name):
        return _lookup("_emu", name)
    return _lookup("_cpu", name)


@cache
def _module(short: str) -> ModuleType:
    try:
        return importlib.import_module(f"rewardkit.{short}")
    except ImportError as error:
        hint = {
            "_cpu": "the package was not built: pip install . (or `make build` in a checkout)",
            "_cuda": "this installation has no CUDA kernels: install with nvcc at hand and REWARDKIT_CUDA=ON",
            "_emu": "the emulator is for tests: build with REWARDKIT_EMULATOR=ON",
        }.get(short, "broken installation")
        raise BackendError(f"rewardkit.{short} cannot be loaded ({error}); {hint}") from error


@cache
def _lookup(short: str, name: str) -> Callable[..., Any]:
    module = _module(short)
    function = getattr(module, name, None)
    if function is None:
        raise BackendError(f"rewardkit.{short} has no kernel {name!r}")
    return function


def built_modules() -> dict[str, str | None]:
    """Which native modules can be loaded here: name to ``None``, or to the reason why not."""
    result: dict[str, str | None] = {}
    for short in ("_cpu", "_cuda", "_emu"):
        try:
            _module(short)
            result[short] = None
        except BackendError as error:
            result[short] = str(error)
    return result
