"""Imports every module beside this one, so that each command registers itself."""

import importlib
import pkgutil

from rewardkit import cli

for _module in pkgutil.iter_modules(cli.__path__):
    importlib.import_module(f"rewardkit.cli.{_module.name}")
