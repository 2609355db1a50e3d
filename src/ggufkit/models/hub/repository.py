"""The models among the files of a repository: sets of shards, their quants, and which is meant."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, TypeAlias

from ggufkit.errors import LimitError
from ggufkit.format.file_name import parse_name, parse_shard_name, shard_name
from ggufkit.remote.hub.repo_file import RepoFile
from ggufkit.remote.range_file import RangeFile

Files: TypeAlias = "Sequence[RangeFile | Path]"  # of one model, shards in order

MAX_SHARDS: Final = 1000  # that one name may stand for: each takes a request
PREFERRED: Final = ("Q4_K_M", "Q8_0")  # what llama.cpp takes from a repository without a tag
SIDECARS: Final = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")  # no models


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
        """Whether it goes with a model, and is none."""
        name = PurePosixPath(self.path).name
        return any(part in name for part in SIDECARS)


def model_sets(files: Sequence[RepoFile]) -> list[ModelSet]:
    """Return all GGUF models among `files` in their order, without sets with missing shards."""
    known = {file.path: file for file in files}
    found: list[ModelSet] = []
    for file in files:
        name = PurePosixPath(file.path).name
        if not name.lower().endswith(".gguf"):
            continue
        shard = parse_shard_name(name)
        if shard is None:
            shards: list[RepoFile] = [file]
        elif shard[1] != 0:
            continue
        else:
            paths = [beside(file.path, shard_name(shard[0], n, shard[2])) for n in range(shard[2])]
            shards = [known[path] for path in paths if path in known]
            if len(shards) < shard[2]:
                continue
        found.append(ModelSet(tuple(shards), parse_name(name).encoding.upper()))
    return found


def names_of_set(name: str, *, shards: bool = True) -> list[str]:
    """Return the names of all files in the set of the file `name`; its own if it is no shard."""
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


def beside(path: str, name: str) -> str:
    """Return the path of another file in the same folder."""
    folder = path.rpartition("/")[0]
    return f"{folder}/{name}" if folder else name


def names_of(prefix: str, sets: Sequence[ModelSet]) -> list[str]:
    """Return the name of each model: its quant after a colon, or its path if others share that."""
    counts = Counter(each.quant for each in sets if not each.is_sidecar)
    return [
        f"{prefix}:{each.quant}"
        if each.quant and counts[each.quant] == 1 and not each.is_sidecar
        else f"{prefix}/{each.path}"
        for each in sets
    ]


def chosen(sets: Sequence[ModelSet], tag: str) -> ModelSet | None:
    """Return the model that a tag means, as llama.cpp's -hf finds it; in any case of letters.

    Without a tag it is Q4_K_M, else Q8_0, else the first.
    """
    models = [each for each in sets if not each.is_sidecar]
    if tag:
        return _tagged(models, tag)
    preferred = (found for name in PREFERRED if (found := _tagged(models, name)))
    return next(preferred, next(iter(models), None))


def _tagged(models: Sequence[ModelSet], tag: str) -> ModelSet | None:
    """Return the model whose quant is the tag, else the first with the tag in its file's name."""
    inside = re.compile(re.escape(tag) + "[.-]", re.IGNORECASE)
    exact = (each for each in models if each.quant == tag.upper())
    return next(exact, next((each for each in models if inside.search(each.path)), None))
