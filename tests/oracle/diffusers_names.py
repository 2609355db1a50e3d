"""Prove the publisher's names of models of diffusers, and record the names and digests.

    python tests/oracle/diffusers_names.py

It makes a tiny model of each class, gives its tensors the publisher's names, and has diffusers'
own converter give them back. It needs ggufkit, torch, and diffusers 0.42.1 with transformers.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from ggufkit.conversion.diffusion.checkpoint_files import open_diffusion_files
from ggufkit.conversion.diffusion.rename import with_published_names
from tensors_file import safetensors_bytes

RECORDED = Path(__file__).with_name("diffusers_names.json")
HEADS = {"attention_head_dim": 8, "num_attention_heads": 2}
TEXT = {"joint_attention_dim": 24, "pooled_projection_dim": 12}
UNET = {"block_out_channels": (32, 32, 32, 32), "norm_num_groups": 8, "cross_attention_dim": 24}
WAN = {**HEADS, "text_dim": 24, "freq_dim": 16, "ffn_dim": 40, "num_layers": 2, "image_dim": 20,
       "added_kv_proj_dim": 16}  # fmt: skip
# The classes and their configurations: every part that a published model has is there.
CLASSES: dict[str, dict[str, Any]] = {
    "AuraFlowTransformer2DModel": {
        **HEADS, "num_mmdit_layers": 2, "num_single_dit_layers": 2, "caption_projection_dim": 16,
        "joint_attention_dim": 24, "pos_embed_max_size": 64,
    },
    "ChromaTransformer2DModel": {
        **HEADS, "num_layers": 2, "num_single_layers": 2, "joint_attention_dim": 24,
        "approximator_num_channels": 8, "approximator_hidden_dim": 20, "approximator_layers": 2,
    },
    "CosmosTransformer3DModel": {
        "attention_head_dim": 24, "num_attention_heads": 2, "num_layers": 2,
        "text_embed_dim": 24, "adaln_lora_dim": 4,
        "extra_pos_embed_type": None,
    },
    "Flux2Transformer2DModel": {
        **HEADS, "num_layers": 2, "num_single_layers": 2, "joint_attention_dim": 24,
        "timestep_guidance_channels": 8,
    },
    "FluxTransformer2DModel": {
        **HEADS, **TEXT, "num_layers": 2, "num_single_layers": 2, "guidance_embeds": True,
    },
    "HunyuanVideoTransformer3DModel": {
        **HEADS, "num_layers": 2, "num_single_layers": 2, "text_embed_dim": 24,
        "pooled_projection_dim": 12,
    },
    "Krea2Transformer2DModel": {
        "attention_head_dim": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
        "num_layers": 2, "intermediate_size": 40, "timestep_embed_dim": 8, "text_hidden_dim": 24,
        "num_text_layers": 3, "text_num_attention_heads": 2, "text_num_key_value_heads": 2,
        "text_intermediate_size": 20, "axes_dims_rope": (2, 2, 4),
    },
    "LTX2VideoTransformer3DModel": {
        **HEADS, "cross_attention_dim": 16, "audio_num_attention_heads": 2,
        "audio_attention_head_dim": 4, "audio_cross_attention_dim": 8, "num_layers": 2,
        "caption_channels": 24,
    },
    "LTXVideoTransformer3DModel": {
        **HEADS, "cross_attention_dim": 16, "num_layers": 2, "caption_channels": 24,
    },
    "Lumina2Transformer2DModel": {
        "hidden_size": 96, "num_layers": 2, "num_attention_heads": 6, "num_kv_heads": 2,
        "multiple_of": 8, "axes_dim_rope": (4, 6, 6), "cap_feat_dim": 24,
    },
    "SD3Transformer2DModel": {
        **HEADS, **TEXT, "num_layers": 3, "caption_projection_dim": 16, "pos_embed_max_size": 8,
        "dual_attention_layers": (0, 1), "qk_norm": "rms_norm",
    },
    "UNet2DConditionModel": UNET,
    "UNet2DConditionModel xl": {
        **UNET, "block_out_channels": (32, 32, 32),
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        "addition_embed_type": "text_time", "addition_time_embed_dim": 8,
        "projection_class_embeddings_input_dim": 40, "use_linear_projection": True,
        "transformer_layers_per_block": (1, 2, 2),
    },
    "WanAnimateTransformer3DModel": {
        **WAN, "motion_encoder_channel_sizes": {str(2**i): 8 for i in range(2, 10)},
        "motion_style_dim": 8, "motion_dim": 4, "motion_encoder_dim": 8, "motion_encoder_size": 512,
        "face_encoder_hidden_dim": 8, "inject_face_latents_blocks": 1,
    },
    "WanTransformer3DModel": {**WAN, "pos_embed_seq_len": 10},
    "WanVACETransformer3DModel": {**WAN, "vace_layers": [0, 1], "vace_in_channels": 8},
    "ZImageTransformer2DModel": {
        "dim": 32, "n_layers": 2, "n_heads": 2, "n_kv_heads": 2, "cap_feat_dim": 24,
        "axes_dims": [4, 6, 6],
    },
}  # fmt: skip
# Tensors that the publishers' checkpoints do not have, and diffusers' converters do not make.
NOT_PUBLISHED = ("condition_embedder.image_embedder.pos_embed",)
SIZES = {"inner_dim = 3072": "inner_dim = 16", "hidden_size = 3072": "hidden_size = 16",
         "q_dim = 2304": "q_dim = 96", "k_dim = v_dim = 768": "k_dim = v_dim = 32"}  # fmt: skip


def recorded() -> dict[str, dict[str, Any]]:
    """Return the names and shapes of each class, and the digest of the publisher's tensors."""
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def arrays(shapes: dict[str, list[int]]) -> dict[str, np.ndarray]:
    """Return tensors of these names and shapes; all numbers differ."""
    arrays_by_name, count = {}, 0
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        arrays_by_name[name] = np.arange(count, count + size, dtype=np.float32).reshape(shape)
        count += size
    return arrays_by_name


