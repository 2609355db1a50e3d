"""The decision about each tensor of a model that is quantized, and all of them together."""

from __future__ import annotations

from dataclasses import dataclass

from ggufkit.format.types import TensorType, tensor_type
from ggufkit.models.model import Model, Tensor
from ggufkit.quantization.recipes import Recipe
from ggufkit.quants.parallel import Floats
from ggufkit.quants.search import Search


@dataclass(frozen=True, eq=False, slots=True)  # arrays do not compare to one bool
class Decision:
    """The decision about one tensor: `before` is the input's, `after` the output's.

    `fell_from` is the chosen type if its rows do not fit it, `promoted_from` the chosen type if it
    needs importance data that is missing, `kept_from` the chosen type if the tensor keeps its own,
    because it is quantized already and would not become smaller. `weights` is the importance data,
    `needs_imatrix` is true if the type requires it. `search` is the search for better blocks, None
    for ggml's blocks; `why` says what decided about the type. `is_fed_back` is true if a Hessian
    feeds errors back.
    """

    before: Tensor
    after: Tensor
    fell_from: TensorType | None = None
    promoted_from: TensorType | None = None
    kept_from: TensorType | None = None
    needs_imatrix: bool = False
    weights: Floats | None = None
    search: Search | None = None
    why: str = ""
    is_fed_back: bool = False

    @property
    def is_changed(self) -> bool:
        """Whether the tensor is converted at all."""
        return self.before is not self.after

    @property
    def fallback_nbytes(self) -> int:
        """How many bytes more the tensor takes than in the chosen type, whose blocks do not fit."""
        bits = self.fell_from.bits_per_weight if self.fell_from else 0
        return self.after.nbytes - round(self.after.elements * bits / 8) if bits else 0


@dataclass(frozen=True)
class Quantization:
    """A quantized model, and the decision about each of its tensors, in their order.

    `shard_counts` is the number of tensors in each shard if the input's shards are kept.
    `unmatched` lists the patterns for types, and the parts of names for importance data, that match
    no name. `search` is the search for better blocks that was asked for.
    """

    model: Model
    decisions: tuple[Decision, ...]
    recipe: Recipe
    has_imatrix: bool
    shard_counts: tuple[int, ...] | None
    unmatched: tuple[str, ...] = ()
    search: Search | None = None

    @property
    def nominal_bits(self) -> float | None:
        """Bits per weight of the recipe's base type, as its name says; None for a plain type."""
        base = tensor_type(self.recipe.base) if self.recipe.base else None
        return base.bits_per_weight if base and base.is_quantized else None

    @property
    def fallback_widths(self) -> tuple[int, ...]:
        """The widths of rows that do not divide into the blocks of the chosen type."""
        return tuple(sorted({d.before.shape[-1] for d in self.decisions if d.fell_from}))

    @property
    def unsearched(self) -> list[Decision]:
        """The quantized tensors that are not searched, although a search was asked for."""
        quantized = [d for d in self.decisions if d.is_changed and d.after.type.is_quantized]
        return [d for d in quantized if self.search and d.search is None]

    @property
    def without_feedback(self) -> list[Decision]:
        """The quantized tensors of other programs' types: a Hessian feeds back no errors there."""
        quantized = (d for d in self.decisions if d.is_changed and d.after.type.is_quantized)
        return [d for d in quantized if d.after.type.program]

    @property
    def uncovered(self) -> list[Decision]:
        """The tensors that cannot be written because importance data is missing."""
        return [d for d in self.decisions if d.is_changed and d.needs_imatrix and d.weights is None]

    @property
    def unweighted(self) -> list[Decision]:
        """The tensors quantized without importance data that they need or that others have."""
        bare = (d for d in self.decisions if d.is_changed and d.weights is None)
        return [
            d for d in bare if d.needs_imatrix or (self.has_imatrix and d.after.type.is_quantized)
        ]

    @property
    def requantized_types(self) -> str:
        """The types of the tensors that were quantized already, and which program they are of."""
        types = {d.before.type for d in self.requantized}
        programs = sorted({kind.program for kind in types if kind.program})
        names = ", ".join(sorted(kind.name for kind in types))
        return names + "".join(f", of {program}" for program in programs)

    @property
    def requantized(self) -> list[Decision]:
        """The tensors that were quantized already and change their type."""
        return [d for d in self.decisions if d.is_changed and d.before.type.is_quantized]
