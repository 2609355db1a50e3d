"""Reads adapters of image and video models, with the names of kohya's scripts, diffusers or PEFT.

Adapters use the publisher's or diffusers' names of the model's matrices, with another prefix, and
with dots or underscores. A matrix of diffusers may be a part of a publisher's matrix.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from ggufkit.conversion.checkpoint.folder import CheckpointFolder
from ggufkit.conversion.checkpoint.safetensors import open_safetensors, read_notes
from ggufkit.conversion.diffusion.rename import last_blocks, original_shape, rows_of_parts, swapped
from ggufkit.conversion.tensors.moves import reshape
from ggufkit.diffusion.architecture import Shapes, architecture_of, prefix_of, recognize
from ggufkit.errors import AdapterError, brief, first_names
from ggufkit.format.metadata import Metadata
from ggufkit.lora.pairs import Addend, Pair, checked
from ggufkit.lora.peft import CONFIG, FILES, scaled
from ggufkit.models.any_model import AnyModel, as_model
from ggufkit.models.model import Model, Tensor, Tensors
from ggufkit.system.threads import Notify
from ggufkit.validation.typed_values import MAX_FLOAT32, finite_number

SETTINGS: Final = "adapter.lora.config"  # the text of adapter_config.json
_NOTES: Final = "lora_adapter_metadata"  # of diffusers, in the header of a file
_WEIGHTS: Final = ("pytorch_lora_weights.safetensors", *FILES)
_PART: Final = re.compile(
    r"(?P<factored>.+)[._]lora[._](?P<factor>A|B|down|up)(\.\w+)?\.(?P<end>weight|bias)"
    r"|(?P<whole>.+)\.(?P<part>alpha|diff|diff_b)"
)
_LETTERS: Final = {"down": "A", "up": "B"}
_PREFIX: Final = re.compile(
    r"(lora_unet_|lora_transformer_|lycoris_|base_model\.model\.|(model\.)?diffusion_model\."
    r"|transformer\.|unet\.)*"
)
_TEXT_ENCODER: Final = re.compile(r"lora_te|te\d_|lora_clip|text_encoder")
_OTHER_KINDS: Final = {
    "hada_w": "LoHa",
    "lokr_w": "LoKr",
    "oft_": "OFT",
    "dora_scale": "DoRA",
    "lora_magnitude": "DoRA",
    "lora_mid": "LoCon with a third factor",
}


class _FactorPlace(NamedTuple):
    """The tensor that a module of an adapter changes, the part of it, and how it is changed."""

    name: str
    part: int = 0
    parts: int = 1
    is_swapped: bool = False


def open_image_adapter(adapter: AnyModel, argument: str = "adapters") -> Model:
    """Return the tensors of a safetensors file, or of a folder of PEFT or diffusers."""
    if (
        not isinstance(adapter, str | bytes | os.PathLike)
        or not Path(os.fsdecode(adapter)).exists()
    ):
        return as_model(adapter, argument)
    place, settings = Path(os.fsdecode(adapter)), None
    if place.is_dir():
        settings = CheckpointFolder(place).json(CONFIG)
        name = next((name for name in _WEIGHTS if (place / name).is_file()), None)
        if name is None:
            raise AdapterError(f"{place} has none of {', '.join(_WEIGHTS)}")
        place = place / name
    if place.suffix == ".gguf":
        return as_model(adapter, argument)
    file, tensors = open_safetensors(place)
    text = read_notes(file).get(_NOTES) if settings is None else json.dumps(settings)
    metadata = Metadata({SETTINGS: text} if isinstance(text, str) else {})
    return Model(metadata, Tensors(tensors)).reading([file])


def image_addends(base: Model, adapter: Model, say: Notify) -> dict[str, list[Addend]]:
    """Return what an adapter adds to the tensors of an image or video model, by their names.

    Parts for text encoders are left out, and matrices that the model lacks; `say` gets a note.
    Raises AdapterError for an adapter of another kind, or of another model.
    """
    modules = _modules(adapter)
    prefix, shapes, spellings = _base(base)
    keys = {module: _PREFIX.sub("", module, count=1).replace(".", "_") for module in modules}
    places = max(spellings, key=lambda spelling: sum(k in spelling for k in keys.values()))
    absent = [module for module, key in keys.items() if key not in places]
    if len(absent) == len(modules):
        raise AdapterError(
            "the model has none of the matrices of the adapter "
            f"({first_names([brief(name) for name in absent], 2)})",
            remedy="Use an adapter of this architecture",
        )
    if absent:
        names = first_names([brief(name) for name in absent])
        say(f"left out: {len(absent)} changes of matrices that the model does not have: {names}")
    addends: dict[str, list[Addend]] = {}
    problems = []
    settings = _settings(adapter)
    for module, parts in modules.items():
        if module in absent:
            continue
        try:
            for name, addend in _changes(module, parts, places[keys[module]], shapes, settings):
                addends.setdefault(prefix + name, []).append(addend)
        except AdapterError as error:
            problems.append(error.message)
    if problems:
        raise AdapterError("the adapter does not fit the model", problems)
    return addends


def _modules(adapter: Model) -> dict[str, dict[str, Tensor]]:
    """Return the tensors of an adapter by their module, without tensors of text encoders."""
    modules: dict[str, dict[str, Tensor]] = {}
    unmatched = []
    for tensor in adapter.tensors.values():
        match = _PART.fullmatch(tensor.name)
        if _TEXT_ENCODER.match(tensor.name):
            continue
        if match is None:
            unmatched.append(tensor.name)
            continue
        factor = _LETTERS.get(match["factor"] or "", match["factor"] or "")
        part = match["part"] or (f"{factor}_bias" if match["end"] == "bias" else factor)
        modules.setdefault(match["factored"] or match["whole"], {})[part] = tensor
    for part, kind in _OTHER_KINDS.items():
        if any(part in name for name in unmatched):
            raise AdapterError(f"the adapter is a {kind}, which ggufkit does not merge")
    if unmatched or not modules:
        listed = first_names([brief(name) for name in unmatched])
        what = (
            f"{len(unmatched)} tensors that are not factors: {listed}"
            if unmatched
            else "no factors"
        )
        raise AdapterError(f"this is not a LoRA adapter of an image or video model: it has {what}")
    return modules


def _settings(adapter: Model) -> dict[str, Any]:
    """Return PEFT's settings for an adapter; diffusers' settings have a prefix."""
    text = adapter.metadata.get(SETTINGS)
    try:
        settings = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        settings = {}
    if not isinstance(settings, dict):
        return {}
    return {re.sub(r"^(transformer|unet)\.", "", key): value for key, value in settings.items()}


def _base(model: Model) -> tuple[str, Shapes, list[dict[str, _FactorPlace]]]:
    """Return the prefix of a model's names, its shapes, and its places by both spellings."""
    prefix = prefix_of(model.tensors)
    shapes = {
        tensor.name.removeprefix(prefix): original_shape(tensor, model.metadata)
        for tensor in model.tensors.values()
        if tensor.name.startswith(prefix)
    }
    general = model.metadata.text("general.architecture", "")
    architecture = architecture_of(general, shapes) if general else recognize(shapes)
    names = architecture.diffusers if architecture else None
    last = last_blocks(shapes)
    published, diffusers = {}, {}
    for name in shapes:
        stem, _, end = name.rpartition(".")
        if end != "weight":
            continue
        published[stem.replace(".", "_")] = _FactorPlace(name)
        sources = names.sources(name) if names else ()
        for part, source in enumerate(sources):
            key = source.removesuffix(".weight").replace(".", "_")
            is_swapped = names is not None and names.is_swapped(name, last)
            diffusers[key] = _FactorPlace(name, part, len(sources), is_swapped)
    return prefix, shapes, [published, diffusers]


