"""Resolvers of remote names: which files a URL, or another name with a scheme, stands for.

`RESOLVERS` has a row for each scheme. A row's function takes a name and returns the files of the
model, shards in order, without reading them; a file that is on this disk after all is a Path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ggufkit.errors import RemoteError
from ggufkit.models.hub.names import SCHEME, is_hub_name
from ggufkit.models.hub.repository import Files, names_of_set
from ggufkit.remote.memory_file import content_file, is_content
from ggufkit.remote.url import STORES, Url, scheme_of

Resolver: TypeAlias = (
    "Callable[[str, bool], Files]"  # of a name, and whether to include all its shards
)


def is_remote(name: object) -> bool:
    """Whether a model is not at a path on this disk: on a server, on the Hub, or in memory."""
    if not isinstance(name, str):
        return is_content(name)
    return bool(scheme_of(name) or is_hub_name(name))


def files_of(name: Any, *, shards: bool = True) -> Files:  # noqa: ANN401 (content too)
    """Return the files of the model called `name`, which `is_remote`.

    Raises RemoteError for an unknown scheme, and the errors of that scheme.
    """
    if not isinstance(name, str):
        return [content_file(name)]
    scheme = SCHEME if is_hub_name(name) else scheme_of(name)
    resolver = RESOLVERS.get(scheme)
    if resolver is None:
        schemes = ", ".join(f"{scheme}://" for scheme in RESOLVERS)
        raise RemoteError(f"nothing opens {scheme}://", remedy=f"Use one of {schemes}")
    return resolver(name, shards)


def files_at_url(name: str, shards: bool) -> Files:  # noqa: FBT001 (a row of the table)
    """Return the file at a URL, or all shards of its set if its name is a shard's."""
    from ggufkit.remote.remote_file import RemoteFile  # noqa: PLC0415 (networks take long to import)

    url = Url.parse(name)
    return [RemoteFile(url.with_name(file)) for file in names_of_set(url.name, shards=shards)]


def files_in_store(name: str, shards: bool) -> Files:  # noqa: FBT001 (a row of the table)
    """Return the file in an object store, or all shards of its set."""
    from ggufkit.remote.object_file import ObjectFile  # noqa: PLC0415 (networks take long to import)

    folder, _, last = name.rpartition("/")
    return [ObjectFile(f"{folder}/{file}") for file in names_of_set(last, shards=shards)]


def files_on_hub(name: str, shards: bool) -> Files:  # noqa: FBT001 (a row of the table)
    """Return the files of the model that a Hub's name stands for; cached files as paths."""
    from ggufkit.models.hub.find import hub_files  # noqa: PLC0415 (networks take long to import)

    return hub_files(name, shards=shards)


RESOLVERS: Final[dict[str, Resolver]] = {
    "https": files_at_url,
    "http": files_at_url,
    SCHEME: files_on_hub,
    **dict.fromkeys(STORES, files_in_store),
}
