"""RLPR with a bonus for an answer of one's own that is less likely than the reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from rewardkit.errors import InvalidArgumentError
from rewardkit.likelihood import Reduction
from rewardkit.rewards.base import register
from rewardkit.rewards.reference_likelihood import Scores, first_problem, told
from rewardkit.rewards.rlpr import Debiased
from rewardkit.shaping import check_choice, check_number

_REDUCE: dict[str, Reduction] = {"rlpr": "mean_prob", "verifree": "prod"}


@register
@dataclass(frozen=True, kw_only=True)
class DARL(Debiased):
    r"""The reference's likelihood, plus a bonus that widens what the policy answers while staying near the reference.

    .. math:: r = \alpha\, r(y^*) + \beta\, \Delta\, 1[\Delta \le \theta], \qquad
        \Delta = \max(r(y^*) - r(y), 0), \qquad \theta = \tau \text{ or } r(y^*) / \gamma

    ``r(y)`` is the likelihood of the policy's own sampled answer after the same reasoning. The bonus is at most
    ``beta / gamma`` (0.001 at the defaults), so anything that rounds log-probabilities to bfloat16 drowns it. It falls to 0
    where the reference leaves the own answer too far behind, boundary included; the indicator is evaluated with a tolerance
    of 1e-9, since 93 of 300 exact boundary cases flip in floats.

    Attributes:
        beta: Weight of the bonus, in [0, 1]. With 0 this is RLPR (or VeriFree) times alpha.
        alpha: Weight of the reference's likelihood; ``1 - beta`` unless given.
        gamma: The dynamic threshold ``r(y*) / gamma`` > 0. 10 unless ``tau`` is given; the paper's table is best at 8.
        tau: A static threshold instead.
        over: "rlpr" (mean token probability) or "verifree" (product): what ``r`` is.
        debias: As in RLPR, applied to the sum. The paper does not say whether it is kept; off unless asked for.
        format_weight: As in RLPR: 0.1.

    Source:
        DARL, arXiv 2601.14700, equations for the reward and its two thresholds, and section 6.4 for ``over="verifree"``.

    Example:
        >>> import numpy as np
        >>> darl = DARL()
        >>> darl(reference_logprobs=[np.log([0.8])], own_logprobs=[np.log([0.75])]).values.round(6).tolist()
        [0.7925]
    """

    name: ClassVar[str] = "darl"
    optional: ClassVar[tuple[str, ...]] = ("own_status",)
    beta: float = 0.01
    alpha: float | None = None
    gamma: float | None = None
    tau: float | None = None
    over: Literal["rlpr", "verifree"] = "rlpr"
    debias: bool | None = False
    format_weight: float = 0.1

    def check(self) -> None:
        """Weights and one threshold."""
        check_number("beta", self.beta, low=0.0, high=1.0)
        check_choice("over", self.over, tuple(_REDUCE))
        if self.alpha is None:
            object.__setattr__(self, "alpha", 1.0 - self.beta)
        check_number("alpha", self.alpha, low=0.0)
        if self.tau is not None and self.gamma is not None:
            raise InvalidArgumentError("tau", expected="None where gamma is given: one threshold", got=self.tau)
        if self.tau is not None:
            check_number("tau", self.tau, low=0.0)
            return
        if self.gamma is None:
            object.__setattr__(self, "gamma", 10.0)
        elif self.gamma != float("inf"):
            check_number("gamma", self.gamma, low=0.0)
            if self.gamma == 0:
                raise InvalidArgumentError("gamma", expected="a number above 0", got=self.gamma)

    def further_columns(self) -> tuple[str, ...]:
        """The own answer's log-probabilities where the bonus counts, and the baseline."""
        return (*(("own_logprobs",) if self.beta else ()), *super().further_columns())

    @property
    def score_range(self) -> tuple[float, float]:
        """Both terms grow with the reference's likelihood, so the maximum lies where that is 1."""
        assert self.alpha is not None
        widest = min(1.0, self.tau if self.tau is not None else 1.0 / (self.gamma or 1.0))
        return self.debiased_range(0.0, self.alpha + self.beta * widest)

    @property
    def parts(self) -> tuple[str, ...]:
        """Both likelihoods, the bonus and the baseline."""
        return ("reference_score", "own_score", "bonus", "baseline")

    def score(self, rows: int, columns: Mapping[str, Any]) -> Scores:
        """The paper's two terms."""
        how = _REDUCE[self.over]
        reference, missing = self.reduced(columns["reference_logprobs"], how, name="reference_logprobs", rows=rows)
        own, own_missing = np.zeros(rows), [""] * rows
        bonus = np.zeros(rows)
        if self.beta:
            given = columns.get("own_logprobs")
            if given is None:
                raise InvalidArgumentError("own_logprobs", expected="a list of log-probabilities per row", got=None)
            own, own_missing = self.reduced(given, how, name="own_logprobs", rows=rows)
            own_missing = first_problem(told(columns.get("own_status"), "own_status", rows), own_missing)
            lead = np.maximum(reference - own, 0.0)
            threshold = np.full(rows, self.tau) if self.tau is not None else reference / (self.gamma or 1.0)
            with np.errstate(invalid="ignore"):
                bonus = self.beta * lead * (lead <= threshold * (1.0 + 1e-9) + 1e-12)
        assert self.alpha is not None
        value, baseline, unknown = self.gain(self.alpha * reference + bonus, columns, rows)
        parts = {"reference_score": reference, "own_score": own, "bonus": bonus, "baseline": baseline}
        return Scores(value, parts, first_problem(missing, own_missing, unknown))
