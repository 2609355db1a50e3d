"""`ggufkit sensitivity`: measure how much predictions suffer from each group of tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ggufkit.cli import options as shared
from ggufkit.cli import streams
from ggufkit.cli.model_argument import FILE, MODEL
from ggufkit.cli.output import counted, note, paged, table
from ggufkit.cli.progress import progress_bar
from ggufkit.cli.write_model import may_replace, refuse_input, report, require_place
from ggufkit.errors import printable
from ggufkit.quantization.losses.sensitivities import Sensitivity
from ggufkit.reports.drawings import sensitivity_drawing, svg_file
from ggufkit.system.staging import write_whole


@shared.new_command(
    "sensitivity",
    "ggufkit sensitivity model-F16.gguf text.txt -o model.sensitivity.json",
    "ggufkit sensitivity model-F16.gguf text.txt --imatrix imatrix.gguf --chunks 4",
    "ggufkit sensitivity model-F16.gguf text.txt --quant model-Q4_K_M.gguf -o layers.svg",
)
@click.argument("model", metavar="MODEL", type=MODEL)
@click.argument("text", metavar="TEXT", type=FILE)
@shared.output_option("sensitivity.json")
@shared.option("--imatrix", "Weight errors by this importance matrix.", type=FILE)
@shared.option(
    "--quant QUANT", "Measure the layers of this quant of MODEL instead, one at a time.", type=MODEL
)
@shared.option(
    "--sections",
    "Parts of the layers: tensors of a kind in a part are one group. More parts take longer.  "
    "[default: 4]",
    type=shared.Count(1),
)
@shared.option(
    "--context", "Tokens per chunk.", type=shared.TokenCount(8, shared.MAX_CONTEXT), default=512
)
@shared.chunks_option
@shared.no_clobber_option
@shared.threads_option
@shared.flag("--json as_json", "Print what was measured as JSON.")
def command(model: str, text: str, *, out: str, as_json: bool, **options: Any) -> None:
    """Quantize each group of MODEL's tensors alone, and measure what that does to predictions.

    A group holds the tensors of one kind in some neighbouring layers. The file TEXT is read twice
    for each group, with llama.cpp's Python binding, the extra ggufkit[llama]. MODEL is F32, F16 or
    BF16. `ggufkit quantize --target-size` uses the result. If OUT ends in .svg, it is a
    bar chart.
    """
    from ggufkit.quantization.sensitivity import (  # noqa: PLC0415 (needs the extra)
        SECTIONS,
        measure_sensitivity,
    )

    if options["quant"] and options["sections"]:
        raise click.UsageError("Use either --quant or --sections, not both")
    options["sections"] = options["sections"] or SECTIONS
    refuse_input(out, (model, text, *filter(None, (options["imatrix"], options["quant"]))))
    require_place(out)
    with progress_bar("measuring", in_bytes=False) as progress:
        sensitivity = measure_sensitivity(model, text, progress=progress, **options)
    if Path(out).suffix == ".svg":
        picture = svg_file(sensitivity_drawing(sensitivity)).encode()
        write_whole(Path(out), picture, limit=sensitivity.limit, clobber=may_replace())
    else:
        sensitivity.save(out, clobber=may_replace())
    streams.work_is_done()
    if as_json:
        click.echo(sensitivity.to_json(), nl=False)
        return
    _print(sensitivity)
    report([Path(out)])


def _print(sensitivity: Sensitivity) -> None:
    groups = (group for group in sensitivity.groups if group.levels)
    measured = sorted(groups, key=lambda group: -max(level.divergence for level in group.levels))
    rows = [
        (
            "" if number else printable(group.name),
            level.type,
            f"{level.bits:.2f}",
            f"{level.error:.2%}",
            f"{level.divergence:.6f} ± {level.standard_error:.6f}",
        )
        for group in measured
        for number, level in enumerate(reversed(group.levels))
    ]
    with paged():
        table(("GROUP", "TYPE", "BITS", "ERROR", "MEAN KLD"), rows, right="llrrr")
        click.echo(f"{counted(sensitivity.predictions, 'token')} predicted")
    for group in measured:
        for smaller, larger in group.disagreements:
            note(
                f"{group.name}: {larger.type} is larger than {smaller.type}, but predicts no better"
            )
