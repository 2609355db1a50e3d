"""Open a file, any shard of a set, or a folder that holds one set, as one model."""

from __future__ import annotations

import bisect
import contextlib
import contextvars
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from ggufkit.errors import FormatError, ShardError, first_names
from ggufkit.format import dialects
from ggufkit.format.file_name import parse_shard_name, shard_name
from ggufkit.format.header import CUT, HEADER_CUT, Header, parse
from ggufkit.format.tensor_infos import Places
from ggufkit.format.types import SPLIT_KEYS
from ggufkit.models.caches import resolve
from ggufkit.models.interrupted_edit import header_to_show
from ggufkit.models.model import Model, ModelFile, Tensor, Tensors
from ggufkit.models.parsed_file import ParsedFile, in_one_dialect
from ggufkit.models.range_header import read_header
from ggufkit.models.remote_resolvers import files_of, is_remote
from ggufkit.models.rows import Unplaced, closing_on_error
from ggufkit.models.sources import FileSource
from ggufkit.remote.memory_file import Content
from ggufkit.remote.range_file import RangeFile
from ggufkit.rules.findings import Finding, finding, first_error
from ggufkit.system.descriptors import AnyPath, as_path
from ggufkit.system.mapped_file import MappedFile
from ggufkit.system.threads import in_turn, pool_of

# Rules that a file may break with `partial=True`.
EXCUSED: Final = (CUT, *HEADER_CUT, "shard-missing", "shard-name")
PARALLEL_HEADERS: Final = 64  # fetched at the same time: as many as connections to a server


def open(  # noqa: A001
    path: AnyPath | Content,
    *,
    shards: bool = True,
    partial: bool = False,
    dialect: str | None = None,
) -> Model:
    """Open a GGUF file, shard set or folder lazily, as one Model.

    `path` names a file, any shard of a set, a folder that holds exactly one file or set, a
    model in a cache as `ggufkit.find_models` calls it, or a file on a server: "https://...". Of a
    file on a server only the header is fetched, plus the rows that you read. `path` may also be the
    content of a file (bytes, a bytearray, a memory map), or a seekable binary file object, which
    stays open.
    With `shards=False` a shard is opened alone. With `partial=True` a set with missing shards is
    opened too, and a file that is cut short, such as a broken download: `missing` of the model
    lists what is not there, `is_whole` tells whether a tensor is there, and reading one that is
    not raises a FormatError. `dialect` names the program that the file is for, if the sizes of
    its tensors do not tell their types: "prism-v5" for example. Raises a FormatError (a
    ValueError) for the first error in a file, its subclass ShardError for a missing or foreign
    shard, OSError as the builtin `open` does, and its subclass RemoteError for a server that cannot
    be read.
    """
    with dialects.reading(dialect):
        if is_remote(path):
            return open_files(files_of(path, shards=shards), shards=shards, partial=partial)
        return _open(path, shards, partial)


def _open(path: AnyPath | Content, shards: bool, partial: bool) -> Model:  # noqa: FBT001
    first = locate(as_path(cast("AnyPath", path)))
    excused = EXCUSED if partial else ()
    with contextlib.ExitStack() as opened:
        part = open_part(first, opened, excused)
        parts, flaws = [part], []
        if shards and shard_count(part.header) > 1:
            flaws = _raise_first(about_siblings(part), excused)
            others = [other for other in siblings(part) if not flaws or other.exists()] or [first]
            parts = [part if o == first else open_part(o, opened, excused) for o in others]
            parts = in_one_dialect(parts)
            if not flaws:
                _raise_first(about_set(parts))
        model = model_of(parts)
        opened.pop_all()
    model.missing = (*flaws, *_excused_flaws(parts, excused))
    files = [part.file for part in parts]
    options = {"shards": shards, "partial": partial, "dialect": dialects.chosen()}
    return model.reading(files, (_reopened, (files, options)))


def open_files(
    files: Sequence[RangeFile | Path], *, shards: bool = True, partial: bool = False
) -> Model:
    """Open the files of one model: one file, or all shards of a set in order.

    The headers are read at the same time. Options and errors are as in `open`; the files
    are closed with the model, or if it cannot be opened.
    """
    excused = EXCUSED if partial else ()
    with contextlib.ExitStack() as opened:
        files_or_errors = parsed_together(files, opened)
        flaws = _raise_first(about_absent(files, files_or_errors), excused)
        parts = in_one_dialect(p for p in files_or_errors if isinstance(p, ParsedFile))
        for part in parts:
            _raise_first(_about(part), excused)
        if shards and shard_count(parts[0].header) > 1:
            if len(files) == 1:
                flaws += _raise_first(about_siblings(parts[0]), excused)
            elif not flaws:
                _raise_first(about_set(parts))
        model = model_of(parts)
        opened.pop_all()
    model.missing = (*flaws, *_excused_flaws(parts, excused))
    return model.reading(part.file for part in parts)


