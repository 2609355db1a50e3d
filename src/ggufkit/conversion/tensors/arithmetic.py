"""Computes on the elements of lazy tensors, in the precision of llama.cpp's converter.

Sums of products are made in float64 and rounded once. PyTorch adds in float32, in an order that
depends on the processor: its last places differ from machine to machine, and from ours.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ggufkit.conversion.tensors.moves import require_size, reshape, take
from ggufkit.errors import ShapeError
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.rows import ComputedRows
from ggufkit.models.sources import retyped, separable
from ggufkit.quants import codec
from ggufkit.system.mapped_file import Bytes

AnyFloats = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float32]
_BLOCK: Final = 1 << 22  # elements in memory at a time
_LEAST_LENGTH: Final = 1e-7  # of a column: Ling's own
_LEAST_MEAN: Final = np.float32(1e-5)  # of the sizes of weights: BitNet's own
_MATRIX: Final = 2  # axes


@dataclass(frozen=True, eq=False)
class Computed(ComputedRows):
    """Rows of another tensor after arithmetic in a type.

    `apply` gets the elements of rows. If there is a `prepare`, it also gets the number of the first
    row, and what `prepare` returns when it is called once.
    """

    tensor: Tensor
    type: TensorType
    apply: Callable[..., AnyFloats]
    prepare: Callable[[], Any] | None = None

    def read(self, start: int, stop: int) -> Bytes:
        """Read, compute and return rows."""
        more = (start, self._prepared) if self.prepare else ()
        with np.errstate(all="ignore"):  # a file may hold anything
            numbers = read_floats(self.tensor, self.type, start, stop)
            numbers = self.apply(numbers, *more)
            return np.ascontiguousarray(numbers, self.type.dtype).view(np.uint8)

    @functools.cached_property
    def _prepared(self) -> Any:  # noqa: ANN401 (what `apply` needs)
        with np.errstate(all="ignore"):
            return self.prepare() if self.prepare else None


def read_floats(tensor: Tensor, type: TensorType, start: int, stop: int) -> AnyFloats:
    """Return rows as float16 or float32, by `type`."""
    tensor = separable(tensor)
    data = np.ascontiguousarray(tensor.source.read(start, stop))
    if tensor.type.dtype is not None:
        return data.view(tensor.type.dtype).astype(type.dtype)
    return codec.dequantize(data, tensor.type, threads=1)


def working_type(tensor: Tensor) -> TensorType:
    """Return the type that llama.cpp's converter computes in: F16 for F16, else F32."""
    return tensor_type("F16" if tensor.type.name == "F16" else "F32")


def same(array: AnyFloats) -> AnyFloats:
    """Return the elements unchanged: `compute` alone turns them into floats."""
    return array


def compute(
    tensor: Tensor,
    apply: Callable[..., AnyFloats] = same,
    prepare: Callable[[], Any] | None = None,
    *,
    shape: tuple[int, ...] | None = None,
) -> Tensor:
    """Return the tensor with `apply` called on its rows, as `Computed` explains."""
    kind = working_type(tensor)
    source = Computed(tensor, kind, apply, prepare)
    return Tensor.over(tensor.name, kind, shape or tensor.shape, source)


def softplus(array: AnyFloats) -> AnyFloats:
    """Return log(1 + exp(x)), the nearest float."""
    return np.logaddexp(0, array.astype(np.float64)).astype(array.dtype)


def softplus_undone(array: AnyFloats) -> AnyFloats:
    """Return the numbers whose softplus is given."""
    return np.log(np.expm1(array.astype(np.float64))).astype(array.dtype)


def silu(array: AnyFloats) -> AnyFloats:
    """Return x / (1 + exp(-x)), the nearest float."""
    numbers = array.astype(np.float64)
    scaled: AnyFloats = numbers / (1 + np.exp(-numbers))
    return scaled.astype(array.dtype)


def plus(number: float, array: AnyFloats) -> AnyFloats:
    """Add a number in F32, as PyTorch does to F16 too."""
    total: AnyFloats = array.astype(np.float32) + np.float32(number)
    return total.astype(array.dtype)


