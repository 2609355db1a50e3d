"""Choose a type for every tensor as llama-quantize does, by the tables of `recipes.toml`.

Only names, shapes, types and metadata are read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Final

import numpy as np

from ggufkit.diffusion.architecture import architecture_of, general_names, is_without_keys
from ggufkit.errors import MissingTensorError, did_you_mean
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.format.values import Strings, whole_number
from ggufkit.models.model import Tensor, as_ggml_counts
from ggufkit.models.sources import can_interleave
from ggufkit.quantization.choice.conditions import FEED_FORWARD, ModelFacts, TensorPlace
from ggufkit.quantization.choice.diffusion_rules import (
    K_TYPES,
    diffusion_recipe,
    is_converted_by_sd_cpp,
    is_quantized_in_diffusion,
    role_in_diffusion,
)
from ggufkit.quantization.choice.eligibility import (
    CACHED_NAMES,
    is_eligible,
    without_layer,
)
from ggufkit.quantization.recipes import (
    FLOORS,
    LAST_RESORT,
    LIFTED_IN_70B,
    LLAMA_3_TOKENS,
    LLAMA_CPP,
    NAMED_8B,
    NAMED_70B,
    PROGRAMS,
    QWEN_4B_WIDTH,
    Patterns,
    Recipe,
)
from ggufkit.quants.kernels import EXPERT_AXES, is_integer
from ggufkit.validation.patterns import matches

PER_LAYER_EMBEDDING: Final = "per_layer_token_embd.weight"
BY_NAME: Final = "this type is given for its name"
EIGHT_EXPERTS: Final = 8
_LAYER: Final = re.compile(r"blk\.\s*([+-]?\d{1,18})")  # as sscanf reads "blk.%d."


@dataclass(frozen=True)
class TypeRequests:
    """Types that the user sets over the recipe, named after llama-quantize's flags.

    `patterns` are regular expressions searched in names; the first match decides. `types` are by
    exact name and take precedence over everything else.
    """

    pure: bool = False
    leave_output_tensor: bool = False
    output_tensor_type: TensorType | None = None
    token_embedding_type: TensorType | None = None
    patterns: Patterns = ()
    types: Mapping[str, TensorType] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """The type of one tensor, and why; `requested` differs if its blocks do not divide rows."""

    type: TensorType
    requested: TensorType
    why: str = ""

    @property
    def fell_back(self) -> bool:
        """Whether the tensor's rows did not fit the requested type."""
        return self.type != self.requested


@lru_cache(maxsize=CACHED_NAMES)
def role_of(name: str, program: str | None = None) -> str:
    """Return the role of a tensor of this name in a program's recipes, "other" for most."""
    suffix = without_layer(name)
    names = PROGRAMS[program]
    if suffix in names.exact_roles:
        return names.exact_roles[suffix]
    return next((role for part, role in names.roles.items() if part in suffix), "other")


def _layer_of(name: str) -> int | None:
    match = _LAYER.match(name)
    return int(match[1]) if match else None


@lru_cache(maxsize=CACHED_NAMES)
def order_key(name: str) -> tuple[int, bytes]:
    """Return llama.cpp's sort key: tensors outside layers first, then layer by layer."""
    layer = _layer_of(name)
    return (-1 if layer is None else layer), name.encode("utf-8", "surrogateescape")


def in_written_order(
    tensors: Iterable[Tensor], facts: ModelFacts, *, keeps_split: bool
) -> list[Tensor]:
    """Return tensors in the order of llama-quantize; shards and image models keep their order."""
    if keeps_split or facts.diffusion or facts.is_sd_cpp:
        return list(tensors)
    return sorted(tensors, key=lambda tensor: order_key(tensor.name))


def as_written(tensor: Tensor, facts: ModelFacts) -> Tensor:
    """Return a tensor without the leading axes of length 1 that llama-quantize does not write."""
    keeps_ones = facts.diffusion is not None and facts.diffusion.keeps_ones(tensor.name)
    return tensor if keeps_ones else as_ggml_counts(tensor)


def facts_of(metadata: Metadata, tensors: Mapping[str, Tensor] | None = None) -> ModelFacts:
    """Return the facts that conditions read, as llama.cpp's loader computes them.

    The names and shapes of `tensors` distinguish image and video models of one architecture.
    """
    architecture = metadata.text("general.architecture", "")
    if architecture in general_names():
        shapes = {name: tensor.shape for name, tensor in (tensors or {}).items()}
        return ModelFacts(architecture, diffusion=architecture_of(architecture, shapes))
    if not metadata and is_without_keys(tensors or ()):
        return ModelFacts(is_sd_cpp=True)
    blocks = _number(metadata, f"{architecture}.block_count")
    experts = _number(metadata, f"{architecture}.expert_count")
    heads = _number(metadata, f"{architecture}.attention.head_count")
    shared = _number(metadata, f"{architecture}.attention.head_count_kv", heads)
    main = blocks - _number(metadata, f"{architecture}.nextn_predict_layers")
    is_70b = NAMED_70B.get(architecture) == main
    if architecture.startswith("llama"):
        is_70b = is_70b and heads != shared and experts != EIGHT_EXPERTS
    grouped = heads // shared if shared else 0
    layers = blocks + (architecture == "graniteswitch")  # one more, for the router
    if architecture == "nanbeige":
        layers *= max(_number(metadata, "nanbeige.num_loops", 1), 1)
    is_llama_3 = _vocabulary(metadata) >= LLAMA_3_TOKENS and (
        is_70b or _is_8b(metadata, architecture, layers, experts)
    )
    return ModelFacts(architecture, layers, grouped, experts, is_70b, is_llama_3)


