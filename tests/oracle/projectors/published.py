"""Projectors whose published checkpoints name or split tensors in another way."""

from __future__ import annotations

from typing import Any

from projectors.newest import CASES as NEWEST
from projectors.ocr import CASES as OCR
from projectors.shapes import NamedShapes, both

OMNI, MUSE = OCR["qwen25omni"], NEWEST["muse-glimmer"]
QKV: NamedShapes = both({f"thinker.visual.blocks.{{i}}.attn.{name}": (32, 32) for name in "qkv"})
CASES: dict[str, dict[str, Any]] = {
    "qwen2.5-omni-7b": OMNI | {
        "tensors": {n: s for n, s in OMNI["tensors"].items() if "attn.qkv" not in n} | QKV,
    },
    "muse-glimmer-table": MUSE | {
        "tensors": MUSE["tensors"] | {
            "model.vision_tower.patch_embedder.position_embedding_table.weight": (16, 32),
        },
    },
}  # fmt: skip
