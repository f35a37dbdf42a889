"""Parsing: the rules P1 to P5, the table of edge cases, the laws that hold for any text, and public bugs by their id."""

from __future__ import annotations

import itertools
import math
import statistics
import string
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewardkit import parsing
from rewardkit.errors import InvalidArgumentError, UnknownNameError
from rewardkit.types import Forecast

NAMES = list(parsing.FORMATS)
TAGGED = [name for name in NAMES if name != "final"]
THINK = "<think>2 + 2</think>"


def one(text: Any, format: str = "tac", mode: Any = "strict", **options: Any) -> Forecast:
    return parsing.parse([text], format, mode, **options)


def reason(text: str, format: str = "tac", mode: Any = "strict", **options: Any) -> str:
    return one(text, format, mode, **options).reason[0]


def tac(answer: str = "4", confidence: str = "0.5", think: str = THINK) -> str:
    return f"{think}<answer>{answer}</answer><confidence>{confidence}</confidence>"


def pairs(*answers: str, confidence: str = "0.3", analysis: bool = True) -> str:
    listed = "".join(
        f"<answer{i}>{a}</answer{i}><confidence{i}>{confidence}</confidence{i}>" for i, a in enumerate(answers, 1)
    )
    return THINK + listed + ("<analysis>hm</analysis>" if analysis else "")


def hypotheses(*weights: str, other: str | None = "0.1") -> str:
    listed = "".join(f"<h{i}>guess {i}</h{i}><w{i}>{w}</w{i}>" for i, w in enumerate(weights, 1))
    last = "" if other is None else f"<other>{other}</other>"
    return f"{THINK}<hypotheses>{listed}{last}</hypotheses>"


def prob(text: str, mode: Any, **options: Any) -> float | None:
    """The confidence that is read out of a numeral's text; None where there is none."""
    forecast = one(tac(confidence=text), "tac", mode, **options)
    return float(forecast.probs[0, 0]) if forecast.has_prob[0, 0] else None


# ---- the prompt, the tags, the rendering: one object ------------------------------------------------------------------


@pytest.mark.parametrize("think", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_BR_109_the_example_of_the_prompt_parses(name: str, think: bool) -> None:
    for count in (1, 3, 64) if parsing.FORMATS[name].many else (1,):
        text = parsing.example(name, max_answers=count, think=think)
        prompt = parsing.prompt(name, max_answers=count, think=think)
        assert prompt.endswith(text)
        forecast = one(text, name, think="required" if think else "forbidden", max_answers=count)
        assert forecast.wellformed.all(), forecast.reason
        assert forecast.probs.sum() + forecast.other.sum() <= 1.0 + 1e-9
        told = [tag for tag in parsing.tags(name, 1) if (think or "think" not in tag) and tag != "\\boxed{"]
        assert all(tag in prompt for tag in told)
        assert not any(brace in prompt.replace("\\boxed{", "") for brace in "{}")


def test_the_prompt_says_how_many_answers() -> None:
    for name in ("multi", "multi_split", "multi_noanalysis", "multi_rlvr", "hypotheses"):
        assert " 7 " in parsing.prompt(name, max_answers=7).split("Example:")[0].replace(",", " ")


def test_prompts_carry_custom_tags() -> None:
    custom = {"answer": ("<|begin|>", "<|end|>"), "think": "scratch"}
    text = parsing.prompt("tac", tags=custom)
    assert "<|begin|>" in text
    assert "<scratch>" in text
    assert "<answer>" not in text
    assert one(parsing.example("tac", tags=custom), "tac", tags=custom).wellformed.all()


def test_tags_lists_every_literal() -> None:
    assert parsing.tags("TA") == ("<think>", "</think>", "<answer>", "</answer>")
    assert parsing.tags("hypotheses", max_answers=2)[4:8] == ("<h1>", "</h1>", "<h2>", "</h2>")
    assert "Final answer:" in parsing.tags("final")


words = st.text(st.characters(exclude_characters="<>"), min_size=1, max_size=12).map(str.strip).filter(bool)


@st.composite
def forecasts(draw: st.DrawFn, name: str) -> Forecast:
    form = parsing.FORMATS[name]
    rows, slots = draw(st.integers(1, 4)), 4 if form.many else 1
    counts = [draw(st.integers(1, slots)) for _ in range(rows)]
    answer = words.filter(lambda text: not set(text) & set("\r\n{}\\")) if name == "final" else words
    mask = np.arange(slots) < np.array(counts)[:, None]
    probs = np.array([[draw(st.floats(0, 1, allow_subnormal=True)) for _ in range(slots)] for _ in range(rows)]) * mask
    other = np.zeros(rows)
    if form.has("other"):
        other = np.array([draw(st.floats(0.01, 1)) for _ in range(rows)])
        total = probs.sum(axis=1) + other
        probs, other = probs / total[:, None], other / total
    stated = mask & form.has("confidence")
    return Forecast(
        answers=[[draw(answer) for _ in range(count)] for count in counts],
        probs=probs * stated,
        mask=mask,
        has_prob=stated,
        other=other,
        wellformed=np.ones(rows, dtype=bool),
        reason=[""] * rows,
        analysis=[draw(words) if form.has("analysis") else "" for _ in range(rows)],
    )


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60)
@given(data=st.data())
def test_parse_is_the_inverse_of_render(name: str, data: st.DataObject) -> None:
    forecast = data.draw(forecasts(name))
    separator = data.draw(
        st.sampled_from(["\n", " ", "\r\n", "\u3000"] if name == "final" else ["", "\n", "\r\n", " \t"])
    )
    texts = parsing.render(forecast, name, separator="\n" if name == "final" else separator)
    options = {"max_answers": 4, "min_answers": 1} if parsing.FORMATS[name].many else {}
    back = parsing.parse(texts, name, **options)
    assert back.reason == forecast.reason
    assert back.answers == forecast.answers
    assert back.analysis == forecast.analysis
    np.testing.assert_array_equal(back.mask, forecast.mask)
    np.testing.assert_array_equal(back.has_prob, forecast.has_prob)
    # Weights are divided by their sum once more, which may move the last bit.
    tolerance = 4e-16 if name == "hypotheses" else 0.0
    np.testing.assert_allclose(back.probs, forecast.probs, rtol=tolerance, atol=0)
    np.testing.assert_allclose(back.other, forecast.other, rtol=tolerance, atol=0)


