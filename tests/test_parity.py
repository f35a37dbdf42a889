"""Native equals reference: the table of :mod:`tests.parity`, run on every implementation that is built."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rewardkit import _kernels
from tests.parity import Row, all_rows

ROWS = all_rows()
WITHOUT_TWIN = {"build_info"}


def assert_same(got: Any, expected: Any, row: Row) -> None:
    if isinstance(expected, (tuple, list)):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other, row)
    elif isinstance(expected, dict):
        assert got.keys() == expected.keys()
        for key, value in expected.items():
            assert_same(got[key], value, row)
    elif isinstance(expected, np.ndarray) and expected.dtype.kind == "f":
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=row.rtol, atol=row.atol, equal_nan=True)
    elif isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(got, expected)
    elif isinstance(expected, float):
        np.testing.assert_allclose(got, expected, rtol=row.rtol, atol=row.atol, equal_nan=True)
    else:
        assert got == expected


@pytest.mark.parametrize("module", ["_cpu", "_emu"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_values(row: Row, module: str) -> None:
    if module == "_emu" and _kernels.built_modules()["_emu"] is not None:
        pytest.skip("the emulator is not built here (REWARDKIT_EMULATOR=ON)")
    if module == "_emu" and not hasattr(_kernels._module("_emu"), row.name):
        pytest.skip("this kernel has no CUDA form")
    native, twin = (row.adapt(_kernels._lookup(source, row.name)) for source in (module, "reference"))

    @settings(max_examples=row.max_examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        args, kwargs = data.draw(row.calls)
        assert_same(row.prepare(native(*args, **kwargs)), row.prepare(twin(*args, **kwargs)), row)

    check()


@pytest.mark.parametrize(
    ("row", "call"),
    [pytest.param(row, call, id=f"{row.name}-{i}") for row in ROWS for i, call in enumerate(row.bad_calls)],
)
def test_errors(row: Row, call: tuple[tuple, dict]) -> None:
    args, kwargs = call
    with pytest.raises(Exception) as expected:  # noqa: PT011  (the twin says which)
        row.adapt(_kernels._lookup("reference", row.name))(*args, **kwargs)
    with pytest.raises(expected.type):
        row.adapt(_kernels._lookup("_cpu", row.name))(*args, **kwargs)


def test_every_native_symbol_has_a_row() -> None:
    native = {name for name in dir(_kernels._module("_cpu")) if not name.startswith("_")}
    assert native - WITHOUT_TWIN == {row.name for row in ROWS}
