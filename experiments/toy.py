"""The toy that all experiments share: a softmax policy over a short list of completions, trained as GRPO does.

Every completion is written out as text and scored by the package's own reward, once per possible truth; a step draws
groups of completions and truths, looks their rewards up, and follows the advantages of :mod:`rewardkit.groups`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rewardkit import rewards
from rewardkit.errors import HarmfulSettingWarning
from rewardkit.groups import Scale, group_advantages

SEEDS = range(5)


@dataclass(frozen=True)
class World:
    """What can be said, what can be true, and what a reward gives for each pair.

    Attributes:
        table: float ``[A, O]``, the reward of completion a when o is true.
        chance: float ``[O]``, how probable each truth is.
    """

    table: np.ndarray
    chance: np.ndarray

    @classmethod
    def of(
        cls,
        reward: rewards.Reward,
        completions: Sequence[str],
        truths: Sequence[Any],
        chance: Sequence[float],
        **columns: Any,
    ) -> World:
        """Scores every completion under every truth; ``columns`` hold one value per truth."""
        table = []
        for o, truth in enumerate(truths):
            per_row = {name: [values[o]] * len(completions) for name, values in columns.items()}
            table.append(reward(completions, [truth] * len(completions), gold_kind="set", **per_row).values)
        return cls(np.array(table).T, np.asarray(chance, dtype=float))

    @property
    def expected(self) -> np.ndarray:
        """Expected reward of each completion, float ``[A]``."""
        return self.table @ self.chance


def make(name: str, **params: Any) -> rewards.Reward:
    """A reward, without its warnings: showing what they warn of is what the experiments are for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HarmfulSettingWarning)
        return rewards.get(name, **params)


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def train(
    world: World,
    *,
    seed: int,
    steps: int,
    scale: Scale = "none",
    shared_truth: bool = True,
    start: np.ndarray | None = None,
    prompts: int = 32,
    rollouts: int = 8,
    rate: float = 1.0,
    record: Callable[[np.ndarray], Any] = lambda policy: policy,
) -> list[Any]:
    """Trains one policy; returns ``record(policy)`` before the first step and after each.

    Args:
        world: The rewards.
        seed: Of the draws.
        steps: Updates.
        scale: How advantages are scaled.
        shared_truth: Whether the rollouts of a prompt meet the same truth, as a data set's do.
        start: Logits to start from, ``[A]``.
        prompts: Groups per step.
        rollouts: Rollouts per group.
        rate: Learning rate on the logits.
        record: What to keep of each policy.
    """
    rng = np.random.default_rng(seed)
    completions, truths = world.table.shape
    logits = np.zeros(completions) if start is None else np.array(start, dtype=float)
    kept = [record(softmax(logits))]
    for _ in range(steps):
        policy = softmax(logits)
        said = rng.choice(completions, size=(prompts, rollouts), p=policy)
        true = rng.choice(truths, size=(prompts, 1 if shared_truth else rollouts), p=world.chance)
        advantages = group_advantages(world.table[said, true], scale=scale)
        pull = np.bincount(said.ravel(), advantages.ravel(), minlength=completions)
        logits += rate * (pull - policy * advantages.sum()) / said.size
        kept.append(record(softmax(logits)))
    return kept


@dataclass
class Finding:
    """One claim, what was seen, and whether it held."""

    claim: str
    seen: str
    held: bool


@dataclass
class Report:
    """What an experiment found."""

    name: str
    title: str
    columns: list[str]
    rows: list[list[str]]
    findings: list[Finding]
    draw: Callable[[Any], None]
    """Draws the plot on a matplotlib figure."""
    note: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)
    """What the tests look at."""


def mean_of(values: Sequence[float]) -> str:
    """``mean (lowest to highest)`` over seeds."""
    return f"{np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def tac(answer: str, confidence: float) -> str:
    """A completion with an answer and a confidence."""
    return f"<think>…</think><answer>{answer}</answer><confidence>{confidence:.2f}</confidence>"


def multi(*pairs: tuple[str, float], stated: bool = True) -> str:
    """A completion with several answers, with their confidences or without."""
    body = "".join(
        f"<answer{i}>{answer}</answer{i}>" + (f"<confidence{i}>{q:.2f}</confidence{i}>" if stated else "")
        for i, (answer, q) in enumerate(pairs, 1)
    )
    return "<think>…</think>" + body


def hypotheses(*pairs: tuple[str, float]) -> str:
    """A completion with weighted hypotheses, the rest of the weight on Other."""
    listed = "".join(f"<h{i}>{answer}</h{i}><w{i}>{w:.4f}</w{i}>" for i, (answer, w) in enumerate(pairs, 1))
    other = max(0.0, 1.0 - sum(w for _, w in pairs))
    return f"<think>…</think><hypotheses>{listed}<other>{other:.4f}</other></hypotheses>"
