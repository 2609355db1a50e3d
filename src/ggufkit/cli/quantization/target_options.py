"""Defines the options of `ggufkit quantize` for a target size, and chooses types for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from ggufkit.cli.options import parse_size
from ggufkit.cli.progress import progress_bar
from ggufkit.imatrix.matrix import Imatrix
from ggufkit.models.model import Model
from ggufkit.quantization.file_keys import SEARCH_KEY
from ggufkit.quantization.quantize import QuantizeOptions

_size = click.option(
    "--target-size",
    type=parse_size,
    metavar="SIZE",
    help="Choose types so that OUT has at most this size, such as 3.2GiB, with the least error.",
)
_bits = click.option(
    "--target-bpw",
    type=click.FloatRange(0, 32, min_open=True),
    metavar="BITS",
    help="Choose types with this many bits per weight on average and the least error.",
)


# Options that also choose types, or change which tensors there are.
_EXCLUDED: Final = (
    *("pure", "like", "leave_output_tensor", "output_tensor_type", "token_embedding_type"),
    *("tensor_types", "tensor_type_file", "layers", "keep_split"),
)
_FLAG: Final = {"tensor_types": "--tensor-type", "layers": "--prune-layers"}


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --target-size and --target-bpw to a command."""
    return _size(_bits(command))


def target_of(requested: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the requested target, None without one; refuse options that it excludes."""
    found = {"nbytes": requested["target_size"], "bpw": requested["target_bpw"]}
    given = [name for name, value in found.items() if value is not None]
    if not given:
        return None
    if len(given) > 1:
        raise click.UsageError("Use either --target-size or --target-bpw, not both")
    others = [_FLAG.get(key, f"--{key.replace('_', '-')}") for key in _EXCLUDED if requested[key]]
    if others:
        raise click.UsageError(f"A target size chooses the types itself; remove {others[0]}")
    return found


def aimed(
    model: Model, target: dict[str, Any], options: QuantizeOptions, threads: int | None
) -> QuantizeOptions:
    """Return `options` with types for a target; show progress on a terminal."""
    from ggufkit.quantization.target import target as types_for  # noqa: PLC0415 (most runs have no target)

    given = options.get("imatrix")
    parts = (options.get("include_weights", ()), options.get("exclude_weights", ()))
    opened = given if isinstance(given, Imatrix | None) else Imatrix.open(given)
    imatrix = opened and opened.selected(*parts)
    keys = dict(options.get("override_kv") or {})
    if options.get("search"):
        keys[SEARCH_KEY] = options["search"]  # the file will have this key too
    with progress_bar("measuring", in_bytes=False) as progress:
        types = types_for(
            model,
            **target,
            imatrix=imatrix,
            override_kv=keys,
            threads=threads,
            progress=progress,
        )
    selected: QuantizeOptions = {"imatrix": imatrix, "include_weights": (), "exclude_weights": ()}
    return {**options, **selected, "types": types}
