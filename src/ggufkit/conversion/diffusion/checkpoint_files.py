"""Opens the files of an image or video model: one file, or a folder of diffusers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from ggufkit.conversion.checkpoint.folder import CheckpointFolder
from ggufkit.conversion.checkpoint.pytorch import read_pytorch
from ggufkit.conversion.checkpoint.safetensors import read_notes, read_tensors
from ggufkit.errors import CheckpointError, ValueTypeError, brief
from ggufkit.models.model import Tensor
from ggufkit.models.remote_resolvers import files_of, is_remote
from ggufkit.models.rows import AnyFile, closing_on_error
from ggufkit.remote.range_file import RangeFile
from ggufkit.remote.url import UrlPath
from ggufkit.system.descriptors import AnyPath
from ggufkit.system.mapped_file import MappedFile

SAFETENSORS: Final = (".safetensors", ".sft")
PYTORCH: Final = (".ckpt", ".pt", ".pth", ".bin")
TENSOR_FILES: Final = (*SAFETENSORS, *PYTORCH)
INDEX: Final = "model_index.json"  # of a pipeline of diffusers
COMFYUI: Final = "comfyui"
SD_CPP: Final = "sd.cpp"
LOADERS: Final = (COMFYUI, SD_CPP)
_CLIP: Final = (["CLIPTextModel"], ["CLIPTextModelWithProjection"])
DENOISERS: Final = ("transformer", "unet", "prior")  # folders of the diffusion model in a pipeline
_LAYERS: Final = "_quantization_metadata"  # of ComfyUI, in the header of a file
_COUNT: Final = re.compile(r"-\d{5}-of-(\d{5})(?=\.\w+$)")  # of shards
MAX_REMOTE_SHARDS: Final = 1000
_SHARD: Final = re.compile(
    r"(diffusion_pytorch_)?model(\.(?P<variant>\w+))?(-\d{5}-of-(?P<count>\d{5}))?"
    r"\.(?P<kind>safetensors|bin)"
)


class DiffusionFiles(NamedTuple):
    """The tensors of a diffusion model in the order of its files, its files and config.json.

    `layers` has the settings of layers that are quantized for ComfyUI, if the header has them.
    """

    tensors: list[Tensor]
    files: tuple[AnyFile, ...]
    config: dict[str, Any]
    layers: dict[str, Any]


def place_of(name: AnyPath) -> Path:
    """Return where a model is: a UrlPath for a file of tensors on a server or on the Hub.

    Names with a query, which may be a secret, are not such.
    """
    text = os.fsdecode(name)
    is_file = is_remote(text) and text.lower().endswith(SAFETENSORS)
    return UrlPath(text) if is_file else Path(text)


def is_diffusion_source(place: Path, loader: str = COMFYUI) -> bool:
    """Whether a path is a file of tensors or a folder of diffusers.

    CLIP in a folder of transformers is one too: llama.cpp, whose text models the other text
    encoders are, lacks it.
    """
    if loader not in LOADERS:
        raise ValueTypeError(
            f"unknown loader {brief(loader)}", remedy=f"Use one of {', '.join(LOADERS)}"
        )
    if place.is_file() or isinstance(place, UrlPath):
        return place.suffix.lower() in TENSOR_FILES
    if (place / INDEX).is_file():
        return True
    has_config = (place / "config.json").is_file()
    config = (CheckpointFolder(place).json("config.json") or {}) if has_config else {}
    return bool(config.get("_class_name")) or config.get("architectures") in _CLIP


def folder_of_part(place: Path, part: str) -> Path:
    """Return the folder of a part of a pipeline of diffusers; CheckpointError if it lacks it."""
    folders = sorted(path.parent.name for path in place.glob("*/config.json"))
    if part not in folders or not (place / INDEX).is_file():
        raise CheckpointError(
            f"{place} has no part {brief(part)}",
            remedy=f"Use one of {', '.join(folders)}" if folders else "Give the folder of the part",
        )
    return place / part


def open_diffusion_files(place: Path, *, follow_links: bool = False) -> DiffusionFiles:
    """Open a file, or the diffusion model in a folder of diffusers.

    Raises CheckpointError, whose `problems` list everything wrong, and OSError as `open` does.
    """
    folder = _model_folder(place) if place.is_dir() else place.parent
    paths = _shards(folder, follow_links=follow_links) if place.is_dir() else [place]
    config = (CheckpointFolder(folder).json("config.json") or {}) if place.is_dir() else {}
    sources = _remote_shards(place) if isinstance(place, UrlPath) else paths
    files = tuple(MappedFile(file) if isinstance(file, Path) else file for file in sources)
    tensors: list[Tensor] = []
    layers: dict[str, Any] = {}
    with closing_on_error(*(file.close for file in files)):
        for file in files:
            stored, problems = _tensors(file)
            twice = {tensor.name for tensor in tensors} & {tensor.name for tensor in stored}
            if twice:
                problems += [f"another file of it has {brief(min(twice))} too"]
            if problems:
                raise CheckpointError(
                    f"{file.path} cannot be read",
                    problems,
                    remedy="If it is cut short or of another model, download it again",
                )
            tensors += stored
            layers |= _quantized_layers(file)
    return DiffusionFiles(tensors, files, config, layers)


def _remote_shards(place: UrlPath) -> Iterator[Path | RangeFile]:
    """Yield a file on a server, or all shards of its set if it is named as a shard."""
    count = _COUNT.search(place.name)
    for number in range(1, min(int(count[1]), MAX_REMOTE_SHARDS) + 1 if count else 2):
        name = f"-{number:05}-of-{count[1]}" if count else ""
        yield from files_of(_COUNT.sub(name, str(place)))


def _shards(folder: Path, *, follow_links: bool) -> list[Path]:
    """Return the files of a model in a folder of diffusers; without a variant, if possible.

    Raises CheckpointError for a folder without files, or with shards missing.
    """
    variants: dict[str, list[Path]] = {}
    counts: dict[str, int] = {}
    for path in sorted(folder.iterdir()):
        if match := _SHARD.fullmatch(path.name):
            variant = f"{match['variant'] or ''}.{match['kind']}"
            variants.setdefault(variant, []).append(path)
            counts[variant] = int(match["count"] or 1)
    order = sorted(variants, key=lambda name: (name.endswith(".bin"), name))
    if not order or len(variants[order[0]]) != counts[order[0]]:
        has = len(variants[order[0]]) if order else 0
        raise CheckpointError(
            f"{folder} has {has} of the {counts[order[0]] if order else 1} files that contain its "
            "tensors",
            remedy="Download the folder again",
        )
    place = CheckpointFolder(folder, follow_links=follow_links)
    return [file for shard in variants[order[0]] if (file := place.path(shard.name))]


def _model_folder(place: Path) -> Path:
    if not (place / INDEX).is_file():
        return place
    for name in DENOISERS:
        if (place / name / "config.json").is_file():
            return place / name
    raise CheckpointError(
        f"{place} has none of the folders {', '.join(DENOISERS)}",
        remedy="Give the folder of one part of the pipeline",
    )


def _tensors(file: AnyFile) -> tuple[list[Tensor], list[str]]:
    if isinstance(file, MappedFile) and file.path.suffix.lower() in PYTORCH:
        return read_pytorch(file)
    tensors, problems = read_tensors(file)
    return sorted(tensors, key=lambda tensor: tensor.offset or 0), problems


def _quantized_layers(file: AnyFile) -> dict[str, Any]:
    """Return the settings of quantized layers that a file's header contains, by layer."""
    if file.path.suffix.lower() in PYTORCH:
        return {}
    try:
        layers = json.loads(read_notes(file)[_LAYERS])["layers"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return {}
    return layers if isinstance(layers, dict) else {}
