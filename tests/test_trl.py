from __future__ import annotations

import json
import math
import multiprocessing
import os
import pickle
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from rewardkit import rewards
from rewardkit.errors import DataError, InvalidArgumentError, UnknownNameError
from rewardkit.integrations.trl import RewardFunction, reward_function
from rewardkit.parsing import completion_texts
from rewardkit.rewards import Reward
from rewardkit.types import FAILED, OK, UNPARSED, References, RewardBatch


@dataclass(frozen=True)
class Length(Reward):
    """A reward of the test's own, so that the adapter is tested for any reward: length over length of the first gold."""

    name: ClassVar[str] = "test_length"
    requires: ClassVar[tuple[str, ...]] = ("scale",)

    min_value: ClassVar[float] = 0.0  # type: ignore[misc]
    max_value: ClassVar[float] = math.inf  # type: ignore[misc]
    fail_reward: ClassVar[float] = -1.0  # type: ignore[misc]
    proper: ClassVar[bool] = False  # type: ignore[misc]
    proper_for: ClassVar[str] = "nothing"  # type: ignore[misc]
    component_names: ClassVar[tuple[str, ...]] = ("length",)  # type: ignore[misc]

    def __call__(self, completions: Sequence[Any] = (), references: Sequence[Any] = (), **columns: Any) -> RewardBatch:
        golds = References.of(references, gold_kind=columns.get("gold_kind"), rows=len(completions)).golds
        lengths = np.array([float(len(str(c))) for c in completions])
        values = lengths / np.array([len(g[0][0]) for g in golds]) * np.array(columns["scale"])
        return RewardBatch(values, {"length": lengths}, [OK] * len(lengths), [""] * len(lengths))


@dataclass(frozen=True)
class Rank(Length):
    """A reward of the group: the rank of the completion's length within it."""

    name: ClassVar[str] = "test_rank"
    requires: ClassVar[tuple[str, ...]] = ()
    needs_group: ClassVar[bool] = True

    def __call__(self, completions: Sequence[Any] = (), references: Sequence[Any] = (), **columns: Any) -> RewardBatch:
        ids = np.asarray(columns["group_ids"])
        lengths = np.array([float(len(text)) for text in completion_texts(completions)])
        values = np.array([float((lengths[ids == ids[i]] < lengths[i]).sum()) for i in range(len(ids))])
        return RewardBatch(values, {"length": lengths}, [OK] * len(ids), [""] * len(ids))


def text(answer: str, confidence: float) -> str:
    return f"<think>t</think><answer>{answer}</answer><confidence>{confidence}</confidence>"


GOOD, WRONG, BROKEN = text("Paris", 0.8), text("Rome", 0.8), "no tags"


NEEDED: Mapping[str, Mapping[str, Any]] = {"compose": {"parts": {"rlcr": {"weight": 1.0}}}}
"""Parameters without which a reward cannot be made."""


@pytest.fixture
def rlcr() -> RewardFunction:
    return reward_function("rlcr", answer_column="answer")


# ---- the contract -------------------------------------------------------------------------------


def test_values_are_the_reward_s(rlcr: RewardFunction) -> None:
    values = rlcr(prompts=["q"] * 3, completions=[GOOD, WRONG, BROKEN], answer=["Paris"] * 3)
    assert values == list(rewards.get("rlcr")([GOOD, WRONG, BROKEN], ["Paris"] * 3))
    assert values == pytest.approx([0.96, -0.64, -1.1])


def test_chats_and_strings_score_alike(rlcr: RewardFunction) -> None:
    chats = [[{"role": "assistant", "content": c}] for c in (GOOD, WRONG, BROKEN)]
    prompts = [[{"role": "user", "content": "q"}]] * 3
    assert rlcr(prompts=prompts, completions=chats, answer=["Paris"] * 3) == rlcr(
        prompts=["q"] * 3, completions=[GOOD, WRONG, BROKEN], answer=["Paris"] * 3
    )


def test_an_empty_batch_gives_an_empty_list(rlcr: RewardFunction) -> None:
    assert rlcr(prompts=[], completions=[], answer=[]) == []