def minus(number: float, array: AnyFloats) -> AnyFloats:
    """Subtract a number."""
    return plus(-number, array)


def times(factor: float, array: AnyFloats) -> AnyFloats:
    """Multiply in F32, as PyTorch does with a number and F16 too."""
    product: AnyFloats = array.astype(np.float32) * np.float32(factor)
    return product.astype(array.dtype)


def neg_exp(function: Callable[[str, AnyFloats], AnyFloats], array: AnyFloats) -> AnyFloats:
    """Return -exp(x) by a function such as `of_numpy`."""
    return -function("exp", array)


def of_numpy(name: str, array: AnyFloats) -> AnyFloats:
    """Return the nearest floats to a function of NumPy, such as exp."""
    numbers: AnyFloats = getattr(np, name)(array.astype(np.float64))
    return numbers.astype(array.dtype)


def of_torch(name: str, array: AnyFloats) -> AnyFloats:
    """Return a function as PyTorch computes it on this processor."""
    import torch  # noqa: PLC0415 (an extra)

    function = getattr(torch, name, None) or getattr(torch.nn.functional, name)
    numbers: AnyFloats = function(torch.from_numpy(array)).numpy()
    return numbers


def neg_exp_undone(array: AnyFloats) -> AnyFloats:
    """Return the numbers whose -exp is given."""
    return np.log(-array.astype(np.float64)).astype(array.dtype)


def scale_rows(tensor: Tensor, factors: AnyFloats) -> Tensor:
    """Return the tensor with each row multiplied by its factor."""
    return compute(tensor, _scaled, functools.partial(same, factors))


def _scaled(rows: AnyFloats, start: int, factors: AnyFloats) -> AnyFloats:
    return rows.astype(np.float32) * factors[start : start + len(rows), None]


def divided_rows(tensor: Tensor, divisors: Tensor, least: float) -> Tensor:
    """Return each row divided by the number of its place in `divisors`, or by `least` if larger."""
    if divisors.shape != tensor.shape[:-1]:
        raise ShapeError(
            f"{tensor.name!r} of shape {tensor.shape} cannot be divided by {divisors.name!r} of "
            f"shape {divisors.shape}"
        )
    numbers = functools.partial(read_floats, divisors, working_type(tensor), 0, divisors.rows)
    return compute(tensor, functools.partial(_divided, least), numbers)


def _divided(least: float, rows: AnyFloats, start: int, divisors: AnyFloats) -> AnyFloats:
    by = divisors.reshape(-1)[start : start + len(rows), None]
    quotients: AnyFloats = rows / np.maximum(by, by.dtype.type(least))
    return quotients


def unit_columns(tensor: Tensor) -> Tensor:
    """Return a matrix with each column divided by its length."""
    kind = tensor_type("F32")
    source = Computed(tensor, kind, _by_lengths, functools.partial(_lengths, tensor))
    return Tensor.over(tensor.name, kind, tensor.shape, source)


def _by_lengths(rows: AnyFloats, _: int, lengths: AnyFloats) -> AnyFloats:
    return rows / lengths


def _lengths(tensor: Tensor) -> AnyFloats:
    """Return the lengths of the columns; PyTorch too adds the squares in F32, row by row."""
    sums = np.zeros((1, tensor.shape[-1]), np.float32)
    for rows in _blocks(tensor):
        sums = np.add.reduce(np.concatenate([sums, np.square(rows)]), axis=0, keepdims=True)
    lengths: AnyFloats = np.sqrt(sums) + np.float32(_LEAST_LENGTH)
    return lengths


