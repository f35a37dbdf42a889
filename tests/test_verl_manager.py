"""The reward manager as verl calls it: real DataProto batches, real event loops, no Ray."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import pickle
import threading
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("verl")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # verl and Ray warn while they are imported
    from omegaconf import OmegaConf
    from tensordict import TensorDict
    from verl import DataProto

    from rewardkit.integrations.verl.manager import RewardManager

from examples.demo import world  # noqa: E402
from rewardkit import rewards  # noqa: E402
from rewardkit.errors import DataError, HarmfulSettingWarning, InvalidArgumentError, UnknownNameError  # noqa: E402
from rewardkit.integrations.verl.data_check import check_files  # noqa: E402
from rewardkit.integrations.verl.scaling import group_std_harm  # noqa: E402
from rewardkit.integrations.verl.settings import COMMON, RESERVED, Settings  # noqa: E402
from rewardkit.rewards.base import Reward  # noqa: E402
from rewardkit.types import RewardBatch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

GOOD = "<think>hm</think><answer>a1</answer><confidence>0.8</confidence>"
WRONG = "<think>hm</think><answer>a2</answer><confidence>0.8</confidence>"
PROSE = "I do not know."
MAX_RESPONSE = 200


@pytest.fixture(scope="module")
def tokenizer():
    return world.make_tokenizer()


def config_of(reward_kwargs: dict[str, Any] | None = None, **changes: Any):
    """The part of verl's config that a manager may look at."""
    config = OmegaConf.create(
        {
            "reward": {
                "num_workers": 8,
                "reward_manager": {"source": "register", "name": "rewardkit"},
                "custom_reward_function": {"path": None, "name": "compute_score"},
                "reward_model": {"enable": False},
                "reward_kwargs": reward_kwargs or {"reward": "rlcr"},
            },
            "algorithm": {"adv_estimator": "grpo", "norm_adv_by_std_in_grpo": False},
            "data": {"train_files": None, "val_files": None, "max_response_length": MAX_RESPONSE},
            "actor_rollout_ref": {
                "model": {"path": None},
                "rollout": {"n": 4, "val_kwargs": {"n": 4}, "agent": {"default_agent_loop": "single_turn_agent"}},
            },
        }
    )
    for path, value in changes.items():
        OmegaConf.update(config, path.replace("__", "."), value, force_add=True)
    return config


def manager_of(tokenizer, reward_kwargs: dict[str, Any] | None = None, **changes: Any) -> RewardManager:
    return RewardManager(config=config_of(reward_kwargs, **changes), tokenizer=tokenizer, compute_score=None)


def encode(tokenizer, text: str, end: bool = True) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False) + ([tokenizer.eos_token_id] if end else [])


def rollout(tokenizer, response: str | list[int], *, reference: Any = "a1", prompt: str = "easy s01", **fields: Any):
    """One finished rollout, as AgentLoopWorker hands it to the reward loop: one unpadded row."""
    prompt_ids = tokenizer.encode(prompt, add_special_tokens=False)
    response_ids = encode(tokenizer, response) if isinstance(response, str) else response
    return batch_of([(prompt_ids, response_ids)], [{"reference": reference, **fields}], response_len=True)


def batch_of(pairs, rows, *, response_len: bool = False, pad: int = 0) -> DataProto:
    """A padded batch: prompts on the left, responses on the right."""
    widest_prompt, widest = (max(len(pair[side]) for pair in pairs) for side in (0, 1))
    prompts = torch.tensor([[pad] * (widest_prompt - len(p)) + list(p) for p, _ in pairs], dtype=torch.int64)
    responses = torch.tensor([list(r) + [pad] * (widest - len(r)) for _, r in pairs], dtype=torch.int64)
    prompts, responses = prompts.reshape(len(pairs), -1), responses.reshape(len(pairs), -1)
    mask = torch.tensor(
        [[0] * (widest_prompt - len(p)) + [1] * len(p) + [1] * len(r) + [0] * (widest - len(r)) for p, r in pairs]
    )
    columns: dict[str, list[Any]] = {
        "data_source": [row.get("data_source", "demo") for row in rows],
        "reward_model": [
            row["reward_model"] if "reward_model" in row else {"style": "rule", "ground_truth": row["reference"]}
            for row in rows
        ],
        "extra_info": [row.get("extra_info", {"split": "train", "index": 0}) for row in rows],
        "uid": [row.get("uid", "u") for row in rows],
        "tool_extra_fields": [row.get("tool_extra_fields", {}) for row in rows],
    }
    if response_len:
        columns["response_len"] = [len(r) for _, r in pairs]
    arrays = {}
    for name, values in columns.items():
        arrays[name] = np.empty(len(values), dtype=object)
        arrays[name][:] = values
    return DataProto(
        batch=TensorDict(
            {
                "prompts": prompts,
                "responses": responses,
                "attention_mask": mask,
                "input_ids": torch.cat([prompts, responses], dim=1),
            },
            batch_size=len(pairs),
        ),
        non_tensor_batch=arrays,
        meta_info={},
    )


def run(manager: RewardManager, *batches: DataProto) -> list[dict[str, Any]]:
    async def together() -> list[dict[str, Any]]:
        return list(await asyncio.gather(*(manager.run_single(batch) for batch in batches)))

    return asyncio.run(together())


# ------------------------------------------------------------------------------------------------ what verl gets


def test_values_and_columns(tokenizer) -> None:
    manager = manager_of(tokenizer)
    good, wrong, prose = run(manager, *(rollout(tokenizer, text) for text in (GOOD, WRONG, PROSE)))
    assert good["reward_score"] == pytest.approx(1 - 0.04)
    assert wrong["reward_score"] == pytest.approx(-0.64)
    assert prose["reward_score"] == rewards.get("rlcr").fail_reward
    assert good["reward_extra_info"] == {
        "acc": 1.0,
        "wellformed": 1.0,
        "status_ok": 1.0,
        "status_unparsed": 0.0,
        "status_failed": 0.0,
        "truncated": 0.0,
        "empty": 0.0,
        "confidence": 0.8,
        "brier": pytest.approx(0.96),
    }
    assert prose["reward_extra_info"]["status_unparsed"] == 1.0
    assert prose["reward_extra_info"]["wellformed"] == 0.0


