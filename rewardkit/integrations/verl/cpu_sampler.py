"""verl's own replay buffer, asked more often: its default of one look every 2 s dominates the steps of a tiny model."""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer


class FastPollReplayBuffer(ReplayBuffer):
    """For ``trainer.v1.sampler.custom_sampler``; ``sampler_kwargs.poll_interval`` in seconds (default 0.05)."""

    def __init__(self, *, sampler_kwargs: Any = None, **kwargs: Any):
        interval = float((sampler_kwargs or {}).get("poll_interval", 0.05))
        super().__init__(sampler_kwargs=sampler_kwargs, poll_interval=interval, **kwargs)
