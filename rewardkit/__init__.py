"""rewardkit: right, calibrated and fast rewards for RL training of language models.

The five steps are modules: :mod:`rewardkit.parsing`, :mod:`rewardkit.matching`, :mod:`rewardkit.likelihood`,
:mod:`rewardkit.scoring`, :mod:`rewardkit.shaping`; :mod:`rewardkit.rewards` composes them. Importing this package loads
neither torch nor verl.
"""

from importlib.metadata import PackageNotFoundError, version

from rewardkit import errors, types

try:
    __version__ = version("rewardkit")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["__version__", "errors", "types"]