MIX = [
    {"response": GOOD},
    {"response": PROSE},
    {"response": []},
    {"response": GOOD, "reward_model": {}},
    {"response": GOOD, "reference": None},
    {"response": GOOD, "reference": 7},
    {"response": GOOD, "data_source": "unheard of"},
    {"response": WRONG, "data_source": "other"},
    {"response": [256] * 3},  # end tokens alone
]
SEVERAL = {
    "rewards": [
        {"reward": "rlcr", "data_source": "demo", "weight": 2.0},
        {"reward": "rlvr", "params": {"format": "tac"}, "data_source": ["demo", "other"], "weight": 0.5},
    ]
}


@pytest.mark.parametrize("kwargs", [{"reward": "rlcr"}, SEVERAL, {"reward": "multi_rlcr"}, {"reward": "rlvr"}])
def test_BR_001_BR_002_SR_08_same_columns_for_any_mix_of_rows(tokenizer, kwargs) -> None:
    manager = manager_of(tokenizer, kwargs)
    batches = [rollout(tokenizer, **row) for row in MIX]
    for order in (batches, batches[::-1]):
        results = run(manager, *order)
        keys = [list(result["reward_extra_info"]) for result in results]
        assert all(names == keys[0] for names in keys)
        for result in results:  # what verl's loops do with them
            assert np.array(list(result["reward_extra_info"].values())).dtype == np.float64
    assert results[::-1] == run(manager, *batches)


def test_BR_056_no_column_has_a_name_of_verls(tokenizer) -> None:
    for name in rewards.available():
        if name == "compose":
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HarmfulSettingWarning)
            for kwargs in (
                {"reward": name},
                {"rewards": [{"reward": name}, {"reward": name, "label": "again"}]},
            ):
                assert not set(Settings.of(kwargs).column_names) & RESERVED
    # and the list is not a fancy of ours: these are the names that verl writes beside a manager's
    assert {"reward", "score", "input", "output", "gts", "step", "uid", "data_source"} <= RESERVED


@dataclass(frozen=True)
class Owner(Reward):
    """A user's reward, with components named as the manager's own columns."""

    name: ClassVar[str] = "owner"
    min_value = property(lambda self: 0.0)
    max_value = property(lambda self: 1.0)
    fail_reward = property(lambda self: 0.0)
    proper = property(lambda self: False)
    proper_for = property(lambda self: "nothing")
    component_names = property(lambda self: ("truncated", "status_failed"))

    def __call__(self, completions=(), references=(), **columns) -> RewardBatch:
        ones = np.ones(len(completions))
        parts = {"truncated": ones, "status_failed": ones}
        return RewardBatch(ones, parts, ["ok"] * len(ones), [""] * len(ones))


def test_a_component_does_not_overwrite_what_the_manager_says(tokenizer, monkeypatch) -> None:
    monkeypatch.setitem(rewards.base._REGISTRY, "owner", Owner)
    (result,) = run(manager_of(tokenizer, {"reward": "owner"}), rollout(tokenizer, GOOD))
    columns = result["reward_extra_info"]
    assert (columns["truncated"], columns["status_failed"]) == (0.0, 0.0)
    assert (columns["owner_truncated"], columns["owner_status_failed"]) == (1.0, 1.0)


def test_BR_072_BR_083_SR_09_finite_json_scalars_and_acc(tokenizer) -> None:
    manager = manager_of(tokenizer, SEVERAL)
    for result in run(manager, *(rollout(tokenizer, **row) for row in MIX)):
        assert type(result["reward_score"]) is float
        assert np.isfinite(result["reward_score"])
        assert "acc" in result["reward_extra_info"]
        assert all(type(value) is float and np.isfinite(value) for value in result["reward_extra_info"].values())
        json.dumps(result, allow_nan=False)


def test_several_rewards_by_data_source_each_in_its_own_column(tokenizer) -> None:
    manager = manager_of(tokenizer, SEVERAL)
    demo, other, unknown = run(
        manager,
        rollout(tokenizer, GOOD, data_source="demo"),
        rollout(tokenizer, WRONG, data_source="other"),
        rollout(tokenizer, GOOD, data_source="nobody's"),
    )
    assert demo["reward_score"] == pytest.approx(2.0 * 0.96 + 0.5 * 1.0)
    assert demo["reward_extra_info"]["rlcr"] == pytest.approx(0.96)
    assert demo["reward_extra_info"]["rlvr"] == 1.0
    assert demo["reward_extra_info"]["rlcr_confidence"] == 0.8
    assert other["reward_score"] == 0.0
    assert other["reward_extra_info"]["acc"] == 0.0
    assert unknown["reward_extra_info"]["status_failed"] == 1.0


def test_acc_is_the_reward_where_no_reward_judges_correctness(tokenizer) -> None:
    (result,) = run(manager_of(tokenizer, {"reward": "format"}), rollout(tokenizer, GOOD))
    assert result["reward_extra_info"]["acc"] == result["reward_score"]


def test_BR_085_meta_info_changes_nothing(tokenizer) -> None:
    manager = manager_of(tokenizer)
    plain, marked = rollout(tokenizer, GOOD), rollout(tokenizer, GOOD)
    marked.meta_info = {"validate": True, "global_steps": 3}
    assert run(manager, plain) == run(manager, marked)


def test_BR_107_idempotent_and_the_data_is_not_touched(tokenizer) -> None:
    manager = manager_of(tokenizer)
    batch = rollout(tokenizer, GOOD)
    before = pickle.dumps({name: column.tolist() for name, column in batch.non_tensor_batch.items()})
    assert run(manager, batch) == run(manager, batch)
    assert pickle.dumps({name: column.tolist() for name, column in batch.non_tensor_batch.items()}) == before


