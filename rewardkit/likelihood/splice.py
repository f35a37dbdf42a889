"""Puts the reference in the place of the model's own answer, at the level of tokens, and finds the tokens to score.

The sampled tokens of the reasoning are kept as they are: decoding and encoding them again would merge what was sampled apart,
and the scored prefix would no longer be the sampled one. The cut is after ``<answer``, before ``>``: ``>`` always starts a token
(and often fuses with what follows), so that the suffix can be tokenised on its own (VeriFree's point). Scored are the tokens
that overlap the reference; what follows the last of them is dropped, since it cannot influence it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rewardkit.errors import InvalidArgumentError

_OWN_WHITESPACE = 16
"""A longer run of whitespace after the tag is not the model's style but noise, and replaced by one space."""


@dataclass(frozen=True)
class Splice:
    """A response with the reference in the place of its answer.

    Attributes:
        status: "ok", or why there is none: a key of :data:`rewardkit.likelihood.STATUSES`. Then everything else is empty.
        prefix_ids: The kept tokens of the response; the sampled ones unless :attr:`retokenized`.
        suffix_ids: What follows them, up to the last scored token.
        scored: Which of :attr:`suffix_ids` to score: ``range(first, last + 1)``.
        spills_left: The first scored token begins before the reference (a fused space, a fused ``>``).
        spills_right: The last scored token ends behind the reference.
        retokenized: ``<answer`` did not end where a token ends, so that the tag was tokenised again.
    """

    status: str
    prefix_ids: list[int] = field(default_factory=list)
    suffix_ids: list[int] = field(default_factory=list)
    scored: range = range(0)
    spills_left: bool = False
    spills_right: bool = False
    retokenized: bool = False

    @property
    def ok(self) -> bool:
        """Whether there is something to score."""
        return self.status == "ok"

    @property
    def ids(self) -> list[int]:
        """The whole spliced response."""
        return [*self.prefix_ids, *self.suffix_ids]

    @property
    def span(self) -> range:
        """Which tokens of :attr:`ids` are scored."""
        start = len(self.prefix_ids)
        return range(start + self.scored.start, start + self.scored.stop)


@dataclass
class SpliceCounts:
    """How often what happened, for logs: a fused boundary is no error, but it should be seen."""

    total: int = 0
    spills_left: int = 0
    spills_right: int = 0
    retokenized: int = 0
    statuses: dict[str, int] = field(default_factory=dict)

    def add(self, splice: Splice) -> None:
        """Takes one splice into the counts."""
        self.total += 1
        self.spills_left += splice.spills_left
        self.spills_right += splice.spills_right
        self.retokenized += splice.retokenized
        self.statuses[splice.status] = self.statuses.get(splice.status, 0) + 1


@dataclass(frozen=True)
class AnswerSpan:
    """Where the model's own answer stands in its tokens.

    Attributes:
        status: "ok", or a key of :data:`rewardkit.likelihood.STATUSES`.
        span: The tokens that overlap the answer's characters, whitespace at its ends left out.
        text: The answer.
    """

    status: str
    span: range = range(0)
    text: str = ""

    @property
    def ok(self) -> bool:
        """Whether there is an answer."""
        return self.status == "ok"


def splice_reference(
    response_ids: Sequence[int],
    tokenizer: Any,
    reference: str,
    *,
    tag: str = "answer",
    max_reference_tokens: int = 1024,
    score_tags: bool = False,
    counts: SpliceCounts | None = None,
) -> Splice:
    r"""Replaces the answer of a sampled response by the reference.

    Args:
        response_ids: The sampled tokens, without padding.
        tokenizer: The policy's tokenizer, as transformers gives it (a fast one, for offsets).
        reference: The answer whose likelihood is asked for. Whitespace at its ends is stripped.
        tag: Name of the answer's tag. Only what follows the last ``</think>`` counts.
        max_reference_tokens: A longer reference is refused ("reference_too_long"), not cut.
        score_tags: Score the closing tag and the opening tag's ``>`` too, as the released VeriFree and NOVER do.
        counts: Takes this splice in.

    Returns:
        A splice, whose status says whether it is one. Never raises on what a model wrote.

    Raises:
        InvalidArgumentError: ``reference`` is no string, or the tokenizer gives no offsets.

    Example:
        ``<think>…</think><answer>\nLyon</answer>`` with the reference ``Paris``: kept are the tokens up to ``<answer``; the
        suffix is ``>\nParis``, of which ``Paris`` is scored.
    """
    if not isinstance(reference, str):
        raise InvalidArgumentError("reference", expected="a string", got=reference)
    splice = _splice(
        [int(i) for i in response_ids], tokenizer, reference.strip(), tag, max_reference_tokens, score_tags
    )
    if counts is not None:
        counts.add(splice)
    return splice


