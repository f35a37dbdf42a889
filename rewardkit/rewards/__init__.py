"""The rewards, one short file each. Importing a file registers its reward.

>>> from rewardkit import rewards
>>> "rlcr" in rewards.available()
True
"""

from rewardkit.rewards.base import Reward, available, get, register, reward_class
from rewardkit.rewards.compose import Compose, compose
from rewardkit.rewards.darl import DARL
from rewardkit.rewards.format import FormatReward
from rewardkit.rewards.hypotheses_backoff import HypothesesBackoff
from rewardkit.rewards.hypotheses_brier import HypothesesBrier
from rewardkit.rewards.hypotheses_log import HypothesesLog
from rewardkit.rewards.jepo import JEPO
from rewardkit.rewards.multi_rlcr import MultiRLCR
from rewardkit.rewards.multi_rlvr import MultiRLVR
from rewardkit.rewards.nover import NOVER
from rewardkit.rewards.repetition import Repetition
from rewardkit.rewards.rlcr import RLCR
from rewardkit.rewards.rlpr import RLPR
from rewardkit.rewards.rlvr import RLVR
from rewardkit.rewards.verifree import VeriFree

__all__ = [
    "DARL",
    "JEPO",
    "NOVER",
    "RLCR",
    "RLPR",
    "RLVR",
    "Compose",
    "FormatReward",
    "HypothesesBackoff",
    "HypothesesBrier",
    "HypothesesLog",
    "MultiRLCR",
    "MultiRLVR",
    "Repetition",
    "Reward",
    "VeriFree",
    "available",
    "compose",
    "get",
    "register",
    "reward_class",
]
