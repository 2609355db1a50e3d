"""The view of memory: what llama.cpp takes for a context, and what fits on which device."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any, Final

from ggufkit.errors import ValueTypeError
from ggufkit.inspection.estimate import (
    CACHE_TYPES,
    DEFAULT_CONTEXT,
    Estimate,
    estimate,
    filled,
    largest_context,
    trained_context,
)
from ggufkit.models.layers import layer_of
from ggufkit.models.model import Model
from ggufkit.quantization.quantize import decide
from ggufkit.validation.typed_values import integer, json_list
from ggufkit.view.page_model import PageModel

MAX_DEVICES: Final = 16  # GGML_CUDA_MAX_DEVICES of llama.cpp
MAX_INT32: Final = (1 << 31) - 1  # of layers, sequences and tokens
LONG_CONTEXT: Final = 1 << 20  # tokens, as long as contexts of models are today
CURVES: Final = ("Q8_0", "Q6_K", "Q4_K_M", "Q2_K")  # recipes, in addition to the model as it is
LEAST_CONTEXT: Final = 512  # tokens, where the curves begin
MAX_MEMORY: Final = 1 << 50  # bytes of one device
_FIGURES: Final = (
    *("context", "weights", "cache", "state", "compute", "output", "total"),
    *("input_weights", "output_weights"),
)
_EXPERTS: Final = re.compile(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps")  # llama.cpp's --cpu-moe


def memory_facts(page: PageModel) -> dict[str, Any]:
    """Return the ranges of the sliders: trained context, cache types, layers, whether experts."""
    return {
        "trained_context": trained_context(page.model),
        "default_context": trained_context(page.model) or DEFAULT_CONTEXT,
        "cache_types": list(CACHE_TYPES),
        "expert_bytes": sum(expert_bytes(page.model).values()),
    }


def memory(page: PageModel, query: dict[str, Any]) -> dict[str, Any]:
    """Return the bytes that a model takes, by layer and by device.

    `query` may have `context`, `cache_type`, `value_cache_type`, `sequences`, `flash_attention`,
    `devices` (bytes of each), `layers` (on the devices, as `--n-gpu-layers`), and `cpu_experts`
    (layers whose experts stay with the processor, as `--n-cpu-moe`). Raises as `estimate` does.
    """
    options = _options(query)
    devices = _devices(query.get("devices"))
    result = estimate(page.model, **options)
    return {
        **{name: getattr(result, name) for name in _FIGURES},
        "layers": [vars(layer) | {"nbytes": layer.nbytes} for layer in result.layers],
        "split": split(result, page.model, devices, query) if devices else None,
    } | _largest_context(page.model, devices, options)


def _options(query: dict[str, Any]) -> dict[str, Any]:
    return {
        "context": _whole(query, "context"),
        "cache_type": query.get("cache_type") or "F16",
        "value_cache_type": query.get("value_cache_type") or None,
        "sequences": _whole(query, "sequences") or 1,
        "flash_attention": query.get("flash_attention") is not False,
    }


def memory_curves(page: PageModel, query: dict[str, Any]) -> dict[str, Any]:
    """Return the memory by context of a model as it is and in recipes that make it smaller.

    `query` is that of `memory`. The contexts are powers of two and the trained one. Each curve also
    has the longest context with which all fits, None without devices.
    """
    options = _options(query)
    devices = _devices(query.get("devices"))
    trained = max(trained_context(page.model) or DEFAULT_CONTEXT, LEAST_CONTEXT)
    powers = (LEAST_CONTEXT << power for power in range(MAX_INT32.bit_length()))
    contexts = [*itertools.takewhile(lambda context: context < trained, powers), trained]
    curves = []
    for recipe, model in page.cached(("recipes", 0), lambda: _variants(page.model)).items():
        totals = [estimate(model, **options | {"context": context}).total for context in contexts]
        longest = _largest_context(model, devices, options)
        curves.append({"recipe": recipe, "totals": totals} | longest)
    return {"contexts": contexts, "curves": curves}


def _variants(model: Model) -> dict[str, Model]:
    """Return the model as it is, and in the recipes of CURVES that make it smaller."""
    variants = {recipe: decide(model, recipe).model for recipe in CURVES}
    smaller = {name: variant for name, variant in variants.items() if variant.nbytes < model.nbytes}
    return {"as it is": model} | smaller


def _largest_context(
    model: Model, devices: Sequence[int], options: dict[str, Any]
) -> dict[str, Any]:
    """Return the longest context that fits, and whether one beyond all that were tried may fit.

    Without devices, the longest context is None.
    """
    if not sum(devices):
        return {"largest_context": None, "fits_more": False}
    most = max(trained_context(model) or 0, LONG_CONTEXT)
    longest = largest_context(model, devices, **options | {"context": most})
    return {"largest_context": longest, "fits_more": longest >= most}


def expert_bytes(model: Model) -> dict[int, int]:
    """Return the bytes of experts in each layer that has some."""
    nbytes: dict[int, int] = {}
    for tensor in model.tensors.values():
        layer = layer_of(tensor.name) if _EXPERTS.search(tensor.name) else None
        if layer is not None:
            nbytes[layer] = nbytes.get(layer, 0) + tensor.nbytes
    return nbytes


def split(
    result: Estimate, model: Model, devices: Sequence[int], query: dict[str, Any]
) -> dict[str, Any]:
    """Return what each device takes: layers from the last one on, each device filled in turn.

    Every device in use also has a compute buffer. The output counts as one layer more.
    """
    requested = _whole(query, "layers")
    parts = _parts(result, model, _whole(query, "cpu_experts") or 0)
    requested = len(parts) if requested is None else min(requested, len(parts))
    taken = zip(devices, filled(parts[:requested], devices, result.compute), strict=True)
    used = [{"room": room, "layers": count, "nbytes": size} for room, (count, size) in taken]
    on_devices = sum(device["nbytes"] for device in used)
    offloaded = sum(device["layers"] for device in used)
    devices_in_use = sum(1 for device in used if device["layers"])
    more_buffers = max(devices_in_use - 1, 0) * result.compute
    everything = result.total + (result.twice if offloaded else 0) + more_buffers
    return {
        "devices": used,
        "host": everything - on_devices,
        "layers": offloaded,
        "wanted": requested,
        "all_layers": len(parts),
        "fits": offloaded == requested,
    }


def _parts(result: Estimate, model: Model, cpu_experts: int) -> list[int]:
    """Return the bytes of the output and of each layer, in the order of `--n-gpu-layers`."""
    experts = expert_bytes(model)
    layers = [
        layer.nbytes - (experts.get(layer.number, 0) if layer.number < cpu_experts else 0)
        for layer in reversed(result.layers)
    ]
    return [result.output_weights + result.twice, *layers]


def _devices(query: object) -> list[int]:
    devices = [] if query is None else json_list(query, "`devices`")
    if len(devices) > MAX_DEVICES:
        raise ValueTypeError("`devices` is too long", remedy=f"Use up to {MAX_DEVICES}")
    return [integer(room, "the memory of a device", most=MAX_MEMORY) for room in devices]


def _whole(query: dict[str, Any], name: str) -> int | None:
    value = query.get(name)
    return None if value is None else integer(value, f"`{name}`", most=MAX_INT32)