def test_whatever_the_trainer_passes_is_taken(rlcr: RewardFunction) -> None:
    noise = {
        "trainer_state": object(),
        "environments": [object()],
        "completions_": ["x"],
        "references": ["a column with an unlucky name"],
        "format": ["tac"],
        "mode": ["strict"],
        "weights": [[9, 9]],
        "group_ids": ["g"],
        "gold_kind": ["aliases"],
        "image": [None],
    }
    assert rlcr(prompts=["q"], completions=[GOOD], completion_ids=[[1, 2]], answer=["Paris"], **noise) == pytest.approx(
        [0.96]
    )


@pytest.mark.filterwarnings("ignore::rewardkit.errors.HarmfulSettingWarning")
@pytest.mark.parametrize("name", rewards.available())
def test_every_reward_has_a_name_and_pickles(name: str) -> None:
    function = reward_function(name, **NEEDED.get(name, {}))
    assert function.__name__.startswith(name)
    copy = pickle.loads(pickle.dumps(function))
    assert copy.__name__ == function.__name__
    assert copy.reward == function.reward
    assert hash(function.__name__) is not None


# ---- bug cases ----------------------------------------------------------------------------------


def test_BR_030_names_are_unique_and_stable_and_functions_pickle() -> None:
    made = [
        reward_function("rlcr"),
        reward_function("rlcr", weights=(2.0, 1.0)),
        reward_function("rlcr", format="tabc"),
        reward_function("rlcr", answer_column="solution"),
        reward_function("rlcr", name="mine"),
        reward_function("rlvr"),
    ]
    names = [function.__name__ for function in made]
    assert len(set(names)) == len(names)
    assert names[:4] == ["rlcr", "rlcr_weights=(2.0, 1.0)", "rlcr_format=tabc", "rlcr@solution"]
    assert names == [pickle.loads(pickle.dumps(function)).__name__ for function in made]
    assert reward_function("rlvr", matcher=_same).__name__ == "rlvr_matcher=_same"


def _same(prediction: str, reference: str) -> bool:
    return prediction == reference


@pytest.mark.parametrize("column", ["answer", "solution", "answers", "gold", "ground_truth"])
@pytest.mark.parametrize("container", ["list", "tuple", "ndarray"])
def test_BR_075_the_gold_column_is_any_column(column: str, container: str) -> None:
    function = reward_function("rlcr", answer_column=column)
    golds: Any = ["Paris", "Rome"]
    golds = {"list": golds, "tuple": tuple(golds), "ndarray": np.array(golds)}[container]
    assert function(prompts=["q"] * 2, completions=[GOOD, GOOD], **{column: golds}) == pytest.approx([0.96, -0.64])


@pytest.mark.parametrize(
    "gold",
    ["Paris", ["Paris"], ("Paris",), np.array(["Paris", "Lutetia"]), ["Lutetia", "Paris"], [["Paris", "Lutetia"]]],
)
def test_BR_075_a_gold_is_a_string_list_or_array(gold: Any) -> None:
    function = reward_function("rlcr", gold_kind="aliases")
    assert function(prompts=["q"], completions=[GOOD], answer=[gold]) == pytest.approx([0.96])


def test_BR_075_a_missing_column_says_what_there_is(rlcr: RewardFunction) -> None:
    with pytest.raises(InvalidArgumentError, match=r"answer_column.*level, solution.*'answer'"):
        rlcr(prompts=["q"], completions=[GOOD], solution=["Paris"], level=["hard"], trainer_state=object())


def test_a_flat_list_needs_a_kind_and_the_row_is_named(rlcr: RewardFunction) -> None:
    with pytest.raises(InvalidArgumentError, match=r"gold_kind.*answer\[1\]"):
        rlcr(prompts=["q"] * 2, completions=[GOOD] * 2, answer=["Paris", ["Paris", "Rome"]])
    # The builders write the kind beside the golds.
    assert rlcr(
        prompts=["q"] * 2, completions=[GOOD] * 2, answer=["Paris", ["Lutetia", "Paris"]], gold_kind=["aliases"] * 2
    ) == pytest.approx([0.96, 0.96])


