"""Converts files from before GGUF (GGML, GGMF, GGJT) of the LLaMA family to a model.

A model may be in parts, `ggml-model-f16.bin`, `ggml-model-f16.bin.1`, ...: each has the same header
and vocabulary, and some rows or columns of each matrix, as in LLaMA's original checkpoints.
Source: llama.cpp's own loaders of March to August 2023, and its `convert_llama_ggml_to_gguf.py`.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

import ggufkit._toml as _toml
from ggufkit.conversion.legacy.blocks import Block, block_of, layout_of_rows
from ggufkit.conversion.legacy.header import (
    LegacyHeader,
    LegacyReader,
    read_header,
    read_vocabulary,
)
from ggufkit.conversion.tokenizer.entries import TokenEntries, Tokens
from ggufkit.conversion.tokenizer.pre.pre_tokenizer_name import DEFAULT
from ggufkit.conversion.tokenizer.sentencepiece_model import SPACE, PieceType
from ggufkit.errors import FormatError, LimitError, ShapeError, ValueTypeError
from ggufkit.format.file_types import FILE_TYPES
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import DEFAULT_ALIGNMENT, TensorType, padded, tensor_type
from ggufkit.models.model import Model, Tensor, Tensors
from ggufkit.models.open import locate
from ggufkit.models.rows import Joined, Rewritten
from ggufkit.models.sources import FileSource
from ggufkit.quantization.file_keys import guessed_file_type, stamped
from ggufkit.system.descriptors import AnyPath, as_path
from ggufkit.system.mapped_file import Bytes, MappedFile

MAX_NAME_BYTES: Final = 64
MAX_PARTS: Final = 8  # as LLaMA 65B has
LOOKED_AT: Final = 16  # rows read to find out how blocks are laid out
MAX_AXES: Final = 2  # no tensor of the family has more
CONTEXT: Final = 2048  # of LLaMA; llama.cpp's converter writes it too
EPSILON: Final = 5e-6  # as llama.cpp's converter writes; between LLaMA 1's and 2's
UNKNOWN, BEGIN, END = 0, 1, 2  # the ids of LLaMA's special tokens
FIRST_BYTE: Final = 3
_SPECIAL: Final = {
    UNKNOWN: ("<unk>", PieceType.UNKNOWN),
    BEGIN: ("<s>", PieceType.CONTROL),
    END: ("</s>", PieceType.CONTROL),
}

_NAMES: Final[dict[str, dict[str, str]]] = _toml.read(__file__, "names.toml")
_NUMBERED: Final = re.compile(r"(?P<first>.+)\.\d{1,2}")
# Matrices that are split by columns: each part multiplies a part of the input.
_BY_COLUMNS: Final = re.compile(r"token_embd\.weight|blk\.\d+\.(attn_output|ffn_down)\.weight")
_LAYER: Final = re.compile(r"layers\.(?P<number>\d{1,3})\.(?P<name>.+)\.weight")


def convert_legacy(
    path: AnyPath,
    *,
    vocab_from: Model | None = None,
    context_length: int = CONTEXT,
    rms_epsilon: float = EPSILON,
) -> Model:
    """Return the model in a GGML, GGMF or GGJT file of the LLaMA family, lazily.

    For a model in parts, `path` may be any part. The vocabulary comes from the GGUF model
    `vocab_from` if given. Such files lack `context_length` and `rms_epsilon` (1e-6 for LLaMA 1,
    1e-5 for LLaMA 2). Blocks that no GGUF type can hold become float32.

    Raises NotGGUFError for other files, FormatError for damaged ones, and ValueTypeError for a
    vocabulary of another size.
    """
    with contextlib.ExitStack() as opened:
        parts = _parts(locate(as_path(path)), opened)
        header, file = parts[0].header, parts[0].file
        tensors = _joined([part.tensors for part in parts], [part.file.path for part in parts])
        _require_whole(tensors, header, str(file.path))
        metadata = _metadata(header, tensors, context_length, rms_epsilon)
        tokens = _borrowed(vocab_from, header) if vocab_from else _tokens(*parts[0].vocabulary)
        name, number = FILE_TYPES.get(header.file_type, ""), header.file_type
        matrices = (tensor for tensor in tensors.values() if len(tensor.shape) > 1)
        if not any(name.startswith(tensor.type.name) for tensor in matrices):
            number = guessed_file_type(tensors.values())
        model = Model(stamped(metadata.updated(tokens), number), tensors)
        opened.pop_all()
    return model.reading([part.file for part in parts])


@dataclass(frozen=True)
class _LegacyFile:
    """A file and its contents."""

    file: MappedFile
    header: LegacyHeader
    vocabulary: tuple[list[bytes], list[float]]
    tensors: Tensors

    @classmethod
    def read(cls, path: Path, opened: contextlib.ExitStack) -> _LegacyFile:
        file = MappedFile(path)
        opened.callback(file.close)
        reader = LegacyReader(file)
        header = read_header(reader)
        vocabulary = read_vocabulary(reader, header)
        tensors = []
        while reader.position < file.nbytes:
            if tensor := _tensor(reader, header):
                tensors.append(tensor)
        return cls(file, header, vocabulary, Tensors(tensors))

    @property
    def count(self) -> int:
        """The number of parts; each has the same number of columns of the embedding."""
        embedding = self.tensors.get("token_embd.weight")
        width = embedding.shape[-1] if embedding else self.header.width
        return self.header.width // width if self.header.width % width == 0 else 1


def _parts(path: Path, opened: contextlib.ExitStack) -> list[_LegacyFile]:
    first = _LegacyFile.read(_first_part(path), opened)
    if first.count > MAX_PARTS:
        raise LimitError(
            f"{first.file.path}: {first.count} parts, more than the limit of {MAX_PARTS}"
        )
    others = _other_parts(first.file.path, first.count)
    parts = [first, *(_LegacyFile.read(other, opened) for other in others)]
    for part in parts:
        if part.header != first.header:
            raise FormatError(
                f"its sizes differ from {first.file.path.name}",
                remedy="Join only parts of the same conversion",
                path=str(part.file.path),
            )
    return parts


def lacks_scores(path: AnyPath) -> bool:
    """Whether a file is so old that its tokens lack the scores that tokenizing needs."""
    file = MappedFile(_first_part(locate(as_path(path))))
    with contextlib.closing(file):
        return not read_header(LegacyReader(file)).is_versioned


def _tokens(texts: list[bytes], scores: list[float]) -> Mapping[str, object]:
    tokens, entries = Tokens(len(texts)), TokenEntries()
    for number, (text, score) in enumerate(zip(texts, scores, strict=True)):
        word, kind = _token(number, text)
        tokens.put(number, word, score, kind)
    entries.head("llama", DEFAULT)
    entries.tokens(tokens, scored=True)
    for role, number in (("unk", UNKNOWN), ("bos", BEGIN), ("eos", END)):
        entries.identifier(role, number)
    return entries.items


def _token(number: int, text: bytes) -> tuple[str, PieceType]:
    if number in _SPECIAL:
        return _SPECIAL[number]
    if not text:
        return "", PieceType.CONTROL
    if FIRST_BYTE <= number < FIRST_BYTE + 256 and len(text) == 1:
        return f"<0x{text[0]:02X}>", PieceType.BYTE
    return text.decode("utf-8", "surrogateescape").replace(" ", SPACE), PieceType.NORMAL


def _borrowed(model: Model, header: LegacyHeader) -> Mapping[str, object]:
    keys = {key: v for key, v in model.metadata.items() if key.startswith("tokenizer.")}
    tokens = keys.get("tokenizer.ggml.tokens", ())
    count = len(tokens) if isinstance(tokens, Sequence | np.ndarray) else 0
    if count != header.tokens:
        raise ValueTypeError(
            f"the vocabulary file has {count} tokens, but the model has {header.tokens}",
            remedy="Use the vocabulary of the same model",
        )
    return keys


def _tensor(reader: LegacyReader, header: LegacyHeader) -> Tensor | None:
    axes, name_bytes, number = reader.numbers(3, "a tensor")
    if not 0 < axes <= MAX_AXES or name_bytes > MAX_NAME_BYTES:
        raise reader.wrong(f"a tensor of {axes} axes and a name of {name_bytes} bytes")
    shape = reader.numbers(axes, "the shape of a tensor")[::-1]
    old = reader.take(name_bytes, "the name of a tensor").decode("utf-8", "replace")
    name = _name(old, header.layers)
    if name is None:
        raise reader.wrong(f"models of the LLaMA family do not have a tensor {old!r}")
    kind = tensor_type(number)
    block = block_of(kind, header.blocks)
    if block is None and kind.is_opaque:
        raise reader.wrong(f"tensor {old!r} is of the unknown type {number}")
    source = _source(reader, header, shape, block or kind)
    if not name:
        return None
    if block is None:
        return Tensor(name, kind, shape, source.nbytes, source)
    if not header.is_versioned:
        rows = min(math.prod(shape[:-1]), LOOKED_AT)
        block = layout_of_rows(block, source.read(0, rows))
    if block is None:
        raise reader.wrong(f"the scales of tensor {old!r} are not valid")
    return Tensor.over(name, block.stored, shape, Rewritten(block.rewritten, (source,)))


def _source(
    reader: LegacyReader, header: LegacyHeader, shape: tuple[int, ...], kind: Block | TensorType
) -> FileSource:
    if header.kind == "GGJT":
        reader.skip(padded(reader.position, DEFAULT_ALIGNMENT) - reader.position)
    width, step = shape[-1], kind.block_size
    if width % step or not math.prod(shape):
        raise reader.wrong(f"rows of {width} elements do not divide into blocks of {step}")
    row_bytes, start = kind.row_bytes(width), reader.position
    nbytes = math.prod(shape[:-1]) * row_bytes
    if nbytes > reader.file.nbytes - start:
        raise reader.wrong(f"the file ends in a tensor of {nbytes} bytes")
    reader.skip(nbytes)
    return FileSource(reader.file, start, nbytes, row_bytes, "little")


def _name(old: str, layers: int) -> str | None:
    """Return a tensor's GGUF name, "" for one to leave out, None for an unknown one."""
    if old.endswith("rope.freqs"):
        return ""
    match = _LAYER.fullmatch(old)
    if not match:
        return _NAMES["whole"].get(old)
    name, number = _NAMES["layer"].get(match["name"]), int(match["number"])
    return f"blk.{number}.{name}.weight" if name and number < layers else None


