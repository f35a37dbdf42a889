"""The rewards, one short file each. Importing a file registers its reward.

>>> from rewardkit import rewards
>>> rewards.available()[:0]
()
"""

from rewardkit.rewards.base import Reward, available, get, register, reward_class

__all__ = ["Reward", "available", "get", "register", "reward_class"]
