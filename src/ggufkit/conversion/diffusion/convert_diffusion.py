"""Converts image and video models with the bytes of ComfyUI-GGUF's script, or of `sd --convert`.

The first gives one diffusion model with keys; the second (stable-diffusion.cpp) a whole checkpoint
or one part of it, without keys. Source: `handle_tensors` of ComfyUI-GGUF's `tools/convert.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

import ggufkit._toml as _toml
from ggufkit.conversion.checkpoint.bitsandbytes import STATE_MARK, bitsandbytes
from ggufkit.conversion.checkpoint.comfy_quant import comfy_quant, is_comfy_quant
from ggufkit.conversion.checkpoint.dequantize import dequantize, scaled
from ggufkit.conversion.checkpoint.safetensors import F8_E4M3, F8_E5M2, U8
from ggufkit.conversion.diffusion.checkpoint_files import (
    SD_CPP,
    DiffusionFiles,
    open_diffusion_files,
)
from ggufkit.conversion.diffusion.rename import with_published_names
from ggufkit.conversion.tensors.arithmetic import AnyFloats
from ggufkit.conversion.tensors.moves import renamed, reshape
from ggufkit.diffusion.architecture import (
    MODEL,
    DiffusionArchitecture,
    architectures,
    incomplete_parts,
    parts_of,
    prefix_of,
    recognize,
    unknown_architecture,
)
from ggufkit.diffusion.pipeline_facts import SHAPE_KEY
from ggufkit.errors import CheckpointError, ValueTypeError, brief
from ggufkit.format.file_types import (
    FILE_TYPE_KEY,
    NUMBER_OF,
    QUANTIZATION_VERSION,
    VERSION_KEY,
)
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import tensor_type
from ggufkit.models.model import Model, Tensor, Tensors, as_ggml_counts
from ggufkit.models.rows import ComputedRows, closing_on_error
from ggufkit.models.sources import from_array, retyped
from ggufkit.quantization.quantize import quantize
from ggufkit.system.mapped_file import Bytes

SMALL_ELEMENTS: Final = 1024  # tensors of at most this size stay in F32
MIN_RESHAPED_ELEMENTS: Final = 512
RESHAPED_WIDTH: Final = 256  # of a superblock
MAX_AXES: Final = 4  # of ggml; tensors with more axes are stored in F32
_INFINITE_BITS: Final = 0x7C00  # the exponent of infinities and NaN in F16
OUTTYPES: Final[dict[str, str | None]] = {"auto": None, "f16": "F16", "bf16": "BF16", "f32": "F32"}


def convert_diffusion(
    place: Path,
    part: str | None = None,
    *,
    outtype: str = "auto",
    arch: str | None = None,
    follow_links: bool = False,
) -> Model:
    """Return the image or video model in a file or a folder of diffusers as a lazy model.

    A whole checkpoint may contain other parts, which ComfyUI-GGUF does not read. `arch` names the
    architecture instead of recognizing it, as a stem of `architectures()`. `follow_links` allows
    links in a folder that lead out of it.
    Raises CheckpointError for anything that is not a whole, known diffusion model.
    """
    kind = _outtype_of(outtype)
    if part not in (None, MODEL):
        raise CheckpointError(
            f"ComfyUI-GGUF does not read {brief(part)} of a checkpoint as GGUF",
            remedy=f"Use `--for {SD_CPP}`, or ComfyUI's own loader of safetensors",
        )
    source = open_diffusion_files(place, follow_links=follow_links)
    with closing_on_error(*(file.close for file in source.files)):
        tensors = _decoded(source)
        architecture = _architecture(place, tensors, arch)
        ordered = _in_order(tensors, architecture)
        stored = [_for_comfyui(tensor, architecture, kind) for tensor in ordered]
        most = Counter(tensor.type.name for tensor in tensors).most_common(1)[0][0]
        main = kind or ("BF16" if most == "BF16" else "F16")
        metadata = {
            "general.architecture": architecture.architecture,
            VERSION_KEY: np.uint32(QUANTIZATION_VERSION),
            FILE_TYPE_KEY: np.uint32(NUMBER_OF[main]),
            **{
                f"{SHAPE_KEY}{before.name}": np.array(before.shape, np.int32)
                for before, after in zip(ordered, stored, strict=True)
                if before.shape != after.shape
            },
        }
        return Model(Metadata(metadata), Tensors(stored)).reading(source.files)


def _outtype_of(outtype: str) -> str | None:
    """Return the type of matrices, None for the source's."""
    if outtype not in OUTTYPES:
        raise ValueTypeError(
            f"image and video models cannot be converted to {outtype}",
            remedy=f"Use one of {', '.join(OUTTYPES)}, and quantize in the same command",
        )
    return OUTTYPES[outtype]


