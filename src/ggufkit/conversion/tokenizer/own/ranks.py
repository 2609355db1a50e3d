"""Reads tokens with ranks as BPE over bytes: files of tiktoken, and Mistral's own format.

The code of the tokenizers of Qwen 1 and Hunyuan, which is in the checkpoints and never runs here,
adds the special tokens after the others. Mistral has tekken.json, or a versioned SentencePiece
model.
"""

from __future__ import annotations

import contextlib
import re
from base64 import b64decode
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import ggufkit._toml as _toml
from ggufkit.conversion.tokenizer.byte_bpe import byte_pairs
from ggufkit.conversion.tokenizer.entries import TokenEntries, Tokens
from ggufkit.conversion.tokenizer.files import MAX_ROWS, TokenizerFiles
from ggufkit.conversion.tokenizer.sentencepiece_model import PieceType
from ggufkit.conversion.tokenizer.special_tokens import Specials
from ggufkit.conversion.tokenizer.token_text import visible
from ggufkit.errors import CheckpointError, brief

_TABLES: Final = _toml.read(__file__, "special_tokens.toml")
_EXTRAS: Final = tuple(f"<|extra_{number}|>" for number in range(205))
_HUNYUAN_BOS: Final = 127959  # of its one size; config.json names another
_LONGEST: Final = 1024  # bytes of a token
_QWEN: Final = "qwen.tiktoken"
_HUNYUAN: Final = "hy.tiktoken"


