"""Extracts an adapter from a model and its fine-tune: the best factors of their difference.

For each matrix the difference D is approximated by its largest singular values. D is never in
memory whole: a randomized range finder with power iterations reads it in rows several times
(Halko, Martinsson, Tropp, "Finding structure with randomness", 2011, algorithms 4.4 and 5.1).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ggufkit.checks.model_view import EMBEDDING
from ggufkit.checks.other_models import KIND, LORA_A, LORA_B
from ggufkit.errors import AdapterError, first_names
from ggufkit.format.metadata import Metadata
from ggufkit.lora.pairs import ALPHA
from ggufkit.models.any_model import AnyModel, Opener
from ggufkit.models.byte_ranges import decoded_rows
from ggufkit.models.model import Model, Tensor, Tensors
from ggufkit.models.sources import from_array
from ggufkit.quantization.choice.eligibility import is_eligible
from ggufkit.quants.parallel import Floats

OVERSAMPLING: Final = 16  # further columns of the range finder
ITERATIONS: Final = 4  # power iterations: the error is within a percent of the best
READ_BYTES: Final = 32 << 20  # of rows read together, as float32
SEED: Final = 0  # the same input gives the same adapter
Float64s = npt.NDArray[np.float64]


class Extracted(NamedTuple):
    """The change of one tensor.

    `changed` is the norm of the difference, relative to the norm of the tensor; `lost` is the share
    of the difference that the adapter lacks, from 0 to 1.
    """

    name: str
    rank: int
    changed: float
    lost: float


@dataclass(frozen=True)
class Extraction:
    """The adapter, and the change of each tensor that differs between the models."""

    model: Model
    tensors: tuple[Extracted, ...]


def extract_lora(
    base: AnyModel,
    tuned: AnyModel,
    *,
    rank: int,
    outtype: str = "F32",
    progress: Callable[[int, int], None] | None = None,
) -> Extraction:
    """Return the adapter of rank `rank` that brings `base` closest to `tuned`.

    Both are models, paths or URLs. They need the same architecture, and the same names and shapes
    of tensors. Matrices that do not differ are left out; norms, biases and other tensors that an
    adapter cannot change are listed with a rank of 0. `outtype` is the type of the factors.
    `progress` is called with the tensors done and their number. Memory is bounded by the adapter
    and the rows of one matrix.
    Raises AdapterError, whose `problems` list everything that does not fit.
    """
    if rank < 1:
        raise AdapterError(f"rank is {rank}, but must be at least 1")
    with Opener() as opener:
        before, after = opener.open(base, "base"), opener.open(tuned, "tuned")
        extraction = _extraction(before, after, rank, outtype, progress)
        return Extraction(opener.hand_over(extraction.model), extraction.tensors)


def _extraction(
    base: Model,
    tuned: Model,
    rank: int,
    outtype: str,
    progress: Callable[[int, int], None] | None,
) -> Extraction:
    if problems := list(_about_fit(base, tuned)):
        raise AdapterError("the models differ in more than weights", problems)
    architecture = str(base.metadata["general.architecture"])
    factors: list[Tensor] = []
    details: list[Extracted] = []
    for count, (name, tensor) in enumerate(base.tensors.items()):
        if progress:
            progress(count, len(base.tensors))
        changed, whole = _norms(tensor, tuned.tensors[name])
        if not changed:
            continue
        ratio = changed / whole if whole else math.inf
        if not is_eligible(tensor, architecture) or max(tensor.shape[:-2], default=1) == 0:
            details.append(Extracted(name, 0, ratio, 1.0))
            continue
        a, b, energy = _factored(tensor, tuned.tensors[name], rank)
        missed = math.sqrt(max(changed**2 - energy, 0.0)) / changed
        details.append(Extracted(name, b.shape[-1], ratio, missed))
        # llama.cpp picks the rows of tokens from the first factor.
        first, second = (b, np.ascontiguousarray(a.T)) if name == EMBEDDING else (a, b)
        factors.append(from_array(name + LORA_A, first, outtype))
        factors.append(from_array(name + LORA_B, second, outtype))
    if not factors:
        raise AdapterError("no matrix differs between the two models", remedy="Compare with `diff`")
    adapter = Model(_metadata(tuned, rank), Tensors(factors))
    limits = (base.readers_limit, tuned.readers_limit)
    return Extraction(adapter.derived_from((*base.inputs, *tuned.inputs), *limits), tuple(details))


def _metadata(tuned: Model, rank: int) -> Metadata:
    """Return the keys of the adapter: alpha is the rank, so that the scale is 1."""
    name = tuned.metadata.get("general.name")
    return Metadata(
        {
            "general.architecture": tuned.metadata["general.architecture"],
            "general.type": "adapter",
            KIND: "lora",
            **({"general.name": name} if name else {}),
            ALPHA: np.float32(rank),
        }
    )


def _about_fit(base: Model, tuned: Model) -> Iterator[str]:
    kinds = [model.metadata.get("general.architecture") for model in (base, tuned)]
    if kinds[0] != kinds[1]:
        yield f"the architectures are {kinds[0]!r} and {kinds[1]!r}"
    for first, second, which in ((base, tuned, "base"), (tuned, base, "tuned")):
        only = [name for name in first.tensors if name not in second.tensors]
        if only:
            yield f"only the {which} model has {first_names(only)}"
    for name, tensor in base.tensors.items():
        if name in tuned.tensors and tuned.tensors[name].shape != tensor.shape:
            shapes = f"{list(tensor.shape)} and {list(tuned.tensors[name].shape)}"
            yield f"{name}: the shapes are {shapes}"


def _norms(base: Tensor, tuned: Tensor) -> tuple[float, float]:
    """Return the norms of the difference and of the tensor; AdapterError for NaN and infinity."""
    changed = whole = 0.0
    for start, stop in _runs(base):
        before, after = (
            decoded_rows(model, start, stop).astype(np.float64) for model in (base, tuned)
        )
        if not (np.isfinite(before).all() and np.isfinite(after).all()):
            raise AdapterError(
                f"{base.name} contains NaN or infinity, so no adapter can be computed",
                remedy="The model is damaged: download it again",
            )
        difference = after - before
        changed += float(np.vdot(difference, difference))
        whole += float(np.vdot(before, before))
    return math.sqrt(changed), math.sqrt(whole)


def _factored(base: Tensor, tuned: Tensor, rank: int) -> tuple[Floats, Floats, float]:
    height, width = base.shape[-2:]
    smallest = min(rank, height, width)
    count = math.prod(base.shape[:-2])
    parts = [_best(base, tuned, number * height, height, smallest) for number in range(count)]
    a = np.stack([a for a, _, _ in parts]).reshape(*base.shape[:-2], smallest, width)
    b = np.stack([b for _, b, _ in parts]).reshape(*base.shape[:-2], height, smallest)
    return a, b, sum(square for _, _, square in parts)


def _best(
    base: Tensor, tuned: Tensor, start: int, height: int, rank: int
) -> tuple[Floats, Floats, float]:
    width = base.shape[-1]
    columns = min(rank + OVERSAMPLING, height, width)
    draw = np.random.default_rng(SEED)
    basis: Float64s = draw.standard_normal((width, columns))
    for _ in range(ITERATIONS):
        differences = _differences(base, tuned, start, height)
        basis, _ = np.linalg.qr(
            functools.reduce(np.add, (rows.T @ (rows @ basis) for rows in differences))
        )
    q, triangle = np.linalg.qr(
        np.concatenate([rows @ basis for rows in _differences(base, tuned, start, height)])
    )
    u, values, v = np.linalg.svd(triangle)
    root = np.sqrt(values[:rank])
    b = (q @ u[:, :rank]) * root
    a = root[:, None] * (v[:rank] @ basis.T)
    return a.astype(np.float32), b.astype(np.float32), float(np.sum(values[:rank] ** 2))


def _differences(base: Tensor, tuned: Tensor, start: int, height: int) -> Iterator[Float64s]:
    for first, last in _runs(base, start, start + height):
        before, after = (decoded_rows(model, first, last) for model in (base, tuned))
        yield after.astype(np.float64) - before


def _runs(tensor: Tensor, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, int]]:
    end = tensor.rows if stop is None else stop
    step = max(1, READ_BYTES // max(4 * tensor.shape[-1], 1)) if tensor.shape else 1
    for first in range(start, end, step):
        yield first, min(first + step, end)
