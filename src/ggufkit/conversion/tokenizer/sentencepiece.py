"""Writes vocabularies that are, or may be, SentencePiece models: llama.cpp's "llama"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ggufkit.conversion.tokenizer.byte_bpe import byte_pairs
from ggufkit.conversion.tokenizer.entries import ADDED_SCORE, TokenEntries, Tokens, looks_special
from ggufkit.conversion.tokenizer.files import TokenizerFiles
from ggufkit.conversion.tokenizer.hub_tokenizer import HubTokenizer, hub_tokenizer
from ggufkit.conversion.tokenizer.own.ranks import TEKKEN, mistral
from ggufkit.conversion.tokenizer.pre.pre_tokenizer_name import DEFAULT
from ggufkit.conversion.tokenizer.sentencepiece_model import SPACE, PieceModel, PieceType
from ggufkit.conversion.tokenizer.special_tokens import Specials, merges_of
from ggufkit.conversion.tokenizer.token_text import BYTE_TOKEN

SENTENCE_PIECE: Final = "tokenizer.model"
# Vocabulary sizes by which the converter's Llama class recognizes two families of models.
_CODE_LLAMA_ROWS: Final = 32016
_GRANITE_SMALL_ROWS: Final = 49152
_NO_ROWS: Final = 32000  # if config.json does not say
_CODE_LLAMA_EOT: Final = 32010
# Tokens of Gemma 4 that the reader of an answer must see.
_GEMMA_VISIBLE: Final = frozenset(
    f"<|{word}>" for word in ("channel", "tool_call", "tool_response", '"|')
) | frozenset(f"<{word}|>" for word in ("channel", "tool_call", "tool_response"))
_UNUSED_SCORE: Final = -10000.0  # of tokens that Arctic adds


def sentence_pieces(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write a SentencePiece model as llama.cpp's "llama"."""
    write_llama(files, entries, _piece_tokens(files))


def write_llama(
    files: TokenizerFiles, entries: TokenEntries, tokens: Tokens, *, scored: bool = True
) -> None:
    """Write tokens and special tokens as llama.cpp's "llama"."""
    entries.head("llama", DEFAULT)
    entries.tokens(tokens, scored=scored)
    Specials(files, rows=len(tokens)).write(entries)


def _piece_tokens(files: TokenizerFiles) -> Tokens:
    """Return the pieces, cut or padded to the rows, and the added tokens."""
    model = files.pieces(SENTENCE_PIECE)
    tokens = pieces_and_listed(files, model, files.rows(len(model.pieces)))
    for number, token in _described(files, tokens):
        text = token["content"]
        if token.get("special") or looks_special(text):
            tokens.put(number, text, ADDED_SCORE, PieceType.CONTROL)
        else:
            text = text.replace(SPACE, " ")
            tokens.put(number, text, ADDED_SCORE, PieceType.USER_DEFINED)
    return tokens


def pieces_and_listed(files: TokenizerFiles, model: PieceModel, rows: int) -> Tokens:
    """Return the pieces of a model, cut or padded to `rows`, and the added tokens."""
    tokens, count = Tokens(rows), len(model.pieces)
    tokens.put_pieces(model)
    if count != rows:
        end = "the rest is cut" if count > rows else "padded"
        files.say(f"the tokenizer has {count} pieces, the embeddings {rows} rows: {end}")
    _put_listed(files, tokens)
    return tokens


def _put_listed(files: TokenizerFiles, tokens: Tokens) -> None:
    for text, number in files.added.items():
        if _fits(files, number, tokens):
            tokens.put(number, text, ADDED_SCORE, PieceType.USER_DEFINED)


def _fits(files: TokenizerFiles, number: int, tokens: Tokens) -> bool:
    if number < len(tokens):
        return True
    files.say(f"the added token {number} is beyond the {len(tokens)} rows: left out")
    return False


def _described(files: TokenizerFiles, tokens: Tokens) -> list[tuple[int, Mapping[str, Any]]]:
    described = ((int(number), token) for number, token in files.described.items())
    return [(number, token) for number, token in described if _fits(files, number, tokens)]


def _put_both_lists(files: TokenizerFiles, tokens: Tokens) -> None:
    added = [(token["id"], token) for token in files.tokenizer.get("added_tokens") or []]
    for number, token in (*files.described.items(), *added):
        kind = PieceType.CONTROL if token.get("special") else PieceType.USER_DEFINED
        tokens.put(int(number), token["content"], ADDED_SCORE, kind)


