"""`ggufkit quantize`: quantize a model by a recipe, as llama-quantize does."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import click

import ggufkit
from ggufkit.cli import options as shared
from ggufkit.cli import quantize_options, quantize_report, write_model
from ggufkit.cli.model_argument import FILE, MODEL, open_any
from ggufkit.cli.output import note
from ggufkit.cli.progress import progress_bar
from ggufkit.cli.streams import PIPE
from ggufkit.format.types import tensor_type
from ggufkit.models.layers import parse_layers
from ggufkit.quantization import recipe_files
from ggufkit.quantization.decision import Quantization
from ggufkit.quantization.provenance import UNREAD, content_digest, with_provenance
from ggufkit.quantization.quantize import QuantizeOptions, decide, refuse
from ggufkit.quantization.recipes import ALIASES, ALL_RECIPES

# Options that name files.
_READ: Final = ("imatrix", "hessian", "sensitivity", "repair", "tensor_type_file", "like")
_WORK: Final = ("threads", "resume", "cluster")
GROUPS: Final[dict[str, str]] = {
    "Quality": "--imatrix --include-weights --exclude-weights --promote-uncovered --search "
    "--hessian",
    "Types of tensors": "--pure --leave-output-tensor --output-tensor-type --token-embedding-type "
    "--tensor-type --custom-q --tensor-type-file --like",
    "Target size": "--target-size --target-bpw --sensitivity --repair --repair-chunks",
    "Changes": "--prune-layers --override-kv --keep-split --keep-order --allow-requantize "
    "--requantize-smaller --provenance",
    "Output": "--output --dry-run --explain --json --no-clobber",
    "Work": "--threads --resume --cluster",
}
PLACE: Final = "{recipe}"  # in the name of an output, stands for the recipe's name
# The encoding at the end of a file's name.
_ENCODING: Final = re.compile(rf"[-._]({'|'.join((*ALL_RECIPES, *ALIASES))})$", re.IGNORECASE)


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in ALL_RECIPES if name.startswith(last.upper())]


@shared.new_command(
    "quantize",
    "ggufkit quantize model-f16.gguf model-Q4_K_M.gguf Q4_K_M",
    "ggufkit quantize model-f16.gguf model-IQ2_XS.gguf IQ2_XS --imatrix imatrix.gguf",
    "ggufkit quantize model-f16.gguf folder/ Q4_K_M,Q5_K_M,Q8_0",
    "ggufkit quantize model-f16.gguf out.gguf Q4_K_M --tensor-type attn_v=Q8_0 --dry-run",
    "ggufkit quantize model-f16.gguf out.gguf Q4_K_M --imatrix imatrix.gguf --search best",
    "ggufkit quantize model-f16.gguf out.gguf Q3_K_M --hessian model.hessian.gguf",
    "ggufkit quantize model-f16.gguf out.gguf mine.toml",
    "ggufkit quantize model-f16.gguf out.gguf --like other-UD-Q4_K_XL.gguf",
    "ggufkit quantize model-f16.gguf out.gguf --target-size 3.2GiB --imatrix imatrix.gguf",
    cls=shared.Command,
    groups=GROUPS,
)
@click.argument("source", metavar="IN", type=MODEL)
@click.argument("out", metavar="OUT", required=False)
@click.argument("recipe", metavar="RECIPE", required=False, shell_complete=_complete)
@quantize_options.imatrix_option
@shared.option(
    "--include-weights PART",
    "Use importance data only for tensors whose names contain PART.  [repeatable]",
    multiple=True,
)
@shared.option(
    "--exclude-weights PART",
    "Ignore importance data for tensors whose names contain PART.  [repeatable]",
    multiple=True,
)
@shared.flag(
    "--promote-uncovered",
    "If a type needs importance data that is missing, use the nearest type that does not.",
)
@quantize_options.search_option
@shared.option(
    "--hessian",
    "Feed errors back (GPTQ) by a file of `imatrix compute --hessian`; needs no --imatrix.",
    type=FILE,
)
@shared.flag("--pure", "Give every tensor the recipe's base type.")
@shared.flag("--leave-output-tensor", "Keep output.weight as it is.")
@shared.option(
    "--output-tensor-type TYPE",
    "Type of output.weight.",
    type=shared.usage(lambda text: tensor_type(text).name),
)
@shared.option(
    "--token-embedding-type TYPE",
    "Type of the token embeddings.",
    type=shared.usage(lambda text: tensor_type(text).name),
)
@shared.option(
    "--tensor-type tensor_types RE=TYPE",
    "Type of tensors whose names match RE anywhere; the first match counts.  [repeatable]",
    type=shared.usage(recipe_files.parse_tensor_type),
    multiple=True,
)
@shared.option(
    "--custom-q custom_types RE=TYPE,...",
    "Such rules in the form of ik_llama.cpp, before those of --tensor-type.  [repeatable]",
    type=shared.usage(recipe_files.parse_custom_types),
    multiple=True,
)
@shared.option(
    "--tensor-type-file FILE",
    "File with more RE=TYPE entries, separated by spaces or newlines.",
    type=click.Path(exists=True, dir_okay=False),
)
@shared.option(
    "--target-size SIZE",
    "Choose types so that OUT has at most this size, such as 3.2GiB, with the least error.",
    type=shared.parse_size,
)
@shared.option(
    "--target-bpw BITS",
    "Choose types with this many bits per weight on average and the least error.",
    type=click.FloatRange(0, 32, min_open=True),
)
@shared.option(
    "--sensitivity", "For a target size: use what `ggufkit sensitivity` measured on IN.", type=FILE
)
@shared.option(
    "--repair TEXT",
    "With --sensitivity: try types on this text, and keep those that predict it best.",
    type=FILE,
)
@shared.option(
    "--repair-chunks",
    "With --repair: read at most N chunks of 512 tokens for each try.  [default: "
    f"{quantize_options.REPAIR_CHUNKS}]",
    type=shared.Count(1),
)
@shared.option("--like GGUF", "Copy the type of each tensor from this model.", type=MODEL)
@shared.option(
    "--prune-layers layers LIST",
    "Remove these layers, such as 3,5-7, and renumber the others.",
    type=shared.usage(parse_layers),
)
@shared.option(
    "--override-kv KEY=TYPE:VALUE",
    "Set a key; TYPE is int, float, bool, str, or a GGUF type like array[int32].  [repeatable]",
    type=shared.usage(recipe_files.parse_override),
    multiple=True,
)
@shared.flag("--keep-split", "Write shards like the input's.")
@shared.flag("--keep-order", "Keep the tensors in the input's order.")
@shared.flag(
    "--allow-requantize", "Quantize tensors that are already quantized; this loses quality."
)
@shared.flag(
    "--requantize-smaller",
    "Quantize tensors that are already quantized only if they become smaller.",
)
@shared.flag(
    "--provenance",
    "Record digests of IN and the importance matrix, and all settings, for `reproduce`.",
)
@quantize_report.explain_option
@shared.no_clobber_option
@shared.threads_option
@shared.resume_option
@shared.cluster_option
@shared.flag("--dry-run", "Show the type and size of each tensor; write nothing.")
@shared.flag("--json as_json", "Print the result for each tensor as JSON.")
def command(source: str, out: str | None, recipe: str | None, **values: Any) -> None:
    """Quantize the model IN by RECIPE and write OUT, byte-identical to llama-quantize's output.

    With --search or --hessian, errors are smaller; the types and sizes of tensors stay the same.

    RECIPE is a name such as Q4_K_M (`ggufkit plan IN` lists all, with sizes) or a TOML file of your
    own. Several recipes are separated by commas; IN is then read only once. OUT is a file, or - for
    stdout. For several recipes OUT is a folder, or a name with {recipe} in it. A dry run needs no
    OUT, and --like and a target size need no RECIPE.
    """
    dry_run, as_json = values["dry_run"], values["as_json"]
    work = {key: values[key] for key in _WORK}
    target, threads = quantize_options.target_of(values), work["threads"]
    needs_recipe = not (values["like"] or target)
    if recipe is None and out is not None and needs_recipe:
        out, recipe = None, out
    if recipe is None and needs_recipe:
        raise click.UsageError(
            "Name a recipe, such as Q4_K_M, or copy the types of a model with --like"
        )
    if recipe is not None and target:
        raise click.UsageError(f"A target size chooses the types itself; remove {recipe}")
    if not dry_run:
        _require_output(source, out, recipe, values)
    recipes = quantize_options.parse_recipes(recipe) if recipe else (None,)
    with contextlib.ExitStack() as opened:
        model = opened.enter_context(open_any(source))
        options = _options(values, model, opened)
        if target:
            options = quantize_options.aimed(model, source, target, options, values)
        results = [decide(model, recipe, **options) for recipe in recipes]
        allowed = values["allow_requantize"] or values["requantize_smaller"]
        for result in results:
            if not dry_run:
                refuse(result, allow_requantize=allowed)
            quantize_report.warn(result, allowed=allowed, of_several=len(results) > 1)
        if values["provenance"]:
            content = UNREAD if dry_run else _content(model, threads)
            results = [with_provenance(result, options, content) for result in results]
        targets = [] if dry_run else _targets(source, out or "", results)
        paths = _write(results, targets, work)
        quantize_report.warn_of_feedback(results)
        pairs = zip(results, paths, strict=True) if values["explains"] else ()
        explanations = [
            quantize_report.explained(*pair, threads, aimed=bool(target)) for pair in pairs
        ]
        quantize_report.report_quantized(
            results, paths, dry_run=dry_run, as_json=as_json, explanations=explanations
        )


def _content(model: ggufkit.Model, threads: int | None) -> str:
    """Return the digest of the source, which is read once for all recipes."""
    with progress_bar("hashing") as bar:
        return content_digest(model, threads, bar)


def _require_output(
    source: str, out: str | None, recipe: str | None, options: Mapping[str, Any]
) -> None:
    """Raise an error for an output that cannot be written, or not with these options."""
    if out is None:
        words = "OUT RECIPE" if recipe else "OUT"
        raise click.UsageError(f"Name the output: ggufkit quantize {source} {words}")
    if out == PIPE and options["as_json"]:
        raise click.UsageError("--json and the model cannot both go to stdout")
    if out == PIPE and options["explains"]:
        raise click.UsageError("--explain reads the written file again, so OUT cannot be -")
    inputs = [options[option] for option in _READ if options[option]]
    write_model.refuse_input(out, (*inputs, *(recipe or "").split(",")))


def _options(
    values: Mapping[str, Any], model: ggufkit.Model, opened: contextlib.ExitStack
) -> QuantizeOptions:
    """Return the options of the command as `ggufkit.quantize` names them."""
    if values["include_weights"] and values["exclude_weights"]:
        raise click.UsageError("Use either --include-weights or --exclude-weights, not both")
    listed = values["tensor_type_file"]
    converted = {
        "tensor_types": (
            *itertools.chain.from_iterable(values["custom_types"]),
            *values["tensor_types"],
            *(
                recipe_files.matching(
                    shared.usage(recipe_files.read_tensor_types)(listed), model, note, listed
                )
                if listed
                else ()
            ),
        ),
        "layers": values["layers"] or (),
        "override_kv": dict(values["override_kv"]),
        "like": values["like"] and opened.enter_context(ggufkit.open(values["like"])),
    }
    unchanged = {key: values[key] for key in QuantizeOptions.__annotations__ if key in values}
    return cast("QuantizeOptions", unchanged | converted)


def _targets(source: str, out: str, results: Sequence[Quantization]) -> list[str]:
    """Return the output of each recipe: a name with the recipe's, or a file in a folder."""
    if PLACE in out:
        return [out.replace(PLACE, result.recipe.name) for result in results]
    if write_model.is_folder(out):
        stem = _ENCODING.sub("", write_model.stem_of(source))
        return [str(Path(out) / f"{stem}-{result.recipe.name}.gguf") for result in results]
    if len(results) > 1:
        raise click.UsageError(
            f"Several recipes need a folder, or a name such as model-{PLACE}.gguf, not {out}"
        )
    return [out]


def _write(
    results: Sequence[Quantization], targets: Sequence[str], work: dict[str, Any]
) -> list[list[Path]]:
    if not targets:
        return [[] for _ in results]
    for target in targets if len(targets) > 1 else ():
        Path(target).parent.mkdir(parents=True, exist_ok=True)
    outputs = [(result.model, target) for result, target in zip(results, targets, strict=True)]
    return write_model.write_all(outputs, shard_counts=results[0].shard_counts, **work)
