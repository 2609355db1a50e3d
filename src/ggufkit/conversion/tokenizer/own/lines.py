"""Reads and writes vocabularies in formats of their own: RWKV's and PLaMo's."""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ggufkit.conversion.tokenizer.entries import TokenEntries, Tokens
from ggufkit.conversion.tokenizer.files import TokenizerFiles
from ggufkit.conversion.tokenizer.keys import VocabularyKeys
from ggufkit.conversion.tokenizer.pre.pre_tokenizer_name import DEFAULT
from ggufkit.conversion.tokenizer.sentencepiece_model import PieceType
from ggufkit.conversion.tokenizer.special_tokens import Specials
from ggufkit.errors import MISFORMED, CheckpointError

_RWKV: Final = "rwkv_vocab_v20230424.txt"
_RWKV_ROWS: Final = 65536  # if config.json does not say
_RWKV_START: Final = "<s>"  # has the id 0, and no line in the file
_RWKV_EOT: Final = 261  # two ends of lines
_RWKV_TEMPLATE: Final = "rwkv-world"  # the name of a template that llama.cpp has built in
_LINE: Final = re.compile(
    r"""\d+ (?P<token>b?'(?:[^'\\]|\\.)*'|b?"(?:[^"\\]|\\.)*") (?P<length>\d+)"""
)
_ESCAPE: Final = re.compile(rb"\\(x[0-9a-f]{2}|.)", re.DOTALL)
_LETTERS: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_PLAMO: Final = "tokenizer.jsonl"
_PLAMO_PAD_SCORE: Final = -1000.0
_PLAMO_EOT: Final = 4  # the end of an operation
_PLAMO_ROLES: Final = ("bos", "eos", "pad", "sep", "unk")
_PLAMO_TYPES: Final = {
    "UNKNOWN": PieceType.UNKNOWN,
    "CONTROL": PieceType.CONTROL,
    "BYTE": PieceType.BYTE,
}


# RWKV: a token to a line, as text or bytes of Python.
def rwkv(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write RWKV's tokens as llama.cpp's "rwkv": each as the inside of Python's bytes."""
    texts = [_RWKV_START, *_rwkv_tokens(files.text(_RWKV))]
    tokens = Tokens(files.rows_for(len(texts), _RWKV, _RWKV_ROWS))
    for number, token in enumerate(texts):
        tokens.put(number, token, 0.0, PieceType.NORMAL if number else PieceType.CONTROL)
    entries.head("rwkv", None)
    entries.tokens(tokens, scored=False)
    specials = Specials(files)
    if specials.template is None:
        specials.template = _RWKV_TEMPLATE
    specials.offer("eot", _RWKV_EOT)
    specials.ids |= {"bos": 0, "eos": 0}
    specials.write(entries)


def _rwkv_tokens(text: str) -> Iterator[str]:
    for number, line in enumerate(re.split("\r\n|\r|\n", text.removesuffix("\n")), 1):
        match = _LINE.fullmatch(line)
        data = _literal(match["token"]) if match else None
        if not match or data is None or len(data) != int(match["length"]):
            raise CheckpointError(
                f"line {number} of {_RWKV} is not an id, a token and its length",
                remedy="Download the file again",
            )
        yield repr(data)[2:-1]


def _literal(text: str) -> bytes | None:
    try:
        token = ast.literal_eval(text)
        return token.encode() if isinstance(token, str) else bytes(token)
    except (SyntaxError, ValueError):
        return None


def rwkv_files(keys: VocabularyKeys) -> dict[str, str]:
    """Return RWKV's file: texts where tokens are UTF-8, bytes where not."""
    lines = []
    for number, text in enumerate(keys.texts[1 : keys.unpadded], 1):
        data = _ESCAPE.sub(_escaped_byte, text.encode())
        token: str | bytes = data
        with contextlib.suppress(UnicodeDecodeError):
            token = data.decode()
        lines.append(f"{number} {token!r} {len(data)}\n")
    return {_RWKV: "".join(lines)}


def _escaped_byte(match: re.Match[bytes]) -> bytes:
    escape = match[1]
    return bytes.fromhex(escape[1:].decode()) if len(escape) > 1 else _LETTERS.get(escape, escape)


# PLaMo 2 and 3: a list of text, score and type to a line.
def plamo2(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write PLaMo's tokens as llama.cpp's "plamo2"."""
    lines = enumerate(files.text(_PLAMO).split("\n"), 1)
    rows = [_plamo_token(place, line) for place, line in lines if line.strip()]
    tokens = Tokens(max(files.rows(len(rows)), len(rows)))
    for number, row in enumerate(rows):
        tokens.put(number, *row)
    for pad in range(1, len(tokens) - len(rows) + 1):
        tokens.put(len(rows) + pad - 1, f"[PAD{pad}]", _PLAMO_PAD_SCORE, PieceType.UNUSED)
    entries.head("plamo2", DEFAULT)
    entries.tokens(tokens, scored=True)
    for role in _PLAMO_ROLES:
        text = files.settings.get(f"{role}_token")
        if text in tokens.texts:
            entries.identifier(role, tokens.texts.index(text))
        elif text is not None:
            raise CheckpointError(
                f"tokenizer_config.json names {text!r}, but {_PLAMO} has no such token",
                remedy="Download both files again",
            )
    entries.identifier("eot", _PLAMO_EOT)
    entries.boolean("add_space_prefix", value=False)


def plamo3(files: TokenizerFiles, entries: TokenEntries) -> None:
    """Write the same for PLaMo 3, with a chat template: chat_template.jinja comes first."""
    plamo2(files, entries)
    template = files.checkpoint.text("chat_template.jinja")
    entries.chat(template or files.settings.get("chat_template") or "")


def _plamo_token(place: int, line: str) -> tuple[str, float, PieceType]:
    try:
        text, score, *rest = json.loads(line)
        if not isinstance(text, str):
            raise TypeError
        is_control = text.startswith("<|plamo:") and text.endswith("|>")
        otherwise = PieceType.CONTROL if is_control else PieceType.NORMAL
        return text, float(score), _PLAMO_TYPES.get(rest[0] if rest else "", otherwise)
    except MISFORMED:
        raise CheckpointError(
            f"line {place} of {_PLAMO} is not a list of a text, a score and a type",
            remedy="Download the file again",
        ) from None


def plamo_files(keys: VocabularyKeys) -> dict[str, str]:
    """Return PLaMo's file, without the padding at the end."""
    count = len(keys.texts)
    while count and keys.types[count - 1] == PieceType.UNUSED:
        count -= 1
    names = {kind.value: name for name, kind in _PLAMO_TYPES.items()}
    rows = zip(keys.texts[:count], keys.scores, keys.types, strict=False)
    lists = ([text, score, names.get(kind, "NORMAL")] for text, score, kind in rows)
    return {_PLAMO: "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in lists)}


OWN_FILES: Final[Mapping[str, Callable[[VocabularyKeys], dict[str, str]]]] = {
    "plamo2": plamo_files,
    "rwkv": rwkv_files,
}
