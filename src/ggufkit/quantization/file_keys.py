"""The keys that quantizing writes: version, recipe, importance data, and keys that users add."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from ggufkit.format.file_types import (
    FILE_TYPE_KEY,
    GUESSED,
    NUMBER_OF,
    QUANTIZATION_VERSION,
    VERSION_KEY,
)
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import SPLIT_KEYS
from ggufkit.format.values import TypedValue, whole_number
from ggufkit.models.model import Tensor
from ggufkit.quantization.recipes import ALIASES, Recipe

if TYPE_CHECKING:
    from ggufkit.imatrix.hessian import Hessian
    from ggufkit.imatrix.matrix import Imatrix

MAX_FILE_TYPE: Final = (1 << 32) - 1  # the key is a uint32
IMATRIX_FILE: Final = "quantize.imatrix.file"
HESSIAN_FILE: Final = "quantize.hessian.file"
SEARCH_KEY: Final = "quantize.search"  # ggufkit's own: the search for better blocks
MAX_TEXT: Final = 127  # bytes that llama-quantize keeps of a path or dataset


def stamped(
    metadata: Metadata, number: int, *others: tuple[str, TypedValue], in_place: bool = False
) -> Metadata:
    """Return the keys in llama-quantize's order: the keys that it sets come last.

    `number` is the recipe's general.file_type; `others` follow it. With `in_place` keys keep their
    place, as in the llama-quantize that quantized image models.
    """
    changed = metadata.without(*SPLIT_KEYS, missing_ok=True)
    for key, value in (
        (VERSION_KEY, np.uint32(QUANTIZATION_VERSION)),
        (FILE_TYPE_KEY, np.uint32(number)),
        *others,
    ):
        if not in_place:
            changed = changed.without(key, missing_ok=True)
        changed = changed.updated({key: value})
    return changed


def file_type_of(metadata: Metadata) -> int | None:
    """Return the number in general.file_type, None if the key is missing."""
    number = whole_number(metadata.get(FILE_TYPE_KEY))
    return number if number is not None and 0 <= number <= MAX_FILE_TYPE else None


def number_for(recipe: Recipe, metadata: Metadata, pairs: Sequence[tuple[Tensor, Tensor]]) -> int:
    """Return general.file_type for the output; `pairs` are its tensors before and after."""
    if recipe.file_type is not None:
        return recipe.file_type
    is_changed = any(before is not after for before, after in pairs)
    number = None if is_changed else file_type_of(metadata)
    return guessed_file_type(after for _, after in pairs) if number is None else number


def guessed_file_type(tensors: Iterable[Tensor]) -> int:
    """Return the number of the recipe that most tensors look like, marked as guessed."""
    counts: Counter[str] = Counter()
    most = "F32"
    for tensor in tensors:
        counts[tensor.type.name] += 1
        most = max(most, tensor.type.name, key=counts.__getitem__)  # on a tie the first one stays
    return NUMBER_OF.get(ALIASES.get(most, most), 0) | GUESSED


def imatrix_keys(data: tuple[Imatrix, str] | None) -> Iterator[tuple[str, TypedValue]]:
    """Yield the keys that describe the importance matrix."""
    if data is None:
        return
    imatrix, path = data
    if path:
        yield IMATRIX_FILE, _cut(path)
    if imatrix.datasets:
        yield "quantize.imatrix.dataset", _cut(imatrix.datasets[0])
    yield "quantize.imatrix.entries_count", np.uint32(len(imatrix.entries))
    if imatrix.chunk_count > 0:
        yield "quantize.imatrix.chunks_count", np.uint32(imatrix.chunk_count)


def search_keys(searches: Iterable[str | None]) -> Iterator[tuple[str, TypedValue]]:
    """Yield the key that names the search, if it made any tensor."""
    used = next((search for search in searches if search), None)
    if used:
        yield SEARCH_KEY, used


def hessian_keys(hessian: Hessian | None) -> Iterator[tuple[str, TypedValue]]:
    """Yield the keys that describe the Hessian."""
    if hessian is None:
        return
    yield HESSIAN_FILE, _cut(str(hessian.path))
    for key in ("dataset", "token_count", "model"):
        if f"hessian.{key}" in hessian.metadata:
            yield f"quantize.hessian.{key}", hessian.metadata.typed(f"hessian.{key}")


def _cut(text: str) -> str:
    """Cut `text` to the whole characters that fit in llama-quantize's buffer."""
    return os.fsencode(text)[:MAX_TEXT].decode("utf-8", "ignore")
