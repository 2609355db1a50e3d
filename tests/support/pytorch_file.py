"""PyTorch files for tests, made by hand: pickles of what PyTorch's would hold, in a zip."""

from __future__ import annotations

import collections
import io
import pickle
import zipfile

import numpy as np

STORAGES = {"float64": "DoubleStorage", "float32": "FloatStorage", "float16": "HalfStorage",
            "uint16": "BFloat16Storage", "int64": "LongStorage", "int32": "IntStorage",
            "int16": "ShortStorage", "int8": "CharStorage", "uint8": "ByteStorage",
            "bool": "BoolStorage"}  # fmt: skip


class Global:
    """A global of a module that need not exist: pickled by name alone."""

    def __init__(self, module: str, name: str) -> None:
        self.__module__, self.__qualname__ = module, name

    def __call__(self, *_: object) -> None:
        """Stand in for a function, as pickle requires."""

    def __reduce__(self) -> str:
        return self.__qualname__


class Called:
    """What is pickled as a call."""

    def __init__(self, module: str, name: str, *arguments: object) -> None:
        self.call = Global(module, name), arguments

    def __reduce__(self) -> tuple:
        return self.call


class Storage:
    """A storage, pickled as a persistent id."""

    def __init__(self, kind: str, key: str, elements: int) -> None:
        self.described = ("storage", Global("torch", kind), key, "cpu", elements)


class _Pickler(pickle._Pickler):
    def persistent_id(self, item: object) -> object:
        return item.described if isinstance(item, Storage) else None

    def save_global(self, item: object, name: str | None = None) -> None:
        """Name a global without checking that it exists."""
        if not isinstance(item, Global):
            super().save_global(item, name)
            return
        self.write(f"c{item.__module__}\n{item.__qualname__}\n".encode())
        self.memoize(item)


def pickled(item: object, protocol: int = 2) -> bytes:
    """Return the pickle of plain data, `Called` and `Storage`."""
    stream = io.BytesIO()
    _Pickler(stream, protocol).dump(item)
    return stream.getvalue()


def tensor(array: np.ndarray, key: str, **changes: object) -> Called:
    """Return how PyTorch rebuilds an array over the storage `key`."""
    arguments = {
        "storage": Storage(STORAGES[array.dtype.name], key, array.size),
        "offset": 0,
        "shape": array.shape,
        "strides": tuple(n // array.itemsize for n in np.empty(array.shape, array.dtype).strides),
    } | changes
    hooks = collections.OrderedDict()
    return Called("torch._utils", "_rebuild_tensor_v2", *arguments.values(), False, hooks)


def pytorch_bytes(tensors: dict[str, np.ndarray], *, protocol: int = 2, **changes: dict) -> bytes:
    """Return a file of arrays (uint16 stands for BF16); `changes` replace how one is rebuilt."""
    content = {name: tensor(array, str(n), **changes.get(name, {}))
            for n, (name, array) in enumerate(tensors.items())}  # fmt: skip
    files = {f"data/{n}": array.tobytes() for n, array in enumerate(tensors.values())}
    return archive(pickled(content, protocol), files)


def archive(
    pickle_bytes: bytes, files: dict[str, bytes], compression: int = zipfile.ZIP_STORED
) -> bytes:
    """Return the zip that PyTorch would write of a pickle and other files."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in {"data.pkl": pickle_bytes, "byteorder": b"little", **files}.items():
            archive.writestr(f"archive/{name}", content)
    return stream.getvalue()
