"""JEPO: what a rollout adds to the group's estimate of the reference's log-probability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rewardkit.rewards.base import register
from rewardkit.rewards.reference_likelihood import LikelihoodReward, Scores, groups_of
from rewardkit.types import Float64


@register
@dataclass(frozen=True, kw_only=True)
class JEPO(LikelihoodReward):
    r"""The group's log-mean-exp of the reference's log-probabilities, less the same without the rollout itself.

    .. math:: r_i = \log \tfrac1n \sum_j \pi(y^* | x, z_j) - \log \tfrac1{n-1} \sum_{j \ne i} \pi(y^* | x, z_j)

    In log space throughout, so that 500-token references do not underflow. It has its baseline built in: train on it without
    a further one (the group mean is near 0). A group with one scored rollout gives 0. The supervised gradient term of the
    paper is no reward and not part of this.

    Attributes:
        floor: Log-probabilities are cut there, which bounds the reward.

    Source:
        JEPO, arXiv 2503.19618, multi-sample form. Written from the paper; there is no released code to compare with.

    Example:
        >>> import numpy as np
        >>> reward = JEPO()(reference_logprobs=[np.log([0.5]), np.log([0.1])], group_ids=["a", "a"])
        >>> reward.values.round(4).tolist()
        [1.0986, -0.5108]
    """

    name: ClassVar[str] = "jepo"
    needs_group: ClassVar[bool] = True

    @property
    def score_range(self) -> tuple[float, float]:
        """Both from groups of two: a worthless rollout (-log 2 is its infimum), and one that is sure beside a worthless one."""
        return -float(np.log(2.0)), float(np.log1p(np.exp(self.floor)) - np.log(2.0) - self.floor)

    @property
    def parts(self) -> tuple[str, ...]:
        """The rollout's own log-probability and the group's."""
        return ("reference_logprob", "group_logprob")

    def score(self, rows: int, columns: Mapping[str, Any]) -> Scores:
        """Log-mean-exp with and without each rollout."""
        total, missing = self.reduced(columns["reference_logprobs"], "sum_log", name="reference_logprobs", rows=rows)
        value, level = np.zeros(rows), np.zeros(rows)
        for group in groups_of(columns.get("group_ids"), rows):
            members = group[~np.isnan(total[group])]
            if not len(members):
                continue
            logs = total[members]
            level[members] = _log_mean_exp(logs)
            if len(members) > 1:
                others = [_log_mean_exp(np.delete(logs, i)) for i in range(len(logs))]
                low = self.score_range[0]  # never left by rounding
                value[members] = np.maximum(level[members] - np.array(others), low)
        return Scores(value, {"reference_logprob": total, "group_logprob": level}, missing)


def _log_mean_exp(logs: Float64) -> float:
    top = logs.max()
    return float(top + np.log(np.mean(np.exp(logs - top))))