def _decoded(source: DiffusionFiles) -> list[Tensor]:
    """Return the tensors of the diffusion model with the publisher's names, weights decoded."""
    prefix = prefix_of({tensor.name: tensor for tensor in source.tensors})
    own = (
        replace(tensor, name=tensor.name.removeprefix(prefix))
        for tensor in source.tensors
        if tensor.name.startswith(prefix)
    )
    tensors = dequantize(own, source.config).tensors
    by_name = {tensor.name: tensor for tensor in tensors}
    prefix = prefix_of(dict.fromkeys(source.layers))
    layers = {name.removeprefix(prefix): value for name, value in source.layers.items()}
    if any(STATE_MARK in name for name in by_name):
        tensors = bitsandbytes(by_name)
    elif layers or is_comfy_quant(by_name):
        tensors = comfy_quant(by_name, layers)
    return with_published_names(tensors)


def _architecture(place: Path, tensors: list[Tensor], arch: str | None) -> DiffusionArchitecture:
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    if arch is not None:
        if arch not in architectures():
            raise ValueTypeError(
                f"unknown architecture {brief(arch)}",
                remedy=f"Use one of {', '.join(architectures())}",
            )
        return architectures()[arch]
    architecture = recognize(shapes)
    if architecture is None:
        raise unknown_architecture(str(place), shapes)
    if problems := incomplete_parts(architecture, shapes):
        raise CheckpointError(
            f"{place} is not one whole model", problems, remedy="Download all its files again"
        )
    return architecture


def _in_order(tensors: Iterable[Tensor], architecture: DiffusionArchitecture) -> list[Tensor]:
    """Return the tensors to write: a tensor with more than four axes comes after its bias."""
    dropped = architecture.dropped
    written = {t.name: t for t in tensors if not any(part in t.name for part in dropped)}
    large = {name: tensor for name, tensor in written.items() if len(tensor.shape) > MAX_AXES}
    ordered: list[Tensor] = []
    for name, tensor in written.items():
        if len(tensor.shape) > MAX_AXES:
            continue
        ordered.append(tensor)
        weight = name.replace(".bias", ".weight")
        if weight in large:
            ordered.append(large.pop(weight))
    return [*ordered, *large.values()]


_FOR_SD_CPP: Final = _toml.read(__file__, "sd_cpp.toml")


def convert_for_sd_cpp(
    place: Path, part: str | None = None, *, outtype: str = "auto", follow_links: bool = False
) -> Model:
    """Return all tensors of a checkpoint, or of one `part`, as a lazy model without keys.

    A part has the names that stable-diffusion.cpp expects in a file of its own, a whole checkpoint
    keeps its names. Raises CheckpointError for a part that it does not contain, and for types that
    stable-diffusion.cpp cannot store.
    """
    kind = _outtype_of(outtype)
    source = open_diffusion_files(place, follow_links=follow_links)
    with closing_on_error(*(file.close for file in source.files)):
        tensors = _tensors(place, source, part)
        unused = tuple(_FOR_SD_CPP["unused"])
        used = [t for t in tensors if not t.name.startswith(unused) and t.type != U8]
        stored = [_for_sd_cpp(tensor) for tensor in used]
        if not stored:
            raise CheckpointError(f"{place} contains no tensors", remedy="Download it again")
        stored.sort(key=lambda tensor: tensor.name.encode(errors="surrogatepass"))
        model = Model(Metadata({}), Tensors(stored)).reading(source.files)
        return quantize(model, kind) if kind else model


def _tensors(place: Path, source: DiffusionFiles, part: str | None) -> list[Tensor]:
    if place.is_dir():
        return _decoded(source)
    by_name = {tensor.name: tensor for tensor in source.tensors}
    tensors = list(source.tensors)
    if source.layers or is_comfy_quant(by_name):
        tensors = [
            tensor if by_name[tensor.name].type == tensor.type else _cast(tensor, "F16")
            for tensor in comfy_quant(by_name, source.layers)
        ]
    if part is None:
        return tensors
    parts = parts_of(by_name)
    if part not in parts:
        raise CheckpointError(
            f"{place} has no part {brief(part)}",
            remedy=f"Use one of {', '.join(parts)}" if parts else "Leave out the part",
        )
    return [
        renamed(tensor, tensor.name.removeprefix(parts[part]))
        for tensor in tensors
        if tensor.name.startswith(parts[part])
    ]


