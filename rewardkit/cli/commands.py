"""Imports every command's module, so that each registers itself."""

from rewardkit.cli import data, info

__all__ = ["data", "info"]
