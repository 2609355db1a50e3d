"""transformers: load a model and its tokenizer, with the names and shapes of Hugging Face."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ggufkit.conversion.architecture.config_json import Draft
from ggufkit.conversion.export import checkpoint_in_memory
from ggufkit.errors import CheckpointError, brief, first_names
from ggufkit.format.types import DTYPES
from ggufkit.frameworks.extras import library
from ggufkit.frameworks.fill import float_type
from ggufkit.frameworks.tokenizer import errors_of_library
from ggufkit.frameworks.torch import decoded_tensors, packed_tensors
from ggufkit.models.any_model import AnyModel, opened
from ggufkit.models.layers import block_count
from ggufkit.models.model import Model
from ggufkit.system.threads import Notify, Progress

if TYPE_CHECKING:
    import torch
    import transformers

EXTRA: Final = "transformers"
MATRIX_AXES: Final = 2
_FLOATS: Final = ("BF16", "F16")
_NOT_ARGUMENTS: Final = ("tokenizer_class", "added_tokens_decoder")


class LoadedModel(NamedTuple):
    """A model of transformers and its tokenizer, None for a file without a vocabulary."""

    model: transformers.PreTrainedModel
    tokenizer: transformers.PreTrainedTokenizerFast | None


def load(  # noqa: PLR0913 (one argument for each choice of a user)
    model: AnyModel,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | int | None = None,
    arch_path: Sequence[Path] = (),
    threads: int | None = None,
    progress: Progress | None = None,
    say: Notify | None = None,
    quantized: bool = False,
    **options: Any,
) -> LoadedModel:
    """Return the model of a GGUF file as transformers has it, and its tokenizer.

    All float tensors become `dtype`. Without it a quantized model becomes float32, and any other
    keeps the type of its matrices. With `quantized` the matrices of a quantized file stay packed,
    as `ggufkit.torch.PackedTensor`, and are decoded to `dtype` in each call; so do not train them.
    `options` go to `from_pretrained`. `arch_path` and `say` are as for `ggufkit.export`, `threads`
    and `progress` as for `ggufkit.torch.load`.

    Raises CheckpointError for a model that cannot be exported or that transformers refuses, and
    MissingKeyError for an unknown number of layers.
    """
    library("torch", EXTRA)
    library("transformers", EXTRA)
    with opened(model) as source:
        block_count(source.metadata)  # transformers makes as many layers as the file claims
        floats = float_type(dtype) or _own_type(source)
        matrices = {t.name for t in source.values() if quantized and t.ndim == MATRIX_AXES}
        draft = checkpoint_in_memory(source, "f32", packed=matrices, arch_path=arch_path, say=say)
        packed = {t.name: t for t in draft.tensors.values() if quantized and t.type.is_quantized}
        rest = [tensor for tensor in draft.tensors.values() if tensor.name not in packed]
        state = {
            **packed_tensors(packed, DTYPES[floats]),
            **decoded_tensors(rest, floats, threads=threads, progress=progress),
        }
    with errors_of_library("transformers refuses the model"):
        loaded = _model(draft, state, floats, options)
    loaded.config.name_or_path = str(source.path or "")
    with errors_of_library():
        tokenizer = _tokenizer(draft)
    return LoadedModel(loaded if device is None else loaded.to(device), tokenizer)


def _own_type(model: Model) -> str:
    """Return the float type of the matrices, F32 if any is quantized."""
    kinds = [t.type for t in model.tensors.values() if len(t.shape) > 1]
    if any(kind.is_quantized for kind in kinds):
        return "F32"
    return next((kind.name for kind in kinds if kind.name in _FLOATS), "F32")


def _model(
    draft: Draft, state: dict[str, torch.Tensor], floats: str, options: Mapping[str, Any]
) -> Any:  # noqa: ANN401 (a class of transformers)
    torch, transformers = library("torch", EXTRA), library("transformers", EXTRA)
    config = _config(draft)
    name = str((config.architectures or ["none"])[0])
    kind = getattr(transformers, _spelled(name, dir(transformers)), None)
    if kind is None:
        raise CheckpointError(
            f"transformers {transformers.__version__} has no class {brief(name)}",
            remedy="Install a later version of transformers, or use ggufkit.export",
        )
    takes = "add_pooling_layer" in inspect.signature(kind).parameters
    loaded, info = kind.from_pretrained(
        None,
        config=config,
        state_dict=state,
        dtype=getattr(torch, DTYPES[floats]),
        output_loading_info=True,
        **(
            {"add_pooling_layer": False} if takes and not any("pooler." in n for n in state) else {}
        ),
        **options,
    )
    missing = sorted(info["missing_keys"])
    if missing:
        names = first_names(missing)
        raise CheckpointError(
            f"the model lacks {len(missing)} tensors of {name}: {names}",
            remedy="`ggufkit check` shows whether the file is complete",
        )
    generation = draft.json("generation_config.json")
    if generation and loaded.can_generate():
        loaded.generation_config = transformers.GenerationConfig.from_dict(generation)
    return loaded


def _spelled(name: str, names: Sequence[str]) -> str:
    """Return a class by its name in transformers; some models spell it with other capitals."""
    return next((own for own in names if own.lower() == name.lower()), name)


def _config(draft: Draft) -> Any:  # noqa: ANN401 (a class of transformers)
    transformers = library("transformers", EXTRA)
    name = str(draft.config.get("model_type", ""))
    try:
        kind = type(transformers.AutoConfig.for_model(name))
    except ValueError as error:
        raise CheckpointError(
            f"transformers {transformers.__version__} does not know models of type {brief(name)}",
            remedy="Install a later version of transformers, or use ggufkit.export",
        ) from error
    return kind.from_dict(dict(draft.config))


def _tokenizer(draft: Draft) -> Any:  # noqa: ANN401 (a class of transformers)
    rules = draft.text("tokenizer.json")
    if rules is None:
        return None
    inner = library("tokenizers", EXTRA).Tokenizer.from_str(rules)
    settings = json.loads(draft.text("tokenizer_config.json") or "{}")
    chosen = {key: value for key, value in settings.items() if key not in _NOT_ARGUMENTS}
    template = draft.text("chat_template.jinja")
    if template is not None:
        chosen["chat_template"] = template
    kind = library("transformers", EXTRA).PreTrainedTokenizerFast
    return kind(tokenizer_object=_Uncopied(inner), **chosen)


class _Uncopied:
    """A tokenizer that transformers does not copy, because copying takes as long as loading."""

    def __init__(self, tokenizer: Any) -> None:  # noqa: ANN401 (of the library tokenizers)
        self.tokenizer = tokenizer

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:  # noqa: ANN401
        """Return the tokenizer itself."""
        return self.tokenizer
