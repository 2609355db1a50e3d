"""Which tensors llama-quantize converts: matrices of weights, except those it always keeps.

Source: `tensor_allows_quantization` in llama.cpp's `llama-quant.cpp`.
"""

from __future__ import annotations

import functools
from typing import Final

from ggufkit.diffusion.architecture import base_architecture
from ggufkit.format.types import IK
from ggufkit.models.layers import BLOCK
from ggufkit.models.model import Tensor
from ggufkit.quantization.choice.diffusion_rules import is_quantized_in_diffusion
from ggufkit.quants.kernels import is_integer

CACHED_NAMES: Final = 1 << 14  # of tensors, whose names are the same in every recipe
# Tensors that keep their type: small ones, and those that need full precision.

KEPT_NAMES: Final = ("position_embd.weight", "token_types.weight")
KEPT_PARTS: Final = (
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    # RWKV
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    # T5
    "attn_rel_b.weight",
    # Vision and audio
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
)
KEPT_PARTS_OF: Final = {
    "glm5-next": (
        "hc_",
        "indexer.attn_q_b",
        "indexer.attn_k",
        "indexer.proj",
        "indexer_compressor_gate",
        "indexer_compressor_ape",
        "ssm_f_a.weight",
        "ssm_f_b.weight",
        "ssm_g_a.weight",
        "ssm_g_b.weight",
        "ssm_beta.weight",
        "attn_kv_a_mqa.weight",
        "attn_k_b.weight",
        "attn_v_b.weight",
    )
}
# ik_llama.cpp's llama-quantize keeps only these.
IK_KEPT_PARTS: Final = (
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ssm_conv1d",
    "ssm_x.weight",
    "ssm_dt.weight",
    "attn_rel_b.weight",
)


def is_eligible(tensor: Tensor, architecture: str = "", program: str | None = None) -> bool:
    """Whether llama.cpp, or ik_llama.cpp as `program`, quantizes a tensor of this name and shape.

    Tensors of integers are not eligible: they hold no weights, and llama.cpp fails on them.
    """
    if is_integer(tensor.type) or axes(tensor.shape) < 2:  # noqa: PLR2004
        return False
    if diffusion := base_architecture(architecture):
        return is_quantized_in_diffusion(tensor, diffusion)
    return _has_eligible_name(tensor.name, IK if program else architecture)


def without_layer(name: str) -> str:
    """Return the name without its "blk.N", or the whole name if it has no layer.

    No part that the caller searches for overlaps the prefix.
    """
    match = BLOCK.match(name)
    return name[match.end(1) :] if match else name


@functools.lru_cache(maxsize=CACHED_NAMES)
def _has_eligible_name(name: str, architecture: str) -> bool:
    # llama.cpp compares like this, so it also accepts every name of five characters.
    if name.rfind("weight") != len(name) - 6 or name in KEPT_NAMES:
        return False
    parts: tuple[str, ...] = IK_KEPT_PARTS if architecture == IK else KEPT_PARTS
    parts += KEPT_PARTS_OF.get(architecture, ())
    suffix = without_layer(name)
    return not any(part in suffix for part in parts)


def axes(shape: tuple[int, ...]) -> int:
    """Return the number of axes as ggml counts them: leading axes of length 1 are left out."""
    for i, length in enumerate(shape[:-1]):
        if length > 1:
            return len(shape) - i
    return 1