def _require_whole(tensors: Tensors, header: LegacyHeader, path: str) -> None:
    layer = (
        f"blk.{i}.{name}.weight" for i in range(header.layers) for name in _NAMES["layer"].values()
    )
    missing = [name for name in (*_NAMES["whole"].values(), *layer) if name not in tensors]
    if missing:
        raise FormatError(
            f"{len(missing)} tensors are missing, including {missing[0]!r}",
            remedy="Download the file again",
            path=path,
        )
    expected, actual = (header.tokens, header.width), tensors["token_embd.weight"].shape
    if actual != expected:
        raise ShapeError(
            f"{path}: the embedding is of shape {actual}, not {expected}",
            remedy="Download the file again",
        )


def _metadata(
    header: LegacyHeader, tensors: Tensors, context_length: int, rms_epsilon: float
) -> Metadata:
    numbers = {
        "llama.vocab_size": header.tokens,
        "llama.context_length": context_length,
        "llama.embedding_length": header.width,
        "llama.block_count": header.layers,
        "llama.feed_forward_length": tensors["blk.0.ffn_gate.weight"].shape[0],
        "llama.rope.dimension_count": header.rotated,
        "llama.attention.head_count": header.heads,
        "llama.attention.head_count_kv": tensors["blk.0.attn_k.weight"].shape[0] // header.rotated,
    }
    version = f"v{header.version}" if header.version else "(unversioned)"
    keys = {
        "general.architecture": "llama",
        "general.description": f"converted from {header.kind} {version}",
        **{key: np.uint32(number) for key, number in numbers.items()},
        "llama.attention.layer_norm_rms_epsilon": np.float32(rms_epsilon),
    }
    return Metadata(keys)


