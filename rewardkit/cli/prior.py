"""``rewardkit prior``: how likely a frozen model finds each gold answer."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from rewardkit.cli.app import app, err, out, quiet_transformers
from rewardkit.data.files import check_output
from rewardkit.errors import InvalidArgumentError


@app.command()
def prior(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Parquet or JSON Lines with prompts and references.")],
    model: Annotated[str, typer.Option("--model", "-m", metavar="DIR", help="Folder of the frozen model.")],
    output: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Parquet or JSON Lines file to write.")
    ] = None,
    join: Annotated[
        bool, typer.Option("--join", help="Write DATA's rows with the columns prior_logprob and prior_mean_prob added.")
    ] = False,
    baseline: Annotated[
        bool,
        typer.Option(
            "--baseline", help="Write DATA's rows with RLPR's column baseline added; the prefix is '<answer> '."
        ),
    ] = False,
    drop_unscored: Annotated[
        bool, typer.Option("--drop-unscored", help="With --join or --baseline: leave out rows without a prior.")
    ] = False,
    answer_prefix: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Literal text before the answer. [default: 'Final answer: ', with --baseline '<answer> ']",
        ),
    ] = None,
    prompt_column: Annotated[
        str, typer.Option("--prompt", metavar="COL", help="Column of the prompt: a string or a chat.")
    ] = "prompt",
    reference_column: Annotated[
        str, typer.Option("--reference", metavar="PATH", help="Dotted path of the reference.")
    ] = "reward_model.ground_truth",
    edit: Annotated[
        list[str] | None,
        typer.Option(
            "--edit",
            metavar="OLD=>NEW",
            help="OLD=>NEW: replace in every rendered prompt; an edit that changes nothing fails.",
        ),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Do not use the tokenizer's chat template.")] = False,
    max_length: Annotated[
        int | None, typer.Option(metavar="N", min=2, help="Longer rows get no prior (in tokens).")
    ] = None,
    batch_tokens: Annotated[int, typer.Option(metavar="N", min=1, help="Padded tokens per forward.")] = 4096,
    dtype: Annotated[str, typer.Option(metavar="NAME", help="float32, bfloat16 or float16.")] = "float32",
    device: Annotated[str | None, typer.Option(metavar="NAME", help="cpu or cuda; a GPU where there is one.")] = None,
    ray: Annotated[int, typer.Option("--ray", metavar="N", min=0, help="Score with so many Ray Data workers.")] = 0,
    show: Annotated[
        bool, typer.Option("--show", help="Print the first rendered prompt with its answer, and stop.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write priors that look broken.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable report on stdout.")] = False,
) -> None:
    """Score references under a frozen model: priors, baselines.

    How likely the model finds each row's reference without any reasoning: the prior of the backoff rewards, or RLPR's baseline.
    --out holds the scores, or with --join or --baseline the training file itself with their columns added. Interrupt it at any
    time; the same command goes on where it stood.
    """
    from rewardkit import prior as engine

    if output is None and not show:
        raise InvalidArgumentError("--out", expected="a file to write (or --show)", got=None)
    check_output(output, [data])
    added = (["prior_logprob", "prior_mean_prob"] if join else []) + (["baseline"] if baseline else [])
    if drop_unscored and not added:
        raise InvalidArgumentError("--drop-unscored", expected="--join or --baseline beside it", got=None)
    if answer_prefix is None:
        answer_prefix = "<answer> " if baseline else "Final answer: "
    settings = engine.Settings(
        answer_prefix=answer_prefix,
        prompt_column=prompt_column,
        reference_column=reference_column,
        template_edits=tuple(_edit(one) for one in edit or ()),
        chat_template=not plain,
        max_length=max_length,
        batch_tokens=batch_tokens,
        dtype=dtype,
    )
    quiet_transformers()
    if show:
        question = engine.read_questions(data, settings)[0]
        print(engine.render(question.prompt, engine.load_tokenizer(model), settings) + question.answer)
        return
    columns = (
        TextColumn("scoring"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    assert output is not None
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task("rows", total=None)
        report = engine.run(
            data,
            model,
            output,
            settings=settings,
            device=device,
            ray_workers=ray,
            force=force,
            join=added,
            drop_unscored=drop_unscored,
            on_progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    if as_json:
        print(json.dumps(dataclasses.asdict(report), indent=1))
        return
    table = Table("nats", *report.total, title=f"{output}: {report.scored} of {report.rows} rows", title_justify="left")
    table.add_row("answer", *(f"{value:.2f}" for value in report.total.values()))
    table.add_row("token", *(f"{value:.2f}" for value in report.per_token.values()))
    out.print(table)
    share = report.boundary_merged / max(1, report.scored)
    out.print(
        f"{report.mean_tokens:.1f} tokens per answer; boundary merged in {report.boundary_merged} rows ({share:.1%})"
    )
    for status, count in sorted(report.statuses.items()):
        if status != "ok":
            what = "left out" if drop_unscored else "without a prior"
            out.print(f"{status}: {count} row{'s' * (count != 1)} {what}")


def _edit(text: str) -> tuple[str, str]:
    old, arrow, new = text.partition("=>")
    if not arrow or not old:
        raise InvalidArgumentError("--edit", expected="OLD=>NEW", got=text)
    return old, new
