"""Puts a job before all checks, reading its rows once."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rewardkit import rewards
from rewardkit.data.files import RowFile
from rewardkit.data.records import read_records
from rewardkit.errors import HarmfulSettingWarning, InvalidArgumentError, UnknownNameError
from rewardkit.preflight import references, tokens, trainer  # noqa: F401  (importing registers the checks)
from rewardkit.preflight.check import CHECKS, Check, RowFinding
from rewardkit.preflight.findings import Finding, Report
from rewardkit.preflight.job import Config, Job, Rows, Term
from rewardkit.rewards import Reward
from rewardkit.types import GoldKind

_BATCH_ROWS = 4096
_SHOWN = 5


def run(
    *,
    reward: str | Reward | Sequence[Any] | None = None,
    params: Mapping[str, Any] | None = None,
    gold_kind: GoldKind | None = None,
    data: Sequence[str | Path] = (),
    rows: Iterable[Mapping[str, Any]] | None = None,
    tokenizer: Any = None,
    config: Mapping[str, Any] | Config | None = None,
    reference: str | None = None,
    columns: Mapping[str, str] | None = None,
    max_response_length: int | None = None,
    max_reference_length: int = 256,
    template_edits: Sequence[tuple[str, str]] = (),
    skip: Iterable[str] = (),
    on_progress: Callable[[int], None] | None = None,
) -> Report:
    """Checks a job.

    Args:
        reward: Name of a reward, a reward, or several terms (as verl's settings hold them: objects with ``reward``,
            ``gold_kind``, ``weight`` and ``applies_to``). None takes the rewards of ``config``'s ``reward.reward_kwargs``.
        params: Parameters of a reward given by name.
        gold_kind: How flat lists of golds are read; None lets a column ``gold_kind`` of the data decide.
        data: Files of rows, JSON Lines or Parquet, in verl's schema or TRL's.
        rows: Rows at hand instead of files.
        tokenizer: The policy's, as transformers gives it.
        config: verl's config as plain mappings, whole or in part.
        reference: Dotted path of the references; by default verl's ``reward_model.ground_truth`` or a column ``answer``.
        columns: Where a column that a reward requires stands, by dotted path.
        max_response_length: In tokens; by default the config's.
        max_reference_length: Longer references are told, in tokens.
        template_edits: ``(old, new)`` replacements that are meant to be made in the chat template.
        skip: Names of checks not to run.
        on_progress: Called with the number of rows read.

    Returns:
        What was found. Nothing is raised for a fault of the job; see :meth:`Report.raise_for_errors`.

    Raises:
        UnknownNameError: ``skip`` names a check that does not exist.
        DataError: A file cannot be read.
        InvalidArgumentError: No reward is named, or ``rows`` or ``config`` are no mappings.
    """
    skip = set(skip)
    for name in skip:
        if name not in CHECKS and name != _REWARD_CHECK:
            raise UnknownNameError("check", name, [*CHECKS, _REWARD_CHECK])
    if config is not None and not isinstance(config, Config):
        config = Config(config)
    job, findings = _job(reward, params, gold_kind, config)
    if job is None:  # told even where the check is skipped: without a reward nothing was checked
        findings = [dataclasses.replace(one, check=_REWARD_CHECK) if one.check in skip else one for one in findings]
        return Report(findings, [_REWARD_CHECK], dict.fromkeys(CHECKS, "the reward cannot be made"))
    job = dataclasses.replace(
        job,
        tokenizer=tokenizer,
        reference=reference or job.reference,
        columns={**job.columns, **(columns or {})},
        max_response_length=max_response_length,
        max_reference_length=max_reference_length,
        template_edits=tuple(template_edits),
    )
    if _REWARD_CHECK in skip:
        findings = []

    running: list[Check] = []
    skipped = {name: "asked not to" for name in CHECKS if name in skip}
    for name, cls in CHECKS.items():
        if name in skip:
            continue
        check = cls()
        lacking = check.lacks(job)
        if lacking:
            skipped[name] = lacking
        else:
            running.append(check)
    for check in running:
        findings += check.before(job)
    gathered: dict[tuple[str, str], Finding] = {}
    count = 0
    for batch in _batches(job, data, rows):
        for check in running:
            for found in check.look_at(job, batch):
                _gather(gathered, check.name, found, batch)
        count += len(batch)
        if on_progress is not None:
            on_progress(count)
    findings += gathered.values()
    for check in running:
        findings += check.after(job)
    if not count:  # a check of rows that saw none found nothing to be right
        of_rows = [check.name for check in running if type(check).look_at is not Check.look_at]
        skipped |= dict.fromkeys(of_rows, "no data")
    order = {"error": 0, "warning": 1}
    return Report(
        sorted(findings, key=lambda finding: order[finding.level]),
        [check.name for check in running if check.name not in skipped],
        skipped,
        rows=count,
    )


_REWARD_CHECK = "reward"
"""Name of findings about the reward's own parameters."""


