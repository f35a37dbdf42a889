"""T3: dividing advantages by the group's standard deviation makes a proper reward improper."""

from __future__ import annotations

import numpy as np

from experiments.toy import SEEDS, Finding, Report, World, make, mean_of, tac, train

GRID = np.round(np.linspace(0.0, 1.0, 11), 1)
CHANCES = (0.1, 0.3, 0.6, 0.8)
SCALES = ("none", "batch", "group")
STEPS = 500


def run(seeds=SEEDS) -> Report:
    texts = [tac("yes", q) for q in GRID]
    learnt, rows = {}, []
    for shared in (True, False):
        for scale in SCALES:
            for p in CHANCES:
                world = World.of(make("rlcr"), texts, [["yes"], ["no"]], [p, 1 - p])
                learnt[shared, scale, p] = [
                    train(
                        world,
                        seed=s,
                        steps=STEPS,
                        scale=scale,
                        shared_truth=shared,
                        prompts=64,
                        record=lambda q: float(q @ GRID),
                    )[-1]
                    for s in seeds
                ]
            labels = "one per prompt" if shared else "one per rollout"
            rows.append([labels, scale, *(mean_of(learnt[shared, scale, p]) for p in CHANCES)])
    off = {key: float(np.mean(values)) - key[2] for key, values in learnt.items()}
    findings = []
    for scale in ("none", "batch"):
        worst = max(abs(error) for key, error in off.items() if key[1] == scale)
        findings.append(
            Finding(f"scale={scale} teaches q = p", f"largest mean error {worst:.3f}, grid step .1", worst < 0.05)
        )
    for shared, labels in ((True, "one truth per prompt"), (False, "one truth per rollout")):
        pushed = all(off[shared, "group", p] * (1 if p > 0.5 else -1) > 0.05 for p in CHANCES)
        seen = ", ".join(f"{p} -> {p + off[shared, 'group', p]:.2f}" for p in CHANCES)
        findings.append(Finding(f"scale=group pushes every confidence outwards ({labels})", seen, pushed))

    def draw(figure) -> None:
        for axes, shared in zip(figure.subplots(1, 2, sharey=True), (True, False), strict=True):
            for scale in SCALES:
                means = [np.mean(learnt[shared, scale, p]) for p in CHANCES]
                axes.plot(CHANCES, means, "o-", label=f"scale={scale}")
            axes.plot([0, 1], [0, 1], "k:", linewidth=1)
            axes.set(
                title="one truth per " + ("prompt" if shared else "rollout"), xlabel="p", ylabel="confidence learnt"
            )
        axes.legend()

    return Report(
        "t3",
        "Group scaling and properness",
        ["truths", "scale", *(f"p = {p}" for p in CHANCES)],
        rows,
        findings,
        draw,
        note="RLCR with the Brier rule, groups of 8; the confidence learnt, over seeds.",
        numbers={"learnt": learnt},
    )
