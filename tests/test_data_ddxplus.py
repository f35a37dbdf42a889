from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from rewardkit.data.ddxplus import Vocabulary, ddxplus, describe
from rewardkit.data.records import read_records
from rewardkit.data.schema import MalformedRecordError
from rewardkit.errors import DataError, InvalidArgumentError


def evidence(
    question: str, kind: str = "B", *, antecedent: bool = False, values: Any = (), meaning: Any = ()
) -> dict[str, Any]:
    return {
        "question_en": question,
        "data_type": kind,
        "is_antecedent": antecedent,
        "possible-values": list(values),
        "value_meaning": {key: {"en": text, "fr": text} for key, text in dict(meaning).items()},
    }


VOCABULARY = Vocabulary(
    evidences={
        "E_1": evidence("Do you cough?"),
        "E_2": evidence("Where does it hurt?", "M", meaning={"V_1": "neck", "V_2": "back(L)", "V_3": "NA"}),
        "E_3": evidence("How much does it hurt?", "C", values=range(11)),
        "E_4": evidence("Do you smoke?", antecedent=True),
        "E_5": evidence("Is it larger than 1cm?", "C", meaning={"V_10": "N", "V_12": "Y"}),
    },
    conditions={
        name: {"condition_name": name, "cond-name-eng": name, "cond-name-fr": french}
        for name, french in {"Cold": "Rhume", "Flu": "Grippe", "Gout (acute)": "Goutte"}.items()
    },
)


def record(**changes: Any) -> dict[str, Any]:
    """A row as the official CSV gives it: everything is text."""
    return {
        "AGE": "18",
        "DIFFERENTIAL_DIAGNOSIS": "[['Flu', 0.2], ['Cold', 0.7], ['Gout (acute)', 0.1]]",
        "SEX": "F",
        "PATHOLOGY": "Flu",
        "EVIDENCES": "['E_1', 'E_2_@_V_1', 'E_2_@_V_2', 'E_3_@_4', 'E_4', 'E_5_@_V_12']",
        "INITIAL_EVIDENCE": "E_1",
        **changes,
    }


def test_prose_and_golds() -> None:
    example = ddxplus(record(), VOCABULARY)
    assert example.gold == ["Cold", "Flu", "Gout (acute)"]
    assert example.gold_kind == "set"
    assert example.extra["pathology"] == "Flu"
    assert "female, 18 years old" in example.question
    for line in (
        "- Do you cough? yes.",
        "- Where does it hurt? neck, back(L).",
        "- How much does it hurt? 4 on a scale of 0 to 10.",
        "- Is it larger than 1cm? yes.",
    ):
        assert line in example.question
    assert (
        example.question.index("What the patient reports")
        < example.question.index("History")
        < example.question.index("smoke")
    )
    assert "Cold; Flu; Gout (acute)" in example.question
    assert "Conditions to choose from" not in ddxplus(record(), VOCABULARY, list_conditions=False).question


def test_lists_and_literals_read_alike() -> None:
    lists = record(
        AGE=18,
        DIFFERENTIAL_DIAGNOSIS=[
            {"condition": "Flu", "prob": 0.2},
            {"condition": "Cold", "prob": 0.7},
            ["Gout (acute)", 0.1],
        ],
        EVIDENCES=["E_1", "E_2_@_V_1", "E_2_@_V_2", "E_3_@_4", "E_4", "E_5_@_V_12"],
    )
    assert ddxplus(lists, VOCABULARY).question == ddxplus(record(), VOCABULARY).question
    assert ddxplus(lists, VOCABULARY).gold == ddxplus(record(), VOCABULARY).gold


@pytest.mark.parametrize(
    ("top_m", "min_prob", "gold"),
    [
        (None, 0.0, ["Cold", "Flu", "Gout (acute)"]),
        (2, 0.0, ["Cold", "Flu"]),
        (None, 0.15, ["Cold", "Flu"]),
        (1, 0.15, ["Cold"]),
        (None, 0.9, ["Cold"]),
    ],
)
def test_cuts(top_m: int | None, min_prob: float, gold: list[str]) -> None:
    example = ddxplus(record(), VOCABULARY, top_m=top_m, min_prob=min_prob)
    assert example.gold == gold
    assert len(example.extra["gold_probs"]) == len(gold)
    assert example.extra["n_differential"] == 3


def test_not_applicable_values_say_nothing() -> None:
    assert describe(["E_2_@_V_3"], VOCABULARY.evidences) == ([], [])


