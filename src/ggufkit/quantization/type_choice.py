"""Choose a type for every tensor as llama-quantize does, by the tables of `recipes.py`.

Only names, shapes, types and metadata are read.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ggufkit.errors import MissingTensorError
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.format.values import whole_number
from ggufkit.models.model import Tensor
from ggufkit.quantization.conditions import FEED_FORWARD, ModelFacts, TensorPlace
from ggufkit.quantization.eligibility import is_eligible, is_whole, without_layer
from ggufkit.quantization.recipes import (
    EXACT_ROLES,
    FALLBACKS,
    FLOORS,
    LAST_RESORT,
    LIFTED_IN_70B,
    NAMED_70B,
    ROLES,
    Patterns,
    Recipe,
    RecipeRule,
    RecipeRules,
)

PER_LAYER_EMBEDDING: Final = "per_layer_token_embd.weight"
STACK_AXES: Final = 3  # of a tensor that stacks experts
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
    """The type of one tensor, and why; `wanted` differs if rows do not divide into its blocks."""

    type: TensorType
    wanted: TensorType
    why: str = ""

    @property
    def fell_back(self) -> bool:
        """Whether the tensor's rows did not fit the wanted type."""
        return self.type != self.wanted


def role_of(name: str) -> str:
    """Return the role of a tensor of this name, "other" for most."""
    return _role_of(without_layer(name))


@functools.lru_cache
def _role_of(name: str) -> str:
    if name in EXACT_ROLES:
        return EXACT_ROLES[name]
    for part, role in ROLES.items():
        if part in name:
            return role
    return "other"


def _layer_of(name: str) -> int | None:
    """Return the layer number at the start of a name, None if it has none."""
    found = _LAYER.match(name)
    return int(found[1]) if found else None


def order_key(name: str) -> tuple[int, bytes]:
    """Return llama.cpp's sort key: tensors outside layers first, then layer by layer."""
    layer = _layer_of(name)
    return (-1 if layer is None else layer), name.encode("utf-8", "surrogateescape")


# Facts of a model.


def facts_of(metadata: Metadata) -> ModelFacts:
    """Return the facts that conditions read, as llama.cpp's loader computes them."""
    architecture = metadata.text("general.architecture")
    blocks = _number(metadata, f"{architecture}.block_count")
    experts = _number(metadata, f"{architecture}.expert_count")
    heads = _number(metadata, f"{architecture}.attention.head_count")
    shared = _number(metadata, f"{architecture}.attention.head_count_kv", heads)
    main = blocks - _number(metadata, f"{architecture}.nextn_predict_layers")
    is_70b = NAMED_70B.get(architecture) == main
    if architecture.startswith("llama"):
        is_70b = is_70b and heads != shared and experts != EIGHT_EXPERTS
    grouped = heads // shared if shared else 0
    layers = _layers(architecture, blocks, metadata)
    return ModelFacts(architecture, layers, grouped, experts, is_70b)


def _layers(architecture: str, blocks: int, metadata: Metadata) -> int:
    """Return the loader's number of layers for `blocks`; some architectures differ."""
    if architecture == "nanbeige":
        return blocks * max(_number(metadata, "nanbeige.num_loops", 1), 1)
    return blocks + (architecture == "graniteswitch")  # one more, for the router


def _number(metadata: Metadata, key: str, default: int = 0) -> int:
    """Return an integer value, or the first element of an array by layer."""
    value = metadata.get(key)
    if isinstance(value, np.ndarray):
        value = value.tolist()[0] if value.size else None
    number = whole_number(value)
    return number if number is not None and number >= 0 else default


# The choice.


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
    roles = {tensor.name: role_of(tensor.name) for tensor in ordered}
    walk = _Walk(facts, recipe, requests, imatrix, Counter(roles.values()))
    return {tensor.name: walk.choice(tensor, roles[tensor.name]) for tensor in ordered}


