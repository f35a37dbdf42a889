"""Parity rows of the parse kernels: adversarial tag soups and mutated completions, in all formats and modes."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import strategies as st

from rewardkit import parsing
from rewardkit.parsing import grammar
from tests.parity import Row

# Names that overlap, literals of one character, expression characters, numbers in the middle, wide code points.
CUSTOM_TAGS: list[dict[str, Any]] = [
    {},
    {"answer": "solution"},
    {"answer": ("<|begin|>", "<|end|>"), "think": ("[", "]")},
    {"answer": ("a", "aa"), "think": ("ba", "ab")},
    {"answer": ("(.*)+", "\\d+$"), "confidence": ("<<", "<<<"), "think": ("<th<", ">th>")},
    {"confidence": ("信", "心"), "answer": ("😀", "😁")},
]
CUSTOM_NUMBERED: list[dict[str, Any]] = [
    {},
    {"answer": ("#{i}. ", ".#{i}"), "confidence": ("p{i}=", ";{i}")},
    {"answer": ("a{i}", "</a{i}x"), "confidence": ("a{i}a", "/{i}/")},
    {"answer": ("𝒜{i}<", ">{i}𝒜"), "confidence": ("<answer{i}>", "</answer{i}>")},
]
NUMBERS = [
    "0.5", ".5", "5.", "1", "0", "1.0", "5e-1", "+0.25", "-0.2", "-0", "85%", "1 %", "85", "0.9/1", "17 / 20", "1/0", "nan", "inf", "0_5",
    "0,85", "1e400", "1e-400", "1e", "1e+", "0.1.2", "١", "０.５", "about 0.7 or so", "−0.2", "9" * 40, "0." + "0" * 330 + "1", "0.3", "0.2",
    "8 out of 10", "1 Percent", "8 out of", "1 perc", "−", "4.9e-324", "2.2250738585072011e-308", "0.1000000000000000055511151231257827021181583404541015625", "1/1e999", "7_0", "1,5.", "",
]  # fmt: skip
SPACES = ["", " ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\x1c", "\x85", "\u200b"]
TEXTS = [
    "x", "flu", "<", ">", "</", "<answer", "answer>", "&amp;", "\x00", "\ud800", "é", "Ω", "🙂", "<Answer>", "<answer 1>", "<answer01>",
    "<answer0>", "<answer9999999999>", "<h12>", "<|im_end|>", "</s>", "<think", "\\boxed{", "{", "}", "\\", "\\{", "\\}", "\\boxed{1}",
    "Final answer:", "final ANSWER: 7", "\nFinal answer: 8", "**Final answer:** ", "\r", "\nfinal answer",
]  # fmt: skip


@st.composite
def calls(draw: st.DrawFn) -> tuple[tuple[Any, ...], dict[str, Any]]:
    form = draw(st.sampled_from(list(parsing.FORMATS.values())))
    mode = draw(
        st.sampled_from(["strict", "lenient"] if form.many or form.name == "final" else ["strict", "lenient", "rlcr"])
    )
    custom = {}
    if form.name != "final":
        custom = draw(st.sampled_from(CUSTOM_NUMBERED if form.many else CUSTOM_TAGS))
        custom = {name: tag for name, tag in custom.items() if name in {part.name for part in form.parts}}
    max_answers = draw(st.integers(1, 4)) if form.many else 1
    pairs = grammar.literals(form, custom)
    literals = [literal for pair in pairs for i in range(1, max_answers + 2) for literal in pair.at(i)]
    words = st.sampled_from(literals + literals + NUMBERS + SPACES + TEXTS)
    soup = st.one_of(
        st.lists(words, max_size=30).map("".join),
        blocks(pairs, max_answers),
        filled(form, pairs, max_answers),
        filled(form, pairs, max_answers),
        mutated(renamed(form, max_answers, pairs), words),
    )
    options = {
        "mode": mode,
        "think": draw(st.sampled_from(["required", "optional", "optional", "forbidden", "ignore"])),
        "min_answers": draw(st.integers(1, max_answers)),
        "max_answers": max_answers,
        "on_bad_sum": draw(st.sampled_from(["fail", "renormalise"])),
        "sum_tol": draw(st.sampled_from([0.0, 0.02, 0.5])),
        "special_tokens": draw(st.sampled_from([(), parsing.SPECIAL_TOKENS, (">", "x", "</answer>")])),
        "threads": draw(st.integers(0, 3)),
    }
    return (draw(st.lists(soup, max_size=6)), grammar.program(form, custom)), options


@st.composite
def filled(draw: st.DrawFn, form: parsing.Format, pairs: tuple[grammar.Literals, ...], max_answers: int) -> str:
    """A completion whose tags are in order and whose content is not always fitting."""
    literals = {pair.part: pair for pair in pairs}
    numerals = st.one_of(
        st.sampled_from(NUMBERS), st.from_regex(r"[0-9]{0,3}[.][0-9]{1,2}(e-?[0-9]{1,3})?", fullmatch=True)
    )
    listed = draw(st.integers(0, max_answers + 1))
    space = draw(st.sampled_from(SPACES))
    result = ["reason", draw(st.sampled_from(["", literals[grammar.THINK].close]))]
    for step in form.steps:
        if step.kind in ("enter", "leave"):
            result.append(literals[step.parts[0]].at(0)[step.kind == "leave"])
        for number in range(1, listed + 1) if step.kind == "each" else (1,) if step.kind == "block" else ():
            for part in step.parts:
                begin, end = literals[part].at(number)
                content = (
                    numerals if part.role in ("confidence", "other") else st.sampled_from(["flu", "x y", "", *TEXTS])
                )
                result += [begin, space, draw(content), end, draw(st.sampled_from(SPACES))]
        if step.kind == "final":
            result += draw(st.lists(st.sampled_from(TEXTS), max_size=12))
    return "".join(result)


@st.composite
def blocks(draw: st.DrawFn, pairs: tuple[grammar.Literals, ...], max_answers: int) -> str:
    """Mostly closed blocks with mostly fitting content, in any order."""
    result = []
    for _ in range(draw(st.integers(0, 8))):
        pair = draw(st.sampled_from(pairs))
        begin, end = pair.at(draw(st.integers(1, max_answers + 1)))
        content = NUMBERS if pair.part.role in ("confidence", "other") else TEXTS
        result += [
            begin,
            draw(st.sampled_from(SPACES)),
            draw(st.sampled_from(content)),
            draw(st.sampled_from(["", end, end, end])),
        ]
        result.append(draw(st.sampled_from(SPACES)))
    return "".join(result)


def renamed(form: parsing.Format, max_answers: int, pairs: tuple[grammar.Literals, ...]) -> str:
    """The format's example with the tags of `pairs`, which need not be such that it parses."""
    text = parsing.example(form.name, max_answers=max_answers)
    for usual, pair in zip(grammar.literals(form), pairs, strict=True):
        for number in range(1, max_answers + 1):
            for old, new in zip(usual.at(number), pair.at(number), strict=True):
                text = text.replace(old, new)
    return text


