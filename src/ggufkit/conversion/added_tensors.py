"""Adds tensors from other files to a checkpoint: dense layers after the pooling, and a mask.

The dense layers come from sentence-transformers. DFlash marks the tokens to be drafted with a
mask token, which its target never learnt. A checkpoint may have a vector for it in
`mask_embedding.pt`; the draft model then gets embeddings of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ggufkit.conversion.architecture.pooling import modules_of
from ggufkit.conversion.checkpoint.folder import (
    MASK_EMBEDDING,
    Checkpoint,
    open_checkpoint,
    opened_file,
)
from ggufkit.conversion.checkpoint.pytorch import read_dictionary
from ggufkit.conversion.checkpoint.safetensors import read_tensors
from ggufkit.conversion.tensors.moves import concat, renamed
from ggufkit.errors import CheckpointError, brief
from ggufkit.models.model import Tensor, Tensors
from ggufkit.models.rows import AnyFile, closing_on_error
from ggufkit.models.sources import from_array
from ggufkit.system.mapped_file import MappedFile

_FIRST: Final = "2_Dense"  # the folder of the first layer; llama.cpp has names for two
_FIELDS: Final = {"in_features": "feat_in", "out_features": "feat_out"}
_EMBEDDINGS: Final = "model.embed_tokens.weight"
_HEAD: Final = "lm_head.weight"


def with_folder(checkpoint: Checkpoint, name: str) -> Checkpoint:
    """Return a checkpoint with the tensors of one of its folders before its own."""
    file, added = _folder_tensors(checkpoint, name)
    tensors = Tensors([*added, *checkpoint.tensors.values()])
    return replace(checkpoint, tensors=tensors, files=(*checkpoint.files, file))


def _folder_tensors(checkpoint: Checkpoint, folder: str) -> tuple[AnyFile, list[Tensor]]:
    """Open the file of tensors in a folder of a checkpoint; CheckpointError if it is missing."""
    name = f"{folder}/model.safetensors"
    file = opened_file(name, checkpoint.remote_files.get(name) or checkpoint.path(name))
    tensors, problems = read_tensors(file)
    if problems:
        file.close()
        raise CheckpointError(f"{name} cannot be read", problems)
    return file, tensors


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
            file, listed = _folder_tensors(checkpoint, home)
            opened.callback(file.close)
            files.append(file)
            tensors += [  # under the names of llama.cpp; it has no biases
                renamed(tensor, tensor.name.replace("linear", stem))
                for tensor in listed if tensor.name.endswith(".weight")
            ]  # fmt: skip
        opened.pop_all()
    return replace(
        checkpoint,
        config={**checkpoint.config, **fields},
        tensors=Tensors([*tensors, *checkpoint.tensors.values()]),
        files=(*checkpoint.files, *files),
    )


def with_mask_embedding(checkpoint: Checkpoint) -> Checkpoint:
    """Return a draft model whose embeddings have the row of its `mask_embedding.pt`, if any.

    If it lacks embeddings or a head, it gets its target's. Raises CheckpointError for a file
    that does not fit, and for a target without these tensors.
    """
    path = checkpoint.path(MASK_EMBEDDING)
    if checkpoint.target is None or path is None:
        return checkpoint
    number, row = _mask(path, checkpoint.config)
    tensors = {name.removeprefix("model."): tensor for name, tensor in checkpoint.tensors.items()}
    own_embeddings = tensors.get(_EMBEDDINGS.removeprefix("model."))
    target = open_checkpoint(
        checkpoint.target.folder, follow_links=checkpoint.follow_links, may_lack_tensors=True
    )
    with closing_on_error(target.close):
        embeddings = own_embeddings or _of_target(target, _EMBEDDINGS)
        rows = [_with_row(embeddings, number, row)]
        if _HEAD not in tensors:
            is_tied = target.config.get("tie_word_embeddings", False)
            rows.insert(0, renamed(_of_target(target, _EMBEDDINGS if is_tied else _HEAD), _HEAD))
    others = [tensor for tensor in checkpoint.tensors.values() if tensor is not own_embeddings]
    return replace(
        checkpoint,
        config={**checkpoint.config, "has_embed_tokens": True},
        tensors=Tensors([*rows, *others]),
        files=(*checkpoint.files, *target.files),
    )


def _mask(path: Path, config: Mapping[str, Any]) -> tuple[int, npt.NDArray[np.float32]]:
    with contextlib.closing(MappedFile(path)) as file:
        tokens = read_dictionary(file)
        number, vector = tokens.get("mask_token_id"), tokens.get("embedding")
        row = np.array(vector.numpy(), np.float32) if isinstance(vector, Tensor) else None
    if not isinstance(number, int) or row is None or row.ndim != 1:
        raise CheckpointError(f"{path} has no mask_token_id, or no vector called embedding")
    settings = config.get("dflash_config")
    token_id = (settings if isinstance(settings, Mapping) else config).get("mask_token_id")
    if number != token_id:
        raise CheckpointError(
            f"{path} has the mask token {number}, and config.json says {brief(token_id)}"
        )
    return number, row


def _of_target(target: Checkpoint, name: str) -> Tensor:
    tensor = target.tensors.get(name)
    if tensor is None:
        raise CheckpointError(
            f"{target.folder} has no tensor {name!r}, which a draft model with {MASK_EMBEDDING} "
            "needs",
            remedy="Give a folder with the tensors of the target",
        )
    return tensor


def _with_row(embeddings: Tensor, number: int, row: npt.NDArray[np.float32]) -> Tensor:
    if not 0 <= number < embeddings.shape[0] or (len(row),) != embeddings.shape[1:]:
        raise CheckpointError(
            f"{MASK_EMBEDDING} has {len(row)} numbers for token {number}, which does not fit "
            f"embeddings of shape {list(embeddings.shape)}"
        )
    middle = from_array("mask", row[None], embeddings.type)
    parts = (embeddings[:number], middle, embeddings[number + 1 :])
    return concat(_EMBEDDINGS, [part for part in parts if part.elements])