class _Walk:
    """One pass over a model's tensors, counting those of each role as it meets them."""

    def __init__(
        self,
        facts: ModelFacts,
        recipe: Recipe,
        requests: TypeRequests,
        imatrix: bool,  # noqa: FBT001
        held: Counter[str],
    ) -> None:
        """Start before the first tensor; `held` counts the model's tensors of each role."""
        self.facts = facts
        self.recipe = recipe
        self.base = tensor_type(recipe.base) if recipe.base else None
        self.requests = requests
        self.imatrix = imatrix
        self.floor = FLOORS.get(facts.architecture, ((), ""))
        self.held = held
        self.met: Counter[str] = Counter()

    def choice(self, tensor: Tensor, role: str) -> Choice:
        """Return the choice for the next tensor."""
        wanted, why = self._wanted(tensor, role)
        return _choice(fitting(tensor, wanted), wanted, why)

    def _wanted(self, tensor: Tensor, role: str) -> tuple[TensorType, str]:
        """Return the type that the tensor should have, and why."""
        if tensor.name in self.requests.types and not is_whole(tensor.type):
            return self.requests.types[tensor.name], BY_NAME
        if not self._is_eligible(tensor):
            return tensor.type, "llama-quantize keeps such tensors"
        base = self.base or tensor.type
        mixes = self.base is not None and base.is_quantized
        asked = self._asked(tensor.name, role, mixes)
        if asked is not None:
            return asked
        if mixes and not self.requests.pure:
            return self._by_rules(tensor, role, base)
        return base, "base type of the recipe" if self.base else "the recipe keeps every type"

    def _asked(self, name: str, role: str, mixes: bool) -> tuple[TensorType, str] | None:  # noqa: FBT001
        """Return the type that the user set, and how; None if the recipe decides."""
        requests = self.requests
        named = _found(name, requests.patterns)
        own = named is not None and name == PER_LAYER_EMBEDDING
        if requests.token_embedding_type and role == "embedding" and not own:
            return requests.token_embedding_type, "this type is given for token embeddings"
        if requests.output_tensor_type and role == "output":
            return requests.output_tensor_type, "this type is given for the output"
        # llama-quantize ignores patterns if the recipe is F32, F16 or BF16.
        return named if named is not None and mixes else _found(name, self.recipe.patterns)

    def _is_eligible(self, tensor: Tensor) -> bool:
        if self.requests.leave_output_tensor and tensor.name == "output.weight":
            return False
        return is_eligible(tensor, self.facts.architecture)

    def _by_rules(self, tensor: Tensor, role: str, base: TensorType) -> tuple[TensorType, str]:
        parts, floor = self.floor
        if any(part in tensor.name for part in parts):
            return tensor_type(floor), f"{self.facts.architecture} needs this type here"
        if role == "embedding" and not self.held["output"]:  # tied: it is also the output
            role = "output"
        if role == "output" and self.requests.output_tensor_type:
            return self.requests.output_tensor_type, "this type is given for the output"
        rules = self.recipe.rules.get(role)
        taken = _first_that_holds(rules, self._place(tensor, role, base)) if rules else None
        self.met[role] += 1
        is_lifted = role == "attention_v" and self.facts.is_70b and not self.recipe.by_count
        kind = taken.type if taken else base.name
        why = _rule_text(role, taken) if taken else "base type of the recipe"
        if is_lifted and kind in LIFTED_IN_70B:
            return tensor_type(LIFTED_IN_70B[kind]), f"{why}; more bits in models of 70B"
        return tensor_type(kind), why

    def _place(self, tensor: Tensor, role: str, base: TensorType) -> TensorPlace:
        layer = self.met[role]
        if role in FEED_FORWARD and self.facts.experts > 1 and not self.recipe.by_count:
            named = _layer_of(tensor.name)
            layer = layer if named is None else named
        return TensorPlace(
            self.facts,
            role,
            layer,
            self.held[role] if role == "attention_v" else self.facts.layers,
            self.imatrix,
            fits=tensor.shape[-1] % base.block_size == 0,
            is_stack=len(tensor.shape) >= STACK_AXES and tensor.shape[-STACK_AXES] > 1,
        )


_choice = functools.lru_cache(Choice)  # many tensors share one choice


def require_names(known: Collection[str], requests: TypeRequests, types: Iterable[str]) -> None:
    """Raise MissingTensorError for a name or pattern of the user that no tensor has."""
    lost = [
        pattern.pattern for pattern, _ in requests.patterns if not any(map(pattern.search, known))
    ]
    lost += [name for name in types if name not in known]
    if lost:
        near = difflib.get_close_matches(lost[0], known, 1, cutoff=0.4)
        raise MissingTensorError(
            f"no tensor has the name {lost[0]!r}, for which a type is given",
            remedy=f"Did you mean {near[0]!r}?" if near else "`ggufkit inspect` shows the names",
        )


def unmatched(names: Iterable[str], recipe: Recipe, requests: TypeRequests) -> tuple[str, ...]:
    """Return the patterns without effect: they match no name, or the recipe ignores them."""
    known = list(names)
    is_idle = recipe.base is not None and not tensor_type(recipe.base).is_quantized
    asked = [(pattern, is_idle) for pattern, _ in requests.patterns]
    asked += [(pattern, False) for pattern, _ in recipe.patterns]
    return tuple(
        pattern.pattern for pattern, idle in asked if idle or not any(map(pattern.search, known))
    )


def _found(name: str, patterns: Patterns) -> tuple[TensorType, str] | None:
    for pattern, kind in patterns:
        if pattern.search(name):
            return kind, f"its name matches {pattern.pattern!r}"
    return None


def _first_that_holds(rules: RecipeRules, place: TensorPlace) -> RecipeRule | None:
    return next((rule for rule in rules if all(test(place) for test in rule.when)), None)


@functools.lru_cache
def _rule_text(role: str, rule: RecipeRule) -> str:
    """Return a rule as text: the role, and what its conditions say of themselves."""
    said = ((test.__doc__ or "").rstrip(".") for test in rule.when)
    conditions = "; ".join(text[:1].lower() + text[1:] for text in said)
    head = f"the recipe's rule for {role}"
    return f"{head}: {conditions}" if conditions else head


def fitting(tensor: Tensor, wanted: TensorType) -> TensorType:
    """Return `wanted`, or its fallback if the tensor's rows do not divide into its blocks."""
    if wanted == tensor.type:
        return wanted
    width = tensor.shape[-1] if tensor.shape else 1
    if wanted.block_size and width % wanted.block_size == 0:
        return wanted
    fallback = tensor_type(FALLBACKS.get(wanted.name, LAST_RESORT))
    fits = fallback.block_size and width % fallback.block_size == 0
    return fallback if fits else tensor_type(LAST_RESORT)
