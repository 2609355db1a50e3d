"""Tiny draft models, each for a target among the cases: written by the names in the converter."""

from __future__ import annotations

import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import pytorch_file

SIZES: dict[str, Any] = {
    "vocab_size": 416, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
    "hidden_act": "silu", "rope_theta": 10000.0, "torch_dtype": "bfloat16",
}  # fmt: skip
SOME = 100  # tokens that a draft model may choose from
FEED_FORWARD = {
    "mlp.gate_proj.weight": (96, 64), "mlp.up_proj.weight": (96, 64),
    "mlp.down_proj.weight": (64, 96), "post_attention_layernorm.weight": (64,),
}  # fmt: skip
EAGLE_LAYER = {
    "input_layernorm.weight": (64,), "hidden_norm.weight": (64,), **FEED_FORWARD,
    "self_attn.q_proj.weight": (64, 128), "self_attn.k_proj.weight": (32, 128),
    "self_attn.v_proj.weight": (32, 128), "self_attn.o_proj.weight": (64, 64),
}  # fmt: skip
EAGLE = {
    "fc.weight": (64, 192), "norm.weight": (64,), "lm_head.weight": (SOME, 64),
    "d2t": (SOME,), "t2d": (416,),
}  # fmt: skip
LAYER = {
    "input_layernorm.weight": (64,), **FEED_FORWARD, "self_attn.q_proj.weight": (64, 64),
    "self_attn.k_proj.weight": (32, 64), "self_attn.v_proj.weight": (32, 64),
    "self_attn.o_proj.weight": (64, 64), "self_attn.q_norm.weight": (16,),
    "self_attn.k_norm.weight": (16,),
}  # fmt: skip
FLASH = {"fc.weight": (64, 192), "hidden_norm.weight": (64,), "norm.weight": (64,)}
MARKOV = {"markov_head.markov_w1.weight": (416, 32), "markov_head.markov_w2.weight": (416, 32)}
TWO: dict[str, Any] = {
    **SIZES, "model_type": "qwen3", "num_hidden_layers": 2, "head_dim": 16, "block_size": 8,
}  # fmt: skip


ASSISTANT = {
    "input_layernorm.weight": (64,), "post_attention_layernorm.weight": (64,),
    "pre_feedforward_layernorm.weight": (64,), "post_feedforward_layernorm.weight": (64,),
    "layer_scalar": (1,), "mlp.gate_proj.weight": (96, 64), "mlp.up_proj.weight": (96, 64),
    "mlp.down_proj.weight": (64, 96),
}  # fmt: skip
SLIDING = {
    **ASSISTANT, "self_attn.q_proj.weight": (64, 64), "self_attn.q_norm.weight": (16,),
    "self_attn.o_proj.weight": (64, 64),
}  # fmt: skip
FULL = {
    **ASSISTANT, "self_attn.q_proj.weight": (128, 64), "self_attn.q_norm.weight": (32,),
    "self_attn.o_proj.weight": (64, 128),
}  # fmt: skip


WHOLE = {**FULL, "self_attn.k_proj.weight": (32, 64), "self_attn.k_norm.weight": (32,)}
GEMMA_DSPARK: dict[str, Any] = {
    "architectures": ["Gemma4DSparkModel"], **TWO, "model_type": "gemma4_text",
    "hidden_act": None, "hidden_activation": "gelu_pytorch_tanh", "attention_k_eq_v": True,
    "global_head_dim": 32, "num_global_key_value_heads": 1, "rope_theta": None,
    "layer_types": ["full_attention"] * 2, "sliding_window": 64,
}  # fmt: skip


class Draft(NamedTuple):
    """A draft model: the case that is its target, its configuration and its tensors' shapes.

    `mask` is the dtype of the embedding in its `mask_embedding.pt`; uint16 stands for BF16.
    """

    target: str
    config: dict[str, Any]
    tensors: dict[str, tuple[int, ...]]
    has_tokenizer: bool = False  # the same files as its target
    mask: str = ""


def layers(names: dict[str, tuple[int, ...]], *prefixes: str) -> dict[str, tuple[int, ...]]:
    """Return the names for each layer."""
    return {f"{prefix}.{name}": shape for prefix in prefixes for name, shape in names.items()}


