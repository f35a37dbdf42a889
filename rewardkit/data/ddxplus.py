"""DDXPlus: synthetic patients with a differential diagnosis, as a question with a *set* of right answers.

Source: Fansi Tchango et al., "DDXPlus: A New Dataset For Automatic Medical Diagnosis", NeurIPS 2022, English release. Field
syntax was checked against that release: ``E_x`` is a binary evidence that holds, ``E_x_@_V_y`` one value of a categorical
(C) or multi-choice (M) one, ``E_x_@_n`` a number on a scale.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rewardkit.arrays import whole
from rewardkit.data.schema import Example, Layout, MalformedRecordError, content_id
from rewardkit.errors import DataError, InvalidArgumentError
from rewardkit.shaping import check_number

LAYOUT = Layout(gold="strings", extra={"pathology": "string", "n_differential": "int64", "gold_probs": "strings"})

_SEX = {"M": "male", "F": "female"}
_WORDS = {"Y": "yes", "N": "no"}
_NOT_APPLICABLE = "NA"


@dataclass(frozen=True)
class Vocabulary:
    """The release's two JSON files.

    Attributes:
        evidences: ``release_evidences.json``.
        conditions: ``release_conditions.json``.
    """

    evidences: Mapping[str, Any]
    conditions: Mapping[str, Any]

    def __post_init__(self) -> None:
        _check(self.evidences, "release_evidences.json", ("question_en", "data_type", "is_antecedent", "value_meaning"))
        _check(self.conditions, "release_conditions.json", ("condition_name",))

    def condition(self, name: str) -> str | None:
        """The English name of a condition, given in English or French; None where it is unknown."""
        if name in self.conditions:
            return self.conditions[name].get("cond-name-eng") or name
        for known, entry in self.conditions.items():
            if name == entry.get("cond-name-fr"):
                return entry.get("cond-name-eng") or known
        return None

    def condition_names(self) -> list[str]:
        """All English names, sorted."""
        return sorted(entry.get("cond-name-eng") or name for name, entry in self.conditions.items())


def ddxplus(
    record: Mapping[str, Any],
    vocabulary: Vocabulary,
    *,
    top_m: int | None = None,
    min_prob: float = 0.0,
    list_conditions: bool = True,
) -> Example:
    """A patient in prose; the golds are the conditions of the differential diagnosis.

    Args:
        record: AGE, SEX, EVIDENCES, INITIAL_EVIDENCE, DIFFERENTIAL_DIAGNOSIS, PATHOLOGY; lists as Python literals in text,
            as in the CSV files, or as lists.
        vocabulary: The release's evidences and conditions.
        top_m: Keep only the m most probable conditions; None keeps all.
        min_prob: Keep only conditions of at least this probability. The most probable one always stays.
        list_conditions: Name all conditions in the question, so that an exact match can be asked for.

    Returns:
        The example; its gold is a set, most probable first. The simulated disease itself is ``extra["pathology"]``, since
        it is not always the most probable condition.

    Raises:
        MalformedRecordError: A field is missing, or names an evidence or a condition that the release does not have.
        InvalidArgumentError: ``top_m`` or ``min_prob`` is out of range.
    """
    if top_m is not None:
        top_m = whole("top_m", top_m)
    check_number("min_prob", min_prob)
    if not 0.0 <= min_prob < 1.0:
        raise InvalidArgumentError("min_prob", expected="a probability in [0, 1)", got=min_prob)
    fields = {key: record.get(key) for key in ("AGE", "SEX", "PATHOLOGY", "INITIAL_EVIDENCE", "EVIDENCES")}
    for key, value in fields.items():
        if value is None or value == "":
            raise MalformedRecordError(f"a value in {key}", repr(value))
    codes = _literal(fields["EVIDENCES"], "EVIDENCES")
    identity = str(record.get("id") or content_id(*fields.values(), record.get("DIFFERENTIAL_DIAGNOSIS")))

    differential = _differential(record.get("DIFFERENTIAL_DIAGNOSIS"), vocabulary, identity)
    golds = [(name, prob) for name, prob in differential if prob >= min_prob][:top_m] or differential[:1]
    pathology = vocabulary.condition(str(fields["PATHOLOGY"]))
    if pathology is None:
        raise MalformedRecordError(
            "a condition of the release in PATHOLOGY", repr(fields["PATHOLOGY"]), record=identity
        )

    sex = _SEX.get(str(fields["SEX"]))
    if sex is None:
        raise MalformedRecordError("M or F in SEX", repr(fields["SEX"]), record=identity)
    initial = str(fields["INITIAL_EVIDENCE"])
    findings, history = describe(codes, vocabulary.evidences, identity)
    complaint = describe([initial], vocabulary.evidences, identity)
    parts = [
        f"Patient: {sex}, {fields['AGE']} years old.",
        "What brought the patient in:\n" + "\n".join(complaint[0] + complaint[1]),
    ]
    if findings:
        parts.append("What the patient reports now:\n" + "\n".join(findings))
    if history:
        parts.append("History and risk factors:\n" + "\n".join(history))
    if list_conditions:
        parts.append("Conditions to choose from: " + "; ".join(vocabulary.condition_names()) + ".")
    parts.append("Question: which conditions belong to the differential diagnosis of this patient?")
    return Example(
        id=identity,
        question="\n\n".join(parts),
        gold=[name for name, _ in golds],
        gold_kind="set",
        data_source="ddxplus",
        ability="medical_diagnosis",
        extra={
            "pathology": pathology,
            "n_differential": len(differential),
            "gold_probs": [f"{prob:.6g}" for _, prob in golds],
        },
    )


def describe(
    codes: Iterable[str], evidences: Mapping[str, Any], identity: str | None = None
) -> tuple[list[str], list[str]]:
    """Turns evidence codes into lines of text.

    The release words each evidence as a question to the patient; it is kept word for word with its answer, since rewriting
    it as a statement changes the meaning of some.

    Returns:
        Lines on the present complaint, and lines on the history; several values of one question stand on one line.

    Raises:
        MalformedRecordError: A code or value is not in the release.
    """
    answers: dict[str, list[str]] = {}
    for code in codes:
        name, has_value, value = str(code).partition("_@_")
        evidence = evidences.get(name)
        if evidence is None:
            raise MalformedRecordError("an evidence of the release", repr(code), record=identity)
        if not has_value:
            answers.setdefault(name, []).append("yes")
            continue
        meaning = evidence["value_meaning"].get(value)
        if meaning is not None:
            text = meaning["en"]
        elif value.isdigit() and evidence["data_type"] == "C":
            scale = [one for one in evidence.get("possible-values", ()) if isinstance(one, int)]
            text = f"{value} on a scale of {min(scale)} to {max(scale)}" if scale else value
        else:
            raise MalformedRecordError(f"a value of evidence {name} of the release", repr(value), record=identity)
        answers.setdefault(name, []).append(_WORDS.get(text, text))
    findings: list[str] = []
    history: list[str] = []
    for name, values in answers.items():
        told = [value for value in dict.fromkeys(values) if value != _NOT_APPLICABLE]
        if told:
            line = f"- {evidences[name]['question_en'].strip()} {', '.join(told)}."
            (history if evidences[name]["is_antecedent"] else findings).append(line)
    return findings, history


def _differential(value: Any, vocabulary: Vocabulary, identity: str) -> list[tuple[str, float]]:
    """``(English name, probability)``, most probable first, each condition once."""
    pairs = []
    for entry in _literal(value, "DIFFERENTIAL_DIAGNOSIS"):
        try:
            name, prob = (entry["condition"], entry["prob"]) if isinstance(entry, Mapping) else entry
            prob = float(prob)
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedRecordError(
                "[name, probability] in DIFFERENTIAL_DIAGNOSIS", repr(entry), record=identity
            ) from error
        known = vocabulary.condition(str(name))
        if known is None or not 0.0 <= prob <= 1.0:
            raise MalformedRecordError(
                "conditions of the release with probabilities in DIFFERENTIAL_DIAGNOSIS", repr(entry), record=identity
            )
        pairs.append((known, prob))
    if not pairs:
        raise MalformedRecordError("a condition in DIFFERENTIAL_DIAGNOSIS", "none", record=identity)
    if len({name for name, _ in pairs}) != len(pairs):
        raise MalformedRecordError("each condition once in DIFFERENTIAL_DIAGNOSIS", "one twice", record=identity)
    return sorted(pairs, key=lambda pair: -pair[1])


def _literal(value: Any, column: str) -> Sequence[Any]:
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
            raise MalformedRecordError(f"a list in {column}", value[:80]) from error
    if not isinstance(value, (list, tuple)):
        raise MalformedRecordError(f"a list in {column}", type(value).__name__)
    return value


def _check(entries: Mapping[str, Any], file: str, keys: Sequence[str]) -> None:
    if not entries:
        raise DataError("at least one entry", "none", file=file)
    for name, entry in entries.items():
        lacking = [key for key in keys if not isinstance(entry, Mapping) or key not in entry]
        if lacking:
            raise DataError(
                f"{lacking[0]!r} in every entry (the official English release)", "none", file=file, column=name
            )
