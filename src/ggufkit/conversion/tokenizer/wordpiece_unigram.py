"""Writes vocabularies of encoder models: WordPiece, Unigram and others."""

from __future__ import annotations

from base64 import b64decode
from typing import Final

from ggufkit.conversion.tokenizer.byte_bpe import hub_tokens
from ggufkit.conversion.tokenizer.entries import PREFIX, TokenEntries, Tokens
from ggufkit.conversion.tokenizer.files import TokenizerFiles
from ggufkit.conversion.tokenizer.hub_tokenizer import HubTokenizer, hub_tokenizer
from ggufkit.conversion.tokenizer.pre.pre_tokenizer_name import DEFAULT, pre_tokenizer_name
from ggufkit.conversion.tokenizer.sentencepiece import (
    SENTENCE_PIECE,
    pieces_and_listed,
    sentence_pieces,
)
from ggufkit.conversion.tokenizer.sentencepiece_model import SPACE, ModelType, PieceModel, PieceType
from ggufkit.conversion.tokenizer.special_tokens import Specials

TYPE_ROWS: Final = "token_type_embeddings.weight"
FAIRSEQ_MODEL: Final = "sentencepiece.bpe.model"
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
    count_types(files, entries)
    entries.head("bert", pre_tokenizer_name(files, tokenizer))
    entries.tokens(tokens, scored=False)
    Specials(files, rows=len(tokens)).write(entries)


def count_types(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write the number of token types: an encoder has an embedding for each."""
    count = files.of_model("type_vocab_size")
    if count is None:
        tensors = files.checkpoint.tensors.values()
        count = next((t.shape[0] for t in tensors if t.name.endswith(TYPE_ROWS)), 1)
    entries.number(PREFIX + "token_type_count", count)


def xlm_roberta(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write XLM-RoBERTa's Unigram tokenizer as llama.cpp's "t5"."""
    if files.has(FAIRSEQ_MODEL):
        model = files.pieces(FAIRSEQ_MODEL)
        tokens = _shifted(files, model)
        prefixes, cleans = model.add_dummy_prefix, model.remove_extra_whitespaces
        charsmap = model.precompiled_charsmap
    else:
        tokenizer = hub_tokenizer(files)
        tokens = _unigram_tokens(files, tokenizer)
        prefixes = bool(files.settings.get("add_prefix_space"))
        cleans = tokenizer.cleans_spaces
        normalizer = tokenizer.rules.get("normalizer") or {}
        parts = [normalizer, *(normalizer.get("normalizers") or [])]
        key = "precompiled_charsmap"
        charsmap = b64decode(next((part[key] for part in parts if key in part), ""))
    entries.head("t5", DEFAULT)
    entries.tokens(tokens, scored=True)
    entries.boolean("add_space_prefix", prefixes)
    count_types(files, entries)
    entries.boolean("remove_extra_whitespaces", cleans)
    entries.charsmap(charsmap)
    Specials(files, rows=len(tokens)).write(entries)


def _shifted(files: TokenizerFiles, model: PieceModel) -> Tokens:
    """Return the pieces at fairseq's ids: one higher, after four tokens of fairseq."""
    tokens = Tokens(max(files.rows(len(model.pieces)), len(model.pieces)))
    tokens.put_pieces(model)
    tokens.texts[:] = [*FAIRSEQ, *tokens.texts[3:-1]]
    tokens.scores[:] = [0.0] * len(FAIRSEQ) + tokens.scores[3:-1]
    tokens.types[:] = [*FAIRSEQ.values(), *tokens.types[3:-1]]
    return tokens


def _unigram_tokens(files: TokenizerFiles, tokenizer: HubTokenizer) -> Tokens:
    model = tokenizer.rules["model"]
    pieces = model["vocab"]
    tokens = Tokens(max(files.rows(len(pieces)), len(pieces)))
    unknown = tokenizer.numbers.get(tokenizer.specials.get("unk", ""), model.get("unk_id", 3))
    special = {*tokenizer.specials.values()}
    for number, (text, score) in enumerate(pieces):
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
    count = len(model.pieces)
    tokens = pieces_and_listed(files, model, max(files.rows(count), count))
    entries.head("t5", DEFAULT)
    entries.tokens(tokens, scored=True)
    entries.boolean("add_space_prefix", model.add_dummy_prefix)
    entries.boolean("remove_extra_whitespaces", model.remove_extra_whitespaces)
    entries.charsmap(model.precompiled_charsmap)
    Specials(files, rows=len(tokens)).write(entries)
