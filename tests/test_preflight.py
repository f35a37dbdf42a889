"""Each check has a broken job that it catches and a clean one where it stays silent."""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from rewardkit import parsing, preflight, rewards
from rewardkit.cli import commands  # noqa: F401
from rewardkit.cli.app import app
from rewardkit.data.generic import generic
from rewardkit.data.schema import verl_row as verl_row_of
from rewardkit.errors import DataError, HarmfulSettingWarning, InvalidArgumentError, UnknownNameError
from rewardkit.integrations.verl import recipes
from rewardkit.preflight import CHECKS, PreflightError, Report, Term
from rewardkit.preflight.job import VERL_DEFAULTS
from rewardkit.types import RewardBatch

from .test_trl import Length

RECIPES = Path(recipes.folder())
AGENT = {
    "default_agent_loop": "rewardkit_reference",
    "agent_loop_config_path": str(RECIPES / "agents" / "reference.yaml"),
}
SAMPLER = {
    "custom_sampler": {"path": "pkg://rewardkit.integrations.verl.std_filter", "name": "StdFilterReplayBuffer"},
    "sampler_kwargs": {"train_batch_size": 1024, "beta": 0.5},
}

INSTRUCTIONS = "\n\n".join(parsing.prompt(name) for name in ("tac", "multi", "hypotheses"))

# ---- a clean job --------------------------------------------------------------------------------


def verl_row(gold: Any = "Paris", question: str = "What is the capital of France?", **changes: Any) -> dict[str, Any]:
    return {
        "data_source": "made",
        "prompt": [
            {"role": "system", "content": INSTRUCTIONS},
            {"role": "user", "content": question},
        ],
        "ability": "qa",
        "reward_model": {"style": "rule", "ground_truth": gold},
        "extra_info": {"split": "train", "index": 0},
        **changes,
    }


