"""``python -m examples.likelihood``: GRPO in verl on the CPU with RLPR and with DARL, where reasoning decides the answer."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.demo import job
from examples.likelihood import task
from rewardkit import prior
from rewardkit.data.files import RowFile, write_text
from rewardkit.errors import RewardkitError

TAUGHT = {"skip_checks": ["format-not-asked"]}
"""The policy is taught its format, so that the prompts need not ask for it."""
REWARDS: dict[str, dict[str, Any]] = {
    "RLPR": {"reward": "rlpr", "params": {"format": "ta", "debias": True}, **TAUGHT},
    "DARL": {"reward": "darl", "params": {"format": "ta", "debias": True, "beta": 0.01, "gamma": 8.0}, **TAUGHT},
}
LOOP = """- name: rewardkit_reference
  _target_: rewardkit.integrations.verl.agent_loop.ReferenceAgentLoop
  own_answer: {own_answer}
"""
VALIDATE_EVERY = 5
console = Console()


@dataclass
class Curve:
    """What a job's rollouts say, step by step.

    Attributes:
        reward: Mean reward.
        probability: Mean probability of the reference's tokens after the policy's own reasoning.
        right: Share of rollouts whose thought is the right one; no reward reads it.
    """

    reward: list[float] = field(default_factory=list)
    probability: list[float] = field(default_factory=list)
    right: list[float] = field(default_factory=list)


def main() -> int:
    """Runs both jobs; exit code 0 when reward and probability rose in both."""
    parser = argparse.ArgumentParser(prog="python -m examples.likelihood", description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--rewards", nargs="+", choices=list(REWARDS), default=list(REWARDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="outputs/demo-likelihood")
    options = parser.parse_args()
    out, started = Path(options.out).resolve(), time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    policy, train, held = out / "policy", out / "train.parquet", out / "validation.parquet"

    with console.status("teaching a tiny policy to answer what it thinks …"):
        loss = task.teach(policy, seed=options.seed, steps=250)
    console.print(f"taught a policy (cross-entropy {loss:.2f} nats a token)")
    baselines = _baselines(policy, out)
    console.print(f"likelihood of the reference without reasoning: {sum(baselines.values()) / len(baselines):.2f}")
    task.write_rows(train, rows=options.steps * options.prompts, seed=options.seed, split="train", baselines=baselines)
    task.write_rows(held, rows=4 * len(task.SUBJECTS), seed=options.seed, split="test", baselines=baselines)

    curves = {}
    for name, reward in ((name, REWARDS[name]) for name in options.rewards):
        folder = out / name.lower()
        loop = out / f"agent_loop_{name.lower()}.yaml"
        write_text(loop, LOOP.format(own_answer=str(name == "DARL").lower()))
        extra = (
            f"actor_rollout_ref.rollout.agent.agent_loop_config_path={loop}",
            "actor_rollout_ref.rollout.agent.default_agent_loop=rewardkit_reference",
            "actor_rollout_ref.rollout.calculate_log_probs=True",
            f"trainer.test_freq={VALIDATE_EVERY}",
        )
        _train(
            name,
            job.Job(
                folder,
                policy,
                train,
                held,
                reward,
                steps=options.steps,
                prompts=options.prompts,
                learning_rate=1e-3,
                seed=options.seed,
                extra=extra,
            ),
        )
        curves[name] = read_curve(folder)
    return _report(out, curves, time.monotonic() - started)


def _baselines(policy: Path, out: Path) -> dict[str, float]:
    """The reference's mean token probability right after the prompt, by subject: computed once, and stored."""
    subjects, priors = out / "subjects.parquet", out / "baselines.parquet"
    task.write_rows(subjects, rows=len(task.SUBJECTS), seed=0, split="baseline")
    # The policy has never answered without thinking, so it finds no answer likely there: that is what is asked.
    prior.run(subjects, str(policy), priors, settings=prior.Settings(answer_prefix="<answer> "), force=True)
    names = [prompt[0]["content"] for prompt in RowFile.open(subjects).read().columns["prompt"]]
    values = RowFile.open(priors).read().columns["prior_mean_prob"]
    return dict(zip(names, values, strict=True))


def _train(name: str, one: job.Job) -> None:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task(name, total=one.steps, detail="starting verl and Ray (about a minute) …")

        def show(step: int, metrics: dict[str, float]) -> None:
            progress.update(bar, completed=step, detail=f"reward {metrics.get('critic/score/mean', math.nan):+.3f}")

        job.run(one, on_step=show)
    steps = len(list((one.folder / "rollouts").glob("*.jsonl")))
    if steps != one.steps:
        raise RewardkitError(f"the {name} job ended after {steps} of {one.steps} steps; see {one.log}")


def read_curve(job_folder: Path) -> Curve:
    """Reads verl's dumps: the reward of every training step, and what the validations say of the policy between them."""
    curve = Curve()
    for rows in _dumps(job_folder / "rollouts"):
        curve.reward.append(_mean(row["score"] for row in rows))
    for rows in _dumps(job_folder / "validation"):
        curve.probability.append(_mean(row["reference_score"] for row in rows))
        curve.right.append(_mean(_thinks_right(row) for row in rows))
    return curve


def _dumps(folder: Path) -> Iterator[list[dict[str, Any]]]:
    for file in sorted(folder.glob("*.jsonl"), key=lambda path: int(path.stem)):
        yield [json.loads(line) for line in file.read_text().split("\n") if line]


def _thinks_right(row: dict[str, Any]) -> float:
    thought = row["output"].partition("<think>")[2].partition("</think>")[0]
    return float(thought in task.THOUGHTS and task.ANSWERS[task.THOUGHTS.index(thought)] == row["gts"])


def _mean(values: Any) -> float:
    values = list(values)
    return sum(values) / len(values)


def _report(out: Path, curves: dict[str, Curve], seconds: float) -> int:
    table = Table(title=f"before and after ({seconds:.0f} s in all)", title_justify="left")
    for heading in ("reward", "mean reward", "reference's probability", "right thoughts"):
        table.add_column(heading)
    rose = True
    for name, curve in curves.items():
        ends = [(_mean(curve.reward[:3]), _mean(curve.reward[-3:]))]
        ends += [(values[0], values[-1]) for values in (curve.probability, curve.right)]
        rose = rose and all(last > first for first, last in ends)
        table.add_row(name, *(f"{first:.3f} -> {last:.3f}" for first, last in ends))
    console.print(table)
    write_text(out / "curves.json", json.dumps({name: vars(curve) for name, curve in curves.items()}, indent=1))
    plot(curves, out / "likelihood.png")
    console.print(f"curves: {out / 'likelihood.png'}, {out / 'curves.json'}")
    if not rose:
        console.print("[red]something did not rise; see the curves[/]")
    return 0 if rose else 1


def plot(curves: dict[str, Curve], path: Path) -> None:
    """Reward, the reference's probability and right thoughts over the steps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    titles = {
        "reward": "mean reward",
        "probability": "reference's probability",
        "right": "right thoughts (not rewarded)",
    }
    figure, axes = pyplot.subplots(1, 3, figsize=(10.5, 3.4))
    for axis, (key, title) in zip(axes, titles.items(), strict=True):
        for name, curve in curves.items():
            values = getattr(curve, key)
            steps = (
                range(1, len(values) + 1) if key == "reward" else range(0, VALIDATE_EVERY * len(values), VALIDATE_EVERY)
            )
            axis.plot(steps, values, label=name)
        axis.set(title=title, xlabel="step")
    axes[0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RewardkitError as error:
        console.print(f"error: {error}", markup=False)
        sys.exit(2)
