"""The functions of architecture files: a table with one row each, forwards and backwards.

`do` computes a value from arguments. `undo` gets the value and the arguments known so far, and
returns each argument, or OPEN if the value does not determine it.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from ggufkit.conversion.architecture import layer_lists, pooling, rope, sparsity
from ggufkit.conversion.architecture.expressions import shortest, whole
from ggufkit.conversion.architecture.layer_lists import OPEN, SLIDING, Known, layers
from ggufkit.conversion.checkpoint.folder import Checkpoint
from ggufkit.conversion.tokenizer.special_tokens import default_template
from ggufkit.errors import CheckpointError, brief
from ggufkit.format.coerce import plain
from ggufkit.models.model import Model

_GATING: Final = {"softmax": 1, "sigmoid": 2, "sqrtsoftplus": 4}  # llama.cpp's gating functions
_SLOPES: Final = "transformer.relative_pe.slopes"  # of Jais, one for each head
# Nomic's models encode the number of positions that they were trained for.
_TRAINED: Final = {(8192, 2048): 2048, (2048, 2048): 512}


# The layers of a text model, not those of an encoder beside it.
_LAYER: Final = re.compile(r"(?:model\.)?(?:language_model\.)?(?:model\.)?layers\.(\d+)\.")


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


def _trained_positions(positions: int, trained: int) -> int:
    if (positions, trained) not in _TRAINED:
        raise CheckpointError(f"n_positions {positions} with max_trained_positions {trained}")
    return _TRAINED[positions, trained]


def _generation(facts: Configuration, field: str) -> Any:  # noqa: ANN401 (as JSON is)
    """Return a field of generation_config.json, None if it is absent."""
    return (facts.checkpoint.json("generation_config.json") or {}).get(field)


def _token_id(facts: Configuration, text: str) -> int | None:
    """Return the id of an added token, None if the tokenizer does not have it."""
    known = (facts.checkpoint.json("tokenizer_config.json") or {}).get("added_tokens_decoder")
    entries = list(known.items()) if isinstance(known, Mapping) else []
    added = (facts.checkpoint.json("tokenizer.json") or {}).get("added_tokens")
    for each in added if isinstance(added, list) else ():
        entries.append((each.get("id") if isinstance(each, Mapping) else None, each))
    named = (number for number, each in entries
             if isinstance(each, Mapping) and each.get("content") == text)  # fmt: skip
    return next((int(number) for number in named if number is not None), None)


def _numbers(facts: Configuration, template: str) -> list[float] | None:
    """Return the numbers of tensors with one element, one for each layer."""
    tensors = facts.checkpoint.tensors
    names = [template.replace("{i}", str(i)) for i in layers(facts.lookup("block_count") or 0)]
    held = [tensors[name] for name in names if name in tensors and tensors[name].elements == 1]
    return [float(each.numpy().reshape(-1)[0]) for each in held] or None


def _bias_of_slopes(facts: Configuration, heads: int) -> int | None:
    """Return the largest bias of alibi from the slope of Jais's first head, None without slopes."""
    slopes = facts.checkpoint.tensors.get(_SLOPES)
    if slopes is None or heads < 1:
        return None
    first = float(slopes.numpy().reshape(-1)[0])
    return -round(math.log2(first) * float(2 ** math.floor(math.log2(heads))))


def _vocabulary_size(facts: Configuration) -> int | None:
    """Return the number of tokens in the tokenizer; the embedding may have more rows."""
    if facts.checkpoint.path("tokenizer.model"):
        size: int | None = facts.lookup("vocab_size")
        return size
    tokenizer = facts.checkpoint.json("tokenizer.json") or {}
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, Mapping) else None
    return len(vocabulary) + len(tokenizer.get("added_tokens") or ()) if vocabulary else None


def _zero_rows(facts: Configuration, name: str) -> list[int] | None:
    """Return the ids beyond the tokenizer's own vocabulary whose embeddings are zero."""
    model = (facts.checkpoint.json("tokenizer.json") or {}).get("model")
    known = model.get("vocab") if isinstance(model, Mapping) else None
    embeddings = facts.checkpoint.tensors.get(name)
    if not known or embeddings is None:
        return None
    beyond = embeddings[len(known) :]
    found = np.flatnonzero(~np.any(beyond.numpy(), axis=1)) if beyond.elements else ()
    return [len(known) + int(each) for each in found]


