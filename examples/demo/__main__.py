"""``python -m examples.demo``: teach a tiny policy, train it by GRPO in verl with RLVR and with RLCR, compare them."""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from examples.demo import evaluation, job, world
from rewardkit.errors import MissingExtraError, RewardkitError

TAUGHT = {"skip_checks": ["format-not-asked"]}
"""The policy is taught its format, so that the prompts need not ask for it."""
REWARDS: dict[str, dict[str, Any]] = {
    "RLVR": {"reward": "rlvr", "params": {"format": "tac"}, **TAUGHT},
    "RLCR": {"reward": "rlcr", "params": {"format": "tac"}, **TAUGHT},
}
FACTOR = 3.0
"""What the demo is to show: RLCR's calibration error is under a third of RLVR's …"""
TOLERANCE = 0.05
"""… at equal accuracy, by this much."""

console = Console()


@dataclass(frozen=True)
class Settings:
    """One run of the demo."""

    steps: int
    prompts: int
    group: int
    learning_rate: float
    held_out: int
    teach_steps: int
    seed: int
    rewards: tuple[str, ...]


QUICK = {"steps": 3, "prompts": 8, "held_out": 96, "teach_steps": 120, "rewards": ("RLCR",)}
FULL = {"steps": 60, "prompts": 20, "held_out": 720, "teach_steps": 250, "rewards": ("RLVR", "RLCR")}