@pytest.mark.parametrize(
    ("answers", "name"), [([""], "tac"), ([" a"], "tac"), (["a", "b"], "tac"), ([], "multi"), (["a</answer>"], "tac")]
)
def test_render_refuses_what_would_not_read_back(answers: list[str], name: str) -> None:
    slots = max(len(answers), 1)
    forecast = Forecast(
        [answers], np.zeros((1, slots)), np.ones((1, slots), bool), np.ones((1, slots), bool), np.zeros(1), np.ones(1, bool), [""]
    )  # fmt: skip
    with pytest.raises(InvalidArgumentError):
        parsing.render(forecast, name)


# ---- P1: what is read at all ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_P1_tags_inside_the_thinking_never_count(mode: str) -> None:
    hidden = "<answer>no</answer><confidence>1</confidence>"
    assert one(f"<think>{hidden}</think>{tac(think='')}", mode=mode).answers == [["4"]]
    assert one(f"{hidden}</think>{tac(think='')}", mode=mode).answers == [["4"]]
    assert reason(f"<think>{hidden}</think>", mode=mode) == "answer_missing"


def test_P1_the_table_of_think_blocks() -> None:
    body = tac(think="")
    cases = {
        # text: reason in strict / lenient
        f"<think>x</think>{body}": ("", ""),
        f"x</think>{body}": ("", ""),  # the template has written <think> into the prompt
        f" \n<think>x</think>{body}": ("", ""),
        body: ("think_missing", ""),
        f"<think>x{body}": ("think_unclosed", "think_unclosed"),
        f"<think>x</think>{body}<think>": ("think_unclosed", "think_unclosed"),
        f"</think>{body}": ("think_blank", ""),
        f"<think> \u3000\n</think>{body}": ("think_blank", ""),
        f"<think>x</think><think>y</think>{body}": ("think_repeated", ""),
        f"<think>x</think></think>{body}": ("think_repeated", ""),
        f"<think><think>x</think>{body}": ("think_repeated", ""),
        f"well <think>x</think>{body}": ("text_outside", ""),
        f"{body}</think>": ("answer_missing", "answer_missing"),
        "<think>x</think>" + tac("a </think> b", think=""): ("think_repeated", "tag_lost"),
    }
    for text, (strict, lenient) in cases.items():
        assert reason(text) == strict, text
        if lenient != "tag_lost":
            assert reason(text, mode="lenient") == lenient, text
    assert reason(list(cases)[-1], mode="lenient") == "answer_missing"


def test_P1_the_think_option() -> None:
    body, full, cut = tac(think=""), tac(), "<think>x" + tac(think="")
    for mode in ("strict", "lenient"):
        assert [reason(t, mode=mode, think="required") for t in (body, full, cut)] == [
            "think_missing",
            "",
            "think_unclosed",
        ]
        assert [reason(t, mode=mode, think="optional") for t in (body, full, cut)] == ["", "", "think_unclosed"]
        assert [reason(t, mode=mode, think="forbidden") for t in (body, full, cut)] == ["", *["think_forbidden"] * 2]
    assert [reason(t, think="ignore") for t in (body, full, cut)] == ["", "text_outside", "text_outside"]
    assert [reason(t, mode="lenient", think="ignore") for t in (body, full, cut)] == ["", "", ""]
    assert one(tac("a </think> b", think=""), think="ignore").answers == [["a </think> b"]]


@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_P1_trailing_special_tokens_are_stripped(mode: str) -> None:
    for tail in ("<|im_end|>", " <|im_end|>\n<|endoftext|><|endoftext|> ", "</s>", "<｜end▁of▁sentence｜>"):
        assert one(tac() + tail, mode=mode).answers == [["4"]]
    assert reason(tac() + "<|im_end|>", special_tokens=()) == "text_outside"
    assert reason(tac() + "<END>", special_tokens=["<END>"]) == ""
    final = one("Final answer: 4<|im_end|>", "final", mode)
    assert final.answers == [["4"]]


# ---- P2, P4: order, number and content of blocks ---------------------------------------------------------------------


def test_P2_order_and_count_in_strict() -> None:
    assert reason("x</think><confidence>.5</confidence><answer>4</answer>") == "answer_missing"
    assert reason("x</think><answer>4</answer>") == "confidence_missing"
    assert reason("x</think><answer>4</answer> so <confidence>.5</confidence>") == "text_outside"
    assert reason("x</think>so <answer>4</answer><confidence>.5</confidence>") == "text_outside"
    assert reason(tac() + " done") == "text_outside"
    assert reason(tac() + "<answer>5</answer>") == "tag_repeated"
    assert reason(tac() + "</answer>") == "tag_unexpected"
    assert reason("x</think></answer>" + tac(think="")) == "tag_unexpected"
    assert reason("x</think><answer>4<confidence>.5</confidence></answer>") == "tag_unclosed"
    assert reason("x</think><answer>4") == "tag_unclosed"
    assert reason("x</think><ANSWER>4</ANSWER><confidence>.5</confidence>") == "text_outside"
    assert reason("x</think><answer >4</answer><confidence>.5</confidence>") == "text_outside"
    assert reason("x</think> <answer>4</answer>\r\n<confidence>.5</confidence>\u2028") == ""
    assert reason(tac(), "tabc") == "analysis_missing"
    assert reason("x</think><analysis>a</analysis><answer>4</answer><confidence>1</confidence>", "tbac") == ""
    assert (
        reason("x</think><analysis>a</analysis><answer>4</answer><confidence>1</confidence>", "tabc")
        == "answer_missing"
    )


