"""Mathematical answers: the same value, whatever way it is written; judged by math-verify."""

from __future__ import annotations

import ctypes
import functools
import importlib
import math
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from rewardkit.errors import InvalidArgumentError, MissingExtraError, UnknownNameError
from rewardkit.matching.relations import JudgedRelation
from rewardkit.matching.text import MODES, Mode, exact_match
from rewardkit.types import References

Gold = Literal["parsed", "raw"]
GOLDS: tuple[Gold, ...] = ("parsed", "raw")
Result = TypeVar("Result")

MAX_CHARS = 2000
MAX_DEPTH = 24
MAX_DIGITS = 4000
"""Of any number that a text can make by powers and factorials."""


class UnboundedWorkError(ValueError):
    """A text that computer algebra could compute on for ever, or for all memory; it is not tried."""


class OutOfTimeError(RuntimeError):
    """Computer algebra took longer than its time limit."""


def math_match(
    predictions: Sequence[str],
    references: Sequence[Any],
    *,
    mode: Mode = "numeric_safe",
    gold: Gold = "parsed",
    time_limit: float = 5.0,
) -> npt.NDArray[np.float64]:
    r"""Whether each prediction has the value of one of its references; 3/24 is ``\frac{1}{8}``.

    Works in any thread and in daemonic processes: no signals, and the work is bounded (see :class:`MathRelation`). A pair that
    cannot be judged counts as 0 here; :func:`~rewardkit.matching.match` tells it from a wrong answer in ``Outcome.error``.

    Args:
        predictions: ``[N]`` texts: LaTeX, plain mathematics, or a sentence that holds some.
        references: ``[N]`` one string, or a list of aliases; the best alias counts.
        mode: How text is compared where mathematics cannot be read, see :class:`MathRelation`.
        gold: "parsed", or "raw" as in RLCR's released code.
        time_limit: Seconds for one pair.

    Returns:
        float64 ``[N]``, 1 or 0.

    Raises:
        MissingExtraError: math-verify is not installed.
        InvalidArgumentError: Lengths differ, an entry is no text, a list of aliases is empty.
    """
    exact_match(predictions, references, mode=mode)  # refuses a bad call
    rows = [(entry,) if isinstance(entry, str) else tuple(entry) for entry in references]
    relation = MathRelation(mode=mode, gold=gold, time_limit=time_limit)
    outcome = relation.credit([[p] for p in predictions], References(tuple((row,) for row in rows)), distinct=False)
    return np.any(outcome.correct, axis=1).astype(np.float64)


@dataclass(frozen=True)
class MathRelation(JudgedRelation):
    r"""Equal by math-verify: ``verify(gold, prediction)``, which is not symmetric.

    With ``gold="parsed"`` the reference is read as mathematics, as LaTeX where nothing marks it; texts that differ in white
    space only are equal, and so are plain numbers of one value; and two texts that name different things ("12 apples", "12 oranges") are not. Where a side holds
    no mathematics, the texts are compared by exact match in ``mode``.

    ``gold="raw"`` is RLCR's released code: the reference stays a string, and exact match is tried first. With
    ``mode="official"`` it reproduces that code's labels; it calls 14/3 and ``\frac{14}{3}`` different.

    A text is not computed on, and its row fails, when it is longer than 2,000 characters, nests deeper than 24, can make a
    number of over 4,000 digits (towers of powers, factorials), or holds a sum, product, integral or limit. What is left is
    stopped after ``time_limit`` seconds.
    """

    mode: Mode = "numeric_safe"
    gold: Gold = "parsed"
    time_limit: float = 5.0

    def __post_init__(self):
        if self.mode not in MODES:
            raise UnknownNameError("mode", self.mode, MODES)
        if self.gold not in GOLDS:
            raise UnknownNameError("gold", self.gold, GOLDS)
        if not self.time_limit > 0:
            raise InvalidArgumentError("time_limit", expected="seconds above 0", got=self.time_limit)
        _math_verify()

    def judge(self, prediction: str, reference: str) -> bool:
        """See :meth:`~rewardkit.matching.relations.JudgedRelation.judge`."""
        if not prediction.strip():
            return False
        if self.gold == "raw" or self.mode == "official":
            if self._same_text(prediction, reference):
                return True
        elif "".join(prediction.split()) == "".join(reference.split()) or _same_numeral(
            prediction.strip(), reference.strip()
        ):
            return True
        refuse_unbounded(prediction)
        return within(self.time_limit, functools.partial(self._verified, prediction, reference))

    def _verified(self, prediction: str, reference: str) -> bool:
        library = _math_verify()
        if self.gold == "parsed" and self.mode != "official":
            prediction, reference = _as_written_in_latex(prediction), _as_written_in_latex(reference)
        named = _parsed(_as_latex(reference)) if self.gold == "parsed" else reference
        given: Any = ()
        if self.gold == "parsed" and self.mode != "official" and _is_bare(prediction):
            # Of an answer that nothing marks as LaTeX, math-verify may read a part or nothing: of "6 - 5i" the 6.
            given = _parsed(f"${prediction.strip().rstrip('.')}$")
        given = given or _parsed(prediction)
        if not named or not given:
            return self._same_text(prediction, reference)
        if self.gold == "parsed" and _name_different_things(prediction, reference):
            return False
        if library.verify(named, given, timeout_seconds=None):
            return True
        # False is also what an error inside looks like. Asked again, it is raised.
        library.verify(named, given, timeout_seconds=None, raise_on_error=True)
        return False

    def _same_text(self, prediction: str, reference: str) -> bool:
        return bool(exact_match([prediction], [reference], mode=self.mode)[0])


