"""Evaluates rollout files: metrics per group with their null levels and intervals, and paired comparisons of files.

The command ``rewardkit evaluate`` is a thin layer over :func:`evaluate`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rewardkit import matching, metrics
from rewardkit.data.files import PathLike, expand
from rewardkit.data.rollouts import Progress, Reading, Rollouts, read_rollouts
from rewardkit.errors import InvalidArgumentError, UnknownNameError
from rewardkit.metrics.result import Metric
from rewardkit.metrics.sets import SET_CONSTRUCTIONS

ALL = "all"
"""The name of the one group where there is nothing to group by."""
MOST_DRAWS = 1_000_000
"""More bootstrap draws tell nothing new, and take hours."""

_HEADLINE = ("accuracy", "mean_confidence", "brier_loss", "ece", "auroc")


@dataclass(frozen=True)
class Settings:
    """What an evaluation depends on beside the files.

    Attributes:
        reading: How files are read.
        by: Columns to group by.
        bins: Of calibration errors.
        scheme: "width" or "mass".
        edge: "left", "right" or "rlcr"; ``None`` takes what the reading's ``compat`` wants.
        draws: Bootstrap draws for intervals; 0 for none.
        seed: Of everything random.
        on_invalid: Rows that do not follow their format count as they were read, an answer that is missing as wrong ("zero"),
            or are left out of everything but the format's rate ("drop").
        exclusive: Whether at most one answer of a set can be right; ``None``: where every row has one gold.
        set_construction: "single_gen" or "independent_samples", overriding what the file says.
        baseline: A group (of the first file) that the other groups are compared with.
    """

    reading: Reading = field(default_factory=Reading)
    by: tuple[str, ...] = ()
    bins: int = 10
    scheme: str = "width"
    edge: str | None = None
    draws: int = 1000
    seed: int = 0
    on_invalid: str = "zero"
    exclusive: bool | None = None
    set_construction: str | None = None
    baseline: str | None = None

    def __post_init__(self) -> None:
        metrics.bin_thresholds(self.bins, edge=self.edge or "left")  # type: ignore[arg-type]
        if self.on_invalid not in ("zero", "drop"):
            raise UnknownNameError("on_invalid", self.on_invalid, ("zero", "drop"))
        if not 0 <= self.draws <= MOST_DRAWS:
            raise InvalidArgumentError("--draws", expected=f"a whole number in [0, {MOST_DRAWS}]", got=self.draws)
        if self.set_construction not in SET_CONSTRUCTIONS:
            raise UnknownNameError("set construction", self.set_construction, filter(None, SET_CONSTRUCTIONS))


def evaluate(
    paths: Sequence[PathLike], settings: Settings | None = None, *, progress: Progress | None = None
) -> dict[str, Any]:
    """Evaluates files, and compares those that are named with the first.

    Args:
        paths: Rollout files; a directory stands for its row files (one per step, in trainers' dumps), each evaluated, none
            compared.
        settings: How.
        progress: Called while a file is read.

    Returns:
        JSON-safe: ``files`` (each with what was used, notes, and ``groups`` of metrics), ``comparisons`` and ``settings``.

    Raises:
        FileNotFoundError, DataError: A file is not what was expected.
        InvalidArgumentError, UnknownNameError: A setting is wrong.
    """
    settings = settings or Settings()
    runs = [read_rollouts(path, settings.reading, by=settings.by, progress=progress) for path in expand(paths)]
    files, grouped = [], []
    for run in runs:
        groups = _groups(run)
        grouped.append(groups)
        files.append(
            {
                "file": run.file,
                "kind": run.kind,
                "n": len(run),
                "used": dict(run.used),
                "notes": list(run.notes),
                "bins": {"bins": settings.bins, "scheme": settings.scheme, "edge": edge_of(run, settings)},
                "groups": {name: measure(run, rows, settings) for name, rows in groups.items()},
            }
        )
    comparisons = []
    named = not any(Path(path).is_dir() for path in paths)
    for run, groups, file in zip(runs[1:], grouped[1:], files[1:], strict=True):
        if not named:
            break
        if not set(run.prompt) & set(runs[0].prompt):
            file["notes"].append(
                f"not compared with {runs[0].file}: no prompt in common (--prompt names the column that identifies one)"
            )
            continue
        for name in groups:
            if name in grouped[0]:
                comparisons += _compare(run, groups[name], runs[0], grouped[0][name], settings, name)
    if settings.baseline is not None:
        if settings.baseline not in grouped[0]:
            raise InvalidArgumentError(
                "--baseline", expected=f"one of the groups {', '.join(grouped[0])}", got=settings.baseline
            )
        for name, rows in grouped[0].items():
            if name != settings.baseline:
                comparisons += _compare(runs[0], rows, runs[0], grouped[0][settings.baseline], settings, name)
    return {
        "files": files,
        "comparisons": comparisons,
        "settings": {
            "by": list(settings.by),
            "draws": settings.draws,
            "seed": settings.seed,
            "on_invalid": settings.on_invalid,
        },
    }


def measure(run: Rollouts, rows: Any, settings: Settings) -> dict[str, Any]:
    """All metrics of some rows of a run, JSON-safe: plain numbers by name, then null levels, intervals and counts."""
    every = rows
    rows = _valid(run, rows, settings)
    values: dict[str, Any] = {"n": len(rows), "prompts": len({run.prompt[i] for i in rows})}
    if settings.on_invalid == "drop":
        values["dropped_invalid"] = len(every) - len(rows)
    reasons = Counter(run.reason[i] for i in every)
    status = {reason or "ok": count for reason, count in sorted(reasons.items())}
    if not len(rows):
        why = dict.fromkeys(_HEADLINE, "no row follows the format")
        values |= dict.fromkeys(_HEADLINE) | {"confidence_missing": 0, "confidence_invalid": 0}
        return values | {"format_adherence": 0.0, "null": {}, "undefined": why, "status": status}
    nulls: dict[str, Any] = {}
    undefined: dict[str, str] = {}

    def put(name: str, metric: Any) -> None:
        number = float(metric)
        values[name] = None if math.isnan(number) else number
        if isinstance(metric, Metric):
            if metric.undefined:
                undefined[name] = metric.undefined
            if metric.null is not None and not math.isnan(metric.null):
                nulls[name] = metric.null.to_dict()

    chosen: dict[str, Any] = {
        "bins": settings.bins,
        "scheme": settings.scheme,
        "edge": edge_of(run, settings),
        "seed": settings.seed,
    }
    confidence, correct, mask = run.confidence[rows], run.correct[rows], run.mask[rows]
    if run.kind == "hypotheses":
        _hypotheses(run, rows, chosen, put)
    elif run.kind == "set":
        _sets(run, rows, settings, chosen, put)
    if run.kind != "single":
        values["merged_answers"] = int(run.merged[rows].sum())
        values["merged_rows"] = int((run.merged[rows] > 0).sum())
    top, y = top_answer(confidence, correct, mask)
    put("accuracy", y.mean())
    stated = ~np.isnan(top)
    valid = stated & (top >= 0) & (top <= 1)
    values["confidence_missing"] = int((~stated).sum())
    values["confidence_invalid"] = int((stated & ~valid).sum())
    q, y_stated = top[stated], y[stated]
    put("mean_confidence", q[(q >= 0) & (q <= 1)].mean() if valid.any() else math.nan)
    put("brier_loss", metrics.brier_loss(confidence=q, correct=y_stated))
    put("ece", metrics.ece(confidence=q, correct=y_stated, **chosen))
    put("ece_signed", metrics.ece_signed(confidence=q, correct=y_stated))
    put(
        "mce",
        metrics.mce(confidence=q, correct=y_stated, bins=settings.bins, edge=chosen["edge"], scheme=chosen["scheme"]),
    )
    put(
        "ece_debiased",
        metrics.ece_debiased(
            confidence=q, correct=y_stated, bins=settings.bins, scheme=chosen["scheme"], edge=chosen["edge"]
        ),
    )
    smooth = metrics.smece(confidence=q, correct=y_stated)
    values["smece"] = None if math.isnan(smooth) else float(smooth)
    put("auroc", metrics.auroc(confidence=q, correct=y_stated))
    put("aurc", metrics.risk_coverage(confidence=q, correct=y_stated).area)
    put("format_adherence", run.wellformed[every].mean())
    if (run.chars[rows] >= 0).all():
        put("completion_length", run.chars[rows].mean())
    tokens = run.tokens[rows]
    prompts = _codes([run.prompt[i] for i in rows])
    if not np.isnan(tokens).any():
        put("average_tokens", metrics.average_tokens(tokens=tokens, prompt=prompts))
    samples = np.bincount(prompts)
    if samples.min() > 1:
        right = np.bincount(prompts, weights=y).astype(np.int64)
        k = 1
        while k <= samples.min():
            put(f"pass@{k}", metrics.pass_at_k(samples, right, k).mean())
            k *= 2
    values["null"] = nulls
    if undefined:
        values["undefined"] = undefined
    values["status"] = status
    if settings.draws:
        options = {key: chosen[key] for key in ("bins", "scheme", "edge")}
        found = metrics.bootstrap_headline(
            correct=y, confidence=top, clusters=prompts, draws=settings.draws, seed=settings.seed, settings=options
        )
        values["intervals"] = {
            name: None if math.isnan(interval.low) else [interval.low, interval.high]
            for name, interval in found.items()
        }
    return values


def _valid(run: Rollouts, rows: Any, settings: Settings) -> Any:
    return rows if settings.on_invalid == "zero" else rows[run.wellformed[rows]]


def top_answer(confidence: Any, correct: Any, mask: Any) -> tuple[Any, Any]:
    """The answer with the highest confidence of each row (the first, among equals or without any): confidence, correct."""
    if confidence.shape[1] == 1:
        return confidence[:, 0], correct[:, 0]
    ranked = np.where(mask, np.where(np.isnan(confidence), -1.0, confidence), -2.0)
    best = ranked.argmax(axis=1)
    at = np.arange(len(best))
    return confidence[at, best], correct[at, best] & mask[at, best]


def edge_of(run: Rollouts, settings: Settings) -> Any:
    """On which side the bins of a run are closed: as set, or by the conventions that it is read by."""
    return settings.edge or ("rlcr" if run.compat == "rlcr" else "left")


def _sets(run: Rollouts, rows: Any, settings: Settings, chosen: dict[str, Any], put: Any) -> None:
    confidence, correct, mask = run.confidence[rows], run.correct[rows], run.mask[rows]
    construction = settings.set_construction or run.set_construction
    width = correct.shape[1]
    put("set_accuracy", metrics.set_accuracy(correct=correct, mask=mask))
    put("coverage", metrics.coverage(found=run.found[rows]))
    put("recall", metrics.recall(found=run.found[rows], n_golds=run.n_golds[rows]))
    put("precision", metrics.precision(correct=correct, slots=width))
    put("uniqueness", float((run.distinct[rows] / width).mean()))
    put("pass@1_first", metrics.pass_at_1(correct=correct, select="first", mask=mask))
    put("pass@1_random", metrics.pass_at_1(correct=correct, select="random", mask=mask))
    q = np.where(np.isnan(confidence), 0.0, confidence)
    stated = mask & ~np.isnan(confidence) & (q >= 0) & (q <= 1)
    if not stated.any():
        return
    shared: dict[str, Any] = {"set_construction": construction}
    put("pass@1_max_conf", metrics.pass_at_1(correct=correct, select="max_conf", confidence=q, mask=mask))
    put("set_brier", metrics.set_brier(confidence=q, correct=correct, mask=stated, **shared))
    put("pooled_brier", metrics.pooled_brier(confidence=q, correct=correct, mask=stated, **shared))
    put("pooled_ece", metrics.pooled_ece(confidence=q, correct=correct, mask=stated, **shared, **chosen))
    exclusive = bool((run.n_golds[rows] == 1).all()) if settings.exclusive is None else settings.exclusive
    put("set_ece", metrics.set_ece(confidence=q, correct=correct, mask=stated, exclusive=exclusive, **shared, **chosen))
    if exclusive:  # where several answers are right, there is no bound to compare the mass with
        _confidence_mass(run, rows, stated, put)


def _confidence_mass(run: Rollouts, rows: Any, stated: Any, put: Any) -> None:
    """What a prompt's different answers claim together, over all its rollouts."""
    samples: dict[str, list[tuple[str, float]]] = {}
    for at, row in enumerate(rows.tolist()):
        answers = samples.setdefault(run.prompt[row], [])
        for slot in np.flatnonzero(stated[at]).tolist():
            answers.append((run.answers[row][slot], float(run.confidence[row, slot])))
    repeated = len(samples) < len(rows)
    if repeated and ("matchers" in run.used or run.used["matcher"] not in ("exact", "token_f1", "fuzzy")):
        return  # judged pair by pair, or by another relation in each row
    classes: Any = [range(len(answers)) for answers in samples.values()]  # of one row all are different
    if repeated:
        texts = [[text for text, _ in answers] for answers in samples.values()]
        classes = matching.equivalence_classes(texts, matcher=run.used["matcher"], mode=run.used["match_mode"])
    flat = [
        (prompt, int(one), q)
        for (prompt, answers), ids in zip(samples.items(), classes, strict=True)
        for (_, q), one in zip(answers, ids, strict=False)
    ]
    prompt, one, q = zip(*flat, strict=True)
    found = metrics.confidence_mass(prompt=prompt, answer_class=one, confidence=q)
    put("confidence_mass", found)
    put("confidence_mass_above_1", found.settings["share_above_1"])


def _hypotheses(run: Rollouts, rows: Any, chosen: dict[str, Any], put: Any) -> None:
    good = rows[run.wellformed[rows]]
    put("hypotheses", run.mask[rows].sum(axis=1).mean())
    put("listed", run.correct[rows].any(axis=1).mean())
    put("uniqueness", float((run.distinct[rows] / np.maximum(1, run.distinct[rows] + run.merged[rows])).mean()))
    if not len(good):
        return
    mask = run.mask[good] & ~np.isnan(run.confidence[good])
    probs = np.where(mask, run.confidence[good], 0.0)
    correct, other = run.correct[good], run.other[good]
    put("mean_other", other.mean())
    put("top1_ece", metrics.top1_ece(probs=probs, correct=correct, mask=mask, **chosen))
    put("other_ece", metrics.other_ece(other=other, correct=correct, **chosen))
    put("event_ece", metrics.event_ece(probs=probs, correct=correct, other=other, mask=mask, **chosen))
    put("p_gold_gap", metrics.p_gold_gap(probs=probs, correct=correct, other=other))
    settings = {key: chosen[key] for key in ("bins", "scheme", "edge")}
    put("p_gold_ece", metrics.p_gold_ece(probs=probs, correct=correct, **settings))
    listed = correct.any(axis=1)
    event = np.where(listed, metrics.p_gold(probs=probs, correct=correct), other)
    put("event_nll", metrics.nll(prob=np.clip(event, 0, 1)))
    prior = run.prior_logprob[good]
    if not np.isnan(prior).any():
        backed = {"probs": probs, "correct": correct, "other": other, "prior_logprob": prior}
        put("p_gold_backoff_ece", metrics.p_gold_backoff_ece(**backed, **settings))
        put("nll", metrics.nll(prob=metrics.p_gold(**backed)))


def _groups(run: Rollouts) -> dict[str, Any]:
    if not run.keys or not run.keys[0]:
        return {ALL: np.arange(len(run))}
    members: dict[str, list[int]] = {}
    for row, key in enumerate(run.keys):
        members.setdefault(" / ".join(key), []).append(row)
    return {name: np.array(rows) for name, rows in members.items()}


def _codes(values: list[str]) -> Any:
    """A number per distinct value, in the order of first appearance (numpy would sort long texts)."""
    seen: dict[str, int] = {}
    return np.fromiter((seen.setdefault(value, len(seen)) for value in values), np.int64, len(values))


def _compare(
    run: Rollouts, rows: Any, base: Rollouts, base_rows: Any, settings: Settings, group: str
) -> list[dict[str, Any]]:
    if not settings.draws:
        return []
    sides = []
    for side, members in ((run, _valid(run, rows, settings)), (base, _valid(base, base_rows, settings))):
        q, y = top_answer(side.confidence[members], side.correct[members], side.mask[members])
        sides.append((side, q, y, np.array([side.prompt[i] for i in members], dtype=object)))
    shared = set(sides[0][3].tolist()) & set(sides[1][3].tolist())
    if not shared:
        return []
    order = {prompt: code for code, prompt in enumerate(sorted(shared))}
    edge = edge_of(run, settings)
    result = []
    for name in _HEADLINE:
        pair, left_out = [], 0
        for side, q, y, prompt in sides:
            keep = np.array([p in order for p in prompt])
            left_out += int((~keep).sum())
            arrays: dict[str, Any] = {"correct": y[keep], "clusters": np.array([order[p] for p in prompt[keep]])}
            if name != "accuracy":
                have = ~np.isnan(q[keep])
                arrays = {key: value[have] for key, value in arrays.items()}
                arrays["confidence"] = q[keep][have]
            arrays["set_construction"] = settings.set_construction or side.set_construction
            pair.append(arrays)
        common = np.intersect1d(pair[0]["clusters"], pair[1]["clusters"])
        for arrays in pair:
            keep = np.isin(arrays["clusters"], common)
            for key in ("correct", "clusters", "confidence"):
                if key in arrays:
                    arrays[key] = arrays[key][keep]
        if not len(common):
            continue
        options = {"bins": settings.bins, "scheme": settings.scheme, "edge": edge} if name == "ece" else None
        found = metrics.paired_bootstrap(
            name, pair[0], pair[1], draws=settings.draws, seed=settings.seed, settings=options
        )
        result.append(
            {
                "group": group,
                "file": run.file,
                "baseline": base.file if base is not run else settings.baseline,
                "metric": name,
                "rows_without_partner": left_out,
                **{key: value for key, value in found.to_dict().items() if key != "name"},
            }
        )
    return result
