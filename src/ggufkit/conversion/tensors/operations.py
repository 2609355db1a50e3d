"""Operations of architecture files: a table with one row each, forwards and backwards.

Three functions make rows, by what happens to the shape: `reordering` and `elementwise` keep it, and
`reshaping` takes a rule for the new one. Operations return a lazy tensor; its shape and type are
known before any row is read.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ggufkit.conversion.tensors import arithmetic, moves
from ggufkit.conversion.tensors.arithmetic import AnyFloats, Computed, compute
from ggufkit.conversion.tensors.moves import concat, require_size, reshape, row_axis, take
from ggufkit.conversion.tensors.row_sources import RowIndex
from ggufkit.errors import MISFORMED, CheckpointError, GGUFError, ShapeError, ValueTypeError
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.rows import Rewritten
from ggufkit.models.sources import from_array
from ggufkit.system.mapped_file import Bytes
from ggufkit.validation.typed_values import MAX_FLOAT32, finite_number

Act = Callable[..., Tensor]
_I64: Final = tensor_type("I64")
_I32: Final = tensor_type("I32")


class Parts(NamedTuple):
    """How parts form the whole again: along which axis, in sequence or interleaved."""

    axis: Callable[[Tensor], int]
    in_turns: bool = False


@dataclass(frozen=True)
class Operation:
    """One operation: how to do it, how to undo it, and how to join its parts again.

    `undo` is None if the result does not determine the input. An operation with `parts` is undone
    by joining the results of several targets; its `undo` is for a single target. One that
    `keeps_columns` treats each column alike, so that it can be done on the left factor of a matrix.
    Without `uses_input` it gives the same for all tensors; export leaves its result out.
    """

    do: Act
    undo: Act | None = None
    parts: Parts | None = None
    keeps_columns: bool = False
    uses_input: bool = True


def reordering(order: Callable[..., RowIndex]) -> Operation:
    """Return an operation that reorders rows and keeps the shape."""

    def do(tensor: Tensor, *arguments: int) -> Tensor:
        return take(tensor, order(tensor, *arguments), tensor.shape)

    def undo(tensor: Tensor, *arguments: int) -> Tensor:
        return take(tensor, np.argsort(order(tensor, *arguments)), tensor.shape)

    return Operation(do, undo, keeps_columns=True)


def reshaping(
    shape: Callable[..., Sequence[int]], back: Callable[..., Sequence[int]] | None = None
) -> Operation:
    """Return an operation that changes the shape only; `back` gives the old shape."""

    def reshaped(rule: Callable[..., Sequence[int]], tensor: Tensor, *arguments: int) -> Tensor:
        return reshape(tensor, rule(tensor, *arguments))

    undo = functools.partial(reshaped, back) if back else None
    return Operation(functools.partial(reshaped, shape), undo, keeps_columns=True)


def elementwise(do: Callable[..., AnyFloats], undo: Callable[..., AnyFloats]) -> Operation:
    """Return an operation that computes each element and keeps the shape.

    Both arguments must be functions of a module, because other processes may run them.
    """

    def computed(apply: Callable[..., AnyFloats], tensor: Tensor, *arguments: float) -> Tensor:
        return compute(tensor, functools.partial(apply, *arguments))

    return Operation(functools.partial(computed, do), functools.partial(computed, undo))


def reverse(operation: Operation) -> Operation:
    """Return the inverse of an operation."""
    assert operation.undo is not None  # noqa: S101 (the table below gives one)
    return replace(operation, do=operation.undo, undo=operation.do)


def _columns_by(tensor: Tensor, heads: int, kinds: int) -> Tensor:
    """Return the tensor with columns in the order that `equal_kinds` gives rows."""
    width = tensor.shape[-1]
    if heads < 1 or kinds < 1 or width % (heads * kinds):
        raise ShapeError(f"{tensor.name!r} has {width} columns, no {kinds} kinds for {heads} heads")
    groups = reshape(tensor, (-1, width // (heads * kinds)))
    index = np.arange(groups.shape[0]).reshape(-1, heads, kinds).swapaxes(1, 2).reshape(-1)
    return take(groups, index, tensor.shape)


def _without_axis(tensor: Tensor, axis: int) -> tuple[int, ...]:
    if not 0 <= axis < len(tensor.shape) or tensor.shape[axis] != 1:
        raise ShapeError(f"{tensor.name!r} of shape {tensor.shape} has no axis {axis} of length 1")
    return (*tensor.shape[:axis], *tensor.shape[axis + 1 :])


def _with_axis(tensor: Tensor, axis: int) -> tuple[int, ...]:
    if not 0 <= axis <= len(tensor.shape):
        raise ShapeError(f"{tensor.name!r} of shape {tensor.shape} has no place for axis {axis}")
    return (*tensor.shape[:axis], 1, *tensor.shape[axis:])


def _first_axis_cut(tensor: Tensor, *sizes: int) -> tuple[int, ...]:
    return (*moves.filled(math.prod(tensor.shape[:1]), sizes), *tensor.shape[1:])


def _first_axes_merged(tensor: Tensor, *sizes: int) -> tuple[int, ...]:
    return (-1, *tensor.shape[len(sizes) :])


def _unchanged(tensor: Tensor, *_: int) -> Tensor:
    """Undo an operation that leaves a tensor of the final shape unchanged."""
    return tensor


def _with_zeros_before(tensor: Tensor, start: int, _stop: int | None = None) -> Tensor:
    if start == 0:
        return tensor
    if start < 0 or not tensor.shape or start > tensor.shape[0]:
        raise ShapeError(f"{tensor.name!r} of shape {tensor.shape} does not follow {start} rows")
    zeros = np.zeros((start, *tensor.shape[1:]), np.float32)
    return concat(tensor.name, [from_array(tensor.name, zeros, tensor.type), tensor])


def _padded(tensor: Tensor, count: int) -> Tensor:
    if count <= tensor.shape[0]:
        return tensor
    require_size(tensor, count * math.prod(tensor.shape[1:]))
    zeros = np.zeros((count - tensor.shape[0], *tensor.shape[1:]), np.float32)
    return concat(tensor.name, [tensor, from_array(tensor.name, zeros, tensor.type)])


def _full(tensor: Tensor, number: float, length: int) -> Tensor:
    require_size(tensor, length)
    return from_array(tensor.name, np.full(length, number, np.float32))


def _first_row_spread(tensor: Tensor, count: int) -> Tensor:
    require_size(tensor, count * math.prod(tensor.shape[1:]))
    return take(tensor, np.zeros(count, np.int64), (count, *tensor.shape[1:]))


def _equal_part(tensor: Tensor, index: int, parts: int) -> Tensor:
    length = tensor.shape[row_axis(tensor)]
    if parts < 1 or length % parts:
        raise ShapeError(f"{tensor.name!r} has {length} rows, which are not {parts} equal parts")
    size = length // parts
    return _part(tensor, index * size, (index + 1) * size)


def _part(tensor: Tensor, start: int, stop: int) -> Tensor:
    axis = row_axis(tensor)
    length = tensor.shape[axis]
    if not 0 <= start < stop <= length:
        raise ShapeError(f"{tensor.name!r} has {length} rows, none from {start} to {stop}")
    if axis == 0:
        return tensor[start:stop]
    return moves.picked(tensor, axis, slice(start, stop))


def _every(tensor: Tensor, start: int, step: int) -> Tensor:
    axis = row_axis(tensor)
    length = tensor.shape[axis]
    if not 0 <= start < step <= length or length % step:
        raise ShapeError(
            f"{tensor.name!r} has {length} rows; every({start}, {step}) needs a multiple of {step}"
        )
    return moves.picked(tensor, axis, slice(start, None, step))


def _scaled(tensor: Tensor, factor: float) -> Tensor:
    """Return the tensor times a number; 1 leaves it as it is, in its own type."""
    return tensor if factor == 1 else compute(tensor, functools.partial(arithmetic.times, factor))


def _factors(tensor: Tensor, runs: Sequence[float]) -> AnyFloats:
    """Return a factor for each row from pairs of a count of rows and their factor, in turns."""
    counts, factors = [int(count) for count in runs[::2]], runs[1::2]
    is_whole = len(factors) == len(counts) and min(counts) > 0 and not tensor.shape[0] % sum(counts)
    if len(tensor.shape) != 2 or not is_whole:  # noqa: PLR2004 (rows and columns)
        raise ShapeError(f"{tensor.name!r} of shape {tensor.shape} has no runs of {counts} rows")
    once = np.repeat(np.array(factors, np.float32), counts)
    return np.tile(once, tensor.shape[0] // sum(counts))


def _runs_scaled(tensor: Tensor, *runs: float) -> Tensor:
    factors = _factors(tensor, runs)
    return tensor if np.all(factors == 1) else arithmetic.scale_rows(tensor, factors)


def _runs_unscaled(tensor: Tensor, *runs: float) -> Tensor:
    return _runs_scaled(tensor, *(n if index % 2 == 0 else 1 / n for index, n in enumerate(runs)))


def _with_ones(tensor: Tensor, axis: int) -> Tensor:
    """Return two factors along the first axis whose product is the tensor: ones, and the tensor."""
    if axis:
        raise ShapeError(f"{tensor.name!r}: products of axis {axis} have no way back")
    whole = reshape(tensor, (1, *tensor.shape))
    ones = from_array(tensor.name, np.ones(whole.shape, np.float32), tensor.type)
    return concat(tensor.name, [ones, whole])


# Tables of integers: ids of tokens and of experts, and the offsets that draft models have.
def _shifted(sign: int, tensor: Tensor, limit: int) -> Tensor:
    """Return ids below a limit from a checkpoint's offsets, with the sign -1 offsets from ids."""
    dtype = tensor.type.dtype
    if len(tensor.shape) != 1 or dtype is None or np.dtype(dtype).kind not in "iu":
        raise ShapeError(f"{tensor.name!r} is {tensor.type} of shape {tensor.shape}, not a vector "
                         "of integers")  # fmt: skip
    apply = functools.partial(_with_positions, tensor.name, sign, limit)
    return Tensor.over(tensor.name, _I64, tensor.shape, Computed(tensor, _I64, apply))