# ---- math-verify ----------------------------------------------------------------------------------------------------


@functools.cache
def _math_verify() -> Any:
    try:
        library = importlib.import_module("math_verify")
    except ImportError as error:
        raise MissingExtraError("the math matcher", package="math-verify", extra="math") from error
    for module in ("parser", "grader"):  # no warning that time-outs are off: they are, on purpose
        vars(importlib.import_module(f"math_verify.{module}"))["TIMEOUT_WARNING_SHOWN"] = True
    return library


@functools.lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple[Any, ...] | list[Any]:
    return _math_verify().parse(text, parsing_timeout=None)


_MARKED = re.compile(r"\$|\\boxed|\\\(|\\\[")


def _as_latex(reference: str) -> str:
    return reference if _MARKED.search(reference) else f"${reference}$"


_ESCAPED_DOLLAR = re.compile(r"\\\$\s*")
_PLAIN_PI = re.compile(r"(?<![\\A-Za-z])pi(?![A-Za-z])")


def _as_written_in_latex(text: str) -> str:
    r"""An amount of money as its number, since ``\$`` marks no mathematics; and pi as ``\pi``."""
    return _PLAIN_PI.sub(r"\\pi", _ESCAPED_DOLLAR.sub("", text))


_NUMERAL = re.compile(r"[+-]?[0-9]{1,400}(?:\.[0-9]{0,400})?(?:[eE][+-]?[0-9]{1,3})?")
_LATEX_COMMAND = re.compile(r"\\[A-Za-z]+")
_WORD = re.compile(r"[^\W\d_]{3,}")
_NO_NAMES = frozenset(
    [
        "and",
        "the",
        "are",
        "answer",
        "for",
        "from",
        "its",
        "not",
        "that",
        "with",
        "frac",
        "dfrac",
        "tfrac",
        "sqrt",
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "log",
        "exp",
        "abs",
        "min",
        "max",
        "mod",
        "gcd",
        "lcm",
        "det",
        "arcsin",
        "arccos",
        "arctan",
        "infty",
        "inf",
        "pi",
        "theta",
        "alpha",
        "beta",
        "gamma",
        "lambda",
    ]
)


def _is_bare(prediction: str) -> bool:
    return not _MARKED.search(prediction) and not _words(prediction)


def _words(text: str) -> set[str]:
    return {word.casefold().rstrip("s") for word in _WORD.findall(_LATEX_COMMAND.sub(" ", text))} - _NO_NAMES


def _same_numeral(one: str, other: str) -> bool:
    """Plain numbers are equal when their values are; math-verify does not read 1e5."""
    return bool(_NUMERAL.fullmatch(one) and _NUMERAL.fullmatch(other)) and Decimal(one) == Decimal(other)


def _name_different_things(prediction: str, reference: str) -> bool:
    one, other = _words(prediction), _words(reference)
    return bool(one) and bool(other) and not one & other


# ---- bounds ---------------------------------------------------------------------------------------------------------

_CALCULUS = re.compile(r"\\(?:sum|prod|i*int|oint|lim)(?![A-Za-z])|\b(?:Sum|Product|Integral|Limit)\(|binom\W*\d{4}")
_PIECE = re.compile(r"(?P<number>\d+(?:\.\d*)?|\.\d+)(?:[eE](?P<exponent>[+-]?\d+))?|(?P<sign>\*\*|.)", re.DOTALL)


