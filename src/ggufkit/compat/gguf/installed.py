"""What ggufkit takes from the installed gguf: enums, constants and tables.

They are the same objects, so that programs may compare and mix them with gguf-py's.
"""

from __future__ import annotations

from ggufkit.errors import MissingExtraError

try:
    import gguf
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFEndian, GGUFValueType
    from gguf.gguf_reader import GGUFReader as InstalledReader
    from gguf.gguf_reader import ReaderField, ReaderTensor
    from gguf.gguf_writer import GGUFWriter as InstalledWriter
    from gguf.lazy import LazyNumpyTensor
    from gguf.quants import QuantError
except ImportError as _error:
    raise MissingExtraError(
        f"ggufkit.compat.gguf takes its tables from gguf-py, which cannot be imported: {_error}",
        remedy="pip install 'ggufkit[compat]'",
    ) from _error

__all__ = [
    "GGML_QUANT_SIZES",
    "GGMLQuantizationType",
    "GGUFEndian",
    "GGUFValueType",
    "InstalledReader",
    "InstalledWriter",
    "LazyNumpyTensor",
    "QuantError",
    "ReaderField",
    "ReaderTensor",
    "gguf",
]