def _layers_named(facts: Configuration, prefix: str) -> int | None:
    """Return the number of layers whose tensors begin with `prefix`; None without any tensors."""
    names = facts.checkpoint.tensors
    ends = (name.removeprefix("model.").removeprefix(prefix) for name in names if prefix in name)
    found = [int(end.split(".")[0]) + 1 for end in ends if end.split(".")[0].isdecimal()]
    return max(found, default=0) if names else None


def _has_tensor(facts: Configuration, text: str) -> bool:
    """Whether the name of a tensor of the checkpoint contains a text."""
    return any(text in name for name in facts.checkpoint.tensors)


def _checkpoint_lengths(facts: Configuration, pattern: str, axis: int) -> list[int] | None:
    """Return an axis of the checkpoint's tensors of a pattern, by number, None without any."""
    spelled = re.escape(pattern).replace(r"\{i\}", r"(\d+)").replace(r"\*", ".*")
    found = [(re.fullmatch(spelled, name), each) for name, each in facts.checkpoint.tensors.items()]
    lengths = {
        int(match[1]) if match.re.groups else 0: each.shape[axis]
        for match, each in found
        if match and axis < len(each.shape)
    }
    return [lengths[number] for number in sorted(lengths)] or None


def _lacks_file(facts: Configuration, name: str) -> bool:
    """Return True; CheckpointError if the checkpoint has a file that would change the result."""
    if facts.checkpoint.path(name) is not None:
        raise CheckpointError(f"{name} is in the folder, and ggufkit cannot apply it")
    return True


def _chat_template(facts: Configuration) -> str | None:
    """Return the chat template of the checkpoint or of its target."""
    return default_template(facts.checkpoint.target or facts.checkpoint)


def _all_layers(facts: Configuration, layers: int, predicting: int) -> int:
    """Return the number of layers, with as many predicting ones as have tensors."""
    most = layers + predicting
    found = (_LAYER.match(name) for name in facts.checkpoint.tensors)
    numbers = [int(each[1]) + 1 for each in found if each]
    return min(most, max(layers, *numbers)) if numbers else most


def _are_of(flags: Any, known: Known) -> Sequence[Any]:  # noqa: ANN401
    """Return the kinds of which the flags tell one."""
    return ([known[1] if flag else known[2] for flag in flags],) if isinstance(flags, list) else ()


def _has(model: Model, name: str) -> bool:
    """Whether a tensor has this name, or a name that ends with it."""
    return any(each == name or each.endswith(f".{name}") for each in model.tensors)


def _is_key(model: Model, key: str, value: Any) -> bool:  # noqa: ANN401
    """Whether a key of the architecture has a value."""
    held = model.metadata.get(f"{model.metadata.get('general.architecture')}.{key}")
    return held is not None and bool(plain(held) == value)


def _holds(model: Model, key: str) -> bool:
    """Whether the metadata has a key of the architecture."""
    return f"{model.metadata.get('general.architecture')}.{key}" in model.metadata


def _is_list(model: Model, key: str) -> bool:
    """Whether a key of the architecture has a list of values."""
    held = model.metadata.get(f"{model.metadata.get('general.architecture')}.{key}")
    return held is not None and isinstance(plain(held), list)


def _length(model: Model, name: str, axis: int) -> int | None:
    return model.tensors[name].shape[axis] if name in model.tensors else None


def _stored_as(model: Model, name: str, kind: str) -> bool:
    """Whether a tensor is stored in a type."""
    return name in model.tensors and model.tensors[name].type.name == kind


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


