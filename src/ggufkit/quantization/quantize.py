"""Quantize a model as llama-quantize does: the files written are byte-identical.

`recipes.toml` has the recipes, `type_choice.py` picks each tensor's type; this applies them.
Source: `llama_model_quantize_impl` and `tools/quantize` of llama.cpp.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast

import numpy as np

from ggufkit.errors import MissingImportanceError, TensorTypeError, ValueTypeError
from ggufkit.format.arguments import mapping, require_known, texts, whole_numbers
from ggufkit.format.file_types import FILE_TYPES
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.models.any_model import AnyModel, as_model, derives_model, opened, require_weights
from ggufkit.models.layers import block_count, layer_of, prune_layers, tensor_names
from ggufkit.models.model import Model, Tensor, Tensors
from ggufkit.models.sources import retyped
from ggufkit.quantization.choice.conditions import ModelFacts
from ggufkit.quantization.choice.type_choice import (
    Choice,
    TypeRequests,
    as_written,
    choose,
    facts_of,
    in_written_order,
    require_names,
    role_of,
    unmatched,
)
from ggufkit.quantization.decision import Decision, Quantization
from ggufkit.quantization.file_keys import (
    file_type_of,
    hessian_keys,
    imatrix_keys,
    number_for,
    search_keys,
    stamped,
)
from ggufkit.quantization.recipes import (
    ALL_RECIPES,
    KEEP_ALL,
    PROMOTED,
    Recipe,
    find_recipe,
    patterns_of,
)
from ggufkit.quants import codec, kernels
from ggufkit.quants.codec import AnyType
from ggufkit.quants.search import Search, check_search, worthwhile_search
from ggufkit.system.descriptors import AnyPath

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ggufkit.imatrix.hessian import Hessian
    from ggufkit.imatrix.matrix import Imatrix


_HESSIAN_OPTIONS: Final = ("hessian", "include_weights", "exclude_weights")


class QuantizeOptions(TypedDict, total=False):
    """The options of `quantize` after the recipe."""

    imatrix: Imatrix | AnyPath | None
    include_weights: Sequence[str]
    exclude_weights: Sequence[str]
    pure: bool
    leave_output_tensor: bool
    output_tensor_type: AnyType | None
    token_embedding_type: AnyType | None
    tensor_types: Iterable[tuple[str, AnyType]]
    types: Mapping[str, AnyType] | None
    like: AnyModel | None
    layers: Iterable[int]
    override_kv: Mapping[str, object] | None
    keep_split: bool
    keep_order: bool
    requantize_smaller: bool
    promote_uncovered: bool
    search: Search | None
    hessian: Hessian | AnyPath | None


@derives_model
def quantize(
    model: Model,
    recipe: str | int | Recipe | None = None,
    *,
    allow_requantize: bool = False,
    **options: Unpack[QuantizeOptions],
) -> Model:
    """Return `model` quantized by a recipe, as llama-quantize would; no tensor data is read.

    `recipe` is a name such as "Q4_K_M" (any case), its number in general.file_type, or a `Recipe`.
    Options have the meaning of llama-quantize's flags: `imatrix` (an `Imatrix` or the path of
    one) with `include_weights` or `exclude_weights` (parts of names), `pure`,
    `leave_output_tensor`, `output_tensor_type`, `token_embedding_type`, `tensor_types` (pairs of a
    regular expression and a type; the first match in a name decides), `layers` to prune,
    `override_kv` (keys and values), `keep_split` and `allow_requantize`.

    ggufkit's own options: `types` gives types by exact name of the tensor, `like` copies the types
    of another model, and without a recipe all other tensors keep their type. `keep_order` keeps the
    order of the input's tensors. `requantize_smaller` allows to quantize again what is quantized
    already, but only where it becomes smaller; other such tensors keep their bits, where
    llama-quantize would make them larger or round them again. `promote_uncovered` takes the nearest
    type that needs no importance data. `search` ("better" or "best") looks for blocks with smaller
    errors than ggml's; the output then differs from llama-quantize's, and the key `quantize.search`
    says so. `hessian` (the path of a file that `compute_imatrix` wrote) feeds errors back from
    column to column; its diagonal is the importance data if `imatrix` is missing.

    Raises TensorTypeError for an unknown recipe, for types that cannot be decoded or encoded, and
    for tensors that are quantized already unless `allow_requantize`; MissingImportanceError with
    the list of tensors if data is missing; ShapeError if its shape does not fit.
    """
    with contextlib.ExitStack() as stack:  # of another model only types and keys are used
        like = options.get("like")
        if like is not None:
            options["like"] = stack.enter_context(opened(like, "like"))
        result = decide(model, recipe, **options)
    refuse(result, allow_requantize=allow_requantize or options.get("requantize_smaller", False))
    return result.model


def decide(
    model: Model, recipe: str | int | Recipe | None = None, **options: Unpack[QuantizeOptions]
) -> Quantization:
    """Make the decisions of `quantize`, but raise no error for results that can be shown."""
    require_known(options, QuantizeOptions.__annotations__, "quantize")
    require_weights(model)
    chosen, keep = _recipe(recipe, options.get("like")), options.get("keep_split", False)
    hessian, requests = hessian_of(options), _requests(options)
    data, idle = _selected(options, hessian)
    overrides = Metadata(mapping("override_kv", options.get("override_kv")))
    facts = facts_of(model.metadata.updated(overrides), model.tensors)  # as llama.cpp's loader
    pruned, names = _pruned(model, frozenset(whole_numbers("layers", options.get("layers", ()))))
    tensors = [as_written(tensor, facts) for tensor in pruned.tensors.values()]
    walked = in_written_order(tensors, facts, keeps_split=keep or chosen.program is not None)
    choices = choose(walked, facts, chosen, requests, imatrix=data is not None)
    search, promote = check_search(options.get("search")), options.get("promote_uncovered", False)
    decide_one = functools.partial(
        _decision, chosen, facts, data=data, names=names, promote=promote, search=search
    )
    ordered = tensors if options.get("keep_order", False) else walked
    decisions = tuple(decide_one(tensor, choices.pop(tensor.name)) for tensor in ordered)
    if options.get("requantize_smaller", False):
        decisions = tuple(map(_unless_larger, decisions))
    decisions = _with_feedback(decisions, names, hessian)
    block_count_key = block_count(pruned.metadata)[0] if names else None
    metadata = stamped(
        pruned.metadata,
        number_for(chosen, pruned.metadata, [(d.before, d.after) for d in decisions]),
        *overrides.typed_items(),
        *imatrix_keys(data),
        *search_keys(decision.search for decision in decisions),
        *hessian_keys(hessian),
        *([(block_count_key, pruned.metadata.typed(block_count_key))] if block_count_key else ()),
        in_place=facts.diffusion is not None,
    )
    metadata = pruned.metadata if facts.is_sd_cpp else metadata
    result = Model(metadata, Tensors(d.after for d in decisions), byte_order=model.byte_order)
    shard_counts = _shard_counts(model, decisions) if keep else None
    names_before_and_after = {**model.tensors, **pruned.tensors}
    require_names(names_before_and_after, requests, mapping("types", options.get("types")))
    idle += unmatched((tensor.name for tensor in tensors), chosen, requests)
    inputs = (*model.inputs, *(hessian.source.inputs if hessian else ()))
    result.derived_from(inputs, model.readers_limit, *([data[0].limit] if data else []))
    return Quantization(result, decisions, chosen, data is not None, shard_counts, idle, search)


def _requests(options: QuantizeOptions) -> TypeRequests:
    return TypeRequests(
        pure=options.get("pure", False),
        leave_output_tensor=options.get("leave_output_tensor", False),
        output_tensor_type=_requested_type(options.get("output_tensor_type")),
        token_embedding_type=_requested_type(options.get("token_embedding_type")),
        patterns=patterns_of(options.get("tensor_types", ())),
        types=types_by_name(options.get("types"), options.get("like")),
    )


def _recipe(recipe: str | int | Recipe | None, like: AnyModel | None) -> Recipe:
    if isinstance(recipe, Recipe):
        return recipe
    if recipe is not None:
        return find_recipe(recipe)
    file_type = file_type_of(as_model(like, "like").metadata) if like else None
    return ALL_RECIPES.get(FILE_TYPES.get(file_type or -1, ""), KEEP_ALL)


def opened_imatrix(imatrix: Imatrix | AnyPath | None) -> Imatrix | None:
    """Return importance data as given, or from a path; None without."""
    if imatrix is None:
        return None
    from ggufkit.imatrix.matrix import Imatrix  # noqa: PLC0415 (slow to import)

    return imatrix if isinstance(imatrix, Imatrix) else Imatrix.open(imatrix)


def hessian_of(options: Mapping[str, Any]) -> Hessian | None:
    """Return the Hessian that options of `quantize` give, None without one."""
    hessian, include, exclude = (options.get(key) for key in _HESSIAN_OPTIONS)
    if hessian is None:
        return None
    from ggufkit.imatrix.hessian import Hessian  # noqa: PLC0415 (slow to import)

    opened = hessian if isinstance(hessian, Hessian) else Hessian.open(hessian)
    return replace(opened, include=tuple(include or ()), exclude=tuple(exclude or ()))


def _selected(
    options: QuantizeOptions, hessian: Hessian | None
) -> tuple[tuple[Imatrix, str] | None, tuple[str, ...]]:
    """Return the entries to use with the path as given, and the parts that match no name.

    The entries are None without a matrix, and if none of its entries is selected.
    """
    imatrix = options.get("imatrix")
    if imatrix is None and hessian:
        imatrix = hessian.importance()
    include = texts("include_weights", options.get("include_weights", ()))
    exclude = texts("exclude_weights", options.get("exclude_weights", ()))
    if include and exclude:
        raise ValueTypeError(
            "weights can be included or excluded, not both", remedy="Use one of the two"
        )
    matrix = opened_imatrix(imatrix)
    if matrix is None:
        return None, ()
    path = matrix.path if matrix is imatrix else cast("AnyPath", imatrix)
    chosen = matrix.selected(include, exclude)
    idle = (part for part in (*include, *exclude) if not any(part in n for n in matrix.entries))
    importance = (chosen, os.fsdecode(path) if path else "") if chosen.entries else None
    return importance, tuple(idle)


def _requested_type(type: AnyType | None) -> TensorType | None:
    return None if type is None else tensor_type(type)


def _require_encoder(name: str, kind: TensorType) -> None:
    """Raise TensorTypeError unless a type, or the plain form of its rows, can be encoded."""
    try:
        codec.encodable(kind.plain or kind)
    except TensorTypeError as error:
        raise TensorTypeError(
            f"{name}: {kind} cannot be encoded, only decoded", remedy=error.remedy
        ) from None


def types_by_name(
    types: Mapping[str, AnyType] | None, like: AnyModel | None
) -> dict[str, TensorType]:
    """Return the types by exact name: the given ones, then the types of `like`'s tensors."""
    explicit = {name: tensor_type(kind) for name, kind in mapping("types", types).items()}
    like_tensors = as_model(like, "like").tensors.values() if like else ()
    copied = {
        t.name: t.type
        for t in like_tensors
        if not t.type.is_opaque and not kernels.is_integer(t.type)
    }
    return copied | explicit


