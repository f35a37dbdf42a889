"""rewardkit: right, calibrated and fast rewards for RL training of language models.

The five steps are modules: :mod:`rewardkit.parsing`, :mod:`rewardkit.matching`, :mod:`rewardkit.likelihood`,
:mod:`rewardkit.scoring`, :mod:`rewardkit.shaping`; :mod:`rewardkit.rewards` composes them. Importing this package loads
neither torch nor verl; a module is loaded when it is first used.
"""

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from rewardkit import errors, types

if TYPE_CHECKING:
    from rewardkit import groups, likelihood, matching, metrics, parsing, rewards, scoring, selection, shaping

try:
    __version__ = version("rewardkit")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = [
    "__version__",
    "errors",
    "groups",
    "likelihood",
    "matching",
    "metrics",
    "parsing",
    "rewards",
    "scoring",
    "selection",
    "shaping",
    "types",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"rewardkit.{name}")
    raise AttributeError(f"module 'rewardkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
