"""The view of memory: what llama.cpp takes for a context, and what fits on which device."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ggufkit.errors import ValueTypeError
from ggufkit.inspection.estimate import (
    CACHE_TYPES,
    DEFAULT_CONTEXT,
    Estimate,
    estimate,
    largest_context,
    trained_context,
)
from ggufkit.models.layers import layer_of
from ggufkit.models.model import Model
from ggufkit.view.shown_model import ShownModel

MAX_DEVICES: Final = 16  # GGML_CUDA_MAX_DEVICES of llama.cpp
MAX_MEMORY: Final = 1 << 50  # bytes of one device
_EXPERTS: Final = re.compile(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps")  # llama.cpp's --cpu-moe


def memory_facts(shown: ShownModel) -> dict[str, Any]:
    """Return the ranges of the sliders: trained context, cache types, layers, whether experts."""
    return {
        "trained_context": trained_context(shown.model),
        "default_context": trained_context(shown.model) or DEFAULT_CONTEXT,
        "cache_types": list(CACHE_TYPES),
        "expert_bytes": sum(expert_bytes(shown.model).values()),
    }


def memory(shown: ShownModel, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the bytes that a model takes, by layer and by device.

    `asked` may have `context`, `cache_type`, `value_cache_type`, `sequences`, `flash_attention`,
    `devices` (bytes of each), `layers` (on the devices, as `--n-gpu-layers`), and `cpu_experts`
    (layers whose experts stay with the processor, as `--n-cpu-moe`). Raises as `estimate` does.
    """
    options: dict[str, Any] = {
        "context": _whole(asked, "context"),
        "cache_type": asked.get("cache_type") or "F16",
        "value_cache_type": asked.get("value_cache_type") or None,
        "sequences": _whole(asked, "sequences") or 1,
        "flash_attention": asked.get("flash_attention") is not False,
    }
    devices = _devices(asked.get("devices"))
    found = estimate(shown.model, **options)
    total = sum(devices)
    return {
        "context": found.context,
        "weights": found.weights,
        "cache": found.cache,
        "state": found.state,
        "compute": found.compute,
        "output": found.output,
        "total": found.total,
        "layers": [vars(layer) | {"nbytes": layer.nbytes} for layer in found.layers],
        "input_weights": found.input_weights,
        "output_weights": found.output_weights,
        "split": split(found, shown.model, devices, asked) if devices else None,
        "largest_context": largest_context(shown.model, total, **options) if total else None,
    }


def expert_bytes(model: Model) -> dict[int, int]:
    """Return the bytes of experts in each layer that has some."""
    held: dict[int, int] = {}
    for tensor in model.tensors.values():
        layer = layer_of(tensor.name) if _EXPERTS.search(tensor.name) else None
        if layer is not None:
            held[layer] = held.get(layer, 0) + tensor.nbytes
    return held


def split(
    found: Estimate, model: Model, devices: Sequence[int], asked: dict[str, Any]
) -> dict[str, Any]:
    """Return what each device takes: layers from the last one on, each device filled in turn.

    Every device in use also has a compute buffer. The output counts as one layer more.
    """
    wanted = _whole(asked, "layers")
    parts = _parts(found, model, _whole(asked, "cpu_experts") or 0)
    wanted = len(parts) if wanted is None else min(wanted, len(parts))
    filled = list(_filled(parts[:wanted], devices, found.compute))
    on_devices = sum(used["nbytes"] for used in filled)
    placed = sum(used["layers"] for used in filled)
    used = sum(1 for each in filled if each["layers"])
    everything = found.total + (found.twice if placed else 0) + max(used - 1, 0) * found.compute
    return {
        "devices": filled,
        "host": everything - on_devices,
        "layers": placed,
        "wanted": wanted,
        "all_layers": len(parts),
        "fits": placed == wanted,
    }


def _parts(found: Estimate, model: Model, cpu_experts: int) -> list[int]:
    """Return the bytes of the output and of each layer, in the order of `--n-gpu-layers`."""
    experts = expert_bytes(model)
    layers = [
        layer.nbytes - (experts.get(layer.number, 0) if layer.number < cpu_experts else 0)
        for layer in reversed(found.layers)
    ]
    return [found.output_weights + found.twice, *layers]


def _filled(parts: list[int], devices: Sequence[int], compute: int) -> Iterator[dict[str, Any]]:
    at = 0
    for room in devices:
        sums = [compute + held for held in itertools.accumulate(parts[at:])]
        count = sum(held <= room for held in sums)
        yield {"room": room, "layers": count, "nbytes": sums[count - 1] if count else 0}
        at += count


def _devices(asked: object) -> list[int]:
    if asked is None:
        return []
    if not isinstance(asked, list) or len(asked) > MAX_DEVICES:
        raise ValueTypeError("`devices` is not a short list", remedy=f"Use up to {MAX_DEVICES}")
    for room in asked:
        if not isinstance(room, int) or not 0 <= room <= MAX_MEMORY:
            raise ValueTypeError("a device has no such memory", remedy="Use a number of bytes")
    return asked


def _whole(asked: dict[str, Any], name: str) -> int | None:
    found = asked.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 1 << 31:
        raise ValueTypeError(f"`{name}` is not a number of them", remedy="Use a whole number")
    return found
