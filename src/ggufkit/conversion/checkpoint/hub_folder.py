"""A checkpoint on the Hugging Face Hub: small files are fetched, tensors stay on the server.

The small files go to a temporary folder of this user, laid out like a cache of huggingface_hub, so
that the model gets the name that it would get from there. It is removed once the model is known.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ggufkit.conversion.checkpoint.folder import (
    FORMS,
    MASK_EMBEDDING,
    TOKENIZER_SUFFIXES,
    VERSIONED,
    Forms,
    TensorFiles,
    shown_as,
)
from ggufkit.errors import CheckpointError
from ggufkit.models.hub.find import folder_of_name
from ggufkit.models.hub.names import HubName, parse_hub_name
from ggufkit.remote import limits
from ggufkit.remote.hub.hub import Repository
from ggufkit.remote.hub.repo_file import RepoFile
from ggufkit.system.cancellation import shield
from ggufkit.system.threads import in_parallel

# What configurations, tokenizers and model cards are in; pictures and other formats stay away.
SMALL: Final = (*TOKENIZER_SUFFIXES, ".md")
TENSORS: Final = (".safetensors",)
MAX_SMALL_BYTES: Final = 128 << 20  # of one small file: the largest tokenizers have 40 MB
MAX_ALL_BYTES: Final = 512 << 20
FIRST_BYTES: Final = 1 << 17  # of a file of tensors: most headers
_SNAPSHOT: Final = "snapshots/" + "0" * 40


@contextlib.contextmanager
def fetched(name: str, forms: Forms = FORMS) -> Iterator[tuple[Path, TensorFiles]]:
    """Provide a folder with the small files of a repository, and its files of tensors, unread.

    Files with the names of `forms` will be read, so the headers of all of them are fetched at once.
    The folder is removed afterwards. Errors about it name the repository. Raises CheckpointError
    for a repository that cannot be converted from the Hub.
    """
    hub_name = parse_hub_name(name)
    if hub_name.tag:
        raise CheckpointError(
            f"{name} names a quant, not a checkpoint",
            remedy=f"Name the repository: hf://{hub_name.repository}",
        )
    with shield(), tempfile.TemporaryDirectory(prefix="ggufkit-") as place:
        owner = f"models--{hub_name.repository.replace('/', '--')}"
        folder = Path(place, owner, _SNAPSHOT)
        folder.mkdir(parents=True)
        with shown_as(str(folder), f"hf://{hub_name.repository}"):
            prefixes = tuple(start for _, start, end in forms if end in TENSORS)
            yield folder, _fetch(hub_name, folder, prefixes)


def _fetch(hub_name: HubName, folder: Path, prefixes: tuple[str, ...]) -> TensorFiles:
    """Fetch the small files of a repository into `folder`; return its files of tensors.

    The headers of files whose names begin with one of `prefixes` are fetched too.
    """
    repository, files, snapshot = folder_of_name(hub_name)
    beginning = f"{hub_name.path}/" if hub_name.path else ""
    places = {file: file.path.removeprefix(beginning) for file in files}
    small = [
        file for file, place in places.items()
        if place.count("/") <= 1  # at most one folder deep
        and (place.endswith(SMALL) or VERSIONED in place or place == MASK_EMBEDDING)
    ]  # fmt: skip
    for file in small:
        if file.nbytes > MAX_SMALL_BYTES:
            raise CheckpointError(
                f"{file.path} in {repository} has {file.nbytes:,} bytes, which no such file needs"
            )
    if sum(file.nbytes for file in small) > MAX_ALL_BYTES:
        raise CheckpointError(f"{repository} has more than {MAX_ALL_BYTES:,} bytes of small files")
    tensors = [file for file, place in places.items() if place.endswith(TENSORS)]
    if not tensors:
        raise CheckpointError(
            f"{repository} has no safetensors files, the only ones that are read from the Hub",
            remedy=f"Download it first: hf download {hub_name.repository}",
        )
    cached = {file: path for file in files if (path := _cached(snapshot, file))}
    saves = (
        functools.partial(_save, repository, file, folder / places[file], cached.get(file))
        for file in small
    )
    in_parallel(saves, limits.PARALLEL)
    remote = {file: repository.file(file) for file in tensors if file not in cached}
    for ranges in remote.values():
        ranges.first_bytes = FIRST_BYTES
    loads = (
        functools.partial(ranges.load, FIRST_BYTES)
        for file, ranges in remote.items()
        if places[file].startswith(prefixes)
    )
    in_parallel(loads, limits.PARALLEL)
    return {places[file]: cached.get(file) or remote[file] for file in tensors}


def _cached(snapshot: Path | None, file: RepoFile) -> Path | None:
    path = snapshot and snapshot / file.path
    with contextlib.suppress(OSError):
        return path if path and path.stat().st_size == file.nbytes else None
    return None


def _save(repository: Repository, file: RepoFile, target: Path, cached: Path | None) -> None:
    target.parent.mkdir(exist_ok=True)
    if cached is not None:
        shutil.copyfile(cached, target)
        return
    with contextlib.closing(repository.file(file)) as remote:
        if remote.nbytes != file.nbytes:
            raise CheckpointError(
                f"{file.path} of {repository} has {remote.nbytes:,} bytes, but {file.nbytes:,} in "
                "the list",
                remedy="Try again: its owner may be changing it",
            )
        data = remote.read(0, remote.nbytes).tobytes()
    if file.sha256 and hashlib.sha256(data).hexdigest() != file.sha256:
        raise CheckpointError(
            f"{file.path} of {repository} has a different SHA-256 from the one that the Hub lists",
            remedy="Try again; if it happens again, do not trust the server",
        )
    target.write_bytes(data)
