"""T4: how many hypotheses each reward makes a policy list."""

from __future__ import annotations

import numpy as np

from experiments.toy import SEEDS, Finding, Report, World, hypotheses, make, train

P = (0.42, 0.25, 0.13, 0.08)  # and .12 on answers that nobody lists
REST = 0.12
PRIOR = (0.10, 0.06, 0.03, 0.02, 0.001)  # of the four, and of a truth beyond them
NAMES = ("one", "two", "three", "four")
LISTS = {f"best {n}": [(NAMES[i], P[i]) for i in range(n)] for n in (1, 2, 3, 4)}
JUNK = {"junk alone": [("junk", 0.0)], "best 1 + 2 junk": [LISTS["best 1"][0], ("junk", 0.0), ("more junk", 0.0)]}
STEPS, PROMPTS = 1500, 128

SETTINGS = {
    "pure log": ("hypotheses_log", {}, False, "none"),
    "pure log, junk allowed": ("hypotheses_log", {}, True, "none"),
    "log + min_k 3": ("hypotheses_log", {"min_k": 3}, False, "none"),
    "log + min_k 3, junk allowed": ("hypotheses_log", {"min_k": 3}, True, "none"),
    "log + soft diversity 3": ("hypotheses_log", {"soft_diversity": 3}, False, "none"),
    "log + correctness weight 5, junk allowed": ("hypotheses_log", {"correctness_weight": 5.0}, True, "none"),
    "backoff drop, junk allowed": ("hypotheses_backoff", {}, True, "none"),
    "backoff drop, group-scaled": ("hypotheses_backoff", {}, True, "group"),
    "backoff drop, prior x 1e-4": ("hypotheses_backoff", {"_prior": 1e-4}, True, "none"),
    "backoff drop, prior x 1e-17": ("hypotheses_backoff", {"_prior": 1e-17}, True, "none"),
}


def run(seeds=SEEDS) -> Report:
    rows, shares, best = [], {}, {}
    for label, (name, params, junk, scale) in SETTINGS.items():
        lists = {**LISTS, **(JUNK if junk else {})}
        params = dict(params)
        prior = np.log(np.array(PRIOR) * params.pop("_prior", 1.0)).tolist()
        columns = {"prior_logprob": prior} if name == "hypotheses_backoff" else {}
        world = World.of(
            make(name, **params),
            [hypotheses(*pairs) for pairs in lists.values()],
            [[name] for name in (*NAMES, "beyond")],
            (*P, REST),
            **columns,
        )
        final = [train(world, seed=s, steps=STEPS, prompts=PROMPTS, scale=scale)[-1] for s in seeds]
        shares[label] = dict(zip(lists, np.mean(final, axis=0), strict=True))
        best[label] = list(lists)[int(world.expected.argmax())]
        winners = [list(lists)[int(policy.argmax())] for policy in final]
        rows.append(
            [
                label,
                best[label],
                ", ".join(f"{w} x{winners.count(w)}" for w in dict.fromkeys(winners)),
                f"{max(shares[label].values()):.3f}",
            ]
        )

    def learnt(label: str) -> str:
        return max(shares[label], key=lambda one: shares[label][one])

    def claim(text: str, label: str, *wanted: str) -> Finding:
        got = learnt(label)
        return Finding(text, f"{label}: {got} ({shares[label][got]:.3f} of completions)", got in wanted)

    findings = [
        claim("the pure log score ends at one hypothesis", "pure log", "best 1"),
        claim(
            "and at a junk one, with all weight on Other, where that can be said",
            "pure log, junk allowed",
            "junk alone",
        ),
        claim("min_k brings the list back to 3", "log + min_k 3", "best 3"),
        claim(
            "but is met with junk where that can be said",
            "log + min_k 3, junk allowed",
            "best 1 + 2 junk",
            "junk alone",
        ),
        claim("soft diversity brings the list back to 3", "log + soft diversity 3", "best 3"),
        claim(
            "a correctness weight of 5 keeps a real guess, though only one (padding it with junk at weight 0 is worth the same)",
            "log + correctness weight 5, junk allowed",
            "best 1",
            "best 1 + 2 junk",
        ),
        claim("drop backoff lists all four answers, its true optimum", "backoff drop, junk allowed", "best 4"),
        claim("under group scaling it stops at three", "backoff drop, group-scaled", "best 3"),
        Finding(
            "a prior that is far too small does not make lists shorter (so it cannot explain short lists by itself)",
            ", ".join(learnt(f"backoff drop, prior x {k}") for k in ("1e-4", "1e-17")),
            all(learnt(f"backoff drop, prior x {k}") == "best 4" for k in ("1e-4", "1e-17")),
        ),
    ]

    def draw(figure) -> None:
        axes = figure.subplots()
        names = [*LISTS, *JUNK]
        left = np.zeros(len(SETTINGS))
        for name in names:
            width = np.array([shares[label].get(name, 0.0) for label in SETTINGS])
            axes.barh(list(SETTINGS), width, left=left, label=name)
            left += width
        axes.invert_yaxis()
        axes.set(xlabel="share of completions after training")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))

    return Report(
        "t4",
        "How many hypotheses",
        ["reward", "best in expectation", "learnt (seeds)", "largest share"],
        rows,
        findings,
        draw,
        note="One question, answers with p = .42, .25, .13, .08 and .12 beyond; honest weights; prior .10, .06, .03, .02, .001.",
        numbers={"shares": shares, "best": best, "learnt": {label: learnt(label) for label in SETTINGS}},
    )