def config(**changes: Any) -> dict[str, Any]:
    """A verl config in part; ``a__b=1`` sets ``a.b``."""
    values: dict[str, Any] = {
        "algorithm": {"adv_estimator": "grpo", "norm_adv_by_std_in_grpo": False},
        "data": {"max_prompt_length": 256, "max_response_length": 512},
        "reward": {"num_workers": 1, "reward_manager": {"name": "rewardkit"}, "reward_kwargs": {"reward": "rlcr"}},
        "actor_rollout_ref": {"rollout": {"name": "vllm", "n": 8, "agent": dict(AGENT)}},
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = values
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return values


def bytes_tokenizer(*, special: Sequence[str] = (), lower: bool = False, template: str | None = None) -> Any:
    """A tokenizer of bytes; may take tags for special tokens, or lower-case what it reads."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(symbols)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    if lower:
        tokenizer.normalizer = normalizers.Replace("<answer>", "<Answer>")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|pad|>", additional_special_tokens=list(special)
    )
    fast.chat_template = template or (
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
        "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    )
    return fast


ROWS = [verl_row(), verl_row("Rome", "What is the capital of Italy?"), verl_row("3.5", "What is 7 / 2?")]


@dataclass(frozen=True)
class Grouped(Length):
    """A reward of the group."""

    name: ClassVar[str] = "test_grouped"
    requires: ClassVar[tuple[str, ...]] = ()
    needs_group: ClassVar[bool] = True


@dataclass(frozen=True)
class Inverted(Length):
    """A reward whose author did not derive the failure reward."""

    name: ClassVar[str] = "test_inverted"
    requires: ClassVar[tuple[str, ...]] = ()
    fail_reward: ClassVar[float] = 0.5  # type: ignore[misc]

    def __call__(self, *args: Any, **columns: Any) -> RewardBatch:
        raise AssertionError("the preflight need not score with it")


def never(prediction: str, reference: str) -> bool:
    return False


def job(**changes: Any) -> dict[str, Any]:
    return {"rows": ROWS, "reward": "rlcr", **changes}


def asking(instructions: str) -> dict[str, Any]:
    return verl_row(prompt=[{"role": "user", "content": f"What is it?\n\n{instructions}"}])


# name of the check: (broken jobs, a clean one that is as near as can be)
CASES: Mapping[str, tuple[Sequence[dict[str, Any]], dict[str, Any]]] = {
    "missing-reference": (
        [
            job(rows=[*ROWS, verl_row(None)]),
            job(rows=[{"prompt": "q"}]),
            job(rows=[{**verl_row(), "reward_model": {"style": "rule"}}]),
            job(reference="extra_info.gold"),
        ],
        job(),
    ),
    "empty-reference": ([job(rows=[*ROWS, verl_row(gold)]) for gold in ("", "  ", [], [""], [["a"], []])], job()),
    "reference-type": ([job(rows=[*ROWS, verl_row(gold)]) for gold in (7, {"a": "b"}, [1, 2])], job()),
    "ambiguous-gold": (
        [
            job(rows=[verl_row(["Paris", "Lutetia"])]),
            job(reward=None, config=config(), rows=[verl_row(["a", "b"])]),
        ],
        job(reward=None, config=config(), rows=[verl_row(["a", "b"], extra_info={"gold_kind": "set"})]),
    ),
    "reference-scores": (
        [
            job(rows=[*ROWS, verl_row("x <answer> y")]),
            job(params={"matcher": never}),
            job(rows=[verl_row("</think>")]),
            job(rows=[verl_row("<answer1>", "q")], reward="multi_rlcr"),
        ],
        job(rows=[*ROWS, verl_row("The"), verl_row("-3.5"), verl_row("?!"), verl_row("Zürich"), verl_row("x < y & z")]),
    ),
    "colliding-references": (
        [
            job(rows=[verl_row(["flu", "the Flu", "cold"])], reward="multi_rlcr", gold_kind="set"),
            job(rows=[verl_row([["flu", "grippe"], ["Grippe"]])], reward="multi_rlcr"),
        ],
        job(rows=[verl_row(["flu", "cold", "3.5", "35"])], reward="multi_rlcr", gold_kind="set"),
    ),
    "long-reference": ([job(rows=[verl_row("word " * 400)])], job(rows=[verl_row("word " * 40)])),
    "tokenizer-tags": (
        [
            job(tokenizer=lambda: bytes_tokenizer(lower=True)),
            job(tokenizer=lambda: bytes_tokenizer(special=["<answer>"])),
            job(tokenizer=lambda: bytes_tokenizer(special=["<think>"]), config=config()),
        ],
        job(tokenizer=bytes_tokenizer),
    ),
    "tags-in-prompt": (
        [
            job(rows=[*ROWS, verl_row("b", "Is <answer>a</answer> or b right?")]),
            job(rows=[verl_row("b", "Is <answer>a</answer> or b right?")]),
            job(rows=[{"prompt": "Is it <confidence>?", "answer": "b"}]),
        ],
        job(
            rows=[verl_row("b", f"{question}\n\nWrite <answer>…</answer>.") for question in ("One?", "Two?", "Three?")]
        ),
    ),
    "format-not-asked": (
        [
            job(rows=[{"prompt": "q", "answer": "a"}, {"prompt": "r", "answer": "a"}]),
            job(rows=[asking("")]),
            job(rows=[asking(parsing.prompt("ta"))]),  # and so the model never hears of a confidence
            job(rows=[asking(parsing.prompt("tac"))], reward="multi_rlcr"),
            job(rows=[asking("Think between <think> and </think>.")], reward="rlpr"),
            job(rows=[asking("")], reward="rlvr", params={"format": "final"}),
            job(rows=[asking(parsing.prompt("ta"))], reward="compose", params={"parts": {"rlcr": {}}}),
        ],
        job(rows=[asking(""), asking(parsing.prompt("tac"))]),
    ),
    "room": (
        [
            job(tokenizer=bytes_tokenizer, max_response_length=60),
            job(tokenizer=bytes_tokenizer, max_response_length=120),
            job(tokenizer=bytes_tokenizer, config=config(data__max_response_length=300), rows=[verl_row("long " * 60)]),
            job(tokenizer=bytes_tokenizer, max_response_length=20, reward="rlpr"),
            job(tokenizer=bytes_tokenizer, max_response_length=20, reward="darl"),
            job(tokenizer=bytes_tokenizer, max_response_length=20, reward="compose", params={"parts": {"rlpr": {}}}),
        ],
        job(tokenizer=bytes_tokenizer, max_response_length=512),
    ),
    "template-edit": (
        [
            job(tokenizer=bytes_tokenizer, template_edits=[("no such text", "x")]),
            job(tokenizer=bytes_tokenizer, config=config(data__apply_chat_template_kwargs={"enable_thinkin": False})),
            job(
                tokenizer=bytes_tokenizer,
                config=config(actor_rollout_ref__model={"custom_chat_template": bytes_tokenizer().chat_template}),
            ),
        ],
        job(
            tokenizer=bytes_tokenizer,
            template_edits=[("<think></think>", "")],
            config=config(data__apply_chat_template_kwargs={"enable_thinking": False}),
        ),
    ),
    "fail-reward": (
        [
            job(reward=Inverted()),
            job(params={"fail_reward": 0.0}),
            job(params={"fail_reward": 0.0, "allow_inversion": True}),
            job(reward=[Term(rewards.get("rlcr"), weight=-1.0)]),
        ],
        job(params={"fail_reward": -2.0}),
    ),
    "config-values": (
        [
            job(config=config(data__max_response_length="long")),
            job(config=config(actor_rollout_ref__rollout={"n": True})),
            job(config=config(actor_rollout_ref__rollout__temperature="${actor_rollout_ref.made.temperature}")),
            job(reward="rlpr", config=config(trainer={"v1": {"trainer_mode": "${mode}"}})),
        ],
        job(config=config(data__max_response_length="512", actor_rollout_ref__rollout__temperature=None)),
    ),
    "group-std": (
        [
            job(config=config(algorithm={"adv_estimator": "gdpo", "norm_adv_by_std_in_grpo": False})),
            job(config=config(algorithm__adv_estimator="grpo_vectorized")),
            job(config=config(algorithm={"adv_estimator": "grpo_passk"})),
            job(config=config(algorithm__norm_adv_by_std_in_grpo=True)),
            job(config=config(algorithm={"adv_estimator": "grpo"})),
        ],
        job(config=config()),
    ),
    "group-scatter": (
        [
            job(reward=Grouped(), config=config(reward__num_workers=8)),
            job(reward=Grouped(), config=config(reward={})),
            job(reward=Grouped(), config=config(actor_rollout_ref__rollout__n=1)),
        ],
        job(reward=Grouped(), config=config()),
    ),
    "likelihood-settings": (
        [
            job(reward="rlpr", config=config(actor_rollout_ref__rollout={"n": 8})),
            job(reward="rlpr", config=config(trainer={"v1": {"trainer_mode": "separate_async"}})),
            job(reward="rlpr", config=config(actor_rollout_ref__rollout__name="trtllm")),
            job(reward="rlpr", config=config(actor_rollout_ref__rollout__temperature=0.6)),
            job(reward="rlpr", config=config(actor_rollout_ref__rollout__max_model_len=800)),
            job(reward="rlpr", config=config(actor_rollout_ref__rollout__agent={"default_agent_loop": "tool_agent"})),
            job(reward="rlpr", config=config(actor_rollout_ref__rollout__agent={"default_agent_loop": "mine"})),
            job(
                reward="rlpr", config=config(actor_rollout_ref__rollout__agent={**AGENT, "default_agent_loop": "mine"})
            ),
            job(reward="darl", config=config()),
        ],
        job(reward="rlpr", config=config(actor_rollout_ref__rollout__max_model_len=2048)),
    ),
    "group-filter": (
        [
            job(config=config(trainer__v1={"sampler": SAMPLER})),
            job(config=config(trainer__v1={"sampler": SAMPLER}, data__gen_batch_size=32)),
            job(
                config=config(
                    trainer__v1={"sampler": {**SAMPLER, "sampler_kwargs": {"beta": 0.5}}}, data__gen_batch_size=1
                )
            ),
            job(config=config(trainer={"use_v1": False, "v1": {"sampler": SAMPLER}}, data__gen_batch_size=1)),
        ],
        job(config=config(trainer__v1={"sampler": SAMPLER}, data__gen_batch_size=1)),
    ),
    "missing-prior": (
        [
            job(reward="hypotheses_backoff"),
            job(reward="hypotheses_backoff", rows=[{**verl_row(), "prior_logprob": 0.3}]),
            job(reward="hypotheses_backoff", rows=[{**verl_row(), "prior_logprob": float("nan")}]),
            job(reward="hypotheses_backoff", rows=[{**verl_row(), "lp": -3.0}]),
        ],
        job(reward="hypotheses_backoff", rows=[{**verl_row(), "lp": -3.0}], columns={"prior_logprob": "lp"}),
    ),
    "missing-column": (
        [
            job(reward=Length()),
            job(reward="rlpr", params={"debias": True}),
            job(reward="darl", params={"debias": True}, rows=[{**verl_row(), "reference_logprobs": [-1.0]}]),
            job(reward="compose", params={"parts": {"rlpr": {"debias": True}}}),
        ],
        job(
            reward="rlpr",
            params={"debias": True},
            rows=[{**verl_row(), "baseline": 0.25}, verl_row(extra_info={"baseline": 0.5})],
        ),
    ),
    "reserved-names": (
        [
            job(rows=[{**verl_row(), "uid": "1"}]),
            job(rows=[verl_row(extra_info={"num_turns": 2})]),
            job(rows=[{"prompt": "q", "answer": "a", "completions": "c"}]),
            job(rows=[{**verl_row(), "responses": "x"}], config=config()),
        ],
        job(rows=[{**verl_row(), "level": "hard"}], config=config()),
    ),
}


def run(arguments: dict[str, Any]) -> Report:
    arguments = dict(arguments)
    if callable(arguments.get("tokenizer")):
        arguments["tokenizer"] = arguments["tokenizer"]()
    return preflight.run(**arguments)


def test_every_check_has_its_cases() -> None:
    assert set(CASES) == set(CHECKS)


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, (broken, _) in CASES.items() for number in range(len(broken))]
)
def test_a_broken_job_is_caught(name: str, number: int) -> None:
    broken = CASES[name][0][number]
    report = run(broken)
    found = [finding for finding in report.findings if finding.check == name]
    assert found, [finding.as_dict() for finding in report.findings]
    for finding in found:
        assert "\n" not in finding.reason
        assert "\n" not in finding.fix
        assert finding.reason.endswith(".")
    assert report.exit_code(strict=True) in (1, 2)
    silent = run({**broken, "skip": [name]})
    assert not [finding for finding in silent.findings if finding.check == name]


@pytest.mark.parametrize("name", CASES)
def test_a_clean_job_is_silent(name: str) -> None:
    report = run(CASES[name][1])
    assert name in report.checked
    assert report.findings == []
    assert report.exit_code(strict=True) == 0


# ---- the report ---------------------------------------------------------------------------------


def test_rows_are_gathered_and_the_first_are_named() -> None:
    rows = [verl_row("" if number % 2 else "Paris") for number in range(40)]
    (finding,) = preflight.run(rows=rows, reward="rlcr").findings
    assert (finding.check, finding.rows, finding.examples) == ("empty-reference", 20, (2, 4, 6, 8, 10))


def test_levels_decide_the_exit_code() -> None:
    warned = preflight.run(**job(config=config(algorithm__norm_adv_by_std_in_grpo=True)))
    assert (warned.exit_code(), warned.exit_code(strict=True)) == (0, 1)
    warned.raise_for_errors()
    wrong = preflight.run(**job(rows=[verl_row("")]))
    assert (wrong.exit_code(), wrong.exit_code(strict=True)) == (2, 2)
    with pytest.raises(PreflightError, match=r"empty-reference.*Fix"):
        wrong.raise_for_errors()
    error = PreflightError(wrong)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_what_did_not_run_says_why() -> None:
    report = preflight.run(**job(), skip=["room"])
    assert report.skipped["room"] == "asked not to"
    assert "--tokenizer" in report.skipped["tokenizer-tags"]
    assert set(report.skipped) | set(report.checked) == set(CHECKS)
    with pytest.raises(UnknownNameError, match=r"romo.*room"):
        preflight.run(**job(), skip=["romo"])


def test_a_reward_that_cannot_be_made_is_a_finding() -> None:
    for reward, params in (("rlrc", {}), ("rlcr", {"wieghts": 1}), (None, {})):
        report = preflight.run(rows=ROWS, reward=reward, params=params)
        assert [finding.check for finding in report.errors] == ["reward"]


def test_harmful_parameters_become_warnings() -> None:
    report = preflight.run(**job(params={"weights": [1.0, 2.0]}))
    assert [(finding.check, finding.level) for finding in report.findings] == [("reward", "warning")]
    assert preflight.run(**job(params={"weights": [1.0, 2.0]}), skip=["reward"]).findings == []


def test_rewards_come_from_the_config() -> None:
    kwargs = {
        "rewards": [
            {"reward": "rlcr", "data_source": "made", "gold_kind": "aliases"},
            {"reward": "multi_rlcr", "data_source": "sets", "gold_kind": "set"},
        ]
    }
    rows = [verl_row(["Paris", "Paname"]), verl_row(["flu", "Flu"], data_source="sets")]
    report = preflight.run(rows=rows, config=config(reward__reward_kwargs=kwargs))
    # Equal spellings are fine where they are aliases, and collide where they are a set: the source decides which.
    assert [(finding.check, finding.examples) for finding in report.findings] == [("colliding-references", (2,))]


def test_BR_073_a_missing_column_is_named_before_the_run() -> None:
    rows = [verl_row(), {key: value for key, value in verl_row().items() if key != "reward_model"}]
    (finding,) = preflight.run(rows=rows, reward="rlcr").findings
    assert finding.examples == (2,)
    assert "reward_model.ground_truth" in finding.reason
    for gold in (None, "", []):
        assert preflight.run(rows=[verl_row(gold)], reward="rlcr").exit_code() == 2


def test_SR_04_each_row_is_checked_by_its_own_source() -> None:
    """A batch of two sources: the first row's matcher does not judge the second's reference."""
    terms = [
        Term(rewards.get("rlcr"), data_sources=frozenset({"a"})),
        Term(rewards.get("rlcr", matcher=never), data_sources=frozenset({"b"})),
    ]
    rows = [verl_row(data_source="a"), verl_row(data_source="b"), verl_row(data_source="a")]
    (finding,) = preflight.run(rows=rows, reward=terms).findings
    assert (finding.check, finding.examples) == ("reference-scores", (2,))


def test_a_column_that_an_agent_loop_brings_need_not_stand_in_the_data() -> None:
    places = {"scale": "tool_extra_fields.scale"}
    report = preflight.run(rows=ROWS, reward=Length(), columns=places)
    assert report.findings == []
    assert "missing-column" in report.skipped


def test_a_likelihood_reward_leaves_the_reference_out_of_the_room() -> None:
    """The reference is spliced in, so only the tags have to fit into what the policy writes."""
    rows = [verl_row("long " * 60)]
    arguments = {"rows": rows, "tokenizer": bytes_tokenizer(), "max_response_length": 200, "skip": ["long-reference"]}
    assert [finding.check for finding in preflight.run(reward="rlvr", params={"format": "ta"}, **arguments).errors] == [
        "room"
    ]
    report = preflight.run(reward="rlpr", **arguments)
    assert report.findings == []
    assert "room" in report.checked


def test_darl_is_content_with_the_loop_that_scores_its_own_answer() -> None:
    own = {**AGENT, "agent_loop_config_path": str(RECIPES / "agents" / "reference_and_own.yaml")}
    assert run(job(reward="darl", config=config(actor_rollout_ref__rollout__agent=own))).findings == []


def test_darl_without_its_bonus_needs_no_own_answer() -> None:
    assert run(job(reward="darl", params={"beta": 0.0}, config=config())).findings == []
    parts = {"bonus": {"reward": "darl"}, "format": {"format": "ta"}}
    report = run(job(reward="compose", params={"parts": parts}, config=config()))
    assert [finding.check for finding in report.errors] == ["likelihood-settings"]

    @dataclass(frozen=True, kw_only=True)
    class Named(type(rewards.get("rlpr"))):  # type: ignore[misc]
        name: ClassVar[str] = "my_darling"

    assert run(job(reward=Named(), config=config())).findings == []


@pytest.mark.parametrize("think", ["required", "optional", "forbidden", "ignore"])
@pytest.mark.parametrize("mode", ["strict", "lenient"])
@pytest.mark.parametrize("name", ["rlvr", "rlcr", "multi_rlcr", "hypotheses_log", "format"])
def test_a_perfect_completion_is_one_for_every_reading(name: str, mode: str, think: str) -> None:
    """Some readings want a think block, some refuse it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HarmfulSettingWarning)
        reward = rewards.get(name, mode=mode, think=think)
    report = preflight.run(rows=ROWS, reward=reward)
    assert report.findings == []
    assert "reference-scores" in report.checked


