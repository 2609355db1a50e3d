"""Tiny checkpoints with encoders of pictures or sound, the same bytes on every machine.

A case is a dictionary: `config`, and if needed `preprocessor`, `processor` and other `files`, are
JSON; `tensors` gives shapes by name, where `{i}` stands for the number of each of `layers`. `also`
lists other classes: the case is repeated for each of them. `folders` are cases inside the folder;
`class` names the class of a case without config.json.
"""

from __future__ import annotations

import importlib
import json
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

FILES = {"config": "config.json", "preprocessor": "preprocessor_config.json",
         "processor": "processor_config.json"}  # fmt: skip
DTYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
FAMILIES = Path(__file__).resolve().parents[1] / "oracle" / "projectors"


def cases() -> dict[str, dict[str, Any]]:
    """Return the cases of all families by name."""
    cases_by_name: dict[str, dict[str, Any]] = {}
    if str(FAMILIES.parent) not in sys.path:
        sys.path.append(str(FAMILIES.parent))
    for path in sorted(FAMILIES.glob("[a-z]*.py")):
        module = importlib.import_module(f"projectors.{path.stem}")
        for name, case in module.CASES.items():
            cases_by_name[name] = case
            for other in case.get("also", ()):
                config = {**case["config"], "architectures": [other]}
                cases_by_name[f"{name}-{other}"] = {**case, "config": config}
    return cases_by_name


def make(case: dict[str, Any], folder: Path) -> Path:
    """Write the checkpoint of a case into a new folder."""
    folder.mkdir(parents=True)
    for word, name in FILES.items():
        if word in case:
            (folder / name).write_text(json.dumps(case[word]))
    for name, content in case.get("files", {}).items():
        (folder / name).write_text(json.dumps(content))
    tensors = {name: shape for names in _spelled(case) for name, shape in names.items()}
    dtype = case.get("dtype", "bfloat16")
    (folder / "model.safetensors").write_bytes(_safetensors(tensors, dtype))
    for name, inner in case.get("folders", {}).items():
        make(inner, folder / name)
    return folder


def _spelled(case: dict[str, Any]) -> list[dict[str, tuple[int, ...]]]:
    """Return the tensors with a number in the place of each `{i}`."""
    layers = range(case.get("layers", 4))
    return [
        {name.replace("{i}", str(n)): shape for n in layers if n == 0 or "{i}" in name}
        for name, shape in case["tensors"].items()
    ]


def _safetensors(tensors: dict[str, tuple[int, ...]], dtype: str) -> bytes:
    header: dict[str, Any] = {}
    data = []
    offset = 0
    for name, shape in sorted(tensors.items()):
        array = _numbers(name, shape, dtype)
        header[name] = {
            "dtype": DTYPES[dtype],
            "shape": shape,
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
        data.append(array.tobytes())
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(data)


def _numbers(name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Return numbers between 0.25 and 1 or their opposites that follow from a tensor's name.

    Variances are positive.
    """
    count = int(np.prod(shape))
    mixed = (np.arange(count, dtype=np.uint64) + zlib.crc32(name.encode())) * 2654435761
    words = (mixed >> np.uint64(7)) % 65536
    signs = np.where((words % 2 == 1) | name.endswith("running_var"), 1, -1)
    numbers = (words.astype(np.float32) / 87381 + np.float32(0.25)) * signs
    numbers = numbers.astype(np.float32)
    if dtype == "bfloat16":
        return (numbers.view(np.uint32) >> 16).astype(np.uint16)
    return numbers.astype(dtype)
