"""Did a verl job really train? Its exit code does not say: verl swallows what a reward manager raises.

In verl's V1 trainer, a prompt whose rollouts failed is replaced by padding rows and the job ends with code 0. So the traces are
read: the log, and the dumps of ``trainer.rollout_data_dir`` and ``trainer.validation_data_dir``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_STEP = re.compile(r"\bstep:(\d+) - (.*)")
_METRIC = re.compile(r"([\w@./-]+):(?:np\.\w+\()?(-?\d[\d.]*(?:e[+-]?\d+)?|-?nan|-?inf)")
_TROUBLE = ("Error in _run_prompt", "Traceback (most recent call last)", "RayTaskError", "ActorDiedError")
# What Python's and Ray's own shutdown may print after the last step, and what verl tries and does without.
_HARMLESS = ("ImportError", "ModuleNotFoundError")


@dataclass
class RunTrace:
    """What a job left behind.

    Attributes:
        steps: The metrics that verl's console logger printed, by step.
        problems: What is wrong with the run, in words; empty for a run that trained as asked.
    """

    steps: dict[int, dict[str, float]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def parse_step(line: str) -> tuple[int, dict[str, float]] | None:
    """Reads a ``step:N - name:value - …`` line of verl's console logger; ``None`` for any other line."""
    match = _STEP.search(line)
    return (int(match[1]), {name: float(value) for name, value in _METRIC.findall(match[2])}) if match else None


def check_run(
    *,
    log: Path,
    steps: int,
    exit_code: int = 0,
    rollouts: Path | None = None,
    prompts: int | None = None,
    group: int | None = None,
    validation: Path | None = None,
    validation_rows: int | None = None,
) -> RunTrace:
    """Looks for everything that a failing job does not say.

    Args:
        log: The job's output.
        steps: Training steps that it should have made.
        exit_code: Its exit code.
        rollouts: ``trainer.rollout_data_dir``.
        prompts: ``data.train_batch_size``.
        group: ``actor_rollout_ref.rollout.n``.
        validation: ``trainer.validation_data_dir``.
        validation_rows: Validation questions times ``rollout.val_kwargs.n``.
    """
    trace = RunTrace()
    say = trace.problems.append
    text = log.read_text(errors="replace") if log.is_file() else ""
    for line in text.splitlines():
        found = parse_step(line)
        if found:
            trace.steps.setdefault(found[0], {}).update(found[1])
    if exit_code:
        say(f"exit code {exit_code}")
    made = sorted(step for step in trace.steps if step > 0)
    if made != list(range(1, steps + 1)):
        say(f"{len(made)} training steps instead of {steps}")
    norms = [trace.steps[step].get("actor/grad_norm") for step in made]
    if any(norm is None or norm != norm for norm in norms):
        say("a step without a finite actor/grad_norm")
    elif norms and not any(norms):
        say("actor/grad_norm is 0 in every step: nothing was learnt (are all rewards of a group equal?)")
    for words in _trouble(text):
        say(f"in the log: {words}")
    if rollouts is not None:
        for step in made:
            trace.problems += _check_rollouts(rollouts / f"{step}.jsonl", prompts, group)
    if validation is not None and validation_rows is not None:
        files = sorted(validation.glob("*.jsonl")) if validation.is_dir() else []
        if not files:
            say(f"no validation dump in {validation}")
        for file in files:
            rows = len(_lines(file))
            if rows != validation_rows:
                say(f"{file.name}: {rows} validation rows instead of {validation_rows}: rollouts failed")
    return trace


def _trouble(text: str) -> Iterable[str]:
    lines = text.splitlines()
    for words in _TROUBLE:
        count = 0
        for number, line in enumerate(lines):
            if words not in line:
                continue
            if words.startswith("Traceback") and any(
                harmless in later for later in lines[number : number + 40] for harmless in _HARMLESS
            ):
                continue
            count += 1
        if count:
            yield f"{words!r}, {count} times"


def _check_rollouts(file: Path, prompts: int | None, group: int | None) -> Iterable[str]:
    if not file.is_file():
        yield f"no rollout dump {file}"
        return
    rows = [json.loads(line) for line in _lines(file)]
    # A padding row answers nothing and has score 0, under a made-up uid; a policy's own empty answer earns the failure reward.
    empty = sum(not str(row.get("output", "")).strip() and row.get("score") == 0 for row in rows)
    if empty:
        yield f"{file.name}: {empty} empty rollouts (padding in place of rollouts that failed?)"
    uids = {str(row["uid"]).rsplit("_", 2)[0] for row in rows if "uid" in row}
    if prompts is not None and uids and len(uids) != prompts:
        yield f"{file.name}: {len(uids)} prompts instead of {prompts}"
    if prompts is not None and group is not None and len(rows) != prompts * group:
        yield f"{file.name}: {len(rows)} rollouts instead of {prompts * group}"


def _lines(file: Path) -> list[str]:
    # Not splitlines(): a model's text may hold line separators of Unicode, which JSON does not escape.
    return [line for line in file.read_text().split("\n") if line]
