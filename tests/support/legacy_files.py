"""Files from before GGUF, built from the published layouts one number at a time."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

TOKENS, WIDTH, HEADS, LAYERS, HIDDEN = 300, 64, 4, 2, 128
MAGICS = {"GGML": b"lmgg", "GGMF": b"fmgg", "GGJT": b"tjgg"}
TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q4_2": 4, "Q4_3": 5, "Q5_0": 6, "Q5_1": 7}
TYPES |= {"Q8_0": 8}
KINDS = [("GGML", 0), ("GGMF", 1), ("GGJT", 1), ("GGJT", 2), ("GGJT", 3)]


def shapes(keys: int = HEADS) -> dict[str, tuple[int, ...]]:
    """Return the tensors of a tiny LLaMA with so many heads of keys."""
    layer = {
        "attention.wq.weight": (WIDTH, WIDTH),
        "attention.wk.weight": (keys * WIDTH // HEADS, WIDTH),
        "attention.wv.weight": (keys * WIDTH // HEADS, WIDTH),
        "attention.wo.weight": (WIDTH, WIDTH),
        "attention_norm.weight": (WIDTH,),
        "feed_forward.w1.weight": (HIDDEN, WIDTH),
        "feed_forward.w2.weight": (WIDTH, HIDDEN),
        "feed_forward.w3.weight": (HIDDEN, WIDTH),
        "ffn_norm.weight": (WIDTH,),
    }
    head = {
        "tok_embeddings.weight": (TOKENS, WIDTH),
        "norm.weight": (WIDTH,),
        "output.weight": (TOKENS, WIDTH),
    }
    return head | {f"layers.{i}.{n}": s for i in range(LAYERS) for n, s in layer.items()}


def tokens() -> list[tuple[bytes, float]]:
    """Return a vocabulary in LLaMA's order: specials, bytes, pieces."""
    tokens_of_bytes = [(" \u2047 ".encode(), 0.0), (b"", 0.0), (b"", 0.0)]
    tokens_of_bytes += [(bytes([byte]), 0.0) for byte in range(256)]
    pieces = [b" a", "ä".encode(), b"b c", b"", b"\xff\xfe"]
    pieces += [b"p%d" % number for number in range(TOKENS - len(tokens_of_bytes) - len(pieces))]
    return tokens_of_bytes + [(piece, -float(rank)) for rank, piece in enumerate(pieces)]