def _splice(
    ids: list[int], tokenizer: Any, reference: str, tag: str, max_reference_tokens: int, score_tags: bool
) -> Splice:
    if not reference:
        return Splice("empty_reference")
    if not _is_unicode(reference):
        return Splice("reference_not_unicode")
    if not ids:
        return Splice("empty_response")
    sampled = _Decoded(ids, tokenizer)
    opening, status = _opening_tag(sampled.text, tag)
    if opening < 0:
        return Splice(status)
    name_end, tag_end = opening + len(tag) + 1, opening + len(tag) + 2
    whitespace = _whitespace_after(sampled.text, tag_end)
    cut, reached = sampled.boundary(tag_end)
    if reached == tag_end and sampled.starts_at(cut - 1) <= opening:
        literal = ""  # the whole tag is one token of the vocabulary, and fuses with nothing
    else:
        cut, reached = sampled.boundary(name_end)
        literal = sampled.text[reached:tag_end]
    closing = f"</{tag}>"
    head = literal + whitespace
    suffix = f"{head}{reference} {closing}"
    encoded = _encode_after(tokenizer, ids[:cut], sampled.text[:reached], suffix)
    if encoded is None:
        return Splice("no_span")
    suffix_ids, offsets = encoded
    first, last = len(head), len(head) + len(reference)
    if score_tags:
        scored = range(len(suffix_ids))
    else:
        touched = [i for i, (start, end) in enumerate(offsets) if start < last and end > first and end > start]
        if not touched:
            return Splice("no_span")
        scored = range(touched[0], touched[-1] + 1)
    if len(scored) > max_reference_tokens:
        return Splice("reference_too_long")
    suffix_ids = suffix_ids[: scored.stop]
    control = _control_tokens(tokenizer)
    if any(suffix_ids[i] in control for i in scored if not score_tags):
        return Splice("special_token_in_reference")
    return Splice(
        "ok",
        prefix_ids=ids[:cut],
        suffix_ids=suffix_ids,
        scored=scored,
        spills_left=offsets[scored.start][0] < first and not score_tags,
        spills_right=offsets[scored.stop - 1][1] > last and not score_tags,
        retokenized=bool(literal) and literal != ">",
    )


def _is_unicode(text: str) -> bool:
    """Whether a text can be written in UTF-8: JSON can spell half of a surrogate pair, which cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def answer_span(response_ids: Sequence[int], tokenizer: Any, *, tag: str = "answer") -> AnswerSpan:
    """The tokens of the model's own answer: those that overlap what stands between the tags, whitespace stripped.

    Args:
        response_ids: The sampled tokens, without padding.
        tokenizer: The policy's tokenizer.
        tag: Name of the answer's tag.

    Returns:
        The span, or a status that says why there is none. Never raises on what a model wrote.
    """
    ids = [int(i) for i in response_ids]
    if not ids:
        return AnswerSpan("empty_response")
    sampled = _Decoded(ids, tokenizer)
    opening, status = _opening_tag(sampled.text, tag)
    if opening < 0:
        return AnswerSpan(status)
    start = opening + len(tag) + 2
    end = sampled.text.find(f"</{tag}>", start)
    if end < 0:
        return AnswerSpan("answer_not_closed")
    raw = sampled.text[start:end]
    text = raw.strip()
    if not text:
        return AnswerSpan("empty_answer")
    start += len(raw) - len(raw.lstrip())
    first, _ = sampled.boundary(start)
    last, _ = sampled.boundary_after(start + len(text))
    return AnswerSpan("ok", range(first, last), text)


def reasoning_tokens(response_ids: Sequence[int], tokenizer: Any, *, tag: str = "answer") -> int:
    """How many tokens stand before the answer's tag: all of them where there is none."""
    ids = [int(i) for i in response_ids]
    if not ids:
        return 0
    sampled = _Decoded(ids, tokenizer)
    opening = sampled.text.rfind(f"<{tag}>")
    return sampled.boundary(opening)[0] if opening >= 0 else len(ids)