@st.composite
def mutated(draw: st.DrawFn, text: str, words: st.SearchStrategy[str]) -> str:
    """A well-formed completion with pieces of it swapped, dropped, doubled or replaced."""
    pieces = [piece for piece in re.split(r"(<[^>]*>|\s+)", text) if piece]
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(pieces) - 1))
        other = draw(st.integers(0, len(pieces) - 1))
        kind = draw(st.sampled_from(["fill", "fill", "fill", "replace", "insert", "drop", "swap", "double"]))
        if kind == "fill":
            numbers = [i for i, piece in enumerate(pieces) if piece[:1] in "0123456789"]
            if numbers:
                pieces[draw(st.sampled_from(numbers))] = draw(st.sampled_from(NUMBERS))
        elif kind == "replace":
            pieces[at] = draw(words)
        elif kind == "insert":
            pieces.insert(at, draw(words))
        elif kind == "drop" and len(pieces) > 1:
            del pieces[at]
        elif kind == "swap":
            pieces[at], pieces[other] = pieces[other], pieces[at]
        else:
            pieces.insert(other, pieces[at])
    return "".join(pieces)


_OPTIONS = {"mode": "strict", "think": "required", "min_answers": 1, "max_answers": 1, "on_bad_sum": "fail", "sum_tol": 0.02, "special_tokens": ()}  # fmt: skip
_BAD = [
    (([1], grammar.program(parsing.FORMATS["tac"])), _OPTIONS),
    ((None, grammar.program(parsing.FORMATS["tac"])), _OPTIONS),
]

ROWS: list[Row] = [
    Row("parse_completions", calls(), bad_calls=_BAD, max_examples=400),
    Row("parse_spans", calls(), bad_calls=_BAD, max_examples=200),
]
