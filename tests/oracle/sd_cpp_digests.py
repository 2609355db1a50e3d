"""Record the digests of the files that stable-diffusion.cpp's `convert` makes.

    python tests/oracle/sd_cpp_digests.py SD_CLI

SD_CLI is the program of the source package `stable-diffusion-cpp-python` 0.4.7, built in its folder
`vendor/stable-diffusion.cpp` for plain x86-64: `-DGGML_NATIVE=OFF`, without AVX2 and FMA. Its
threads write tensors as they come, so that a run is repeated until they are in order.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import diffusion_digests

import diffusion_checkpoints
import ggufkit

RECORDED = Path(__file__).with_name("sd_cpp_digests.json")
PLAIN = "plain"
# Our recipe, and the program's name of the type.
TYPES = {
    PLAIN: "",
    **{name: name.lower() for name in ("F16", "Q8_0", "Q4_0", "Q5_1")},
    **{name: f"q{name[1]}_K" for name in ("Q2_K", "Q4_K", "Q6_K")},
}
OF_KIND = {"BF16": tuple(TYPES), "F16": (PLAIN, "Q4_K"), "F32": (PLAIN, "Q4_K")}
TRIES = 50


def recorded() -> dict[str, dict[str, str]]:
    """Return the recorded digests: model and type of the source, then recipe."""
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def _digest(program: str, source: Path, recipe: str) -> str:
    out = source.with_suffix(".gguf")
    words = [program, "-M", "convert", "-m", str(source), "-o", str(out)]
    words += ["--type", TYPES[recipe]] if TYPES[recipe] else []
    for _ in range(TRIES):
        subprocess.run(words, check=True, capture_output=True)
        with ggufkit.open(out) as model:
            if [*model.tensors] == sorted(model.tensors):
                return diffusion_digests.digest(out)
    raise SystemExit(f"{source.name} as {recipe}: never in order")


def main(program: str) -> None:
    """Record the digests of all models and types."""
    digests = {}
    with tempfile.TemporaryDirectory() as place:
        for model in diffusion_checkpoints.MODELS:
            for kind in diffusion_checkpoints.KINDS:
                source = diffusion_checkpoints.write(model, kind, Path(place, "model.safetensors"))
                digests[f"{model} {kind}"] = {
                    recipe: _digest(program, source, recipe) for recipe in OF_KIND[kind]
                }
    RECORDED.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
