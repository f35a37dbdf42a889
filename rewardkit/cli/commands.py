"""Imports every command's module, so that each registers itself."""

from rewardkit.cli import data, evaluate, info, prior, validate

__all__ = ["data", "evaluate", "info", "prior", "validate"]
