"""Vocabularies of checkpoints. tests/oracle compares them with the reference itself."""

from __future__ import annotations

import contextlib
import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggufkit.conversion.tokenizer.files import TokenizerFiles
from ggufkit.conversion.tokenizer.hub_tokenizer import hub_tokenizer
from ggufkit.conversion.tokenizer.kinds import KINDS, TESTS, WRITERS, vocabulary
from ggufkit.conversion.tokenizer.pre.pre_tokenize import split
from ggufkit.conversion.tokenizer.pre.pre_tokenizer_name import PROBE, distinct, encode, row_cuts
from ggufkit.conversion.tokenizer.sentencepiece_model import PieceType, parse_pieces
from ggufkit.conversion.tokenizer.token_text import BYTE_OF
from ggufkit.errors import CheckpointError
from ggufkit.format.coerce import plain
from ggufkit.system import sandbox
from tokenizer_files import PIECES, bpe, field, folder_with, piece
from tokenizer_files import split as by_expression

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
DIGITS = {"type": "Digits", "individual_digits": True}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}


def keys(checkpoint, kind, **options):
    metadata = vocabulary(checkpoint, kind, **options)
    return {key.removeprefix("tokenizer.ggml."): plain(value) for key, value in metadata.items()}


def words_of(pattern, text):
    words = split(text, by_expression(pattern))
    return [bytes(BYTE_OF[char] for char in word).decode() for word in words]


# SentencePiece.


def test_pieces_become_tokens_with_their_scores_and_types(tmp_path):
    values = keys(folder_with(tmp_path, tokenizer__model=PIECES), "sentencepiece")
    assert values == {
        "model": "llama",
        "pre": "default",
        "tokens": ["<unk>", "<s>", "</s>", "<0x0A>", "▁the", "<user>", "<gone>", "é"],
        "scores": [0.0, 0.0, 0.0, 0.0, -1.5, 0.0, 0.0, -2.25],
        "token_type": [UNKNOWN, CONTROL, CONTROL, BYTE, NORMAL, NORMAL, UNUSED, NORMAL],
    }


def test_token_types_in_the_file_match_the_official_converter(tmp_path):
    checkpoint = folder_with(tmp_path, {"bos_token_id": 1}, tokenizer__model=PIECES)
    values = vocabulary(checkpoint, "sentencepiece")
    assert values["tokenizer.ggml.scores"].dtype == np.float32
    assert values["tokenizer.ggml.token_type"].dtype == np.int32
    assert values["tokenizer.ggml.bos_token_id"].dtype == np.uint32


def test_pads_rows_without_a_piece_with_a_note(tmp_path):
    notes = []
    checkpoint = folder_with(tmp_path, {"vocab_size": 10}, tokenizer__model=PIECES)
    values = keys(checkpoint, "sentencepiece", say=notes.append)
    assert values["tokens"][8:] == ["[PAD8]", "[PAD9]"]
    assert values["scores"][8:] == [-10000.0, -10000.0]
    assert values["token_type"][8:] == [UNUSED, UNUSED]
    assert "padded" in notes[0]


def test_drops_pieces_beyond_the_rows_with_a_note(tmp_path):
    notes = []
    checkpoint = folder_with(tmp_path, tokenizer__model=PIECES)
    assert len(keys(checkpoint, "sentencepiece", rows=5, say=notes.append)["tokens"]) == 5
    assert "cut" in notes[0]


def test_added_tokens_replace_padding_and_pieces(tmp_path):
    checkpoint = folder_with(
        tmp_path,
        {"vocab_size": 12},
        tokenizer__model=PIECES,
        added_tokens__json={"<a>": 8, "<far>": 99},
        tokenizer_config__json={
            "added_tokens_decoder": {
                "9": {"content": "<b>", "special": True},
                "10": {"content": "x▁y", "special": False},
                "5": {"content": "<|user|>", "special": False},
            }
        },
    )
    notes = []
    values = keys(checkpoint, "sentencepiece", say=notes.append)
    assert values["tokens"][8:11] == ["<a>", "<b>", "x y"]
    assert values["token_type"][8:11] == [USER, CONTROL, USER]
    assert (values["tokens"][5], values["token_type"][5]) == ("<|user|>", CONTROL)
    assert values["scores"][8:11] == [-1000.0] * 3
    assert any("99" in line for line in notes)


