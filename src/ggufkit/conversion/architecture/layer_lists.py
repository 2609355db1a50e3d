"""Functions of architecture files about layers: lists with one value for each layer, and back.

`do` and `undo` are as in functions.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ggufkit.checks.tensor_requirements import MAX_BLOCKS
from ggufkit.errors import CheckpointError, brief
from ggufkit.models.model import Model

OPEN: Final[Any] = ...  # for an argument that the value does not determine
FULL: Final = "full_attention"
SLIDING: Final = "sliding_attention"
LINEAR: Final = "linear_attention"
_LEAST: Final = 0.9  # a size that is rounded down keeps this share
_KINDS_OF_LAYERS: Final = 4  # arguments of `by_layer` before the name of the other kind
# The kinds of layers in Nemotron-H's configurations, as letters and as words.
_MAMBA, _ATTENTION, _FEED_FORWARD = "mamba", "attention", "mlp"
_LETTERS: Final = {"M": _MAMBA, "*": _ATTENTION, "-": _FEED_FORWARD, "E": _FEED_FORWARD}
_WORDS: Final = {
    "linear_attention": _MAMBA,
    "full_attention": _ATTENTION,
    "moe": _FEED_FORWARD,
    **{kind: kind for kind in (_MAMBA, _ATTENTION, _FEED_FORWARD)},
}

Arguments = Sequence[Any]
Solved = Sequence[Any]


def layers(count: int) -> range:
    """Return the numbers of the layers, at most as many as llama.cpp supports."""
    if count > MAX_BLOCKS:
        raise CheckpointError(
            f"there are {count:,} layers, but llama.cpp supports at most {MAX_BLOCKS}"
        )
    return range(count)


def by_layer(
    types: Any,  # noqa: ANN401
    kind: str,
    there: int,
    otherwise: int,
    other: str = FULL,  # noqa: ARG001 (the kind of the rest, for the way back)
) -> list[int]:
    """Return a list with one number for layers of a kind and another for the rest."""
    if not isinstance(types, list):
        raise CheckpointError(f"layer_types is {brief(types)}, not a list")
    return [there if type_ == kind else otherwise for type_ in types]


def types_by_layer(numbers: Any, args: Arguments) -> Solved:  # noqa: ANN401
    """Return the types of layers, and the one of the two numbers that is unknown."""
    if not isinstance(numbers, list):
        return ()
    kind, other = args[1], args[4] if len(args) > _KINDS_OF_LAYERS else FULL
    if other is None:  # a default that export computes later
        return ()
    number = args[2] if args[2] is not None else args[3]
    otherwise = next((n for n in numbers if n != number), OPEN)
    first = number if args[2] is not None else otherwise
    types = [kind if n == first else other for n in numbers]
    return types, OPEN, *((OPEN, otherwise) if args[2] is not None else (otherwise, OPEN))


def by_kind(types: Sequence[str], kind: str, there: int, otherwise: int) -> int | list[int]:
    """Return a number for each layer by its kind, or one number if the other kind has none."""
    return there if not otherwise else [there if type_ == kind else otherwise for type_ in types]


def numbers_by_kind(numbers: Any, args: Arguments) -> Solved:  # noqa: ANN401
    """Return the numbers of the two kinds, once the types of the layers are known."""
    if not isinstance(numbers, list):
        return OPEN, OPEN, numbers, 0
    types, kind = args[0], args[1]
    if types is None:
        return ()
    there = next((n for n, type_ in zip(numbers, types, strict=False) if type_ == kind), OPEN)
    otherwise = next((n for n, type_ in zip(numbers, types, strict=False) if type_ != kind), OPEN)
    return OPEN, OPEN, there, otherwise


def of_full_layers(config: Mapping[str, Any], types: Sequence[str], field: str) -> Any:  # noqa: ANN401
    """Return a field of the first full layer for which a configuration by layers has it."""
    numbered = sorted((int(number), fields) for number, fields in config.items())
    full = (fields for number, fields in numbered if types[number : number + 1] == [FULL])
    return next((fields[field] for fields in full if field in fields), None)


def widened(size: int, count: int, shared: int, is_double: bool) -> int | list[int]:  # noqa: FBT001
    """Return the feed-forward size, twice as large in the last `shared` layers if `is_double`."""
    if not is_double:
        return size
    return [size if layer < count - shared else 2 * size for layer in layers(count)]


def narrowed(sizes: Any, _: Arguments) -> Solved:  # noqa: ANN401
    """Return the smaller size, and whether there are two."""
    return (min(sizes), OPEN, OPEN, True) if isinstance(sizes, list) else (sizes, OPEN, OPEN, False)


def divisible_sizes(multipliers: Sequence[float], width: int, divisor: int) -> list[int]:
    """Return OpenELM's feed-forward sizes: multiples of `divisor` near a multiple of the width."""
    return [_divisible(multiplier * width, divisor) for multiplier in multipliers]


