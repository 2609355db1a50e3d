"""Computes on the elements of lazy tensors, in the precision of llama.cpp's converter."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ggufkit.conversion.tensors.moves import reshape
from ggufkit.errors import ShapeError
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.rows import Made
from ggufkit.quants import codec
from ggufkit.system.mapped_file import Bytes

AnyFloats = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Computed(Made):
    """Rows of another tensor after arithmetic in that tensor's precision."""

    tensor: Tensor
    type: TensorType
    apply: Callable[[AnyFloats], AnyFloats]

    def read(self, start: int, stop: int) -> Bytes:
        """Read, compute and return rows."""
        numbers = self.apply(read_floats(self.tensor, self.type, start, stop))
        return np.ascontiguousarray(numbers, self.type.dtype).view(np.uint8)


def read_floats(tensor: Tensor, type: TensorType, start: int, stop: int) -> AnyFloats:
    """Return rows as float16 or float32, by `type`."""
    data = np.ascontiguousarray(tensor.source.read(start, stop))
    if tensor.type.dtype is not None:
        return data.view(tensor.type.dtype).astype(type.dtype)
    return codec.dequantize(data, tensor.type, threads=1)


def working_type(tensor: Tensor) -> TensorType:
    """Return the type that llama.cpp's converter computes in: F16 for F16, else F32."""
    return tensor_type("F16" if tensor.type.name == "F16" else "F32")


def compute(tensor: Tensor, apply: Callable[[AnyFloats], AnyFloats]) -> Tensor:
    """Return the tensor with `apply` called on its elements."""
    kind = working_type(tensor)
    return Tensor.over(tensor.name, kind, tensor.shape, Computed(tensor, kind, apply))


def same(array: AnyFloats) -> AnyFloats:
    """Return the elements unchanged: `compute` alone turns them into floats."""
    return array


@dataclass(frozen=True, eq=False)
class ScaledRows(Made):
    """Rows of another tensor, each times a factor of its own."""

    tensor: Tensor
    type: TensorType
    factors: AnyFloats

    def read(self, start: int, stop: int) -> Bytes:
        """Read, multiply and return rows."""
        numbers = read_floats(self.tensor, self.type, start, stop).reshape(stop - start, -1)
        scaled = numbers.astype(np.float32) * self.factors[start:stop, None]
        return np.ascontiguousarray(scaled.astype(self.type.dtype)).view(np.uint8)


def scale_rows(tensor: Tensor, factors: AnyFloats) -> Tensor:
    """Return the tensor with each row multiplied by its factor."""
    kind = working_type(tensor)
    return Tensor.over(tensor.name, kind, tensor.shape, ScaledRows(tensor, kind, factors))


@dataclass(frozen=True, eq=False)
class Centered(Made):
    """The only row of another tensor, less its mean, in the tensor's own type."""

    tensor: Tensor
    type: TensorType

    def read(self, start: int, stop: int) -> Bytes:
        """Read the row and subtract its mean, rounded as PyTorch rounds both."""
        kind = tensor_type("F32") if self.type.name == "BF16" else self.type
        numbers = read_floats(self.tensor, kind, start, stop)
        mean = self._rounded(np.array([numbers.mean(dtype=np.float64)], np.float32))
        return self._encoded(numbers.astype(np.float32) - mean)

    def _rounded(self, numbers: AnyFloats) -> AnyFloats:
        encoded = self._encoded(numbers)
        if self.type.dtype is not None:
            return encoded.view(self.type.dtype).astype(np.float32)
        return codec.dequantize(encoded, self.type, threads=1)

    def _encoded(self, numbers: AnyFloats) -> Bytes:
        if self.type.dtype is not None:
            return np.ascontiguousarray(numbers, self.type.dtype).view(np.uint8)
        return codec.quantize(np.ascontiguousarray(numbers), self.type, threads=1)


def centered(tensor: Tensor) -> Tensor:
    """Return a vector less its mean."""
    if len(tensor.shape) != 1:
        raise ShapeError(f"{tensor.name!r} of shape {tensor.shape} is not a vector")
    return Tensor.over(tensor.name, tensor.type, tensor.shape, Centered(tensor, tensor.type))


@dataclass(frozen=True, eq=False)
class BatchNorm(Made):
    """Weight or bias into which a batch norm's mean and variance are folded.

    The tensor holds weight, bias, mean and variance, one after the other.
    """

    tensor: Tensor
    type: TensorType
    epsilon: float
    is_bias: bool

    def read(self, start: int, stop: int) -> Bytes:
        """Read the four vectors, and return one; each step is rounded as PyTorch rounds it."""
        numbers = read_floats(self.tensor, self.type, start, stop)
        weight, bias, mean, variance = numbers.reshape(4, -1)
        spread = variance.astype(np.float32) + np.float32(self.epsilon)
        with np.errstate(invalid="ignore", divide="ignore"):  # a file may hold anything
            folded = weight / np.sqrt(spread.astype(numbers.dtype))
            folded = bias - mean * folded if self.is_bias else folded
        return np.ascontiguousarray(folded.reshape(1, -1), self.type.dtype).view(np.uint8)


