"""The projectors of Kimi K2.5 and GLM 5.2."""

from __future__ import annotations

from typing import Any

from projectors.shapes import HALVES, TEXT, NamedShapes, both, under

EYES: NamedShapes = {
    **under("vision_tower.", {
        **both({"patch_embed.proj": (128, 3, 14, 14), "encoder.final_layernorm": (128,)}),
        "patch_embed.pos_emb.weight": (4, 4, 128),
        **under("encoder.blocks.{i}.", both({
            "norm0": (128,), "wqkv": (384, 128), "wo": (128, 128), "norm1": (128,),
            "mlp.fc0": (96, 128), "mlp.fc1": (128, 96),
        })),
    }),
    **both({"mm_projector.pre_norm": (128,)}),
    "language_model.model.embed_tokens.weight": (64, 64),
}  # fmt: skip
SIZES = {"patch_size": 14, "init_pos_emb_height": 4, "init_pos_emb_width": 4,
         "init_pos_emb_time": 2, "merge_kernel_size": [2, 2]}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "kimik25": {
        "config": {
            "architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25",
            "text_config": {**TEXT, "model_type": "kimi_k2"},
            "vision_config": {
                **SIZES, "vt_hidden_size": 128, "vt_intermediate_size": 96,
                "vt_num_attention_heads": 16, "vt_num_hidden_layers": 4,
                "projector_hidden_act": "gelu", "projector_ln_eps": 1e-5,
            },
        },
        "preprocessor": {"media_proc_cfg": {**HALVES, "in_patch_limit": 4096}},
        "tensors": {
            **EYES, **both({"mm_projector.proj.0": (512, 512), "mm_projector.proj.2": (64, 512)}),
        },
    },
    "glm5v": {
        "config": {
            "architectures": ["Glm5vForConditionalGeneration"], "model_type": "glm5v",
            "text_config": TEXT,
            "vision_config": {**SIZES, "hidden_size": 128, "intermediate_size": 96,
                              "num_attention_heads": 8, "num_hidden_layers": 4},
        },
        "preprocessor": HALVES,
        "tensors": {
            **EYES,
            **both({"mm_projector.linear_1": (512, 512), "mm_projector.linear_2": (64, 512)}),
        },
    },
}  # fmt: skip
