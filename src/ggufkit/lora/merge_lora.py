"""Merges adapters into a model: every adapted matrix becomes W + scale * B @ A, in float32."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from ggufkit.errors import AdapterError, TensorTypeError, first_names
from ggufkit.format.file_types import NUMBER_OF
from ggufkit.format.types import tensor_type
from ggufkit.lora.pairs import Adapter, Pair, read_adapter
from ggufkit.models.any_model import AnyModel, Opener
from ggufkit.models.byte_ranges import decoded_rows
from ggufkit.models.model import Model, Tensor
from ggufkit.models.rows import Made
from ggufkit.models.sources import retyped
from ggufkit.quants import kernels
from ggufkit.quants.parallel import Floats
from ggufkit.system.mapped_file import Bytes

KEEP: Final = "keep"
OUTTYPES: Final = {KEEP: "", "f32": "F32", "f16": "F16", "bf16": "BF16"}
TILE_ROWS: Final = 128  # multiplied together: the same numbers whatever rows are asked for


class Addend(NamedTuple):
    """One addend of a matrix: scale * b @ a, all factors decoded when they are read."""

    pair: Pair
    scale: float


@dataclass(frozen=True, eq=False)
class Merged(Made):
    """Rows of a tensor in float32 with the products of adapters added."""

    tensor: Tensor
    addends: tuple[Addend, ...]

    def read(self, start: int, stop: int) -> Bytes:
        """Decode rows `start` to `stop`, and add each addend in the order of the adapters."""
        rows: Floats = decoded_rows(self.tensor, start, stop).copy()
        for addend in self.addends:
            for first, last, added in _added(addend, start, stop):
                rows[first - start : last - start] += added
        return rows.view(np.uint8)


def _added(addend: Addend, start: int, stop: int) -> Iterator[tuple[int, int, Floats]]:
    """Yield what an addend adds to rows `start` to `stop`, in tiles of one matrix each."""
    pair, scale = addend
    height = pair.shape[-2]
    for matrix in range(start // height, -(-stop // height)) if height else ():
        begin = matrix * height
        a = decoded_rows(pair.a, matrix * pair.rank, (matrix + 1) * pair.rank)
        low, high = max(start - begin, 0), min(stop - begin, height)
        for tile in range(low // TILE_ROWS * TILE_ROWS, high, TILE_ROWS):
            end = min(tile + TILE_ROWS, height)
            b = decoded_rows(pair.b, begin + tile, begin + end)
            added = np.float32(scale) * (b @ a)
            first, last = max(tile, low), min(end, high)
            yield begin + first, begin + last, added[first - tile : last - tile]


def merge_lora(
    base: AnyModel,
    adapters: AnyModel | Iterable[AnyModel],
    *,
    scales: Sequence[float] = (),
    outtype: str = KEEP,
) -> Model:
    """Return `base` with LoRA adapters merged, as a lazy model; `write` makes the file.

    `base` is a model, a path or a URL; `adapters` are one or several GGUF adapters of the same
    architecture, given in the same ways, or made by `convert_lora`. Closing the result closes what
    was opened here. `scales` are strengths, 1.0 each if left out. `outtype` is that of changed
    matrices: keep (the type that they have in `base`), f32, f16 or bf16. Others stay as they are.
    Raises AdapterError, whose `problems` list everything that does not fit the model, and
    TensorTypeError for a type that cannot be written without importance data.
    """
    if outtype not in OUTTYPES:
        known = ", ".join(OUTTYPES)
        raise TensorTypeError(f"unknown outtype {outtype!r}", remedy=f"Use one of {known}")
    with Opener() as opener:
        held = opener.open(base, "base")
        return opener.hand_over(
            _merged_model(held, opener.open_all(adapters, "adapters"), scales, outtype)
        )


def _merged_model(
    base: Model, adapters: Sequence[Model], scales: Sequence[float], outtype: str
) -> Model:
    if scales and len(scales) != len(adapters):
        raise AdapterError(f"{len(scales)} scales for {len(adapters)} adapters")
    read = [read_adapter(model) for model in adapters]
    problems = [each for adapter in read for each in _about_fit(base, adapter)]
    if problems:
        raise AdapterError("the adapter does not fit the model", problems)
    given = scales or (1.0,) * len(read)
    merged = (_merged(tensor, read, given, outtype) for tensor in base.tensors.values())
    files = (*base.inputs, *(file for adapter in read for file in adapter.model.inputs))
    metadata = base.metadata
    if outtype != KEEP:
        metadata = metadata.updated({"general.file_type": np.uint32(NUMBER_OF[OUTTYPES[outtype]])})
    return base.replace(metadata=metadata, tensors=merged).made_from(
        files, *(model.readers_limit for model in adapters)
    )


def _about_fit(base: Model, adapter: Adapter) -> Iterator[str]:
    """Yield what llama.cpp would refuse: another architecture, other names or other shapes."""
    own, other = (m.metadata.get("general.architecture") for m in (base, adapter.model))
    if own != other:
        yield f"the model's architecture is {own!r}, the adapter's is {other!r}"
        return
    absent = [name for name in adapter.pairs if name not in base.tensors]
    if absent:
        yield f"the model has no tensor {first_names(absent)} ({len(absent)} in all)"
    for name, pair in adapter.pairs.items():
        if name in base.tensors and pair.shape != base.tensors[name].shape:
            shapes = f"{list(base.tensors[name].shape)}, the adapter's is {list(pair.shape)}"
            yield f"{name}: the model's shape is {shapes}"


def _merged(
    tensor: Tensor, adapters: Sequence[Adapter], scales: Sequence[float], outtype: str
) -> Tensor:
    addends = tuple(
        Addend(adapter.pairs[tensor.name], adapter.scale(adapter.pairs[tensor.name], scale))
        for adapter, scale in zip(adapters, scales, strict=True)
        if tensor.name in adapter.pairs
    )
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
