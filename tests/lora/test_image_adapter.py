"""Adapters of image models change the matrices that their names mean, in the publisher's model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import diffusion_checkpoints
import ggufkit
from ggufkit.errors import AdapterError
from shell import ggufkit as run
from tensors_file import safetensors_bytes

RNG = np.random.default_rng(8)
RANK = 3
QKV = "double_blocks.0.img_attn.qkv"
KOHYA = f"lora_unet_{QKV.replace('.', '_')}"
LINEAR1 = "single_blocks.1.linear1"
FINAL = "final_layer.adaLN_modulation.1"


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def factors(
    stem: str, rows: int, columns: int, names=("lora_A", "lora_B")
) -> dict[str, np.ndarray]:
    """Return the two factors of a matrix."""
    a, b = (f"{stem}.{name}.weight" for name in names)
    return {a: normal(RANK, columns), b: normal(rows, RANK)}


def saved(path: Path, tensors: dict[str, np.ndarray]) -> Path:
    path.write_bytes(safetensors_bytes(tensors))
    return path


@pytest.fixture
def flux(tmp_path):
    """Provide a tiny FLUX with a modulation of its last layer, in F32."""
    arrays = diffusion_checkpoints.arrays("flux", "F32") | {f"{FINAL}.weight": normal(512, 256)}
    path = saved(tmp_path / "flux.safetensors", arrays)
    with ggufkit.convert(path, outtype="f32") as model:
        yield model


def difference(base, merged, name):
    return merged[name].numpy() - base[name].numpy()


@pytest.mark.parametrize(
    ("spelling", "names"),
    [
        ("lora_unet_double_blocks_0_img_attn_qkv", ("lora_down", "lora_up")),
        ("diffusion_model.double_blocks.0.img_attn.qkv", ("lora_A", "lora_B")),
        ("double_blocks.0.img_attn.qkv", ("lora_A.default", "lora_B.default")),
        ("base_model.model.double_blocks.0.img_attn.qkv", ("lora_A", "lora_B")),
    ],
)
def test_a_matrix_of_the_publisher_gets_the_product(spelling, names, flux, tmp_path):
    pair = factors(spelling, 768, 256, names)
    alpha = {f"{spelling}.alpha": np.array(6, np.float32)} if names[0] == "lora_down" else {}
    merged = ggufkit.merge_lora(flux, saved(tmp_path / "a.safetensors", pair | alpha), scales=[0.5])
    a, b = pair.values()
    expected = (6 / RANK if alpha else 1) * 0.5 * (b @ a)
    added = difference(flux, merged, f"{QKV}.weight")
    np.testing.assert_allclose(added, expected, atol=1e-5)
    assert [n for n in flux.tensors if merged[n] is not flux[n]] == [f"{QKV}.weight"]


@pytest.mark.parametrize(
    ("source", "name", "rows", "start"),
    [
        ("transformer_blocks.0.attn.to_k", f"{QKV}.weight", 256, 256),
        ("transformer_blocks.0.attn.to_v", f"{QKV}.weight", 256, 512),
        ("single_transformer_blocks.1.attn.to_q", f"{LINEAR1}.weight", 256, 0),
        ("single_transformer_blocks.1.proj_mlp", f"{LINEAR1}.weight", 1024, 768),
    ],
)
def test_a_matrix_of_diffusers_is_a_part_of_the_publishers(
    source, name, rows, start, flux, tmp_path
):
    for prefix, spelled in (
        ("transformer.", source),
        ("lora_transformer_", source.replace(".", "_")),
    ):
        pair = factors(prefix + spelled, rows, 256)
        merged = ggufkit.merge_lora(flux, saved(tmp_path / "a.safetensors", pair))
        a, b = pair.values()
        expected = np.zeros(flux[name].shape, np.float32)
        expected[start : start + rows] = b @ a
        np.testing.assert_allclose(difference(flux, merged, name), expected, atol=1e-5)


def test_halves_change_places_where_diffusers_has_them_swapped(flux, tmp_path):
    pair = factors("transformer.norm_out.linear", 512, 256)
    merged = ggufkit.merge_lora(flux, saved(tmp_path / "a.safetensors", pair))
    a, b = pair.values()
    added = difference(flux, merged, f"{FINAL}.weight")
    np.testing.assert_allclose(added, np.roll(b @ a, 256, axis=0), atol=1e-5)


def test_whole_changes_and_biases_are_added(flux, tmp_path):
    stem = "diffusion_model.double_blocks.0.img_attn.proj"
    whole = {f"{stem}.diff": normal(256, 256), f"{stem}.diff_b": normal(256)}
    merged = ggufkit.merge_lora(flux, saved(tmp_path / "a.safetensors", whole), scales=[2])
    for array, end in zip(whole.values(), ("weight", "bias"), strict=True):
        name = f"double_blocks.0.img_attn.proj.{end}"
        np.testing.assert_allclose(difference(flux, merged, name), 2 * array, atol=1e-5)


def test_a_convolution_in_rows_of_256_gets_its_product(tmp_path):
    arrays = diffusion_checkpoints.arrays("sd1", "F32")
    arrays |= {"model.diffusion_model.conv.weight": normal(32, 16, 3, 3)}
    base = ggufkit.convert(saved(tmp_path / "sd1.safetensors", arrays), outtype="f32")
    assert base["conv.weight"].shape == (18, 256)
    down, up = normal(RANK, 16, 3, 3), normal(32, RANK, 1, 1)
    pair = {"lora_unet_conv.lora_down.weight": down, "lora_unet_conv.lora_up.weight": up}
    merged = ggufkit.merge_lora(base, saved(tmp_path / "a.safetensors", pair))
    expected = up.reshape(32, RANK) @ down.reshape(RANK, -1)
    added = difference(base, merged, "conv.weight")
    np.testing.assert_allclose(added.reshape(32, -1), expected, atol=1e-5)
    base.close()


def test_alpha_is_in_the_settings_of_peft_and_of_diffusers(flux, tmp_path):
    pair = factors("transformer_blocks.0.attn.to_q", 256, 256)
    settings = {"lora_alpha": 6, "r": RANK, "alpha_pattern": {}, "use_rslora": False}
    folder = tmp_path / "peft"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    saved(folder / "adapter_model.safetensors", pair)
    text = json.dumps({f"transformer.{key}": value for key, value in settings.items()})
    path = tmp_path / "a.safetensors"
    path.write_bytes(safetensors_bytes(pair, {"lora_adapter_metadata": text}))
    a, b = pair.values()
    for adapter in (folder, path):
        merged = ggufkit.merge_lora(flux, adapter)
        added = difference(flux, merged, f"{QKV}.weight")[:256]
        np.testing.assert_allclose(added, 2 * (b @ a), atol=1e-5)


def test_a_quantized_model_keeps_its_types(flux, tmp_path):
    base = flux.quantize("Q4_K_M")
    path = saved(tmp_path / "a.safetensors", factors(KOHYA, 768, 256))
    merged = ggufkit.merge_lora(base, path)
    assert [t.type for t in merged.tensors.values()] == [t.type for t in base.tensors.values()]
    assert not np.array_equal(merged[f"{QKV}.weight"].raw(), base[f"{QKV}.weight"].raw())


def test_what_the_model_lacks_is_said(flux, tmp_path):
    tensors = {
        **factors(KOHYA, 768, 256),
        **factors("lora_unet_double_blocks_99_img_attn_qkv", 768, 256),
        **factors("lora_te1_text_model_encoder_layers_0_mlp_fc1", 64, 64),
    }
    notes: list[str] = []
    ggufkit.merge_lora(flux, saved(tmp_path / "a.safetensors", tensors), say=notes.append)
    assert len(notes) == 1
    assert "left out: 1 changes" in notes[0]


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"lora_unet_x.lokr_w1": normal(4, 4)}, "is a LoKr"),
        ({"lora_unet_x.hada_w1_a": normal(4, 4)}, "is a LoHa"),
        ({**factors("x", 4, 4), "x.dora_scale": normal(4)}, "is a DoRA"),
        ({"weight": normal(4, 4)}, "not a LoRA adapter of an image or video model"),
        ({"lora_te1_x.lora_down.weight": normal(4, 4)}, "it has no factors"),
        (factors("lora_unet_input_blocks_4_1_proj_in", 4, 4), "has none of the matrices"),
        (factors(QKV, 512, 256), "does not fit"),
        (factors(QKV, 768, 128), "does not fit"),
        ({f"{QKV}.lora_A.weight": normal(RANK, 256)}, "does not fit"),
        ({f"{QKV}.diff": normal(4, 4)}, "does not fit"),
        ({"txt_in.diff_b": normal(3)}, "does not fit"),
        ({**factors(QKV, 768, 256), f"{QKV}.alpha": normal(2)}, "does not fit"),
    ],
)
def test_other_adapters_are_refused(tensors, message, flux, tmp_path):
    with pytest.raises(AdapterError, match=message):
        ggufkit.merge_lora(flux, saved(tmp_path / "a.safetensors", tensors))


def test_the_command_merges_into_a_checkpoint_and_quantizes(flux, tmp_path):
    path = saved(tmp_path / "a.safetensors", factors(QKV, 768, 256))
    base, out = tmp_path / "flux.safetensors", tmp_path / "out.gguf"
    run("lora", "merge", base, path, "-o", out, "--quantize", "Q8_0")
    with ggufkit.open(out) as merged:
        assert merged[f"{QKV}.weight"].type.name == "Q8_0"
        assert merged.architecture == "flux"
