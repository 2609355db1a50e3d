"""Vocabularies match llama.cpp's converter, and encoded texts match transformers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import ggufkit
import real
from ggufkit.conversion.checkpoint.folder import Checkpoint
from ggufkit.conversion.tokenizer.export import tokenizer_files
from ggufkit.conversion.tokenizer.files import TokenizerFiles
from ggufkit.conversion.tokenizer.hub_tokenizer import hub_tokenizer
from ggufkit.conversion.tokenizer.kinds import vocabulary
from ggufkit.conversion.tokenizer.pre.pre_tokenizer_name import encode
from ggufkit.format.coerce import plain
from ggufkit.format.values import type_name
from ggufkit.models.model import Tensors

pytestmark = pytest.mark.oracle

FOLDER = Path(os.environ.get("GGUFKIT_ORACLE", ""))
KINDS = {
    "bert": "bert",
    "digits": "bpe",
    "falcon": "bpe",
    "fallback": "llama",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "llama3": "llama",
    "nemotron": "nemotron",
    "neox": "bpe",
    "phi3": "phi3",
    "qwen2": "sentencepiece-or-bpe",
    "roberta": "roberta",
    "spm": "llama",
    "t5": "t5",
    "xlm-roberta": "xlm-roberta",
}
# Vocabularies of llama.cpp that come with texts and their ids.
EXPORTED = (
    *("bert-bge", "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gpt-2", "llama-bpe"),
    *("llama-spm", "mpt", "phi-3", "qwen2", "qwen35", "refact", "starcoder"),
)
UNKNOWN = "unknown"  # what the reference is made to say of rules that it does not know
ENCODE = """
import json, sys
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
texts = json.load(sys.stdin)
json.dump([tokenizer.encode(text, add_special_tokens=False) for text in texts], sys.stdout)
"""


def case(name):
    folder = FOLDER / "tokenizers" / name
    config = json.loads((folder / "config.json").read_text())
    expected = json.loads((folder / "expected.json").read_text())
    return Checkpoint(folder, config, Tensors([])), expected


def spelled(key, kind, value):
    """Return a key in the form of both sides: the type of an array includes that of its items."""
    if kind != "array":
        return key, kind, value
    item = {str: "string", int: "int32", float: "float32"}[type(value[0])]
    if item == "float32":
        value = np.array(value, np.float32).tolist()
    return key, f"array[{item}]", value


@pytest.mark.parametrize("name", KINDS)
def test_keys_match_the_reference(name):
    checkpoint, expected = case(name)
    theirs = [spelled(*entry) for entry in expected["keys"]]
    # Rules that the reference does not know are named by us alone.
    pre = next((value for key, _, value in theirs if key.endswith(".pre")), None)
    actual = vocabulary(checkpoint, KINDS[name], pre=pre if pre == UNKNOWN else None)
    ours = [(key, type_name(value), plain(value)) for key, value in actual.items()]
    assert [entry[:2] for entry in ours] == [
        (key, "array[uint8]" if key.endswith("charsmap") else kind) for key, kind, _ in theirs
    ]
    for (key, _, mine), (_, _, value) in zip(ours, theirs, strict=True):
        assert mine == value, key


@pytest.mark.parametrize("name", KINDS)
def test_texts_get_the_same_ids_as_in_transformers(name):
    checkpoint, expected = case(name)
    if expected["ids"] is None:
        pytest.skip("a SentencePiece model has no rules to encode by")
    tokenizer = hub_tokenizer(TokenizerFiles(checkpoint, print))
    assert [encode(tokenizer, text) for text in expected["texts"]] == expected["ids"]


@pytest.mark.parametrize("name", EXPORTED)
def test_exported_tokenizer_gives_the_same_ids_as_llama_cpp(name, vocabularies, tmp_path):
    path = next(path for path in vocabularies if path.stem == f"ggml-vocab-{name}")
    with ggufkit.open(path) as model:
        for file, content in tokenizer_files(model.metadata).items():
            (tmp_path / file).parent.mkdir(exist_ok=True)
            (tmp_path / file).write_bytes(content)
    folder = real.tokenized() / path.name
    texts = Path(f"{folder}.inp").read_text().split("\n__ggml_vocab_test__\n")
    lines = Path(f"{folder}.out").read_text().split("\n")
    expected = [[int(number) for number in line.split()] for line in lines]
    done = subprocess.run(
        [FOLDER / "venv" / "bin" / "python", "-c", ENCODE, tmp_path],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == expected[: len(texts)]