def block(kind: str, version: int, draw: np.random.Generator) -> tuple[bytes, list[float]]:
    """Return a random block of a type in a file of GGJT `version` (0: older), and its elements."""
    size = 16 if kind in ("Q4_2", "Q4_3") else 32
    wide = version < 3 and kind in ("Q4_0", "Q4_1", "Q8_0")
    scale = np.float32(draw.normal()) if wide else np.float32(np.float16(draw.normal()))
    least = np.float32(draw.normal()) if wide else np.float32(np.float16(draw.normal()))
    code = "<f" if wide else "<e"
    head = struct.pack(code, scale)
    if kind == "Q8_0":
        whole = draw.integers(-128, 128, size)
        return head + struct.pack(f"{size}b", *whole), [float(scale * np.float32(n)) for n in whole]
    whole = draw.integers(0, 32 if kind.startswith("Q5") else 16, size)
    if kind.endswith(("_1", "_3")):
        head += struct.pack(code, least)
        center, offset = 0, least
    else:
        center, offset = (16 if kind == "Q5_0" else 8), np.float32(0)
    if kind.startswith("Q5"):
        head += struct.pack("<I", sum(int(n >> 4) << i for i, n in enumerate(whole)))
    nibbles = [int(n) & 15 for n in whole]
    first, second = (
        (nibbles[0::2], nibbles[1::2])
        if version < 2
        else (nibbles[: size // 2], nibbles[size // 2 :])
    )
    body = bytes(low | high << 4 for low, high in zip(first, second, strict=True))
    values = [float(np.float32(n - center) * scale + offset) for n in whole]
    return head + body, values


def rows(
    kind: str, version: int, shape: tuple[int, ...], draw: np.random.Generator
) -> tuple[bytes, np.ndarray[Any, Any]]:
    """Return random data of a tensor as it stands in a file, and its elements."""
    if kind in ("F32", "F16"):
        array = draw.standard_normal(shape).astype("<f4" if kind == "F32" else "<f2")
        return array.tobytes(), array.astype(np.float32)
    size = 16 if kind in ("Q4_2", "Q4_3") else 32
    blocks = [block(kind, version, draw) for _ in range(int(np.prod(shape)) // size)]
    values = np.array(
        [value for _, values_of_block in blocks for value in values_of_block], np.float32
    )
    return b"".join(packed for packed, _ in blocks), values.reshape(shape)


def head(kind: str, version: int, **sizes: int) -> bytes:
    """Return magic, version and sizes."""
    numbers = {"tokens": TOKENS, "width": WIDTH, "mult": 32, "heads": HEADS, "layers": LAYERS}
    numbers |= {"rotated": WIDTH // HEADS, "file_type": 1} | sizes
    start = MAGICS[kind] + (struct.pack("<I", version) if kind != "GGML" else b"")
    return start + struct.pack("<7I", *numbers.values())


def _start(kind: str, version: int) -> bytearray:
    """Return the head and the vocabulary."""
    out = bytearray(head(kind, version))
    for text, score in tokens():
        out += struct.pack("<I", len(text)) + text
        out += struct.pack("<f", score) if kind != "GGML" else b""
    return out


def _info(kind: str, type: str, name: str, shape: tuple[int, ...], offset: int) -> bytes:
    """Return the bytes before the data of a tensor that begins at byte `at`."""
    dims = struct.pack(f"<{len(shape)}I", *reversed(shape))
    info = struct.pack("<3I", len(shape), len(name), TYPES[type]) + dims + name.encode()
    return info + bytes(-(offset + len(info)) % 32 if kind == "GGJT" else 0)


def write(
    path: Path, kind: str, version: int, type: str = "F16", keys: int = HEADS
) -> dict[str, np.ndarray[Any, Any]]:
    """Write a model whose matrices are of a type; return the elements of its tensors."""
    draw = np.random.default_rng(version + TYPES[type])
    out = _start(kind, version)
    elements = {}
    for name, shape in shapes(keys).items():
        own = type if len(shape) > 1 else "F32"
        out += _info(kind, own, name, shape, len(out))
        data, elements[name] = rows(own, version if kind == "GGJT" else 0, shape, draw)
        out += data
    path.write_bytes(out)
    return elements


def write_parts(
    first: Path, kind: str, version: int, type: str, count: int
) -> dict[str, np.ndarray[Any, Any]]:
    """Write a model in `count` parts; return the elements of its tensors, joined by the rules."""
    draw = np.random.default_rng(count)
    parts = [_start(kind, version) for _ in range(count)]
    elements = {}
    for name, whole in shapes().items():
        if len(whole) == 1:
            data, elements[name] = rows("F32", version, whole, draw)
            for out in parts:
                out.extend(_info(kind, "F32", name, whole, len(out)) + data)
            continue
        axis = 1 if any(part in name for part in ("tok_embeddings", "wo.", "w2.")) else 0
        shape = (whole[0] // count, whole[1]) if axis == 0 else (whole[0], whole[1] // count)
        arrays = [rows(type, version if kind == "GGJT" else 0, shape, draw) for _ in parts]
        for out, (data, _) in zip(parts, arrays, strict=True):
            out.extend(_info(kind, type, name, shape, len(out)) + data)
        elements[name] = np.concatenate([values for _, values in arrays], axis)
    for number, out in enumerate(parts):
        path = first.with_name(f"{first.name}.{number}") if number else first
        path.write_bytes(out)
    return elements


def scales_first(packed: bytes, width: int, has_minimum: bool) -> bytes:
    """Return rows of Q4_0 or Q4_1 as the first files had them: minima, scales, then numbers."""
    size = 24 if has_minimum else 20
    out = b""
    for start in range(0, len(packed), width // 32 * size):
        row = packed[start : start + width // 32 * size]
        blocks = [row[i : i + size] for i in range(0, len(row), size)]
        out += b"".join(block[4:8] for block in blocks) if has_minimum else b""
        out += b"".join(block[:4] for block in blocks)
        out += b"".join(block[size - 16 :] for block in blocks)
    return out
