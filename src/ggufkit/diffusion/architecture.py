"""Recognizes image and video models by the names and shapes of their tensors.

Each model has a TOML file in `files`. Sources: `tools/convert.py` and `tools/lcpp.patch` of
ComfyUI-GGUF for the models it knows, and the model detection of ComfyUI, stable-diffusion.cpp and
diffusers for all others. Parts of a pipeline: `name_conversion.cpp` of stable-diffusion.cpp, and
the checkpoints that ComfyUI saves.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from ggufkit.diffusion.diffusers_names import DiffusersNames, diffusers_names
from ggufkit.errors import CheckpointError, brief

Shapes = Mapping[str, tuple[int, ...]]
SHARED_PREFIXES: Final = ("model.diffusion_model.", "model.")  # some tensors have it
WHOLE_PREFIXES: Final = ("net.",)  # every tensor has it
NEAREST: Final = 3  # architectures in an error message


@dataclass(frozen=True)
class DiffusionArchitecture:
    """One image or video model, and which of its tensors are special.

    `architecture` is the value of `general.architecture`. `names` lists alternatives: the model is
    recognized if it has all tensors of one of them, and the lengths in `shapes` (name, axis,
    length). `kept` are parts of names, and `kept_names` whole names, of tensors that are not
    quantized. `precise` are parts of names of tensors in F32, `dropped` of tensors that are not
    written. `leading_ones` are patterns of tensors that keep their leading axes of length 1. With
    `rows_of_256`, tensors whose rows do not divide by 256 are stored in rows of 256 elements.
    `diffusers` are the names of diffusers for the same tensors. `input` is the first tensor and the
    side of its patches, `positions` the tensor of learned positions. `loaders` read files of it.
    """

    stem: str
    title: str
    architecture: str
    names: tuple[tuple[str, ...], ...]
    shapes: tuple[tuple[str, int, int], ...] = ()
    prefixes: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    kept_names: tuple[str, ...] = ()
    precise: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    leading_ones: tuple[str, ...] = ()
    rows_of_256: bool = False
    input: tuple[str, int] | None = None
    positions: str = ""
    loaders: tuple[str, ...] = ()
    diffusers: DiffusersNames | None = None

    def matched(self, shapes: Shapes) -> int:
        """Return how many facts of this architecture match, 0 if the model is another one."""
        if any(shapes.get(name, ())[axis : axis + 1] != (n,) for name, axis, n in self.shapes):
            return 0
        counts = [len(names) for names in self.names if all(name in shapes for name in names)]
        return max(counts) + len(self.shapes) if counts else 0

    def is_kept(self, name: str) -> bool:
        """Whether a tensor of this name is not quantized."""
        return name in self.kept_names or any(part in name for part in self.kept)

    def keeps_ones(self, name: str) -> bool:
        """Whether a tensor of this name keeps its leading axes of length 1 when it is quantized."""
        return any(fnmatchcase(name, pattern) for pattern in self.leading_ones)


@functools.cache
def architectures() -> dict[str, DiffusionArchitecture]:
    """Return all architectures by the stem of their file."""
    return {stem: _architecture(stem, text) for stem, text in _texts().items()}


@functools.cache
def _texts() -> dict[str, str]:
    files = sorted((Path(__file__).parent / "files").glob("*.toml"))
    return {file.stem: file.read_text("utf-8") for file in files}


def _architecture(stem: str, text: str) -> DiffusionArchitecture:
    import ggufkit._toml as _toml  # noqa: PLC0415 (slow to import, and most models need none)

    table = _toml.loads(text)
    lists = {key: tuple(value) for key, value in table.items() if isinstance(value, list)}
    for key in ("names", "shapes"):
        lists[key] = tuple(tuple(row) for row in table.get(key, ()))
    if "diffusers" in table:
        table["diffusers"] = diffusers_names(table["diffusers"])
    return DiffusionArchitecture(stem, **{**table, **lists})


@functools.cache
def general_names() -> frozenset[str]:
    """Return the values of `general.architecture` that mean a diffusion model.

    This line of each file is found without parsing all files.
    """
    return frozenset(re.findall(r'(?m)^architecture = "(.+)"$', "\n".join(_texts().values())))


def recognize(shapes: Shapes) -> DiffusionArchitecture | None:
    """Return the architecture of tensors with these names and shapes, None if it is unknown.

    The names have no prefix (see `prefix_of`). If several match, the one with most facts wins.
    """
    best = max(architectures().values(), key=lambda arch: arch.matched(shapes))
    return best if best.matched(shapes) else None


def architecture_of(general: str, shapes: Shapes) -> DiffusionArchitecture | None:
    """Return the architecture of a GGUF file whose `general.architecture` is `general`.

    None if that is not a diffusion model. A file may lack tensors by which a model is recognized:
    it gets the architecture with that name.
    """
    base = base_architecture(general)
    recognized = recognize(shapes) if base else None
    return recognized if recognized and recognized.architecture == general else base


@functools.cache
def base_architecture(general: str) -> DiffusionArchitecture | None:
    """Return the architecture called `general`, the one with the fewest facts; None if unknown."""
    if general not in general_names():  # found without parsing the files
        return None
    candidates = [arch for arch in architectures().values() if arch.architecture == general]
    return min(candidates, key=lambda arch: (len(arch.names[0]), len(arch.shapes)), default=None)


def prefix_of(names: Mapping[str, object]) -> str:
    """Return the prefix of the names of a diffusion model in a checkpoint, "" if it has none."""
    special = {prefix for arch in architectures().values() for prefix in arch.prefixes}
    for prefix in (*sorted(special, reverse=True), *SHARED_PREFIXES):
        if any(name.startswith(prefix) for name in names):
            return prefix
    return next((p for p in WHOLE_PREFIXES if all(name.startswith(p) for name in names)), "")


MODEL: Final = "model"
_TEXT_ENCODER: Final = re.compile(r"text_encoders\.(\w{1,64})\.transformer\.")


@functools.cache
def _parts() -> dict[str, Any]:
    """Return the parts of pipelines, and other files of tensors, by the names of tensors."""
    import ggufkit._toml as _toml  # noqa: PLC0415 (slow to import, and most models need none)

    return _toml.read(__file__, "parts.toml")


def parts_of(names: Iterable[str]) -> dict[str, str]:
    """Return the parts that a whole checkpoint contains, and the prefix of each in its names."""
    listed = dict.fromkeys(names)
    model = prefix_of(listed)
    parts = {MODEL: model} if model else {}
    prefixes = _parts()["prefixes"].items()
    for name in listed:
        encoder = _TEXT_ENCODER.match(name)
        if encoder:
            parts[encoder[1]] = encoder[0]
        parts |= {part: prefix for prefix, part in prefixes if name.startswith(prefix)}
    return parts


def is_diffusion(general: str, names: Iterable[str]) -> bool:
    """Whether a GGUF file with this `general.architecture` and these names is a diffusion model.

    The files of stable-diffusion.cpp have no such key, and may be any part of a pipeline.
    """
    if general:
        return general in general_names()
    return is_without_keys(names)


def is_without_keys(names: Iterable[str]) -> bool:
    """Whether stable-diffusion.cpp reads tensors of these names from a file without keys."""
    listed = dict.fromkeys(names, ())
    prefix = prefix_of(listed)
    if recognize({name.removeprefix(prefix): () for name in listed}) is not None:
        return True
    has_parts = bool(parts_of(listed).keys() - {MODEL})
    return has_parts or any(name.startswith(tuple(_parts()["marks"])) for name in listed)


_NUMBER: Final = re.compile(r"\d+")
_BLOCK: Final = re.compile(r"(\w*(?:blocks|layers))\.(\d{1,4})\.")
_SPARSE: Final = ("input_blocks", "output_blocks")  # of a U-Net, whose numbers may leave gaps


def unknown_architecture(place: str, shapes: Shapes) -> CheckpointError:
    """Return the error for tensors that match no architecture; it shows the nearest ones."""
    for part, (kind, remedy) in _parts()["others"].items():
        if any(part in name for name in shapes):
            return CheckpointError(f"{place} is {kind}, not an image or video model", remedy=remedy)
    if not shapes:
        return CheckpointError(f"{place} contains no tensors", remedy="Download it again")
    patterns = {_NUMBER.sub("0", name) for name in shapes}
    lacks = []
    for candidate in architectures().values():
        for names in candidate.names:
            missing = [name for name in names if name not in shapes]
            similar = sum(_NUMBER.sub("0", name) in patterns for name in names)
            if similar:
                lacks.append((-similar / len(names), len(missing), candidate.stem, missing))
    nearest = [
        f"{stem} lacks {', '.join(missing[:2])}" for *_, stem, missing in sorted(lacks)[:NEAREST]
    ]
    nearest = nearest or [f"no known model has a tensor {brief(next(iter(shapes)))}"]
    stems = ", ".join(architectures())
    return CheckpointError(
        f"{place} is not an image or video model that ggufkit knows",
        nearest,
        remedy=f"If a part of it is missing, download it again; if it is one of these, name it "
        f"with `--arch`: {stems}",
    )


def incomplete_parts(arch: DiffusionArchitecture, shapes: Shapes) -> list[str]:
    """Return the signs that tensors are not one whole model: missing blocks, a second model."""
    numbers: dict[str, set[int]] = {}
    for name in shapes:
        if (block := _BLOCK.match(name)) and block[1] not in _SPARSE:
            numbers.setdefault(block[1], set()).add(int(block[2]))
    missing = {family: set(range(max(blocks))) - blocks for family, blocks in numbers.items()}
    problems = [f"{family}.{min(lost)} is missing" for family, lost in missing.items() if lost]
    own_names = {name for row in arch.names for name in row}
    for other in architectures().values():
        is_kin = other.architecture == arch.architecture or (other.rows_of_256 and arch.rows_of_256)
        rows = [row for row in other.names if shapes.keys() >= set(row)]
        if not is_kin and other.matched(shapes) and any(not own_names >= {*row} for row in rows):
            problems.append(f"it has tensors of {arch.title} and of {other.title}")
    return problems
