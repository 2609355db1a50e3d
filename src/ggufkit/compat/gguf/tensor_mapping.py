"""gguf-py's `get_tensor_name_map`, which remembers what it has made.

transformers asks for the same map once for each module of a model: that is most of the time that it
takes to load one.
"""

from __future__ import annotations

import copy
import functools
from typing import Any, Final

import gguf

_installed: Final = gguf.tensor_mapping
_KEPT: Final = 8  # maps: one for each model that a program loads


def get_tensor_name_map(arch: gguf.MODEL_ARCH, n_blocks: int) -> gguf.TensorNameMap:
    """Return the map from names in checkpoints to names in GGUF: a copy that may be changed."""
    names = _installed.TensorNameMap
    tables = (len(names.mappings_cfg), len(names.block_mappings_cfg))
    mapping = _cached_map(arch, n_blocks, tuple(gguf.MODEL_TENSORS[arch]), tables)
    copied = copy.copy(mapping)
    copied.mapping = dict(mapping.mapping)
    return copied


@functools.lru_cache(maxsize=_KEPT)
def _cached_map(
    arch: gguf.MODEL_ARCH, n_blocks: int, *tables: tuple[object, ...]
) -> gguf.TensorNameMap:
    """Make a map; `tables` is part of the key, because programs may extend these tables."""
    del tables
    return _installed.TensorNameMap(arch, n_blocks)


def __getattr__(name: str) -> Any:  # noqa: ANN401 (as the language has it)
    """Return what else gguf-py has in this module."""
    return getattr(_installed, name)