def test_P2_numbering_in_strict() -> None:
    def answers(*numbers: str) -> str:
        return reason("x</think>" + "".join(f"<answer{n}>a</answer{n}>" for n in numbers), "multi_rlvr", max_answers=3)

    assert answers("1", "2", "3") == ""
    assert answers() == "answer_missing"
    assert answers("1", "2") == "too_few_answers"
    assert answers("1", "2", "3", "4") == "too_many_answers"
    assert answers("1", "3") == "answer_missing"
    assert answers("2", "1", "3") == "answer_missing"
    assert answers("1", "1") == "tag_repeated"
    assert answers("1", "2", "3", "2") == "tag_repeated"
    assert answers("0", "1", "2") == "text_outside"
    assert answers("01", "2", "3") == "text_outside"
    assert answers("1", "2", "9999999999") == "text_outside"
    assert answers("1", "2", "999999999") == "too_many_answers"
    split = "x</think><answer1>a</answer1><answer2>b</answer2><analysis>-</analysis><confidence1>.5</confidence1>"
    assert reason(split, "multi_split", max_answers=2) == "confidence_missing"
    assert reason(split + "<confidence2>.5</confidence2>", "multi_split", max_answers=2) == ""
    assert reason(split + "<confidence2>.5</confidence2><confidence3>0</confidence3>", "multi_split", max_answers=2) == "tag_unexpected"  # fmt: skip
    assert reason(pairs("a"), "multi", max_answers=3, min_answers=1) == ""


def test_P2_lenient_takes_the_last_block_in_any_order() -> None:
    text = "x</think><confidence>.1</confidence><answer>a</answer> hm <answer>b</answer><confidence>.2</confidence> ok"
    forecast = one(text, mode="lenient")
    assert (forecast.answers, forecast.probs.tolist()) == ([["b"]], [[0.2]])
    assert one("x</think><answer>4</answer>", mode="lenient").has_prob.tolist() == [[False]]
    assert one("x</think><answer>4</answer>", "tabc", "lenient").wellformed.all()
    assert one("x</think><answer>a</answer><answer>b", mode="lenient").answers == [["a"]]


def test_P4_blank_answers_and_tags_inside() -> None:
    for blank in ("", "   ", "\n\u00a0"):
        assert reason(tac(blank)) == "answer_blank"
        assert reason(tac(blank), mode="lenient") == "answer_blank"
    assert reason(tac("a<answer>b")) == "tag_unclosed"
    assert one(tac("x < y & z > <b>w</b>")).answers == [["x < y & z > <b>w</b>"]]
    assert reason("x</think><answer>4", mode="lenient") == "tag_unclosed"
    # Of nested blocks, the inner one is whole.
    assert one(tac("a <answer>b</answer>"), mode="lenient").answers == [["b"]]


def test_lenient_packs_answers_into_the_first_slots() -> None:
    text = "x</think><answer1>a</answer1><answer2> </answer2><answer3>c</answer3><confidence3>.3</confidence3><confidence2>.9</confidence2>"
    forecast = one(text, "multi_noanalysis", "lenient")
    assert forecast.answers == [["a", "c"]]
    assert forecast.mask.tolist() == [[True, True, False]]
    assert forecast.has_prob.tolist() == [[False, True, False]]
    assert forecast.probs.tolist() == [[0.0, 0.3, 0.0]]


# ---- P3: numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "strict", "lenient"),
    [
        (" 0.5 ", 0.5, 0.5),
        (".5", 0.5, 0.5),
        ("5e-1", 0.5, 0.5),
        ("1.0", 1.0, 1.0),
        ("1.", 1.0, 1.0),
        ("+0.25", 0.25, 0.25),
        ("1", 1.0, 1.0),
        ("0", 0.0, 0.0),
        ("-0", 0.0, 0.0),
        ("0.000", 0.0, 0.0),
        ("1e-400", 0.0, 0.0),
        ("\u00a00.7\u2003", 0.7, 0.7),
        ("85%", "number_invalid", 0.85),
        ("1%", "number_invalid", 0.01),
        ("100 %", "number_invalid", 1.0),
        ("0.5%", "number_invalid", 0.005),
        ("101%", "number_invalid", None),
        ("85", "number_out_of_range", 0.85),
        ("100", "number_out_of_range", 1.0),
        ("1.0000001", "number_out_of_range", 1.0000001 / 100),
        ("101", "number_out_of_range", None),
        ("0.9/1", "number_invalid", 0.9),
        ("17 / 20", "number_invalid", 0.85),
        ("85/100", "number_invalid", 0.85),
        ("3/2", "number_invalid", None),
        ("1/0", "number_invalid", None),
        ("0/0", "number_invalid", None),
        ("1/1e999", "number_invalid", None),
        ("-0.2", "number_out_of_range", None),
        ("-5e-324", "number_out_of_range", None),
        ("1e400", "number_out_of_range", None),
        ("nan", "number_invalid", None),
        ("inf", "number_invalid", None),
        ("Infinity", "number_invalid", None),
        ("", "number_invalid", None),
        ("high", "number_invalid", None),
        ("0_5", "number_invalid", None),
        ("0,85", "number_invalid", None),
        ("1,000", "number_invalid", None),
        ("0.7, I think", "number_invalid", 0.7),
        ("٠.٥", "number_invalid", None),
        ("０.５", "number_invalid", None),
        ("0.5.5", "number_invalid", 0.5),
        ("0x1", "number_invalid", 0.0),
        ("1e", "number_invalid", 1.0),
        ("about 90% sure", "number_invalid", 0.9),
        ("1 percent", "number_invalid", 0.01),
        ("8 out of 10", "number_invalid", 0.8),
        ("8 Out Of ten", "number_invalid", 0.08),
        ("\u22120.2", "number_invalid", None),
        ("- 0.2", "number_invalid", 0.2),
        ("I am 0.8 sure", "number_invalid", 0.8),
        ("...", "number_invalid", None),
    ],
)
def test_P3_numbers(text: str, strict: float | str, lenient: float | None) -> None:
    if isinstance(strict, str):
        assert reason(tac(confidence=text)) == strict
    else:
        assert prob(text, "strict") == strict
        assert math.copysign(1.0, one(tac(confidence=text)).probs[0, 0]) == 1.0
    assert prob(text, "lenient") == lenient
    wide = tac(confidence=text) + "\n"
    assert one(wide, mode="lenient").probs.tolist() == one("🙂" + wide, mode="lenient").probs.tolist()


