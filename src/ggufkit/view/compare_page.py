"""The view of a comparison: metadata and types of two models, and the error of each tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ggufkit.errors import MissingTensorError, ShapeError
from ggufkit.inspection.diff import Deviation, diff, key_changes
from ggufkit.inspection.summary import summarize
from ggufkit.models.model import Model, Tensor
from ggufkit.view.metadata_page import key_row
from ggufkit.view.page_model import PageModel
from ggufkit.view.picture import Tile, TilePlace, difference_tile, values_at
from ggufkit.view.plain_values import cut, number
from ggufkit.view.tensor_page import check_element

MAX_KEYS: Final = 500  # that differ
MAX_TENSORS: Final = 20_000
VALUES_OF_BOTH: Final = 32  # side by side, or a block


def comparison(before: PageModel, after: PageModel) -> dict[str, Any]:
    """Return what the headers of two models say: keys that differ, and tensors side by side."""
    names = dict.fromkeys((*before.tensor_names, *after.tensor_names))
    tensors = [_pair(before, after, name) for name in list(names)[:MAX_TENSORS]]
    return compared_keys(before, after) | {"tensors": tensors, "all_tensors": len(names)}


def compared_keys(before: PageModel, after: PageModel) -> dict[str, Any]:
    """Return facts of two models, and their keys that differ."""
    changes = list(key_changes(before.model.metadata, after.model.metadata))
    return {
        "models": [_side(before), _side(after)],
        "keys": [key_row(change) for change in changes[:MAX_KEYS]],
        "changed_keys": len(changes),
    }


def family(page: PageModel, models: Sequence[PageModel]) -> dict[str, Any]:
    """Return the models of the same base, by number, and the largest of them: it is the base."""
    shapes = _shapes(page)
    related = []
    for index, other in enumerate(models):
        others = _shapes(other)
        if 2 * len(shapes & others) >= min(len(shapes), len(others)) > 0:
            related.append(index)
    base = max(related, key=lambda index: models[index].nbytes, default=None)
    return {"base": base, "quants": [index for index in related if index != base]}


def _shapes(page: PageModel) -> set[tuple[str, tuple[int, ...]]]:
    return {(tensor.name, tensor.shape) for _, tensor in page.tensor_rows}


def _side(page: PageModel) -> dict[str, Any]:
    facts = summarize(page.model)
    return {
        "name": page.name,
        "nbytes": page.nbytes,
        "recipe": facts.recipe,
        "bits_per_weight": facts.bits_per_weight,
        "parameters": facts.parameters,
    }


def _pair(before: PageModel, after: PageModel, name: str) -> dict[str, Any]:
    old, new = _tensor(before.model, name), _tensor(after.model, name)
    return {
        "name": cut(name, 80),
        "before": before.number_of.get(name),
        "after": after.number_of.get(name),
        "before_type": old.type.name if old else None,
        "after_type": new.type.name if new else None,
        "elements": old.elements if old else 0,
        "before_nbytes": old.nbytes if old else 0,
        "after_nbytes": new.nbytes if new else 0,
        "comparable": bool(old and new and _comparable(old, new)),
    }


def _tensor(model: Model, name: str) -> Tensor | None:
    return model.tensors[name] if name in model.tensors else None  # noqa: SIM401 (no near names)


def _comparable(old: Tensor, new: Tensor) -> bool:
    return old.shape == new.shape and not old.type.is_opaque and not new.type.is_opaque


def pair_of(before: PageModel, after: PageModel, number: int) -> tuple[Tensor, Tensor]:
    """Return a tensor of the first model, by its number, and the other's of that name."""
    old = before.tensor(number)
    new = _tensor(after.model, old.name)
    if new is None:
        raise MissingTensorError(f"{after.name} has no tensor {old.name!r}")
    if not _comparable(old, new):
        raise ShapeError(f"{old!r} cannot be compared with {new!r}")
    return old, new


def tensor_error(before: PageModel, after: PageModel, tensor_number: int) -> dict[str, Any]:
    """Return the deviation of one tensor from another, which reads both once."""
    key = (f"error {id(after)}", tensor_number)
    return before.cached(key, lambda: _measured(before, after, tensor_number))


def _measured(before: PageModel, after: PageModel, tensor_number: int) -> dict[str, Any]:
    old, new = pair_of(before, after, tensor_number)
    difference = diff(before.model.replace(tensors=[old]), after.model.replace(tensors=[new]))
    same = {"number": tensor_number, "same": not difference.tensors}
    return same | _figures(difference.total)


def _figures(deviation: Deviation | None) -> dict[str, Any]:
    if deviation is None:
        return {"rmse": 0.0, "max_abs": 0.0, "cosine": 1.0, "snr_db": "Infinity", "unequal": 0}
    figures = ("rmse", "max_abs", "cosine", "snr_db")
    return {name: number(getattr(deviation, name)) for name in figures} | {
        "unequal": deviation.unequal
    }


def same_tensors(page: PageModel, models: Sequence[PageModel], number: int) -> list[dict[str, Any]]:
    """Return the tensors of that name and shape in the other models, with the model's number."""
    tensor = page.tensor(number)
    others = [
        (index, other, _tensor(other.model, tensor.name))
        for index, other in enumerate(models)
        if other is not page
    ]
    return [
        {"model": index, "number": other.number_of[same.name], "type": same.type.name}
        for index, other, same in others
        if same and _comparable(tensor, same)
    ]


def values_of_both(
    before: PageModel, after: PageModel, tensor_number: int, row: int, column: int
) -> dict[str, Any]:
    """Return the values of both tensors around an element: those of the larger block.

    Raises ShapeError if there is no such element.
    """
    pair = pair_of(before, after, tensor_number)
    width = check_element(pair[0], row, column)
    size = max(VALUES_OF_BOTH, *(tensor.type.block_size for tensor in pair))
    start = column // size * size
    columns = np.arange(start, min(start + size, width))
    old, new = (values_at(tensor, np.array([row]), columns)[0] for tensor in pair)
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        sides = {"before": old, "after": new, "difference": new - old}
    return {"row": row, "column": start} | {
        side: [number(value) for value in values.tolist()] for side, values in sides.items()
    }


def error_tile(before: PageModel, after: PageModel, number: int, place: TilePlace) -> Tile:
    """Return a tile of the second tensor minus the first."""
    return difference_tile(*pair_of(before, after, number), place)
