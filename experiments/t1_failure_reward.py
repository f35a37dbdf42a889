"""T1: what a failure reward above the worst valid answer does to the format."""

from __future__ import annotations

import numpy as np

from experiments.toy import SEEDS, Finding, Report, World, make, mean_of, tac, train

GRID = np.round(np.linspace(0.0, 1.0, 11), 1)
P = 0.3
FORMS = {
    "paper's form, failure 0": {"fail_reward": 0.0, "allow_inversion": True},
    "paper's form, failure -1": {"fail_reward": -1.0},
    "shifted form, failure 0": {"shift": True, "fail_reward": 0.0},
}
INVERTED = "paper's form, failure 0"
STEPS = {"group": 40, "none": 400}


def start() -> np.ndarray:
    """94 % well-formed, confident near .9."""
    logits = np.concatenate([[0.0], -0.5 * np.square((GRID - 0.9) / 0.15)])
    logits[0] = np.log(0.06 / 0.94 * np.exp(logits[1:]).sum())
    return logits


def run(seeds=SEEDS) -> Report:
    texts = ["no format at all", *(tac("yes", q) for q in GRID)]
    curves, rows = {}, []
    for form, params in FORMS.items():
        world = World.of(make("rlcr", **params), texts, [["yes"], ["no"]], [P, 1 - P])
        for scale, steps in STEPS.items():
            curves[form, scale] = np.array(
                [
                    train(world, seed=s, steps=steps, scale=scale, start=start(), record=lambda p: 1 - p[0])
                    for s in seeds
                ]
            )
            rows.append(
                [
                    form,
                    scale,
                    str(steps),
                    mean_of(curves[form, scale][:, steps // 2]),
                    mean_of(curves[form, scale][:, -1]),
                ]
            )
    findings = []
    for scale, steps in STEPS.items():
        lost = curves[INVERTED, scale][:, -1]
        kept = np.concatenate([curves[form, scale][:, -1] for form in FORMS if form != INVERTED])
        findings.append(
            Finding(
                f"a failure reward of 0 in the paper's form makes the policy drop its format (scale={scale})",
                f"well-formed after {steps} steps: {mean_of(lost)}",
                bool((lost < 0.5).all()),
            )
        )
        findings.append(
            Finding(
                f"a failure reward at the exact minimum keeps it, in either form (scale={scale})",
                f"well-formed after {steps} steps: {mean_of(kept)}",
                bool((kept > 0.98).all()),
            )
        )

    def draw(figure) -> None:
        for axes, scale in zip(figure.subplots(1, 2, sharey=True), STEPS, strict=True):
            for form in FORMS:
                axes.plot(curves[form, scale].T, color=f"C{list(FORMS).index(form)}", alpha=0.3)
                axes.plot(curves[form, scale].mean(axis=0), color=f"C{list(FORMS).index(form)}", label=form)
            axes.set(title=f"advantages scaled: {scale}", xlabel="step", ylabel="share well-formed", ylim=(0, 1))
        axes.legend()

    return Report(
        "t1",
        "Failure reward above the minimum",
        ["reward", "scale", "steps", "well-formed at half-time", "well-formed at the end"],
        rows,
        findings,
        draw,
        note="A question answered right with p = .3; the policy starts 94 % well-formed and overconfident.",
        numbers={"curves": curves},
    )
