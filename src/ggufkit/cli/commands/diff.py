"""`ggufkit diff`: show the differences between two models."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import numpy as np

import ggufkit
from ggufkit.cli import streams
from ggufkit.cli.errors import report
from ggufkit.cli.model_argument import MODEL, is_checkpoint
from ggufkit.cli.options import Count, arch_path_option, flag, new_command, option, threads_option
from ggufkit.cli.output import counted, dims, emit, note, paged, shorten, table
from ggufkit.cli.progress import progress_bar
from ggufkit.cli.reports import show_deviations
from ggufkit.conversion.checkpoint.folder import Checkpoint, open_checkpoint
from ggufkit.conversion.tensors.storage_type import lossless
from ggufkit.errors import GGUFError, printable
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import LAYOUT_KEYS
from ggufkit.format.values import Arrays, Strings, Value
from ggufkit.inspection.diff import Difference, KeyChange, TensorChange
from ggufkit.inspection.summary import plain
from ggufkit.models.model import Model
from ggufkit.validation.plain_values import plain_values

DIFFERENT: Final = 1
TROUBLE: Final = 2  # as in diff(1)
SHOWN: Final = 60  # characters of a value
WHOLE_ITEMS: Final = 64  # of an array that JSON shows whole
LISTED_ITEMS: Final = 1000  # differing items that JSON shows of a longer array
_SIGNS: Final = {"added": "+", "removed": "-"}


@new_command(
    "diff",
    "ggufkit diff model-f16.gguf model-q4_k_m.gguf",
    "ggufkit diff old.gguf new.gguf --no-data",
    "ggufkit diff f16.gguf q8_0.gguf q4_k_m.gguf --sort snr --top 20",
    "ggufkit diff model-00001-of-00003.gguf model.gguf && echo same",
    "ggufkit diff a.gguf b.gguf --json | jq '.tensors[] | {name, deviation}'",
)
@click.argument("before", metavar="A", type=MODEL)
@click.argument("others", metavar="B...", type=MODEL, nargs=-1, required=True)
@flag("--no-data", "Compare only metadata, shapes and types.")
@option(
    "--sort",
    "Order of the tensors: the worst or largest first, or by name.",
    type=click.Choice(tuple(show_deviations.ORDERS)),
)
@option("--top", "Show only the first N tensors.", type=Count(min=1))
@flag("--json as_json", "Print the differences as JSON.")
@arch_path_option
@threads_option
@click.pass_context
def command(  # noqa: PLR0913 (click passes each option)
    ctx: click.Context,
    /,
    before: str,
    others: tuple[str, ...],
    *,
    no_data: bool,
    sort: str | None,
    top: int | None,
    as_json: bool,
    arch_path: tuple[Path, ...],
    threads: int | None,
) -> None:
    """Show the differences between the models A and B; keys and tensors are matched by name.

    A and B are GGUF files, shards of sets, folders, or checkpoints (folders of safetensors). A
    checkpoint is converted in memory if another one is a GGUF model. Shards, byte order, alignment
    and the order of tensors make no difference. For tensors whose data or type changed, it shows
    how far their elements are from those of A: root mean squared error, largest error,
    cosine, and signal-to-noise ratio in decibels. Several models, such as quants of A, are shown
    side by side, each compared with A.

    The exit code is 0 if the models are equal, 1 if they differ, and 2 for an error.
    """
    with contextlib.ExitStack() as opened:
        try:
            models = [opened.enter_context(m) for m in _opened((before, *others), arch_path)]
            differences = [_compared(models[0], m, threads, data=not no_data) for m in models[1:]]
        except (GGUFError, OSError) as error:
            report(error)
            ctx.exit(TROUBLE)
        try:
            with streams.dropping_if_closed():
                _show(_Compared((before, *others), models, differences, sort, top), as_json=as_json)
        except OSError as error:
            report(streams.error_of(error))
            ctx.exit(TROUBLE)
    if any(differences):
        ctx.exit(DIFFERENT)


class _Compared(NamedTuple):
    """The models with their paths, the differences of all from the first, and what to show."""

    paths: tuple[str, ...]
    models: list[Model]
    differences: list[Difference]
    sort: str | None
    top: int | None


def _compared(before: Model, after: Model, threads: int | None, *, data: bool) -> Difference:
    with progress_bar("comparing") as progress:
        return ggufkit.diff(before, after, data=data, threads=threads, progress=progress)


def _show(compared: _Compared, *, as_json: bool) -> None:
    if as_json:
        emit(_document(compared))
    else:
        with paged():
            (_print_several if len(compared.differences) > 1 else _print)(compared)
    streams.flush()  # later errors would end with 1, which means that the models differ


def _opened(paths: Sequence[str], arch_path: tuple[Path, ...]) -> Iterator[Model]:
    """Open all; convert a checkpoint if another is a GGUF model, so that names match."""
    checkpoints = [is_checkpoint(path) for path in paths]
    for path, is_one in zip(paths, checkpoints, strict=True):
        if not is_one:
            yield ggufkit.open(path)
        elif all(checkpoints):
            yield _unconverted(open_checkpoint(path))
        else:
            with contextlib.closing(open_checkpoint(path)) as checkpoint:
                outtype = lossless(checkpoint.tensors.values())
            yield ggufkit.convert(path, outtype=outtype, arch_path=arch_path)


def _unconverted(checkpoint: Checkpoint) -> Model:
    """Return a checkpoint without conversion, with the fields of its configuration as keys."""
    keys = {f"config.{name}": json.dumps(value) for name, value in checkpoint.config.items()}
    return Model(Metadata(keys), checkpoint.tensors).reading(checkpoint.files)


def _print(compared: _Compared) -> None:
    (difference,) = compared.differences
    _print_keys(difference, "")
    if difference.keys and difference.tensors:
        click.echo()
    if difference.tensors:
        visible = show_deviations.arranged(difference, compared.sort, compared.top).tensors
        header = ("", "TENSOR", "SHAPE", "TYPE", "RMSE", "LARGEST", "COSINE", "SNR dB")
        rows = [_row(change) for change in visible]
        if (
            difference.total
            and sum(change.deviation is not None for change in difference.tensors) > 1
        ):
            rows.append(
                ("", show_deviations.ALL, "", "", *show_deviations.figures(difference.total))
            )
        table(header, rows, right="llllrrrr")
        show_deviations.print_left_out(len(difference.tensors) - len(visible))
    _note_strange(difference, "B")
    click.echo(f"\n{_summary(difference, *compared.models)}" if difference else "no difference")


def _print_several(compared: _Compared) -> None:
    for number, path in enumerate(compared.paths):
        click.echo(f"{show_deviations.letter(number)}  {printable(path)}")
    click.echo()
    for number, difference in enumerate(compared.differences):
        _print_keys(difference, f"{show_deviations.letter(number + 1)} ")
    if any(difference.keys for difference in compared.differences):
        click.echo()
    before = compared.models[0]
    show_deviations.print_side_by_side(before, compared.differences, compared.sort, compared.top)
    click.echo()
    for number, difference in enumerate(compared.differences):
        _note_strange(difference, show_deviations.letter(number + 1))
        after = compared.models[number + 1]
        summary = _summary(difference, before, after) if difference else "no difference"
        click.echo(f"{show_deviations.letter(number + 1)}  {summary}")


def _print_keys(difference: Difference, prefix: str) -> None:
    for change in difference.keys:
        click.echo(prefix + _key_line(change))


def _note_strange(difference: Difference, model: str) -> None:
    for tensor in difference.tensors:
        if tensor.deviation and tensor.deviation.not_finite:
            elements = counted(tensor.deviation.not_finite, "element")
            note(
                f"{tensor.name}: {elements} with NaN or infinity in A or {model}; the figures "
                "leave them out"
            )


def _summary(difference: Difference, before: Model, after: Model) -> str:
    """Return the counts of differing keys and tensors, out of all."""
    tensors = len({*before.tensors, *after.tensors})
    keys = len({*before.metadata, *after.metadata} - {*LAYOUT_KEYS})
    kinds = Counter(change.kind for change in difference.tensors)
    tallies = ", ".join(f"{number} {kind}" for kind, number in kinds.items()) or "all the same"
    differ = _differ(len(difference.keys)) if difference.keys else "all the same"
    return f"{counted(tensors, 'tensor')}: {tallies}; {counted(keys, 'key')}: {differ}"


def _differ(number: int) -> str:
    return f"{number:,} differ{'s' if number == 1 else ''}"


def _key_line(change: KeyChange) -> str:
    key, old, new = printable(change.key), change.before, change.after
    was, now = change.before_type, change.after_type
    if old is None or new is None:
        value = new if old is None else old
        return f"{'-' if new is None else '+'} {key} ({was or now}): {_text(value)}"
    if was != now:
        return f"~ {key}: {was} {_text(old)} -> {now} {_text(new)}"
    return f"~ {key} ({was}): {_changed(old, new)}"


def _text(value: Value | None) -> str:
    if isinstance(value, str):
        return f'"{shorten(value, SHOWN)}"'
    if isinstance(value, np.ndarray | Strings | Arrays):
        return counted(len(value), "item")
    return "" if value is None else str(plain(value))


def _changed(old: Value, new: Value) -> str:
    if isinstance(old, str) and isinstance(new, str) and max(len(old), len(new)) > SHOWN:
        index = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), None)
        index = min(len(old), len(new)) if index is None else index
        return f"from character {index:,} on {_text(old[index:])} -> {_text(new[index:])}"
    items = plain(old), plain(new)
    if isinstance(items[0], list) and isinstance(items[1], list):
        return _changed_items(items[0], items[1])
    return f"{_text(old)} -> {_text(new)}"


def _changed_items(old: list[Any], new: list[Any]) -> str:
    places = _unlike(old, new)
    lengths = f"{len(old):,}" if len(old) == len(new) else f"{len(old):,} -> {len(new):,}"
    if not places:
        return f"{lengths} items, the first {min(len(old), len(new)):,} the same"
    index = places[0]
    first = f"[{index}] {shorten(repr(old[index]), SHOWN)} -> {shorten(repr(new[index]), SHOWN)}"
    return f"{lengths} items, {_differ(len(places))}, the first: {first}"


def _unlike(old: list[Any], new: list[Any]) -> list[int]:
    """Return the indices at which two lists differ, up to the end of the shorter."""
    return [i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b]


def _row(change: TensorChange) -> tuple[str, ...]:
    tensors = [tensor for tensor in (change.before, change.after) if tensor]
    shapes = [dims(tensor.shape) for tensor in tensors]
    types = [tensor.type.name for tensor in tensors]
    name, sign = printable(change.name), _SIGNS.get(change.kind, "~")
    return (sign, name, _arrow(shapes), _arrow(types), *show_deviations.figures(change.deviation))


def _arrow(texts: list[str]) -> str:
    return " -> ".join(dict.fromkeys(texts))


def _document(compared: _Compared) -> dict[str, Any]:
    """Return the difference of one model, or of several with their paths."""
    differences = [
        _plain(show_deviations.arranged(one, compared.sort, compared.top))
        for one in compared.differences
    ]
    if len(differences) == 1:
        return differences[0]
    paths = compared.paths
    models = [{"path": path, **item} for path, item in zip(paths[1:], differences, strict=True)]
    return {"before": paths[0], "models": models}


def _plain(difference: Difference) -> dict[str, Any]:
    return {
        "keys": [_plain_key(change) for change in difference.keys],
        "tensors": [_plain_tensor(change) for change in difference.tensors],
        "total": plain_values(difference.total),
    }


def _plain_key(change: KeyChange) -> dict[str, Any]:
    document = {
        "key": change.key,
        "before": _side(change.before_type, change.before),
        "after": _side(change.after_type, change.after),
    }
    if not any(side and "length" in side for side in (document["before"], document["after"])):
        return document
    old, new = (plain(v) if v is not None else [] for v in (change.before, change.after))
    if not isinstance(old, list) or not isinstance(new, list):
        return document
    places = _unlike(old, new)
    items = [{"index": i, "before": old[i], "after": new[i]} for i in places[:LISTED_ITEMS]]
    return {**document, "differing": len(places), "items": items}


def _side(type: str, value: Value | None) -> dict[str, Any] | None:
    """Return type and value; for a long array its length instead of the value."""
    if value is None:
        return None
    if isinstance(value, np.ndarray | Strings | Arrays) and len(value) > WHOLE_ITEMS:
        return {"type": type, "length": len(value)}
    return {"type": type, "value": plain(value)}


def _plain_tensor(change: TensorChange) -> dict[str, Any]:
    sides = {"before": change.before, "after": change.after}
    described = {
        side: tensor and {"type": tensor.type.name, "shape": list(tensor.shape)}
        for side, tensor in sides.items()
    }
    deviation = plain_values(change.deviation)
    return {"name": change.name, "kind": change.kind, **described, "deviation": deviation}
