"""A barrier for rewards that need all rollouts of a prompt: verl hands them over one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rewardkit.errors import InvalidArgumentError
from rewardkit.integrations.verl.rows import Row, lookup

VALIDATION_SPLITS = ("val", "validation", "valid", "test", "eval", "dev")
"""Values of ``extra_info.split`` that mark a row of validation."""


@dataclass
class _Group:
    rows: list[Row] = field(default_factory=list)
    whole: asyncio.Event = field(default_factory=asyncio.Event)
    results: asyncio.Task[Sequence[Any]] | None = None


class GroupBarrier:
    """Holds a prompt's rollouts back until all of them have come, by ``uid``; then they are scored together."""

    def __init__(
        self,
        submit: Callable[[Sequence[Row]], Awaitable[Sequence[Any]]],
        *,
        train_size: int,
        validation_size: int,
        timeout: float,
    ):
        """Prepares a barrier for one event loop.

        Args:
            submit: Scores a whole group.
            train_size: Rollouts per prompt in training (``rollout.n``).
            validation_size: Rollouts per prompt in validation (``rollout.val_kwargs.n``).
            timeout: Seconds to wait for a prompt's last rollout.
        """
        self._submit = submit
        self.train_size, self.validation_size, self.timeout = train_size, validation_size, timeout
        self._groups: dict[str, _Group] = {}

    def size_for(self, row: Row) -> int:
        """How many rollouts a row's prompt has.

        Raises:
            InvalidArgumentError: Training and validation differ, and the row does not say which it is.
        """
        if self.train_size == self.validation_size:
            return self.train_size
        split = lookup(row.fields, "extra_info.split")
        if not isinstance(split, str):
            raise InvalidArgumentError(
                "extra_info.split",
                expected="'train' or 'test' in every row, since rollout.n and rollout.val_kwargs.n differ and verl does "
                "not say which of the two a rollout belongs to",
                got="no such column",
            )
        return self.validation_size if split.lower() in VALIDATION_SPLITS else self.train_size

    async def score(self, row: Row) -> Any:
        """Waits for the row's group, and gives the row's result.

        Raises:
            asyncio.TimeoutError: The group did not become whole in time: a sibling failed.
        """
        uid = str(row.fields.get("uid"))
        size = self.size_for(row)
        group = self._groups.setdefault(uid, _Group())
        place = len(group.rows)
        group.rows.append(row)
        if len(group.rows) >= size:
            del self._groups[uid]
            group.results = asyncio.ensure_future(_await(self._submit(group.rows)))
            group.whole.set()
        try:
            await asyncio.wait_for(group.whole.wait(), self.timeout)
        except asyncio.TimeoutError:
            if self._groups.get(uid) is group:
                del self._groups[uid]
            raise
        assert group.results is not None
        # Shielded: a caller that is cancelled must not take its siblings' results with it.
        return (await asyncio.shield(group.results))[place]


async def _await(results: Awaitable[Sequence[Any]]) -> Sequence[Any]:
    return await results
