"""What a job says about its rewards, in one place of verl's config: ``reward.reward_kwargs``.

That is where verl's own managers keep their parameters. ``docs/verl.md`` explains every key to users.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rewardkit import rewards
from rewardkit.arrays import whole
from rewardkit.errors import InvalidArgumentError, UnknownNameError
from rewardkit.rewards import Reward, reserved
from rewardkit.shaping import check_number
from rewardkit.types import GoldKind

PLACE = "reward.reward_kwargs"

# A column of ours must not overwrite one of verl's: its dumps would count "reward" or "score" twice, and the rest are fields of
# its batches.
RESERVED = reserved.VERL

COMMON = reserved.MANAGER
"""The columns that every row has, whatever the rewards."""


@dataclass(frozen=True)
class Term:
    """One reward of a job, and the rows that it speaks about.

    Attributes:
        label: Names its columns; the reward's name unless given.
        reward: The reward itself.
        weight: Its factor in the sum that the trainer gets.
        data_sources: The data sources that it applies to; empty for all.
        gold_kind: How a flat list of references is read, see :meth:`rewardkit.types.References.of`; where it is None, each
            row says it in ``extra_info.gold_kind`` or ``gold_kind``.
    """

    label: str
    reward: Reward
    weight: float = 1.0
    data_sources: frozenset[str] = frozenset()
    gold_kind: GoldKind | None = None

    def applies_to(self, data_source: str) -> bool:
        """Whether a row of that source earns this reward."""
        return not self.data_sources or data_source in self.data_sources


@dataclass(frozen=True)
class Settings:
    """All keys of ``reward.reward_kwargs``.

    Attributes:
        terms: The rewards; a row's reward is the weighted sum of those that apply to its data source.
        reference: Dotted path of the reference in a row.
        references_are_json: Whether references are JSON text.
        columns: Where further columns of a reward stand in a row, by dotted path.
        max_batch: The most rows scored in one call.
        group_timeout: Seconds that a reward of whole groups waits for the last rollout of a prompt.
        check_data: Whether all references are read and checked at start, and the preflight is run.
        skip_checks: Names of the preflight's checks not to run.
    """

    terms: tuple[Term, ...]
    reference: str = "reward_model.ground_truth"
    references_are_json: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    max_batch: int = 1024
    group_timeout: float = 600.0
    check_data: bool = True
    skip_checks: Sequence[str] = ()

    @property
    def needs_group(self) -> bool:
        """Whether some reward needs all rollouts of a prompt at once."""
        return any(term.reward.needs_group for term in self.terms)

    def terms_for(self, data_source: str) -> list[Term]:
        """The rewards of a row, by its data source."""
        return [term for term in self.terms if term.applies_to(data_source)]

    def column(self, term: Term, component: str) -> str:
        """The name under which a component of a reward is logged."""
        bare = "acc" if component == "correct" else component
        ours = bare in COMMON and bare not in ("acc", "wellformed")  # what the manager itself says of a row
        if len(self.terms) == 1 and bare not in RESERVED and not ours:
            return bare
        return f"{term.label}_{bare}"

    @property
    def column_names(self) -> tuple[str, ...]:
        """Every column of ``reward_extra_info``, in order: the same for every row of the job."""
        return tuple(dict.fromkeys([*COMMON, *(name for term in self.terms for name in self._own_columns(term))]))

    def _own_columns(self, term: Term) -> list[str]:
        """The columns that a reward writes: its value where there are several, and its components."""
        value = [term.label] if len(self.terms) > 1 else []
        return value + [self.column(term, component) for component in term.reward.component_names]

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Settings:
        """Reads ``reward.reward_kwargs`` as plain mappings and lists.

        Raises:
            InvalidArgumentError: A key or a value that is not understood, with its full path in the config.
            UnknownNameError: A reward that does not exist.
        """
        if not isinstance(raw, Mapping):
            raise InvalidArgumentError(PLACE, expected="a mapping {reward: NAME, …}", got=raw)
        raw = dict(raw)
        single = {key: raw.pop(key) for key in ("reward", "params", "gold_kind") if key in raw}
        several = raw.pop("rewards", None)
        if (several is None) == ("reward" not in single):
            raise InvalidArgumentError(
                PLACE,
                expected="either reward=NAME (with params={…}), or rewards=[{reward: NAME, …}, …]; known rewards: "
                + ", ".join(rewards.available()),
                got=", ".join([*single, *raw, *(["rewards"] if several is not None else [])]) or "nothing",
            )
        if several is not None and "params" in single:
            raise InvalidArgumentError(
                f"{PLACE}.params", expected="params inside each entry of rewards", got=single["params"]
            )
        known = {entry.name for entry in dataclasses.fields(cls)} - {"terms"}
        for key in raw:
            if key not in known:
                raise InvalidArgumentError(
                    f"{PLACE}.{key}",
                    expected=f"one of reward, params, gold_kind, rewards, {', '.join(sorted(known))}",
                    got=key,
                )
        if several is None:
            terms = (_term(single, PLACE, {}),)
        else:
            if isinstance(several, (str, Mapping)) or not isinstance(several, Sequence) or not several:
                raise InvalidArgumentError(f"{PLACE}.rewards", expected="a list of {reward: NAME, …}", got=several)
            terms = tuple(_term(entry, f"{PLACE}.rewards[{place}]", single) for place, entry in enumerate(several))
        settings = cls(terms=terms, **raw)
        settings._check()
        return settings

    def _check(self) -> None:
        labels = [term.label for term in self.terms]
        for label in labels:
            if labels.count(label) > 1:
                raise InvalidArgumentError(
                    f"{PLACE}.rewards", expected="a different label=… for each use of a reward", got=f"{label!r} twice"
                )
            if len(labels) > 1 and (label in RESERVED or label in COMMON or not label.isidentifier()):
                raise InvalidArgumentError(
                    f"{PLACE}.rewards", expected="a label that is an identifier and no name of verl's", got=label
                )
        owners: dict[str, str] = {}
        for term in self.terms:
            for name in self._own_columns(term):
                if name in owners:
                    raise InvalidArgumentError(
                        f"{PLACE}.rewards",
                        expected=f"other labels or names of parts: {owners[name]} and {term.label} both write the column {name}",
                        got=term.label,
                    )
                owners[name] = term.label
        whole(f"{PLACE}.max_batch", self.max_batch)
        check_number(f"{PLACE}.group_timeout", self.group_timeout, low=0.0)
        for key in ("references_are_json", "check_data"):
            if not isinstance(getattr(self, key), bool):
                raise InvalidArgumentError(f"{PLACE}.{key}", expected="true or false", got=getattr(self, key))
        names = self.skip_checks
        if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(one, str) for one in names):
            raise InvalidArgumentError(f"{PLACE}.skip_checks", expected="a list of names", got=self.skip_checks)
        if not isinstance(self.reference, str) or not self.reference:
            raise InvalidArgumentError(f"{PLACE}.reference", expected="a dotted path in a row", got=self.reference)
        texts = [*self.columns, *self.columns.values()] if isinstance(self.columns, Mapping) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise InvalidArgumentError(f"{PLACE}.columns", expected="{column: dotted path in a row}", got=self.columns)


def _term(entry: Any, path: str, shared: Mapping[str, Any]) -> Term:
    if not isinstance(entry, Mapping):
        raise InvalidArgumentError(path, expected="a mapping {reward: NAME, …}", got=entry)
    known = ("reward", "params", "weight", "data_source", "label", "gold_kind")
    for key in entry:
        if key not in known:
            raise InvalidArgumentError(f"{path}.{key}", expected=f"one of {', '.join(known)}", got=key)
    name, params = entry.get("reward"), entry.get("params")
    params = {} if params is None else params
    if not isinstance(name, str):
        raise InvalidArgumentError(f"{path}.reward", expected=f"one of {', '.join(rewards.available())}", got=name)
    if not isinstance(params, Mapping) or not all(isinstance(key, str) for key in params):
        raise InvalidArgumentError(f"{path}.params", expected="a mapping of the reward's parameters", got=params)
    if name not in rewards.available():
        raise UnknownNameError("reward", name, rewards.available(), where=f"{path}.reward")
    try:
        reward = rewards.get(name, **params)
    except UnknownNameError as error:
        raise UnknownNameError(error.kind, error.name, error.known, where=f"{path}.params") from error
    except (InvalidArgumentError, TypeError) as error:
        expected = error.expected if isinstance(error, InvalidArgumentError) else str(error)
        got = error.got if isinstance(error, InvalidArgumentError) else dict(params)
        argument = error.argument if isinstance(error, InvalidArgumentError) else name
        raise InvalidArgumentError(f"{path}.params: {argument}", expected=expected, got=got) from error
    if not math.isfinite(reward.fail_reward):
        raise InvalidArgumentError(
            f"{path}.params",
            expected="a reward with a least value (hypotheses_backoff: lift=True, a floor, or constant_logprob), since a row "
            "that cannot be judged earns less than it",
            got=dict(params),
        )
    weight = entry.get("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not abs(weight) < float("inf"):
        raise InvalidArgumentError(f"{path}.weight", expected="a finite number", got=weight)
    sources = entry.get("data_source")
    sources = [sources] if isinstance(sources, str) else [] if sources is None else sources
    if not isinstance(sources, (list, tuple)) or not all(isinstance(source, str) for source in sources):
        raise InvalidArgumentError(f"{path}.data_source", expected="a name, or a list of names", got=sources)
    gold_kind = entry.get("gold_kind", shared.get("gold_kind"))
    if gold_kind not in (None, "aliases", "set"):
        raise InvalidArgumentError(f"{path}.gold_kind", expected="aliases or set", got=gold_kind)
    label = entry.get("label")
    label = name if label is None else label
    if not isinstance(label, str) or not label:
        raise InvalidArgumentError(f"{path}.label", expected="a name for the reward's columns", got=label)
    return Term(
        label=label,
        reward=reward,
        weight=float(weight),
        data_sources=frozenset(sources),
        gold_kind=gold_kind,
    )
