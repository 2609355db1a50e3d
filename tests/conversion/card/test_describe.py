"""The general.* keys of a checkpoint, compared with the official package."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import gguf
import pytest
import yaml
from gguf.metadata import Metadata as Official
from hypothesis import given
from hypothesis import strategies as st

from ggufkit.conversion.card.describe import describe
from ggufkit.conversion.checkpoint.folder import Checkpoint
from ggufkit.errors import CheckpointError
from ggufkit.format.coerce import plain
from ggufkit.format.metadata import Metadata
from ggufkit.models.model import Tensors
from tokenizer_files import folder_with

IDS = [
    "meta-llama/Llama-3-8B",
    "Qwen/Qwen2.5-7B-Instruct",
    "foo",
    "a b c",
    "https://huggingface.co/x/y-7B",
    "https://huggingface.co/datasets/a/b",
    "http://z.y",
    "./x/y",
    "org/x/y",
]
TEXTS = st.sampled_from(["x", "Foo Bar", "1.0", "v2", "a: b", "'q'", "no", "", *IDS])
WORKS = st.none() | st.sampled_from(IDS) | st.lists(st.sampled_from(IDS), max_size=3)
LISTS = st.none() | st.sampled_from(["en", "chat"]) | st.lists(st.sampled_from(["a", "no"]))
FIELDS = (
    "name author version organization description finetune basename size_label url doi uuid "
    "repo_url model_name model_author model_creator model_type model_url license license_name "
    "license_link"
)
CARDS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(FIELDS.split(), TEXTS),
        **dict.fromkeys(["base_model", "base_models", "datasets", "dataset"], WORKS),
        **dict.fromkeys(["tags", "pipeline_tag", "language", "languages"], LISTS),
    },
)
SAMPLING = {"top_k": 50, "top_p": 0.5, "temperature": 0.75}
OVERRIDES = {
    "general.author": "Somebody",
    "general.tags": ["t1", "t2"],
    "general.sampling.top_k": 7,
    "general.base_models": [{"name": "Base", "url": "u"}],
    "general.size_label": "9B",
}


@dataclass(frozen=True)
class Shaped:
    """A tensor's name and shape."""

    name: str
    shape: tuple[int, ...]


def official(folder, name, tensors):
    writer = gguf.GGUFWriter(None, "x")
    for tensor in tensors:
        writer.add_tensor_info(tensor.name, tensor.shape, gguf.np.dtype("f4"), 1)
    counts = writer.get_total_parameter_count()
    metadata = Official.load(folder / "overrides.json", folder, name, counts[0])
    if metadata.size_label is None and counts[0] > 0:
        metadata.size_label = gguf.size_label(*counts)
    writer.add_type("model")
    metadata.set_gguf_meta_model(writer)
    pairs = writer.kv_data[0].items()
    return {key: value.value for key, value in pairs if key != "general.architecture"}


@given(
    st.sampled_from(["SmolLM2-360M-Instruct", "llama-3-8B-v1.0", "model", "Phi-3-mini-128k-x"]),
    CARDS,
    st.fixed_dictionaries({}, optional={"_name_or_path": st.sampled_from([*IDS, "/home/x"])}),
    st.sampled_from([{}, SAMPLING, {"top_k": None, "temperature": 1}]),
    st.sets(st.sampled_from(sorted(OVERRIDES))),
    st.none() | st.just("Given Name"),
    st.lists(
        st.sampled_from(
            [
                Shaped("a.weight", (7000, 1000)),
                Shaped("blk.0.ffn_up_exps.weight", (8, 900, 4096)),
                Shaped("blk.0.ffn_up_exps.bias", (8, 40)),
            ]
        ),
        unique=True,
    ),
)
def test_keys_match_the_official_package(folder_name, card, config, sampling, keys, name, tensors):
    overrides = {key: OVERRIDES[key] for key in sorted(keys)}
    head = yaml.safe_dump(card)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / folder_name
        folder.mkdir()
        checkpoint = folder_with(
            folder,
            config,
            config__json=config,
            generation_config__json=sampling,
            README__md=f"---\n{head}---\n# Card\n",
            overrides__json=overrides,
        )
        expected = official(folder, name, tensors)
        described = describe(checkpoint, name=name, overrides=overrides, tensors=tensors)
    assert [(key, plain(value)) for key, value in described.items()] == list(expected.items())


def test_values_have_the_types_that_the_official_converter_writes(tmp_path):
    card = "---\ntags: [a]\nbase_model: x/y\n---\n"
    checkpoint = folder_with(tmp_path, generation_config__json=SAMPLING, README__md=card)
    metadata = Metadata(describe(checkpoint))
    types = {key: metadata.type_name(key) for key in metadata}
    assert types["general.sampling.top_k"] == "int32"
    assert types["general.sampling.temp"] == "float32"
    assert types["general.base_model.count"] == "uint32"
    assert types["general.tags"] == "array[string]"


def test_reads_the_older_field_of_the_repetition_penalty(tmp_path):
    checkpoint = folder_with(tmp_path, generation_config__json={"repetition_penalty": 1.25})
    assert describe(checkpoint)["general.sampling.penalty_repeat"] == pytest.approx(1.25)


def test_folder_of_the_hugging_face_cache_is_named_after_its_model(tmp_path):
    folder = tmp_path / "models--Qwen--Qwen2.5-7B-Instruct" / "snapshots" / "0a1b2c"
    folder.mkdir(parents=True)
    keys = describe(Checkpoint(folder, {}, Tensors([])))
    assert keys["general.name"] == "Qwen2.5 7B Instruct"
    assert keys["general.organization"] == "Qwen"


def test_licence_can_be_overridden_although_the_converter_cannot(tmp_path):
    keys = describe(folder_with(tmp_path), overrides={"general.license": "mit"})
    assert keys["general.license"] == "mit"


def test_leaves_out_an_unreadable_card_with_a_note(tmp_path):
    notes = []
    checkpoint = folder_with(tmp_path, README__md="---\na: &x b\n---\n")
    assert "general.name" in describe(checkpoint, say=notes.append)
    assert "line 2" in notes[0]


def test_leaves_out_impossible_values_with_a_note(tmp_path):
    notes = []
    checkpoint = folder_with(
        tmp_path,
        README__md="---\nname: [a]\n---\n",
        generation_config__json={"top_k": "many", "temperature": 0.5},
    )
    keys = describe(checkpoint, say=notes.append)
    assert "general.sampling.top_k" not in keys
    assert keys["general.sampling.temp"] == pytest.approx(0.5)
    assert len(notes) == 2


def test_leaves_out_a_broken_generation_config_with_a_note(tmp_path):
    notes = []
    describe(folder_with(tmp_path, generation_config__json="{"), say=notes.append)
    assert "generation_config.json" in notes[0]


def test_refuses_an_unknown_override_and_suggests_the_nearest_key(tmp_path):
    with pytest.raises(CheckpointError, match=r"general\.auhtor.*general\.author"):
        describe(folder_with(tmp_path), overrides={"general.auhtor": "x"})


def test_refuses_an_override_of_the_wrong_type_and_names_its_key(tmp_path):
    with pytest.raises(CheckpointError, match=r"general\.author"):
        describe(folder_with(tmp_path), overrides={"general.author": 5})