def _pruned(model: Model, layers: frozenset[int]) -> tuple[Model, dict[str, str]]:
    if not layers:
        return model, {}
    pruned = prune_layers(model, layers)
    names = (name for name in model.tensors if layer_of(name) not in layers)
    return pruned, dict(zip(pruned.tensors, names, strict=True))


def _decision(  # noqa: PLR0913 (a part of `decide`)
    recipe: Recipe,
    facts: ModelFacts,
    tensor: Tensor,
    choice: Choice,
    *,
    data: tuple[Imatrix, str] | None,
    names: Mapping[str, str],
    promote: bool,
    search: Search | None,
) -> Decision:
    kind = choice.type
    weights = None
    if data and kind != tensor.type and kind.is_quantized:
        weights = data[0].weights(names.get(tensor.name, tensor.name), tensor.shape)
    if facts.is_sd_cpp and weights is None and kind != tensor.type and kind.is_quantized:
        weights = np.ones(tensor.shape[-1], np.float32)
    while promote and weights is None and kind != tensor.type and _needs(recipe, kind, tensor):
        kind = tensor_type(PROMOTED[kind.plain or kind.name])
    if kind != tensor.type:
        _require_encoder(tensor.name, kind)
    chosen = worthwhile_search(search, kind, weighted=weights is not None)
    after = retyped(tensor, kind, weights, chosen)
    return Decision(
        tensor,
        after,
        fell_from=choice.requested if choice.fell_back else None,
        promoted_from=choice.type if kind != choice.type else None,
        needs_imatrix=_needs(recipe, kind, tensor),
        why=choice.why,
        weights=weights,
        search=None if after is tensor else chosen,
    )


