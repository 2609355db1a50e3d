"""The functions of architecture files: a table with one row each, forwards and backwards.

`do` computes a value from arguments. `undo` gets the value, and the arguments that are known so far
(None for others). It returns each argument, or OPEN if the value does not determine it.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, Final, NamedTuple

import numpy as np

from ggufkit.conversion.architecture import layer_lists, of_checkpoint, pooling, rope
from ggufkit.conversion.architecture.expressions import shortest, whole
from ggufkit.conversion.architecture.layer_lists import OPEN, SLIDING, Arguments, layers
from ggufkit.conversion.tokenizer.special_tokens import default_template
from ggufkit.errors import CheckpointError, brief
from ggufkit.format.coerce import plain
from ggufkit.models.model import Model
from ggufkit.validation.typed_values import integer

_GATING: Final = {"softmax": 1, "sigmoid": 2, "sqrtsoftplus": 4}  # llama.cpp's gating functions
# Nomic's models encode the number of positions that they were trained for.
_TRAINED: Final = {(8192, 2048): 2048, (2048, 2048): 512}


class Function(NamedTuple):
    """One function, its inverse, and what it reads in addition to its arguments."""

    do: Callable[..., Any]
    undo: Callable[[Any, Arguments], Sequence[Any]] | None = None
    needs: str = ""  # FACTS or MODEL: `do` gets it before the arguments


FACTS: Final = "facts"  # the configuration and the files of a checkpoint
MAX_IDS: Final = 1 << 16  # of codebooks and labels, which have thousands
MODEL: Final = "model"  # the GGUF file, only for export


def bound(
    needs: str = "", about: of_checkpoint.Configuration | Model | None = None
) -> dict[str, Callable[..., Any]]:
    """Return the functions that read only arguments, and functions that also read `about`."""
    return {
        name: functools.partial(function.do, about) if function.needs else function.do
        for name, function in FUNCTIONS.items()
        if function.needs in ("", needs)
    }


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


def _ids_named(fields: Mapping[str, Any], count: int, word: str) -> list[str]:
    """Return the names of so many ids; fields whose names end with _id name some of them."""
    integer(count, "a number of ids", most=MAX_IDS)
    names = [f"<|{word}_{number}|>" for number in range(count)]
    for key, labels in fields.items():
        stem = key.removesuffix("_id")
        ids = {f"{stem}_{label}": number for label, number in labels.items()} if isinstance(
            labels, Mapping
        ) else {stem: labels}  # fmt: skip
        for name, number in ids.items() if stem != key else ():
            if isinstance(number, int):
                names[number] = f"<|{name}|>"
    return names


def _ids_but(start: int, stop: int, removed: int) -> list[int]:
    integer(stop - start, "a number of ids", most=MAX_IDS)
    return [number for number in range(start, stop) if number != removed]


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


def _has(model: Model, name: str) -> bool:
    return any(tensor == name or tensor.endswith(f".{name}") for tensor in model.tensors)


def _own(model: Model, key: str) -> Any:  # noqa: ANN401
    value = model.metadata.get(f"{model.architecture}.{key}")
    return None if value is None else plain(value)


def _first_number(model: Model, name: str) -> Any:  # noqa: ANN401
    if name not in model.tensors:
        return None
    return shortest(float(model.tensors[name].numpy().reshape(-1)[0]))


def _has_name_with(model: Model, word: str) -> bool:
    keys = ("general.name", "general.basename", "general.base_model.0.name")
    return any(word in str(model.metadata.get(key, "")).lower() for key in keys)


def _last(value: Any, args: Arguments) -> Sequence[Any]:  # noqa: ANN401
    """Undo a function that returns its last argument unchanged."""
    return *(OPEN for _ in args[1:]), value


def _key_of(table: Mapping[Any, Any], value: Any) -> Any:  # noqa: ANN401
    return next((key for key, entry in table.items() if entry == value), OPEN)


def _positions_of(value: Any, _: Arguments) -> Sequence[Any]:  # noqa: ANN401
    key = _key_of(_TRAINED, value)
    return () if key is OPEN else key


# How sparse Gemma 3n's activations are: shares of zeros, and the limits that give them.
def _quantile(share: float) -> np.float32:
    """Return the normal distribution's quantile of a share, rounded at each step as PyTorch does.

    PyTorch computes it by way of the inverse error function.
    """
    doubled = float(np.float32(2) * np.float32(share) - np.float32(1))
    quantile = math.copysign(math.inf, doubled)
    if abs(doubled) < 1:
        inverse = NormalDist().inv_cdf((doubled + 1) / 2) / math.sqrt(2)
        quantile = float(np.float32(inverse)) * float(np.float32(math.sqrt(2)))
    single: np.float32 = np.float32(quantile)
    return single


def _share(scale: float) -> float:
    share = NormalDist().cdf(scale)
    rounded = (round(share, digits) for digits in range(1, 9))
    return next((r for r in rounded if _quantile(r) == np.float32(scale)), share)


FUNCTIONS: Final[dict[str, Function]] = {
    "adjusted_size": Function(_adjusted_size, lambda size, _: (size, False)),
    "all_layers": Function(of_checkpoint.all_layers, needs=FACTS),
    "alibi_bias": Function(
        lambda alibi, most: most if alibi else 0.0,
        lambda most, _: (most > 0, whole(shortest(most) or 8)),
    ),
    "are": Function(
        lambda kinds, kind, _: [item == kind for item in kinds],
        lambda flags, args: (
            ([args[1] if flag else args[2] for flag in flags],) if isinstance(flags, list) else ()
        ),
    ),
    "at_layers": Function(layer_lists.at_layers, layer_lists.where),
    "bias_of_slopes": Function(of_checkpoint.bias_of_slopes, needs=FACTS),
    "bool": Function(bool, _last),
    "by_layer": Function(layer_lists.by_layer, layer_lists.types_by_layer),
    "by_kind": Function(layer_lists.by_kind, layer_lists.numbers_by_kind),
    "called": Function(lambda folder, card, name: name in folder or f"# {name}" in card or None),
    "checkpoint_lengths": Function(of_checkpoint.lengths, needs=FACTS),
    "ceil_div": Function(lambda number, by: -(-number // by)),
    "chat_template": Function(  # a draft model takes its target's
        lambda facts: default_template(facts.checkpoint.target or facts.checkpoint), needs=FACTS
    ),
    "each": Function(
        lambda count, value: [value for _ in layers(count)],
        lambda values, _: (len(values), shortest(values[0])),
    ),
    "count": Function(len, lambda number, _: (list(range(number)),)),
    "divisible_sizes": Function(layer_lists.divisible_sizes, layer_lists.multipliers),
    "halved": Function(lambda layer, every: 0.5 ** (layer // every) if every > 0 else 1.0),
    "has_tensor": Function(
        lambda facts, text: any(text in name for name in facts.checkpoint.tensors), needs=FACTS
    ),
    "equals": Function(
        lambda value, other: bool(value == other),
        lambda value, args: (args[1], OPEN) if value else (),
    ),
    "extended": Function(layer_lists.extended, lambda values, _: (values,)),
    "flat": Function(lambda lists: [item for inner in lists for item in inner]),
    "folder_name": Function(lambda facts: facts.checkpoint.folder.absolute().name, needs=FACTS),
    "first_number": Function(_first_number, needs=MODEL),
    "floats": Function(
        lambda numbers: [0.0 if n is None else float(n) for n in numbers],
        lambda numbers, _: ([shortest(n) for n in numbers],),
    ),
    "field": Function(lambda whole, name: whole.get(name)),
    "float": Function(_as_float, lambda value, _: (shortest(value),)),
    "gating": Function(_gating, lambda number, _: (_key_of(_GATING, number),)),
    "generation": Function(
        lambda facts, name: (facts.checkpoint.json("generation_config.json") or {}).get(name),
        needs=FACTS,
    ),
    "holds": Function(lambda model, key: _own(model, key) is not None, needs=MODEL),
    "has": Function(_has, needs=MODEL),
    "hybrid_pattern": Function(layer_lists.hybrid_pattern),
    "hunyuan_base": Function(_dynamic_base),
    "ids_but": Function(_ids_but),
    "ids_named": Function(_ids_named),
    "index": Function(lambda items, item: items.index(item) if item in items else None),
    "int": Function(int, _last),
    "is_key": Function(lambda model, key, value: _own(model, key) == value, needs=MODEL),
    "integers": Function(of_checkpoint.integers, needs=FACTS),
    "is_list": Function(lambda model, key: isinstance(_own(model, key), list), needs=MODEL),
    "joined": Function(lambda numbers: ",".join(map(str, numbers))),
    "labels": Function(_labels, lambda names, _: ({str(n): x for n, x in enumerate(names)},)),
    "lacks": Function(lambda model, name: not _has(model, name), needs=MODEL),
    "last": Function(lambda value: value[-1] if isinstance(value, list) else value, _last),
    "layers_named": Function(of_checkpoint.layers_named, needs=FACTS),
    "last_of_groups": Function(layer_lists.last_of_groups, layer_lists.group_size),
    "leading_layers": Function(layer_lists.leading_layers),
    "length": Function(
        lambda model, name, axis: (
            model.tensors[name].shape[axis] if name in model.tensors else None
        ),
        needs=MODEL,
    ),
    "layer_kinds": Function(layer_lists.layer_kinds),
    "layers_with": Function(layer_lists.layers_with, needs=MODEL),
    "linear": Function(layer_lists.linear, layer_lists.linear_types),
    "low_rank": Function(
        lambda size, power, factor: max(1, round(size**power * factor / 32)) * 32  # RWKV 7's rule
    ),
    "long_rope_attention": Function(rope.long_rope_attention),
    "max": Function(max),
    "min": Function(min),
    "named": Function(_has_name_with, needs=MODEL),
    "numbers": Function(of_checkpoint.numbers, needs=FACTS),
    "numbers_in": Function(lambda text: [int(digits) for digits in re.findall(r"\d+", text)]),
    "of_full_layers": Function(layer_lists.of_full_layers),
    "order": Function(lambda items: sorted(range(len(items)), key=items.__getitem__)),
    "nonzero": Function(lambda number: number or None, _last),
    "only_false": Function(lambda value: None if value else False, _last),
    "only_true": Function(lambda value: value or None, _last),
    "pattern": Function(lambda count, period: [(i + 1) % period != 0 for i in layers(count)]),
    "period": Function(layer_lists.period),
    "periodic": Function(layer_lists.periodic, layer_lists.offset_and_period),
    "pooling": Function(lambda facts: pooling.pooling_type(facts.checkpoint), needs=FACTS),
    "pooling_mode": Function(
        pooling.classifier_pooling, lambda number, _: (pooling.name_of_pooling(number) or OPEN,)
    ),
    "single": Function(lambda value: value[0] if isinstance(value, list) else value),
    "shifted": Function(
        lambda numbers, by: [n + by for n in numbers],
        lambda numbers, args: ([n - args[1] for n in numbers],),
    ),
    "sliding": Function(
        lambda types: [kind == SLIDING for kind in types], layer_lists.sliding_types
    ),
    "stored_as": Function(
        lambda model, name, kind: name in model.tensors and model.tensors[name].type.name == kind,
        needs=MODEL,
    ),
    "sparsity_scale": Function(
        lambda shares: [_quantile(share) for share in shares],
        lambda scales, _: ([_share(s) for s in scales],) if isinstance(scales, list) else (),
    ),
    "tensor": Function(of_checkpoint.tensor, needs=FACTS),
    "text_of": Function(lambda facts, name: facts.checkpoint.text(name), needs=FACTS),
    "token_id": Function(of_checkpoint.token_id, needs=FACTS),
    "tokenizer": Function(
        lambda model: str(model.metadata.get("tokenizer.ggml.model", "none")), needs=MODEL
    ),
    "trained_positions": Function(_trained_positions, _positions_of),
    "uniform": Function(lambda items, item: all(other == item for other in items)),
    "unless": Function(lambda value, other, then: None if value == other else then, _last),
    "vocabulary_size": Function(of_checkpoint.vocabulary_size, needs=FACTS),
    "widened": Function(layer_lists.widened, layer_lists.narrowed),
    "with_": Function(lambda _, value: value, _last),
    "word_id": Function(of_checkpoint.word_id, needs=FACTS),
    "zero_rows": Function(of_checkpoint.zero_rows, needs=FACTS),
}