def batch_norm(tensor: Tensor, epsilon: float, *, is_bias: bool) -> Tensor:
    """Return the weight or the bias of a batch norm from the four vectors of a checkpoint."""
    if len(tensor.shape) != 1 or tensor.shape[0] % 4:
        raise ShapeError(f"{tensor.name!r} of shape {tensor.shape} is not four vectors")
    kind = working_type(tensor)
    source = BatchNorm(tensor, kind, epsilon, is_bias)
    return Tensor.over(tensor.name, kind, (tensor.shape[0] // 4,), source)


@dataclass(frozen=True, eq=False)
class DividedRows(Made):
    """Rows of another tensor, each divided by a number of its own that is not below a limit."""

    tensor: Tensor
    type: TensorType
    divisors: Tensor
    least: float

    def read(self, start: int, stop: int) -> Bytes:
        """Read and divide rows."""
        rows = read_floats(self.tensor, self.type, start, stop).reshape(stop - start, -1)
        by = read_floats(self.divisors, self.type, 0, self.divisors.rows).reshape(-1)[start:stop]
        with np.errstate(invalid="ignore", over="ignore"):  # a file may hold anything
            made = rows / np.maximum(by, by.dtype.type(self.least))[:, None]
        return np.ascontiguousarray(made).view(np.uint8)


def divided_rows(tensor: Tensor, divisors: Tensor, least: float) -> Tensor:
    """Return each row divided by the number of its place in `divisors`, or by `least` if larger."""
    if divisors.shape != tensor.shape[:-1]:
        raise ShapeError(
            f"{tensor.name!r} of shape {tensor.shape} cannot be divided by {divisors.name!r} of "
            f"shape {divisors.shape}"
        )
    kind = working_type(tensor)
    return Tensor.over(tensor.name, kind, tensor.shape, DividedRows(tensor, kind, divisors, least))


def reciprocal(array: AnyFloats) -> AnyFloats:
    """Return 1 / x."""
    with np.errstate(divide="ignore"):  # a file may hold anything
        made: AnyFloats = np.reciprocal(array)
    return made


def softplus(array: AnyFloats) -> AnyFloats:
    """Return log(1 + exp(x)), the nearest float."""
    return np.logaddexp(0, array.astype(np.float64)).astype(array.dtype)


def softplus_undone(array: AnyFloats) -> AnyFloats:
    """Return the numbers whose softplus is given."""
    with np.errstate(invalid="ignore", divide="ignore"):  # a file may hold anything
        return np.log(np.expm1(array.astype(np.float64))).astype(array.dtype)


def silu(array: AnyFloats) -> AnyFloats:
    """Return x / (1 + exp(-x)), the nearest float."""
    numbers = array.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # a file may hold anything
        made: AnyFloats = (numbers / (1 + np.exp(-numbers))).astype(array.dtype)
    return made


def plus(number: float, array: AnyFloats) -> AnyFloats:
    """Add a number in F32, as PyTorch does to F16 too."""
    made: AnyFloats = (array.astype(np.float32) + np.float32(number)).astype(array.dtype)
    return made


def minus(number: float, array: AnyFloats) -> AnyFloats:
    """Subtract a number."""
    return plus(-number, array)


def times(factor: float, array: AnyFloats) -> AnyFloats:
    """Multiply in F32, as PyTorch does with a number and F16 too."""
    made: AnyFloats = (array.astype(np.float32) * np.float32(factor)).astype(array.dtype)
    return made


def neg_exp(array: AnyFloats) -> AnyFloats:
    """Return -exp(x), the nearest float."""
    return -np.exp(array.astype(np.float64)).astype(array.dtype)


def neg_exp_undone(array: AnyFloats) -> AnyFloats:
    """Return the numbers whose -exp is given."""
    with np.errstate(invalid="ignore", divide="ignore"):  # a file may hold anything
        return np.log(-array.astype(np.float64)).astype(array.dtype)


def summed(tensor: Tensor, axis: int) -> Tensor:
    """Return the sums along an axis, without the axis."""
    return _reduced(tensor, axis, _sums)


def multiplied(tensor: Tensor, axis: int) -> Tensor:
    """Return the products along an axis, without the axis."""
    return _reduced(tensor, axis, _products)


def _reduced(tensor: Tensor, axis: int, reduce: Callable[..., AnyFloats]) -> Tensor:
    shape = tensor.shape
    if not 0 <= axis < len(shape):
        raise ShapeError(f"{tensor.name!r} of shape {shape} has no axis {axis}")
    kind = working_type(tensor)
    flat = reshape(tensor, (math.prod(shape[:axis]), -1))
    source = Computed(flat, kind, functools.partial(reduce, shape[axis]))
    sums = Tensor.over(tensor.name, kind, (flat.rows, flat.shape[1] // shape[axis]), source)
    return reshape(sums, (*shape[:axis], *shape[axis + 1 :]))


def _products(count: int, array: AnyFloats) -> AnyFloats:
    """Multiply so many equal parts of each row in F32."""
    parts = array.reshape(len(array), count, -1)
    made: AnyFloats = np.multiply.reduce(parts, axis=1, dtype=np.float32).astype(array.dtype)
    return made


def _sums(count: int, array: AnyFloats) -> AnyFloats:
    """Add so many equal parts of each row in F32, as PyTorch does with F16 too."""
    parts = array.reshape(len(array), count, -1)
    made: AnyFloats = parts.sum(axis=1, dtype=np.float32).astype(array.dtype)
    return made