def _unless_larger(decision: Decision) -> Decision:
    before, after = decision.before, decision.after
    if before is after or not before.type.is_quantized or after.nbytes < before.nbytes:
        return decision
    why = f"quantized already, and {after.type} is not smaller"
    return Decision(before, before, kept_from=after.type, why=why)


def _with_feedback(
    decisions: tuple[Decision, ...], names: Mapping[str, str], hessian: Hessian | None
) -> tuple[Decision, ...]:
    if hessian is None:
        return decisions
    from ggufkit.quantization.gptq_source import gptq_tensors  # noqa: PLC0415 (slow to import)

    quantized = [
        d.after
        for d in decisions
        if d.is_changed and d.after.type.is_quantized and not d.after.type.plain
    ]
    with_feedback = gptq_tensors(
        [(names.get(after.name, after.name), after) for after in quantized], hessian
    )
    return tuple(
        replace(d, after=with_feedback[d.after.name], is_fed_back=True)
        if d.after.name in with_feedback
        else d
        for d in decisions
    )


def _needs(recipe: Recipe, kind: TensorType, tensor: Tensor) -> bool:
    """Whether a type requires importance data: by the recipe, or because ggml fails without."""
    if tensor_type(kind.plain or kind).id in kernels.requiring_weights():
        return True
    name = kind.plain or kind.name
    return name in recipe.needs_imatrix and role_of(tensor.name) not in ("embedding", "output")


