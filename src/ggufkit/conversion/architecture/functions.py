"""The functions of architecture files: a table with one row each, forwards and backwards.

`do` computes a value from arguments. `undo` gets the value and the arguments known so far, and
returns each argument, or OPEN if the value does not determine it.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from ggufkit.checks.tensor_demands import MAX_BLOCKS
from ggufkit.conversion.architecture import pooling, rope
from ggufkit.conversion.architecture.expressions import shortest, whole
from ggufkit.conversion.checkpoint.folder import Checkpoint
from ggufkit.errors import CheckpointError, brief
from ggufkit.format.coerce import plain
from ggufkit.models.model import Model

OPEN: Final = ...  # for an argument that the value does not determine
FULL: Final = "full_attention"
SLIDING: Final = "sliding_attention"
LINEAR: Final = "linear_attention"
_GATING: Final = {"softmax": 1, "sigmoid": 2, "sqrtsoftplus": 4}  # llama.cpp's gating functions
# Nomic's models encode the number of positions that they were trained for.
_TRAINED: Final = {(8192, 2048): 2048, (2048, 2048): 512}

_KINDS_OF_LAYERS: Final = 4  # arguments of `by_layer` before the name of the other kind

# The layers of a text model, not those of an encoder beside it.
_LAYER: Final = re.compile(r"(?:model\.)?(?:language_model\.)?(?:model\.)?layers\.(\d+)\.")

Known = Sequence[Any]


class Function(NamedTuple):
    """One function, its inverse, and what it reads in addition to its arguments."""

    do: Callable[..., Any]
    undo: Callable[[Any, Known], Sequence[Any]] | None = None
    asks: str = ""  # FACTS or MODEL: `do` gets it before the arguments


class Configuration(Protocol):
    """The part of a configuration that functions may use."""

    checkpoint: Checkpoint

    def lookup(self, name: str) -> Any:  # noqa: ANN401 (as JSON is)
        """Return a field, None if it is absent or null."""


FACTS: Final = "facts"  # the configuration and the files of a checkpoint
MODEL: Final = "model"  # the GGUF file, only for export


def bound(
    asks: str = "", about: Configuration | Model | None = None
) -> dict[str, Callable[..., Any]]:
    """Return the functions that only read arguments, and those that also read `about`."""
    return {
        name: functools.partial(each.do, about) if each.asks else each.do
        for name, each in FUNCTIONS.items()
        if each.asks in ("", asks)
    }


# Forwards.


def _as_float(value: Any) -> np.generic:  # noqa: ANN401
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{brief(value)} is not a number")
    with np.errstate(over="ignore"):
        single: np.generic = np.float32(value)
    return single


def _gating(name: Any) -> int:  # noqa: ANN401
    if name not in _GATING:
        raise CheckpointError(
            f"experts are chosen by {brief(name)}, which llama.cpp does not support"
        )
    return _GATING[name]


def _labels(names: Any) -> list[str] | None:  # noqa: ANN401
    """Return a classifier's labels by number, None if the model is not a classifier."""
    if not isinstance(names, Mapping):
        raise CheckpointError(f"id2label is {brief(names)}, not an object")
    by_number = sorted(names.items(), key=lambda item: int(item[0]))
    labels = [str(label) for _, label in by_number]
    dummies = labels[:1] == ["LABEL_0"] and len(labels) == 2  # noqa: PLR2004 (transformers' own)
    return None if dummies or not labels else labels


def _by_layer(
    types: Any,  # noqa: ANN401
    kind: str,
    there: int,
    elsewhere: int,
    other: str = FULL,  # noqa: ARG001 (the kind of the rest, for the way back)
) -> list[int]:
    """Return a list with one number for layers of a kind and another for the rest."""
    if not isinstance(types, list):
        raise CheckpointError(f"layer_types is {brief(types)}, not a list")
    return [there if each == kind else elsewhere for each in types]


def _at_layers(count: int, layers: Sequence[int], there: Any, elsewhere: Any) -> list[Any]:  # noqa: ANN401
    """Return a list with one value for the given layers and another for the rest."""
    return [there if each in layers else elsewhere for each in _layers(count)]


