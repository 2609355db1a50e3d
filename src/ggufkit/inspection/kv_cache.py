"""What llama.cpp stores about the tokens that a model has read, layer by layer.

Source: `load_hparams`, `create_memory` and the caches of llama.cpp of October 2026. The metadata
has most of it; for many architectures, only llama.cpp knows which layers have a sliding window.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from typing import Final

import numpy as np

from ggufkit.errors import MissingKeyError, ValueTypeError
from ggufkit.format.values import whole_number
from ggufkit.models.layers import block_count, layer_of
from ggufkit.models.model import Model


@dataclass(frozen=True)
class Sliding:
    """Which layers have a sliding window, and how long it is; `caches.toml` explains the fields."""

    period: int = 0
    is_first_whole: bool = False
    default: int = 0
    fixed: int = 0
    layers: int = 0


@dataclass(frozen=True)
class CacheRules:
    """What llama.cpp stores for an architecture; `caches.toml` explains the fields."""

    sliding: Sliding | None = None
    recurrent: str = ""
    interval: int = 0
    attends: bool = False
    is_indexed: bool = False
    keeps_nothing: bool = False
    is_encoder: bool = False
    is_known: bool = True


@functools.cache
def cache_rules() -> Mapping[str, CacheRules]:
    """Return the rules of all architectures with more or less than a plain cache."""
    import ggufkit._toml as _toml  # noqa: PLC0415 (slow to import, and most runs need none)

    text = (resources.files("ggufkit.inspection") / "caches.toml").read_text("utf-8")
    rows = _toml.loads(text)
    for row in rows.values():
        if "sliding" in row:
            row["sliding"] = Sliding(**row["sliding"])
    return {name: CacheRules(**row) for name, row in rows.items()}


def rules_of(architecture: str) -> CacheRules:
    """Return the rules of an architecture; without its own, the rules of a plain cache."""
    return cache_rules().get(architecture, CacheRules())


WITHOUT_BOTH: Final = "without heads and feed forward"  # of `recurrent`
GEMMA3N_LAYERS: Final = 20  # layers of Gemma 3n that have a cache in llama.cpp
TOKEN_SHIFTS: Final = 2  # of RWKV, where the key is missing


@dataclass(frozen=True)
class LayerMemory:
    """Elements that one layer stores: keys and values for each token, state for each text.

    `index_width` is what sparse attention adds to look tokens up, as type of the keys and of the
    values. `slides` says that only a window is kept.
    """

    number: int
    key_width: int = 0
    value_width: int = 0
    index_widths: tuple[int, int] = (0, 0)
    state: int = 0
    slides: bool = False


@dataclass(frozen=True)
class Memory:
    """What all layers store, and the length of the sliding window (0: none).

    `widest_value` is the width of the widest layer's values, `heads` the lengths of a head's keys
    and values.
    """

    layers: tuple[LayerMemory, ...]
    window: int = 0
    widest_value: int = 0
    heads: tuple[int, int] = (0, 0)

    def with_padded_values(self) -> Memory:
        """Return the memory without flash attention: all values are as wide as the widest."""
        layers = (
            replace(layer, value_width=self.widest_value) if layer.value_width else layer
            for layer in self.layers
        )
        return replace(self, layers=tuple(layers))


def memory_of(model: Model) -> Memory:
    """Return what `model` stores about a text; no tensor is read.

    Raises MissingKeyError where the metadata do not tell, ValueTypeError for values that make no
    sense and for architectures whose caches ggufkit does not know.
    """
    hyper = _Hyperparameters(model)
    if not hyper.rules.is_known:
        raise ValueTypeError(
            f"ggufkit does not know how {hyper.architecture} uses memory",
            remedy="Load the model with llama.cpp and read its log",
        )
    if hyper.rules.keeps_nothing:
        return Memory(())
    window, slides = hyper.sliding()
    layers = tuple(_layers(hyper, slides))
    widest = max(hyper.width("value", layer, slides[layer]) for layer in range(hyper.count))
    widest *= hyper.loops
    heads = (hyper.length("key"), 0 if hyper.is_latent else hyper.length("value"))
    return Memory(layers, window if any(slides) else 0, widest, heads)


def _layers(hyper: _Hyperparameters, slides: list[bool]) -> Iterator[LayerMemory]:
    """Yield each layer; in a model with loops, a layer stores as much for each pass."""
    recurrent, attending = hyper.recurrent(), hyper.attending()
    state = hyper.state() if any(recurrent) else 0
    indexed = hyper.indexed()
    for layer in range(hyper.count):
        attends = attending[layer]
        yield LayerMemory(
            layer,
            hyper.width("key", layer, slides[layer]) * hyper.loops if attends else 0,
            hyper.width("value", layer, slides[layer]) * hyper.loops
            if attends and not hyper.is_latent
            else 0,
            hyper.index_widths() if layer in indexed else (0, 0),
            state if recurrent[layer] else 0,
            slides[layer],
        )


class _Hyperparameters:
    """The metadata under the architecture's name, checked as they are read."""

    def __init__(self, model: Model) -> None:
        self.metadata = model.metadata
        key, self.count = block_count(model.metadata)
        self.architecture = key.removesuffix(".block_count")
        self.rules = rules_of(self.architecture)
        self.names = tuple(model.tensors)
        self.heads = self.by_layer("attention.head_count", 0)
        self.key_heads = self.by_layer("attention.head_count_kv", None) or self.heads

    def number(self, name: str, default: int | None = 0) -> int:
        """Return a number; `default` where the key is missing, MissingKeyError if that is None."""
        key = f"{self.architecture}.{name}"
        value = self.metadata.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise MissingKeyError(f"the model has no key {key!r}, which the estimate needs")
        number = whole_number(value)
        if number is None or number < 0:
            raise ValueTypeError(f"{key} is {value!r}, which is not a valid number")
        return number

    def by_layer(self, name: str, default: int | None) -> list[int]:
        """Return a number for each layer, from one or from an array; [] if None is the default."""
        key = f"{self.architecture}.{name}"
        value = self.metadata.get(key)
        if value is None and default is None:
            return []
        if not isinstance(value, np.ndarray):
            return [self.number(name, default)] * self.count
        if value.dtype.kind not in "iub" or len(value) < self.count or (value < 0).any():
            raise ValueTypeError(f"{key} does not have a number for each of {self.count} layers")
        return [int(item) for item in value[: self.count]]

    @property
    def trunk(self) -> int:
        """Layers without those that predict further tokens, which have no part in the cache."""
        ahead = self.number("nextn_predict_layers")
        return self.count - ahead if 0 < ahead < self.count else self.count

    @property
    def is_latent(self) -> bool:
        """Whether keys and values are kept as one (multi-head latent attention)."""
        return self.number("attention.key_length_mla") > 0

    @property
    def loops(self) -> int:
        """How often a text passes the layers, keeping something each time."""
        return self.number("num_loops", 1) if self.architecture == "nanbeige" else 1

    def length(self, part: str) -> int:
        """Return the elements of one head; `part` is "key" or "value"."""
        heads = self.heads[0]
        if not heads and self.architecture != "plamo2":  # which reads it in any case
            return 0
        equal = self.number("embedding_length", None) // heads if heads else 0
        return self.number(f"attention.{part}_length", equal)

    def width(self, part: str, layer: int, slides: bool) -> int:  # noqa: FBT001 (of one layer)
        """Return the elements of the keys or values of a token in a layer."""
        length = self.length(part)
        if slides:
            length = self.number(f"attention.{part}_length_swa", length)
        return length * self.key_heads[layer]

    # Which layers do what.

    def sliding(self) -> tuple[int, list[bool]]:
        """Return the window, and whether each layer keeps no more than it."""
        sliding = self.rules.sliding
        window = self.number("attention.sliding_window", sliding.default if sliding else 0)
        none = [False] * self.count
        if sliding is None or not window or sliding.layers not in (0, self.trunk):
            return 0, none
        flags = self.metadata.get(f"{self.architecture}.attention.sliding_window_pattern")
        if isinstance(flags, np.ndarray):
            pattern = self.by_layer("attention.sliding_window_pattern", 0)
            return sliding.fixed or window, [flag != 0 for flag in pattern]
        period = self.number("attention.sliding_window_pattern", sliding.period)
        if period == 0 and sliding.period == 0:
            self.number("attention.sliding_window_pattern", None)
        whole = 0 if sliding.is_first_whole else period - 1
        slides = [
            layer < self.trunk and (period == 0 or layer % period != whole)
            for layer in range(self.count)
        ]
        if self.architecture == "lfm2":
            slides = [not recurrent for recurrent in self.recurrent()]
        return sliding.fixed or window, slides

    def recurrent(self) -> list[bool]:
        """Return whether each layer keeps a state."""
        rules, layers = self.rules, range(self.count)
        if rules.recurrent == "all":
            return [layer < self.trunk for layer in layers]
        if rules.recurrent == "without heads":
            return [heads == 0 for heads in self.key_heads]
        if rules.recurrent == WITHOUT_BOTH:
            hidden = self.by_layer("feed_forward_length", 0)
            return [n < self.trunk and not self.key_heads[n] and not hidden[n] for n in layers]
        if not rules.interval:
            return [False] * self.count
        listed = self.by_layer("attention.recurrent_layers", None)
        every = self.number("full_attention_interval", rules.interval) or 1
        flags = listed or [(layer + 1) % every for layer in layers]
        return [layer < self.trunk and flag != 0 for layer, flag in enumerate(flags)]

    def attending(self) -> list[bool]:
        """Return whether each layer keeps keys and values."""
        recurrent = [False] * self.count if self.rules.attends else self.recurrent()
        busy = [False] * self.count
        if self.rules.recurrent == WITHOUT_BOTH:
            busy = [hidden > 0 for hidden in self.by_layer("feed_forward_length", 0)]
        last = min(self.trunk, self._with_own_cache())
        return [
            layer < last and not recurrent[layer] and not busy[layer] for layer in range(self.count)
        ]

    def _with_own_cache(self) -> int:
        """Return how many of the first layers have their own cache; the others share theirs."""
        if self.architecture == "gemma3n":
            return GEMMA3N_LAYERS
        if self.architecture == "gemma4":
            return self.count - self.number("attention.shared_kv_layers")
        return self.count

    def indexed(self) -> frozenset[int]:
        """Return the layers that look tokens up by keys of their own."""
        if not self.rules.is_indexed:
            return frozenset()
        layers = {layer_of(name) for name in self.names if ".indexer." in name}
        return frozenset(layer for layer in layers if layer is not None and layer < self.trunk)

    def index_widths(self) -> tuple[int, int]:
        """Return what an indexer keeps of a token: one head of keys, and of values if any are."""
        keys = self.number("attention.indexer.key_length", None)
        values = 0 if self.is_latent else self.number("attention.value_length", keys)
        return keys, values

    def state(self) -> int:
        """Return the elements of one layer's state: the last inputs, and running sums."""
        width, heads = self.number("embedding_length", None), self.heads[0]
        if head := self.number("wkv.head_size"):
            return self.number("token_shift_count", TOKEN_SHIFTS) * width + width * head
        kernel, inner = self.number("ssm.conv_kernel"), self.number("ssm.inner_size")
        if cached := self.number("shortconv.l_cache"):
            return width * (cached - 1) + self.number("ssm.state_size") * inner
        if head := self.number("kda.head_dim"):
            return 3 * ((kernel or 4) - 1) * heads * head + head * head * heads
        groups, state = self.number("ssm.group_count"), self.number("ssm.state_size")
        inputs = max(kernel - 1, 0) * (inner + 2 * groups * state)
        if self.architecture == "minimax-01":
            head = self.number("attention.key_length", width // heads if heads else 0)
            return inputs + head * head * heads
        return inputs + state * inner
