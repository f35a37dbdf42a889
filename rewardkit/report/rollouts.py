"""The rollouts of the report: read as arrays for the tables, and packed as compressed text for the browser."""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from rewardkit import parsing
from rewardkit.data.files import Batch, PathLike, RowFile, expand
from rewardkit.data.rollouts import USUAL_NAMES, Column, Progress, Rollouts, find_column, join_rollouts, read_rollouts
from rewardkit.evaluation import Settings, top_answer

CHUNK_ROWS = 64
"""Rollouts that are packed, and unpacked in the browser, together."""
REWARD_NAMES = ("reward", "value", "score", "rewards")
PROMPT_NAMES = ("prompt", "question", "problem", "input")
_LONGEST_COMPONENT = 200
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Source:
    """What one path of the call stands for: a file, or the files of a directory one after another.

    Attributes:
        label: How the page names it.
        files: The files.
        starts: Where each file's rows begin among all, and the number of all.
        run: Their rollouts as arrays.
    """

    label: str
    files: tuple[Path, ...]
    starts: tuple[int, ...]
    run: Rollouts

    @cached_property
    def top(self) -> tuple[Any, Any]:
        """The most confident answer of each row: confidence (NaN where none) and whether it is right."""
        return top_answer(self.run.confidence, self.run.correct, self.run.mask)

    def steps(self) -> list[tuple[float, Any]]:
        """Step number and rows, where the files are named by numbers."""
        if len(self.files) < 2 or not all(path.stem.isdigit() for path in self.files):
            return []
        spans = pairwise(self.starts)
        return [
            (float(path.stem), np.arange(start, stop)) for path, (start, stop) in zip(self.files, spans, strict=True)
        ]


@dataclass(frozen=True)
class Packed:
    """The rollouts as the page carries them.

    Attributes:
        index: What the browser filters by, of every rollout in the page; deflated JSON in base64.
        chunks: Their texts, :data:`CHUNK_ROWS` together; the same encoding.
        shown: How many rollouts.
        rewards: Per source, the reward of every row (NaN where there is none), whether or not it is in the page.
    """

    index: str
    chunks: list[str]
    shown: int
    rewards: list[Any]


def read_sources(paths: Sequence[PathLike], settings: Settings, *, progress: Progress | None = None) -> list[Source]:
    """Reads the files of a call.

    Raises:
        FileNotFoundError, DataError: A file, a column or a value is not what was expected.
    """
    result = []
    names = [Path(path).name or str(path) for path in paths]
    for path, name in zip(paths, names, strict=True):
        files = tuple(expand([path]))
        runs = [read_rollouts(file, settings.reading, by=settings.by, progress=progress) for file in files]
        starts = tuple(int(start) for start in np.cumsum([0, *map(len, runs)]))
        label = name if names.count(name) == 1 else str(path)
        result.append(Source(label, files, starts, join_rollouts(runs)))
    return result


def status_of(run: Rollouts, row: int) -> tuple[str, str]:
    """Status and reason of a row: "ok", "unparsed" or "failed", and why."""
    reason = run.reason[row]
    if reason.startswith("failed"):
        return "failed", reason.partition(":")[2].strip()
    if not run.wellformed[row]:
        return "unparsed", parsing.explain(reason) if reason else "format not followed"
    return "ok", ""


def pack(
    sources: Sequence[Source],
    groups: Sequence[Any],
    *,
    reward_column: str | None,
    budget: int,
    seed: int,
    progress: Progress | None = None,
) -> Packed:
    """Packs as many rollouts as fit into ``budget`` bytes of page."""
    group_of = [np.full(len(source.run), -1) for source in sources]
    for number, group in enumerate(groups):
        group_of[group.source][group.rows] = number
    strata = _strata(sources, group_of)
    chosen = np.ones(sum(len(source.run) for source in sources), dtype=bool)
    share = 1.0
    while True:
        packed = _Packer(sources, groups, group_of, chosen, reward_column, progress).pack(budget)
        if packed is not None:
            return packed
        share *= 0.7 if share < 1.0 else _Packer.fitting_share(sources, chosen, reward_column, budget)
        chosen = _sample(strata, share, seed)


