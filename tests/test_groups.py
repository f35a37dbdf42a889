"""Group helpers: advantages, leave-one-out, the filter, and grouping by prompt whatever the order."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rewardkit.errors import HarmfulSettingWarning, InvalidArgumentError
from rewardkit.groups import StdFilter, group_advantages, rloo

SCALES = ("none", "batch", "group")
rewards = arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(2, 6)), elements=st.floats(-10, 10, width=16))


def test_hand_values() -> None:
    r = np.array([[1.0, 0.0, 0.0, 0.0], [2.0, 2.0, 2.0, 2.0]])
    assert group_advantages(r)[0] == pytest.approx([0.75, -0.25, -0.25, -0.25])
    assert group_advantages(r, scale="group")[0] == pytest.approx(np.array([0.75, -0.25, -0.25, -0.25]) / (0.5 + 1e-4))
    assert group_advantages(r, scale="batch")[0] == pytest.approx(
        np.array([0.75, -0.25, -0.25, -0.25]) / (r.std(ddof=1) + 1e-4)
    )
    assert group_advantages(r, scale="group", eps=1e-6, ddof=0)[0, 0] == pytest.approx(0.75 / (math.sqrt(3) / 4 + 1e-6))
    for scale in SCALES:
        assert group_advantages(r, scale=scale)[1].tolist() == [0.0] * 4


@given(r=rewards, scale=st.sampled_from(SCALES))
def test_advantages_are_finite_and_sum_to_zero(r, scale) -> None:
    got = group_advantages(r, scale=scale)
    assert np.isfinite(got).all()
    assert np.abs(got.sum(axis=1)).max() <= 1e-6 * max(1.0, np.abs(got).max())


@given(r=rewards, shifts=st.integers(-8, 8), scale=st.sampled_from(SCALES))
def test_a_shift_of_everything_changes_nothing(r, shifts, scale) -> None:
    np.testing.assert_allclose(
        group_advantages(r + shifts, scale=scale), group_advantages(r, scale=scale), atol=1e-9, rtol=0
    )


@given(r=rewards)
def test_per_prompt_shift_changes_nothing_unscaled_and_group_scaled(r) -> None:
    """So a backoff reward with the log-lift and without it give equal advantages."""
    shifts = np.linspace(-3.0, 5.0, len(r))[:, None]
    for scale in ("none", "group"):
        np.testing.assert_allclose(
            group_advantages(r + shifts, scale=scale), group_advantages(r, scale=scale), atol=1e-9, rtol=0
        )


@given(r=rewards, factor=st.sampled_from([0.25, 2.0, 16.0]))
def test_group_scaling_forgets_the_size_of_rewards(r, factor) -> None:
    r = r[r.std(axis=1) > 1e-3]
    if r.size:
        got = group_advantages(r * factor, scale="group", eps=0.0)
        np.testing.assert_allclose(got, group_advantages(r, scale="group", eps=0.0), atol=1e-9)


@pytest.mark.parametrize("scale", SCALES)
def test_a_group_of_one_gets_zero(scale) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert group_advantages([[3.0], [1.0]], scale=scale).tolist() == [[0.0], [0.0]]
        assert group_advantages(np.zeros((0, 4)), scale=scale).shape == (0, 4)


@pytest.mark.parametrize("scale", SCALES)
def test_nearly_flat_group_is_not_blown_up(scale) -> None:
    r = np.array([[1.0, 1.0 + 1e-9, 1.0, 1.0], [0.0, 1.0, 0.0, 1.0]])
    assert np.abs(group_advantages(r, scale=scale, eps=0.0)[0]).max() < 1e-8


@given(r=rewards)
def test_rloo_is_the_mean_of_the_others(r) -> None:
    size = r.shape[1]
    others = (r.sum(axis=1, keepdims=True) - r) / (size - 1)
    np.testing.assert_allclose(rloo(r), r - others, atol=1e-9)
    np.testing.assert_allclose(rloo(r), size / (size - 1) * group_advantages(r), atol=1e-9)


@given(r=rewards, seed=st.integers(0, 100), scale=st.sampled_from(SCALES))
def test_BR_082_shuffled_rows_group_by_prompt(r, seed, scale) -> None:
    ids = np.repeat([f"uid-{n}" for n in range(len(r))], r.shape[1])
    shuffle = np.random.default_rng(seed).permutation(r.size)
    flat = group_advantages(r.ravel()[shuffle], group_ids=ids[shuffle], scale=scale)
    np.testing.assert_allclose(flat, group_advantages(r, scale=scale).ravel()[shuffle], atol=1e-12)
    np.testing.assert_allclose(rloo(r.ravel()[shuffle], group_ids=ids[shuffle]), rloo(r).ravel()[shuffle], atol=1e-12)


def test_BR_082_incomplete_group_is_an_error_that_names_it() -> None:
    with pytest.raises(InvalidArgumentError, match=r"1 of 'b'.*incomplete"):
        group_advantages([1.0, 0.0, 1.0], group_ids=["a", "a", "b"])
    with pytest.raises(InvalidArgumentError, match=r"4 rollouts of every prompt.*2 of 'a'"):
        group_advantages([1.0, 0.0], group_ids=["a", "a"], group_size=4)
    with pytest.raises(InvalidArgumentError, match="group_ids"):
        group_advantages([1.0, 0.0], group_ids=["a"])


@pytest.mark.parametrize(
    "bad",
    [
        ["1.0", "2.0"],
        [[1.0, None]],
        None,
        [1.0, 2.0],
        [[1.0, math.nan]],
        [[1.0, math.inf]],
        [["a"]],
        [[1.0], [1.0, 2.0]],
        1.0,
    ],
)
def test_bad_rewards_are_named(bad) -> None:
    with pytest.raises(InvalidArgumentError, match="rewards"):
        group_advantages(bad)


def test_bad_parameters_are_named() -> None:
    for keyword, bad in (("scale", "std"), ("eps", -1.0), ("ddof", 2)):
        with pytest.raises(InvalidArgumentError, match=keyword):
            group_advantages([[1.0, 0.0]], **{keyword: bad})
    with pytest.raises(InvalidArgumentError, match="at least 2"):
        rloo([[1.0]])
    for keyword, bad in (
        ("beta", -0.1),
        ("ema", 1.0),
        ("ema", math.nan),
        ("warmup", 0),
        ("warmup", 1.5),
        ("warmup", "2"),
    ):
        with pytest.raises(InvalidArgumentError, match=keyword):
            StdFilter(**{keyword: bad})


def test_groups_that_are_no_groups_are_named() -> None:
    for bad in (2.0, True, 0, "2"):
        with pytest.raises(InvalidArgumentError, match="group_size"):
            group_advantages([[1.0, 0.0]], group_size=bad)
    for bad in ([[1], [1]], np.array([[1], [1]]), "aa", 7, iter([1, 1])):
        with pytest.raises(InvalidArgumentError, match="group_ids"):
            group_advantages([1.0, 0.0], group_ids=bad)
    for bad in (2, "1", None):
        with pytest.raises(InvalidArgumentError, match="ddof"):
            StdFilter(warmup=1)([[0, 1]], ddof=bad)


@pytest.mark.parametrize("scale", ["batch", "group"])
@pytest.mark.parametrize("eps", [0.0, 1e-4])
def test_rewards_that_are_all_equal_have_no_advantages(scale, eps) -> None:
    for value in (1.0, 0.1, -3.3):  # the mean of ten times 0.1 is not 0.1
        found = group_advantages(np.full((2, 10), value), scale=scale, eps=eps)
        assert not found.any()
    found = group_advantages([[1.0, 0.0], [0.5, 0.5]], scale=scale, eps=eps)
    assert np.isfinite(found).all()
    assert found[0, 0] > 0


def test_filter_drops_infinite_groups_without_a_word_from_numpy() -> None:
    keep = StdFilter(warmup=1)
    assert keep([[0.0, 1.0], [math.inf, 1.0], [math.inf, -math.inf]]).tolist() == [True, False, False]
    assert keep.average == pytest.approx(math.sqrt(0.5))


def test_calibration_reward_with_group_scaling_warns() -> None:
    from rewardkit import rewards as catalogue

    with pytest.warns(HarmfulSettingWarning, match="norm_adv_by_std_in_grpo"):
        group_advantages([[1.0, 0.0]], scale="group", reward=catalogue.get("rlcr"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        group_advantages([[1.0, 0.0]], scale="batch", reward=catalogue.get("rlcr"))
        group_advantages([[1.0, 0.0]], scale="group", reward=catalogue.get("rlvr"))


def batch(*deviations: float) -> np.ndarray:
    """Groups of two with the given population standard deviations."""
    return np.array([[-one, one] for one in deviations])


def test_filter_warm_up_and_threshold_before_the_update() -> None:
    keep = StdFilter(beta=0.5, ema=0.9, warmup=2)
    assert keep(batch(0.0, 1.0), ddof=0).tolist() == [True, True]
    assert keep.average is None
    assert keep(batch(2.0, 3.0), ddof=0).tolist() == [True, True]
    assert keep.average == pytest.approx(1.5)  # mean of .5 and 2.5
    assert keep(batch(0.7, 0.75, 0.8, 30.0), ddof=0).tolist() == [False, True, True, True]
    assert keep.kept_fraction == 0.75
    assert keep.average == pytest.approx(0.9 * 1.5 + 0.1 * 8.0625)  # all four groups, kept or not


def test_filter_drops_nan_groups_and_leaves_them_out() -> None:
    keep = StdFilter(warmup=1)
    assert keep([[0.0, 1.0], [math.nan, 1.0]]).tolist() == [True, False]
    assert keep.average == pytest.approx(math.sqrt(0.5))
    keep(np.full((2, 2), math.nan))
    assert keep.average == pytest.approx(math.sqrt(0.5))
    assert keep.kept_fraction == 0.0


def test_filter_by_rollout_with_ids() -> None:
    keep = StdFilter(warmup=1)
    keep([[0.0, 1.0]])
    assert keep([0.0, 0.5, 1.0, 0.5], group_ids=["a", "b", "a", "b"]).tolist() == [True, False, True, False]
    with pytest.raises(InvalidArgumentError, match="at least 2"):
        keep([[1.0]])


def test_filter_keeps_informative_groups() -> None:
    rng = np.random.default_rng(0)
    keep = StdFilter(warmup=5)
    spread = np.where(np.arange(64) < 32, 0.01, 1.0)[:, None]
    for _ in range(20):
        kept = keep(spread * rng.normal(size=(64, 8)))
    assert not kept[:32].any()
    assert kept[32:].mean() > 0.95
