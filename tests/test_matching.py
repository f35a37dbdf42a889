"""Match: normal forms, the matchers, sets and classes."""

from __future__ import annotations

import numpy as np
import pytest

from rewardkit import matching
from rewardkit.matching import equivalence_classes, exact_match, fuzzy_match, match, token_f1


@pytest.mark.parametrize(
    ("one", "other", "close"),
    [
        ("David Diamond", "David Weissman", False),
        ("Weissman", "David Weissman", True),
        ("New York City", "New York", True),
        ("12 May 1990", "13 May 1990", False),
        ("on 12 May 1990", "on 13 May 1990", False),
        ("no", "no one", False),
        ("Paris London Berlin Rome", "Paris", False),
        ("C++", "C", False),
    ],
)
def test_fuzzy_fixtures(one: str, other: str, close: bool) -> None:
    assert fuzzy_match([one, other], [other, one]).tolist() == [close, close]


def test_greedy_is_not_optimal() -> None:
    """A equals both golds, B only the first: greedy credits one answer, the maximum matching two."""
    equal = {("A", "g1"), ("A", "g2"), ("B", "g1")}
    outcome = match([["A", "B"]], [[["g1"], ["g2"]]], matcher=lambda a, g: (a, g) in equal)
    assert outcome.correct.tolist() == [[True, True]]
    assert outcome.found.tolist() == [[True, True]]


def test_two_forms_of_a_gold_credit_once() -> None:
    for credit, expected in (("distinct", [True, False]), ("independent", [True, True])):
        outcome = match([["flu", "The Flu"]], [[["flu", "influenza"]]], credit=credit)
        assert outcome.correct.tolist() == [expected]


def test_classes() -> None:
    assert equivalence_classes([["Flu", "cold", "the flu"], ["x"]]).tolist() == [[0, 1, 0], [0, -1, -1]]
    chain = [["a b c d", "a b c d e", "a b c d e f g"]]
    assert equivalence_classes(chain, matcher="fuzzy", max_extra=0, theta=0.8).tolist() == [[0, 0, 2]]


def test_a_judge_that_raises_is_an_error_of_its_row() -> None:
    def judge(prediction: str, reference: str) -> bool:
        if prediction == "boom":
            raise RuntimeError("no")
        return prediction == reference

    outcome = match([["x"], ["boom"]], ["x", "x"], matcher=judge)
    assert outcome.error == ["", "RuntimeError: no"]
    assert outcome.correct.tolist() == [[True], [False]]


def test_references_are_strings_or_aliases() -> None:
    expected = [1.0, 1.0, 1.0, 0.0]
    references = ["Paris", ["Lutetia", "paris"], np.array(["Paris."], dtype=object), ("Rome",)]
    assert exact_match(["Paris"] * 4, references).tolist() == expected
    assert token_f1(["Paris"] * 4, references).tolist() == expected
    assert set(matching.MATCHERS) >= {"exact", "token_f1", "fuzzy"}
