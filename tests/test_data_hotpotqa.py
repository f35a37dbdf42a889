from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rewardkit.data.hotpotqa import hotpot_modified
from rewardkit.data.records import read_records
from rewardkit.data.schema import MalformedRecordError
from rewardkit.errors import InvalidArgumentError

GOLDS = ["Alpha", "Beta"]


def record(**changes: Any) -> dict[str, Any]:
    """A record as the official release writes it."""
    titles = [*GOLDS, *(f"Distractor {i}" for i in range(8))]
    return {
        "_id": "5a0",
        "question": "Is Alpha older than Beta?",
        "answer": "yes",
        "supporting_facts": [["Alpha", 0], ["Alpha", 1], ["Alpha", 2], ["Beta", 0]],
        "context": [[title, [f"{title} is a thing.", " It has a second sentence."]] for title in titles],
        "type": "comparison",
        "level": "hard",
        **changes,
    }


def paragraphs(text: str) -> list[str]:
    return [line.split(": ", 1)[1] for line in text.splitlines() if line.startswith("Paragraph ")]


@pytest.mark.parametrize("choice", [0, 1, 2, None, (1, 2)])
def test_eight_paragraphs_stay_and_g_golds_go(choice: Any) -> None:
    for seed in range(40):
        example = hotpot_modified(record(), seed, choice)
        titles = paragraphs(example.question)
        gone = set(GOLDS) - set(titles)
        assert len(titles) == 8
        assert example.extra["gold_removed"] == len(gone)
        assert len(gone) in ((0, 1, 2) if choice is None else (choice if isinstance(choice, tuple) else (choice,)))
        assert titles == example.extra["kept_titles"]
        assert sorted(titles + example.extra["removed_titles"]) == sorted(
            [*GOLDS, *(f"Distractor {i}" for i in range(8))]
        )
        assert [f"Paragraph {n}:" in example.question for n in range(1, 10)] == [True] * 8 + [False]
        assert example.gold == "yes"


def test_removal_is_uniform_over_paragraphs_not_facts() -> None:
    """The released script draws from titles with repeats: Alpha, with 3 facts of 4, would go 3 times of 4."""
    examples = [hotpot_modified(record(_id=str(n)), choice=1) for n in range(2000)]
    alpha = sum("Alpha" in example.extra["removed_titles"] for example in examples)
    assert abs(alpha - 1000) < 4 * (2000 * 0.25) ** 0.5
    distractors = Counter(title for e in examples for title in e.extra["removed_titles"] if title not in GOLDS)
    assert len(distractors) == 8
    assert all(abs(count - 250) < 4 * (2000 * 7 / 64) ** 0.5 for count in distractors.values())
    drawn = Counter(hotpot_modified(record(_id=str(n))).extra["gold_removed"] for n in range(3000))
    assert all(abs(drawn[g] - 1000) < 4 * (3000 * 2 / 9) ** 0.5 for g in (0, 1, 2))


def test_the_three_layouts_of_a_record_are_one() -> None:
    plain = record()
    mirror = record(
        id="5a0",
        context={"title": [t for t, _ in plain["context"]], "sentences": [s for _, s in plain["context"]]},
        supporting_facts={"title": [t for t, _ in plain["supporting_facts"]], "sent_id": [0, 1, 2, 0]},
    )
    structs = record(
        context=[{"title": t, "sentences": s} for t, s in plain["context"]],
        supporting_facts=[{"title": t, "sent_id": n} for t, n in plain["supporting_facts"]],
    )
    assert hotpot_modified(plain) == hotpot_modified(mirror) == hotpot_modified(structs)


def test_order_of_paragraphs_does_not_decide_what_goes() -> None:
    turned = record(context=record()["context"][::-1])
    assert set(hotpot_modified(turned).extra["removed_titles"]) == set(
        hotpot_modified(record()).extra["removed_titles"]
    )


def test_seed_and_id_decide() -> None:
    assert len({tuple(hotpot_modified(record(), seed).extra["removed_titles"]) for seed in range(30)}) > 10
    assert len({tuple(hotpot_modified(record(_id=str(n))).extra["removed_titles"]) for n in range(30)}) > 10


MALFORMED = {
    "9 paragraphs": ({"context": record()["context"][:9]}, "10 paragraphs"),
    "1 gold": ({"supporting_facts": [["Alpha", 0]]}, "2 gold"),
    "3 golds": ({"supporting_facts": [["Alpha", 0], ["Beta", 0], ["Distractor 1", 0]]}, "2 gold"),
    "gold not there": ({"supporting_facts": [["Alpha", 0], ["Gamma", 0]]}, "Gamma"),
    "same title twice": ({"context": [*record()["context"][:9], record()["context"][0]]}, "titles of their own"),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_records_are_never_kept_silently(what: str) -> None:
    change, match = MALFORMED[what]
    with pytest.raises(MalformedRecordError, match=match):
        hotpot_modified(record(**change))
    flagged = hotpot_modified(record(**change), on_malformed="flag")
    assert flagged.extra["malformed"]
    assert flagged.extra["removed_titles"] == []


@pytest.mark.parametrize(
    "change",
    [
        {"answer": ""},
        {"answer": None},
        {"question": " "},
        {"context": None},
        {"context": [["a"]]},
        {"supporting_facts": 3},
    ],
)
def test_records_without_the_parts_cannot_be_used(change: dict[str, Any]) -> None:
    with pytest.raises(MalformedRecordError):
        hotpot_modified(record(**change), on_malformed="flag")


@pytest.mark.parametrize("choice", [3, -1, (), (0, 5), 1.0, True, "1", (0, 1.0), {0: 1}])
def test_choice_is_checked(choice: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="choice"):
        hotpot_modified(record(), choice=choice)


def test_real_records(shared: Path) -> None:
    """Counts, survival of the golds, yes/no answers, on the 990 real questions."""
    rows = list(read_records(shared / "data/hotpotqa/distractor.parquet"))
    made, malformed = [], 0
    for row in rows:
        try:
            made.append((row, hotpot_modified(row, seed=7)))
        except MalformedRecordError:
            malformed += 1
    assert (len(made), malformed) == (987, 3)
    for row, example in made:
        titles = paragraphs(example.question)
        assert len(titles) == 8
        assert len(set(example.extra["gold_titles"]) & set(titles)) == 2 - example.extra["gold_removed"]
        assert example.gold == row["answer"].strip()
    answers = Counter(row["answer"] for row, _ in made if row["answer"] in ("yes", "no"))
    kept = Counter(example.gold for _, example in made if example.gold in ("yes", "no"))
    assert kept == answers
    assert min(kept["yes"], kept["no"]) >= 20
    drawn = Counter(example.extra["gold_removed"] for _, example in made)
    assert all(abs(drawn[g] - 329) < 4 * (987 * 2 / 9) ** 0.5 for g in (0, 1, 2))
    vanilla = [hotpot_modified(row, choice=0) for row, _ in made]
    assert all(set(example.extra["gold_titles"]) <= set(example.extra["kept_titles"]) for example in vanilla)


def test_processes_and_hash_seeds_agree() -> None:
    code = (
        "import json, sys\n"
        "from rewardkit.data.hotpotqa import hotpot_modified\n"
        "records = json.load(sys.stdin)\n"
        "print(json.dumps([hotpot_modified(record, 3).question for record in records]))\n"
    )
    records = json.dumps([record(_id=str(n)) for n in range(50)])
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            input=records,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "random")
    }
    assert len(seen) == 1
    assert json.loads(seen.pop()) == [hotpot_modified(record(_id=str(n)), 3).question for n in range(50)]
