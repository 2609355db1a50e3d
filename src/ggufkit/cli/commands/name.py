"""`ggufkit name`: show the parts of a file's name, and rename it by the convention."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import click

import ggufkit
from ggufkit.cli.model_argument import MODEL, look_at
from ggufkit.cli.options import flag, new_command, option
from ggufkit.cli.output import emit, note, table
from ggufkit.cli.pipes import refuse_pipe
from ggufkit.edits.conventional_name import FIRST_VERSION, new_paths, rename
from ggufkit.errors import printable
from ggufkit.format import file_name
from ggufkit.format.file_types import FILE_TYPES
from ggufkit.format.types import TENSOR_TYPES
from ggufkit.models.caches import is_name
from ggufkit.models.remote_resolvers import is_remote

_ENCODINGS: Final = {"", *FILE_TYPES.values(), *(kind.name for kind in TENSOR_TYPES.values())}


@new_command(
    "name",
    "ggufkit name Mixtral-8x7B-v0.1-Q2_K.gguf",
    "ggufkit name model.gguf",
    "ggufkit name model.gguf --rename",
    "ggufkit name model.gguf --version v1.1 --finetune Chat --rename",
    "ggufkit name model.gguf --json | jq -r .conventional_name",
)
@click.argument("file", type=MODEL)
@flag("--rename is_rename", "Rename FILE to the conventional name.")
@flag("--dry-run", "With --rename: show the new names; rename nothing.")
@flag("--json as_json", "Print the parts and names as JSON.")
@option("--basename TEXT", "The model's name, such as Llama-3.")
@option("--size-label TEXT", "Its size, such as 8B or 8x7B.")
@option("--finetune TEXT", "The purpose of its fine-tuning, such as Instruct.")
@option("--version TEXT", "Its version, such as v1.0.")
@option("--encoding TEXT", "The recipe, such as Q4_K_M.")
@option("--type TEXT", "LoRA or vocab.")
@option("--sidecar TEXT", "mmproj or mtp.")
def command(
    file: str, *, is_rename: bool, dry_run: bool, as_json: bool, **texts: str | None
) -> None:
    """Show the parts of the name of FILE, and the name that the convention asks for.

    Options override the header, and the header overrides the file name. FILE need not exist: its
    name is parsed all the same. --rename renames the file, or each shard of its set. It never
    overwrites another file, and it does not rename links into caches.
    """
    if dry_run and not is_rename:
        raise click.UsageError("--dry-run needs --rename: without it nothing is renamed")
    if is_rename and not dry_run:
        refuse_pipe(file)
    chosen = {part: _part(part, text) for part, text in texts.items() if text is not None}
    if Path(file).exists() or is_name(file) or is_remote(file) or is_rename:
        with ggufkit.open(file) if is_rename else look_at(file) as model:
            before = [shard.path for shard in model.files]
            parsed = file_name.parse_name(before[0].name)
            usual = file_name.as_written(replace(ggufkit.conventional_name(model), **chosen))
            after = rename(model, usual) if is_rename and not dry_run else new_paths(model, usual)
    else:
        if not as_json:
            note(f"{file} does not exist; only its name is read")
        before = after = []
        parsed = file_name.parse_name(Path(file).name)
        defaults = {
            "version": parsed.version or FIRST_VERSION,
            "encoding": file_name.plain_encoding(parsed.encoding),
        }
        usual = file_name.as_written(replace(parsed, **{**defaults, **chosen}, conventional=False))
    files = list(zip(before, after, strict=True))
    if as_json:
        emit(_plain(parsed, usual, files))
    elif is_rename:
        for old, new in files:
            current = printable(str(old))
            click.echo(f"{current} -> {printable(new.name)}" if old != new else f"{current} stays")
    else:
        parts = [
            (part, getattr(parsed, part), getattr(usual, part)) for part in file_name.PART_FORMS
        ]
        rows = [(part.replace("_", " "), *map(printable, texts)) for part, *texts in parts]
        if parsed.shard:
            rows.append(("shard", "{} of {}".format(*parsed.shard), "one each"))
        table(("PART", "FILE NAME", "CONVENTIONAL"), rows)
        follows = "follows" if parsed.conventional else "does not follow"
        click.echo(f"\nthe file name {follows} the convention exactly")
        click.echo(f"conventional name: {printable(file_name.build_name(usual))}")


def _part(part: str, text: str) -> Any:  # noqa: ANN401 (a part of a name, by its name)
    """Return a given part; BadParameter for a wrong one."""
    form = file_name.wrong_part(part, text)
    if part == "encoding" and text.upper() not in _ENCODINGS:
        form = file_name.PART_FORMS[part][0]
    if form:
        option = f"--{part.replace('_', '-')}"
        raise click.BadParameter(f"{text!r} is not {form}", param_hint=option)
    return text


def _plain(
    parsed: file_name.FileName, usual: file_name.FileName, files: list[tuple[Path, Path]]
) -> dict[str, Any]:
    return {
        "file_name": asdict(parsed),
        "conventional": asdict(usual),
        "conventional_name": file_name.build_name(usual),
        "files": [{"before": str(old), "after": str(new)} for old, new in files],
    }
