"""Writes vocabularies of encoder models: WordPiece, Unigram and others."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final

from ggufkit.conversion.tokenizer.byte_bpe import byte_pairs, hub_tokens
from ggufkit.conversion.tokenizer.entries import TokenEntries, Tokens
from ggufkit.conversion.tokenizer.files import TokenizerFiles
from ggufkit.conversion.tokenizer.hub_tokenizer import HubTokenizer, hub_tokenizer
from ggufkit.conversion.tokenizer.pre.pre_tokenizer_name import DEFAULT, pre_tokenizer_name
from ggufkit.conversion.tokenizer.sentencepiece import (
    SENTENCE_PIECE,
    put_listed,
    say_size,
    sentence_pieces,
)
from ggufkit.conversion.tokenizer.sentencepiece_model import SPACE, ModelType, PieceModel, PieceType
from ggufkit.conversion.tokenizer.special_tokens import Specials

FAIRSEQ_MODEL: Final = "sentencepiece.bpe.model"
_CHARSMAP: Final = "precompiled_charsmap"
# Tokens that fairseq puts before the pieces; they replace a model's first three.
FAIRSEQ: Final = {
    "<s>": PieceType.CONTROL,
    "<pad>": PieceType.CONTROL,
    "</s>": PieceType.CONTROL,
    "<unk>": PieceType.UNKNOWN,
}


def bert(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write a WordPiece vocabulary: tokens that begin a word get a space mark, others nothing."""
    tokenizer = hub_tokenizer(files)
    tokens = hub_tokens(files, tokenizer)
    for number, text in enumerate(tokens.texts):
        if tokens.types[number] != PieceType.CONTROL:
            tokens.texts[number] = text[2:] if text.startswith("##") else SPACE + text
    _count_types(files, entries)
    entries.head("bert", pre_tokenizer_name(files, tokenizer))
    entries.tokens(tokens, scored=False)
    Specials(files, rows=len(tokens)).write(entries)


def _count_types(files: TokenizerFiles, entries: TokenEntries) -> None:
    count = files.config.get("type_vocab_size")
    entries.number("tokenizer.ggml.token_type_count", 1 if count is None else count)


def roberta(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write RoBERTa's BPE tokenizer."""
    if files.tokenizer is None:
        bert(files, entries)
        return
    byte_pairs(files, entries)
    _count_types(files, entries)


def jina_bert_v2(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write the WordPiece vocabulary of Jina Embeddings 2, or BPE of its model of code."""
    kind = ((files.tokenizer or {}).get("model") or {}).get("type")
    if kind != "BPE":
        bert(files, entries)
        return
    byte_pairs(files, entries)
    entries.number("tokenizer.ggml.token_type_count", 2)


def modern_bert(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write ModernBERT's BPE tokenizer."""
    for role in ("bos", "eos", "sep"):
        entries.add(role, value=True)
    byte_pairs(files, entries)


def nomic_bert(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write Nomic's WordPiece or Unigram tokenizer."""
    kind = ((files.tokenizer or {}).get("model") or {}).get("type")
    if kind == "Unigram":
        xlm_roberta(files, entries)
    else:
        bert(files, entries)


def xlm_roberta(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write XLM-RoBERTa's Unigram tokenizer as llama.cpp's "t5"."""
    if files.has(FAIRSEQ_MODEL):
        model = files.pieces(FAIRSEQ_MODEL)
        tokens = _shifted(files, model)
        settings = (model.add_dummy_prefix, model.remove_extra_whitespaces)
        charsmap = model.precompiled_charsmap
    else:
        tokenizer = hub_tokenizer(files)
        tokens = _unigram_tokens(files, tokenizer)
        given = files.settings or {}
        settings = (bool(given.get("add_prefix_space")), tokenizer.cleans_spaces)
        charsmap = b64decode(_charsmap(tokenizer.rules.get("normalizer") or {}))
    entries.head("t5", DEFAULT)
    entries.tokens(tokens, scored=True)
    entries.boolean("tokenizer.ggml.add_space_prefix", settings[0])
    _count_types(files, entries)
    entries.boolean("tokenizer.ggml.remove_extra_whitespaces", settings[1])
    entries.bytes("tokenizer.ggml.precompiled_charsmap", charsmap)
    Specials(files, rows=len(tokens)).write(entries)


def _charsmap(normalizer: Mapping[str, Any]) -> str:
    """Return the map of characters in a normalizer, empty if missing."""
    parts = [normalizer, *(normalizer.get("normalizers") or [])]
    return next((part[key] for part in parts for key in part if key == _CHARSMAP), "")


def _shifted(files: TokenizerFiles, model: PieceModel) -> Tokens:
    """Return the pieces at fairseq's ids: one higher, after four tokens of fairseq."""
    tokens = Tokens(max(files.rows(len(model.pieces)), len(model.pieces)))
    tokens.put_pieces(model)
    for held, first in (
        (tokens.texts, [*FAIRSEQ]),
        (tokens.scores, [0.0] * len(FAIRSEQ)),
        (tokens.types, [*FAIRSEQ.values()]),
    ):
        held[:] = [*first, *held[3:-1]]
    return tokens


def _unigram_tokens(files: TokenizerFiles, tokenizer: HubTokenizer) -> Tokens:
    model = tokenizer.rules["model"]
    held = model["vocab"]
    tokens = Tokens(max(files.rows(len(held)), len(held)))
    unknown = tokenizer.numbers.get(tokenizer.specials.get("unk", ""), model.get("unk_id", 3))
    special = {*tokenizer.specials.values()}
    for number, (text, score) in enumerate(held):
        kind = PieceType.NORMAL
        if number == unknown:
            kind = PieceType.UNKNOWN
        elif text in special:
            kind = PieceType.CONTROL
        elif text in tokenizer.added_texts:
            kind = PieceType.USER_DEFINED
        tokens.put(number, text, score, kind)
    return tokens


def t5(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write T5's Unigram model, or the BPE model of Pile-T5 as llama.cpp's "llama"."""
    model = files.pieces(SENTENCE_PIECE, "spiece.model")
    if model.type == ModelType.BPE:
        sentence_pieces(files, entries)
        return
    tokens = Tokens(max(files.rows(len(model.pieces)), len(model.pieces)))
    tokens.put_pieces(model)
    say_size(files, len(model.pieces), len(tokens))
    put_listed(files, tokens)
    entries.head("t5", DEFAULT)
    entries.tokens(tokens, scored=True)
    entries.boolean("tokenizer.ggml.add_space_prefix", model.add_dummy_prefix)
    entries.boolean("tokenizer.ggml.remove_extra_whitespaces", model.remove_extra_whitespaces)
    entries.bytes("tokenizer.ggml.precompiled_charsmap", model.precompiled_charsmap)
    Specials(files, rows=len(tokens)).write(entries)
