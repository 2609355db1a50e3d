"""Adds the dense layers of sentence-transformers, which follow the pooling, to a checkpoint."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any, Final

from ggufkit.conversion.architecture.pooling import modules_of
from ggufkit.conversion.checkpoint.folder import Checkpoint, opened_file
from ggufkit.conversion.checkpoint.safetensors import read_tensors
from ggufkit.errors import CheckpointError
from ggufkit.models.model import Tensor, Tensors
from ggufkit.models.rows import AnyFile

_FIRST: Final = "2_Dense"  # the folder of the first layer; llama.cpp has names for two
_FIELDS: Final = {"in_features": "feat_in", "out_features": "feat_out"}


def with_dense_modules(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint with its dense layers in front, as the tensors dense_2 and dense_3.

    Their sizes become fields of the configuration, such as `dense_2_feat_in`. Raises
    CheckpointError if it has no such layers.
    """
    homes = [home for home in modules_of(checkpoint, "Dense") if home]
    if not homes:
        raise CheckpointError(
            f"{checkpoint.folder} has no dense modules of sentence-transformers",
            remedy="Convert the checkpoint without them",
        )
    fields: dict[str, Any] = {}
    tensors: list[Tensor] = []
    files: list[AnyFile] = []
    with contextlib.ExitStack() as opened:
        for home in homes:
            stem = "dense_2" if home == _FIRST else "dense_3"
            config = checkpoint.json(f"{home}/config.json") or {}
            fields |= {f"{stem}_{key}": config.get(field) for field, key in _FIELDS.items()}
            file = opened_file(checkpoint, f"{home}/model.safetensors")
            opened.callback(file.close)
            files.append(file)
            tensors += _held(file, home, stem)
        opened.pop_all()
    return replace(
        checkpoint,
        config={**checkpoint.config, **fields},
        tensors=Tensors([*tensors, *checkpoint.tensors.values()]),
        files=(*checkpoint.files, *files),
    )


def _held(file: AnyFile, home: str, stem: str) -> list[Tensor]:
    """Return the matrices of a dense layer, under the names of llama.cpp; it has no biases."""
    held, problems = read_tensors(file)
    if problems:
        raise CheckpointError(f"{home}/model.safetensors cannot be read", problems)
    return [
        replace(each, name=each.name.replace("linear", stem))
        for each in held
        if each.name.endswith(".weight")
    ]
