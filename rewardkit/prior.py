"""How likely a frozen model finds each gold answer without any reasoning: the prior of the backoff, and RLPR's baseline.

Text first: a prompt is rendered, a literal answer prefix appended, and prefix and answer are tokenised together; where a token
crosses the boundary the answer is tokenised on its own, and that is counted. Then one forward per batch of similar lengths,
with logits at the answers' positions only. Finished batches go to a journal beside the output, so that a run that is killed
goes on where it stood, with nothing lost and nothing twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from rewardkit.data.files import BATCH_ROWS, RowFile, atomic_path, check_output, file_format, row_writer
from rewardkit.errors import DataError, InvalidArgumentError, MissingExtraError, UnknownNameError
from rewardkit.types import References

BROKEN_MEAN = -5.0
"""A mean log-probability per token below this means a broken template, not a hard data set (broken -15.2, fixed -1.5)."""
EARLY_ROWS = 64
"""The mean is looked at after so many rows already, before hours are spent."""
COLUMNS = (
    "row",
    "prior_logprob",
    "prior_tokens",
    "prior_mean_prob",
    "prior_token_logprobs",
    "boundary_merged",
    "status",
)
JOINED: Mapping[str, str] = {
    "prior_logprob": "prior_logprob",
    "prior_mean_prob": "prior_mean_prob",
    "baseline": "prior_mean_prob",
}
"""Columns that can be added to the rows of the data, and the one of :data:`COLUMNS` that each holds; RLPR's ``baseline`` is a
mean token probability."""


@dataclass(frozen=True)
class Settings:
    """What is asked of the model; two runs with equal settings, model and data give equal numbers.

    Attributes:
        answer_prefix: Literal text between the rendered prompt and the answer.
        prompt_column: A string, or a chat ``[{"role", "content"}, …]``.
        reference_column: Dotted path of the gold; of several, the first is scored.
        template_edits: ``(old, new)`` replacements in every rendered prompt, each of which must change it.
        chat_template: Whether chats are rendered by the tokenizer's template; else their contents are joined by newlines.
        max_length: Longer rows get the status "too_long" and no prior; ``None``: the model's own limit.
        batch_tokens: Padded tokens per forward.
        dtype: "float32", "bfloat16" or "float16".
    """

    answer_prefix: str = "Final answer: "
    prompt_column: str = "prompt"
    reference_column: str = "reward_model.ground_truth"
    template_edits: tuple[tuple[str, str], ...] = ()
    chat_template: bool = True
    max_length: int | None = None
    batch_tokens: int = 4096
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.batch_tokens < 1:
            raise InvalidArgumentError("batch_tokens", expected="at least 1", got=self.batch_tokens)
        if self.dtype not in ("float32", "bfloat16", "float16"):
            raise InvalidArgumentError("dtype", expected="float32, bfloat16 or float16", got=self.dtype)


@dataclass(frozen=True)
class Question:
    """One row of the data: what comes before the answer, and the answer."""

    row: int
    prompt: Any
    answer: str


@dataclass(frozen=True)
class Encoded:
    """One row in tokens: ``ids`` whose last ``answer_tokens`` are the answer's."""

    row: int
    ids: list[int]
    answer_tokens: int
    boundary_merged: bool


def read_questions(path: Path, settings: Settings) -> list[Question]:
    """The rows of a data file.

    Raises:
        DataError: A column is missing, or a reference is empty; names the row.
    """
    top = settings.reference_column.partition(".")[0]
    questions = []
    for batch in RowFile.open(path).batches([settings.prompt_column, top]):
        for row, prompt, value in zip(batch.rows, batch.column(settings.prompt_column), batch.column(top), strict=True):
            answer = value
            for part in settings.reference_column.split(".")[1:]:
                answer = answer.get(part) if isinstance(answer, Mapping) else None
            try:
                text = References.of([answer], gold_kind="aliases").golds[0][0][0].strip()
            except (ValueError, TypeError) as error:
                raise DataError(
                    "a reference that is text",
                    f"{answer!r:.60}",
                    file=str(path),
                    row=row,
                    column=settings.reference_column,
                ) from error
            if not text:
                raise DataError(
                    "a reference", "an empty one", file=str(path), row=row, column=settings.reference_column
                )
            questions.append(Question(int(row), prompt, text))
    return questions


