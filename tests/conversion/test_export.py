"""Tokenizer files rebuilt from GGUF files, and converted again."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ggufkit
import small_llama
from ggufkit.conversion.checkpoint.folder import Checkpoint
from ggufkit.conversion.export import plan_export
from ggufkit.conversion.tokenizer.export import tokenizer_files
from ggufkit.conversion.tokenizer.files import TokenizerFiles
from ggufkit.conversion.tokenizer.hub_tokenizer import hub_tokenizer
from ggufkit.conversion.tokenizer.kinds import vocabulary
from ggufkit.conversion.tokenizer.pre.pre_tokenizer_name import (
    encode,
    fingerprint,
    names_by_hash,
    rules_of_name,
)
from ggufkit.conversion.tokenizer.sentencepiece_model import (
    ModelType,
    PieceModel,
    PieceType,
    SentencePiece,
    dump_pieces,
    parse_pieces,
)
from ggufkit.errors import CheckpointError, GGUFError
from ggufkit.format.coerce import plain
from ggufkit.format.metadata import Metadata
from ggufkit.models.model import Model, Tensors
from ggufkit.models.sources import from_array
from tokenizer_files import PIECES, bpe, folder_with

# Names whose tokenizers are known by the same fingerprint, and the one that the converter takes.
SHARED = {"mpt": "olmo", "bert-bge": "jina-v2-en"}
# Files made by today's rules, whose every key comes back.
EXACT = {"gpt-2": "bpe", "refact": "bpe", "starcoder": "bpe", "llama-spm": "sentencepiece"}
PIECE_MODELS = st.builds(
    PieceModel,
    st.lists(
        st.builds(
            SentencePiece,
            st.text(st.characters(codec="utf-8"), min_size=1, max_size=8),
            st.floats(-1e4, 1e4, width=32),
            st.sampled_from(PieceType),
        ),
        min_size=1,
        max_size=8,
    ).map(tuple),
    st.sampled_from(ModelType),
    st.binary(max_size=200),
    st.booleans(),
    st.booleans(),
)


def exported(metadata, folder, config=None):
    for name, content in tokenizer_files(metadata).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return Checkpoint(folder, config or {}, Tensors([]))


def model_named(paths, name):
    return next(path for path in paths if path.name == f"ggml-vocab-{name}.gguf")


@pytest.mark.parametrize("name", EXACT)
def test_exported_vocabulary_converts_to_the_same_keys(vocabularies, tmp_path, name):
    with ggufkit.open(model_named(vocabularies, name)) as model:
        metadata = {k: v for k, v in model.metadata.items() if k.startswith("tokenizer.")}
        back = vocabulary(exported(metadata, tmp_path), EXACT[name])
        assert Metadata(back) == Metadata(metadata)


@pytest.mark.parametrize(
    "name",
    [
        *("deepseek-coder", "falcon", "mpt", "bert-bge"),
        *(
            pytest.param(name, marks=pytest.mark.matrix)
            for name in ("command-r", "deepseek-llm", "llama-bpe", "qwen2")
        ),
    ],
)
def test_exported_tokenizer_has_the_fingerprint_of_the_original(vocabularies, tmp_path, name):
    with ggufkit.open(model_named(vocabularies, name)) as model:
        checkpoint = exported(model.metadata, tmp_path)
    tokenizer = hub_tokenizer(TokenizerFiles(checkpoint, print))
    assert names_by_hash()[fingerprint(tokenizer)] == SHARED.get(name, name)


def test_tokenizer_of_a_real_model_is_recognized(smollm2, tmp_path):
    with ggufkit.open(smollm2) as model:
        checkpoint = exported(model.metadata, tmp_path)
        template = model.metadata["tokenizer.chat_template"]
    assert vocabulary(checkpoint, "bpe")["tokenizer.ggml.pre"] == "smollm"
    assert (tmp_path / "chat_template.jinja").read_text() == template


@given(PIECE_MODELS)
def test_sentencepiece_models_are_read_as_written(model):
    assert parse_pieces(dump_pieces(model), "m") == model


def test_round_trip_restores_scores_and_added_tokens(tmp_path):
    settings = {"added_tokens_decoder": {"8": {"content": "<t>", "special": False}}}
    checkpoint = folder_with(
        tmp_path,
        {"vocab_size": 12, "bos_token_id": 1, "eos_token_id": 2},
        tokenizer__model=PIECES,
        tokenizer_config__json=settings,
    )
    keys = vocabulary(checkpoint, "sentencepiece")
    again = exported(keys, tmp_path / "again", checkpoint.config)
    back = vocabulary(again, "sentencepiece")
    for key, value in keys.items():
        assert plain(back[key]) == plain(value), key


def test_tokens_inside_the_vocabulary_keep_their_ids(tmp_path):
    """An added token before ordinary ones must be in the vocabulary: tokenizers counts ids so."""
    tokenizer = bpe()
    texts = {"<s>": 0, **{text: n + 1 for text, n in tokenizer["model"]["vocab"].items()}}
    tokenizer["model"]["vocab"] = texts
    tokenizer["added_tokens"] = [{"id": 0, "content": "<s>", "special": True}]
    keys = vocabulary(folder_with(tmp_path, tokenizer__json=tokenizer), "bpe")
    again = exported(keys, tmp_path / "again")
    assert plain(vocabulary(again, "bpe")["tokenizer.ggml.tokens"]) == list(texts)


def test_exported_template_adds_the_tokens_that_the_file_asks_for(tmp_path):
    checkpoint = folder_with(
        tmp_path,
        {"bos_token_id": 258, "eos_token_id": 259},
        tokenizer__json=bpe(added=["<s>", "</s>"]),
        tokenizer_config__json={"add_bos_token": True, "add_eos_token": True},
    )
    again = exported(vocabulary(checkpoint, "bpe"), tmp_path / "again")
    ids = encode(hub_tokenizer(TokenizerFiles(again, print)), "h")
    assert (ids[0], ids[-1], len(ids)) == (258, 259, 3)


def test_generation_config_names_the_tokens_that_end_a_text(tmp_path):
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": Metadata({"x": ["a", "b", "c"]})["x"],
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.eot_token_id": 2,
        "general.sampling.temp": 0.7,
    }
    files = tokenizer_files(Metadata(metadata))
    assert json.loads(files["generation_config.json"]) == {
        "eos_token_id": [1, 2],
        "temperature": 0.7,
        "do_sample": True,
    }


def test_name_without_its_own_rules_is_exported_by_a_default_with_a_note():
    tokenizer = {"model": "gpt2", "tokens": ["a"], "pre": "made-up"}
    notes = []
    tokenizer_files(
        Metadata({f"tokenizer.ggml.{k}": v for k, v in tokenizer.items()}), notes.append
    )
    assert "'made-up'" in notes[0]


def test_byte_pre_tokenizers_have_rules_except_those_that_llama_cpp_has_in_code():
    in_code = {"afmoe", "kimi-k2", "tiny_aya", "cohere2moe"}
    rare = {"chameleon", "exaone-moe", "jais-2", "seed-coder", "spark2_5", "youtu"}
    not_bytes = {"gemma4", "granite-embed-multi-311m", "sarvam-moe"}
    word_pieces = {"bert-bge-large", "jina-v2-en"}
    unknown = {name for name in names_by_hash().values() if rules_of_name(name) is None}
    assert unknown == in_code | rare | not_bytes | word_pieces


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"tokenizer.ggml.model": "rwkv"},
        {"tokenizer.ggml.model": "gpt2"},
        {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": 5},
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": ["a"],
            "tokenizer.ggml.token_type": [1, 1],
        },
    ],
)
def test_file_without_a_suitable_vocabulary_gives_a_typed_error(metadata):
    with pytest.raises(CheckpointError):
        tokenizer_files(Metadata(metadata))


def model_of(keys, tensors):
    listed = [from_array(name, array) for name, array in tensors.items()]
    return Model(Metadata(keys), Tensors(listed))


WRONG = ["word", -1, 2**62, True, 1e300, [1], ["a"], [-1, 2**40] * 4, [1e300] * 8, [["a"]]]


@pytest.mark.parametrize("model", ["gpt2", "llama", "t5", "bert"])
def test_vocabulary_key_of_any_wrong_type_gives_files_or_a_typed_error(model):
    whole = small_llama.keys(tokenizer__ggml__model=model)
    more = (
        *("scores", "precompiled_charsmap", "pre", "add_space_prefix", "add_sep_token"),
        *("add_bos_token", "remove_extra_whitespaces", "normalizer.lowercase"),
    )
    for key in (*whole, *(f"tokenizer.ggml.{name}" for name in more)):
        for value in WRONG:
            with contextlib.suppress(GGUFError):
                assert tokenizer_files(Metadata(whole | {key: value}))


@pytest.mark.parametrize("value", ["word", [["a"]]])
def test_key_of_any_wrong_type_gives_an_export_or_a_typed_error(value):
    whole = small_llama.keys(tokenizer__ggml__model="none")
    for key in (*whole, "general.base_model.count", "general.name", "general.sampling.temp"):
        with contextlib.suppress(GGUFError):
            assert plan_export(model_of(whole | {key: value}, small_llama.tensors()))


@pytest.mark.parametrize("shape", [(), (1,), (2, 3, 4, 5), (0, 7)])
def test_tensor_of_any_shape_gives_an_export_or_a_typed_error(shape):
    keys = small_llama.keys(tokenizer__ggml__model="none")
    for name in [*small_llama.tensors()][:6]:
        tensors = small_llama.tensors() | {name: np.zeros(shape, np.float32)}
        with contextlib.suppress(GGUFError):
            assert plan_export(model_of(keys, tensors))


def test_finding_merges_takes_time_linear_in_token_length():
    pieces = ["<unk>", *("a" * n for n in (1, 2, 3, 300_000))]
    keys = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.scores": [0.0, -1.0, -2.0, -3.0, -4.0],
        "tokenizer.ggml.token_type": [2, 1, 1, 1, 1],
    }
    files = tokenizer_files(Metadata(keys))
    merges = json.loads(files["tokenizer.json"])["model"]["merges"]
    assert merges == [["a", "a"], ["a", "aa"], ["aa", "a"]]
