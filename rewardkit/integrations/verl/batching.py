"""Calls that arrive together become one batch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class MicroBatcher(Generic[Item, Result]):
    """Collects the items of concurrent calls on one event loop and hands them to a function in a thread.

    A batch starts when a turn of the event loop has brought no further item, or when it is full; what arrives while it runs
    forms the next one. So a lone call waits for nothing, and batches grow exactly when there is a crowd.
    """

    def __init__(self, run: Callable[[Sequence[Item]], Sequence[Result]], *, executor: Executor, max_size: int):
        """Prepares a batcher; it belongs to the event loop that first calls :meth:`submit`.

        Args:
            run: Maps a batch to as many results, in order; called in the executor, one batch at a time.
            executor: Where ``run`` is called; it must not block the event loop.
            max_size: The most items of a batch; a call with more than that is not split.
        """
        self._run, self._executor, self._max_size = run, executor, max_size
        self._waiting: deque[tuple[Sequence[Item], asyncio.Future[Sequence[Result]]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def submit(self, items: Sequence[Item]) -> Sequence[Result]:
        """Queues items that belong together; they are never split over batches."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sequence[Result]] = loop.create_future()
        self._waiting.append((items, future))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._drain())
        return await future

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            await self._until_quiet()
            calls, size = [], 0
            while self._waiting and (not calls or size + len(self._waiting[0][0]) <= self._max_size):
                calls.append(self._waiting.popleft())
                size += len(calls[-1][0])
            batch = [item for items, _ in calls for item in items]
            try:
                results = await loop.run_in_executor(self._executor, self._run, batch)
                if len(results) != len(batch):
                    raise RuntimeError(f"{len(batch)} rows gave {len(results)} results")
            except Exception as error:  # noqa: BLE001  (each waiting call must hear of it, whatever it is)
                for _, future in calls:
                    if not future.done():
                        future.set_exception(error)
                continue
            start = 0
            for items, future in calls:
                if not future.done():
                    future.set_result(results[start : start + len(items)])
                start += len(items)

    async def _until_quiet(self) -> None:
        seen = 0
        while len(self._waiting) > seen and sum(len(items) for items, _ in self._waiting) < self._max_size:
            seen = len(self._waiting)
            await asyncio.sleep(0)
