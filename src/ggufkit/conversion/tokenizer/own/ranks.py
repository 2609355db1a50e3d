"""Reads tiktoken's files of ranks as BPE over bytes, as Qwen 1 and Hunyuan have them.

The code of their tokenizers, which is in the checkpoints and never runs here, adds the special
tokens after the others.
"""

from __future__ import annotations

import base64
import contextlib
from itertools import pairwise
from typing import Final, NamedTuple

from ggufkit.conversion.tokenizer.byte_bpe import byte_pairs
from ggufkit.conversion.tokenizer.entries import TokenEntries, Tokens
from ggufkit.conversion.tokenizer.files import TokenizerFiles
from ggufkit.conversion.tokenizer.sentencepiece_model import PieceType
from ggufkit.conversion.tokenizer.special_tokens import Specials
from ggufkit.conversion.tokenizer.token_text import visible
from ggufkit.errors import CheckpointError

_END: Final = "<|endoftext|>"
_EXTRAS: Final = tuple(f"<|extra_{number}|>" for number in range(205))
_HUNYUAN_BOS: Final = 127959  # of its one size; config.json names another
_LONGEST: Final = 1024  # bytes of a token


class RankFile(NamedTuple):
    """A file of ranks, the special tokens after them, and the name of the pre-tokenizer."""

    name: str
    specials: tuple[str, ...]
    pre: str


_QWEN: Final = RankFile("qwen.tiktoken", (_END, "<|im_start|>", "<|im_end|>", *_EXTRAS), "qwen2")
_HUNYUAN_SPECIALS: Final = (_END, "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>", *_EXTRAS)
_HUNYUAN: Final = RankFile("hy.tiktoken", _HUNYUAN_SPECIALS, "hunyuan")


def qwen(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write Qwen 1's ranks, or a BPE tokenizer if missing."""
    if not files.has(_QWEN.name):
        byte_pairs(files, entries)
        return
    ranks = _ranked(files, entries, _QWEN)
    end = len(ranks)
    specials = Specials(files)
    for role in () if specials.ids else ("bos", "eos"):
        specials.offer(role, end)
    specials.offer("unk", end)
    specials.write(entries, _merges(ranks))


def hunyuan_moe(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write Hunyuan's ranks, or a BPE tokenizer if missing."""
    if files.has(_HUNYUAN.name):
        ranks = _ranked(files, entries, _HUNYUAN)
        Specials(files).write(entries, _merges(ranks))
    else:
        byte_pairs(files, entries)
    entries.identifier("bos", _HUNYUAN_BOS)


def _ranked(files: TokenizerFiles, entries: TokenEntries, about: RankFile) -> dict[bytes, int]:
    """Write and return the tokens in order; a repeated one has no rank of its own."""
    ranks: dict[bytes, int] = {}
    for place, line in enumerate((files.checkpoint.text(about.name) or "").splitlines(), 1):
        fields = line.split()
        encoded, rank = fields if len(fields) == 2 else ("", "")  # noqa: PLR2004 (token and rank)
        token = b""
        with contextlib.suppress(ValueError):  # of base64 too
            token = base64.b64decode(encoded, validate=True)
        if not rank.isdecimal() or not 0 < len(token) <= _LONGEST:
            raise CheckpointError(
                f"line {place} of {about.name} is not a token in base64 and its rank",
                remedy="Download the file again",
            )
        ranks.setdefault(token, len(ranks))
    count = len(ranks) + len(about.specials)
    tokens = Tokens(files.rows_for(count, f"{about.name} with its special tokens"))
    for token, number in ranks.items():
        tokens.put(number, visible(token), 0.0, PieceType.NORMAL)
    for number, text in enumerate(about.specials, len(ranks)):
        tokens.put(number, text, 0.0, PieceType.CONTROL)
    entries.head("gpt2", files.asked_pre or about.pre)
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
