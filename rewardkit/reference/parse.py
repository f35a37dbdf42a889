"""Readable twin of the parse kernels: what a completion claims, in plain Python.

A *program* is the grammar of one format as plain data, ``(tags, steps)``:

* ``tags`` holds ``(role, open, close)``, where ``{i}`` in a literal stands for the number of a numbered tag. Roles are
  "think", "answer", "confidence", "analysis", "other" and "wrapper".
* ``steps`` is the order of the strict reading: ``("block", (role,))``, ``("each", (role, …))`` for numbered blocks 1..n,
  ``("enter", (role,))`` and ``("leave", (role,))`` for the two halves of a tag that holds other tags, or the single step
  ``("final", ())``, which has no tags.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Program = tuple[tuple[tuple[str, str, str], ...], tuple[tuple[str, tuple[str, ...]], ...]]
Key = tuple[str, int]
Span = tuple[int, int]

NUMERAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
FINAL_LINE = "final answer:"
BOXED = "\\boxed{"
MARKUP = "*_#>"
MINUS = "\u2212"


def parse_completions(
    texts: Sequence[str],
    program: Program,
    *,
    mode: str,
    think: str,
    min_answers: int,
    max_answers: int,
    on_bad_sum: str,
    sum_tol: float,
    special_tokens: Sequence[str],
    threads: int = 1,
):
    """Reads completions; the result holds the fields of :class:`rewardkit.types.Forecast` in their order."""
    del threads  # the native kernel's affair: the result is the same for any count
    answers, reasons, analysis = [], [], []
    probs = np.zeros((len(texts), max_answers))
    mask, has_prob = np.zeros((2, len(texts), max_answers), dtype=bool)
    other, wellformed = np.zeros(len(texts)), np.zeros(len(texts), dtype=bool)
    for row, text in enumerate(texts):
        reading = _read(text, program, mode, think, min_answers, max_answers, on_bad_sum, sum_tol, special_tokens)
        reasons.append(reading.reason)
        wellformed[row] = not reading.reason
        answers.append([text[start:stop] for start, stop in reading.answers] if wellformed[row] else [])
        mask[row, : len(answers[-1])] = True
        if wellformed[row] or mode == "rlcr":  # the released evaluation counts a confidence even where no answer is
            for slot, prob in enumerate(reading.probs):
                has_prob[row, slot] = prob is not None
                probs[row, slot] = prob or 0.0
            other[row] = reading.other
        analysis.append(text[slice(*reading.analysis)] if wellformed[row] and reading.analysis else "")
    return answers, probs, mask, has_prob, other, wellformed, reasons, analysis


def parse_spans(
    texts: Sequence[str],
    program: Program,
    *,
    mode: str,
    think: str,
    min_answers: int,
    max_answers: int,
    on_bad_sum: str,
    sum_tol: float,
    special_tokens: Sequence[str],
    threads: int = 1,
) -> npt.NDArray[np.int64]:
    """Where the pieces stand: int64 ``[B, 3 + 2 K, 4]``.

    Pieces are the think block, the analysis, Other, then K answers, then K confidences; the four numbers are start and
    stop of the trimmed content, then start and stop with its tags, all -1 where there is none. Of an ill-formed completion,
    the pieces read before the fault.
    """
    del threads
    result = np.full((len(texts), 3 + 2 * max_answers, 4), -1, dtype=np.int64)
    for row, text in enumerate(texts):
        reading = _read(text, program, mode, think, min_answers, max_answers, on_bad_sum, sum_tol, special_tokens)
        for (role, number), outer in reading.pieces.items():
            slot = {"think": 0, "analysis": 1, "other": 2}.get(role, -1)
            slot = 2 + number if role == "answer" else 2 + max_answers + number if role == "confidence" else slot
            if slot >= 0:
                result[row, slot] = (*_trim(text, *outer[:2]), *outer[2:])
    return result


class _Ill(Exception):
    """The completion does not follow its format."""


@dataclass
class _Reading:
    reason: str = ""
    answers: list[Span] = field(default_factory=list)
    probs: list[float | None] = field(default_factory=list)
    other: float = 0.0
    analysis: Span | None = None
    pieces: dict[Key, tuple[int, int, int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Token:
    key: Key
    opens: bool
    start: int
    stop: int


def _read(text, program, mode, think, min_answers, max_answers, on_bad_sum, sum_tol, special_tokens) -> _Reading:
    tags, steps = program
    stop = _strip_special(text, special_tokens)
    tokens = _tokens(text, stop, tags)
    reading = _Reading()
    try:
        start = 0 if think == "ignore" else _cut_thinking(text, stop, tokens, think, mode, reading)
        tokens = [token for token in tokens if token.start >= start and token.key[0] != "think"]
        has_other = any(role == "other" for role, _, _ in tags)
        if steps[0][0] == "final":
            _read_final(text, start, stop, mode, reading)
        elif mode == "strict":
            _Strict(text, start, stop, tokens, reading).read(steps, min_answers, max_answers)
        else:
            _collect(text, tokens, tags, mode, max_answers, reading)
        if has_other:
            _weights(on_bad_sum, sum_tol, reading)
    except _Ill as ill:
        reading.reason = str(ill)
    return reading


def _strip_special(text: str, special_tokens: Sequence[str]) -> int:
    """Where the text ends without its trailing special tokens."""
    stop = len(text)
    while True:
        end = _trim(text, 0, stop)[1]
        for token in special_tokens:
            if token and text.endswith(token, 0, end):
                stop = end - len(token)
                break
        else:
            return stop


def _trim(text: str, start: int, stop: int) -> Span:
    while stop > start and text[stop - 1].isspace():
        stop -= 1
    while start < stop and text[start].isspace():
        start += 1
    return start, stop


def _tokens(text: str, stop: int, tags: Sequence[tuple[str, str, str]]) -> list[_Token]:
    """All tags in the text from left to right; where two literals match at one place, the longer one counts."""
    literals = sorted(
        ((literal, role, opens) for role, *pair in tags for opens, literal in zip((True, False), pair, strict=True)),
        key=lambda entry: -len(entry[0]),
    )
    number = "([1-9][0-9]{0,8})"
    pattern = "|".join("(" + number.join(map(re.escape, literal.split("{i}"))) + ")" for literal, _, _ in literals)
    groups, group = {}, 1
    for literal, role, opens in literals:
        groups[group] = role, opens, "{i}" in literal
        group += 1 + ("{i}" in literal)
    result = []
    for match in re.compile(pattern).finditer(text, 0, stop):
        group = next(group for group in groups if match[group] is not None)
        role, opens, numbered = groups[group]
        result.append(_Token((role, int(match[group + 1]) if numbered else 0), opens, match.start(), match.end()))
    return result


def _cut_thinking(text: str, stop: int, tokens: list[_Token], think: str, mode: str, reading: _Reading) -> int:
    """Checks the think block and returns where the rest begins: after the last closing tag."""
    tokens = [token for token in tokens if token.key[0] == "think"]
    closing = [token for token in tokens if not token.opens]
    opening = [token for token in tokens if token.opens]
    if think == "forbidden" and tokens:
        raise _Ill("think_forbidden")
    if opening and (not closing or opening[-1].start > closing[-1].start):
        raise _Ill("think_unclosed")
    if not closing:
        if think == "required":
            raise _Ill("think_missing")
        return 0
    begin, end = (opening[0] if opening else None), closing[-1]
    outer = begin.start if begin else 0
    inner = begin.stop if begin else 0
    if mode == "strict":
        if len(closing) > 1 or len(opening) > 1:
            raise _Ill("think_repeated")
        if begin and text[: begin.start].strip():
            raise _Ill("text_outside")
        if not text[inner : end.start].strip():
            raise _Ill("think_blank")
    reading.pieces["think", 0] = inner, end.start, outer, end.stop
    return end.stop


class _Strict:
    """Each tag once, in order, with nothing but white space between; the first fault from the left is the reason."""

    def __init__(self, text: str, start: int, stop: int, tokens: list[_Token], reading: _Reading):
        self.text, self.at, self.stop, self.tokens, self.reading = text, start, stop, tokens, reading
        self.next = 0
        self.done: set[Key] = set()

    def read(self, steps, min_answers: int, max_answers: int) -> None:
        count: int | None = None
        for kind, roles in steps:
            if kind == "block":
                self.block((roles[0], 0))
            elif kind == "enter":
                self.take(self.expect((roles[0], 0)))
            elif kind == "leave":
                token = self.peek()
                if token and not token.opens and token.key == (roles[0], 0):
                    self.take(token)
                    continue
                raise _Ill(self.unexpected(token, "tag_unclosed"))
            else:
                limit = max_answers if count is None else count
                n = self.each(roles, limit)
                if count is None:
                    if n < min_answers:
                        raise _Ill(self.unexpected(self.peek(), "answer_missing" if n == 0 else "too_few_answers"))
                    count = n
                elif n < count:
                    raise _Ill(self.unexpected(self.peek(), f"{roles[0]}_missing"))
        token = self.peek()
        if token:
            raise _Ill(self.unexpected(token, "tag_unexpected"))

    def each(self, roles, limit: int) -> int:
        n = 0
        while True:
            token = self.peek()
            if not (token and token.opens and token.key[0] == roles[0]) or token.key[1] <= n:
                return n
            if token.key[1] > limit:
                raise _Ill("too_many_answers" if roles[0] == "answer" else "tag_unexpected")
            n += 1
            for role in roles:
                self.block((role, n))

    def peek(self) -> _Token | None:
        """The next tag, if only white space stands before it."""
        token = self.tokens[self.next] if self.next < len(self.tokens) else None
        if self.text[self.at : token.start if token else self.stop].strip():
            raise _Ill("text_outside")
        return token

    def take(self, token: _Token) -> None:
        self.next += 1
        self.at = token.stop
        self.done.add(token.key)

    def expect(self, key: Key) -> _Token:
        token = self.peek()
        if token is None or not token.opens or token.key != key:
            raise _Ill(self.unexpected(token, f"{key[0]}_missing"))
        return token

    def unexpected(self, token: _Token | None, otherwise: str) -> str:
        """What is wrong when the next tag is not the one that is due; ``otherwise`` where nothing else is."""
        if token and not token.opens and token.key[0] != "wrapper":
            return "tag_unexpected"
        return "tag_repeated" if token and token.opens and token.key in self.done else otherwise

    def block(self, key: Key) -> None:
        begin = self.expect(key)
        self.take(begin)
        end = self.tokens[self.next] if self.next < len(self.tokens) else None
        if end is None or end.opens or end.key != key:
            raise _Ill("tag_unclosed")
        self.take(end)
        role, slot = key[0], max(key[1], 1)  # a tag without a number stands in the first slot
        self.reading.pieces[role, slot] = begin.stop, end.start, begin.start, end.stop
        start, stop = _trim(self.text, begin.stop, end.start)
        if role == "answer":
            if start == stop:
                raise _Ill("answer_blank")
            self.reading.answers.append((start, stop))
            self.reading.probs.append(None)
        elif role == "analysis":
            self.reading.analysis = start, stop
        else:
            value = _strict_number(self.text[start:stop])
            if role == "other":
                self.reading.other = value
            else:
                self.reading.probs[slot - 1] = value


def _collect(text: str, tokens: list[_Token], tags, mode: str, max_answers: int, reading: _Reading) -> None:
    """The last complete block of each tag counts, in any order.

    A block is an opening tag and the closing tag that directly follows it, with no tag of the format between. The released
    reading ("rlcr") is that of a lazy regular expression: from the first opening tag to the next closing one, whatever
    stands between.
    """
    blocks: dict[Key, tuple[int, int, int, int]] = {}
    opened: dict[Key, _Token] = {}
    seen: set[Key] = set()
    for token in tokens:
        key = token.key
        if token.opens:
            if key[0] == "wrapper":  # a later list replaces an earlier one as a whole
                blocks, opened, seen = {}, {}, set()
                continue
            seen.add(key)
            if mode != "rlcr":
                opened.clear()
            opened.setdefault(key, token)
        elif key in opened:
            begin = opened.pop(key)
            blocks[key] = begin.stop, token.start, begin.start, token.stop
        elif mode != "rlcr":
            opened.clear()
    read = _rlcr_number if mode == "rlcr" else _lenient_number
    numbered = any(role == "answer" and "{i}" in literal for role, literal, _ in tags)
    lost = "answer_missing"
    for number in range(1, max_answers + 1) if numbered else (0,):
        answer, confidence = blocks.get(("answer", number)), blocks.get(("confidence", number))
        prob = read(text[slice(*_trim(text, *confidence[:2]))]) if confidence else None
        start, stop = _trim(text, *answer[:2]) if answer else (0, 0)
        if start < stop:
            reading.answers.append((start, stop))
        elif lost == "answer_missing" and ("answer", number) in seen:
            lost = "answer_blank" if answer else "tag_unclosed"
        if start < stop or mode == "rlcr":
            reading.probs.append(prob)
            if answer:
                reading.pieces["answer", len(reading.probs)] = answer
            if confidence:
                reading.pieces["confidence", len(reading.probs)] = confidence
    if ("analysis", 0) in blocks:
        reading.pieces["analysis", 0] = blocks["analysis", 0]
        reading.analysis = _trim(text, *blocks["analysis", 0][:2])
    if ("other", 0) in blocks:
        reading.pieces["other", 0] = blocks["other", 0]
    if not reading.answers:
        raise _Ill(lost)
    if any(role == "other" for role, _, _ in tags):
        listed = _in_order(prob or 0.0 for prob in reading.probs)
        other = blocks.get(("other", 0))
        weight = read(text[slice(*_trim(text, *other[:2]))]) if other else None
        reading.other = max(0.0, 1.0 - listed) if weight is None else weight


def _in_order(values: Iterable[float]) -> float:
    """The sum as the kernel adds; from Python 3.12 on, the built-in one compensates for rounding."""
    total = 0.0
    for value in values:
        total += value
    return total


ROUNDING = 1e-9
"""By how much a sum may miss the tolerance: .01 + .00 + .97 is 0.98, and less than that in floats."""


def _weights(on_bad_sum: str, sum_tol: float, reading: _Reading) -> None:
    """Weights of hypotheses and Other are made to sum to one, where they nearly do or where that is asked for."""
    total = _in_order(prob or 0.0 for prob in reading.probs) + reading.other
    if total <= 0.0:
        raise _Ill("weights_all_zero")
    if abs(total - 1.0) > sum_tol + ROUNDING and on_bad_sum == "fail":
        raise _Ill("weights_bad_sum")
    reading.probs = [None if prob is None else prob / total for prob in reading.probs]
    reading.other /= total


def _strict_number(text: str) -> float:
    if not NUMERAL.fullmatch(text):
        raise _Ill("number_invalid")
    value = float(text)
    if not 0.0 <= value <= 1.0:
        raise _Ill("number_out_of_range")
    return value + 0.0  # -0.0 becomes 0.0


def _lenient_number(text: str) -> float | None:
    """The first number in the text; None if it is no probability.

    ``x %`` is x/100, ``a/b`` is a/b, and so are ``x percent`` and ``a out of b``; a bare x in (1, 100] is x/100.
    """
    match = NUMERAL.search(text)
    if not match:
        return None
    value, rest = float(match[0]), text[match.end() :]
    if text[: match.start()].endswith(MINUS):
        value = -value
    if rest[:1] in (",", "_") and rest[1:2] in tuple("0123456789") and match[0].lstrip("+-").isdigit():
        return None  # a decimal comma or grouped digits: 0,85 is not 0
    rest = rest.lstrip()
    if _begins(rest, "%", "percent"):
        return _probability(value / 100.0)
    over = _begins(rest, "/", "out of")
    if over:
        below = NUMERAL.match(rest[over:].lstrip())
        if below:
            bottom = float(below[0])
            finite = abs(value) < float("inf") and 0.0 < bottom < float("inf")
            return _probability(value / bottom) if finite else None
    return _probability(value / 100.0 if 1.0 < value <= 100.0 else value)


def _begins(text: str, *words: str) -> int:
    """The length of the word that the text begins with, in any ASCII case; 0 where it begins with none."""
    return next((len(word) for word in words if _lower(text[: len(word)]) == word), 0)


def _rlcr_number(text: str) -> float | None:
    """The released rule: in [0, 1] as it is, in (1, 100] divided by 100, signs like % ignored."""
    match = NUMERAL.search(text)
    if not match:
        return None
    value = float(match[0])
    return _probability(value / 100.0 if 1.0 < value <= 100.0 else value)


def _probability(value: float) -> float | None:
    return value + 0.0 if 0.0 <= value <= 1.0 else None


def _read_final(text: str, start: int, stop: int, mode: str, reading: _Reading) -> None:
    r"""The last line that begins with "Final answer:", or the last balanced \boxed{…}: whichever begins later."""
    line, boxed = _final_line(text, start, stop, mode), _boxed(text, start, stop)
    found = max((piece for piece in (line, boxed) if piece), key=lambda piece: piece[2], default=None)
    if found is None:
        raise _Ill("answer_missing")
    reading.pieces["answer", 1] = found
    span = _trim(text, *found[:2])
    if span[0] == span[1]:
        raise _Ill("answer_blank")
    reading.answers.append(span)
    reading.probs.append(None)


def _final_line(text: str, start: int, stop: int, mode: str) -> tuple[int, int, int, int] | None:
    found = None
    for match in re.compile(r"[^\r\n]+").finditer(text, start, stop):
        begin, end = match.span()
        while begin < end and (text[begin].isspace() or (mode != "strict" and text[begin] in MARKUP)):
            begin += 1
        head = text[begin : begin + len(FINAL_LINE)]
        same = head == "F" + FINAL_LINE[1:] if mode == "strict" else _lower(head) == FINAL_LINE
        if same and begin + len(FINAL_LINE) <= end:
            inner = begin + len(FINAL_LINE)
            while mode != "strict" and inner < end and text[inner] in MARKUP:
                inner += 1
            found = inner, end, begin, end
    return found


def _lower(text: str) -> str:
    return "".join(char.lower() if char.isascii() else char for char in text)


def _boxed(text: str, start: int, stop: int) -> tuple[int, int, int, int] | None:
    r"""From the right: the first ``\boxed{`` whose brace is closed further on. A brace behind a backslash is no brace."""
    closed: list[int] = []
    for at in range(stop - 1, start - 1, -1):
        if text[at] not in "{}" or _escaped(text, start, at):
            continue
        if text[at] == "}":
            closed.append(at)
        elif closed:
            end, begin = closed.pop(), at + 1 - len(BOXED)
            if begin >= start and text.startswith(BOXED, begin):
                return at + 1, end, begin, end + 1
    return None


def _escaped(text: str, start: int, at: int) -> bool:
    backslashes = 0
    while at - backslashes > start and text[at - backslashes - 1] == "\\":
        backslashes += 1
    return backslashes % 2 == 1
