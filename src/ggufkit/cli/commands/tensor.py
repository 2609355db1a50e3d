"""`ggufkit tensor`: show or save the values of one tensor."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

import ggufkit
from ggufkit.cli import output
from ggufkit.cli.model_argument import MODEL, complete_tensor, look_at
from ggufkit.cli.options import flag, new_command, no_clobber_option, option, threads_option
from ggufkit.cli.progress import progress_bar
from ggufkit.cli.write_model import may_replace, report
from ggufkit.errors import ShapeError, printable
from ggufkit.inspection.summary import plain
from ggufkit.inspection.tensor_block import TensorBlock
from ggufkit.inspection.tensor_statistics import DEFAULT_BINS, Histogram, TensorStatistics
from ggufkit.models.model import Tensor
from ggufkit.models.rows import rows_and_width
from ggufkit.quants.parallel import Numbers

SHOWN_ROWS: Final = 8  # without --rows
SHOWN_BINS: Final = 40  # of a histogram, in text
SHOWN_LEVELS: Final = 64  # in text
NUMBER_WIDTH: Final = 11  # columns of a number in a table of values
LEVELS_BESIDE: Final = 50  # columns of the others in a table with levels


@new_command(
    "tensor",
    "ggufkit tensor model.gguf token_embd.weight",
    "ggufkit tensor model.gguf blk.0.attn_q.weight --rows 10:20",
    "ggufkit tensor model.gguf blk.0.attn_q.weight --stats",
    "ggufkit tensor model.gguf blk.0.attn_q.weight --block 3,256",
    "ggufkit tensor model.gguf output_norm.weight -o norm.npy",
)
@click.argument("file", type=MODEL)
@click.argument("name", shell_complete=complete_tensor)
@option("--rows A:B", "Only rows A to B - 1 of the last axis, counted through all other axes.")
@flag("--stats", "Show statistics: range, mean, zeros, histograms.")
@option(
    "--block place ROW,COLUMN",
    "Show the quantization block that holds this element, field by field.",
)
@option("-o --output out", "Save to a .npy or .csv file.", type=click.Path(path_type=Path))
@no_clobber_option
@threads_option
@flag("--json as_json", "Print everything as JSON.")
def command(  # noqa: PLR0913 (the options)
    file: str,
    name: str,
    *,
    rows: str | None,
    stats: bool,
    place: str | None,
    out: Path | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Show tensor NAME of FILE: its first values, statistics, or one of its blocks.

    Quantized values are shown decoded. A row is a row of the last axis; a tensor with more axes
    has its rows counted through all of them. -o saves the values, or those of --rows, as a NumPy
    array or as text.
    """
    if place is not None and (rows is not None or stats or out is not None):
        raise click.UsageError("--block shows one block; use it without --rows, --stats and -o")
    with look_at(file) as model:
        tensor = model.tensors[name]
        if place is not None:
            _show_block(tensor, _block_at(tensor, place), as_json=as_json)
            return
        first, chosen = (0, tensor) if rows is None else _chosen(tensor, rows)
        statistics = _statistics(chosen, threads, as_json=as_json) if stats else None
        if out is not None:
            with progress_bar("writing") as progress:
                path = ggufkit.save_array(chosen, out, clobber=may_replace(), progress=progress)
            if not as_json:
                report([path])
        if as_json:
            output.emit(_plain(tensor, chosen if rows is not None else None, statistics))
        elif statistics:
            with output.paged():
                _print_statistics(tensor, statistics)
        elif out is None:
            with output.paged():
                output.print_pairs(_facts(tensor))
                _print_values(chosen, None if rows is None else first)


