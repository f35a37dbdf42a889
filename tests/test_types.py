"""References: one shape for all that people pass, and no guessing."""

from __future__ import annotations

import numpy as np
import pytest

from rewardkit.errors import DataError, InvalidArgumentError
from rewardkit.types import References


@pytest.mark.parametrize(
    ("entry", "kind", "golds"),
    [
        ("Paris", None, (("Paris",),)),
        (["Paris"], None, (("Paris",),)),
        (["Paris", "paris, FR"], "aliases", (("Paris", "paris, FR"),)),
        (("Paris", "Rome"), "set", (("Paris",), ("Rome",))),
        (np.array(["Paris", "Lutetia"]), "aliases", (("Paris", "Lutetia"),)),
        ([["Paris", "Lutetia"], ["Rome"]], None, (("Paris", "Lutetia"), ("Rome",))),
        ([np.array(["Paris"]), ["Rome"]], "set", (("Paris",), ("Rome",))),
    ],
)
def test_reads_every_container(entry, kind, golds) -> None:
    assert References.of([entry], gold_kind=kind).golds == (golds,)


def test_a_flat_list_is_never_guessed() -> None:
    with pytest.raises(InvalidArgumentError, match="gold_kind"):
        References.of([["Paris", "Rome"]])


@pytest.mark.parametrize("empty", ["", "  ", [], [[]], [""], [["Paris"], []]])
def test_an_empty_reference_names_its_row(empty) -> None:
    with pytest.raises(DataError, match="row 1"):
        References.of(["Paris", empty], gold_kind="set")


@pytest.mark.parametrize("bad", ["Paris", 3, {"a": 1}])
def test_references_must_be_a_list(bad) -> None:
    with pytest.raises(InvalidArgumentError, match="references"):
        References.of(bad)


@pytest.mark.parametrize("bad", [3, None, [3], [["a"], 3]])
def test_a_bad_entry_names_its_row(bad) -> None:
    with pytest.raises(InvalidArgumentError, match=r"references\[0\]"):
        References.of([bad])


def test_lengths_must_agree() -> None:
    with pytest.raises(InvalidArgumentError, match="2 entries"):
        References.of(["a"], rows=2)


def test_nested_lists_are_read_alike_at_once_and_row_by_row() -> None:
    nested = [[["Paris", "Lutetia"], ("Rome",)], ([" x "],)]
    one_by_one = tuple(References.of([row]).golds[0] for row in nested)
    assert References.of(nested).golds == one_by_one == ((("Paris", "Lutetia"), ("Rome",)), ((" x ",),))
    assert [[list(gold) for gold in row] for row in References.of(nested, copy=False).golds] == [
        [list(gold) for gold in row] for row in one_by_one
    ]
    assert References.of(References.of(nested)) == References.of(nested)
    with pytest.raises(InvalidArgumentError, match="2 entries"):
        References.of(References.of(nested), rows=3)
    for bad in (["Paris", 3], ["Paris", ""], ["Paris", " \n"]):
        with pytest.raises((InvalidArgumentError, DataError), match="1"):
            References.of([*nested[:1], [bad]])
