"""HotpotQA-Modified: the distractor setting with 0, 1 or 2 of the paragraphs that the answer needs taken out.

A model that is asked with the evidence missing should be less sure; that is what calibration rewards are trained and
measured on (RLCR, arXiv:2507.16806; multi-answer RL, arXiv:2603.24844).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rewardkit.arrays import whole
from rewardkit.data.schema import Example, Layout, MalformedRecordError, content_id, draw
from rewardkit.errors import InvalidArgumentError

PARAGRAPHS = 10
REMOVED = 2
CHOICES = (0, 1, 2)

LAYOUT = Layout(
    gold="string",
    extra={
        "gold_removed": "int64",
        "removed_titles": "strings",
        "kept_titles": "strings",
        "gold_titles": "strings",
        "type": "string",
        "level": "string",
        "malformed": "string",
    },
)

_TASK = (
    "Answer the question below. The paragraphs come from an encyclopedia: some have nothing to do with the question, and a "
    "paragraph that the answer needs may be missing."
)


def hotpot_modified(
    record: Mapping[str, Any],
    seed: int = 0,
    choice: int | Sequence[int] | None = None,
    *,
    on_malformed: str = "raise",
) -> Example:
    """One question with 8 of its 10 paragraphs: g gold and 2 - g distractor paragraphs are removed.

    Which are removed depends on the record's id and the seed alone, by a hash: neither the order of the records nor
    Python's hash seed nor the process matters.

    Args:
        record: A record of the official release, of its mirror in Parquet, or with paragraphs as a list of structs.
        seed: Another seed gives another draw.
        choice: How many gold paragraphs to remove: a number, several to draw from uniformly, or None for 0, 1 or 2. With 0
            all evidence is kept: vanilla HotpotQA at the same length.
        on_malformed: "raise", or "flag" to keep a malformed record with all its paragraphs and the reason in
            ``extra["malformed"]``.

    Raises:
        MalformedRecordError: The record has not 10 paragraphs, or not 2 gold ones among them, or no question or answer.
        InvalidArgumentError: ``choice`` is not in 0, 1, 2.

    Source:
        RLCR, arXiv:2507.16806, data set HotpotQA-Modified. The released script draws from a list of titles with repeats,
        which removes a paragraph with more supporting sentences more often; here each paragraph counts once.
    """
    given = CHOICES if choice is None else choice if isinstance(choice, (list, tuple, range)) else (choice,)
    choices = [whole("choice", one, low=CHOICES[0], high=CHOICES[-1]) for one in given]
    if not choices:
        raise InvalidArgumentError("choice", expected="0, 1, 2, or several of them", got=choice)
    if on_malformed not in ("raise", "flag"):
        raise InvalidArgumentError("on_malformed", expected="'raise' or 'flag'", got=on_malformed)

    question, answer = _text(record, "question"), _text(record, "answer")
    identity = str(record.get("id") or record.get("_id") or content_id(question, answer))
    paragraphs = _paragraphs(record, identity)
    golds = _gold_titles(record, identity)

    malformed = _fault(paragraphs, golds)
    if malformed and on_malformed == "raise":
        raise MalformedRecordError(*malformed, record=identity)
    removed: set[str] = set()
    gold_removed = 0
    if not malformed:
        gold_removed = choices[draw(identity, seed, "gold_removed") % len(choices)]
        gold_order = sorted(golds, key=lambda title: draw(identity, seed, "gold", title))
        distractors = [title for title, _ in paragraphs if title not in golds]
        distractor_order = sorted(distractors, key=lambda title: draw(identity, seed, "distractor", title))
        removed = {*gold_order[:gold_removed], *distractor_order[: REMOVED - gold_removed]}
    kept = [(title, text) for title, text in paragraphs if title not in removed]
    listed = "\n\n".join(f"Paragraph {number}: {title}\n{text}" for number, (title, text) in enumerate(kept, 1))
    return Example(
        id=identity,
        question=f"{_TASK}\n\n{listed}\n\nQuestion: {question}",
        gold=answer,
        gold_kind="aliases",
        data_source="hotpotqa_modified",
        ability="question_answering",
        extra={
            "gold_removed": gold_removed,
            "removed_titles": [title for title, _ in paragraphs if title in removed],
            "kept_titles": [title for title, _ in kept],
            "gold_titles": golds,
            "type": str(record.get("type") or ""),
            "level": str(record.get("level") or ""),
            "malformed": malformed[0] if malformed else "",
        },
    )


def _fault(paragraphs: list[tuple[str, str]], golds: list[str]) -> tuple[str, str] | None:
    """What is expected of a record and was found instead; None where it is as expected."""
    titles = [title for title, _ in paragraphs]
    if len(titles) != PARAGRAPHS:
        return f"{PARAGRAPHS} paragraphs", str(len(titles))
    if len(set(titles)) != len(titles):
        return "paragraphs with titles of their own", "a title that occurs twice"
    if len(golds) != 2:
        return "2 gold paragraphs", str(len(golds))
    missing = [title for title in golds if title not in titles]
    if missing:
        return "gold paragraphs among the paragraphs", f"no paragraph {missing[0]!r}"
    return None


def _text(record: Mapping[str, Any], key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not value.strip():
        identity = record.get("id") or record.get("_id")
        raise MalformedRecordError(f"text in {key!r}", repr(value), record=str(identity) if identity else None)
    return value.strip()


def _paragraphs(record: Mapping[str, Any], identity: str) -> list[tuple[str, str]]:
    """``(title, text)`` from the release's pairs, the mirror's parallel lists, or structs."""
    context = record.get("context")
    try:
        if isinstance(context, Mapping):
            pairs = list(zip(context["title"], context["sentences"], strict=True))
        elif isinstance(context, Sequence) and not isinstance(context, str):
            pairs = [(one["title"], one["sentences"]) if isinstance(one, Mapping) else tuple(one) for one in context]
        else:
            raise TypeError(type(context).__name__)
        return [(title.strip(), _joined(sentences)) for title, sentences in pairs]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedRecordError("paragraphs in 'context'", repr(error), record=identity) from error


def _joined(sentences: Sequence[str]) -> str:
    """The release's sentences bring their own leading spaces; other sources have stripped them."""
    text = ""
    for sentence in sentences:
        text += sentence if not text or sentence[:1].isspace() or text[-1:].isspace() else f" {sentence}"
    return text.strip()


def _gold_titles(record: Mapping[str, Any], identity: str) -> list[str]:
    """The titles that hold supporting facts, each once, in the order of the facts."""
    facts = record.get("supporting_facts")
    try:
        if isinstance(facts, Mapping):
            titles = list(facts["title"])
        elif isinstance(facts, Sequence) and not isinstance(facts, str):
            titles = [fact["title"] if isinstance(fact, Mapping) else fact[0] for fact in facts]
        else:
            raise TypeError(type(facts).__name__)
        return list(dict.fromkeys(title.strip() for title in titles))
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise MalformedRecordError("titles in 'supporting_facts'", repr(error), record=identity) from error
