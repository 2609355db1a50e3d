"""safetensors: write the tensors of a model to such a file, and read one as a lazy model."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from ggufkit.conversion.checkpoint.safetensors import lay_folder, open_safetensors
from ggufkit.errors import OutputError
from ggufkit.format.metadata import Metadata
from ggufkit.frameworks.fill import decoded_type, float_type
from ggufkit.models.any_model import AnyModel, opened
from ggufkit.models.model import Model, Tensors
from ggufkit.models.sources import retyped
from ggufkit.output.execute import Order, execute_all
from ggufkit.system.descriptors import AnyPath, as_path
from ggufkit.system.threads import Progress


def load(path: AnyPath) -> Model:
    """Open a safetensors file lazily, as a model without metadata.

    `ggufkit.write` makes a GGUF file of it, once it has the metadata that programs need:
    `ggufkit.convert` reads a whole Hugging Face folder and adds them itself. Raises CheckpointError
    for a file that breaks the format.
    """
    file, tensors = open_safetensors(path)
    return Model(Metadata({}), Tensors(tensors)).reading([file])


def save(
    model: AnyModel,
    path: AnyPath,
    *,
    dtype: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Write the tensors of a model to a safetensors file under their names; return its path.

    Quantized tensors become float32, and all others keep their type. With `dtype` ("float32",
    "float16" or "bfloat16") all float tensors become that. Metadata are left out: `ggufkit.export`
    writes a whole Hugging Face folder. The file appears only when it is complete.
    """
    target = as_path(path)
    floats = float_type(dtype)
    with opened(model) as source:
        if any(file.same_file(target) for file in source.inputs):
            raise OutputError(
                f"{os.fspath(target)} is also an input", remedy="Write to another name"
            )
        plain = [retyped(t, decoded_type(t, floats)) for t in source.tensors.values()]
        laid = lay_folder([plain], {})
        (file,) = laid.files
        renamed_plan = replace(laid, files=(replace(file, name=target.name),))
        execute_all([Order(renamed_plan, target.parent)], threads=threads, progress=progress)
    return target
