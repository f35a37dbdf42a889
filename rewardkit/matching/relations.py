"""One relation decides "equal": for correctness, uniqueness, merging and voting alike."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from rewardkit._kernels import kernel
from rewardkit.errors import InvalidArgumentError, UnknownNameError
from rewardkit.matching.text import MODES, Mode, _split
from rewardkit.types import GoldKind, Outcome, References

Linkage = Literal["union", "leader"]
Judge = Callable[[str, str], Any]


class Relation(abc.ABC):
    """What "the same answer" means. Picklable, stateless, safe in any thread; made by :func:`relation`."""

    linkage: ClassVar[Linkage] = "union"
    """How :func:`~rewardkit.matching.equivalence_classes` joins answers unless it is told."""

    @abc.abstractmethod
    def credit(
        self,
        answers: Sequence[Sequence[str]],
        references: References | Sequence[Any],
        *,
        distinct: bool,
        gold_kind: GoldKind | None = None,
    ) -> Outcome:
        """The outcome of answers ``[B][<=K]``, see :func:`~rewardkit.matching.match`."""

    @abc.abstractmethod
    def classes(self, answers: Sequence[Sequence[str]], *, linkage: Linkage) -> npt.NDArray[np.int64]:
        """int64 ``[B, K]``, see :func:`~rewardkit.matching.equivalence_classes`."""

    def equal(self, prediction: str, reference: str) -> bool:
        """Whether one answer equals one reference."""
        outcome = self.credit([[prediction]], References((((reference,),),)), distinct=False)
        return bool(outcome.correct[0, 0])


@dataclass(frozen=True)
class TextRelation(Relation):
    """Exact match, token F1 of at least ``theta``, or fuzzy match; all native."""

    matcher: str = "exact"
    mode: Mode = "numeric_safe"
    theta: float = 0.75
    max_extra: int = 2
    yes_no: bool = False
    split_cjk: bool | None = None
    threads: int = 1

    def __post_init__(self):
        if self.mode not in MODES:
            raise UnknownNameError("mode", self.mode, MODES)
        if not 0 < self.theta <= 1:
            raise InvalidArgumentError("theta", expected="a number in (0, 1]", got=self.theta)
        if self.max_extra < 0:
            raise InvalidArgumentError("max_extra", expected="a number of tokens, 0 or more", got=self.max_extra)

    @property
    def linkage(self) -> Linkage:  # type: ignore[override]
        """Only equality is transitive; without that, chains would join what nobody calls equal."""
        return "union" if self.matcher == "exact" else "leader"

    def _options(self) -> dict[str, Any]:
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        options["split_cjk"] = _split(self.split_cjk, self.mode)
        return options

    def credit(
        self,
        answers: Sequence[Sequence[str]],
        references: References | Sequence[Any],
        *,
        distinct: bool,
        gold_kind: GoldKind | None = None,
    ) -> Outcome:
        """See :meth:`Relation.credit`; never an error."""
        if isinstance(references, References):
            golds, kind = references.golds, "nested"
        else:  # read by the kernel, by the rules of References.of
            golds, kind = references, gold_kind
        correct, found, n_golds = kernel("match_sets")(
            answers, golds, distinct=distinct, gold_kind=kind, **self._options()
        )
        return Outcome(correct, found, n_golds, [""] * len(correct))

    def classes(self, answers: Sequence[Sequence[str]], *, linkage: Linkage) -> npt.NDArray[np.int64]:
        """See :meth:`Relation.classes`."""
        return kernel("equivalence_classes")(answers, linkage=linkage, **self._options())


class JudgedRelation(Relation):
    """A relation that judges one pair at a time in Python, and may fail to."""

    @abc.abstractmethod
    def judge(self, prediction: str, reference: str) -> bool:
        """Whether the pair is equal; whatever it raises is recorded and counts as "no"."""

    def credit(
        self,
        answers: Sequence[Sequence[str]],
        references: References | Sequence[Any],
        *,
        distinct: bool,
        gold_kind: GoldKind | None = None,
    ) -> Outcome:
        """See :meth:`Relation.credit`. A row in which a pair could not be judged counts as wrong and tells its error."""
        if not isinstance(references, References):
            references = References.of(references, gold_kind=gold_kind, rows=len(answers))
        golds = references.golds
        width, height = (max(map(len, rows), default=0) for rows in (answers, golds))
        equal = np.zeros((len(answers), width, height), np.bool_)
        errors = [""] * len(answers)
        for b, row in enumerate(answers):
            for k, answer in enumerate(row):
                for m, aliases in enumerate(golds[b]):
                    equal[b, k, m], error = self._any(answer, aliases)
                    errors[b] = errors[b] or error
            if errors[b]:
                equal[b] = False
        correct, found = kernel("assign")(equal, distinct=distinct)
        return Outcome(correct, found, np.fromiter(map(len, golds), np.int64, len(golds)), errors)

    def _any(self, answer: str, aliases: Sequence[str]) -> tuple[bool, str]:
        error = ""
        for alias in aliases:
            try:
                if self.judge(answer, alias):
                    return True, ""
            except Exception as failure:  # noqa: BLE001  (a judge is anybody's code; its failure becomes the row's status)
                error = error or f"{type(failure).__name__}: {failure}"
        return False, error

    def classes(self, answers: Sequence[Sequence[str]], *, linkage: Linkage) -> npt.NDArray[np.int64]:
        """See :meth:`Relation.classes`; a pair that cannot be judged counts as different."""
        classes = np.full((len(answers), max(map(len, answers), default=0)), -1, np.int64)
        for b, row in enumerate(answers):
            for k, answer in enumerate(row):
                classes[b, k] = k
                for j in range(k):
                    known = classes[b, j] == classes[b, k] if linkage == "union" else classes[b, j] != j
                    if known or not self._any(answer, (row[j],))[0]:
                        continue
                    merged = classes[b, [j, k]]
                    classes[b, : k + 1][np.isin(classes[b, : k + 1], merged)] = merged.min()
                    if linkage == "leader":
                        break
        return classes


@dataclass(frozen=True)
class CallableRelation(JudgedRelation):
    """Any function ``(prediction, reference) -> bool | float``; a number says "equal" from ``theta`` on."""

    function: Judge
    theta: float = 0.5

    def judge(self, prediction: str, reference: str) -> bool:
        """See :meth:`JudgedRelation.judge`."""
        verdict = self.function(prediction, reference)
        if isinstance(verdict, (bool, np.bool_)):
            return bool(verdict)
        if not float(verdict) == float(verdict):
            raise ValueError(f"the matcher returned {verdict!r}")
        return float(verdict) >= self.theta


def _math(**options: Any) -> Relation:
    from rewardkit.matching.math_answers import MathRelation

    return MathRelation(**options)


def _code(*, mode: Mode, **options: Any) -> Relation:
    from rewardkit.matching.code_answers import CodeRelation

    return CodeRelation(**options)


MATCHERS: dict[str, Callable[..., Relation]] = {
    **{name: functools.partial(TextRelation, name) for name in ("exact", "token_f1", "fuzzy")},
    "math": _math,
    "code_ast": _code,
}
"""The matchers that have a name, and what makes each."""


def relation(matcher: str | Judge | Relation = "exact", *, mode: Mode = "numeric_safe", **options: Any) -> Relation:
    """The relation of a matcher, for correctness, uniqueness, merging and voting.

    Args:
        matcher: A name of :data:`MATCHERS`, any callable ``(prediction, reference) -> bool | float``, or a relation (returned
            as it is).
        mode: How text is normalised, see :func:`~rewardkit.matching.exact_match`.
        **options: Of the matcher: ``theta``, ``max_extra``, ``yes_no``, ``split_cjk``, ``threads`` (text); ``gold``,
            ``time_limit`` (math); ``strip_docstrings``, ``rename_locals`` (code_ast); ``theta`` (callables).

    Raises:
        UnknownNameError: No matcher or mode has that name.
        InvalidArgumentError: An option that the matcher does not have, or one out of range.
    """
    if isinstance(matcher, Relation):
        return matcher
    if mode not in MODES:
        raise UnknownNameError("mode", mode, MODES)
    if callable(matcher):
        return _made(CallableRelation, "callable", options, function=matcher)
    if not isinstance(matcher, str) or matcher not in MATCHERS:
        raise UnknownNameError("matcher", matcher, MATCHERS)
    return _made(MATCHERS[matcher], matcher, options, mode=mode)


def _made(make: Callable[..., Relation], name: str, options: dict[str, Any], **fixed: Any) -> Relation:
    try:
        return make(**fixed, **options)
    except TypeError as error:
        raise InvalidArgumentError(f"{name}(…)", expected="options of this matcher", got=str(error)) from error
