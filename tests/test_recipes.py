from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from rewardkit import parsing, preflight
from rewardkit.cli import commands  # noqa: F401
from rewardkit.cli.app import app
from rewardkit.cli.validate import load_config
from rewardkit.data.build import build
from rewardkit.data.generic import generic, gold_shape, layout
from rewardkit.errors import DataError, UnknownNameError
from rewardkit.integrations.verl import recipes
from rewardkit.integrations.verl.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("darl", "hypotheses_backoff", "multi_rlcr_ddxplus", "rlcr_hotpotqa", "rlpr", "rlvr_hotpotqa")


@cache  # a composition takes a second or two
def composed(name: str, *overrides: str) -> str:
    return json.dumps(plain(compose(name, *overrides)))


def settings_of(name: str, *overrides: str) -> dict[str, Any]:
    return json.loads(composed(name, *overrides))


def compose(name: str, *overrides: str) -> Any:
    hydra = pytest.importorskip("hydra")
    pytest.importorskip("verl")
    with hydra.initialize_config_dir(str(recipes.folder()), version_base=None):
        return hydra.compose(name, overrides=list(overrides))


def plain(config: Any) -> dict[str, Any]:
    from omegaconf import OmegaConf

    return OmegaConf.to_container(config, resolve=True)  # type: ignore[return-value]


def invoke(*arguments: object):
    return CliRunner().invoke(app, ["recipe", *map(str, arguments)], catch_exceptions=False)


# ---- the files ----------------------------------------------------------------------------------


def test_names() -> None:
    assert recipes.names() == NAMES
    with pytest.raises(UnknownNameError, match="rlcr_hotpotqa"):
        recipes.get("rlcr_hotpot")


@pytest.mark.parametrize("name", NAMES)
def test_each_says_what_it_is_and_how_to_run_it(name: str) -> None:
    recipe = recipes.get(name)
    assert recipe.title.endswith(".")
    assert recipe.paper
    for word in ("# data", "# check", "# run", "# on CPU", f"--config-name {name} "):
        assert word in recipe.text
    assert f"--config-name {name}" in recipe.command()
    assert "+scale=cpu" in recipe.command(cpu=True)
    assert "VERL_PLATFORM=cpu" in recipe.command(cpu=True)


def test_examples_are_the_recipes() -> None:
    """The folder of examples shows the files that ship, not copies of them."""
    for path in recipes.folder().rglob("*.yaml"):
        shown = ROOT / "examples" / "verl" / path.relative_to(recipes.folder())
        assert shown.read_text() == path.read_text()
        assert shown.resolve() == path.resolve()


@pytest.mark.parametrize("name", NAMES)
def test_each_composes_with_verl_and_names_a_reward_that_exists(name: str) -> None:
    values = settings_of(name)
    settings = Settings.of(values["reward"]["reward_kwargs"])
    assert values["reward"]["reward_manager"]["name"] == "rewardkit"
    assert values["algorithm"]["adv_estimator"] == "grpo"
    assert values["actor_rollout_ref"]["rollout"]["n"] >= 8
    (term,) = settings.terms
    assert term.reward.fail_reward < term.reward.min_value
    # A calibration reward and division by the group's deviation never go together.
    assert not (term.reward.proper and values["algorithm"]["norm_adv_by_std_in_grpo"])


@pytest.mark.parametrize("name", ["rlcr_hotpotqa", "rlpr"])  # one of each base; a composition takes seconds
def test_one_override_file_makes_it_fit_the_cpu(name: str) -> None:
    from rewardkit.integrations.verl.launch import cpu_overrides

    small = settings_of(name, "+scale=cpu")
    # What the CPU backend's own list of overrides would change, but for the sampler of RLPR's filter.
    wanted = [text.lstrip("+") for text in cpu_overrides() if "custom_sampler" not in text]
    assert settings_of(name, "+scale=cpu", *[f"++{text}" for text in wanted]) == small
    assert small["reward"]["reward_kwargs"] == settings_of(name)["reward"]["reward_kwargs"]
    assert small["trainer"]["total_training_steps"] == 2


def literal_format(name: str) -> str:
    """The format that the head of a recipe has its data made in."""
    found = re.search(r"^# data .*--format (\w+)", recipes.get(name).text, re.M)
    assert found is not None
    return found.group(1)


@pytest.mark.parametrize("name", NAMES)
def test_the_commands_in_a_head_exist_and_make_the_files_that_the_run_reads(name: str, cli) -> None:
    head = recipes.get(name).text.split("hydra:")[0]
    lines = [line.lstrip("# ").removeprefix("data ").removeprefix("check ").strip() for line in head.splitlines()]
    calls = [shlex.split(line) for line in lines if line.startswith("rewardkit ")]
    assert len(calls) >= 3
    for _, *words in calls:
        leaf = words[:2] if words[0] == "data" else words[:1]
        known = cli(*leaf, "--help").out
        for option in (word for word in words if word.startswith("-")):
            assert re.search(rf"(^|[ ,]){option}[ ,]", known, re.M), f"{name}: {' '.join(leaf)} has no {option}"
    made = {words[words.index("-o") + 1] for words in calls if "-o" in words}
    assert {"train.parquet", "test.parquet"} <= made
    for words in calls:
        read = {word for word in words if word.endswith(".parquet")} - {
            words[words.index("-o") + 1] if "-o" in words else ""
        }
        assert read <= made
    assert "data.train_files=train.parquet data.val_files=test.parquet" in head


