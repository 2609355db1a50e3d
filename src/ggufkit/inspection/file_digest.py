"""SHA-256 digests of whole files, in the form of sha256sum, and the lists that publishers give.

A list is what sha256sum prints, with or without `--tag`, a file that holds one digest alone, or a
pointer of Git LFS.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ggufkit.errors import FormatError
from ggufkit.remote.range_file import RangeFile
from ggufkit.system.cancellation import check_cancelled
from ggufkit.system.text_file import open_text

CHUNK_BYTES: Final = 1 << 20
REMOTE_CHUNK_BYTES: Final = 32 << 20  # fetched in parallel parts
MAX_LINE: Final = 1 << 14  # characters; a path has 4,096 at most
_ESCAPES: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}  # as sha256sum writes names
_PLAIN: Final = {written: char for char, written in _ESCAPES.items()}
_ESCAPED: Final = re.compile(r"\\[\\nr]")
_LINE: Final = re.compile(r"(?P<mark>\\?)(?P<digest>[0-9a-fA-F]{64}) [ *](?P<name>.+)")
_TAGGED: Final = re.compile(
    r"(?P<mark>\\?)SHA256 ?\((?P<name>.+)\) ?= ?(?P<digest>[0-9a-fA-F]{64})"
)
_ALONE: Final = re.compile(r"(?:oid sha256:|sha256:)?([0-9a-fA-F]{64})\s*")
_LFS: Final = re.compile(r"(version https://git-lfs\.github\.com/spec/|size \d+)")


class ListedDigest(NamedTuple):
    """One line of a list: the digest in hexadecimal and the file's name, None without a name."""

    digest: str
    name: str | None


@dataclass(frozen=True)
class DigestList:
    """The digests of a list, and the number of lines without one."""

    digests: tuple[ListedDigest, ...]
    misformed: int

    def of(self, name: str) -> str | None:
        """Return the digest of a file by its path, else by its name, else the nameless one."""
        last = Path(name).name
        with_names = [line for line in self.digests if line.name is not None]
        same_last = [line for line in with_names if Path(line.name or "").name == last]
        nameless = [line for line in self.digests if line.name is None]
        whole = [line for line in with_names if line.name == name]
        digests = {line.digest for line in whole or same_last or nameless}
        return digests.pop() if len(digests) == 1 else None


def digest_line(digest: str, name: str) -> str:
    """Return the line that sha256sum prints for a file."""
    written = "".join(_ESCAPES.get(char, char) for char in name)
    return f"{'' if written == name else chr(92)}{digest}  {written}"


def file_digest(file: Path | RangeFile, tell: Callable[[int], None] | None = None) -> str:
    """Return the SHA-256 of a file; `tell` is called with the bytes of each chunk.

    A file on a server is read too: its server's statement is not trusted. Raises OSError as `open`
    does.
    """
    sha256 = hashlib.sha256()
    for data in _chunks(file):
        check_cancelled()
        sha256.update(data)
        if tell:
            tell(len(data))
    return sha256.hexdigest()


def _chunks(file: Path | RangeFile) -> Iterator[bytes | memoryview]:
    if isinstance(file, RangeFile):
        for offset in range(0, file.nbytes, REMOTE_CHUNK_BYTES):
            yield file.read(offset, min(REMOTE_CHUNK_BYTES, file.nbytes - offset)).data
        return
    with file.open("rb", buffering=0) as opened:
        while data := opened.read(CHUNK_BYTES):
            yield data


def read_digests(path: Path) -> DigestList:
    """Read a list of digests in UTF-8 or UTF-16.

    Raises OSError as `open` does, FormatError for a file without a single digest.
    """
    digests: list[ListedDigest] = []
    misformed = 0
    with open_text(path) as file:
        while text := file.readline(MAX_LINE):
            line = text.rstrip("\r\n")
            if digest := _read_line(line):
                digests.append(digest)
            elif line.strip() and not line.startswith("#") and not _LFS.match(line):
                misformed += 1
    if not digests:
        raise FormatError(
            "the list has no line with a SHA-256 digest of a file",
            remedy="Use a list that sha256sum or `ggufkit hash --sha256sum` wrote; `ggufkit "
            "hash FILE --check MANIFEST` checks a manifest of tensors",
            path=str(path),
        )
    return DigestList(tuple(digests), misformed)


def _read_line(text: str) -> ListedDigest | None:
    if match := _LINE.fullmatch(text) or _TAGGED.fullmatch(text):
        name = match["name"]
        plain = _ESCAPED.sub(lambda escape: _PLAIN[escape[0]], name) if match["mark"] else name
        return ListedDigest(match["digest"].lower(), plain)
    if alone := _ALONE.fullmatch(text):
        return ListedDigest(alone[1].lower(), None)
    return None