def _periodic(count: int, offset: int, period: int, there: Any, elsewhere: Any) -> list[Any]:  # noqa: ANN401
    """Return a list with one value for every `period`-th layer from `offset` on."""
    is_there = ((each - offset) % period == 0 and each >= offset for each in _layers(count))
    return [there if here else elsewhere for here in is_there]


def _dynamic_base(kind: str, base: float, alpha: float, dimensions: int) -> float | None:
    """Return the base of Hunyuan's dynamic rotary embedding, None for another kind."""
    if kind not in ("dynamic", "xdrope"):
        return None
    return float(base * alpha ** (dimensions / (dimensions - 2)))


def _adjusted_size(size: int, adjust: bool, factor: float, multiple: int) -> int:  # noqa: FBT001
    """Return the feed-forward size as LFM2 computes it: two thirds, scaled, rounded up."""
    if not adjust:
        return size
    return multiple * -(-int(factor * int(2 * size / 3)) // multiple)


def _sparsity_scale(shares: Sequence[float]) -> list[np.generic]:
    """Return the normal distribution's quantile of each share, in F32 as PyTorch's."""
    return [_quantile(share) for share in shares]


def _quantile(share: float) -> np.generic:
    """Return the quantile of a share by way of the inverse error function, rounded at each step."""
    doubled = float(np.float32(2) * np.float32(share) - np.float32(1))
    if abs(doubled) >= 1:
        return _as_float(math.copysign(math.inf, doubled))
    inverse = NormalDist().inv_cdf((doubled + 1) / 2) / math.sqrt(2)
    return _as_float(float(np.float32(inverse)) * float(np.float32(math.sqrt(2))))


def _trained_positions(positions: int, trained: int) -> int:
    if (positions, trained) not in _TRAINED:
        raise CheckpointError(f"n_positions {positions} with max_trained_positions {trained}")
    return _TRAINED[positions, trained]


def _layers(count: int) -> range:
    """Return the numbers of the layers, at most as many as llama.cpp supports."""
    if count > MAX_BLOCKS:
        raise CheckpointError(
            f"there are {count:,} layers, but llama.cpp supports at most {MAX_BLOCKS}"
        )
    return range(count)


def _vocabulary_size(facts: Configuration) -> int | None:
    """Return the number of tokens in the tokenizer; the embedding may have more rows."""
    if facts.checkpoint.path("tokenizer.model"):
        size: int | None = facts.lookup("vocab_size")
        return size
    tokenizer = facts.checkpoint.json("tokenizer.json") or {}
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, Mapping) else None
    return len(vocabulary) + len(tokenizer.get("added_tokens") or ()) if vocabulary else None


def _layers_named(facts: Configuration, prefix: str) -> int | None:
    """Return the number of layers whose tensors begin so, None if there are no tensors yet."""
    names = facts.checkpoint.tensors
    ends = (name.removeprefix("model.").removeprefix(prefix) for name in names if prefix in name)
    found = [int(end.split(".")[0]) + 1 for end in ends if end.split(".")[0].isdecimal()]
    return max(found, default=0) if names else None


def _all_layers(facts: Configuration, layers: int, predicting: int) -> int:
    """Return the number of layers, with as many predicting ones as have tensors."""
    most = layers + predicting
    found = (_LAYER.match(name) for name in facts.checkpoint.tensors)
    numbers = [int(each[1]) + 1 for each in found if each]
    return min(most, max(layers, *numbers)) if numbers else most


def _leading_layers(types: Any, kind: str) -> int:  # noqa: ANN401
    """Return how many of the first layers are of a kind."""
    if not isinstance(types, list):
        raise CheckpointError(f"{brief(types)} is not a list of layers")
    return next((n for n, each in enumerate(types) if each != kind), len(types))


def _are_of(flags: Any, known: Known) -> Sequence[Any]:  # noqa: ANN401
    """Return the kinds of which the flags tell one."""
    return ([known[1] if flag else known[2] for flag in flags],) if isinstance(flags, list) else ()


