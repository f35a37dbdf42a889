"""What every metric checks about its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rewardkit import arrays
from rewardkit.errors import InvalidArgumentError
from rewardkit.types import Bool

Floating = npt.NDArray[np.floating]
UInt8 = npt.NDArray[np.uint8]


def scores(name: str, value: Any) -> Floating:
    """A one-dimensional array of numbers, float32 or float64, dense, without NaN.

    Raises:
        InvalidArgumentError: It is not one, or holds a NaN.
    """
    array = numbers(name, value)
    # One pass: a sum is NaN when any part of it is (and for +inf with -inf, which the exact test tells apart).
    if np.isnan(np.sum(array)):
        refuse_nan(name, array)
    return array


def refuse_nan(name: str, array: Floating) -> None:
    """Raises InvalidArgumentError where an array holds a NaN."""
    bad = np.isnan(array)
    if bad.any():
        where = int(np.flatnonzero(bad)[0])
        raise InvalidArgumentError(
            name, expected="no NaN (drop or impute missing ones on purpose)", got=f"NaN at [{where}]"
        )


def numbers(name: str, value: Any) -> Floating:
    """A one-dimensional array of numbers, float32 or float64, dense; NaN is let through.

    Raises:
        InvalidArgumentError: It is not one.
    """
    array = _array(name, value, "numbers")
    if array.dtype == np.float16:
        array = array.astype(np.float32)
    if array.dtype.kind in "biu" or array.size == 0:
        array = array.astype(np.float64)
    if array.dtype not in (np.float32, np.float64):
        raise InvalidArgumentError(name, expected="numbers", got=f"an array of {array.dtype}")
    return np.ascontiguousarray(array)


def labels(name: str, value: Any, *, like: Floating | None = None) -> UInt8:
    """A one-dimensional array of right (1) and wrong (0), as uint8.

    Raises:
        InvalidArgumentError: It holds anything else, or its length differs from ``like``.
    """
    array = _array(name, value, "booleans, or 0 and 1")
    if array.dtype == np.bool_:
        result = np.ascontiguousarray(array).view(np.uint8)
    else:
        if array.size and array.dtype.kind not in "iuf":
            raise InvalidArgumentError(name, expected="booleans, or 0 and 1", got=f"an array of {array.dtype}")
        if array.dtype != np.uint8 or (array.size and array.max() > 1):
            wrong = (array != 0) & (array != 1)
            if wrong.any():
                raise InvalidArgumentError(name, expected="booleans, or 0 and 1", got=array[wrong][0].item())
        result = np.ascontiguousarray(array, dtype=np.uint8)
    if like is not None and len(result) != len(like):
        raise InvalidArgumentError(
            name, expected=f"{len(like)} values, one per confidence", got=f"{len(result)} values"
        )
    return result


def group_ids(name: str, value: Any, *, like: Floating) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Distinct group values, sorted, and the index of each row's group.

    Raises:
        InvalidArgumentError: The length differs from ``like``.
    """
    array = _array(name, value, "one group per confidence")
    if len(array) != len(like):
        raise InvalidArgumentError(name, expected=f"{len(like)} values, one per confidence", got=f"{len(array)} values")
    try:
        names, index = np.unique(array, return_inverse=True)
    except TypeError as error:  # values that have no order, such as None among strings
        raise InvalidArgumentError(name, expected="values of one kind, which can be sorted", got=value) from error
    return names, index.astype(np.int64, copy=False)


def matrix(name: str, value: Any) -> Bool:
    """A two-dimensional array of booleans, or of 0 and 1.

    Raises:
        InvalidArgumentError: It is not one, or holds anything else.
    """
    array = arrays.numeric(name, value, "a two-dimensional array of booleans")
    if array.ndim != 2:
        raise InvalidArgumentError(name, expected="a two-dimensional array of booleans", got=f"shape {array.shape}")
    if array.dtype != np.bool_:
        wrong = (array != 0) & (array != 1)
        if wrong.any():
            raise InvalidArgumentError(name, expected="booleans, or 0 and 1", got=array[wrong][0].item())
    return array.astype(bool)


def mask(value: Any, like: Bool) -> Bool:
    """Which slots hold an answer: a matrix of the shape of ``like``; all of them, where nothing is given.

    Raises:
        InvalidArgumentError: It is not one.
    """
    if value is None:
        return np.ones(like.shape, bool)
    array = matrix("mask", value)
    if array.shape != like.shape:
        raise InvalidArgumentError("mask", expected=f"shape {like.shape}", got=f"shape {array.shape}")
    return array


def open_unit(name: str, value: Any) -> float:
    """A number strictly between 0 and 1.

    Raises:
        InvalidArgumentError: It is not one.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.floating)) or not 0 < value < 1:
        raise InvalidArgumentError(name, expected="a number in (0, 1)", got=value)
    return float(value)


def choice(name: str, value: Any, known: tuple[Any, ...]) -> Any:
    """One of a few values.

    Raises:
        InvalidArgumentError: It is none of them.
    """
    if not any(value is option or (type(value) is type(option) and value == option) for option in known):
        raise InvalidArgumentError(name, expected=f"one of {', '.join(map(repr, known))}", got=value)
    return value


def generator(seed: int, purpose: str) -> np.random.Generator:
    """Random numbers of a purpose: never the ones that a caller's ``default_rng(seed)`` made the data from."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InvalidArgumentError("seed", expected="a whole number >= 0", got=seed)
    return np.random.default_rng([int(seed), *purpose.encode()])


def _array(name: str, value: Any, what: str) -> npt.NDArray[Any]:
    if value is None or isinstance(value, (str, bytes, dict)):
        raise InvalidArgumentError(name, expected=f"a one-dimensional array of {what}", got=value)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArgumentError(name, expected=f"a one-dimensional array of {what}", got=str(error)) from error
    if array.ndim != 1:
        raise InvalidArgumentError(name, expected=f"a one-dimensional array of {what}", got=f"shape {array.shape}")
    return array