def render(prompt: Any, tokenizer: Any, settings: Settings) -> str:
    """The text before the answer.

    Raises:
        DataError: The prompt is neither a string nor a chat, or a template edit leaves it unchanged.
    """
    if isinstance(prompt, str):
        text = prompt
    elif isinstance(prompt, (list, tuple)) and prompt and all(isinstance(turn, Mapping) for turn in prompt):
        if settings.chat_template and tokenizer.chat_template:
            text = tokenizer.apply_chat_template(list(prompt), add_generation_prompt=True, tokenize=False)
        else:
            text = "\n".join(str(turn.get("content") or "") for turn in prompt) + "\n"
    else:
        raise DataError("a string or a chat", f"{prompt!r:.60}", column=settings.prompt_column)
    for old, new in settings.template_edits:
        edited = text.replace(old, new)
        if edited == text:
            raise DataError(
                f"a rendered prompt that the template edit {old!r} -> {new!r} changes",
                f"{text[-120:]!r} (its end), unchanged: the edit does nothing",
            )
        text = edited
    return text + settings.answer_prefix


def encode(prefix: str, answer: str, tokenizer: Any, *, row: int = 0) -> Encoded:
    """Tokenises prefix and answer together; the answer alone where a token crosses the boundary."""
    # A rendered template brings its own start token; plain text gets what the tokenizer adds.
    start = tokenizer.bos_token
    options = {"add_special_tokens": not (start and prefix.startswith(start))}
    before = _ids(tokenizer, prefix, **options)
    end = _suffix_length(tokenizer, options["add_special_tokens"])
    before = before[: len(before) - end]
    joint = _ids(tokenizer, prefix + answer, **options)
    joint = joint[: len(joint) - end]
    if joint[: len(before)] == before and len(joint) > len(before):
        return Encoded(row, joint, len(joint) - len(before), boundary_merged=False)
    alone = _ids(tokenizer, answer, add_special_tokens=False)
    return Encoded(row, before + alone, len(alone), boundary_merged=True)


def _ids(tokenizer: Any, text: str, *, add_special_tokens: bool) -> list[int]:
    return list(tokenizer(text, add_special_tokens=add_special_tokens)["input_ids"])


def _suffix_length(tokenizer: Any, added: bool) -> int:
    """How many end tokens the tokenizer puts behind a text of its own accord."""
    if not added:
        return 0
    wrapped, bare = _ids(tokenizer, "a", add_special_tokens=True), _ids(tokenizer, "a", add_special_tokens=False)
    places = [at for at in range(len(wrapped)) if wrapped[at : at + len(bare)] == bare]
    return len(wrapped) - places[0] - len(bare) if places else 0