def _divisible(size: float, divisor: int) -> int:
    rounded = max(divisor, int(size + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < _LEAST * size else rounded


def multipliers(sizes: Any, args: Arguments) -> Solved:  # noqa: ANN401
    """Return the multipliers that give these sizes with the divisor 1."""
    if not isinstance(sizes, list) or args[1] is None:
        return ()
    return [size / args[1] for size in sizes], OPEN, OPEN


def at_layers(count: int, numbers: Sequence[int], there: Any, otherwise: Any) -> list[Any]:  # noqa: ANN401
    """Return a list with one value for the given layers and another for the rest."""
    return [there if layer in numbers else otherwise for layer in layers(count)]


def period(numbers: Sequence[int]) -> int | None:
    """Return the distance of layers; the first of them ends the first period."""
    if not numbers:
        return None
    length = numbers[0] + 1
    if any(number != length * (index + 1) - 1 for index, number in enumerate(numbers)):
        raise CheckpointError(f"the layers {brief(numbers)} are not equally spaced")
    return length


def where(numbers: Any, args: Arguments) -> Solved:  # noqa: ANN401
    """Return the layers whose number is not the known one of the rest, and that number."""
    if not isinstance(numbers, list):
        return ()
    indexes = [index for index, n in enumerate(numbers) if n != args[3]]
    return OPEN, indexes, numbers[indexes[0]] if indexes else OPEN, OPEN


def periodic(count: int, offset: int, period: int, there: Any, otherwise: Any) -> list[Any]:  # noqa: ANN401
    """Return a list with one value for every `period`-th layer from `offset` on."""
    is_there = ((layer - offset) % period == 0 and layer >= offset for layer in layers(count))
    return [there if here else otherwise for here in is_there]


def offset_and_period(numbers: Any, args: Arguments) -> Solved:  # noqa: ANN401
    """Return the first layer whose number differs from the rest, and the step to the next."""
    if not isinstance(numbers, list):
        return ()
    indexes = [index for index, n in enumerate(numbers) if n != args[4]]
    if not indexes:
        return ()
    period = indexes[1] - indexes[0] if len(indexes) > 1 else len(numbers)
    return OPEN, indexes[0], period, numbers[indexes[0]], OPEN


def sliding_types(pattern: Any, _: Arguments) -> Solved:  # noqa: ANN401
    """Return the types of layers from a list of whether they slide."""
    return ([SLIDING if own else FULL for own in pattern],) if isinstance(pattern, list) else ()


def leading_layers(types: Any, kind: str) -> int:  # noqa: ANN401
    """Return how many of the first layers are of a kind."""
    if not isinstance(types, list):
        raise CheckpointError(f"{brief(types)} is not a list of layers")
    return next((n for n, type_ in enumerate(types) if type_ != kind), len(types))


def linear(types: Any, total: int, count: int) -> list[bool]:  # noqa: ANN401
    """Return which layers have linear attention; layers after the end of the list do not."""
    if not isinstance(types, list) or len(types) != total:
        raise CheckpointError(f"layer_types is {brief(types)}, not a list of {total} layers")
    return [types[n] == LINEAR if n < total else False for n in layers(count)]


def linear_types(pattern: Any, args: Arguments) -> Solved:  # noqa: ANN401
    """Return the types of layers from a list that says which have linear attention."""
    if not isinstance(pattern, list) or not isinstance(args[1], int):
        return ()
    return ([LINEAR if is_linear else FULL for is_linear in pattern[: args[1]]],)


def layer_kinds(pattern: Any) -> list[str]:  # noqa: ANN401
    """Return the kinds of Nemotron-H's layers from its letters or words."""
    table = _LETTERS if isinstance(pattern, str) else _WORDS
    unknown = next((item for item in pattern if item not in table), None)
    if unknown is not None:
        raise CheckpointError(f"layers of the kind {brief(unknown)} are unknown")
    return [table[item] for item in pattern]


def hybrid_pattern(heads: Sequence[int], sizes: Sequence[int], feed_forward: str) -> str:
    """Return Nemotron-H's letters from the heads and feed-forward sizes of its layers."""
    pairs = zip(heads, sizes, strict=False)
    return "".join("*" if head else feed_forward if size else "M" for head, size in pairs)


def layers_with(model: Model, suffix: str) -> list[int]:
    """Return the layers that have a tensor of this name."""
    matches = (re.fullmatch(rf"blk\.(\d+)\.{re.escape(suffix)}", name) for name in model.tensors)
    return sorted(int(match[1]) for match in matches if match)


def extended(values: Any, count: int, value: Any) -> list[Any]:  # noqa: ANN401
    """Return the first values, at most `count`, with `value` after them up to `count`."""
    if not isinstance(values, list):
        raise CheckpointError(f"{brief(values)} is not a list")
    first = values[:count]
    return [*first, *(value for _ in layers(count - len(first)))]


def last_of_groups(whole: int, size: int, count: int) -> list[str]:
    """Return which layers are the last of their group of `size`, or in none that is whole."""
    ends = whole // size * size
    return ["full" if (n + 1) % size == 0 or n >= ends else "linear" for n in layers(count)]


def group_size(kinds: Any, args: Arguments) -> Solved:  # noqa: ANN401
    """Return the size of the groups whose last layers are full."""
    if not isinstance(kinds, list) or not isinstance(args[0], int):
        return ()
    fitting = (n for n in range(1, args[0] + 2) if last_of_groups(args[0], n, len(kinds)) == kinds)
    return OPEN, next(fitting, OPEN), OPEN