def test_settings_of_arctic_rename_pieces(tmp_path):
    added = {"1": ("<a>", True), "5": ("<unk>", True), "7": ("x", False), "99": ("<far>", True)}
    decoder = {n: {"content": text, "special": special} for n, (text, special) in added.items()}
    settings = {"unk_token": "<unk>", "added_tokens_decoder": decoder}
    checkpoint = folder_with(
        tmp_path, {"vocab_size": 8}, tokenizer__model=PIECES, tokenizer_config__json=settings
    )
    values = keys(checkpoint, "arctic")
    assert [values["tokens"][n] for n in (1, 5, 7)] == ["<a>", "<unk>", "x"]
    assert [values["token_type"][n] for n in (1, 5, 7)] == [CONTROL, UNKNOWN, USER]
    assert [values["scores"][n] for n in (1, 5, 7)] == [0.0, 0.0, -10000.0]


def test_unigram_model_keeps_the_rules_of_its_normalizer(tmp_path):
    rules = field(2, field(3, 1)) + field(3, field(2, b"\x01\x02") + field(3, 0) + field(4, 1))
    values = keys(folder_with(tmp_path, spiece__model=PIECES + rules), "t5")
    assert values["model"] == "t5"
    assert values["precompiled_charsmap"] == [1, 2]
    assert values["add_space_prefix"] is False
    assert values["remove_extra_whitespaces"] is True


def test_xlm_roberta_shifts_the_pieces_by_one(tmp_path):
    checkpoint = folder_with(tmp_path, sentencepiece__bpe__model=PIECES)
    values = keys(checkpoint, "xlm-roberta", rows=10)
    assert values["tokens"][:5] == ["<s>", "<pad>", "</s>", "<unk>", "<0x0A>"]
    assert values["token_type"][:5] == [CONTROL, CONTROL, CONTROL, UNKNOWN, BYTE]
    assert len(values["tokens"]) == 10


def test_note_tells_which_chat_template_the_converter_would_add(tmp_path):
    notes = []
    settings = {"tokenizer_class": "GPT2Tokenizer"}
    checkpoint = folder_with(tmp_path, tokenizer__json=bpe(), tokenizer_config__json=settings)
    vocabulary(checkpoint, "templated", pre="gpt-2", say=notes.append)
    assert any("chat_template.jinja" in note for note in notes)
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    notes.clear()
    values = vocabulary(checkpoint, "templated", pre="gpt-2", say=notes.append)
    assert values["tokenizer.chat_template"] == "{{ messages }}"
    assert notes == []


@given(st.binary(max_size=60))
def test_any_bytes_give_a_model_or_an_error(data):
    with contextlib.suppress(CheckpointError):
        assert parse_pieces(data, "tokenizer.model").pieces


@given(st.integers(0, len(PIECES) - 1), st.integers(0, 255))
def test_damaged_model_is_read_or_refused(place, byte):
    damaged = PIECES[:place] + bytes([byte]) + PIECES[place + 1 :]
    with contextlib.suppress(CheckpointError):
        assert parse_pieces(damaged, "m").pieces


def test_error_names_where_a_truncated_model_ends(tmp_path):
    checkpoint = folder_with(tmp_path, tokenizer__model=PIECES[:-3])
    with pytest.raises(CheckpointError, match=r"tokenizer\.model.*beyond the end"):
        vocabulary(checkpoint, "sentencepiece")


def test_skips_unknown_fields_and_long_numbers():
    model = parse_pieces(field(99, 1 << 40) + field(98, 1.0) + piece("x", 1.0, 4), "m")
    assert model.pieces[0].type == PieceType.USER_DEFINED


def test_appended_tokens_follow_the_padding_as_control_tokens(tmp_path):
    checkpoint = folder_with(tmp_path, tokenizer__model=PIECES)
    values = keys(checkpoint, "sentencepiece", rows=11, appended=["<|sound|>", "<|end|>"])
    assert values["tokens"][7:] == ["é", "[PAD8]", "<|sound|>", "<|end|>"]
    assert values["token_type"][7:] == [NORMAL, UNUSED, CONTROL, CONTROL]
    assert values["scores"][8:] == [-10000.0, -1000.0, -1000.0]


# Byte-level BPE.


