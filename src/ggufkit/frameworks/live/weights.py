"""The weights of a live model of transformers, by the names that `save_pretrained` writes."""

from __future__ import annotations

import copy
import functools
import importlib.util
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ggufkit.conversion.checkpoint.state_dict import TorchRows, torch_type
from ggufkit.errors import MissingExtraError, ValueTypeError
from ggufkit.frameworks.extras import library
from ggufkit.models.model import Tensor
from ggufkit.models.rows import ComputedRows, rows_and_width
from ggufkit.system.mapped_file import Bytes

EXTRA: Final = "transformers"
RENAMING: Final = "transformers.core_model_loading"  # since version 5
KEPT_GROUPS: Final = 2  # threads still read the last one when the first reads the next
_UNLOAD: Final = "unload_and_optionally_merge_module"  # of PEFT's wrappers around trained modules
_WRAPPERS: Final = ("_orig_mod", "module")  # attributes of torch.compile, and of DDP and DeepSpeed


class LiveWeights:
    """The weights of a model, each computed when it is read: gathered, merged, split, renamed.

    Of processes that share a model the first one reads and then calls `finish`, the others `serve`.
    """

    def __init__(self, model: Any, parts: dict[str, LivePart] | None = None) -> None:  # noqa: ANN401 (a model of transformers)
        """Find out names and shapes of the model's `parts`, or others; nothing is computed."""
        torch = library("torch", EXTRA)
        loading = library(RENAMING, EXTRA)
        self._revert = functools.partial(loading.revert_weight_conversion, model)
        self._parts = _saved(model_parts(model) if parts is None else parts, model)
        is_distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        self._is_shared = is_distributed and any(map(is_shard, model.parameters()))
        self.is_first: bool = not is_distributed or torch.distributed.get_rank() == 0
        self._lock, self._computed = threading.Lock(), dict[frozenset[str], dict[str, Any]]()
        stand_ins = {
            name: torch.empty(part.shape, dtype=part.dtype, device="meta")
            for name, part in self._parts.items()
        }
        with _origins(stand_ins) as origins:
            self._stand_ins: dict[str, Any] = self._revert(stand_ins)
        self._groups = {name: origins.of(tensor) for name, tensor in self._stand_ins.items()}

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors by their names in a checkpoint."""
        return {
            name: Tensor.over(
                name, torch_type(name, tensor.dtype), tuple(tensor.shape), LiveRows(self, name)
            )
            for name, tensor in self._stand_ins.items()
        }

    def rows(self, name: str) -> Any:  # noqa: ANN401 (a torch tensor)
        """Return a tensor as a matrix of its rows."""
        group = self._groups[name]
        shape = rows_and_width(tuple(self._stand_ins[name].shape))
        with self._lock:
            values = self._computed.pop(group, None)
            if values is None:
                if len(self._computed) >= KEPT_GROUPS:  # the one that was used longest ago
                    self._computed.pop(next(iter(self._computed)))
                if self._is_shared:
                    _tell(group)
                values = self._compute(group)
            self._computed[group] = values
            values[name] = values[name].detach().reshape(shape)
            return values[name]

    def serve(self) -> None:
        """Take part in what the first process gathers, until it finishes."""
        while self._is_shared and (group := _tell(None)) is not None:
            self._compute(group)

    def finish(self) -> None:
        """Let the other processes continue."""
        if self._is_shared:
            _tell(None)

    def _compute(self, group: frozenset[str]) -> dict[str, Any]:
        with library("torch", EXTRA).no_grad():
            whole = {name: self._parts[name].whole() for name in sorted(group)}
            values: dict[str, Any] = self._revert(whole)
        return values


@dataclass(frozen=True, eq=False)
class LiveRows(ComputedRows):
    """Rows of a weight, which is computed when they are read."""

    weights: LiveWeights
    name: str

    def read(self, start: int, stop: int) -> Bytes:
        """Return the bytes of rows `start` to `stop`."""
        return TorchRows(self.weights.rows(self.name)).read(start, stop)


def unwrapped(model: Any) -> Any:  # noqa: ANN401 (a model of torch)
    """Return the model of transformers in what torch, PEFT or DeepSpeed wraps around it.

    Raises MissingExtraError for transformers before version 5, and ValueTypeError for a model of
    another library.
    """
    transformers = library("transformers", EXTRA)
    if importlib.util.find_spec(RENAMING) is None:
        raise MissingExtraError(
            f"this needs transformers 5, but {transformers.__version__} is installed",
            remedy="pip install -U transformers, or convert a saved checkpoint",
        )
    inner = model
    while not isinstance(inner, transformers.PreTrainedModel):
        if hasattr(inner, "get_base_model"):
            inner = inner.get_base_model()
            continue
        name = next((name for name in _WRAPPERS if hasattr(inner, name)), None)
        if name is None:
            raise ValueTypeError(
                f"{model.__class__.__name__} is not a model of transformers",
                remedy="Use ggufkit.convert(state_dict, config=..., tokenizer=...)",
            )
        inner = getattr(inner, name)
    if any(module.__class__.__name__ == "FullyShardedDataParallel" for module in model.modules()):
        raise ValueTypeError(
            "FSDP 1 shards the model, and its weights cannot be gathered one at a time",
            remedy="Use FSDP 2 (fully_shard, or fsdp_version: 2), or convert a saved checkpoint",
        )
    return inner


def tied_names(model: Any) -> re.Pattern[str]:  # noqa: ANN401
    """Return the pattern of the names of weights that may be tied to another."""
    modeling = library("transformers.modeling_utils", EXTRA)
    return re.compile("|".join(modeling._get_tied_weight_keys(model)) or "$^")  # noqa: SLF001 (`save_pretrained` uses it)


def _saved(parts: dict[str, LivePart], model: Any) -> dict[str, LivePart]:  # noqa: ANN401
    """Return the parts that `save_pretrained` writes: of tied weights the one that it keeps."""
    shared = defaultdict(list)
    for name in sorted(parts):
        shared[id(parts[name].tensor)].append(name)
    tied, dropped = tied_names(model), {*(getattr(model, "_keys_to_ignore_on_save", None) or ())}
    for names in shared.values():
        dropped.update([name for name in names if tied.search(name)][: len(names) - 1])
    return {name: part for name, part in parts.items() if name not in dropped}


def _origins(tensors: Mapping[str, Any]) -> Any:  # noqa: ANN401 (a class that needs torch)
    """Return a context that records from which `tensors` others are computed."""
    mode = library("torch.utils._python_dispatch", EXTRA).TorchDispatchMode
    leaves = library("torch.utils._pytree", EXTRA).tree_leaves
    origins = {id(tensor): (tensor, frozenset({name})) for name, tensor in tensors.items()}

    class Origins(mode):  # type: ignore[misc, valid-type]
        """Follows tensors through the operations that make new ones of them."""

        def of(self, tensor: Any) -> frozenset[str]:  # noqa: ANN401
            """Return the names of the tensors that this one is computed from."""
            return origins.get(id(tensor), (None, frozenset[str]()))[1]

        def __torch_dispatch__(self, function: Any, _: object, args: Any, options: Any) -> Any:  # noqa: ANN401
            result = function(*args, **(options or {}))
            names = frozenset[str]().union(*map(self.of, leaves((args, options))))
            origins.update({id(tensor): (tensor, names) for tensor in leaves(result)})
            return result

    return Origins()


def _tell(group: frozenset[str] | None) -> Any:  # noqa: ANN401
    """Broadcast a group of weights, None at the end, from the first process; return it."""
    message = [group]
    library("torch", EXTRA).distributed.broadcast_object_list(message, src=0)
    return message[0]


# The tensors of a model before transformers renames them: gathered, decoded and merged.


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
    parameter = library("torch", EXTRA).nn.Parameter
    gathered = {id(p): parameter(_whole(p)) for p in layer.parameters() if is_shard(p)}
    return _unloaded(copy.deepcopy(layer, gathered), merge=True).state_dict()[name]


def _decoded(layer: Any, dtype: Any) -> Any:  # noqa: ANN401
    decode = library("peft.utils.integrations", EXTRA).dequantize_module_weight
    weight = decode(layer.get_base_layer()).detach().to(dtype)
    for adapter in () if layer.merged else layer.active_adapters:
        weight = weight + layer.get_delta_weight(adapter).to(dtype)
    return weight