def _is_8b(metadata: Metadata, architecture: str, layers: int, experts: int) -> bool:
    """Whether ik_llama.cpp calls a model 8B."""
    width = _number(metadata, f"{architecture}.embedding_length")
    is_small = architecture.startswith("qwen3") and width == QWEN_4B_WIDTH
    is_mixture = architecture == "llama" and experts == EIGHT_EXPERTS
    return layers in NAMED_8B.get(architecture, ()) and not is_small and not is_mixture


def _vocabulary(metadata: Metadata) -> int:
    tokens = metadata.get("tokenizer.ggml.tokens")
    architecture = metadata.text("general.architecture", "")
    return _number(metadata, f"{architecture}.vocab_size") or (
        len(tokens) if isinstance(tokens, Strings) else 0
    )


def _number(metadata: Metadata, key: str, default: int = 0) -> int:
    value = metadata.get(key)
    if isinstance(value, np.ndarray):
        value = value.tolist()[0] if value.size else None
    number = whole_number(value)
    return number if number is not None and number >= 0 else default


def is_converted(tensor: Tensor, facts: ModelFacts, program: str | None = None) -> bool:
    """Whether the recipes of a program change the type of a tensor."""
    if is_integer(tensor.type):
        return False
    if facts.diffusion:
        return is_quantized_in_diffusion(tensor, facts.diffusion)
    if facts.is_sd_cpp:
        return is_converted_by_sd_cpp(tensor.name)
    return is_eligible(tensor, facts.architecture, program)


def choose(
    tensors: Iterable[Tensor],
    facts: ModelFacts,
    recipe: Recipe,
    requests: TypeRequests = TypeRequests(),
    *,
    imatrix: bool = False,
) -> dict[str, Choice]:
    """Return the choice for each tensor, by name; the order of `tensors` matters.

    Some rules count the tensors met before, so they must come in the order of llama.cpp
    (`order_key`). `imatrix` is true if there is any importance data.
    """
    ordered = list(tensors)
    role = role_in_diffusion if facts.diffusion else partial(role_of, program=recipe.program)
    recipe = diffusion_recipe(recipe) if facts.diffusion else recipe
    roles = {tensor.name: role(tensor.name) for tensor in ordered}
    walk = _Walk(facts, recipe, requests, imatrix, Counter(roles.values()))
    return {tensor.name: walk.choice(tensor, roles[tensor.name]) for tensor in ordered}


