"""The toy experiments show what they claim, within tolerances; where a claim does not hold, that is asserted as well."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments import toy
from experiments.__main__ import MODULES, run

ROOT = Path(__file__).resolve().parent.parent


def test_training_follows_the_expected_reward() -> None:
    world = toy.World(np.array([[1.0, 0.0], [0.6, 0.6]]), np.array([0.5, 0.5]))
    assert world.expected.tolist() == [0.5, 0.6]
    first, *_, last = toy.train(world, seed=0, steps=300, rate=5.0)
    assert first.tolist() == [0.5, 0.5]
    assert last[1] > 0.95
    again = toy.train(world, seed=0, steps=300, rate=5.0)[-1]
    assert again.tolist() == last.tolist()


def held(report: toy.Report) -> list[bool]:
    return [bool(finding.held) for finding in report.findings]


@pytest.mark.slow
def test_t1_failure_reward_above_the_minimum_loses_the_format() -> None:
    report = run("t1")
    ends = {key: curves[:, -1] for key, curves in report.numbers["curves"].items()}
    for (form, _), end in ends.items():
        assert (end < 0.5).all() if form == "paper's form, failure 0" else (end > 0.99).all()
    assert all(held(report))


@pytest.mark.slow
def test_t2_what_each_reward_teaches() -> None:
    report = run("t2")
    confidence, share = report.numbers["confidence"], report.numbers["share"]
    assert np.ptp(confidence["rlvr"]) > 0.2
    for label in ("rlcr, Brier", "rlcr, log, weight 5"):
        assert confidence[label] == pytest.approx(0.6, abs=0.11)
        assert (share[label][:, 0] > 0.95).all()
    assert report.numbers["optimum"]["rlcr, log, weight 1"][1] == ("never", 0.0)
    junk = report.numbers["junk"]
    assert junk.any()
    assert not junk.all()  # some policies stay at a local optimum: the claim "every policy" does not hold
    assert held(report) == [True, True, True, False, True]


@pytest.mark.slow
def test_t3_group_scaling_breaks_properness() -> None:
    report = run("t3")
    learnt = {key: float(np.mean(values)) for key, values in report.numbers["learnt"].items()}
    for shared in (True, False):
        for scale in ("none", "batch"):
            for p in (0.1, 0.3, 0.6, 0.8):
                assert learnt[shared, scale, p] == pytest.approx(p, abs=0.05)
    assert [learnt[True, "group", p] for p in (0.1, 0.3, 0.6, 0.8)] == pytest.approx([0.0, 0.0, 0.86, 1.0], abs=0.06)
    assert [learnt[False, "group", p] for p in (0.1, 0.3, 0.6, 0.8)] == pytest.approx([0.0, 0.18, 0.7, 1.0], abs=0.06)
    assert all(held(report))


@pytest.mark.slow
def test_t4_how_many_hypotheses() -> None:
    report = run("t4")
    learnt, best = report.numbers["learnt"], report.numbers["best"]
    assert best["pure log"] == learnt["pure log"] == "best 1"
    assert best["pure log, junk allowed"] == learnt["pure log, junk allowed"] == "junk alone"
    assert learnt["log + min_k 3"] == learnt["log + soft diversity 3"] == "best 3"
    assert best["backoff drop, group-scaled"] == "best 4"
    assert learnt["backoff drop, group-scaled"] == "best 3"
    assert learnt["backoff drop, junk allowed"] == "best 4"
    assert all(held(report))


@pytest.mark.slow
def test_t5_what_multi_answer_rewards_pay_for() -> None:
    report = run("t5")
    assert min(report.numbers["junk"]["any"]) > 0.95
    assert max(*report.numbers["junk"]["sum"], *report.numbers["junk"]["frac"]) < 0.05
    assert report.numbers["learnt"][True].mean(axis=0) == pytest.approx([0.6, 0.4], abs=0.05)
    assert report.numbers["learnt"][False].mean(axis=0) == pytest.approx([0.9, 0.7], abs=0.05)
    assert all(held(report))


@pytest.mark.slow
def test_t6_failure_rewards_of_backoff() -> None:
    report = run("t6")
    for (mode, _), curves in report.numbers["curves"].items():
        assert (curves[:, -1] < 0.5).all() if mode == "fixed at -1" else (curves[:, -1] > 0.95).all()
    assert report.numbers["spread"][-3.1] > 2.4
    assert report.numbers["spread"][-42.0] < 0.2
    assert report.numbers["worst"][-42.0] > 0.0
    assert all(held(report))


@pytest.mark.slow
def test_command_writes_a_plot_and_numbers(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "experiments", "t1", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "held" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t1.json", "t1.png"]
    wrong = subprocess.run([sys.executable, "-m", "experiments", "t9"], cwd=ROOT, capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "t9" in wrong.stderr
    assert set(MODULES) == {f"t{n}" for n in range(1, 7)}
