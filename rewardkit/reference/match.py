"""Twins of the match kernels: what it means that two answers are the same.

A *normal form* is a list of tokens; two answers are equal when their normal forms are. Two rules make one from a text,
:func:`official_tokens` and :func:`numeric_safe_tokens`; everything else here is arithmetic on token lists.
``docs/matching.md`` says the same in prose, with the known collisions.
"""

from __future__ import annotations

import itertools
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from rewardkit.errors import InvalidArgumentError, UnknownNameError
from rewardkit.reference.characters import (
    BREAK,
    COMMA,
    CURRENCY,
    DOT,
    FRACTION,
    MINUS,
    OPERATOR,
    PLAIN,
    QUOTE,
    SPACE,
    SUBSCRIPT,
    SUPERSCRIPT,
    UNIT,
    WORD,
    character_class,
    fold_character,
    is_cjk,
)
from rewardkit.types import References

MODES = ("official", "numeric_safe")
TEXT_MATCHERS = ("exact", "token_f1", "fuzzy")
LINKAGES = ("union", "leader")

# ---- the official normal form ---------------------------------------------------------------------------------------

_DELETE_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(a|an|the)\b")


def official_tokens(text: str) -> list[str]:
    """SQuAD's order: lower case, delete ASCII punctuation, delete articles, split at white space."""
    return _ARTICLE.sub(" ", text.lower().translate(_DELETE_PUNCTUATION)).split()


# ---- the numeric-safe normal form: fold -----------------------------------------------------------------------------


def fold(text: str) -> str:
    """The folded text: canonical decomposition, and what keeps ``10²`` from ``102`` and ``1½`` from ``11/2``."""
    out: list[str] = []
    previous = PLAIN
    for char in text:
        kind, piece = fold_character(char)
        if not piece:
            continue
        if kind == SUPERSCRIPT:
            if previous != SUPERSCRIPT:
                out.append("^")
        elif (
            (kind or previous in (SUBSCRIPT, FRACTION))
            and not kind == previous == SUBSCRIPT
            and (out and out[-1][-1] in string.digits and piece[0] in string.digits)
        ):
            out.append(" ")
        out.append(piece)
        previous = kind
    return re.sub("i\u0307+", "i", unicodedata.normalize("NFD", "".join(out)))


# ---- the numeric-safe normal form: tokens of a folded text ----------------------------------------------------------

_THOUSANDS = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})+(?![0-9]|,[0-9])")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?")


def numeric_safe_tokens(text: str) -> list[str]:
    """The normal form that keeps what tells numbers, letters and symbols apart.

    Empty only for a text in which nothing can be seen; a text of punctuation alone is its own single token.
    """
    folded = fold(text)
    tokens, spaced = _scan(_without_math_delimiters(folded))
    tokens = _without_articles(tokens, spaced)
    if not tokens:
        rest = "".join(folded.split(" "))
        return [rest] if rest else []
    return _with_plain_number(tokens)


def _without_math_delimiters(text: str) -> str:
    """``$5$`` and ``$$5$$`` are 5; ``$5`` is five dollars."""
    for mark in ("$$", "$"):
        inner = text.strip(" ")
        if (
            len(inner) > 2 * len(mark)
            and inner.startswith(mark)
            and inner.endswith(mark)
            and "$" not in inner[len(mark) : -len(mark)]
        ):
            return inner[len(mark) : -len(mark)]
    return text


