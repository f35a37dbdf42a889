"""Lets an unmodified verl run a job on the CPU: for tests, demos and trying a job on a laptop. Not for real training.

Set ``VERL_USE_EXTERNAL_MODULES=rewardkit.integrations.verl.cpu`` in the environment of ``python -m verl.trainer.main_ppo`` and
``actor_rollout_ref.rollout.name=rewardkit_cpu`` among its overrides; verl imports this module in the driver and in every
Ray process. ``docs/verl.md`` lists the other overrides that a machine without a GPU needs
(:mod:`rewardkit.integrations.verl.launch` gives them to scripts).

Importing registers, through verl's own extension points, a ``cpu`` platform and a rollout on a transformers model
(``RolloutReplicaRegistry.register``; verl has no public register for the trainer's half of a rollout, so one entry is
added to ``_ROLLOUT_REGISTRY``).
"""

from __future__ import annotations

import logging
import os
import sys

from rewardkit.errors import BackendError
from rewardkit.integrations.verl.launch import CPU_ROLLOUT

_NOTE = (
    "rewardkit: verl runs on the CPU through rewardkit.integrations.verl.cpu. This is for tests, demos and laptops: "
    "one process generates with plain transformers. Unset VERL_USE_EXTERNAL_MODULES for real training."
)


def register() -> None:
    """Registers the platform and the rollout in this process; done by importing the module.

    Raises:
        BackendError: The environment asks verl for another platform.
    """
    asked = os.environ.setdefault("VERL_PLATFORM", "cpu").strip().lower()
    if asked != "cpu":
        raise BackendError(
            f"VERL_USE_EXTERNAL_MODULES names {__name__}, but VERL_PLATFORM={asked!r}: unset one of the two"
        )
    os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")
    # Where TRL is installed, verl 0.9.1 imports a class from it that newer releases of TRL have dropped, and stops. It needs
    # TRL for nothing that runs here, so in this process TRL counts as not installed.
    if "trl" not in sys.modules:
        sys.modules["trl"] = None  # type: ignore[assignment]

    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    from rewardkit.integrations.verl import cpu_platform  # noqa: F401  (importing registers the platform)

    def load_replica() -> type:
        from rewardkit.integrations.verl.cpu_rollout import TransformersReplica

        return TransformersReplica

    RolloutReplicaRegistry.register(CPU_ROLLOUT, load_replica)
    base._ROLLOUT_REGISTRY[(CPU_ROLLOUT, "async")] = "rewardkit.integrations.verl.cpu_rollout.TransformersServerAdapter"
    if "default_worker" not in sys.argv[0]:  # once, in the driver; Ray's worker processes would repeat it
        logging.getLogger(__name__).warning(_NOTE)


register()
