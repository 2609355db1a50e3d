"""Adapters of PEFT, mergekit and MLX become the same pairs; what cannot be converted is listed."""

from __future__ import annotations

import json

import numpy as np
import pytest

import adapters
import ggufkit
import plain_checkpoint
import shell
import tensors_file
from ggufkit.errors import AdapterError

RNG = np.random.default_rng(4)


@pytest.fixture
def arch(tmp_path):
    (tmp_path / "arch").mkdir()
    (tmp_path / "arch" / "plain.toml").write_text(plain_checkpoint.ARCH)
    return {"arch_path": [tmp_path / "arch"]}


@pytest.fixture
def weights():
    return plain_checkpoint.whole(np.float32)


@pytest.fixture
def base(tmp_path, weights):
    return tensors_file.write_checkpoint(tmp_path / "base", plain_checkpoint.CONFIG, model=weights)


@pytest.fixture
def factors(weights):
    return adapters.factors({name: array.shape for name, array in weights.items()})


def content(model):
    with model:
        return {name: tensor.numpy().copy() for name, tensor in model.tensors.items()}


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_allclose(array, theirs[name], rtol=1e-6)


def test_merged_adapter_equals_the_changed_checkpoint(tmp_path, base, weights, factors, arch):
    folder = adapters.write_adapter(tmp_path / "adapter", factors)
    scale = adapters.ALPHA / adapters.RANK
    changed = dict(weights)
    for name in weights:
        stem = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{stem}.lora_A.weight" in factors:
            a, b = (factors[f"{stem}.lora_{letter}.weight"] for letter in "AB")
            changed[name] = weights[name] + scale * (b @ a)
    expected = tensors_file.write_checkpoint(
        tmp_path / "wanted", plain_checkpoint.CONFIG, model=changed
    )
    with (
        ggufkit.convert(base, outtype="f32", **arch) as model,
        ggufkit.convert_lora(folder, base=base, **arch) as adapter,
        ggufkit.convert(expected, outtype="f32", **arch) as tuned,
    ):
        merged = content(ggufkit.merge_lora(model, [adapter]))
        truth = {name: tensor.numpy() for name, tensor in tuned.tensors.items()}
        assert merged.keys() == truth.keys()
        for name, array in merged.items():
            np.testing.assert_allclose(array, truth[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("change", [
    lambda name: name.replace(".lora_A.weight", ".lora_A.default.weight")
                     .replace(".lora_B.weight", ".lora_B.default.weight"),
    lambda name: name.removeprefix("base_model.model."),
], ids=["name of the adapter", "no prefix"])  # fmt: skip
def test_other_names_of_factors_are_read(tmp_path, base, factors, arch, change):
    plain = adapters.write_adapter(tmp_path / "plain", factors)
    other = adapters.write_adapter(
        tmp_path / "other", {change(name): array for name, array in factors.items()}
    )
    first, second = (
        content(ggufkit.convert_lora(folder, base=base, **arch)) for folder in (plain, other)
    )
    assert_same(first, second)


def test_mlx_adapter_equals_that_of_peft(tmp_path, base, factors, arch):
    plain = adapters.write_adapter(tmp_path / "plain", factors)
    mlx = tmp_path / "mlx"
    mlx.mkdir()
    turned = {
        name.removeprefix("base_model.model.").removesuffix(".weight").replace("_A", "_a")
        .replace("_B", "_b"): np.ascontiguousarray(array.T)
        for name, array in factors.items()
    }  # fmt: skip
    (mlx / "adapters.safetensors").write_bytes(tensors_file.safetensors_bytes(turned))
    scale = adapters.ALPHA / adapters.RANK
    settings = {
        "fine_tune_type": "lora",
        "lora_parameters": {"rank": adapters.RANK, "scale": scale},
    }
    (mlx / "adapter_config.json").write_text(json.dumps(settings))
    adapter = ggufkit.convert_lora(mlx, base=base, **arch)
    assert adapter.metadata["adapter.lora.alpha"] == adapters.ALPHA
    assert_same(content(adapter), content(ggufkit.convert_lora(plain, base=base, **arch)))


def test_scales_that_llama_cpp_does_not_know_are_in_the_factor(tmp_path, base, factors, arch):
    plain = adapters.write_adapter(tmp_path / "plain", factors)
    rooted = adapters.write_adapter(
        tmp_path / "rooted", factors, use_rslora=True, alpha_pattern={"q_proj": 16}
    )
    notes = []
    adapter = ggufkit.convert_lora(rooted, base=base, say=notes.append, **arch)
    assert "use_rslora" in notes[0]
    ours, theirs = content(adapter), content(ggufkit.convert_lora(plain, base=base, **arch))
    root = np.float32(adapters.RANK**0.5)
    for name, array in ours.items():
        factor = 1 if name.endswith("_a") else 2 * root if "attn_q" in name else root
        np.testing.assert_allclose(array, factor * theirs[name], rtol=1e-6)


@pytest.mark.parametrize(("config", "added", "message"), [
    ({"use_dora": True}, {}, "magnitudes of DoRA"),
    ({"peft_type": "IA3"}, {}, "only LORA"),
    ({"lora_alpha": None}, {}, "no number lora_alpha"),
    ({}, {"base_model.model.lm_head.weight": (10, 8)}, "not factors of a matrix"),
    ({}, {"base_model.model.model.layers.0.mlp.odd.lora_A.weight": (4, 8)}, "only the factor A"),
    ({}, {"base_model.model.model.layers.0.odd.lora_A.weight": (4, 8),
          "base_model.model.model.layers.0.odd.lora_B.weight": (8, 4)}, "is unknown to llama"),
    ({}, {"base_model.model.model.layers.0.odd.lora_A.weight": (4, 8),
          "base_model.model.model.layers.0.odd.lora_B.weight": (8, 3)}, "no common rank"),
])  # fmt: skip
def test_what_cannot_be_converted_is_named(tmp_path, base, factors, arch, config, added, message):
    more = {name: np.ones(shape, np.float32) for name, shape in added.items()}
    folder = adapters.write_adapter(tmp_path / "adapter", factors | more, **config)
    with pytest.raises(AdapterError, match=message):
        ggufkit.convert_lora(folder, base=base, **arch)


def test_missing_base_model_is_asked_for(tmp_path, factors, arch):
    folder = adapters.write_adapter(tmp_path / "adapter", factors)
    with pytest.raises(AdapterError, match=r"org/Some-Model-7B.*base=") as caught:
        ggufkit.convert_lora(folder, **arch)
    assert "base=" in caught.value.remedy


def test_what_an_adapter_names_is_shown_and_never_opened(tmp_path, base, factors, arch):
    folder = adapters.write_adapter(tmp_path / "adapter", factors, base=str(base))
    with pytest.raises(AdapterError, match=r"is not given; it names .*which is not opened"):
        ggufkit.convert_lora(folder, **arch)


def test_an_adapter_folder_is_merged_only_into_the_folder_of_a_model(tmp_path, factors):
    folder = adapters.write_adapter(tmp_path / "adapter", factors)
    model = tmp_path / "model.gguf"
    ggufkit.save(model, {"a": np.ones(4, np.float32)}, {"general.architecture": "llama"})
    done = shell.ggufkit("lora", "merge", model, folder, "-o", tmp_path / "out.gguf")
    assert done.code == 1
    assert "not the folder of a model" in done.err


@pytest.mark.parametrize("config", [
    {"alpha_pattern": {"(": 1}}, {"alpha_pattern": {r"(a)\2": 1}}, {"alpha_pattern": [1]},
    {"alpha_pattern": {"q_proj": float("nan")}}, {"alpha_pattern": {"q_proj": 10**400}},
    {"alpha_pattern": {"q_proj": "8"}}, {"alpha_pattern": {"q_proj": 8}, "lora_alpha": 0},
    {"alpha_pattern": {"q_proj": 1e38}, "lora_alpha": 1e-38}, {"lora_alpha": 10**400},
    {"lora_alpha": 1e300}, {"lora_alpha": True}, {"lora_alpha": float("inf")}, {"lora_alpha": []},
    {"alpha_pattern": {"(q|q)*_proj": 1}},
])  # fmt: skip
def test_alphas_that_cannot_be_used_are_an_adapter_error(tmp_path, base, factors, arch, config):
    folder = adapters.write_adapter(tmp_path / "adapter", factors, **config)
    with pytest.raises(AdapterError, match="alpha"):
        ggufkit.convert_lora(folder, base=base, **arch)


def test_an_alpha_pattern_that_may_never_end_is_refused(tmp_path, base, factors, arch):
    pattern = r"(\w|[a-z._0-9]|.)+!"
    folder = adapters.write_adapter(tmp_path / "adapter", factors, alpha_pattern={pattern: 3})
    with pytest.raises(AdapterError, match="could take forever"):
        ggufkit.convert_lora(folder, base=base, **arch)
