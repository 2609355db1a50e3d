"""diffusers loads the files of image and video models, with the numbers of the original model.

`make test-oracle` runs it where transformers 5 and diffusers are.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import ggufkit

sys.path.insert(0, str(Path(__file__).resolve().parent))
import diffusers_names

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::FutureWarning")]

ARCHITECTURES = {
    "AuraFlowTransformer2DModel": "aura",
    "ChromaTransformer2DModel": "chroma",
    "CosmosTransformer3DModel": "cosmos",
    "Flux2Transformer2DModel": "flux2",
    "FluxTransformer2DModel": "flux",
    "HunyuanVideoTransformer3DModel": "hyvid",
    "LTXVideoTransformer3DModel": "ltxv",
    "Lumina2Transformer2DModel": "lumina2",
    "SD3Transformer2DModel": "sd3",
    "WanTransformer3DModel": "wan",
    "ZImageTransformer2DModel": "z_image",
}


@pytest.fixture
def model_of():
    """Return what makes a tiny model of a class, saved in a folder."""
    torch = pytest.importorskip("torch")
    diffusers = pytest.importorskip("diffusers")

    def make(case: str, folder: Path, **changes):
        torch.manual_seed(3)
        settings = {**diffusers_names.CLASSES[case], **changes}
        model = getattr(diffusers, case)(**settings)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
        model.save_pretrained(folder)
        return model.eval()

    return make


def loaded(case: str, path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Return the model that diffusers loads from a GGUF file."""
    import diffusers
    import torch
    from diffusers.loaders import single_file_model

    row = single_file_model.SINGLE_FILE_LOADABLE_CLASSES[case]
    converter = diffusers_names.converter_of(case)
    monkeypatch.setitem(row, "checkpoint_mapping_fn", converter)
    return getattr(diffusers, case).from_single_file(
        str(path),
        config=str(folder),
        quantization_config=diffusers.GGUFQuantizationConfig(compute_dtype=torch.float32),
        torch_dtype=torch.float32,
    )


@pytest.mark.parametrize("case", ARCHITECTURES)
def test_a_model_comes_back_whole(case, tmp_path, model_of, monkeypatch):
    # diffusers does not load the positions of Wan's image embedder from a single file.
    changes = {"pos_embed_seq_len": None} if case.startswith("Wan") else {}
    before = model_of(case, tmp_path / "model", **changes).state_dict()
    with ggufkit.convert(tmp_path / "model", outtype="f32", arch=ARCHITECTURES[case]) as model:
        ggufkit.write(model, tmp_path / "model.gguf")
    after = loaded(case, tmp_path / "model.gguf", tmp_path / "model", monkeypatch).state_dict()
    assert before.keys() - after.keys() == set()
    for name, tensor in before.items():
        assert np.array_equal(tensor.numpy(), after[name].numpy()), name


@pytest.mark.parametrize("recipe", ["F16", "Q8_0"])
def test_a_quantized_model_predicts_almost_the_same(recipe, tmp_path, model_of, monkeypatch):
    import torch

    sizes = {"num_attention_heads": 4, "caption_projection_dim": 32, "joint_attention_dim": 32}
    model = model_of("SD3Transformer2DModel", tmp_path / "model", **sizes)
    with ggufkit.convert(tmp_path / "model", outtype="f16") as converted:
        ggufkit.write(converted.quantize(recipe), tmp_path / "model.gguf")
    case = ("SD3Transformer2DModel", tmp_path / "model.gguf", tmp_path / "model")
    other = loaded(*case, monkeypatch)
    inputs = {
        "hidden_states": torch.randn(1, 16, 8, 8),
        "encoder_hidden_states": torch.randn(1, 5, 32),
        "pooled_projections": torch.randn(1, 12),
        "timestep": torch.tensor([500]),
    }
    with torch.no_grad():
        expected, actual = (network(**inputs).sample for network in (model, other))
    assert (expected - actual).norm() < 0.03 * expected.norm()


def test_a_text_encoder_takes_the_tokenizer_of_its_pipeline(tmp_path):
    alone = Path(os.environ["GGUFKIT_ORACLE"], "checkpoints", "t5encoder")
    encoder, tokenizer = tmp_path / "text_encoder_2", tmp_path / "tokenizer_2"
    shutil.copytree(alone, tokenizer)
    encoder.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.move(tokenizer / name, encoder / name)
    (tmp_path / "model_index.json").write_text("{}")
    with (
        ggufkit.convert(alone, name="T5") as before,
        ggufkit.convert(tmp_path, part="text_encoder_2", name="T5") as after,
    ):
        assert not ggufkit.diff(before, after)
