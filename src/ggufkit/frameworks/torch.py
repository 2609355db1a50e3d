"""PyTorch: load a model as a state dict, save one as GGUF, and decode tensors on any device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from ggufkit.conversion.diffusion.original_shapes import original_shape
from ggufkit.errors import TensorTypeError, ValueTypeError
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.frameworks.extras import library
from ggufkit.frameworks.fill import decoded_arrays, decoded_type
from ggufkit.models.any_model import AnyModel, opened
from ggufkit.models.model import Model, Tensor, Tensors
from ggufkit.models.rows import Made, rows_and_width
from ggufkit.models.sources import in_order, retyped
from ggufkit.models.tensors.in_memory import as_tensor
from ggufkit.output.write import WriteOptions, write
from ggufkit.quants.codec import AnyType
from ggufkit.quants.parallel import Numbers
from ggufkit.system.descriptors import AnyPath
from ggufkit.system.mapped_file import Bytes, MappedFile
from ggufkit.system.threads import Progress

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

EXTRA: Final = "torch"
# The dtypes of torch that GGUF has, by the name of the tensor type.
DTYPES: Final = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
}  # fmt: skip
_FLOATS: Final = {DTYPES[name]: name for name in ("F32", "F16", "BF16", "F64")}
_TYPES: Final = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True, eq=False)  # tensors do not compare to one bool
class PackedTensor:
    """A tensor as it is packed in the file, on any device: `data` is uint8, rows of blocks.

    `shape` counts elements. `dequantize()` gives the elements, on the device of `data`.
    """

    data: torch.Tensor
    type: TensorType
    shape: tuple[int, ...]

    def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return the elements as `dtype` (float32 if None), the same bits as on a processor."""
        return dequantize(self.data, self.type, dtype).reshape(self.shape)


