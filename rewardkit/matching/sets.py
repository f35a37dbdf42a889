"""Sets of answers: which are credited, which golds are found, which answers are the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rewardkit._kernels import kernel
from rewardkit.errors import InvalidArgumentError, UnknownNameError
from rewardkit.matching.relations import Judge, Linkage, Relation, relation
from rewardkit.matching.text import Mode
from rewardkit.types import Forecast, GoldKind, Outcome, References

Credit = Literal["distinct", "independent"]
CREDITS: tuple[Credit, ...] = ("distinct", "independent")
LINKAGES: tuple[Linkage, ...] = ("union", "leader")


def match(
    forecast: Forecast | Sequence[Sequence[str]],
    references: References | Sequence[Any],
    *,
    matcher: str | Judge | Relation = "exact",
    mode: Mode = "numeric_safe",
    credit: Credit = "distinct",
    gold_kind: GoldKind | None = None,
    **options: Any,
) -> Outcome:
    """What turned out true of each forecast.

    Args:
        forecast: A forecast, or its answers ``[B][<=K]``.
        references: ``[B]`` golds, as :meth:`rewardkit.types.References.of` takes them.
        matcher: A name, any callable ``(prediction, reference) -> bool | float``, or a relation; see
            :func:`~rewardkit.matching.relation`.
        mode: How text is normalised.
        credit: "distinct": each gold credits one answer, by a maximum bipartite matching, earlier answers first; so two
            ways to write one gold credit once. "independent": an answer is credited if it equals any gold.
        gold_kind: How to read a flat list of references: "aliases" of one gold, or a "set" of golds.
        **options: Of the matcher.

    Returns:
        The outcome. A row that a callable could not judge counts as wrong and has its ``error`` set.

    Raises:
        InvalidArgumentError, UnknownNameError, DataError: A bad call, or an empty reference.
    """
    if credit not in CREDITS:
        raise UnknownNameError("credit", credit, CREDITS)
    answers = forecast.answers if isinstance(forecast, Forecast) else forecast
    if gold_kind not in (None, "aliases", "set"):
        raise InvalidArgumentError("gold_kind", expected="'aliases' or 'set'", got=gold_kind)
    if isinstance(references, References) and len(references) != len(answers):
        raise InvalidArgumentError(
            "references", expected=f"{len(answers)} entries, one per completion", got=f"{len(references)} entries"
        )
    judge = relation(matcher, mode=mode, **options)
    outcome = judge.credit(answers, references, distinct=credit == "distinct", gold_kind=gold_kind)
    if isinstance(forecast, Forecast) and outcome.correct.shape[1] < forecast.mask.shape[1]:
        correct = np.zeros(forecast.mask.shape, np.bool_)
        correct[:, : outcome.correct.shape[1]] = outcome.correct
        outcome = dataclasses.replace(outcome, correct=correct)
    return outcome


def equivalence_classes(
    answers: Sequence[Sequence[str]],
    *,
    matcher: str | Judge | Relation = "exact",
    mode: Mode = "numeric_safe",
    linkage: Linkage | None = None,
    **options: Any,
) -> npt.NDArray[np.int64]:
    """Which answers of a row are the same.

    Args:
        answers: ``[B][<=K]``.
        matcher: As in :func:`match`.
        mode: How text is normalised.
        linkage: "union" joins whatever a chain of equal answers connects. "leader" puts an answer into the first class whose
            first member it equals, so that a relation that is not transitive makes no chains. ``None``: the relation's own
            (leader for fuzzy and token F1, union for the others).
        **options: Of the matcher.

    Returns:
        int64 ``[B, K]``: the class of each answer, named by the index of its first member; -1 where there is no answer.
    """
    judge = relation(matcher, mode=mode, **options)
    if linkage is None:
        linkage = judge.linkage
    if linkage not in LINKAGES:
        raise UnknownNameError("linkage", linkage, LINKAGES)
    return judge.classes(answers, linkage=linkage)


def assign(
    equal: npt.NDArray[np.bool_], *, credit: Credit = "distinct"
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Credit from a relation that is known already.

    Args:
        equal: bool ``[B, K, M]``, whether answer k equals gold m; False where either is absent.
        credit: As in :func:`match`.

    Returns:
        bool ``[B, K]`` credited answers, bool ``[B, M]`` found golds. With "distinct" their number is the largest possible;
        among such assignments earlier answers are credited and earlier golds found.
    """
    if credit not in CREDITS:
        raise UnknownNameError("credit", credit, CREDITS)
    return kernel("assign")(equal, distinct=credit == "distinct")
