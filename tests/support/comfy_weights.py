"""Weights as ComfyUI stores them quantized, from a seed: the parts of one layer by format."""

from __future__ import annotations

import json

import numpy as np

ROWS, COLUMNS = 160, 512
TILED_SCALES = 256 * 32


def _codes(random: np.random.RandomState, *shape: int) -> np.ndarray:
    codes = random.randint(0, 256, shape).astype(np.uint8)
    return np.where(codes & 127 == 127, 1, codes).astype(np.uint8)  # no NaN


def _scales(random: np.random.RandomState, *shape: int) -> np.ndarray:
    # Powers of two, so that sums of products are exact in every order.
    return np.ldexp(np.float32(1), random.randint(-9, -3, shape)).astype(np.float32)


def layer(format: str) -> tuple[dict[str, np.ndarray], dict[str, str], dict]:
    """Return the parts of a layer, the types of those that are no plain bytes, and its settings."""
    random = np.random.RandomState([*format.encode()])
    codes = _codes(random, ROWS, COLUMNS)
    settings = {"format": format.partition(" ")[0]}
    if format.startswith("float8"):
        kind = "F8_E4M3" if "e4m3" in format else "F8_E5M2"
        if kind == "F8_E5M2":
            codes = np.where(codes & 124 == 124, 1, codes).astype(np.uint8)  # nor infinity
        return {"weight": codes, "weight_scale": _scales(random)}, {"weight": kind}, settings
    if format == "mxfp8":
        scales = random.randint(110, 130, TILED_SCALES // 2).astype(np.uint8)
        kinds = {"weight": "F8_E4M3", "weight_scale": "F8_E8M0"}
        return {"weight": codes, "weight_scale": scales}, kinds, settings
    if format == "nvfp4":
        scales = _codes(random, TILED_SCALES) & 127
        parts = {"weight": codes[:, : COLUMNS // 2], "weight_scale_2": np.float32([0.001])}
        return {**parts, "weight_scale": scales}, {"weight_scale": "F8_E4M3"}, settings
    settings |= {"convrot": True, "convrot_groupsize": 256} if "convrot" in format else {}
    scales = _scales(random, ROWS, 1)
    return {"weight": codes.view(np.int8), "weight_scale": scales}, {}, settings


FORMATS = (
    "float8_e4m3fn", "float8_e5m2", "mxfp8", "nvfp4", "int8_tensorwise", "int8_tensorwise convrot",
)  # fmt: skip


def described(settings: dict) -> np.ndarray:
    """Return the settings of a layer as the tensor `comfy_quant`."""
    return np.frombuffer(json.dumps(settings).encode(), np.uint8)
