from __future__ import annotations

import io
import json
import sys

import pytest

import ggufkit as api
from shell import done, ggufkit


@pytest.fixture(scope="module")
def path(vocabularies):
    return next(path for path in vocabularies if path.stem == "ggml-vocab-llama-spm")


def feed(monkeypatch, data):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_ids_pieces_and_their_number_are_listed(path):
    lines = done("tokenize", path, "Hello 🚀").lines
    assert lines[0].split() == ["ID", "PIECE"]
    assert lines[1].split() == ["1", '"<s>"']
    assert lines[2].split() == ["15043", '"', 'Hello"']
    assert lines[-2].split() == ["131", '"\\x80"']
    assert lines[-1] == "7 tokens"


def test_text_comes_from_standard_input(path, monkeypatch):
    feed(monkeypatch, b"Hello\n")
    document = done("tokenize", path, "--json").json()
    assert "".join(token["text"] for token in document["tokens"]) == "<s> Hello\n"


def test_ids_alone_are_one_line_that_decodes_to_the_text(path, monkeypatch):
    ids = done("tokenize", path, "a  b\n", "--ids", "--no-special").out
    assert ids.count("\n") == 1
    feed(monkeypatch, ids.encode())
    assert done("tokenize", path, "-", "--decode").raw == b"a  b\n"


@pytest.mark.parametrize("written", ["[15043, 3186]", "15043,3186", " 15043  3186 "])
def test_ids_are_read_in_every_usual_form(path, written):
    assert done("tokenize", path, "--decode", written).out == "Hello world"


def test_the_number_alone_is_a_number(path):
    assert done("tokenize", path, "Hello world", "--count").out == "3\n"
    assert done("tokenize", path, "Hello world", "--count", "--no-special").out == "2\n"


def test_json_shows_parts_of_characters_as_bytes(path):
    document = done("tokenize", path, "🚀", "--json").json()
    assert document["count"] == len(document["tokens"])
    last = document["tokens"][-1]
    assert (last["text"], bytes.fromhex(last["bytes"])) == (None, b"\x80")
    json.dumps(document)


def test_ids_are_those_of_the_library(path):
    tokens = done("tokenize", path, "one two", "--json").json()["tokens"]
    assert tuple(token["id"] for token in tokens) == api.tokenize(path, "one two").ids


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", "--decode"), "'x' is not the id of a token"),
        (("1", "--decode", "--no-special"), "--no-special is about tokens"),
        (("1", "--ids", "--json"), "Use only one of"),
        (("a\udc80",), "the text is not valid UTF-8"),
    ],
)
def test_wrong_usage_is_explained(path, arguments, message):
    result = ggufkit("tokenize", path, *arguments)
    assert (result.code, result.out) == (2, "")
    assert message in result.err


def test_standard_input_must_be_text(path, monkeypatch):
    feed(monkeypatch, b"ab\xff\xfe")
    assert "not valid UTF-8 at byte 2" in ggufkit("tokenize", path, "-").err


def test_an_unknown_id_is_an_error(path):
    result = ggufkit("tokenize", path, "--decode", "32000")
    assert (result.code, result.out) == (1, "")
    assert "the vocabulary has no token 32000\n  Use ids from 0 to 31999" in result.err


def test_a_model_without_tokens_is_an_error(tmp_path):
    api.save(tmp_path / "m.gguf", {}, {"general.architecture": "llama"})
    assert ggufkit("tokenize", tmp_path / "m.gguf", "x").code == 1
