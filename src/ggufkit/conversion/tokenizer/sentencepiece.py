"""Writes vocabularies that are, or may be, SentencePiece models: llama.cpp's "llama"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ggufkit.conversion.tokenizer.byte_bpe import byte_pairs
from ggufkit.conversion.tokenizer.entries import ADDED_SCORE, TokenEntries, Tokens, looks_special
from ggufkit.conversion.tokenizer.files import TokenizerFiles
from ggufkit.conversion.tokenizer.hub_tokenizer import HubTokenizer, hub_tokenizer
from ggufkit.conversion.tokenizer.own.tekken import TEKKEN, mistral
from ggufkit.conversion.tokenizer.pre.pre_tokenizer_name import DEFAULT
from ggufkit.conversion.tokenizer.sentencepiece_model import SPACE, PieceModel, PieceType
from ggufkit.conversion.tokenizer.special_tokens import Specials, merges_of

SENTENCE_PIECE: Final = "tokenizer.model"
# Vocabulary sizes by which the converter's Llama class recognizes two families of models.
_CODE_LLAMA_ROWS: Final = 32016
_GRANITE_SMALL_ROWS: Final = 49152
_NO_ROWS: Final = 32000  # if config.json does not say
_CODE_LLAMA_EOT: Final = 32010
_GEMMA_EOT: Final = 107
# Tokens of Gemma 4 that the reader of an answer must see.
_GEMMA_VISIBLE: Final = frozenset(
    f"<|{word}>" for word in ("channel", "tool_call", "tool_response", '"|')
) | frozenset(f"<{word}|>" for word in ("channel", "tool_call", "tool_response"))
_MPT_FALLBACK: Final = {"pad": 3, "eos": 1, "unk": 0}
_UNUSED_SCORE: Final = -10000.0  # of tokens that Arctic adds
_HEX: Final = frozenset("0123456789ABCDEFabcdef")


def sentence_pieces(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write a SentencePiece model as llama.cpp's "llama"."""
    tokens = _piece_tokens(files, files.pieces(SENTENCE_PIECE))
    _llama(files, entries, tokens)


def _llama(files: TokenizerFiles, entries: TokenEntries, tokens: Tokens) -> None:
    entries.head("llama", DEFAULT)
    entries.tokens(tokens, scored=True)
    Specials(files, rows=len(tokens)).write(entries)


def _piece_tokens(files: TokenizerFiles, model: PieceModel) -> Tokens:
    """Return the pieces, cut or padded to the rows, and the added tokens."""
    tokens = Tokens(files.rows(len(model.pieces)))
    tokens.put_pieces(model)
    say_size(files, len(model.pieces), len(tokens))
    put_listed(files, tokens)
    decoder = (files.settings or {}).get("added_tokens_decoder") or {}
    for key, token in decoder.items():
        _put_described(files, tokens, int(key), token)
    return tokens


def say_size(files: TokenizerFiles, pieces: int, rows: int) -> None:
    """Say whether the pieces are cut or padded to the rows of the embeddings."""
    if pieces > rows:
        files.say(f"the tokenizer has {pieces} pieces, the embeddings {rows} rows: the rest is cut")
    elif pieces < rows:
        files.say(f"the tokenizer has {pieces} pieces, the embeddings {rows} rows: padded")


def _fits(files: TokenizerFiles, number: int, tokens: Tokens) -> bool:
    if number < len(tokens):
        return True
    files.say(f"the added token {number} is beyond the {len(tokens)} rows: left out")
    return False


def put_listed(files: TokenizerFiles, tokens: Tokens) -> None:
    """Set the tokens of added_tokens.json."""
    for text, number in files.added.items():
        if _fits(files, number, tokens):
            tokens.put(number, text, ADDED_SCORE, PieceType.USER_DEFINED)


def _put_described(
    files: TokenizerFiles, tokens: Tokens, number: int, token: Mapping[str, Any]
) -> None:
    if not _fits(files, number, tokens):
        return
    text = token["content"]
    if token.get("special") or looks_special(text):
        tokens.put(number, text, ADDED_SCORE, PieceType.CONTROL)
    else:
        tokens.put(number, text.replace(SPACE, " "), ADDED_SCORE, PieceType.USER_DEFINED)


def _put_plainly(tokens: Tokens, number: int, token: Mapping[str, Any]) -> None:
    kind = PieceType.CONTROL if token.get("special") else PieceType.USER_DEFINED
    tokens.put(number, token["content"], ADDED_SCORE, kind)