def _chosen(tensor: Tensor, rows: str) -> tuple[int, Tensor]:
    """Return the number of the first row, and the rows A:B as a tensor of two axes."""
    match = re.fullmatch(r"(\d*):(\d*)", rows.strip())
    if match is None:
        raise click.BadParameter(f"{rows!r} is not a range of rows; write it as 10:20")
    if tensor.type.is_opaque:
        raise ShapeError(f"tensor {tensor.name!r} of type {tensor.type} has no rows to slice")
    count = tensor.rows
    start, stop = int(match[1] or 0), int(match[2] or count)
    if not start < stop <= count:
        raise click.BadParameter(f"{rows!r} is not a range of the {count:,} rows of {tensor.name}")
    return start, _of_two_axes(tensor)[start:stop]


def _of_two_axes(tensor: Tensor) -> Tensor:
    return Tensor.over(tensor.name, tensor.type, rows_and_width(tensor.shape), tensor.source)


def _block_at(tensor: Tensor, place: str) -> TensorBlock:
    match = re.fullmatch(r"(\d+)(?:,\s*(\d+))?", place.strip())
    if match is None:
        raise click.BadParameter(f"{place!r} is not a place; write it as ROW,COLUMN, such as 3,256")
    try:
        return ggufkit.tensor_block(tensor, int(match[1]), int(match[2] or 0))
    except IndexError as error:
        raise click.BadParameter(str(error)) from None


def _statistics(tensor: Tensor, threads: int | None, *, as_json: bool) -> TensorStatistics:
    bins = DEFAULT_BINS if as_json else SHOWN_BINS
    with progress_bar("reading") as progress:
        return ggufkit.tensor_statistics(tensor, bins=bins, threads=threads, progress=progress)


def _plain(tensor: Tensor, rows: Tensor | None, stats: TensorStatistics | None) -> dict[str, Any]:
    """Return everything as a document; `rows` are the requested ones."""
    document: dict[str, Any] = {
        "name": tensor.name,
        "type": tensor.type.name,
        "shape": list(tensor.shape),
        "elements": tensor.elements,
        "nbytes": tensor.nbytes,
        "offset": tensor.offset,
    }
    if stats:
        document["statistics"] = stats.to_dict()
    elif rows is not None:
        document["values"] = [plain(row) for row in rows.numpy()]
    return document


def _facts(tensor: Tensor) -> list[tuple[str, str]]:
    return [
        ("name", printable(tensor.name)),
        ("shape", output.dims(tensor.shape) or "none: one number"),
        ("type", tensor.type.name),
        ("bytes", output.grouped(tensor.nbytes) + _offset(tensor.offset)),
    ]


def _offset(offset: int | None) -> str:
    return "" if offset is None else f", at byte {offset:,} of the file"


