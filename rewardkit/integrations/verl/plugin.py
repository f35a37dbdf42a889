"""verl's plug-in entry point: makes ``reward.reward_manager.name=rewardkit`` known in every process of a job.

``verl/__init__.py`` loads the entry points of the group ``verl.plugins`` in the driver and in every Ray process.
"""

from __future__ import annotations

import logging

NAME = "rewardkit"
"""The value of ``reward.reward_manager.name``."""


def register() -> None:
    """Registers the reward manager in this process; done by importing the module."""
    from verl.experimental.reward_loop.reward_manager.registry import register as register_manager

    from rewardkit.integrations.verl.manager import RewardManager

    register_manager(NAME)(RewardManager)


try:
    register()
except Exception:
    # verl notes a failing plug-in at DEBUG level alone, and then says "unknown reward manager".
    logging.getLogger(__name__).exception("rewardkit's reward manager could not be registered in verl")
    raise