def test_references_of_every_kind(tokenizer) -> None:
    manager = manager_of(tokenizer, {"reward": "rlcr", "gold_kind": "aliases"})
    kinds = ["a1", ["a1", "x"], ("x", "a1"), np.array(["x", "a1"], dtype=object), [["a1", "x"]]]
    for result in run(manager, *(rollout(tokenizer, GOOD, reference=kind) for kind in kinds)):
        assert result["reward_extra_info"]["acc"] == 1.0
    as_json = manager_of(tokenizer, {"reward": "rlcr", "gold_kind": "aliases", "references_are_json": True})
    (result,) = run(as_json, rollout(tokenizer, GOOD, reference='["x", "a1"]'))
    assert result["reward_extra_info"]["acc"] == 1.0
    for said, column in (("aliases", "acc"), (None, "status_failed"), ("both", "status_failed")):
        row = rollout(tokenizer, GOOD, reference=["x", "a1"], extra_info={"gold_kind": said})
        (result,) = run(manager_of(tokenizer), row)
        assert result["reward_extra_info"][column] == 1.0
    elsewhere = manager_of(tokenizer, {"reward": "rlcr", "reference": "extra_info.gold"})
    (result,) = run(elsewhere, rollout(tokenizer, GOOD, reference="no", extra_info={"gold": "a1"}))
    assert result["reward_extra_info"]["acc"] == 1.0


# ------------------------------------------------------------------------------------------------ decoding


class Vocabulary:
    """A word-level tokenizer whose tags may be special tokens."""

    def __init__(self, words: list[str], special: set[str], eos: str = "<eos>", pad: str = "<pad>"):
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast

        core = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
        core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        core.decoder = decoders.Fuse()
        self.tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=core,
            eos_token=eos,
            pad_token=pad,
            unk_token="<unk>",
            additional_special_tokens=sorted(special),
        )


TAGS = [f"<{slash}{name}>" for name in ("think", "answer", "confidence") for slash in ("", "/")]
WORDS = ["<unk>", "<pad>", "<eos>", "<end_of_turn>", "hm", "a1", "a2", "0.8", *TAGS]
TOKENS = "<think> hm </think> <answer> a1 </answer> <confidence> 0.8 </confidence>"


def test_BR_013_tags_that_are_special_tokens_are_kept() -> None:
    special = Vocabulary(WORDS, set(TAGS)).tokenizer
    assert (
        special.decode(special.encode(TOKENS), skip_special_tokens=True) == "hma10.8"
    )  # what verl's own manager reads
    manager = manager_of(special)
    (result,) = run(manager, rollout(special, TOKENS, prompt="hm"))
    assert result["reward_extra_info"]["wellformed"] == 1.0
    assert result["reward_score"] == pytest.approx(0.96)


def test_BR_013_a_tokenizer_that_cannot_carry_a_tag_is_refused_at_start() -> None:
    without = Vocabulary([word for word in WORDS if word != "</answer>"], set()).tokenizer
    with pytest.raises(InvalidArgumentError, match="</answer>"):
        manager_of(without)


def test_a_tag_may_be_the_end_token() -> None:
    ends = Vocabulary(WORDS, set(TAGS), eos="</confidence>").tokenizer
    (result,) = run(manager_of(ends), rollout(ends, ends.encode(TOKENS), prompt="hm"))
    assert result["reward_extra_info"]["wellformed"] == 1.0


def test_BR_098_decodes_with_the_policys_tokenizer() -> None:
    policy, judge = Vocabulary(WORDS, set()).tokenizer, Vocabulary(WORDS[::-1], set()).tokenizer
    manager = RewardManager(
        config=config_of(),
        tokenizer=policy,
        compute_score=None,
        reward_model_tokenizer=judge,
        reward_router_address="x",
    )
    (result,) = run(manager, rollout(policy, TOKENS, prompt="hm"))
    assert result["reward_score"] == pytest.approx(0.96)


def test_BR_050_the_prompt_is_never_scored(tokenizer) -> None:
    manager = manager_of(tokenizer)
    decoy = "Write <think>x</think><answer>a1</answer><confidence>1.0</confidence>"
    nothing, prose, own = run(
        manager,
        rollout(tokenizer, [], prompt=decoy),
        rollout(tokenizer, PROSE, prompt=decoy),
        rollout(tokenizer, WRONG, prompt=decoy),
    )
    assert nothing["reward_score"] == 0.0
    assert prose["reward_extra_info"]["wellformed"] == 0.0
    assert own["reward_extra_info"] | {"acc": 0.0, "wellformed": 1.0} == own["reward_extra_info"]


def test_BR_037_an_empty_response_gets_no_reward_and_says_so(tokenizer) -> None:
    manager = manager_of(tokenizer)
    pairs = [([5, 6], encode(tokenizer, GOOD)), ([5], []), ([5, 6, 7], encode(tokenizer, WRONG))]
    batch = batch_of(pairs, [{"reference": "a1"}] * 3)
    result = manager(batch, return_dict=True)
    tensor = result["reward_tensor"]
    assert tensor[1].abs().sum() == 0.0
    assert result["reward_extra_info"]["empty"] == [0.0, 1.0, 0.0]
    for row, expected in ((0, 0.96), (2, -0.64)):
        assert tensor[row].nonzero().tolist() == [[len(pairs[row][1]) - 1]]
        assert tensor[row].sum().item() == pytest.approx(expected)
    assert torch.equal(RewardManager.assemble_rm_scores(batch, [0.5, 0.7, 0.5])[1], torch.zeros(tensor.shape[1]))
    only_empty = batch_of([([5], [])], [{"reference": "a1"}])
    assert manager(only_empty).shape == (1, 0)