def check_device(device: str | None) -> str:
    """The device, after making sure that PyTorch can use it; a GPU where there is one and none is named.

    Raises:
        MissingExtraError: torch is not installed.
        InvalidArgumentError: It cannot.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("the prior", package="torch", extra="hf") from error
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidArgumentError(
            "device", expected="a device that PyTorch can use here (cpu, or cuda where there is a GPU)", got=device
        ) from error
    return device


def load_tokenizer(path: str) -> Any:
    """The tokenizer of a model's folder.

    Raises:
        MissingExtraError: transformers is not installed.
        FileNotFoundError: There is no such folder.
        DataError: transformers cannot load it.
    """
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise MissingExtraError("the prior", package="transformers", extra="hf") from error
    if not Path(path).is_dir():
        raise FileNotFoundError(f"{path}: no such folder with a model")
    try:
        return AutoTokenizer.from_pretrained(path, local_files_only=True)
    except Exception as error:
        raise _not_loaded("a tokenizer", path, error) from error


def _not_loaded(what: str, path: str, error: Exception) -> DataError:
    found = f"{type(error).__name__}: {str(error).strip() or 'no reason given'}".splitlines()[0]
    return DataError(f"a folder with {what} that transformers can load", found, file=path)


class PriorModel:
    """A frozen causal language model that scores answers."""

    def __init__(self, path: str, settings: Settings, *, device: str | None = None):
        """Loads model and tokenizer from a folder.

        Raises:
            MissingExtraError: torch or transformers is not installed.
            FileNotFoundError: There is no such folder.
            DataError: transformers cannot load what is in it.
            InvalidArgumentError: PyTorch has no such device here.
        """
        self.settings = settings
        self.device = check_device(device)
        self.tokenizer = load_tokenizer(path)
        import torch
        from transformers import AutoModelForCausalLM

        try:
            model = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, settings.dtype))
        except Exception as error:
            raise _not_loaded("a model", path, error) from error
        self.model = model.eval().to(self.device)  # type: ignore[arg-type]
        limit = getattr(self.model.config, "max_position_embeddings", None)
        self.max_length = settings.max_length or limit

    def encode(self, question: Question) -> Encoded:
        """One row in tokens."""
        return encode(
            render(question.prompt, self.tokenizer, self.settings), question.answer, self.tokenizer, row=question.row
        )

    def score(self, batch: Sequence[Encoded]) -> list[dict[str, Any]]:
        """The rows of :data:`COLUMNS` for a batch, from one forward with logits at the answers alone."""
        import torch

        from rewardkit.likelihood import token_logprobs

        width, answer = max(len(one.ids) for one in batch), max(one.answer_tokens for one in batch)
        ids = torch.zeros((len(batch), width), dtype=torch.int64)
        mask = torch.zeros_like(ids)
        targets = torch.full((len(batch), answer), -100)
        for place, one in enumerate(batch):  # padded on the left, so that all answers end together
            ids[place, width - len(one.ids) :] = torch.tensor(one.ids)
            mask[place, width - len(one.ids) :] = 1
            targets[place, answer - one.answer_tokens :] = ids[place, width - one.answer_tokens :]
        with torch.inference_mode():
            output = self.model(
                input_ids=ids.to(self.device),
                attention_mask=mask.to(self.device),
                position_ids=(mask.cumsum(1) - 1).clamp(min=0).to(self.device),
                logits_to_keep=answer + 1,
            )
            # An answer at the very start has no token before it: its first token is predicted from nothing.
            logprobs = token_logprobs(output.logits[:, :-1], targets.to(self.device)).double().cpu().numpy()
        return [_result(one, logprobs[place, answer - one.answer_tokens :].tolist()) for place, one in enumerate(batch)]


def _result(one: Encoded, logprobs: list[float]) -> dict[str, Any]:
    broken = not np.isfinite(logprobs).all()
    return {
        "row": one.row,
        "prior_logprob": None if broken else float(np.sum(logprobs)),
        "prior_tokens": one.answer_tokens,
        "prior_mean_prob": None if broken else float(np.exp(logprobs).mean()),
        "prior_token_logprobs": [] if broken else logprobs,
        "boundary_merged": one.boundary_merged,
        "status": "not_finite" if broken else "ok",
    }


def batches_by_length(rows: Iterable[Encoded], batch_tokens: int) -> Iterator[list[Encoded]]:
    """Groups rows of similar length, so that little is padding: longest first, at most ``batch_tokens`` padded tokens."""
    batch: list[Encoded] = []
    for row in sorted(rows, key=lambda one: (-len(one.ids), one.row)):
        if batch and (len(batch) + 1) * len(batch[0].ids) > batch_tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


# ---- the journal -------------------------------------------------------------------------------------


class Journal:
    """Finished rows in a folder beside the output, one JSON line each, until the output is written.

    A line is complete or it is not there: what a kill cut off is dropped, and its rows are scored again.
    """

    def __init__(self, output: Path, fingerprint: Mapping[str, Any]):
        """Opens the journal of an output, or starts one.

        Raises:
            DataError: There is one of other data, another model or other settings.
        """
        self.folder = output.with_name(output.name + ".partial")
        self.folder.mkdir(exist_ok=True)
        self._lines = self.folder / "rows.jsonl"
        about = self.folder / "run.json"
        if about.exists():
            before = json.loads(about.read_text())
            changed = sorted(key for key in {*before, *fingerprint} if before.get(key) != fingerprint.get(key))
            if changed:
                raise DataError(
                    "the run that was interrupted here",
                    f"another one: {', '.join(changed)} differ (delete {self.folder} to start anew)",
                    file=str(about),
                )
        else:
            temporary = about.with_suffix(".tmp")
            temporary.write_text(json.dumps(fingerprint))
            temporary.replace(about)
        self.done = self._read()

    def _read(self) -> dict[int, dict[str, Any]]:
        if not self._lines.exists():
            return {}
        done: dict[int, dict[str, Any]] = {}
        whole = 0
        with self._lines.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                row = json.loads(line)
                done[row["row"]] = row
                whole += len(line)
        with self._lines.open("r+b") as lines:
            lines.truncate(whole)
        return done

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Takes finished rows in; they are safe when this returns."""
        with self._lines.open("ab") as lines:
            lines.write("".join(json.dumps(row) + "\n" for row in rows).encode())
            lines.flush()
            os.fsync(lines.fileno())
        self.done.update((row["row"], row) for row in rows)

    def close(self) -> None:
        """Removes the journal: the output holds everything, or there is nothing to hold."""
        shutil.rmtree(self.folder)


