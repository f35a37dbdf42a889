"""The ``rewardkit`` command."""

from rewardkit.cli.app import main

__all__ = ["main"]
