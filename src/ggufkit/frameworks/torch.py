"""PyTorch: load a model as a state dict, save one as GGUF, and decode tensors on any device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from ggufkit.conversion.checkpoint.state_dict import TorchRows, of_torch
from ggufkit.conversion.diffusion.rename import original_shape
from ggufkit.errors import TensorTypeError, ValueTypeError
from ggufkit.format.types import DTYPES, TORCH_DTYPES, TensorType, tensor_type
from ggufkit.frameworks.extras import library
from ggufkit.frameworks.fill import decoded_arrays, decoded_type, float_type
from ggufkit.models.any_model import AnyModel, as_model, opened
from ggufkit.models.model import Model, Tensor, Tensors
from ggufkit.models.sources import in_order, retyped
from ggufkit.models.tensors.in_memory import as_tensor, of_few_axes
from ggufkit.models.tensors.in_memory import model as model_of
from ggufkit.output.write import WriteOptions, write
from ggufkit.quants.codec import AnyType
from ggufkit.quants.parallel import Numbers
from ggufkit.system.descriptors import AnyPath
from ggufkit.system.mapped_file import MappedFile
from ggufkit.system.threads import Progress

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

    from ggufkit.frameworks.torch_packed import PackedTensor

EXTRA: Final = "torch"


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
            arrays = _mapped(tensors, types) if mmap else {}
            rest = [tensor for tensor in tensors if tensor.name not in arrays]
            arrays |= decoded_tensors(rest, floats, threads=threads, progress=progress)
        else:
            arrays = {
                tensor.name: _on_device(tensor, kind, place)
                for tensor, kind in zip(tensors, types, strict=True)
            }
    return {
        tensor.name: arrays[tensor.name]
        if shape == tensor.shape
        else arrays[tensor.name].reshape(shape)
        for tensor, shape in zip(tensors, shapes, strict=True)
    }


def load_packed(
    model: AnyModel, *, device: torch.device | str | int = "cpu"
) -> dict[str, PackedTensor]:
    """Return the tensors of a model by name as they are packed, to be decoded when used.

    Nothing is read from a file: the tensors share a private map of it, also on the way to a device.
    """
    with opened(model) as source:
        return packed_tensors(source, device=device)


def packed_tensors(
    tensors: Mapping[str, Tensor],
    dtype: str = "float32",
    device: torch.device | str | int = "cpu",
) -> dict[str, PackedTensor]:
    """Return tensors by name as they are packed, to be decoded to `dtype` when used."""
    torch = library("torch", EXTRA)
    place, maps = torch.device(device), PrivateMaps()
    return {
        name: _packed(tensor, place, maps.bytes_of(tensor)).to(getattr(torch, dtype))
        for name, tensor in tensors.items()
    }


def dequantize(data: torch.Tensor, type: AnyType, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return the elements of packed `data`: uint8 of shape (..., bytes of a row), on any device.

    The float32 values have the same bits as from `ggufkit.quants.dequantize`, also under
    `torch.compile`. `dtype` (float32 if None) is what they are rounded to.
    """
    from ggufkit.frameworks.torch_blocks import decode  # noqa: PLC0415 (it imports torch)

    elements = decode(data, tensor_type(type))
    return elements if dtype is None else elements.to(dtype)


def save(
    path: AnyPath | IO[bytes],
    tensors: Mapping[str, Any],
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
            remedy="Write save(path, state_dict, metadata)",
        )
    gguf_tensors = Tensors(as_gguf(name, value) for name, value in tensors.items())
    return write(model_of(gguf_tensors, metadata), path, **options)


def as_gguf(name: str, value: object) -> Tensor:
    """Return the tensor that `value` describes, as `save` documents it."""
    torch = library("torch", EXTRA)
    pair = value if isinstance(value, tuple) and len(value) == 2 else (value, None)  # noqa: PLR2004
    array, target = pair
    if isinstance(array, torch.Tensor) and hasattr(array, "blocks"):
        rows = TorchRows(array.detach().blocks)
        packed = Tensor.over(name, array.tensor_type, tuple(array.shape), rows)
        return packed if target is None else retyped(packed, target)
    if not isinstance(array, torch.Tensor):
        return as_tensor(name, value)
    tensor = of_few_axes(of_torch(name, array))
    if tensor.type.id < 0:
        raise TensorTypeError(
            f"tensor {name!r}: GGUF has no type for {array.dtype}",
            remedy=f"Convert it to one of {', '.join(DTYPES.values())}",
        )
    return tensor if target is None else retyped(tensor, target)


# In the processor's memory.


def decoded_tensors(
    tensors: Sequence[Tensor], floats: str | None, *, threads: int | None, progress: Progress | None
) -> dict[str, torch.Tensor]:
    """Return new torch tensors by name: floats become the type `floats`, if there is one."""
    kinds = [decoded_type(tensor, floats) for tensor in tensors]
    arrays = decoded_arrays(tensors, kinds, threads=threads, progress=progress)
    return {
        tensor.name: as_torch(array, kind)
        for tensor, kind, array in zip(tensors, kinds, arrays, strict=True)
    }


def as_torch(array: Numbers, type: TensorType) -> torch.Tensor:
    """Return a torch tensor that shares the memory of a writable array of a plain type."""
    torch = library("torch", EXTRA)
    if type == "BF16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array).view(torch_dtype(type))


