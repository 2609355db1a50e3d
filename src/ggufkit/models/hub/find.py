"""Models on the Hugging Face Hub: which files a name stands for, in the cache or on the server.

A file that huggingface_hub, llama.cpp or another program has downloaded is opened from its cache
without any request. Its state is `@revision`, or the commit in the cache.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from ggufkit.errors import RemoteMissingError, first_names
from ggufkit.models.hub.names import HubName, parse_hub_name
from ggufkit.models.hub.repository import (
    PREFERRED,
    CachedModel,
    Files,
    ModelSet,
    choose,
    files_in,
    model_sets,
    names_of,
    names_of_set,
    sibling,
    snapshot_of,
)
from ggufkit.remote.hub.hub import HubFile, Repository, missing_file
from ggufkit.remote.hub.repo_file import RepoFile
from ggufkit.remote.hub.settings import cache_folder, offline_reason
from ggufkit.remote.url import UrlPath

MAX_NAMES: Final = 40  # quants in a message: repositories have 25
FILES: Final = (".gguf", ".safetensors", ".sft")  # names that end so mean files, not folders


def hub_files(name: str, *, shards: bool) -> Files:
    """Return the files of the model that a Hub's name stands for; cached files as paths.

    Raises RemoteMissingError, which lists the quants or files that there are.
    """
    hub_name = parse_hub_name(name)
    files = _cached(hub_name, shards=shards) or _remote(hub_name, shards=shards)
    return files if shards else files[:1]


def hub_models(name: str) -> list[CachedModel]:
    """Return the models of a repository with their sizes; with a tag in `name`, only its models."""
    return [model for model, _ in _models(parse_hub_name(name))]


def sets_of(name: str) -> list[tuple[CachedModel, Files]]:
    """Return the models of a repository with their files, unread, without sidecars."""
    hub_name = parse_hub_name(name)
    snapshot = _snapshot(hub_name)
    return [
        (model, _cached_paths(snapshot, files) or _unread(_repository(hub_name), files))
        for model, files in _models(hub_name)
        if not files.is_sidecar
    ]


def _cached_paths(snapshot: Path | None, model: ModelSet) -> list[Path]:
    paths = [snapshot / file.path for file in model.files] if snapshot else []
    with contextlib.suppress(OSError):
        if [path.stat().st_size for path in paths] == [file.nbytes for file in model.files]:
            return paths
    return []


def _unread(repository: Repository, model: ModelSet) -> list[HubFile]:
    return [repository.file(file) for file in model.files]


def _models(hub_name: HubName) -> list[tuple[CachedModel, ModelSet]]:
    sets = model_sets(_listed(hub_name))
    names = names_of(str(hub_name._replace(path="", tag="")), sets)
    tagged = choose(sets, hub_name.tag) if hub_name.tag else None
    repository = _repository(hub_name)
    models = [
        (CachedModel(name, UrlPath(f"hf://{repository}/{files.path}"), files.nbytes), files)
        for name, files in zip(names, sets, strict=True)
        if not hub_name.tag or files is tagged
    ]
    if not models:
        raise _no_quant(hub_name, sets)
    return models


def _repository(hub_name: HubName) -> Repository:
    return Repository(hub_name.repository, hub_name.revision)


def _listed(hub_name: HubName) -> list[RepoFile]:
    if offline_reason() and (snapshot := _snapshot(hub_name)):
        files = files_in(snapshot)
    else:
        files = _repository(hub_name).files()
    prefix = f"{hub_name.path}/" if hub_name.path else ""
    return [file for file in files if file.path.startswith(prefix)]


def folder_of_name(hub_name: HubName) -> tuple[Repository, list[RepoFile], Path | None]:
    """Return a repository, the files in the folder that a name means, and its folder in the cache.

    Offline the files are those in the cache.
    """
    return _repository(hub_name), _listed(hub_name), _snapshot(hub_name)


def _remote(hub_name: HubName, *, shards: bool) -> Files:
    repository = _repository(hub_name)
    if hub_name.path.lower().endswith(FILES):
        return [repository.file(RepoFile(path, -1)) for path in _set_of(hub_name, shards=shards)]
    model = _resolve(hub_name, repository.files())
    if model is None:
        raise _no_quant(hub_name, model_sets(repository.files()))
    return _unread(repository, model)


def _set_of(hub_name: HubName, *, shards: bool) -> list[str]:
    names = names_of_set(PurePosixPath(hub_name.path).name, shards=shards)
    return [sibling(hub_name.path, name) for name in names]


def _resolve(hub_name: HubName, files: Sequence[RepoFile]) -> ModelSet | None:
    if not hub_name.path:
        return choose(model_sets(files), hub_name.tag)
    inside = [file for file in files if file.path.startswith(f"{hub_name.path}/")]
    sets = [model for model in model_sets(inside) if not model.is_sidecar]
    if not sets:
        raise missing_file(_repository(hub_name), hub_name.path, list(files))
    return sets[0] if len(sets) == 1 else None


def _no_quant(hub_name: HubName, sets: Sequence[ModelSet]) -> RemoteMissingError:
    models = [model for model in sets if not model.is_sidecar]
    names = names_of(str(hub_name._replace(path="", tag="")), models)
    repository = _repository(hub_name)
    if not models:
        return RemoteMissingError(
            f"{repository} has no GGUF files",
            remedy=f"{repository.page} shows what it has; `ggufkit convert hf://{repository} OUT` "
            "converts a checkpoint",
        )
    reason = (
        f"no quant {hub_name.tag}" if hub_name.tag else f"not exactly one model in {hub_name.path}"
    )
    return RemoteMissingError(
        f"{repository} has {reason}", remedy=f"It has {first_names(names, MAX_NAMES)}"
    )


def _cached(hub_name: HubName, *, shards: bool) -> list[Path]:
    snapshot = _snapshot(hub_name)
    if snapshot is None:
        return []
    if hub_name.path.lower().endswith(FILES):
        names = _set_of(hub_name, shards=shards)
    else:
        model = _resolve_in_cache(hub_name, files_in(snapshot))
        names = [file.path for file in model.files] if model else []
    paths = [snapshot / name for name in names]
    return paths if all(path.is_file() for path in paths) else []


def _resolve_in_cache(hub_name: HubName, files: Sequence[RepoFile]) -> ModelSet | None:
    """Return the cached model that a name surely means: the server may have others."""
    with contextlib.suppress(RemoteMissingError):
        model = _resolve(hub_name, files)
        is_sure = hub_name.tag or hub_name.path or offline_reason()
        preferred = choose(model_sets(files), PREFERRED[0])
        if model and (is_sure or model == preferred):
            return model
    return None


def _snapshot(hub_name: HubName) -> Path | None:
    folder = cache_folder() / f"models--{hub_name.repository.replace('/', '--')}"
    return snapshot_of(folder, hub_name.revision)
