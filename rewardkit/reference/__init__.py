"""The readable twins of the native kernels: plain Python and numpy, slow on purpose, and the specification.

Each twin has the name and the signature of its kernel. The parity table in ``tests/parity.py`` runs them against each other.
"""

from rewardkit.reference.logprob import (
    linear_token_logprobs,
    online_softmax_update,
    span_reduce,
    token_logprobs,
    token_logprobs_backward,
)
from rewardkit.reference.match import (
    assign,
    bag_f1,
    equivalence_classes,
    exact_match,
    fuzzy_match,
    match_sets,
    normal_forms,
    score_matrix,
    token_f1,
)
from rewardkit.reference.parse import parse_completions, parse_spans

__all__ = [
    "assign",
    "bag_f1",
    "equivalence_classes",
    "exact_match",
    "fuzzy_match",
    "linear_token_logprobs",
    "match_sets",
    "normal_forms",
    "online_softmax_update",
    "parse_completions",
    "parse_spans",
    "score_matrix",
    "span_reduce",
    "token_f1",
    "token_logprobs",
    "token_logprobs_backward",
]

from rewardkit.reference.calibration import auroc_counts, calibration_histogram, segmented_calibration

__all__ = ["auroc_counts", "calibration_histogram", "segmented_calibration"]