@pytest.mark.parametrize("name", NAMES)
def test_each_passes_the_preflight(name: str) -> None:
    gold: Any = ["Flu", "Cold"] if name.startswith("multi") else "Paris"
    style = literal_format(name)
    rows = [
        {
            "data_source": "made",
            "prompt": [{"role": "user", "content": f"Question {number}?\n\n{parsing.prompt(style)}"}],
            "reward_model": {"style": "rule", "ground_truth": gold},
            "extra_info": {"prior_logprob": -3.0},
        }
        for number in range(3)
    ]
    for config in (
        load_config(recipes.folder() / f"{name}.yaml"),
        settings_of(name),
        settings_of(name, "+scale=cpu"),
    ):
        report = preflight.run(rows=rows, config=config)
        assert report.findings == []
        assert report.rows == 3


# ---- the command --------------------------------------------------------------------------------


def test_list_and_show() -> None:
    assert [entry["name"] for entry in json.loads(invoke("list", "--json").stdout)] == list(NAMES)
    assert "arXiv:2507.16806" in invoke("list").stdout
    shown = invoke("show", "rlpr").stdout
    assert "std_filter" not in shown
    assert "reward: rlpr" in shown
    assert "main_ppo" in shown.splitlines()[-1]


def test_write(tmp_path: Path) -> None:
    to = tmp_path / "recipes"
    written = invoke("write", to, "darl").stdout.split()
    assert {str(Path(path).relative_to(to)) for path in written} == {
        "darl.yaml",
        "base.yaml",
        "base_likelihood.yaml",
        "agents/reference.yaml",
        "agents/reference_and_own.yaml",
        "scale/cpu.yaml",
    }
    invoke("write", to)  # what is there already and the same is fine
    assert sorted(path.stem for path in to.glob("*.yaml")) == sorted([*NAMES, "base", "base_likelihood"])
    (to / "darl.yaml").write_text("mine")
    with pytest.raises(DataError, match=r"darl\.yaml"):
        invoke("write", to, "darl")
    invoke("write", to, "darl", "--force")
    assert (to / "darl.yaml").read_text() == recipes.get("darl").text


# ---- the shrunk recipes run ---------------------------------------------------------------------


@dataclass
class RecipeJob:
    """A recipe as the demo's runner takes a job: verl's own command line with the recipe's config."""

    folder: Path
    name: str
    policy: Path
    train_file: Path
    steps: int = 2  # and these are the numbers of scale/cpu.yaml
    prompts: int = 2
    group: int = 2
    script: None = None

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    def overrides(self) -> list[str]:
        return [
            "--config-path",
            str(recipes.folder()),
            "--config-name",
            self.name,
            "+scale=cpu",
            f"data.train_files={self.train_file}",
            f"data.val_files={self.train_file}",
            f"actor_rollout_ref.model.path={self.policy}",
            f"trainer.rollout_data_dir={self.folder / 'rollouts'}",
            f"trainer.default_local_dir={self.folder / 'checkpoints'}",
            "hydra.run.dir=.",
            "hydra.output_subdir=null",
        ]


def made_rows(name: str) -> list[Mapping[str, Any]]:
    gold: Any = ["Flu", "Cold", "Gout"] if name.startswith("multi") else "4"
    return [{"question": f"What is {number} + {number}?", "answer": gold} for number in range(8)]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", NAMES)
def test_the_shrunk_recipe_trains(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """verl, unmodified, on the CPU: steps are made, and every prompt of every step was scored."""
    pytest.importorskip("verl")
    from examples.demo.job import run

    from .test_trl import make_tiny_model

    monkeypatch.setenv("REWARDKIT_RECIPES", str(recipes.folder()))
    # verl finds the reward manager through the package's entry point, which a checkout that is not installed lacks.
    installed = tmp_path / "installed" / "rewardkit-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: rewardkit\nVersion: 0\n")
    (installed / "entry_points.txt").write_text("[verl.plugins]\nrewardkit = rewardkit.integrations.verl.plugin\n")
    places = [str(ROOT), str(installed.parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, places)))
    make_tiny_model(tmp_path / "tiny")
    rows = made_rows(name)
    shape = gold_shape(rows[0]["answer"])
    train = tmp_path / "train.parquet"
    build(
        rows,
        lambda row: generic(row, shape=shape, gold_kind="set" if shape == "strings" else None),
        train,
        layout=layout(shape),
    )  # type: ignore[arg-type]
    if name == "hypotheses_backoff":
        table = pq.read_table(train).to_pylist()
        for row in table:
            row["extra_info"]["prior_logprob"] = -3.0
        import pyarrow as pa

        pq.write_table(pa.Table.from_pylist(table), train)
    job = RecipeJob(tmp_path / "job", name, tmp_path / "tiny", train)
    finished = run(job, timeout=600)  # type: ignore[arg-type]
    assert finished.exit_code == 0, job.log.read_text(errors="replace")[-3000:]
    # A model without training writes no tags, so all rewards of a group are equal: that, and nothing else, may be amiss.
    assert [problem for problem in finished.problems if "grad_norm is 0" not in problem] == []
    settings = settings_of(name, "+scale=cpu")
    worst = Settings.of(settings["reward"]["reward_kwargs"]).terms[0].reward.fail_reward
    assert finished.metrics[2]["critic/score/min"] == pytest.approx(worst, abs=1e-5)
