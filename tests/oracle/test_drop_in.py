"""llama.cpp's converter and transformers, unchanged, do on ggufkit what they do on gguf-py.

Other libraries load the files that ggufkit writes: transformers, and mistralrs, which is built on
Candle.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import ggufkit
import real

pytestmark = pytest.mark.oracle

FOLDER = Path(os.environ.get("GGUFKIT_ORACLE", ""))
HERE = Path(__file__).resolve().parent
CHECKPOINTS = (
    *("bert", "deepseek2", "flan-t5", "gemma3", "gpt-oss-mxfp4"),
    *("llama", "llama-sentencepiece", "mamba2", "mixtral", "phi3"),
)
TYPES = ("auto", "f32", "bf16", "q8_0", "tq1_0")
LAYERS = 3
OTHER_LAYERS = range(LAYERS, 30)  # of SmolLM2
QUESTION = "What is the capital of France? Answer in one short sentence."


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """Return a folder for PYTHONPATH that has ggufkit and nothing else."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "ggufkit").symlink_to(Path(ggufkit.__file__).parent)
    return folder


def run(package: Path, *arguments: object, ours: bool = True) -> str:
    """Run Python in the environment of requirements.txt, with ggufkit under gguf-py or without."""
    front = ["-m", "ggufkit.compat"] if ours else []
    names = {"PYTHONPATH": str(package), "HF_HUB_OFFLINE": "1", "GGUFKIT_ORACLE_ANEW": "yes"}
    done = subprocess.run(
        [FOLDER / "venv" / "bin" / "python", *front, *map(str, arguments)],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | names,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def loaded(package: Path, library: str, path: Path, out: Path, *, ours: bool) -> dict:
    """Return what a library says about a GGUF file."""
    run(package, HERE / "from_gguf.py", library, path, out, QUESTION, ours=ours)
    with np.load(out) as arrays:
        return dict(arrays)


def test_the_converters_files_are_identical(package, tmp_path):
    chosen = tmp_path / "checkpoints"
    chosen.mkdir()
    for name in CHECKPOINTS:
        (chosen / name).symlink_to(FOLDER / "checkpoints" / name)
    files = []
    for ours in (True, False):
        out = tmp_path / f"ours-{ours}"
        run(package, HERE / "reference.py", real.llama_cpp_source(), chosen, out, *TYPES, ours=ours)
        files.append({path.name: path.read_bytes() for path in sorted(out.glob("*.gguf"))})
    assert files[0] == files[1]
    assert len(files[0]) >= len(CHECKPOINTS) * (len(TYPES) - 1)


def test_transformers_loads_the_same_weights(package, tmp_path, smollm2):
    path = tmp_path / "model.gguf"
    with ggufkit.open(smollm2) as model:  # on gguf-py, transformers takes a second for each layer
        quantized = ggufkit.quantize(model, "Q4_K_M", allow_requantize=True, layers=OTHER_LAYERS)
        ggufkit.write(quantized, path)
    mine, theirs = (
        loaded(package, "transformers", path, tmp_path / f"{ours}.npz", ours=ours)
        for ours in (True, False)
    )
    assert mine.keys() == theirs.keys()
    assert len(mine) > 9 * LAYERS
    assert [name for name in mine if mine[name].tobytes() != theirs[name].tobytes()] == []


@pytest.mark.parametrize("recipe", ["Q4_K_M", "Q8_0"])
def test_transformers_and_candle_load_what_ggufkit_quantizes(package, tmp_path, smollm2, recipe):
    path = tmp_path / "model.gguf"
    with ggufkit.open(smollm2) as model:
        quantized = ggufkit.quantize(model, recipe, allow_requantize=True)
        ggufkit.write(quantized, path)
        embedding = quantized.tensors["token_embd.weight"].numpy()
    arrays = loaded(package, "transformers", path, tmp_path / "t.npz", ours=True)
    assert np.array_equal(arrays["w.model.embed_tokens.weight"], embedding)
    last = arrays["logits"][-1]
    assert np.isfinite(last).all()
    answer = loaded(package, "candle", path, tmp_path / "c.npz", ours=False)
    assert "Paris" in str(answer["said"])


def test_candle_answers_with_a_file_of_the_drop_in_writer(package, tmp_path, smollm2):
    from ggufkit.compat import gguf

    path, reader = tmp_path / "model.gguf", gguf.GGUFReader(smollm2)
    writer, wider = gguf.GGUFWriter(path, "llama"), gguf.GGMLQuantizationType.Q8_0
    for key, field in list(reader.fields.items())[3:]:
        inner = field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(key, field.contents(), field.types[0], inner)
    for tensor in reader.tensors:
        kind, data = tensor.tensor_type, tensor.data
        if kind.name == "Q4_1":  # decoded, and packed again as a wider type
            data = gguf.quantize(gguf.dequantize(data, kind), wider)
            kind = wider
        writer.add_tensor(tensor.name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    answer = loaded(package, "candle", path, tmp_path / "c.npz", ours=False)
    assert "Paris" in str(answer["said"])
