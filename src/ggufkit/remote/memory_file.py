"""Files without a path: bytes in memory, and objects that are read like files."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from ggufkit.errors import ValueTypeError, brief
from ggufkit.remote.range_file import ByteRange, RangeFile
from ggufkit.remote.url import UrlPath
from ggufkit.system.mapped_file import HEAD_BYTES, changed_error, digest_of

MAX_PATH_BYTES: Final = 4096  # of a path on any system
MAGIC: Final = b"GGUF"


@runtime_checkable
class SeekableFile(Protocol):
    """A binary file object: of the builtin `open`, of fsspec, of zipfile, io.BytesIO."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move to an offset."""

    def tell(self) -> int:
        """Return the offset."""


# Anything with the buffer protocol may be opened; type checkers know these.
Content: TypeAlias = "bytes | bytearray | memoryview | SeekableFile"


def is_content(name: object) -> bool:
    """Whether `name` is a file's content or a file object, and not a path.

    Paths may be bytes too: they are content if no path can be like that, or if they begin as a
    GGUF file does and no file has this name.
    """
    if isinstance(name, bytes):
        if b"\0" in name or len(name) > MAX_PATH_BYTES:
            return True
        return name.startswith(MAGIC) and not os.path.lexists(name)
    if isinstance(name, str | os.PathLike):
        return False
    return isinstance(name, SeekableFile) or _is_buffer(name)


def _is_buffer(name: object) -> bool:
    try:
        memoryview(name).release()  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def content_file(content: Any) -> RangeFile:  # noqa: ANN401 (Content, and any other buffer)
    """Return the file that reads `content`, which `is_content`."""
    if _is_buffer(content):  # a memory map is a file object too
        return BytesFile(content)
    return FileObject(content)


class InMemory(RangeFile):
    """A file without a path."""


class BytesFile(InMemory):
    """Bytes in memory, which are not copied."""

    def __init__(self, content: Any, label: str = "<bytes>") -> None:  # noqa: ANN401 (any buffer)
        """Take bytes, a bytearray, a memory map or a contiguous array."""
        super().__init__(UrlPath(label))
        try:
            self._view = memoryview(content).toreadonly().cast("B")
        except (TypeError, ValueError) as error:
            raise ValueTypeError(
                f"a {type(content).__name__} that is not contiguous holds no file",
                remedy="Pass bytes(...) of it",
            ) from error
        if isinstance(content, bytes):
            self.data = content

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return len(self._view)

    @functools.cached_property
    def identity(self) -> tuple[object, ...]:
        """The digest of the bytes."""
        return len(self._view), digest_of(self._view)

    def fetch(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """Return views of the bytes."""
        return [self._view[requested.offset : requested.stop] for requested in ranges]

    def __reduce__(self) -> tuple[type[BytesFile], tuple[bytes]]:
        return BytesFile, (bytes(self._view),)


class FileObject(InMemory):
    """A seekable binary file object; it stays where it was, and is not closed."""

    def __init__(self, file: SeekableFile) -> None:
        """Ask for the size; ValueTypeError for objects that cannot be read from anywhere."""
        name = getattr(file, "name", None) or getattr(file, "path", None)
        label = name if isinstance(name, str) and name.isprintable() else type(file).__name__
        super().__init__(UrlPath(label if "://" in label else f"<{label}>"))
        self._object = file
        self._lock = threading.Lock()
        _require_binary(file, label)
        self._nbytes = self._size()

    @property
    def nbytes(self) -> int:
        """The size when it was opened."""
        return self._nbytes

    @functools.cached_property
    def identity(self) -> tuple[object, ...]:
        """The name, the size, and the digest of the beginning."""
        head = self.read(0, min(self._nbytes, HEAD_BYTES))
        return str(self.path), self._nbytes, digest_of(head.data)

    def fetch(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Read one range after the other; FormatError if the file changed its size."""
        return [self._range(requested) for requested in ranges]

    def _range(self, requested: ByteRange) -> bytes:
        with self._lock, self._position_restored():
            self._object.seek(requested.offset)
            data = b"".join(self._pieces(requested.nbytes))
        if len(data) != requested.nbytes or self._size() != self._nbytes:
            raise changed_error(self.path)
        return data

    def _pieces(self, nbytes: int) -> Iterator[bytes]:
        while nbytes and (data := self._object.read(nbytes)):
            nbytes -= len(data)
            yield data

    def _size(self) -> int:
        with self._lock, self._position_restored():
            self._object.seek(0, os.SEEK_END)
            return self._object.tell()

    @contextmanager
    def _position_restored(self) -> Iterator[None]:
        """Move back to where the object was."""
        position = self._object.tell()
        try:
            yield
        finally:
            self._object.seek(position)

    def __reduce__(self) -> tuple[Callable[..., FileObject], tuple[SeekableFile]]:
        """Pickle the object, if it can be."""
        return FileObject, (self._object,)


def _require_binary(file: SeekableFile, label: str) -> None:
    seekable = getattr(file, "seekable", None)
    try:
        is_binary = (seekable is None or seekable()) and isinstance(file.read(0), bytes | bytearray)
    except (OSError, ValueError) as error:
        raise ValueTypeError(
            f"the file object {brief(label)} cannot be read: {error}",
            remedy='Open it with mode "rb", and keep it open',
        ) from error
    if not is_binary:
        raise ValueTypeError(
            f"the file object {brief(label)} is not binary and seekable",
            remedy='Open it with mode "rb", or pass its bytes: open(file.read())',
        )
