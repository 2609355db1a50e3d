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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from ggufkit.conversion.checkpoint.folder import FORMS, MASK_EMBEDDING, Forms, shown_as
from ggufkit.errors import CheckpointError
from ggufkit.models.hub.find import folder_of_name
from ggufkit.models.hub.names import HubName, parse_hub_name
from ggufkit.remote.hub.hub import Repository
from ggufkit.remote.hub.repo_file import RepoFile
from ggufkit.remote.range_file import RangeFile
from ggufkit.remote.together import in_parallel

TensorFiles: TypeAlias = "dict[str, RangeFile | Path]"  # by their names in the folder

# What configurations, tokenizers and model cards are in; pictures and other formats stay away.
SMALL: Final = (".json", ".txt", ".model", ".md", ".jinja", ".tiktoken", ".vocab", ".bpe")
VERSIONED: Final = ".model.v"  # in the names of Mistral's SentencePiece models
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
    named = parse_hub_name(name)
    if named.tag:
        raise CheckpointError(
            f"{name} names a quant, not a checkpoint",
            remedy=f"Name the repository: hf://{named.repository}",
        )
    with tempfile.TemporaryDirectory(prefix="ggufkit-") as place:
        owner = f"models--{named.repository.replace('/', '--')}"
        folder = Path(place, owner, _SNAPSHOT)
        folder.mkdir(parents=True)
        with shown_as(str(folder), f"hf://{named.repository}"):
            beginnings = tuple(start for _, start, end in forms if end in TENSORS)
            yield folder, _fetch(named, folder, beginnings)


def _fetch(named: HubName, folder: Path, beginnings: tuple[str, ...]) -> TensorFiles:
    """Fetch the small files of a repository into `folder`; return its files of tensors.

    The headers of those whose names begin so are fetched too.
    """
    repository, files, snapshot = folder_of_name(named)
    beginning = f"{named.path}/" if named.path else ""
    places = {file: file.path.removeprefix(beginning) for file in files}
    small = [file for file, place in places.items() if _is_small(place)]
    _require_bounded(repository, small)
    tensors = [file for file, place in places.items() if place.endswith(TENSORS)]
    if not tensors:
        raise CheckpointError(
            f"{repository} has no safetensors files, the only ones that are read from the Hub",
            remedy=f"Download it first: hf download {named.repository}",
        )
    at_hand = {file: path for file in files if (path := _cached(snapshot, file))}
    in_parallel(
        functools.partial(_save, repository, file, folder / places[file], at_hand.get(file))
        for file in small
    )
    found: TensorFiles = {
        places[file]: at_hand.get(file) or _unread(repository, file) for file in tensors
    }
    in_parallel(
        functools.partial(each.load, FIRST_BYTES)
        for place, each in found.items()
        if isinstance(each, RangeFile) and place.startswith(beginnings)
    )
    return found


def _is_small(place: str) -> bool:
    """Whether a file is one of those that conversion may read, at most one folder deep."""
    is_known = place.endswith(SMALL) or VERSIONED in place or place == MASK_EMBEDDING
    return is_known and place.count("/") <= 1


def _require_bounded(repository: Repository, small: Sequence[RepoFile]) -> None:
    for file in small:
        if file.nbytes > MAX_SMALL_BYTES:
            raise CheckpointError(
                f"{file.path} in {repository} has {file.nbytes:,} bytes, which no such file needs"
            )
    if sum(file.nbytes for file in small) > MAX_ALL_BYTES:
        raise CheckpointError(f"{repository} has more than {MAX_ALL_BYTES:,} bytes of small files")


def _cached(snapshot: Path | None, file: RepoFile) -> Path | None:
    """Return the file in the cache if it is the same by its size."""
    if snapshot is None:
        return None
    path = snapshot / file.path
    with contextlib.suppress(OSError):
        return path if path.stat().st_size == file.nbytes else None
    return None


def _save(repository: Repository, file: RepoFile, target: Path, at_hand: Path | None) -> None:
    target.parent.mkdir(exist_ok=True)
    if at_hand is not None:
        shutil.copyfile(at_hand, target)
        return
    with contextlib.closing(repository.file(file.path, file)) as remote:
        _require_size(remote.nbytes, file, repository)
        data = remote.read(0, remote.nbytes).tobytes()
    if file.sha256 and hashlib.sha256(data).hexdigest() != file.sha256:
        raise CheckpointError(
            f"{file.path} of {repository} came with another SHA-256 than the Hub lists",
            remedy="Try again; if it stays so, do not trust the server",
        )
    target.write_bytes(data)


def _require_size(nbytes: int, file: RepoFile, repository: Repository) -> None:
    if nbytes != file.nbytes:
        raise CheckpointError(
            f"{file.path} of {repository} has {nbytes:,} bytes, but {file.nbytes:,} in the list",
            remedy="Try again: its owner may be changing it",
        )


def _unread(repository: Repository, file: RepoFile) -> RangeFile:
    remote = repository.file(file.path, file)
    remote.first_bytes = FIRST_BYTES
    return remote
