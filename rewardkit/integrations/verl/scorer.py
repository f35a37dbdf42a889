"""From rollouts to what verl wants of each: one number, and the same columns for every row."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rewardkit.errors import DataError
from rewardkit.integrations.verl.decoding import Decoder
from rewardkit.integrations.verl.rows import ABSENT, Row, find_column, gold_kind_of, lookup, read_reference
from rewardkit.integrations.verl.settings import Settings, Term
from rewardkit.types import FAILED, OK, UNPARSED, References, RewardBatch

logger = logging.getLogger(__name__)

_ACCURACY = ("correct", "acc")


@dataclass(frozen=True)
class Scored:
    """What verl gets for one row: the reward, and columns of plain Python floats."""

    reward: float
    columns: dict[str, float]
    status: str


class Scorer:
    """Scores batches of rollouts; stateless but for which failures it has told already, safe in any thread.

    Never raises on what a model wrote, nor on a row of data that went bad unseen: verl would swallow the exception and
    train on empty rows. Such a row has the status ``failed:<reason>`` and earns the failure reward.
    """

    def __init__(self, settings: Settings, decoder: Decoder):
        self.settings, self.decoder = settings, decoder
        self._names = settings.column_names
        self._told: set[str] = set()

    def score(self, rows: Sequence[Row]) -> list[Scored]:
        """The reward and the columns of each row; an empty response earns 0.0 and says so."""
        texts = self.decoder.texts([row.token_ids for row in rows])
        size = len(rows)
        columns = {name: np.zeros(size) for name in self._names}
        values = np.zeros(size)
        columns["truncated"][:] = [row.truncated for row in rows]
        columns["empty"][:] = [not row.token_ids for row in rows]
        statuses = ["failed:empty response" if not row.token_ids else "" for row in rows]
        judged = np.zeros(size, dtype=bool)  # whether some reward has said if the answer is right
        wellformed = np.ones(size, dtype=bool)

        for term in self.settings.terms:
            places = [place for place, row in enumerate(rows) if row.token_ids and term.applies_to(row.data_source)]
            if not places:
                continue
            result = self._score_term(term, [rows[place] for place in places], [texts[place] for place in places])
            index = np.asarray(places)
            values[index] += term.weight * result.values
            if len(self.settings.terms) > 1:
                columns[term.label][index] = result.values
            for name, component in result.components.items():
                columns[self.settings.column(term, name)][index] = component
                if name in _ACCURACY:
                    first = ~judged[index]
                    columns["acc"][index[first]] = component[first]
                    judged[index] = True
            for place, status in zip(places, result.status, strict=True):
                statuses[place] = _worse(statuses[place], status)
            parsed = np.array([status != UNPARSED for status in result.status])
            wellformed[index] &= parsed & (result.components.get("wellformed", np.ones(len(places))) > 0)

        for place, status in enumerate(statuses):
            if not status:
                statuses[place] = f"{FAILED}:no reward for data source {rows[place].data_source!r}"
        failed = np.array([status.startswith(FAILED) for status in statuses])
        unparsed = np.array([status == UNPARSED for status in statuses])
        columns["acc"] = np.where(judged | failed, columns["acc"], values)
        columns["wellformed"] = (wellformed & ~failed).astype(np.float64)
        columns["status_failed"], columns["status_unparsed"] = failed.astype(float), unparsed.astype(float)
        columns["status_ok"] = 1.0 - columns["status_failed"] - columns["status_unparsed"]
        self._tell(statuses)
        lists = [columns[name].tolist() for name in self._names]
        return [
            Scored(value, dict(zip(self._names, row, strict=True)), status)
            for value, row, status in zip(values.tolist(), zip(*lists, strict=True), statuses, strict=True)
        ]

    def failed(self, row: Row, reason: str) -> Scored:
        """What a row gets that cannot be scored at all."""
        columns = dict.fromkeys(self._names, 0.0) | {
            "status_failed": 1.0,
            "truncated": float(row.truncated),
            "empty": float(not row.token_ids),
        }
        status = f"{FAILED}:{reason}"
        self._tell([status])
        terms = self.settings.terms_for(row.data_source) if row.token_ids else []
        return Scored(float(sum(term.weight * term.reward.fail_reward for term in terms)), columns, status)

    def _score_term(self, term: Term, rows: Sequence[Row], texts: Sequence[str]) -> RewardBatch:
        """One reward of some rows; rows whose data is broken are left out of the call and fail."""
        golds: list[tuple[tuple[str, ...], ...]] = []
        extra: dict[str, list[Any]] = {name: [] for name in (*term.reward.requires, *term.reward.optional)}
        reasons = [""] * len(rows)
        good: list[int] = []
        for place, row in enumerate(rows):
            try:
                gold = read_reference(
                    lookup(row.fields, self.settings.reference),
                    path=self.settings.reference,
                    as_json=self.settings.references_are_json,
                    gold_kind=gold_kind_of(row.fields, term.gold_kind),
                )
            except DataError as error:
                reasons[place] = f"reference: {error}"
                continue
            found = {name: find_column(row.fields, name, self.settings.columns) for name in term.reward.requires}
            missing = [name for name, value in found.items() if value is ABSENT or value is None]
            if missing:
                reasons[place] = f"no column {missing[0]!r}"
                continue
            good.append(place)
            golds.append(gold)
            for name in term.reward.optional:
                value = find_column(row.fields, name, self.settings.columns)
                found[name] = None if value is ABSENT else value
            for name, value in found.items():
                extra[name].append(value)
        if len(good) == len(rows):
            return self._call(term, rows, texts, golds, extra)
        return _spread(
            self._call(term, [rows[place] for place in good], [texts[place] for place in good], golds, extra)
            if good
            else None,
            good,
            reasons,
            term,
        )

    def _call(
        self, term: Term, rows: Sequence[Row], texts: Sequence[str], golds: Sequence[Any], extra: dict[str, list[Any]]
    ) -> RewardBatch:
        columns: dict[str, Any] = dict(extra)
        if term.reward.needs_group:
            columns["group_ids"] = [str(row.fields.get("uid")) for row in rows]
        references: Any = References(tuple(golds))
        try:
            return term.reward(
                completions=list(texts),
                references=references,
                truncated=[row.truncated for row in rows],
                data_source=[row.data_source for row in rows],
                **columns,
            )
        except Exception as error:  # noqa: BLE001  (verl swallows an exception and trains on empty rows; see _tell)
            if len(rows) == 1 or term.reward.needs_group:
                reason = f"{type(error).__name__}: {error}"
                return _spread(None, [], [reason] * len(rows), term)
        # One row spoils the batch: score them one by one, so that it fails alone.
        parts = [
            self._call(term, rows[one], texts[one], golds[one], {name: column[one] for name, column in extra.items()})
            for one in (slice(place, place + 1) for place in range(len(rows)))
        ]
        return RewardBatch(
            values=np.concatenate([part.values for part in parts]),
            components={
                name: np.concatenate([part.components[name] for part in parts]) for name in term.reward.component_names
            },
            status=[part.status[0] for part in parts],
            reason=[part.reason[0] for part in parts],
        )

    def _tell(self, statuses: Sequence[str]) -> None:
        for status in statuses:
            if status.startswith(FAILED) and status not in self._told and len(self._told) < 100:
                self._told.add(status)
                logger.error("rewardkit: a rollout could not be scored: %s (told once; see status_failed)", status)


def _worse(one: str, other: str) -> str:
    rank = {OK: 1, UNPARSED: 2}
    return max(one, other, key=lambda status: rank.get(status, 3) if status else 0)


def _spread(result: RewardBatch | None, good: Sequence[int], reasons: Sequence[str], term: Term) -> RewardBatch:
    """A result for all rows, from one for the good rows and the reasons why the others failed."""
    size = len(reasons)
    values = np.full(size, float(term.reward.fail_reward))
    components = {name: np.zeros(size) for name in term.reward.component_names}
    status, reason = [f"{FAILED}:{why}" for why in reasons], list(reasons)
    if result is not None:
        index = np.asarray(good, dtype=np.int64)
        values[index] = result.values
        for name, component in result.components.items():
            components[name][index] = component
        for place, stat, why in zip(good, result.status, result.reason, strict=True):
            status[place], reason[place] = stat, why
    return RewardBatch(values=values, components=components, status=status, reason=reason)
