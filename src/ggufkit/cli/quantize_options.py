"""Defines the options of `ggufkit quantize` for a target size, and chooses types for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import click

from ggufkit.cli.model_argument import FILE
from ggufkit.cli.options import SharedOption, option, usage
from ggufkit.cli.output import note
from ggufkit.cli.progress import progress_bar
from ggufkit.format.types import TensorType
from ggufkit.models.model import Model
from ggufkit.quantization.file_keys import SEARCH_KEY, hessian_keys
from ggufkit.quantization.quantize import QuantizeOptions, hessian_of, opened_imatrix
from ggufkit.quantization.recipe_files import RECIPE_SUFFIX, read_recipe
from ggufkit.quantization.recipes import KEEP_ALL, Recipe, find_recipe
from ggufkit.quants.search import EFFORTS, UNSEARCHED

imatrix_option: SharedOption = option(
    "--imatrix", "Weight the errors of quantizing by this importance matrix.", type=FILE
)
search_option: SharedOption = option(
    "--search",
    "Look for blocks with smaller errors than llama-quantize's, in all types but "
    f"{', '.join(UNSEARCHED)}.",
    type=click.Choice(list(EFFORTS)),
)


@usage
def parse_recipe(text: str) -> Recipe:
    """Return a recipe by its name or its file; BadParameter for an unknown one."""
    name = text.strip()
    return read_recipe(name) if name.endswith(RECIPE_SUFFIX) else find_recipe(name)


def parse_recipes(text: str) -> tuple[Recipe, ...]:
    """Return the recipes of a list such as "Q4_K_M,Q8_0" or "mine.toml", each once."""
    recipes = map(parse_recipe, text.split(","))
    return tuple({recipe.name: recipe for recipe in recipes}.values())


REPAIR_CHUNKS: Final = 8
# Options that also choose types, or change which tensors there are.
_EXCLUDED: Final = (
    *("pure", "like", "leave_output_tensor", "output_tensor_type", "token_embedding_type"),
    *("tensor_types", "custom_types", "tensor_type_file", "layers", "keep_split"),
)
_FLAG: Final = {
    "tensor_types": "--tensor-type",
    "custom_types": "--custom-q",
    "layers": "--prune-layers",
}


def target_of(requested: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the requested target, None without one; refuse options that it excludes."""
    targets = {"nbytes": requested["target_size"], "bpw": requested["target_bpw"]}
    names = [name for name, value in targets.items() if value is not None]
    if requested["repair"] and not requested["sensitivity"]:
        raise click.UsageError("Missing option '--sensitivity': --repair begins with it")
    if requested["repair_chunks"] and not requested["repair"]:
        raise click.UsageError("Missing option '--repair': --repair-chunks is for its text")
    if not names:
        if requested["sensitivity"]:
            raise click.UsageError("--sensitivity is for --target-size or --target-bpw")
        return None
    if math.isnan(targets["bpw"] or 0):
        raise click.UsageError("--target-bpw is not a number")
    if len(names) > 1:
        raise click.UsageError("Use either --target-size or --target-bpw, not both")
    others = [_FLAG.get(key, f"--{key.replace('_', '-')}") for key in _EXCLUDED if requested[key]]
    if others:
        raise click.UsageError(f"A target size chooses the types itself; remove {others[0]}")
    return targets | {"sensitivity": requested["sensitivity"]}


def aimed(
    model: Model,
    path: str,
    target: dict[str, Any],
    options: QuantizeOptions,
    requested: Mapping[str, Any],
) -> QuantizeOptions:
    """Return `options` with types for a target; show progress on a terminal.

    `requested` are the options of the command: with `provenance`, the size counts its keys.
    """
    from ggufkit.quantization.target import CANDIDATES, eligible  # noqa: PLC0415 (most runs have no target)
    from ggufkit.quantization.target import target as types_for  # noqa: PLC0415

    parts = (options.get("include_weights", ()), options.get("exclude_weights", ()))
    opened = opened_imatrix(options.get("imatrix"))
    hessian = hessian_of(options)
    data = hessian.importance() if hessian and opened is None else opened
    imatrix = data and data.selected(*parts)
    # The file will have these keys too.
    keys = {**(options.get("override_kv") or {}), **dict(hessian_keys(hessian))}
    if options.get("search"):
        keys[SEARCH_KEY] = options["search"]
    choices: QuantizeOptions = {**options, "imatrix": opened}
    if requested["provenance"]:
        from ggufkit.quantization.provenance import unread_keys  # noqa: PLC0415 (slow to import)

        longest = dict.fromkeys((t.name for t in eligible(model)), max(CANDIDATES, key=len))
        keys |= unread_keys(KEEP_ALL, {**choices, "types": longest})
    if requested["repair"]:
        whole: QuantizeOptions = {**options, "imatrix": imatrix, "override_kv": keys}
        return {**choices, "types": _repaired(path, target, whole, requested)}
    threads = requested["threads"]
    with progress_bar("measuring", in_bytes=False) as progress:
        types = types_for(
            model, **target, imatrix=imatrix, override_kv=keys, threads=threads, progress=progress
        )
    return {**choices, "types": types}


def _repaired(
    path: str, target: dict[str, Any], options: QuantizeOptions, requested: Mapping[str, Any]
) -> dict[str, TensorType]:
    """Return the types that predict a text best, and tell what was tried."""
    from ggufkit.quantization.repair import repair  # noqa: PLC0415 (needs an extra)

    with progress_bar("trying", in_bytes=False) as progress:
        repaired = repair(
            *(path, requested["repair"]),
            **target,
            **options,
            chunks=requested["repair_chunks"] or REPAIR_CHUNKS,
            threads=requested["threads"],
            progress=progress,
        )
    for trial in repaired.trials:
        verdict = "kept" if trial.is_kept else "not better"
        note(f"mean KLD {trial.divergence:.6f} ({verdict}): {trial.what}")
    return repaired.types
