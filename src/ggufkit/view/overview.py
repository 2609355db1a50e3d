"""The first view: facts, where the bytes are, and a grid of layers. No tensor data is read."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final

from ggufkit.inspection.summary import summarize
from ggufkit.models.model import Tensor
from ggufkit.view.page_model import PageModel
from ggufkit.view.plain_values import cut
from ggufkit.view.treemap import Rectangle, laid_out

MAP: Final = Rectangle(0.0, 0.0, 160.0, 64.0)  # the treemap's own units
LEAST_SHARE: Final = 0.0002  # of all bytes, for a rectangle of its own
MAX_CELLS: Final = 2000  # of one group
MAX_GROUPS: Final = 64  # of the treemap: the largest; real models have about ten
MAX_LAYERS: Final = 512  # columns of the grid: what llama.cpp loads
MAX_ROLES: Final = 200  # rows of the grid
BLOCKS: Final = 1  # the place of blocks among the parts of a model
_OTHER: Final = "other"
_LAYER: Final = re.compile(r"(?P<before>.*?)blk\.(?P<number>\d{1,9})\.(?P<role>.+)", re.DOTALL)
# The block of a tensor in files of any kind: "blk.0.", "v.blk.0.", "double_blocks.0."
_BLOCK: Final = re.compile(
    r"(?P<before>.*?(?:blk|blocks?|layers?))\.(?P<number>\d{1,9})\.", re.DOTALL
)
# The group of a tensor in a layer, by what its role contains; the first that fits.
_GROUPS: Final = (
    ("experts", re.compile(r"_exps|_chexps")),
    ("norms", re.compile(r"norm")),
    ("attention", re.compile(r"attn|att_|attention")),
    ("feed forward", re.compile(r"ffn|mlp|fc\d|_up|_down")),
    ("state space", re.compile(r"ssm|time_mix|channel_mix|shortconv")),
)


def overview(page: PageModel) -> dict[str, Any]:
    """Return what the first view shows of a model."""
    model = page.model
    facts = dict(vars(summarize(model)))
    facts["types"] = [vars(share) for share in facts["types"]]
    for name in ("architecture", "kind", "name", "size_label", "license", "tokenizer"):
        facts[name] = None if facts[name] is None else cut(facts[name])
    facts["chat_template"] = facts["chat_template"] is not None
    return {
        "name": page.name,
        "summary": facts,
        "version": model.version,
        "byte_order": model.byte_order,
        "alignment": model.alignment,
        "nbytes": page.nbytes,
        "keys": len(model.metadata),
        "tensors": len(model.tensors),
        "files": [
            {"name": file.path.name, "nbytes": file.nbytes, "data_nbytes": file.data_nbytes}
            for file in model.files
        ],
        "missing": [
            {"message": problem.message, "remedy": problem.remedy} for problem in model.missing
        ],
    }


def group_of(name: str) -> str:
    """Return the part of the model that a tensor belongs to."""
    match = _LAYER.fullmatch(name)
    if match is None:
        is_token = name.startswith(("token_embd", "per_layer_token_embd", "position_embd"))
        return "embedding" if is_token else "output" if name.startswith("output") else _OTHER
    if match["before"]:
        return cut(match["before"].rstrip("."), 20) or _OTHER
    return next((group for group, part in _GROUPS if part.search(match["role"])), _OTHER)


def part_of(name: str) -> tuple[int, str, int]:
    """Return the part of the model in the order of parts: embedding, blocks, output, other."""
    match = _BLOCK.match(name)
    if match:
        before = cut(match["before"].removesuffix("blk").rstrip("."), 40)
        is_usual = match["before"].endswith("blk")
        kind = f"{before} block".lstrip() if is_usual else before
        return BLOCKS, kind, int(match["number"])
    group = group_of(name)
    return {"embedding": 0, "output": 2}.get(group, 3), group, 0


def treemap(page: PageModel, group: str = "") -> dict[str, Any]:
    """Return groups and tensors as rectangles, or those of one group; areas are shares of bytes.

    Tensors too small to see are one rectangle of their group, with the number of them.
    """
    groups = _groups(page)
    if group:
        groups = {group: groups.get(group, [])}
    sizes = {name: sum(tensor.nbytes for _, tensor in rows) for name, rows in groups.items()}
    order = sorted((name for name in groups if sizes[name]), key=lambda name: -sizes[name])
    places = laid_out([float(sizes[name]) for name in order], MAP)
    least = 0.0 if group else LEAST_SHARE * max(page.nbytes, 1)
    return {
        "width": MAP.width,
        "height": MAP.height,
        "groups": [
            {
                "name": name,
                "nbytes": sizes[name],
                "tensors": len(groups[name]),
                "place": list(place),
                "cells": _cells(groups[name], place, least),
            }
            for name, place in zip(order, places, strict=True)
        ],
    }


def _groups(page: PageModel) -> dict[str, list[tuple[int, Tensor]]]:
    """Return the tensors of each group with their numbers; a file may name any number of groups."""
    names = [group_of(tensor.name) for _, tensor in page.tensor_rows]
    sizes: Counter[str] = Counter()
    for name, (_, tensor) in zip(names, page.tensor_rows, strict=True):
        sizes[name] += tensor.nbytes
    largest = {name for name, _ in sizes.most_common(MAX_GROUPS)}
    groups: dict[str, list[tuple[int, Tensor]]] = {}
    for name, row in zip(names, page.tensor_rows, strict=True):
        groups.setdefault(name if name in largest else _OTHER, []).append(row)
    return groups


def _cells(
    tensors: list[tuple[int, Tensor]], place: Rectangle, least: float
) -> list[dict[str, Any]]:
    ordered = sorted(tensors, key=lambda row: -row[1].nbytes)
    large = [row for row in ordered[:MAX_CELLS] if row[1].nbytes >= least]
    small = [tensor for _, tensor in ordered[len(large) :]]
    cells: list[dict[str, Any]] = [
        {
            "number": number,
            "name": cut(tensor.name, 80),
            "type": tensor.type.name,
            "bits": tensor.type.bits_per_weight,
            "shape": list(tensor.shape),
            "nbytes": tensor.nbytes,
        }
        for number, tensor in large
    ]
    if sum(tensor.nbytes for tensor in small):
        cells.append({"number": None, "count": len(small), "nbytes": sum(t.nbytes for t in small)})
    places = laid_out([float(cell["nbytes"]) for cell in cells], place)
    return [
        {**cell, "place": [round(value, 4) for value in rectangle]}
        for cell, rectangle in zip(cells, places, strict=True)
    ]


def layer_grid(page: PageModel) -> dict[str, Any]:
    """Return roles, layers, and a cell for each tensor of a layer.

    A cell is the positions of its role and layer, the number of the tensor, and the position of its
    type. Beyond MAX_ROLES and MAX_LAYERS tensors are only counted.
    """
    matches = [
        (number, tensor, match)
        for number, tensor in page.tensor_rows
        if (match := _LAYER.fullmatch(tensor.name))
    ]
    roles = list(dict.fromkeys(f"{match['before']}{match['role']}" for _, _, match in matches))
    layers = sorted({int(match["number"]) for _, _, match in matches})
    role_at = {role: index for index, role in enumerate(roles[:MAX_ROLES])}
    layer_at = {layer: index for index, layer in enumerate(layers[:MAX_LAYERS])}
    types = sorted({tensor.type for _, tensor, _ in matches}, key=lambda kind: kind.bits_per_weight)
    type_at = {kind: index for index, kind in enumerate(types)}
    cells = [
        [role_at[role], layer_at[layer], number, type_at[tensor.type]]
        for number, tensor, match in matches
        if (role := f"{match['before']}{match['role']}") in role_at
        and (layer := int(match["number"])) in layer_at
    ]
    return {
        "roles": [cut(role, 80) for role in role_at],
        "layers": list(layer_at),
        "types": [{"name": kind.name, "bits": kind.bits_per_weight} for kind in types],
        "cells": cells,
        "left_out": len(matches) - len(cells),
    }
