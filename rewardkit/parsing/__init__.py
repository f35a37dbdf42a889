"""Parse: from the text of completions to a :class:`~rewardkit.types.Forecast`.

One grammar object per format serves training (``mode="strict"``), evaluation (``mode="lenient"``), the prompt and the
rendering. Text never raises: what cannot be read is ill-formed, with a reason.

>>> from rewardkit import parsing
>>> forecast = parsing.parse(["<think>2 + 2</think><answer>4</answer><confidence>0.9</confidence>"], format="tac")
>>> forecast.answers, forecast.probs.tolist()
([['4']], [[0.9]])
"""

from rewardkit.parsing.grammar import FORMATS, MAX_ANSWERS, Format, get_format
from rewardkit.parsing.prompts import example, prompt
from rewardkit.parsing.read import (
    REASONS,
    SPECIAL_TOKENS,
    Piece,
    completion_texts,
    explain,
    parse,
    spans,
    tags,
)
from rewardkit.parsing.render import render

__all__ = [
    "FORMATS",
    "MAX_ANSWERS",
    "REASONS",
    "SPECIAL_TOKENS",
    "Format",
    "Piece",
    "completion_texts",
    "example",
    "explain",
    "get_format",
    "parse",
    "prompt",
    "render",
    "spans",
    "tags",
]