def _scan(text: str) -> tuple[list[str], list[bool]]:
    """The tokens, and of each whether white space ended it."""
    tokens: list[str] = []
    spaced: list[bool] = []
    token = ""
    n = len(text)

    def digit(i: int) -> bool:
        return 0 <= i < n and text[i] in string.digits

    def kind(i: int) -> int:
        return character_class(text[i]) if 0 <= i < n else SPACE

    def number_at(i: int) -> bool:
        return digit(i) or (kind(i) == DOT and digit(i + 1))

    def signed_number(i: int) -> int | None:
        """Where the number starts whose sign is the minus at i; None where that minus is a hyphen or a dash."""
        before = kind(i - 1)
        start = i + 1
        if kind(start) == SPACE:  # "= - 5", or the whole text "- 5"
            head = text[:i].rstrip(" ")
            start += len(text[start:]) - len(text[start:].lstrip(" "))
            signs = not head or character_class(head[-1]) == OPERATOR
        else:
            signs = before not in (WORD, DOT, UNIT) and not (before == CURRENCY and digit(i - 2))
        if not signs:
            return None
        if number_at(start):
            return start
        return start + 1 if kind(start) == CURRENCY and number_at(start + 1) else None

    def opens(i: int) -> bool:
        return 0 <= i < n and text[i] in "([{"

    def negates(i: int) -> bool:
        r"""Whether the minus at i is the sign of a letter, a bracket or a symbol: "-x", "x = -y", "-(x + 1)", "(-\infty, 1)"."""
        head = len(text[:i].rstrip(" ")) - 1
        if head >= 0 and kind(head) not in (OPERATOR, COMMA) and not opens(head):
            return False
        if opens(i + 1):
            return True
        if kind(i + 1) == WORD:
            return not digit(i + 1) and kind(i + 2) != WORD
        return kind(i + 1) == OPERATOR and (text[i + 1] in "\\|" or ord(text[i + 1]) >= 128)

    def marks_a_symbol(i: int) -> bool:
        """Whether the minus at i belongs to the one or two letters before it: a grade "A-", a blood type "AB-", an ion "Cl-"."""
        begin = i
        while kind(begin - 1) == WORD and i - begin < 3:
            begin -= 1
        if not 0 < i - begin < 3 or any(digit(k) for k in range(begin, i)):
            return False
        after = i + 1 + len(text[i + 1 :]) - len(text[i + 1 :].lstrip(" "))
        return after == n or kind(after) in (COMMA, BREAK) or (kind(after) == DOT and not digit(after + 1))

    def end(*, by_space: bool = False) -> None:
        nonlocal token
        if token:
            tokens.append(token)
            spaced.append(by_space)
        token = ""

    i = 0
    while i < n:
        char, here, before = text[i], kind(i), kind(i - 1)
        if here == WORD:
            starts_number = digit(i) and not digit(i - 1) and before not in (DOT, COMMA)
            thousands = _THOUSANDS.match(text, i) if starts_number else None
            if thousands:
                token += thousands.group().replace(",", "")
                i = thousands.end()
                continue
            token += char
        elif here == SPACE:
            end(by_space=before == WORD)
        elif here == QUOTE:
            if digit(i - 1) and digit(i + 1):
                end()
        elif here == DOT:
            if digit(i - 1) and digit(i + 1):
                token += "."
            elif digit(i + 1) and before not in (WORD, DOT):
                if token != "-":
                    end()
                token += "0."
            elif digit(i - 1) or digit(i + 1):
                end()
        elif char in "+-" and digit(i + 1) and text[i - 1 : i] == "e" and digit(i - 2):
            token += char.replace("+", "")
        elif here == MINUS:
            start = signed_number(i)
            end()
            if start is None and (negates(i) or marks_a_symbol(i)):
                tokens.append("-")
                spaced.append(False)
            elif start is not None:
                if kind(start - 1) == CURRENCY:
                    tokens.append(text[start - 1])
                    spaced.append(False)
                token = "-"
                i = start
                continue
        elif char == "+" and number_at(i + 1) and before in (SPACE, BREAK):
            end()
        elif here in (OPERATOR, CURRENCY, UNIT):
            end()
            tokens.append("and" if char == "&" else char)
            spaced.append(False)
        else:
            end()
        i += 1
    end()
    return tokens, spaced


