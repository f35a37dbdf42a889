"""``rewardkit validate``: the preflight over a data set, a tokenizer, a reward and a trainer's config."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from rewardkit import preflight
from rewardkit.cli.app import app, err, out, quiet_transformers
from rewardkit.data.files import existing_file, read_text
from rewardkit.errors import DataError, InvalidArgumentError, MissingExtraError, RewardkitError, UnknownNameError

_HUB_SECONDS = 5.0


@app.command()
def validate(
    data: Annotated[
        list[Path] | None,
        typer.Option("--data", metavar="FILE", help="Rows in verl's or TRL's schema; by default the config's files."),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer", metavar="NAME", help="Folder or name of the policy's tokenizer, or a tokenizer.json."
        ),
    ] = None,
    reward: Annotated[
        str | None,
        typer.Option("--reward", metavar="NAME", help="Name of the reward; by default what the config says."),
    ] = None,
    params: Annotated[
        str, typer.Option("--params", metavar="JSON", help='Parameters of the reward as JSON: \'{"format": "tabc"}\'.')
    ] = "{}",
    gold_kind: Annotated[
        str | None, typer.Option("--gold-kind", metavar="KIND", help="How flat lists are read: aliases or set.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option("--reference", metavar="PATH", help="Dotted path of the references in a row.")
    ] = None,
    verl_config: Annotated[
        Path | None,
        typer.Option(
            "--verl-config", metavar="FILE", help="verl's config in YAML, whole (.hydra/config.yaml) or in part."
        ),
    ] = None,
    max_response_length: Annotated[
        int | None, typer.Option("--max-response-length", metavar="N", min=1, help="Tokens; by default the config's.")
    ] = None,
    max_reference_length: Annotated[
        int, typer.Option("--max-reference-length", metavar="N", min=1, help="Longer references are told (tokens).")
    ] = 256,
    template_edit: Annotated[
        list[str] | None,
        typer.Option("--template-edit", metavar="OLD=>NEW", help="OLD=>NEW: an edit meant for the chat template."),
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option("--skip", metavar="NAME", help="Name of a check not to run.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 when there are warnings.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
    list_checks: Annotated[bool, typer.Option("--list", help="Show all checks and end.")] = False,
) -> None:
    """Find what would spoil a training run. Exit code 0: fine; 1: warnings (with --strict); 2: errors."""
    if list_checks:
        for name, check in preflight.CHECKS.items():
            print(f"{name:22} {check.about}")
        return
    if gold_kind not in (None, "aliases", "set"):
        raise UnknownNameError("gold kind", gold_kind, ("aliases", "set"))
    config = load_config(verl_config) if verl_config is not None else None
    files = list(data or ()) or _config_files(config)
    if not files and config is None:
        raise InvalidArgumentError("--data", expected="at least one file of rows (or --verl-config)", got="none")
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    ) as progress:
        task = progress.add_task("loading")
        report = preflight.run(
            reward=reward,
            params=_params(params),
            gold_kind=gold_kind,  # type: ignore[arg-type]
            data=files,
            tokenizer=load_tokenizer(tokenizer) if tokenizer is not None else None,
            config=config,
            reference=reference,
            max_response_length=max_response_length,
            max_reference_length=max_reference_length,
            template_edits=[_edit(text) for text in template_edit or ()],
            skip=skip or (),
            on_progress=lambda rows: progress.update(task, description=f"{rows:,} rows"),
        )
    if as_json:
        print(json.dumps({**report.as_dict(), "exit_code": report.exit_code(strict=strict)}, indent=1))
    else:
        _show(report)
    raise typer.Exit(report.exit_code(strict=strict))


def load_config(path: Path) -> dict[str, Any]:
    """A verl config as plain mappings; references in it (``${…}``) are resolved where the config is whole enough.

    Raises:
        DataError: The file is no mapping in YAML, or its defaults go round in a circle.
        MissingExtraError: Neither OmegaConf nor PyYAML is installed.
    """
    values = _composed(path, ())
    try:
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException
    except ImportError:
        return values
    try:
        resolved = OmegaConf.to_container(OmegaConf.create(values), resolve=True)
    except OmegaConfBaseException:
        return values  # a part of a config refers to what is not in it
    return resolved  # type: ignore[return-value]


def _composed(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """A config with the files beside it that its defaults list names; those of other places, verl's own, are left out."""
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError("reading a config", package="PyYAML", extra="verl") from error
    text = read_text(path)
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise DataError("YAML", " ".join(str(error).split()), file=str(path)) from error
    if not isinstance(values, dict):
        raise DataError("a mapping in YAML", type(values).__name__, file=str(path))
    result: dict[str, Any] = {}
    defaults = values.pop("defaults", None) or []
    if not isinstance(defaults, list):
        raise DataError("a list of defaults", repr(defaults), file=str(path))
    for entry in [*defaults, *([] if "_self_" in defaults else ["_self_"])]:
        beside = path.with_name(f"{entry}.yaml")
        if entry == "_self_":
            _merge(result, values)
        elif isinstance(entry, str) and beside.is_file() and beside != path:
            if beside in above:
                raise DataError("defaults that come to an end", f"{entry!r} again", file=str(path))
            _merge(result, _composed(beside, (*above, path)))
    return result


