"""Converts an image or video model to a lazy model, with the bytes of ComfyUI-GGUF's script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from ggufkit.conversion.checkpoint.bitsandbytes import STATE_MARK, bitsandbytes
from ggufkit.conversion.checkpoint.comfy_quant import comfy_quant, is_comfy_quant
from ggufkit.conversion.checkpoint.dequantize import decoded
from ggufkit.conversion.diffusion.checkpoint_files import (
    SD_CPP,
    DiffusionFiles,
    open_diffusion_files,
)
from ggufkit.conversion.diffusion.rename import with_published_names
from ggufkit.conversion.diffusion.storage import MAX_AXES, StoredTensor, stored_tensor
from ggufkit.diffusion.architecture import (
    MODEL,
    DiffusionArchitecture,
    architectures,
    incomplete_parts,
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
from ggufkit.models.model import Model, Tensor, Tensors
from ggufkit.models.rows import closing_on_error

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
    kind = outtype_of(outtype)
    if part not in (None, MODEL):
        raise CheckpointError(
            f"ComfyUI-GGUF does not read {brief(part)} of a checkpoint as GGUF",
            remedy=f"Use `--for {SD_CPP}`, or ComfyUI's own loader of safetensors",
        )
    source = open_diffusion_files(place, follow_links=follow_links)
    with closing_on_error(*(file.close for file in source.files)):
        tensors = decoded_tensors(source)
        architecture = _architecture(place, tensors, arch)
        stored = _in_order(tensors, architecture, kind)
        most = Counter(tensor.type.name for tensor in tensors).most_common(1)[0][0]
        main = kind or ("BF16" if most == "BF16" else "F16")
        metadata = {
            "general.architecture": architecture.architecture,
            VERSION_KEY: np.uint32(QUANTIZATION_VERSION),
            FILE_TYPE_KEY: np.uint32(NUMBER_OF[main]),
            **{
                f"{SHAPE_KEY}{entry.tensor.name}": np.array(entry.original_shape, np.int32)
                for entry in stored
                if entry.original_shape
            },
        }
        model = Model(Metadata(metadata), Tensors(entry.tensor for entry in stored))
        return model.reading(source.files)


def outtype_of(outtype: str) -> str | None:
    """Return the type of matrices, None for the source's; ValueTypeError for an unknown one."""
    if outtype not in OUTTYPES:
        raise ValueTypeError(
            f"image and video models cannot be converted to {outtype}",
            remedy=f"Use one of {', '.join(OUTTYPES)}, and quantize in the same command",
        )
    return OUTTYPES[outtype]


def decoded_tensors(source: DiffusionFiles) -> list[Tensor]:
    """Return the tensors of the diffusion model with the publisher's names, weights decoded.

    Raises CheckpointError for weights that cannot be decoded, and names that are unknown.
    """
    prefix = prefix_of({tensor.name: tensor for tensor in source.tensors})
    own = (
        replace(tensor, name=tensor.name.removeprefix(prefix))
        for tensor in source.tensors
        if tensor.name.startswith(prefix)
    )
    tensors = decoded(own, source.config).tensors
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


def _in_order(
    tensors: Iterable[Tensor], architecture: DiffusionArchitecture, outtype: str | None
) -> list[StoredTensor]:
    """Return the tensors to write: a tensor with more than four axes comes after its bias."""
    written = {t.name: t for t in tensors if not architecture.is_dropped(t.name)}
    large = {name: tensor for name, tensor in written.items() if len(tensor.shape) > MAX_AXES}
    ordered: list[Tensor] = []
    for name, tensor in written.items():
        if len(tensor.shape) > MAX_AXES:
            continue
        ordered.append(tensor)
        weight = name.replace(".bias", ".weight")
        if weight in large:
            ordered.append(large.pop(weight))
    return [stored_tensor(tensor, architecture, outtype) for tensor in (*ordered, *large.values())]
