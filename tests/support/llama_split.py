"""What llama-gguf-split writes, made by llama.cpp's own functions for GGUF files.

The functions come out of the library that xllamacpp ships; which of them are called, in what order,
follows tools/gguf-split/gguf-split.cpp of llama.cpp (`split_strategy` and `gguf_merge`).
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

NUMBER, COUNT, TENSORS = b"split.no", b"split.count", b"split.tensors.count"
STEP: Final = 32  # GGUF_DEFAULT_ALIGNMENT: the tool always pads tensors to it
FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {  # the result, then the arguments
    "gguf_init_empty": (ctypes.c_void_p,),
    "gguf_free": (None, ctypes.c_void_p),
    "gguf_set_kv": (None, ctypes.c_void_p, ctypes.c_void_p),
    "gguf_set_val_u16": (None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint16),
    "gguf_set_val_i32": (None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32),
    "gguf_get_n_tensors": (ctypes.c_int64, ctypes.c_void_p),
    "gguf_get_tensor_name": (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64),
    "gguf_get_tensor_offset": (ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int64),
    "gguf_get_data_offset": (ctypes.c_size_t, ctypes.c_void_p),
    "gguf_add_tensor": (None, ctypes.c_void_p, ctypes.c_void_p),
    "gguf_get_meta_size": (ctypes.c_size_t, ctypes.c_void_p),
    "gguf_get_meta_data": (None, ctypes.c_void_p, ctypes.c_void_p),
    "ggml_get_tensor": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p),
    "ggml_nbytes": (ctypes.c_size_t, ctypes.c_void_p),
    "ggml_free": (None, ctypes.c_void_p),
}


class _SplitParameters(ctypes.Structure):
    """`gguf_init_params` of gguf.h."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.POINTER(ctypes.c_void_p)))


class _Opened:
    """A file as llama.cpp sees it, with the functions that it is read and written by."""

    def __init__(self, library: ctypes.CDLL, path: Path, stack: contextlib.ExitStack) -> None:
        self.call = _functions(library)
        self.content = path.read_bytes()
        tensors = ctypes.c_void_p()
        parameters = _SplitParameters(no_alloc=True, ctx=ctypes.pointer(tensors))
        init = library.gguf_init_from_file
        init.restype, init.argtypes = ctypes.c_void_p, (ctypes.c_char_p, _SplitParameters)
        self.context = init(str(path).encode(), parameters)
        assert self.context, f"llama.cpp does not read {path}"
        stack.callback(self.call["gguf_free"], self.context)
        stack.callback(self.call["ggml_free"], tensors)
        begin = self.call["gguf_get_data_offset"](self.context)
        self.tensors = []
        for number in range(self.call["gguf_get_n_tensors"](self.context)):
            name = self.call["gguf_get_tensor_name"](self.context, number)
            tensor = self.call["ggml_get_tensor"](tensors, name)
            start = begin + self.call["gguf_get_tensor_offset"](self.context, number)
            data = self.content[start : start + self.call["ggml_nbytes"](tensor)]
            self.tensors.append((tensor, data))


def split(
    library: ctypes.CDLL,
    path: Path,
    *,
    size: int | None = None,
    tensors: int | None = None,
    no_tensor_first_split: bool = False,
) -> list[bytes]:
    """Return the files of --split with --split-max-size (in bytes) or --split-max-tensors."""
    with contextlib.ExitStack() as stack:
        file = _Opened(library, path, stack)
        groups: list[list[tuple[int, bytes]]] = [[], []] if no_tensor_first_split else [[]]
        used = 0
        for index, (tensor, data) in enumerate(file.tensors):
            nbytes = len(data) + -len(data) % STEP
            used += nbytes
            is_full = used > size if size else index > 0 and index % (tensors or 1) == 0
            if is_full:
                groups.append([])
                used = nbytes
            groups[-1].append((tensor, data))
        shards = []
        for number, group in enumerate(groups):
            out = file.call["gguf_init_empty"]()
            stack.callback(file.call["gguf_free"], out)
            if number == 0:
                file.call["gguf_set_kv"](out, file.context)
            file.call["gguf_set_val_u16"](out, NUMBER, number)
            file.call["gguf_set_val_u16"](out, COUNT, 0)
            file.call["gguf_set_val_i32"](out, TENSORS, len(file.tensors))
            file.call["gguf_set_val_u16"](out, COUNT, len(groups))
            shards.append(_written(file.call, out, group))
        return shards


def merge(library: ctypes.CDLL, paths: Sequence[Path]) -> bytes:
    """Return the file of --merge."""
    with contextlib.ExitStack() as stack:
        files = [_Opened(library, path, stack) for path in paths]
        call = files[0].call
        out = call["gguf_init_empty"]()
        stack.callback(call["gguf_free"], out)
        call["gguf_set_val_u16"](files[0].context, COUNT, 0)
        call["gguf_set_kv"](out, files[0].context)
        return _written(call, out, [tensor for file in files for tensor in file.tensors])


def _written(
    call: dict[str, Callable[..., Any]], out: int, tensors: Sequence[tuple[int, bytes]]
) -> bytes:
    for tensor, _ in tensors:
        call["gguf_add_tensor"](out, tensor)
    head = ctypes.create_string_buffer(call["gguf_get_meta_size"](out))
    call["gguf_get_meta_data"](out, head)
    return head.raw + b"".join(_padded(data for _, data in tensors))


def _padded(contents: Iterator[bytes]) -> Iterator[bytes]:
    for data in contents:
        yield data + bytes(-len(data) % STEP)


def _functions(library: ctypes.CDLL) -> dict[str, Callable[..., Any]]:
    functions: dict[str, Callable[..., Any]] = {}
    for name, (result, *arguments) in FUNCTIONS.items():
        function = library[name]
        function.restype, function.argtypes = result, arguments
        functions[name] = function
    return functions
