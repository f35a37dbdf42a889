"""Arrays that callers pass: what is no number is refused, and never turned into one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rewardkit.errors import InvalidArgumentError


def numeric(name: str, value: Any, expected: str = "an array of numbers") -> npt.NDArray[Any]:
    """The value as an array of booleans, integers or floats, of its own dtype and any shape.

    Text is not read as numbers: "0.5" is a column that was not parsed, and ``bool("0")`` is True.

    Raises:
        InvalidArgumentError: It holds anything else (text, ``None``), or its rows differ in length.
    """
    if value is None or isinstance(value, (str, bytes, dict, set, frozenset)):
        raise InvalidArgumentError(name, expected=expected, got=value)
    try:
        array = np.asarray(value)
        if array.dtype == object and not any(part is None or isinstance(part, (str, bytes)) for part in array.flat):
            array = array.astype(np.float64)  # fractions, decimals
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InvalidArgumentError(name, expected=expected, got=value) from error
    if array.dtype.kind not in "biuf":
        raise InvalidArgumentError(name, expected=expected, got=value)
    return array


def whole(name: str, value: Any, *, low: int = 1, high: int | None = None) -> int:
    """A whole number in a range.

    Raises:
        InvalidArgumentError: It is not one; ``True`` and 2.0 are not.
    """
    number = isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))
    if not number or value < low or (high is not None and value > high):
        span = f">= {low}" if high is None else f"in [{low}, {high}]"
        raise InvalidArgumentError(name, expected=f"a whole number {span}", got=value)
    return int(value)


def floats(name: str, value: Any, expected: str = "an array of numbers") -> npt.NDArray[np.float64]:
    """:func:`numeric` as float64."""
    return numeric(name, value, expected).astype(np.float64, copy=False)