def _strata(sources: Sequence[Source], group_of: Sequence[Any]) -> Any:
    """A number per row that tells apart what a sample must not lose: group, status with its reason, right or wrong."""
    seen: dict[tuple[Any, ...], int] = {}
    keys = (
        (int(group), *status_of(source.run, row), bool(right))
        for source, own in zip(sources, group_of, strict=True)
        for row, (group, right) in enumerate(zip(own, source.top[1], strict=True))
    )
    return np.fromiter((seen.setdefault(key, len(seen)) for key in keys), np.int64)


def _sample(strata: Any, share: float, seed: int) -> Any:
    """A share of every stratum, but at least 20 rows of each (or all that it has)."""
    order = np.random.default_rng(seed).permutation(len(strata))
    by_stratum = order[np.argsort(strata[order], kind="stable")]
    sizes = np.bincount(strata)
    rank = np.arange(len(strata)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    wanted = np.maximum(np.ceil(sizes * share), min(20.0, math.ceil(len(strata) * share / len(sizes))))
    chosen = np.zeros(len(strata), dtype=bool)
    chosen[by_stratum] = rank < np.repeat(wanted, sizes)
    return chosen


class _Packer:
    """One pass over the files that packs the chosen rows."""

    def __init__(
        self,
        sources: Sequence[Source],
        groups: Sequence[Any],
        group_of: Sequence[Any],
        chosen: Any,
        reward_column: str | None,
        progress: Progress | None,
    ):
        self.sources, self.groups, self.group_of, self.chosen = sources, groups, group_of, chosen
        self.reward_column, self.progress = reward_column, progress

    def pack(self, budget: int) -> Packed | None:
        """The packed rollouts, or ``None`` as soon as they need more than ``budget``."""
        index: dict[str, list[Any]] = {
            name: [] for name in ("row", "group", "status", "reward", "confidence", "correct")
        }
        statuses: dict[str, int] = {}
        chunks: list[str] = []
        waiting: list[dict[str, Any]] = []
        rewards = [np.full(len(source.run), math.nan) for source in self.sources]
        size, offset = 0, 0
        for number, source in enumerate(self.sources):
            confidence, correct = source.top
            for row, text in self._texts(source, self.chosen[offset : offset + len(source.run)], rewards[number]):
                status = status_of(source.run, row)[0]
                index["row"].append(row + 1)
                index["group"].append(int(self.group_of[number][row]))
                index["status"].append(statuses.setdefault(status, len(statuses)))
                index["reward"].append(_number(rewards[number][row]))
                index["confidence"].append(_number(confidence[row]))
                index["correct"].append(int(correct[row]))
                waiting.append(text)
                if len(waiting) == CHUNK_ROWS:
                    chunks.append(_deflate(waiting))
                    size += len(chunks[-1])
                    waiting = []
                    if size > budget:
                        return None
            offset += len(source.run)
        if waiting or not chunks:
            chunks.append(_deflate(waiting))
        facts = {
            "chunk": CHUNK_ROWS,
            "groups": [group.name for group in self.groups],
            "statuses": list(statuses),
            **index,
        }
        packed = Packed(_deflate(facts), chunks, len(index["row"]), rewards)
        return packed if sum(map(len, chunks)) + len(packed.index) <= budget else None

    @classmethod
    def fitting_share(cls, sources: Sequence[Source], chosen: Any, reward_column: str | None, budget: int) -> float:
        """The share of the rows that should fit, by the size of the first ones of each source."""
        packer = cls(sources, (), (), chosen, reward_column, None)
        rows = size = 0
        for source in sources:
            unused = np.full(len(source.run), math.nan)
            head = [
                text
                for text, _ in zip(
                    packer._texts(source, np.ones(len(source.run), bool), unused), range(512), strict=False
                )
            ]
            texts = [text for _, text in head]
            rows += len(texts)
            size += sum(len(_deflate(texts[at : at + CHUNK_ROWS])) for at in range(0, len(texts), CHUNK_ROWS))
        return min(0.95, 0.85 * budget / max(1.0, size / max(1, rows) * sum(len(source.run) for source in sources)))

    def _texts(self, source: Source, chosen: Any, rewards: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        """Row number and texts of the chosen rows; fills in the rewards of all rows on the way."""
        used = source.run.used
        row = 0
        for path in source.files:
            file = RowFile.open(path)
            completion = _column(used.get("completion"), file)
            reward = self._reward_column(file)
            prompt = _first_column(PROMPT_NAMES, file)
            references = _column(used.get("references"), file) or _first_column(USUAL_NAMES["references"], file)
            texts_of = {column.base for column in (completion, prompt, references) if column is not None}
            for batch in file.batches():
                if reward is not None:
                    numbers = reward.part(batch).numbers(reward.text, optional=True)
                    rewards[row : row + len(batch)] = numbers
                picked = np.flatnonzero(chosen[row : row + len(batch)]).tolist()
                if picked:
                    full = completion.part(batch).texts(completion.text) if completion else [""] * len(batch)
                    texts = [full[i] for i in picked]
                    pieces = _pieces(texts, used)
                    for i, text, marks in zip(picked, texts, pieces, strict=True):
                        yield (
                            row + i,
                            {
                                "completion": _plain(text),
                                "prompt": _shown(prompt, batch, i),
                                "reference": _shown(references, batch, i),
                                "answer": _plain(
                                    "; ".join(text[start:stop] for role, start, stop in marks if role == "answer")[:200]
                                ),
                                "spans": [[start, stop, role] for role, start, stop in marks],
                                "reason": status_of(source.run, row + i)[1],
                                "components": _components(batch, i, texts_of),
                            },
                        )
                row += len(batch)
                if self.progress is not None:
                    self.progress(row, len(source.run))

    def _reward_column(self, file: RowFile) -> Column | None:
        if self.reward_column is not None:
            return find_column(self.reward_column, str(file.path), file.columns)
        return _first_column(REWARD_NAMES, file)


def _pieces(texts: Sequence[str], used: Mapping[str, Any]) -> list[list[tuple[str, int, int]]]:
    """Role, start and stop of what the parser found in each text."""
    form = used.get("format")
    if form in (None, "stored") or not texts:
        return [[] for _ in texts]
    found = parsing.spans(list(texts), form, used.get("mode", "lenient"), max_answers=used.get("max_answers"))
    return [[(piece.role, piece.start, piece.stop) for piece in row] for row in found]


def _column(text: Any, file: RowFile) -> Column | None:
    return Column.of(text, file.columns) if isinstance(text, str) else None


def _first_column(names: Sequence[str], file: RowFile) -> Column | None:
    return next((column for column in (Column.of(name, file.columns) for name in names) if column is not None), None)


def _shown(column: Column | None, batch: Batch, i: int) -> str:
    if column is None:
        return ""
    value = column.values(batch)[i]
    if isinstance(value, list) and value and all(isinstance(part, Mapping) and "content" in part for part in value):
        return _plain("\n\n".join(f"[{part.get('role', '')}] {part['content']}" for part in value))
    return _plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))


def _components(batch: Batch, i: int, texts_of: set[str]) -> dict[str, Any]:
    """The row's other plain values: numbers, flags, short strings."""
    result = {}
    for name, values in batch.columns.items():
        value = values[i]
        if name in texts_of or value is None:
            continue
        if isinstance(value, (bool, np.bool_)):
            result[_plain(name)] = int(value)
        elif isinstance(value, (int, float, np.number)):
            result[_plain(name)] = _number(float(value))
        elif isinstance(value, str) and len(value) <= _LONGEST_COMPONENT:
            result[_plain(name)] = _plain(value)
    return result


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _plain(text: str) -> str:
    """Text that JSON and UTF-8 can carry, of the same length: a lone surrogate becomes the replacement character."""
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def _deflate(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()
