"""The searches that improve ggml's blocks: their names, and the types that have one."""

from __future__ import annotations

from typing import Final, Literal, cast

from ggufkit.errors import ValueTypeError
from ggufkit.format.types import TensorType

Search = Literal["better", "best"]

EFFORTS: Final[dict[str, int]] = {"better": 1, "best": 2}  # the native core's numbers
# The quantized types that have a search, and those that have none.
SEARCHED: Final = (
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "IQ4_XS"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"),
)
UNSEARCHED: Final = ("Q8_0", "Q1_0", "Q2_0", "TQ1_0", "TQ2_0", "MXFP4", "NVFP4")


def check_search(search: str | None) -> Search | None:
    """Return `search`; raise ValueTypeError for an unknown one."""
    if search is None or search in EFFORTS:
        return cast("Search | None", search)
    raise ValueTypeError(
        f"there is no search {search!r}", remedy=f"Use one of {', '.join(EFFORTS)}, or None"
    )


def search_for(search: str | None, type: TensorType) -> Search | None:
    """Return `search` if `type` has one, and None for types that are encoded as ggml does."""
    known = check_search(search)
    return known if type.name in SEARCHED else None


def effort_of(search: str | None, type: TensorType) -> int:
    """Return the native core's number for a search of blocks of `type`."""
    known = search_for(search, type)
    return EFFORTS[known] if known else 0