def main(arguments: list[str] | None = None) -> int:
    """Runs the demo; the exit code is 0 when every job trained as asked (whatever the comparison says)."""
    options = _options(arguments)
    for package in ("verl", "transfer_queue", "transformers", "matplotlib"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError("the demo", package=package, extra="verl,report")
    settings = Settings(
        group=8, learning_rate=1.5e-3, seed=options.seed, **(QUICK if options.quick else FULL) | _given(options)
    )
    out = Path(options.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    console.print(
        f"[bold]rewardkit demo[/]: GRPO in verl on the CPU with {' and '.join(settings.rewards)}, {settings.steps} steps of "
        f"{settings.prompts} x {settings.group} rollouts. A tiny policy, for show: nothing here is for real training."
    )
    policy = _prepare(out, settings)
    traces = {}
    for name in settings.rewards:
        traces[name] = _train(name, out, policy, settings, resume=options.resume)
    return _report(out, settings, traces, time.monotonic() - started)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three steps with RLCR alone: does everything work here?")
    parser.add_argument("--steps", type=int, help="training steps of each job")
    parser.add_argument("--prompts", type=int, help="questions a step")
    parser.add_argument("--seed", type=int, default=1, help="of everything (default 1)")
    parser.add_argument("--out", default="outputs/demo", help="folder for all files (default outputs/demo)")
    parser.add_argument(
        "--resume", action="store_true", help="keep jobs that an interrupted run with the same settings finished"
    )
    options = parser.parse_args(arguments)
    for name in ("steps", "prompts"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    return options


def _given(options: argparse.Namespace) -> dict[str, int]:
    return {name: getattr(options, name) for name in ("steps", "prompts") if getattr(options, name) is not None}


def _prepare(out: Path, settings: Settings) -> Path:
    policy = out / "policy"
    with console.status("teaching a tiny policy the format, and too much confidence …"):
        begin = time.monotonic()
        loss = world.teach(policy, seed=settings.seed, steps=settings.teach_steps)
        train = world.questions(settings.prompts * settings.steps, train=True, seed=settings.seed)
        held_out = world.questions(settings.held_out, train=False, seed=settings.seed)
        world.write_verl_rows(out / "train.parquet", train, split="train")
        world.write_verl_rows(out / "held_out.parquet", held_out, split="test")
    console.print(f"taught a policy in {time.monotonic() - begin:.0f} s (cross-entropy {loss:.2f} nats a token)")
    return policy


def _train(name: str, out: Path, policy: Path, settings: Settings, *, resume: bool) -> dict[str, Any]:
    folder = out / name.lower()
    marker = folder / "finished.json"
    wanted = {"settings": asdict(settings) | {"rewards": list(settings.rewards)}, "reward": REWARDS[name]}
    if resume and marker.is_file():
        found = json.loads(marker.read_text())
        if {key: found.get(key) for key in wanted} == wanted:
            console.print(f"{name}: finished before, kept")
            return found
    task = job.Job(
        folder=folder,
        policy=policy,
        train_file=out / "train.parquet",
        validation_file=out / "held_out.parquet",
        reward=REWARDS[name],
        steps=settings.steps,
        prompts=settings.prompts,
        group=settings.group,
        learning_rate=settings.learning_rate,
        seed=settings.seed,
    )
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=False) as progress:
        bar = progress.add_task(name, total=settings.steps, detail="starting verl and Ray (about a minute) …")

        def show(step: int, metrics: dict[str, float]) -> None:
            detail = "before training: held-out questions answered"
            if step > 0:
                detail = f"reward {metrics.get('critic/score/mean', float('nan')):+.3f}  {metrics.get('timing_s/step', 0):.1f} s/step"
            progress.update(bar, completed=step, detail=detail)

        finished = job.run(task, on_step=show, validation_rows=settings.held_out)
    if finished.problems:
        raise JobFailedError(name, finished.problems, task.log)
    record = wanted | {
        "seconds": round(finished.seconds, 1),
        "reward_by_step": [
            finished.metrics[step].get("critic/score/mean") for step in sorted(finished.metrics) if step > 0
        ],
    }
    job.write_whole(marker, json.dumps(record, indent=1))
    return record


class JobFailedError(RewardkitError):
    """A job did not train as asked, whatever its exit code says."""

    def __init__(self, name: str, problems: list[str], log: Path):
        lines = "\n".join(f"  - {problem}" for problem in problems)
        super().__init__(f"the {name} job did not train as asked:\n{lines}\nIts log: {log}")


def _report(out: Path, settings: Settings, traces: dict[str, dict[str, Any]], seconds: float) -> int:
    first = out / settings.rewards[0].lower() / "validation"
    evaluations = [evaluation.read("before", first / "0.jsonl")]
    for name in settings.rewards:
        evaluations.append(evaluation.read(name, out / name.lower() / "validation" / f"{settings.steps}.jsonl"))
    console.print()
    console.print(evaluation.table(evaluations))
    console.print(evaluation.kinds_table(evaluations))
    picture = out / "reliability.png"
    evaluation.plot(evaluations, picture)
    numbers = {one.name: one.numbers | {"by_kind": one.by_kind()} for one in evaluations}
    verdicts = _verdicts(numbers) if set(settings.rewards) >= {"RLVR", "RLCR"} else []
    results = {
        "settings": asdict(settings),
        "results": numbers,
        "verdicts": [{"claim": claim, "held": held, "seen": seen} for claim, held, seen in verdicts],
        "seconds": round(seconds, 1),
        "jobs": traces,
    }
    job.write_whole(out / "results.json", json.dumps(results, indent=1))
    for claim, held, seen in verdicts:
        console.print(f"{'[green]held[/]    ' if held else '[red]not seen[/]'} {claim}: {seen}")
    if not verdicts:
        console.print(f"{settings.steps} steps show that everything works, and nothing about learning.")
    console.print(f"reliability diagram: {picture}\nnumbers: {out / 'results.json'}\n{seconds:.0f} s in all")
    return 0


def _verdicts(numbers: dict[str, dict[str, Any]]) -> list[tuple[str, bool, str]]:
    """What the paper claims, whether it was seen here, and the numbers."""
    before, rlvr, rlcr = (numbers[name] for name in ("before", "RLVR", "RLCR"))
    gap = rlcr["accuracy"] - rlvr["accuracy"]
    return [
        (
            "RLVR learns to answer and stays overconfident",
            rlvr["accuracy"] > before["accuracy"] and rlvr["confidence"] > rlvr["accuracy"] + rlvr["ece_null_95"],
            f"accuracy {before['accuracy']:.3f} to {rlvr['accuracy']:.3f}, mean confidence {rlvr['confidence']:.3f}",
        ),
        (
            "RLCR's ECE is under a third of RLVR's",
            rlcr["ece"] < rlvr["ece"] / FACTOR,
            f"{rlcr['ece']:.3f} against {rlvr['ece']:.3f}, {rlcr['ece'] / max(rlvr['ece'], 1e-9):.2f} of it",
        ),
        (
            f"at equal accuracy (within {TOLERANCE})",
            abs(gap) <= TOLERANCE,
            f"{rlcr['accuracy']:.3f} against {rlvr['accuracy']:.3f}",
        ),
        (
            "RLCR states more confidence the likelier the answer",
            _ascending([stated for _, stated in rlcr["by_kind"].values()]),
            ", ".join(f"{kind} {stated:.2f}" for kind, (_, stated) in rlcr["by_kind"].items()),
        ),
    ]


def _ascending(stated: list[float]) -> bool:
    return all(low < high for low, high in itertools.pairwise(stated))


if __name__ == "__main__":
    try:
        code = main()
    except RewardkitError as error:
        Console(stderr=True).print(f"demo: error: {error}", markup=False, highlight=False, soft_wrap=True)
        code = 2
    except KeyboardInterrupt:
        Console(stderr=True).print("demo: interrupted; --resume keeps the jobs that were finished", markup=False)
        code = 130
    sys.exit(code)
