"""Choose a type for each tensor so that a model has a given size and the least error.

For small errors, the loss in a model's predictions is a sum over its tensors: the relative error of
each tensor's output, times the model's sensitivity to it. The error is measured on a sample of
rows, weighted by importance data if given; the sensitivity comes from a table.
`quantization/knapsack.py` then chooses the types.
"""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ggufkit.errors import ShapeError, TensorTypeError, ValueTypeError
from ggufkit.format.types import TensorType, padded
from ggufkit.imatrix.matrix import Imatrix
from ggufkit.models.any_model import takes_model
from ggufkit.models.model import Model, Tensor
from ggufkit.models.rows import rows_and_width
from ggufkit.models.sources import in_order
from ggufkit.output.layout import layout
from ggufkit.quantization.eligibility import is_eligible
from ggufkit.quantization.knapsack import Option, allocate
from ggufkit.quantization.quantize import decide
from ggufkit.quantization.recipes import NEEDS_IMATRIX
from ggufkit.quantization.type_choice import facts_of
from ggufkit.quants import codec
from ggufkit.quants.codec import AnyType
from ggufkit.quants.parallel import Floats
from ggufkit.system.cpu import worker_count
from ggufkit.system.descriptors import AnyPath
from ggufkit.system.threads import Progress, in_turn, pool_of

CANDIDATES: Final = (
    *("F16", "Q8_0", "Q6_K", "Q5_K", "Q5_1", "Q5_0", "Q4_K", "Q4_1", "IQ4_NL", "IQ4_XS", "Q4_0"),
    *("Q3_K", "IQ3_S", "IQ3_XXS", "Q2_K", "IQ2_S", "IQ2_XS", "IQ2_XXS"),
)
SAMPLE: Final = 1 << 16  # elements of a tensor that are measured: hundreds of blocks
MIN_ROWS: Final = 16  # of a sample; fewer if MAX_SAMPLE is less
MAX_SAMPLE: Final = 1 << 22
BITS: Final = 8  # of a byte

# The loss in a model's predictions from the same relative error in all tensors of a kind together;
# the first part that occurs in a name counts. Measured: docs/internals/target-sizes.md.
SENSITIVITY: Final = (
    ("attn_qkv", 8.0),
    ("attn_q", 1.8),
    ("attn_kv", 4.1),
    ("attn_k", 2.1),
    ("attn_v", 4.1),
    ("attn_output", 2.2),
    ("ffn_gate", 2.9),
    ("ffn_up", 4.7),
    ("ffn_down", 7.7),
    ("token_embd", 0.6),
    ("output", 4.8),
    ("", 3.5),
)
EMBEDDINGS: Final = "token_embd.weight"
OUTPUT: Final = "output.weight"


