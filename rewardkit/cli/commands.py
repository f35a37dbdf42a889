"""Imports every command's module, so that each registers itself."""

from rewardkit.cli import info

__all__ = ["info"]
