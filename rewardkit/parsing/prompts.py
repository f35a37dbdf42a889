"""The instruction that asks a model for a format; its example and its tags come from the same object as the parser."""

from __future__ import annotations

import numpy as np

from rewardkit.errors import InvalidArgumentError
from rewardkit.parsing import grammar, read
from rewardkit.parsing.grammar import TagNames, get_format
from rewardkit.parsing.render import render
from rewardkit.types import Forecast

_ANSWER = "Give your final answer between {answer} and {/answer}: only the answer, as short as it can be."
_CONFIDENCE = (
    "Between {confidence} and {/confidence}, state the probability that your answer is correct, as a decimal number from 0 "
    "to 1. Say what you believe: over many questions, answers given with 0.7 should be right seven times in ten."
)
_ANALYSIS = (
    "Between {analysis} and {/analysis}, weigh what could be wrong with the answer, and how sure you can be. "
    "Do not solve the question again there."
)
_PAIRS = (
    "Give exactly {K} different answers, the best that you can find. Number the tags from 1 to {K}: each answer stands "
    "between {answer} and {/answer}"
)
_EACH_CONFIDENCE = "the probability that this one answer is correct, as a decimal number from 0 to 1"

_TEXTS: dict[str, tuple[str, ...]] = {
    "ta": (_ANSWER,),
    "tac": (_ANSWER, _CONFIDENCE),
    "tabc": (_ANSWER, _ANALYSIS, _CONFIDENCE),
    "tbac": (
        "Between {analysis} and {/analysis}, weigh what could be wrong with the answer you have in mind, and how sure you can be.",
        _ANSWER,
        _CONFIDENCE,
    ),
    "multi": (
        _PAIRS + ", and right after it, between {confidence} and {/confidence}, " + _EACH_CONFIDENCE + ".",
        "After the last pair, between {analysis} and {/analysis}, weigh the answers against each other.",
    ),
    "multi_split": (
        _PAIRS + ".",
        "After the last answer, between {analysis} and {/analysis}, weigh the answers against each other.",
        "Then, for each answer in the same order, state between {confidence} and {/confidence} "
        + _EACH_CONFIDENCE
        + ".",
    ),
    "multi_noanalysis": (
        _PAIRS + ", and right after it, between {confidence} and {/confidence}, " + _EACH_CONFIDENCE + ".",
    ),
    "multi_rlvr": (_PAIRS + ".",),
    "hypotheses": (
        "Between {hypotheses} and {/hypotheses}, list the answers that you think possible: at least one, at most {K}, all "
        "different, numbered from 1. Each answer stands between {h} and {/h}, and right after it, between {w} and {/w}, the "
        "probability that it is the correct one, as a decimal number from 0 to 1.",
        "After the last one, between {other} and {/other}, state the probability that the correct answer is none of those "
        "listed. All the probabilities together sum to 1.",
    ),
    "final": ('End with one line that begins with "Final answer:" and holds only the answer.',),
}


def prompt(
    format: str = "tac", *, max_answers: int | None = None, think: bool = True, tags: TagNames | None = None
) -> str:
    """The instruction that asks a model for a format, with an example that the strict reading accepts.

    Args:
        format: Name of a format, in any case.
        max_answers: K, the number of answers asked for (for hypotheses, the most); the format's default when None.
        think: Whether to ask for a think block; say False where the chat template or the model brings its own.
        tags: Custom tags, see :func:`rewardkit.parsing.parse`.

    Raises:
        UnknownNameError: There is no such format.
        InvalidArgumentError: ``max_answers`` or ``tags`` does not fit the format.
    """
    form = get_format(format)
    if not isinstance(think, bool):
        raise InvalidArgumentError("think", expected="True or False", got=think)
    count = read._answers(form, max_answers)
    lines = list(_TEXTS[form.name])
    if think:
        lines.insert(0, "First reason about the question between {think} and {/think}.")
    if form.name != "final":
        lines.append("Write each tag exactly once and nothing outside the tags.")
    text = " ".join(lines)
    for literal in grammar.literals(form, tags):
        begin, end = literal.at(1)
        text = text.replace("{" + literal.part.name + "}", begin).replace("{/" + literal.part.name + "}", end)
    text = text.replace("{K}", str(count))
    return f"{text}\n\nExample:\n{example(format, max_answers=count, think=think, tags=tags)}"


def example(
    format: str = "tac", *, max_answers: int | None = None, think: bool = True, tags: TagNames | None = None
) -> str:
    """A completion in a format, as it stands in the format's :func:`prompt`.

    Args:
        format: As in :func:`prompt`, and so are the other arguments.
        max_answers: See there.
        think: See there.
        tags: See there.

    Raises:
        UnknownNameError: There is no such format.
        InvalidArgumentError: ``max_answers`` or ``tags`` does not fit the format.
    """
    form = get_format(format)
    count = read._answers(form, max_answers)
    listed = min(count, 2) if form.name == "hypotheses" else count
    answers = ["your answer"] if not form.many else [f"answer number {i}" for i in range(1, listed + 1)]
    probs = np.array([[round(0.5 ** (slot + 1), 2) for slot in range(listed)]])
    stated = np.full((1, listed), form.has("confidence"))
    forecast = Forecast(
        answers=[answers],
        probs=probs * stated,
        mask=np.ones((1, listed), dtype=bool),
        has_prob=stated,
        other=np.round(1.0 - probs.sum(axis=1), 2) if form.has("other") else np.zeros(1),
        wellformed=np.ones(1, dtype=bool),
        reason=[""],
        analysis=["what could be wrong"] if form.has("analysis") else [""],
    )
    return render(forecast, format, think="your reasoning" if think else None, tags=tags)[0]