def test_a_column_is_asked_of_the_rows_that_its_reward_speaks_about() -> None:
    kwargs = {
        "rewards": [
            {"reward": "rlvr", "data_source": "math"},
            {"reward": "hypotheses_backoff", "data_source": "qa"},
            {"reward": "rlpr", "data_source": "proof", "params": {"debias": True}},
        ]
    }
    rows = [
        verl_row(data_source="math"),
        verl_row(data_source="qa", extra_info={"prior_logprob": -3.0}),
        verl_row(data_source="proof", extra_info={"baseline": 0.5}),
    ]
    assert preflight.run(rows=rows, config=config(reward__reward_kwargs=kwargs)).findings == []
    rows += [verl_row(data_source="qa"), verl_row(data_source="proof"), verl_row(data_source="math")]
    found = preflight.run(rows=rows, config=config(reward__reward_kwargs=kwargs)).findings
    assert [(one.check, one.examples) for one in found] == [("missing-prior", (4,)), ("missing-column", (5,))]


@pytest.mark.parametrize(
    ("reward", "changes"),
    [
        ("rlpr", {"data__max_prompt_length": None}),
        ("rlpr", {"data__max_response_length": None, "actor_rollout_ref__rollout__max_model_len": 8192}),
        ("rlpr", {"actor_rollout_ref__rollout__temperature": None}),
        ("nover", {"actor_rollout_ref__rollout__n": 8, "data__train_batch_size": None}),
        ("rlcr", {"data__max_response_length": None}),
        ("rlcr", {"data__prompt_key": None}),
        ("rlcr", {"data": None}),
    ],
)
def test_a_null_is_what_verl_assumes(reward: str, changes: dict[str, Any]) -> None:
    report = run(job(reward=reward, config=config(**changes), tokenizer=bytes_tokenizer))
    assert report.findings == []