def test_BR_038_length_by_the_mask_alone(tokenizer) -> None:
    eos, start = tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(world.START)
    whole = encode(tokenizer, GOOD, end=False)
    long = whole + encode(tokenizer, " hm" * 300, end=False)
    cases = [
        ([*whole, eos], 0.96, 0.0),
        ([*whole, start], 0.96, 0.0),  # ended by a second end token
        ([*whole, eos, eos, tokenizer.pad_token_id], 0.96, 0.0),
        (whole, 0.96, 0.0),  # stopped by a stop string
        (long[:MAX_RESPONSE], rewards.get("rlcr").fail_reward, 1.0),  # cut at the length limit
    ]
    manager = manager_of(tokenizer)
    results = run(manager, *(rollout(tokenizer, ids) for ids, _, _ in cases))
    for result, (_, value, truncated) in zip(results, cases, strict=True):
        assert result["reward_score"] == pytest.approx(value)
        assert result["reward_extra_info"]["truncated"] == truncated
    # pad == eos: what is padded is known from the mask, in a padded batch too
    batch = batch_of([([5], ids) for ids, _, _ in cases], [{"reference": "a1"}] * len(cases), pad=eos)
    tensor = manager(batch)
    for row, (ids, value, _) in enumerate(cases):
        assert tensor[row].nonzero().tolist() == [[len(ids) - 1]]
        assert tensor[row].sum().item() == pytest.approx(value)


def test_last_of_several_outputs_whose_masks_do_not_line_up(tokenizer) -> None:
    """An agent loop with several outputs: verl pads prompts, responses and masks apart, each on the right."""
    first, last = (encode(tokenizer, text) for text in (WRONG, GOOD))
    prompts = [[5] * 9, [5, 6]]
    pad = torch.nn.utils.rnn.pad_sequence
    rows = [[torch.tensor(ids) for ids in side] for side in (prompts, [first + first, last])]
    masks = [
        torch.ones(len(p) + len(r), dtype=torch.int64) for p, r in zip(prompts, [first + first, last], strict=True)
    ]
    batch = batch_of([([5], first), ([5], last)], [{"reference": "a1"}] * 2)
    data = DataProto(
        batch=TensorDict(
            {
                "prompts": pad(rows[0], batch_first=True),
                "responses": pad(rows[1], batch_first=True),
                "attention_mask": pad(masks, batch_first=True),
            },
            batch_size=2,
        ),
        non_tensor_batch=batch.non_tensor_batch | {"response_len": np.array([len(first) * 2, len(last)])},
    )
    (result,) = run(manager_of(tokenizer), data)
    assert result["reward_score"] == pytest.approx(0.96)


def test_only_what_the_policy_wrote_counts_where_verl_says_so(tokenizer) -> None:
    written, told = (
        encode(tokenizer, "<think>hm</think>", end=False),
        encode(tokenizer, "<answer>a2</answer>", end=False),
    )
    rest = encode(tokenizer, GOOD.removeprefix("<think>hm</think>"))
    batch = batch_of([([5], written + told + rest)], [{"reference": "a1"}])
    assert manager_of(tokenizer)(batch).sum().item() == pytest.approx(rewards.get("rlcr").fail_reward)
    batch.batch["response_mask"] = torch.tensor([[1] * len(written) + [0] * len(told) + [1] * len(rest)])
    assert manager_of(tokenizer)(batch).sum().item() == pytest.approx(0.96)


# ------------------------------------------------------------------------------------------------ batches, loops, processes


@dataclass(frozen=True, kw_only=True)
class Counting(Reward):
    """Counts its calls; where it is told to wait, it works until somebody else has said that the loop goes on."""

    name: ClassVar[str] = "test_counting"
    wait: bool = False
    calls: ClassVar[list[int]] = []
    loop_goes_on: ClassVar[threading.Event] = threading.Event()
    min_value = max_value = fail_reward = 0.0
    proper, proper_for = False, "nothing"
    component_names = ("correct",)

    def __call__(self, completions=(), references=(), **columns: Any) -> RewardBatch:
        self.calls.append(len(completions))
        if self.wait and not self.loop_goes_on.wait(timeout=60):
            raise TimeoutError("the event loop stood still for a minute")
        size = len(completions)
        return RewardBatch(np.ones(size), {"correct": np.ones(size)}, ["ok"] * size, [""] * size)


@dataclass(frozen=True, kw_only=True)
class Group(Reward):
    """The share of a prompt's rollouts that say something else."""

    name: ClassVar[str] = "test_group"
    needs_group: ClassVar[bool] = True
    min_value, max_value, fail_reward = 0.0, 1.0, -1.0
    proper, proper_for = False, "nothing"
    component_names = ("size",)

    def __call__(self, completions=(), references=(), *, group_ids, **columns: Any) -> RewardBatch:
        groups = [[c for c, g in zip(completions, group_ids, strict=True) if g == group] for group in group_ids]
        values = [1 - group.count(own) / len(group) for own, group in zip(completions, groups, strict=True)]
        sizes = np.array([float(len(group)) for group in groups])
        return RewardBatch(np.array(values), {"size": sizes}, ["ok"] * len(values), [""] * len(values))


@dataclass(frozen=True, kw_only=True)
class Fragile(Reward):
    """Raises on one answer, as a judge of somebody's might."""

    name: ClassVar[str] = "test_fragile"
    min_value, max_value, fail_reward = 0.0, 1.0, -1.0
    proper, proper_for = False, "nothing"
    component_names = ("correct",)

    def __call__(self, completions=(), references=(), **columns: Any) -> RewardBatch:
        if any("a2" in completion for completion in completions):
            raise RuntimeError("the judge is ill")
        size = len(completions)
        return RewardBatch(np.ones(size), {"correct": np.ones(size)}, ["ok"] * size, [""] * size)


@pytest.fixture(autouse=True)
def _test_rewards(monkeypatch):
    from rewardkit.rewards import base

    for cls in (Counting, Group, Fragile):
        monkeypatch.setitem(base._REGISTRY, cls.name, cls)
    Counting.calls.clear()
    Counting.loop_goes_on.clear()


