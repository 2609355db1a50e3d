"""`ggufkit convert`: convert a Hugging Face checkpoint to GGUF."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

import ggufkit
from ggufkit.cli import convert_outputs, write_model
from ggufkit.cli import options as shared
from ggufkit.cli.output import note
from ggufkit.cli.pipes import keys_of
from ggufkit.cli.quantize_options import imatrix_option, parse_recipes, search_option
from ggufkit.cli.quantize_report import quantized_with_notes
from ggufkit.cli.streams import PIPE
from ggufkit.conversion.diffusion import checkpoint_files
from ggufkit.errors import TensorTypeError
from ggufkit.imatrix.matrix import Imatrix
from ggufkit.models.model import Model
from ggufkit.models.remote_resolvers import is_remote
from ggufkit.quantization.quantize import QuantizeOptions
from ggufkit.quantization.recipes import Recipe
from ggufkit.quants.search import Search
from ggufkit.remote.url import UrlPath

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Options that concern text models alone.
_NOT_OF_DIFFUSION: Final = (
    "name", "overrides", "mmproj", "with_mmproj", "mistral_format", "exactly",
)  # fmt: skip
_OF_TEXT_MODELS: Final = (
    "pre", "vocab_only", "mtp", "fuse_qkv", "fuse_gate_up_exps", "fp8_as_q8", "keep_quantized",
    "dense_modules", "target", "dspark", "no_community_template", "strict",
)  # fmt: skip
_OF_ALL_MODELS: Final = (
    "outtype", "name", "overrides", "arch", "part", "loader", "arch_path", "follow_links",
    "mistral_format", "exactly",
)  # fmt: skip
OUTTYPES: Final = ("auto", "f32", "f16", "bf16", "q8_0", "tq1_0", "tq2_0")


def _overrides(
    _ctx: click.Context, _param: click.Parameter, path: Path | None
) -> dict[str, Any] | None:
    if path is None:
        return None
    shared.will_read(str(path))
    return keys_of(str(path))


@shared.new_command(
    "convert",
    "ggufkit convert SmolLM2-135M smollm2.gguf",
    "ggufkit convert SmolLM2-135M models/ --quantize Q8_0,Q4_0",
    "ggufkit convert Qwen3.5-9B qwen-{ftype}.gguf --no-mtp",
    "ggufkit convert Llama-3.1-70B llama.gguf --shard-size 8G --outtype bf16",
    "ggufkit convert SmolLM2-135M smollm2.gguf --dry-run",
    "ggufkit convert hf://HuggingFaceTB/SmolLM2-135M smollm2.gguf --quantize Q4_K_M",
    "ggufkit convert SmolLM2-135M out.gguf --quantize Q4_K_M --imatrix im.gguf --search best",
    "ggufkit convert gemma-3-4b-it gemma.gguf --quantize Q4_K_M --with-mmproj mmproj.gguf",
    "ggufkit convert flux1-dev.safetensors models/ --quantize Q4_K_S,Q8_0",
    "ggufkit convert sdxl.safetensors vae.gguf --for sd.cpp --part vae",
    cls=shared.Command,
    groups=convert_outputs.OPTION_GROUPS,
)
@click.argument("source", metavar="IN")
@click.argument("out", metavar="OUT")
@shared.option(
    "--outtype",
    "Type of matrices; auto is BF16 or F16, depending on the checkpoint.",
    type=click.Choice(OUTTYPES),
    default="auto",
)
@shared.option(
    "--quantize recipes RECIPE[,RECIPE...]",
    "Quantize in the same pass; several recipes make several files.",
    type=parse_recipes,
)
@imatrix_option
@search_option
@shared.option("--name --model-name name", "Name of the model (general.name).")
@shared.option(
    "--metadata overrides FILE",
    "JSON file with general.* keys that replace the checkpoint's.",
    type=shared.FILE_PATH,
    callback=_overrides,
)
@shared.option("--pre NAME", "Name of the pre-tokenizer, if ggufkit does not recognize it.")
@shared.arch_path_option
@shared.flag("--follow-links", "Read files outside the folder that links in it lead to.")
@shared.option(
    "--arch NAME", "Architecture of an image or video model, if ggufkit does not recognize it."
)
@shared.option(
    "--for loader",
    "Program that reads an image or video model; sd.cpp is stable-diffusion.cpp.",
    type=click.Choice(checkpoint_files.LOADERS),
    default=checkpoint_files.COMFYUI,
)
@shared.option(
    "--part NAME",
    "Part of a pipeline, such as text_encoder_2 or vae.  [default: the image or video model; "
    "of a file for sd.cpp all parts]",
)
@shared.flag("--vocab-only", "Write metadata and vocabulary, no tensors.")
@click.option(
    "--mtp/--no-mtp",
    " /--no-nextn",
    "mtp",
    default=None,
    help="Write only the layers that predict further tokens, or leave them out.",
)
@shared.flag("--dspark", "Write only the draft model DSpark of DeepSeek V4.")
@shared.flag("--fuse-qkv", "Join the matrices of queries, keys and values of each layer.")
@shared.flag("--fuse-gate-up-exps", "Join the gate and up matrices of the experts of each layer.")
@shared.flag("--fp8-as-q8", "Store matrices that are FP8 in the checkpoint as Q8_0.")
@shared.flag(
    "--keep-quantized",
    "Keep weights of GPTQ, AWQ, AutoRound and compressed-tensors as Q4_0, Q4_1 or Q8_0 "
    "if that is exact.",
)
@shared.flag(
    "--sentence-transformers-dense-modules dense_modules",
    "Add the dense layers of sentence-transformers.",
)
@shared.option(
    "--target-model-dir target FOLDER",
    "Folder of the model that a draft model drafts for: it has the tokenizer.",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@shared.flag("--mistral-format", "Read Mistral's own files: params.json, tekken.json, ...")
@shared.flag(
    "--disable-mistral-community-chat-template no_community_template",
    "Write no name of a built-in chat template for Mistral's own format.",
)
@shared.flag("--strict", "Refuse fields of config.json that nothing reads.")
@shared.flag(
    "--exactly", "Follow llama.cpp's converter even where ggufkit departs from it on purpose."
)
@shared.flag("--bigendian", "Write the file for a big-endian machine.")
@shared.option(
    "--shard-size --split-max-size shard_size SIZE",
    "Write shards with at most this much tensor data each.",
    type=shared.parse_size,
)
@shared.option(
    "--shard-tensors --split-max-tensors shard_tensors N",
    "Write shards with at most this many tensors each.",
    type=int,
)
@shared.no_tensor_first_split_option
@shared.flag(
    "--mmproj",
    "Convert the multimodal projector, which turns pictures or sound into embeddings, and "
    "not the text model.",
)
@shared.option("--with-mmproj OUT2", "Also convert the projector, to the file or folder OUT2.")
@shared.no_clobber_option
@shared.threads_option
@shared.resume_option
@shared.cluster_option
@shared.flag("--dry-run", "Show what would be written; write nothing.")
@shared.flag("--json as_json", "Print the result as JSON.")
def command(  # noqa: PLR0913 (click passes each option)
    source: str,
    out: str,
    *,
    recipes: tuple[Recipe, ...] | None,
    imatrix: str | None,
    search: Search | None,
    mmproj: bool,
    with_mmproj: str | None,
    bigendian: bool,
    dry_run: bool,
    as_json: bool,
    **work: Any,
) -> None:
    """Convert the checkpoint in the folder IN to OUT, as llama.cpp's converter does.

    IN contains config.json, safetensors files and a tokenizer, or is a repository on the Hugging
    Face Hub (hf://org/repo), whose tensors are read while OUT is written. IN may also be an image
    or video model: a .safetensors, .ckpt or .pth file, or a folder of diffusers, or a .safetensors
    file on the Hub (hf://org/repo/file.safetensors) or at a URL. OUT is a file, -
    for stdout, or a folder; in a folder the file name follows a convention. In the name of OUT
    {ftype} stands for the type, such as q8_0, and {FTYPE} for the same in capitals. Adapters for
    tasks, which Jina Embeddings 3 has, become files next to the first output.
    """
    recipe_names = recipes or ()
    if out == PIPE and ((as_json and not dry_run) or len(recipe_names) > 1):
        raise click.UsageError("Only one model can go to stdout, and no JSON with it")
    chosen = {name: work.pop(name) for name in _OF_TEXT_MODELS}
    _require_possible(out, recipe_names, chosen, mmproj=mmproj, with_mmproj=with_mmproj)
    options = {name: work.pop(name) for name in _OF_ALL_MODELS} | {"say": note}
    if chosen["no_community_template"] and not options["mistral_format"]:
        raise click.UsageError(
            "--disable-mistral-community-chat-template goes with --mistral-format"
        )
    diffusion = {name: options[name] for name in ("arch", "part", "loader")}
    stem = _diffusion_stem(source, **diffusion, chosen=chosen)
    if not recipe_names and (imatrix or search):
        raise click.UsageError(f"{'--imatrix' if imatrix else '--search'} goes with --quantize")
    importance = Imatrix.open(imatrix) if imatrix else None
    blocks: QuantizeOptions = {"imatrix": importance, "search": search}
    kind = "vocab" if chosen["vocab_only"] else "mtp" if chosen["mtp"] else ""
    work |= {"byte_order": "big" if bigendian else None, "converter_shards": not recipe_names}
    with contextlib.ExitStack() as opened:
        model = opened.enter_context(ggufkit.convert(source, mmproj=mmproj, **chosen, **options))
        models = _quantized(model, recipe_names, options["outtype"], **blocks) or [model]
        outputs = [(name, convert_outputs.output_path(name, out, kind, stem)) for name in models]
        if not chosen["vocab_only"] and not stem:
            finding = {name: options[name] for name in ("arch_path", "follow_links")}
            adapters = convert_outputs.adapter_outputs(model, source, outputs[0][1], **finding)
            outputs += [(opened.enter_context(adapter), path) for adapter, path in adapters]
            _require_whole(len(outputs) - len(models), work)
        if with_mmproj is not None:
            projector = opened.enter_context(ggufkit.convert(source, mmproj=True, **options))
            outputs.append((projector, convert_outputs.output_path(projector, with_mmproj)))
        for place, (_, target) in ((out, outputs[0]), (with_mmproj, outputs[-1])):
            if place is not None and not dry_run and write_model.is_folder(place):
                opened.enter_context(convert_outputs.folder_of(target))
        convert_outputs.deliver_all(outputs, work, dry_run=dry_run, as_json=as_json)


def _require_possible(
    out: str,
    recipes: tuple[Recipe, ...],
    chosen: dict[str, Any],
    *,
    mmproj: bool,
    with_mmproj: str | None,
) -> None:
    """Raise UsageError for options that contradict each other."""
    if len(recipes) > 1 and not write_model.is_folder(out) and not convert_outputs.has_type(out):
        raise click.UsageError(
            "For several types OUT must be a folder (end it with /) or contain {ftype}"
        )
    if with_mmproj is not None and (mmproj or PIPE in (out, with_mmproj)):
        raise click.UsageError("--with-mmproj goes with a text model, and with files or folders")
    if chosen["vocab_only"] and (recipes or chosen["mtp"]):
        raise click.UsageError("--vocab-only writes no tensors: leave out --quantize and --mtp")
    if chosen["dspark"] and chosen["mtp"] is not None:
        raise click.UsageError("--dspark goes without --mtp and --no-mtp")
    if mmproj and (options := _set_options(*chosen)):
        names = ", ".join(options)
        raise click.UsageError(f"--mmproj converts only the projector: leave out {names}")


def _diffusion_stem(
    source: str, *, arch: str | None, part: str | None, loader: str, chosen: dict[str, Any]
) -> str:
    """Return the name of an image or video model, "" for a text model.

    Raises UsageError for options that concern the other kind alone.
    """
    place = checkpoint_files.place_of(source)
    if part is not None and place.is_dir():
        place = checkpoint_files.folder_of_part(place, part)
    is_whole_repository = is_remote(source) and not isinstance(place, UrlPath)
    if is_whole_repository and (part is not None or loader == checkpoint_files.SD_CPP):
        raise click.UsageError("--part and --for go with a file, such as hf://ORG/REPO/FILE")
    if arch is not None and loader == checkpoint_files.SD_CPP:
        raise click.UsageError("--arch goes with --for comfyui: sd.cpp reads any names")
    if is_whole_repository or not checkpoint_files.is_diffusion_source(place, loader):
        if arch is not None:
            raise click.UsageError("--arch goes with an image or video model")
        return ""
    if options := _set_options(*chosen, *_NOT_OF_DIFFUSION):
        raise click.UsageError(
            f"{source} is an image or video model: leave out {', '.join(options)}"
        )
    stem = place.resolve().name if place.is_dir() else place.stem
    return stem if part is None or place.is_dir() else f"{stem}-{part}"


def _require_whole(adapters: int, work: dict[str, Any]) -> None:
    """Raise UsageError for shards of adapters, which llama.cpp does not load."""
    splits = ("shard_size", "shard_tensors", "no_tensor_first_split")
    if adapters and (
        options := [f"--{option.replace('_', '-')}" for option in splits if work[option]]
    ):
        raise click.UsageError(
            "This model comes with adapters, which cannot be shards: leave out "
            f"{' and '.join(options)}"
        )


def _set_options(*names: str) -> list[str]:
    """Return which of the options `names` the user gave, as --help writes them."""
    context = click.get_current_context()
    return [
        (param.secondary_opts if context.params.get(param.name) is False else param.opts)[0]
        for param in context.command.params
        if param.name in names
        and context.get_parameter_source(param.name) is not ParameterSource.DEFAULT
    ]


def _quantized(
    model: Model, recipes: tuple[Recipe, ...], outtype: str, **options: Unpack[QuantizeOptions]
) -> list[Model]:
    """Return the quantized models; for quantized input, the error's remedy names our options."""
    several, options = len(recipes) > 1, {**options, "requantize_smaller": True}
    try:
        return [quantized_with_notes(model, one, of_several=several, **options) for one in recipes]
    except TensorTypeError as error:
        if "allow_requantize" not in error.remedy:
            raise
        hint = "Use --outtype f16, bf16 or f32 with --quantize" if outtype == "q8_0" else ""
        otherwise = "Convert without --quantize, then use ggufkit quantize --allow-requantize"
        raise TensorTypeError(error.message, remedy=hint or otherwise) from None