def _print_values(tensor: Tensor, first: int | None) -> None:
    """Print a table of values: as many columns as fit; all rows, from number `first` on.

    If `first` is None, print the first rows of a whole tensor.
    """
    if tensor.type.is_opaque or not tensor.elements:
        return
    flat = _of_two_axes(tensor)
    count, width = flat.shape
    visible = flat[:SHOWN_ROWS] if first is None else flat
    fits = max(output.columns() // NUMBER_WIDTH - 2, 1)
    cut = ("...",) if width > fits else ()
    header = ("ROW", *(output.grouped(column) for column in range(min(width, fits))), *cut)
    rows = (
        (output.grouped((first or 0) + index), *map(_number, row[:fits].tolist()), *cut)
        for index, row in enumerate(visible.numpy())
    )
    click.echo()
    output.table(header, rows, right="r" * len(header))
    hidden = count - visible.shape[0]
    if hidden:
        click.echo(
            f"... and {output.counted(hidden, 'row')} more; --rows chooses rows, -o saves all"
        )


def _number(number: float) -> str:
    return f"{number + 0:.4g}"  # zero without its sign


def _print_statistics(tensor: Tensor, statistics: TensorStatistics) -> None:
    share = f"{statistics.zero_share:.1%}" if statistics.zeros else ""
    figures = {
        "min": statistics.min,
        "max": statistics.max,
        "mean": statistics.mean,
        "standard deviation": statistics.std,
        "norm": statistics.norm,
    }
    pairs = [
        *_facts(tensor),
        ("elements", output.grouped(statistics.elements)),
        *((label, _number(value)) for label, value in figures.items() if value is not None),
        ("zeros", output.grouped(statistics.zeros) + (f" ({share})" if share else "")),
    ]
    nonfinite = [("not a number", statistics.nan), ("infinite", statistics.infinite)]
    output.print_pairs(
        pairs + [(label, output.grouped(count)) for label, count in nonfinite if count]
    )
    _print_histogram("VALUES", statistics.histogram)
    if statistics.scales:
        _print_histogram("SCALES", statistics.scales)
    if statistics.levels:
        _print_bars("LEVEL", _level_rows(statistics.levels))


def _print_histogram(title: str, histogram: Histogram) -> None:
    ranges = [f"{low:.4g} to {high:.4g}" for low, high in itertools.pairwise(histogram.edges)]
    _print_bars(title, list(zip(ranges, histogram.counts, strict=True)))


def _level_rows(levels: dict[int, int]) -> list[tuple[str, int]]:
    """Return the count of each level, or of several together if there are many."""
    low, high = min(levels), max(levels)
    step = -(-(high - low + 1) // SHOWN_LEVELS)
    if step == 1:
        return [(str(level), count) for level, count in levels.items()]
    sums: Counter[int] = Counter()
    for level, count in levels.items():
        sums[level // step] += count
    return [
        (f"{index * step} to {index * step + step - 1}", count) for index, count in sums.items()
    ]


def _print_bars(title: str, rows: Sequence[tuple[str, int]]) -> None:
    if not rows:
        return
    label = max(len(title), *(len(text) for text, _ in rows))
    most = max(count for _, count in rows)
    width = max(output.columns() - label - max(len(output.grouped(most)), len("COUNT")) - 4, 1)
    click.echo()
    lines = [
        (text, output.grouped(count), "#" * round(width * count / most)) for text, count in rows
    ]
    output.table((title, "COUNT", ""), lines, right="rrl")


def _show_block(tensor: Tensor, block: TensorBlock, *, as_json: bool) -> None:
    if as_json:
        output.emit({"name": tensor.name, "type": tensor.type.name, **block.to_dict()})
        return
    last = block.column + len(block.levels) - 1
    fields = ((name, _listed(numbers)) for name, numbers in block.fields.items())
    with output.paged():
        output.print_pairs(
            [
                ("name", printable(tensor.name)),
                ("type", tensor.type.name),
                ("block", f"row {block.row:,}, columns {block.column:,} to {last:,}"),
                ("bytes", output.grouped(len(block.data)) + _offset(block.offset)),
                *fields,
            ]
        )
        click.echo()
        count, factors = len(block.levels), [block.scales.tolist()]
        factors += [] if block.offsets is None else [block.offsets.tolist()]
        size = count // max(map(len, factors))
        width = output.columns() - LEVELS_BESIDE
        rows = [
            (
                output.grouped(block.column + start),
                *(_number(numbers[start * len(numbers) // count]) for numbers in factors),
                _fitting(
                    [str(level) for level in block.levels[start : start + size].tolist()], width
                ),
                _number(float(block.values[start])),
            )
            for start in range(0, count, size)
        ]
        names = ("SCALE", "OFFSET")[: len(factors)]
        header = ("COLUMN", *names, "LEVELS", "FIRST VALUE")
        output.table(header, rows, right="r" + "r" * len(names) + "lr")


def _listed(numbers: Numbers) -> str:
    texts = [
        _number(number) if isinstance(number, float) else str(number) for number in numbers.tolist()
    ]
    return _fitting(texts, output.columns() - 10)


def _fitting(texts: Sequence[str], width: int) -> str:
    """Return texts with spaces between them; if not all fit, dots at the end."""
    joined = ""
    for text in texts:
        if len(joined) + len(text) + 5 > width:
            return f"{joined} ..."
        joined += f" {text}" if joined else text
    return joined