numerals = st.one_of(
    st.floats(0, 1).map(repr),
    st.floats(0, 1).map(lambda x: f"{x:.25f}"),
    st.floats(0, 1e-300).map(lambda x: f"{x:.1100f}"),
    st.from_regex(r"0?\.[0-9]{1,40}([eE]-?[0-9]{1,3})?", fullmatch=True),
    st.from_regex(r"[0-9]{1,30}[eE]-[0-9]{1,3}", fullmatch=True),
    # Half way between two neighbouring doubles, and a hair beside it.
    st.tuples(st.floats(1e-308, 0.999), st.sampled_from(["", "0" * 900 + "1", "5"])).map(
        lambda t: _halfway(t[0]) + t[1]
    ),
)


def _halfway(x: float) -> str:
    from fractions import Fraction

    middle = (Fraction(x) + Fraction(math.nextafter(x, 2.0))) / 2
    digits = middle.denominator.bit_length() - 1  # the denominator is a power of two
    return "0." + str(middle.numerator * 5**digits).rjust(digits, "0")


@settings(max_examples=300)
@given(st.lists(numerals, min_size=1, max_size=10))
def test_P3_numbers_are_correctly_rounded(texts: list[str]) -> None:
    forecast = parsing.parse([tac(confidence=text) for text in texts])
    for text, value, good in zip(texts, forecast.probs[:, 0].tolist(), forecast.wellformed, strict=True):
        assert good == (float(text) <= 1.0)
        assert value == (float(text) if good else 0.0), text


# ---- P5: hypotheses ---------------------------------------------------------------------------------------------------


def test_P5_weights() -> None:
    forecast = one(hypotheses("0.6", "0.3"), "hypotheses")
    assert forecast.answers == [["guess 1", "guess 2"]]
    np.testing.assert_allclose([*forecast.probs[0, :2], forecast.other[0]], [0.6, 0.3, 0.1], rtol=1e-15)
    near = one(hypotheses("0.6", "0.3", other="0.09"), "hypotheses")
    assert near.probs[0, 0] == 0.6 / (0.6 + 0.3 + 0.09)
    assert near.probs.sum() + near.other[0] == pytest.approx(1.0, abs=1e-15)
    assert reason(hypotheses("0.8", "0.3"), "hypotheses") == "weights_bad_sum"
    assert reason(hypotheses("0.6", "0.3", other="0.05"), "hypotheses", sum_tol=0.1) == ""
    assert reason(hypotheses("0.5", "0.3", other="0.0"), "hypotheses") == "weights_bad_sum"
    assert one(hypotheses("0.8", "0.3"), "hypotheses", on_bad_sum="renormalise").probs[0, 0] == 0.8 / (0.8 + 0.3 + 0.1)
    assert one(hypotheses("0.8", "0.3"), "hypotheses", "lenient").probs[0, 0] == 0.8 / (0.8 + 0.3 + 0.1)
    assert reason(hypotheses("0.8", "0.3"), "hypotheses", "lenient", on_bad_sum="fail") == "weights_bad_sum"


@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_P5_all_zero_and_none(mode: str) -> None:
    assert reason(hypotheses("0", "0", other="0"), "hypotheses", mode, on_bad_sum="renormalise") == "weights_all_zero"
    assert reason(hypotheses(other="1"), "hypotheses", mode) == "answer_missing"


def test_P5_missing_other() -> None:
    assert reason(hypotheses("0.6", "0.3", other=None), "hypotheses") == "other_missing"
    forecast = one(hypotheses("0.6", "0.3", other=None), "hypotheses", "lenient")
    assert forecast.other[0] == pytest.approx(0.1)
    over = one(hypotheses("0.9", "0.3", other=None), "hypotheses", "lenient")
    assert (over.other[0], over.probs[0, 0]) == (0.0, 0.9 / (0.9 + 0.3))
    percent = one(hypotheses("60%", "30", other="10%"), "hypotheses", "lenient")
    np.testing.assert_allclose([*percent.probs[0, :2], percent.other[0]], [0.6, 0.3, 0.1], rtol=1e-15)


def test_P5_structure() -> None:
    assert reason(hypotheses(*["0.1"] * 6, other="0.4"), "hypotheses") == "too_many_answers"
    assert one(hypotheses(*["0.1"] * 6, other="0.5"), "hypotheses", "lenient").mask.sum() == 5
    inner = hypotheses("0.9").removeprefix(THINK)
    assert reason(THINK + inner.replace("<hypotheses>", ""), "hypotheses") == "wrapper_missing"
    assert reason(THINK + inner.replace("</hypotheses>", ""), "hypotheses") == "tag_unclosed"
    assert reason(THINK + inner + inner, "hypotheses") == "tag_repeated"
    # A later list replaces an earlier one as a whole.
    assert one(hypotheses("0.3", "0.3", "0.3") + inner, "hypotheses", "lenient").answers == [["guess 1"]]


