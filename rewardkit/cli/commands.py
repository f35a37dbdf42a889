"""Imports every command's module, so that each registers itself."""

from rewardkit.cli import data, evaluate, info, validate

__all__ = ["data", "evaluate", "info", "validate"]
