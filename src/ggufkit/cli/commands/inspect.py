"""`ggufkit inspect`: show what is in a file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import click
import numpy as np

from ggufkit.cli import output
from ggufkit.cli.model_argument import MODEL, complete_key, complete_tensor, look_at
from ggufkit.cli.options import flag, new_command, option
from ggufkit.edits.name_patterns import Pattern, matching, pattern
from ggufkit.errors import printable
from ggufkit.format.values import Arrays, Strings, Value
from ggufkit.inspection.header_map import Field, dissect
from ggufkit.inspection.summary import (
    PerLayer,
    Summary,
    describe,
    describe_tensor,
    plain,
    summarize,
)
from ggufkit.models.model import Model, Tensor
from ggufkit.rules.findings import first_error

SHOWN_ITEMS: Final = 8  # of an array
ROW_BYTES: Final = 16  # of a hex dump
LEAST_SHOWN: Final = 0.0005  # a smaller share would print as 0.0%


@new_command(
    "inspect",
    "ggufkit inspect model.gguf",
    "ggufkit inspect model.gguf --key tokenizer.chat_template",
    "ggufkit inspect model.gguf --tensors 'blk.0.*'",
    "ggufkit inspect *.gguf --no-tensors",
    "ggufkit inspect model.gguf --json | jq .summary",
    "ggufkit inspect broken.gguf --bytes",
    "ggufkit inspect download.gguf.part --partial",
)
@click.argument("files", metavar="FILE...", type=MODEL, nargs=-1, required=True)
@flag("--json as_json", "Print everything in full as JSON.")
@option(
    "--key keys KEY",
    "Print the value of a metadata key.  [repeatable]",
    multiple=True,
    shell_complete=complete_key,
)
@flag("--no-tensors", "Leave out the list of tensors.")
@option(
    "--tensors patterns PATTERN",
    "List only the tensors that match: a name, a glob, or re:REGEX.  [repeatable]",
    multiple=True,
    shell_complete=complete_tensor,
)
@flag("--bytes as_bytes", "Print an annotated hex map of the header.")
@flag("--partial", "Show what is there of a file that is cut short.")
def command(  # noqa: PLR0913 (the options)
    files: tuple[str, ...],
    *,
    as_json: bool,
    keys: tuple[str, ...],
    no_tensors: bool,
    patterns: tuple[str, ...],
    as_bytes: bool,
    partial: bool,
) -> None:
    """Show what is in FILE: a summary of the model, its metadata and its tensors.

    FILE is a GGUF file, any shard of a set, or a folder that holds one. Several are shown one after
    the other. Long values are shortened; --json and --key print them in full. --bytes also works on
    damaged files. --partial also shows a file that ends inside its header, such as the beginning of
    a download.
    """
    chosen = {"--key": keys, "--no-tensors": no_tensors, "--tensors": patterns, "--bytes": as_bytes}
    both = [option for option, value in chosen.items() if value]
    if len(both) > 1:
        raise click.UsageError(f"Use either {both[0]} or {both[1]}, not both")
    if as_bytes and len(files) > 1:
        raise click.UsageError("--bytes shows one file")
    if as_bytes:
        _print_map(files[0], as_json=as_json)
        return
    selection = _Selection(keys, [pattern(text) for text in patterns], tensors=not no_tensors)
    if as_json:
        documents = [_document(file, selection, partial=partial) for file in files]
        output.emit(documents if len(files) > 1 else documents[0])
        return
    with contextlib.nullcontext() if keys else output.paged():
        for number, file in enumerate(files):
            if len(files) > 1:
                heading = click.style(f"{printable(file)}:", bold=True)
                click.echo(f"\n{heading}" if number else heading)
            _print_chosen(file, selection, partial=partial)


class _Selection(NamedTuple):
    """What to show of each file: some keys, some tensors, or everything."""

    keys: tuple[str, ...]
    patterns: list[Pattern]
    tensors: bool


def _document(file: str, selection: _Selection, *, partial: bool) -> object:
    with look_at(file, partial=partial) as model:
        if selection.patterns:
            return [describe_tensor(tensor) for tensor in _matching(model, selection.patterns)]
        if not selection.keys:
            return describe(model, tensors=selection.tensors)
        types, values = model.metadata.type_name, model.metadata.typed
        fields = {key: {"type": types(key), "value": plain(values(key))} for key in selection.keys}
    return fields if len(fields) > 1 else fields[selection.keys[0]]


def _print_chosen(file: str, selection: _Selection, *, partial: bool) -> None:
    with look_at(file, partial=partial) as model:
        if selection.keys:
            _print_values(model, tuple(dict.fromkeys(selection.keys)))
        elif selection.patterns:
            _print_tensors(model, _matching(model, selection.patterns))
        else:
            facts = [(label, text) for label, text in _facts(model, summarize(model)) if text]
            output.print_pairs(facts)
            click.echo()
            keys = [printable(key) for key in model.metadata]
            types = [model.metadata.type_name(key) for key in model.metadata]
            used = max(map(len, keys), default=0) + max(map(len, types), default=0) + 4
            width = max(output.columns() - used, 20)
            rows = [
                (key, kind, _short_value(value, width))
                for key, kind, value in zip(keys, types, model.metadata.values(), strict=True)
            ]
            output.table(("KEY", "TYPE", "VALUE"), rows)
            if selection.tensors:
                click.echo()
                _print_tensors(model, list(model.tensors.values()))


def _matching(model: Model, patterns: list[Pattern]) -> list[Tensor]:
    """Return the tensors that match a pattern, in file order; each pattern must match one."""
    names = {name for one in patterns for name in matching(model.tensors, one)}
    return [tensor for tensor in model.tensors.values() if tensor.name in names]


def _print_values(model: Model, keys: tuple[str, ...]) -> None:
    """Print the values of keys: one exactly, several with a newline after each."""
    for value in [model.metadata.typed(key) for key in keys]:
        if not isinstance(value, str):
            output.emit(plain(value))
        else:  # a single value gets no newline, which would look like a part of it
            output.print_text(value, errors="surrogateescape", nl=len(keys) > 1)


def _facts(model: Model, summary: Summary) -> Iterator[tuple[str, str]]:
    """Yield label and text of each fact in the summary; the text of an unknown fact is empty."""
    yield "architecture", _short_text(summary.architecture)
    yield "kind", _short_text(summary.kind)
    yield "name", _short_text(summary.name)
    yield "size label", _short_text(summary.size_label)
    yield "parameters", f"{summary.parameters:,} ({_count(summary.parameters)})"
    yield "recipe", _short_text(summary.recipe)
    yield "types", _types(summary)
    yield "read by", f"{summary.program} only" if summary.program else ""
    yield "dialect", summary.dialect or ""
    bits = summary.bits_per_weight
    yield "bits per weight", f"{bits:.2f}" if bits is not None else ""
    yield "context", _per_layer(summary.context)
    yield "layers", _per_layer(summary.layers)
    yield "embedding", _per_layer(summary.embedding)
    yield "feed forward", _per_layer(summary.feed_forward)
    heads, kv_heads = _per_layer(summary.heads), _per_layer(summary.kv_heads)
    yield "heads", (f"{heads} (keys and values: {kv_heads})" if heads and kv_heads else heads)
    experts, used = _per_layer(summary.experts), _per_layer(summary.experts_used)
    yield "experts", (f"{experts} (used for a token: {used})" if experts and used else experts)
    yield "vocabulary", _per_layer(summary.vocabulary)
    yield "tokenizer", _short_text(summary.tokenizer)
    yield "chat template", _template(summary)
    if pipeline := summary.pipeline:
        yield "model", pipeline.title or ""
        yield "parts", ", ".join(pipeline.parts)
        yield "input channels", _per_layer(pipeline.channels)
        yield "longest side", f"{pipeline.max_side:,} pixels" if pipeline.max_side else ""
        yield "read by", ", ".join(pipeline.readers) or "no program that ggufkit knows"
    yield "licence", _short_text(summary.license)
    yield "incomplete", _whole_tensors(model)
    order = f"{model.byte_order} endian, aligned to {model.alignment} bytes"
    yield "format", f"GGUF version {model.version}, {order}"
    for file in model.files:
        yield "file", f"{printable(str(file.path))} ({output.size(file.nbytes)})"


def _whole_tensors(model: Model) -> str:
    """Return how many tensors of an incomplete model are whole; empty for a complete one."""
    tensors = list(model.tensors.values())
    whole = [tensor for tensor in tensors if tensor.is_whole]
    if not model.missing:
        return ""
    nbytes = output.size(sum(tensor.nbytes for tensor in whole))
    return f"{len(whole):,} of {output.counted(len(tensors), 'tensor')} ({nbytes}) are whole"


def _short_text(text: str | None) -> str:
    return "" if text is None else output.shorten(text, output.columns() - 17)


def _count(number: int) -> str:
    for unit, name in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K")):
        if number >= unit:
            return f"{number / unit:.1f} {name}"
    return str(number)


def _types(summary: Summary) -> str:
    total = max(summary.parameters, 1)
    return ", ".join(
        f"{share.type} {_percent(share.elements / total)} ({share.tensors})"
        for share in summary.types
    )


def _percent(part: float) -> str:
    return f"{part:.1%}" if part >= LEAST_SHOWN else "<0.1%"


def _per_layer(numbers: PerLayer) -> str:
    if isinstance(numbers, list):
        return f"{min(numbers):,} to {max(numbers):,}, by layer" if numbers else ""
    return "" if numbers is None else f"{numbers:,}"


def _template(summary: Summary) -> str:
    if summary.chat_template is None:
        return "none" if summary.tokenizer else ""
    return _short_text(summary.chat_template.strip())


def _short_value(value: Value, width: int) -> str:
    if isinstance(value, str):
        return output.shorten(value, width)
    if isinstance(value, Strings | Arrays | np.ndarray):
        count = f" ({len(value):,})"
        text = ""
        for index, item in enumerate(value[:SHOWN_ITEMS]):
            added = (", " if index else "") + _short_item(item)
            if len(text) + len(added) + len(count) + 5 > width:
                break
            text += added
        else:
            if len(value) <= SHOWN_ITEMS:
                return text + count
        return text + (", ..." if text else "...") + count
    return str(value).lower() if isinstance(value, bool) else str(value)


def _short_item(item: object) -> str:
    if isinstance(item, str):
        return printable(repr(item))
    if isinstance(item, np.ndarray):
        return f"[{len(item):,} of {item.dtype.name}]"
    if isinstance(item, Strings | Arrays):
        return f"[{len(item):,}]"
    return str(item)


def _print_tensors(model: Model, tensors: list[Tensor]) -> None:
    several = len(model.files) > 1
    rows = [
        (
            printable(tensor.name),
            output.dims(tensor.shape),
            tensor.type.name,
            output.grouped(tensor.nbytes),
            _place(tensor),
            *((printable(tensor.path.name),) if several and tensor.path else ()),
        )
        for tensor in tensors
    ]
    header = ("TENSOR", "SHAPE", "TYPE", "BYTES", "OFFSET", *(("FILE",) if several else ()))
    output.table(header, rows, right="lllrr")


def _place(tensor: Tensor) -> str:
    """Return the offset of a tensor, marked if its bytes are not all there."""
    offset = "?" if tensor.offset is None else f"{tensor.offset:,}"
    return offset if tensor.is_whole else f"{offset} (missing)"


def _print_map(file: str, *, as_json: bool) -> None:
    fields, findings = dissect(file)
    if as_json:
        output.emit(
            [
                {"offset": field.offset, "nbytes": field.nbytes}
                | {"bytes": field.data.hex(), "meaning": field.meaning}
                for field in fields
            ]
        )
    else:
        with output.paged():
            for field in fields:
                _print_field(field)
    error = first_error(findings)
    if error is not None:
        raise error.exception()


def _print_field(field: Field) -> None:
    text = printable(field.meaning)
    for start in range(0, max(len(field.data), 1), ROW_BYTES):
        row = field.data[start : start + ROW_BYTES].hex(" ")
        click.echo(f"{field.offset + start:08x}  {row:47}  {text}".rstrip())
        text = ""
    remaining = field.nbytes - len(field.data)
    if remaining > 0:
        click.echo(f"{'':8}  and {remaining:,} bytes more")
