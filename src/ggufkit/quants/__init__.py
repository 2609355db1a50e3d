"""Arrays to blocks and back: the Python face of native/quants.

The public names of `ggufkit.quants` are below. Nothing here knows a file or a model: rows of
numbers go in, rows of bytes come out.
"""

from __future__ import annotations

from ggufkit.quants.codec import (
    check_requantize,
    decode_rows,
    dequantize,
    encodable,
    encode_rows,
    quantize,
    requantize,
    validate,
)
from ggufkit.system.cpu import instruction_set, instruction_sets

__all__ = [
    "check_requantize",
    "decode_rows",
    "dequantize",
    "encodable",
    "encode_rows",
    "instruction_set",
    "instruction_sets",
    "quantize",
    "requantize",
    "validate",
]
