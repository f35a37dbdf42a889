"""The reading itself: checks the call, hands the texts to the kernel, and names what it found."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from rewardkit import _kernels
from rewardkit.errors import InvalidArgumentError
from rewardkit.parsing import grammar
from rewardkit.parsing.grammar import MAX_ANSWERS, Format, TagNames, get_format
from rewardkit.types import Bool, Forecast

Mode = Literal["strict", "lenient", "rlcr"]
Think = Literal["required", "optional", "forbidden", "ignore"]

SPECIAL_TOKENS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|return|>",
    "<end_of_turn>",
    "<eos>",
    "<pad>",
    "</s>",
    "<｜end▁of▁sentence｜>",
)
"""End and padding tokens of common models; stripped from the end of a completion however often they stand there."""

REASONS: Mapping[str, str] = {
    "truncated": "the completion was cut at the length limit",
    "think_missing": "no closing think tag",
    "think_unclosed": "a think block is opened and never closed",
    "think_repeated": "more than one opening or closing think tag",
    "think_blank": "the think block is blank",
    "think_forbidden": "a think tag where none may stand",
    "text_outside": "text outside the tags",
    "answer_missing": "an answer is missing, or does not stand where the format wants it",
    "confidence_missing": "a confidence or weight is missing, or does not stand where the format wants it",
    "analysis_missing": "the analysis is missing, or does not stand where the format wants it",
    "other_missing": "the weight of Other is missing, or does not stand where the format wants it",
    "wrapper_missing": "the tag that holds the list is missing, or does not stand where the format wants it",
    "tag_repeated": "a tag stands twice",
    "tag_unexpected": "a tag that does not belong there",
    "tag_unclosed": "a tag is not closed before the next tag of the format or the end",
    "answer_blank": "an answer is blank",
    "too_few_answers": "fewer answers than asked for",
    "too_many_answers": "more answers than asked for",
    "number_invalid": "a confidence or weight is not a plain decimal number",
    "number_out_of_range": "a confidence or weight lies outside [0, 1]",
    "weights_bad_sum": "the weights of hypotheses and Other do not sum to one",
    "weights_all_zero": "all weights are zero",
    # The reading finds those above; these two depend on which answers are equal and on the golds, so the rewards find them.
    "duplicate_answers": "two answers are equal under the matcher",
    "confidences_over_one": "confidences of answers that exclude each other sum to more than one",
}
"""Why a completion is ill-formed: the stable identifier in ``Forecast.reason``, and in a reward's, and what it means."""


class Piece(NamedTuple):
    """Where one piece of a completion stands, as indices of the Python string.

    ``text[start:stop]`` is its trimmed content, ``text[outer_start:outer_stop]`` includes the tags. ``number`` counts answers
    and confidences from 1 and is 0 elsewhere.
    """

    role: str
    number: int
    start: int
    stop: int
    outer_start: int
    outer_stop: int


def explain(reason: str) -> str:
    """A sentence for a reason of ``Forecast.reason``; "" for a well-formed completion."""
    return REASONS.get(reason, reason) if isinstance(reason, str) else str(reason)


def tags(format: str, max_answers: int | None = None, *, tags: TagNames | None = None) -> tuple[str, ...]:
    """All literal tags of a format, in order: what a tokenizer must be able to carry.

    Args:
        format: Name of a format, in any case.
        max_answers: Numbered tags are listed from 1 to this; the format's default when None.
        tags: Custom tags, see :func:`parse`.

    Raises:
        UnknownNameError: There is no such format.
        InvalidArgumentError: ``max_answers`` or ``tags`` does not fit the format.
    """
    form = get_format(format)
    count = _answers(form, max_answers)
    result: list[str] = []
    for literal in grammar.literals(form, tags):
        for number in range(1, count + 1 if literal.part.numbered else 2):
            result += literal.at(number)
    return (*result, "Final answer:", "\\boxed{") if form.name == "final" else tuple(result)