def refuse_unbounded(text: str) -> None:
    """Raises :class:`UnboundedWorkError` for a text that computer algebra had better not see. Linear in its length.

    Numbers are followed through brackets, powers and factorials by an upper bound of their decimal logarithm, in which a
    sum is bounded by a product and a symbol counts as nothing.
    """
    if len(text) > MAX_CHARS:
        raise UnboundedWorkError(f"{len(text)} characters of mathematics; the limit is {MAX_CHARS}")
    if _CALCULUS.search(text):
        raise UnboundedWorkError("a sum, product, integral, limit or large binomial")
    groups: list[tuple[float, list[float], bool]] = []  # of each open bracket: what stands before it
    total, powers, raising = 0.0, [0.0], False  # the closed factors, the open a^b^c, whether a power sign came last
    for piece in _PIECE.finditer(re.sub(r"(?<=\d)[,_](?=\d)", "", "".join(text.split()))):
        sign = piece["sign"]
        if sign in ("^", "**"):
            raising = True
            continue
        if sign == "!":
            powers[-1] = _bounded(powers[-1] * 10 ** min(powers[-1], 9.0))
            continue
        if sign and sign in "([{":
            groups.append((total, powers, raising))
            total, powers, raising = 0.0, [0.0], False
            if len(groups) > MAX_DEPTH:
                raise UnboundedWorkError(f"brackets nested deeper than {MAX_DEPTH}")
            continue
        if sign and sign in ")]}":
            if not groups:
                continue
            atom = _bounded(total + _raised(powers))
            total, powers, raising = groups.pop()
        elif piece["number"]:
            whole = piece["number"].partition(".")[0]
            atom = _bounded(len(whole) if len(whole) > 15 else math.log10(float(piece["number"]) + 1))
            if piece["exponent"]:
                atom = _bounded(atom + abs(float(piece["exponent"][:12])))
        else:
            atom = 0.0
        if raising:
            powers.append(atom)
        else:
            total, powers = _bounded(total + _raised(powers)), [atom]
        raising = False
    while groups:
        atom = total + _raised(powers)
        total, powers, raising = groups.pop()
        powers = [*powers, atom] if raising else [atom + _raised(powers)]
    _bounded(total + _raised(powers))


def _raised(powers: list[float]) -> float:
    size = powers[-1]
    for base in reversed(powers[:-1]):
        size = _bounded(base * 10 ** min(size, 9.0))
    return size


def _bounded(digits: float) -> float:
    if digits > MAX_DIGITS:
        raise UnboundedWorkError(f"a number of over {MAX_DIGITS} digits")
    return digits


class _OutOfTime(BaseException):
    """Sent into the computing thread; no Exception, since computer algebra catches those on its way."""


def within(seconds: float, work: Callable[[], Result]) -> Result:
    """Runs work in this thread, whichever it is, and stops it when its time is over.

    A watcher throws an exception into the thread, which arrives between two steps of Python code. (Signals would need the
    main thread, and a process would need to be allowed children.)

    Raises:
        OutOfTimeError: The time was over.
    """
    thread, lock = ctypes.c_ulong(threading.get_ident()), threading.Lock()
    finished = threading.Event()
    sent = 0

    def watch() -> None:
        nonlocal sent
        wait = seconds
        while not finished.wait(wait):
            with lock:
                if finished.is_set():
                    return
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(_OutOfTime))
                sent += 1
            wait = 1.0  # something may have swallowed it

    def settle() -> None:
        """Lets what may be on its way arrive here, and not later.

        Taking it back (with None for the exception) would leave CPython's flag up that one is pending: from then on every
        function call would look for it, and under a tracer CPython 3.11 would look for ever.
        """
        try:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(_OutOfTime))
            while True:
                pass
        except _OutOfTime:
            return

    watcher = threading.Thread(target=watch, daemon=True)
    try:
        watcher.start()
        try:
            return work()
        finally:
            with lock:
                finished.set()
            if sent:
                settle()
    except _OutOfTime:
        while True:
            try:
                with lock:
                    finished.set()
                settle()
                break
            except _OutOfTime:  # at the door of settle
                continue
        raise OutOfTimeError(f"mathematics took longer than {seconds:g} s") from None
