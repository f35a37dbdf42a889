"""Imports every command's module, so that each registers itself."""

from rewardkit.cli import data, info, validate

__all__ = ["data", "info", "validate"]
