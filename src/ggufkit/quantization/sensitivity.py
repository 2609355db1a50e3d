"""Measure how much the predictions of a model suffer from each group of its tensors.

The model stays loaded in llama.cpp. One group after the other is quantized, the text is read, and
the predictions are compared with the unchanged model's. A group holds the tensors of one
kind in some neighbouring layers. Or the groups are the layers of a quant of the model, and take
its values.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Final

import numpy as np

from ggufkit.errors import ShapeError, TensorTypeError, ValueTypeError
from ggufkit.evaluation import statistics
from ggufkit.evaluation.reading import CONTEXT
from ggufkit.evaluation.variants import Variants
from ggufkit.format.types import tensor_type
from ggufkit.imatrix.matrix import Imatrix
from ggufkit.models.layers import LAYER_NAME, layer_of, tensor_names
from ggufkit.models.model import Model, Tensor, bits_per_weight
from ggufkit.models.open import open as open_model
from ggufkit.quantization.choice.type_choice import fitting
from ggufkit.quantization.losses.relative_errors import relative_error
from ggufkit.quantization.losses.sensitivities import Group, Level, Sensitivity, kind_of
from ggufkit.quantization.quantize import decide, opened_imatrix
from ggufkit.quantization.target import eligible
from ggufkit.system.descriptors import AnyPath
from ggufkit.system.readers_limit import ReadersLimit
from ggufkit.system.threads import Progress

LEVELS: Final = ("Q2_K", "Q4_K")  # near the ends of the sizes that people ask for
SECTIONS: Final = 4  # of the layers: measured, thirds of SmolLM2 differ by up to 2.6 times
UNUSED: Final = "not computed with"  # such as heads that predict more tokens


def measure_sensitivity(  # noqa: PLR0913 (the options of `evaluate`)
    path: AnyPath,
    text: AnyPath,
    *,
    imatrix: Imatrix | AnyPath | None = None,
    quant: AnyPath | None = None,
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

    With a `quant` of the model, a group is a layer, or a tensor outside all layers, and its one
    level is the group as it is in the quant.

    Raises TensorTypeError for a model that is quantized already, ShapeError for a quant that has
    other tensors or shapes, and what `evaluate` raises.
    """
    if sections < 1:
        raise ValueTypeError(f"{sections} sections are too few", remedy="Use at least 1")
    data = opened_imatrix(imatrix)
    with (
        open_model(path) as model,
        nullcontext() if quant is None else open_model(quant) as other,
        Variants(
            require_plain(model, path, other), text, context=context, chunks=chunks, threads=threads
        ) as variants,
    ):
        tensors = _compared(model, other)
        used = [tensor for tensor in tensors if variants.uses(tensor.name)]
        groups = _layers(used) if other else _groups(used, sections)
        rest = tuple(t.name for t in tensors if not variants.uses(t.name))
        rounding = float(variants.measure({}).field("divergence").mean())  # rounding of the base
        passes = list(itertools.product(groups, LEVELS if other is None else ("",)))
        levels: dict[str, dict[float, Level]] = {name: {} for name in groups}
        for count, (name, kind) in enumerate(passes, 1):
            changed = other or _quantized(model, groups[name], kind, data)
            level = _level(variants, groups[name], changed.tensors, data, rounding)
            levels[name][level.error] = level  # once, if both levels are the same type
            if progress:
                progress(count, len(passes))
        predictions = variants.scores.field("surprise").size
        limit = ReadersLimit.all_of(m.readers_limit for m in (model, other) if m)
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


def require_plain(model: Model, path: AnyPath, quant: Model | None = None) -> AnyPath:
    """Return the path of a model that can take other values: of its own, or of a quant of it."""
    quantized = [tensor.name for tensor in eligible(model) if tensor.type.is_quantized]
    if quantized:
        raise TensorTypeError(
            f"{tensor_names(quantized)}: quantized already, so other values cannot be tried in it",
            remedy="Measure the F32, F16 or BF16 model",
        )
    shapes, others = (
        {t.name: t.shape for t in m.tensors.values()} for m in (model, quant or model)
    )
    if differing := [n for n in shapes | others if shapes.get(n) != others.get(n)]:
        raise ShapeError(
            f"the quant is of another model, with other shapes or names: {tensor_names(differing)}",
            remedy="Name a quant that was made from this model",
        )
    return path


def _compared(model: Model, quant: Model | None) -> list[Tensor]:
    """Return the tensors that can be quantized, and all others that differ in the quant."""
    tensors = {tensor.name: tensor for tensor in eligible(model)}
    for tensor in quant.tensors.values() if quant else ():
        own = model.tensors[tensor.name]
        if tensor.type != own.type or bytes(tensor.raw()) != bytes(own.raw()):
            tensors[tensor.name] = own
    return list(tensors.values())


def _layers(tensors: Sequence[Tensor]) -> dict[str, list[Tensor]]:
    """Return tensors outside layers, one in a group, and then the tensors of each layer."""
    layers: dict[str, list[Tensor]] = defaultdict(list)
    for tensor in sorted(tensors, key=lambda t: -1 if (n := layer_of(t.name)) is None else n):
        match = LAYER_NAME.fullmatch(tensor.name)
        layers[match["before"] + match["number"] if match else tensor.name].append(tensor)
    return layers


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


def _quantized(
    model: Model, tensors: Sequence[Tensor], kind: str, imatrix: Imatrix | None
) -> Model:
    types = {tensor.name: fitting(tensor, tensor_type(kind)) for tensor in tensors}
    return decide(model, types=types, imatrix=imatrix).model


def _level(
    variants: Variants,
    tensors: Sequence[Tensor],
    changed: Mapping[str, Tensor],
    imatrix: Imatrix | None,
    rounding: float,
) -> Level:
    errors = []
    try:
        for tensor in tensors:
            values = changed[tensor.name].numpy(np.float32)
            variants.change(tensor.name, values)
            weights = imatrix.weights(tensor.name, tensor.shape) if imatrix else None
            errors.append(relative_error(tensor, values, weights))
        mean = statistics.divergence(variants.predict()).kld.mean
    finally:
        variants.restore()
    return Level(
        "/".join(sorted({str(changed[tensor.name].type) for tensor in tensors})),
        bits_per_weight(changed[tensor.name] for tensor in tensors) or 0.0,
        float(np.mean(errors)),
        max(mean.value - rounding, 0.0),
        mean.error,
    )