# ---- the final format -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "strict", "lenient"),
    [
        ("so\nFinal answer: 42", "42", "42"),
        ("Final answer: 1\nFinal answer:  2 \n", "2", "2"),
        ("  Final answer: a b\r\nbye", "a b", "a b"),
        ("the Final answer: 3", None, None),
        ("**Final Answer:** 7", None, "7"),
        ("final answer: 7", None, "7"),
        ("Final answer:", "", ""),
        ("Final answer: 1\nFinal answer: ", "", ""),
        (r"so \boxed{42}.", "42", "42"),
        (r"Final answer: $\boxed{\frac{1}{2}}$", r"\frac{1}{2}", r"\frac{1}{2}"),
        ("\\boxed{6}\nFinal answer: 7", "7", "7"),
        ("Final answer: 5\nthat is \\boxed{6}", "6", "6"),
        (r"\boxed{1} and \boxed{2", "1", "1"),
        (r"\boxed{\boxed{5}}", "5", "5"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}", r"\{1, 2\}"),
        (r"\boxed{\left\{ x }", r"\left\{ x", r"\left\{ x"),
        (r"\boxed{a \\}", r"a \\", r"a \\"),
        (r"\boxed{}", "", ""),
        ("nothing", None, None),
    ],
)
def test_final(text: str, strict: str | None, lenient: str | None) -> None:
    for mode, expected in (("strict", strict), ("lenient", lenient)):
        for before in ("", "thinking \\boxed{0}\nFinal answer: 0</think>"):
            forecast = one(before + text, "final", mode)
            assert forecast.answers == ([[expected]] if expected else [[]])
            assert forecast.reason == ["answer_missing" if expected is None else "" if expected else "answer_blank"]


# ---- the table of edge cases ------------------------------------------------------------------------------------------


def test_table_count_of_answers() -> None:
    assert reason(pairs("a", "b"), "multi") == "too_few_answers"
    assert reason(pairs("a", "b", "c", "d"), "multi") == "too_many_answers"
    two, four = one(pairs("a", "b"), "multi", "lenient"), one(pairs("a", "b", "c", "d"), "multi", "lenient")
    assert (two.answers, two.mask.tolist()) == ([["a", "b"]], [[True, True, False]])
    assert four.answers == [["a", "b", "c"]]


def test_table_duplicates_are_left_to_the_relation() -> None:
    assert one(pairs("Flu", "the flu", "cold"), "multi").answers == [["Flu", "the flu", "cold"]]


def test_table_text_after_the_last_tag_entities_and_line_ends() -> None:
    assert reason(tac() + "\nHope that helps.") == "text_outside"
    assert reason(tac() + "\nHope that helps.", mode="lenient") == ""
    entities = tac("AT&amp;T &lt; x &#233; &copy")
    assert one(entities).answers == [["AT&amp;T &lt; x &#233; &copy"]]
    assert one(entities, mode="lenient").answers == [["AT&T < x é &copy"]]
    assert one(tac("&nbsp;"), mode="lenient").answers == [["&nbsp;"]]
    assert one(tac().replace("><", ">\r\n<")).answers == [["4"]]


def test_table_truncated() -> None:
    texts = [tac(), tac(), "<think>still"]
    forecast = parsing.parse(texts, truncated=[True, False, True])
    assert forecast.reason == ["truncated", "", "truncated"]
    assert forecast.answers == [[], ["4"], []]
    assert forecast.wellformed.tolist() == [False, True, False]
    assert not forecast.mask[[0, 2]].any()
    assert not forecast.probs[[0, 2]].any()
    assert parsing.parse(texts, mode="lenient", truncated=np.array([True, False, True])).reason == forecast.reason


@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_table_a_megabyte(mode: str) -> None:
    long = "x" * 1_000_000
    assert one(tac(long), mode=mode).answers == [[long]]
    assert one(tac("<answer>" * 100_000), mode=mode).answers == [[]]


def test_every_reason_has_a_text() -> None:
    from rewardkit import reference

    source = Path(reference.parse.__file__).read_text()  # type: ignore[attr-defined]
    for name, text in parsing.REASONS.items():
        assert parsing.explain(name) == text
        if name in ("duplicate_answers", "confidences_over_one"):  # the rewards find these
            continue
        assert name == "truncated" or f'"{name}"' in source or f'{name.split("_")[0]}"' in source
    assert parsing.explain("") == ""


# ---- laws -------------------------------------------------------------------------------------------------------------

soups = st.lists(
    st.one_of(st.sampled_from([tag for name in NAMES for tag in parsing.tags(name)]), st.text(max_size=5), numerals),
    max_size=20,
).map("".join)


@settings(max_examples=300)
@given(st.lists(soups, max_size=5), st.sampled_from(NAMES), st.sampled_from(["strict", "lenient"]))
def test_any_text_gives_a_sound_forecast(texts: list[str], name: str, mode: Any) -> None:
    forecast = parsing.parse(texts, name, mode)
    slots = forecast.probs.shape[1]
    assert np.isfinite(forecast.probs).all()
    assert ((forecast.probs >= 0) & (forecast.probs <= 1)).all()
    assert ((forecast.other >= 0) & (forecast.other <= 1)).all()
    np.testing.assert_array_equal(forecast.wellformed, [not name for name in forecast.reason])
    np.testing.assert_array_equal(forecast.wellformed, [bool(answers) for answers in forecast.answers])
    counts = np.array([len(answers) for answers in forecast.answers], dtype=int)
    np.testing.assert_array_equal(forecast.mask, np.arange(slots) < counts[:, None])
    assert not (forecast.has_prob & ~forecast.mask).any()
    assert not forecast.probs[~forecast.has_prob].any()
    assert set(forecast.reason) <= {"", *parsing.REASONS}
    for answers in forecast.answers:
        assert all(answer and answer.strip() == answer for answer in answers)
    # Row by row, and by any number of threads, the same.
    for row, text in enumerate(texts):
        alone = parsing.parse([text], name, mode)
        assert alone.answers == [forecast.answers[row]]
        assert alone.reason == [forecast.reason[row]]
        np.testing.assert_array_equal(alone.probs[0], forecast.probs[row])