PAIR = layers(LAYER, "layers.0", "layers.1")
DRAFTS = {
    "eagle3": Draft(
        "llama",
        {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", **SIZES,
         "num_hidden_layers": 1, "draft_vocab_size": SOME},
        {**EAGLE, **layers(EAGLE_LAYER, "midlayer"), "input_norm.weight": (192,)},
    ),
    "eagle3-by-fields": Draft(
        "qwen3",
        {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **SIZES, "head_dim": 16,
         "num_hidden_layers": 1, "draft_vocab_size": SOME, "norm_before_fc": True,
         "eagle_aux_hidden_state_layer_ids": [1, 2, 3]},
        {**EAGLE, **layers(EAGLE_LAYER, "midlayer"), "embed_tokens.weight": (416, 64)},
    ),
    "eagle3-speculator": Draft(
        "llama-llama3",
        {"architectures": ["Eagle3Speculator"], "draft_vocab_size": SOME,
         "target_hidden_size": 64, "norm_before_residual": True,
         "transformer_layer_config": {"model_type": "llama", **SIZES, "num_hidden_layers": 1}},
        {**EAGLE, **layers(EAGLE_LAYER, "layers.0"), "embed_tokens.weight": (416, 64)},
    ),
    "dflash": Draft(
        "qwen3",
        {"architectures": ["DFlashDraftModel"], **TWO, "dflash_config":
            {"mask_token_id": 3, "target_layer_ids": [0, 1, 2]}},
        {**FLASH, **PAIR},
    ),
    "dflash-mask": Draft(
        "qwen3",
        {"architectures": ["DFlashDraftModel"], **TWO, "dflash_config":
            {"mask_token_id": 3, "target_layer_ids": [0, 1, 2]}},
        {**FLASH, **PAIR},
        mask="float32",
    ),
    "dflash-mask-own-embeddings": Draft(
        "llama-tied",
        {"architectures": ["DFlashDraftModel"], **TWO, "has_embed_tokens": False, "dflash_config":
            {"mask_token_id": 415, "target_layer_ids": [0, 1, 2]}},
        {**FLASH, **PAIR, "embed_tokens.weight": (416, 64)},
        mask="uint16",
    ),
    "dflash2": Draft(
        "qwen25vl",
        {"architectures": ["DFlash2DraftModel"], **TWO, "rope_is_neox_style": False,
         "has_embed_tokens": False, "is_causal": True, "dflash_config":
            {"mask_token_id": 3, "target_layer_ids": [0, 1, 2], "conv_kernel_size": 3,
             "conv_group_size": 4, "selector_rank": 8, "selector_top_k": 2, "block_size": 4,
             "output_multiplier": 0.5, "final_logit_softcapping": 30.0, "use_swa": True,
             "input_embedding_scale": 2.0, "swa_window_size": 64}},
        {**FLASH, **PAIR, "embed_tokens.weight": (416, 64), "lm_head.weight": (416, 64),
         **layers({"attention_conv.base_kernel": (64, 3), "mlp_conv.base_kernel": (64, 3),
                   "attention_conv.kernel_projection.weight": (48, 64),
                   "mlp_conv.kernel_projection.weight": (48, 64),
                   "self_attn.sinks": (4,)}, "layers.0", "layers.1"),
         "candidate_selector.predecessor_codebook": (416, 8),
         "candidate_selector.successor_codebook": (416, 8),
         "candidate_selector.hidden_projection.weight": (8, 64)},
    ),
    "dspark": Draft(
        "qwen3",
        {"architectures": ["Qwen3DSparkModel"], **TWO, "mask_token_id": 3,
         "target_layer_ids": [0, 1, 2]},
        {**FLASH, **PAIR, **MARKOV, "lm_head.weight": (416, 64),
         "confidence_head.proj.weight": (1, 96), "confidence_head.proj.bias": (1,)},
    ),
    "gemma4-assistant": Draft(
        "gemma4",
        {"architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant",
         "backbone_hidden_size": 128, "text_config": {
             **SIZES, "hidden_act": None, "hidden_activation": "gelu_pytorch_tanh",
             "num_hidden_layers": 2, "num_kv_shared_layers": 2, "head_dim": 16,
             "global_head_dim": 32, "num_global_key_value_heads": 1, "sliding_window": 64,
             "hidden_size_per_layer_input": 0, "moe_intermediate_size": None, "rope_theta": None,
             "layer_types": ["sliding_attention", "full_attention"],
             "rope_parameters": {
                 "full_attention": {"rope_type": "proportional", "rope_theta": 1e6,
                                    "partial_rotary_factor": 0.25},
                 "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}},
        {**layers(SLIDING, "model.layers.0"), **layers(FULL, "model.layers.1"),
         "model.embed_tokens.weight": (416, 64), "model.norm.weight": (64,),
         "pre_projection.weight": (64, 256), "post_projection.weight": (128, 64),
         "masked_embedding.centroids.weight": (4, 64)},
        has_tokenizer=True,
    ),
    "gemma4-dspark": Draft(
        "gemma4",
        {**GEMMA_DSPARK, "mask_token_id": 3, "target_layer_ids": [0, 1, 2]},
        {**FLASH, **layers(WHOLE, "layers.0", "layers.1"), **MARKOV, "lm_head.weight": (416, 64),
         "confidence_proj.weight": (1, 96), "confidence_proj.bias": (1,)},
    ),
    "gemma4-dspark-sliding": Draft(
        "gemma4",
        {**GEMMA_DSPARK, "tie_word_embeddings": True, "sample_from_anchor": False,
         "dflash_config": {"mask_token_id": 3, "target_layer_ids": [0, 1, 2], "use_swa": True,
                           "swa_window_size": 32, "block_size": 4},
         "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e5}}},
        {**FLASH, **layers(WHOLE, "model.layers.0", "model.layers.1"), **MARKOV,
         "embed_tokens.weight": (416, 64)},
    ),
    "muse-glimmer-assistant": Draft(
        "muse-glimmer",
        {"architectures": ["MuseGlimmerAssistantModel"], **TWO,
         "model_type": "muse_glimmer_assistant", "mask_token_id": 3, "target_layer_ids": [0, 2, 3],
         "sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"],
         "rope_theta": None,
         "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
        {**PAIR, "encoder.fc.weight": (64, 192), "encoder.output_norm_enc.weight": (64,),
         "norm.weight": (64,)},
    ),
    "dspark-speculator": Draft(
        "qwen3",
        {"architectures": ["DSparkSpeculator"], "draft_vocab_size": SOME, "mask_token_id": 3,
         "aux_hidden_state_layer_ids": [1, 2, 3], "block_size": 8,
         "transformer_layer_config": {**TWO, "layer_types": ["full_attention"] * 2}},
        {**FLASH, **PAIR, **MARKOV, "markov_head.markov_w2.weight": (SOME, 32),
         "lm_head.weight": (SOME, 64), "d2t": (SOME,), "t2d": (416,)},
    ),
}  # fmt: skip


def make(name: str, folder: Path, checkpoints: Path | None = None) -> Path:
    """Write a draft model into `folder`; return it. `checkpoints` are those of the cases."""
    draft, numbers = DRAFTS[name], random.Random(name)
    folder.mkdir()
    if draft.has_tokenizer and checkpoints:
        for path in (checkpoints / draft.target).glob("*token*.json"):
            shutil.copy(path, folder)
    (folder / "config.json").write_text(json.dumps(draft.config))
    header: dict[str, Any] = {}
    data = b""
    for tensor, shape in sorted(draft.tensors.items()):
        array = _data(tensor, shape, numbers)
        dtype = {"d2t": "I64", "t2d": "BOOL"}.get(tensor, "BF16")
        ends = [len(data), len(data) + len(array)]
        header[tensor] = {"dtype": dtype, "shape": list(shape), "data_offsets": ends}
        data += array
    text = json.dumps(header).encode()
    whole = len(text).to_bytes(8, "little") + text + data
    (folder / "model.safetensors").write_bytes(whole)
    if draft.mask:
        number = draft.config["dflash_config"]["mask_token_id"]
        (folder / "mask_embedding.pt").write_bytes(mask_file(number, draft.mask))
    return folder


def mask_file(number: int, dtype: str, length: int = 64) -> bytes:
    """Return what PyTorch saves of a mask token and its vector."""
    row = np.arange(length) + 0x3F80 if dtype == "uint16" else np.arange(length) / 7
    array = row.astype(dtype)
    content = {"mask_token_id": number, "embedding": pytorch_file.tensor(array, "0")}
    files = {"data/0": array.tobytes(), "version": b"3\n"}
    return pytorch_file.archive(pytorch_file.pickled(content), files)


def _data(tensor: str, shape: tuple[int, ...], numbers: random.Random) -> bytes:
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    if tensor == "d2t":  # every third token of the target
        return b"".join((2 * n).to_bytes(8, "little") for n in range(count))
    if tensor == "t2d":
        return bytes(n % 3 == 0 for n in range(count))
    # BF16 between 2 to the -8 and 2, of either sign
    return b"".join(
        (numbers.randrange(0x3B80, 0x4000) | numbers.randrange(2) << 15).to_bytes(2, "little")
        for _ in range(count)
    )