def _changes(
    module: str,
    parts: Mapping[str, Tensor],
    place: _FactorPlace,
    shapes: Shapes,
    settings: Mapping[str, Any],
) -> Iterator[tuple[str, Addend]]:
    bias_place = place._replace(name=place.name.removesuffix("weight") + "bias")
    if "A" in parts or "B" in parts:
        if not {"A", "B"} <= parts.keys():
            raise AdapterError(f"{brief(module)} has only one factor")
        a, b = (_matrix(parts[letter]) for letter in "AB")
        pair = checked(module, a, swapped(b) if place.is_swapped else b)
        pair, scale = _scaled(pair, parts.get("alpha"), settings)
        yield place.name, Addend(pair, scale, _first(pair, place, shapes))
    for part, where in (("diff", place), ("diff_b", bias_place), ("B_bias", bias_place)):
        if part in parts:
            numbers = _matrix(parts[part])
            numbers = swapped(numbers) if place.is_swapped else numbers
            yield where.name, Addend(numbers, 1.0, _first(numbers, where, shapes))


def _matrix(tensor: Tensor) -> Tensor:
    return reshape(tensor, (tensor.shape[0], -1) if len(tensor.shape) > 1 else (-1, 1))


def _scaled(pair: Pair, alpha: Tensor | None, settings: Mapping[str, Any]) -> tuple[Pair, float]:
    """Return a pair and the factor before b @ a."""
    if alpha is None and "lora_alpha" not in settings:
        return pair, 1.0
    if alpha is None:
        number, items = scaled(settings, [pair], lambda _: None, is_mlx=False)
        return next(item for item in items if isinstance(item, Pair)), number / pair.rank
    if alpha.elements != 1:
        raise AdapterError(f"{brief(alpha.name)} of shape {alpha.shape} is not one number")
    number = finite_number(float(alpha.numpy().reshape(-1)[0]), brief(alpha.name), most=MAX_FLOAT32)
    return pair, number / pair.rank


def _first(change: Pair | Tensor, place: _FactorPlace, shapes: Shapes) -> int:
    """Return the first element that a change is added to; AdapterError if it does not fit."""
    if place.name not in shapes:
        raise AdapterError(f"the model has no tensor {place.name}")
    rows = rows_of_parts(place.name, place.parts, shapes)
    columns = math.prod(shapes[place.name][1:])
    if change.shape != (rows[place.part], columns):
        raise AdapterError(
            f"{place.name}: the model's shape is {[rows[place.part], columns]}, the adapter's is "
            f"{list(change.shape)}"
        )
    return sum(rows[: place.part]) * columns