def _first_part(path: Path) -> Path:
    match = _NUMBERED.fullmatch(path.name)
    first = path.with_name(match["first"]) if match else path
    return first if first.is_file() else path


def _other_parts(first: Path, count: int) -> list[Path]:
    others = [first.with_name(f"{first.name}.{number}") for number in range(1, count)]
    missing = [path.name for path in others if not path.exists()]
    if missing:
        raise FormatError(
            f"the model has {count} parts, and these are missing: {', '.join(missing)}",
            remedy="Put all parts into one folder, under their own names",
            path=str(first),
        )
    return others


def _joined(parts: Sequence[Tensors], paths: Sequence[Path]) -> Tensors:
    if len(parts) == 1:
        return parts[0]
    for part, path in zip(parts, paths, strict=True):
        ours, theirs = ({t.name: (t.type, t.shape) for t in p.values()} for p in (part, parts[0]))
        differing = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
        if differing:
            raise FormatError(
                f"the tensor {differing[0]!r} differs from that in the first part",
                remedy="Join only parts of the same conversion",
                path=str(path),
            )
    return Tensors(_whole([part[name] for part in parts]) for name in parts[0])


def _whole(parts: list[Tensor]) -> Tensor:
    first, sources = parts[0], tuple(part.source for part in parts)
    if len(first.shape) == 1:  # every part has vectors whole
        return first
    rows, width = first.shape
    if _BY_COLUMNS.fullmatch(first.name):
        shape = (rows, width * len(parts))
        return Tensor.over(first.name, first.type, shape, Rewritten(_side_by_side, sources))
    ends = rows * np.arange(1, len(parts) + 1)
    return Tensor.over(first.name, first.type, (int(ends[-1]), width), Joined(sources, ends))


def _side_by_side(*rows: Bytes) -> Bytes:
    return np.concatenate(rows, axis=1)
