"""One row per metadata value type and per tensor type: the facts of the format.

Source: ggml's `docs/gguf.md`, `ggml.h` and `ggml-common.h` (llama.cpp of October 2026).
`native/quants/types/` holds the codec of each tensor type; `tests/house/test_native_table.py` binds
the two tables to each other and to ggml's.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ggufkit.errors import TensorTypeError

MAGIC: Final = b"GGUF"
MAX_DIMS: Final = 4  # ggml's GGML_MAX_DIMS: what llama.cpp loads
# What ComfyUI's patched ggml reads: names of HunyuanVideo have 65. The specification says 64, and
# ggml stops at 63 (GGML_MAX_NAME).
MAX_NAME_BYTES: Final = 127
MAX_KEY_BYTES: Final = 65535  # the specification's limit
DEFAULT_ALIGNMENT: Final = 32  # bytes, if general.alignment is absent


class ValueType(Enum):
    """A metadata value type: `id` in the file, `dtype` of its NumPy form (None: not a number)."""

    UINT8 = (0, "u1")
    INT8 = (1, "i1")
    UINT16 = (2, "u2")
    INT16 = (3, "i2")
    UINT32 = (4, "u4")
    INT32 = (5, "i4")
    FLOAT32 = (6, "f4")
    BOOL = (7, "?")
    STRING = (8, None)
    ARRAY = (9, None)
    UINT64 = (10, "u8")
    INT64 = (11, "i8")
    FLOAT64 = (12, "f8")

    def __init__(self, id: int, dtype: str | None) -> None:
        self.id = id
        self.dtype = dtype

    def __eq__(self, other: object) -> bool:
        """Compare with another type, or with a name."""
        return self is other or self.name == other

    __hash__ = Enum.__hash__  # of the name


VALUE_TYPES: Final = {kind.id: kind for kind in ValueType}

# The keys that tie a shard to its set, in the types that llama.cpp requires.
SPLIT_TYPES: Final = {
    "split.no": ValueType.UINT16,
    "split.count": ValueType.UINT16,
    "split.tensors.count": ValueType.INT32,
}

RESERVED_KEY: Final = "ggufkit.reserved"  # slack in a header for later edits

SPLIT_KEYS: Final = tuple(SPLIT_TYPES)
# Keys about the layout of a model, not its content.
LAYOUT_KEYS: Final = ("general.alignment", RESERVED_KEY, *SPLIT_KEYS)


class _TypesByName(type):
    """Makes `TensorType["Q4_K"]` a row of the table, as enums do."""

    def __getitem__(cls, name: str) -> TensorType:
        return tensor_type(name)

    def __iter__(cls) -> Iterator[TensorType]:
        return iter(TENSOR_TYPES.values())


@dataclass(frozen=True, eq=False)
class TensorType(metaclass=_TypesByName):
    """A tensor type: how a row of elements is packed into blocks.

    `id` is ggml's number; a block holds `block_size` elements of the last axis in `block_bytes`
    bytes. `fields` is the packed layout of a block as widths in bytes, `"2 16*1"` being one
    16-bit field and sixteen bytes: byte order swaps within fields. What counts is how ggml's
    decoders read a block: four bytes that they read as one word are one field of 32 bits.
    `dtype` is the NumPy dtype of plain types. An opaque type (unknown, or removed from ggml) has a
    block size of 0. `TensorType["Q4_K"]` is a type by its name, `list(TensorType)` has all, and a
    type equals its name.

    `program` is the only program that reads the type, None for ggml's own. Such a type may begin
    each row with `row_prefix` bytes, and interleave the blocks of `interleaved` rows, which as
    blocks of their own are of the type named `plain`.
    """

    id: int
    name: str
    block_size: int
    block_bytes: int
    fields: str
    dtype: str | None = None
    program: str | None = None
    row_prefix: int = 0
    interleaved: int = 1
    plain: str | None = None

    def __eq__(self, other: object) -> bool:
        """Compare by name, because programs disagree about some numbers, or with a name."""
        return self.name == (other.name if isinstance(other, TensorType) else other)

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        """Return the name, as files and tools write it."""
        return self.name

    @property
    def is_opaque(self) -> bool:
        """Whether the layout is unknown, so that only raw bytes are available."""
        return self.block_size == 0

    @property
    def is_quantized(self) -> bool:
        """Whether several elements share a block, or rows are interleaved."""
        return self.block_size > 1 or self.interleaved > 1

    @property
    def bits_per_weight(self) -> float:
        """Storage in bits per element (0 for opaque types)."""
        return 8 * self.block_bytes / self.block_size if self.block_size else 0.0

    @property
    def is_cut_between_blocks(self) -> bool:
        """Whether each block stands for itself; otherwise only whole rows can be decoded."""
        return self.row_prefix == 0 and self.interleaved == 1

    def row_bytes(self, width: int) -> int:
        """Return the bytes of a row of `width` elements; ShapeError is the caller's to raise."""
        return self.row_prefix + width // self.block_size * self.block_bytes

    def width(self, row_bytes: int) -> int:
        """Return the elements of a row of `row_bytes`: the inverse."""
        return (row_bytes - self.row_prefix) // self.block_bytes * self.block_size