def _merge(into: dict[str, Any], values: dict[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def load_tokenizer(name: str) -> Any:
    """A tokenizer by folder, name or ``tokenizer.json``.

    Raises:
        MissingExtraError: transformers is not installed.
        FileNotFoundError: There is no such ``tokenizer.json``.
        DataError: There is no tokenizer of that name.
    """
    try:
        from transformers import AutoTokenizer, PreTrainedTokenizerFast
    except ImportError as error:
        raise MissingExtraError("--tokenizer", package="transformers", extra="hf") from error
    quiet_transformers()
    in_a_file, in_a_folder = name.endswith(".json"), Path(name).is_dir()
    try:
        if in_a_file:
            return PreTrainedTokenizerFast(tokenizer_file=str(existing_file(name)))
        return AutoTokenizer.from_pretrained(name, local_files_only=True)  # a folder, or one that was used before
    except (RewardkitError, FileNotFoundError):
        raise
    except Exception as error:
        if in_a_file or in_a_folder:
            raise _no_tokenizer(name, error) from error
    trouble = _unreachable_hub()
    if trouble:
        raise DataError(
            "a folder with a tokenizer, a tokenizer.json, or a name that is in transformers' cache",
            f"none of them here, and the model hub cannot be reached ({trouble}): copy the tokenizer's files to this machine and "
            "name their folder",
            file=name,
        )
    try:
        return AutoTokenizer.from_pretrained(name)
    except Exception as error:
        raise _no_tokenizer(name, error) from error


def _no_tokenizer(name: str, error: Exception) -> DataError:
    found = f"{type(error).__name__}: {error}".split("\n")[0]
    return DataError("a tokenizer that transformers can load", found, file=name)


def _unreachable_hub() -> str:
    """Why the hub does not answer; "" where it does. Asked once, since the libraries try for half a minute before they say so."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        urllib.request.urlopen(constants.ENDPOINT, timeout=_HUB_SECONDS).close()
    except urllib.error.HTTPError:
        return ""  # an answer, if not a kind one
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return str(getattr(reason, "strerror", None) or reason)
    return ""


def _show(report: preflight.Report) -> None:
    """What was not checked first, so that what was found stands at the end."""
    reasons: dict[str, list[str]] = {}
    for name, why in report.skipped.items():
        reasons.setdefault(why, []).append(name)
    for why, names in reasons.items():
        which = f"all {len(names)} other checks" if len(names) == len(preflight.CHECKS) else ", ".join(names)
        out.print(f"skipped {which}: {why}", style="dim", markup=False, highlight=False, soft_wrap=True)
    for finding in report.findings:
        where = (
            f" [{_count(finding.rows, 'row')}, e.g. {', '.join(map(str, finding.examples))}]" if finding.rows else ""
        )
        style = "bold red" if finding.level == "error" else "yellow"
        out.print(f"{finding.level:7} {finding.check}: ", style=style, end="", markup=False, highlight=False)
        out.print(f"{finding.reason}{where}", markup=False, highlight=False, soft_wrap=True)
        out.print(f"        fix: {finding.fix}", markup=False, highlight=False, soft_wrap=True)
    out.print(
        f"{_count(report.rows, 'row')}, {_count(len(report.checked), 'check')}: {_count(len(report.errors), 'error')}, "
        f"{_count(len(report.warnings), 'warning')}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _params(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except ValueError as error:
        raise InvalidArgumentError("--params", expected=f"a JSON object ({error})", got=text) from error
    if not isinstance(values, dict):
        raise InvalidArgumentError("--params", expected="a JSON object", got=text)
    return values


def _config_files(config: dict[str, Any] | None) -> list[Path]:
    section = (config or {}).get("data")
    if not isinstance(section, dict):
        return []
    files: list[Path] = []
    for key in ("train_files", "val_files"):
        found = section.get(key)
        listed = found if isinstance(found, list) else [found]
        files += [Path(file).expanduser() for file in listed if isinstance(file, str)]
    return files


def _edit(text: str) -> tuple[str, str]:
    old, arrow, new = text.partition("=>")
    if not arrow:
        raise InvalidArgumentError("--template-edit", expected="OLD=>NEW", got=text)
    return old, new
