"""How the benchmarks measure: all contestants in one process, taking turns, so that a busy machine slows each alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any


def cpu_seconds(contestants: Mapping[str, Callable[[], Any]], rounds: int = 5) -> dict[str, float]:
    """The least CPU time of each contestant over some rounds, in each of which every one runs once."""
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for name, run in contestants.items():
            start = time.process_time_ns()
            run()
            best[name] = min(best[name], (time.process_time_ns() - start) / 1e9)
    return best
