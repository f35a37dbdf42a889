"""What a trainer does with the rewards of one prompt's rollouts: advantages, leave-one-out baselines, group filters.

Rewards come as ``[N, G]`` (N prompts, G rollouts each) or flat ``[B]`` with ``group_ids``, in any order: a group is what shares an id, never what
happens to lie together on one device.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rewardkit.arrays import floats, whole
from rewardkit.errors import HarmfulSettingWarning, InvalidArgumentError
from rewardkit.rewards.base import Reward
from rewardkit.shaping import check_choice, check_number
from rewardkit.types import Bool, Float64

Scale = Literal["none", "batch", "group"]

FLAT = 1e-6
"""A group whose rewards deviate less than this has no differences to learn from, only rounding."""


def group_advantages(
    rewards: npt.ArrayLike,
    *,
    scale: Scale = "none",
    group_ids: Sequence[Any] | npt.NDArray[Any] | None = None,
    group_size: int | None = None,
    eps: float = 1e-4,
    ddof: int = 1,
    reward: Reward | None = None,
) -> Float64:
    """Reward less its group's mean, over a standard deviation or not.

    Dividing by each group's own standard deviation makes a proper reward improper: it weighs the prompts and draws where little
    varies most, and pushes stated confidences to 0 and 1 (experiment T3; Bereket & Leskovec, arXiv 2508.11800). Hence "none".

    Args:
        rewards: float ``[N, G]``, or ``[B]`` with ``group_ids``; finite.
        scale: "none", "batch" (over the standard deviation of all rewards) or "group" (over each group's own). Where that
            deviation is below 1e-6, there is nothing to learn from but rounding, and advantages are 0.
        group_ids: ``[B]``, the prompt of each rollout, in any order.
        group_size: How many rollouts a prompt has; with ``group_ids`` and without it, all groups must be equally large.
        eps: Added to the standard deviation (TRL 1e-4, RLPR 1e-6).
        ddof: 1 for the sample's standard deviation, as torch's; 0 for the population's.
        reward: The reward that made them; a calibration reward with ``scale="group"`` draws a HarmfulSettingWarning.

    Returns:
        float64, in the shape and order of ``rewards``. A group of one gets 0.

    Raises:
        InvalidArgumentError: Bad shapes or values, or a group that is incomplete.

    Source:
        GRPO, arXiv 2402.03300; without the division, arXiv 2503.20783.

    Example:
        >>> group_advantages([1.0, 5.0, 0.0, 7.0], group_ids=["a", "b", "a", "b"]).tolist()
        [0.5, -1.0, -0.5, 1.0]
    """
    check_choice("scale", scale, ("none", "batch", "group"))
    check_number("eps", eps, low=0.0)
    check_choice("ddof", ddof, (0, 1))
    if scale == "group" and reward is not None and reward.proper:
        warnings.warn(
            f"scale='group' with {reward.name!r}: dividing by the group's standard deviation makes a calibration reward "
            "improper; it teaches confidences near 0 and 1. Remedy: scale='none' or 'batch' "
            "(verl: algorithm.norm_adv_by_std_in_grpo=False; TRL: scale_rewards='none')",
            HarmfulSettingWarning,
            stacklevel=2,
        )
    grouped = _Groups.of(rewards, group_ids, group_size)
    values = grouped.values
    centred = values - values.mean(axis=1, keepdims=True)
    if values.shape[1] == 1 or values.size == 0:
        return grouped.restore(np.zeros_like(values))
    if scale != "none":
        axis = 1 if scale == "group" else None
        deviation = values.std(axis=axis, ddof=ddof, keepdims=True)
        centred = np.where(deviation < FLAT, 0.0, centred / (deviation + max(eps, np.finfo(float).tiny)))
    return grouped.restore(centred)


def rloo(
    rewards: npt.ArrayLike,
    *,
    group_ids: Sequence[Any] | npt.NDArray[Any] | None = None,
    group_size: int | None = None,
) -> Float64:
    """Reward less the mean of the *other* rollouts of its prompt, which is ``G / (G - 1)`` times reward less mean.

    Args:
        rewards: float ``[N, G]``, or ``[B]`` with ``group_ids``; finite; G >= 2.
        group_ids: ``[B]``, the prompt of each rollout, in any order.
        group_size: How many rollouts a prompt has.

    Returns:
        float64, in the shape and order of ``rewards``.

    Raises:
        InvalidArgumentError: Bad shapes or values, a group that is incomplete, or groups of one.

    Source:
        RLOO, arXiv 2402.14740.

    Example:
        >>> rloo([[1.0, 0.0, 0.0]]).tolist()
        [[1.0, -0.5, -0.5]]
    """
    grouped = _Groups.of(rewards, group_ids, group_size, least=2)
    size = grouped.values.shape[1]
    return grouped.restore((grouped.values - grouped.values.mean(axis=1, keepdims=True)) * size / (size - 1))


@dataclass
class StdFilter:
    """Keeps the prompts whose rewards vary: those with ``std >= beta * EMA`` of the group standard deviations.

    During the first ``warmup`` batches everything is kept and their mean standard deviations are collected; the moving average starts as the mean of
    those. Afterwards the threshold of a batch uses the average *before* it, and the average then takes in all its groups,
    kept or not. A filter also changes which prompts count, so look at :attr:`kept_fraction`; and a trainer that drops groups should
    draw others until its batch is full.

    Attributes:
        beta: Threshold as a share of the average, >= 0.
        ema: Weight of the past in the average, in [0, 1).
        warmup: Batches before the filter works, a whole number >= 1.
        average: The moving average; ``None`` before the warm-up is over.
        kept_fraction: Share of groups that the last batch kept.

    Source:
        RLPR, arXiv 2506.18254, section 3.3 (standard-deviation filtering). The released book-keeping starts its average in another
        way; this is the paper's.

    Example:
        >>> keep = StdFilter(warmup=1)
        >>> keep([[0.0, 1.0]]).tolist(), keep([[0.0, 1.0], [0.5, 0.5]]).tolist()
        ([True], [True, False])
    """

    beta: float = 0.5
    ema: float = 0.99
    warmup: int = 10
    average: float | None = field(default=None, init=False)
    kept_fraction: float = field(default=1.0, init=False)
    _warm: list[float] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        check_number("beta", self.beta, low=0.0)
        check_number("ema", self.ema, low=0.0, high=1.0)
        whole("warmup", self.warmup)
        if self.ema == 1.0:
            raise InvalidArgumentError("ema", expected="a number in [0, 1), else the average never moves", got=self.ema)

    def __call__(
        self,
        rewards: npt.ArrayLike,
        *,
        group_ids: Sequence[Any] | npt.NDArray[Any] | None = None,
        group_size: int | None = None,
        ddof: int = 1,
    ) -> Bool:
        """Which to keep, and takes the batch into the average.

        Args:
            rewards: float ``[N, G]``, or ``[B]`` with ``group_ids``; G >= 2. A group that holds a NaN or an infinity is
                dropped, and left out of the average.
            group_ids: ``[B]``, the prompt of each rollout, in any order.
            group_size: How many rollouts a prompt has.
            ddof: 1 for the sample's standard deviation, 0 for the population's.

        Returns:
            bool ``[N]`` for ``[N, G]``; ``[B]``, one entry per rollout, with ``group_ids``.

        Raises:
            InvalidArgumentError: Bad shapes or values, a group that is incomplete, or groups of one.
        """
        check_choice("ddof", ddof, (0, 1))
        grouped = _Groups.of(rewards, group_ids, group_size, least=2, allow_nan=True)
        deviation = grouped.values.std(axis=1, ddof=ddof)
        known = np.isfinite(deviation)
        keep = known if self.average is None else known & (deviation >= self.beta * self.average)
        self._take(deviation[known])
        self.kept_fraction = float(keep.mean()) if keep.size else 1.0
        return keep if group_ids is None else grouped.restore(np.repeat(keep[:, None], grouped.values.shape[1], axis=1))

    def _take(self, deviation: Float64) -> None:
        if deviation.size == 0:
            return
        mean = float(deviation.mean())
        if self.average is not None:
            self.average = self.ema * self.average + (1.0 - self.ema) * mean
            return
        self._warm.append(mean)
        if len(self._warm) >= self.warmup:
            self.average = float(np.mean(self._warm))


@dataclass(frozen=True)
class _Groups:
    """Rewards in rows of one prompt each, and the way back."""

    values: Float64
    order: npt.NDArray[np.intp] | None

    @classmethod
    def of(
        cls, rewards: npt.ArrayLike, ids: Any, size: int | None, *, least: int = 1, allow_nan: bool = False
    ) -> _Groups:
        values = floats("rewards", rewards)
        finite = np.isfinite(values)
        if not finite.all():
            if not allow_nan:
                raise InvalidArgumentError("rewards", expected="finite numbers", got=float(values[~finite].flat[0]))
            values = np.where(finite, values, np.nan)
        if size is not None:
            size = whole("group_size", size)
        order = None
        if ids is not None:
            order, size = _order(values, ids, size)
            values = values[order].reshape(-1, size)
        if values.ndim != 2:
            raise InvalidArgumentError(
                "rewards", expected="shape [prompts, rollouts], or flat with group_ids", got=f"shape {values.shape}"
            )
        if size is not None and values.shape[1] != size:
            raise InvalidArgumentError(
                "rewards", expected=f"{size} rollouts per prompt", got=f"{values.shape[1]} rollouts per prompt"
            )
        if values.shape[1] < least:
            raise InvalidArgumentError(
                "rewards", expected=f"at least {least} rollouts per prompt", got=f"{values.shape[1]}"
            )
        return cls(values, order)

    def restore(self, values: npt.NDArray[Any]) -> Any:
        """Values ``[N, G]`` in the caller's shape and order."""
        if self.order is None:
            return values
        flat = np.empty(values.size, dtype=values.dtype)
        flat[self.order] = values.reshape(-1)
        return flat


def _order(values: Float64, ids: Any, size: int | None) -> tuple[npt.NDArray[np.intp], int]:
    """The order that puts each group together, and the size that all of them have."""
    if isinstance(ids, (str, bytes)) or not hasattr(ids, "__len__") or not hasattr(ids, "__iter__"):
        raise InvalidArgumentError("group_ids", expected=f"one id per reward ({values.size})", got=ids)
    if values.ndim != 1 or len(ids) != values.size:
        raise InvalidArgumentError(
            "group_ids", expected=f"one id per reward, rewards flat ({values.size})", got=f"{len(ids)} ids"
        )
    number: dict[Any, int] = {}
    codes = np.empty(values.size, dtype=np.intp)
    for row, one in enumerate(ids):
        try:
            codes[row] = number.setdefault(one, len(number))
        except TypeError:
            raise InvalidArgumentError(
                f"group_ids[{row}]", expected="a string, a number or a tuple of them", got=one
            ) from None
    counts = np.bincount(codes)
    wanted = size if size is not None else int(counts.max(initial=1))
    for name, count in zip(number, counts.tolist(), strict=True):
        if count != wanted:
            raise InvalidArgumentError(
                "group_ids",
                expected=f"{wanted} rollouts of every prompt",
                got=f"{count} of {name!r}: the group is incomplete, or split over processes",
            )
    return np.argsort(codes, kind="stable"), wanted
