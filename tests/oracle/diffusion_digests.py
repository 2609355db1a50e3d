"""Record the digests of image and video models as the field's usual route makes them.

    python tests/oracle/diffusion_digests.py COMFYUI_GGUF LLAMA_QUANTIZE

COMFYUI_GGUF is a checkout of city96/ComfyUI-GGUF. LLAMA_QUANTIZE is that program of llama.cpp's
b3962 with the checkout's `tools/lcpp.patch`, built for plain x86-64: `-DGGML_NATIVE=OFF`, without
AVX and FMA. The source package of `llama-cpp-python` 0.3.1 has a llama.cpp that the patch fits.
The script needs torch, safetensors, gguf and numpy below 2.4.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import diffusion_checkpoints

RECORDED = Path(__file__).with_name("diffusion_digests.json")
ALL = (
    *("Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K"),
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16", "BF16", "F32"),
)
RECIPES = {"BF16": ALL, "F16": ("Q4_K_M",), "F32": ("Q4_K_M",)}
CONVERTED = "converted"


def recorded() -> dict[str, dict[str, str]]:
    """Return the recorded digests: model and type of the source, then recipe."""
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def digest(path: Path) -> str:
    """Return the first 16 digits of a file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _run(*words: object, folder: Path) -> None:
    subprocess.run([str(word) for word in words], cwd=folder, check=True, capture_output=True)


def _digests(model: str, kind: str, folder: Path, tools: Path, quantize: str) -> dict[str, str]:
    source = diffusion_checkpoints.write(model, kind, folder / "model.safetensors")
    _run(
        sys.executable,
        tools / "convert.py",
        "--src",
        source,
        "--dst",
        "converted.gguf",
        folder=folder,
    )
    fixes = [*folder.glob("fix_5d*")]

    def whole(name: str) -> Path:
        if fixes:
            fix = (tools / "fix_5d_tensors.py", "--src", name, "--dst", "5d.gguf", "--overwrite")
            _run(sys.executable, *fix, folder=folder)
        return folder / ("5d.gguf" if fixes else name)

    digests = {CONVERTED: digest(whole("converted.gguf"))}
    for recipe in RECIPES[kind]:
        _run(quantize, "converted.gguf", "quantized.gguf", recipe, folder=folder)
        digests[recipe] = digest(whole("quantized.gguf"))
    return digests


def main() -> None:
    """Record all models."""
    tools, quantize = Path(sys.argv[1]).resolve() / "tools", str(Path(sys.argv[2]).resolve())
    record = {}
    for model in diffusion_checkpoints.MODELS:
        for kind in diffusion_checkpoints.KINDS:
            with tempfile.TemporaryDirectory() as folder:
                record[f"{model} {kind}"] = _digests(model, kind, Path(folder), tools, quantize)
    RECORDED.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