def test_what_cannot_be_read_is_a_finding_and_no_exception(tmp_path: Path) -> None:
    report = run(job(reward="nover", config=config(actor_rollout_ref__rollout__n=None)))
    assert [finding.check for finding in report.errors] == ["group-scatter"]  # verl's own n is 1
    sampler = {**SAMPLER, "sampler_kwargs": {"train_batch_size": "${data.train_batch_size}"}}
    unresolved = {"data__gen_batch_size": 1, "trainer__v1": {"sampler": sampler}, "reward__num_workers": "${workers}"}
    report = run(job(reward=Grouped(), config=config(**unresolved)))
    assert [(finding.check, finding.level) for finding in report.findings] == [("config-values", "warning")]
    agent = tmp_path / "agent.yaml"
    for content in (b"- name: [", b"\xff\xfe"):
        agent.write_bytes(content)
        loop = {"default_agent_loop": "mine", "agent_loop_config_path": str(agent)}
        (finding,) = run(job(reward="rlpr", config=config(actor_rollout_ref__rollout__agent=loop))).errors
        assert (finding.check, finding.reason.count("\n")) == ("likelihood-settings", 0)
        assert "agent.yaml cannot be read as YAML" in finding.reason


ODD = [None, "${x}", "abc", "", [], {}, -1, float("nan"), True, [1], {"a": 1}, b"x"]


