"""Real jobs of an unmodified verl on the CPU, in both trainers: minutes each."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
from pathlib import Path

import pyarrow.parquet as pyarrow_parquet
import pytest

pytest.importorskip("torch")
if importlib.util.find_spec("verl") is None or importlib.util.find_spec("transfer_queue") is None:
    pytest.skip("verl or TransferQueue is not installed", allow_module_level=True)

from examples.demo import job, world
from examples.likelihood import task as likelihood_task
from rewardkit.integrations.verl.settings import COMMON

ROOT = Path(__file__).resolve().parent.parent
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

STEPS, PROMPTS, GROUP, HELD_OUT = 2, 4, 4, 12


@pytest.fixture(scope="module")
def world_folder(tmp_path_factory) -> Path:
    if not any(entry.name == "rewardkit" for entry in importlib.metadata.entry_points(group="verl.plugins")):
        pytest.skip("rewardkit is not installed (verl finds its plug-in among installed packages)")
    folder = tmp_path_factory.mktemp("a world")
    world.teach(folder / "policy", seed=3, steps=80)
    world.write_verl_rows(folder / "train.parquet", world.questions(PROMPTS * STEPS, train=True, seed=3), split="train")
    world.write_verl_rows(folder / "val.parquet", world.questions(HELD_OUT, train=False, seed=3), split="test")
    return folder


def make_job(folder: Path, name: str, reward, *extra: str) -> job.Job:
    return job.Job(
        folder=folder / name,
        policy=folder / "policy",
        train_file=folder / "train.parquet",
        validation_file=folder / "val.parquet",
        reward=reward,
        steps=STEPS,
        prompts=PROMPTS,
        group=GROUP,
        extra=extra,
    )


def validation(task: job.Job, step: int) -> list[dict]:
    dump = task.folder / "validation" / f"{step}.jsonl"
    return [json.loads(line) for line in dump.read_text().split("\n") if line]


SEVERAL = {
    "rewards": [
        {"reward": "rlcr", "params": {"format": "tac"}, "data_source": ["demo/obscure", "demo/hard"]},
        {
            "reward": "rlvr",
            "params": {"format": "tac"},
            "data_source": ["demo/fair", "demo/easy", "demo/hard"],
            "weight": 0.5,
        },
    ]
}


@pytest.mark.parametrize("use_v1", [True, False], ids=["v1", "legacy"])
def test_both_trainers(world_folder, use_v1) -> None:
    """Several rewards by data source: every row of every dump has every column, and the trainer's sum is theirs."""
    task = make_job(world_folder, f"trainer_{use_v1}", SEVERAL, f"trainer.use_v1={str(use_v1).lower()}")
    finished = job.run(task, validation_rows=HELD_OUT)
    assert finished.problems == []
    for step in (0, STEPS):
        rows = validation(task, step)
        wanted = {*COMMON, "rlcr", "rlcr_confidence", "rlcr_brier", "rlvr", "rlvr_acc"}
        for row in rows:
            assert wanted <= row.keys()
            assert all(isinstance(row[name], float) for name in wanted)
            assert row["score"] == pytest.approx(row["rlcr"] + 0.5 * row["rlvr"], abs=1e-5)
            assert row["status_ok"] + row["status_unparsed"] + row["status_failed"] == 1.0
        assert {tuple(sorted(row)) for row in rows} == {tuple(sorted(rows[0]))}
        assert any(row["rlcr"] for row in rows)
        assert any(row["rlvr"] for row in rows)
    assert any(name.startswith("val-core/demo/hard/acc") for name in finished.metrics[STEPS])
    assert finished.metrics[1]["training/rollout_probs_diff_mean"] < 1e-4  # the server has the trainer's weights


def test_by_path(world_folder) -> None:
    task = make_job(
        world_folder,
        "by path",
        {"reward": "rlcr", "params": {"format": "tac"}},
        "reward.reward_manager.source=importlib",
        "reward.reward_manager.name=RewardManager",
        "reward.reward_manager.module.path=pkg://rewardkit.integrations.verl.manager",
    )
    assert job.run(task, validation_rows=HELD_OUT).problems == []
    assert all("confidence" in row for row in validation(task, STEPS))


def test_a_broken_reference_ends_the_job_with_its_row_named(world_folder) -> None:
    rows = world.questions(PROMPTS * STEPS, train=True, seed=3)
    rows[5] = world.Question(rows[5].kind, rows[5].subject, "")
    broken = world_folder / "broken.parquet"
    world.write_verl_rows(broken, rows, split="train")
    task = make_job(world_folder, "broken", {"reward": "rlcr"}, f"data.train_files={job.launch.hydra(str(broken))}")
    finished = job.run(task)
    assert finished.exit_code != 0
    assert not [step for step in finished.metrics if step > 0]
    log = task.log.read_text(errors="replace")
    assert "broken.parquet, row 6, column 'reward_model.ground_truth'" in log


LOOPS = """- name: rewardkit_reference
  _target_: rewardkit.integrations.verl.agent_loop.ReferenceAgentLoop
  own_answer: true
- name: rewardkit_reference_tool
  _target_: rewardkit.integrations.verl.agent_loop.ReferenceToolAgentLoop
  own_answer: true
"""
DARL = {"beta": 0.5, "gamma": 1.0}