_ROWS: Final = (
    TensorType(0, "F32", 1, 4, "4", "f4"),
    TensorType(1, "F16", 1, 2, "2", "f2"),
    TensorType(2, "Q4_0", 32, 18, "2 16*1"),
    TensorType(3, "Q4_1", 32, 20, "2 2 16*1"),
    TensorType(6, "Q5_0", 32, 22, "2 4 16*1"),
    TensorType(7, "Q5_1", 32, 24, "2 2 4 16*1"),
    TensorType(8, "Q8_0", 32, 34, "2 32*1"),
    TensorType(9, "Q8_1", 32, 36, "2 2 32*1"),
    TensorType(10, "Q2_K", 256, 84, "16*1 64*1 2 2"),
    TensorType(11, "Q3_K", 256, 110, "32*1 64*1 12*1 2"),
    TensorType(12, "Q4_K", 256, 144, "2 2 12*1 128*1"),
    TensorType(13, "Q5_K", 256, 176, "2 2 12*1 32*1 128*1"),
    TensorType(14, "Q6_K", 256, 210, "128*1 64*1 16*1 2"),
    TensorType(15, "Q8_K", 256, 292, "4 256*1 16*2"),
    TensorType(16, "IQ2_XXS", 256, 66, "2" + 8 * " 4*1 4"),
    TensorType(17, "IQ2_XS", 256, 74, "2 32*2 8*1"),
    TensorType(18, "IQ3_XXS", 256, 98, "2 64*1 8*4"),
    TensorType(19, "IQ1_S", 256, 50, "2 32*1 8*2"),
    TensorType(20, "IQ4_NL", 32, 18, "2 16*1"),
    TensorType(21, "IQ3_S", 256, 110, "2 64*1 8*1 32*1 4*1"),
    TensorType(22, "IQ2_S", 256, 82, "2 64*1 8*1 8*1"),
    TensorType(23, "IQ4_XS", 256, 136, "2 2 4*1 128*1"),
    TensorType(24, "I8", 1, 1, "1", "i1"),
    TensorType(25, "I16", 1, 2, "2", "i2"),
    TensorType(26, "I32", 1, 4, "4", "i4"),
    TensorType(27, "I64", 1, 8, "8", "i8"),
    TensorType(28, "F64", 1, 8, "8", "f8"),
    TensorType(29, "IQ1_M", 256, 56, "32*1 16*1 4*2"),
    TensorType(30, "BF16", 1, 2, "2"),
    TensorType(34, "TQ1_0", 256, 54, "48*1 4*1 2"),
    TensorType(35, "TQ2_0", 256, 66, "64*1 2"),
    TensorType(39, "MXFP4", 32, 17, "1 16*1"),
    TensorType(40, "NVFP4", 64, 36, "4*1 32*1"),
    TensorType(41, "Q1_0", 128, 18, "2 16*1"),
    TensorType(42, "Q2_0", 64, 18, "2 16*1"),
    # Removed from ggml: they occur in old files; the format no longer defines their layout.
    TensorType(4, "Q4_2", 0, 0, ""),
    TensorType(5, "Q4_3", 0, 0, ""),
    TensorType(31, "Q4_0_4_4", 0, 0, ""),
    TensorType(32, "Q4_0_4_8", 0, 0, ""),
    TensorType(33, "Q4_0_8_8", 0, 0, ""),
    TensorType(36, "IQ4_NL_4_4", 0, 0, ""),
    TensorType(37, "IQ4_NL_4_8", 0, 0, ""),
    TensorType(38, "IQ4_NL_8_8", 0, 0, ""),
)