def qwen(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write Qwen 1's ranks, or a BPE tokenizer if missing."""
    if not files.has(_QWEN):
        byte_pairs(files, entries)
        return
    ranks = _ranked(files, entries, _QWEN, "qwen2")
    end = len(ranks)
    specials = Specials(files)
    for role in () if specials.ids else ("bos", "eos"):
        specials.offer(role, end)
    specials.offer("unk", end)
    specials.write(entries, _merges(ranks))


def hunyuan_moe(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write Hunyuan's ranks, or a BPE tokenizer if missing."""
    if files.has(_HUNYUAN):
        ranks = _ranked(files, entries, _HUNYUAN, "hunyuan")
        Specials(files).write(entries, _merges(ranks))
    else:
        byte_pairs(files, entries)
    entries.identifier("bos", _HUNYUAN_BOS)


def _ranked(files: TokenizerFiles, entries: TokenEntries, name: str, pre: str) -> dict[bytes, int]:
    """Write the tokens of a file, then its special ones; return the ranks of the former.

    A repeated token has no rank of its own.
    """
    ranks: dict[bytes, int] = {}
    specials = (*_TABLES[name], *_EXTRAS)
    for place, line in enumerate((files.checkpoint.text(name) or "").splitlines(), 1):
        fields = line.split()
        encoded, rank = fields if len(fields) == 2 else ("", "")  # noqa: PLR2004 (token and rank)
        token = b""
        with contextlib.suppress(ValueError):  # of base64 too
            token = b64decode(encoded, validate=True)
        if not rank.isdecimal() or not 0 < len(token) <= _LONGEST:
            raise CheckpointError(
                f"line {place} of {name} is not a token in base64 and its rank",
                remedy="Download the file again",
            )
        ranks.setdefault(token, len(ranks))
    count = len(ranks) + len(specials)
    tokens = Tokens(files.rows_for(count, f"{name} with its special tokens"))
    for token, number in ranks.items():
        tokens.put(number, visible(token), 0.0, PieceType.NORMAL)
    for number, text in enumerate(specials, len(ranks)):
        tokens.put(number, text, 0.0, PieceType.CONTROL)
    entries.head("gpt2", files.asked_pre or pre)
    entries.tokens(tokens, scored=False)
    return ranks


def _merges(ranks: dict[bytes, int]) -> list[str]:
    halves = (_halves(ranks, token, rank) for token, rank in ranks.items() if len(token) > 1)
    return [" ".join(map(visible, pair)) for pair in halves if len(pair) == 2]  # noqa: PLR2004


def _halves(ranks: dict[bytes, int], token: bytes, limit: int) -> list[bytes]:
    parts = [token[index : index + 1] for index in range(len(token))]
    while len(parts) > 1:
        pairs = enumerate(pairwise(parts))
        rank, index = min((ranks.get(a + b, limit), index) for index, (a, b) in pairs)
        if rank >= limit:
            break
        parts[index : index + 2] = [parts[index] + parts[index + 1]]
    return parts


TEKKEN: Final = "tekken.json"
_PIECES: Final = re.compile(r"[^.]+\.model(\.(?P<version>v\d+)(m\d+)?)?")
_OLDEST: Final = "v1"  # of a SentencePiece model whose name has no version
_BYTES: Final = 256
_PAD: Final = "<pad>"
_ROLES: Final = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "pad": _PAD}


def mistral(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write tekken.json, or the SentencePiece model of the latest version."""
    version = (_tekken if files.has(TEKKEN) else _pieces)(files, entries)
    entries.boolean("add_bos_token", value=True)
    entries.boolean("add_eos_token", value=False)
    kind = str(entries.items["tokenizer.ggml.model"])
    template = files.checkpoint.text("chat_template.jinja")
    if not template and files.names_template:
        template = _TABLES["templates"].get(kind, {}).get(version)
    if template is not None:
        entries.chat(template)
        return
    files.say(
        f"the checkpoint has no chat template for its tokenizer {brief(version)}, and ggufkit adds "
        "none: put it into the folder as chat_template.jinja, or use "
        "`ggufkit edit OUT --chat-template FILE`"
    )


def _tekken(files: TokenizerFiles, entries: TokenEntries) -> str:
    content = files.checkpoint.json(TEKKEN) or {}
    config = content["config"]
    specials = _special_tokens(content, config["default_num_special_tokens"])
    count = config["default_vocab_size"] - len(specials)
    rows = content["vocab"][: max(count, 0)]
    ranks = {b64decode(row["token_bytes"]): n for n, row in enumerate(rows)}
    if len(ranks) != count or any(not 0 < len(token) <= _LONGEST for token in ranks):
        raise ValueError(f"{len(ranks)} of {count} tokens can be read, each once")
    tokens = Tokens(len(specials) + len(ranks))
    for number, text in enumerate(specials):
        tokens.put(number, text, 0.0, PieceType.CONTROL)
    for number, token in enumerate(ranks, len(specials)):
        tokens.put(number, visible(token), 0.0, PieceType.NORMAL)
    entries.head("gpt2", files.asked_pre or "tekken")
    entries.merges(list(_tekken_merges(ranks)))
    _write(files, entries, tokens, {role: specials.index(t) for role, t in _ROLES.items()})
    entries.no_scores(len(tokens))
    return str(config["version"])


def _special_tokens(content: dict[str, Any], count: int) -> list[str]:
    """Return the special tokens, with names for tokens that the file only counts."""
    if not 0 < count <= MAX_ROWS:
        raise ValueError(f"it has {count} special tokens")
    listed = content.get("special_tokens")
    tokens = (
        list(_TABLES[TEKKEN]) if listed is None else [str(token["token_str"]) for token in listed]
    )
    if len(tokens) > count or len(set(tokens)) < len(tokens):
        raise ValueError(f"it lists {len(tokens)} special tokens, and counts {count}")
    return [*tokens, *(f"<SPECIAL_{number}>" for number in range(len(tokens), count))]


def _tekken_merges(ranks: dict[bytes, int]) -> Iterator[str]:
    for token, rank in ranks.items():
        if rank < _BYTES:
            continue
        halves = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
        pairs = [(ranks[a], ranks[b], a, b) for a, b in halves if {a, b} <= ranks.keys()]
        if not pairs:
            raise CheckpointError(
                f"token {rank} of {TEKKEN} is not made of two others", remedy="Download it again"
            )
        yield from (f"{visible(a)} {visible(b)}" for _, _, a, b in sorted(pairs))


def _pieces(files: TokenizerFiles, entries: TokenEntries) -> str:
    """Write the SentencePiece model whose name comes last; return its version."""
    matches = [
        match for name in files.checkpoint.names("", "") if (match := _PIECES.fullmatch(name))
    ]
    if not matches:
        raise CheckpointError(
            f"{files.checkpoint.folder} has no {TEKKEN} and no tokenizer.model",
            remedy="Mistral's own format has one of them: download it too",
        )
    model = files.pieces(matches[-1][0])
    tokens = Tokens(len(model.pieces))
    tokens.put_pieces(model)
    entries.head("llama", None)
    roles = {
        "bos": _place(tokens, PieceType.CONTROL, "<s>"),
        "eos": _place(tokens, PieceType.CONTROL, "</s>"),
        "unk": _place(tokens, PieceType.UNKNOWN, "<unk>"),
        # A text ends where no token pads it.
        "pad": _place(tokens, PieceType.CONTROL, _PAD, "</s>"),
    }
    _write(files, entries, tokens, roles)
    return matches[-1]["version"] or _OLDEST


def _place(tokens: Tokens, kind: PieceType, *texts: str) -> int:
    for text in texts:
        if text in tokens.texts and tokens.types[tokens.texts.index(text)] == kind:
            return tokens.texts.index(text)
    raise ValueError(f"it has no {kind.name} token {brief(texts[0])}")


def _write(
    files: TokenizerFiles, entries: TokenEntries, tokens: Tokens, roles: dict[str, int]
) -> None:
    for role, number in roles.items():
        entries.identifier(role, number)
    entries.tokens(tokens, scored=True)
    if files.architecture:
        entries.number(f"{files.architecture}.vocab_size", len(tokens))
