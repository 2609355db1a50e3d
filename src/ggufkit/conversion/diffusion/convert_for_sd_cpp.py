"""Converts a checkpoint, or one part of it, with the bytes of stable-diffusion.cpp's `convert`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ggufkit.conversion.checkpoint.comfy_quant import comfy_quant, is_comfy_quant
from ggufkit.conversion.checkpoint.safetensors import F8_E4M3, F8_E5M2, U8
from ggufkit.conversion.diffusion.checkpoint_files import DiffusionFiles, open_diffusion_files
from ggufkit.conversion.diffusion.convert_diffusion import decoded_tensors, outtype_of
from ggufkit.conversion.diffusion.storage import MAX_AXES, cast
from ggufkit.conversion.tensors.moves import renamed, reshape
from ggufkit.diffusion.architecture import parts_of
from ggufkit.errors import CheckpointError, brief
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import tensor_type
from ggufkit.models.model import Model, Tensor, Tensors, as_ggml_counts
from ggufkit.models.rows import closing_on_error
from ggufkit.models.sources import retyped
from ggufkit.quantization.quantize import quantize

# Beginnings of names that it leaves out.
_UNUSED: Final = (
    "betas", "alphas_cumprod_prev", "sqrt_alphas_cumprod", "sqrt_one_minus_alphas_cumprod",
    "log_one_minus_alphas_cumprod", "sqrt_recip_alphas_cumprod", "sqrt_recipm1_alphas_cumprod",
    "posterior_variance", "posterior_log_variance_clipped", "posterior_mean_coef1",
    "posterior_mean_coef2", "cond_stage_model.transformer.text_model.embeddings.position_ids",
    "cond_stage_model.1.model.text_model.embeddings.position_ids",
    "cond_stage_model.transformer.vision_model.embeddings.position_ids",
    "cond_stage_model.model.logit_scale",
    "conditioner.embedders.0.transformer.text_model.embeddings.position_ids",
    "conditioner.embedders.0.model.logit_scale", "conditioner.embedders.1.model.logit_scale",
    "model.diffusion_model.time_embedding.cond_proj.weight",
    "unet.time_embedding.cond_proj.weight", "model_ema.decay", "model_ema.num_updates",
    "model_ema.diffusion_model", "embedding_manager", "denoiser.sigmas",
    "text_encoders.t5xxl.transformer.encoder.embed_tokens.weight", "ztsnr", "edm_vpred.sigma_min",
    "text_encoders.llm.output.weight", "text_encoders.llm.lm_head.", "first_stage_model.bn.",
)  # fmt: skip
# The types that it stores; others are left out (None) or refused.
_STORED: Final = {
    **{kind: kind for kind in ("F32", "F16", "BF16", "I32")},
    "F64": "F32",
    "I64": "I32",
    F8_E4M3.name: "F16",
    F8_E5M2.name: "F16",
    U8.name: None,
}


def convert_for_sd_cpp(
    place: Path, part: str | None = None, *, outtype: str = "auto", follow_links: bool = False
) -> Model:
    """Return all tensors of a checkpoint, or of one `part`, as a lazy model without keys.

    A part has the names that stable-diffusion.cpp expects in a file of its own, a whole checkpoint
    keeps its names. Raises CheckpointError for a part that it does not contain, and for types that
    stable-diffusion.cpp cannot store.
    """
    kind = outtype_of(outtype)
    source = open_diffusion_files(place, follow_links=follow_links)
    with closing_on_error(*(file.close for file in source.files)):
        tensors = _tensors(place, source, part)
        stored = [_stored(t) for t in tensors if _is_stored(t)]
        if not stored:
            raise CheckpointError(f"{place} contains no tensors", remedy="Download it again")
        stored.sort(key=lambda tensor: tensor.name.encode(errors="surrogatepass"))
        model = Model(Metadata({}), Tensors(stored)).reading(source.files)
        return quantize(model, kind) if kind else model


def _tensors(place: Path, source: DiffusionFiles, part: str | None) -> list[Tensor]:
    if place.is_dir():
        return decoded_tensors(source)
    by_name = {tensor.name: tensor for tensor in source.tensors}
    tensors = list(source.tensors)
    if source.layers or is_comfy_quant(by_name):
        tensors = [
            tensor if by_name[tensor.name].type == tensor.type else cast(tensor, "F16")
            for tensor in comfy_quant(by_name, source.layers)
        ]
    if part is None:
        return tensors
    prefix = prefix_of_part(place, by_name, part)
    return [
        renamed(tensor, tensor.name.removeprefix(prefix))
        for tensor in tensors
        if tensor.name.startswith(prefix)
    ]


def prefix_of_part(place: Path, names: Iterable[str], part: str) -> str:
    """Return the prefix of the names of a part; CheckpointError if the checkpoint lacks it."""
    parts = parts_of(names)
    if part not in parts:
        raise CheckpointError(
            f"{place} has no part {brief(part)}",
            remedy=f"Use one of {', '.join(parts)}" if parts else "Leave out the part",
        )
    return parts[part]


def _is_stored(tensor: Tensor) -> bool:
    """Whether it writes a tensor of this name and type; CheckpointError if it refuses the type."""
    if tensor.name.startswith(_UNUSED):
        return False
    if tensor.type.name not in _STORED:
        raise CheckpointError(
            f"{brief(tensor.name)} is {tensor.type}, which stable-diffusion.cpp cannot store",
            remedy="Use a checkpoint in F32, F16, BF16 or FP8",
        )
    return _STORED[tensor.type.name] is not None


def _stored(tensor: Tensor) -> Tensor:
    """Return a tensor in a type and with at most the axes that ggml has."""
    kind = _STORED[tensor.type.name]
    if kind in ("F32", "F16", "BF16"):
        tensor = cast(tensor, kind)
    elif tensor.type.name != kind:
        tensor = retyped(tensor, tensor_type("I32"))
    extra = len(tensor.shape) - MAX_AXES
    if extra > 0:
        tensor = reshape(tensor, (math.prod(tensor.shape[: extra + 1]), *tensor.shape[extra + 1 :]))
    return as_ggml_counts(tensor)
