"""Shows the files that `ggufkit convert` writes and their tensors: as text and as plain values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from ggufkit.cli.output import counted, dims, size, table
from ggufkit.errors import printable
from ggufkit.models.model import Model, bits_per_weight


def plain_outputs(outputs: list[tuple[Model, str]]) -> list[dict[str, Any]]:
    """Return each output as plain values, for JSON."""
    return [_plain(model, target) for model, target in outputs]


def _plain(model: Model, target: str) -> dict[str, Any]:
    tensors = list(model.tensors.values())
    return {
        "path": target,
        "architecture": model.metadata["general.architecture"],
        "nbytes": sum(tensor.nbytes for tensor in tensors),
        "bits_per_weight": bits_per_weight(tensors),
        "tensors": [
            {"name": t.name, "type": t.type.name, "shape": list(t.shape), "nbytes": t.nbytes}
            for t in tensors
        ],
    }


def print_outputs(outputs: list[tuple[Model, str]]) -> None:
    """Print the tensors of the first output, and a line for each output."""
    for model, _ in outputs[:1]:
        table(("TENSOR", "SHAPE", "TYPE", "BYTES"), _rows(model), right="lllr")
        click.echo()
    for model, target in outputs:
        tensors = list(model.tensors.values())
        bits = bits_per_weight(tensors)
        rate = "" if bits is None else f", {bits:.2f} bits per weight"
        nbytes = size(sum(tensor.nbytes for tensor in tensors))
        click.echo(f"{printable(target)}: {counted(len(tensors), 'tensor')}, {nbytes}{rate}")


def _rows(model: Model) -> Iterator[tuple[str, str, str, str]]:
    for tensor in model.tensors.values():
        shape = dims(tensor.shape)
        yield printable(tensor.name), shape, tensor.type.name, f"{tensor.nbytes:,}"
