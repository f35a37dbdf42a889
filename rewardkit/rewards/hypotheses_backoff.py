"""The log score of a distribution over all strings: Other's weight is spread by a language model's prior."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from rewardkit.errors import InvalidArgumentError
from rewardkit.rewards.base import register
from rewardkit.rewards.hypotheses import Claim, HypothesesReward
from rewardkit.shaping import check_choice, check_number, prior_floor
from rewardkit.types import Float64, Forecast, Outcome

BACKOFFS = ("drop", "residual", "renorm")
LEAST_REST = 1e-3
"""Least prior mass that "renorm" leaves outside the list, so that a prior sure of the list does not divide by zero."""


@register
@dataclass(frozen=True, kw_only=True)
class HypothesesBackoff(HypothesesReward):
    """``log p(gold)``, where an unlisted gold gets Other's weight times its probability under a frozen prior ``l``.

    With ``m`` the weight of the hypotheses that match the gold and ``H`` the listed ones:

    * "drop": ``m`` if listed, else ``w_other l(gold)``. Sums to less than one. Honest weights are the probabilities.
    * "residual": ``m + w_other l(gold)`` always. A normalised mixture. Honest weights are ``p_i - w_other l_i``.
    * "renorm": ``m`` if listed, else ``w_other l(gold) / (1 - l(H))``. Normalised. Honest weights are the probabilities,
      and listing a further hypothesis never lowers the expected reward. Needs ``l(H)`` for every rollout.

    Under "drop", listing b pays iff ``l_b < r (1 - r)^((1 - r) / r)``, about ``r / e``, with r its share of what Other holds.

    By default the reward is the *lift* over the prior, ``log p(gold) - log l(gold)``. It differs by a constant of the
    prompt, so unscaled advantages are the same; Other alone scores 0, and the minimum is ``log epsilon`` for every prompt.

    Attributes:
        backoff: "drop" (default), "residual" or "renorm"; ``mode="drop"`` is read as ``backoff="drop"``.
        lift: See above. Without it the minimum depends on the prior: give ``floor``, ``percentile`` or
            ``fail_mode="per_example"``.
        floor: Log-prior in nats below which priors are clipped, in the reward too.
        percentile: Takes the floor from the training set's priors, which ``training_logprob`` then holds.
        training_logprob: See there.
        clip_valid: ``False`` lets the floor set the failure reward but not clip the priors of well-formed rows, of which
            some then fall below it: refused unless ``allow_inversion``.
        fail_mode: "fixed" (default), or "per_example": a row's failure reward follows its own prior.
        constant_logprob: One log-prior for all golds instead of the column; no language model is needed.
        temperature: Divides log-priors; a shaping knob, after which the prior is not normalised.

    A call brings ``prior_logprob=``, float ``[B]``, the total log-probability of each gold in nats (not per token), and for "renorm"
    ``listed_prior_logprob=``, float ``[B]``, the log of the prior mass of each rollout's distinct hypotheses together.

    Example:
        >>> text = "<think>…</think><hypotheses><h1>flu</h1><w1>0.6</w1><other>0.4</other></hypotheses>"
        >>> HypothesesBackoff()([text, text], ["flu", "cold"], prior_logprob=[-3.0, -5.0]).values.round(4).tolist()
        [2.4892, -0.9163]
    """

    name: ClassVar[str] = "hypotheses_backoff"
    requires: ClassVar[tuple[str, ...]] = ("prior_logprob",)

    backoff: Literal["drop", "residual", "renorm"] = "drop"
    lift: bool = True
    floor: float | None = None
    percentile: float | None = None
    training_logprob: Sequence[float] | None = None
    clip_valid: bool = True
    fail_mode: Literal["fixed", "per_example"] = "fixed"
    constant_logprob: float | None = None
    temperature: float = 1.0

    def check(self) -> None:
        """Refuses failure rewards that some well-formed row would fall below."""
        if self.mode in BACKOFFS:  # the papers' and this package's word for two things
            object.__setattr__(self, "backoff", self.mode)
            object.__setattr__(self, "mode", "strict")
        super().check()
        check_choice("backoff", self.backoff, BACKOFFS)
        check_choice("fail_mode", self.fail_mode, ("fixed", "per_example"))
        check_number("temperature", self.temperature, low=1e-6)
        if self.percentile is not None or self.training_logprob is not None:
            self._floor_from_training()
        for name in ("floor", "constant_logprob"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), high=0.0)
        self._check_failure()
        needs = () if self.constant_logprob is not None else ("prior_logprob",)
        needs += ("listed_prior_logprob",) if self.backoff == "renorm" else ()
        object.__setattr__(self, "requires", needs)

    def _floor_from_training(self) -> None:
        if self.percentile is None or self.training_logprob is None or self.floor is not None:
            raise InvalidArgumentError(
                "percentile", expected="percentile and training_logprob together, and no floor", got=self.percentile
            )
        check_number("percentile", self.percentile, low=0.0, high=100.0)
        if isinstance(self.training_logprob, str) or not hasattr(self.training_logprob, "__len__"):
            raise InvalidArgumentError(
                "training_logprob", expected="a list of log-probabilities", got=self.training_logprob
            )
        try:
            floor = prior_floor(self.training_logprob, percentile=self.percentile)
        except InvalidArgumentError as error:  # which knows the list under another name
            raise InvalidArgumentError(
                "training_logprob", expected=error.expected, got=self.training_logprob
            ) from error
        object.__setattr__(self, "floor", floor)
        object.__setattr__(self, "training_logprob", None)
        object.__setattr__(self, "percentile", None)

    def _check_failure(self) -> None:
        if self.floor is not None and self.constant_logprob is not None:
            raise InvalidArgumentError("floor", expected="no floor beside constant_logprob", got=self.floor)
        if self.fail_mode == "per_example" and self.fail_reward is not None:
            raise InvalidArgumentError(
                "fail_reward", expected="none with fail_mode='per_example'", got=self.fail_reward
            )
        if not self.clip_valid and (self.floor is None or self.lift):
            raise InvalidArgumentError("clip_valid", expected="True, unless with lift=False and a floor", got=False)
        if self.fail_mode == "per_example" or self.fail_reward is not None or self.lift:
            return
        if self.floor is None and self.constant_logprob is None:
            raise InvalidArgumentError(
                "floor",
                expected="a log-prior to clip at, since with lift=False a rare gold has no least reward (or "
                "percentile with training_logprob, fail_mode='per_example', or lift=True)",
                got=None,
            )
        if not self.clip_valid and self.floor is not None:
            below = math.log(self.epsilon) + self.floor / self.temperature
            object.__setattr__(self, "fail_reward", self.range_with_terms(below, 0.0)[0] - self.margin)

    @property
    def _lowest_prior(self) -> float:
        """The lowest log-prior that the reward can see."""
        if self.constant_logprob is not None:
            return self.constant_logprob / self.temperature
        return self.floor / self.temperature if self.floor is not None and self.clip_valid else -math.inf

    @property
    def min_value(self) -> float:
        """No weight where the truth is (and, without the lift, the least likely gold)."""
        return self.range_with_terms(math.log(self.epsilon) + (0.0 if self.lift else self._lowest_prior), 0.0)[0]

    @property
    def max_value(self) -> float:
        """All weight on the gold (and, with the lift, the least likely one)."""
        return self.range_with_terms(0.0, -self._lowest_prior if self.lift else 0.0)[1]

    @property
    def proper(self) -> bool:
        """For the distribution that the weights and the prior make together.

        Not with a correctness bonus under "residual": honest weights are ``p_i - w_other l_i`` there, so the heaviest need not
        be the likeliest, and the bonus pulls it up.
        """
        return not (self.backoff == "residual" and self.correctness_weight)

    @property
    def proper_for(self) -> str:
        """The weights of a given list, or the mixture's."""
        where = f", where they are at least {self.epsilon:g}, with one reference"
        if not self.proper:
            return "nothing: the bonus pulls up the heaviest weight, which need not be the likeliest under 'residual'"
        if self.backoff == "residual":
            return f"the mixture of the weights of a given list and Other's share of the prior{where}"
        return f"the weights of a given list and of Other{where}"

    def score(
        self, forecast: Forecast, outcome: Outcome, columns: Mapping[str, Any]
    ) -> tuple[Float64, Mapping[str, Any]]:
        """The log of what the gold was given, over its prior."""
        claim, prior = Claim.of(forecast, outcome), self._prior(columns, len(forecast))
        other = np.log(np.maximum(claim.other, self.epsilon))
        stated = np.log(np.maximum(claim.assigned, self.epsilon)) - prior
        if self.backoff == "drop":
            lift = np.where(claim.listed, stated, other)
        elif self.backoff == "renorm":
            lift = np.where(claim.listed, stated, other + np.minimum(self._gain(columns, forecast), -prior))
        else:
            with np.errstate(divide="ignore"):
                mixture = np.logaddexp(np.log(claim.assigned) - prior, np.log(claim.other))
            lift = np.maximum(mixture, math.log(self.epsilon))
        return self.with_terms(lift if self.lift else lift + prior, forecast, outcome)

    def fail_values(self, columns: Mapping[str, Any]) -> float | Float64:
        """One failure reward, or each row's own."""
        if self.fail_mode == "fixed" or self.lift:
            return self.fail_reward
        prior = self._prior(columns, None)
        return self.range_with_terms(math.log(self.epsilon), 0.0)[0] + prior - self.margin

    def _prior(self, columns: Mapping[str, Any], rows: int | None) -> Float64:
        """Log-prior of each gold, float64 ``[B]``."""
        if self.constant_logprob is not None:
            return np.full(rows or 1, self.constant_logprob / self.temperature)
        prior = logprob_column("prior_logprob", columns, rows)
        if self.floor is not None and self.clip_valid:
            prior = np.maximum(prior, self.floor)
        if np.isneginf(prior).any():
            row = int(np.flatnonzero(np.isneginf(prior))[0])
            raise InvalidArgumentError(f"prior_logprob[{row}]", expected="a finite number, or a floor", got=-math.inf)
        return prior / self.temperature

    def _gain(self, columns: Mapping[str, Any], forecast: Forecast) -> Float64:
        """``-log(1 - l(H))``: by how much the prior grows outside the list."""
        listed = logprob_column("listed_prior_logprob", columns, len(forecast), where=forecast.wellformed)
        return -np.log(np.maximum(-np.expm1(listed), LEAST_REST))


def logprob_column(name: str, columns: Mapping[str, Any], rows: int | None, *, where: Any = None) -> Float64:
    """A column of log-probabilities, float64 ``[B]``, with rounding above 0 taken back.

    Raises:
        InvalidArgumentError: It is missing, has another length, or holds NaN or a number above 0 (``where`` it counts).
    """
    if columns.get(name) is None:
        raise InvalidArgumentError(name, expected="a column of log-probabilities, one per completion", got=None)
    try:
        values = np.asarray(columns[name], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(name, expected="numbers, one per completion", got=columns[name]) from error
    if values.ndim != 1 or (rows is not None and len(values) != rows):
        raise InvalidArgumentError(name, expected=f"shape ({rows},)", got=f"shape {values.shape}")
    bad = ~(values <= 1e-6) & (True if where is None else where)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InvalidArgumentError(f"{name}[{row}]", expected="a log-probability, at most 0", got=float(values[row]))
    return np.minimum(values if where is None else np.where(where, values, 0.0), 0.0)
