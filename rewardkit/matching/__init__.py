"""Match: what it means that an answer is right, and the outcome of a forecast.

One relation decides "equal" everywhere: correctness, uniqueness, merging and voting take the same :class:`Relation`.
"""

from rewardkit.matching.math_answers import math_match
from rewardkit.matching.relations import MATCHERS, Relation, relation
from rewardkit.matching.sets import assign, equivalence_classes, match
from rewardkit.matching.text import (
    MODES,
    Mode,
    bag_f1,
    exact_match,
    fuzzy_match,
    normal_forms,
    token_f1,
)

__all__ = [
    "MATCHERS",
    "MODES",
    "Mode",
    "Relation",
    "assign",
    "bag_f1",
    "equivalence_classes",
    "exact_match",
    "fuzzy_match",
    "match",
    "math_match",
    "normal_forms",
    "relation",
    "token_f1",
]