@dataclass
class _Walk:
    """One pass over a model's tensors that counts the tensors of each role."""

    facts: ModelFacts
    recipe: Recipe
    requests: TypeRequests
    imatrix: bool
    type_counts: Counter[str]  # of each role, in the whole model
    role_counts: Counter[str] = field(default_factory=Counter)

    def choice(self, tensor: Tensor, role: str) -> Choice:
        chosen, why = self._chosen_type(tensor, role)
        if chosen.plain and not can_interleave(tensor, chosen):
            chosen = tensor_type(chosen.plain)
        if self.facts.is_sd_cpp:
            is_fitting = tensor.shape[-1:] != () and tensor.shape[-1] % chosen.block_size == 0
            return Choice(chosen if is_fitting else tensor.type, chosen, why)
        is_diffusion = self.facts.diffusion is not None
        fits = fitting(tensor, chosen, self.recipe.fallbacks, diffusion=is_diffusion)
        return Choice(fits, chosen, why)

    def _chosen_type(self, tensor: Tensor, role: str) -> tuple[TensorType, str]:
        if tensor.name in self.requests.types and not is_integer(tensor.type):
            return self.requests.types[tensor.name], BY_NAME
        is_left = self.requests.leave_output_tensor and tensor.name == "output.weight"
        if is_left or not is_converted(tensor, self.facts, self.recipe.program):
            program = "stable-diffusion.cpp" if self.facts.is_sd_cpp else "llama-quantize"
            return tensor.type, f"{program} keeps such tensors"
        base = tensor_type(self.recipe.base) if self.recipe.base else tensor.type
        mixes = self.recipe.base is not None and base.block_size > 1
        requested = self._requested(tensor.name, role, mixes)
        if requested is not None:
            self.role_counts[role] += self.recipe.program is not None  # llama.cpp skips these
            return requested
        if mixes and not self.requests.pure and not self.facts.is_sd_cpp:
            return self._by_rules(tensor, role, base)
        return (
            base,
            "base type of the recipe" if self.recipe.base else "the recipe keeps every type",
        )

    def _requested(self, name: str, role: str, mixes: bool) -> tuple[TensorType, str] | None:  # noqa: FBT001
        requests = self.requests
        by_pattern = _by_name(name, requests.patterns)
        own = by_pattern is not None and name == PER_LAYER_EMBEDDING
        if requests.token_embedding_type and role == "embedding" and not own:
            return requests.token_embedding_type, "this type is given for token embeddings"
        if requests.output_tensor_type and role == "output":
            return requests.output_tensor_type, "this type is given for the output"
        # llama-quantize ignores patterns if the recipe is F32, F16 or BF16.
        return (
            by_pattern if by_pattern is not None and mixes else _by_name(name, self.recipe.patterns)
        )

    def _by_rules(self, tensor: Tensor, role: str, base: TensorType) -> tuple[TensorType, str]:
        parts, floor = FLOORS.get(self.facts.architecture, ((), ""))
        if any(part in tensor.name for part in parts):
            return tensor_type(floor), f"{self.facts.architecture} needs this type here"
        if role == "embedding" and not self.type_counts["output"]:  # tied: it is also the output
            role = "tied" if "tied" in self.recipe.rules else "output"
        if role in ("output", "tied") and self.requests.output_tensor_type:
            return self.requests.output_tensor_type, "this type is given for the output"
        place = self._place(tensor, role, base)
        rules = self.recipe.rules.get(role, ())
        match = next((rule for rule in rules if all(test.holds(place) for test in rule.when)), None)
        self.role_counts[role] += 1
        is_lifted = role == "attention_v" and self.facts.is_70b and not self.recipe.by_count
        kind = match.type if match else base.name
        why = "base type of the recipe"
        if match:
            conditions = "; ".join(test.text for test in match.when)
            why = f"the recipe's rule for {role}" + (conditions and f": {conditions}")
        if is_lifted and kind in LIFTED_IN_70B:
            return tensor_type(LIFTED_IN_70B[kind]), f"{why}; more bits in models of 70B"
        return tensor_type(kind), why

    def _place(self, tensor: Tensor, role: str, base: TensorType) -> TensorPlace:
        layer = self.role_counts[role]
        if role in FEED_FORWARD and self.facts.experts > 1 and not self.recipe.by_count:
            layer_in_name = _layer_of(tensor.name)
            layer = layer if layer_in_name is None else layer_in_name
        return TensorPlace(
            self.facts,
            role,
            layer,
            self.type_counts[role] if role == "attention_v" else self.facts.layers,
            self.imatrix,
            tensor.shape[-1],
            base.block_size,
            is_stack=len(tensor.shape) >= EXPERT_AXES and tensor.shape[-EXPERT_AXES] > 1,
        )


def require_names(names: Collection[str], requests: TypeRequests, types: Iterable[str]) -> None:
    """Raise MissingTensorError for a name or pattern of the user that no tensor has."""
    unknown = [
        pattern.pattern
        for pattern, _ in requests.patterns
        if not any(matches(pattern, name) for name in names)
    ]
    unknown += [name for name in types if name not in names]
    if unknown:
        raise MissingTensorError(
            f"no tensor has the name {unknown[0]!r}, for which a type is given",
            remedy=did_you_mean(unknown[0], names, "`ggufkit inspect` shows the names", cutoff=0.4),
        )


def unmatched(names: Iterable[str], recipe: Recipe, requests: TypeRequests) -> tuple[str, ...]:
    """Return the patterns without effect: they match no name, or the recipe ignores them."""
    all_names = list(names)
    is_idle = recipe.base is not None and tensor_type(recipe.base).block_size == 1
    rows = [(pattern, is_idle) for pattern, _ in requests.patterns]
    rows += [(pattern, False) for pattern, _ in recipe.patterns]
    return tuple(
        pattern.pattern
        for pattern, idle in rows
        if idle or not any(matches(pattern, name) for name in all_names)
    )


def _by_name(name: str, patterns: Patterns) -> tuple[TensorType, str] | None:
    for pattern, kind in patterns:
        if matches(pattern, name):
            return kind, f"its name matches {pattern.pattern!r}"
    return None


def fitting(
    tensor: Tensor,
    chosen: TensorType,
    fallbacks: Mapping[str, str] = LLAMA_CPP.fallbacks,
    *,
    diffusion: bool = False,
) -> TensorType:
    """Return `chosen`, or its fallback if the tensor's rows do not divide into its blocks.

    The fallback of the K types is F16 in image and video models.
    """
    if chosen == tensor.type:
        return chosen
    width = tensor.shape[-1] if tensor.shape else 1
    if chosen.block_size and width % chosen.block_size == 0:
        return chosen
    is_f16 = diffusion and chosen.name in K_TYPES
    name = fallbacks.get(chosen.plain or chosen.name, LAST_RESORT)
    fallback = tensor_type(LAST_RESORT if is_f16 else name)
    fits = fallback.block_size and width % fallback.block_size == 0
    return fallback if fits else tensor_type(LAST_RESORT)