def _without_articles(tokens: list[str], spaced: list[bool]) -> list[str]:
    kept = [token for token in tokens if token != "the"]
    if not kept:
        return tokens
    if tokens[0] in ("a", "an") and spaced[0] and len(kept) > 1:
        following = kept[1]
        if len(following) > 1 and following not in ("and", "or") and following[0] not in string.digits + "-":
            return kept[1:]
    return kept


def _with_plain_number(tokens: list[str]) -> list[str]:
    """A number that is the whole answer (its unit's sign apart) has one way to be written: 5.0 is 5, -0 is 0."""
    words = [
        i
        for i, token in enumerate(tokens)
        if len(token) > 1 or character_class(token) not in (OPERATOR, MINUS, CURRENCY, UNIT)
    ]
    if len(words) != 1 or not _NUMBER.fullmatch(tokens[words[0]]):
        return tokens
    mantissa, e, exponent = tokens[words[0]].partition("e")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    plain = ("0" if mantissa == "-0" else mantissa) + e + exponent
    return [*tokens[: words[0]], plain, *tokens[words[0] + 1 :]]


# ---- token lists ----------------------------------------------------------------------------------------------------


def _split_cjk(token: str) -> list[str]:
    parts: list[str] = []
    joined = False  # whether the last part is a word that a letter would continue
    for char in token:
        if parts and unicodedata.category(char)[0] == "M":
            parts[-1] += char
            continue
        alone = is_cjk(char)
        if joined and not alone:
            parts[-1] += char
        else:
            parts.append(char)
        joined = not alone
    return parts


def _tokens(text: str, mode: str, split_cjk: bool) -> list[str]:
    tokens = official_tokens(text) if mode == "official" else numeric_safe_tokens(text)
    return [part for token in tokens for part in _split_cjk(token)] if split_cjk else tokens


def _exact(a: list[str], b: list[str], mode: str) -> float:
    return float(a == b and (bool(a) or mode == "official"))


def _f1(a: list[str], b: list[str], yes_no: bool) -> float:
    if yes_no and a != b and (a in _VERDICTS or b in _VERDICTS):
        return 0.0
    same = sum((Counter(a) & Counter(b)).values())
    if not same:
        return 0.0
    precision, recall = same / len(a), same / len(b)
    return 2 * precision * recall / (precision + recall)


_VERDICTS = (["yes"], ["no"], ["noanswer"])


def _fuzzy(a: list[str], b: list[str], mode: str, theta: float, max_extra: int) -> float:
    if _exact(a, b, mode):
        return 1.0
    numbers = [Counter(token for token in tokens if any(map(str.isdecimal, token))) for tokens in (a, b)]
    if all(numbers) and numbers[0] != numbers[1]:
        return 0.0
    if mode == "numeric_safe":
        operators = [
            Counter(t for t in tokens if len(t) == 1 and character_class(t) in (OPERATOR, MINUS)) for tokens in (a, b)
        ]
        if operators[0] != operators[1]:
            return 0.0
    if _f1(a, b, False) >= theta:
        return 1.0
    short, long = sorted((a, b), key=len)
    extra = len(long) - len(short)
    run = any(long[i : i + len(short)] == short for i in range(extra + 1))
    return float(bool(short) and extra <= max_extra and run and short not in (["yes"], ["no"]))


# ---- the kernels ----------------------------------------------------------------------------------------------------


def normal_forms(texts: Sequence[str], *, mode: str) -> list[str]:
    """The normal form of each text, its tokens joined by single spaces."""
    _check(mode=mode)
    _check_texts("texts", texts)
    return [" ".join(_tokens(text, mode, False)) for text in texts]


def exact_match(
    predictions: Sequence[str], references: Sequence[Any], *, mode: str, threads: int = 1
) -> npt.NDArray[np.float64]:
    """float64 ``[N]``: 1 where the prediction equals an alias, else 0."""
    return _pairs(predictions, references, matcher="exact", mode=mode)


