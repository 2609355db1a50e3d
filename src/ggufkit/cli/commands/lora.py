"""`ggufkit lora`: convert, merge and extract LoRA adapters."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click

import ggufkit
from ggufkit.cli import options as shared
from ggufkit.cli.model_argument import FILE, is_checkpoint, open_any
from ggufkit.cli.output import counted, emit, examples, is_quiet, note, paged, table
from ggufkit.cli.progress import progress_bar
from ggufkit.cli.quantize_options import parse_recipe
from ggufkit.cli.quantize_report import quantized_with_notes
from ggufkit.cli.streams import PIPE
from ggufkit.cli.write_model import deliver, write_out
from ggufkit.diffusion.architecture import is_diffusion
from ggufkit.errors import AdapterError, MissingImportanceError, TensorTypeError, printable
from ggufkit.lora.image_adapter import open_image_adapter
from ggufkit.lora.peft import CONFIG
from ggufkit.models.model import Model
from ggufkit.quantization.recipes import Recipe

base_option: shared.SharedOption = shared.option(
    "--base FOLDER",
    "Folder of the model that the adapter is for; only config.json is read. A folder that the "
    "adapter names is never opened.",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)


@click.group(
    "lora",
    epilog=examples(
        "ggufkit lora convert adapter/ adapter.gguf --base SmolLM2-135M",
        "ggufkit lora merge model.gguf adapter.gguf -o merged.gguf",
    ),
)
def command() -> None:
    """Work with LoRA adapters: small files that change what a model answers."""


@command.command(
    "convert",
    cls=shared.Command,
    short_help="Convert an adapter of PEFT or MLX to GGUF.",
    epilog=examples(
        "ggufkit lora convert adapter/ adapter.gguf --base SmolLM2-135M",
        "ggufkit lora convert adapter/ adapter.gguf --base model/ --outtype f16",
    ),
)
@click.argument("source", metavar="IN")
@click.argument("out", metavar="OUT")
@base_option
@shared.option(
    "--outtype",
    "Type of the adapter's matrices; auto is BF16 or F16, depending on the adapter.",
    type=click.Choice(("f32", "f16", "bf16", "q8_0", "auto")),
    default="f32",
)
@shared.option("--name", "Name of the adapter (general.name).")
@shared.arch_path_option
@shared.no_clobber_option
@shared.threads_option
@shared.dry_run_option
@shared.json_option
def convert(
    source: str, out: str, *, dry_run: bool, as_json: bool, threads: int | None, **options: Any
) -> None:
    """Convert the adapter in the folder IN to OUT, exactly as convert_lora_to_gguf.py does.

    IN contains adapter_config.json and adapter_model.safetensors (PEFT) or adapters.safetensors
    (MLX), or is a repository on the Hub: hf://org/adapter. OUT may be - for stdout.
    """
    with ggufkit.convert_lora(source, say=note, **options) as adapter:
        deliver(adapter, out, dry_run=dry_run, as_json=as_json, threads=threads)


@command.command(
    "merge",
    short_help="Merge adapters into a model.",
    epilog=examples(
        "ggufkit lora merge model.gguf adapter.gguf -o merged.gguf",
        "ggufkit lora merge model.gguf style.gguf facts.gguf --scale 0.5 --scale 1 -o merged.gguf",
        "ggufkit lora merge SmolLM2-135M adapter/ -o merged.gguf --quantize Q4_K_M",
        "ggufkit lora merge flux1-dev.safetensors style.safetensors -o flux.gguf --quantize Q4_K_S",
    ),
)
@click.argument("base", metavar="BASE", type=FILE)
@click.argument("adapters", metavar="ADAPTER...", nargs=-1, required=True, type=FILE)
@shared.option("-o --output out OUT", "The file to write.", required=True)
@shared.option(
    "--scale scales NUMBER",
    "Strength of each adapter, in their order.  [repeatable; default: 1]",
    type=float,
    multiple=True,
)
@shared.option(
    "--outtype",
    "Type of the matrices that change.  [default: keep, the type that they have in BASE]",
    type=click.Choice(("keep", "f32", "f16", "bf16")),
)
@shared.option("--quantize recipe TYPE", "Quantize the sum, in the same pass.", type=parse_recipe)
@shared.option("--imatrix", "Importance matrix for --quantize.", type=FILE)
@shared.flag("--allow-requantize", "Let --quantize change tensors that are quantized in BASE.")
@shared.no_clobber_option
@shared.threads_option
@shared.dry_run_option
@shared.json_option
def merge(  # noqa: PLR0913 (click passes each option)
    base: str,
    adapters: tuple[str, ...],
    *,
    out: str,
    scales: tuple[float, ...],
    outtype: str | None,
    recipe: Recipe | None,
    imatrix: str | None,
    allow_requantize: bool,
    **work: Any,
) -> None:
    """Add the adapters ADAPTER to the model BASE, and write the sum to OUT.

    The sum is computed in float32 and rounded once. BASE is a GGUF model or a checkpoint folder, an
    ADAPTER a GGUF file or, for a checkpoint, the folder of an adapter. BASE may also be an image or
    video model, as GGUF or in the files that `ggufkit convert` reads; an ADAPTER is then a
    safetensors file of kohya's scripts, diffusers or PEFT. OUT may be - for stdout.
    """
    if scales and len(scales) != len(adapters):
        raise click.UsageError(
            f"{counted(len(scales), '--scale')} for {counted(len(adapters), 'adapter')}; give one "
            "for each, or none"
        )
    if recipe is None and (imatrix or allow_requantize):
        raise click.UsageError("--imatrix and --allow-requantize need --quantize")
    with contextlib.ExitStack() as opened:
        model = opened.enter_context(open_any(base))
        is_image_model = is_diffusion(model.architecture, model.tensors)
        opening = open_image_adapter if is_image_model else lambda path: _adapter(path, base)
        added = [opened.enter_context(opening(adapter)) for adapter in adapters]
        target = outtype or ("f32" if recipe else "keep")
        merged = ggufkit.merge_lora(model, added, scales=scales, outtype=target, say=note)
        if recipe:
            merged = _quantized(merged, recipe, imatrix, allow_requantize=allow_requantize)
        deliver(merged, out, **work)


def _adapter(path: str, base: str) -> Model:
    if not (Path(path) / CONFIG).is_file():
        return ggufkit.open(path)
    if not is_checkpoint(base):
        raise AdapterError(
            f"{path} is the folder of an adapter, but {base} is not the folder of a model",
            remedy="Convert the adapter first: `ggufkit lora convert`",
        )
    return ggufkit.convert_lora(path, base=base, say=note)


def _quantized(
    model: Model, recipe: Recipe, imatrix: str | None, *, allow_requantize: bool
) -> Model:
    """Return the quantized model; remedies name our options."""
    try:
        return quantized_with_notes(
            model, recipe, imatrix=imatrix, allow_requantize=allow_requantize
        )
    except MissingImportanceError as error:
        raise MissingImportanceError(error.message, remedy="Add --imatrix FILE") from None
    except TensorTypeError as error:
        if "allow_requantize" not in error.remedy:
            raise
        remedy = "Merge into the original model, or add --allow-requantize"
        raise TensorTypeError(error.message, remedy=remedy) from None


@command.command(
    "extract",
    cls=shared.Command,
    short_help="Extract an adapter from a model and its fine-tune.",
    epilog=examples(
        "ggufkit lora extract model.gguf tuned.gguf adapter.gguf --rank 32",
        "ggufkit lora extract model.gguf tuned.gguf adapter.gguf --rank 64 --outtype f16",
    ),
)
@click.argument("base", metavar="BASE", type=FILE)
@click.argument("tuned", metavar="TUNED", type=FILE)
@click.argument("out", metavar="OUT")
@shared.option(
    "--rank",
    "Rank of the adapter: a larger one loses less and takes more space.",
    type=shared.Count(min=1),
    required=True,
)
@shared.option(
    "--outtype",
    "Type of the adapter's matrices.",
    type=click.Choice(("f32", "f16", "bf16")),
    default="f32",
)
@shared.no_clobber_option
@shared.threads_option
@shared.flag("--json as_json", "Print the errors as JSON.")
def extract(  # noqa: PLR0913 (click passes each option)
    base: str, tuned: str, out: str, *, rank: int, outtype: str, threads: int | None, as_json: bool
) -> None:
    """Write the adapter that brings the model BASE closest to its fine-tune TUNED to OUT.

    Both are GGUF models or checkpoint folders, best unquantized. For each matrix the adapter keeps
    the N largest singular values of the difference. The table shows what is lost.
    """
    if as_json and out == PIPE:
        raise click.UsageError("--json and the adapter cannot both go to stdout")
    with open_any(base) as before, open_any(tuned) as after:
        with progress_bar("extracting", in_bytes=False) as bar:
            lora = ggufkit.extract_lora(
                before, after, rank=rank, outtype=outtype.upper(), progress=bar
            )
        paths = write_out(lora.model, out, threads=threads)
    if as_json:
        emit([t._asdict() for t in lora.tensors])
        return
    if paths:
        rows = [
            (printable(t.name), str(t.rank), f"{t.changed:.2e}", f"{t.lost:.1%}")
            for t in sorted(lora.tensors, key=lambda t: t.changed * t.lost, reverse=True)
        ]
        with paged():
            table(("TENSOR", "RANK", "CHANGED", "LOST"), rows, right="lrrr")
        for path in () if is_quiet() else paths:
            click.echo(f"wrote {printable(str(path))}")
