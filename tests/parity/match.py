"""Parity rows of the match kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.parity import Call, Row

# Characters at which one of the rules turns, and words that meet themselves again.
TURNS = [
    *"aA.,-+'\"$%&/#()_: \t\n\x1c\x7f\x00",
    *"ΣσςİıßǅŉﬁéÅΩ½²₂₁⁻①⒈㎡㍘Ⅷ™ª",
    *"\u0301\u0307\u0323\u0345\u00ad\u200b\u200d\ufe0f\u200f\u115f\u3164",
    *"−–—‐“”‘’«´`″",
    *"٣५３㏂٫٬北京大学がハﾊ각ㅏ",
    "\ud800",
    "\U000e0067",
    "👩\u200d💻",
    "🇫🇷",
]
WORDS = [
    "a",
    "A",
    "an",
    "the",
    "The",
    "the’s",
    "yes",
    "no",
    "noanswer",
    "Paris",
    "new york",
    "internationalisation",
    "C++",
    "and",
]
NUMBERS = [
    "3.5",
    "35",
    "-5",
    "− 5",
    "1,000",
    "1000",
    "1,5",
    ".5",
    "5.0",
    "-0",
    "1e-5",
    "1e+5",
    "10:30",
    "$5$",
    "-$5",
    "50%",
    "½",
    "1½",
    "10²",
    "-",
    "—",
    "-x",
    "x = -y",
    "-\\infty",
    "(-∞, -a]",
    "-(x + 1)",
    "O-",
    "Cl⁻.",
]
PIECES = st.sampled_from([*TURNS, *WORDS, *NUMBERS]) | st.text(max_size=3)
TEXTS = st.lists(PIECES, max_size=6).flatmap(
    lambda parts: st.sampled_from(["", " ", "  "]).map(lambda between: between.join(parts))
) | st.text(st.characters(codec="ascii"), max_size=80)
ALIASES = TEXTS | st.lists(TEXTS, min_size=1, max_size=3) | st.lists(TEXTS, min_size=1, max_size=2).map(tuple)
MODES = st.sampled_from(["official", "numeric_safe"])
MATCHERS = st.sampled_from(["exact", "token_f1", "fuzzy"])
THETAS = st.sampled_from([0.5, 0.75, 0.8, 1.0])
THREADS = st.sampled_from([1, 2])


@st.composite
def pairs(draw: st.DrawFn, **options: st.SearchStrategy[Any]) -> Call:
    rows = draw(st.lists(st.tuples(TEXTS, ALIASES), max_size=5))
    chosen = {name: draw(values) for name, values in options.items()}
    return ([p for p, _ in rows], [r for _, r in rows]), {"mode": draw(MODES), "threads": draw(THREADS), **chosen}


@st.composite
def rows_of_sets(draw: st.DrawFn, *, golds: bool, **options: st.SearchStrategy[Any]) -> Call:
    # Few texts, so that many are equal.
    texts = st.sampled_from(draw(st.lists(TEXTS, min_size=1, max_size=4)))
    count = draw(st.integers(0, 3))
    args: list[Any] = [draw(st.lists(st.lists(texts, max_size=4), min_size=count, max_size=count))]
    if golds:
        aliases = texts | st.lists(texts, min_size=1, max_size=3)
        args.append(draw(st.lists(st.lists(aliases, max_size=4), min_size=count, max_size=count)))
    chosen = {name: draw(values) for name, values in options.items()}
    common = {
        "matcher": draw(MATCHERS),
        "mode": draw(MODES),
        "theta": draw(THETAS),
        "max_extra": draw(st.integers(0, 3)),
        "yes_no": draw(st.booleans()),
        "split_cjk": draw(st.booleans()),
        "threads": draw(THREADS),
    }
    return tuple(args), {**common, **chosen}


@st.composite
def relations(draw: st.DrawFn) -> Call:
    shape = draw(st.tuples(st.integers(0, 3), st.integers(0, 7), st.integers(0, 7)))
    density = draw(st.sampled_from([0.1, 0.3, 0.6]))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    return (random.random(shape) < density,), {"distinct": draw(st.booleans())}


@st.composite
def bags(draw: st.DrawFn) -> Call:
    count = draw(st.integers(0, 3))
    dtype = draw(st.sampled_from([np.int32, np.int64]))

    def side(name: str, rows: str) -> dict[str, Any]:
        row_of = [draw(st.lists(st.lists(st.integers(-3, 3), max_size=6), max_size=3)) for _ in range(count)]
        flat = [bag for row in row_of for bag in row]
        return {
            f"{name}_ids": np.array([i for bag in flat for i in bag], dtype),
            f"{name}_offsets": np.cumsum([0, *map(len, flat)], dtype=np.int64),
            rows: np.cumsum([0, *map(len, row_of)], dtype=np.int64),
        }

    return (), {**side("prediction", "answer_rows"), **side("reference", "gold_rows"), "threads": draw(THREADS)}


_SET = {"matcher": "exact", "mode": "official", "theta": 0.75, "max_extra": 2, "yes_no": False, "split_cjk": False}
_BAGS = {
    "prediction_ids": np.zeros(2, np.int32),
    "prediction_offsets": np.array([0, 2]),
    "reference_ids": np.zeros(2, np.int32),
    "reference_offsets": np.array([0, 2]),
    "answer_rows": np.array([0, 1]),
    "gold_rows": np.array([0, 1]),
}

ROWS = [
    Row(
        "normal_forms",
        st.tuples(st.lists(TEXTS, max_size=4)).flatmap(lambda args: MODES.map(lambda mode: (args, {"mode": mode}))),
        bad_calls=[((["x"],), {"mode": "squad"}), (([b"x"],), {"mode": "official"}), (("x",), {"mode": "official"})],
        max_examples=1000,
    ),
    Row(
        "exact_match",
        pairs(),
        bad_calls=[
            ((["x"], []), {"mode": "official"}),
            ((["x"], [[]]), {"mode": "official"}),
            ((["x"], [None]), {"mode": "official"}),
            ((["x"], [["x", 3]]), {"mode": "official"}),
            (([None], ["x"]), {"mode": "official"}),
            (("x", "x"), {"mode": "official"}),
            ((["x"], ["x"]), {"mode": "lenient"}),
        ],
    ),
    Row("token_f1", pairs(yes_no=st.booleans(), split_cjk=st.booleans()), max_examples=500),
    Row(
        "fuzzy_match",
        pairs(theta=THETAS, max_extra=st.integers(0, 3), split_cjk=st.booleans()),
        bad_calls=[
            ((["x"], ["x"]), {"mode": "official", "theta": theta, "max_extra": extra, "split_cjk": False})
            for theta, extra in [(0.0, 1), (1.5, 1), (float("nan"), 1), (0.5, -1)]
        ],
        max_examples=500,
    ),
    Row("score_matrix", rows_of_sets(golds=True), bad_calls=[(([["x"]], []), _SET)]),
    Row(
        "match_sets",
        rows_of_sets(golds=True, distinct=st.booleans(), gold_kind=st.just("nested")),
        bad_calls=[
            (([["x"]], []), {**_SET, "distinct": True, "gold_kind": "nested"}),
            ((["x"], [["x"]]), {**_SET, "distinct": True, "gold_kind": "nested"}),
            (([["x"]], ["x"]), {**_SET, "distinct": True, "gold_kind": "nested"}),
            (([["x"]], [[[]]]), {**_SET, "distinct": True, "gold_kind": "nested"}),
            (([["x"]], [["x"]]), {**_SET, "matcher": "f1", "distinct": True}),
            (([["x"]], [["x", "y"]]), {**_SET, "distinct": True}),
            (([["x"]], [[""]]), {**_SET, "distinct": True}),
            (([["x"]], [["x", [" "]]]), {**_SET, "distinct": True}),
            (([["x"]], ["x", "y"]), {**_SET, "distinct": True}),
        ],
    ),
    Row(
        "assign",
        relations(),
        bad_calls=[((np.zeros((2, 2, 2)),), {"distinct": True}), ((np.zeros((2, 2), bool),), {"distinct": True})],
    ),
    Row(
        "equivalence_classes",
        rows_of_sets(golds=False, linkage=st.sampled_from(["union", "leader"])),
        bad_calls=[(([["x"]],), {**_SET, "linkage": "average"}), ((["x"],), {**_SET, "linkage": "union"})],
    ),
    Row(
        "bag_f1",
        bags(),
        bad_calls=[
            ((), {**_BAGS, "prediction_ids": np.zeros(2)}),
            ((), {**_BAGS, "reference_ids": np.zeros(2, np.int64)}),
            ((), {**_BAGS, "prediction_offsets": np.array([0, 3])}),
            ((), {**_BAGS, "reference_offsets": np.array([1, 2])}),
            ((), {**_BAGS, "answer_rows": np.array([0, 2, 1])}),
            ((), {**_BAGS, "gold_rows": np.array([0, 0, 1])}),
            ((), {**_BAGS, "gold_rows": np.zeros(0, np.int64)}),
        ],
    ),
]