def parse(
    completions: Sequence[Any],
    format: str = "tac",
    mode: Mode = "strict",
    *,
    think: Think | None = None,
    max_answers: int | None = None,
    min_answers: int | None = None,
    on_bad_sum: Literal["fail", "renormalise"] | None = None,
    sum_tol: float = 0.02,
    tags: TagNames | None = None,
    special_tokens: Iterable[str] = SPECIAL_TOKENS,
    truncated: Sequence[bool] | Bool | None = None,
    threads: int | None = None,
) -> Forecast:
    """Reads what completions claim.

    Only what follows the last ``</think>`` is read, so that tags inside the reasoning never count. A template may have
    written ``<think>`` into the prompt: a completion that only closes it is fine, one that opens it and never closes it is
    not.

    Args:
        completions: ``[B]`` strings, or chats ``[{"role", "content"}, …]`` of which the last message counts.
        format: "ta", "tac", "tabc", "tbac", "multi", "multi_split", "multi_noanalysis", "multi_rlvr", "hypotheses" or
            "final", in any case.
        mode: "strict", for training: each tag once, in order, numbered 1..K, nothing but white space between them, and
            numbers in [0, 1]. "lenient", for evaluation: the last complete block of each tag counts, in any order, the
            analysis may be missing, confidences may be missing or written as ``85%``, ``85`` or ``17/20``, and HTML entities
            in answers are resolved. "rlcr": the reading of RLCR's released evaluation, for its outputs (formats with one
            answer; ``probs[:, 0]`` and ``has_prob[:, 0]`` hold confidence and format adherence even where no answer is).
        think: "required": a think block that is closed; "optional": none at all is fine too; "forbidden": no think tag;
            "ignore": think tags are text like any other. Default: "required" when strict (and then exactly one, not blank),
            "optional" when lenient and for "final", "ignore" for "rlcr".
        max_answers: K, at most 64; default 3 for the multi formats, 5 for hypotheses. Lenient reading keeps the first K.
        min_answers: The fewest answers that the strict reading accepts; default K for the multi formats, 1 for hypotheses.
        on_bad_sum: What happens to hypotheses whose weights do not sum to one within ``sum_tol``; default "fail" when
            strict, "renormalise" when lenient. Weights within the tolerance are divided by their sum.
        sum_tol: See there.
        tags: Custom tags by part name: another name (``{"answer": "solution"}``) or a pair of literal strings
            (``{"answer": ("<|begin|>", "<|end|>")}``, with ``{i}`` for the number where tags are numbered).
        special_tokens: Stripped from the end of each completion (those that a tag of the format ends with are not).
        truncated: ``[B]`` which completions were cut at the length limit; these are ill-formed, whatever they say.
        threads: How many threads read; default one per 4 MB of text, up to the processors at hand. The result is the same.

    Returns:
        A forecast whose answers stand in slots 0, 1, … without gaps. Confidences and weights are correctly rounded
        decimals. ``reason`` is a key of :data:`REASONS`.

    Raises:
        UnknownNameError: There is no such format.
        InvalidArgumentError: An argument has the wrong type or value. A completion's text never raises.
    """
    form, texts, options = _call(
        completions,
        format,
        mode,
        think=think,
        max_answers=max_answers,
        min_answers=min_answers,
        on_bad_sum=on_bad_sum,
        sum_tol=sum_tol,
        tags=tags,
        special_tokens=special_tokens,
        threads=threads,
    )
    forecast = Forecast(*_kernels.kernel("parse_completions")(texts, grammar.program(form, tags), **options))
    if mode == "lenient":
        _unescape_answers(forecast)
    if truncated is not None:
        _drop_truncated(forecast, truncated)
    return forecast


def spans(
    completions: Sequence[Any],
    format: str = "tac",
    mode: Mode = "strict",
    *,
    think: Think | None = None,
    max_answers: int | None = None,
    min_answers: int | None = None,
    tags: TagNames | None = None,
    special_tokens: Iterable[str] = SPECIAL_TOKENS,
    threads: int | None = None,
) -> list[list[Piece]]:
    """Where the pieces of completions stand, for marking them in a page or splicing at token level.

    Args:
        completions: As in :func:`parse`, and so are the other arguments.
        format: See there.
        mode: See there.
        think: See there.
        max_answers: See there.
        min_answers: See there.
        tags: See there.
        special_tokens: See there.
        threads: See there.

    Returns:
        ``[B]`` the pieces of each completion in the order of the text; of an ill-formed one, those before the fault.

    Raises:
        UnknownNameError: There is no such format.
        InvalidArgumentError: An argument has the wrong type or value.
    """
    form, texts, options = _call(
        completions,
        format,
        mode,
        think=think,
        max_answers=max_answers,
        min_answers=min_answers,
        on_bad_sum=None,
        sum_tol=0.02,
        tags=tags,
        special_tokens=special_tokens,
        threads=threads,
    )
    found = _kernels.kernel("parse_spans")(texts, grammar.program(form, tags), **options)
    count = options["max_answers"]
    numbers = range(1, count + 1) if form.many else (0,)
    names = [("think", 0), ("analysis", 0), ("other", 0)]
    names += [("answer", number) for number in numbers] + [("confidence", number) for number in numbers]
    return [
        sorted(
            (Piece(*names[slot], *row[slot].tolist()) for slot in np.flatnonzero(row[:, 0] >= 0)),
            key=lambda piece: piece.outer_start,
        )
        for row in found
    ]


def completion_texts(completions: Sequence[Any]) -> list[str]:
    """The text of each completion: itself, or the content of a chat's last message.

    Raises:
        InvalidArgumentError: A completion is neither a string nor a chat; the text says which.
    """
    if isinstance(completions, (str, bytes, Mapping)) or not hasattr(completions, "__len__"):
        raise InvalidArgumentError("completions", expected="a list of strings or of chats", got=completions)
    if set(map(type, completions)) <= {str}:
        return completions if isinstance(completions, list) else list(completions)
    return [_text(completion, row) for row, completion in enumerate(completions)]