def llama(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write the tokenizer of a Llama model, which may be of four kinds."""
    if files.has(TEKKEN) and not files.has("tokenizer.json"):
        mistral(files, entries)
        return
    if files.settings.get("add_prefix_space") is not None:
        space_prefix(files, entries)
    if files.has(SENTENCE_PIECE):
        sentence_pieces(files, entries)
    else:
        byte_fallback_or_pairs(files, entries)
    rows = files.rows(_NO_ROWS)
    if rows == _CODE_LLAMA_ROWS:
        entries.identifier("eot", _CODE_LLAMA_EOT)
    if rows == _GRANITE_SMALL_ROWS:
        entries.boolean("add_bos_token", value=False)


def space_prefix(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write whether a space comes before a text, if the settings say."""
    if "add_prefix_space" in files.settings:
        entries.boolean("add_space_prefix", files.settings["add_prefix_space"])


def byte_fallback_or_pairs(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write a BPE tokenizer of either kind."""
    is_sequence = (files.tokenizer.get("decoder") or {}).get("type") == "Sequence"
    if files.model.get("type") == "BPE" and files.model.get("byte_fallback") and is_sequence:
        byte_fallback(files, entries)
    else:
        byte_pairs(files, entries)


def byte_fallback(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write a BPE tokenizer that spells unknown characters as bytes, as llama.cpp's "llama"."""
    write_llama(files, entries, _fallback_tokens(hub_tokenizer(files)))


def _fallback_tokens(tokenizer: HubTokenizer) -> Tokens:
    base = len(tokenizer.vocabulary)
    texts = {number: text for text, number in tokenizer.vocabulary.items()}
    added = sorted(number for number in tokenizer.added if number >= base)
    special = {*tokenizer.specials.values()}
    tokens = Tokens(base + len(added))
    for number in range(base):
        is_special = texts[number] in special
        kind = PieceType.CONTROL if is_special else PieceType.NORMAL
        kind = PieceType.BYTE if BYTE_TOKEN.fullmatch(texts[number]) else kind
        tokens.put(number, texts[number], ADDED_SCORE, kind)
    for row, number in enumerate(added, base):
        text = tokenizer.added[number].content
        kind = PieceType.CONTROL if text in special else PieceType.USER_DEFINED
        tokens.put(row, text, ADDED_SCORE, kind)
    return tokens


def xverse(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write XVERSE's BPE tokenizer as llama.cpp's "llama", without scores."""
    tokenizer = hub_tokenizer(files)
    tokens = Tokens(files.rows(max(tokenizer.texts, default=-1) + 1))
    for number, text in tokenizer.texts.items():
        token = tokenizer.added_texts.get(text)
        kind = PieceType.NORMAL
        if BYTE_TOKEN.fullmatch(text):
            kind = PieceType.BYTE
        elif token:
            kind = PieceType.CONTROL if token.special else PieceType.USER_DEFINED
        tokens.put(number, text, 0.0, kind)
    write_llama(files, entries, tokens, scored=False)


def gemma4(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write Gemma 4's BPE tokenizer, which keeps its merges; marks of calls stay visible."""
    tokens = _fallback_tokens(hub_tokenizer(files))
    for number, text in enumerate(tokens.texts):
        if text in _GEMMA_VISIBLE:
            tokens.types[number] = PieceType.USER_DEFINED
    entries.head("gemma4", None)
    entries.tokens(tokens, scored=True)
    Specials(files).write(entries, merges_of(files))
    entries.boolean("add_space_prefix", value=False)
    entries.boolean("add_bos_token", value=True)


def phi3(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write Phi 3's SentencePiece model, or Phi 4's BPE tokenizer."""
    is_gpt2 = files.settings.get("tokenizer_class") == "GPT2Tokenizer"
    if is_gpt2 or (files.tokenizer and not files.has(SENTENCE_PIECE)):
        byte_pairs(files, entries)
        return
    model = files.pieces(SENTENCE_PIECE)
    tokens = pieces_and_listed(files, model, files.rows(len(model.pieces)))
    _put_both_lists(files, tokens)
    write_llama(files, entries, tokens)


def internlm2(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write InternLM 2's SentencePiece model."""
    model = files.pieces(SENTENCE_PIECE)
    tokens = Tokens(files.rows(len(model.pieces)))
    tokens.put_pieces(model)
    for number, text in enumerate(tokens.texts):
        if text == "\0":  # an empty string in C
            tokens.texts[number] = "\N{DRAGON}"
        if text.startswith("[UNUSED"):
            tokens.types[number] = PieceType.UNUSED
    _put_listed(files, tokens)
    _put_both_lists(files, tokens)
    entries.head("llama", DEFAULT)
    entries.tokens(tokens, scored=True)
    entries.boolean("add_space_prefix", model.add_dummy_prefix)
    specials = Specials(files, rows=len(tokens))
    if "<|im_end|>" in tokens.texts:
        specials.ids["eos"] = tokens.texts.index("<|im_end|>")
    specials.write(entries)


def internlm3(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write InternLM 3's SentencePiece model; a token of chats ends texts."""
    tokens = _piece_tokens(files)
    entries.head("llama", DEFAULT)
    entries.tokens(tokens, scored=True)
    space_prefix(files, entries)
    specials = Specials(files, rows=len(tokens))
    for number, token in files.described.items():
        is_end = token.get("special") and token.get("content") == "<|im_end|>"
        if is_end and "eos" in specials.ids:
            specials.ids["eos"] = int(number)
    specials.write(entries)


def arctic(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write Arctic's SentencePiece model; its settings rename some of its pieces."""
    model = files.pieces(SENTENCE_PIECE)
    tokens = Tokens(files.rows(len(model.pieces)))
    tokens.put_pieces(model)
    for number, token in _described(files, tokens):
        text = token["content"]
        is_unknown = text == files.settings.get("unk_token")
        if token.get("special"):
            tokens.put(number, text, 0.0, PieceType.UNKNOWN if is_unknown else PieceType.CONTROL)
        else:
            tokens.put(number, text, _UNUSED_SCORE, PieceType.USER_DEFINED)
    write_llama(files, entries, tokens)
