"""Checks of what the tokenizer and the prompt do to a format's tags and to the room for an answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rewardkit import parsing
from rewardkit.parsing import grammar
from rewardkit.preflight.check import Check, RowFinding, register
from rewardkit.preflight.findings import Finding
from rewardkit.preflight.job import Fault, Job, Rows, brief, parts, reading
from rewardkit.preflight.references import perfect_completion
from rewardkit.rewards.text import TextReward

_DISTINCT_LINES = 10_000


@register
class TokenizerTags(Check):
    """Encodes and decodes each tag as a trainer would."""

    name = "tokenizer-tags"
    about = "a tag that the tokenizer breaks, or strips as a special token"

    def lacks(self, job: Job) -> str:
        """A tokenizer, and tags."""
        if not job.tags:
            return "no reward reads tags"
        return "" if job.tokenizer is not None else "no tokenizer (--tokenizer)"

    def before(self, job: Job) -> Iterator[Finding]:
        """Tags are tried among text, since alone they may survive what they do not survive in a sentence."""
        broken, stripped = [], []
        for tag in job.tags:
            text = f"so {tag} word {tag}\n"
            ids = job.tokenizer.encode(text, add_special_tokens=False)
            if _decode(job.tokenizer, ids, skip=False).count(tag) != 2:
                broken.append(tag)
            elif _decode(job.tokenizer, ids, skip=True).count(tag) != 2:
                stripped.append(tag)
        if broken:
            yield self.error(
                f"the tokenizer does not give back {', '.join(broken)}: every completion would count as ill-formed.",
                "use a tokenizer that carries them, add them as (not special) tokens, or choose other tags.",
            )
        if stripped:
            where = "decoding without special tokens strips"
            if job.config is not None and job.config.get("reward.reward_manager.name") == "rewardkit":
                # This manager decodes with special tokens, so the reward sees the tags.
                yield self.warning(
                    f"{where} {', '.join(stripped)}; the rewardkit manager keeps them, verl's own dumps lose them.",
                    "add the tags with special=False where the dumps matter.",
                )
            else:
                yield self.error(
                    f"{where} {', '.join(stripped)}: the reward would never see them.",
                    "add the tags with special=False, or choose other tags.",
                )


@register
class TagsInPrompt(Check):
    """Tags in what is asked, beside the instructions that all prompts share."""

    name = "tags-in-prompt"
    about = "a question that contains its own format's tags"

    def __init__(self) -> None:
        self._rows = 0
        self._lines: Counter[str] = Counter()
        self._first: dict[str, tuple[str, int]] = {}

    def lacks(self, job: Job) -> str:
        """Tags."""
        return "" if _angle_tags(job) else "no reward reads tags"

    def look_at(self, job: Job, rows: Rows) -> Iterator[RowFinding]:
        """Gathers lines of the users' turns that have a tag in them; a system message is for instructions."""
        self._rows += len(rows)
        column = "prompt" if job.config is None else str(job.config.get("data.prompt_key") or "prompt")
        pattern = re.compile("|".join(map(re.escape, sorted(_angle_tags(job), key=len, reverse=True))))
        known = _instruction_lines(job)
        for index, prompt in enumerate(rows.columns.get(column, ())):
            seen: set[str] = set()
            for text in _user_texts(prompt):
                if pattern.search(text) is None:
                    continue
                for line in text.splitlines():
                    if line.strip() not in known and line not in seen and pattern.search(line):
                        seen.add(line)
            for line in seen:
                if line in self._lines or len(self._lines) < _DISTINCT_LINES:
                    self._lines[line] += 1
                    self._first.setdefault(line, (rows.file, rows.numbers[index]))
        yield from ()

    def after(self, job: Job) -> Iterator[Finding]:
        """A line that stands in every one of several prompts is an instruction; others are part of a question."""
        odd = {line: count for line, count in self._lines.items() if not (count == self._rows > 1)}
        if odd:
            line, (file, number) = next((line, self._first[line]) for line in odd)
            yield Finding(
                self.name,
                "warning",
                f"a question contains tags of the format: {brief(line)}; the model is led to answer inside it, and "
                "what reads prompt and completion together finds the wrong tag.",
                "remove or escape the tags in the question, or choose other tags for the format.",
                rows=sum(odd.values()),
                file=file,
                examples=(number,),
            )