@pytest.mark.parametrize("reward", ["rlcr", "rlpr", "darl", "nover"])
def test_no_value_of_a_setting_is_an_exception(reward: str) -> None:
    rollout = "actor_rollout_ref__rollout"
    paths = [path.replace(".", "__") for path in VERL_DEFAULTS]
    paths += [
        "data",
        "actor_rollout_ref",
        rollout,
        f"{rollout}__max_model_len",
        f"{rollout}__agent__agent_loop_config_path",
    ]
    paths += ["data__gen_batch_size", "trainer__v1__sampler__sampler_kwargs__train_batch_size", "reward", "trainer"]
    for path in paths:
        for value in ODD:
            changed = config(trainer__v1={"sampler": {**SAMPLER, "sampler_kwargs": {}}}, **{path: value})
            preflight.run(rows=ROWS[:1], reward=reward, config=changed, skip=["reference-scores"])


def test_no_value_in_a_row_is_an_exception() -> None:
    odd = [*ODD[:-1], [None], [{"role": "user"}], [{"role": "user", "content": 5}], {"ground_truth": [5, ["a"]]}]
    for column in ("prompt", "reward_model", "extra_info", "data_source", "gold_kind", "prior_logprob"):
        for value in odd:
            preflight.run(rows=[verl_row(**{column: value})], reward="hypotheses_backoff")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rows": [None]}, r"rows\[0\]: expected a mapping"),
        ({"rows": [*ROWS, "x"]}, r"rows\[3\]: expected a mapping"),
        ({"rows": ROWS[0]}, "rows: expected"),
        ({"rows": 5}, "rows: expected"),
        ({"config": [1]}, "config: expected"),
    ],
)
def test_calls_that_make_no_sense_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        preflight.run(**job(**arguments))


