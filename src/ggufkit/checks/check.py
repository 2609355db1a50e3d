"""List what is wrong with files or unusual about them, in structure and content."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

import ggufkit._native as _native
from ggufkit.checks.chat_template import template_faults
from ggufkit.checks.consistency import about_missing_architecture, inconsistencies
from ggufkit.checks.declared_metadata import false_declarations
from ggufkit.checks.model_view import ModelView, Violation
from ggufkit.checks.other_models import about_adapter, about_image_model, about_projector
from ggufkit.checks.tensor_data import audit, unfinished
from ggufkit.checks.vocabulary import vocabulary_faults
from ggufkit.diffusion.architecture import is_diffusion
from ggufkit.format.arguments import refusal
from ggufkit.format.dialects import dialect_of, reading
from ggufkit.format.header import Header, parse
from ggufkit.format.html import SHOWN_ROWS, table
from ggufkit.format.types import ValueType, padded
from ggufkit.format.values import Arrays, Strings, TypedValue
from ggufkit.models.caches import resolve
from ggufkit.models.model import Model
from ggufkit.models.open import (
    about_absent,
    about_set,
    about_siblings,
    map_part,
    model_of,
    parsed_together,
    shard_count,
    siblings,
)
from ggufkit.models.parsed_file import ParsedFile, in_one_dialect
from ggufkit.models.range_header import read_header
from ggufkit.models.remote_resolvers import files_of, is_remote
from ggufkit.output.layout import layout
from ggufkit.remote.memory_file import BytesFile, InMemory
from ggufkit.rules.findings import Finding, Findings, finding, first_error
from ggufkit.system.mapped_file import Data, MappedFile
from ggufkit.system.threads import Progress

NOT_WRITTEN: Final = "<model>"  # the path of a finding in a model without a file
NOWHERE: Final[Mapping[str, int]] = {}
MAX_GAP: Final = 1 << 20  # bytes checked between two tensors: padding is far shorter


@dataclass(frozen=True)
class CheckOptions:
    """What to check: tensor data if `data` is true, file names if `names` is."""

    data: bool = False
    names: bool = False
    threads: int | None = None
    progress: Progress | None = None


class FindingList(list[Finding]):
    """A list of findings that notebooks show as a table."""

    def _repr_html_(self) -> str:
        rows = [
            (f.severity, f.rule, f.path, f.offset, f.message, f.remedy) for f in self[:SHOWN_ROWS]
        ]
        columns = ("severity", "rule", "file", "offset", "message", "remedy")
        return table(columns, rows, len(self)) if self else "<p>no findings</p>"


def check(
    path: Model | str | os.PathLike[str],
    *,
    data: bool = False,
    names: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[Finding]:
    """Return what is wrong with a file or unusual about it, by file and offset; empty if nothing.

    Any shard stands for its whole set, and a folder for all GGUF files in it. Tensor data is read
    only if `data` is true: in bounded memory, with `threads` threads (default: one for each usable
    core); `progress(done, total)` counts bytes. File names that break the naming convention are
    findings only if `names` is true. If `path` is an opened model, its files are checked; if it is
    another model, the file that `write` would make. Faults inside a file are findings, not errors.
    Raises OSError, as the builtin `open`, if `path` itself cannot be read, and a GGUFError for a
    model that cannot be written.
    """
    options = CheckOptions(data, names, threads, progress)
    if isinstance(path, Model) and (
        not path.files or any(isinstance(file, InMemory) for file in path.inputs)
    ):
        return _check_unwritten(path, options)
    place = path.path if isinstance(path, Model) else path
    if not isinstance(place, str | os.PathLike):
        raise refusal("path", path, "a path or a model")
    models = check_models(place, options)
    findings = itertools.chain(*models.values())
    return FindingList(sorted(findings, key=lambda f: (str(f.path), f.offset)))


def _check_unwritten(model: Model, options: CheckOptions) -> list[Finding]:
    offsets: dict[str, int] = {}
    if model.files:
        files = [file for file in model.inputs if isinstance(file, InMemory)]
        parts = [ParsedFile(file, read_header(file)) for file in files]
    else:
        (file,) = layout(model, "model.gguf").files
        with reading(dialect_of({tensor.type for tensor in model.tensors.values()})):
            header = parse(file.head, file.nbytes)
        parts = [ParsedFile(BytesFile(file.head, NOT_WRITTEN), header)]
        offsets = {extent.name: extent.offset for extent in file.extents}
    findings = [finding for part in parts for finding in _check_part(part)]
    findings += _about_whole(parts, options, model, offsets)
    return FindingList(_in_order(findings))


def check_models(path: str | os.PathLike[str], options: CheckOptions) -> dict[str, list[Finding]]:
    """Return the findings of each model, by the path of its first file."""
    if is_remote(path):
        return {str(path): _in_order(_CheckRun(options).remote_findings(str(path)))}
    place = resolve(Path(path))
    if not place.is_dir():
        return {str(path): _in_order(_CheckRun(options).file(place))}
    findings: dict[str, list[Finding]] = {}
    run = _CheckRun(options)
    for file in sorted(place.glob("*.gguf")):
        if file not in run.checked:
            findings[str(file)] = _in_order(run.readable(file))
    return findings or {str(path): [_unreadable(place, "this folder contains no GGUF file")]}


def _in_order(findings: Iterable[Finding]) -> list[Finding]:
    ordered = sorted(findings, key=lambda f: (str(f.path), f.offset))
    ends = {f.path: f.offset for f in ordered if f.rule == "unfinished"}
    # After the first unwritten byte, tensors of zeros are not reported again.
    return [
        f for f in ordered
        if not (f.rule.startswith("data-zero") and f.offset >= ends.get(f.path, np.inf))
    ]  # fmt: skip


def _unreadable(path: Path, reason: str) -> Finding:
    return finding("unreadable", 0, reason=reason).at(path)


def _opened_part(path: Path, opened: contextlib.ExitStack) -> ParsedFile:
    part = map_part(path)
    opened.callback(part.file.close)
    return part


class _CheckRun:
    """Checks one file after another; `checked` are the files that were checked so far."""

    def __init__(self, options: CheckOptions) -> None:
        self.options = options
        self.checked: set[Path] = set()

    def readable(self, path: Path) -> Iterator[Finding]:
        try:
            yield from self.file(path)
        except OSError as error:
            yield _unreadable(path, str(error))

    def remote_findings(self, name: str) -> Iterator[Finding]:
        """Check the model called `name` on a server: the headers of all its files together."""
        with contextlib.ExitStack() as opened:
            files = files_of(name)
            parsed_parts = parsed_together(files, opened)
            parts = in_one_dialect(p for p in parsed_parts if isinstance(p, ParsedFile))
            yield from about_absent(files, parsed_parts)
            for part in parts:
                yield from _check_part(part)
            is_set = shard_count(parts[0].header) > 1
            if is_set and len(files) == 1:
                yield from about_siblings(parts[0])
            elif is_set:
                yield from self._complete(parts)
            else:
                yield from _about_whole(parts, self.options)

    def file(self, path: Path) -> Iterator[Finding]:
        """Check a file and the others of its set."""
        with contextlib.ExitStack() as opened:
            part = _opened_part(path, opened)
            self.checked.add(path)
            if shard_count(part.header) > 1:
                yield from self._set(part, opened)
            else:
                yield from _check_part(part)
                yield from _about_whole([part], self.options)

    def _set(self, first: ParsedFile, opened: contextlib.ExitStack) -> Iterator[Finding]:
        yield from about_siblings(first)
        parts = [first]
        for path in siblings(first):
            if path == first.file.path:
                continue
            self.checked.add(path)
            try:
                parts.append(_opened_part(path, opened))
            except FileNotFoundError:
                continue  # reported as missing
            except OSError as error:
                yield _unreadable(path, str(error))
        parts = in_one_dialect(sorted(parts, key=lambda part: part.file.path))
        for part in parts:
            yield from _check_part(part)
        yield from self._complete(parts)

    def _complete(self, parts: list[ParsedFile]) -> Iterator[Finding]:
        if parts and len(parts) == shard_count(parts[0].header) and not any(map(_is_broken, parts)):
            yield from about_set(parts)
            yield from _about_whole(parts, self.options)


def _is_broken(part: ParsedFile) -> bool:
    return first_error(part.header.findings) is not None


def _about_whole(
    parts: list[ParsedFile],
    options: CheckOptions,
    unwritten: Model | None = None,
    offsets: Mapping[str, int] = NOWHERE,
) -> Iterator[Finding]:
    yield from _about_quantization(parts)
    if any(map(_is_broken, parts)):
        return
    yield from _about_split_keys(parts[0])
    model = unwritten or model_of(parts)
    findings_by_path: dict[Path, Findings] = {}
    for violation in _faults(model, options):
        path, offset = _place(violation, model, parts[0], offsets)
        findings_by_path.setdefault(path, Findings()).add(
            violation.rule, offset, **violation.details
        )
    for path, findings in findings_by_path.items():
        yield from (finding.at(path) for finding in findings.all())


def _faults(model: Model, options: CheckOptions) -> Iterator[Violation]:
    view = ModelView(model)
    if not is_diffusion(model.architecture, model.tensors):
        yield from about_missing_architecture(view)
    yield from about_adapter(view)
    yield from about_projector(view)
    yield from about_image_model(view)
    if view.is_language_model:
        yield from inconsistencies(view)
        yield from vocabulary_faults(view)
        yield from false_declarations(view, names=options.names)
    yield from template_faults(view)
    if options.data:
        yield from audit(model, threads=options.threads, progress=options.progress)


def _place(
    violation: Violation, model: Model, first: ParsedFile, offsets: Mapping[str, int]
) -> tuple[Path, int]:
    if violation.tensor in offsets:
        return first.file.path, offsets[violation.tensor]
    tensor = model.tensors.get(violation.tensor)
    if tensor is not None and tensor.path is not None:
        return tensor.path, tensor.offset or 0
    entry = first.header.entries.get(violation.key)
    return first.file.path, entry.value_at if entry else 0


def _about_split_keys(first: ParsedFile) -> Iterator[Finding]:
    """Check the keys that llama.cpp reads from every set of more than one shard."""
    count, key = shard_count(first.header), "split.tensors.count"
    if count > 1 and key not in first.header.entries:
        offset = first.header.entries["split.count"].value_at
        yield finding("split-key", offset, key=key, count=count).at(first.file.path)
    tensor_count = len(first.header.places.infos.names)
    expected = first.header.entries[key].decode() if key in first.header.entries else tensor_count
    if count <= 1 and isinstance(expected, np.integer) and expected != tensor_count:
        offset = first.header.entries[key].value_at
        counts = {"expected": int(expected), "count": tensor_count}
        yield finding("split-total", offset, **counts).at(first.file.path)


def _about_quantization(parts: list[ParsedFile]) -> Iterator[Finding]:
    first = parts[0]
    types = {kind for part in parts for kind in part.header.places.infos.types()}
    if "general.quantization_version" in first.header.entries:
        return
    if any(kind.is_quantized for kind in types):
        yield finding("quantization-version", first.header.end).at(first.file.path)


def _check_part(part: ParsedFile) -> Iterator[Finding]:
    header, findings = part.header, Findings()
    for key, entry in header.entries.items():
        if entry.element_type is not None:
            _about_texts(key, entry.decode(), entry.value_at, findings)
        elif entry.type is ValueType.STRING and not entry.is_utf8():
            findings.add("string-utf8", entry.value_at, where="the value of", key=key)
    flaws: list[Finding] = []
    if not _is_broken(part):
        with part.file.unchanged():
            _about_padding(header, part.file.data, findings)
            if isinstance(part.file, MappedFile):  # not worth the requests to a server
                flaws += unfinished(part.file, header)
        _about_end(header, findings)
    is_image_model = is_diffusion(_architecture(header), header.places.infos.names)
    for problem in (*header.findings, *findings.all(), *flaws):
        if not (
            is_image_model and problem.breaks == "llama.cpp"
        ):  # no rule of llama.cpp concerns them
            yield problem.at(part.file.path)
        elif problem.rule == "dims-ggml":
            yield finding("diffusion-dims", problem.offset).at(part.file.path)


def _architecture(header: Header) -> str:
    entry = header.entries.get("general.architecture")
    value = entry.decode() if entry else ""
    return value if isinstance(value, str) else ""


def _about_texts(key: str, value: TypedValue, offset: int, findings: Findings) -> None:
    if isinstance(value, Strings):
        index = value.first_invalid()
        if index is not None:
            findings.add("string-utf8", offset, where=f"item {index} of", key=key)
    elif isinstance(value, Arrays):
        for inner in value:
            _about_texts(key, inner, offset, findings)


def _about_padding(header: Header, data: Data, findings: Findings) -> None:
    """Find bytes other than zero between the header, the tensors, and the aligned end."""
    offset = header.end
    for start, stop in sorted(zip(header.places.starts, header.places.stops, strict=True)):
        _about_gap(data, offset, header.data_offset + start, findings)
        offset = max(offset, header.data_offset + stop)
    end = padded(header.data_end, header.alignment)
    _about_gap(data, offset, min(end, header.nbytes), findings)


def _about_gap(data: Data, start: int, stop: int, findings: Findings) -> None:
    stop = min(stop, start + MAX_GAP, len(data))  # a file on a server is read only in part
    if start < stop and not _native.all_zero(data, start, stop):
        findings.add("padding", start)


def _about_end(header: Header, findings: Findings) -> None:
    end = padded(header.data_end, header.alignment)  # where ggml would end the file
    if header.nbytes > end:
        findings.add("trailing-bytes", end, count=header.nbytes - end)
    elif header.nbytes < end and header.places.starts:
        findings.add("end-padding", header.nbytes)
