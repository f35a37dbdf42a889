"""T6: failure rewards for a backoff reward whose minimum depends on how rare the gold is."""

from __future__ import annotations

import numpy as np

from experiments.toy import SEEDS, Finding, Report, World, hypotheses, make, mean_of, train
from rewardkit.groups import group_advantages

P = (0.4, 0.25, 0.15)  # and .2 on answers that nobody lists
NAMES = ("one", "two", "three")
PRIORS = {-2.0: 0.50, -5.0: 0.30, -10.0: 0.16, -42.0: 0.04}  # log-prior of a prompt's gold, and how common it is
TRAINING = np.repeat([*PRIORS], (np.array([*PRIORS.values()]) * 100).astype(int))
MODES = {
    "fixed at -1": {"lift": False, "fail_reward": -1.0, "allow_inversion": True},
    "per example": {"lift": False, "fail_mode": "per_example"},
    "5th percentile, clipped": {"lift": False, "percentile": 5.0, "training_logprob": TRAINING},
    "below the rarest gold": {"lift": False, "floor": -42.0},
    "lift": {},
}
STEPS = 600


def run(seeds=SEEDS) -> Report:
    lists = [[(NAMES[i], P[i]) for i in range(n)] for n in (1, 2, 3)] + [[("one", 0.95)], [("wrong", 0.95)]]
    texts = ["no format at all", *(hypotheses(*pairs) for pairs in lists)]
    start = np.log(np.array([0.06, *[0.94 / len(lists)] * len(lists)]))
    truths = [
        (prior, name, share * p)
        for prior, share in PRIORS.items()
        for name, p in zip((*NAMES, "beyond"), (*P, 0.2), strict=True)
    ]
    curves, rows = {}, []
    for mode, params in MODES.items():
        reward = make("hypotheses_backoff", **params)
        world = World.of(
            reward,
            texts,
            [[name] for _, name, _ in truths],
            [c for *_, c in truths],
            prior_logprob=[prior for prior, *_ in truths],
        )
        for scale in ("none", "group"):
            curves[mode, scale] = np.array(
                [
                    train(world, seed=s, steps=STEPS, scale=scale, start=start, rate=0.3, record=lambda p: 1 - p[0])
                    for s in seeds
                ]
            )
            rows.append([mode, scale, mean_of(curves[mode, scale][:, STEPS // 4]), mean_of(curves[mode, scale][:, -1])])

    valid = np.linspace(-0.5, -3.0, 7)
    spread, worst = {}, {}
    for fail in (-3.1, -10.0, -42.0):
        advantages = group_advantages([[*valid, fail]], scale="group")[0]
        spread[fail], worst[fail] = float(advantages[0] - advantages[-2]), float(advantages[-2])
        rows.append(
            [
                f"valid -.5 to -3, one failure at {fail}",
                "group",
                f"best - worst valid {spread[fail]:.2f}",
                f"worst valid {worst[fail]:+.2f}",
            ]
        )

    findings = []
    for scale in ("none", "group"):
        fixed = curves["fixed at -1", scale][:, -1]
        others = np.concatenate([curves[mode, scale][:, -1] for mode in MODES if mode != "fixed at -1"])
        findings.append(
            Finding(
                f"a failure reward fixed at -1 loses the format (scale={scale})",
                f"well-formed {mean_of(fixed)}",
                bool((fixed < 0.5).all()),
            )
        )
        findings.append(
            Finding(
                f"the derived ones keep it (scale={scale})",
                f"well-formed {mean_of(others)}",
                bool((others > 0.95).all()),
            )
        )
    findings.append(
        Finding(
            "under group scaling one far failure drowns the differences among valid answers",
            ", ".join(f"{fail}: spread {spread[fail]:.2f}" for fail in spread),
            spread[-3.1] > 10.0 * spread[-42.0],
        )
    )
    findings.append(
        Finding(
            "and at -42 even the worst valid answer gets a positive advantage",
            f"{worst[-42.0]:+.2f}, against {worst[-3.1]:+.2f} at -3.1",
            worst[-42.0] > 0.0 > worst[-3.1],
        )
    )

    def draw(figure) -> None:
        for axes, scale in zip(figure.subplots(1, 2, sharey=True), ("none", "group"), strict=True):
            for mode in MODES:
                axes.plot(curves[mode, scale].mean(axis=0), label=mode)
            axes.set(title=f"advantages scaled: {scale}", xlabel="step", ylabel="share well-formed", ylim=(0, 1.02))
        axes.legend()

    return Report(
        "t6",
        "Failure rewards of a backoff reward",
        ["failure reward", "scale", f"well-formed after {STEPS // 4}", f"well-formed after {STEPS}"],
        rows,
        findings,
        draw,
        note="Golds with log-priors of -2, -5, -10 and, one in 25, -42; the policy starts 94 % well-formed.",
        numbers={"curves": curves, "spread": spread, "worst": worst},
    )
