"""Checks of the references (golds) in the data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rewardkit import parsing
from rewardkit.matching import equivalence_classes
from rewardkit.preflight.check import Check, RowFinding, register
from rewardkit.preflight.job import Fault, Job, Rows, brief, reading
from rewardkit.rewards.text import TextReward
from rewardkit.types import Forecast

_SLOW_MATCHER_ROWS = 2_000
"""How many different references are tried with a matcher that takes milliseconds for one."""


class _ReferenceFault(Check):
    """Rows whose reference cannot be read at all, for one reason."""

    kind: str
    wrong: str
    fix: str

    def look_at(self, job: Job, rows: Rows) -> Iterator[RowFinding]:
        told: set[int] = set()
        for term in job.terms:
            golds = rows.golds(term)
            for index in rows.of(term):
                fault = golds[index]
                if isinstance(fault, Fault) and fault.kind == self.kind and index not in told:
                    told.add(index)
                    reason = f"{rows.reference_path} {self.wrong}: {fault.found}."
                    yield RowFinding(index, self.kind, "error", reason, self.fix)


@register
class MissingReference(_ReferenceFault):
    """No column, or a null in it."""

    name = "missing-reference"
    about = "a row without a reference"
    kind = "missing"
    wrong = "has no reference"
    fix = "fill the column, drop the row, or name the column (--reference; reward.reward_kwargs.reference in verl)."


@register
class EmptyReference(_ReferenceFault):
    """A reference of blanks: no completion could be right."""

    name = "empty-reference"
    about = "an empty reference, which no answer can equal"
    kind = "empty"
    wrong = "is empty"
    fix = "fill it or drop the row."


@register
class ReferenceType(_ReferenceFault):
    """A number, a mapping or another thing that is no text."""

    name = "reference-type"
    about = "a reference that is not text, a list of texts or a list of lists"
    kind = "type"
    wrong = "is not a text, a list of texts or a list of lists of texts"
    fix = "write references as text, numbers as an answer would write them."


@register
class AmbiguousGold(_ReferenceFault):
    """A flat list that could be spellings of one gold, or several golds."""

    name = "ambiguous-gold"
    about = "a flat list of golds that could be aliases of one or a set of several"
    kind = "ambiguous"
    wrong = "is a flat list that could be aliases of one gold or a set of golds"
    fix = "say gold_kind=aliases or gold_kind=set (--gold-kind; reward.reward_kwargs.gold_kind in verl)."


@register
class ReferenceScores(Check):
    """Writes each reference as a perfect completion, and asks the job's own reward whether it is right."""

    name = "reference-scores"
    about = "a reference that the reward itself does not call right"

    def __init__(self) -> None:
        self._tried: dict[int, set[Any]] = {}
        self._full: set[int] = set()

    def lacks(self, job: Job) -> str:
        """Text rewards whose golds are answers."""
        return (
            ""
            if any(_golds_are_answers(reward) for reward in job.text_rewards)
            else "no reward compares answers with text"
        )

    def look_at(self, job: Job, rows: Rows) -> Iterator[RowFinding]:
        """Tries what was not tried before."""
        for position, term in enumerate(job.terms):
            golds = rows.golds(term)
            readable = [index for index in rows.of(term) if not isinstance(golds[index], Fault)]
            for reward in Job((term,)).text_rewards:
                if _golds_are_answers(reward):
                    yield from self._try(reward, (position, reward.name), rows, golds, readable)

    def _try(
        self, reward: TextReward, key: Any, rows: Rows, golds: list[Any], readable: list[int]
    ) -> Iterator[RowFinding]:
        tried = self._tried.setdefault(hash(key), set())
        slow = callable(reward.matcher) or reward.matcher == "math"
        picked: list[tuple[int, int, str]] = []
        for index in readable:
            for number, aliases in enumerate(golds[index]):
                for alias in aliases:
                    pair = (alias, golds[index])
                    if pair not in tried and not (slow and len(tried) >= _SLOW_MATCHER_ROWS):
                        tried.add(pair)
                        picked.append((index, number, alias))
        if not picked:
            return
        template, marker = perfect_completion(reward)
        texts = [template.replace(marker, alias.strip()) for _, _, alias in picked]
        judged = reward.judge(texts, [golds[index] for index, _, _ in picked])
        right = (
            judged.forecast.wellformed & judged.outcome.correct[:, 0]
            if judged.outcome.correct.shape[1]
            else np.zeros(len(picked), bool)
        )
        for place in np.flatnonzero(~right).tolist():
            index, _, alias = picked[place]
            if not judged.forecast.wellformed[place]:
                why = parsing.explain(judged.forecast.reason[place])
                reason = f"the reference {brief(alias)}, written in format {reward.format!r}, cannot be read ({why})."
                yield RowFinding(
                    index,
                    "unreadable",
                    "error",
                    reason,
                    "clean the reference, or choose tags that it does not contain.",
                )
            else:
                error = judged.outcome.error[place]
                reason = f"the reference {brief(alias)} does not score as right under matcher {_matcher(reward)}" + (
                    f" ({error})." if error else "."
                )
                yield RowFinding(
                    index, "wrong", "error", reason, "correct the reference, or choose another matcher or match_mode."
                )