def test_calls_that_arrive_together_are_one_batch(tokenizer) -> None:
    manager = manager_of(tokenizer, {"reward": "test_counting"})
    run(manager, *[rollout(tokenizer, GOOD)] * 512)
    assert Counting.calls == [512]
    Counting.calls.clear()
    manager = manager_of(tokenizer, {"reward": "test_counting", "max_batch": 100})
    run(manager, *[rollout(tokenizer, GOOD)] * 250)
    assert Counting.calls == [100, 100, 50]


def test_results_go_back_to_their_own_rows(tokenizer) -> None:
    manager = manager_of(tokenizer)
    batches = [rollout(tokenizer, GOOD if place % 3 else WRONG) for place in range(64)]

    async def scattered() -> list[dict[str, Any]]:
        async def one(place: int, batch: DataProto) -> dict[str, Any]:
            await asyncio.sleep(0.001 * (place % 5))
            return await manager.run_single(batch)

        return await asyncio.gather(*(one(place, batch) for place, batch in enumerate(batches)))

    assert [result["reward_extra_info"]["acc"] for result in asyncio.run(scattered())] == [
        float(bool(place % 3)) for place in range(64)
    ]


def test_BR_059_the_event_loop_never_waits(tokenizer) -> None:
    """The reward ends only after the loop has gone on beside it."""
    manager = manager_of(tokenizer, {"reward": "test_counting", "params": {"wait": True}})

    async def score() -> list[dict[str, Any]]:
        rows = asyncio.gather(*(manager.run_single(rollout(tokenizer, GOOD)) for _ in range(4)))
        while not Counting.calls:
            await asyncio.sleep(0.001)
        assert not rows.done()
        Counting.loop_goes_on.set()
        return await rows

    assert [result["reward_score"] for result in asyncio.run(score())] == [1.0] * 4
    assert Counting.calls == [4]


def test_one_row_that_spoils_a_batch_fails_alone(tokenizer, caplog) -> None:
    manager = manager_of(tokenizer, {"reward": "test_fragile"})
    results = run(manager, *(rollout(tokenizer, text) for text in (GOOD, WRONG, GOOD)))
    assert [result["reward_score"] for result in results] == [1.0, -1.0, 1.0]
    assert [result["reward_extra_info"]["status_failed"] for result in results] == [0.0, 1.0, 0.0]
    assert "the judge is ill" in caplog.text


def test_BR_057_picklable_and_works_in_a_daemon(tokenizer) -> None:
    manager = manager_of(tokenizer, SEVERAL)
    run(manager, rollout(tokenizer, GOOD))
    copy = pickle.loads(pickle.dumps(manager))
    assert run(copy, rollout(tokenizer, GOOD)) == run(manager, rollout(tokenizer, GOOD))

    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=lambda: sender.send(run(manager, rollout(tokenizer, GOOD))), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    assert receiver.poll(60), "scoring in a daemon hangs"
    assert receiver.recv() == run(manager, rollout(tokenizer, GOOD))
    process.join(10)


def test_BR_051_after_a_fork(tokenizer) -> None:
    manager = manager_of(tokenizer)
    expected = run(manager, *[rollout(tokenizer, GOOD)] * 8)  # threads have run before the fork
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            result = run(manager, *[rollout(tokenizer, GOOD)] * 8)
            os.write(writer, b"same" if result == expected else b"differs")
        finally:
            os._exit(0)
    import select

    ready, _, _ = select.select([reader], [], [], 60)
    if not ready:
        os.kill(child, 9)
    os.waitpid(child, 0)
    assert ready, "scoring after a fork hangs"
    assert os.read(reader, 16) == b"same"


def test_many_event_loops_in_many_threads(tokenizer) -> None:
    manager = manager_of(tokenizer)
    expected = run(manager, *[rollout(tokenizer, GOOD)] * 3)
    results: list[Any] = [None] * 6

    def work(place: int) -> None:
        results[place] = run(manager, *[rollout(tokenizer, GOOD)] * 3)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 6


# ------------------------------------------------------------------------------------------------ groups


def grouped(tokenizer, texts, **fields) -> list[DataProto]:
    return [rollout(tokenizer, text, **fields) for text in texts]


def test_a_group_is_scored_when_it_is_whole(tokenizer) -> None:
    manager = manager_of(tokenizer, {"reward": "test_group"}, reward__num_workers=1)
    one = grouped(tokenizer, [GOOD, GOOD, WRONG, WRONG], uid="one")
    two = grouped(tokenizer, [GOOD, GOOD, GOOD, WRONG], uid="two")
    results = run(manager, *[batch for pair in zip(one, two, strict=True) for batch in pair])
    assert [result["reward_score"] for result in results[::2]] == [0.5] * 4
    assert [result["reward_score"] for result in results[1::2]] == [0.25, 0.25, 0.25, 0.75]
    assert {result["reward_extra_info"]["size"] for result in results} == {4.0}


def test_training_and_validation_groups_of_different_size(tokenizer) -> None:
    manager = manager_of(
        tokenizer,
        {"reward": "test_group", "group_timeout": 0.2},
        reward__num_workers=1,
        actor_rollout_ref__rollout__val_kwargs__n=1,
    )
    (alone,) = run(manager, rollout(tokenizer, GOOD, extra_info={"split": "test"}))
    assert alone["reward_extra_info"]["size"] == 1.0
    (mute,) = run(manager, rollout(tokenizer, GOOD, extra_info={}))
    assert mute["reward_extra_info"]["status_failed"] == 1.0


def test_a_group_that_stays_incomplete_fails_in_time(tokenizer) -> None:
    manager = manager_of(tokenizer, {"reward": "test_group", "group_timeout": 0.2}, reward__num_workers=1)
    results = run(manager, *grouped(tokenizer, [GOOD, WRONG, GOOD]))
    assert {result["reward_extra_info"]["status_failed"] for result in results} == {1.0}
    assert {result["reward_score"] for result in results} == {-1.0}


