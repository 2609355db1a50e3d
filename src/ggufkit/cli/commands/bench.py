"""`ggufkit bench`: measure how fast this machine encodes and decodes."""

from __future__ import annotations

from typing import Any, Final

import click
import numpy as np

import ggufkit
from ggufkit.cli.options import threads_option
from ggufkit.cli.output import counted, emit, examples
from ggufkit.errors import GGUFError
from ggufkit.format.types import TensorType
from ggufkit.quants.codec import encodable
from ggufkit.system.cpu import instruction_set

MILLION: Final = 1e6
COLUMN: Final = 12  # characters of a rate


def parse_types(_ctx: click.Context, _param: click.Parameter, text: str | None) -> Any:  # noqa: ANN401 (click's signature)
    """Return the tensor types of a list with commas, without duplicates."""
    if text is None:
        return None
    try:
        kinds = [encodable(name.strip()) for name in dict.fromkeys(text.split(","))]
    except GGUFError as error:
        raise click.BadParameter(str(error)) from None
    if integers := [kind.name for kind in kinds if kind.dtype and np.dtype(kind.dtype).kind == "i"]:
        raise click.BadParameter(f"{', '.join(integers)}: types of whole numbers encode no weights")
    return kinds


@click.command(
    "bench",
    epilog=examples(
        "ggufkit bench",
        "ggufkit bench --types Q4_K,Q6_K,IQ4_XS --weighted",
        "GGUFKIT_ISA=v2 ggufkit bench --types Q8_0",
        "ggufkit bench --json | jq '.rates[] | [.type, .encode]'",
    ),
)
@click.option(
    "--types",
    metavar="TYPE,...",
    callback=parse_types,
    help="Types to measure.  [default: all quantized types, F16 and BF16]",
)
@click.option("--weighted", is_flag=True, help="Encode with importance weights.")
@threads_option
@click.option("--json", "as_json", is_flag=True, help="Print the rates as JSON.")
def command(
    *, types: list[TensorType] | None, weighted: bool, threads: int | None, as_json: bool
) -> None:
    """Measure how fast this machine encodes and decodes each tensor type.

    Rates are millions of elements per second, on one core and with all threads. The data is
    larger than the caches. Each rate is the median of five runs; a line takes a second or two.
    """
    rates = ggufkit.bench(types, threads=threads, weighted=weighted)
    if as_json:
        emit(
            {
                "instruction_set": instruction_set(),
                "rates": [vars(rate) | {"type": rate.type.name} for rate in rates],
            }
        )
        return
    for number, rate in enumerate(rates):
        several = rate.threads > 1
        if number == 0:
            threaded = f", {counted(rate.threads, 'thread')}" if several else ""
            click.echo(f"M elements/s on one core{threaded}; instruction set {instruction_set()}")
            counts = ["", f" x{rate.threads}"][: 1 + several]
            heads = "".join(
                f"{what + count:>{COLUMN}}" for what in ("ENCODE", "DECODE") for count in counts
            )
            click.echo(click.style(f"{'TYPE':8}{'BITS':>8}{heads}", bold=True))
        encode = [rate.encode, rate.encode_threaded][: 1 + several]
        decode = [rate.decode, rate.decode_threaded][: 1 + several]
        cells = "".join(f"{value / MILLION:{COLUMN},.0f}" for value in encode + decode)
        click.echo(f"{rate.type.name:8}{rate.type.bits_per_weight:8.4g}{cells}")
