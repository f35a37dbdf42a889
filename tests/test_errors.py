"""Errors name what was wrong, and survive a trip between processes."""

from __future__ import annotations

import pickle

import pytest

from rewardkit import errors


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            errors.InvalidArgumentError("bins", expected="a whole number >= 1", got=0),
            "bins: expected a whole number >= 1, got 0",
        ),
        (
            errors.DataError("a string", "a float", file="x.jsonl", row=3, column="answer"),
            "x.jsonl, row 3, column 'answer': expected a string, found a float",
        ),
        (
            errors.UnknownNameError("reward", "rlcrr", ["rlvr", "rlcr"]),
            "unknown reward 'rlcrr'. Did you mean 'rlcr'? Known: rlcr, rlvr",
        ),
        (
            errors.UnknownNameError("reward", "x", ["rlcr"], where="reward.reward_kwargs.reward"),
            "reward.reward_kwargs.reward: unknown reward 'x'",
        ),
        (errors.MissingExtraError("math matching", package="math-verify", extra="math"), "rewardkit[math]"),
    ],
)
def test_says_what_and_where_and_pickles(error: Exception, text: str) -> None:
    assert text in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