def token_f1(
    predictions: Sequence[str], references: Sequence[Any], *, mode: str, yes_no: bool, split_cjk: bool, threads: int = 1
) -> npt.NDArray[np.float64]:
    """float64 ``[N]``: the best F1 of the token multisets over the aliases."""
    return _pairs(predictions, references, matcher="token_f1", mode=mode, yes_no=yes_no, split_cjk=split_cjk)


def fuzzy_match(
    predictions: Sequence[str],
    references: Sequence[Any],
    *,
    mode: str,
    theta: float,
    max_extra: int,
    split_cjk: bool,
    threads: int = 1,
) -> npt.NDArray[np.float64]:
    """float64 ``[N]``: 1 where the prediction is close to an alias, else 0."""
    return _pairs(
        predictions, references, matcher="fuzzy", mode=mode, theta=theta, max_extra=max_extra, split_cjk=split_cjk
    )


def _pairs(predictions: Sequence[str], references: Sequence[Any], **options: Any) -> npt.NDArray[np.float64]:
    compare = _comparison(**options)
    _check_texts("predictions", predictions)
    if len(references) != len(predictions):
        raise InvalidArgumentError(
            "references", expected=f"{len(predictions)} entries, one per prediction", got=f"{len(references)} entries"
        )
    rows = [_aliases(entry, f"references[{row}]") for row, entry in enumerate(references)]
    return np.array(
        [max(compare(p, alias) for alias in row) for p, row in zip(predictions, rows, strict=True)], np.float64
    )


def score_matrix(
    answers: Sequence[Sequence[str]],
    golds: Sequence[Sequence[Any]],
    *,
    matcher: str,
    mode: str,
    theta: float,
    max_extra: int,
    yes_no: bool,
    split_cjk: bool,
    threads: int = 1,
) -> npt.NDArray[np.float64]:
    """float64 ``[B, K, M]``: every answer of a row against the best alias of every gold of that row; 0 where absent."""
    compare = _comparison(matcher, mode, theta, max_extra, yes_no, split_cjk)
    rows = _check_answers(answers)
    if len(golds) != len(rows):
        raise InvalidArgumentError("golds", expected=f"{len(rows)} entries, one per row", got=f"{len(golds)} entries")
    named = [[_aliases(gold, f"golds[{b}]") for gold in _listed(row, f"golds[{b}]")] for b, row in enumerate(golds)]
    scores = np.zeros((len(rows), max(map(len, rows), default=0), max(map(len, named), default=0)))
    for b, (row, golds_of_row) in enumerate(zip(rows, named, strict=True)):
        for k, answer in enumerate(row):
            for m, gold in enumerate(golds_of_row):
                scores[b, k, m] = max(compare(answer, alias) for alias in gold)
    return scores


