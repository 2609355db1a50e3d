"""Adapters of image models are merged as diffusers fuses them, in PEFT's and in kohya's names.

`make test-oracle` runs it where transformers 5, diffusers and peft are.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import numpy as np
import pytest

import ggufkit

sys.path.insert(0, str(Path(__file__).resolve().parent))
import diffusers_names
from test_diffusion_loaders import ARCHITECTURES

from tensors_file import safetensors_bytes

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

CASES = {
    **ARCHITECTURES,
    "Krea2Transformer2DModel": "krea2",
    "UNet2DConditionModel": "sd1",
    "UNet2DConditionModel xl": "sdxl",
}
RANK, ALPHA = 4, 8


@pytest.fixture
def model_of():
    """Return what makes a tiny model of a class."""
    torch = pytest.importorskip("torch")
    diffusers = pytest.importorskip("diffusers")
    pytest.importorskip("peft")

    def make(case: str):
        torch.manual_seed(3)
        changes = {"pos_embed_seq_len": None} if case.startswith("Wan") else {}
        settings = {**diffusers_names.CLASSES[case], **changes}
        model = getattr(diffusers, case.split(maxsplit=1)[0])(**settings)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
        return model

    return make


def require_fused(case: str, folder: Path, adapter: Path, **options) -> None:
    """Compare the merged model of a folder with the one that diffusers fused."""
    arch = CASES[case]
    with (
        ggufkit.convert(folder / "base", outtype="f32", arch=arch) as base,
        ggufkit.convert(folder / "fused", outtype="f32", arch=arch) as fused,
    ):
        merged = ggufkit.merge_lora(base, adapter, **options)
        changed = 0
        for name, tensor in fused.tensors.items():
            np.testing.assert_allclose(merged[name].numpy(), tensor.numpy(), atol=2e-5, rtol=1e-4)
            changed += not np.array_equal(base[name].numpy(), tensor.numpy())
        assert changed


@pytest.mark.parametrize("case", CASES)
def test_an_adapter_of_every_matrix_is_merged_as_diffusers_fuses_it(case, tmp_path, model_of):
    import peft
    import torch

    model = model_of(case)
    model.save_pretrained(tmp_path / "base")
    kinds = (torch.nn.Linear, torch.nn.Conv2d)
    targets = [name for name, module in model.named_modules() if isinstance(module, kinds)]
    model.add_adapter(
        peft.LoraConfig(
            r=RANK, lora_alpha=ALPHA, target_modules=targets, init_lora_weights=False,
            alpha_pattern={targets[1]: 2},
        )
    )  # fmt: skip
    model.save_lora_adapter(tmp_path / "adapter")
    model.fuse_lora()
    model.unload_lora()
    model.save_pretrained(tmp_path / "fused")
    require_fused(case, tmp_path, tmp_path / "adapter")


def small_converter(function):
    """Return a function of diffusers with the sizes of the tiny model."""
    text = inspect.getsource(function)
    for large, small in {"3072, 3072, 3072, 12288": "16, 16, 16, 64"}.items():
        text = text.replace(large, small)
    scope = vars(inspect.getmodule(function)).copy()
    exec(compile(text, "converter", "exec"), scope)  # noqa: S102 (diffusers' own code)
    return scope[function.__name__]


def published_adapter(folder: Path, arch: str, spelled, chosen) -> dict[str, np.ndarray]:
    """Return an adapter of the matrices of a model whose published names `chosen` picks."""
    rng = np.random.default_rng(5)
    adapter = {}
    with ggufkit.convert(folder, outtype="f32", arch=arch) as base:
        for name, tensor in base.tensors.items():
            if len(tensor.shape) != 2 or not chosen(name):
                continue
            stem = spelled(name.removesuffix(".weight"))
            rows, columns = tensor.shape
            adapter[f"{stem}.lora_down.weight"] = rng.standard_normal((RANK, columns), np.float32)
            adapter[f"{stem}.lora_up.weight"] = rng.standard_normal((rows, RANK), np.float32)
            adapter[f"{stem}.alpha"] = np.array(ALPHA, np.float32)
    return adapter


@pytest.mark.parametrize(
    ("case", "function", "spelled", "chosen"),
    [
        (
            "FluxTransformer2DModel", "_convert_kohya_flux_lora_to_diffusers",
            lambda stem: f"lora_unet_{stem.replace('.', '_')}", lambda name: "blocks." in name,
        ),
        (
            "WanTransformer3DModel", "_convert_non_diffusers_wan_lora_to_diffusers",
            lambda stem: f"diffusion_model.{stem}",
            lambda name: "blocks." in name and "_img." not in name,
        ),
    ],
)  # fmt: skip
def test_kohyas_names_are_those_that_diffusers_translates(
    case, function, spelled, chosen, tmp_path, model_of
):
    import torch
    from diffusers.loaders import lora_conversion_utils

    model = model_of(case)
    model.save_pretrained(tmp_path / "base")
    adapter = published_adapter(tmp_path / "base", CASES[case], spelled, chosen)
    path = tmp_path / "adapter.safetensors"
    text_encoder = {"lora_te1_text_model_x.lora_down.weight": np.ones((4, 8), np.float32)}
    path.write_bytes(safetensors_bytes(adapter | text_encoder))
    translate = small_converter(getattr(lora_conversion_utils, function))
    factors = translate({name: torch.from_numpy(a) for name, a in adapter.items()})
    model.load_lora_adapter(
        {f"transformer.{name.removeprefix('transformer.')}": a for name, a in factors.items()},
        prefix="transformer",
    )
    model.fuse_lora()
    model.unload_lora()
    model.save_pretrained(tmp_path / "fused")
    require_fused(case, tmp_path, path)