def _with_positions(
    name: str, sign: int, limit: int, numbers: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Add or subtract positions; CheckpointError for ids that cannot be below a limit, if any."""
    ids = numbers + sign * np.arange(numbers.size)
    is_known = not ids.size or (ids.min() >= 0 and ids.max() < limit)
    if limit and (not is_known or len(np.unique(ids)) != ids.size):
        raise CheckpointError(
            f"{name!r} does not give {ids.size} different tokens below "
            f"{limit}, the target's vocabulary",
            remedy="Give the target that the draft model was trained for",
        )
    return ids


def _resized_integers(kind: TensorType, tensor: Tensor) -> Tensor:
    """Return integers in another type; reading raises CheckpointError for one that is too large."""
    if tensor.type not in (_I32, _I64):
        raise ShapeError(f"{tensor.name!r} is {tensor.type}, not a table of integers")
    resize = functools.partial(_resized_rows, tensor.name, tensor.type, kind)
    return Tensor.over(tensor.name, kind, tensor.shape, Rewritten(resize, (tensor.source,)))


def _resized_rows(name: str, before: TensorType, after: TensorType, rows: Bytes) -> Bytes:
    numbers = np.ascontiguousarray(rows).view(np.dtype(before.dtype))
    resized = numbers.astype(np.dtype(after.dtype))
    if not np.array_equal(resized, numbers):
        raise CheckpointError(f"{name!r} has a number beyond {resized.dtype}")
    return resized.view(np.uint8)


OPERATIONS: Final[dict[str, Operation]] = {
    "add": elementwise(arithmetic.plus, arithmetic.minus),
    "at": Operation(moves.entry),
    "axes": Operation(
        moves.with_axes,
        lambda tensor, *order: moves.with_axes(tensor, *map(int, np.argsort(order))),
    ),
    "batch_bias": Operation(functools.partial(arithmetic.batch_norm, is_bias=True)),
    "batch_weight": Operation(functools.partial(arithmetic.batch_norm, is_bias=False)),
    "center": Operation(arithmetic.centered),
    "divide_rows": Operation(arithmetic.divided_rows),
    "every": Operation(_every, parts=Parts(row_axis, in_turns=True), keeps_columns=True),
    "exchange": reordering(moves.two_exchanged),
    "flatten": reshaping(_first_axes_merged, _first_axis_cut),
    "int32": Operation(
        functools.partial(_resized_integers, _I32),
        functools.partial(_resized_integers, _I64),
    ),
    "floats": Operation(compute, _unchanged),
    "full": Operation(_full, uses_input=False),
    "linear": Operation(arithmetic.multiplied_by),
    "neg_exp": elementwise(
        functools.partial(arithmetic.neg_exp, arithmetic.of_numpy), arithmetic.neg_exp_undone
    ),
    "pad_rows": Operation(_padded, _unchanged, keeps_columns=True),
    "part": Operation(_part, parts=Parts(row_axis), keeps_columns=True),
    "permute": reordering(moves.half_pairs),
    "reciprocal": elementwise(np.reciprocal, np.reciprocal),
    "regroup": reordering(moves.kind_by_kind),
    "regroup_columns": Operation(
        _columns_by, lambda tensor, heads, kinds: _columns_by(tensor, kinds, heads)
    ),
    "regroup_heads": reordering(moves.kinds_of_heads),
    "regroup_rows": reordering(moves.equal_kinds),
    "reshape": reshaping(lambda _, *sizes: sizes),
    "resize": Operation(arithmetic.resized),
    "rows": Operation(
        lambda tensor, start, stop: tensor[start:stop],
        _with_zeros_before,
        Parts(lambda _: 0),
        keeps_columns=True,
    ),
    "scale": Operation(
        _scaled, lambda tensor, factor: _scaled(tensor, 1 / factor), keeps_columns=True
    ),
    "scale_runs": Operation(_runs_scaled, _runs_unscaled, keeps_columns=True),
    "side_by_side": Operation(moves.side_by_side, moves.one_below_another),
    "silu": Operation(functools.partial(compute, apply=arithmetic.silu)),
    "softplus": elementwise(arithmetic.softplus, arithmetic.softplus_undone),
    "split": Operation(_equal_part, parts=Parts(row_axis), keeps_columns=True),
    "spread": Operation(_first_row_spread, _unchanged),
    "squeeze": reshaping(_without_axis, _with_axis),
    "product": Operation(functools.partial(arithmetic.reduced, np.multiply), _with_ones),
    "sum": Operation(functools.partial(arithmetic.reduced, np.add)),
    "target_ids": Operation(
        functools.partial(_shifted, 1), lambda tensor, _: _shifted(-1, tensor, 0)
    ),
    "ternary": Operation(arithmetic.ternary, _unchanged),
    "transpose": Operation(moves.transpose, moves.transpose),
    "unflatten": reshaping(_first_axis_cut, _first_axes_merged),
    "unpermute": reverse(reordering(moves.half_pairs)),
    "unit_columns": Operation(arithmetic.unit_columns),
    "unsqueeze": reshaping(_with_axis, _without_axis),
    "vector": reshaping(lambda _: (-1,), lambda tensor: tensor.shape),
    "zeros_before": Operation(
        _with_zeros_before, lambda tensor, count: tensor[count:], keeps_columns=True
    ),
}


# Operations that PyTorch rounds in its own way.
OF_TORCH: Final = {
    "neg_exp": elementwise(
        functools.partial(arithmetic.neg_exp, arithmetic.of_torch), arithmetic.neg_exp_undone
    ),
    "softplus": elementwise(
        functools.partial(arithmetic.of_torch, "softplus"), arithmetic.softplus_undone
    ),
}


def perform(
    tensor: Tensor, name: str, arguments: Sequence[Any], *, exactly: bool = False
) -> Tensor:
    """Return the tensor after the operation `name`.

    `exactly` leaves to PyTorch, if it is installed, what it rounds in its own way.
    """
    table = OF_TORCH if exactly and name in OF_TORCH and has_torch() else OPERATIONS
    return _act(table[name].do, tensor, name, arguments, "done")


@functools.cache
def has_torch() -> bool:
    """Whether PyTorch is installed."""
    return find_spec("torch") is not None


def undo(tensor: Tensor, name: str, arguments: Sequence[Any]) -> Tensor:
    """Return the tensor from which the operation `name` made this one."""
    act = OPERATIONS[name].undo
    if act is None:
        raise CheckpointError(f"{tensor.name!r}: {name} cannot be undone")
    return _act(act, tensor, name, arguments, "undone")


def _act(act: Act, tensor: Tensor, name: str, arguments: Sequence[Any], verb: str) -> Tensor:
    try:
        for number in arguments:
            if not isinstance(number, Tensor):
                finite_number(number, f"{name} needs numbers: an argument", most=MAX_FLOAT32)
    except ValueTypeError as error:
        raise CheckpointError(f"{tensor.name!r}: {error.message}") from None
    try:
        return act(tensor, *arguments)
    except GGUFError:
        raise
    except MISFORMED as error:
        raise CheckpointError(
            f"{tensor.name!r} of shape {tensor.shape}: {name} of {list(arguments)} cannot be "
            f"{verb} ({error})"
        ) from error
