"""Models on the Hugging Face Hub: which files a name stands for, in the cache or on the server.

A file that huggingface_hub, llama.cpp or another program has downloaded is opened from its cache
without any request. `@revision` or the commit in the cache decide which state of it that is.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from ggufkit.errors import RemoteMissingError
from ggufkit.models.hub.names import HubName, parse_hub_name
from ggufkit.models.hub.repository import (
    CachedModel,
    Files,
    ModelSet,
    beside,
    chosen,
    model_sets,
    names_of,
    names_of_set,
)
from ggufkit.remote.hub.hub import HubFile, Repository, missing_file
from ggufkit.remote.hub.repo_file import RepoFile
from ggufkit.remote.hub.settings import cache_folder, offline_reason
from ggufkit.remote.url import UrlPath
from ggufkit.system.text_file import Most, read_small

SHOWN: Final = 40  # quants in a message: repositories have 25
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


def hub_files(name: str, *, shards: bool) -> Files:
    """Return the files of the model that a Hub's name stands for, those in the cache as paths.

    Raises RemoteMissingError, which lists the quants or files that there are.
    """
    named = parse_hub_name(name)
    files = _cached(named, shards=shards) or _remote(named, shards=shards)
    return files if shards else files[:1]


def hub_models(name: str) -> list[CachedModel]:
    """Return all models of a repository, or those with the tag in `name`, with their sizes."""
    return [model for model, _ in _found(parse_hub_name(name))]


def sets_of(name: str) -> list[tuple[CachedModel, Files]]:
    """Return the models of a repository that are no sidecars, with their files, unread."""
    named = parse_hub_name(name)
    snapshot = _snapshot(named)
    return [
        (model, _at_hand(snapshot, held) or _unread(_repository(named), held))
        for model, held in _found(named)
        if not held.is_sidecar
    ]


def _at_hand(snapshot: Path | None, held: ModelSet) -> list[Path]:
    """Return the files of a model if the cache has all of them, in the listed sizes."""
    paths = [snapshot / file.path for file in held.files] if snapshot else []
    with contextlib.suppress(OSError):
        if [path.stat().st_size for path in paths] == [file.nbytes for file in held.files]:
            return paths
    return []


def _unread(repository: Repository, held: ModelSet) -> list[HubFile]:
    return [repository.file(file.path, file) for file in held.files]


def _found(named: HubName) -> list[tuple[CachedModel, ModelSet]]:
    sets = model_sets(_listed(named))
    names = names_of(str(named._replace(path="", tag="")), sets)
    wanted = chosen(sets, named.tag) if named.tag else None
    repository = _repository(named)
    found = [
        (CachedModel(text, UrlPath(f"hf://{repository}/{each.path}"), each.nbytes), each)
        for text, each in zip(names, sets, strict=True)
        if not named.tag or each is wanted
    ]
    if not found:
        raise _no_quant(named, sets)
    return found


def _repository(named: HubName) -> Repository:
    return Repository(named.repository, named.revision)


def _listed(named: HubName) -> list[RepoFile]:
    """Return the files of a repository, or of the folder in a name."""
    if offline_reason() and (snapshot := _snapshot(named)):
        files = _files_in(snapshot)
    else:
        files = _repository(named).files()
    prefix = f"{named.path}/" if named.path else ""
    return [file for file in files if file.path.startswith(prefix)]


def folder_of_name(named: HubName) -> tuple[Repository, list[RepoFile], Path | None]:
    """Return a repository, the files in the folder that `named` means, and its place in the cache.

    Offline the files are those in the cache.
    """
    return _repository(named), _listed(named), _snapshot(named)


# On the server.


def _remote(named: HubName, *, shards: bool) -> Files:
    repository = _repository(named)
    if named.path.lower().endswith(".gguf"):
        path = PurePosixPath(named.path)
        names = names_of_set(path.name, shards=shards)
        return [repository.file(beside(named.path, each)) for each in names]
    found = _meant(named, repository.files())
    if found is None:
        raise _no_quant(named, model_sets(repository.files()))
    return _unread(repository, found)


def _meant(named: HubName, files: Sequence[RepoFile]) -> ModelSet | None:
    """Return the model that a name without a file means; RemoteMissingError for a wrong folder."""
    if not named.path:
        return chosen(model_sets(files), named.tag)
    inside = [file for file in files if file.path.startswith(f"{named.path}/")]
    sets = [each for each in model_sets(inside) if not each.is_sidecar]
    if not sets:
        raise missing_file(_repository(named), named.path, list(files))
    if len(sets) > 1:
        return None
    return sets[0]


def _no_quant(named: HubName, sets: Sequence[ModelSet]) -> RemoteMissingError:
    models = [each for each in sets if not each.is_sidecar]
    names = names_of(str(named._replace(path="", tag="")), models)
    repository = _repository(named)
    if not models:
        return RemoteMissingError(
            f"{repository} has no GGUF files",
            remedy=f"{repository.page} shows what it has; `ggufkit convert hf://{repository} OUT` "
            "converts a checkpoint",
        )
    more = ", ..." if len(names) > SHOWN else ""
    what = f"no quant {named.tag}" if named.tag else f"not exactly one model in {named.path}"
    return RemoteMissingError(
        f"{repository} has {what}", remedy=f"It has {', '.join(names[:SHOWN])}{more}"
    )


# In the cache of huggingface_hub.


def _cached(named: HubName, *, shards: bool) -> list[Path]:
    """Return the files of a model if all of them are in the cache."""
    snapshot = _snapshot(named)
    if snapshot is None:
        return []
    if named.path.lower().endswith(".gguf"):
        path = PurePosixPath(named.path)
        wanted = [beside(named.path, each) for each in names_of_set(path.name, shards=shards)]
    else:
        found = _meant_in_cache(named, _files_in(snapshot))
        wanted = [each.path for each in found.files] if found else []
    paths = [snapshot / each for each in wanted]
    return paths if all(path.is_file() for path in paths) else []


def _meant_in_cache(named: HubName, files: Sequence[RepoFile]) -> ModelSet | None:
    """Return the cached model that a name surely means: the server may have others."""
    with contextlib.suppress(RemoteMissingError):
        found = _meant(named, files)
        is_sure = named.tag or named.path or offline_reason()
        first = chosen(model_sets(files), "Q4_K_M")
        if found and (is_sure or found is first or found == first):
            return found
    return None


def _snapshot(named: HubName) -> Path | None:
    """Return the folder of a revision in the cache, None if nothing of it was downloaded."""
    folder = cache_folder() / f"models--{named.repository.replace('/', '--')}"
    with contextlib.suppress(OSError, ValueError):
        commit = named.revision
        if not _COMMIT.fullmatch(commit):
            ref = folder / "refs" / Path(*PurePosixPath(named.revision).parts)
            commit = read_small(ref, Most.POINTER).decode("ascii").strip()
        snapshot = folder / "snapshots" / commit
        return snapshot if _COMMIT.fullmatch(commit) and snapshot.is_dir() else None
    return None


def _files_in(folder: Path) -> list[RepoFile]:
    """Return the files below a folder, by path."""
    found = []
    for place, _, names in os.walk(folder):  # does not follow links to folders
        for name in names:
            path = Path(place, name)
            with contextlib.suppress(OSError):
                found.append(RepoFile(path.relative_to(folder).as_posix(), path.stat().st_size))
    return sorted(found, key=lambda file: file.path)