@pytest.mark.parametrize("gold", ["", "  ", [], [""], [["Paris", ""]]])
def test_an_empty_gold_names_row_and_column(rlcr: RewardFunction, gold: Any) -> None:
    with pytest.raises(DataError, match=r"row 1.*'?answer"):
        rlcr(prompts=["q"] * 2, completions=[GOOD] * 2, answer=["Paris", gold])


def test_BR_060_none_is_never_returned_unless_asked_for(rlcr: RewardFunction) -> None:
    values = rlcr(prompts=["q"] * 4, completions=[GOOD, WRONG, BROKEN, ""], answer=["Paris"] * 4)
    assert len(values) == 4
    assert all(isinstance(value, float) and math.isfinite(value) for value in values)
    with pytest.raises(DataError, match=r"row 1"):
        rlcr(prompts=["q"] * 2, completions=[GOOD] * 2, answer=["Paris", None])
    skipping = reward_function("rlcr", missing="skip")
    assert skipping(prompts=["q"] * 3, completions=[GOOD] * 3, answer=["Paris", None, "Rome"]) == [
        pytest.approx(0.96),
        None,
        pytest.approx(-0.64),
    ]
    assert skipping(prompts=["q"], completions=[GOOD], answer=[None]) == [None]


def test_columns_are_logged_beside_skipped_rows() -> None:
    logged: dict[str, list] = {}
    skipping = reward_function("rlcr", missing="skip", name="r")
    arguments: dict[str, Any] = {"log_extra": logged.__setitem__, "log_metric": lambda *_: None}
    skipping(prompts=["q"] * 3, completions=[GOOD, GOOD, BROKEN], answer=["Paris", None, "Rome"], **arguments)
    assert logged["r/status"] == ["ok", None, "unparsed"]
    assert logged["r/reason"] == ["", None, "think_missing"]
    assert logged["r/confidence"] == [0.8, None, 0.0]
    # TRL makes one table of all columns: they have to be as long as the others in every batch.
    names = set(logged)
    logged.clear()
    skipping(prompts=["q"] * 2, completions=[GOOD] * 2, answer=[None, None], **arguments)
    assert set(logged) == names == {f"r/{key}" for key in ("status", "reason", *skipping.reward.component_names)}
    assert all(column == [None, None] for column in logged.values())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"reward": 5}, "reward: expected the name of a reward, or a reward, got 5"),
        ({"reward": None}, "reward: expected the name"),
        ({"reward": type(rewards.get("rlcr"))}, r"reward: expected a reward: RLCR\(…\), not the class"),
        ({"num_generations": "2"}, "num_generations: expected a whole number"),
        ({"num_generations": 2.5}, "num_generations: expected a whole number"),
        ({"num_generations": True}, "num_generations: expected a whole number"),
        ({"num_generations": 0}, "num_generations: expected a whole number >= 1"),
        ({"columns": 5}, "columns: expected"),
        ({"columns": {"prior_logprob": 5}}, "columns: expected"),
        ({"name": 5}, "name: expected"),
    ],
)
def test_a_bad_call_is_refused_when_the_function_is_made(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        reward_function(**{"reward": "rlcr", **arguments})


def test_a_function_takes_a_reward_and_not_its_name() -> None:
    with pytest.raises(InvalidArgumentError, match="reward: expected"):
        RewardFunction("rlcr")  # type: ignore[arg-type]


def test_BR_086_finite_over_a_thousand_random_batches(rlcr: RewardFunction) -> None:
    """And every metric that is logged is defined and has the same name in every batch."""
    pieces = [
        "<think>",
        "</think>",
        "<answer>",
        "</answer>",
        "<confidence>",
        "</confidence>",
        "nan",
        "0.5",
        "1e999",
        "Paris",
        "\ud800",
        "\0",
        " ",
    ]
    rng = random.Random(0)
    names: set[str] | None = None
    for _ in range(1000):
        completions = ["".join(rng.choices(pieces, k=rng.randrange(12))) for _ in range(rng.randrange(1, 5))]
        metrics: dict[str, float] = {}
        values = rlcr(
            prompts=["q"] * len(completions),
            completions=completions,
            answer=["Paris"] * len(completions),
            log_metric=metrics.__setitem__,
        )
        assert all(math.isfinite(value) for value in values)
        assert all(math.isfinite(value) for value in metrics.values())
        names = names or set(metrics)
        assert set(metrics) == names


def test_SR_13_status_tells_wrong_from_unparsed_from_failed() -> None:
    columns: dict[str, list[Any]] = {}
    function = reward_function("rlcr", matcher=_moody)
    function(prompts=["q"] * 3, completions=[GOOD, BROKEN, WRONG], answer=["Paris"] * 3, log_extra=columns.__setitem__)
    status = columns[f"{function.__name__}/status"]
    assert status[:2] == [OK, UNPARSED]
    assert status[2].startswith(FAILED)
    assert columns[f"{function.__name__}/reason"][1]


def _moody(prediction: str, reference: str) -> bool:
    if prediction == "Rome":
        raise RuntimeError("no judge today")
    return prediction == reference


def test_logging_has_one_value_per_row(rlcr: RewardFunction) -> None:
    columns: dict[str, list[Any]] = {}
    metrics: dict[str, float] = {}
    values = rlcr(
        prompts=["q"] * 3,
        completions=[GOOD, WRONG, BROKEN],
        answer=["Paris"] * 3,
        log_extra=columns.__setitem__,
        log_metric=metrics.__setitem__,
    )
    assert all(len(column) == 3 for column in columns.values())
    json.dumps(columns)
    assert columns["rlcr/correct"] == [1.0, 0.0, 0.0]
    assert metrics["rlcr/reward"] == pytest.approx(sum(values) / 3)
    assert metrics["rlcr/not_ok"] == pytest.approx(1 / 3)


# ---- columns and groups -------------------------------------------------------------------------


def test_required_columns_are_found_by_any_name() -> None:
    function = reward_function(Length(), columns={"scale": "weight"})
    assert function(prompts=["q"], completions=["abcd"], answer=["ab"], weight=[3.0]) == [6.0]
    with pytest.raises(InvalidArgumentError, match=r"scale.*other.*test_length.*weight"):
        function(prompts=["q"], completions=["abcd"], answer=["ab"], other=[3.0])


def test_groups_follow_the_order_of_the_prompts() -> None:
    chat = [[{"role": "user", "content": q}] for q in ("a", "a", "a", "b", "b", "b")]
    completions = ["xxx", "x", "xx", "x", "xxx", "xx"]
    wanted = [2.0, 0.0, 1.0, 0.0, 2.0, 1.0]
    assert reward_function(Rank())(prompts=chat, completions=completions, answer=["g"] * 6) == wanted
    # Two groups of one prompt side by side are told apart by the size alone.
    twice = ["a"] * 6
    assert (
        reward_function(Rank(), num_generations=3)(prompts=twice, completions=completions, answer=["g"] * 6) == wanted
    )
    with pytest.raises(InvalidArgumentError, match="num_generations"):
        reward_function(Rank(), num_generations=4)(prompts=chat, completions=completions, answer=["g"] * 6)
    with pytest.raises(InvalidArgumentError, match="num_generations"):
        reward_function(Rank(), num_generations=2)(prompts=chat, completions=completions, answer=["g"] * 6)
    with pytest.raises(InvalidArgumentError, match="prompts"):
        reward_function(Rank())(completions=completions, answer=["g"] * 6)


# ---- calls that are refused ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"reward": "rlrc"}, UnknownNameError),
        ({"reward": "rlcr", "wieghts": 1}, InvalidArgumentError),
        ({"reward": "rlcr", "answer_column": ""}, InvalidArgumentError),
        ({"reward": "rlcr", "gold_kind": "list"}, InvalidArgumentError),
        ({"reward": "rlcr", "missing": "zero"}, UnknownNameError),
        ({"reward": "rlcr", "num_generations": 0}, InvalidArgumentError),
        ({"reward": Length(), "weights": 1}, InvalidArgumentError),
    ],
)
def test_bad_calls(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        reward_function(**arguments)


# ---- threads and processes ----------------------------------------------------------------------

BATCH: Mapping[str, Any] = {"prompts": ["q"] * 60, "completions": [GOOD, WRONG, BROKEN] * 20, "answer": ["Paris"] * 60}


def _score(function: RewardFunction) -> list[float]:
    return function(**BATCH)


def _put_score(function: RewardFunction, queue: Any) -> None:
    queue.put(_score(function))


def test_BR_003_works_in_a_thread_and_in_32(rlcr: RewardFunction) -> None:
    wanted = _score(rlcr)
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.append(_score(rlcr)))
    thread.start()
    thread.join()
    assert seen == [wanted]
    with ThreadPoolExecutor(32) as pool:
        assert all(result == wanted for result in pool.map(_score, [rlcr] * 128))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("daemon", [False, True])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_BR_051_BR_057_works_in_a_process_and_a_daemon(rlcr: RewardFunction, method: str, daemon: bool) -> None:
    """After the function was used here, so that a fork finds whatever state a first call leaves."""
    wanted = _score(rlcr)
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=_put_score, args=(rlcr, queue), daemon=daemon)
    process.start()
    try:
        assert queue.get(timeout=60) == wanted
        process.join(60)
        assert process.exitcode == 0
    finally:
        if process.is_alive():
            process.kill()