# ---- the report ---------------------------------------------------------------------------------------


@dataclass
class PriorReport:
    """What the priors look like.

    Attributes:
        rows: How many rows there are.
        scored: How many have a prior.
        boundary_merged: Of the scored: how many answers' first token the tokenizer would have merged into the prefix.
        statuses: How many rows have each status.
        total: Percentiles of log-probabilities of whole answers, in nats: {"mean", "p1", "p5", "p50", "p95", "p99"}.
        per_token: The same per token; its mean weighs every token equally.
        mean_tokens: Tokens per answer.
    """

    rows: int
    scored: int
    boundary_merged: int
    statuses: dict[str, int]
    total: dict[str, float] = field(default_factory=dict)
    per_token: dict[str, float] = field(default_factory=dict)
    mean_tokens: float = 0.0


def prior_report(rows: Iterable[Mapping[str, Any]]) -> PriorReport:
    """Counts and percentiles of scored rows; see :data:`COLUMNS`."""
    rows = list(rows)
    statuses: dict[str, int] = {}
    for row in rows:
        statuses[row["status"]] = statuses.get(row["status"], 0) + 1
    good = [row for row in rows if row["status"] == "ok"]
    report = PriorReport(len(rows), len(good), sum(bool(row["boundary_merged"]) for row in good), statuses)
    if good:
        totals = np.array([row["prior_logprob"] for row in good], dtype=np.float64)
        tokens = np.array([row["prior_tokens"] for row in good], dtype=np.float64)
        report.total = _percentiles(totals, float(totals.mean()))
        report.per_token = _percentiles(totals / tokens, float(totals.sum() / tokens.sum()))
        report.mean_tokens = float(tokens.mean())
    return report


def _percentiles(values: np.ndarray, mean: float) -> dict[str, float]:
    return {"mean": mean, **{f"p{q}": float(np.percentile(values, q)) for q in (1, 5, 50, 95, 99)}}


def check_report(report: PriorReport, *, at_end: bool) -> None:
    """Fails loudly on priors that no sound set-up gives.

    Raises:
        DataError: The mean log-probability per token lies below :data:`BROKEN_MEAN`; or, at the end, no row was scored.
    """
    if not report.scored:
        if at_end:
            raise DataError("at least one row with a prior", f"none ({report.statuses})")
        return
    mean = report.per_token["mean"]
    if mean < BROKEN_MEAN:
        raise DataError(
            f"a mean log-probability per token above {BROKEN_MEAN:g}",
            f"{mean:.2f} over {report.scored} rows: the model does not expect an answer where the prompt ends. Look at the end "
            "of a rendered prompt (--show), the answer prefix and the template edits",
        )


