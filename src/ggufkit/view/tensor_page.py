"""The view of tensors: a list to sort and filter, and what is in one tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ggufkit.errors import ShapeError
from ggufkit.inspection.tensor_block import tensor_block
from ggufkit.inspection.tensor_statistics import tensor_statistics
from ggufkit.models.model import Tensor
from ggufkit.models.rows import rows_and_width
from ggufkit.view.overview import BLOCKS, group_of, part_of
from ggufkit.view.page_model import PageModel
from ggufkit.view.picture import picture_facts
from ggufkit.view.plain_values import cut, page_of

READ_AT_ONCE: Final = 256 << 20  # bytes of a tensor whose statistics need no asking
_SORTS: Final[dict[str, Callable[[Tensor], Any]]] = {
    "name": lambda tensor: tensor.name,
    "type": lambda tensor: tensor.type.name,
    "bits": lambda tensor: tensor.type.bits_per_weight,
    "nbytes": lambda tensor: tensor.nbytes,
    "elements": lambda tensor: tensor.elements,
    "offset": lambda tensor: (str(tensor.path), tensor.offset or 0),
}


def tensor_rows(page: PageModel, query: dict[str, str], start: int, count: int) -> dict[str, Any]:
    """Return tensors whose name contains `search`, of a `type`, `group` and `part`, by `sort`.

    `sort` is "" for the order of the file, or a column; a minus sign before it reverses the order.
    """
    rows = _matching(page, query)
    sort = query.get("sort", "")
    key = _SORTS.get(sort.removeprefix("-"))
    if key:
        rows.sort(key=lambda row: key(row[1]), reverse=sort.startswith("-"))
    answer = page_of(rows, start, count)
    answer["nbytes"] = sum(tensor.nbytes for _, tensor in rows)
    answer["rows"] = [tensor_row(index, tensor) for index, tensor in answer["rows"]]
    return answer


def tensor_parts(page: PageModel, query: dict[str, str], start: int, count: int) -> dict[str, Any]:
    """Return the parts of the model that hold those tensors: embedding, each block, output, other.

    Of each part it returns how many tensors and bytes it holds; `largest` is the most bytes.
    """
    rows = _matching(page, query)
    sizes: dict[tuple[int, str, int], list[int]] = {}
    for _, tensor in rows:
        sizes.setdefault(part_of(tensor.name), []).append(tensor.nbytes)
    parts = [
        {"name": _part_name(part), "tensors": len(nbytes), "nbytes": sum(nbytes)}
        for part, nbytes in sorted(sizes.items())
    ]
    return page_of(parts, start, count) | {
        "tensors": len(rows),
        "nbytes": sum(map(sum, sizes.values())),
        "largest": max(map(sum, sizes.values()), default=0),
    }


def _part_name(part: tuple[int, str, int]) -> str:
    place, kind, number = part
    return f"{kind} {number}" if place == BLOCKS else kind


def _matching(page: PageModel, query: dict[str, str]) -> list[tuple[int, Tensor]]:
    text = query.get("search", "").casefold()
    kind, group, part = (query.get(name, "") for name in ("type", "group", "part"))
    return [
        (index, tensor)
        for index, tensor in page.tensor_rows
        if text in tensor.name.casefold()
        and kind in {"", tensor.type.name}
        and group in {"", group_of(tensor.name)}
        and (not part or part == _part_name(part_of(tensor.name)))
    ]


def tensor_row(number: int, tensor: Tensor) -> dict[str, Any]:
    """Return what a list says of a tensor."""
    return {
        "number": number,
        "name": cut(tensor.name),
        "type": tensor.type.name,
        "bits": tensor.type.bits_per_weight,
        "shape": list(tensor.shape),
        "elements": tensor.elements,
        "nbytes": tensor.nbytes,
        "offset": tensor.offset,
        "file": None if tensor.path is None else tensor.path.name,
        "whole": tensor.is_whole,
    }


def tensor_details(page: PageModel, number: int) -> dict[str, Any]:
    """Return what is known of a tensor without reading it."""
    tensor = page.tensor(number)
    kind = tensor.type
    can = not kind.is_opaque and tensor.elements > 0 and tensor.is_whole
    return tensor_row(number, tensor) | {
        "name": cut(tensor.name, 4096),
        "group": group_of(tensor.name),
        "block_size": kind.block_size,
        "block_bytes": kind.block_bytes,
        "quantized": kind.is_quantized,
        "decodable": can,
        "reads_at_once": tensor.nbytes <= READ_AT_ONCE,
        "picture": picture_facts(tensor) if can else None,
    }


def statistics(page: PageModel, number: int) -> dict[str, Any]:
    """Return the statistics of a tensor, which reads it whole; kept for the next time."""
    tensor = page.tensor(number)
    return page.cached(("statistics", number), lambda: tensor_statistics(tensor).to_dict())


def block(page: PageModel, number: int, row: int, column: int) -> dict[str, Any]:
    """Return the quantization block of an element, field by field; ShapeError if none is there."""
    tensor = page.tensor(number)
    check_element(tensor, row, column)
    return tensor_block(tensor, row, column).to_dict()


def check_element(tensor: Tensor, row: int, column: int) -> int:
    """Return the width of a tensor's rows; ShapeError if it has no such element."""
    rows, width = rows_and_width(tensor.shape)
    if 0 <= row < rows and 0 <= column < width:
        return width
    raise ShapeError(
        f"tensor {tensor.name!r} has {rows:,} rows of {width:,}, no element {row}, {column}",
        remedy="Choose one inside",
    )
