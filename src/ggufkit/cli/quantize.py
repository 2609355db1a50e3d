"""`ggufkit quantize`: every eligible tensor as one type."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

import ggufkit
from ggufkit.cli.output import counted, emit, examples, note, size, table
from ggufkit.cli.writing import (
    PIPE,
    cluster_option,
    report,
    resume_option,
    threads_option,
    write_out,
)
from ggufkit.errors import printable
from ggufkit.inspecting import bits_per_weight
from ggufkit.model import Tensor
from ggufkit.quantizing import FALLBACK, TARGETS
from ggufkit.types import tensor_type

Pair = tuple[Tensor, Tensor]  # a tensor before and after


def parse_type(text: str) -> str:
    """Return the name of a type that models can be quantized to, given in any case."""
    if text.upper() not in TARGETS:
        raise click.BadParameter(f"{text!r} is not one of {', '.join(TARGETS)}")
    return text.upper()


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [target for target in TARGETS if target.startswith(incomplete.upper())]


@click.command(
    "quantize",
    short_help="Quantize a model.",
    epilog=examples(
        "ggufkit quantize model-f16.gguf model-q8_0.gguf Q8_0",
        "ggufkit quantize model-f16.gguf model-q4_0.gguf Q4_0 --dry-run",
        "ggufkit quantize model-f16.gguf - Q8_0 | ssh host 'cat > model-q8_0.gguf'",
    ),
)
@click.argument("source", metavar="IN")
@click.argument("out", metavar="OUT")
@click.argument("type", metavar="TYPE", type=parse_type, shell_complete=_complete)
@threads_option
@resume_option
@cluster_option
@click.option(
    "--dry-run", is_flag=True, help="Show what would become of each tensor; write nothing."
)
@click.option("--json", "as_json", is_flag=True, help="Print what becomes of each tensor as JSON.")
def command(source: str, out: str, type: str, *, dry_run: bool, as_json: bool, **work: Any) -> None:
    """Write the model IN to OUT with its tensors quantized to TYPE, exactly as llama.cpp does.

    TYPE is one of Q8_0, Q5_1, Q5_0, Q4_1, Q4_0, BF16, F16 and F32. Every eligible tensor gets
    it, as with `llama-quantize --pure`: matrices do, norms and other small tensors stay as they
    are, and a matrix whose rows do not divide into blocks becomes F16. OUT may be - for stdout.
    """
    if as_json and out == PIPE and not dry_run:
        raise click.UsageError("--json and a model cannot share stdout")
    with ggufkit.open(source) as model:
        quantized = ggufkit.quantize(model, type)
        pairs = list(zip(model.tensors.values(), quantized.tensors.values(), strict=True))
        _warn(pairs, type)
        paths = [] if dry_run else write_out(quantized, out, **work)
        if as_json:
            emit(_plain(pairs, paths))
        elif dry_run:
            _print(pairs)
        else:
            report(paths)


def _warn(pairs: list[Pair], target: str) -> None:
    again = [before for before, after in pairs if _loses_again(before, after)]
    if again:
        kinds = ", ".join(sorted({tensor.type.name for tensor in again}))
        note(
            f"{counted(len(again), 'tensor')} quantized already ({kinds}): quantizing again loses "
            "quality; begin with F32, F16 or BF16 if you can"
        )
    unfit = [after for before, after in pairs if _fell_back(before, after, target)]
    if unfit:
        held = counted(len(unfit), "tensor")
        note(f"{held} with rows that do not divide into blocks: {FALLBACK} instead of {target}")


def _loses_again(before: Tensor, after: Tensor) -> bool:
    return before.type != after.type and before.type.is_quantized


def _fell_back(before: Tensor, after: Tensor, target: str) -> bool:
    return before.type != after.type and after.type != tensor_type(target)


def _print(pairs: list[Pair]) -> None:
    rows = [
        (
            printable(after.name),
            " x ".join(map(str, after.shape)),
            before.type.name,
            after.type.name if after.type != before.type else "",
            f"{before.nbytes:,}",
            f"{after.nbytes:,}",
        )
        for before, after in pairs
    ]
    table(("TENSOR", "SHAPE", "TYPE", "BECOMES", "BYTES", "WILL BE"), rows, right="llllrr")
    click.echo()
    for label, tensors in (("now ", [a for a, _ in pairs]), ("then", [b for _, b in pairs])):
        bits = bits_per_weight(tensors)
        told = "" if bits is None else f", {bits:.2f} bits per weight"
        click.echo(f"{label}  {size(_nbytes(tensors))}{told}")


def _nbytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _plain(pairs: list[Pair], paths: list[Path]) -> dict[str, Any]:
    return {
        "files": [{"path": str(path), "nbytes": path.stat().st_size} for path in paths],
        "before": _totals(before for before, _ in pairs),
        "after": _totals(after for _, after in pairs),
        "tensors": [
            {
                "name": after.name,
                "shape": list(after.shape),
                "before": {"type": before.type.name, "nbytes": before.nbytes},
                "after": {"type": after.type.name, "nbytes": after.nbytes},
            }
            for before, after in pairs
        ],
    }


def _totals(tensors: Iterable[Tensor]) -> dict[str, Any]:
    held = list(tensors)
    return {"nbytes": _nbytes(held), "bits_per_weight": bits_per_weight(held)}
