"""Checks a job before its first step: every reference is read, and the preflight looks at data, tokenizer and config."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rewardkit.data.files import RowFile
from rewardkit.data.records import read_records
from rewardkit.errors import DataError
from rewardkit.integrations.verl.rows import ABSENT, find_column, gold_kind_of, lookup, read_reference
from rewardkit.integrations.verl.settings import Settings
from rewardkit.rewards.base import ROLLOUT_COLUMNS
from rewardkit.types import GOLD_KIND_PATHS, GoldKind

logger = logging.getLogger(__name__)

TOLD_ALREADY = (
    "ambiguous-gold",
    "empty-reference",
    "group-std",
    "missing-column",
    "missing-prior",
    "missing-reference",
    "reference-type",
    "tokenizer-tags",
)
"""Checks of the preflight that the manager or :func:`check_files` makes too, with errors of their own."""


def check_files(
    settings: Settings, files: Sequence[str], *, group_sizes_differ: bool = False, columns_come_later: bool = False
) -> int:
    """Checks the reference of every row of a job's data files.

    Args:
        settings: The job's rewards.
        files: Parquet, JSON or JSON-lines files, as verl's ``data.train_files`` and ``data.val_files`` name them.
        group_sizes_differ: Whether rows must say if they are for training or validation (``extra_info.split``).
        columns_come_later: Whether an agent loop adds columns: those of :data:`rewardkit.rewards.base.ROLLOUT_COLUMNS`, and
            those that ``columns`` looks for in ``tool_extra_fields``. All others must be in the data.

    Returns:
        The number of rows that were checked; files that do not lie on this machine are left out.

    Raises:
        DataError: A file that cannot be read; a row without a reference, with an empty one, with one of the wrong type, or from
            a data source that no reward applies to; names file, row (from 1) and column.
    """
    needs_split = group_sizes_differ and settings.needs_group
    count = 0
    for file in files:
        path = _local(file)
        if not path.is_file():
            logger.warning("rewardkit: %s does not lie on this machine; its references are not checked at start", file)
            continue
        for number, row in _rows(path, settings):
            _check_row(settings, row, file=str(file), number=number, columns_come_later=columns_come_later)
            if needs_split and not isinstance(lookup(row, "extra_info.split"), str):
                raise DataError(
                    "'train' or 'test', since rollout.n and rollout.val_kwargs.n differ and a reward needs whole groups",
                    "no such column",
                    file=str(file),
                    row=number,
                    column="extra_info.split",
                )
            count += 1
    return count


def check_job(settings: Settings, config: Mapping[str, Any], tokenizer: Any, files: Sequence[str]) -> None:
    """Runs the preflight over a job as it starts: warnings go to the log, an error ends the job.

    What :func:`check_files` and the manager have told already is left out.

    Args:
        settings: The job's rewards.
        config: verl's config as plain mappings.
        tokenizer: The policy's.
        files: Data files; those that do not lie on this machine are left out.

    Raises:
        PreflightError: Something would spoil the run; each fault with its fix.
        UnknownNameError: ``skip_checks`` names a check that does not exist.
    """
    from rewardkit import preflight  # reads settings of this package

    local = [
        str(path) for path in map(_local, files) if path.is_file() and path.suffix in (".parquet", ".jsonl", ".json")
    ]
    report = preflight.run(config=config, tokenizer=tokenizer, data=local, skip={*settings.skip_checks, *TOLD_ALREADY})
    for finding in report.warnings:
        logger.warning("rewardkit: %s: %s Fix: %s", finding.check, finding.reason, finding.fix)
    report.raise_for_errors()


def _local(file: str) -> Path:
    return Path(str(file)).expanduser()


def _check_row(settings: Settings, row: Mapping[str, Any], *, file: str, number: int, columns_come_later: bool) -> None:
    source = lookup(row, "data_source")
    if not isinstance(source, str):
        found = "no such column" if source is ABSENT else repr(source)
        raise DataError("the name of the row's data source", found, file=file, row=number, column="data_source")
    terms = settings.terms_for(source)
    if not terms:
        named = sorted({source for term in settings.terms for source in term.data_sources})
        raise DataError(
            f"a data source that a reward applies to ({', '.join(named)})",
            repr(source),
            file=file,
            row=number,
            column="data_source",
        )
    kinds: set[GoldKind | None] = {term.gold_kind for term in terms}
    for gold_kind in kinds:
        read_reference(
            lookup(row, settings.reference),
            path=settings.reference,
            as_json=settings.references_are_json,
            gold_kind=gold_kind_of(row, gold_kind),
            file=file,
            row=number,
        )
    for term in terms:
        for name in term.reward.requires:
            brought = name in ROLLOUT_COLUMNS or settings.columns.get(name, "").startswith("tool_extra_fields.")
            if columns_come_later and brought:
                continue
            if find_column(row, name, settings.columns) in (ABSENT, None):
                raise DataError(
                    f"the column that the reward {term.label!r} needs",
                    "no such column",
                    file=file,
                    row=number,
                    column=settings.columns.get(name, f"extra_info.{name}"),
                )


def _rows(path: Path, settings: Settings) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The rows of a file with their numbers, from 1; of a Parquet file, the fields that are looked at alone."""
    if path.suffix == ".json":  # a list or lines, as verl reads it
        number = 0
        for number, row in enumerate(read_records(path), 1):
            yield number, row
        if not number:
            raise DataError("at least one row", "none", file=str(path))
        return
    file = RowFile.open(path)
    columns = _fields(file, settings) if file.format == "parquet" else None
    for batch in file.batches(columns, batch_rows=4096):
        for place, number in enumerate(batch.rows):
            yield number, {name: values[place] for name, values in batch.columns.items()}


def _fields(file: RowFile, settings: Settings) -> list[str]:
    """Dotted paths of the fields that are looked at: extra_info may hold long texts."""
    required = [name for term in settings.terms for name in term.reward.requires]
    paths = [
        "data_source",
        "extra_info.split",
        *GOLD_KIND_PATHS,
        settings.reference,
        *settings.columns.values(),
    ]
    paths += [f"extra_info.{name}" for name in required] + required
    return [name for name in dict.fromkeys(paths) if name.split(".")[0] in file.columns]