def _job(
    reward: Any, params: Mapping[str, Any] | None, gold_kind: GoldKind | None, config: Config | None
) -> tuple[Job | None, list[Finding]]:
    """The job's rewards; what they refuse or warn of becomes findings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", HarmfulSettingWarning)
        try:
            job = _terms(reward, params, gold_kind, config)
        except InvalidArgumentError as error:
            about_fail = error.argument.endswith("fail_reward")
            name = "fail-reward" if about_fail else _REWARD_CHECK
            fix = (
                "leave fail_reward out: it is derived from the minimum."
                if about_fail
                else "correct the argument that is named."
            )
            return None, [Finding(name, "error", f"{error}.", fix)]
        except UnknownNameError as error:
            return None, [Finding(_REWARD_CHECK, "error", f"{error}.", "use one of the names that exist.")]
    findings = []
    for warning in caught:
        if issubclass(warning.category, HarmfulSettingWarning):
            reason, _, remedy = str(warning.message).partition("Remedy: ")
            findings.append(
                Finding(_REWARD_CHECK, "warning", reason.strip(), remedy.strip() or "see its documentation.")
            )
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return dataclasses.replace(job, config=config), findings


def _terms(reward: Any, params: Mapping[str, Any] | None, gold_kind: GoldKind | None, config: Config | None) -> Job:
    if reward is None:
        kwargs = config.get("reward.reward_kwargs") if config is not None else None
        if not isinstance(kwargs, Mapping) or not kwargs:
            raise InvalidArgumentError(
                "reward", expected="the name of a reward, or a config with reward.reward_kwargs.reward", got=reward
            )
        from rewardkit.integrations.verl.settings import Settings

        settings = Settings.of(kwargs)
        terms = settings.terms
        if gold_kind is not None:
            terms = tuple(dataclasses.replace(term, gold_kind=term.gold_kind or gold_kind) for term in terms)
        return Job(
            terms,
            reference=settings.reference,
            columns=settings.columns,
            references_are_json=settings.references_are_json,
        )
    if isinstance(reward, str):
        reward = rewards.get(reward, **(params or {}))
    elif params:
        raise InvalidArgumentError("params", expected="none beside a reward that is made already", got=sorted(params))
    if isinstance(reward, Reward):
        return Job((Term(reward, gold_kind),))
    return Job(tuple(reward))


def _batches(job: Job, data: Sequence[str | Path], rows: Iterable[Mapping[str, Any]] | None) -> Iterator[Rows]:
    if rows is not None:
        listed = _checked(rows)
        for start in range(0, len(listed), _BATCH_ROWS):
            part = listed[start : start + _BATCH_ROWS]
            yield _transposed(part, "rows", range(start + 1, start + 1 + len(part)), job)
    for path in data:
        path = Path(path)
        if path.suffix == ".json":
            part, first = [], 1
            for record in read_records(path):
                part.append(record)
                if len(part) == _BATCH_ROWS:
                    yield _transposed(part, str(path), range(first, first + len(part)), job)
                    first, part = first + len(part), []
            if part:
                yield _transposed(part, str(path), range(first, first + len(part)), job)
            continue
        for batch in RowFile.open(path).batches(batch_rows=_BATCH_ROWS):
            yield Rows(batch.file, batch.rows, batch.columns, job)


def _checked(rows: Any) -> list[Mapping[str, Any]]:
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise InvalidArgumentError("rows", expected="rows, each a mapping of columns", got=rows)
    listed = list(rows)
    for index, row in enumerate(listed):
        if not isinstance(row, Mapping):
            raise InvalidArgumentError(f"rows[{index}]", expected="a mapping of columns", got=row)
    return listed


def _transposed(records: Sequence[Mapping[str, Any]], file: str, numbers: Sequence[int], job: Job) -> Rows:
    names = dict.fromkeys(name for record in records for name in record)
    return Rows(file, numbers, {name: [record.get(name) for record in records] for name in names}, job)


def _gather(gathered: dict[tuple[str, str], Finding], check: str, found: RowFinding, batch: Rows) -> None:
    key = check, found.kind
    number = batch.numbers[found.index]
    first = gathered.get(key)
    if first is None:
        gathered[key] = Finding(check, found.level, found.reason, found.fix, 1, batch.file, (number,))
        return
    examples = (
        first.examples if len(first.examples) == _SHOWN or batch.file != first.file else (*first.examples, number)
    )
    gathered[key] = dataclasses.replace(first, rows=first.rows + 1, examples=examples)