def _key_of(table: Mapping[Any, Any], value: Any) -> Any:  # noqa: ANN401
    """Return the key of a value in a table, OPEN if missing."""
    return next((key for key, each in table.items() if each == value), OPEN)


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
    "at_layers": Function(layer_lists.at_layers, layer_lists.where),
    "bias_of_slopes": Function(_bias_of_slopes, asks=FACTS),
    "bool": Function(bool, _last),
    "by_layer": Function(layer_lists.by_layer, layer_lists.types_by_layer),
    "by_kind": Function(layer_lists.by_kind, layer_lists.numbers_by_kind),
    "checkpoint_lengths": Function(_checkpoint_lengths, asks=FACTS),
    "ceil_div": Function(lambda number, by: -(-number // by)),
    "chat_template": Function(_chat_template, asks=FACTS),
    "each": Function(
        lambda count, value: [value for _ in layers(count)],
        lambda values, _: (len(values), shortest(values[0])),
    ),
    "count": Function(len, lambda number, _: (list(range(number)),)),
    "divisible_sizes": Function(layer_lists.divisible_sizes, layer_lists.multipliers),
    "halved": Function(lambda layer, every: 0.5 ** (layer // every) if every > 0 else 1.0),
    "has_tensor": Function(_has_tensor, asks=FACTS),
    "lacks_file": Function(_lacks_file, asks=FACTS),
    "equals": Function(lambda value, other: [False, True][value == other], _equal_to),
    "extended": Function(layer_lists.extended, lambda values, _: (values,)),
    "flat": Function(lambda lists: [item for each in lists for item in each]),
    "folder_name": Function(lambda facts: facts.checkpoint.folder.absolute().name, asks=FACTS),
    "floats": Function(
        lambda numbers: [0.0 if n is None else float(n) for n in numbers],
        lambda numbers, _: ([shortest(n) for n in numbers],),
    ),
    "field": Function(lambda whole, name: whole.get(name)),
    "float": Function(_as_float, lambda value, _: (shortest(value),)),
    "gating": Function(_gating, lambda number, _: (_key_of(_GATING, number),)),
    "generation": Function(_generation, asks=FACTS),
    "holds": Function(_holds, asks=MODEL),
    "has": Function(_has, asks=MODEL),
    "hybrid_pattern": Function(layer_lists.hybrid_pattern),
    "hunyuan_base": Function(_dynamic_base),
    "int": Function(int, _last),
    "is_key": Function(_is_key, asks=MODEL),
    "is_list": Function(_is_list, asks=MODEL),
    "joined": Function(lambda numbers: ",".join(map(str, numbers))),
    "labels": Function(_labels, lambda names, _: ({str(n): x for n, x in enumerate(names)},)),
    "lacks": Function(lambda model, name: not _has(model, name), asks=MODEL),
    "layers_named": Function(_layers_named, asks=FACTS),
    "last_of_groups": Function(layer_lists.last_of_groups, layer_lists.group_size),
    "leading_layers": Function(layer_lists.leading_layers),
    "length": Function(_length, asks=MODEL),
    "layer_kinds": Function(layer_lists.layer_kinds),
    "layers_with": Function(layer_lists.layers_with, asks=MODEL),
    "linear": Function(layer_lists.linear, layer_lists.linear_types),
    "low_rank": Function(
        lambda size, power, factor: max(1, round(size**power * factor / 32)) * 32  # RWKV 7's rule
    ),
    "long_rope_attention": Function(rope.long_rope_attention),
    "max": Function(max),
    "min": Function(min),
    "named": Function(_named, asks=MODEL),
    "numbers": Function(_numbers, asks=FACTS),
    "numbers_in": Function(lambda text: [int(each) for each in re.findall(r"\d+", text)]),
    "of_full_layers": Function(layer_lists.of_full_layers),
    "order": Function(lambda items: sorted(range(len(items)), key=items.__getitem__)),
    "nonzero": Function(lambda number: number or None, _last),
    "only_false": Function(lambda value: None if value else False, _last),
    "only_true": Function(lambda value: value or None, _last),
    "pattern": Function(lambda count, period: [(i + 1) % period != 0 for i in layers(count)]),
    "period": Function(layer_lists.period),
    "periodic": Function(layer_lists.periodic, layer_lists.offset_and_period),
    "pooling": Function(lambda facts: pooling.pooling_type(facts.checkpoint), asks=FACTS),
    "pooling_mode": Function(
        pooling.classifier_pooling, lambda number, _: (pooling.named(number) or OPEN,)
    ),
    "single": Function(lambda value: value[0] if isinstance(value, list) else value),
    "shifted": Function(
        lambda numbers, by: [n + by for n in numbers],
        lambda numbers, known: ([n - known[1] for n in numbers],),
    ),
    "sliding": Function(
        lambda types: [kind == SLIDING for kind in types], layer_lists.sliding_types
    ),
    "stored_as": Function(_stored_as, asks=MODEL),
    "sparsity_scale": Function(sparsity.quantiles, sparsity.shares),
    "text_of": Function(lambda facts, name: facts.checkpoint.text(name), asks=FACTS),
    "token_id": Function(_token_id, asks=FACTS),
    "tokenizer": Function(
        lambda model: str(model.metadata.get("tokenizer.ggml.model", "none")), asks=MODEL
    ),
    "trained_positions": Function(_trained_positions, _positions_of),
    "uniform": Function(lambda items, item: all(each == item for each in items)),
    "unless": Function(lambda value, other, then: None if value == other else then, _last),
    "vocabulary_size": Function(_vocabulary_size, asks=FACTS),
    "widened": Function(layer_lists.widened, layer_lists.narrowed),
    "with_": Function(lambda _, value: value, _last),
    "zero_rows": Function(_zero_rows, asks=FACTS),
}
