"""Merges adapters into a model: every adapted matrix becomes W + scale * B @ A, in float32."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from ggufkit.checks.model_view import EMBEDDING
from ggufkit.checks.other_models import KIND, LORA_A, LORA_B, tensor_faults
from ggufkit.conversion.tensors.moves import transpose
from ggufkit.diffusion.architecture import is_diffusion
from ggufkit.errors import AdapterError, TensorTypeError, first_names
from ggufkit.format.file_types import NUMBER_OF
from ggufkit.format.types import tensor_type
from ggufkit.lora.image_adapter import image_addends, open_image_adapter
from ggufkit.lora.pairs import ALPHA, Addend, Merged, Pair
from ggufkit.models.any_model import AnyModel, Opener, as_model
from ggufkit.models.model import Model, Tensor
from ggufkit.models.sources import retyped
from ggufkit.quants import kernels
from ggufkit.system.threads import Notify
from ggufkit.validation.typed_values import MAX_FLOAT32, finite_number

KEEP: Final = "keep"
OUTTYPES: Final = {KEEP: "", "f32": "F32", "f16": "F16", "bf16": "BF16"}


def merge_lora(
    base: AnyModel,
    adapters: AnyModel | Iterable[AnyModel],
    *,
    scales: Sequence[float] = (),
    outtype: str = KEEP,
    say: Notify | None = None,
) -> Model:
    """Return `base` with LoRA adapters merged, as a lazy model; `write` makes the file.

    `base` is a model, a path or a URL; `adapters` are one or several GGUF adapters of the same
    architecture, also as models, paths or URLs, or made by `convert_lora`. For an image or video
    model they are safetensors files, or folders of PEFT or diffusers. Closing the result closes the
    files that were opened here. `scales` are strengths, 1.0 each if left out. `outtype` is the type
    of changed matrices: keep (their type in `base`), f32, f16 or bf16. Other tensors stay as they
    are. `say` is called with each note for the user.

    Raises AdapterError, whose `problems` list everything that does not fit the model, and
    TensorTypeError for a type that cannot be written without importance data.
    """
    if outtype not in OUTTYPES:
        names = ", ".join(OUTTYPES)
        raise TensorTypeError(f"unknown outtype {outtype!r}", remedy=f"Use one of {names}")
    with Opener() as opener:
        model = opener.open(base, "base")
        is_image_model = is_diffusion(model.architecture, model.tensors)
        opening = open_image_adapter if is_image_model else as_model
        added = opener.open_all(adapters, "adapters", opening)
        if scales and len(scales) != len(added):
            raise AdapterError(f"{len(scales)} scales for {len(added)} adapters")
        reader = image_addends if is_image_model else _addends
        note = say or (lambda _: None)
        changes = [reader(model, adapter, note) for adapter in added]
        strengths = scales or (1.0,) * len(added)
        return opener.hand_over(_merged_model(model, added, changes, strengths, outtype))


def _merged_model(
    base: Model,
    adapters: Sequence[Model],
    changes: Sequence[Mapping[str, Sequence[Addend]]],
    strengths: Sequence[float],
    outtype: str,
) -> Model:
    merged = (
        _merged(
            tensor,
            tuple(
                addend._replace(scale=addend.scale * strength)
                for change, strength in zip(changes, strengths, strict=True)
                for addend in change.get(tensor.name, ())
            ),
            outtype,
        )
        for tensor in base.tensors.values()
    )
    files = (*base.inputs, *(file for adapter in adapters for file in adapter.inputs))
    metadata = base.metadata
    if outtype != KEEP:
        metadata = metadata.updated({"general.file_type": np.uint32(NUMBER_OF[OUTTYPES[outtype]])})
    return base.replace(metadata=metadata, tensors=merged).derived_from(
        files, *(model.readers_limit for model in adapters)
    )


def _addends(base: Model, adapter: Model, _say: Notify) -> dict[str, list[Addend]]:
    pairs = _pairs(adapter)
    if problems := [*_about_fit(base, adapter, pairs)]:
        raise AdapterError("the adapter does not fit the model", problems)
    alpha = adapter.metadata.get(ALPHA)
    number = alpha if isinstance(alpha, float) else 0.0
    finite_number(number, f"{_path(adapter)}: {ALPHA}", most=MAX_FLOAT32)
    # As llama.cpp computes the factor before b @ a.
    scales = {name: number / pair.rank if number else 1.0 for name, pair in pairs.items()}
    return {name: [Addend(pair, scales[name])] for name, pair in pairs.items()}


def _path(adapter: Model) -> object:
    return adapter.files[0].path if adapter.files else "the model"


def _pairs(adapter: Model) -> dict[str, Pair]:
    """Return the pairs of an opened GGUF file by the names of the matrices."""
    kind = adapter.metadata.get("general.type"), adapter.metadata.get(KIND)
    if kind != ("adapter", "lora"):
        text = " and ".join(repr(item) for item in kind)
        raise AdapterError(
            f"{_path(adapter)} is not a LoRA adapter: general.type and adapter.type are {text}",
            remedy="Convert a PEFT or MLX adapter with `ggufkit lora convert`",
        )
    if problems := [f"{tensor.name} {what}" for tensor, what in tensor_faults(adapter)]:
        raise AdapterError(f"the adapter {_path(adapter)} is damaged", problems)
    pairs: dict[str, Pair] = {}
    for name in adapter.tensors:
        stem = name.removesuffix(LORA_B)
        if stem != name:
            a, b = adapter.tensors[stem + LORA_A], adapter.tensors[name]
            # llama.cpp picks rows of the first factor of the embeddings: one for each token.
            pairs[stem] = Pair(stem, transpose(b), a) if stem == EMBEDDING else Pair(stem, a, b)
    return pairs


def _about_fit(base: Model, adapter: Model, pairs: Mapping[str, Pair]) -> Iterator[str]:
    kinds = [model.metadata.get("general.architecture") for model in (base, adapter)]
    if kinds[0] != kinds[1]:
        yield f"the model's architecture is {kinds[0]!r}, the adapter's is {kinds[1]!r}"
        return
    absent = [name for name in pairs if name not in base.tensors]
    if absent:
        yield f"the model has no tensor {first_names(absent)} ({len(absent)} in all)"
    for name, pair in pairs.items():
        if name in base.tensors and pair.shape != base.tensors[name].shape:
            shapes = f"{list(base.tensors[name].shape)}, the adapter's is {list(pair.shape)}"
            yield f"{name}: the model's shape is {shapes}"


def _merged(tensor: Tensor, addends: tuple[Addend, ...], outtype: str) -> Tensor:
    if not addends:
        return tensor
    plain = tensor_type("F32")
    summed = Tensor.over(tensor.name, plain, tensor.shape, Merged(tensor, addends))
    kind = tensor_type(OUTTYPES[outtype]) if outtype != KEEP else tensor.type
    if kind.id in kernels.requiring_weights():
        raise TensorTypeError(
            f"{tensor.name!r} is of type {kind}, which needs importance data",
            remedy="Merge with outtype f16, and quantize the result with an importance matrix",
        )
    return retyped(summed, kind)
