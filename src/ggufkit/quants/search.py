"""The searches that improve ggml's blocks: their names, and the types that have one."""

from __future__ import annotations

from typing import Final, Literal, cast

import ggufkit._native as _native
from ggufkit.errors import ValueTypeError
from ggufkit.format.types import GGML_TYPES, TensorType

Search = Literal["better", "best"]

EFFORTS: Final[dict[str, int]] = {"better": 1, "best": 2}  # the native core's numbers
_REFINABLE: Final = frozenset(_native.refinable())


def is_searched(type: TensorType) -> bool:
    """Whether a type has a search for better blocks."""
    return type.id in _REFINABLE


# The quantized types of files that have a search, and those that have none.
SEARCHED: Final = tuple(row.name for row in GGML_TYPES.values() if is_searched(row))
UNSEARCHED: Final = tuple(
    row.name
    for row in GGML_TYPES.values()
    if row.is_quantized and row.name not in {*SEARCHED, "Q8_1", "Q8_K"}
)


def check_search(search: str | None) -> Search | None:
    """Return `search`; raise ValueTypeError for an unknown one."""
    if search is None or search in EFFORTS:
        return cast("Search | None", search)
    raise ValueTypeError(
        f"there is no search {search!r}", remedy=f"Use one of {', '.join(EFFORTS)}, or None"
    )


def search_for(search: str | None, type: TensorType) -> Search | None:
    """Return `search` if `type` has one, and None for types that are encoded as ggml does."""
    checked = check_search(search)
    return checked if is_searched(type) else None


# With importance data a search gains less than 3 % for files of these types, as a mean over models.
_GAINS_LITTLE: Final = {"better": frozenset({"Q4_0", "Q5_0", "Q3_K"}), "best": frozenset({"Q4_0"})}


def worthwhile_search(search: Search | None, type: TensorType, *, weighted: bool) -> Search | None:
    """Return the search for a tensor of `type`, `weighted` by importance data or not."""
    gains_little = search is not None and weighted and type.name in _GAINS_LITTLE[search]
    return None if gains_little else search_for(search, type)
