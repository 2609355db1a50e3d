"""How much memory a model takes in llama.cpp: weights, caches by context, compute buffers.

Nothing is read but headers, so a model that `quantize` or `convert` made is estimated before it is
written. Weights and caches are exact. The compute buffer follows rules that were measured on a CPU;
docs/estimate.md says how well they fit.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypedDict

from ggufkit.diffusion.architecture import is_diffusion
from ggufkit.errors import ShapeError, ValueTypeError
from ggufkit.format.arguments import refusal
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.format.values import whole_number
from ggufkit.inspection.compute_buffer import (
    EMBEDDING,
    FLOAT,
    OUTPUT,
    WITHOUT_FLASH,
    Cells,
    Graph,
    is_encoder,
)
from ggufkit.inspection.kv_cache import LayerMemory, Memory, memory_of
from ggufkit.models.any_model import takes_model
from ggufkit.models.layers import layer_of
from ggufkit.models.model import PROJECTOR, Model, Tensor

if TYPE_CHECKING:
    from typing_extensions import Unpack

CACHE_TYPES: Final = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "IQ4_NL", "Q5_0", "Q5_1")
MICRO_BATCH: Final = 512  # tokens that llama.cpp computes at once, its own default
DEFAULT_CONTEXT: Final = 4096  # used if the metadata do not say
MAX_CONTEXT: Final = 1 << 31
MAX_SEQUENCES: Final = 256  # LLAMA_MAX_SEQ of llama.cpp
# Tensors before the first layer, which llama.cpp never puts on a device.
_INPUT: Final = ("token_embd", "per_layer_token_embd", "position_embd", "token_types")


class EstimateOptions(TypedDict, total=False):
    """How llama.cpp would be started; see `estimate`."""

    context: int | None
    cache_type: str | TensorType
    value_cache_type: str | TensorType | None
    micro_batch: int
    sequences: int
    unified: bool
    flash_attention: bool
    full_window: bool


@dataclass(frozen=True)
class LayerEstimate:
    """Bytes of one layer: its weights, its keys and values, its recurrent state."""

    number: int
    weights: int
    cache: int
    state: int

    @property
    def nbytes(self) -> int:
        """All bytes that go to a device with the layer."""
        return self.weights + self.cache + self.state


@dataclass(frozen=True)
class Fit:
    """What fits into a memory: `layers` as `--n-gpu-layers` of llama.cpp counts, and the bytes.

    The output counts as one layer more, after the last. `split` are the layers of each device.
    """

    layers: int
    device: int
    host: int
    is_whole: bool
    split: tuple[int, ...] = ()


@dataclass(frozen=True, repr=False)
class Estimate:
    """The memory that a model needs, in bytes, by purpose.

    `input_weights` stay with the processor, `output_weights` go with the output; `twice` are
    weights that both need once layers are on a device. `output` is the buffer for the logits of
    one text.
    """

    context: int
    layers: tuple[LayerEstimate, ...]
    input_weights: int
    output_weights: int
    twice: int
    compute: int
    output: int

    def __repr__(self) -> str:
        names = ("total", "weights", "cache", "state", "compute", "output")
        sums = ", ".join(f"{name}={getattr(self, name):,}" for name in names)
        return f"<Estimate of {len(self.layers)} layers, context {self.context:,}: {sums} bytes>"

    @property
    def weights(self) -> int:
        """All tensors of the file."""
        return self.input_weights + self.output_weights + sum(x.weights for x in self.layers)

    @property
    def cache(self) -> int:
        """Keys and values of all layers."""
        return sum(layer.cache for layer in self.layers)

    @property
    def state(self) -> int:
        """Recurrent state of all layers."""
        return sum(layer.state for layer in self.layers)

    @property
    def total(self) -> int:
        """All of it, on one device."""
        return self.weights + self.cache + self.state + self.compute + self.output

    def fit(self, memory: int | Sequence[int]) -> Fit:
        """Return how many layers fit on a device with `memory` bytes, from the output on.

        Several memories mean several devices that share the layers. Each also needs a compute
        buffer of its own.
        """
        memories = (memory,) if isinstance(memory, int) else tuple(memory)
        parts = [
            self.output_weights + self.twice,
            *(layer.nbytes for layer in reversed(self.layers)),
        ]
        devices = list(filled(parts, memories, self.compute))
        split = [count for count, _ in devices]
        device = sum(nbytes for _, nbytes in devices)
        layers = sum(split)
        if not layers:
            return Fit(0, 0, self.total, is_whole=False, split=tuple(split))
        buffers = self.compute * sum(count > 0 for count in split)
        host = self.total - self.compute + self.twice - (device - buffers)
        return Fit(layers, device, host, is_whole=layers == len(parts), split=tuple(split))


def filled(
    parts: Sequence[int], memories: Sequence[int], compute: int
) -> Iterator[tuple[int, int]]:
    """Yield the layers and bytes of each device in turn, from the bytes of layers and buffers."""
    layer = 0
    for room in memories:
        sums = list(itertools.accumulate(parts[layer:], initial=compute))
        count = max(sum(nbytes <= room for nbytes in sums) - 1, 0)
        yield count, sums[count] if count else 0
        layer += count


@takes_model
def estimate(  # noqa: PLR0913 (how llama.cpp is started)
    model: Model,
    *,
    context: int | None = None,
    cache_type: str | TensorType = "F16",
    value_cache_type: str | TensorType | None = None,
    micro_batch: int = MICRO_BATCH,
    sequences: int = 1,
    unified: bool = False,
    flash_attention: bool = True,
    full_window: bool = False,
) -> Estimate:
    """Return how many bytes `model` needs in llama.cpp, by purpose; no tensor is read.

    `context` counts tokens (by default as many as the model was trained with), shared by
    `sequences` texts, in one cache if `unified`. `cache_type` is the type of keys, and of values
    unless `value_cache_type` is given. `full_window` keeps whole texts where a window would do.

    Only the weights of a multimodal projector, and of an image or video model, are counted.

    Raises ValueTypeError and ShapeError for what llama.cpp refuses, and for architectures
    whose caches ggufkit does not know.
    """
    if has_only_weights(model):
        nbytes = sum(tensor.nbytes for tensor in model.tensors.values())
        return Estimate(0, (), 0, nbytes, 0, 0, 0)
    memory = memory_of(model)
    if model.architecture in WITHOUT_FLASH:
        flash_attention = False
    types = _cache_types(cache_type, value_cache_type or cache_type, memory)
    if types[1].is_quantized and not flash_attention:
        raise ValueTypeError(
            f"a cache of {types[1]} values needs flash attention",
            remedy="Or keep the values in F16",
        )
    _require_positive(context=context, micro_batch=micro_batch, sequences=sequences)
    if sequences > MAX_SEQUENCES:
        raise ValueTypeError(
            f"llama.cpp cannot compute {sequences} texts at once",
            remedy=f"Use a number up to {MAX_SEQUENCES}",
        )
    tokens = context or trained_context(model) or DEFAULT_CONTEXT
    if not is_encoder(model):
        micro_batch = min(micro_batch, tokens)  # so does llama.cpp, before it rounds the context
    cells = Cells.of(memory, tokens, sequences, micro_batch, unified=unified)
    cells = replace(cells, window=cells.whole) if full_window else cells
    if not flash_attention:
        memory = memory.with_padded_values()
    weights = _weights(model)
    graph = Graph(model, memory, cells, micro_batch, flash_attention=flash_attention)
    tied = OUTPUT not in model.tensors and EMBEDDING in model.tensors
    return Estimate(
        cells.whole * cells.streams,
        tuple(_layers(memory, weights, types, cells)),
        weights[_AT_INPUT],
        weights[_AT_OUTPUT],
        model.tensors[EMBEDDING].nbytes if tied else 0,
        graph.nbytes(),
        graph.vocabulary * FLOAT * sequences,
    )


def has_only_weights(model: Model) -> bool:
    """Whether only weights are estimated: of projectors, and of image and video models."""
    return model.architecture == PROJECTOR or is_diffusion(model.architecture, model.tensors)


def _weights(model: Model) -> Counter[int]:
    """Return the bytes of tensors by their place: a layer, or one of the two ends."""
    weights: Counter[int] = Counter()
    for tensor in model.tensors.values():
        weights[_place(tensor)] += tensor.nbytes
    return weights


def _layers(
    memory: Memory, weights: Counter[int], types: tuple[TensorType, TensorType], cells: Cells
) -> Iterator[LayerEstimate]:
    memory_of = {layer.number: layer for layer in memory.layers}
    numbers = {place for place in weights if place >= 0}  # no range: names may tell any numbers
    for number in sorted(numbers.union(memory_of)):
        yield _layer(memory_of.get(number, LayerMemory(number)), weights[number], types, cells)


@takes_model
def largest_context(
    model: Model, memory: int | Sequence[int], **options: Unpack[EstimateOptions]
) -> int:
    """Return the most tokens, up to the context asked for, with which a device takes all layers.

    The device has `memory` bytes, or several devices have one number each; the embedding of tokens
    stays on the host. 0 means that no context is short enough.
    """
    low, high = 0, estimate(model, **options).context
    while low < high:
        options["context"] = middle = (low + high + 1) // 2
        candidate = estimate(model, **options)
        low, high = (middle, high) if candidate.fit(memory).is_whole else (low, middle - 1)
    return low


def _cache_types(
    keys: str | TensorType, values: str | TensorType, memory: Memory
) -> tuple[TensorType, TensorType]:
    """Return the types of keys and values, refusing what llama.cpp refuses."""
    types = (tensor_type(keys), tensor_type(values))
    for kind, length, name in zip(types, memory.heads, ("keys", "values"), strict=True):
        if kind.name not in CACHE_TYPES:
            raise ValueTypeError(
                f"llama.cpp has no cache of type {kind}", remedy=f"Use {', '.join(CACHE_TYPES)}"
            )
        if length % kind.block_size:
            raise ShapeError(
                f"heads of {length} {name} do not divide into the blocks of {kind.block_size} "
                f"of {kind}",
                remedy="Use F16",
            )
    return types


def trained_context(model: Model) -> int | None:
    """Return the tokens of the context that a model was trained with, None if it does not say."""
    context = whole_number(model.metadata.get(f"{model.architecture}.context_length"))
    return context if context and 0 < context <= MAX_CONTEXT else None


def _require_positive(**numbers: int | None) -> None:
    for name, number in numbers.items():
        if not isinstance(number, int | None):
            raise refusal(name, number, "a whole number")
        if number is not None and not 0 < number <= MAX_CONTEXT:
            raise ValueTypeError(f"{name} is {number}", remedy=f"Use a number up to {MAX_CONTEXT}")


def _layer(
    layer: LayerMemory, weights: int, types: tuple[TensorType, TensorType], cells: Cells
) -> LayerEstimate:
    room = (cells.window if layer.slides else cells.whole) * cells.streams
    widths = (layer.key_width, layer.value_width)
    row = sum(kind.row_bytes(width) for kind, width in zip(types, widths, strict=True))
    index = zip(types, layer.index_widths, strict=True)
    index_row = sum(kind.row_bytes(width) for kind, width in index)
    cache = room * row + cells.whole * cells.streams * index_row
    return LayerEstimate(layer.number, weights, cache, layer.state * FLOAT * cells.sequences)


_AT_INPUT: Final = -1
_AT_OUTPUT: Final = -2


def _place(tensor: Tensor) -> int:
    """Return the layer of a tensor, or the end of the model that it belongs to."""
    layer = layer_of(tensor.name)
    if layer is not None:
        return layer
    return _AT_INPUT if tensor.name.startswith(_INPUT) else _AT_OUTPUT
