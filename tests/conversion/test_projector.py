"""Projectors of tiny checkpoints are byte-identical to those of llama.cpp's converter."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import ggufkit
import projector_folders
from ggufkit.conversion import projector
from ggufkit.conversion.architecture.architecture import Architecture, architectures
from ggufkit.conversion.architecture.name_rules import NameIndex
from ggufkit.conversion.map_tensors import rename
from ggufkit.errors import CheckpointError

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
import projector_digests

CASES = projector_folders.cases()
RECORDED = projector_digests.recorded()


def changed(case: str, **changes: object) -> dict:
    """Return a case with other fields."""
    return {**copy.deepcopy(CASES[case]), **changes}


def problems(case: dict, tmp_path: Path) -> str:
    """Return why a case is refused."""
    with pytest.raises(CheckpointError) as caught:
        ggufkit.convert(projector_folders.make(case, tmp_path / "model"), mmproj=True)
    return str(caught.value)


def test_every_case_is_recorded():
    assert CASES.keys() == RECORDED.keys(), "tests/oracle/projector_digests.py records them"
    assert all(set(digests) == set(projector_digests.TYPES) for digests in RECORDED.values())


@pytest.mark.parametrize("case", CASES)
def test_projector_is_byte_identical(case, tmp_path):
    folder = projector_folders.make(CASES[case], tmp_path / case)
    for kind, expected in RECORDED[case].items():
        out = tmp_path / "ours.gguf"
        exactly = kind == "f32"  # changes nothing where nothing departs
        with ggufkit.convert(folder, mmproj=True, outtype=kind, exactly=exactly) as model:
            ggufkit.write(model, out)
        assert projector_digests.digest(out) == expected, kind


def test_projector_of_an_unknown_class_names_the_class(tmp_path):
    case = changed("gemma3")
    case["config"]["architectures"] = ["Gemma33ForConditionalGeneration"]
    assert "the nearest known is Gemma3ForConditionalGeneration (gemma3)" in problems(
        case, tmp_path
    )


def test_class_without_a_projector_says_so(tmp_path):
    case = changed("gemma3")
    case["config"]["architectures"] = ["LlamaForCausalLM"]
    assert "no projector is known for 'LlamaForCausalLM'" in problems(case, tmp_path)


def test_text_models_leave_out_the_tensors_of_their_projectors():
    homes = {
        name: architecture
        for architecture in architectures().values()
        for name in architecture.classes
    }
    classed = [(projector.classes(case.get("config", {})), case) for case in CASES.values()]
    assert not [
        name
        for names, case in classed
        if names and names[0] in homes
        for name in without_a_place(case["tensors"], homes[names[0]])
    ]


def without_a_place(names: Iterable[str], text: Architecture) -> list[str]:
    """Return the names that a text model neither keeps nor leaves out."""
    index = NameIndex(text.rules)
    only = text.only or ("*",)
    plain = (rename(name.replace("{i}", "0"), text.rename, {}.get) for name in names)
    selected = (n for n in plain if any(fnmatchcase(n, pattern) for pattern in only))
    selected = (n for n in selected if not any(fnmatchcase(n, pattern) for pattern in text.skip))
    return [name for name in selected if index.place(name) is None]


def test_class_of_which_only_the_projector_is_known_says_so(tmp_path):
    folder = projector_folders.make(CASES["deepseek-ocr2"], tmp_path / "model")
    with pytest.raises(CheckpointError, match="only the projector of 'DeepseekOCR2F"):
        ggufkit.convert(folder)


def test_missing_layers_are_named(tmp_path):
    case = changed("gemma3", layers=1)
    assert "the vision encoder has no tensors of layer 1, of 4 layers" in problems(case, tmp_path)


def test_missing_preprocessor_is_named(tmp_path):
    case = changed("gemma3")
    del case["preprocessor"]
    assert "the configuration lacks preprocessor.image_mean" in problems(case, tmp_path)


def test_tensors_that_the_encoder_does_not_have_are_named(tmp_path):
    case = changed("gemma3")
    case["tensors"]["vision_tower.vision_model.neck.weight"] = (3, 3)
    assert "neck.weight' is unknown to clip" in problems(case, tmp_path)


def test_processor_wins_over_preprocessor(tmp_path):
    case = changed("gemma3", processor={"image_processor": {"image_mean": [0.25, 0.5, 0.75]}})
    folder = projector_folders.make(case, tmp_path / "model")
    with ggufkit.convert(folder, mmproj=True) as model:
        assert model.metadata["clip.vision.image_mean"].tolist() == [0.25, 0.5, 0.75]


def test_indexes_of_windows_must_be_equally_spaced(tmp_path):
    case = changed("qwen25vl")
    case["config"]["vision_config"]["fullatt_block_indexes"] = [1, 2]
    assert "[1, 2] are not equally spaced" in problems(case, tmp_path)


def test_layers_of_deepstack_must_be_in_the_configuration(tmp_path):
    case = changed("qwen3vl")
    case["config"]["vision_config"]["deepstack_visual_indexes"] = [1]
    assert "deepstack_visual_indexes is [1], but a tensor has number" in problems(case, tmp_path)


def test_config_json_may_hold_anything(tmp_path):
    case = changed("gemma3")
    case["config"]["vision_config"] = 3
    folder = projector_folders.make(case, tmp_path / "model")
    with pytest.raises(CheckpointError, match="has no vision encoder"):
        ggufkit.convert(folder, mmproj=True)
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": "all"}))
    with pytest.raises(CheckpointError):
        ggufkit.convert(folder, mmproj=True)


def test_embedding_of_image_breaks_is_found_under_the_names_of_published_checkpoints(tmp_path):
    case = changed("pixtral")
    own = case["tensors"].pop("model.embed_tokens.weight")
    case["tensors"]["language_model.model.embed_tokens.weight"] = own
    folder = projector_folders.make(case, tmp_path / "model")
    with ggufkit.convert(folder, mmproj=True) as model:
        assert model.tensors["v.token_embd.img_break"].shape == (64,)


def test_missing_token_of_image_breaks_is_an_error(tmp_path):
    assert "img_break" in problems(changed("pixtral", files={}), tmp_path)


def test_pictures_of_qwen3_omni_have_their_published_names_or_those_of_the_converter(tmp_path):
    plain = changed("qwen3omni")
    model = changed("qwen3omni")
    model["tensors"] = {
        f"thinker.{name}" if name.startswith("visual.") else name: shape
        for name, shape in model["tensors"].items()
    }
    with (
        ggufkit.convert(projector_folders.make(plain, tmp_path / "plain"), mmproj=True) as one,
        ggufkit.convert(projector_folders.make(model, tmp_path / "named"), mmproj=True) as other,
    ):
        assert set(one.tensors) == set(other.tensors)


@pytest.mark.parametrize(
    ("case", "field", "value", "why"),
    [
        ("minimax-m3", "vision_config.hidden_size", 96, "is 48, but llama.cpp always computes"),
        ("step3vl", "vision_config.width", 1024, "is 1024, but llama.cpp always computes"),
        ("deepseek4v", "vision_n_layers", 0, "lacks nonzero(vision_n_layers)"),
        ("deepseek4v", "vision_max_n_token", 400, "is 400, but llama.cpp always computes"),
        ("dots3note", "audio_config.chunk_seconds", 30, "is 30, but llama.cpp always computes"),
        ("dots3note", "vision_config.adapter_type", "mlp", "is 'mlp', but llama.cpp always"),
        ("nemotron-vl", "vision_config.patch_size", 5, "cannot be"),
    ],
)
def test_encoder_that_llama_cpp_cannot_compute_is_refused(case, field, value, why, tmp_path):
    changed_model = changed(case)
    *within, name = field.split(".")
    config = changed_model["config"][within[0]] if within else changed_model["config"]
    config[name] = value
    assert why in problems(changed_model, tmp_path)


def test_positions_that_fill_no_square_are_refused(tmp_path):
    case = changed("phi4v")
    prefix = "model.vision_tower.vision_tower.vision_model.embeddings"
    case["tensors"][f"{prefix}.position_embedding.weight"] = (15, 32)
    assert "positions_of_a_side" in problems(case, tmp_path)


def test_norms_of_the_ears_of_gemma_3n_which_the_converter_cannot_name_are_converted(tmp_path):
    case = changed("gemma3n")
    case["tensors"]["model.audio_tower.subsample_conv_projection.conv_0.norm.weight"] = (16,)
    folder = projector_folders.make(case, tmp_path / "model")
    with ggufkit.convert(folder, mmproj=True) as model:
        assert model.tensors["a.conv1d.0.norm.weight"].shape == (16,)


def test_missing_folder_of_ears_is_named(tmp_path):
    text = problems(changed("mimo-v2", folders={}), tmp_path)
    assert "audio_tokenizer/model.safetensors is missing" in text
