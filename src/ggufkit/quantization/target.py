"""Choose a type for each tensor so that a model has a given size and the least error.

For small errors, the loss in a model's predictions is a sum over its tensors: the relative error of
each tensor's output, times the model's sensitivity to it. The error is measured on a sample of
rows, weighted by importance data if given; the sensitivity comes from a table, or was measured.
`losses/relative_errors.py` then chooses the types.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ggufkit.errors import ShapeError, TensorTypeError, ValueTypeError
from ggufkit.format.types import TensorType, padded
from ggufkit.imatrix.matrix import Imatrix
from ggufkit.models.any_model import require_weights, takes_model
from ggufkit.models.model import Model, Tensor
from ggufkit.output.layout import layout
from ggufkit.quantization.choice.type_choice import facts_of, is_converted
from ggufkit.quantization.losses.relative_errors import Option, allocate, measure
from ggufkit.quantization.losses.sensitivities import Losses, Sensitivity, losses_by_kind
from ggufkit.quantization.quantize import decide, opened_imatrix
from ggufkit.quants import codec
from ggufkit.quants.codec import AnyType
from ggufkit.system.cpu import worker_count
from ggufkit.system.descriptors import AnyPath
from ggufkit.system.threads import Progress, in_turn, pool_of

CANDIDATES: Final = (
    *("F16", "Q8_0", "Q6_K", "Q5_K", "Q5_1", "Q5_0", "Q4_K", "Q4_1", "IQ4_NL", "IQ4_XS", "Q4_0"),
    *("Q3_K", "IQ3_S", "IQ3_XXS", "Q2_K", "IQ2_S", "IQ2_XS", "IQ2_XXS"),
)
BITS: Final = 8  # of a byte


@takes_model
def target(  # noqa: PLR0913 (each says one thing)
    model: Model,
    *,
    nbytes: int | None = None,
    bpw: float | None = None,
    imatrix: Imatrix | AnyPath | None = None,
    sensitivity: Sensitivity | AnyPath | None = None,
    candidates: Iterable[AnyType] | None = None,
    override_kv: Mapping[str, object] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[str, TensorType]:
    """Return the type of each tensor to quantize, for `quantize(model, types=...)`.

    Give either `nbytes`, which the file written will not exceed, or `bpw`, bits per weight of all
    tensors together. `imatrix` and `override_kv` are those that `quantize` gets too; without
    importance data, types that need it are left out. `sensitivity` is what `measure_sensitivity`
    measured on the model, in place of the table by kinds of tensors. Samples of rows are read and
    quantized as each of the `candidates`, by `threads` threads; `progress(done, total)` counts
    tensors. Raises ShapeError if even the smallest possible file is too large, with the difference,
    TensorTypeError for types without a codec, and MissingTensorError for the sensitivities of
    another model.
    """
    opened = opened_sensitivity(sensitivity)
    names = [tensor.name for tensor in eligible(model)]
    # Before the work, because this may refuse.
    losses = opened.losses(names) if opened else losses_by_kind(names)
    problem = size_problem(
        model,
        nbytes=nbytes,
        bpw=bpw,
        imatrix=imatrix,
        candidates=candidates,
        override_kv=override_kv,
        threads=threads,
        progress=progress,
    )
    return problem.types(losses)


def opened_sensitivity(sensitivity: Sensitivity | AnyPath | None) -> Sensitivity | None:
    """Return sensitivities that may be given as a path."""
    if isinstance(sensitivity, Sensitivity | None):
        return sensitivity
    return Sensitivity.open(sensitivity)


@dataclass(frozen=True)
class SizeProblem:
    """The types that each tensor may have, with relative errors as losses, and bytes for all."""

    options: Mapping[str, Sequence[Option]]
    allowance: int

    def nbytes_of(self, types: Mapping[str, TensorType]) -> int | None:
        """Return the bytes of a choice of types, None if it has a type that is not an option."""
        sizes = {
            (name, o.type): o.nbytes for name, options in self.options.items() for o in options
        }
        nbytes = [sizes.get((name, types[name])) for name in self.options]
        return None if None in nbytes else sum(size or 0 for size in nbytes)

    def types(self, losses: Losses) -> dict[str, TensorType]:
        """Return the types that fit with the least total loss."""
        weighted = {
            name: [replace(option, loss=losses[name](option.loss)) for option in options]
            for name, options in self.options.items()
        }
        return {name: option.type for name, option in allocate(weighted, self.allowance).items()}


def size_problem(  # noqa: PLR0913 (as in `target`)
    model: Model,
    *,
    nbytes: int | None = None,
    bpw: float | None = None,
    imatrix: Imatrix | AnyPath | None = None,
    candidates: Iterable[AnyType] | None = None,
    override_kv: Mapping[str, object] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> SizeProblem:
    """Measure the error of each tensor as each type; the arguments work as in `target`."""
    if (nbytes is None) == (bpw is None):
        raise ValueTypeError("a target is a size or bits per weight, not both", remedy="Give one")
    data = opened_imatrix(imatrix)
    kinds = [codec.encodable(kind) for kind in candidates or CANDIDATES]
    options = _measured(eligible(model), kinds, data, worker_count(threads), progress)

    if nbytes is not None:
        # Bytes for tensors, padded to the alignment, in a file of `nbytes`.
        smallest = {name: min(choices, key=_size) for name, choices in options.items()}
        types = {name: option.type for name, option in smallest.items()}
        smallest_model = decide(model, types=types, imatrix=data, override_kv=override_kv).model
        aligned = {
            name: [
                replace(option, nbytes=padded(option.nbytes, smallest_model.alignment))
                for option in rows
            ]
            for name, rows in options.items()
        }
        tensors = sum(min(map(_size, choices)) for choices in aligned.values())
        least = layout(smallest_model, "model.gguf").nbytes
        if nbytes < least:
            raise _too_small(
                f"has {least:,} bytes, {least - nbytes:,} more than asked for", data is not None
            )
        return SizeProblem(aligned, nbytes - (least - tensors))
    return _within_bits(model, options, bpw or 0, has_imatrix=data is not None)


def eligible(model: Model) -> list[Tensor]:
    """Return the tensors that llama-quantize converts; FormatError for no model."""
    require_weights(model)
    facts = facts_of(model.metadata, model.tensors)
    return [t for t in model.tensors.values() if is_converted(t, facts)]


_size: Final = operator.attrgetter("nbytes")  # of an option


def _too_small(least: str, has_imatrix: bool) -> ShapeError:  # noqa: FBT001 (of one error)
    more = "" if has_imatrix else "; with an importance matrix there are smaller types"
    return ShapeError(f"the smallest model {least}", remedy=f"Ask for at least that{more}")


def _within_bits(
    model: Model, options: dict[str, list[Option]], bpw: float, *, has_imatrix: bool
) -> SizeProblem:
    elements = model.parameters
    other_bytes = sum(
        tensor.nbytes for tensor in model.tensors.values() if tensor.name not in options
    )
    least = other_bytes + sum(min(map(_size, choices)) for choices in options.values())
    if int(bpw * elements / BITS) < least:
        bits = math.ceil(100 * BITS * least / elements) / 100
        raise _too_small(f"has {bits:.2f} bits per weight", has_imatrix)
    return SizeProblem(options, int(bpw * elements / BITS) - other_bytes)


def _measured(
    tensors: Sequence[Tensor],
    kinds: Sequence[TensorType],
    imatrix: Imatrix | None,
    threads: int,
    progress: Progress | None,
) -> dict[str, list[Option]]:
    def options(tensor: Tensor) -> list[Option]:
        weights = imatrix.weights(tensor.name, tensor.shape) if imatrix else None
        return measure(tensor, kinds, weights)

    by_name: dict[str, list[Option]] = {}
    with pool_of(threads) as pool:
        measured = in_turn(pool, (partial(options, tensor) for tensor in tensors), len(tensors))
        for tensor, row in zip(tensors, measured, strict=True):
            if not row:
                raise TensorTypeError(
                    f"no candidate type fits tensor {tensor.name!r} of shape {tensor.shape}",
                    remedy="Add a type that fits, such as Q8_0 or F16",
                )
            by_name[tensor.name] = row
            if progress:
                progress(len(by_name), len(tensors))
    return by_name