def _for_sd_cpp(tensor: Tensor) -> Tensor:
    """Return a tensor in a type and with at most the axes that ggml has."""
    kind = _FOR_SD_CPP["stored"].get(tensor.type.name)
    if kind is None:
        raise CheckpointError(
            f"{brief(tensor.name)} is {tensor.type}, which stable-diffusion.cpp cannot store",
            remedy="Use a checkpoint in F32, F16, BF16 or FP8",
        )
    if kind in ("F32", "F16", "BF16"):
        tensor = _cast(tensor, kind)
    elif tensor.type.name != kind:
        tensor = retyped(tensor, tensor_type("I32"))
    extra = len(tensor.shape) - MAX_AXES
    if extra > 0:
        tensor = reshape(tensor, (math.prod(tensor.shape[: extra + 1]), *tensor.shape[extra + 1 :]))
    return as_ggml_counts(tensor)


@dataclass(frozen=True, eq=False)
class Half(ComputedRows):
    """Rows of another tensor as F16; numbers beyond the range of F16 are refused."""

    tensor: Tensor

    def read(self, start: int, stop: int) -> Bytes:
        """Return rows as F16; ValueTypeError for NaN, and finite numbers that become infinite."""
        numbers = self._rows(start, stop)
        halves = numbers.view(np.uint16)
        if (halves & _INFINITE_BITS == _INFINITE_BITS).any():
            self._require_same(halves, start, stop)
        return numbers

    def _rows(self, start: int, stop: int) -> Bytes:
        if self.tensor.type.name in ("F32", "BF16"):
            return retyped(self.tensor, tensor_type("F16")).source.read(start, stop)
        data = np.ascontiguousarray(self.tensor.source.read(start, stop))
        with np.errstate(over="ignore"):
            return data.view(np.dtype(self.tensor.type.dtype)).astype(np.float16).view(np.uint8)

    def _require_same(self, halves: AnyFloats, start: int, stop: int) -> None:
        rows = retyped(self.tensor, tensor_type("F32")).source.read(start, stop)
        before = rows.view(np.float32)
        after = halves.view(np.float16)
        lost = np.argwhere(~np.isfinite(after) & ~np.isinf(before))
        if len(lost):
            row, column = map(int, lost[0])
            number = before[row, column]
            raise ValueTypeError(
                f"tensor {self.tensor.name!r} holds {number:g} in row {start + row}, "
                f"column {column}, which F16 cannot hold",
                remedy="The checkpoint is damaged: download it again"
                if np.isnan(number)
                else "Convert with `--outtype bf16` or `--outtype f32`",
            )


def _for_comfyui(
    tensor: Tensor, architecture: DiffusionArchitecture, outtype: str | None = None
) -> Tensor:
    """Return a tensor as it is stored; `outtype` is F16, BF16 or F32, None for the source's.

    Raises CheckpointError for a tensor of a packed type without scales.
    """
    if len(tensor.shape) > MAX_AXES:
        return _cast(tensor, "F32")
    is_small = len(tensor.shape) == 1 or tensor.elements <= SMALL_ELEMENTS
    is_precise = is_small or any(part in tensor.name for part in architecture.precise)
    kind = outtype or ("BF16" if tensor.type.name == "BF16" else "F16")
    output = _cast(tensor, "F32" if tensor.type.name in ("F32", "BF16") and is_precise else kind)
    is_reshaped = (
        architecture.rows_of_256
        and len(tensor.shape) > 1
        and tensor.elements >= MIN_RESHAPED_ELEMENTS
        and tensor.elements % RESHAPED_WIDTH == 0
        and tensor.shape[-1] % RESHAPED_WIDTH != 0
    )
    return reshape(output, (-1, RESHAPED_WIDTH)) if is_reshaped else output


def _cast(tensor: Tensor, kind: str) -> Tensor:
    """Return a tensor in the float type `kind`; numbers that F16 cannot hold are refused.

    Raises CheckpointError for a packed type.
    """
    if tensor.type.name == kind:
        return tensor
    if tensor.type in (F8_E4M3, F8_E5M2):
        tensor = scaled(tensor, from_array("scale", np.ones(1, np.float32)))
    if tensor.type.dtype is None and tensor.type.name != "BF16":
        raise CheckpointError(f"{tensor.name} is of type {tensor.type}, which needs scales")
    target = tensor_type(kind)
    if kind == "F16":
        return Tensor.over(tensor.name, target, tensor.shape, Half(tensor))
    if tensor.type.name not in ("F32", "F16", "BF16"):
        tensor = Tensor.over(tensor.name, tensor_type("F16"), tensor.shape, Half(tensor))
    return retyped(tensor, target)