def test_groups_need_one_worker(tokenizer) -> None:
    with pytest.raises(InvalidArgumentError, match=r"reward\.num_workers"):
        manager_of(tokenizer, {"reward": "test_group"}, reward__num_workers=8)


# ------------------------------------------------------------------------------------------------ the older interface


def test_BR_084_a_whole_batch_at_a_time(tokenizer) -> None:
    manager = RewardManager(tokenizer=tokenizer, num_examine=0, reward="rlcr", params={"format": "tac"})
    pairs = [([5, 6], encode(tokenizer, GOOD)), ([5], encode(tokenizer, PROSE))]
    batch = batch_of(pairs, [{"reference": "a1"}] * 2)
    tensor = manager(batch)
    assert tensor.dtype == torch.float32
    both = manager(batch, return_dict=True)
    assert set(both) == {"reward_tensor", "reward_extra_info"}
    assert torch.equal(both["reward_tensor"], tensor)
    assert all(len(column) == 2 for column in both["reward_extra_info"].values())
    assert set(COMMON) <= set(both["reward_extra_info"])
    singles = run(manager, *(rollout(tokenizer, text) for text in (GOOD, PROSE)))
    assert tensor.sum(1).tolist() == pytest.approx([single["reward_score"] for single in singles])


# ------------------------------------------------------------------------------------------------ a job that is wrong


def write_rows(path, rows) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), path)
    return str(path)


def data_row(**changes: Any) -> dict[str, Any]:
    return {
        "data_source": "demo",
        "reward_model": {"style": "rule", "ground_truth": "a1"},
        "extra_info": {"split": "x"},
    } | changes


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"reward_model": {"style": "rule", "ground_truth": None}}, ["row 3", "reward_model.ground_truth", "None"]),
        ({"reward_model": {"style": "rule", "ground_truth": "  "}}, ["row 3", "reward_model.ground_truth", "empty"]),
        ({"reward_model": None}, ["row 3", "reward_model.ground_truth", "no such column"]),
        ({"data_source": None}, ["row 3", "data_source"]),
    ],
)
def test_BR_073_a_broken_reference_fails_at_start_with_its_row(tokenizer, tmp_path, bad, words) -> None:
    file = write_rows(tmp_path / "train.parquet", [data_row(), data_row(), data_row(**bad)])
    with pytest.raises(DataError) as caught:
        manager_of(tokenizer, data__train_files=file)
    for word in ["train.parquet", *words]:
        assert word in str(caught.value)


