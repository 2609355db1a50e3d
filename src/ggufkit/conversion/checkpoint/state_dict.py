"""Checkpoints in memory: a state dict of NumPy or PyTorch, and its small files in a folder."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final

import numpy as np

from ggufkit.conversion.checkpoint.folder import TOKENIZER_SUFFIXES, VERSIONED, CheckpointFolder
from ggufkit.conversion.checkpoint.safetensors import DTYPES as KINDS
from ggufkit.errors import CheckpointError, TensorTypeError, brief
from ggufkit.format.types import DTYPES, TORCH_DTYPES, TensorType
from ggufkit.models.model import Tensor, Tensors
from ggufkit.models.rows import ComputedRows, rows_and_width
from ggufkit.models.sources import ArraySource, from_array
from ggufkit.system.cancellation import shield
from ggufkit.system.mapped_file import Bytes

_TYPES: Final = {f"torch.{dtype}": KINDS[name] for name, dtype in TORCH_DTYPES.items()}
_FOREIGN: Final = {
    np.dtype(kind.dtype): kind for kind in KINDS.values() if kind.id < 0 and kind.dtype
}
# Files next to a tokenizer that belong to another checkpoint.
_OTHERS: Final = ("config.json", "generation_config.json")


def tensors_of(state: Mapping[str, Any]) -> Tensors:
    """Return the tensors of a state dict, in the order of a file.

    Raises TensorTypeError for types that a checkpoint cannot have.
    """
    return Tensors(_tensor(name, state[name]) for name in sorted(state))


def _tensor(name: str, value: Any) -> Tensor:  # noqa: ANN401 (of any library)
    if isinstance(value, Tensor):
        return Tensor(name, value.type, value.shape, value.nbytes, value.source)
    if hasattr(value, "detach"):
        return of_torch(name, value)
    array = np.asarray(value)
    kind = _FOREIGN.get(array.dtype)
    if kind is None:
        return from_array(name, array)
    rows = np.ascontiguousarray(array).reshape(rows_and_width(array.shape))
    return Tensor.over(name, kind, array.shape, ArraySource(rows.view(np.uint8)))


@dataclass(frozen=True, eq=False)  # tensors do not compare to one bool
class TorchRows(ComputedRows):
    """Rows of a torch tensor, copied to the processor's memory when they are read."""

    rows: Any

    def read(self, start: int, stop: int) -> Bytes:
        """Return the bytes of rows `start` to `stop`."""
        uint8 = importlib.import_module("torch").uint8
        data: Bytes = self.rows[start:stop].contiguous().cpu().view(uint8).numpy()
        return data


def of_torch(name: str, value: Any) -> Tensor:  # noqa: ANN401 (a torch tensor)
    """Return the tensor of a torch tensor on any device; nothing is copied before it is read."""
    plain = value.detach()
    if plain.layout != importlib.import_module("torch").strided or plain.is_meta:
        raise TensorTypeError(
            f"tensor {name!r} has no elements one after the other: it is "
            f"{'on the meta device' if plain.is_meta else plain.layout}",
            remedy="Use tensor.to_dense(), or load it onto a device",
        )
    shape = tuple(plain.shape)
    rows = TorchRows(plain.reshape(rows_and_width(shape)))
    return Tensor.over(name, torch_type(name, plain.dtype), shape, rows)


def torch_type(name: str, dtype: object) -> TensorType:
    """Return the type of a torch tensor's dtype; TensorTypeError for one that no file has."""
    kind = _TYPES.get(str(dtype))
    if kind is None:
        raise TensorTypeError(
            f"tensor {name!r}: no file has a type for {dtype}",
            remedy=f"Convert it to one of {', '.join(DTYPES.values())}",
        )
    return kind


@contextlib.contextmanager
def saved_parts(config: Any, *others: Any) -> Iterator[Path]:  # noqa: ANN401 (of any library)
    """Provide a folder with the small files of a checkpoint, which is removed afterwards.

    `config` is a mapping or a configuration of transformers. Others are objects of transformers
    with `save_pretrained`, or the folder of a tokenizer. None is left out.
    """
    name = PurePath(str(getattr(config, "name_or_path", ""))).name.strip(".")
    with shield(), tempfile.TemporaryDirectory(prefix="ggufkit-") as place:
        folder = Path(place, name or "model")
        folder.mkdir()
        for part in (config, *others):
            if isinstance(part, Mapping):
                (folder / "config.json").write_text(json.dumps(dict(part)))
            elif hasattr(part, "save_pretrained"):
                part.save_pretrained(folder)
            elif part is not None:
                _copy(part, folder)
        yield folder


def _copy(source: Any, folder: Path) -> None:  # noqa: ANN401 (whatever a user gives)
    if not isinstance(source, str | os.PathLike) or not Path(source).is_dir():
        raise CheckpointError(
            f"{brief(source)} is neither a tokenizer nor the folder of one",
            remedy="Give a tokenizer of transformers, or its folder",
        )
    files = CheckpointFolder(Path(source))
    for name in files.names(".", ""):
        if name.endswith(TOKENIZER_SUFFIXES) or VERSIONED in name:
            data = None if name in _OTHERS else files.content(name)
            if data is not None:
                (folder / name).write_bytes(data)
