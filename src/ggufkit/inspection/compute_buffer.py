"""The size of llama.cpp's compute buffer, from the widest places of its graph.

The rules come from what its allocator reserved on a CPU; docs/estimate.md says how well they fit
each architecture.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from ggufkit.format.types import padded
from ggufkit.format.values import whole_number
from ggufkit.inspection.kv_cache import Memory, rules_of
from ggufkit.models.model import Model

CELL_STEP: Final = 256  # llama.cpp rounds contexts and windows to multiples of so many tokens
FLOAT: Final = 4  # bytes of a float32
HALF: Final = 2
EMBEDDING: Final = "token_embd.weight"
OUTPUT: Final = "output.weight"
# Rows of activations that live at once, as seen in llama.cpp's compute buffers.
LIVE_AT_OUTPUT: Final = 6
LIVE_IN_LAYER: Final = 5
HIDDEN_IN_LAYER: Final = 3
HIDDEN_WITHOUT_GATE: Final = 2
ROWS_WITHOUT_GATE: Final = 2
ROWS_OF_ENCODER: Final = 1
TABLES_WITH_BIASES: Final = 3  # scores, and biases before and after they are turned
_GATE: Final = re.compile(r"\.ffn_gate(_exps|_shexp)?\.weight$")
LOGITS_TWICE: Final = frozenset({"chameleon"})  # which makes the logits of images impossible
WITHOUT_FLASH: Final = frozenset({"grok"})  # llama.cpp always turns flash attention off here
_UP: Final = re.compile(r"\.ffn_up\.weight$")


@dataclass(frozen=True)
class Cells:
    """Tokens that a cache has room for: in full layers, and in layers with a sliding window."""

    whole: int
    window: int
    streams: int
    sequences: int

    @classmethod
    def of(
        cls, memory: Memory, context: int, sequences: int, micro_batch: int, *, unified: bool
    ) -> Cells:
        """Return the room for `context` tokens of all texts together."""
        streams = 1 if unified else sequences
        whole = padded(padded(context, CELL_STEP) // streams, CELL_STEP)
        visible = memory.window * (sequences if unified else 1) + micro_batch
        window = padded(min(whole, visible), CELL_STEP) if memory.window else whole
        return cls(whole, window, streams, sequences)


def is_encoder(model: Model) -> bool:
    """Whether the model is an encoder: it reads a whole text at once."""
    return rules_of(model.architecture).is_encoder


@dataclass(frozen=True)
class Graph:
    """The widest places of the graph that llama.cpp computes for one micro batch."""

    model: Model
    memory: Memory
    cells: Cells
    batch: int
    flash_attention: bool = True

    def nbytes(self) -> int:
        """Return the bytes of the compute buffer."""
        row = self.batch * FLOAT
        logits = 0 if self.is_encoder else self.vocabulary
        logits *= 2 if self.model.architecture in LOGITS_TWICE else 1
        output = logits + LIVE_AT_OUTPUT * self.width
        item = HALF if self.flash_attention else FLOAT
        item += FLOAT if self.has_biases else 0  # the distances
        kinds = 2 if self.is_encoder and self.number("attention.sliding_window") else 1
        masks = kinds * sum(self._rooms()) * self.batch * item
        layer = max(self._feed_forward(), self._scan(), self._attention())
        # After the last layer the masks are free; the logits take their space if they fit.
        is_reused = not self.is_encoder and 0 < row * logits <= masks
        return row * (layer if is_reused else max(layer, output)) + masks

    def _feed_forward(self) -> int:
        if self._is_gated():
            return HIDDEN_IN_LAYER * self.hidden + LIVE_IN_LAYER * self.width
        rows = ROWS_OF_ENCODER if self.is_encoder else ROWS_WITHOUT_GATE
        return HIDDEN_WITHOUT_GATE * self.hidden + rows * self.width

    def _scan(self) -> int:
        return LIVE_IN_LAYER * (self.width + self.number("ssm.inner_size"))

    def _is_gated(self) -> bool:
        """Whether the feed forward has a gate, which may be in the same tensor."""
        names = self.model.tensors
        if any(_GATE.search(name) for name in names):
            return True
        ups = (names[name].rows for name in names if _UP.search(name))
        return any(rows >= 2 * self.hidden > 0 for rows in ups)

    @property
    def is_encoder(self) -> bool:
        """Whether there are no logits."""
        return is_encoder(self.model)

    @property
    def width(self) -> int:
        """Elements of the embedding of a token."""
        return self.number("embedding_length")

    @property
    def vocabulary(self) -> int:
        """Tokens that there are logits for."""
        name = OUTPUT if OUTPUT in self.model.tensors else EMBEDDING
        return self.model.tensors[name].rows if name in self.model.tensors else 0

    @property
    def hidden(self) -> int:
        """Units of feed forward that are computed for one token."""
        dense, experts = self.number("feed_forward_length"), self.number("expert_used_count")
        if not experts:
            return dense
        width = self.number("expert_feed_forward_length") or dense
        return max(dense if self.number("leading_dense_block_count") else 0, experts * width)

    def _attention(self) -> int:
        heads = self.number("attention.head_count")
        shared = self.number("attention.head_count_kv") or heads
        # Without a cache, queries and keys are alive together with the rows.
        lengths = self.memory.heads if self.memory.layers else (self.width // max(heads, 1), 0)
        keys, values = (
            max((getattr(layer, name) for layer in self.memory.layers), default=shared * length)
            for name, length in zip(("key_width", "value_width"), lengths, strict=True)
        )
        # Latent queries are alive twice: as they are, and compressed.
        is_latent = self.memory.layers and keys and not values
        queries = heads * lengths[0] * (2 if is_latent else 1)
        scores = self._tables() * heads * max(self._rooms(), default=0)
        return scores + LIVE_IN_LAYER * self.width + queries + keys + values

    @property
    def has_biases(self) -> bool:
        """Whether scores have a bias by distance, as T5's do; then they are computed as a whole."""
        return self.number("attention.relative_buckets_count") > 0

    def _tables(self) -> int:
        """Return how many tables of scores are alive at once."""
        if self.has_biases:
            return TABLES_WITH_BIASES
        return 0 if self.flash_attention else 1

    def _rooms(self) -> set[int]:
        """Return the tokens that each kind of layer attends to."""
        if self.is_encoder or not self.memory.layers:
            return {self.batch}
        kinds = {layer.slides for layer in self.memory.layers if layer.key_width}
        return {self.cells.window if slides else self.cells.whole for slides in kinds}

    def number(self, name: str) -> int:
        """Return a number of the metadata; the largest one of an array."""
        value = self.model.metadata.get(f"{self.model.architecture}.{name}")
        if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "iu":
            value = int(value.max())
        return max(whole_number(value) or 0, 0)
