"""Render: from a forecast to text in a format; the inverse of the strict reading."""

from __future__ import annotations

from rewardkit.errors import InvalidArgumentError
from rewardkit.parsing import grammar
from rewardkit.parsing.grammar import Literals, TagNames, get_format
from rewardkit.parsing.read import explain, parse
from rewardkit.types import Forecast


def render(
    forecast: Forecast,
    format: str = "tac",
    *,
    think: str | None = "…",
    tags: TagNames | None = None,
    separator: str = "\n",
) -> list[str]:
    """Writes forecasts as completions that the strict reading gives back.

    Args:
        forecast: Well-formed rows, with a confidence for each answer where the format has confidences.
        format: Name of a format, in any case.
        think: What stands in the think block; None for no block.
        tags: Custom tags, see :func:`rewardkit.parsing.parse`.
        separator: White space between blocks.

    Returns:
        ``[B]`` completions. Numbers are written with as many digits as it takes to read the same float back.

    Raises:
        UnknownNameError: There is no such format.
        InvalidArgumentError: A row would not read back: it is ill-formed, or its text cannot stand in the format.
    """
    form = get_format(format)
    if not isinstance(forecast, Forecast):
        raise InvalidArgumentError("forecast", expected="a Forecast", got=forecast)
    if think is not None and not isinstance(think, str):
        raise InvalidArgumentError("think", expected="a text, or None for no block", got=think)
    if not isinstance(separator, str) or separator.strip():
        raise InvalidArgumentError("separator", expected="white space", got=separator)
    literals = {literal.part: literal for literal in grammar.literals(form, tags)}
    texts = [
        _render(forecast.answers[row], forecast, row, form, literals, think, separator) for row in range(len(forecast))
    ]
    most = max((len(answers) for answers in forecast.answers), default=1) if form.many else 1
    back = parse(
        texts,
        format,
        think="forbidden" if think is None else "required",
        max_answers=min(max(most, 1), grammar.MAX_ANSWERS),
        min_answers=1,
        tags=tags,
        special_tokens=(),
    )
    for row, text in enumerate(texts):
        same = back.answers[row] == forecast.answers[row] and (
            not form.has("confidence") or back.has_prob[row].sum() == forecast.has_prob[row].sum()
        )
        if not same:
            why = explain(back.reason[row]) or "other answers or confidences than it holds"
            raise InvalidArgumentError(
                f"forecast[{row}]", expected=f"a forecast that reads back; this gives: {why}", got=text
            )
    return texts


def _render(
    answers: list[str],
    forecast: Forecast,
    row: int,
    form: grammar.Format,
    literals: dict[grammar.Part, Literals],
    think: str | None,
    separator: str,
) -> str:
    pieces = [f"Final answer: {' '.join(answers)}"] if form.name == "final" else []
    for step in form.steps:
        if step.kind in ("enter", "leave"):
            pieces.append(literals[step.parts[0]].at(0)[step.kind == "leave"])
        for number in _numbers(step, len(answers)):
            for part in step.parts:
                begin, end = literals[part].at(number)
                pieces.append(begin + _content(forecast, row, part.role, number - 1) + end)
    if think is not None:
        begin, end = literals[grammar.THINK].at(0)
        pieces.insert(0, begin + think + end)
    return separator.join(pieces)


def _numbers(step: grammar.Step, answers: int) -> range:
    return range(1, {"each": answers, "block": 1}.get(step.kind, 0) + 1)


def _content(forecast: Forecast, row: int, role: grammar.Role, slot: int) -> str:
    if role == "answer":
        return "".join(forecast.answers[row][slot : slot + 1])
    if role == "confidence":
        return repr(float(forecast.probs[row, slot]))
    if role == "other":
        return repr(float(forecast.other[row]))
    return forecast.analysis[row] if forecast.analysis else ""
