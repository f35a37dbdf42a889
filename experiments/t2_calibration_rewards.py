"""T2: which answer and which confidence each reward teaches."""

from __future__ import annotations

import numpy as np

from experiments.toy import SEEDS, Finding, Report, World, make, tac, train

GRID = np.round(np.linspace(0.0, 1.0, 11), 1)
ANSWERS = ("best", "second", "never")
CHANCE = (0.6, 0.3, 0.1)  # of "best", of "second", of something that is not on offer
REWARDS = {
    "rlvr": ("rlvr", {"format": "tac"}),
    "rlcr, Brier": ("rlcr", {}),
    "rlcr, log, weight 1": ("rlcr", {"rule": "log"}),
    "rlcr, log, weight 5": ("rlcr", {"rule": "log", "weights": (5.0, 1.0)}),
}
STEPS, PROMPTS = 1500, 256


def run(seeds=SEEDS) -> Report:
    texts = [tac(answer, q) for answer in ANSWERS for q in GRID]
    share, confidence, finals, optimum, rows = {}, {}, {}, {}, []
    choices = [(answer, float(q)) for answer in ANSWERS for q in GRID]
    for label, (name, params) in REWARDS.items():
        world = World.of(make(name, **params), texts, [["best"], ["second"], ["other"]], CHANCE)
        optimum[label] = float(world.expected.max()), choices[int(world.expected.argmax())]
        final = []
        for s in seeds:
            start = 0.1 * np.random.default_rng(1000 + s).normal(size=len(texts))
            final.append(train(world, seed=s, steps=STEPS, prompts=PROMPTS, start=start)[-1].reshape(3, -1))
        finals[label] = np.array(final)
        share[label] = finals[label].sum(axis=2)
        confidence[label] = finals[label].sum(axis=1) @ GRID
        rows.append(
            [
                label,
                *(" ".join(f"{v:.2f}" for v in share[label][:, a]) for a in range(3)),
                " ".join(f"{v:.2f}" for v in confidence[label]),
            ]
        )
    best = {label: bool((share[label][:, 0] > 0.95).all()) for label in REWARDS}
    near = {label: np.abs(confidence[label] - 0.6) <= 0.1 + 1e-2 for label in REWARDS}
    junk = (share["rlcr, log, weight 1"][:, 2] > 0.95) & (confidence["rlcr, log, weight 1"] < 0.05)
    findings = [
        Finding(
            "RLVR finds the best answer and leaves the confidence where chance put it",
            f"confidences {np.round(confidence['rlvr'], 2).tolist()}",
            best["rlvr"] and float(np.ptp(confidence["rlvr"])) > 0.2,
        ),
        Finding(
            "RLCR with the Brier rule finds the best answer with confidence .6, within one step of the grid",
            f"confidences {np.round(confidence['rlcr, Brier'], 2).tolist()}",
            best["rlcr, Brier"] and bool(near["rlcr, Brier"].all()),
        ),
        Finding(
            "with the log rule and weight 1, the best thing to say is the answer that is never right, with confidence 0",
            f"expected {optimum['rlcr, log, weight 1'][0]:.3f} for {optimum['rlcr, log, weight 1'][1]!r}",
            optimum["rlcr, log, weight 1"][1] == ("never", 0.0),
        ),
        Finding(
            "and every policy learns that",
            f"{int(junk.sum())} of {len(junk)} policies; the others stay at the best answer, a local optimum",
            bool(junk.all()),
        ),
        Finding(
            "with weight 5, above log((1 - eps)/eps) = 4.6, the best answer with confidence .6, within one step",
            f"confidences {np.round(confidence['rlcr, log, weight 5'], 2).tolist()}",
            best["rlcr, log, weight 5"] and bool(near["rlcr, log, weight 5"].all()),
        ),
    ]

    def draw(figure) -> None:
        for axes, label in zip(figure.subplots(1, 4, sharey=True), REWARDS, strict=True):
            for a, answer in enumerate(ANSWERS):
                axes.bar(GRID + 0.025 * (a - 1), finals[label].mean(axis=0)[a], width=0.025, label=answer)
            axes.axvline(0.6, color="k", linewidth=0.5)
            axes.set(title=label, xlabel="confidence", ylabel="share of completions")
        axes.legend()

    return Report(
        "t2",
        "What each reward teaches",
        ["reward", "best answer", "second", "never right", "mean confidence (one number per seed)"],
        rows,
        findings,
        draw,
        note="Answers right with p = .6, .3 and 0, eleven confidences each; unscaled advantages.",
        numbers={"share": share, "confidence": confidence, "optimum": optimum, "junk": junk},
    )