def test_BR_017_repeated_and_cut_off_tags_take_linear_time(rlcr: RewardFunction) -> None:
    """A hundred times the blocks may take a hundred times as long, with room for noise; backtracking would take 10,000."""
    block = "<think>x</think><answer>a</answer><confidence>0.5</confidence>"

    def seconds(blocks: int) -> float:
        text = block * blocks + "<answer>cut o"
        best = math.inf
        for _ in range(3):
            started = time.process_time()
            rlcr(prompts=["q"], completions=[text], answer=["a"])
            best = min(best, time.process_time() - started)
        return best

    assert seconds(20_000) < 1000 * max(seconds(200), 1e-4)


def test_BR_107_scoring_twice_changes_nothing(rlcr: RewardFunction) -> None:
    before = pickle.dumps(rlcr)
    assert _score(rlcr) == _score(rlcr)
    assert pickle.dumps(rlcr) == before


# ---- TRL itself ---------------------------------------------------------------------------------


def make_tiny_model(folder: Path) -> None:
    """A Qwen2 of 50,000 parameters with a byte-level tokenizer and a chat template; nothing is downloaded."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(symbols)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|pad|>")
    fast.chat_template = (
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<|im_end|>{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(fast),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        eos_token_id=fast.eos_token_id,
        pad_token_id=fast.pad_token_id,
        bos_token_id=None,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)


def train(folder: str, out: str, conversational: bool) -> None:
    """Two steps of GRPO with two reward functions; what TRL logged goes to ``out``."""
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)
    prompts: list[Any] = [f"Question {n}?" for n in range(8)]
    if conversational:
        prompts = [[{"role": "user", "content": prompt}] for prompt in prompts]
    data = Dataset.from_list(
        [{"prompt": p, "golds": [f"{n}", f"number {n}"], "gold_kind": "aliases"} for n, p in enumerate(prompts)]
    )
    functions: Any = [
        reward_function("rlcr", answer_column="golds"),
        reward_function("rlvr", answer_column="golds", name="plain"),
        reward_function(Rank(), answer_column="golds", num_generations=4, name="rank"),
    ]
    trainer = GRPOTrainer(
        folder,
        reward_funcs=functions,
        train_dataset=data,
        args=GRPOConfig(
            output_dir=f"{out}.model",
            per_device_train_batch_size=8,
            num_generations=4,
            max_completion_length=12,
            max_steps=2,
            logging_steps=1,
            learning_rate=1e-3,
            scale_rewards="none",
            reward_weights=[0.7, 0.3, 0.01],
            use_cpu=True,
            bf16=False,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            log_completions=False,
        ),
    )
    trainer.train()
    extra = {name: list(column) for name, column in trainer._logs["extra"].items()}
    Path(out).write_text(json.dumps({"history": trainer.state.log_history, "extra": extra}))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("where", ["process", "thread", "daemon"])
def test_trl_trains_with_the_rewards(tmp_path: Path, where: str) -> None:
    pytest.importorskip("trl")
    make_tiny_model(tmp_path / "tiny")
    out = tmp_path / "out.json"
    arguments = (str(tmp_path / "tiny"), str(out), where != "thread")
    if where == "thread":
        thread = threading.Thread(target=train, args=arguments)
        thread.start()
        thread.join(300)
    else:
        process = multiprocessing.get_context("spawn").Process(target=train, args=arguments, daemon=where == "daemon")
        process.start()
        process.join(300)
        assert process.exitcode == 0
    logged = json.loads(out.read_text())
    steps = [entry for entry in logged["history"] if "reward" in entry]
    assert len(steps) == 2
    for step in steps:
        # A random model writes no tags: both rewards pay their failure reward, and TRL's total is the weighted sum.
        assert step["rewards/rlcr@golds/mean"] == pytest.approx(-1.1)
        assert step["rewards/plain/mean"] == pytest.approx(-0.1)
        total = 0.7 * -1.1 + 0.3 * -0.1 + 0.01 * step["rewards/rank/mean"]
        assert step["reward"] == pytest.approx(total, abs=1e-5)
        assert step["plain/not_ok"] == 1.0
        assert step["plain/reward"] == pytest.approx(-0.1)
    assert any(step["rewards/rank/std"] > 0 and step["grad_norm"] > 0 for step in steps)
    statuses = logged["extra"]["plain/status"]
    assert statuses
    assert set(statuses) == {UNPARSED}


def test_the_example_leaves_room_for_an_answer_even_on_a_cpu() -> None:
    """A token has at least one byte, so a completion of fewer bytes than tokens fits whatever the vocabulary."""
    example = (Path(__file__).resolve().parent.parent / "examples" / "trl" / "grpo.py").read_text()
    (room,) = re.findall(r"max_completion_length=(\d+) if args.cpu", example)
    assert reward_function("rlcr", format="tac")(prompts=["q"], completions=[GOOD], answer=["Paris"]) == [
        pytest.approx(0.96)
    ]
    assert len(GOOD.encode()) < int(room)


@pytest.mark.slow
def test_the_example_runs(tmp_path: Path) -> None:
    """Data builder, reward and TRL together, as examples/trl shows them."""
    pytest.importorskip("trl")
    from rewardkit.data.build import build
    from rewardkit.data.generic import generic, layout

    make_tiny_model(tmp_path / "tiny")
    rows = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(8)]
    build(rows, generic, tmp_path / "rows.parquet", layout=layout("string"), trainer="trl", instructions="Answer.")
    root = Path(__file__).resolve().parent.parent
    options = ["--model", tmp_path / "tiny", "--data", tmp_path / "rows.parquet", "--output", tmp_path / "out"]
    done = subprocess.run(
        [sys.executable, root / "examples" / "trl" / "grpo.py", *options, "--cpu", "--steps", "1"],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rewards/rlcr/mean" in done.stdout


def test_BR_087_a_composite_s_parts_total_and_log_agree() -> None:
    """Weights 0.7 and 0.3: what is returned, what is logged and the sum of the weighted parts are one number."""
    weights = {"rlcr": 0.7, "rlvr": 0.3}
    parts = {name: {"weight": weight, "format": "tac"} for name, weight in weights.items()}
    function = reward_function("compose", parts=parts, name="total")
    alone = {name: reward_function(name, format="tac") for name in weights}
    metrics: dict[str, float] = {}
    batch = {"prompts": ["q"] * 2, "completions": [GOOD, WRONG], "answer": ["Paris"] * 2}
    values = function(**batch, log_metric=metrics.__setitem__)
    scored = {name: part(**batch) for name, part in alone.items()}
    wanted = [sum(weight * scored[name][row] for name, weight in weights.items()) for row in range(2)]
    assert values == pytest.approx(wanted)
    assert values[0] == pytest.approx(0.7 * 0.96 + 0.3)
    assert metrics["total/reward"] == pytest.approx(sum(wanted) / 2)
