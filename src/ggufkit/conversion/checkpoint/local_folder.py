"""Provides a folder on this disk for a checkpoint or an adapter, also for one on the Hub."""

from __future__ import annotations

import contextlib

from ggufkit.conversion.checkpoint.folder import Forms, TensorFiles
from ggufkit.models.hub.names import is_hub_name
from ggufkit.system.descriptors import AnyPath


def local_folder(
    small_files: contextlib.ExitStack, folder: AnyPath, forms: Forms = ()
) -> tuple[AnyPath, TensorFiles]:
    """Return a folder, and its files of tensors on the Hub by name; none for a folder on this disk.

    Of a repository ("hf://org/repo") the small files are fetched, and removed when `small_files`
    is closed. `forms` are the files of tensors that will be read. Raises as `fetched` does.
    """
    if not (isinstance(folder, str) and is_hub_name(folder)):
        return folder, {}
    from ggufkit.conversion.checkpoint.hub_folder import fetched  # noqa: PLC0415 (networks take long to import)

    return small_files.enter_context(fetched(folder, forms))