def parsed_together(
    files: Sequence[RangeFile | Path], opened: contextlib.ExitStack
) -> list[ParsedFile | FileNotFoundError]:
    """Open and parse files at the same time until `opened` ends; for an absent one, say so.

    If all are absent, the first error is raised.
    """

    def parsed(file: RangeFile | Path) -> ParsedFile | FileNotFoundError:
        try:
            part = map_part(file) if isinstance(file, Path) else parse_ranges(file)
        except FileNotFoundError as error:
            return error
        opened.callback(part.file.close)
        return part

    for other in files[1:]:
        if isinstance(other, RangeFile):
            other.expect_short_header()
    if len(files) == 1:
        parts = [parsed(files[0])]
    else:
        count = min(len(files), PARALLEL_HEADERS)
        with pool_of(count) as pool:
            run = contextvars.copy_context().copy
            tasks = (functools.partial(run().run, parsed, file) for file in files)
            parts = list(in_turn(pool, tasks, count))
    for error in (part for part in parts if isinstance(part, FileNotFoundError)):
        if len(files) == 1 or all(isinstance(part, FileNotFoundError) for part in parts):
            raise error
    return parts


def part_of(path: AnyPath) -> ParsedFile:
    """Open and parse the one file that `path` names, whatever is wrong with it."""
    if not is_remote(path):
        return map_part(resolve(as_path(path)))
    (file, *_) = files_of(path, shards=False)
    return map_part(file) if isinstance(file, Path) else parse_ranges(file)


def parse_ranges(file: RangeFile) -> ParsedFile:
    """Parse a file that is read by ranges."""
    with closing_on_error(file.close):
        return ParsedFile(file, read_header(file))


def about_absent(
    files: Sequence[RangeFile | Path], parts: Sequence[ParsedFile | FileNotFoundError]
) -> Iterator[Finding]:
    """Tell which files of a set are not there."""
    paths = [file if isinstance(file, Path) else file.path for file in files]
    absent = [isinstance(file, FileNotFoundError) for file in parts]
    names = [path.name for path, is_absent in zip(paths, absent, strict=True) if is_absent]
    if names:
        details = _missing_details(names, len(files), str(paths[0].parent))
        yield finding("shard-missing", 0, **details).at(paths[absent.index(False)])


def locate(path: Path) -> Path:
    """Return the file that `path` names: itself, a cached model, or the first of a folder's set."""
    path = resolve(path)
    if not path.is_dir():
        return path
    sets = first_files(path)
    if len(sets) == 1:
        return next(iter(sets.values()))
    names = first_names(sorted(sets))
    content = f"{len(sets)} GGUF models ({names}), not exactly one" if sets else "no GGUF model"
    raise ShardError(f"the folder {path} holds {content}", remedy="Name the file")


def first_files(folder: Path) -> dict[str, Path]:
    """Return the first file of each model in a folder, by name; the shards of a set are one."""
    paths: dict[str, Path] = {}
    for path in sorted(folder.glob("*.gguf")):
        paths.setdefault(_set_name(path.name), path)
    return paths


def first_file(path: AnyPath) -> Path:
    """Return the file that holds the keys of a model, however it is named."""
    path_given = locate(as_path(path))
    if parse_shard_name(path_given.name) is None:
        return path_given
    part = map_part(path_given)
    with contextlib.closing(part.file):
        others = siblings(part) if shard_count(part.header) > 1 else []
    return others[0] if others and others[0].exists() else path_given


def _set_name(name: str) -> str:
    prefix, _, count = parse_shard_name(name) or (name, 0, 0)
    return f"{prefix} in {count} shards" if count else prefix


def map_part(path: Path) -> ParsedFile:
    """Map and parse one file; the caller closes it. Raises only what the builtin `open` raises.

    A file whose edit was interrupted is shown in the state before or after it, with a warning; it
    is not changed.
    """
    file = MappedFile(path)
    with closing_on_error(file.close):
        head = header_to_show(file)
        if head is not None:
            file.show(head)
        with file.unchanged():
            header = parse(file.data, file.nbytes)
        file.kept_bytes = header.end
        return ParsedFile(file, header)


def open_part(
    path: Path, opened: contextlib.ExitStack, excused: Collection[str] = ()
) -> ParsedFile:
    """Map and parse one file until `opened` ends. Raises the first error that is not excused."""
    part = map_part(path)
    opened.callback(part.file.close)
    _raise_first(_about(part), excused)
    return part


def _about(part: ParsedFile) -> Iterator[Finding]:
    return (finding.at(part.file.path) for finding in part.header.findings)


def _excused_flaws(parts: Sequence[ParsedFile], excused: Collection[str]) -> Iterator[Finding]:
    """Yield the excused findings about files; of a cut header they say how much is there."""
    for part in parts:
        header = part.header
        keys, tensors = header.announced
        counts = f"{len(header.entries):,} of {keys:,} keys"
        counts += f" and {len(_listed(header).infos.names):,} of {tensors:,} tensor infos are there"
        for flaw in _about(part):
            if flaw.rule in excused:
                is_cut = flaw.rule in HEADER_CUT
                yield replace(flaw, message=f"{flaw.message}; {counts}") if is_cut else flaw


