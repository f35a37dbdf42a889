"""T5: what multi-answer rewards pay for: junk slots, copies, shrunken confidences."""

from __future__ import annotations

import itertools

import numpy as np

from experiments.toy import SEEDS, Finding, Report, World, make, mean_of, multi, train

STEPS = 600


def truths(names, chances) -> tuple[list[list[str]], list[float]]:
    """Every combination of independent truths, beside two golds that nobody names."""
    sets, weights = [], []
    for right in itertools.product((1, 0), repeat=len(names)):
        sets.append([name for name, c in zip(names, right, strict=True) if c] + ["unnamed", "unknown"])
        weights.append(float(np.prod([p if c else 1 - p for p, c in zip(chances, right, strict=True)])))
    return sets, weights


def run(seeds=SEEDS) -> Report:
    rows, findings = [], []
    junk = {}
    honest_or_junk = [multi(("a1", 0.9), ("b1", 0.3)), multi(("a1", 0.9), ("nothing", 0.0))]
    for mode in ("any", "frac", "sum"):
        reward = make(
            "multi_rlcr", max_answers=2, credit_mode=mode, exclusive=False, force=True, format="multi_noanalysis"
        )
        world = World.of(reward, honest_or_junk, *truths(("a1", "b1"), (0.9, 0.3)))
        junk[mode] = [train(world, seed=s, steps=STEPS)[-1][1] for s in seeds]
        rows.append(
            [
                f"junk second slot, credit {mode}",
                f"honest {world.expected[0]:.3f}, junk {world.expected[1]:.3f}",
                f"P(junk) {mean_of(junk[mode])}",
            ]
        )
    findings.append(
        Finding("any-credit pays for a junk second answer", f"P(junk) {mean_of(junk['any'])}", min(junk["any"]) > 0.95)
    )
    findings.append(
        Finding(
            "frac and sum credit do not",
            f"P(junk) {mean_of(junk['frac'])} and {mean_of(junk['sum'])}",
            max(*junk["frac"], *junk["sum"]) < 0.05,
        )
    )

    copies = {}
    pairs = {"three copies": [("a1", 0)] * 3, "three answers": [("a1", 0), ("b1", 0), ("c1", 0)]}
    for rule in ("allow", "fail"):
        credit = "independent" if rule == "allow" else "distinct"
        reward = make("multi_rlvr", on_duplicate=rule, credit=credit)
        world = World.of(
            reward, [multi(*p, stated=False) for p in pairs.values()], *truths(("a1", "b1", "c1"), (0.5, 0.2, 0.1))
        )
        copies[rule] = [train(world, seed=s, steps=STEPS)[-1][0] for s in seeds]
        rows.append(
            [
                f"copies, duplicates {rule}",
                f"copies {world.expected[0]:.3f}, answers {world.expected[1]:.3f}",
                f"P(copies) {mean_of(copies[rule])}",
            ]
        )
    findings.append(
        Finding(
            "without a duplicates rule (and with independent credit) a policy copies its best answer",
            f"P(copies) {mean_of(copies['allow'])}",
            min(copies["allow"]) > 0.95,
        )
    )
    findings.append(
        Finding("with the rule it does not", f"P(copies) {mean_of(copies['fail'])}", max(copies["fail"]) < 0.05)
    )

    grid = [(a / 10, b / 10) for a in range(11) for b in range(11)]
    learnt, table = {}, {}
    for exclusive in (True, False):
        points = [(a, b) for a, b in grid if not exclusive or a + b <= 1.0 + 1e-9]
        reward = make("multi_rlcr", max_answers=2, exclusive=exclusive, format="multi_noanalysis")
        world = World.of(reward, [multi(("a1", a), ("b1", b)) for a, b in points], *truths(("a1", "b1"), (0.9, 0.7)))
        table[exclusive] = points[int(world.expected.argmax())]
        at = np.array(points)
        learnt[exclusive] = np.array(
            [at.T @ train(world, seed=s, steps=4 * STEPS, prompts=128, rate=3.0)[-1] for s in seeds]
        )
        rows.append(
            [
                f"confidences of p = .9, .7, sum rule {'on' if exclusive else 'off'}",
                f"best in expectation {table[exclusive]}",
                " / ".join(mean_of(column) for column in learnt[exclusive].T),
            ]
        )
    findings.append(
        Finding(
            "the sum rule with several golds makes confidences shrink to the projection (.6, .4)",
            f"best {table[True]}, learnt {np.round(learnt[True].mean(axis=0), 3).tolist()}",
            table[True] == (0.6, 0.4) and bool((np.abs(learnt[True].mean(axis=0) - (0.6, 0.4)) < 0.05).all()),
        )
    )
    findings.append(
        Finding(
            "without it they stay honest, (.9, .7)",
            f"best {table[False]}, learnt {np.round(learnt[False].mean(axis=0), 3).tolist()}",
            table[False] == (0.9, 0.7) and bool((np.abs(learnt[False].mean(axis=0) - (0.9, 0.7)) < 0.05).all()),
        )
    )

    def draw(figure) -> None:
        left, right = figure.subplots(1, 2)
        bars = {
            **{f"junk, {mode}": np.mean(v) for mode, v in junk.items()},
            **{f"copies, {rule}": np.mean(v) for rule, v in copies.items()},
        }
        left.bar(list(bars), list(bars.values()))
        left.tick_params(axis="x", rotation=30)
        left.set(ylabel="share of completions that cheat", ylim=(0, 1))
        for exclusive, points in learnt.items():
            right.scatter(*points.T, label=f"sum rule {'on' if exclusive else 'off'}")
        right.plot([0.9], [0.7], "k+", label="true p")
        right.plot([0, 1], [1, 0], "k:", linewidth=1)
        right.set(xlabel="confidence of the first answer", ylabel="of the second", xlim=(0, 1), ylim=(0, 1))
        right.legend()

    return Report(
        "t5",
        "Multi-answer rewards",
        ["choice", "expected reward", "learnt"],
        rows,
        findings,
        draw,
        numbers={"junk": junk, "copies": copies, "learnt": learnt},
    )