def _shard_counts(model: Model, decisions: Iterable[Decision]) -> tuple[int, ...] | None:
    tensors_of = Counter(decision.before.path for decision in decisions)
    counts = tuple(tensors_of[file.path] for file in model.files)
    return counts if len(counts) > 1 and sum(counts) == sum(tensors_of.values()) else None


def refuse(result: Quantization, *, allow_requantize: bool) -> None:
    """Raise an error if the result must not be written: see `quantize`."""
    if result.requantized and not allow_requantize:
        raise TensorTypeError(
            f"{_names(result.requantized)}: quantized already ({result.requantized_types}), "
            "and quantizing again loses quality",
            remedy="Start from the F32, F16 or BF16 model, allow it (allow_requantize=True), "
            "or allow it where tensors become smaller (requantize_smaller=True)",
        )
    if result.uncovered:
        kinds = ", ".join(sorted({d.after.type.name for d in result.uncovered}))
        raise MissingImportanceError(
            f"{result.recipe.name} makes {_names(result.uncovered)} {kinds}, but the importance "
            "data for this is missing",
            remedy="Give an importance matrix that covers them (imatrix=...), take the nearest "
            "types that need none (promote_uncovered=True), or name types (tensor_types=...)",
        )


def _names(decisions: Iterable[Decision]) -> str:
    return tensor_names([decision.after.name for decision in decisions])