def _blocks(tensor: Tensor) -> Iterator[AnyFloats]:
    step = max(1, _BLOCK // tensor.shape[-1])
    for start in range(0, tensor.rows, step):
        stop = min(start + step, tensor.rows)
        yield read_floats(tensor, working_type(tensor), start, stop).astype(np.float32)


def multiplied_by(tensor: Tensor, matrix: Tensor, vector: Tensor | None = None) -> Tensor:
    """Return each row of a tensor after a linear layer: a matrix, and a vector that is added."""
    if len(matrix.shape) != _MATRIX or matrix.shape[1:] != tensor.shape[-1:]:
        raise ShapeError(
            f"{tensor.name!r} of shape {tensor.shape} cannot be multiplied by {matrix.name!r} of "
            f"shape {matrix.shape}"
        )
    if vector is not None and vector.shape != matrix.shape[:1]:
        raise ShapeError(
            f"{vector.name!r} of shape {vector.shape} cannot be added to products with "
            f"{matrix.name!r} of shape {matrix.shape}"
        )
    layer = functools.partial(_doubles, matrix, vector)
    return compute(tensor, _multiplied, layer, shape=(*tensor.shape[:-1], matrix.shape[0]))


def _doubles(*tensors: Tensor | None) -> list[AnyFloats | float]:
    """Return the elements of tensors in float64, 0 for a tensor that there is not."""
    return [
        0.0 if t is None else read_floats(t, working_type(t), 0, t.rows).astype(np.float64)
        for t in tensors
    ]


def _multiplied(rows: AnyFloats, _: int, layer: tuple[AnyFloats, AnyFloats | float]) -> AnyFloats:
    products: AnyFloats = rows.astype(np.float64) @ layer[0].T + layer[1]
    return products


def ternary(tensor: Tensor) -> Tensor:
    """Return the matrix with weights rounded to -1, 0 or 1 times their mean size, as BitNet does.

    Weights that have three values already stay.
    """
    return compute(tensor, _ternary, functools.partial(_inverse_mean, tensor))


def _ternary(rows: AnyFloats, _: int, inverse: np.float32 | None) -> AnyFloats:
    if inverse is None:
        return rows
    # Twice inverted: so does llama.cpp's converter, and BitNet's own code.
    return np.clip(np.rint(rows.astype(np.float32) * inverse), -1, 1) / inverse


def _inverse_mean(tensor: Tensor) -> np.float32 | None:
    """Return one through the mean of all sizes, None if the sizes but zero are all the same."""
    total, least, largest = 0.0, np.inf, 0.0
    for rows in _blocks(tensor):
        sizes = np.abs(rows)
        total += float(sizes.sum(dtype=np.float64))
        least = min(least, float(sizes.min(initial=np.inf, where=sizes > 0)))
        largest = max(largest, float(sizes.max(initial=0.0)))
    if least >= largest:
        return None
    inverse: np.float32 = np.float32(1) / max(np.float32(total / tensor.elements), _LEAST_MEAN)
    return inverse


def centered(tensor: Tensor) -> Tensor:
    """Return a vector less its mean, in its own type."""
    if len(tensor.shape) != 1:
        raise ShapeError(f"{tensor.name!r} of shape {tensor.shape} is not a vector")
    return retyped(compute(tensor, functools.partial(_less_mean, tensor.type)), tensor.type)


def _less_mean(kind: TensorType, numbers: AnyFloats) -> AnyFloats:
    mean = np.array([numbers.mean(dtype=np.float64)], np.float32)
    if kind.dtype is not None:
        return numbers.astype(np.float32) - mean.astype(kind.dtype).astype(np.float32)
    packed = codec.quantize(mean, kind, threads=1)
    return numbers - codec.dequantize(packed, kind, threads=1)


def batch_norm(tensor: Tensor, epsilon: float, *, is_bias: bool) -> Tensor:
    """Return the weight or the bias into which a batch norm's mean and variance are folded.

    The tensor holds weight, bias, mean and variance, one after the other.
    """
    if len(tensor.shape) != 1 or tensor.shape[0] % 4:
        raise ShapeError(f"{tensor.name!r} of shape {tensor.shape} is not four vectors")
    apply = functools.partial(_folded, epsilon, is_bias)
    return compute(tensor, apply, shape=(tensor.shape[0] // 4,))


def _folded(epsilon: float, is_bias: bool, numbers: AnyFloats) -> AnyFloats:  # noqa: FBT001
    weight, bias, mean, variance = numbers.reshape(4, 1, -1)
    spread = variance.astype(np.float32) + np.float32(epsilon)
    folded: AnyFloats = weight / np.sqrt(spread.astype(numbers.dtype))
    return bias - mean * folded if is_bias else folded


def reduced(ufunc: np.ufunc, tensor: Tensor, axis: int) -> Tensor:
    """Return the sums (np.add) or products (np.multiply) along an axis, without the axis."""
    shape = tensor.shape
    if not 0 <= axis < len(shape):
        raise ShapeError(f"{tensor.name!r} of shape {shape} has no axis {axis}")
    flat = reshape(tensor, (math.prod(shape[:axis]), -1))
    apply = functools.partial(_reduced, ufunc, shape[axis])
    sums = compute(flat, apply, shape=(flat.rows, flat.shape[1] // shape[axis]))
    return reshape(sums, (*shape[:axis], *shape[axis + 1 :]))


def _reduced(ufunc: np.ufunc, count: int, array: AnyFloats) -> AnyFloats:
    """Add or multiply so many equal parts of each row in F32, as PyTorch does with F16 too."""
    reduced: AnyFloats = ufunc.reduce(array.reshape(len(array), count, -1), 1, dtype=np.float32)
    return reduced


# Squares of positions, bit for bit as PyTorch resizes them with AVX2 and AVX-512.
@dataclass(frozen=True, eq=False)
class Weighted(ComputedRows):
    """Sums of the rows of several tensors, each row times a weight of its own."""

    tensors: Sequence[Tensor]
    weights: Sequence[FloatArray]
    type: TensorType

    def read(self, start: int, stop: int) -> Bytes:
        """Read, multiply and add rows; each product is added before it is rounded."""
        sums: npt.NDArray[Any] = np.zeros(1, np.float32)
        for tensor, weights in zip(self.tensors, self.weights, strict=True):
            numbers = read_floats(tensor, self.type, start, stop).astype(np.float64)
            sums = (numbers * weights[start:stop, None] + sums).astype(np.float32)
        return np.ascontiguousarray(sums).view(np.uint8)


def resized(tensor: Tensor, side: int) -> Tensor:
    """Return a square of positions with another side; the corners keep their values."""
    *outer, positions, _ = tensor.shape if len(tensor.shape) > 1 else (0, 0)
    before = math.isqrt(positions)
    if before * before != positions or not positions or math.prod(outer) != 1 or side < 1:
        raise ShapeError(f"{tensor.name!r} of shape {tensor.shape} is not a square of positions")
    if side == before:
        return tensor
    require_size(tensor, side * side * tensor.shape[-1])
    kind = tensor_type("F32")
    rows = reshape(tensor, tensor.shape[-2:])
    low, high, near, far = _between(before, side)
    # PyTorch adds the four corners in this order.
    corners = ((high, low, far, near), (high, high, far, far),
               (low, high, near, far), (low, low, near, near))  # fmt: skip
    tensors = [
        take(rows, (top[:, None] * before + column).reshape(-1), (side * side, rows.shape[1]))
        for top, column, _, _ in corners
    ]
    weights = [(above[:, None] * beside).reshape(-1) for _, _, above, beside in corners]
    source = Weighted(tensors, weights, kind)
    output = Tensor.over(tensor.name, kind, (side * side, rows.shape[1]), source)
    return reshape(output, (*outer, side * side, rows.shape[1]))


def _between(
    before: int, side: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], FloatArray, FloatArray]:
    """Return the old positions around each new one along an axis, and their weights."""
    step = np.float32(before - 1) / np.float32(max(side - 1, 1))
    places = step * np.arange(side, dtype=np.float32)
    low = np.minimum(places.astype(np.int64), before - 1)
    far = np.clip(places - low.astype(np.float32), 0, 1).astype(np.float32)
    return low, np.minimum(low + 1, before - 1), np.float32(1) - far, far