def _opening_tag(text: str, tag: str) -> tuple[int, str]:
    """Where the one ``<answer>`` after the last ``</think>`` stands; -1 and the reason where there is none."""
    start = text.rfind("</think>")
    if start < 0 and "<think>" in text:
        return -1, "think_not_closed"
    start = start + len("</think>") if start >= 0 else 0
    literal = f"<{tag}>"
    opening = text.find(literal, start)
    if opening < 0:
        return -1, "no_answer"
    if text.find(literal, opening + 1) >= 0:
        return -1, "repeated_answer"
    return opening, "ok"


def _whitespace_after(text: str, start: int) -> str:
    end = start
    while end < len(text) and end - start <= _OWN_WHITESPACE and text[end].isspace():
        end += 1
    return text[start:end] if 0 < end - start <= _OWN_WHITESPACE else " "


class _Decoded:
    """Tokens, their text, and which token ends where. Prefixes are decoded, since one token alone may be half a character."""

    def __init__(self, ids: list[int], tokenizer: Any):
        self.ids, self._tokenizer = ids, tokenizer
        self._texts: dict[int, str] = {}
        self.text = self._prefix(len(ids))

    def _prefix(self, count: int) -> str:
        if count not in self._texts:
            self._texts[count] = self._tokenizer.decode(
                self.ids[:count], skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        return self._texts[count]

    def boundary(self, position: int) -> tuple[int, int]:
        """The last token boundary at or before a character: how many tokens, and where it lies in the text."""
        low, high = 0, len(self.ids)
        while low < high:
            middle = (low + high + 1) // 2
            if len(self._prefix(middle)) <= position:
                low = middle
            else:
                high = middle - 1
        while low and not self.text.startswith(self._prefix(low)):  # it ends inside a character
            low -= 1
        return low, len(self._prefix(low))

    def boundary_after(self, position: int) -> tuple[int, int]:
        """The first token boundary at or behind a character."""
        count, reached = self.boundary(position)
        while reached < position and count < len(self.ids):
            count += 1
            reached = len(self._prefix(count)) if self.text.startswith(self._prefix(count)) else reached
        return count, reached

    def starts_at(self, token: int) -> int:
        """Where a token begins in the text."""
        return len(self._prefix(max(token, 0)))


def _encode_after(
    tokenizer: Any, kept: Sequence[int], kept_text: str, suffix: str
) -> tuple[list[int], list[tuple[int, int]]] | None:
    """The tokens of ``suffix`` as a continuation of ``kept``, with the characters that each covers.

    Tokenised alone. Some vocabularies (SentencePiece) put a space before whatever starts a text; then the continuation does not
    decode to what it should, and the suffix is tokenised behind the end of the kept text instead.
    """
    ids, offsets = _encode(tokenizer, suffix)
    if _continues(tokenizer, kept, ids, suffix):
        return ids, offsets
    for width in (1, 4, 16):
        anchor = kept_text[-width:]
        joint, joint_offsets = _encode(tokenizer, anchor + suffix)
        split = next((i for i, (start, _) in enumerate(joint_offsets) if start >= len(anchor)), None)
        if split is None or joint_offsets[split][0] != len(anchor):
            continue
        ids = joint[split:]
        if _continues(tokenizer, kept, ids, suffix):
            return ids, [(start - len(anchor), end - len(anchor)) for start, end in joint_offsets[split:]]
    return None


def _continues(tokenizer: Any, kept: Sequence[int], ids: Sequence[int], suffix: str) -> bool:
    options = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
    tail = list(kept[-8:])
    before = tokenizer.decode(tail, **options) if tail else ""
    return tokenizer.decode([*tail, *ids], **options) == before + suffix


def _encode(tokenizer: Any, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    try:
        encoded = tokenizer(text, add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True)
    except (NotImplementedError, TypeError) as error:
        raise InvalidArgumentError(
            "tokenizer", expected="a fast tokenizer of transformers, which gives offsets", got=type(tokenizer).__name__
        ) from error
    return list(encoded["input_ids"]), [tuple(pair) for pair in encoded["offset_mapping"]]


def _control_tokens(tokenizer: Any) -> set[int]:
    return set(getattr(tokenizer, "all_special_ids", None) or ())