def test_french_names_become_english() -> None:
    example = ddxplus(record(DIFFERENTIAL_DIAGNOSIS="[['Rhume', 1.0]]", PATHOLOGY="Grippe"), VOCABULARY)
    assert (example.gold, example.extra["pathology"]) == (["Cold"], "Flu")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"PATHOLOGY": "Plague"}, "PATHOLOGY"),
        ({"SEX": "X"}, "SEX"),
        ({"AGE": ""}, "AGE"),
        ({"EVIDENCES": "['E_9']"}, "E_9"),
        ({"EVIDENCES": "['E_2_@_V_9']"}, "V_9"),
        ({"EVIDENCES": "['E_3_@_x']"}, "E_3"),
        ({"EVIDENCES": "__import__('os')"}, "EVIDENCES"),
        ({"EVIDENCES": "{['E_1']: 2}"}, "EVIDENCES"),
        ({"DIFFERENTIAL_DIAGNOSIS": "[]"}, "DIFFERENTIAL"),
        ({"DIFFERENTIAL_DIAGNOSIS": "[['Flu', 2.0]]"}, "probabilities"),
        ({"DIFFERENTIAL_DIAGNOSIS": "[['Flu', 0.5], ['Grippe', 0.5]]"}, "once"),
        ({"DIFFERENTIAL_DIAGNOSIS": "[['Flu']]"}, "name, probability"),
    ],
)
def test_malformed_records(change: dict[str, Any], match: str) -> None:
    with pytest.raises(MalformedRecordError, match=match):
        ddxplus(record(**change), VOCABULARY)


def test_calls_are_checked() -> None:
    with pytest.raises(InvalidArgumentError, match="top_m"):
        ddxplus(record(), VOCABULARY, top_m=0)
    for top_m in (1.5, True, "2"):
        with pytest.raises(InvalidArgumentError, match="top_m"):
            ddxplus(record(), VOCABULARY, top_m=top_m)  # type: ignore[arg-type]
    for min_prob in (1.0, "0.1", None, float("nan")):
        with pytest.raises(InvalidArgumentError, match="min_prob"):
            ddxplus(record(), VOCABULARY, min_prob=min_prob)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"release_evidences\.json.*E_1"):
        Vocabulary(evidences={"E_1": {"name": "E_1"}}, conditions=VOCABULARY.conditions)


def test_real_patients(shared: Path, tmp_path: Path) -> None:
    folder = shared / "data/ddxplus"
    vocabulary = Vocabulary(
        evidences=json.loads((folder / "release_evidences.json").read_text()),
        conditions=json.loads((folder / "release_conditions.json").read_text()),
    )
    rows = list(read_records(folder / "test_patients_slice.parquet"))
    examples = [ddxplus(row, vocabulary) for row in rows]
    assert len(examples) == 2611
    for row, example in zip(rows, examples, strict=True):
        assert example.gold == [one["condition"] for one in row["DIFFERENTIAL_DIAGNOSIS"]]
        assert example.extra["pathology"] in example.gold
        assert "_@_" not in example.question
        assert "E_" not in example.question
        questions = {code.partition("_@_")[0] for code in row["EVIDENCES"]}
        told = example.question.count("\n- ") - 1  # what brought the patient in stands once more
        not_applicable = sum(
            all(
                vocabulary.evidences[q]["value_meaning"].get(c.partition("_@_")[2], {}).get("en") == "NA"
                for c in row["EVIDENCES"]
                if c.partition("_@_")[0] == q
            )
            for q in questions
        )
        assert told == len(questions) - not_applicable
    # The same patients as the official CSV spells them.
    path = tmp_path / "release_test_patients.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["AGE", "DIFFERENTIAL_DIAGNOSIS", "SEX", "PATHOLOGY", "EVIDENCES", "INITIAL_EVIDENCE"])
        for row in rows[:50]:
            pairs = [[one["condition"], one["prob"]] for one in row["DIFFERENTIAL_DIAGNOSIS"]]
            writer.writerow(
                [row["AGE"], pairs, row["SEX"], row["PATHOLOGY"], row["EVIDENCES"], row["INITIAL_EVIDENCE"]]
            )
    read = [ddxplus(row, vocabulary) for row in read_records(path)]
    assert [(e.question, e.gold) for e in read] == [(e.question, e.gold) for e in examples[:50]]