def torch_dtype(type: TensorType) -> torch.dtype:
    """Return the dtype that holds a plain type; uint8 for what torch lacks."""
    torch = library("torch", EXTRA)
    return getattr(torch, TORCH_DTYPES.get(type.name, "uint8"), torch.uint8)


def _mapped(tensors: list[Tensor], types: list[TensorType]) -> dict[str, torch.Tensor]:
    """Return views of private maps for the tensors that need no decoding."""
    maps = PrivateMaps()
    arrays = {}
    for tensor, kind in zip(tensors, types, strict=True):
        is_aligned = not (tensor.offset or 0) % kind.block_bytes
        data = maps.bytes_of(tensor) if tensor.type == kind and is_aligned else None
        if data is not None:
            shape = (*tensor.shape[:-1], -1) if kind.is_quantized else tensor.shape
            arrays[tensor.name] = data.view(torch_dtype(kind)).reshape(shape)
    return arrays


class PrivateMaps:
    """Private maps of files, one for each: writing to their tensors changes no file."""

    def __init__(self) -> None:
        self._maps: dict[MappedFile, Any] = {}

    def bytes_of(self, tensor: Tensor) -> torch.Tensor | None:
        """Return a tensor's bytes in the map of its file; None unless they lie there unchanged."""
        torch = library("torch", EXTRA)
        span = tensor.source.span
        is_plain = tensor.is_whole and tensor.source.byte_order == "little"
        if not (span and span.nbytes and is_plain and isinstance(span.file, MappedFile)):
            return None
        if span.file not in self._maps:
            self._maps[span.file] = span.file.private()
        return torch.frombuffer(
            self._maps[span.file], dtype=torch.uint8, count=span.nbytes, offset=span.offset
        )


# On another device.


def _on_device(tensor: Tensor, type: TensorType, device: torch.device) -> torch.Tensor:
    """Return a tensor that is copied to the device and decoded there."""
    torch = library("torch", EXTRA)
    dtype = torch_dtype(type)
    if device.type == "meta":
        return torch.empty(tensor.shape, dtype=dtype, device=device)
    if not tensor.type.is_quantized or tensor.type.id < 0 or tensor.type.interleaved > 1:
        return as_torch(decoded_arrays([tensor], [type])[0], type).to(device)
    return _packed(tensor, device).dequantize(dtype)


def _packed(
    tensor: Tensor, device: torch.device, mapped: torch.Tensor | None = None
) -> PackedTensor:
    torch = library("torch", EXTRA)
    shape = (tensor.rows, tensor.row_bytes)
    if device.type == "meta":
        data = torch.empty(shape, dtype=torch.uint8, device=device)
    elif mapped is not None:
        data = mapped.reshape(shape).to(device)
    else:
        rows = in_order(tensor, "little").read(0, tensor.rows)
        data = torch.from_numpy(np.require(rows, requirements=["C", "W"])).to(device)
    from ggufkit.frameworks.torch_packed import PackedTensor as Packed  # noqa: PLC0415 (it imports torch)

    return Packed(data, tensor.type, tensor.shape)


# Tensors one at a time.


class safe_open:  # noqa: N801 (so safetensors calls it)
    """Opens a model; `get_tensor` and `get_slice` read and decode only what they return.

    Use it as a context manager, as `safetensors.safe_open`: code written for that runs with a GGUF
    file. Tensors become `dtype` on `device`, as `load` gives them.
    """

    def __init__(
        self,
        model: AnyModel,
        framework: str = "pt",
        device: torch.device | str | int = "cpu",
        *,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Open the model; `framework` is safetensors' own argument, and "pt" its one value here."""
        self._model = as_model(model)
        self._is_own = self._model is not model
        self._options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.framework = framework

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_own:
            self._model.close()

    def keys(self) -> list[str]:
        """Return the names of the tensors, in the order of the file."""
        return list(self._model)

    def metadata(self) -> dict[str, Any]:
        """Return the metadata as plain Python."""
        return self._model.metadata.to_dict()

    def get_tensor(self, name: str) -> torch.Tensor:
        """Return a tensor; MissingTensorError (a KeyError) for an unknown name."""
        return _loaded(self._model, self._model[name], self._options)

    def get_slice(self, name: str) -> TensorSlice:
        """Return a tensor; an index reads only the rows of the first axis that it selects."""
        return TensorSlice(self._model, self._model[name], self._options)


class TensorSlice:
    """A tensor that is read when it is indexed, as safetensors' `PySafeSlice`."""

    def __init__(self, model: Model, tensor: Tensor, options: dict[str, Any]) -> None:
        self._model, self._tensor, self._options = model, tensor, options

    def get_shape(self) -> list[int]:
        """Return the shape."""
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """Return the name of the type in the file."""
        return self._tensor.type.name

    def __getitem__(self, index: Any) -> torch.Tensor:  # noqa: ANN401 (as torch takes it)
        first, *others = index if isinstance(index, tuple) else (index,)
        tensor = self._tensor
        if tensor.ndim > 1 and isinstance(first, int | slice):
            tensor = tensor[first]
            others = others if isinstance(first, int) else [slice(None), *others]
        else:
            others = [first, *others]
        return _loaded(self._model, tensor, self._options)[tuple(others)].contiguous()


def _loaded(model: Model, tensor: Tensor, options: dict[str, Any]) -> torch.Tensor:
    whole = model[tensor.name].shape == tensor.shape
    metadata = model.metadata if whole else {}  # which may give the whole tensor another shape
    return load(model.replace(metadata=metadata, tensors=[tensor]), **options)[tensor.name]
