"""`ggufkit diff`: show the differences between two models."""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

import ggufkit
from ggufkit.cli import streams
from ggufkit.cli.errors import report
from ggufkit.cli.model_argument import MODEL, is_checkpoint
from ggufkit.cli.options import arch_path_option, threads_option
from ggufkit.cli.output import counted, emit, examples, note, paged, shorten, table
from ggufkit.cli.progress import progress_bar
from ggufkit.conversion.checkpoint.folder import Checkpoint, open_checkpoint
from ggufkit.conversion.tensors.storage_type import lossless
from ggufkit.errors import GGUFError, printable
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import LAYOUT_KEYS
from ggufkit.format.values import Arrays, Strings, Value
from ggufkit.inspection.diff import Deviation, Difference, KeyChange, TensorChange
from ggufkit.inspection.summary import plain
from ggufkit.models.model import Model, Tensor

SECTION: Final = "Look"  # of the help

DIFFERENT: Final = 1
TROUBLE: Final = 2  # as in diff(1)
SHOWN: Final = 60  # characters of a value
WHOLE_ITEMS: Final = 64  # of an array that JSON shows whole
LISTED_ITEMS: Final = 1000  # differing items that JSON shows of a longer array
_SIGNS: Final = {"added": "+", "removed": "-"}


@click.command(
    "diff",
    short_help="Compare two models by name.",
    epilog=examples(
        "ggufkit diff model-f16.gguf model-q4_k_m.gguf",
        "ggufkit diff old.gguf new.gguf --no-data",
        "ggufkit diff model-00001-of-00003.gguf model.gguf && echo same",
        "ggufkit diff a.gguf b.gguf --json | jq '.tensors[] | {name, deviation}'",
    ),
)
@click.argument("before", metavar="A", type=MODEL)
@click.argument("after", metavar="B", type=MODEL)
@click.option("--no-data", is_flag=True, help="Compare only metadata, shapes and types.")
@click.option("--json", "as_json", is_flag=True, help="Print the differences as JSON.")
@arch_path_option
@threads_option
@click.pass_context
def command(  # noqa: PLR0913 (click passes each option)
    ctx: click.Context,
    /,
    before: str,
    after: str,
    *,
    no_data: bool,
    as_json: bool,
    arch_path: tuple[Path, ...],
    threads: int | None,
) -> None:
    """Show the differences between the models A and B; keys and tensors are matched by name.

    A and B are GGUF files, shards of sets, folders, or checkpoints (folders of safetensors). A
    checkpoint is converted in memory if the other is a GGUF model. Shards, byte order, alignment
    and the order of tensors make no difference. For tensors whose data or type changed, it shows
    how far their elements are from those of A: root mean squared error, largest error,
    cosine, and signal-to-noise ratio in decibels.

    The exit code is 0 if the models are equal, 1 if they differ, and 2 for an error.
    """
    with contextlib.ExitStack() as opened:
        try:
            pair = [opened.enter_context(model) for model in _opened(before, after, arch_path)]
            with progress_bar("comparing") as progress:
                found = ggufkit.diff(*pair, data=not no_data, threads=threads, progress=progress)
        except (GGUFError, OSError) as error:
            report(error)
            ctx.exit(TROUBLE)
        try:
            _show(found, pair, as_json=as_json)
        except BrokenPipeError:  # the reader has seen enough
            streams.drop()
        except OSError as error:
            report(streams.error_of(error))
            ctx.exit(TROUBLE)
    if found:
        ctx.exit(DIFFERENT)


def _show(found: Difference, pair: Sequence[Model], *, as_json: bool) -> None:
    if as_json:
        emit(_plain(found))
    else:
        with paged():
            _print(found, *pair)
    streams.flush()  # later errors would end with 1, which means that the models differ


def _opened(before: str, after: str, arch_path: tuple[Path, ...]) -> Iterator[Model]:
    """Open both; convert a checkpoint if the other is a GGUF model, so that names match."""
    checkpoints = [is_checkpoint(path) for path in (before, after)]
    for path, is_one in zip((before, after), checkpoints, strict=True):
        if not is_one:
            yield ggufkit.open(path)
        elif all(checkpoints):
            yield _unconverted(open_checkpoint(path))
        else:
            yield _converted(path, arch_path)