def _raise_first(findings: Iterable[Finding], excused: Collection[str] = ()) -> list[Finding]:
    listed = list(findings)
    wrong = first_error(finding for finding in listed if finding.rule not in excused)
    if wrong:
        raise wrong.exception()
    return [finding for finding in listed if finding.rule in excused]


def shard_count(header: Header) -> int:
    """Return split.count; 1 where the key is absent, or 0 as gguf-split leaves it."""
    return _split(header, "split.count", 1) or 1


def _split(header: Header, key: str, absent: int) -> int:
    entry = header.entries.get(key)
    value = entry.decode() if entry else None
    return int(value) if isinstance(value, np.integer) else absent


def siblings(part: ParsedFile) -> list[Path]:
    """Return the expected paths of all shards of `part`'s set; none if its name has no number."""
    path, count = part.file.path, shard_count(part.header)
    parsed_name = parse_shard_name(path.name)
    if parsed_name is None or parsed_name[2] != count:
        return []
    folder = path.parent
    return [folder / shard_name(parsed_name[0], number, count) for number in range(count)]


def about_siblings(part: ParsedFile) -> Iterator[Finding]:
    """Check that a shard's name gives the names of the others, and that these exist."""
    count = shard_count(part.header)
    paths = siblings(part)
    missing = [path.name for path in paths if not path.exists()]
    if not paths:
        yield _placed(part, "shard-name", "split.count", file=part.file.path.name, count=count)
    elif missing:
        folder = part.file.path.parent
        where = str(folder.absolute() if isinstance(part.file, MappedFile) else folder)
        details = _missing_details(missing, count, where)
        yield _placed(part, "shard-missing", "split.count", **details)


def _missing_details(names: Sequence[str], total: int, folder: str) -> dict[str, object]:
    return {"count": len(names), "total": total, "names": first_names(names), "folder": folder}


def about_set(parts: list[ParsedFile]) -> Iterator[Finding]:
    """Check that shards belong together: number, count, byte order, names, total."""
    owners: dict[str, str] = {}
    for place, part in enumerate(parts):
        header, file = part.header, part.file.path.name
        number, count = _split(header, "split.no", -1), shard_count(header)
        if (number, count) != (place, len(parts)):
            values = {"number": number + 1, "count": count, "place": place + 1, "total": len(parts)}
            yield _placed(part, "shard-number", "split.no", file=file, **values)
        if header.byte_order != parts[0].header.byte_order:
            yield _placed(part, "shard-byte-order", "", file=file, byte_order=header.byte_order)
        for name in header.places.infos.names:
            if name in owners:
                files = {"file": owners[name], "other": file}
                yield _placed(part, "shard-tensor", "split.no", name=name, **files)
            owners[name] = file
    expected = _split(parts[0].header, "split.tensors.count", len(owners))
    if expected != len(owners):
        counts = {"expected": expected, "count": len(owners)}
        yield _placed(parts[0], "shard-total", "split.tensors.count", **counts)


def _placed(part: ParsedFile, rule: str, key: str, **details: object) -> Finding:
    entry = part.header.entries.get(key)
    return finding(rule, entry.value_at if entry else 0, **details).at(part.file.path)


def model_of(parts: list[ParsedFile]) -> Model:
    """Return the model in these files: one shard alone or a whole set."""
    head = parts[0].header
    metadata = (
        head.metadata.without(*SPLIT_KEYS, missing_ok=True) if len(parts) > 1 else head.metadata
    )
    files = tuple(
        ModelFile(p.file.path, p.header.nbytes, p.header.data_offset, p.header.data_nbytes)
        for p in parts
    )
    return Model(
        metadata,
        _tensors(parts),
        version=head.version,
        byte_order=head.byte_order,
        files=files,
        end_padded=parts[-1].header.end_padded,
    )


def _tensors(parts: list[ParsedFile]) -> Tensors:
    infos = [_listed(part.header).infos for part in parts]
    ends = list(accumulate(len(info.names) for info in infos))
    begins = [part.header.data_offset for part in parts]

    def make(number: int) -> Tensor:
        place = bisect.bisect_right(ends, number)
        part, index = parts[place], number - ends[place] + len(infos[place].names)
        name, kind, shape, start, nbytes, row_bytes = _listed(part.header).tensor(index)
        if part.header.unplaced:
            return Tensor(name, kind, shape, nbytes, Unplaced(str(part.file.path)))
        begin, order = begins[place] + start, part.header.byte_order
        source = FileSource(part.file, begin, nbytes, row_bytes, order)
        return Tensor(name, kind, shape, nbytes, source)

    return Tensors.lazy(chain.from_iterable(info.names for info in infos), make)


def _listed(header: Header) -> Places:
    return header.unplaced or header.places


def _reopened(files: list[MappedFile], options: Mapping[str, Any]) -> Model:
    """Open the files of a pickled model again; unpickling has compared them with those pickled."""
    model = open(files[0].path, **options)
    states = [(file.status.st_size, file.status.st_mtime_ns) for file in files]
    if states == [(file.status.st_size, file.status.st_mtime_ns) for file in model.inputs]:
        return model
    model.close()
    raise FormatError(
        "the file was replaced since the model was pickled",
        remedy="Open it again",
        path=str(files[0].path),
    )
