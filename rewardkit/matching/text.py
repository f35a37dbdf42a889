"""Text against text: exact match, token F1, fuzzy match; and F1 over token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rewardkit import _device
from rewardkit._kernels import kernel
from rewardkit.matching import on_device

Mode = Literal["numeric_safe", "official"]
MODES: tuple[Mode, ...] = ("numeric_safe", "official")
Float64 = npt.NDArray[np.float64]


def normal_forms(texts: Sequence[str], *, mode: Mode = "numeric_safe") -> list[str]:
    """The normal form of each text: two answers are equal when their normal forms are.

    Args:
        texts: ``[N]``.
        mode: "numeric_safe" or "official", see :func:`exact_match`.

    Returns:
        ``[N]`` tokens joined by single spaces; "" for a text without any (which in the numeric-safe mode equals nothing).
    """
    return kernel("normal_forms")(texts, mode=mode)


def exact_match(
    predictions: Sequence[str], references: Sequence[Any], *, mode: Mode = "numeric_safe", threads: int = 1
) -> Float64:
    """Whether each prediction equals one of its references, after normalising both.

    Args:
        predictions: ``[N]`` texts.
        references: ``[N]`` one string, or a list (tuple, array) of aliases; the best alias counts.
        mode: "numeric_safe", the default for training, keeps what tells numbers, letters and symbols apart (3.5 is not 35, -5 is
            not 5, "C++" is not "C", "A" is an answer) and folds what only looks different (dashes, quotes, accents, width).
            "official" is SQuAD's normalisation, equal to its Python on every string.
        threads: How many threads share the work.

    Returns:
        float64 ``[N]``, 1 or 0.

    Raises:
        InvalidArgumentError: Lengths differ, an entry is no text, a list of aliases is empty.

    Source:
        Rajpurkar et al. 2016 (SQuAD), evaluation script 1.1.

    Example:
        >>> exact_match(["The Beatles!", "3.5"], ["Beatles", ["35", "thirty-five"]])
        array([1., 0.])
    """
    return kernel("exact_match")(predictions, references, mode=mode, threads=threads)


def token_f1(
    predictions: Sequence[str],
    references: Sequence[Any],
    *,
    mode: Mode = "numeric_safe",
    yes_no: bool = False,
    split_cjk: bool | None = None,
    threads: int = 1,
) -> Float64:
    r"""F1 of the token multisets, best alias.

    .. math:: F_1 = \frac{2 P R}{P + R}, \quad P = \frac{|a \cap b|}{|a|}, \quad R = \frac{|a \cap b|}{|b|}

    Args:
        predictions: ``[N]`` texts.
        references: ``[N]`` one string, or a list of aliases; the best alias counts.
        mode: As in :func:`exact_match`.
        yes_no: HotpotQA's rule: where one side is "yes", "no" or "noanswer" and the other is not the same, F1 is 0.
        split_cjk: Whether Han, Hiragana and Katakana are tokens of one character each. ``None``: in the numeric-safe mode, and
            not in the official one, where a Chinese answer is one token and F1 is 0 or 1.
        threads: How many threads share the work.

    Returns:
        float64 ``[N]``, in [0, 1]. 0 where a side has no token, both sides included, as in the evaluation script of SQuAD 1.1.

    Raises:
        InvalidArgumentError: Lengths differ, an entry is no text, a list of aliases is empty.

    Source:
        Rajpurkar et al. 2016 (SQuAD); Yang et al. 2018 (HotpotQA) for ``yes_no``.

    Example:
        >>> token_f1(["New York City"], ["New York"])
        array([0.8])
    """
    return kernel("token_f1")(
        predictions, references, mode=mode, yes_no=yes_no, split_cjk=_split(split_cjk, mode), threads=threads
    )


def fuzzy_match(
    predictions: Sequence[str],
    references: Sequence[Any],
    *,
    mode: Mode = "numeric_safe",
    theta: float = 0.75,
    max_extra: int = 2,
    split_cjk: bool | None = None,
    threads: int = 1,
) -> Float64:
    """Whether each prediction is close to one of its references; for analysis, not for training.

    Close is: equal; or F1 of at least ``theta``; or the shorter one is a run of tokens of the longer one that has at most
    ``max_extra`` more, and is not "yes" or "no". Guards for the last two: where both name numbers, they name the same ones;
    in the numeric-safe mode, both hold the same operators ("C++" is not close to "C"). Symmetric, not transitive.

    Args:
        predictions: ``[N]`` texts.
        references: ``[N]`` one string, or a list of aliases; the best alias counts.
        mode: As in :func:`exact_match`.
        theta: The least F1, in (0, 1].
        max_extra: How many tokens the longer side may have more. A model may then list that many further answers unpunished.
        split_cjk: As in :func:`token_f1`.
        threads: How many threads share the work.

    Returns:
        float64 ``[N]``, 1 or 0.

    Raises:
        InvalidArgumentError: Lengths differ, an entry is no text, a list of aliases is empty, an option is out of range.

    Example:
        >>> fuzzy_match(["David Weissman", "13 May 1990"], ["Weissman", "12 May 1990"])
        array([1., 0.])
    """
    return kernel("fuzzy_match")(
        predictions,
        references,
        mode=mode,
        theta=theta,
        max_extra=max_extra,
        split_cjk=_split(split_cjk, mode),
        threads=threads,
    )


def bag_f1(
    *,
    prediction_ids: npt.NDArray[Any],
    prediction_offsets: npt.NDArray[np.int64],
    reference_ids: npt.NDArray[Any],
    reference_offsets: npt.NDArray[np.int64],
    answer_rows: npt.NDArray[np.int64],
    gold_rows: npt.NDArray[np.int64],
    threads: int = 1,
) -> Float64:
    """F1 of bags of token ids: all answers of each rollout against all golds of it.

    Args:
        prediction_ids: int32 or int64 ``[P]``, the tokens of all answers, one after the other.
        prediction_offsets: int64 ``[A + 1]``; answer ``a`` is ``prediction_ids[offsets[a] : offsets[a + 1]]``.
        reference_ids: The same dtype ``[R]``, the tokens of all golds.
        reference_offsets: int64 ``[C + 1]``.
        answer_rows: int64 ``[B + 1]``; rollout ``b`` has the answers ``answer_rows[b] … answer_rows[b + 1] - 1``.
        gold_rows: int64 ``[B + 1]``; rollout ``b`` has the golds ``gold_rows[b] … gold_rows[b + 1] - 1``.
        threads: How many threads share the work.

    Returns:
        float64 ``[sum_b K_b * G_b]``: the blocks ``[K_b, G_b]`` of the rollouts in order, each row-major. In [0, 1]; 0 where
        a side is empty, both included. Of CUDA tensors (all six on one device) a tensor there.

    Raises:
        InvalidArgumentError: A wrong dtype or shape, or offsets that do not rise from 0 to the end.
    """
    if _device.is_for_device(prediction_ids):
        return on_device.bag_f1(
            prediction_ids=prediction_ids,
            prediction_offsets=prediction_offsets,
            reference_ids=reference_ids,
            reference_offsets=reference_offsets,
            answer_rows=answer_rows,
            gold_rows=gold_rows,
        )
    return kernel("bag_f1")(
        prediction_ids=prediction_ids,
        prediction_offsets=prediction_offsets,
        reference_ids=reference_ids,
        reference_offsets=reference_offsets,
        answer_rows=answer_rows,
        gold_rows=gold_rows,
        threads=threads,
    )


def _split(split_cjk: bool | None, mode: str) -> bool:
    return mode == "numeric_safe" if split_cjk is None else split_cjk