@settings(max_examples=300)
@given(st.data(), st.sampled_from(TAGGED))
def test_lenient_agrees_where_strict_is_satisfied(data: st.DataObject, name: str) -> None:
    from tests.parity.parse import filled

    form = parsing.FORMATS[name]
    pairs_ = parsing.grammar.literals(form)
    texts = data.draw(st.lists(filled(form, pairs_, form.default_answers), min_size=1, max_size=4))
    strict, lenient = parsing.parse(texts, name), parsing.parse(texts, name, "lenient")
    for row in np.flatnonzero(strict.wellformed):
        if "&" in texts[row]:
            continue
        assert lenient.answers[row] == strict.answers[row]
        np.testing.assert_array_equal(lenient.probs[row], strict.probs[row])
        assert lenient.other[row] == strict.other[row]


@settings(max_examples=200)
@given(st.lists(soups, min_size=1, max_size=4), st.sampled_from(NAMES), st.sampled_from(["strict", "lenient"]))
def test_spans_point_at_what_was_parsed(texts: list[str], name: str, mode: Any) -> None:
    forecast = parsing.parse(texts, name, mode)
    for row, pieces in enumerate(parsing.spans(texts, name, mode)):
        text = texts[row]
        for piece in pieces:
            assert 0 <= piece.outer_start <= piece.start <= piece.stop <= piece.outer_stop <= len(text)
            assert text[piece.start : piece.stop].strip() == text[piece.start : piece.stop]
        if forecast.wellformed[row] and "&" not in text:
            numbered = sorted((piece.number, piece) for piece in pieces if piece.role == "answer")
            assert [text[piece.start : piece.stop] for _, piece in numbered] == forecast.answers[row]


def test_spans() -> None:
    text = "é<think> hm </think>\n<answer> 4 </answer><confidence>0.5</confidence>"
    think, answer, confidence = parsing.spans([text], "tac", "lenient")[0]
    assert (think.role, text[think.start : think.stop]) == ("think", "hm")
    assert (answer.role, answer.number, text[answer.start : answer.stop]) == ("answer", 0, "4")
    assert text[answer.outer_start : answer.outer_stop] == "<answer> 4 </answer>"
    assert text[confidence.outer_start : confidence.outer_stop] == "<confidence>0.5</confidence>"
    assert [piece.role for piece in parsing.spans(["x</think><answer>4</answer>"], "tac")[0]] == ["think", "answer"]
    roles = [(piece.role, piece.number) for piece in parsing.spans([hypotheses("0.6", "0.3")], "hypotheses")[0]]
    assert roles == [("think", 0), ("answer", 1), ("confidence", 1), ("answer", 2), ("confidence", 2), ("other", 0)]


def test_threads_do_not_change_the_result() -> None:
    texts = [tac(str(i), f"0.{i % 100}") if i % 7 else "junk" * i for i in range(3000)]
    texts += ["x" * 200_000 + tac("é")] * 40
    base = parsing.parse(texts, mode="lenient", threads=1)
    for threads in (None, 2, 5):
        other = parsing.parse(texts, mode="lenient", threads=threads)
        assert other.answers == base.answers
        assert other.reason == base.reason
        np.testing.assert_array_equal(other.probs, base.probs)


def test_chats_and_plain_strings_are_the_same() -> None:
    chat = [{"role": "user", "content": "?"}, {"role": "assistant", "content": tac()}]
    parts = [
        {"role": "assistant", "content": [{"type": "text", "text": tac()[:20]}, {"type": "text", "text": tac()[20:]}]}
    ]
    tool = [{"role": "assistant", "content": None, "tool_calls": []}]
    forecast = parsing.parse([tac(), chat, tuple(chat), np.array(chat), parts, tool], "tac")
    assert forecast.answers == [*[["4"]] * 5, []]
    assert parsing.parse(np.array([tac(), "x"], dtype=object)).answers == [["4"], []]
    assert parsing.parse([np.str_(tac())]).answers == [["4"]]
    assert len(parsing.parse([])) == 0


@pytest.mark.parametrize(
    "text", ["\ud800", "\x00", "a\x00b", "\udfff<answer>\ud800</answer>", "\U0010ffff", "é", "\u0100"]
)
@pytest.mark.parametrize("name", NAMES)
def test_strange_characters_survive(name: str, text: str) -> None:
    for mode in ("strict", "lenient"):
        one(text, name, mode)
    assert one(tac(f"a{text[:1]}b")).answers == [[f"a{text[:1]}b"]]


# ---- linear time ------------------------------------------------------------------------------------------------------

