"""The parity table: every kernel against its readable twin, values and errors.

One module per step holds its rows; :mod:`tests.test_parity` runs them all, and fails when a native symbol has no row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

Call = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Row:
    """One kernel.

    Attributes:
        name: The kernel's name in the native module and in :mod:`rewardkit.reference`.
        calls: A strategy of ``(args, kwargs)``; inputs that can fail (off-centre, ragged, empty, extreme).
        rtol, atol: Tolerances of the comparison; 0 means equal to the bit.
        bad_calls: Calls that both must refuse, with an exception of the same type.
        max_examples: How many calls a quick run draws.
        adapt: Turns a kernel that takes raw pointers into a function of what ``calls`` draws.
    """

    name: str
    calls: st.SearchStrategy[Call]
    rtol: float = 0.0
    atol: float = 0.0
    bad_calls: Sequence[Call] = ()
    max_examples: int = 200
    prepare: Callable[[Any], Any] = lambda result: result
    adapt: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda kernel: kernel


def all_rows() -> list[Row]:
    """The rows of every step."""
    from tests.parity import calibration, logprob, match, parse

    return [*parse.ROWS, *match.ROWS, *logprob.ROWS, *calibration.ROWS]
