"""Find which weight of a live model of transformers has the inputs of a matrix in a GGUF file.

Numbers go through the conversion in place of weights: first the number of each matrix, then the
numbers of its columns. So names and columns are those of `convert`, for every architecture.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ggufkit.conversion.checkpoint.state_dict import saved_parts
from ggufkit.conversion.choices import Choices
from ggufkit.conversion.convert import placed_tensors
from ggufkit.errors import ShapeError
from ggufkit.frameworks.extras import library
from ggufkit.frameworks.live.save import configurations
from ggufkit.frameworks.live.weights import (
    EXTRA,
    LivePart,
    LiveWeights,
    adapted_layers,
    model_parts,
)
from ggufkit.imatrix.hessian_file import first_row
from ggufkit.models.model import Model, Tensor
from ggufkit.quants.parallel import Floats

MATRIX_AXES: Final = 2
STACK_AXES: Final = 3  # of the weights of all experts of a layer together


class InputOrigin(NamedTuple):
    """The weight that multiplies the inputs of a matrix, and its expert, None without a stack.

    `columns` has the place of each column in the weight, None if their order is the same.
    """

    weight: str
    expert: int | None
    columns: list[int] | None


def input_origins(
    model: Any,  # noqa: ANN401 (a model of transformers)
    file: Model,
) -> dict[str, list[InputOrigin]]:
    """Return the origin of each matrix of the tensors in the layers of a file.

    Left out are tensors whose inputs are not those of a weight, such as a transposed matrix.
    Raises CheckpointError for a model that cannot be converted, ShapeError for the file of another
    model.
    """
    parts = _plain_parts(model)
    owners, numbers, places = list[_Owner](), dict[str, Any](), dict[str, Any]()
    for name, part in parts.items():
        owned = _owned(model, name, part.shape)
        numbers[name] = _filled(part.shape, 0, range(len(owners), len(owners) + len(owned)))
        axis, width = owned[0].axis, owned[0].width
        places[name] = _filled(part.shape, axis, range(width)) if width else numbers[name]
        owners += owned
    fused = any(name.endswith("ffn_gate_up_exps.weight") for name in file.tensors)
    apart = any(name.endswith("attn_q.weight") for name in file.tensors)
    choices = Choices(fuse_qkv=not apart, fuse_gate_up_exps=fused)
    numbered, placed = (_converted(model, parts, probe, choices) for probe in (numbers, places))
    origins = {}
    for name, tensor in file.tensors.items():
        if not (name.startswith("blk.") and name.endswith(".weight") and name in numbered):
            continue
        if numbered[name].shape != tensor.shape:
            raise ShapeError(
                f"the file is of another model: {name!r} has the shape {tensor.shape}, but the "
                f"model gives {numbered[name].shape}",
                remedy="Give the file that `ggufkit convert` makes of this model",
            )
        if matrices := _origins(owners, numbered[name], placed[name]):
            origins[name] = matrices
    if not origins:
        raise ShapeError(
            "the layers of the file have no matrix of the model",
            remedy="Give the file that `ggufkit convert` makes of this model",
        )
    return origins


class _Owner(NamedTuple):
    """A matrix among all of a weight, the axis of its inputs, and their number, or 0 without."""

    weight: str
    expert: int | None
    matrices: int
    axis: int
    width: int


def _owned(model: Any, name: str, shape: tuple[int, ...]) -> list[_Owner]:  # noqa: ANN401
    """Return the matrices of a weight."""
    owner, _, attribute = name.rpartition(".")
    module = model.get_submodule(owner)
    conv1d = library("transformers.pytorch_utils", EXTRA).Conv1D  # which is a transposed layer
    is_transposed = isinstance(module, conv1d) or getattr(module, "is_transposed", False)
    axis = len(shape) - (2 if is_transposed else 1)
    if len(shape) == STACK_AXES:
        return [_Owner(name, expert, shape[0], axis, shape[axis]) for expert in range(shape[0])]
    is_layer = len(shape) == MATRIX_AXES and attribute == "weight"
    return [_Owner(name, None, 1, axis, shape[axis] if is_layer else 0)]


def _plain_parts(model: Any) -> dict[str, LivePart]:  # noqa: ANN401
    """Return the tensors of a model as if no layer were quantized."""
    parts, adapted = model_parts(model), tuple(f"{name}." for name, _ in adapted_layers(model))
    layers = {
        name: (module.out_features, module.in_features)
        for name, module in model.named_modules()
        if hasattr(module, "in_features") and hasattr(module, "out_features")
        if not name.startswith(adapted)
    }
    plain = {}
    for name, part in parts.items():
        owner = name.rpartition(".")[0]
        if name.endswith(".bias") or not {owner, owner.rpartition(".")[0]} & layers.keys():
            plain[name] = part
    for name, shape in layers.items():
        weight = f"{name}.weight"
        tensor = parts[weight].tensor if weight in parts else weight
        plain[weight] = LivePart(tensor, shape, None, dict)
    return plain


def _filled(shape: tuple[int, ...], axis: int, numbers: range) -> Any:  # noqa: ANN401 (a torch tensor)
    """Return a tensor with these numbers along an axis; it takes no more memory than they do."""
    lengths = [-1 if place == axis else 1 for place in range(len(shape))]
    return library("torch", EXTRA).tensor(numbers).float().reshape(lengths).expand(shape)


def _converted(
    model: Any,  # noqa: ANN401
    parts: Mapping[str, LivePart],
    probes: Mapping[str, Any],
    choices: Choices,
) -> dict[str, Tensor]:
    """Return the tensors of a model with `probes` as its weights."""
    probed = {
        name: LivePart(
            part.tensor, part.shape, probes[name].dtype, functools.partial(probes.get, name)
        )
        for name, part in parts.items()
    }
    config, _ = configurations(model)
    vars(config).pop("quantization_config", None)
    with saved_parts(config) as folder:
        tensors = placed_tensors(folder, choices, LiveWeights(model, probed).tensors())
    return {tensor.name: tensor for tensor in tensors}


def _origins(owners: list[_Owner], numbers: Tensor, places: Tensor) -> list[InputOrigin]:
    """Return the origins of the matrices of a tensor; none if not each has its own."""
    pairs = [(numbers, places)]
    if len(numbers.shape) == STACK_AXES:
        pairs = [(numbers[matrix], places[matrix]) for matrix in range(numbers.shape[0])]
    results = [_origin(owners, first_row(number), first_row(place)) for number, place in pairs]
    origins = [origin for count, origin in results if origin and count in {1, len(pairs)}]
    own = {(origin.weight, origin.expert) for origin in origins}
    return origins if len(own) == len(pairs) else []


def _origin(
    owners: list[_Owner], numbers: Floats, places: Floats
) -> tuple[int, InputOrigin | None]:
    """Return what the first row of a matrix shows, None if it is not a row of one weight.

    Before it comes the number of matrices of that weight.
    """
    if numbers[0] not in range(len(owners)) or (numbers != numbers[0]).any():
        return 0, None
    owner, columns = owners[int(numbers[0])], places.tolist()
    in_order = [*range(owner.width)]
    if sorted(columns) != in_order:
        return 0, None
    order = None if columns == in_order else [*map(int, columns)]
    return owner.matrices, InputOrigin(owner.weight, owner.expert, order)