def test_composed_rewards_are_looked_into() -> None:
    parts = {"rlcr": {"weight": 1.0, "matcher": never}, "format": {"weight": 0.5, "format": "tac"}}
    report = preflight.run(rows=ROWS, reward="compose", params={"parts": parts})
    assert {finding.check for finding in report.findings} == {"reference-scores"}


@pytest.mark.parametrize("name", parsing.FORMATS)
@pytest.mark.parametrize("role", ["system", "user"])
def test_the_prompts_that_the_builders_write_ask_for_their_format(name: str, role: Any) -> None:
    example = generic({"question": "What is it?", "answer": "it"})
    rows = [verl_row_of(example, instructions=parsing.prompt(name), instructions_role=role)]
    report = preflight.run(rows=rows, reward="format", params={"format": name})
    assert "format-not-asked" in report.checked
    assert report.findings == []


def test_each_term_has_its_own_prompts_and_a_template_may_ask_for_a_format() -> None:
    terms = [
        Term(rewards.get("rlcr"), data_sources=frozenset({"a"})),
        Term(rewards.get("rlvr", format="ta"), data_sources=frozenset({"b"})),
    ]
    rows = [{**asking(parsing.prompt("ta")), "data_source": source} for source in "ab"]
    (finding,) = preflight.run(rows=rows, reward=terms).findings
    assert (finding.check, finding.level) == ("format-not-asked", "warning")
    assert "names <confidence>, which the reward rlcr reads" in finding.reason
    template = "{{ messages[0]['content'] }} Write <answer> and <confidence>."
    report = preflight.run(rows=rows, reward=terms, tokenizer=bytes_tokenizer(template=template))
    assert report.findings == []


