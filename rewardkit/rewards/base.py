"""What every reward is: a frozen dataclass of its coefficients that maps completions and references to a RewardBatch."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from rewardkit.errors import InvalidArgumentError, UnknownNameError
from rewardkit.types import RewardBatch

ROLLOUT_COLUMNS = frozenset(
    [
        "listed_prior_logprob",
        "own_logprobs",
        "own_status",
        "reasoning_tokens",
        "reference_logprobs",
        "reference_status",
    ]
)
"""Those of :attr:`Reward.requires` that depend on what the policy wrote: in a trainer an agent loop brings them with each
rollout. Every other column has to stand in the data set."""

_REGISTRY: dict[str, type[Reward]] = {}
R = TypeVar("R", bound="Reward")


class Reward(abc.ABC):
    """A reward: picklable, stateless, safe in any thread; larger is better.

    Subclasses are frozen dataclasses in a file of their own, registered with :func:`register`.

    Class attributes:
        name: The registered name.
        requires: Extra per-row columns that a call must bring (for example ``("prior_logprob",)``).
        optional: Per-row columns that count where the rows have them.
        needs_group: Whether a row's reward depends on the other rollouts of its prompt; a call must then bring
            ``group_ids``.
    """

    name: ClassVar[str]
    requires: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[tuple[str, ...]] = ()
    needs_group: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def min_value(self) -> float:
        """The exact minimum over well-formed completions, attained by some completion."""

    @property
    @abc.abstractmethod
    def max_value(self) -> float:
        """The exact maximum (supremum where it is not attained) over well-formed completions."""

    @property
    @abc.abstractmethod
    def fail_reward(self) -> float:
        """The value of an ill-formed completion; never above :attr:`min_value`."""

    @property
    @abc.abstractmethod
    def proper(self) -> bool:
        """Whether the honest forecast is the unique maximiser of the expected reward (strictly proper)."""

    @property
    @abc.abstractmethod
    def proper_for(self) -> str:
        """For which forecast, and under which conditions; one sentence."""

    @property
    @abc.abstractmethod
    def component_names(self) -> tuple[str, ...]:
        """The keys of ``RewardBatch.components``, the same for every call."""

    @abc.abstractmethod
    def __call__(self, completions: Sequence[Any] = (), references: Sequence[Any] = (), **columns: Any) -> RewardBatch:
        """Scores a batch.

        Args:
            completions: ``[B]`` strings, or chats ``[{"role", "content"}, …]`` of which the last message counts.
            references: ``[B]`` golds, see :meth:`rewardkit.types.References.of`.
            **columns: ``gold_kind=``, the columns in :attr:`requires`, ``group_ids=``; anything else is ignored, since
                trainers pass whole data-set rows.

        Raises:
            InvalidArgumentError: Lengths disagree, a required column is missing, a column has the wrong type.
            DataError: A reference is empty.
        """


def register(cls: type[R]) -> type[R]:
    """Class decorator: makes a reward available to :func:`get` by its ``name``.

    Raises:
        ValueError: Another reward has the name.
    """
    if cls.name in _REGISTRY and _REGISTRY[cls.name].__qualname__ != cls.__qualname__:
        raise ValueError(f"a reward named {cls.name!r} is registered already: {_REGISTRY[cls.name]!r}")
    _REGISTRY[cls.name] = cls
    return cls


def reward_class(name: str) -> type[Reward]:
    """The class of a registered reward.

    Raises:
        UnknownNameError: No reward has that name.
    """
    if not isinstance(name, str) or name not in _REGISTRY:
        raise UnknownNameError("reward", name, _REGISTRY)
    return _REGISTRY[name]


def get(name: str, **params: Any) -> Reward:
    """Makes a reward from its name and parameters, as a config file gives them.

    Raises:
        UnknownNameError: No reward has that name.
        InvalidArgumentError: A parameter is unknown to it, missing or out of range.
    """
    cls = reward_class(name)
    known = {field.name: field for field in dataclasses.fields(cls) if field.init}  # type: ignore[arg-type]
    for key in params:
        if key not in known:
            raise InvalidArgumentError(f"{name}({key}=…)", expected=f"one of {', '.join(known)}", got=key)
    for key, field in known.items():
        needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if needed and key not in params:
            raise InvalidArgumentError(f"{name}({key}=…)", expected="a value, since it has no default", got=params)
    return cls(**params)


def check_flags(reward: Any) -> None:
    """Refuses a parameter that is declared as a boolean and is none: the text "false" is true.

    Raises:
        InvalidArgumentError: Names the first one.
    """
    for field in dataclasses.fields(reward):
        value = getattr(reward, field.name)
        declared = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", "")
        if declared not in ("bool", "bool | None") or isinstance(value, (bool, np.bool_)):
            continue
        if value is not None or declared == "bool":
            expected = "True or False" if declared == "bool" else "True, False or None"
            raise InvalidArgumentError(field.name, expected=expected, got=value)


def available() -> tuple[str, ...]:
    """The names of all registered rewards, sorted."""
    return tuple(sorted(_REGISTRY))
