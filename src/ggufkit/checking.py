"""List what is wrong or odd about files: the header, values, padding, and the other shards."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ggufkit import _native
from ggufkit.caches import resolve
from ggufkit.findings import Finding, Findings, finding, first_error
from ggufkit.infos import is_utf8
from ggufkit.opening import Part, about_set, about_siblings, map_part, shard_count, siblings
from ggufkit.parse import Header
from ggufkit.types import padded
from ggufkit.values import Arrays, Data, Strings, Value

MAX_GAP: Final = 1 << 20  # bytes looked at between two tensors: padding is far shorter


def check(path: str | os.PathLike[str]) -> list[Finding]:
    """Return what is wrong or odd about a file, sorted by file and offset; nothing if all is well.

    Any shard stands for its whole set, a folder for all GGUF files in it. Tensor data is not
    read. Nothing is raised for what is wrong inside a file; OSError, as the builtin `open`
    raises it, where `path` itself cannot be read.
    """
    path = resolve(Path(path))
    found = _check_folder(path) if path.is_dir() else _check_file(path, set())
    return sorted(found, key=lambda each: (each.path, each.offset))


def _check_folder(folder: Path) -> Iterator[Finding]:
    paths = sorted(folder.glob("*.gguf"))
    if not paths:
        yield _unreadable(folder, "there is no GGUF file in this folder")
    checked: set[Path] = set()
    for path in paths:
        if path not in checked:
            try:
                yield from _check_file(path, checked)
            except OSError as error:
                yield _unreadable(path, str(error))


def _unreadable(path: Path, reason: str) -> Finding:
    return finding("unreadable", 0, reason=reason).at(str(path))


def _check_file(path: Path, checked: set[Path]) -> Iterator[Finding]:
    """Check a file and the others of its set, adding their paths to `checked`."""
    with contextlib.ExitStack() as opened:
        part = _map(path, opened)
        checked.add(path)
        yield from _check_part(part)
        if shard_count(part.header) > 1:
            yield from _check_set(part, opened, checked)
        else:
            yield from _about_quantization([part])


def _map(path: Path, opened: contextlib.ExitStack) -> Part:
    part = map_part(path)
    opened.callback(part.file.close)
    return part


def _check_set(first: Part, opened: contextlib.ExitStack, checked: set[Path]) -> Iterator[Finding]:
    yield from about_siblings(first)
    parts = []
    for path in siblings(first):
        if path == first.file.path:
            parts.append(first)
            continue
        checked.add(path)
        try:
            parts.append(_map(path, opened))
        except FileNotFoundError:
            continue  # named among the missing
        except OSError as error:
            yield _unreadable(path, str(error))
            continue
        yield from _check_part(parts[-1])
    if len(parts) == shard_count(first.header) and not any(map(_is_broken, parts)):
        yield from about_set(parts)
        yield from _about_quantization(parts)


def _is_broken(part: Part) -> bool:
    return first_error(part.header.findings) is not None


def _about_quantization(parts: list[Part]) -> Iterator[Finding]:
    first = parts[0]
    types = {each for part in parts for each in part.header.places.infos.types()}
    if "general.quantization_version" in first.header.entries:
        return
    if any(each.is_quantized for each in types):
        yield finding("quantization-version", first.header.end).at(str(first.file.path))


def _check_part(part: Part) -> Iterator[Finding]:
    """Check one file by itself."""
    header, findings = part.header, Findings()
    for key, entry in header.entries.items():
        _about_text(key, entry.decode(), entry.value_at, findings)
    if not _is_broken(part):
        with part.file.unchanged():
            _about_padding(header, part.file.data, findings)
        _about_end(header, findings)
    for each in (*header.findings, *findings.all()):
        yield each.at(str(part.file.path))


# Values.


def _about_text(key: str, value: Value, at: int, findings: Findings) -> None:
    if isinstance(value, str) and not is_utf8(value):
        findings.add("string-utf8", at, where="the value of", key=key)
    elif isinstance(value, Strings):
        index = value.first_invalid()
        if index is not None:
            findings.add("string-utf8", at, where=f"item {index} of", key=key)
    elif isinstance(value, Arrays):
        for inner in value:
            _about_text(key, inner, at, findings)


# Padding.


def _about_padding(header: Header, data: Data, findings: Findings) -> None:
    """Look for bytes other than zero between the header, the tensors, and the aligned end."""
    at = header.end
    for start, stop in sorted(zip(header.places.starts, header.places.stops, strict=True)):
        _about_gap(data, at, header.data_offset + start, findings)
        at = max(at, header.data_offset + stop)
    _about_gap(data, at, min(_padded_end(header), header.nbytes), findings)


def _about_gap(data: Data, start: int, stop: int, findings: Findings) -> None:
    if start < stop and not _native.all_zero(data, start, min(stop, start + MAX_GAP)):
        findings.add("padding", start)


def _padded_end(header: Header) -> int:
    """Return where the file should end, as ggml writes it."""
    return padded(header.data_end, header.alignment)


def _about_end(header: Header, findings: Findings) -> None:
    end = _padded_end(header)
    if header.nbytes > end:
        findings.add("trailing-bytes", end, count=header.nbytes - end)
    elif header.nbytes < end and header.places.starts:
        findings.add("end-padding", header.nbytes)
