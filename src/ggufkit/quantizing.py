"""Quantize a model: every eligible tensor to one type, as `llama-quantize --pure` does.

Source: `tensor_allows_quantization` and `tensor_type_fallback` in llama.cpp's `llama-quant.cpp`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ggufkit.errors import TensorTypeError
from ggufkit.file_types import NUMBER_OF
from ggufkit.layout import SPLIT_KEYS
from ggufkit.model import Model, Tensor
from ggufkit.sources import retyped
from ggufkit.types import TensorType, tensor_type

TARGETS: Final = ("Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "BF16", "F16", "F32")
FALLBACK: Final = "F16"  # where rows do not divide into the target's blocks
QUANTIZATION_VERSION: Final = 2  # ggml's GGML_QNT_VERSION

# Tensors that stay as they are: small ones, and those whose precision the model hangs on.
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
    ),
}


def quantize(model: Model, type: str | int | TensorType) -> Model:
    """Return `model` with every eligible tensor as `type`; the work is done when it is written.

    `type` is one of TARGETS. A tensor whose rows do not divide into blocks becomes F16, and one
    that is not eligible stays as it is. Tensors that are quantized already are decoded first,
    which loses some quality. Raises TensorTypeError for any other `type`, and for an eligible
    tensor that cannot be decoded.
    """
    target = tensor_type(type)
    if target.name not in TARGETS:
        raise TensorTypeError(
            f"models cannot be quantized to {target}", remedy=f"Use one of {', '.join(TARGETS)}"
        )
    architecture = model.metadata.get("general.architecture")
    kept = KEPT_PARTS + KEPT_PARTS_OF.get(str(architecture), ())
    tensors = [
        retyped(tensor, fitting(tensor, target)) if is_eligible(tensor, kept) else tensor
        for tensor in model.tensors.values()
    ]
    metadata = model.metadata.without(*SPLIT_KEYS).updated(
        {
            "general.quantization_version": np.uint32(QUANTIZATION_VERSION),
            "general.file_type": np.uint32(NUMBER_OF[target.name]),
        }
    )
    return model.replace(metadata=metadata, tensors=tensors)


def is_eligible(tensor: Tensor, kept: tuple[str, ...] = KEPT_PARTS) -> bool:
    """Whether llama.cpp quantizes a tensor of this name and shape; `kept` are parts of names.

    Tensors of integers are not eligible: they hold no weights, and llama.cpp fails on them.
    """
    name = tensor.name
    if (tensor.type.dtype or "").startswith("i"):
        return False
    # Compared as llama.cpp does, for which any name of five characters ends so too.
    if _axes(tensor.shape) < 2 or name.rfind("weight") != len(name) - 6:  # noqa: PLR2004
        return False
    return name not in KEPT_NAMES and not any(part in name for part in kept)


def _axes(shape: tuple[int, ...]) -> int:
    """Return the number of axes from the first on that is longer than 1, as ggml counts them."""
    return next((len(shape) - i for i, length in enumerate(shape[:-1]) if length > 1), 1)


def fitting(tensor: Tensor, target: TensorType) -> TensorType:
    """Return `target`, or the fallback where the tensor's rows do not divide into its blocks."""
    return tensor_type(FALLBACK) if tensor.shape[-1] % target.block_size else target