def _put_both_lists(files: TokenizerFiles, tokens: Tokens) -> None:
    """Set the added tokens of tokenizer_config.json and of tokenizer.json, unchanged."""
    for key, token in ((files.settings or {}).get("added_tokens_decoder") or {}).items():
        _put_plainly(tokens, int(key), token)
    for token in (files.tokenizer or {}).get("added_tokens") or []:
        _put_plainly(tokens, int(token["id"]), token)


def sentence_pieces_or_pairs(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write a SentencePiece model, or a BPE tokenizer if missing."""
    if files.has(SENTENCE_PIECE):
        sentence_pieces(files, entries)
    else:
        byte_pairs(files, entries)


def llama(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write the tokenizer of a Llama model, which may be of four kinds."""
    if files.has(TEKKEN) and not files.has("tokenizer.json"):
        mistral(files, entries)
        return
    prefix = (files.settings or {}).get("add_prefix_space")
    if prefix is not None:
        entries.boolean("tokenizer.ggml.add_space_prefix", prefix)
    if files.has(SENTENCE_PIECE):
        sentence_pieces(files, entries)
    else:
        byte_fallback_or_pairs(files, entries)
    rows = files.rows(_NO_ROWS)
    if rows == _CODE_LLAMA_ROWS:
        entries.identifier("eot", _CODE_LLAMA_EOT)
    if rows == _GRANITE_SMALL_ROWS:
        entries.add("bos", value=False)


def byte_fallback_or_pairs(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write a BPE tokenizer of either kind."""
    (byte_fallback if _falls_back_to_bytes(files) else byte_pairs)(files, entries)


def _falls_back_to_bytes(files: TokenizerFiles) -> bool:
    tokenizer = files.tokenizer or {}
    model, decoder = tokenizer.get("model") or {}, tokenizer.get("decoder") or {}
    is_bpe = model.get("type") == "BPE" and model.get("byte_fallback")
    return bool(is_bpe and decoder.get("type") == "Sequence")


def byte_fallback(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write a BPE tokenizer that spells unknown characters as bytes, as llama.cpp's "llama"."""
    _llama(files, entries, _fallback_tokens(hub_tokenizer(files)))


def _fallback_tokens(tokenizer: HubTokenizer) -> Tokens:
    base = len(tokenizer.vocabulary)
    texts = {number: text for text, number in tokenizer.vocabulary.items()}
    added = sorted(number for number in tokenizer.added if number >= base)
    special = {*tokenizer.specials.values()}
    tokens = Tokens(base + len(added))
    for number in range(base):
        is_special = texts[number] in special
        kind = PieceType.CONTROL if is_special else PieceType.NORMAL
        kind = PieceType.BYTE if _is_byte(texts[number]) else kind
        tokens.put(number, texts[number], ADDED_SCORE, kind)
    for place, number in enumerate(added, base):
        text = tokenizer.added[number].content
        kind = PieceType.CONTROL if text in special else PieceType.USER_DEFINED
        tokens.put(place, text, ADDED_SCORE, kind)
    return tokens


def _is_byte(text: str) -> bool:
    digits = text[3:5]
    return len(text) == 6 and text == f"<0x{digits}>" and all(c in _HEX for c in digits)  # noqa: PLR2004 ("<0x0A>")


# Families with rules of their own.


def gemma(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write Gemma's SentencePiece model."""
    sentence_pieces(files, entries)
    entries.identifier("eot", _GEMMA_EOT)
    entries.boolean("tokenizer.ggml.add_space_prefix", value=False)


def gemma2(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write Gemma 2's SentencePiece model."""
    sentence_pieces(files, entries)
    entries.boolean("tokenizer.ggml.add_space_prefix", value=False)


def xverse(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write XVERSE's BPE tokenizer as llama.cpp's "llama", without scores."""
    tokenizer = hub_tokenizer(files)
    tokens = Tokens(files.rows(max(tokenizer.texts, default=-1) + 1))
    for number, text in tokenizer.texts.items():
        tokens.put(number, text, 0.0, _xverse_type(tokenizer, text))
    entries.head("llama", DEFAULT)
    entries.tokens(tokens, scored=False)
    Specials(files, rows=len(tokens)).write(entries)


def _xverse_type(tokenizer: HubTokenizer, text: str) -> PieceType:
    if _is_byte(text):
        return PieceType.BYTE
    token = tokenizer.added_texts.get(text)
    if token is None:
        return PieceType.NORMAL
    return PieceType.CONTROL if token.special else PieceType.USER_DEFINED


def gemma4(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write Gemma 4's BPE tokenizer, which keeps its merges; marks of calls stay visible."""
    tokens = _fallback_tokens(hub_tokenizer(files))
    for number, text in enumerate(tokens.texts):
        if text in _GEMMA_VISIBLE:
            tokens.types[number] = PieceType.USER_DEFINED
    entries.head("gemma4", None)
    entries.tokens(tokens, scored=True)
    Specials(files).write(entries, merges_of(files))
    entries.boolean("tokenizer.ggml.add_space_prefix", value=False)
    entries.boolean("tokenizer.ggml.add_bos_token", value=True)


def gemma3(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write Gemma 3's SentencePiece model, or its BPE tokenizer if missing."""
    if files.has(SENTENCE_PIECE):
        gemma2(files, entries)
    else:
        byte_pairs(files, entries)


def phi3(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write Phi 3's SentencePiece model, or Phi 4's BPE tokenizer."""
    is_gpt2 = (files.settings or {}).get("tokenizer_class") == "GPT2Tokenizer"
    if is_gpt2 or (files.tokenizer is not None and not files.has(SENTENCE_PIECE)):
        byte_pairs(files, entries)
        return
    model = files.pieces(SENTENCE_PIECE)
    tokens = Tokens(files.rows(len(model.pieces)))
    tokens.put_pieces(model)
    say_size(files, len(model.pieces), len(tokens))
    put_listed(files, tokens)
    _put_both_lists(files, tokens)
    _llama(files, entries, tokens)


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
    put_listed(files, tokens)
    _put_both_lists(files, tokens)
    entries.head("llama", DEFAULT)
    entries.tokens(tokens, scored=True)
    entries.boolean("tokenizer.ggml.add_space_prefix", model.add_dummy_prefix)
    specials = Specials(files, rows=len(tokens))
    if "<|im_end|>" in tokens.texts:
        specials.ids["eos"] = tokens.texts.index("<|im_end|>")
    specials.write(entries)


def internlm3(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write InternLM 3's SentencePiece model; a token of chats ends texts."""
    tokens = _piece_tokens(files, files.pieces(SENTENCE_PIECE))
    settings = files.settings or {}
    entries.head("llama", DEFAULT)
    entries.tokens(tokens, scored=True)
    if "add_prefix_space" in settings:
        entries.boolean("tokenizer.ggml.add_space_prefix", settings["add_prefix_space"])
    specials = Specials(files, rows=len(tokens))
    for number, token in (settings.get("added_tokens_decoder") or {}).items():
        is_end = token.get("special") and token.get("content") == "<|im_end|>"
        if is_end and "eos" in specials.ids:
            specials.ids["eos"] = int(number)
    specials.write(entries)


def mpt(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write MPT's BPE tokenizer, or a SentencePiece model (SEA-LION) if missing."""
    if files.tokenizer is not None or not files.has(SENTENCE_PIECE):
        byte_pairs(files, entries)
        return
    sentence_pieces(files, entries)
    entries.add("bos", value=False)
    for role, number in _MPT_FALLBACK.items():
        entries.identifier(role, number)


def nemotron(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write Nemotron's SentencePiece model; its first tokens are padding and unknown."""
    sentence_pieces(files, entries)
    entries.identifier("pad", 0)
    entries.identifier("unk", 1)


def jamba(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write Jamba's SentencePiece model, or its BPE tokenizer if missing."""
    if files.has(SENTENCE_PIECE):
        sentence_pieces(files, entries)
        return
    byte_fallback(files, entries)
    entries.boolean("tokenizer.ggml.add_space_prefix", value=False)


def spaced(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write a SentencePiece model, and whether a space comes before a text."""
    sentence_pieces(files, entries)
    settings = files.settings or {}
    if "add_prefix_space" in settings:
        entries.boolean("tokenizer.ggml.add_space_prefix", settings["add_prefix_space"])


def arctic(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write Arctic's SentencePiece model; its settings rename some of its pieces."""
    model = files.pieces(SENTENCE_PIECE)
    tokens = Tokens(files.rows(len(model.pieces)))
    tokens.put_pieces(model)
    settings = files.settings or {}
    for key, token in (settings.get("added_tokens_decoder") or {}).items():
        if not _fits(files, int(key), tokens):
            continue
        text = token["content"]
        special = PieceType.UNKNOWN if text == settings.get("unk_token") else PieceType.CONTROL
        if token.get("special"):
            tokens.put(int(key), text, 0.0, special)
        else:
            tokens.put(int(key), text, _UNUSED_SCORE, PieceType.USER_DEFINED)
    _llama(files, entries, tokens)


def mamba(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write Mamba's tokenizer: BPE, or SentencePiece if missing."""
    if files.tokenizer is not None or not files.has(SENTENCE_PIECE):
        byte_pairs(files, entries)
    else:
        sentence_pieces(files, entries)