def _linear(types: Any, layers: int, count: int) -> list[bool]:  # noqa: ANN401
    """Return which layers have linear attention; layers after those of the list have not."""
    if not isinstance(types, list) or len(types) != layers:
        raise CheckpointError(f"layer_types is {brief(types)}, not a list of {layers} layers")
    return [types[n] == LINEAR if n < layers else False for n in _layers(count)]


def _has(model: Model, name: str) -> bool:
    """Whether a tensor has this name, or a name that ends with it."""
    return any(each == name or each.endswith(f".{name}") for each in model.tensors)


def _is_key(model: Model, key: str, value: Any) -> bool:  # noqa: ANN401
    """Whether a key of the architecture has a value."""
    held = model.metadata.get(f"{model.metadata.get('general.architecture')}.{key}")
    return held is not None and bool(plain(held) == value)


def _layers_with(model: Model, suffix: str) -> list[int]:
    """Return the layers that have a tensor of this name."""
    found = (re.fullmatch(rf"blk\.(\d+)\.{re.escape(suffix)}", name) for name in model.tensors)
    return sorted(int(each[1]) for each in found if each)


def _holds(model: Model, key: str) -> bool:
    """Whether the metadata has a key of the architecture."""
    return f"{model.metadata.get('general.architecture')}.{key}" in model.metadata


def _length(model: Model, name: str, axis: int) -> int | None:
    return model.tensors[name].shape[axis] if name in model.tensors else None


def _named(model: Model, word: str) -> bool:
    """Whether the name of the model, or of a base model, contains a word."""
    keys = ("general.name", "general.basename", "general.base_model.0.name")
    return any(word in str(model.metadata.get(key, "")).lower() for key in keys)


# Backwards.


def _last(value: Any, known: Known) -> Sequence[Any]:  # noqa: ANN401
    """Undo a function that returns its last argument unchanged."""
    return *(OPEN for _ in known[1:]), value


def _equal_to(value: Any, known: Known) -> Sequence[Any]:  # noqa: ANN401
    return (known[1], OPEN) if value else ()


def _types_by_layer(numbers: Any, known: Known) -> Sequence[Any]:  # noqa: ANN401
    """Return the types of layers, and the one of the two numbers that is unknown."""
    if not isinstance(numbers, list):
        return ()
    kind, other = known[1], known[4] if len(known) > _KINDS_OF_LAYERS else FULL
    held = known[2] if known[2] is not None else known[3]
    found = next((n for n in numbers if n != held), OPEN)
    first = held if known[2] is not None else found
    types = [kind if n == first else other for n in numbers]
    return types, OPEN, *((OPEN, found) if known[2] is not None else (found, OPEN))


def _where(numbers: Any, known: Known) -> Sequence[Any]:  # noqa: ANN401
    """Return the layers whose number is not the known one of the rest, and that number."""
    if not isinstance(numbers, list):
        return ()
    found = [at for at, n in enumerate(numbers) if n != known[3]]
    return OPEN, found, numbers[found[0]] if found else OPEN, OPEN


def _offset_and_period(numbers: Any, known: Known) -> Sequence[Any]:  # noqa: ANN401
    """Return the first layer whose number is not that of the rest, and the step to the next."""
    if not isinstance(numbers, list):
        return ()
    found = [at for at, n in enumerate(numbers) if n != known[4]]
    if not found:
        return ()
    period = found[1] - found[0] if len(found) > 1 else len(numbers)
    return OPEN, found[0], period, numbers[found[0]], OPEN


def _linear_types(pattern: Any, known: Known) -> Sequence[Any]:  # noqa: ANN401
    if not isinstance(pattern, list) or not isinstance(known[1], int):
        return ()
    return ([LINEAR if each else FULL for each in pattern[: known[1]]],)


def _sliding_types(pattern: Any, _: Known) -> Sequence[Any]:  # noqa: ANN401
    return ([SLIDING if each else FULL for each in pattern],) if isinstance(pattern, list) else ()


