"""An opened file and its header, and the files of one model together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ggufkit.format import dialects
from ggufkit.format.header import Header, parse
from ggufkit.models.rows import AnyFile


@dataclass(frozen=True)
class ParsedFile:
    """One opened file and its header."""

    file: AnyFile
    header: Header


def in_one_dialect(parts: Iterable[ParsedFile]) -> list[ParsedFile]:
    """Return the files of one model, all read in the dialect that their sizes together tell."""
    read = list(parts)
    name = dialects.of_all_files(part.header.places.infos for part in read)
    if name is None:
        return read
    with dialects.reading(name):
        return [replace(p, header=parse(p.file.data, p.file.nbytes)) for p in read]