def test_writes_bpe_with_its_merges_and_special_tokens(tmp_path):
    checkpoint = folder_with(
        tmp_path,
        {"vocab_size": 264},
        tokenizer__json=bpe(
            added=[
                "<|end|>",
                {"content": "<tool>", "normalized": True},
                {"content": "<|look|>", "normalized": True},
                {"content": "a▁b", "normalized": True},
                {"content": "Ġx"},
            ]
        ),
        tokenizer_config__json={"eos_token": "<|end|>", "add_bos_token": False},
    )
    values = keys(checkpoint, "bpe")
    assert values["model"] == "gpt2"
    assert values["merges"] == ["h e", "he l"]
    assert values["tokens"][256:] == [
        *("he", "hel", "<|end|>", "<tool>", "<|look|>", "a b", " x", "[PAD263]")
    ]
    assert values["token_type"][256:] == [1, 1, CONTROL, USER, CONTROL, USER, USER, UNUSED]
    assert values["eos_token_id"] == 258
    assert values["add_bos_token"] is False


def test_spaces_inside_merges_differ_from_the_separator(tmp_path):
    tokenizer = bpe()
    tokenizer["model"]["merges"] = [["a ", "b"], ["c", "d"]]
    values = keys(folder_with(tmp_path, tokenizer__json=tokenizer), "bpe")
    assert values["merges"] == ["aĠ b", "c d"]


def test_reads_a_folder_with_only_vocab_and_merges(tmp_path):
    model = bpe()["model"]
    checkpoint = folder_with(
        tmp_path,
        {"model_type": "gpt2"},
        vocab__json=model["vocab"],
        merges__txt="#version: 0.2\nh e\nhe l\n",
    )
    values = keys(checkpoint, "bpe")
    assert values["merges"] == ["h e", "he l"]
    # The class names an end of text, which transformers then adds.
    assert (values["tokens"][-1], values["token_type"][-1]) == ("<|endoftext|>", CONTROL)


def test_more_tokens_than_rows_is_an_error(tmp_path):
    checkpoint = folder_with(tmp_path, tokenizer__json=bpe())
    with pytest.raises(CheckpointError, match=r"257.*100 rows"):
        vocabulary(checkpoint, "bpe", rows=100)


def test_error_for_a_missing_tokenizer_has_a_remedy(tmp_path):
    for kind in KINDS.keys() - {"none"}:
        with pytest.raises(CheckpointError) as caught:
            vocabulary(folder_with(tmp_path), kind)
        assert caught.value.remedy


@pytest.mark.parametrize(
    "tokenizer",
    [
        {},
        {"model": 5},
        {"model": {"vocab": {"a": "b"}}},
        {"model": {"vocab": []}, "added_tokens": 3},
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [5]}},
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "post_processor": 5},
        {"model": {"type": "BPE", "vocab": {"a": -4}, "merges": []}},
        {"model": {"type": "BPE", "vocab": {"a": 1 << 60}, "merges": []}},
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "pre_tokenizer": "x"},
    ],
)
def test_malformed_tokenizer_gives_a_typed_error(tmp_path, tokenizer):
    with pytest.raises(CheckpointError):
        vocabulary(folder_with(tmp_path, tokenizer__json=tokenizer), "bpe")


def test_too_deeply_nested_rules_give_a_typed_error(tmp_path):
    deep = '{"type": "Sequence", "normalizers": [' * 5000 + "{}" + "]}" * 5000
    tokenizer = json.dumps(bpe())[:-1] + f', "normalizer": {deep}' + "}"
    checkpoint = folder_with(tmp_path, tokenizer__json=tokenizer)
    recursion = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    try:
        with pytest.raises(CheckpointError):
            vocabulary(checkpoint, "bpe")
    finally:
        sys.setrecursionlimit(recursion)


# Special tokens.


def test_ids_of_the_tokenizer_win_over_the_config(tmp_path):
    checkpoint = folder_with(
        tmp_path,
        {"bos_token_id": 7, "eos_token_id": [1, 2], "pad_token_id": -1},
        tokenizer__json=bpe(added=["<s>"]),
        tokenizer_config__json={"bos_token": {"content": "<s>"}},
    )
    notes = []
    values = keys(checkpoint, "bpe", say=notes.append)
    assert values["bos_token_id"] == 258
    assert "eos_token_id" not in values
    assert "padding_token_id" not in values
    assert any("pad token" in line for line in notes)