ATTACKS = {
    "the released format expression is cubic": "</think><answer></answer><confidence>",
    "openings": "<answer>",
    "confidence openings": "<confidence>",
    "closings": "</answer>",
    "blocks": "<answer>a</answer><confidence>.5</confidence>",
    "think openings": "<think>",
    "think closings": "</think>",
    "lists": "<hypotheses><h5>a</h5>",
    "hypotheses": "<h1>a</h1><w1>.5</w1>",
    "almost tags": "<answe",
    "angle brackets": "<",
    "numbers of tags": "<h123456789",
    "digits": "<confidence>" + "1" * 500,
    "signs": "+-.",
    "boxes": "\\boxed{",
    "closed boxes": "\\boxed{}",
    "braces": "{}}{",
    "backslashes": "\\",
    "final lines": "Final answer:\n",
    "white space": " ",
    "line ends": "\r\n",
    "special tokens": "<|im_end|> ",
    "entities": "&#x26;&",
    "wide": "𝒜<answer>",
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("name", ["tac", "hypotheses", "final"])
def test_SR_02_BR_017_time_is_linear_in_the_text(name: str, attack: str) -> None:
    """A megabyte takes no longer than its sixteen parts; quadratic work would take sixteen times as long."""
    unit = ATTACKS[attack]
    part = unit * (2**16 // len(unit))
    whole = "".join([part] * 16)
    for mode in ("strict", "lenient"):
        for wrap in ("", "x</think><answer>"):
            in_parts, at_once = [], []
            for _ in range(3):
                in_parts.append(_seconds([wrap + part] * 16, name, mode))
                at_once.append(_seconds([wrap + whole], name, mode))
            assert statistics.median(at_once) < 5 * max(statistics.median(in_parts), 1e-3), mode


def _seconds(texts: list[str], name: str, mode: Any) -> float:
    start = time.process_time()
    parsing.parse(texts, name, mode, threads=1)
    return time.process_time() - start


def test_BR_017_a_cut_off_block_after_many_does_not_hang() -> None:
    text = '<answer>{"name": "f", "arguments": {}}</answer>\n' * 5000 + '<answer>{"name": '
    assert reason(text) == "think_missing"
    assert one(text, "ta", "lenient").answers == [['{"name": "f", "arguments": {}}']]


# ---- public bugs ------------------------------------------------------------------------------------------------------


def test_BR_019_one_rule_for_answer_and_confidence() -> None:
    text = "x</think><answer>wrong</answer><confidence>.9</confidence><answer>right</answer><confidence>.6</confidence>"
    assert reason(text) == "tag_repeated"
    forecast = one(text, mode="lenient")
    assert (forecast.answers, forecast.probs.tolist()) == ([["right"]], [[0.6]])


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1.0000001", "1e309"])
def test_BR_020_SR_01_no_confidence_that_is_not_a_probability(text: str) -> None:
    assert not one(tac(confidence=text)).wellformed.any()
    for mode in ("lenient", "rlcr"):
        value = one(tac(confidence=text), mode=mode).probs[0, 0]
        assert 0.0 <= value <= 1.0


def test_BR_055_percent_and_words_are_accepted_or_rejected_by_rule() -> None:
    assert reason(tac(confidence="95%")) == "number_invalid"
    assert prob("95%", "lenient") == 0.95
    assert one(tac(confidence="high"), mode="lenient").has_prob.tolist() == [[False]]


def test_BR_062_a_missing_closing_tag_shifts_nothing() -> None:
    text = "x</think><answer1>a</answer1><answer2>b</answer2><answer3>c</answer3>"
    for number, left in ((1, ["b", "c"]), (2, ["a", "c"]), (3, ["a", "b"])):
        cut = text.replace(f"</answer{number}>", "")
        assert reason(cut, "multi_rlvr") == "tag_unclosed"
        assert one(cut, "multi_rlvr", "lenient").answers == [left]


def test_BR_063_no_text_passes_as_its_own_answer() -> None:
    for name, mode in itertools.product(NAMES, ("strict", "lenient")):
        forecast = one("The capital is Paris.", name, mode)
        assert not forecast.wellformed.any()
        assert forecast.answers == [[]]
        assert forecast.reason[0] in parsing.REASONS


@pytest.mark.parametrize("mode", ["strict", "lenient"])
@pytest.mark.parametrize(
    "pair", [("<|begin|>", "<|end|>"), (".*", "$"), ("[a-z]+", "(?:x"), ("\\d", "\\D"), ("((", "))"), ("ответ:", ";")]
)
def test_BR_104_custom_tags_are_literal(pair: tuple[str, str], mode: str) -> None:
    custom = {"answer": pair}
    assert one(f"{THINK}{pair[0]} 42 {pair[1]}", "ta", mode, tags=custom).answers == [["42"]]
    assert one(f"{THINK}<answer>42</answer>", "ta", mode, tags=custom).answers == [[]]


def test_custom_numbered_tags() -> None:
    custom = {"h": ("[{i}] ", " [/{i}]"), "w": "weight", "hypotheses": "list"}
    text = f"{THINK}<list>[1] a [/1]<weight1>1</weight1><other>0</other></list>"
    assert one(text, "hypotheses", tags=custom).answers == [["a"]]
    assert parsing.tags("hypotheses", 1, tags=custom)[4:6] == ("[1] ", " [/1]")


def test_SR_11_tags_are_not_joined_over_a_gap() -> None:
    text = "x</think><answer>wrong</answer> hmm <answer>42</answer>"
    assert one(text, "ta", "lenient").answers == [["42"]]
    assert reason(text, "ta") == "text_outside"


def test_SR_12_two_closings_of_the_thinking() -> None:
    assert reason("<think>a</think></think><answer>x</answer>", "ta") == "think_repeated"


@pytest.mark.parametrize("digits", [["1" + "0" * 5000], ["9" * 5000, "x" + "f" * 5000]])
def test_entities_of_any_length_do_not_raise(digits: list[str]) -> None:
    for number in digits:
        text = f"&#{number};"
        assert one(tac(text), mode="lenient").answers == [[text]]


# ---- RLCR's released outputs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["math-500", "commonsenseqa"])
def test_rlcr_reading_recomputes_the_released_confidences(shared: Path, name: str) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(shared / "data" / "rlcr" / f"{name}.parquet").to_pydict()
    forecast = parsing.parse(table["completion"], "tac", "rlcr")
    from_text = np.array(table["method"]) != "RLVR-Classifier"
    np.testing.assert_array_equal(forecast.probs[from_text, 0], np.array(table["confidence"])[from_text])
    np.testing.assert_array_equal(forecast.has_prob[:, 0], np.array(table["conf_format"]) == 1)
    assert forecast.wellformed.all()
    # What was trained on a format keeps to it; what was not, does not.
    trained = np.array(table["method"]) == "RLCR"
    strict = parsing.parse(table["completion"], "tabc")
    assert strict.wellformed[trained].mean() > 0.98
    assert not strict.wellformed[~trained].any()
    lenient = parsing.parse(table["completion"], "tac", "lenient", think="ignore")
    assert lenient.wellformed.mean() > 0.999


def test_rlcr_reading() -> None:
    def read(text: str) -> tuple[float, bool]:
        forecast = one(text, "tac", "rlcr")
        return float(forecast.probs[0, 0]), bool(forecast.has_prob[0, 0])

    block = "<confidence>{}</confidence>"
    assert read(block.format("0.7")) == (0.7, True)  # with no answer, and with no think block
    assert read(block.format("70")) == (0.7, True)
    assert read(block.format("1%")) == (1.0, True)
    assert read(block.format("I am 90% confident")) == (0.9, True)
    assert read(block.format("high")) == (0.0, False)
    assert read("<answer>4</answer>") == (0.0, False)
    assert read(block.format("0.2") + block.format("0.3")) == (0.3, True)
    assert read("<think><confidence>0.2</confidence></think>") == (0.2, True)
    # As a lazy expression has it: from the first opening tag to the next closing one.
    assert read("<confidence>0. </think><confidence> 0.01 </confidence>") == (0.0, True)
    assert one("<answer>a<answer>b</answer>", "tac", "rlcr").answers == [["a<answer>b"]]


# ---- bad calls --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("completions", lambda: parsing.parse("text")),
        ("completions", lambda: parsing.parse({"a": 1})),  # type: ignore[arg-type]
        ("completions[1]", lambda: parsing.parse(["a", None])),
        ("completions[0]", lambda: parsing.parse([[]])),
        ("completions[0]", lambda: parsing.parse([[{"role": "assistant", "content": 3}]])),
        ("mode", lambda: one("x", mode="loose")),
        ("mode", lambda: one("x", "multi", "rlcr")),
        ("think", lambda: one("x", think="maybe")),
        ("max_answers", lambda: one("x", "multi", max_answers=0)),
        ("max_answers", lambda: one("x", "multi", max_answers=65)),
        ("max_answers", lambda: one("x", "tac", max_answers=2)),
        ("max_answers", lambda: one("x", "multi", max_answers=True)),
        ("min_answers", lambda: one("x", "multi", max_answers=2, min_answers=3)),
        ("on_bad_sum", lambda: one("x", on_bad_sum="ignore")),
        ("sum_tol", lambda: one("x", sum_tol=-0.1)),
        ("sum_tol", lambda: one("x", sum_tol=math.nan)),
        ("special_tokens", lambda: one("x", special_tokens="</s>")),
        ("special_tokens", lambda: one("x", special_tokens=[""])),
        ("threads", lambda: one("x", threads=0)),
        ("truncated", lambda: one("x", truncated=[True, False])),
        ("truncated", lambda: one("x", truncated=[1])),
        ("tags", lambda: one("x", tags={"nonsense": "a"})),
        ("tags", lambda: one("x", tags={"answer": "confidence"})),
        ("tags", lambda: one("x", tags={"answer": (" ", "b")})),
        ("tags['answer']", lambda: one("x", tags={"answer": ("a", "b", "c")})),
        ("tags['answer']", lambda: one("x", tags={"answer": ["a", 3]})),
        ("tags['answer']", lambda: one("x", tags={"answer": ("a{i}", "b")})),
        ("tags['h']", lambda: one("x", "hypotheses", tags={"h": ("a", "b")})),
        ("tags['h']", lambda: one("x", "hypotheses", tags={"h": ("{i}a", "b{i}")})),
        ("tags['h']", lambda: one("x", "hypotheses", tags={"h": ("a{i}0", "b{i}")})),
    ],
)
def test_bad_calls_name_the_argument(argument: str, call: Any) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        call()
    assert error.value.argument == argument


