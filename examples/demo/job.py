"""One GRPO job: ``python -m verl.trainer.main_ppo``, unmodified, in a process group and a Ray of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.demo import world
from rewardkit.integrations.verl import launch, run_check

MARK = "REWARDKIT_DEMO_RUN"


@dataclass
class Job:
    """What to train, on what, and where its files go.

    Attributes:
        folder: Gets ``log.txt``, ``rollouts/`` and ``validation/``.
        policy: A model's folder.
        train_file: verl's training rows.
        validation_file: verl's validation rows.
        reward: ``reward.reward_kwargs``.
        steps: Training steps.
        prompts: Prompts per step.
        group: Rollouts per prompt.
        learning_rate: Of AdamW.
        seed: Of sampling and of the order of the data.
        extra: Further overrides, which win.
        script: A training script to run in place of ``verl.trainer.main_ppo``.
    """

    folder: Path
    policy: Path
    train_file: Path
    validation_file: Path
    reward: Mapping[str, Any]
    steps: int
    prompts: int = 16
    group: int = 8
    learning_rate: float = 1.5e-3
    seed: int = 1
    extra: Sequence[str] = ()
    script: Path | None = None

    @property
    def log(self) -> Path:
        """Everything that verl and Ray printed."""
        return self.folder / "log.txt"

    def overrides(self) -> list[str]:
        """The arguments of ``main_ppo``."""
        from rewardkit.integrations.verl.launch import hydra

        rollouts = self.prompts * self.group
        return [
            *launch.cpu_overrides(),
            "reward.reward_manager.name=rewardkit",
            "reward.num_workers=1",
            f"+reward.reward_kwargs={hydra(self.reward)}",
            "algorithm.adv_estimator=grpo",
            "algorithm.norm_adv_by_std_in_grpo=False",
            "algorithm.use_kl_in_reward=False",
            f"data.train_files={hydra(str(self.train_file))}",
            f"data.val_files={hydra(str(self.validation_file))}",
            f"data.train_batch_size={self.prompts}",
            f"data.max_prompt_length={world.MAX_PROMPT}",
            f"data.max_response_length={world.MAX_RESPONSE}",
            f"data.seed={self.seed}",
            f"actor_rollout_ref.model.path={hydra(str(self.policy))}",
            f"actor_rollout_ref.actor.optim.lr={self.learning_rate}",
            "actor_rollout_ref.actor.optim.weight_decay=0.0",
            f"actor_rollout_ref.actor.ppo_mini_batch_size={self.prompts}",
            f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={rollouts}",
            "actor_rollout_ref.actor.use_kl_loss=False",
            f"actor_rollout_ref.rollout.n={self.group}",
            f"actor_rollout_ref.rollout.seed={self.seed}",
            f"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu={rollouts}",
            # Held-out questions are answered as in training, by sampling, so that what is measured is the policy itself.
            "actor_rollout_ref.rollout.val_kwargs.do_sample=True",
            "actor_rollout_ref.rollout.val_kwargs.temperature=1.0",
            "trainer.logger=[console]",
            "trainer.val_before_train=True",
            f"trainer.test_freq={self.steps}",
            "trainer.save_freq=-1",
            "trainer.resume_mode=disable",
            "trainer.total_epochs=1000",
            f"trainer.total_training_steps={self.steps}",
            f"trainer.rollout_data_dir={hydra(str(self.folder / 'rollouts'))}",
            f"trainer.validation_data_dir={hydra(str(self.folder / 'validation'))}",
            f"trainer.default_local_dir={hydra(str(self.folder / 'checkpoints'))}",
            "hydra.run.dir=.",
            "hydra.output_subdir=null",
            *self.extra,
        ]


@dataclass
class Finished:
    """How a job ended.

    Attributes:
        exit_code: verl's own; 0 does not mean that it trained.
        seconds: Wall time, start-up included.
        metrics: What verl printed for each step.
        problems: What went wrong, in words; empty for a job that trained as asked.
    """

    exit_code: int
    seconds: float
    metrics: dict[int, dict[str, float]]
    problems: list[str]


def run(
    job: Job,
    *,
    on_step: Callable[[int, dict[str, float]], None] | None = None,
    validation_rows: int | None = None,
    timeout: float = 1800,
) -> Finished:
    """Runs a job to its end and leaves no process behind, whatever happens.

    Args:
        job: What to run.
        on_step: Called with every step's metrics as verl prints them.
        validation_rows: How many held-out questions each validation must answer.
        timeout: Seconds after which the job is ended.
    """
    shutil.rmtree(job.folder, ignore_errors=True)
    job.folder.mkdir(parents=True)
    ray_folder = tempfile.mkdtemp(
        prefix="rk"
    )  # short: Ray's sockets lie in it, and their paths may have 107 characters
    mark = uuid.uuid4().hex
    # A Ray that runs on this machine already is somebody else's.
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    environment |= launch.cpu_environment() | {"RAY_TMPDIR": ray_folder, MARK: mark, "PYTHONUNBUFFERED": "1"}
    program = ["-m", "verl.trainer.main_ppo"] if job.script is None else [str(job.script)]
    command = [sys.executable, *program, *job.overrides()]
    started = time.monotonic()
    with job.log.open("wb") as log, job.log.open(errors="replace") as reader:
        process = subprocess.Popen(
            command, cwd=job.folder, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            while process.poll() is None:
                for line in reader:
                    step = run_check.parse_step(line)
                    if step and on_step:
                        on_step(*step)
                if time.monotonic() - started > timeout:
                    raise TimeoutError(f"the job did not end within {timeout:.0f} s; its log: {job.log}")
                time.sleep(0.2)
        finally:
            _end(process, mark)
            shutil.rmtree(ray_folder, ignore_errors=True)
    trace = run_check.check_run(
        log=job.log,
        steps=job.steps,
        exit_code=process.returncode,
        rollouts=job.folder / "rollouts",
        prompts=job.prompts,
        group=job.group,
        validation=job.folder / "validation",
        validation_rows=validation_rows,
    )
    return Finished(process.returncode, time.monotonic() - started, trace.steps, trace.problems)


def write_whole(path: Path, text: str) -> None:
    """Writes a file that is either there in full or not at all."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_text(text)
    unfinished.replace(path)


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """Ends what a job may have left running: the processes that carry its mark, and no others."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        left = _marked(mark)
        if not left:
            break
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and _marked(mark):
            process.poll()
            time.sleep(0.1)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)


def _marked(mark: str) -> list[int]:
    """The processes whose environment holds a job's mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found
