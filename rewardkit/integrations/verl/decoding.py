"""From a rollout's tokens to the text that is scored: the response alone, its tags kept, its end tokens gone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rewardkit import parsing
from rewardkit.errors import InvalidArgumentError
from rewardkit.rewards import Reward


class Decoder:
    """Decodes responses with the policy's tokenizer.

    Special tokens are decoded too, since a tokenizer may call a tag one (``<think>`` often is); those at the end of a
    response that are no tag are cut off before.
    """

    def __init__(self, tokenizer: Any, *, tags: Iterable[str] = (), eos_ids: Iterable[int] = ()):
        """Prepares a tokenizer.

        Args:
            tokenizer: The policy's tokenizer, as transformers gives it.
            tags: What completions are made of; never cut off, even where it is a special token.
            eos_ids: End tokens beside the tokenizer's own.

        Raises:
            InvalidArgumentError: A tag does not survive encoding and decoding.
        """
        self.tokenizer = tokenizer
        tags = tuple(dict.fromkeys(tags))
        check_tags(tokenizer, tags)
        self.eos_ids = frozenset({*eos_ids, *_ids(tokenizer.eos_token_id)})
        special = self.eos_ids | frozenset(getattr(tokenizer, "all_special_ids", ())) | {*_ids(tokenizer.pad_token_id)}
        # A stop token may be a tag itself, e.g. generation that ends at </answer>.
        self._cut_off = frozenset(token for token in special if tokenizer.decode([token]).strip() not in tags)

    def trim(self, token_ids: Sequence[int]) -> Sequence[int]:
        """A response without the end and padding tokens that close it."""
        end = len(token_ids)
        while end and token_ids[end - 1] in self._cut_off:
            end -= 1
        return token_ids[:end]

    def texts(self, responses: Sequence[Sequence[int]]) -> list[str]:
        """The text of each response."""
        if not responses:
            return []
        trimmed = [self.trim(token_ids) for token_ids in responses]
        return self.tokenizer.batch_decode(trimmed, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def ended(self, token_ids: Sequence[int]) -> bool:
        """Whether a response closes with an end token."""
        return len(token_ids) > 0 and token_ids[-1] in self.eos_ids


def literal_tags(reward: Reward) -> tuple[str, ...]:
    """The tags that a reward of text reads; none for a reward that reads no text."""
    name = getattr(reward, "format", None)
    if not isinstance(name, str):
        return ()
    options = dict(getattr(reward, "parse_options", None) or {})
    max_answers = options.get("max_answers", getattr(reward, "max_answers", None))
    return parsing.tags(name, max_answers, tags=options.get("tags"))


def check_tags(tokenizer: Any, tags: Sequence[str]) -> None:
    """Makes sure that a policy can write every tag, and that the reward would read it.

    Raises:
        InvalidArgumentError: A tag comes back changed from the tokenizer: every completion would count as ill-formed.
    """
    text = "".join(f"{tag} x " for tag in tags)
    together = tokenizer.decode(
        tokenizer.encode(text, add_special_tokens=False), skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    for tag in tags:
        if tag not in together:
            alone = tokenizer.decode(tokenizer.encode(tag, add_special_tokens=False), skip_special_tokens=False)
            raise InvalidArgumentError(
                "tokenizer",
                expected=f"a tokenizer that carries the format's tag {tag!r} unchanged "
                "(add it to the tokenizer, or choose a format with other tags)",
                got=f"{alone!r} after encoding and decoding it",
            )


def generation_eos_ids(model_path: str | None) -> set[int]:
    """The end tokens that a model's own ``generation_config.json`` and ``config.json`` name, if it lies on this machine."""
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        file = Path(model_path or "") / name
        if model_path and file.is_file():
            found.update(_ids(json.loads(file.read_text()).get("eos_token_id")))
    return found


def _ids(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, (list, tuple)) else (int(value),)
