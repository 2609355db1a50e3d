"""Measure how much the predictions of a model suffer from each group of its tensors.

The model stays loaded in llama.cpp. One group after the other is quantized, the text is read, and
the predictions are compared with the unchanged model's. A group holds the tensors of one
kind in some neighbouring layers.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np

from ggufkit.errors import TensorTypeError, ValueTypeError
from ggufkit.evaluation.variants import CONTEXT, Variants
from ggufkit.format.types import tensor_type
from ggufkit.imatrix.matrix import Imatrix
from ggufkit.models.layers import layer_of, tensor_names
from ggufkit.models.model import Model, Tensor, bits_per_weight
from ggufkit.models.open import open as open_model
from ggufkit.quantization.choice.type_choice import fitting
from ggufkit.quantization.losses.relative_errors import measure
from ggufkit.quantization.losses.sensitivities import Group, Level, Sensitivity, kind_of
from ggufkit.quantization.quantize import decide
from ggufkit.quantization.target import eligible
from ggufkit.system.descriptors import AnyPath
from ggufkit.system.threads import Progress

LEVELS: Final = ("Q2_K", "Q4_K")  # near the ends of the sizes that people ask for
SECTIONS: Final = 4  # of the layers: measured, thirds of SmolLM2 differ by up to 2.6 times
UNUSED: Final = "not computed with"  # such as heads that predict more tokens


def measure_sensitivity(  # noqa: PLR0913 (the options of `evaluate`)
    path: AnyPath,
    text: AnyPath,
    *,
    imatrix: Imatrix | AnyPath | None = None,
    sections: int = SECTIONS,
    context: int = CONTEXT,
    chunks: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Sensitivity:
    """Return the divergence of a model's predictions with each group of tensors quantized alone.

    The layers are divided into `sections`; the tensors of a kind in a section are a group. Each is
    quantized to `LEVELS`, with the importance data that `target` and `quantize` will get too. The
    file `text` is read in chunks of `context` tokens (at most `chunks` of them), once for
    each level of each group; `progress(done, total)` counts these passes.

    Raises TensorTypeError for a model that is quantized already, and what `evaluate` raises.
    """
    if sections < 1:
        raise ValueTypeError(f"{sections} sections are too few", remedy="Use at least 1")
    data = imatrix if isinstance(imatrix, Imatrix | None) else Imatrix.open(imatrix)
    with (
        open_model(path) as model,
        Variants(
            require_plain(model, path), text, context=context, chunks=chunks, threads=threads
        ) as variants,
    ):
        tensors = eligible(model)
        groups = _groups([t for t in tensors if variants.uses(t.name)], sections)
        rest = tuple(t.name for t in tensors if not variants.uses(t.name))
        resting = float(variants.measure({}).field("divergence").mean())  # rounding of the base
        passes = list(itertools.product(groups, LEVELS))
        levels: dict[str, dict[float, Level]] = {name: {} for name in groups}
        for count, (name, kind) in enumerate(passes, 1):
            level = _level(variants, model, groups[name], kind, data, resting)
            levels[name][level.error] = level  # once, if both levels are the same type
            if progress:
                progress(count, len(passes))
        predictions, limit = variants.scores.field("surprise").size, model.readers_limit
    rows = [
        Group(
            name,
            tuple(t.name for t in members),
            tuple(levels[name][error] for error in sorted(levels[name])),
        )
        for name, members in groups.items()
    ]
    unused = [Group(UNUSED, rest, ())] if rest else []
    return Sensitivity((*rows, *unused), context, predictions, limit)


def require_plain(model: Model, path: AnyPath) -> AnyPath:
    """Return the path of a model that can take other values; refuse quantized weights."""
    quantized = [tensor.name for tensor in eligible(model) if tensor.type.is_quantized]
    if quantized:
        raise TensorTypeError(
            f"{tensor_names(quantized)}: quantized already, so other values cannot be tried in it",
            remedy="Measure the F32, F16 or BF16 model",
        )
    return path


def _groups(tensors: Sequence[Tensor], sections: int) -> dict[str, list[Tensor]]:
    kinds: dict[str, list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        kinds[kind_of(tensor.name)].append(tensor)
    groups = {}
    for members in kinds.values():
        ordered = sorted(members, key=lambda tensor: layer_of(tensor.name) or 0)
        parts = min(sections, len(ordered))
        bounds = [len(ordered) * part // parts for part in range(parts + 1)]
        for start, stop in itertools.pairwise(bounds):
            part = ordered[start:stop]
            first, last = part[0].name, part[-1].name
            layers = f".{layer_of(first)}-{layer_of(last)}."
            name = first if first == last else first.replace(f".{layer_of(first)}.", layers, 1)
            groups[name] = part
    return groups


def _level(  # noqa: PLR0913 (a part of the function above)
    variants: Variants,
    model: Model,
    tensors: Sequence[Tensor],
    kind: str,
    imatrix: Imatrix | None,
    resting: float,
) -> Level:
    types = {tensor.name: fitting(tensor, tensor_type(kind)) for tensor in tensors}
    quantized = decide(model, types=types, imatrix=imatrix).model.tensors
    errors = []
    try:
        for tensor in tensors:
            variants.change(tensor.name, quantized[tensor.name].numpy())
            weights = imatrix.weights(tensor.name, tensor.shape) if imatrix else None
            errors += [option.loss for option in measure(tensor, [types[tensor.name]], weights)]
        divergence = float(variants.predict().field("divergence").mean())
    finally:
        variants.restore()
    return Level(
        "/".join(sorted({str(type_) for type_ in types.values()})),
        bits_per_weight(quantized[tensor.name] for tensor in tensors) or 0.0,
        float(np.mean(errors)),
        max(divergence - resting, 0.0),
    )
