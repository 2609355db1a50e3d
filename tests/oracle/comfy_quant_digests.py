"""Record what ComfyUI's library makes of quantized weights.

    python tests/oracle/comfy_quant_digests.py

It needs torch and comfy_kitchen 0.2.40.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import comfy_weights

RECORDED = Path(__file__).with_name("comfy_quant_digests.json")


def recorded() -> dict[str, str]:
    """Return the recorded digests by format."""
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def digest(numbers: np.ndarray) -> str:
    """Return the first 16 digits of the SHA-256 of numbers in F32; both zeros are one."""
    data = np.ascontiguousarray(numbers, np.float32) + np.float32(0)
    return hashlib.sha256(data.tobytes()).hexdigest()[:16]


def _decoded(format: str) -> np.ndarray:
    import torch
    from comfy_kitchen import tensor as layouts

    parts, kinds, settings = comfy_weights.layer(format)
    types = {
        "F8_E4M3": torch.float8_e4m3fn,
        "F8_E5M2": torch.float8_e5m2,
        "F8_E8M0": torch.float8_e8m0fnu,
    }
    arrays = {
        part: torch.from_numpy(np.array(array)).view(types[kinds[part]])
        if part in kinds
        else torch.from_numpy(np.array(array))
        for part, array in parts.items()
    }
    fields = {
        "orig_dtype": torch.float32,
        "orig_shape": (comfy_weights.ROWS, comfy_weights.COLUMNS),
    }
    scale = arrays["weight_scale"]
    if format == "nvfp4":
        layout = layouts.TensorCoreNVFP4Layout
        fields |= {"scale": arrays["weight_scale_2"], "block_scale": scale}
    elif format == "mxfp8":
        layout, fields = layouts.TensorCoreMXFP8Layout, {**fields, "scale": scale}
    elif format.startswith("int8"):
        layout = layouts.TensorWiseINT8Layout
        fields |= {key: value for key, value in settings.items() if key != "format"}
        fields["scale"] = scale
    else:
        layout, fields = layouts.TensorCoreFP8Layout, {**fields, "scale": scale}
    return layout.dequantize(arrays["weight"], layout.Params(**fields)).numpy()


def main() -> None:
    """Record all formats."""
    digests = {name: digest(_decoded(name)) for name in comfy_weights.FORMATS}
    RECORDED.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
