"""A page that follows a training run: built again whenever the trainer has dumped more rollouts."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rewardkit.data.files import PathLike, check_output, is_row_file
from rewardkit.errors import DataError
from rewardkit.report.build import Report, build_report

QUIET_SECONDS = 1.0
"""How long a file must not have changed before it is read: a trainer may still be writing it."""


def follow(
    directory: PathLike,
    output: PathLike,
    *,
    interval: float = 10.0,
    rounds: int | None = None,
    on_report: Callable[[Report], None] | None = None,
    on_trouble: Callable[[str], None] | None = None,
    **options: Any,
) -> None:
    """Keeps a report on a directory of rollout files up to date, such as verl's ``trainer.rollout_data_dir``.

    Runs until it is interrupted. A file that cannot be read yet is reported and tried again at the next look.

    Args:
        directory: Where the trainer writes JSON Lines or Parquet files, one per step; it need not exist yet.
        output: The HTML file; a browser that shows it loads it again by itself.
        interval: Seconds between looks.
        rounds: Stop after so many looks; never when ``None``.
        on_report: Called with each report written.
        on_trouble: Called with a line about each look that gave none.
        **options: Of :func:`rewardkit.report.build_report`.
    """
    directory = Path(directory)
    seen: dict[str, tuple[int, int]] = {}
    looks = 0
    told = False
    check_output(output, [directory], option="output")
    while rounds is None or looks < rounds:
        if looks:
            time.sleep(interval)
        looks += 1
        if not told and on_trouble is not None and not directory.is_dir():
            told = True
            on_trouble(f"{directory}: no such directory; waiting for it")
        found = _files(directory)
        if not found or found == seen:
            continue
        try:
            report = build_report([directory], output, refresh_seconds=max(5, int(interval)), **options)
        except DataError as error:
            if on_trouble is not None:
                on_trouble(str(error))
            continue
        seen = found
        if on_report is not None:
            on_report(report)


def _files(directory: Path) -> dict[str, tuple[int, int]]:
    """Size and time of each row file that has been quiet for a while; empty while the newest is still being written."""
    if not directory.is_dir():
        return {}
    result = {}
    for path in directory.iterdir():
        if path.is_file() and is_row_file(path):
            state = path.stat()
            if time.time() - state.st_mtime < QUIET_SECONDS:
                return {}
            result[path.name] = (state.st_size, state.st_mtime_ns)
    return result
