"""TRL: every reward as a function for ``GRPOTrainer(reward_funcs=…)``.

>>> from rewardkit.integrations.trl import reward_function  # doctest: +SKIP
>>> trainer = GRPOTrainer(model, reward_funcs=reward_function("rlcr", answer_column="answer"), …)  # doctest: +SKIP

Nothing here imports TRL: the contract is a callable with a ``__name__`` that takes lists as keyword arguments and returns
one float per completion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np

from rewardkit import rewards
from rewardkit.arrays import whole
from rewardkit.errors import DataError, InvalidArgumentError, UnknownNameError
from rewardkit.rewards import Reward
from rewardkit.types import OK, GoldKind, References, RewardBatch

# What GRPOTrainer passes beside the columns of the data set, and the names that a reward's own arguments take.
_NOT_COLUMNS = frozenset({"trainer_state", "environments", "completions", "references", "gold_kind", "group_ids"})


class RewardFunction:
    """A reward in TRL's calling convention; picklable, safe in any thread, without state.

    Attributes:
        reward: The reward that scores.
        __name__: The name under which TRL logs it.
    """

    def __init__(
        self,
        reward: Reward,
        *,
        answer_column: str = "answer",
        gold_kind: GoldKind | None = None,
        columns: Mapping[str, str] | None = None,
        num_generations: int | None = None,
        missing: Literal["raise", "skip"] = "raise",
        name: str | None = None,
    ) -> None:
        _check_reward(reward)
        if not isinstance(answer_column, str) or not answer_column:
            raise InvalidArgumentError("answer_column", expected="the name of a column", got=answer_column)
        if gold_kind not in (None, "aliases", "set"):
            raise InvalidArgumentError("gold_kind", expected="'aliases', 'set' or None", got=gold_kind)
        if missing not in ("raise", "skip"):
            raise UnknownNameError("missing", missing, ("raise", "skip"))
        if num_generations is not None:
            whole("num_generations", num_generations)
        texts = [*columns, *columns.values()] if isinstance(columns, Mapping) else [columns]
        if columns is not None and not all(isinstance(text, str) and text for text in texts):
            raise InvalidArgumentError("columns", expected="{required column: column of the data set}", got=columns)
        if name is not None and (not isinstance(name, str) or not name):
            raise InvalidArgumentError("name", expected="a name for TRL's logs", got=name)
        self.reward = reward
        self.answer_column = answer_column
        self.gold_kind: GoldKind | None = gold_kind
        self.columns = dict(columns or {})
        self.num_generations = num_generations
        self.missing = missing
        self.__name__ = name if name is not None else reward.name

    def __repr__(self) -> str:
        return f"RewardFunction({self.reward!r}, answer_column={self.answer_column!r}, name={self.__name__!r})"

    def __call__(
        self,
        prompts: Sequence[Any] | None = None,
        completions: Sequence[Any] = (),
        completion_ids: Sequence[Any] | None = None,
        *,
        log_extra: Any = None,
        log_metric: Any = None,
        **columns: Any,
    ) -> list[float]:
        """Scores one batch of completions.

        Args:
            prompts: ``[B]`` prompts; rewards of a group need them to tell the groups apart.
            completions: ``[B]`` strings or chats, whose last message counts.
            completion_ids: ``[B]`` token ids, not used.
            log_extra: TRL's ``log_extra(column, values)``, where it offers one; a skipped row has None in each column.
            log_metric: TRL's ``log_metric(name, value)``, where it offers one.
            **columns: The columns of the data set, one value per completion, and whatever else the trainer passes.

        Returns:
            ``[B]`` finite floats. Only with ``missing="skip"`` is a row None: one whose answer is None, so that TRL leaves
            it to the other reward functions.

        Raises:
            InvalidArgumentError: The answer column, or a column that the reward requires, is not in the data set.
            DataError: A row has no answer.
        """
        rows = len(completions)
        if not rows:
            return []
        golds = self._golds(columns, rows)
        kept = [row for row, gold in enumerate(golds) if gold is not None]
        if len(kept) == rows:
            batch = self._score(completions, golds, prompts, columns)
            values: list[Any] = batch.values.tolist()
        else:
            if self.missing == "raise":
                row = next(row for row, gold in enumerate(golds) if gold is None)
                raise DataError("an answer", "None", column=self.answer_column, row=row)
            if not kept:
                if log_extra is not None:
                    self._log_columns(None, kept, rows, log_extra)
                return cast(list[float], [None] * rows)
            if self.reward.needs_group:
                raise DataError(
                    "an answer in every row: a reward of a group cannot skip rows", "None", column=self.answer_column
                )
            own = {key: [value[row] for row in kept] for key, value in columns.items() if _is_column(value, rows)}
            batch = self._score([completions[row] for row in kept], [golds[row] for row in kept], None, own)
            values = [None] * rows
            for row, value in zip(kept, batch.values.tolist(), strict=True):
                values[row] = value
        if log_metric is not None:
            self._log_metrics(batch, log_metric)
        if log_extra is not None:
            self._log_columns(batch, kept, rows, log_extra)
        return values

    def _score(
        self,
        completions: Sequence[Any],
        golds: Sequence[Any],
        prompts: Sequence[Any] | None,
        columns: Mapping[str, Any],
    ) -> RewardBatch:
        rows = len(completions)
        passed = {key: value for key, value in columns.items() if key not in _NOT_COLUMNS and _is_column(value, rows)}
        for wanted in self.reward.requires:
            source = self.columns.get(wanted, wanted)
            if source not in columns:
                raise InvalidArgumentError(
                    f"columns[{wanted!r}]",
                    expected=f"a column of the data set (there are: {', '.join(sorted(passed)) or 'none'}), since the "
                    f"reward {self.reward.name!r} needs it",
                    got=source,
                )
            passed[wanted] = columns[source]
        if self.reward.needs_group:
            passed["group_ids"] = self._group_ids(prompts, rows)
        return self.reward(completions=completions, references=self._references(golds, columns).golds, **passed)

    def _golds(self, columns: Mapping[str, Any], rows: int) -> list[Any]:
        if self.answer_column not in columns:
            there = ", ".join(sorted(key for key, value in columns.items() if _is_column(value, rows))) or "none"
            raise InvalidArgumentError(
                "answer_column", expected=f"a column of the data set (there are: {there})", got=self.answer_column
            )
        golds = columns[self.answer_column]
        if not _is_column(golds, rows):
            raise InvalidArgumentError(self.answer_column, expected=f"one value for each of {rows} rows", got=golds)
        return list(golds)

    def _references(self, golds: Sequence[Any], columns: Mapping[str, Any]) -> References:
        given = columns.get("gold_kind")
        use_column = self.gold_kind is None and _is_column(given, len(golds))
        kinds: Any = given if use_column else [self.gold_kind] * len(golds)
        read = []
        for row, (gold, kind) in enumerate(zip(golds, kinds, strict=True)):
            try:
                read.append(References.of([gold], gold_kind=kind).golds[0])
            except DataError as error:
                raise DataError(error.expected, error.found, row=row, column=self.answer_column) from None
            except InvalidArgumentError as error:
                name = error.argument.replace("references[0]", f"{self.answer_column}[{row}]")
                expected = error.expected.replace("references[0]", f"{self.answer_column}[{row}]")
                raise InvalidArgumentError(name, expected=expected, got=error.got) from None
        return References(tuple(read))

    def _group_ids(self, prompts: Sequence[Any] | None, rows: int) -> np.ndarray:
        """TRL repeats each prompt ``num_generations`` times in a row, so a group is a run of equal prompts."""
        if prompts is None:
            raise InvalidArgumentError(
                "prompts", expected=f"the prompts, since {self.reward.name!r} needs groups", got=None
            )
        starts = [row == 0 or prompts[row] != prompts[row - 1] for row in range(rows)]
        size = self.num_generations
        if size is None:
            return np.cumsum(starts) - 1
        if rows % size or any(start for row, start in enumerate(starts) if row % size):
            raise InvalidArgumentError(
                "num_generations",
                expected="whole groups in every call; in TRL, per_device_train_batch_size * steps_per_generation must be a "
                "multiple of num_generations",
                got=f"num_generations={size} and {rows} rows in {sum(starts)} runs of equal prompts",
            )
        return np.arange(rows) // size

    def _log_metrics(self, batch: RewardBatch, log_metric: Any) -> None:
        log_metric(f"{self.__name__}/reward", float(batch.values.mean()))
        log_metric(f"{self.__name__}/not_ok", sum(status != OK for status in batch.status) / len(batch))
        for key, values in batch.components.items():
            log_metric(f"{self.__name__}/{key}", float(np.mean(values)))

    def _log_columns(self, batch: RewardBatch | None, kept: Sequence[int], rows: int, log_extra: Any) -> None:
        """One value per completion, None where the row was skipped: TRL makes a table of all columns, which must be of one length."""
        for key in ("status", "reason", *self.reward.component_names):
            column: list[Any] = [None] * rows
            if batch is not None:
                values = getattr(batch, key) if key in ("status", "reason") else batch.components[key].tolist()
                for row, value in zip(kept, values, strict=True):
                    column[row] = value
            log_extra(f"{self.__name__}/{key}", column)


def reward_function(
    reward: str | Reward,
    *,
    answer_column: str = "answer",
    gold_kind: GoldKind | None = None,
    columns: Mapping[str, str] | None = None,
    num_generations: int | None = None,
    missing: Literal["raise", "skip"] = "raise",
    name: str | None = None,
    **params: Any,
) -> RewardFunction:
    """Makes a reward function for TRL.

    A calibration reward stays calibrated only where advantages are not divided by the group's standard deviation: set
    ``GRPOConfig(scale_rewards="none")``.

    Args:
        reward: The name of a reward, or a reward.
        answer_column: The column that holds the golds: strings, lists of strings, lists of lists, or arrays of those.
        gold_kind: How to read a flat list of golds: "aliases" (ways to write one) or "set" (distinct golds). Where it is
            None, a column ``gold_kind`` decides row by row, as the data builders write it.
        columns: Where a column that the reward requires has another name in the data set: ``{required: column}``.
        num_generations: Size of a group, for rewards that need whole groups; None takes runs of equal prompts.
        missing: What to do with a row whose answer is None: "raise", or "skip", which returns None so that TRL leaves the
            row to the other reward functions. A row that every function skips has no advantage in TRL.
        name: Name in TRL's logs; by default the reward's name and the parameters that were given, which is stable, and
            differs where the parameters or the answer column differ.
        **params: Parameters of the reward, as in :func:`rewardkit.rewards.get`.

    Raises:
        UnknownNameError: No reward has that name.
        InvalidArgumentError: A parameter is unknown or out of range.
    """
    if isinstance(reward, str):
        made = rewards.get(reward, **params)
        shown = dict(params)
    else:
        if params:
            raise InvalidArgumentError(
                "params", expected="none beside a reward that is made already", got=sorted(params)
            )
        made, shown = _check_reward(reward), {}
    if gold_kind is not None:
        shown["gold_kind"] = gold_kind
    named = "_".join([made.name, *(f"{key}={_short(value)}" for key, value in sorted(shown.items()))])
    if answer_column != "answer":
        named += f"@{answer_column}"
    return RewardFunction(
        made,
        answer_column=answer_column,
        gold_kind=gold_kind,
        columns=columns,
        num_generations=num_generations,
        missing=missing,
        name=name or named,
    )


def _check_reward(reward: Any) -> Reward:
    if not isinstance(reward, Reward):
        made = isinstance(reward, type) and issubclass(reward, Reward)
        expected = f"a reward: {reward.__name__}(…), not the class" if made else "the name of a reward, or a reward"
        raise InvalidArgumentError("reward", expected=expected, got=reward)
    return reward


def _short(value: Any) -> str:
    """A parameter in a name: a callable by its name, since its repr may hold an address that changes from run to run."""
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return str(value)


def _is_column(value: Any, rows: int) -> bool:
    return isinstance(value, (list, tuple, np.ndarray)) and len(value) == rows
