"""The formats, one object each: from it come the parser's program, the literal tags, the rendering and the prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from rewardkit.errors import InvalidArgumentError, UnknownNameError

Role = Literal["think", "answer", "confidence", "analysis", "other", "wrapper"]
TagNames = Mapping[str, "str | tuple[str, str]"]
MAX_ANSWERS = 64
"""The largest number of answers that a format can hold."""


@dataclass(frozen=True)
class Part:
    """A pair of tags: ``<name>…</name>``, or ``<name1>…</name1>`` and so on where it is numbered."""

    role: Role
    name: str
    numbered: bool = False


@dataclass(frozen=True)
class Step:
    """What comes next: one block, numbered blocks ("each") 1..n, or one half of a tag that holds other tags."""

    kind: Literal["block", "each", "enter", "leave", "final"]
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Format:
    """A completion format.

    Attributes:
        name: The name that :func:`rewardkit.parsing.parse` takes.
        steps: What follows the think block, in the order of the strict reading.
        default_answers: How many answers are asked for when the call does not say.
        exact: Whether the strict reading wants just that many answers (else at least one).
        think: What the strict reading wants of the think block when the call does not say.
    """

    name: str
    steps: tuple[Step, ...]
    default_answers: int = 1
    exact: bool = True
    think: Literal["required", "optional"] = "required"

    @property
    def parts(self) -> tuple[Part, ...]:
        """The pairs of tags, in the order of the strict reading, the think block first."""
        return tuple(dict.fromkeys((THINK, *(part for step in self.steps for part in step.parts))))

    @property
    def many(self) -> bool:
        """Whether a completion may hold more than one answer."""
        return any(part.numbered for part in self.parts)

    def has(self, role: Role) -> bool:
        """Whether the format has a tag for this role."""
        return any(part.role == role for part in self.parts)


THINK = Part("think", "think")
_ANSWER, _CONFIDENCE = Part("answer", "answer"), Part("confidence", "confidence")
_ANSWERS, _CONFIDENCES = Part("answer", "answer", True), Part("confidence", "confidence", True)
_ANALYSIS, _OTHER = Part("analysis", "analysis"), Part("other", "other")
_HYPOTHESES, _H, _W = Part("wrapper", "hypotheses"), Part("answer", "h", True), Part("confidence", "w", True)


def _block(part: Part) -> Step:
    return Step("block", (part,))


def _each(*parts: Part) -> Step:
    return Step("each", parts)


FORMATS: Mapping[str, Format] = {
    form.name: form
    for form in (
        Format("ta", (_block(_ANSWER),)),
        Format("tac", (_block(_ANSWER), _block(_CONFIDENCE))),
        Format("tabc", (_block(_ANSWER), _block(_ANALYSIS), _block(_CONFIDENCE))),
        Format("tbac", (_block(_ANALYSIS), _block(_ANSWER), _block(_CONFIDENCE))),
        Format("multi", (_each(_ANSWERS, _CONFIDENCES), _block(_ANALYSIS)), default_answers=3),
        Format("multi_split", (_each(_ANSWERS), _block(_ANALYSIS), _each(_CONFIDENCES)), default_answers=3),
        Format("multi_noanalysis", (_each(_ANSWERS, _CONFIDENCES),), default_answers=3),
        Format("multi_rlvr", (_each(_ANSWERS),), default_answers=3),
        Format(
            "hypotheses",
            (Step("enter", (_HYPOTHESES,)), _each(_H, _W), _block(_OTHER), Step("leave", (_HYPOTHESES,))),
            default_answers=5,
            exact=False,
        ),
        Format("final", (Step("final"),), think="optional"),
    )
}
"""The formats by name."""


def get_format(name: str) -> Format:
    """A format by its name, in any case.

    Raises:
        UnknownNameError: There is no such format.
    """
    found = FORMATS.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        raise UnknownNameError("format", name, FORMATS)
    return found


@dataclass(frozen=True)
class Literals:
    """The two literal strings of a part; ``{i}`` stands for the number of a numbered one."""

    part: Part
    open: str
    close: str

    def at(self, number: int) -> tuple[str, str]:
        """The opening and the closing tag with this number."""
        return self.open.replace("{i}", str(number)), self.close.replace("{i}", str(number))


def literals(form: Format, tags: TagNames | None = None) -> tuple[Literals, ...]:
    """The literal tags of a format's parts, with the caller's own names or strings put in.

    Raises:
        InvalidArgumentError: ``tags`` is no mapping, a name of it is no part of the format, or two tags cannot be told apart.
    """
    if tags is not None and not isinstance(tags, Mapping):
        raise InvalidArgumentError("tags", expected="a mapping of part names to tags", got=tags)
    try:
        return _literals(form, tuple(sorted((tags or {}).items())))
    except TypeError:  # a list where a pair of strings belongs cannot be hashed
        return _literals.__wrapped__(form, tuple((tags or {}).items()))


@lru_cache(maxsize=256)
def _literals(form: Format, tags: tuple[tuple[str, str | tuple[str, str]], ...]) -> tuple[Literals, ...]:
    custom = dict(tags)
    known = [part.name for part in form.parts]
    for name in custom:
        if name not in known:
            raise InvalidArgumentError("tags", expected=f"names out of {', '.join(known)}", got=name)
    result = tuple(_literal(part, custom.get(part.name, part.name)) for part in form.parts)
    strings = [string for literal in result for string in literal.at(1)]
    for string in strings:
        if not string.strip() or strings.count(string) > 1:
            raise InvalidArgumentError("tags", expected="literal tags that differ and are not blank", got=string)
    return result


def _literal(part: Part, tag: str | tuple[str, str]) -> Literals:
    number = "{i}" if part.numbered else ""
    pair = (
        (f"<{tag}{number}>", f"</{tag}{number}>")
        if isinstance(tag, str)
        else tuple(tag)
        if isinstance(tag, (tuple, list))
        else ()
    )
    if len(pair) != 2 or not all(isinstance(text, str) and _fits(text, part.numbered) for text in pair):
        wanted = "a name, or a pair of literal strings" + (", each with {i} for the number" if part.numbered else "")
        raise InvalidArgumentError(f"tags[{part.name!r}]", expected=wanted, got=tag)
    return Literals(part, *pair)


def _fits(text: str, numbered: bool) -> bool:
    """Whether a literal can be told from what stands around it: a text before the number, no digit right after it."""
    before, number, after = text.partition("{i}")
    return bool(before) and bool(number) == numbered and "{i}" not in after and not after[:1].isdecimal()


def program(form: Format, tags: TagNames | None = None):
    """The grammar as plain data, for the kernels; see :mod:`rewardkit.reference.parse`."""
    pairs = tuple((literal.part.role, literal.open, literal.close) for literal in literals(form, tags))
    return pairs, tuple((step.kind, tuple(part.role for part in step.parts)) for step in form.steps)
