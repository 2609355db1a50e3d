"""GGUF files as ggml's own reader and writer have them, through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spelled import FORMATS, SpelledTensor, Typed

C_TYPES = {
    "uint8": (ctypes.c_uint8, "u8"),
    "int8": (ctypes.c_int8, "i8"),
    "uint16": (ctypes.c_uint16, "u16"),
    "int16": (ctypes.c_int16, "i16"),
    "uint32": (ctypes.c_uint32, "u32"),
    "int32": (ctypes.c_int32, "i32"),
    "float32": (ctypes.c_float, "f32"),
    "bool": (ctypes.c_bool, "bool"),
    "uint64": (ctypes.c_uint64, "u64"),
    "int64": (ctypes.c_int64, "i64"),
    "float64": (ctypes.c_double, "f64"),
    "string": (ctypes.c_char_p, "str"),
}
KINDS = {number: kind for kind, (number, _) in FORMATS.items()}


class _GgufParams(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("context", ctypes.c_void_p))


class _GgmlParams(ctypes.Structure):
    _fields_ = (
        ("mem_size", ctypes.c_size_t),
        ("mem_buffer", ctypes.c_void_p),
        ("no_alloc", ctypes.c_bool),
    )


class Read(NamedTuple):
    """What ggml found in a file; tensors are name, type, offset in the data and size."""

    version: int
    alignment: int
    data_offset: int
    metadata: list[tuple[str, Typed]]
    tensors: list[tuple[str, int, int, int]]


class Ggml:
    """ggml's functions, each called with the result type that it has."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library

    def call(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self.library, name)
        function.restype = result
        return function(*arguments)

    def read(self, path: Path) -> Read | None:
        """Return what `gguf_init_from_file` makes of a file, None where it refuses it."""
        params = _GgufParams(no_alloc=True, context=None)
        function = self.library.gguf_init_from_file
        function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_char_p, _GgufParams]
        key = function(bytes(path), params)
        if not key:
            return None
        gguf = ctypes.c_void_p(key)
        try:
            return Read(
                self.call("gguf_get_version", ctypes.c_uint32, gguf),
                self.call("gguf_get_alignment", ctypes.c_size_t, gguf),
                self.call("gguf_get_data_offset", ctypes.c_size_t, gguf),
                list(self._metadata(gguf)),
                list(self._tensors(gguf)),
            )
        finally:
            self.call("gguf_free", None, gguf)

    def _metadata(self, gguf: ctypes.c_void_p) -> Iterable[tuple[str, Typed]]:
        for number in range(self.call("gguf_get_n_kv", ctypes.c_int64, gguf)):
            index = ctypes.c_int64(number)
            key = self.call("gguf_get_key", ctypes.c_char_p, gguf, index).decode()
            kind = KINDS[self.call("gguf_get_kv_type", ctypes.c_int, gguf, index)]
            if kind != "array":
                c_type, suffix = C_TYPES[kind]
                yield key, (kind, self.call(f"gguf_get_val_{suffix}", c_type, gguf, index))
                continue
            element = KINDS[self.call("gguf_get_arr_type", ctypes.c_int, gguf, index)]
            yield key, (kind, (element, self._items(gguf, index, element)))

    def _items(self, gguf: ctypes.c_void_p, index: ctypes.c_int64, element: str) -> list[Any]:
        count = self.call("gguf_get_arr_n", ctypes.c_size_t, gguf, index)
        if element == "string":
            numbers = map(ctypes.c_size_t, range(count))
            return [self.call("gguf_get_arr_str", ctypes.c_char_p, gguf, index, i) for i in numbers]
        data = self.call("gguf_get_arr_data", ctypes.c_void_p, gguf, index)
        return list((C_TYPES[element][0] * count).from_address(data)) if count else []

    def _tensors(self, gguf: ctypes.c_void_p) -> Iterable[tuple[str, int, int, int]]:
        for number in range(self.call("gguf_get_n_tensors", ctypes.c_int64, gguf)):
            info = ctypes.c_int64(number)
            yield (
                self.call("gguf_get_tensor_name", ctypes.c_char_p, gguf, info).decode(),
                self.call("gguf_get_tensor_type", ctypes.c_int, gguf, info),
                self.call("gguf_get_tensor_offset", ctypes.c_size_t, gguf, info),
                self.call("gguf_get_tensor_size", ctypes.c_size_t, gguf, info),
            )

    def write(
        self, path: Path, metadata: Iterable[tuple[str, Typed]], tensors: Iterable[SpelledTensor]
    ) -> None:
        """Write a file with `gguf_write_to_file`; strings end at their first NUL."""
        gguf = ctypes.c_void_p(self.call("gguf_init_empty", ctypes.c_void_p))
        for key, (kind, value) in metadata:
            self._set(gguf, key.encode(), kind, value)
        infos = list(tensors)
        function = self.library.ggml_init
        function.restype, function.argtypes = ctypes.c_void_p, [_GgmlParams]
        size = sum(len(info.data) + 1024 for info in infos) + 1024
        context = ctypes.c_void_p(function(_GgmlParams(mem_size=size)))
        for info in infos:
            self._add(gguf, context, info)
        assert self.call("gguf_write_to_file", ctypes.c_bool, gguf, bytes(path), ctypes.c_bool(0))
        self.call("gguf_free", None, gguf)
        self.call("ggml_free", None, context)

    def _set(self, gguf: ctypes.c_void_p, key: bytes, kind: str, value: Any) -> None:
        if kind != "array":
            c_type, suffix = C_TYPES[kind]
            self.call(f"gguf_set_val_{suffix}", None, gguf, key, c_type(value))
            return
        element, items = value
        array = (C_TYPES[element][0] * len(items))(*items)
        count = ctypes.c_size_t(len(items))
        if element == "string":
            self.call("gguf_set_arr_str", None, gguf, key, array, count)
        else:
            number = FORMATS[element][0]
            self.call("gguf_set_arr_data", None, gguf, key, number, array, count)

    def _add(self, gguf: ctypes.c_void_p, context: ctypes.c_void_p, info: SpelledTensor) -> None:
        dims = (ctypes.c_int64 * len(info.dims))(*info.dims)
        pointer = self.call("ggml_new_tensor", ctypes.c_void_p, context, info.type, len(dims), dims)
        tensor = ctypes.c_void_p(pointer)
        self.call("ggml_set_name", ctypes.c_void_p, tensor, info.name.encode())
        data = self.call("ggml_get_data", ctypes.c_void_p, tensor)
        ctypes.memmove(data, np.frombuffer(info.data, np.uint8).ctypes.data, len(info.data))
        self.call("gguf_add_tensor", None, gguf, tensor)
