"""Reads and writes SentencePiece models, the files `tokenizer.model`, without protobuf."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ggufkit.errors import CheckpointError

SPACE: Final = "▁"  # how pieces spell a space
MAX_PIECES: Final = 1 << 24  # the largest vocabularies have a quarter of a million

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # protobuf's wire types
_SHORT_VARINT: Final = 0x80  # a byte below this is a whole number
_MAX_VARINT_BITS: Final = 70  # ten groups of seven

# Field numbers of sentencepiece_model.proto.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_PIECE, _SCORE, _TYPE = 1, 2, 3
_MODEL_TYPE: Final = 3
_VOCABULARY_SIZE, _BYTE_FALLBACK, _UNKNOWN_ID = 4, 35, 40
_CHARSMAP, _ADD_PREFIX, _REMOVE_SPACES = 2, 3, 4

FieldValue = int | bytes


class PieceType(IntEnum):
    """The type of a piece; llama.cpp's token types have the same numbers."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class ModelType(IntEnum):
    """The algorithm of a SentencePiece model."""

    UNIGRAM = 1
    BPE = 2
    WORD = 3
    CHAR = 4


@dataclass(frozen=True)
class SentencePiece:
    """One piece: its text, its score and its type."""

    text: str
    score: float
    type: PieceType


@dataclass(frozen=True)
class PieceModel:
    """The parts of a SentencePiece model that a vocabulary needs."""

    pieces: tuple[SentencePiece, ...]
    type: ModelType = ModelType.UNIGRAM
    precompiled_charsmap: bytes = b""
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True


def parse_pieces(data: bytes, name: str) -> PieceModel:
    """Return the model in the bytes of the file `name`; CheckpointError if malformed."""
    try:
        return _model(data)
    except (ValueError, struct.error) as error:
        raise CheckpointError(
            f"{name} is not a SentencePiece model: {error}", remedy="Download the file again"
        ) from None


def dump_pieces(model: PieceModel) -> bytes:
    """Return the model as the bytes of a file that SentencePiece loads."""
    kinds = [piece.type for piece in model.pieces]
    unknown = kinds.index(PieceType.UNKNOWN) if PieceType.UNKNOWN in kinds else 0
    trainer = (
        _field(_MODEL_TYPE, model.type)
        + _field(_VOCABULARY_SIZE, len(model.pieces))
        + _field(_BYTE_FALLBACK, PieceType.BYTE in kinds)
        + _field(_UNKNOWN_ID, unknown)
    )
    normalizer = (
        _field(_CHARSMAP, model.precompiled_charsmap)
        + _field(_ADD_PREFIX, model.add_dummy_prefix)
        + _field(_REMOVE_SPACES, model.remove_extra_whitespaces)
    )
    pieces = (_field(_PIECES, _piece_bytes(piece)) for piece in model.pieces)
    return b"".join((*pieces, _field(_TRAINER, trainer), _field(_NORMALIZER, normalizer)))


def _piece_bytes(piece: SentencePiece) -> bytes:
    score = _varint_bytes(_SCORE << 3 | _FIXED32) + struct.pack("<f", piece.score)
    kind = b"" if piece.type == PieceType.NORMAL else _field(_TYPE, piece.type)
    return _field(_PIECE, piece.text.encode()) + score + kind


def _field(number: int, value: FieldValue) -> bytes:
    if isinstance(value, int):
        return _varint_bytes(number << 3 | _VARINT) + _varint_bytes(value)
    return _varint_bytes(number << 3 | _BYTES) + _varint_bytes(len(value)) + value


def _varint_bytes(value: int) -> bytes:
    groups = [value & 0x7F]
    while value := value >> 7:
        groups[-1] |= _SHORT_VARINT
        groups.append(value & 0x7F)
    return bytes(groups)


def _model(data: bytes) -> PieceModel:
    pieces: list[SentencePiece] = []
    rules: dict[tuple[int, int], FieldValue] = {}
    for number, value in _fields(data):
        if not isinstance(value, bytes):
            continue
        if number == _PIECES:
            pieces.append(_piece(value))
        elif number in {_TRAINER, _NORMALIZER}:
            rules.update({(number, field): content for field, content in _fields(value)})
        if len(pieces) > MAX_PIECES:
            raise ValueError(f"more than {MAX_PIECES:,} pieces")
    if not pieces:
        raise ValueError("it has no pieces")
    charsmap = rules.get((_NORMALIZER, _CHARSMAP), b"")
    return PieceModel(
        tuple(pieces),
        ModelType(int(rules.get((_TRAINER, _MODEL_TYPE), ModelType.UNIGRAM))),
        charsmap if isinstance(charsmap, bytes) else b"",
        rules.get((_NORMALIZER, _ADD_PREFIX), 1) != 0,
        rules.get((_NORMALIZER, _REMOVE_SPACES), 1) != 0,
    )


def _piece(data: bytes) -> SentencePiece:
    text, score, kind = b"", 0.0, PieceType.NORMAL
    for number, value in _fields(data):
        if number == _PIECE and isinstance(value, bytes):
            text = value
        elif number == _SCORE and isinstance(value, bytes):
            (score,) = struct.unpack("<f", value)
        elif number == _TYPE:
            kind = PieceType(value)  # type: ignore[arg-type]
    if not text:
        raise ValueError("a piece is empty")
    return SentencePiece(text.decode(), score, kind)


def _fields(data: bytes) -> Iterator[tuple[int, FieldValue]]:
    """Yield number and value of each field of a message; floats come as their four bytes."""
    offset, end = 0, len(data)
    while offset < end:
        key, offset = _varint(data, offset)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, offset = _varint(data, offset)
            yield number, value
            continue
        if wire == _BYTES:
            size, offset = _varint(data, offset)
        elif wire in {_FIXED32, _FIXED64}:
            size = 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"byte {offset} begins a field of the unknown wire type {wire}")
        if size > end - offset:
            raise ValueError(f"a field of {size} bytes at byte {offset} is beyond the end")
        yield number, data[offset : offset + size]
        offset += size


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    if offset < len(data) and data[offset] < _SHORT_VARINT:
        return data[offset], offset + 1
    value = shift = 0
    while offset < len(data) and shift < _MAX_VARINT_BITS:
        value |= (data[offset] & 0x7F) << shift
        shift, offset = shift + 7, offset + 1
        if data[offset - 1] < _SHORT_VARINT:
            return value, offset
    raise ValueError(f"the number before byte {offset} does not end")
