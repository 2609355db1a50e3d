"""The projector of Granite 4 Vision, which has several Q-Formers."""

from __future__ import annotations

from typing import Any

from projectors.shapes import HALVES, TEXT, VISION, both
from projectors.siglip import siglip
from projectors.speech import qformer

WINDOW = {
    **both({"norm": (32,), "out_linear": (64, 32), "qformer.layernorm": (32,)}),
    **qformer("qformer.encoder.layer.0.", 32, 32),
    "query": (1, 16, 32), "image_positions": (1, 64, 32),
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "granite4-vision": {
        "config": {
            "architectures": ["Granite4VisionForConditionalGeneration"],
            "model_type": "granite4_vision",
            "text_config": {**TEXT, "num_hidden_layers": 8, "model_type": "granite"},
            "vision_config": {**VISION, "model_type": "siglip_vision_model"},
            "downsample_rate": "4/8", "deepstack_layer_map": [[-1, 3], [1, -1]],
            "spatial_vision_layer": -2, "spatial_target_layers": [4, 2],
            "image_grid_pinpoints": [[384, 768], [768, 384], [384, 1152]],
        },
        "preprocessor": HALVES,
        "tensors": {
            **siglip("model.vision_tower.vision_model."),
            **{f"model.{kind}_projectors.{n}.{name}": shape for kind in ("layerwise", "spatial")
               for n in range(2) for name, shape in WINDOW.items()},
            "model.vision_tower.vision_model.head.probe": (1, 1, 32),
            "model.image_newline": (64,), "lm_head.weight": (64, 64),
            "model.language_model.embed_tokens.weight": (64, 64),
        },
    },
}  # fmt: skip