def _key_of(table: Mapping[Any, Any], value: Any) -> Any:  # noqa: ANN401
    """Return the key of a value in a table, OPEN if missing."""
    return next((key for key, each in table.items() if each == value), OPEN)


def _shares(scales: Any, _: Known) -> Sequence[Any]:  # noqa: ANN401
    """Return the shortest shares that have these quantiles."""
    return ([_share(scale) for scale in scales],) if isinstance(scales, list) else ()


def _share(scale: float) -> float:
    share = NormalDist().cdf(scale)
    rounded = (round(share, digits) for digits in range(1, 9))
    return next((each for each in rounded if _quantile(each) == np.float32(scale)), share)


def _positions_of(value: Any, _: Known) -> Sequence[Any]:  # noqa: ANN401
    found = _key_of(_TRAINED, value)
    return () if found is OPEN else found


# The table.


FUNCTIONS: Final[dict[str, Function]] = {
    "adjusted_size": Function(_adjusted_size, lambda size, _: (size, False)),
    "all_layers": Function(_all_layers, asks=FACTS),
    "alibi_bias": Function(
        lambda alibi, most: most if alibi else 0.0,
        lambda most, _: (most > 0, whole(shortest(most) or 8)),
    ),
    "are": Function(lambda kinds, kind, _: [each == kind for each in kinds], _are_of),
    "at_layers": Function(_at_layers, _where),
    "bool": Function(bool, _last),
    "by_layer": Function(_by_layer, _types_by_layer),
    "ceil_div": Function(lambda number, by: -(-number // by)),
    "each": Function(lambda layers, value: [value for _ in _layers(layers)]),
    "count": Function(len, lambda number, _: (list(range(number)),)),
    "equals": Function(lambda value, other: [False, True][value == other], _equal_to),
    "float": Function(_as_float, lambda value, _: (shortest(value),)),
    "gating": Function(_gating, lambda number, _: (_key_of(_GATING, number),)),
    "holds": Function(_holds, asks=MODEL),
    "has": Function(_has, asks=MODEL),
    "hunyuan_base": Function(_dynamic_base),
    "int": Function(int, _last),
    "is_key": Function(_is_key, asks=MODEL),
    "item": Function(lambda items, at: items[at] if at < len(items) else None),
    "labels": Function(_labels, lambda names, _: ({str(n): x for n, x in enumerate(names)},)),
    "lacks": Function(lambda model, name: not _has(model, name), asks=MODEL),
    "layers_named": Function(_layers_named, asks=FACTS),
    "leading_layers": Function(_leading_layers),
    "length": Function(_length, asks=MODEL),
    "linear": Function(_linear, _linear_types),
    "layers_with": Function(_layers_with, asks=MODEL),
    "long_rope_attention": Function(rope.long_rope_attention),
    "max": Function(max),
    "min": Function(min),
    "named": Function(_named, asks=MODEL),
    "nonzero": Function(lambda number: number or None, _last),
    "only_false": Function(lambda value: None if value else False, _last),
    "only_true": Function(lambda value: value or None, _last),
    "pattern": Function(lambda layers, period: [(i + 1) % period != 0 for i in _layers(layers)]),
    "periodic": Function(_periodic, _offset_and_period),
    "pooling": Function(lambda facts: pooling.pooling_type(facts.checkpoint), asks=FACTS),
    "pooling_mode": Function(
        pooling.classifier_pooling, lambda number, _: (pooling.named(number) or OPEN,)
    ),
    "sliding": Function(lambda types: [kind == SLIDING for kind in types], _sliding_types),
    "sparsity_scale": Function(_sparsity_scale, _shares),
    "tokenizer": Function(
        lambda model: str(model.metadata.get("tokenizer.ggml.model", "none")), asks=MODEL
    ),
    "trained_positions": Function(_trained_positions, _positions_of),
    "uniform": Function(lambda items, item: all(each == item for each in items)),
    "unless": Function(lambda value, other, then: None if value == other else then, _last),
    "vocabulary_size": Function(_vocabulary_size, asks=FACTS),
    "with_": Function(lambda _, value: value, _last),
}
