"""The models among the files of a repository: sets of shards, their quants, and which is meant."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Final, TypeAlias

from ggufkit.errors import LimitError
from ggufkit.format.file_name import parse_name, parse_shard_name, shard_name
from ggufkit.remote.hub.repo_file import RepoFile
from ggufkit.remote.range_file import RangeFile
from ggufkit.system.text_file import Most, read_small

Files: TypeAlias = "Sequence[RangeFile | Path]"  # of one model, shards in order

MAX_SHARDS: Final = 1000  # that one name may stand for: each takes a request
PREFERRED: Final = ("Q4_K_M", "Q8_0")  # what llama.cpp takes from a repository without a tag
SIDECARS: Final = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")  # no models
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class CachedModel:
    """A model in a cache or on the Hub: its name for commands, its (first) file, all its bytes."""

    name: str
    path: Path
    nbytes: int


@dataclass(frozen=True)
class ModelSet:
    """A model in a repository: one file or all shards in order, and its quant, in capitals."""

    files: tuple[RepoFile, ...]
    quant: str

    @property
    def path(self) -> str:
        """The path of the (first) file."""
        return self.files[0].path

    @property
    def nbytes(self) -> int:
        """All its bytes."""
        return sum(file.nbytes for file in self.files)

    @property
    def is_sidecar(self) -> bool:
        """Whether it belongs to a model, and is not a model itself."""
        name = PurePosixPath(self.path).name
        return any(part in name for part in SIDECARS)


def snapshot_of(repository: Path, revision: str) -> Path | None:
    """Return the folder of a branch, tag or commit in a repository's cache; None if it has none."""
    with contextlib.suppress(OSError, ValueError):
        commit = revision
        if not _COMMIT.fullmatch(commit):
            ref = repository / "refs" / Path(*PurePosixPath(revision).parts)
            commit = read_small(ref, Most.POINTER).decode("ascii").strip()
        snapshot = repository / "snapshots" / commit
        return snapshot if _COMMIT.fullmatch(commit) and snapshot.is_dir() else None
    return None


def files_in(folder: Path) -> list[RepoFile]:
    """Return the files below a folder, by path."""
    files = []
    for parent, _, names in os.walk(folder):  # does not follow links to folders
        for name in names:
            path = Path(parent, name)
            with contextlib.suppress(OSError):
                files.append(RepoFile(path.relative_to(folder).as_posix(), path.stat().st_size))
    return sorted(files, key=lambda file: file.path)


def model_sets(files: Sequence[RepoFile]) -> list[ModelSet]:
    """Return all GGUF models among `files` in their order, without sets with missing shards."""
    by_path = {file.path: file for file in files}
    sets: list[ModelSet] = []
    for file in files:
        name = PurePosixPath(file.path).name
        if not name.lower().endswith(".gguf"):
            continue
        shards = _shards_from(file, name, by_path)
        if shards:
            sets.append(ModelSet(tuple(shards), parse_name(name).encoding.upper()))
    return sets


def _shards_from(file: RepoFile, name: str, by_path: Mapping[str, RepoFile]) -> list[RepoFile]:
    """Return all shards of the set that `file` begins; only `file` if it is not a shard.

    Return nothing for later shards, and where a shard is missing: the search ends at the first
    missing one, however many a name claims.
    """
    prefix, number, count = parse_shard_name(name) or ("", 0, 0)
    if not count:
        return [file]
    if number:
        return []
    paths = (sibling(file.path, shard_name(prefix, index, count)) for index in range(count))
    shards = [by_path[path] for path in takewhile(by_path.__contains__, paths)]
    return shards if len(shards) == count else []


def names_of_set(name: str, *, shards: bool = True) -> list[str]:
    """Return the names of all files in the set of `name`; only `name` if it is not a shard."""
    shard = parse_shard_name(name) if shards else None
    if shard is None or shard[2] == 0:
        return [name]
    prefix, _, count = shard
    if count > MAX_SHARDS:
        raise LimitError(
            f"{name!r} says that it is one of {count} shards, more than {MAX_SHARDS}",
            remedy="Download the files to open them",
        )
    return [shard_name(prefix, number, count) for number in range(count)]


def sibling(path: str, name: str) -> str:
    """Return the path of another file in the same folder."""
    folder = path.rpartition("/")[0]
    return f"{folder}/{name}" if folder else name


def names_of(prefix: str, sets: Sequence[ModelSet]) -> list[str]:
    """Return the name of each model: its quant after a colon, or its path if quants are equal."""
    counts = Counter(model.quant for model in sets if not model.is_sidecar)
    return [
        f"{prefix}:{model.quant}"
        if model.quant and counts[model.quant] == 1 and not model.is_sidecar
        else f"{prefix}/{model.path}"
        for model in sets
    ]


def choose(sets: Sequence[ModelSet], tag: str) -> ModelSet | None:
    """Return the model that a tag means, as llama.cpp's -hf finds it; in any case of letters.

    Without a tag it is Q4_K_M, else Q8_0, else the first.
    """
    models = [model for model in sets if not model.is_sidecar]
    if tag:
        return _tagged(models, tag)
    preferred = (model for name in PREFERRED if (model := _tagged(models, name)))
    return next(preferred, next(iter(models), None))


def _tagged(models: Sequence[ModelSet], tag: str) -> ModelSet | None:
    inside = re.compile(re.escape(tag) + "[.-]", re.IGNORECASE)
    exact = (model for model in models if model.quant == tag.upper())
    return next(exact, next((model for model in models if inside.search(model.path)), None))
