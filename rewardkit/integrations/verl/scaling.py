"""Which of verl 0.9.1's advantage estimators divide by a group's standard deviation, which makes a proper reward improper."""

from __future__ import annotations

from typing import Any

SETTING = "algorithm.norm_adv_by_std_in_grpo"

# verl hands its setting to the estimator "grpo" alone, and "grpo_passk" looks it up itself; these two never learn of it and
# divide always (verl/trainer/ppo/ray_trainer.py, compute_advantage).
_ALWAYS = {
    "grpo_vectorized": "divides by a group's standard deviation",
    "gdpo": "divides each of algorithm.gdpo_reward_keys by its standard deviation in the group, instead of the reward",
}


def group_std_harm(rewards: str, *, estimator: Any, normalise: Any, default: bool = False) -> tuple[str, str] | None:
    """Why a job's advantages spoil its calibration rewards, and the remedy; None where they do not.

    Args:
        rewards: The calibration rewards' names, for the text.
        estimator: ``algorithm.adv_estimator``.
        normalise: ``algorithm.norm_adv_by_std_in_grpo``.
        default: Whether that setting is verl's own and does not stand in the config, for the text.
    """
    name = str(getattr(estimator, "value", estimator))
    harm = "which pushes confidences to 0 and 1 (a right chance of 0.6 is stated as about 0.86)"
    if name in _ALWAYS:
        reason = f"algorithm.adv_estimator={name} with the calibration reward {rewards}: verl {_ALWAYS[name]}, whatever {SETTING} says, {harm}."
        return reason, f"algorithm.adv_estimator=grpo {SETTING}=False"
    if "grpo" in name and normalise:
        said = " (verl's default)" if default else ""
        reason = f"{SETTING}=True{said} with the calibration reward {rewards}: verl divides by a group's standard deviation, {harm}."
        return reason, f"{SETTING}=False"
    return None
