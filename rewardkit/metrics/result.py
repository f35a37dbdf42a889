"""What a metric returns: a float that carries how it was computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


class Metric(float):
    """A metric's value, usable as a plain float, with the settings without which nobody can compute it again.

    Attributes:
        name: What it is.
        n: How many items went into it.
        invalid: How many items were left out: their confidence lies outside [0, 1] (never clipped, never binned), or the
            output could not be read and was to be dropped.
        settings: Everything else that the value depends on (bins, edge, norm, …).
        undefined: Why the value is NaN, "" where it is defined.
    """

    name: str
    n: int
    invalid: int
    settings: Mapping[str, Any]
    undefined: str
    _null: Callable[[], Null] | None

    def __new__(
        cls,
        value: float,
        *,
        name: str,
        n: int,
        invalid: int = 0,
        settings: Mapping[str, Any] | None = None,
        undefined: str = "",
        null: Callable[[], Null] | None = None,
    ):
        """Makes the float and attaches the rest."""
        self = super().__new__(cls, value)
        self.name, self.n, self.invalid = name, int(n), int(invalid)
        self.settings, self.undefined, self._null = dict(settings or {}), undefined, null
        return self

    @property
    def value(self) -> float:
        """The bare float."""
        return float(self)

    @property
    def null(self) -> Null | None:
        """For calibration errors: what a perfectly calibrated forecaster with these confidences would get by chance.

        Computed when first asked for.
        """
        if callable(self._null):
            result = self._null()
            self._null = lambda: result
            return result
        return None

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe: NaN becomes ``None``, with the reason beside it; the null level is included where there is one."""
        result: dict[str, Any] = {"value": None if math.isnan(self) else float(self)}
        result |= {"n": self.n, "invalid": self.invalid}
        if self.undefined:
            result["undefined"] = self.undefined
        result.update(self.settings)
        null = self.null
        if null is not None:
            result["null"] = null.to_dict()
        return result

    def __repr__(self) -> str:
        parts = [f"n={self.n}", f"invalid={self.invalid}"]
        parts += [f"{key}={value!r}" for key, value in self.settings.items()]
        if self.undefined:
            parts.append(f"undefined: {self.undefined}")
        return f"{self.name}={float(self):.6g} ({', '.join(parts)})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else repr(self)

    def __reduce__(self):
        null = self.null
        return _rebuild, (
            float(self),
            {
                "name": self.name,
                "n": self.n,
                "invalid": self.invalid,
                "settings": self.settings,
                "undefined": self.undefined,
            },
            null,
        )


class Null(float):
    """The chance level of a calibration error (its mean, as a float) and where the observed value stands.

    Attributes:
        sd: Standard deviation under perfect calibration.
        quantile95: 95 % of perfectly calibrated forecasters score below this.
        p_value: Chance that a perfectly calibrated forecaster scores at least the observed value; NaN without one.
        draws: How many times the outcomes were redrawn.
        seed: Of the redraws.
        n: How many confidences were redrawn.
        settings: Of the calibration error (bins, scheme, edge, norm).
    """

    sd: float
    quantile95: float
    p_value: float
    draws: int
    seed: int
    n: int
    settings: Mapping[str, Any]

    def __new__(
        cls,
        mean: float,
        *,
        sd: float,
        quantile95: float,
        p_value: float,
        draws: int,
        seed: int,
        n: int,
        settings: Mapping[str, Any] | None = None,
    ):
        """Makes the float and attaches the rest."""
        self = super().__new__(cls, mean)
        self.sd, self.quantile95, self.p_value = float(sd), float(quantile95), float(p_value)
        self.draws, self.seed, self.n, self.settings = draws, seed, int(n), dict(settings or {})
        return self

    @classmethod
    def of(cls, results: Any, observed: float, *, seed: int, settings: Mapping[str, Any], n: int) -> Null:
        """The null from the errors of redrawn outcomes, float ``[draws]``; undefined (NaN) where nothing was redrawn."""
        draws = len(results)
        common = {"draws": draws, "seed": seed, "n": n, "settings": settings}
        if not n:
            return cls(math.nan, sd=math.nan, quantile95=math.nan, p_value=math.nan, **common)
        # The add-one estimate: a p-value from draws is never 0. A gap of rounding does not make a draw smaller.
        p_value = math.nan if math.isnan(observed) else (1 + np.sum(results >= observed - 1e-12)) / (draws + 1)
        return cls(results.mean(), sd=results.std(), quantile95=np.quantile(results, 0.95), p_value=p_value, **common)

    @property
    def mean(self) -> float:
        """The mean under perfect calibration."""
        return float(self)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        values = {"mean": float(self), "sd": self.sd, "quantile95": self.quantile95, "p_value": self.p_value}
        return {key: None if math.isnan(value) else value for key, value in values.items()} | {
            "draws": self.draws,
            "seed": self.seed,
            "n": self.n,
            **self.settings,
        }

    def __repr__(self) -> str:
        return f"null={float(self):.4g} (sd={self.sd:.2g}, 95%={self.quantile95:.4g}, p={self.p_value:.3g})"

    def __reduce__(self):
        keywords = {
            key: getattr(self, key) for key in ("sd", "quantile95", "p_value", "draws", "seed", "n", "settings")
        }
        return _rebuild_null, (float(self), keywords)


def _rebuild(value: float, keywords: dict[str, Any], null: Null | None) -> Metric:
    return Metric(value, **keywords, null=None if null is None else (lambda: null))


def _rebuild_null(mean: float, keywords: dict[str, Any]) -> Null:
    return Null(mean, **keywords)
