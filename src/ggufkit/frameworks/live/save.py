"""Write a live model of transformers as a GGUF file."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ggufkit.conversion.checkpoint.state_dict import saved_parts
from ggufkit.conversion.choices import Choices
from ggufkit.conversion.convert import convert_folder
from ggufkit.frameworks.live.weights import LiveWeights, unwrapped
from ggufkit.imatrix.matrix import Imatrix
from ggufkit.output.write import WriteOptions, write
from ggufkit.quantization.quantize import quantize
from ggufkit.system.descriptors import AnyPath

if TYPE_CHECKING:
    from typing_extensions import Unpack


class SaveOptions(WriteOptions, total=False):
    """The options of `save`."""

    name: str | None
    pre: str | None
    imatrix: Imatrix | AnyPath | None


def save(  # noqa: PLR0913 (what is saved, and how)
    model: Any,  # noqa: ANN401 (torch.nn.Module; pyright checks where torch is missing)
    tokenizer: object,
    path: AnyPath,
    recipe: str | None = None,
    *,
    name: str | None = None,
    pre: str | None = None,
    imatrix: Imatrix | AnyPath | None = None,
    **options: Unpack[WriteOptions],
) -> list[Path]:
    """Write a live model as a GGUF file, quantized by `recipe` if there is one; return the paths.

    The file has the bytes that `model.save_pretrained`, `ggufkit.convert` and `ggufkit.quantize`
    give, but no checkpoint is written, and memory is needed for a few tensors. `tokenizer` is
    the tokenizer or processor, or the folder of one.

    `model` may be in training: PEFT's adapters are merged in the file only, layers of bitsandbytes
    are decoded, and shards of FSDP 2 and DeepSpeed are gathered one at a time. Of several processes
    the first one writes, and the others return an empty list; call it in all that have a shard.

    `name` and `pre` are those of `ggufkit.convert`, `imatrix` is that of `ggufkit.quantize`, and
    `options` are those of `ggufkit.write`. Raises what these raise, ValueTypeError for a model of
    another library, and MissingExtraError for transformers before version 5.
    """
    inner = unwrapped(model)
    choices = Choices(name=name, pre=pre)
    weights = LiveWeights(inner)
    if not weights.is_first:
        weights.serve()
        return []
    try:
        with saved_parts(*configurations(inner), tokenizer) as folder:
            converted = convert_folder(folder, choices, state=weights.tensors())
        if recipe is not None:
            converted = quantize(converted, recipe, imatrix=imatrix)
        return write(converted, path, **options)
    finally:
        weights.finish()


def configurations(model: Any) -> tuple[Any, Any]:  # noqa: ANN401 (a model of transformers)
    """Return the configurations that `save_pretrained` writes."""
    config = copy.deepcopy(model.config)
    config.dtype = str(model.dtype).removeprefix("torch.")
    config.architectures = [model.__class__.__name__.removeprefix("FSDP")]
    return config, model.generation_config if model.can_generate() else None
