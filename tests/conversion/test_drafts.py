"""Draft models: their tokenizer and some of their keys are those of their target."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
import drafts

import ggufkit
import pytorch_file
from ggufkit.errors import CheckpointError
from plain_checkpoint import ARCH, CONFIG, numbers
from tensors_file import safetensors_bytes

# The same draft models with a target that has no tokenizer, which these tests have no need of.
DRAFT = 'like = "{0}"\nname = "{1}"\nclasses = ["{2}"]\nvocabulary = "{3}"\n'
KINDS = {
    "eagle3": ("eagle3", "eagle3", "LlamaForCausalLMEagle3", "none of target"),
    "dflash": ("dflash", "dflash", "DFlashDraftModel", "target"),
    "dflash-mask": ("dflash", "dflash", "DFlashDraftModel", "target"),
    "gemma4-dspark": ("gemma4-dspark", "dflash", "Gemma4DSparkModel", "target"),
    "dspark-speculator": ("dspark", "dflash", "DSparkSpeculator", "target"),
}


@pytest.fixture
def target(tmp_path):
    (tmp_path / "target").mkdir()
    config = CONFIG | {"num_hidden_layers": 9, "vocab_size": 416}
    (tmp_path / "target/config.json").write_text(json.dumps(config))
    return tmp_path / "target"


@pytest.fixture
def convert(tmp_path):
    def converted(case, **options):
        arch = tmp_path / "arch"
        arch.mkdir()
        (arch / "plain.toml").write_text(ARCH)
        (arch / "draft.toml").write_text(DRAFT.format(*KINDS[case]))
        return ggufkit.convert(drafts.make(case, tmp_path / case), arch_path=[arch], **options)

    return converted


@pytest.mark.parametrize("case", KINDS)
def test_draft_model_needs_its_target(convert, case):
    with pytest.raises(CheckpointError, match="target") as caught:
        convert(case)
    assert "--target-model-dir" in (caught.value.remedy or "")


def test_eagle_reads_three_layers_of_its_target(convert, target):
    with convert("eagle3", target=target) as model:
        assert list(model.metadata["eagle3.target_layers"]) == [2, 4, 6]
        assert model.metadata["eagle3.target_hidden_size"] == CONFIG["hidden_size"]


@pytest.mark.parametrize("case", ["eagle3", "dspark-speculator"])
def test_tokens_of_the_draft_become_ids_of_the_target_at_the_end(convert, target, case):
    with convert(case, target=target) as model:
        name, tensor = list(model.tensors.items())[-1]
        ids = tensor.raw().view(np.int64).reshape(-1)
    assert (name, tensor.type.name) == ("d2t", "I64")
    assert ids.tolist() == list(range(0, 3 * drafts.SOME, 3))


def test_tokens_beyond_the_target_are_an_error(convert, target):
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | {"vocab_size": 200}))
    with (
        convert("eagle3", target=target) as model,
        pytest.raises(CheckpointError, match="100 different tokens below 200"),
    ):
        model.tensors["d2t"].raw()


def test_mask_of_the_draft_comes_after_the_tokenizer(convert, target):
    with convert("dflash", target=target) as model:
        assert list(model.metadata)[-1] == "tokenizer.ggml.mask_token_id"
        assert list(model.metadata["dflash.target_layers"]) == [1, 2, 3]


def test_keys_that_the_class_of_the_target_adds_to_its_tokenizer_are_those_of_the_draft(
    convert, target
):
    late = '[late]\n"tokenizer.ggml.eot_token_id" = "num_hidden_layers"\n'
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "ARCH", ARCH + late)
        model = convert("dflash", target=target)
    with model:
        assert model.metadata["tokenizer.ggml.eot_token_id"] == 9


@pytest.fixture
def embeddings(target):
    """Return the embeddings and head that the target gets."""
    arrays = {name: numbers(416, 64) for name in ("model.embed_tokens.weight", "lm_head.weight")}
    (target / "model.safetensors").write_bytes(safetensors_bytes(arrays))
    return arrays


def test_embedding_of_the_mask_replaces_a_row_of_the_targets(convert, target, embeddings):
    with convert("dflash-mask", target=target, outtype="f32") as model:
        assert list(model.tensors)[:2] == ["output.weight", "token_embd.weight"]
        head, embedding = (model.tensors[name].numpy() for name in list(model.tensors)[:2])
    expected = embeddings["model.embed_tokens.weight"].copy()
    expected[3] = np.arange(64, dtype=np.float32) / 7
    assert np.array_equal(embedding, expected)
    assert np.array_equal(head, embeddings["lm_head.weight"])


def test_embedding_of_the_mask_needs_tensors_of_the_target(convert, target):
    with pytest.raises(CheckpointError, match=r"no tensor 'model\.embed_tokens\.weight'"):
        convert("dflash-mask", target=target)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"", "not a zip file"),
        (drafts.mask_file(4, "float32"), "the mask token 4, and config.json says 3"),
        (drafts.mask_file(3, "float32", length=8), "8 numbers for token 3"),
        (pytorch_file.pytorch_bytes({"embedding": numbers(64)}), "no mask_token_id"),
    ],
)
def test_embedding_of_the_mask_that_does_not_fit_is_an_error(
    convert, target, embeddings, monkeypatch, content, name
):
    assert embeddings
    monkeypatch.setattr(drafts, "mask_file", lambda *_: content)
    with pytest.raises(CheckpointError, match=name):
        convert("dflash-mask", target=target)


def test_target_without_config_json_is_named(convert, tmp_path):
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        convert("eagle3", target=tmp_path)


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"attention_k_eq_v": False}, "attention_k_eq_v"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ({"dflash_config": {"markov_head_type": "gated"}}, "markov_head_type"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type"),
        (
            {"rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": 0.3}},
            "partial_rotary_factor is 0.3",
        ),
    ],
)
def test_dspark_of_gemma_that_llama_cpp_computes_otherwise_is_refused(
    convert, target, monkeypatch, changed, name
):
    draft = drafts.DRAFTS["gemma4-dspark"]
    other = draft._replace(config=draft.config | changed)
    monkeypatch.setitem(drafts.DRAFTS, "gemma4-dspark", other)
    with pytest.raises(CheckpointError, match=name):
        convert("gemma4-dspark", target=target)


def test_dspark_of_gemma_without_a_head_must_say_that_it_is_tied(convert, target, monkeypatch):
    draft = drafts.DRAFTS["gemma4-dspark"]
    tensors = {name: tensor for name, tensor in draft.tensors.items() if name != "lm_head.weight"}
    other = draft._replace(config=draft.config | {"tie_word_embeddings": False}, tensors=tensors)
    monkeypatch.setitem(drafts.DRAFTS, "gemma4-dspark", other)
    with pytest.raises(CheckpointError, match="tie_word_embeddings"):
        convert("gemma4-dspark", target=target)