def test_post_processor_template_sets_which_tokens_surround_a_text(tmp_path):
    first, last = {"SpecialToken": {"id": "<s>"}}, {"SpecialToken": {"id": "</s>"}}
    a, b = {"Sequence": {"id": "A"}}, {"Sequence": {"id": "B"}}
    processor = {
        "type": "TemplateProcessing",
        "single": [first, a, last],
        "pair": [first, a, last, last, b, last],
        "special_tokens": {"<s>": {"ids": [258]}, "</s>": {"ids": [259]}},
    }
    checkpoint = folder_with(
        tmp_path,
        tokenizer__json={**bpe(added=["<s>", "</s>"]), "post_processor": processor},
        tokenizer_config__json={"bos_token": "<s>", "eos_token": "<old>"},
    )
    values = keys(checkpoint, "bpe")
    assert (values["add_bos_token"], values["add_eos_token"], values["add_sep_token"]) == (
        True,
    ) * 3
    assert values["eos_token_id"] == 259


def test_null_template_hides_the_one_in_its_own_file(tmp_path):
    for settings, expected in (({"chat_template": None}, None), ({"x": 1}, "J")):
        checkpoint = folder_with(
            tmp_path,
            tokenizer__json=bpe(),
            tokenizer_config__json=settings,
            chat_template__jinja="J",
        )
        assert vocabulary(checkpoint, "bpe").get("tokenizer.chat_template") == expected


def test_named_templates_have_their_own_keys(tmp_path):
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool use.jinja").write_text("T")
    checkpoint = folder_with(
        tmp_path,
        tokenizer__json=bpe(),
        tokenizer_config__json={"x": 1},
        chat_template__jinja="D",
    )
    values = vocabulary(checkpoint, "bpe")
    assert values["tokenizer.chat_template"] == "D"
    assert values["tokenizer.chat_template.tool_use"] == "T"
    assert plain(values["tokenizer.chat_templates"]) == ["tool_use"]


def test_code_llama_and_small_granite_are_recognized_by_their_rows(tmp_path):
    checkpoint = folder_with(tmp_path, tokenizer__model=PIECES)
    assert keys(checkpoint, "llama", rows=32016)["eot_token_id"] == 32010
    assert keys(checkpoint, "llama", rows=49152)["add_bos_token"] is False


# WordPiece.


def test_wordpiece_marks_where_words_begin(tmp_path):
    texts = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "he", "##llo"]
    checkpoint = folder_with(
        tmp_path,
        {"model_type": "bert", "type_vocab_size": 2},
        vocab__txt="\n".join(texts) + "\n",
    )
    values = keys(checkpoint, "bert")
    assert values["tokens"] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "▁he", "llo"]
    assert values["token_type"] == [CONTROL] * 5 + [NORMAL] * 2
    assert values["token_type_count"] == 2
    tokenizer = hub_tokenizer(TokenizerFiles(checkpoint, print))
    assert encode(tokenizer, "Hello, HE") == [2, 5, 6, 1, 5, 3]


# Pre-tokenizers.


def test_splits_words_by_the_expression():
    text = "I'll pay 12345€, ok?\n\n  ça"
    assert words_of(r" ?\p{L}+|\p{N}{1,2}|[^\s\p{L}\p{N}]+", text) == [
        *("I", "'", "ll", " pay", " ", "12", "34", "5", "€,", " ok", "?", "\n\n ", " ça")
    ]


def test_unknown_character_property_matches_nothing():
    assert words_of(r"[\p{Han}\p{Lu}]+|\p{Ll}", "ab c") == ["a", "b", " ", "c"]


@pytest.mark.parametrize("row", distinct(), ids=lambda row: row.name)
def test_every_known_pre_tokenizer_splits_the_probe(row):
    assert len(row_cuts(row, PROBE)) > 10


def test_name_comes_from_the_rules(tmp_path):
    gpt2 = {"type": "Sequence", "pretokenizers": [DIGITS, BYTES]}
    for pre, more, settings, name in (
        (None, {"ignore_merges": True}, {}, "llama-bpe"),
        (None, {}, {}, "dbrx"),
        (gpt2, {}, {"clean_up_tokenization_spaces": True}, "starcoder"),
        (gpt2, {}, {}, "smollm"),
    ):
        notes = []
        checkpoint = folder_with(
            tmp_path, tokenizer__json=bpe(pre, **more), tokenizer_config__json=settings
        )
        assert keys(checkpoint, "bpe", say=notes.append)["pre"] == name
        assert any("by its rules" in line for line in notes)