@pytest.fixture(scope="module")
def likelihood_world(world_folder) -> Path:
    """A policy that answers what it thinks; half of the prompts use verl's tool loop."""
    folder = world_folder / "likelihood"
    likelihood_task.teach(folder / "policy", seed=3, steps=150)
    for split, rows in (("train", 12 * PROMPTS), ("val", HELD_OUT)):
        file = folder / f"{split}.parquet"
        likelihood_task.write_rows(file, rows=rows, seed=3, split=split)
        table = pyarrow_parquet.read_table(file)
        loops = ["rewardkit_reference", "rewardkit_reference_tool"] * (rows // 2)
        pyarrow_parquet.write_table(table.append_column("agent_name", [loops]), file)
    (folder / "loops.yaml").write_text(LOOPS)
    return folder


def loop_overrides(folder: Path) -> tuple[str, ...]:
    return (
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={job.launch.hydra(str(folder / 'loops.yaml'))}",
        "actor_rollout_ref.rollout.agent.default_agent_loop=rewardkit_reference",
        "actor_rollout_ref.rollout.calculate_log_probs=True",
    )


def test_a_reward_of_groups_the_std_filter_and_both_reference_loops(likelihood_world) -> None:
    """NOVER ranks whole groups, and RLPR's filter drops those that hardly vary."""
    folder, steps = likelihood_world, 3
    task = make_job(
        folder,
        "groups",
        {"rewards": [{"reward": "rlpr"}, {"reward": "nover", "weight": 0.25}], "group_timeout": 60},
        *loop_overrides(folder),
        "trainer.v1.sampler.custom_sampler.path=pkg://rewardkit.integrations.verl.std_filter",
        "trainer.v1.sampler.custom_sampler.name=StdFilterReplayBuffer",
        f"+trainer.v1.sampler.sampler_kwargs={{train_batch_size: {PROMPTS}, metric: rlpr, beta: 1.0, ema: 0.5, warmup: 1}}",
        "data.gen_batch_size=1",
        f"trainer.total_training_steps={steps}",
        f"trainer.test_freq={steps}",
    )
    task.steps = steps
    finished = job.run(task, validation_rows=HELD_OUT)
    assert finished.problems == []
    for row in validation(task, steps):
        assert row["status_ok"] + row["status_unparsed"] == 1.0, row
    for step in range(1, steps + 1):
        rows = [json.loads(line) for line in (task.folder / "rollouts" / f"{step}.jsonl").read_text().splitlines()]
        groups: dict[str, list[float]] = {}
        for row in rows:
            groups.setdefault(row["uid"].split("_")[0], []).append(row["score"])
        assert [len(scores) for scores in groups.values()] == [GROUP] * PROMPTS
        assert all(len(set(scores)) > 1 for scores in groups.values())  # within a prompt the ranks differ
    dropped = [finished.metrics[step].get("training/filter_groups/evicted_samples", 0) for step in range(1, steps + 1)]
    assert dropped[0] == 0  # the warm-up
    assert sum(dropped) > 0


CHECKED = """
import json, sys
sys.path.insert(0, {root!r})
import ray, hydra
import transfer_queue as tq
from verl.trainer.main_ppo import run_ppo
from examples.verl.trainer_side import Runner, TrainerSide


class Checked(TrainerSide):
    def _compute_old_log_prob(self, batch, metrics):
        by_loop = self._rewards(batch)
        batch = super()._compute_old_log_prob(batch, metrics)
        with open({out!r}, "a") as file:
            file.write(json.dumps([by_loop, self._rewards(batch)]) + "\\n")
        return batch

    def _rewards(self, batch):
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["rm_scores"])
        return [row.sum().item() for row in data["rm_scores"].unbind()]


class CheckedRunner(Runner):
    trainer_class = Checked


@hydra.main(config_path="pkg://verl.trainer.config", config_name="ppo_trainer", version_base=None)
def main(config):
    run_ppo(config, task_runner_class=ray.remote(CheckedRunner))


main()
"""


def test_the_training_engine_gives_the_rewards_that_the_agent_loop_gives(likelihood_world) -> None:
    """The trainer-side script, in a job whose agent loop has asked the rollout server for the same numbers."""
    folder, out = likelihood_world, likelihood_world / "both.jsonl"
    script = folder / "train.py"
    script.write_text(CHECKED.format(root=str(ROOT), out=str(out)))
    task = make_job(
        folder,
        "trainer side",
        {"reward": "darl", "params": DARL},
        *loop_overrides(folder),
        f"+trainer_side={job.launch.hydra({'reward': 'darl', 'params': DARL})}",
        "trainer.test_freq=-1",
        "trainer.val_before_train=False",
    )
    task.script = script
    finished = job.run(task)
    assert finished.problems == []
    steps = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(steps) == STEPS
    for by_loop, by_trainer in steps:
        assert len(by_loop) == PROMPTS * GROUP
        assert max(by_loop) > min(by_loop)
        assert by_trainer == pytest.approx(by_loop, abs=1e-4)
    assert finished.metrics[STEPS]["trainer_side/scored"] > 0.5