@register
class FormatNotAsked(Check):
    """Looks for each part of a format in the prompts: a model follows no format that it was never told of."""

    name = "format-not-asked"
    about = "a format, or a part of it, that no prompt asks for"

    def __init__(self) -> None:
        self._unasked: dict[int, dict[str, tuple[str, ...]]] = {}
        self._seen: set[int] = set()

    def lacks(self, job: Job) -> str:
        """A format with tags."""
        for position, term in enumerate(job.terms):
            asked = {}
            for reward in Job((term,)).format_rewards:
                asked |= _literals_to_ask_for(reward)
            # What the chat template itself says, every prompt says.
            template = f"{_custom(job) or getattr(job.tokenizer, 'chat_template', None) or ''}"
            self._unasked[position] = {
                part: texts for part, texts in asked.items() if not any(text in template for text in texts)
            }
        return "" if any(self._unasked.values()) else "no reward reads tags that a prompt has to name"

    def look_at(self, job: Job, rows: Rows) -> Iterator[RowFinding]:
        """Crosses off what some prompt names; as a rule the first one names all."""
        column = "prompt" if job.config is None else str(job.config.get("data.prompt_key"))
        prompts = rows.columns.get(column, ())
        for position, term in enumerate(job.terms):
            unasked = self._unasked[position]
            for index in rows.of(term) if prompts else ():
                if not unasked:
                    break
                for text in _texts(prompts[index]):
                    self._seen.add(position)
                    for part in [part for part, forms in unasked.items() if any(form in text for form in forms)]:
                        del unasked[part]
        yield from ()

    def after(self, job: Job) -> Iterator[Finding]:
        """What was named nowhere."""
        for position, term in enumerate(job.terms):
            parts_left = self._unasked[position]
            if parts_left and position in self._seen:
                named = ", ".join(parts_left)
                yield self.warning(
                    f"no prompt names {named}, which the reward {term.reward.name} reads: a model that was not taught the format "
                    "cannot follow it.",
                    "put the format's instructions into the prompts (`rewardkit data … --format` does, and parsing.prompt gives "
                    "them), or skip this check where the policy knows the format.",
                )


@register
class Room(Check):
    """Compares the shortest completion that can be right with the tokens that a completion may have."""

    name = "room"
    about = "a format that does not fit into max_response_length"

    def __init__(self) -> None:
        self._frames: dict[str, int] = {}
        self._longest = 0

    def lacks(self, job: Job) -> str:
        """A tokenizer, a length, and a format."""
        if not job.format_rewards:
            return "no reward reads a format"
        if job.tokenizer is None:
            return "no tokenizer (--tokenizer)"
        return "" if _room(job) else "max_response_length is not known (--max-response-length, --verl-config)"

    def before(self, job: Job) -> Iterator[Finding]:
        """The tags alone."""
        room = _room(job)
        for reward in job.format_rewards:
            template, marker = perfect_completion(reward)
            self._frames[reward.format] = (
                len(job.tokenizer.encode(template.replace(marker, ""), add_special_tokens=False)) + 1
            )
        frame = max(self._frames.values())
        if room and frame > room:
            yield self.error(
                f"the tags of the format alone take {frame} tokens, and a completion may have {room}.",
                f"raise max_response_length (data.max_response_length in verl) well above {frame}.",
            )
        elif room and frame * 2 > room:
            yield self.warning(
                f"the tags of the format alone take {frame} of the {room} tokens that a completion may have, "
                "which leaves little for reasoning.",
                "raise max_response_length (data.max_response_length in verl).",
            )

    def look_at(self, job: Job, rows: Rows) -> Iterator[RowFinding]:
        """The tags with the row's own reference; only long references are tokenised."""
        room = _room(job) or 0
        frame = max(self._frames.values())
        if frame > room:
            return
        told: set[int] = set()
        for term in job.terms:
            if not any(_wants_the_gold(reward) for reward in parts(term.reward)):
                continue
            golds = rows.golds(term)
            for index in rows.of(term):
                gold = golds[index]
                if isinstance(gold, Fault) or index in told:
                    continue
                shortest = min((alias for aliases in gold for alias in aliases), key=len)
                size = len(shortest.encode("utf-8", "replace"))
                if frame + size <= room:
                    continue
                size = len(job.tokenizer.encode(shortest, add_special_tokens=False))
                if frame + size > room:
                    told.add(index)
                    yield RowFinding(
                        index,
                        "reference",
                        "error",
                        f"the reference {brief(shortest, 40)} takes {size} tokens and the tags {frame}, and a completion may "
                        f"have {room}: it cannot be right.",
                        "raise max_response_length (data.max_response_length in verl), or drop the row.",
                    )


