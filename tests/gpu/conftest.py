"""Tests on a CUDA device. Without one they skip, and `make gpu-check` says so before it comes here."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(autouse=True)
def device():
    """The device under test."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    torch.manual_seed(0)
    yield torch.device("cuda", torch.cuda.current_device())
    torch.cuda.synchronize()


@pytest.fixture
def gibibytes_free():
    """Skips a test that needs more memory than the device has free."""
    import torch

    def require(amount: float) -> None:
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info()[0] / 2**30
        if free < amount:
            pytest.skip(f"needs {amount:.0f} GiB of device memory, {free:.0f} are free")

    return require