def test_without_data_no_check_of_rows_counts_as_passed() -> None:
    report = preflight.run(config=config())
    assert report.rows == 0
    assert "fail-reward" in report.checked
    for name in ("missing-reference", "reference-scores", "long-reference", "tags-in-prompt", "reserved-names"):
        assert report.skipped[name] == "no data"
        assert name not in report.checked
    assert set(report.skipped) | set(report.checked) == set(CHECKS)
    assert preflight.run(rows=[], reward="rlcr").skipped["missing-reference"] == "no data"
    tight = preflight.run(config=config(data__max_response_length=20), tokenizer=bytes_tokenizer())
    assert [finding.check for finding in tight.errors] == ["room"]  # what needs no rows is told all the same
    assert tight.skipped["room"] == "no data"


# ---- the command --------------------------------------------------------------------------------


def invoke(*arguments: object):
    return CliRunner().invoke(app, ["validate", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "train.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path)
    return path


def test_command(tmp_path: Path, data: Path) -> None:
    bytes_tokenizer().save_pretrained(tmp_path / "tokenizer")
    settings = tmp_path / "config.yaml"
    settings.write_text(json.dumps(config(algorithm__norm_adv_by_std_in_grpo=True)))
    arguments = ("--data", data, "--tokenizer", tmp_path / "tokenizer", "--reward", "rlcr", "--verl-config", settings)
    result = invoke(*arguments, "--json")
    facts = json.loads(result.stdout)
    assert (result.exit_code, facts["errors"], facts["warnings"], facts["rows"]) == (0, 0, 1, 3)
    assert facts["findings"][0]["check"] == "group-std"
    assert invoke(*arguments, "--strict").exit_code == 1
    assert invoke(*arguments, "--strict", "--skip", "group-std").exit_code == 0
    assert "fix: algorithm.norm_adv_by_std_in_grpo=False" in invoke(*arguments).stdout
    # The config alone names data and reward.
    settings.write_text(json.dumps(config(data__train_files=str(data))))
    assert json.loads(invoke("--verl-config", settings, "--json").stdout)["rows"] == 3


def test_command_reads_a_config_with_the_files_it_stands_on(tmp_path: Path, data: Path) -> None:
    (tmp_path / "base.yaml").write_text(json.dumps(config()))
    job = tmp_path / "job.yaml"
    job.write_text(json.dumps({"defaults": ["ppo_trainer", "base", "_self_"], "reward": {"num_workers": 4}}))
    result = invoke("--verl-config", job, "--data", data, "--json")
    assert json.loads(result.stdout)["findings"] == []
    (tmp_path / "base.yaml").write_text("[")
    with pytest.raises(DataError, match=r"base\.yaml"):
        invoke("--verl-config", job, "--data", data)


def test_command_reads_jsonl_and_finds_errors(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "q", "answer": "Paris"}\n\n{"prompt": "q", "answer": ""}\n')
    result = invoke("--data", path, "--reward", "rlcr")
    assert result.exit_code == 2
    assert "error   empty-reference" in result.stdout
    assert "e.g. 3" in result.stdout


def test_command_ends_with_what_was_found(data: Path) -> None:
    lines = invoke("--data", data, "--reward", "rlcr", "--params", '{"margn": 1}').stdout.splitlines()
    assert lines[0] == f"skipped all {len(CHECKS)} other checks: the reward cannot be made"
    assert lines[1].startswith("error   reward: rlcr(margn=…)")
    assert lines[2].startswith("        fix: ")
    assert lines[3:] == ["0 rows, 1 check: 1 error, 0 warnings"]
    lines = invoke("--data", data, "--reward", "rlcr", "--skip", "room").stdout.splitlines()
    reasons = [line.split(": ")[1] for line in lines if line.startswith("skipped ")]
    assert len(reasons) == len(set(reasons))
    assert lines[-1].startswith("3 rows, ")


def test_an_unknown_tokenizer_without_a_network_is_one_line_at_once(
    cli, data: Path, tmp_path: Path, monkeypatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # the port that discards: nobody listens
    asked: list[str] = []
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", refusing(asked))
    line = cli.refuses("validate", "--data", data, "--reward", "rlcr", "--tokenizer", "nobody/nothing")
    assert "nobody/nothing: expected a folder with a tokenizer, a tokenizer.json" in line
    assert "copy the tokenizer's files" in line
    assert asked == ["local"]  # and the libraries do not get to retry
    (tmp_path / "empty").mkdir()
    line = cli.refuses("validate", "--data", data, "--reward", "rlcr", "--tokenizer", tmp_path / "empty")
    assert "empty: expected a tokenizer that transformers can load" in line
    line = cli.refuses("validate", "--data", data, "--reward", "rlcr", "--tokenizer", tmp_path / "none.json")
    assert "none.json: no such file" in line


def refusing(asked: list[str]) -> Any:
    def from_pretrained(name: str, *, local_files_only: bool = False) -> Any:
        asked.append("local" if local_files_only else "network")
        raise OSError("not there\nsecond line")

    return from_pretrained


@pytest.mark.parametrize(
    "changes",
    [
        {"actor_rollout_ref__rollout__n": "abc"},
        {"actor_rollout_ref__rollout__temperature": "hot"},
        {"data__max_response_length": [1]},
        {"data__train_files": 3},
    ],
)
def test_command_takes_values_of_any_kind(cli, data: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    settings = tmp_path / "config.yaml"
    settings.write_text(json.dumps(config(reward__reward_kwargs={"reward": "rlpr"}, **changes)))
    result = cli("validate", "--verl-config", settings, "--data", data)
    assert "internal error" not in result.err
    assert result.code in (0, 2)
    if "data__train_files" not in changes:
        assert result.code == 2
        assert "error " in result.out


def test_command_tells_of_a_broken_file_of_agent_loops(cli, data: Path, tmp_path: Path) -> None:
    settings, loops = tmp_path / "config.yaml", tmp_path / "loops.yaml"
    agent = {"default_agent_loop": "rewardkit_reference", "agent_loop_config_path": str(loops)}
    settings.write_text(
        json.dumps(config(reward__reward_kwargs={"reward": "rlpr"}, actor_rollout_ref__rollout__agent=agent))
    )
    for broken in (b"- name: [", b"\xe9"):
        loops.write_bytes(broken)
        result = cli("validate", "--verl-config", settings, "--data", data)
        assert (result.code, result.err) == (2, "")
        assert "error   likelihood-settings" in result.out


def test_command_lists_its_checks() -> None:
    lines = invoke("--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(CHECKS)


def test_command_refuses_bad_calls(data: Path, tmp_path: Path) -> None:
    for arguments in (
        ("--reward", "rlcr"),
        ("--data", data, "--reward", "rlcr", "--params", "{"),
        ("--data", data, "--reward", "rlcr", "--template-edit", "x"),
    ):
        with pytest.raises(InvalidArgumentError):
            invoke(*arguments)
    with pytest.raises(FileNotFoundError):
        invoke("--data", data, "--verl-config", tmp_path / "none.yaml")


def test_built_data_is_clean(shared: Path, tmp_path: Path) -> None:
    """What the builders write passes the preflight of the rewards that it is for."""
    for name, source, reward in (
        ("hotpotqa", "hotpotqa/distractor.parquet", "rlcr"),
        ("ddxplus", "ddxplus/test_patients_slice.parquet", "multi_rlcr"),
        ("mbpp", "mbpp/sanitized-mbpp.parquet", "rlvr"),
    ):
        out = tmp_path / f"{name}.parquet"
        CliRunner().invoke(app, ["data", name, str(shared / "data" / source), "-o", str(out)], catch_exceptions=False)
        params: dict[str, Any] = {}
        if name == "mbpp":
            from rewardkit.data.mbpp import PassesTests

            params = {"matcher": PassesTests()}
        report = preflight.run(data=[out], reward=reward, params=params)
        assert report.findings == []
        assert report.rows > 400
