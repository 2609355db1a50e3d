"""A stand-in for the module `gguf`: `from ggufkit.compat import gguf`.

Reader, writer and conversion of types are ggufkit's. All other names come from the installed
gguf-py, and so are its submodules: enums, constants, tensor names, vocabularies.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Iterable
from typing import Any, Final

from ggufkit.errors import MissingExtraError

try:
    import gguf as _installed
    from gguf.gguf_reader import ReaderField, ReaderTensor
except ImportError as _error:
    raise MissingExtraError(
        f"ggufkit.compat.gguf takes its tables from gguf-py, which cannot be imported: {_error}",
        remedy="pip install 'ggufkit[compat]'",
    ) from _error

from ggufkit.compat.gguf.gguf_reader import GGUFReader
from ggufkit.compat.gguf.gguf_writer import GGUFWriter
from ggufkit.compat.gguf.quants import (
    dequantize,
    quant_shape_from_byte_shape,
    quant_shape_to_byte_shape,
    quantize,
)
from ggufkit.compat.gguf.tensor_mapping import get_tensor_name_map
from ggufkit.compat.patch import install, uninstall

__all__ = [
    "GGUFReader",
    "GGUFWriter",
    "ReaderField",
    "ReaderTensor",
    "dequantize",
    "get_tensor_name_map",
    "install",
    "quant_shape_from_byte_shape",
    "quant_shape_to_byte_shape",
    "quantize",
    "uninstall",
]
__all__ += [name for name in vars(_installed) if not name.startswith("_")]

# Programs import these by name. They are the installed modules themselves.
_SUBMODULES: Final = ("constants", "lazy", "metadata", "utility", "vocab")
for _name in _SUBMODULES:
    sys.modules[f"{__name__}.{_name}"] = importlib.import_module(f"gguf.{_name}")


def __getattr__(name: str) -> Any:  # noqa: ANN401 (as the language has it)
    """Return a name of the installed gguf-py, which also says its version."""
    if name == "__version__":
        return importlib.metadata.version("gguf")
    return getattr(_installed, name)


def __dir__() -> Iterable[str]:
    """List all names."""
    return sorted({*globals(), *__all__})