def _text(completion: Any, row: int) -> str:
    if isinstance(completion, str):
        return completion
    if isinstance(completion, np.ndarray):
        completion = completion.tolist()
    if isinstance(completion, (list, tuple)) and completion and isinstance(completion[-1], Mapping):
        content = completion[-1].get("content")
        if content is None:  # a message that only calls a tool
            return ""
        if isinstance(content, str):
            return content
        if isinstance(content, (list, tuple)) and all(isinstance(part, Mapping) for part in content):
            return "".join(str(part.get("text") or "") for part in content)
    raise InvalidArgumentError(
        f"completions[{row}]", expected="a string or a chat [{'role': …, 'content': …}, …]", got=completion
    )


def _call(
    completions: Sequence[Any],
    format: str,
    mode: str,
    *,
    think: str | None,
    max_answers: int | None,
    min_answers: int | None,
    on_bad_sum: str | None,
    sum_tol: float,
    tags: TagNames | None,
    special_tokens: Iterable[str],
    threads: int | None,
) -> tuple[Format, list[str], dict[str, Any]]:
    form = get_format(format)
    _one_of("mode", mode, ("strict", "lenient", "rlcr"))
    if mode == "rlcr" and (form.many or form.name == "final"):
        raise InvalidArgumentError("mode", expected=f"'strict' or 'lenient' for format {form.name!r}", got=mode)
    if think is None:
        think = {"strict": form.think, "lenient": "optional", "rlcr": "ignore"}[mode]
    _one_of("think", think, ("required", "optional", "forbidden", "ignore"))
    if on_bad_sum is None:
        on_bad_sum = "fail" if mode == "strict" else "renormalise"
    _one_of("on_bad_sum", on_bad_sum, ("fail", "renormalise"))
    count = _answers(form, max_answers)
    fewest = (count if form.exact else 1) if min_answers is None else min_answers
    if not _is_integer(fewest) or not 1 <= fewest <= count:
        raise InvalidArgumentError("min_answers", expected=f"an integer from 1 to max_answers={count}", got=fewest)
    if not isinstance(sum_tol, (int, float)) or not 0.0 <= sum_tol < 1.0:
        raise InvalidArgumentError("sum_tol", expected="a number in [0, 1)", got=sum_tol)
    listed = isinstance(special_tokens, Iterable) and not isinstance(special_tokens, str)
    tokens = tuple(special_tokens) if listed else ("",)
    if not all(isinstance(token, str) and token for token in tokens):
        raise InvalidArgumentError("special_tokens", expected="a list of strings, none empty", got=special_tokens)
    ends = [end for literal in grammar.literals(form, tags) for end in (literal.open, literal.close)]
    if threads is not None and (not _is_integer(threads) or threads < 1):
        raise InvalidArgumentError("threads", expected="a positive integer", got=threads)
    return (
        form,
        completion_texts(completions),
        {
            "mode": mode,
            "think": think,
            "min_answers": int(fewest),
            "max_answers": count,
            "on_bad_sum": on_bad_sum,
            "sum_tol": float(sum_tol),
            "special_tokens": tuple(token for token in tokens if not any(end.endswith(token) for end in ends)),
            "threads": int(threads or 0),
        },
    )


def _answers(form: Format, max_answers: int | None) -> int:
    if max_answers is None:
        return form.default_answers
    limit = MAX_ANSWERS if form.many else 1
    if not _is_integer(max_answers) or not 1 <= max_answers <= limit:
        expected = f"an integer from 1 to {limit}" if form.many else f"1, since {form.name!r} holds one answer"
        raise InvalidArgumentError("max_answers", expected=expected, got=max_answers)
    return int(max_answers)


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _one_of(argument: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidArgumentError(argument, expected=f"one of {', '.join(map(repr, known))}", got=value)


# Bounded on purpose: html.unescape alone reads a reference of any length, and refuses more digits than Python's int limit.
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")


def _unescape_answers(forecast: Forecast) -> None:
    for answers in forecast.answers:
        for slot, answer in enumerate(answers):
            if "&" in answer:
                plain = _ENTITY.sub(lambda match: html.unescape(match[0]), answer).strip()
                answers[slot] = plain or answer  # nothing but &nbsp; is kept as it was written


def _drop_truncated(forecast: Forecast, truncated: Sequence[bool] | Bool) -> None:
    flags = np.asarray(truncated)
    if flags.shape != (len(forecast),) or (len(forecast) and flags.dtype != bool):
        raise InvalidArgumentError("truncated", expected=f"{len(forecast)} booleans, one per completion", got=truncated)
    for row in np.flatnonzero(flags):
        forecast.answers[row] = []
        forecast.reason[row] = "truncated"
        if forecast.analysis:
            forecast.analysis[row] = ""
    for array in (forecast.probs, forecast.mask, forecast.has_prob, forecast.other, forecast.wellformed):
        array[flags] = 0
