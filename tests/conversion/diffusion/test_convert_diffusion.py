"""Image and video models become the files that the field's usual tools make of them."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import diffusion_checkpoints
import ggufkit
from ggufkit.cli.output import size
from ggufkit.errors import CheckpointError, ValueTypeError
from ggufkit.imatrix.matrix import Imatrix
from ggufkit.quantization.quantize import decide
from shell import ggufkit as run
from tensors_file import safetensors_bytes

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "oracle"))
import diffusion_digests

RECORDED = diffusion_digests.recorded()


def small(path: Path, **changes: np.ndarray) -> Path:
    """Write a FLUX model of two tensors, and others."""
    block = {"double_blocks.0.img_attn.proj.weight": np.ones((8, 256), np.float32)}
    path.write_bytes(safetensors_bytes({**block, **changes}))
    return path


def test_every_model_and_type_is_recorded():
    cases = {f"{m} {k}" for m in diffusion_checkpoints.MODELS for k in diffusion_checkpoints.KINDS}
    assert cases == RECORDED.keys(), "tests/oracle/diffusion_digests.py records them"
    for case, digests in RECORDED.items():
        recipes = diffusion_digests.RECIPES[case.split()[1]]
        assert [*digests] == [diffusion_digests.CONVERTED, *recipes]


@pytest.mark.parametrize("case", RECORDED)
def test_a_model_becomes_the_same_files_as_with_the_usual_tools(case, tmp_path):
    source = diffusion_checkpoints.write(*case.split(), tmp_path / "model.safetensors")
    with ggufkit.convert(source) as model:
        for recipe, digest in RECORDED[case].items():
            out = tmp_path / "out.gguf"
            is_plain = recipe == diffusion_digests.CONVERTED
            ggufkit.write(model if is_plain else model.quantize(recipe), out)
            assert diffusion_digests.digest(out) == digest, recipe


def test_a_converted_file_quantizes_to_the_same_bytes_as_its_source(tmp_path):
    source = diffusion_checkpoints.write("wan", "BF16", tmp_path / "wan.safetensors")
    with ggufkit.convert(source) as model:
        ggufkit.write(model, tmp_path / "f16.gguf")
    with ggufkit.open(tmp_path / "f16.gguf") as model:
        ggufkit.write(model.quantize("Q4_K_M"), tmp_path / "q4.gguf")
    assert diffusion_digests.digest(tmp_path / "q4.gguf") == RECORDED["wan BF16"]["Q4_K_M"]


def test_i_quants_take_importance_data(tmp_path):
    source = diffusion_checkpoints.write("flux", "BF16", tmp_path / "flux.safetensors")
    with ggufkit.convert(source) as model:
        quantized = model.quantize("IQ4_XS")
        types = {name: tensor.type.name for name, tensor in quantized.tensors.items()}
        assert types["double_blocks.0.img_attn.proj.weight"] == "IQ4_XS"
        assert types["double_blocks.0.img_attn.qkv.weight"] == "IQ4_XS"
        assert types["img_in.weight"] == "BF16"
        with pytest.raises(ggufkit.errors.MissingImportanceError):
            model.quantize("IQ2_XS")


def of_sd_cpp(path: Path, names: Iterable[str], width: int) -> Path:
    """Write importance data as `save_imatrix` of stable-diffusion.cpp does; return its path."""
    entries = [f"model.diffusion_model.{name}".encode() for name in names]
    parts = [struct.pack("<i", len(entries))]
    for number, name in enumerate(entries):
        values = (np.arange(width) % (number + 7) + 1).astype("<f4")
        parts += [struct.pack("<i", len(name)), name, struct.pack("<ii", 1, width)]
        parts += [values.tobytes()]
    path.write_bytes(b"".join(parts) + struct.pack("<i", 0))  # and no name of a text
    return path


def test_importance_data_of_stable_diffusion_cpp_has_a_prefix(tmp_path):
    source = diffusion_checkpoints.write("sd3", "BF16", tmp_path / "sd3.safetensors")
    with ggufkit.convert(source) as model:
        names = [d.after.name for d in decide(model, "IQ2_XS").uncovered]
        data = of_sd_cpp(tmp_path / "im.dat", names, 256)
        ggufkit.write(model.quantize("IQ2_XS", imatrix=data), tmp_path / "prefixed.gguf")
        matrix = Imatrix.open(data)
        plain = {
            name.removeprefix("model.diffusion_model."): e for name, e in matrix.entries.items()
        }
        ggufkit.write(
            model.quantize("IQ2_XS", imatrix=replace(matrix, entries=plain)), tmp_path / "own.gguf"
        )
        types = ggufkit.target(model, bpw=3.1, imatrix=data)
    assert (tmp_path / "prefixed.gguf").read_bytes() == (tmp_path / "own.gguf").read_bytes()
    assert len(names) == 12
    assert types.keys() == set(names)
    assert {kind.name for kind in types.values()} & {"IQ2_XXS", "IQ2_XS", "IQ2_S"}


def test_importance_data_for_other_rows_is_left_out(tmp_path):
    source = diffusion_checkpoints.write("sd1", "F16", tmp_path / "sd1.safetensors")
    name = "input_blocks.4.1.transformer_blocks.0.attn1.to_q.weight"
    data = of_sd_cpp(tmp_path / "im.dat", [name], 320)
    for loader, covered in (("comfyui", False), ("sd.cpp", True)):
        with ggufkit.convert(source, loader=loader) as model:
            weights = {
                d.after.name: d.weights for d in decide(model, "Q8_0", imatrix=data).decisions
            }
        prefix = "model.diffusion_model." if covered else ""
        is_used = weights[prefix + name] is not None and np.ptp(weights[prefix + name]) > 0
        assert is_used == covered


@pytest.mark.parametrize("loader", ["comfyui", "sd.cpp"])
@pytest.mark.parametrize("model", ["flux", "wan"])
def test_a_size_of_ones_own_leaves_the_same_tensors_whole(tmp_path, model, loader):
    source = diffusion_checkpoints.write(model, "F16", tmp_path / "a.safetensors")
    with ggufkit.convert(source, loader=loader) as lazy:
        ggufkit.write(lazy, tmp_path / "a.gguf")
        decisions = decide(lazy, "Q8_0").decisions
    size = str(lazy.nbytes * 2 // 3)
    done = run("quantize", tmp_path / "a.gguf", tmp_path / "b.gguf", "--target-size", size)
    assert done.code == 0, done.err
    assert (tmp_path / "b.gguf").stat().st_size <= int(size)
    unchanged = {d.after.name for d in decisions if not d.is_changed}
    with ggufkit.open(tmp_path / "b.gguf") as smaller:
        changed = {t.name for t in smaller.tensors.values() if t.type.is_quantized}
    assert changed
    assert not changed & unchanged


def test_nan_is_refused_and_nothing_is_written(tmp_path):
    numbers = np.ones((64, 256), np.float32)
    numbers[3, 5] = np.nan
    source = small(tmp_path / "flux.safetensors", **{"bad.weight": numbers})
    for options in ([], ["--quantize", "Q4_K_M"], ["--outtype", "bf16", "--quantize", "Q8_0"]):
        done = run("convert", source, tmp_path / "out.gguf", *options)
        assert done.code == 1
        assert "'bad.weight' holds nan in row 3, column 5" in done.err
        assert "download it again" in done.err
        assert not (tmp_path / "out.gguf").exists()


def test_a_number_beyond_f16_is_refused_and_nothing_is_written(tmp_path):
    numbers = np.ones((64, 256), np.float32)
    numbers[3, 5] = 1e6
    source = small(tmp_path / "flux.safetensors", **{"large.weight": numbers})
    done = run("convert", source, tmp_path / "out.gguf")
    assert done.code == 1
    assert "'large.weight' holds 1e+06 in row 3, column 5" in done.err
    assert not (tmp_path / "out.gguf").exists()
    with ggufkit.convert(source, outtype="bf16") as model:
        ggufkit.write(model, tmp_path / "out.gguf")


def test_infinite_numbers_stay_infinite(tmp_path):
    numbers = np.full((64, 256), np.inf, np.float32)
    source = small(tmp_path / "flux.safetensors", **{"large.weight": numbers})
    with ggufkit.convert(source) as model:
        assert np.isposinf(model["large.weight"].numpy()).all()


@pytest.mark.parametrize("kind", [np.int64, np.float64, np.uint8, np.bool_])
def test_other_numbers_become_f16(tmp_path, kind):
    numbers = (np.arange(64 * 256) % 2).reshape(64, 256).astype(kind)
    source = small(tmp_path / "flux.safetensors", **{"other.weight": numbers})
    with ggufkit.convert(source) as model:
        assert model["other.weight"].type.name == "F16"
        assert np.array_equal(model["other.weight"].numpy(), numbers.astype(np.float16))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lora_unet_double_blocks_0_img_attn_proj.lora_down.weight", "a LoRA adapter"),
        ("encoder.block.0.layer.0.SelfAttention.q.weight", "a T5 text encoder"),
        ("decoder.conv_in.weight", "`--for sd.cpp` converts it"),
        ("text_model.encoder.layers.0.mlp.fc1.weight", "a CLIP text encoder"),
        ("layers.0.img_mod.svdq_wscales", "Use the original checkpoint"),
        ("model.layers.0.self_attn.q_proj.weight", "a language model"),
        ("transformer_blocks.0.attn.add_q_proj.weight", "names, which ggufkit cannot rename"),
        ("something.weight", "is not an image or video model that ggufkit knows"),
    ],
)
def test_other_files_are_refused_with_what_they_are(tmp_path, name, message):
    source = tmp_path / "other.safetensors"
    source.write_bytes(safetensors_bytes({name: np.ones((8, 8), np.float32)}))
    done = run("convert", source, tmp_path / "out.gguf")
    assert done.code == 1
    assert message in done.err
    assert not (tmp_path / "out.gguf").exists()


def test_the_nearest_architecture_is_named(tmp_path):
    source = tmp_path / "part.safetensors"
    source.write_bytes(safetensors_bytes({"head.modulation": np.ones((8, 8), np.float32)}))
    with pytest.raises(CheckpointError, match=r"wan lacks blocks\.0\.self_attn\.norm_q\.weight"):
        ggufkit.convert(source)
    with ggufkit.convert(source, arch="wan") as model:
        assert model.architecture == "wan"
    with pytest.raises(ValueTypeError, match="unknown architecture"):
        ggufkit.convert(source, arch="nothing")


def flux_without(**names: str | None) -> dict[str, np.ndarray]:
    """Return a tiny FLUX whose tensors with these parts of names get another name, or none."""
    tensors = diffusion_checkpoints.arrays("flux", "BF16")
    for part, instead in names.items():
        others = {n: n.replace(part, instead) if instead else "" for n in tensors if part in n}
        tensors = {others.get(name, name): array for name, array in tensors.items()}
    return {name: array for name, array in tensors.items() if name}


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            flux_without(double_blocks="other_blocks"),
            "lacks double_blocks.0.img_attn.proj.weight",
        ),
        (flux_without(**{"double_blocks.1": "double_blocks.4"}), "double_blocks.1 is missing"),
        (flux_without(**{"single_blocks.0": None}), "single_blocks.0 is missing"),
        (
            flux_without() | diffusion_checkpoints.arrays("wan", "BF16"),
            "it has tensors of Wan 2.1 and 2.2 (with S2V, VACE and Animate) and of FLUX.1",
        ),
        ({}, "contains no tensors"),
    ],
)
def test_what_is_not_one_whole_model_is_refused(tmp_path, tensors, message):
    source = tmp_path / "some.safetensors"
    source.write_bytes(safetensors_bytes(tensors))
    done = run("convert", source, tmp_path / "out.gguf")
    assert done.code == 1
    assert message in done.err
    assert "ownload" in done.err
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize("loader", ["comfyui", "sd.cpp"])
@pytest.mark.parametrize("nbytes", [0, 100, -1000])
def test_a_truncated_file_is_refused(tmp_path, loader, nbytes):
    source = diffusion_checkpoints.write("flux", "BF16", tmp_path / "flux.safetensors")
    source.write_bytes(source.read_bytes()[:nbytes])
    done = run("convert", source, tmp_path / "out.gguf", "--for", loader)
    assert done.code == 1
    assert "download it again" in done.err
    assert not (tmp_path / "out.gguf").exists()


def test_shards_that_repeat_a_tensor_are_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"_class_name": "FluxTransformer2DModel"}')
    for number in (1, 2):
        name = f"diffusion_pytorch_model-{number:05}-of-00002.safetensors"
        diffusion_checkpoints.write("flux", "BF16", tmp_path / name)
    with pytest.raises(CheckpointError, match=r"another file of it has 'double_block"):
        ggufkit.convert(tmp_path)


@pytest.mark.parametrize("loader", ["comfyui", "sd.cpp"])
def test_a_name_that_is_too_long_is_refused(tmp_path, loader):
    source = small(tmp_path / "flux.safetensors", **{"n" * 128: np.ones(4, np.float32)})
    done = run("convert", source, tmp_path / "out.gguf", "--for", loader)
    assert done.code == 1
    assert "Use 1 to 127 bytes" in done.err
    assert not (tmp_path / "out.gguf").exists()


def test_names_that_are_too_long_for_llama_cpp_are_read_and_written(tmp_path):
    name = "txt_in.individual_token_refiner.blocks.0.adaLN_modulation.1.weight"  # of HunyuanVideo
    source = small(tmp_path / "flux.safetensors", **{name: np.ones((8, 256), np.float32)})
    with ggufkit.convert(source) as model:
        ggufkit.write(model.quantize("Q8_0"), tmp_path / "out.gguf")
    assert ggufkit.check(tmp_path / "out.gguf") == []
    with ggufkit.open(tmp_path / "out.gguf") as model:
        assert name in model


def test_options_of_text_models_are_refused(tmp_path):
    source = small(tmp_path / "flux.safetensors")
    done = run("convert", source, tmp_path / "out.gguf", "--no-mtp", "--mistral-format")
    assert done.code == 2
    assert "leave out --no-mtp, --mistral-format" in done.err
    done = run("convert", tmp_path, tmp_path / "out.gguf", "--arch", "flux")
    assert done.code == 2
    assert "--arch goes with an image or video model" in done.err


def test_several_outputs_are_named_after_the_source(tmp_path):
    source = small(tmp_path / "flux1-dev.safetensors")
    done = run("convert", source, f"{tmp_path}/out/", "--quantize", "Q4_K_S,Q8_0")
    assert done.code == 0, done.err
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"flux1-dev-Q4_K_S.gguf", "flux1-dev-Q8_0.gguf"}


def test_check_names_the_programs_that_read_five_dimensions(tmp_path):
    source = diffusion_checkpoints.write("wan", "BF16", tmp_path / "wan.safetensors")
    with ggufkit.convert(source) as model:
        assert [finding.rule for finding in ggufkit.check(model)] == ["diffusion-dims"]
        (path,) = ggufkit.write(model, tmp_path / "wan.gguf")
    (finding,) = ggufkit.check(path)
    assert (finding.rule, finding.severity) == ("diffusion-dims", "note")
    assert "stable-diffusion.cpp" in finding.remedy


def test_the_weights_of_a_model_are_estimated(tmp_path):
    source = diffusion_checkpoints.write("flux", "BF16", tmp_path / "flux.safetensors")
    with ggufkit.convert(source) as model:
        assert ggufkit.estimate(model).weights == model.nbytes


def test_files_of_stable_diffusion_cpp_are_image_models(tmp_path):
    source = diffusion_checkpoints.write("sd1", "F16", tmp_path / "sd1.safetensors")
    model = ggufkit.safetensors.load(source)  # its `convert` writes no keys, and keeps the prefix
    ggufkit.write(model, tmp_path / "sd1.gguf")
    rules = {finding.rule for finding in ggufkit.check(tmp_path / "sd1.gguf")}
    assert rules == set()


def test_a_note_says_what_rows_that_do_not_divide_cost(tmp_path):
    source = diffusion_checkpoints.write("wan", "BF16", tmp_path / "wan.safetensors")
    done = run("convert", source, tmp_path / "out.gguf", "--quantize", "Q4_K_M")
    cost = 5 * 256 * 544 * (16 - 6.5625) / 8  # F16 instead of Q6_K
    expected = (
        f"5 tensors with rows that do not divide into blocks: F16 instead of Q6_K, {size(cost)}"
    )
    assert f"{expected} more" in done.err
    with ggufkit.convert(source) as model:
        (planned,) = ggufkit.plan(model, "Q4_K_M")
    assert (planned.fallbacks, planned.fallback_nbytes) == (5, cost)


def test_a_recipe_of_ones_own_keeps_the_rules_of_its_base(tmp_path):
    source = diffusion_checkpoints.write("wan", "BF16", tmp_path / "wan.safetensors")
    recipe = tmp_path / "mine.toml"
    recipe.write_text('base = "Q4_K_M"\n[types]\n"^blocks\\\\.(0|4)\\\\." = "Q8_0"\n')
    done = run("convert", source, tmp_path / "out.gguf", "--quantize", recipe)
    assert done.code == 0, done.err
    with ggufkit.open(tmp_path / "out.gguf") as model:
        types = {name: tensor.type.name for name, tensor in model.tensors.items()}
    assert [types[f"blocks.{i}.self_attn.q.weight"] for i in (0, 1, 4)] == ["Q8_0", "Q4_K", "Q8_0"]
    assert types["blocks.1.cross_attn.v.weight"] == "Q6_K"  # a rule of Q4_K_M
    assert types["blocks.0.ffn.2.weight"] == "Q8_0"  # rows of 544 divide by 32
    assert types["patch_embedding.weight"] == "F32"
