"""The tensors of a live model, before transformers renames them: gathered, decoded and merged."""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from ggufkit.frameworks.extras import library

_UNLOAD: Final = "unload_and_optionally_merge_module"  # of PEFT's wrappers around trained modules


class LivePart(NamedTuple):
    """A tensor as the model holds it, its whole shape and dtype, and a function that gathers it."""

    tensor: Any
    shape: tuple[int, ...]
    dtype: Any
    whole: Callable[[], Any]


def model_parts(model: Any) -> dict[str, LivePart]:  # noqa: ANN401 (a model of transformers)
    """Return the tensors of a model by name, with the adapters of PEFT merged."""
    quantizer = getattr(model, "hf_quantizer", None)
    state = quantizer.get_state_dict_and_metadata(model)[0] if quantizer else None
    state = state or model.state_dict(keep_vars=True)
    parts = {name: _part(value) for name, value in state.items() if hasattr(value, "detach")}
    for prefix, layer in adapted_layers(model):
        parts = {name: part for name, part in parts.items() if not name.startswith(f"{prefix}.")}
        parts |= {f"{prefix}.{name}": part for name, part in _merged_parts(layer, model.dtype)}
    return parts


def _part(tensor: Any) -> LivePart:  # noqa: ANN401
    shape = tuple(getattr(tensor, "ds_shape", tensor.shape))
    return LivePart(tensor, shape, tensor.dtype, functools.partial(_whole, tensor))


def is_shard(tensor: Any) -> bool:  # noqa: ANN401
    """Return whether FSDP or DeepSpeed shards a tensor."""
    return hasattr(tensor, "full_tensor") or hasattr(tensor, "ds_id")


def _whole(tensor: Any) -> Any:  # noqa: ANN401
    """Return a tensor gathered from the processes that have its shards."""
    if hasattr(tensor, "full_tensor"):
        return tensor.full_tensor()
    if hasattr(tensor, "ds_id"):
        with sys.modules["deepspeed"].zero.GatheredParameters([tensor]):
            return tensor.detach().clone()
    return tensor


def adapted_layers(model: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """Yield the layers of PEFT in a model, and their names, without those inside others."""
    outer = "\0"
    for name, module in model.named_modules():
        is_adapted = hasattr(module, "base_layer") or hasattr(module, _UNLOAD)
        if is_adapted and not name.startswith(outer):
            outer = f"{name}."
            yield name, module


def _merged_parts(layer: Any, dtype: Any) -> Iterator[tuple[str, LivePart]]:  # noqa: ANN401
    """Yield the tensors of a layer and their names in the model without PEFT.

    A weight of bitsandbytes is decoded to its dtype before quantization, to `dtype` if unknown.
    """
    base = _unloaded(layer, merge=False)
    weight: Any = getattr(base, "weight", None)
    quantized = getattr(weight, "quant_state", None)
    if quantized is not None or hasattr(weight, "SCB"):
        shape, dtype = (quantized.shape, quantized.dtype) if quantized else (weight.shape, dtype)
        decode = functools.partial(_decoded, layer, dtype)
        yield "weight", LivePart(weight, tuple(shape), dtype, decode)
        if base.bias is not None:
            yield "bias", _part(base.bias)
        return
    for name, tensor in base.state_dict(keep_vars=True).items():
        yield name, _part(tensor)._replace(whole=functools.partial(_merged, layer, name))


def _unloaded(layer: Any, *, merge: bool) -> Any:  # noqa: ANN401
    if hasattr(layer, _UNLOAD):
        return getattr(layer, _UNLOAD)(merge=merge, safe_merge=False, adapter_names=None)
    if merge:
        layer.merge()
    return layer.get_base_layer()


def _merged(layer: Any, name: str) -> Any:  # noqa: ANN401
    """Return a tensor of a copy of the layer with its adapters merged."""
    parameter = library("torch", "transformers").nn.Parameter
    gathered = {id(p): parameter(_whole(p)) for p in layer.parameters() if is_shard(p)}
    return _unloaded(copy.deepcopy(layer, gathered), merge=True).state_dict()[name]


def _decoded(layer: Any, dtype: Any) -> Any:  # noqa: ANN401
    decode = library("peft.utils.integrations", "transformers").dequantize_module_weight
    weight = decode(layer.get_base_layer()).detach().to(dtype)
    for adapter in () if layer.merged else layer.active_adapters:
        weight = weight + layer.get_delta_weight(adapter).to(dtype)
    return weight
