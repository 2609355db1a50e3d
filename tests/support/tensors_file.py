"""Safetensors files for tests, written plainly and wrongly."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32",
         "uint8": "U8", "int8": "I8", "bool": "BOOL", "uint16": "BF16"}  # fmt: skip


def safetensors_bytes(
    tensors: dict[str, np.ndarray], notes: dict[str, str] | None = None, **changes: dict
) -> bytes:
    """Return a file of arrays (uint16 stands for BF16); `changes` replace fields of entries."""
    header: dict = {"__metadata__": notes} if notes else {}
    data = b""
    for name, array in tensors.items():
        start = len(data)
        data += np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [start, len(data)],
        } | changes.get(name, {})
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def write_checkpoint(folder: Path, config: dict, **files: dict[str, np.ndarray]) -> Path:
    """Write config.json and one safetensors file (by its stem) for each of `files`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for stem, tensors in files.items():
        (folder / f"{stem}.safetensors").write_bytes(safetensors_bytes(tensors))
    return folder
