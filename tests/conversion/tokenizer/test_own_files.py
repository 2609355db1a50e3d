"""Vocabularies in files of their own. tests/oracle compares them with the reference itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggufkit.conversion.tokenizer.keys import VocabularyKeys
from ggufkit.conversion.tokenizer.kinds import vocabulary
from ggufkit.conversion.tokenizer.own_files import rwkv_files
from ggufkit.errors import CheckpointError
from ggufkit.format.coerce import plain
from tokenizer_files import folder_with

RWKV = "rwkv_vocab_v20230424.txt"
LINES = "1 '\\x00' 1\n2 \"it's\" 4\n3 '\\n\\n' 2\n4 b'\\xe6\\x97' 2\n5 '語' 3\n"


def rwkv_of(folder, text, rows=8):
    (folder / RWKV).write_text(text, encoding="utf-8")
    return vocabulary(folder_with(folder, {"vocab_size": rows}), "rwkv")


def test_rwkv_tokens_are_the_inside_of_bytes_literals(tmp_path):
    found = {key: plain(value) for key, value in rwkv_of(tmp_path, LINES).items()}
    tokens = ["<s>", "\\x00", "it's", "\\n\\n", "\\xe6\\x97", "\\xe8\\xaa\\x9e", "[PAD6]", "[PAD7]"]
    assert found["tokenizer.ggml.tokens"] == tokens
    assert found["tokenizer.ggml.token_type"] == [3, 1, 1, 1, 1, 1, 5, 5]
    assert found["tokenizer.ggml.eot_token_id"] == 261
    assert found["tokenizer.chat_template"].startswith("{%- if not add_generation_prompt")


def test_export_writes_the_lines_of_rwkvs_file(tmp_path):
    assert rwkv_files(VocabularyKeys(rwkv_of(tmp_path, LINES))) == {RWKV: LINES}


@given(st.lists(st.binary(min_size=1, max_size=8), min_size=1, max_size=20))
def test_any_bytes_come_back_from_rwkvs_tokens(tmp_path_factory, tokens):
    lines = "".join(f"{n} {data!r} {len(data)}\n" for n, data in enumerate(tokens, 1))
    folder = tmp_path_factory.mktemp("rwkv")
    keys = rwkv_of(folder, lines, len(tokens) + 3)
    again = rwkv_of(folder, rwkv_files(VocabularyKeys(keys))[RWKV], len(tokens) + 3)
    assert plain(again["tokenizer.ggml.tokens"]) == plain(keys["tokenizer.ggml.tokens"])


@pytest.mark.parametrize(
    "line", ["1 'a' 2", "1 'a", "'a' 1", "1 a 1", "1 '\\x1' 1", "1 ('a') 1", "1 'a' 'b' 2", ""]
)
def test_a_line_that_is_not_rwkvs_is_named(line, tmp_path):
    with pytest.raises(CheckpointError, match=f"line 2 of {RWKV} is not an id"):
        rwkv_of(tmp_path, f"1 'x' 1\n{line}\n2 'y' 1\n")


def test_more_tokens_than_rows_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="has ids up to 5, the embeddings 4 rows"):
        rwkv_of(tmp_path, LINES, 4)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=f"has no {RWKV}"):
        vocabulary(folder_with(tmp_path), "rwkv")