@register
class CollidingReferences(Check):
    """Golds of one row that the reward's own relation cannot tell apart: one of them can never be credited."""

    name = "colliding-references"
    about = "golds of one row that are equal under the reward's matcher"

    def lacks(self, job: Job) -> str:
        """Text rewards whose golds are answers."""
        return (
            ""
            if any(_golds_are_answers(reward) for reward in job.text_rewards)
            else "no reward compares answers with text"
        )

    def look_at(self, job: Job, rows: Rows) -> Iterator[RowFinding]:
        """Compares the golds of rows that have several."""
        for term in job.terms:
            golds: list[Any] = rows.golds(term)
            several = [i for i in rows.of(term) if not isinstance(golds[i], Fault) and len(golds[i]) > 1]
            for reward in Job((term,)).text_rewards:
                slow = callable(reward.matcher) or reward.matcher == "math"
                rows_of_it = several[:_SLOW_MATCHER_ROWS] if slow else several
                if _golds_are_answers(reward) and rows_of_it:
                    yield from self._compare(reward, golds, rows_of_it)

    def _compare(self, reward: TextReward, golds: list[Any], several: list[int]) -> Iterator[RowFinding]:
        aliases = [[alias for gold in golds[index] for alias in gold] for index in several]
        owners = [[number for number, gold in enumerate(golds[index]) for _ in gold] for index in several]
        classes = equivalence_classes(aliases, matcher=reward.matcher, mode=reward.match_mode)
        for place, index in enumerate(several):
            first: dict[int, int] = {}
            for slot, owner in enumerate(owners[place]):
                other = first.setdefault(int(classes[place, slot]), slot)
                if owners[place][other] != owner:
                    pair = f"{brief(aliases[place][other])} and {brief(aliases[place][slot])}"
                    reason = f"the golds {pair} of one row are equal under matcher {_matcher(reward)}, so one is never credited."
                    yield RowFinding(
                        index, "collide", "warning", reason, "merge them into one gold with two aliases, or drop one."
                    )
                    break


@register
class LongReference(Check):
    """References that no policy will write letter by letter, and whose likelihood is nothing but noise."""

    name = "long-reference"
    about = "a reference longer than max_reference_length tokens"

    def look_at(self, job: Job, rows: Rows) -> Iterator[RowFinding]:
        """Measures in tokens, where there is a tokenizer, else four characters count as one."""
        limit = job.max_reference_length
        told: set[int] = set()
        for term in job.terms:
            golds = rows.golds(term) if _golds_are_texts(term.reward) else []
            for index in rows.of(term) if golds else ():
                gold = golds[index]
                if isinstance(gold, Fault) or index in told:
                    continue
                # Of one gold the shortest spelling counts, since one is enough to be right.
                longest = max((min(aliases, key=len) for aliases in gold), key=len)
                length = _tokens(job.tokenizer, longest, limit)
                if length > limit:
                    told.add(index)
                    unit = "tokens" if job.tokenizer is not None else "tokens (at four characters each)"
                    yield RowFinding(
                        index,
                        "long",
                        "warning",
                        f"the reference {brief(longest, 40)} has {length} {unit}, more than {limit}.",
                        "shorten it, drop the row, or raise --max-reference-length.",
                    )


def perfect_completion(reward: Any) -> tuple[str, str]:
    """A completion in the format that a reward asks for, with full confidence in one answer, and the marker where that stands."""
    options = reading(reward)
    form = parsing.get_format(reward.format)
    count = int(options.get("min_answers") or (options.get("max_answers") or form.default_answers if form.exact else 1))
    marker = "\x1a" * 8
    probs = np.zeros((1, count))
    probs[0, 0] = 1.0
    forecast = Forecast(
        answers=[[marker, *(f"no answer {number}" for number in range(2, count + 1))]],
        probs=probs,
        mask=np.ones((1, count), dtype=bool),
        has_prob=np.ones((1, count), dtype=bool),
        other=np.zeros(1),
        wellformed=np.ones(1, dtype=bool),
        reason=[""],
        analysis=["…"],
    )
    texts = [parsing.render(forecast, reward.format, think=think, tags=options.get("tags"))[0] for think in ("…", None)]
    # Whether a think block is asked for, allowed or refused is the reading's matter: what it accepts is perfect.
    accepted = parsing.parse(texts, reward.format, getattr(reward, "mode", "strict"), **options).wellformed
    return texts[0 if accepted[0] or not accepted[1] else 1], marker


def _golds_are_answers(reward: TextReward) -> bool:
    """A matcher that runs tests, say, compares an answer with something that is no answer, and says so."""
    return bool(getattr(reward.matcher, "golds_are_answers", True))


def _golds_are_texts(reward: Any) -> bool:
    return not isinstance(reward, TextReward) or _golds_are_answers(reward)


def _matcher(reward: TextReward) -> str:
    if callable(reward.matcher):
        return getattr(reward.matcher, "__name__", type(reward.matcher).__name__)
    return f"{reward.matcher!r} ({reward.match_mode})"


def _tokens(tokenizer: Any, text: str, limit: int) -> int:
    # A token has at least one byte, so most references need not be tokenised to know that they are short.
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    if size <= limit:
        return size if tokenizer is not None else -(-size // 4)
    return len(tokenizer.encode(text, add_special_tokens=False)) if tokenizer is not None else -(-size // 4)