# ---- running it ---------------------------------------------------------------------------------------


def fingerprint(data: Path, model: str, settings: Settings) -> dict[str, Any]:
    """What a journal belongs to."""
    digest = hashlib.blake2b(digest_size=16)
    with data.open("rb") as content:
        for block in iter(lambda: content.read(1 << 20), b""):
            digest.update(block)
    return {"data": digest.hexdigest(), "model": str(model), "settings": json.loads(json.dumps(vars(settings)))}


def run(
    data: Path,
    model: str,
    output: Path,
    *,
    settings: Settings | None = None,
    device: str | None = None,
    ray_workers: int = 0,
    force: bool = False,
    join: Sequence[str] = (),
    drop_unscored: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> PriorReport:
    """Scores every row of a file and writes the priors, resuming what was interrupted.

    Args:
        data: A Parquet or JSON Lines file with prompts and references.
        model: A model's folder, as transformers reads it.
        output: The Parquet or JSON Lines file to write; columns :data:`COLUMNS`, in the order of the data.
        settings: What to ask.
        device: "cpu", "cuda", …; ``None`` for a GPU where there is one. Ray's workers decide for themselves.
        ray_workers: How many Ray Data workers to score with; 0 scores in this process.
        force: Write priors that :func:`check_report` refuses.
        join: Names of :data:`JOINED`: ``output`` then holds the rows of the data, with these columns added, instead of
            :data:`COLUMNS`. From Parquet to Parquet all types stay as they are.
        drop_unscored: With ``join``: leave out rows without a prior, whose column would be null.
        on_progress: Called with the rows done and all rows.

    Raises:
        DataError: A row cannot be used, the priors look broken, the model cannot be loaded, or the journal belongs to another
            run.
        FileNotFoundError: No such data or model.
        InvalidArgumentError: The output is the data, the data have a column that would be added, or no such device.
    """
    settings = settings or Settings()
    file_format(output)
    check_output(output, [data], option="output")
    for name in join:
        if name not in JOINED:
            raise UnknownNameError("column to join", name, JOINED)
        if name in RowFile.open(data).columns:
            raise InvalidArgumentError("join", expected=f"data without a column {name!r}", got=str(data))
    if not ray_workers:
        device = check_device(device)
    questions = read_questions(data, settings)
    journal = Journal(output, fingerprint(data, model, settings))
    try:
        ordered = _score_all(questions, journal, model, settings, device, ray_workers, force=force, tell=on_progress)
    except BaseException:  # an interruption too
        if not journal.done:
            journal.close()
        raise
    report = prior_report(ordered)
    if not force:
        check_report(report, at_end=True)
    if join:
        _write_joined(data, output, ordered, {name: JOINED[name] for name in join}, drop_unscored=drop_unscored)
    else:
        with row_writer(output) as writer:
            writer.write({name: [row[name] for row in ordered] for name in COLUMNS})
    journal.close()
    return report


def _score_all(
    questions: Sequence[Question],
    journal: Journal,
    model: str,
    settings: Settings,
    device: str | None,
    ray_workers: int,
    *,
    force: bool,
    tell: Callable[[int, int], None] | None,
) -> list[dict[str, Any]]:
    """The scores of all rows, in order: those of the journal, and those that are left to do."""
    left = [question for question in questions if question.row not in journal.done]
    tell = tell or (lambda done, total: None)
    tell(len(journal.done), len(questions))
    scored = _with_ray(left, model, settings, ray_workers) if ray_workers else _here(left, model, settings, device)
    checked = False
    for rows in scored:
        journal.add(rows)
        tell(len(journal.done), len(questions))
        if not checked and not force and len(journal.done) >= min(EARLY_ROWS, len(questions)):
            check_report(prior_report(journal.done.values()), at_end=False)
            checked = True
    return [journal.done[question.row] for question in questions]


def _write_joined(
    data: Path, output: Path, scores: Sequence[dict[str, Any]], columns: Mapping[str, str], *, drop_unscored: bool
) -> None:
    """The rows of the data with columns of their scores added, batch by batch."""
    source = RowFile.open(data)
    kept = [not drop_unscored or row["status"] == "ok" for row in scores]
    if source.format == "parquet" and file_format(output) == "parquet":
        _join_parquet(source, output, scores, columns, kept)
        return
    done = 0
    with row_writer(output) as writer:
        for batch in source.batches():
            part, keep = scores[done : done + len(batch)], kept[done : done + len(batch)]
            done += len(batch)
            added = {name: [row[score] for row in part] for name, score in columns.items()}
            writer.write({name: list(compress(values, keep)) for name, values in {**batch.columns, **added}.items()})


def _join_parquet(
    source: RowFile, output: Path, scores: Sequence[dict[str, Any]], columns: Mapping[str, str], kept: Sequence[bool]
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    done = 0
    with atomic_path(output) as temporary, pq.ParquetFile(source.path) as rows:
        schema = rows.schema_arrow
        for name in columns:
            schema = schema.append(pa.field(name, pa.float64()))
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for batch in rows.iter_batches(batch_size=BATCH_ROWS):
                part, keep = scores[done : done + len(batch)], kept[done : done + len(batch)]
                done += len(batch)
                added = [pa.array([row[score] for row in part], pa.float64()) for score in columns.values()]
                whole = pa.RecordBatch.from_arrays([*batch.columns, *added], schema=schema)
                writer.write_batch(whole.filter(pa.array(keep)))


def _here(
    questions: Sequence[Question], path: str, settings: Settings, device: str | None
) -> Iterator[list[dict[str, Any]]]:
    if not questions:
        return
    model = PriorModel(path, settings, device=device)
    yield from _scored(questions, model)


def _scored(questions: Sequence[Question], model: PriorModel) -> Iterator[list[dict[str, Any]]]:
    encoded = [model.encode(question) for question in questions]
    limit = model.max_length
    too_long = [one for one in encoded if limit is not None and len(one.ids) > limit]
    if too_long:
        yield [
            {
                "row": one.row,
                "prior_logprob": None,
                "prior_tokens": one.answer_tokens,
                "prior_mean_prob": None,
                "prior_token_logprobs": [],
                "boundary_merged": one.boundary_merged,
                "status": "too_long",
            }
            for one in too_long
        ]
    fitting = [one for one in encoded if limit is None or len(one.ids) <= limit]
    for batch in batches_by_length(fitting, model.settings.batch_tokens):
        yield model.score(batch)


class _RayScorer:
    """One Ray Data worker: loads the model once, scores blocks of rows."""

    def __init__(self, path: str, settings: Settings):
        self.model = PriorModel(path, settings)

    def __call__(self, block: dict[str, Any]) -> dict[str, list[str]]:
        questions = [Question(**json.loads(text)) for text in block["question"]]
        return {"result": [json.dumps(row) for rows in _scored(questions, self.model) for row in rows]}


def _with_ray(
    questions: Sequence[Question], path: str, settings: Settings, workers: int
) -> Iterator[list[dict[str, Any]]]:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingExtraError("--ray", package="ray[data]", extra="ray") from error
    if not questions:
        return
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False)
    gpus = 1 if ray.cluster_resources().get("GPU", 0) >= workers else 0
    # Similar lengths together, as in one process; rows travel as JSON, since prompts are strings or chats.
    ordered = sorted(questions, key=lambda one: -len(str(one.prompt)))
    items = [{"question": json.dumps(vars(one))} for one in ordered]
    results = ray.data.from_items(items).map_batches(
        _RayScorer,  # type: ignore[arg-type]
        fn_constructor_args=(path, settings),
        batch_size=64,
        concurrency=workers,
        num_gpus=gpus,
    )
    for block in results.iter_batches(batch_size=64, prefetch_batches=1):
        yield [json.loads(text) for text in block["result"]]
