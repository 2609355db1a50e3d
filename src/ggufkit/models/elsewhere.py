"""Models that are not on this disk: which files a URL, or another name with a scheme, stands for.

`RESOLVERS` has a row for each scheme. A row's function takes a name and returns the files of the
model, shards in order, without reading them; a file that is on this disk after all is a Path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from ggufkit.errors import LimitError, RemoteError
from ggufkit.format.file_name import parse_shard_name, shard_name
from ggufkit.remote.range_file import RangeFile
from ggufkit.remote.remote_file import RemoteFile
from ggufkit.remote.url import Url, scheme_of

Files: TypeAlias = "Sequence[RangeFile | Path]"
Resolver: TypeAlias = "Callable[[str, bool], Files]"  # a name, and whether all shards are wanted

MAX_SHARDS: Final = 1000  # that one name may stand for: each takes a request


def is_elsewhere(name: object) -> bool:
    """Whether a name has a scheme, so that it is not a path of this disk."""
    return bool(scheme_of(name))


def files_of(name: str, *, shards: bool = True) -> Files:
    """Return the files of the model called `name`, which has a scheme.

    Raises RemoteError for an unknown scheme, and the errors of that scheme.
    """
    scheme = scheme_of(name)
    resolver = RESOLVERS.get(scheme)
    if resolver is None:
        known = ", ".join(f"{each}://" for each in RESOLVERS)
        raise RemoteError(f"nothing opens {scheme}://", remedy=f"Use one of {known}")
    return resolver(name, shards)


def on_the_web(name: str, shards: bool) -> Files:  # noqa: FBT001 (a row of the table)
    """Return the file at a URL, or all shards of its set if its name is that of a shard."""
    url = Url.parse(name)
    return [RemoteFile(url.with_name(each)) for each in names_of_set(url.name, shards=shards)]


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


RESOLVERS: Final[dict[str, Resolver]] = {"https": on_the_web, "http": on_the_web}