def _converted(path: str, arch_path: tuple[Path, ...]) -> Model:
    """Return a converted checkpoint in its own type, so that losses of the file show."""
    with contextlib.closing(open_checkpoint(path)) as checkpoint:
        outtype = lossless(checkpoint.tensors.values())
    return ggufkit.convert(path, outtype=outtype, arch_path=arch_path)


def _unconverted(checkpoint: Checkpoint) -> Model:
    """Return a checkpoint without conversion, with the fields of its configuration as keys."""
    keys = {f"config.{name}": json.dumps(value) for name, value in checkpoint.config.items()}
    return Model(Metadata(keys), checkpoint.tensors).reading(checkpoint.files)


# For people.


def _print(found: Difference, before: Model, after: Model) -> None:
    for change in found.keys:
        click.echo(_key_line(change))
    if found.keys and found.tensors:
        click.echo()
    if found.tensors:
        header = ("", "TENSOR", "SHAPE", "TYPE", "RMSE", "LARGEST", "COSINE", "SNR dB")
        table(header, map(_row, found.tensors), right="llllrrrr")
    for tensor in found.tensors:
        if tensor.deviation and tensor.deviation.not_finite:
            held = counted(tensor.deviation.not_finite, "element")
            note(
                f"{tensor.name}: {held} with NaN or infinity in A or B; the figures leave them out"
            )
    click.echo(f"\n{_summary(found, before, after)}" if found else "no difference")


def _summary(found: Difference, before: Model, after: Model) -> str:
    """Return the counts of differing keys and tensors, out of all."""
    tensors = len({*before.tensors, *after.tensors})
    keys = len({*before.metadata, *after.metadata} - {*LAYOUT_KEYS})
    kinds = Counter(change.kind for change in found.tensors)
    tallies = ", ".join(f"{number} {kind}" for kind, number in kinds.items()) or "all the same"
    differ = _differ(len(found.keys)) if found.keys else "all the same"
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
        at = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), None)
        at = min(len(old), len(new)) if at is None else at
        return f"from character {at:,} on {_text(old[at:])} -> {_text(new[at:])}"
    items = plain(old), plain(new)
    if isinstance(items[0], list) and isinstance(items[1], list):
        return _changed_items(items[0], items[1])
    return f"{_text(old)} -> {_text(new)}"


def _changed_items(old: list[Any], new: list[Any]) -> str:
    places = _unlike(old, new)
    lengths = f"{len(old):,}" if len(old) == len(new) else f"{len(old):,} -> {len(new):,}"
    if not places:
        return f"{lengths} items, the first {min(len(old), len(new)):,} the same"
    at = places[0]
    first = f"[{at}] {shorten(repr(old[at]), SHOWN)} -> {shorten(repr(new[at]), SHOWN)}"
    return f"{lengths} items, {_differ(len(places))}, the first: {first}"


def _unlike(old: list[Any], new: list[Any]) -> list[int]:
    """Return the indices at which two lists differ, up to the end of the shorter."""
    return [i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b]


def _row(change: TensorChange) -> tuple[str, ...]:
    shapes = [" x ".join(map(str, tensor.shape)) for tensor in _sides(change)]
    types = [tensor.type.name for tensor in _sides(change)]
    name, sign = printable(change.name), _SIGNS.get(change.kind, "~")
    figures = _figures(change.deviation) if change.deviation else ("",) * 4
    return (sign, name, _arrow(shapes), _arrow(types), *figures)


def _sides(change: TensorChange) -> list[Tensor]:
    return [tensor for tensor in (change.before, change.after) if tensor]


def _arrow(texts: list[str]) -> str:
    return " -> ".join(dict.fromkeys(texts))


def _figures(deviation: Deviation) -> tuple[str, ...]:
    figures = (f"{deviation.rmse:.3g}", f"{deviation.max_abs:.3g}")
    return (*figures, f"{deviation.cosine:.6f}", f"{deviation.snr_db:.1f}")


# For programs.


def _plain(found: Difference) -> dict[str, Any]:
    return {
        "keys": [_plain_key(change) for change in found.keys],
        "tensors": [_plain_tensor(change) for change in found.tensors],
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
    figures = change.deviation and {
        name: figure if math.isfinite(figure) else None
        for name, figure in asdict(change.deviation).items()
    }
    return {"name": change.name, "kind": change.kind, **described, "deviation": figures}