# Types of PrismML's fork of llama.cpp, which once had other layouts under numbers of llama.cpp.
PRISM: Final = "PrismML's llama.cpp"
_PRISM_TYPES: Final = (
    TensorType(142, "PQ2_0", 128, 34, "", None, PRISM),
    TensorType(143, "PTQ1_0", 128, 28, "", None, PRISM),
)
IK: Final = "ik_llama.cpp"
# Number, name, elements and bytes of a block; of some also bytes before the blocks of a row. An
# interleaved type has the number of rows instead of the block, which is that of its plain type.
_IK_TYPES: Final = """
97 Q8_0_X4 32 34; 98 Q8_1_X4 32 36; 99 Q8_2_X4 32 36; 133 Q6_0 32 26; 134 IQ1_BN 64 13 2
135 IQ2_BN 64 16 4; 136 Q8_K64 64 68; 137 IQ2_K 256 76; 138 IQ3_K 256 110; 139 IQ4_K 256 144
140 IQ5_K 256 176; 141 IQ6_K 256 212; 144 IQ4_KS 256 136 4; 145 IQ2_KS 256 70 2
146 IQ4_KSS 256 128 4; 147 Q8_K16 64 64 20; 148 Q8_K32 256 296; 149 Q8_KR8 256 296
150 Q8_K128 128 140; 151 Q8_KV 32 32 8; 152 IQ5_KS 256 168 4; 153 IQ2_KT 256 68 4
154 IQ3_KT 256 100 4; 155 IQ4_KT 256 128 4; 156 IQ3_KS 256 102 2; 157 IQ2_KL 256 86 2
158 IQ1_KT 256 56 4
202 Q4_0_R8; 206 Q5_0_R4; 208 Q8_0_R8; 210 Q2_K_R4; 211 Q3_K_R4; 212 Q4_K_R4; 213 Q5_K_R4
214 Q6_K_R4; 216 IQ2_XXS_R4; 217 IQ2_XS_R4; 218 IQ3_XXS_R4; 220 IQ4_NL_R4; 221 IQ3_S_R4
222 IQ2_S_R4; 223 IQ4_XS_R8; 230 BF16_R16; 233 Q6_0_R4; 335 IQ2_BN_R4; 337 IQ2_K_R4
338 IQ3_K_R4; 339 IQ4_K_R4; 340 IQ5_K_R4; 344 IQ4_KS_R4; 352 IQ5_KS_R4; 353 MXFP4_R8
219 IQ1_S_R4 32 6 2; 229 IQ1_M_R4 32 7 2; 397 Q8_K_R16 256 258; 398 Q8_KV_R8 32 32 4
399 Q8_K_R8 256 258"""


def _ik_types() -> Iterator[TensorType]:
    plain = {row.name: row for row in _ROWS}
    for text in _IK_TYPES.replace("\n", ";").strip("; ").split(";"):
        number, name, *sizes = text.split()
        base, _, rows = name.rpartition("_R")
        block, nbytes, prefix = [*map(int, sizes), 0, 0, 0][:3]
        inner = plain.get(base)
        if inner and not sizes:
            block, nbytes, prefix = inner.block_size, inner.block_bytes, inner.row_prefix
        stored = inner.name if inner and not sizes else None
        count = int(rows) if base else 1
        row = TensorType(int(number), name, block, nbytes, "", None, IK, prefix, count, stored)
        plain[name] = row
        yield row


GGML_TYPES: Final = {row.id: row for row in _ROWS}  # those of llama.cpp
TENSOR_TYPES: Final = GGML_TYPES | {row.id: row for row in (*_PRISM_TYPES, *_ik_types())}
# What a number of the table above means in files of other programs: `format/dialects.py` tells
# which files these are. I2_S has a byte for four elements, and 32 bytes after all of them.
_OLD_PRISM: Final = "PrismML's llama.cpp before prism-v7"
DIALECTS: Final[dict[str, tuple[TensorType, ...]]] = {
    "llama.cpp": (),
    "prism-v5": (
        TensorType(40, "Q1_0_G32", 32, 6, "", None, _OLD_PRISM),
        TensorType(42, "Q2_0_G128", 128, 34, "", None, _OLD_PRISM),
    ),
    "bitnet.cpp": (TensorType(36, "I2_S", 0, 0, "", None, f"bitnet.cpp and {IK}"),),
}
DIALECT_VARIABLE: Final = "GGUFKIT_DIALECT"  # names the one that files are read in
_OTHERS: Final = tuple(row for rows in DIALECTS.values() for row in rows)
_BY_NAME: Final = {row.name: row for row in (*TENSOR_TYPES.values(), *_OTHERS)}


def padded(number: int, alignment: int) -> int:
    """Round `number` up to a multiple of `alignment`."""
    return number + -number % alignment


def opaque_type(number: int) -> TensorType:
    """Return the type of a number whose layout is unknown."""
    return TensorType(number, f"TYPE_{number}", 0, 0, "")


def tensor_type(id_or_name: int | str | TensorType) -> TensorType:
    """Return the row of a tensor type given by ggml number, by name in any case, or as a row.

    An unknown number gives an opaque type, because later files may use it; an unknown name raises
    TensorTypeError.
    """
    if isinstance(id_or_name, TensorType):
        return id_or_name
    if hasattr(id_or_name, "__index__"):
        number = operator.index(id_or_name)
        return TENSOR_TYPES.get(number) or opaque_type(number)
    row = _BY_NAME.get(id_or_name.upper()) if isinstance(id_or_name, str) else None
    if row is None:
        names = ", ".join(kind.name for kind in _ROWS if not kind.is_opaque)
        raise TensorTypeError(f"unknown tensor type {id_or_name!r}", remedy=f"Use one of {names}")
    return row


# The dtypes of other libraries that GGUF has, by the name of the tensor type.
DTYPES: Final = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
}  # fmt: skip
# Of safetensors files; types that an older torch lacks are returned as bytes.
TORCH_DTYPES: Final = DTYPES | {
    "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64", "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "C64": "complex64",
    "F4": "float4_e2m1fn_x2",
}  # fmt: skip
