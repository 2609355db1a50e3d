"""Select, rename, add and remove the tensors, layers and keys of a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from ggufkit.edits.name_patterns import matching, pattern
from ggufkit.edits.name_patterns import rename as rename_rule
from ggufkit.errors import MissingKeyError, ShapeError, ValueTypeError
from ggufkit.format.arguments import refusal, texts, whole_numbers
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import SPLIT_KEYS
from ggufkit.models.any_model import AnyModel, as_model, derives_model
from ggufkit.models.layers import block_count, keys_by_layer, layer_of, prune_layers, resized
from ggufkit.models.model import Model, Tensor

Grafts: TypeAlias = Sequence[tuple[AnyModel, str]]
OpenGrafts: TypeAlias = list[tuple[Model, str]]
Names: TypeAlias = "str | Sequence[str]"  # one or several


@derives_model
def select(  # noqa: PLR0913 (each is one choice)
    model: Model,
    *,
    keep: Names = (),
    drop: Names = (),
    prune: Iterable[int] = (),
    rename: Names = (),
    graft: Grafts = (),
    keep_keys: Names = (),
    drop_keys: Names = (),
    graft_keys: Grafts = (),
    vocab_only: bool = False,
    tensors: bool = True,
) -> Model:
    """Return `model` with some of its tensors and keys, and with some of other models.

    Tensors that match a pattern of `keep` stay (all, if `keep` is empty); then those that match one
    of `drop` are removed. The layers `prune` are removed by `ggufkit.models.layers.prune_layers`.
    `rename` are "PATTERN=NAME"; the first match counts. `graft` adds tensors of other models: each
    replaces the tensor of its name, or comes at the end; new layers update the keys that count
    layers. `keep_keys`, `drop_keys` and `graft_keys` then do the same for keys. `vocab_only` leaves
    only what the vocabulary needs, and `tensors=False` no tensors. One pattern may be a string.

    Patterns are those of `ggufkit.edits.name_patterns.pattern`; one that matches nothing raises
    MissingTensorError or MissingKeyError. Raises ShapeError if two tensors would have one name, or
    grafted layers do not fit. No tensor data is read.
    """
    added, added_keys = _opened("graft", graft), _opened("graft_keys", graft_keys)
    chosen = model.replace(
        metadata=model.metadata.without(*SPLIT_KEYS, missing_ok=True),
        tensors=_filtered(model.tensors.values(), texts("keep", keep), texts("drop", drop)),
    )
    removed = list(whole_numbers("prune", prune))
    chosen = resized(prune_layers(chosen, removed), chosen) if removed else chosen
    rules = [rename_rule(text) for text in texts("rename", rename)]
    for rule in rules:
        matching(chosen.tensors, rule.pattern)
    renamed_tensors = [
        replace(tensor, name=next(filter(None, (r.apply(tensor.name) for r in rules)), tensor.name))
        for tensor in chosen.tensors.values()
    ]
    chosen = chosen.replace(tensors=renamed_tensors)
    for donor, text in added:
        chosen = _grafted(chosen, donor, text)
    patterns = texts("keep_keys", keep_keys), texts("drop_keys", drop_keys)
    names = _chosen(list(chosen.metadata), *patterns, of_keys=True)
    metadata = _with_keys(chosen.metadata.arranged(names), added_keys)
    if vocab_only:
        keys = [
            key
            for key in metadata
            if key.startswith(("general.", "tokenizer.")) or key.endswith(".vocab_size")
        ]
        metadata = metadata.arranged(keys)
    result = chosen.replace(metadata=metadata, tensors=None if tensors and not vocab_only else ())
    donors = [donor for donor, _ in (*added, *added_keys)]
    grafts = [donor for donor, _ in (*graft, *graft_keys)]
    files = [file for donor in donors for file in donor.inputs]
    own = [d for d, g in zip(donors, grafts, strict=True) if d is not g]
    result.derived_from((*model.inputs, *files), *(donor.readers_limit for donor in donors))
    return result.owning(file for donor in own for file in donor.inputs)


def _opened(argument: str, grafts: Grafts) -> OpenGrafts:
    models: OpenGrafts = []
    for pair in grafts:
        if not isinstance(pair, tuple | list) or len(pair) != 2:  # noqa: PLR2004
            raise refusal(argument, pair, "pairs of a model and a pattern")
        (text,) = texts(argument, pair[1])
        models.append((as_model(pair[0], argument), text))
    return models


def _with_keys(metadata: Metadata, grafts: OpenGrafts) -> Metadata:
    for donor, text in grafts:
        keys = matching(donor.metadata, pattern(text), of_keys=True)
        metadata = metadata.updated(donor.metadata.arranged(keys))
    return metadata


def _filtered(tensors: Iterable[Tensor], keep: Sequence[str], drop: Sequence[str]) -> list[Tensor]:
    by_name = {tensor.name: tensor for tensor in tensors}
    return [by_name[name] for name in _chosen(list(by_name), keep, drop, of_keys=False)]


def _chosen(
    names: list[str], keep: Sequence[str], drop: Sequence[str], *, of_keys: bool
) -> list[str]:
    chosen = {name for text in keep for name in matching(names, pattern(text), of_keys=of_keys)}
    dropped = {name for text in drop for name in matching(names, pattern(text), of_keys=of_keys)}
    return [name for name in names if (name in chosen or not keep) and name not in dropped]


def _grafted(model: Model, donor: Model, text: str) -> Model:
    added = {name: donor.tensors[name] for name in matching(donor.tensors, pattern(text))}
    for name, tensor in added.items():
        ours = model.tensors.get(name, tensor)
        if ours.shape != tensor.shape:
            raise ShapeError(
                f"the tensor {ours.name!r} has the shape {list(ours.shape)} here and "
                f"{list(tensor.shape)} in the other model",
                remedy="Graft from a model of the same widths, or drop the tensor first",
            )
    grafted = model.replace(tensors=({**model.tensors} | added).values())
    if not any(_is_new_layer(name, model) for name in added):
        return grafted
    _require_like(model, donor)
    counted = range(block_count(model.metadata)[1], block_count(donor.metadata)[1])
    layers = {layer_of(name) for name in grafted.tensors}
    missing = [layer for layer in counted if layer not in layers]
    if missing:
        raise ShapeError(
            f"the model has {counted.start} layers, the other one {counted.stop}, and layer "
            f"{missing[0]} is not grafted",
            remedy=f"Graft the layers {counted.start} to {counted.stop - 1} from a file of the "
            "same model",
        )
    metadata = model.metadata.updated(keys_by_layer(donor.metadata))
    return resized(grafted.replace(metadata=metadata), model)


def _is_new_layer(name: str, model: Model) -> bool:
    """Whether a tensor belongs to a layer beyond the model's layer count."""
    layer = layer_of(name)
    try:
        return layer is not None and layer >= block_count(model.metadata)[1]
    except (MissingKeyError, ValueTypeError):  # no layer count: an adapter
        return False


def _require_like(model: Model, donor: Model) -> None:
    ours, theirs = (one.metadata.text("general.architecture", "") for one in (model, donor))
    if ours != theirs:
        raise ShapeError(
            f"layers of an architecture {theirs!r} do not fit into a model of the architecture "
            f"{ours!r}",
            remedy="Graft layers from a model of the same architecture",
        )
