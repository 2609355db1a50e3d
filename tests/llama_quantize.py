"""llama.cpp's own `llama_model_quantize`, out of a package that ships libllama whole.

It runs in a process of its own: this file, run as a program.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import real
from ggufkit.file_types import NUMBER_OF
from ggufkit.types import MAX_NAME_BYTES


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


def known_names() -> list[str]:
    """Return the name of a weight for each dotted word that stands in llama.cpp's libraries."""
    words: set[str] = set()
    for library in ("libllama.so.0", "libmtmd.so.0"):
        content = (real.libllama() / library).read_bytes()
        words.update(
            word.decode() for word in re.findall(rb"\0([a-z]\w*[._][\w.%]+)(?=\0)", content)
        )
    stems = (word.replace("%d", "0").replace("%s", "weight") for word in words)
    names = {stem if stem.endswith("weight") else f"{stem}.weight" for stem in stems}
    return sorted(name for name in names if "%" not in name and len(name) < MAX_NAME_BYTES)


def quantize(source: Path, target: Path, recipe: str) -> bool:
    """Run `llama-quantize --pure --allow-requantize` and return whether it succeeded."""
    command = [sys.executable, __file__, str(source), str(target), str(NUMBER_OF[recipe])]
    return subprocess.run(command, check=False).returncode == 0


def main(source: str, target: str, file_type: str) -> int:
    """Quantize here and now; return 0 for success."""
    library = ctypes.CDLL(str(real.libllama() / "libllama.so.0"))
    library.llama_model_quantize_default_params.restype = Parameters
    silence = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(_ignore)
    library.llama_log_set(silence, None)
    chosen = library.llama_model_quantize_default_params()
    # What llama.h says of the defaults: these would not be so were the structure another.
    assert (chosen.file_type, chosen.quantize_output_tensor) == (NUMBER_OF["Q8_0"], True)
    assert chosen.max_buffer_bytes == 8 << 30
    chosen.pure = chosen.allow_requantize = True
    chosen.file_type = int(file_type)
    chosen.threads = 2
    failed: int = library.llama_model_quantize(
        source.encode(), target.encode(), ctypes.byref(chosen)
    )
    return failed


def _ignore(*_: object) -> None:
    pass


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