def test_BR_073_a_column_that_is_not_there(tokenizer, tmp_path) -> None:
    row = data_row()
    del row["reward_model"]
    file = write_rows(tmp_path / "val.parquet", [row])
    with pytest.raises(DataError, match=r"val\.parquet.*row 1.*reward_model\.ground_truth.*no such column"):
        manager_of(tokenizer, data__val_files=[file])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", b'[{"data_source": "demo"},]', r"a\.json, row 2: expected a JSON list"),
        ("a.json", b'[{"data_source": "demo"} {"data_source": "demo"}]', r"a\.json, row 2: expected a comma"),
        ("a.json", b'[{"data_source": "demo"}', r"a\.json, row 2: expected a JSON list that ends"),
        ("a.json", b"[]", r"a\.json: expected at least one row"),
        ("a.json", b"[1]", r"a\.json, row 1: expected a JSON object"),
        ("a.jsonl", b'{"data_source": "\xff"}', r"a\.jsonl, row 1: expected UTF-8"),
        ("a.jsonl", b'\n{"data_source": }', r"a\.jsonl, row 2: expected one JSON object"),
        ("a.jsonl", b"", r"a\.jsonl: expected at least one row"),
        ("a.parquet", b"PAR1 no", r"a\.parquet: expected a Parquet file"),
        ("a.parquet", b"", r"a\.parquet: expected a Parquet file"),
        ("a.csv", b"data_source", r"a\.csv: expected a file name"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_at_start(tokenizer, tmp_path, name, content, words) -> None:
    (tmp_path / name).write_bytes(content.replace(b'"demo"}', b'"demo", "reward_model": {"ground_truth": "a1"}}'))
    with pytest.raises(DataError, match=words):
        manager_of(tokenizer, data__train_files=str(tmp_path / name))


@pytest.mark.parametrize("lead", ["", "\n ", "\ufeff"])
@pytest.mark.parametrize("name", ["a.json", "lines.json", "a.jsonl", "a.parquet"])
def test_rows_are_counted_from_one_in_every_format(tokenizer, tmp_path, name, lead) -> None:
    file, rows = tmp_path / name, [data_row(), data_row(reward_model={"ground_truth": ""})]
    if name == "a.parquet":
        write_rows(file, rows)
    else:
        listed = json.dumps(rows) if name == "a.json" else "\n".join(map(json.dumps, rows))
        file.write_text((lead if name == "a.json" else "") + listed, encoding="utf-8")
    with pytest.raises(DataError, match=r"row 2.*an empty reference"):
        manager_of(tokenizer, data__train_files=str(file))


def test_a_file_without_any_of_the_columns_does_not_pass(tokenizer, tmp_path) -> None:
    file = write_rows(tmp_path / "a.parquet", [{"text": "x"}])
    with pytest.raises(DataError, match=r"row 1, column 'data_source'"):
        manager_of(tokenizer, data__train_files=file)


def test_only_the_fields_that_are_looked_at_are_read(tmp_path) -> None:
    from rewardkit.integrations.verl.data_check import _rows

    row = data_row(extra_info={"split": "x", "long": "…" * 100}, text="…", prompt=[{"role": "user", "content": "?"}])
    file = write_rows(tmp_path / "a.parquet", [row])
    ((number, read),) = _rows(tmp_path / "a.parquet", Settings.of({"reward": "rlcr"}))
    assert (number, read) == (
        1,
        {"data_source": "demo", "reward_model": {"ground_truth": "a1"}, "extra_info": {"split": "x"}},
    )
    assert file


def test_references_of_the_wrong_type_or_kind_fail_at_start(tokenizer, tmp_path) -> None:
    file = write_rows(tmp_path / "a.parquet", [data_row(reward_model={"ground_truth": 7})])
    with pytest.raises(DataError, match=r"row 1.*as the answer would be written.*7"):
        manager_of(tokenizer, data__train_files=file)
    flat = write_rows(tmp_path / "b.parquet", [data_row(reward_model={"ground_truth": ["a1", "x"]})])
    with pytest.raises(DataError, match=r"row 1.*aliases.*set"):
        manager_of(tokenizer, data__train_files=flat)
    manager_of(tokenizer, {"reward": "rlcr", "gold_kind": "aliases"}, data__train_files=flat)
    golds = {"reward_model": {"ground_truth": ["a1", "x"]}}
    said = write_rows(tmp_path / "said.parquet", [data_row(**golds, extra_info={"gold_kind": "set"})])
    manager_of(tokenizer, data__train_files=said)
    unknown = write_rows(tmp_path / "unknown.parquet", [data_row(**golds, extra_info={"gold_kind": "both"})])
    with pytest.raises(DataError, match=r"row 1.*gold_kind.*both"):
        manager_of(tokenizer, data__train_files=unknown)
    lines = tmp_path / "c.jsonl"
    lines.write_text(json.dumps(data_row()) + "\n" + json.dumps(data_row(reward_model={"ground_truth": ""})) + "\n")
    with pytest.raises(DataError, match=r"row 2.*empty"):
        manager_of(tokenizer, data__train_files=str(lines))


def test_a_data_source_without_a_reward_fails_at_start(tokenizer, tmp_path) -> None:
    file = write_rows(tmp_path / "train.parquet", [data_row(), data_row(data_source="new")])
    with pytest.raises(DataError, match=r"row 2.*data_source.*demo, other.*'new'"):
        manager_of(tokenizer, SEVERAL, data__train_files=file)


def test_a_required_column_is_looked_for_at_start(tokenizer, tmp_path) -> None:
    file = write_rows(tmp_path / "train.parquet", [data_row()])
    kwargs = {"reward": "hypotheses_backoff"}
    with pytest.raises(DataError, match=r"row 1.*extra_info\.prior_logprob"):
        manager_of(tokenizer, kwargs, data__train_files=file)
    # An agent loop brings what depends on the rollout, and what the job says that it brings; a prior is in the data.
    loop = {"actor_rollout_ref__rollout__agent__default_agent_loop": "own"}
    with pytest.raises(DataError, match=r"row 1.*extra_info\.prior_logprob"):
        manager_of(tokenizer, kwargs, data__train_files=file, **loop)
    places = {"columns": {"prior_logprob": "tool_extra_fields.prior"}}
    manager_of(tokenizer, {**kwargs, **places}, data__train_files=file, **loop)
    file = write_rows(tmp_path / "with.parquet", [data_row(extra_info={"prior_logprob": -2.0})])
    manager_of(tokenizer, kwargs, data__train_files=file)


def test_a_baseline_is_looked_for_at_start_and_log_probabilities_are_not(tmp_path) -> None:
    file = write_rows(tmp_path / "train.parquet", [data_row()])
    rlpr = Settings.of({"reward": "rlpr", "params": {"debias": True}})
    with pytest.raises(DataError, match=r"row 1.*extra_info\.baseline"):
        check_files(rlpr, [file], columns_come_later=True)
    file = write_rows(tmp_path / "with.parquet", [data_row(extra_info={"baseline": 0.5})])
    assert check_files(rlpr, [file], columns_come_later=True) == 1
    with pytest.raises(DataError, match=r"row 1.*extra_info\.reference_logprobs"):
        check_files(rlpr, [file])


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"reward": "nope"}, r"^reward\.reward_kwargs\.reward: unknown reward 'nope'"),
        ({"rewards": [{"reward": "rlvr"}, {"reward": "nope"}]}, r"^reward\.reward_kwargs\.rewards\[1\]\.reward: "),
        ({"reward": "rlcr", "params": {"matcher": "zz"}}, r"^reward\.reward_kwargs\.params: unknown matcher 'zz'"),
        ({"reward": "rlcr", "params": {"format": "tax"}}, r"^reward\.reward_kwargs\.params: unknown format"),
        ({"reward": "compose"}, r"^reward\.reward_kwargs\.params: compose\(parts=…\): expected a value"),
    ],
)
def test_every_wrong_name_is_told_with_its_full_path(kwargs, words) -> None:
    with pytest.raises((UnknownNameError, InvalidArgumentError), match=words):
        Settings.of(kwargs)


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({}, "reward=NAME"),
        ({"reward": "rlcr", "rewards": [{"reward": "rlvr"}]}, "either"),
        ({"reward": "rlcr", "parms": {}}, "reward_kwargs.parms"),
        ({"reward": "rlcr", "params": {"wieghts": 1}}, "wieghts"),
        ({"reward": "rlcr", "params": {"weights": [-1, 1]}}, "weights"),
        ({"rewards": [{"reward": "rlvr"}, {"reward": "rlvr"}]}, "label"),
        ({"rewards": [{"reward": "rlvr"}, {"reward": "rlcr", "label": "reward"}]}, "label"),
        ({"rewards": [{"reward": "rlvr", "weight": "much"}]}, "weight"),
        (
            {"rewards": [{"reward": "rlvr", "label": "a"}, {"reward": "rlvr", "label": "a_acc"}]},
            "both write the column a_acc",
        ),
        ({"rewards": "rlvr"}, "list"),
        ({"rewards": [{"reward": "rlvr"}], "params": {"format": "tac"}}, "inside each entry"),
        ({"reward": "rlcr", "gold_kind": "both"}, "gold_kind"),
        ({"reward": "rlcr", "max_batch": 0}, "max_batch"),
        ({"reward": 3}, "reward"),
        (None, r"reward_kwargs: expected a mapping"),
        ("rlcr", r"reward_kwargs: expected a mapping"),
        ({"reward": "rlcr", "params": 0}, r"params: expected a mapping"),
        ({"reward": "rlcr", "skip_checks": None}, r"skip_checks: expected a list"),
        ({"reward": "rlcr", "skip_checks": 5}, r"skip_checks: expected a list"),
        ({"reward": "rlcr", "columns": {5: "a"}}, r"columns: expected"),
        ({"rewards": [{"reward": "rlcr", "data_source": 5}]}, r"rewards\[0\]\.data_source: expected"),
        ({"rewards": [{"reward": "rlcr", "data_source": {"a": 1}}]}, r"rewards\[0\]\.data_source: expected"),
        ({"rewards": [{"reward": "rlcr", "label": ["a"]}]}, r"rewards\[0\]\.label: expected"),
        ({"reward": "rlcr", "max_batch": float("nan")}, r"max_batch: expected a whole number"),
        ({"reward": "rlcr", "max_batch": 2.5}, r"max_batch: expected a whole number"),
        ({"reward": "rlcr", "group_timeout": float("nan")}, r"group_timeout: expected a finite number"),
        ({"reward": "rlcr", "group_timeout": float("inf")}, r"group_timeout: expected a finite number"),
        ({"reward": "compose", "params": {"parts": {"rlcr": {"gate": "false"}}}}, r"gate: expected true or false"),
        ({"reward": "hypotheses_backoff", "params": {"lift": False, "fail_mode": "per_example"}}, "params.*floor"),
    ],
)
def test_a_config_that_is_wrong_is_told_with_its_path(kwargs, words) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        Settings.of(kwargs)