def published(path: Path, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Write tensors to a file, and return those with the publisher's names."""
    path.write_bytes(safetensors_bytes(tensors))
    renamed = with_published_names(open_diffusion_files(path).tensors)
    return {tensor.name: np.array(tensor.numpy()) for tensor in renamed}


def digest(tensors: dict[str, np.ndarray]) -> str:
    """Return the first 16 digits of the SHA-256 of names, shapes and numbers."""
    sha = hashlib.sha256()
    for name, array in sorted(tensors.items()):
        sha.update(f"{name} {array.shape} ".encode() + array.tobytes())
    return sha.hexdigest()[:16]


def converter_of(of: str) -> Any:
    """Return diffusers' converter of a class, with the sizes of the tiny model."""
    from diffusers.loaders import single_file_model, single_file_utils

    row = single_file_model.SINGLE_FILE_LOADABLE_CLASSES[of]
    function = row["checkpoint_mapping_fn"]
    text = inspect.getsource(function)
    for large, small in SIZES.items():
        text = text.replace(large, small)
    scope = vars(single_file_utils).copy()
    exec(compile(text, "converter", "exec"), scope)  # noqa: S102 (diffusers' own code)
    return scope[function.__name__]


def _proven(case: str, settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    import diffusers
    import torch

    of = case.split(maxsplit=1)[0]
    with torch.device("meta"):
        model = getattr(diffusers, of)(**settings)
    shapes = {name: [*tensor.shape] for name, tensor in model.state_dict().items()}
    tensors = arrays(shapes)
    renamed = published(folder / "model.safetensors", tensors)
    prefix = "model.diffusion_model." if of.startswith("UNet") else ""
    copy = {prefix + name: torch.from_numpy(array.copy()) for name, array in renamed.items()}
    back = converter_of(of)(copy, config=dict(model.config))
    for name, array in tensors.items():
        if name in NOT_PUBLISHED:
            continue
        if name not in back or not np.array_equal(back[name].numpy(), array):
            raise SystemExit(f"{case}: {name} does not come back: {[*renamed][:400]}")
    foreign = [name for name in back if name not in tensors and name != "img_emb.emb_pos"]
    if foreign:
        raise SystemExit(f"{case}: {foreign} come back")
    return {"shapes": shapes, "digest": digest(renamed)}


def main() -> None:
    """Prove and record all classes."""
    record = {}
    for case, settings in CLASSES.items():
        with tempfile.TemporaryDirectory() as folder:
            record[case] = _proven(case, settings, Path(folder))
            print(case, len(record[case]["shapes"]))
    text = json.dumps(record, separators=(",", ":"))
    RECORDED.write_text(re.sub(r'(\],|\},)"', r'\1\n"', text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