def test_picks_the_nearest_name_and_notes_the_difference(tmp_path):
    notes = []
    pattern = r"\p{L}+|\p{N}{1,5}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    checkpoint = folder_with(tmp_path, tokenizer__json=bpe(by_expression(pattern)))
    assert keys(checkpoint, "bpe", say=notes.append)["pre"]
    assert "(pre=...)" in notes[-1]
    assert "such places" in notes[-1]


def test_requested_name_wins_and_an_unknown_one_is_noted(tmp_path):
    notes = []
    checkpoint = folder_with(tmp_path, tokenizer__json=bpe())
    assert keys(checkpoint, "bpe", pre="tekken", say=notes.append)["pre"] == "tekken"
    assert notes == []
    assert keys(checkpoint, "bpe", pre="mine", say=notes.append)["pre"] == "mine"
    assert "'mine'" in notes[0]


def test_notes_rules_that_are_not_understood(tmp_path):
    notes = []
    checkpoint = folder_with(tmp_path, tokenizer__json=bpe({"type": "Strange"}))
    assert keys(checkpoint, "bpe", say=notes.append)["pre"] == "default"
    assert any("Strange" in line for line in notes)


def test_encodes_text_by_merges_and_added_tokens(tmp_path):
    tokenizer = bpe(added=["<|x|>", {"content": "  ", "normalized": False, "special": False}])
    checkpoint = folder_with(tmp_path, tokenizer__json=tokenizer)
    hub = hub_tokenizer(TokenizerFiles(checkpoint, print))
    vocab = tokenizer["model"]["vocab"]
    assert encode(hub, "hello<|x|>  h") == [
        *(vocab["hel"], vocab["l"], vocab["o"], 258, 259, vocab["h"])
    ]


def test_kinds_are_named_in_alphabetical_order():
    assert list(KINDS) == sorted(KINDS)


@pytest.mark.parametrize("row", KINDS.values(), ids=KINDS)
def test_every_step_of_a_kind_is_a_writer_or_fixed_keys(row):
    assert all(isinstance(step, dict) or callable(WRITERS[step]) for step in row["steps"])
    assert ("if" in row) == ("else" in row)
    assert row.get("if") in (None, *TESTS)
    assert row.get("else") in (None, *KINDS)


def test_does_not_change_the_json_of_a_tokenizer(tmp_path):
    tokenizer = bpe(added=["<s>"])
    before = json.dumps(tokenizer)
    checkpoint = folder_with(tmp_path, tokenizer__json=tokenizer)
    vocabulary(checkpoint, "bpe")
    assert json.dumps(checkpoint.json("tokenizer.json")) == before


# What a stranger's rules may take.

DOUBLING = {"type": "Replace", "pattern": {"String": " "}, "content": "  "}
HOSTILE = {
    "expression": {"pre_tokenizer": by_expression(r"(\s|\s)*Q")},
    "replacements": {"normalizer": {"type": "Sequence", "normalizers": [DOUBLING] * 60}},
    "growth": {"normalizer": {"type": "Sequence", "normalizers": [DOUBLING] * 12}},
}


@pytest.mark.parametrize("rules", HOSTILE.values(), ids=HOSTILE)
def test_does_not_follow_rules_that_never_end(tmp_path, monkeypatch, rules):
    monkeypatch.setattr(sandbox, "MAX_WAIT", 2)
    heard = []
    checkpoint = folder_with(tmp_path, tokenizer__json=bpe() | rules)
    vocabulary(checkpoint, "bpe", say=heard.append)
    assert any("fingerprint is unknown" in line for line in heard)


def test_does_not_follow_templates_that_repeat_the_text_endlessly(tmp_path):
    twice = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}] * 2}
    checkpoint = folder_with(
        tmp_path,
        tokenizer__json=bpe()
        | {"post_processor": {"type": "Sequence", "processors": [twice] * 60}},
    )
    heard = []
    vocabulary(checkpoint, "bpe", say=heard.append)
    assert any("more than add special tokens" in line for line in heard)


def test_rules_of_an_unknown_form_are_an_error(tmp_path):
    checkpoint = folder_with(
        tmp_path, tokenizer__json=bpe(pre={"type": "Sequence", "pretokenizers": [7]})
    )
    with pytest.raises(CheckpointError, match="contradict their format"):
        vocabulary(checkpoint, "bpe")
