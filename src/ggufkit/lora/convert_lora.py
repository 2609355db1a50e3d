"""Converts an adapter of PEFT or MLX to GGUF, as llama.cpp's convert_lora_to_gguf.py does."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ggufkit.checks.model_view import EMBEDDING
from ggufkit.checks.other_models import KIND, LORA_A
from ggufkit.conversion.architecture.architecture import classes, find
from ggufkit.conversion.architecture.config import ConfigFacts
from ggufkit.conversion.card.describe import describe
from ggufkit.conversion.checkpoint.folder import (
    Checkpoint,
    CheckpointFolder,
    checking_types,
    open_checkpoint,
)
from ggufkit.conversion.checkpoint.local_folder import local_folder
from ggufkit.conversion.map_tensors import map_items
from ggufkit.conversion.tensors.moves import transpose
from ggufkit.conversion.tensors.storage_type import automatic, outtype_type, stored
from ggufkit.errors import AdapterError, brief, first_names
from ggufkit.format.coerce import typed
from ggufkit.format.file_types import QUANTIZATION_VERSION
from ggufkit.format.metadata import Metadata
from ggufkit.lora.pairs import ALPHA, PAIR_MOVES, Pair, as_tensors
from ggufkit.lora.peft import PeftAdapter, read_peft
from ggufkit.models.model import Model, Tensor, Tensors
from ggufkit.models.rows import closing_on_error
from ggufkit.system.descriptors import AnyPath
from ggufkit.system.threads import Notify

FORMS: Final = (("", "adapter", ".safetensors"),)  # of the files that have its tensors
HEAD: Final = "lm_head.weight"
ABSORBED: Final = ("attn_k_b.weight", "attn_v_b.weight")  # halves of MLA's kv_b_proj
INVOCATION: Final = "adapter.alora.invocation_tokens"


def convert_lora(  # noqa: PLR0913 (one argument for each choice of a user)
    folder: AnyPath,
    *,
    base: AnyPath | None = None,
    outtype: str = "f32",
    name: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    arch_path: Sequence[Path] = (),
    say: Notify | None = None,
) -> Model:
    """Return the adapter in `folder` as a lazy model; `write` makes the file.

    `folder` is what PEFT's `save_pretrained` or MLX's training wrote. `base` is the folder of the
    model that it adapts; only its config.json is read. It is required, because the model that the
    adapter names is never opened. Both may be on the Hub ("hf://org/repo"). `outtype` is f32, f16,
    bf16, q8_0 or auto. The other arguments work as in `convert`. Raises
    AdapterError, whose `problems` list everything wrong.
    """
    say_note = say or (lambda _: None)
    with contextlib.ExitStack() as small_files:
        place, remote_files = local_folder(small_files, folder, FORMS)
        adapter = read_peft(place, say_note, remote_files)
        contradiction = f"the configuration of {folder!s} or of its base contradicts its format"
        small_files.enter_context(closing_on_error(adapter.file.close))
        small_files.enter_context(checking_types(contradiction, kind=AdapterError))
        home = None if base is None else local_folder(small_files, base)[0]
        return _converted(adapter, home, outtype, name, overrides, arch_path, say_note)


def _converted(  # noqa: PLR0913 (the arguments of `convert_lora`)
    adapter: PeftAdapter,
    base: AnyPath | None,
    outtype: str,
    name: str | None,
    overrides: Mapping[str, Any] | None,
    arch_path: Sequence[Path],
    say: Notify,
) -> Model:
    opened = _opened_base(adapter, base)
    architecture = find(classes(opened.config), arch_path, opened.config)
    facts = ConfigFacts(opened, architecture)
    placement = map_items(adapter.items, facts, PAIR_MOVES)
    problems = [*placement.problems]
    pairs = [item for item in adapter.items if isinstance(item, Pair)]
    adapted = {pair.name for pair in pairs}
    if HEAD in adapted.intersection(placement.skipped):
        problems.append(f"it adapts {HEAD}, which the base model shares with its embeddings")
    if problems:
        raise AdapterError(f"{adapter.folder} cannot be converted", problems)
    if placement.skipped:
        say(f"skipped as llama.cpp does: {first_names(placement.skipped)}")
    if any(item.name.endswith(ABSORBED) for item in placement.tensors):
        say("llama.cpp does not apply an adapter to attn_k_b and attn_v_b; merge this one instead")
    kind = outtype_type(outtype) or automatic(t for pair in pairs for t in (pair.a, pair.b))
    upright = map(_upright, placement.tensors)
    output = [
        stored(tensor, kind, architecture.types) for item in upright for tensor in as_tensors(item)
    ]
    described_folder = Checkpoint(
        adapter.folder, CheckpointFolder(adapter.folder).json("config.json") or {}, Tensors()
    )
    described = describe(
        described_folder, name=name, overrides=overrides, parameters=-_parameters(output), say=say
    )
    described.pop("general.type")
    tokens = adapter.config.get("alora_invocation_tokens")
    metadata = {
        "general.architecture": architecture.name,
        "general.type": "adapter",
        KIND: "lora",
        **described,
        ALPHA: np.float32(adapter.alpha),
        **({INVOCATION: typed("array[uint32]", tokens)} if tokens else {}),
        "general.quantization_version": np.uint32(QUANTIZATION_VERSION),
    }
    model = Model(Metadata(metadata), Tensors(output)).reading((adapter.file,))
    return model.derived_from(model.inputs, described_folder.readers_limit)


def _upright(item: Tensor | Pair) -> Tensor | Pair:
    """Return the pair of embeddings with a row for each token, where PEFT has a column."""
    if isinstance(item, Pair) and item.name.endswith(EMBEDDING):  # or those for each layer
        return Pair(item.name, transpose(item.b), transpose(item.a))
    return item


def _opened_base(adapter: PeftAdapter, base: AnyPath | None) -> Checkpoint:
    """Open the folder of the model that is adapted, for its config.json."""
    if base is None:
        model = f"; it names {brief(adapter.base)}, which is not opened" if adapter.base else ""
        raise AdapterError(
            f"the base model of the adapter is not given{model}",
            remedy="Download its config.json, and name its folder (base=...)",
        )
    return open_checkpoint(base, tensors=Tensors())


def _parameters(tensors: Sequence[Tensor]) -> int:
    """Return the number of elements of the adapted matrices, as llama.cpp's converter counts."""
    total, columns = 0, 0
    for tensor in tensors:
        if tensor.name.endswith(LORA_A):
            columns = tensor.shape[-1]
        else:
            is_plain = not tensor.name.endswith("_b")
            total += tensor.elements if is_plain else tensor.elements // tensor.shape[-1] * columns
    return total