@register
class TemplateEdit(Check):
    """Makes each edit of the chat template and looks whether the prompt changed."""

    name = "template-edit"
    about = "a chat template edit that changes nothing"

    def lacks(self, job: Job) -> str:
        """An edit to look at, and a tokenizer with a template."""
        if not (job.template_edits or _kwargs(job) or _custom(job) is not None):
            return "no template edit is asked for"
        if job.tokenizer is None:
            return "no tokenizer (--tokenizer)"
        return "" if getattr(job.tokenizer, "chat_template", None) else "the tokenizer has no chat template"

    def before(self, job: Job) -> Iterator[Finding]:
        """Edits by replacement, by arguments of the template, and by another template."""
        template = job.tokenizer.chat_template
        for old, new in job.template_edits:
            if not isinstance(template, str) or old not in template or old == new:
                yield self.error(
                    f"replacing {brief(old)} in the chat template changes nothing: it does not stand there."
                    if old != new
                    else f"replacing {brief(old)} by itself changes nothing.",
                    "look at tokenizer.chat_template and name what stands there.",
                )
        custom = _custom(job)
        if custom is not None and custom == template:
            yield self.warning(
                "actor_rollout_ref.model.custom_chat_template is the tokenizer's own template.",
                "remove it, or make the edit that it was meant for.",
            )
        kwargs = _kwargs(job)
        if kwargs:
            plain, edited = self._render(job, {}), self._render(job, kwargs)
            if plain is not None and plain == edited:
                named = ", ".join(f"{key}={value}" for key, value in kwargs.items())
                yield self.error(
                    f"data.apply_chat_template_kwargs ({named}) changes nothing: this chat template does not use it.",
                    "remove it, or use the argument that this template knows.",
                )

    @staticmethod
    def _render(job: Job, kwargs: Mapping[str, Any]) -> str | None:
        custom = _custom(job)
        shapes: Sequence[list[dict[str, str]]] = (
            [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
            [{"role": "user", "content": "u"}],  # some templates know no system message
        )
        for messages in shapes:
            try:
                return job.tokenizer.apply_chat_template(
                    messages,
                    tokenize=False,
                    add_generation_prompt=True,
                    **({} if custom is None else {"chat_template": custom}),
                    **kwargs,
                )
            except Exception:  # noqa: BLE001  (a template is a program, which may raise anything)
                continue
        return None


def _decode(tokenizer: Any, ids: Sequence[int], *, skip: bool) -> str:
    return tokenizer.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)


def _angle_tags(job: Job) -> list[str]:
    """Without the phrases of the format "final", which every prompt for it has to name."""
    return [tag for tag in job.tags if tag not in ("Final answer:", "\\boxed{")]


def _instruction_lines(job: Job) -> set[str]:
    lines: set[str] = set()
    for reward in job.rewards:
        name = getattr(reward, "format", None)
        if isinstance(name, str):
            options = reading(reward)
            for think in (True, False):
                text = parsing.prompt(
                    name, max_answers=options.get("max_answers"), think=think, tags=options.get("tags")
                )
                lines.update(line.strip() for line in text.splitlines())
    return lines


def _literals_to_ask_for(reward: Any) -> dict[str, tuple[str, ...]]:
    """The parts of a reward's format beside the think block: the first tag of each, and the strings that can name it."""
    form = parsing.get_format(reward.format)
    if form.name == "final":
        return {"'Final answer:'": ("Final answer:", "\\boxed")}
    found = {}
    for literal in grammar.literals(form, reading(reward).get("tags")):
        if literal.part.role != "think":
            strings = tuple(dict.fromkeys(literal.at(number)[0] for number in range(1, 10)))
            found[strings[0]] = strings
    return found


def _texts(prompt: Any) -> Iterator[str]:
    """All texts of a prompt, whoever says them."""
    yield from _said_by(prompt, None)


def _user_texts(prompt: Any) -> Iterator[str]:
    yield from _said_by(prompt, "user")


def _said_by(prompt: Any, role: str | None) -> Iterator[str]:
    if isinstance(prompt, str):
        yield prompt
        return
    for message in prompt if isinstance(prompt, Sequence) else ():
        if isinstance(message, Mapping) and role in (None, message.get("role")):
            content = message.get("content")
            if isinstance(content, str):
                yield content
            elif isinstance(content, Sequence):
                yield from (str(part.get("text") or "") for part in content if isinstance(part, Mapping))


def _room(job: Job) -> int | None:
    if job.max_response_length is not None:
        return job.max_response_length
    length = job.config.number("data.max_response_length") if job.config is not None else None
    return None if length is None else int(length)


def _wants_the_gold(reward: Any) -> bool:
    """Whether a completion has to say the gold to be right; a likelihood reward puts it there itself."""
    return isinstance(reward, TextReward) and bool(getattr(reward.matcher, "golds_are_answers", True))


def _kwargs(job: Job) -> Mapping[str, Any]:
    found = job.config.get("data.apply_chat_template_kwargs") if job.config is not None else None
    return found if isinstance(found, Mapping) else {}


def _custom(job: Job) -> str | None:
    found = job.config.get("actor_rollout_ref.model.custom_chat_template") if job.config is not None else None
    return found if isinstance(found, str) else None
