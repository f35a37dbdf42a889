"""Render: from a forecast to text in a format; the inverse of the strict reading."""

from __future__ import annotations

from rewardkit.errors import InvalidArgumentError
from rewardkit.parsing import grammar
from rewardkit.parsing.grammar import Literals, TagNames, get_format
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
        forecast: Well-formed rows with as many answers as they like.
        format: Name of a format, in any case.
        think: What stands in the think block; None for no block.
        tags: Custom tags, see :func:`rewardkit.parsing.parse`.
        separator: White space between blocks.

    Returns:
        ``[B]`` completions. Numbers are written with as many digits as it takes to read the same float back.

    Raises:
        UnknownNameError: There is no such format.
        InvalidArgumentError: A row is ill-formed, or its text cannot stand in the format.
    """
    form = get_format(format)
    literals = {literal.part: literal for literal in grammar.literals(form, tags)}
    return [_render(forecast, row, form, literals, think, separator) for row in range(len(forecast))]


def _render(
    forecast: Forecast,
    row: int,
    form: grammar.Format,
    literals: dict[grammar.Part, Literals],
    think: str | None,
    separator: str,
) -> str:
    answers = forecast.answers[row]
    if not answers or not all(answer.strip() == answer != "" for answer in answers):
        raise InvalidArgumentError(f"forecast[{row}]", expected="answers that are not blank and trimmed", got=answers)
    if not form.many and len(answers) > 1:
        raise InvalidArgumentError(f"forecast[{row}]", expected=f"one answer in format {form.name!r}", got=answers)
    if form.name == "final":
        pieces = [f"Final answer: {answers[0]}"]
    else:
        pieces = []
        for step in form.steps:
            if step.kind in ("enter", "leave"):
                pieces.append(literals[step.parts[0]].at(0)[step.kind == "leave"])
                continue
            for number in range(1, len(answers) + 1) if step.kind == "each" else (1,):
                for part in step.parts:
                    begin, end = literals[part].at(number)
                    pieces.append(begin + _content(forecast, row, part.role, number - 1) + end)
    if think is not None:
        begin, end = literals[grammar.THINK].at(0)
        pieces.insert(0, begin + think + end)
    return separator.join(pieces)


def _content(forecast: Forecast, row: int, role: grammar.Role, slot: int) -> str:
    if role == "answer":
        return forecast.answers[row][slot]
    if role == "confidence":
        return repr(float(forecast.probs[row, slot]))
    if role == "other":
        return repr(float(forecast.other[row]))
    return forecast.analysis[row] if forecast.analysis else ""