def load(  # noqa: PLR0913 (one argument for each choice of a user)
    model: AnyModel,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | int = "cpu",
    mmap: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[str, torch.Tensor]:
    """Return the tensors of a model (or of the file at a path) by name, as a state dict.

    With `dtype` None plain tensors keep theirs, and quantized ones become float32; else all float
    tensors become `dtype`, rounded as ggml rounds. Integers stay integers. On another `device`
    than the processor's memory, packed tensors are copied there and decoded there.

    With `mmap` plain tensors that keep their dtype are not read: they share a private map of the
    file. You may write to them, which changes neither the file nor other maps. `progress(done,
    total)` counts elements. Tensors of image models have the shapes of the checkpoint.

    Raises TensorTypeError for a type that cannot be decoded, ValueTypeError for another dtype.
    """
    torch = library("torch", EXTRA)
    floats = float_type(dtype)
    place = torch.device(device)
    with opened(model) as source:
        tensors = [*source.tensors.values()]
        types = [decoded_type(tensor, floats) for tensor in tensors]
        shapes = [original_shape(tensor, source.metadata) for tensor in tensors]
        if place.type == "cpu":
            arrays = _on_cpu(tensors, types, mmap=mmap, threads=threads, progress=progress)
        else:
            arrays = {
                tensor.name: _on_device(tensor, kind, place)
                for tensor, kind in zip(tensors, types, strict=True)
            }
    rows = zip(tensors, shapes, strict=True)
    return {tensor.name: arrays[tensor.name].reshape(shape) for tensor, shape in rows}


def load_packed(
    model: AnyModel, *, device: torch.device | str | int = "cpu"
) -> dict[str, PackedTensor]:
    """Return the tensors of a model by name as they are packed, to be decoded when used."""
    torch = library("torch", EXTRA)
    place = torch.device(device)
    with opened(model) as source:
        return {tensor.name: _packed(tensor, place) for tensor in source.tensors.values()}


def dequantize(data: torch.Tensor, type: AnyType, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return the elements of packed `data`: uint8 of shape (..., bytes of a row), on any device.

    The float32 values are the same bits as those of `ggufkit.quants.dequantize`, also under
    `torch.compile`. `dtype` (float32 if None) is what they are rounded to.
    """
    from ggufkit.frameworks.torch_blocks import decode  # noqa: PLC0415 (it imports torch)

    elements = decode(data, tensor_type(type))
    return elements if dtype is None else elements.to(dtype)


def save(
    tensors: Mapping[str, Any],
    path: AnyPath | IO[bytes],
    metadata: Mapping[str, object] | None = None,
    **options: Unpack[WriteOptions],
) -> list[Path]:
    """Write tensors and plain metadata as a GGUF file; return the paths written.

    Each tensor is a torch tensor on any device (stored in its dtype), a pair of one and a tensor
    type (quantized to it), a PackedTensor, or what `ggufkit.save` takes. They are read piece by
    piece while the file is written. `options` are those of `ggufkit.write`. Raises
    TensorTypeError for a dtype that GGUF lacks.
    """
    library("torch", EXTRA)
    if not isinstance(tensors, Mapping):
        raise ValueTypeError(
            f"`tensors` is a {tensors.__class__.__name__}",
            remedy="Write save(state_dict, path, metadata)",
        )
    gguf_tensors = Tensors(as_gguf(name, value) for name, value in tensors.items())
    return write(Model(Metadata(metadata or {}), gguf_tensors), path, **options)


def as_gguf(name: str, value: object) -> Tensor:
    """Return the tensor that `value` describes, as `save` documents it."""
    torch = library("torch", EXTRA)
    pair = value if isinstance(value, tuple) and len(value) == 2 else (value, None)  # noqa: PLR2004
    array, target = pair
    if isinstance(value, PackedTensor):
        rows, width = rows_and_width(value.shape)
        data = value.data.reshape(rows, value.type.row_bytes(width))
        return Tensor.over(name, value.type, value.shape, TorchRows(data))
    if not isinstance(array, torch.Tensor):
        return as_tensor(name, value)
    plain = array.detach()
    kind = _TYPES.get(_name_of(plain.dtype))
    if kind is None:
        raise TensorTypeError(
            f"tensor {name!r}: GGUF has no type for torch's {_name_of(plain.dtype)}",
            remedy=f"Convert it to one of {', '.join(_TYPES)}",
        )
    rows, width = rows_and_width(tuple(plain.shape))
    tensor = Tensor.over(
        name, tensor_type(kind), tuple(plain.shape), TorchRows(plain.reshape(rows, width))
    )
    return tensor if target is None else retyped(tensor, target)


@dataclass(frozen=True, eq=False)  # tensors do not compare to one bool
class TorchRows(Made):
    """Rows of a torch tensor, copied to the processor's memory when they are read."""

    rows: torch.Tensor

    def read(self, start: int, stop: int) -> Bytes:
        """Return the bytes of rows `start` to `stop`."""
        torch = library("torch", EXTRA)
        part = self.rows[start:stop].contiguous().cpu()
        data: Bytes = part.view(torch.uint8).numpy()
        return data


def float_type(dtype: torch.dtype | None) -> str | None:
    """Return the tensor type that floats become, None to keep theirs."""
    if dtype is None:
        return None
    dtype_found = _FLOATS.get(_name_of(dtype))
    if dtype_found is None:
        known = ", ".join(f"torch.{name}" for name in _FLOATS)
        raise ValueTypeError(f"cannot decode to {dtype}", remedy=f"Use None or one of {known}")
    return dtype_found


def _name_of(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


# In the processor's memory.


def _on_cpu(
    tensors: list[Tensor],
    types: list[TensorType],
    *,
    mmap: bool,
    threads: int | None,
    progress: Progress | None,
) -> dict[str, torch.Tensor]:
    """Return decoded tensors by name, in the order of the file."""
    shared = _mapped(tensors, types) if mmap else {}
    rest = [index for index, tensor in enumerate(tensors) if tensor.name not in shared]
    chosen, kinds = [tensors[position] for position in rest], [types[position] for position in rest]
    arrays = decoded_arrays(chosen, kinds, threads=threads, progress=progress)
    loaded = {
        tensor.name: as_torch(array, kind)
        for tensor, kind, array in zip(chosen, kinds, arrays, strict=True)
    }
    state = shared | loaded
    return {tensor.name: state[tensor.name] for tensor in tensors}


def as_torch(array: Numbers, type: TensorType) -> torch.Tensor:
    """Return a torch tensor that shares the memory of a writable array of a plain type."""
    torch = library("torch", EXTRA)
    if type.dtype is None:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _mapped(tensors: list[Tensor], types: list[TensorType]) -> dict[str, torch.Tensor]:
    """Return views of private maps for the tensors that need no decoding."""
    torch = library("torch", EXTRA)
    maps: dict[MappedFile, Any] = {}
    arrays = {}
    for tensor, kind in zip(tensors, types, strict=True):
        span = tensor.source.span
        has_same_bytes = tensor.type == kind and tensor.source.byte_order == "little"
        if span is None or not has_same_bytes or not span.nbytes:
            continue
        if not isinstance(span.file, MappedFile) or span.offset % kind.block_bytes:
            continue
        if span.file not in maps:
            maps[span.file] = span.file.private()
        dtype = getattr(torch, DTYPES[kind.name])
        flat = torch.frombuffer(
            maps[span.file], dtype=dtype, count=tensor.elements, offset=span.offset
        )
        arrays[tensor.name] = flat.reshape(tensor.shape)
    return arrays


# On another device.


def _on_device(tensor: Tensor, type: TensorType, device: torch.device) -> torch.Tensor:
    """Return a tensor that is copied to the device and decoded there."""
    torch = library("torch", EXTRA)
    dtype = getattr(torch, DTYPES[type.name])
    if device.type == "meta":
        return torch.empty(tensor.shape, dtype=dtype, device=device)
    if not tensor.type.is_quantized:
        array = decoded_arrays([tensor], [type])[0]
        return as_torch(array, type).to(device)
    return _packed(tensor, device).dequantize(dtype)


def _packed(tensor: Tensor, device: torch.device) -> PackedTensor:
    torch = library("torch", EXTRA)
    shape = (tensor.rows, tensor.row_bytes)
    if device.type == "meta":
        data = torch.empty(shape, dtype=torch.uint8, device=device)
    else:
        rows = in_order(tensor, "little").read(0, tensor.rows)
        data = torch.from_numpy(np.require(rows, requirements=["C", "W"])).to(device)
    return PackedTensor(data, tensor.type, tensor.shape)
