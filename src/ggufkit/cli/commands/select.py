"""`ggufkit select`: choose, rename, add and leave out tensors, layers and keys."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import click

import ggufkit
from ggufkit.cli import options as shared
from ggufkit.cli.model_argument import MODEL
from ggufkit.cli.options import SharedOption, flag, new_command, option, usage
from ggufkit.cli.output import counted, emit, note, paged
from ggufkit.cli.pipes import incoming
from ggufkit.cli.streams import PIPE
from ggufkit.cli.write_model import files_written, report, write_out
from ggufkit.edits.loadability import refusals
from ggufkit.edits.name_patterns import pattern, rename
from ggufkit.errors import printable
from ggufkit.models.caches import is_name
from ggufkit.models.layers import parse_layers
from ggufkit.models.model import Model

GraftPair = tuple[str, str]
# A graft, FILE:PATTERN. The first colon ends the name of a file, or the first ".gguf:" if there is
# one. Names of cached models contain colons, so there the last colon counts, or the one before re:.
_FROM_FILE: Final = re.compile(r"((?i:.*?\.gguf)|[^:]+):(.*)", re.DOTALL)
_FROM_CACHE: Final = re.compile(r"([^:]+:(?:.+?(?=:re:)|.+)):(.*)", re.DOTALL)


def parse_pattern(text: str) -> str:
    """Return a pattern of names; BadParameter for a wrong one."""
    usage(pattern)(text)
    return text


def parse_rename(text: str) -> str:
    """Return a rename, PATTERN=NAME; BadParameter for a wrong one."""
    usage(rename)(text)
    return text


def parse_graft(text: str) -> GraftPair:
    """Return file and pattern of FROM.gguf:PATTERN; both may contain more colons."""
    match = (_FROM_CACHE if is_name(text) else _FROM_FILE).fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is not a graft; write it as FROM.gguf:PATTERN")
    return match[1], parse_pattern(match[2])


def _multiple(names: str, help: str, type: Callable[[str], object]) -> SharedOption:
    return option(names, help, type=type, multiple=True)


@new_command(
    "select",
    "ggufkit select model.gguf small.gguf --prune-layers 3,5-7",
    "ggufkit select model.gguf text.gguf --drop 'v.*' --drop 'mm.*'",
    "ggufkit select base.gguf mixed.gguf --graft 'tuned.gguf:blk.1?.*'",
    "ggufkit select model.gguf vocabulary.gguf --vocab-only",
    cls=shared.Command,
)
@click.argument("source", metavar="IN", type=MODEL)
@click.argument("out", metavar="OUT")
@_multiple("--keep PATTERN", "Keep only tensors that match.", parse_pattern)
@_multiple("--drop PATTERN", "Remove tensors that match.", parse_pattern)
@option("--prune-layers LIST", "Remove these layers, such as 3,5-7.", type=usage(parse_layers))
@_multiple("--rename PATTERN=NAME", "Rename tensors.", parse_rename)
@_multiple("--graft FROM:PATTERN", "Add tensors from another model.", parse_graft)
@_multiple("--keep-keys PATTERN", "Keep only keys that match.", parse_pattern)
@_multiple("--drop-keys PATTERN", "Remove keys that match.", parse_pattern)
@_multiple("--graft-keys FROM:PATTERN", "Add keys from another model.", parse_graft)
@flag("--vocab-only", "Keep only the keys of the vocabulary; remove all tensors.")
@flag("--no-tensors", "Remove all tensors; keep all keys.")
@shared.no_clobber_option
@shared.threads_option
@flag("--dry-run", "Show what would change; write nothing.")
@flag("--json as_json", "Print the changes as JSON.")
def command(  # noqa: PLR0913 (click passes each option)
    source: str,
    out: str,
    *,
    prune_layers: tuple[int, ...] | None,
    rename: tuple[str, ...],
    graft: tuple[GraftPair, ...],
    graft_keys: tuple[GraftPair, ...],
    no_tensors: bool,
    threads: int | None,
    dry_run: bool,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Write the model IN to OUT with selected tensors, layers and keys.

    PATTERN is a glob that matches whole names, such as 'blk.*.attn_q.weight', or re: and a regular
    expression that matches any part of a name. A pattern without a match is an error. Each option
    with a pattern may be repeated. Tensor options apply in this order: --keep, --drop,
    --prune-layers, --rename, --graft. The options for keys follow.
    In a rename, * and ? in the new name stand for what they matched in the old name.
    """
    if as_json and out == PIPE and not dry_run:
        raise click.UsageError("--json and the model cannot both go to stdout")
    with contextlib.ExitStack() as opened:
        model = opened.enter_context(ggufkit.open(source))
        selected = ggufkit.select(
            model,
            prune=prune_layers or (),
            rename=rename,
            graft=_opened(graft, opened),
            graft_keys=_opened(graft_keys, opened),
            tensors=not no_tensors,
            **chosen,
        )
        changes = _changes(model, selected)
        if selected.tensors:
            for sentence in refusals(model, selected):
                note(f"llama.cpp may refuse the result: {sentence}")
        paths = [] if dry_run else write_out(selected, out, threads=threads)
    if as_json:
        emit({"files": files_written(paths), **changes})
    elif dry_run:
        with paged():
            _print(changes)
    else:
        report(paths)


def _opened(grafts: Iterable[GraftPair], opened: contextlib.ExitStack) -> list[tuple[Model, str]]:
    """Return the models to graft from, each with the pattern of tensors to take."""
    return [(opened.enter_context(ggufkit.open(incoming(file))), text) for file, text in grafts]


def _changes(before: Model, after: Model) -> dict[str, Any]:
    """Return names of tensors and keys by change; a source identifies a renamed tensor."""
    was = {id(tensor.source): tensor.name for tensor in before.tensors.values()}
    came = {tensor.name: was.get(id(tensor.source)) for tensor in after.tensors.values()}
    remaining = set(came.values())
    grafted = [new for new, old in came.items() if old is None]
    replaced = [name for name in grafted if name in before.tensors and name not in remaining]
    unchanged = remaining | {*replaced}
    return {
        "tensors": {
            "dropped": [tensor for tensor in before.tensors if tensor not in unchanged],
            "replaced": replaced,
            "renamed": {old: new for new, old in came.items() if old not in (None, new)},
            "grafted": [name for name in grafted if name not in {*replaced}],
            "kept": len(remaining - {None}),
        },
        "keys": {
            "dropped": [key for key in before.metadata if key not in after.metadata],
            "added": [key for key in after.metadata if key not in before.metadata],
            "changed": [key for key in after.metadata if _is_changed(key, before, after)],
        },
    }


def _is_changed(key: str, before: Model, after: Model) -> bool:
    pair = [model.metadata.arranged([key]) for model in (before, after) if key in model.metadata]
    return len(pair) == 2 and pair[0] != pair[1]  # noqa: PLR2004 (a pair)


def _print(changes: dict[str, Any]) -> None:
    tensors, keys = changes["tensors"], changes["keys"]
    for sign, kind in (("-", "dropped"), ("~", "replaced"), ("+", "grafted")):
        for name in tensors[kind]:
            click.echo(f"{sign} {printable(name)}")
    for old, new in tensors["renamed"].items():
        click.echo(f"  {printable(old)} -> {printable(new)}")
    for sign, names in (("-", keys["dropped"]), ("+", keys["added"]), ("~", keys["changed"])):
        for name in names:
            click.echo(f"{sign} {printable(name)} (key)")
    click.echo(f"{counted(tensors['kept'], 'tensor')} kept")
