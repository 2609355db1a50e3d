"""Tensors of PyTorch that stay packed as in the file, and modules that decode them when called."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ggufkit.errors import ShapeError, TensorTypeError
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.frameworks.extras import library
from ggufkit.models.rows import rows_and_width
from ggufkit.quants.codec import AnyType

pytorch: Final[Any] = library("torch", "torch")
if TYPE_CHECKING:
    import torch
    from torch import Tensor as TorchTensor
else:
    TorchTensor = pytorch.Tensor
_OPERATIONS: Final = pytorch.ops.aten


class PackedTensor(TorchTensor):  # type: ignore[misc]  # mypy runs without torch
    """A tensor whose elements stay packed: `blocks` is uint8, a row of bytes for each row.

    It has the shape of its elements and a float dtype, which is what `dequantize` gives and what
    operations compute with: each decodes the tensor when it is called, `embedding` only the rows
    that it takes. `to(device)` moves the blocks, and `to(dtype)` changes what they decode to.
    `nbytes` counts the blocks. Nothing changes its elements: TensorTypeError.
    """

    blocks: TorchTensor
    tensor_type: TensorType

    @staticmethod
    def __new__(
        cls: type[PackedTensor],
        blocks: TorchTensor,
        type: AnyType,
        shape: Sequence[int],
        dtype: torch.dtype | None = None,
    ) -> PackedTensor:
        """Wrap blocks; ShapeError where they are not the bytes of `shape`."""
        kind = tensor_type(type)
        rows, width = rows_and_width(tuple(shape))
        if width % kind.block_size or blocks.numel() != rows * kind.row_bytes(width):
            raise ShapeError(f"{blocks.numel()} bytes are not a tensor of {kind} of {tuple(shape)}")
        packed: PackedTensor = pytorch.Tensor._make_wrapper_subclass(  # noqa: SLF001 (torch's way)
            cls, tuple(shape), dtype=dtype or pytorch.float32, device=blocks.device
        )
        packed.blocks = blocks.reshape(rows, kind.row_bytes(width))
        packed.tensor_type = kind
        return packed

    def __init__(self, *_: object, **__: object) -> None:
        """Do nothing: `__new__` has made the tensor."""

    def dequantize(self, dtype: torch.dtype | None = None) -> TorchTensor:
        """Return the elements as `dtype` (its own if None), the same bits as on a processor."""
        return self._elements(self.blocks, dtype or self.dtype).reshape(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks."""
        return int(self.blocks.nbytes)

    def __repr__(self, **_: object) -> str:
        return f"<PackedTensor {self.tensor_type} {tuple(self.shape)} on {self.device}>"

    def _elements(self, blocks: TorchTensor, dtype: torch.dtype) -> TorchTensor:
        from ggufkit.frameworks.torch_blocks import decode  # noqa: PLC0415 (its tables take memory)

        elements: TorchTensor = decode(blocks, self.tensor_type).to(dtype)
        return elements

    def _like(self, blocks: TorchTensor, dtype: torch.dtype | None = None) -> PackedTensor:
        return PackedTensor(blocks, self.tensor_type, self.shape, dtype or self.dtype)

    # torch.compile flattens such a tensor and builds it again.

    def __tensor_flatten__(self) -> tuple[list[str], tuple[str, tuple[int, ...], torch.dtype]]:
        return ["blocks"], (self.tensor_type.name, tuple(self.shape), self.dtype)

    @staticmethod
    def __tensor_unflatten__(
        inner: Mapping[str, TorchTensor],
        facts: tuple[str, tuple[int, ...], torch.dtype],
        *_: object,
    ) -> PackedTensor:
        return PackedTensor(inner["blocks"], *facts)

    @classmethod
    def __torch_dispatch__(
        cls,
        function: Any,  # noqa: ANN401 (as torch has them)
        _: object,
        args: tuple[Any, ...] = (),
        options: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        options = options or {}
        own = _OWN.get(function)
        if own and isinstance(args[0], PackedTensor):
            return own(*args, **options)
        if function._schema.is_mutable and isinstance(args[0], PackedTensor):  # noqa: SLF001
            raise TensorTypeError(
                f"{args[0]!r} cannot be changed by {function}", remedy="Change dequantize()"
            )
        plain = pytorch.utils._pytree.tree_map_only(  # noqa: SLF001 (torch's way)
            PackedTensor, PackedTensor.dequantize, (args, options)
        )
        return function(*plain[0], **plain[1])


def _moved(tensor: PackedTensor, **options: Any) -> PackedTensor:
    dtype = options.pop("dtype", None)
    blocks = tensor.blocks.to(options.get("device") or tensor.device)
    return tensor._like(blocks, dtype)  # noqa: SLF001


def _copied(tensor: PackedTensor, source: TorchTensor, *_: object) -> PackedTensor:
    if not isinstance(source, PackedTensor) or source.tensor_type != tensor.tensor_type:
        raise TensorTypeError(
            f"{tensor!r} can only be set to packed values of its type", remedy="Pack them first"
        )
    tensor.blocks.copy_(source.blocks)
    return tensor


def _embedded(tensor: PackedTensor, indexes: TorchTensor, *_: object, **__: object) -> TorchTensor:
    rows = tensor._elements(tensor.blocks[indexes.reshape(-1)], tensor.dtype)  # noqa: SLF001
    return rows.reshape(*indexes.shape, tensor.shape[-1])


_OWN: Final[dict[Any, Callable[..., Any]]] = {
    _OPERATIONS.detach.default: lambda tensor: tensor._like(tensor.blocks),  # noqa: SLF001
    _OPERATIONS.alias.default: lambda tensor: tensor._like(tensor.blocks),  # noqa: SLF001
    _OPERATIONS.clone.default: lambda tensor, **_: tensor._like(tensor.blocks.clone()),  # noqa: SLF001
    _OPERATIONS._to_copy.default: _moved,  # noqa: SLF001
    _OPERATIONS.copy_.default: _copied,
    _OPERATIONS.embedding.default: _embedded,
}


def linear(weight: PackedTensor, bias: TorchTensor | None = None) -> torch.nn.Linear:
    """Return a linear layer that holds the packed `weight`, and decodes it in each call.

    `weight` has the shape (outputs, inputs). Convert the layer with `to` like any other.
    """
    outputs, inputs = _matrix(weight)
    layer = pytorch.nn.Linear(inputs, outputs, bias=bias is not None, device="meta")
    if bias is not None:
        plain = bias.dequantize() if isinstance(bias, PackedTensor) else bias
        layer.bias = pytorch.nn.Parameter(plain, requires_grad=False)
    layer.weight = pytorch.nn.Parameter(weight, requires_grad=False)
    return layer


def embedding(weight: PackedTensor) -> torch.nn.Embedding:
    """Return an embedding that holds the packed `weight`, and decodes the rows that a call takes.

    `weight` has the shape (entries, width).
    """
    layer = pytorch.nn.Embedding(*_matrix(weight), device="meta")
    layer.weight = pytorch.nn.Parameter(weight, requires_grad=False)
    return layer


def _matrix(weight: PackedTensor) -> tuple[int, int]:
    if weight.ndim != 2 or not math.prod(weight.shape):  # noqa: PLR2004
        raise ShapeError(f"{weight!r} is not a matrix")
    return (weight.shape[0], weight.shape[1])