def match_sets(
    answers: Sequence[Sequence[str]],
    golds: Sequence[Any],
    *,
    matcher: str,
    mode: str,
    theta: float,
    max_extra: int,
    yes_no: bool,
    split_cjk: bool,
    distinct: bool,
    gold_kind: str | None = None,
    threads: int = 1,
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Which answers are credited ``[B, K]``, which golds are found ``[B, M]``, how many golds each row has ``[B]``.

    ``gold_kind`` "nested": golds as lists of aliases, as ``References.golds`` are; otherwise what ``References.of`` takes.
    """
    if gold_kind != "nested":
        golds = References.of(golds, gold_kind=gold_kind, rows=len(answers)).golds  # type: ignore[arg-type]
    scores = score_matrix(
        answers,
        golds,
        matcher=matcher,
        mode=mode,
        theta=theta,
        max_extra=max_extra,
        yes_no=yes_no,
        split_cjk=split_cjk,
    )
    equal = scores >= theta if matcher == "token_f1" else scores > 0
    return (*assign(equal, distinct=distinct), np.array([len(row) for row in golds], np.int64))


def assign(equal: npt.NDArray[np.bool_], *, distinct: bool) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Credit from a relation ``[B, K, M]``: which answers are credited ``[B, K]``, which golds are found ``[B, M]``.

    With ``distinct``, a maximum matching (Kuhn's algorithm): each gold credits one answer. Earlier answers are credited and
    earlier golds found first; a matching that does both exists (Mendelsohn and Dulmage 1958).
    """
    if not (isinstance(equal, np.ndarray) and equal.dtype == np.bool_ and equal.ndim == 3):
        raise InvalidArgumentError("equal", expected="a bool array [B, K, M]", got=equal)
    if not distinct:
        return np.any(equal, axis=2), np.any(equal, axis=1)
    return _covered(equal), _covered(equal.swapaxes(1, 2))


def _covered(edges: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which left vertices ``[B, L]`` a maximum matching of ``[B, L, R]`` covers, earlier ones first."""

    def augment(b: int, left: int, owner: dict[int, int], tried: set[int]) -> bool:
        for right in np.flatnonzero(edges[b, left]).tolist():
            if right not in tried:
                tried.add(right)
                if right not in owner or augment(b, owner[right], owner, tried):
                    owner[right] = left
                    return True
        return False

    covered = np.zeros(edges.shape[:2], np.bool_)
    for b in range(edges.shape[0]):
        owner: dict[int, int] = {}
        for left in range(edges.shape[1]):
            covered[b, left] = augment(b, left, owner, set())
    return covered


def equivalence_classes(
    answers: Sequence[Sequence[str]],
    *,
    matcher: str,
    mode: str,
    theta: float,
    max_extra: int,
    yes_no: bool,
    split_cjk: bool,
    linkage: str,
    threads: int = 1,
) -> npt.NDArray[np.int64]:
    """int64 ``[B, K]``: the class of each answer, named by its first member; -1 where absent.

    ``union`` closes the relation transitively; ``leader`` puts an answer into the first class whose first member it equals.
    """
    compare = _comparison(matcher, mode, theta, max_extra, yes_no, split_cjk)
    if linkage not in LINKAGES:
        raise UnknownNameError("linkage", linkage, LINKAGES)
    rows = _check_answers(answers)
    classes = np.full((len(rows), max(map(len, rows), default=0)), -1, np.int64)
    least = theta if matcher == "token_f1" else 1.0
    for b, row in enumerate(rows):
        for k in range(len(row)):
            classes[b, k] = k
            for j in range(k):
                if linkage == "leader" and classes[b, j] != j:
                    continue
                if compare(row[j], row[k]) >= least:
                    merged = (classes[b, j], classes[b, k])
                    classes[b, : k + 1][np.isin(classes[b, : k + 1], merged)] = min(merged)
                    if linkage == "leader":
                        break
    return classes


def bag_f1(
    *,
    prediction_ids: npt.NDArray[Any],
    prediction_offsets: npt.NDArray[np.int64],
    reference_ids: npt.NDArray[Any],
    reference_offsets: npt.NDArray[np.int64],
    answer_rows: npt.NDArray[np.int64],
    gold_rows: npt.NDArray[np.int64],
    threads: int = 1,
) -> npt.NDArray[np.float64]:
    """Multiset F1 of token ids, all answers of a rollout against all its golds: the ``K x G`` blocks, flat, row by row."""
    for name, ids in (("prediction_ids", prediction_ids), ("reference_ids", reference_ids)):
        if not (isinstance(ids, np.ndarray) and ids.dtype in (np.int32, np.int64) and ids.ndim == 1):
            raise InvalidArgumentError(name, expected="a flat int32 or int64 array", got=ids)
    if prediction_ids.dtype != reference_ids.dtype:
        raise InvalidArgumentError(
            "reference_ids", expected=f"{prediction_ids.dtype}, as prediction_ids", got=reference_ids.dtype
        )
    _check_offsets("prediction_offsets", prediction_offsets, len(prediction_ids))
    _check_offsets("reference_offsets", reference_offsets, len(reference_ids))
    _check_offsets("answer_rows", answer_rows, len(prediction_offsets) - 1)
    _check_offsets("gold_rows", gold_rows, len(reference_offsets) - 1)
    if len(gold_rows) != len(answer_rows):
        raise InvalidArgumentError(
            "gold_rows", expected=f"{len(answer_rows)} entries, as answer_rows", got=len(gold_rows)
        )

    def bags(ids: npt.NDArray[Any], offsets: npt.NDArray[np.int64]) -> list[list[int]]:
        return [ids[start:stop].tolist() for start, stop in itertools.pairwise(offsets)]

    predictions, references = bags(prediction_ids, prediction_offsets), bags(reference_ids, reference_offsets)
    scores = [
        _f1(prediction, reference, False)  # type: ignore[arg-type]
        for b in range(len(answer_rows) - 1)
        for prediction in predictions[answer_rows[b] : answer_rows[b + 1]]
        for reference in references[gold_rows[b] : gold_rows[b + 1]]
    ]
    return np.array(scores, np.float64)


# ---- checks ---------------------------------------------------------------------------------------------------------


def _comparison(
    matcher: str, mode: str, theta: float = 0.75, max_extra: int = 2, yes_no: bool = False, split_cjk: bool = False
):
    _check(mode=mode, matcher=matcher, theta=theta, max_extra=max_extra)
    tokens = cache(lambda text: _tokens(text, mode, split_cjk))
    if matcher == "exact":
        return lambda a, b: _exact(_tokens(a, mode, False), _tokens(b, mode, False), mode)
    if matcher == "token_f1":
        return lambda a, b: _f1(tokens(a), tokens(b), yes_no)
    return lambda a, b: _fuzzy(tokens(a), tokens(b), mode, theta, max_extra)


def _check(*, mode: str, matcher: str = "exact", theta: float = 0.75, max_extra: int = 2) -> None:
    if mode not in MODES:
        raise UnknownNameError("mode", mode, MODES)
    if matcher not in TEXT_MATCHERS:
        raise UnknownNameError("matcher", matcher, TEXT_MATCHERS)
    if not 0 < theta <= 1:
        raise InvalidArgumentError("theta", expected="a number in (0, 1]", got=theta)
    if max_extra < 0:
        raise InvalidArgumentError("max_extra", expected="a number of tokens, 0 or more", got=max_extra)


def _check_texts(name: str, texts: Any) -> None:
    for row, text in enumerate(_listed(texts, name)):
        if not isinstance(text, str):
            raise InvalidArgumentError(f"{name}[{row}]", expected="a string", got=text)


def _check_answers(answers: Any) -> list[list[str]]:
    rows = _listed(answers, "answers")
    for b, row in enumerate(rows):
        _check_texts(f"answers[{b}]", row)
    return rows


def _listed(value: Any, name: str) -> list[Any]:
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return value.tolist()
    if not isinstance(value, (list, tuple)):
        raise InvalidArgumentError(name, expected="a list, tuple or flat array", got=value)
    return list(value)


def _aliases(entry: Any, name: str) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    aliases = _listed(entry, name)
    _check_texts(name, aliases)
    if not aliases:
        raise InvalidArgumentError(name, expected="a string or at least one alias", got=entry)
    return aliases


def _check_offsets(name: str, offsets: Any, size: int) -> None:
    if not (isinstance(offsets, np.ndarray) and offsets.dtype == np.int64 and offsets.ndim == 1 and len(offsets)):
        raise InvalidArgumentError(name, expected="a flat int64 array of at least one entry", got=offsets)
    if offsets[0] != 0 or offsets[-1] != size or (np.diff(offsets) < 0).any():
        raise InvalidArgumentError(name, expected=f"offsets that rise from 0 to {size}", got=offsets)