def test_unknown_format() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'tabc'"):
        one("x", "tabbc")
    with pytest.raises(UnknownNameError):
        parsing.prompt("tabbc")
    assert one(tac(), "TAC").wellformed.all()


def test_names_are_lower_case_words() -> None:
    assert all(set(name) <= set(string.ascii_lowercase + "_") for name in parsing.FORMATS)


def test_a_sum_of_decimals_meets_its_tolerance_as_written() -> None:
    """.01 + .00 + .97 is 0.98: within 0.02 of 1 on paper, and just outside of it in floats."""
    for a in range(99):
        for b in range(99 - a):
            text = (
                f"<think>x</think><hypotheses><h1>p</h1><w1>{a / 100:.2f}</w1><h2>q</h2><w2>{b / 100:.2f}</w2>"
                f"<other>{(98 - a - b) / 100:.2f}</other></hypotheses>"
            )
            if a + b <= 98:
                assert parsing.parse([text], "hypotheses").wellformed.all(), text
    for other, good in (("0.42", True), ("0.43", False)):
        text = f"<think>x</think><hypotheses><h1>p</h1><w1>0.6</w1><other>{other}</other></hypotheses>"
        assert parsing.parse([text], "hypotheses").wellformed.tolist() == [good]


WELL = parsing.parse([tac("Paris")])


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: parsing.parse(["x"], tags={"answer": 5}), r"tags\['answer'\]"),
        (lambda: parsing.parse(["x"], tags={"answer": None}), r"tags\['answer'\]"),
        (lambda: parsing.parse(["x"], tags="answer"), "tags"),
        (lambda: parsing.spans(["x"], tags=["answer"]), "tags"),
        (lambda: parsing.tags("tac", tags=["answer"]), "tags"),
        (lambda: parsing.prompt("tac", tags=["answer"]), "tags"),
        (lambda: parsing.prompt("tac", think="no"), "think"),
        (lambda: parsing.parse(["x"], special_tokens=None), "special_tokens"),
        (lambda: parsing.parse(["x"], special_tokens=5), "special_tokens"),
        (lambda: parsing.render("x"), "forecast"),
        (lambda: parsing.render(None), "forecast"),
        (lambda: parsing.render(WELL, think=5), "think"),
        (lambda: parsing.render(WELL, separator=5), "separator"),
        (lambda: parsing.render(WELL, separator="; "), "separator"),
    ],
)
def test_a_bad_call_names_its_argument(call: Any, argument: str) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"^{argument}: expected .*, got "):
        call()


def test_reasons_that_rewards_find_are_explained_too() -> None:
    from rewardkit import rewards

    pair = "<think>t</think><answer1>{}</answer1><confidence1>0.9</confidence1><answer2>{}</answer2><confidence2>0.8</confidence2>"
    reward = rewards.get("multi_rlcr", format="multi_noanalysis", max_answers=2)
    reasons = reward([pair.format("a", "a"), pair.format("a", "b")], ["a", "a"]).reason
    assert reasons == ["duplicate_answers", "confidences_over_one"]
    assert set(reasons) <= parsing.REASONS.keys()