def test_an_unknown_reward_is_told_with_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match="rlcr"):
        Settings.of({"reward": "rlrc"})


def test_settings_elsewhere_that_would_bypass_the_rewards_are_refused(tokenizer) -> None:
    with pytest.raises(InvalidArgumentError, match="custom_reward_function"):
        manager_of(tokenizer, reward__custom_reward_function__path="f.py")
    with pytest.raises(InvalidArgumentError, match="reward_model"):
        manager_of(tokenizer, reward__reward_model__enable=True)


def test_group_scaling_with_a_calibration_reward_is_warned_of(tokenizer) -> None:
    with pytest.warns(HarmfulSettingWarning, match="norm_adv_by_std_in_grpo=False"):
        manager_of(tokenizer, algorithm__norm_adv_by_std_in_grpo=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", HarmfulSettingWarning)
        manager_of(tokenizer)
        manager_of(tokenizer, {"reward": "rlvr"}, algorithm__norm_adv_by_std_in_grpo=True)
        manager_of(tokenizer, {"reward": "rlvr"}, algorithm__adv_estimator="gdpo")
        manager_of(tokenizer, algorithm__adv_estimator="rloo", algorithm__norm_adv_by_std_in_grpo=True)


@pytest.mark.parametrize("estimator", ["gdpo", "grpo_vectorized"])
def test_estimators_that_scale_whatever_the_setting_says_are_warned_of(tokenizer, estimator) -> None:
    with pytest.warns(
        HarmfulSettingWarning, match=rf"adv_estimator={estimator}.*whatever.*Remedy: .*adv_estimator=grpo"
    ):
        manager_of(tokenizer, algorithm__adv_estimator=estimator)


@pytest.mark.parametrize(
    ("estimator", "setting"), [(e, s) for e in ("grpo", "grpo_passk", "grpo_vectorized", "gdpo") for s in (True, False)]
)
def test_which_of_verls_estimators_divide_by_the_group_s_deviation(estimator, setting) -> None:
    """What :func:`group_std_harm` says of verl is so: a group whose rewards lie ten times as far apart learns ten times as much."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of engines that are not installed
        from verl.trainer.config import AlgoConfig
        from verl.trainer.ppo.ray_trainer import compute_advantage

    values = np.array([0.0, 1.0, 0.0, 10.0], dtype=np.float32)
    rewards_ = torch.zeros(4, 3)
    rewards_[:, -1] = torch.tensor(values)
    batch = TensorDict(
        {
            "token_level_rewards": rewards_,
            "response_mask": torch.ones(4, 3, dtype=torch.long),
            "prompts": torch.ones(4, 2),
            "attention_mask": torch.ones(4, 5, dtype=torch.long),
        },
        batch_size=4,
    )
    fields = {"uid": np.array(list("aabb"), dtype=object), "score_column": values}
    data = DataProto(batch=batch, non_tensor_batch=fields)
    config = AlgoConfig(adv_estimator=estimator, norm_adv_by_std_in_grpo=setting, gdpo_reward_keys=["score_column"])
    got = compute_advantage(data, adv_estimator=estimator, norm_adv_by_std_in_grpo=setting, config=config)
    spread = got.batch["advantages"][:, 0].numpy()
    divided = bool(np.isclose(spread[3], spread[1], rtol=1e-3))
    assert divided == (group_std_harm("x", estimator=estimator, normalise=setting) is not None)


def test_loads_by_path_as_verl_does(tokenizer) -> None:
    from verl.trainer.ppo.reward import load_reward_manager

    config = config_of(
        reward__reward_manager={
            "source": "importlib",
            "name": "RewardManager",
            "module": {"path": "pkg://rewardkit.integrations.verl.manager", "name": "custom"},
        }
    )
    manager = load_reward_manager(config, tokenizer, reward_router_address=None, reward_model_tokenizer=None)
    assert isinstance(manager, RewardManager)


def test_loads_by_name_once_the_plugin_is_there(tokenizer) -> None:
    from verl.trainer.ppo.reward import load_reward_manager

    import rewardkit.integrations.verl.plugin  # noqa: F401  (what verl does with the entry point)

    manager = load_reward_manager(config_of(), tokenizer, reward_router_address=None, reward_model_tokenizer=None)
    assert isinstance(manager, RewardManager)
