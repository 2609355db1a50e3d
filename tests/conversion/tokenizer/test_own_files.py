"""Vocabularies in files of their own. tests/oracle compares them with the reference itself."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggufkit.conversion.tokenizer.keys import VocabularyKeys
from ggufkit.conversion.tokenizer.kinds import vocabulary
from ggufkit.conversion.tokenizer.own.lines import plamo_files, rwkv_files
from ggufkit.errors import CheckpointError
from ggufkit.format.coerce import plain
from tokenizer_files import folder_with

RWKV = "rwkv_vocab_v20230424.txt"
LINES = "1 '\\x00' 1\n2 \"it's\" 4\n3 '\\n\\n' 2\n4 b'\\xe6\\x97' 2\n5 '語' 3\n"


def rwkv_of(folder, text, rows=8):
    (folder / RWKV).write_text(text, encoding="utf-8")
    return vocabulary(folder_with(folder, {"vocab_size": rows}), "rwkv")


def test_rwkv_tokens_are_the_inside_of_bytes_literals(tmp_path):
    keys = {key: plain(value) for key, value in rwkv_of(tmp_path, LINES).items()}
    tokens = ["<s>", "\\x00", "it's", "\\n\\n", "\\xe6\\x97", "\\xe8\\xaa\\x9e", "[PAD6]", "[PAD7]"]
    assert keys["tokenizer.ggml.tokens"] == tokens
    assert keys["tokenizer.ggml.token_type"] == [3, 1, 1, 1, 1, 1, 5, 5]
    assert keys["tokenizer.ggml.eot_token_id"] == 261
    assert keys["tokenizer.chat_template"] == "rwkv-world"


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


PLAMO = """["<|plamo:unk|>", 0.0, "UNKNOWN"]
["<|plamo:bos|>", 0.0, "CONTROL"]
["<0x0A>", 0.0, "BYTE"]
["日本", -1.5, "NORMAL"]
"""


def plamo_of(folder, text=PLAMO, kind="plamo2", bos="<|plamo:bos|>"):
    settings = {"bos_token": bos, "chat_template": "{{ messages }}"}
    files = {"tokenizer__jsonl": text, "tokenizer_config__json": settings}
    return vocabulary(folder_with(folder, {"vocab_size": 6}, **files), kind)


def test_plamos_tokens_keep_scores_and_types_and_are_padded(tmp_path):
    keys = {key: plain(value) for key, value in plamo_of(tmp_path).items()}
    tokens = ["<|plamo:unk|>", "<|plamo:bos|>", "<0x0A>", "日本", "[PAD1]", "[PAD2]"]
    assert keys["tokenizer.ggml.tokens"] == tokens
    assert keys["tokenizer.ggml.token_type"] == [2, 3, 6, 1, 5, 5]
    assert keys["tokenizer.ggml.scores"] == [0.0, 0.0, 0.0, -1.5, -1000.0, -1000.0]
    assert keys["tokenizer.ggml.bos_token_id"] == 1
    assert "tokenizer.chat_template" not in keys


def test_only_plamo_3_gets_its_chat_template_and_a_file_comes_first(tmp_path):
    assert plamo_of(tmp_path, kind="plamo3")["tokenizer.chat_template"] == "{{ messages }}"
    (tmp_path / "chat_template.jinja").write_text("other", encoding="utf-8")
    assert plamo_of(tmp_path, kind="plamo3")["tokenizer.chat_template"] == "other"


def test_export_writes_the_lines_of_plamos_file(tmp_path):
    assert plamo_files(VocabularyKeys(plamo_of(tmp_path))) == {"tokenizer.jsonl": PLAMO}


@pytest.mark.parametrize("line", ["{", "[1, 0.0]", '["a"]', '["a", "x"]', '["a", 0, []]'])
def test_a_line_that_is_not_plamos_is_named(line, tmp_path):
    with pytest.raises(CheckpointError, match=r"line 2 of tokenizer\.jsonl is not a list"):
        plamo_of(tmp_path, f'["a", 0]\n{line}\n')


def test_a_special_token_that_plamos_file_lacks_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"names '<s>', but tokenizer\.jsonl has no such"):
        plamo_of(tmp_path, bos="<s>")


BYTES = [bytes([byte]) for byte in range(256)]
SPECIALS = 208  # of Qwen: three and 205 spare ones


def ranks_of(folder, tokens, kind="qwen", name="qwen__tiktoken", **config):
    lines = (f"{base64.b64encode(token).decode()} {n}" for n, token in enumerate(tokens))
    config = {"vocab_size": len(tokens) + SPECIALS + 2, **config}
    return vocabulary(folder_with(folder, config, **{name: "\n".join(lines) + "\n"}), kind)


def test_ranks_become_tokens_with_the_merges_that_they_stand_for(tmp_path):
    keys = {k: plain(v) for k, v in ranks_of(tmp_path, [*BYTES, b"th", b" th", b" the"]).items()}
    assert keys["tokenizer.ggml.tokens"][32] == "Ġ"
    assert keys["tokenizer.ggml.tokens"][256:260] == ["th", "Ġth", "Ġthe", "<|endoftext|>"]
    assert keys["tokenizer.ggml.merges"] == ["t h", "Ġ th", "Ġth e"]
    assert keys["tokenizer.ggml.pre"] == "qwen2"
    assert [keys[f"tokenizer.ggml.{role}_token_id"] for role in ("bos", "unknown")] == [259, 259]


def test_a_repeated_token_of_hunyuan_has_no_id_of_its_own(tmp_path):
    tokens = [*BYTES, b"th", b"th", b"he"]
    keys = ranks_of(tmp_path, tokens, "hunyuan-moe", "hy__tiktoken")
    assert plain(keys["tokenizer.ggml.tokens"])[256:260] == [
        "th",
        "he",
        "<|endoftext|>",
        "<|startoftext|>",
    ]
    assert plain(keys["tokenizer.ggml.bos_token_id"]) == 127959


@pytest.mark.parametrize("line", ["x", "dGg= x", "d 3", "!!!! 3", "dGg= -1"])
def test_a_line_that_is_not_a_rank_is_named(line, tmp_path):
    checkpoint = folder_with(tmp_path, {"vocab_size": 300}, qwen__tiktoken=f"AA== 0\n{line}\n")
    with pytest.raises(CheckpointError, match=r"line 2 of qwen\.tiktoken is not a token"):
        vocabulary(checkpoint, "qwen")


def test_more_ranks_than_rows_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="ids up to 463, the embeddings 300 rows"):
        ranks_of(tmp_path, BYTES, vocab_size=300)