@takes_model
def target(  # noqa: PLR0913 (each says one thing)
    model: Model,
    *,
    nbytes: int | None = None,
    bpw: float | None = None,
    imatrix: Imatrix | AnyPath | None = None,
    candidates: Iterable[AnyType] = CANDIDATES,
    override_kv: Mapping[str, object] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[str, TensorType]:
    """Return the type of each tensor to quantize, for `quantize(model, types=...)`.

    Give either `nbytes`, which the file written will not exceed, or `bpw`, bits per weight of all
    tensors together. `imatrix` and `override_kv` are those that `quantize` gets too; without
    importance data, types that need it are left out. Samples of rows are read and quantized as each
    of the `candidates`, by `threads` threads; `progress(done, total)` counts tensors. Raises
    ShapeError if even the smallest possible file is too large, with the difference, and
    TensorTypeError for types without a codec.
    """
    if (nbytes is None) == (bpw is None):
        raise ValueTypeError("a target is a size or bits per weight, not both", remedy="Give one")
    data = imatrix if isinstance(imatrix, Imatrix | None) else Imatrix.open(imatrix)
    kinds = [codec.encodable(kind) for kind in candidates]
    architecture = facts_of(model.metadata).architecture
    eligible = [t for t in model.tensors.values() if is_eligible(t, architecture)]
    options = _measured(eligible, kinds, data, worker_count(threads), progress)

    def quantized(types: Mapping[str, TensorType]) -> Model:
        return decide(model, types=types, imatrix=data, override_kv=override_kv).model

    if nbytes is not None:
        chosen = _within_file(options, nbytes, quantized, has_imatrix=data is not None)
    else:
        chosen = _within_bits(model, options, bpw or 0, has_imatrix=data is not None)
    return {name: option.type for name, option in chosen.items()}


_size: Final = operator.attrgetter("nbytes")  # of an option


def _within_file(
    options: dict[str, list[Option]],
    nbytes: int,
    quantized: Callable[[Mapping[str, TensorType]], Model],
    *,
    has_imatrix: bool,
) -> dict[str, Option]:
    """Allocate the bytes that a file of `nbytes` has for tensors, padded to the alignment."""
    smallest = {name: min(each, key=_size) for name, each in options.items()}
    made = quantized({name: option.type for name, option in smallest.items()})
    aligned = {
        name: [replace(option, nbytes=padded(option.nbytes, made.alignment)) for option in each]
        for name, each in options.items()
    }
    tensors = sum(min(map(_size, each)) for each in aligned.values())
    least = layout(made, "model.gguf").nbytes
    if nbytes < least:
        raise _too_small(
            f"has {least:,} bytes, {least - nbytes:,} more than asked for", has_imatrix
        )
    overhead = least - tensors
    return allocate(aligned, nbytes - overhead)


def _too_small(least: str, has_imatrix: bool) -> ShapeError:  # noqa: FBT001 (of one error)
    """Return the error for a target below the smallest possible size."""
    more = "" if has_imatrix else "; with an importance matrix there are smaller types"
    return ShapeError(f"the smallest model {least}", remedy=f"Ask for at least that{more}")


def _within_bits(
    model: Model, options: dict[str, list[Option]], bpw: float, *, has_imatrix: bool
) -> dict[str, Option]:
    elements = sum(tensor.elements for tensor in model.tensors.values())
    kept = sum(tensor.nbytes for tensor in model.tensors.values() if tensor.name not in options)
    least = kept + sum(min(map(_size, each)) for each in options.values())
    if int(bpw * elements / BITS) < least:
        bits = math.ceil(100 * BITS * least / elements) / 100
        raise _too_small(f"has {bits:.2f} bits per weight", has_imatrix)
    return allocate(options, int(bpw * elements / BITS) - kept)


def _measured(
    tensors: Sequence[Tensor],
    kinds: Sequence[TensorType],
    imatrix: Imatrix | None,
    threads: int,
    progress: Progress | None,
) -> dict[str, list[Option]]:
    sensitivity = sensitivities([tensor.name for tensor in tensors])

    def options(tensor: Tensor) -> list[Option]:
        weights = imatrix.weights(tensor.name, tensor.shape) if imatrix else None
        return measure(tensor, kinds, weights, sensitivity=sensitivity[tensor.name])

    found: dict[str, list[Option]] = {}
    with pool_of(threads) as pool:
        measured = in_turn(pool, (partial(options, tensor) for tensor in tensors), len(tensors))
        for tensor, each in zip(tensors, measured, strict=True):
            if not each:
                raise TensorTypeError(
                    f"no candidate type fits tensor {tensor.name!r} of shape {tensor.shape}",
                    remedy="Add a type that fits, such as Q8_0 or F16",
                )
            found[tensor.name] = each
            if progress:
                progress(len(found), len(tensors))
    return found


def measure(
    tensor: Tensor,
    kinds: Iterable[TensorType],
    weights: Floats | None = None,
    *,
    sensitivity: float = 1,
) -> list[Option]:
    """Return the options of a tensor: each of `kinds` that fits its rows, with its loss.

    The loss is the squared error of a sample of rows relative to their squares, both weighted by
    `weights` of shape (width,) or (experts, width), times the `sensitivity` to it. The sample is
    deterministic. Types that need weights are left out without weights.
    """
    rows, width = rows_and_width(tensor.shape)
    possible = [
        kind
        for kind in kinds
        if width % kind.block_size == 0 and (weights is not None or kind.name not in NEEDS_IMATRIX)
    ]
    if not rows * width:
        return [Option(kind, 0, 0.0) for kind in possible]
    numbers = _sampled(rows, width)
    sample = _decoded(tensor, numbers)
    columns = None if weights is None else weights.reshape(-1, width)
    owners = numbers * (1 if columns is None else len(columns)) // rows
    return [
        Option(
            kind,
            rows * kind.row_bytes(width),
            sensitivity * _relative_error(sample, kind, columns, owners),
        )
        for kind in possible
    ]


def _sampled(rows: int, width: int) -> npt.NDArray[np.int64]:
    """Return the indices of the rows to measure, evenly spaced."""
    least = max(1, min(MIN_ROWS, MAX_SAMPLE // max(width, 1)))
    count = min(rows, max(least, math.ceil(SAMPLE / max(width, 1))))
    return (2 * np.arange(count, dtype=np.int64) + 1) * rows // (2 * count)


def _decoded(tensor: Tensor, numbers: npt.NDArray[np.int64]) -> Floats:
    source = in_order(tensor, "little")
    packed = np.concatenate([source.read(number, number + 1) for number in numbers.tolist()])
    return codec.dequantize(packed, tensor.type, threads=1)


def _relative_error(
    sample: Floats, kind: TensorType, columns: Floats | None, owners: npt.NDArray[np.int64]
) -> float:
    """Return the weighted squared error of quantizing, relative to the weighted squares."""
    error = energy = 0.0
    for owner in np.unique(owners):
        rows = sample[owners == owner]
        weights = None if columns is None else columns[owner]
        packed = codec.quantize(rows, kind, imatrix=weights, threads=1)
        lost = rows - codec.dequantize(packed, kind, threads=1)
        error += weighted_squares(lost, weights)
        energy += weighted_squares(rows, weights)
    return error / energy if energy else 0.0


def weighted_squares(rows: Floats, weights: Floats | None) -> float:
    """Return the sum of squares of rows, their columns weighted."""
    squares: npt.NDArray[Any] = np.square(rows, dtype=np.float64).sum(axis=0)
    return float(squares.sum() if weights is None else squares @ weights.astype(np.float64))


def sensitivities(names: Collection[str]) -> dict[str, float]:
    """Return the sensitivity of predictions to the relative error of each tensor.

    Tensors of a kind share its sensitivity; tied embeddings add that of the output.
    """
    members = Counter(map(_kind, names))
    found = {name: _of_kind(name) / members[_kind(name)] for name in names}
    if EMBEDDINGS in found and OUTPUT not in found:
        found[EMBEDDINGS] += _of_kind(OUTPUT)
    return found


def _kind(name: str) -> str:
    return re.sub(r"\d+", "", name)


def _of_kind(name: str) -> float:
    return next(value for part, value in SENSITIVITY if part in name)
