"""Converts an adapter of PEFT or MLX to GGUF, as llama.cpp's convert_lora_to_gguf.py does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ggufkit.checks.adapter import EMBEDDING, KIND, LORA_A
from ggufkit.conversion.architecture.architecture import classes, find
from ggufkit.conversion.architecture.config import ConfigFacts
from ggufkit.conversion.card.describe import describe
from ggufkit.conversion.checkpoint.folder import Checkpoint, read_json
from ggufkit.conversion.place import place_items
from ggufkit.conversion.tensors.moves import transpose
from ggufkit.conversion.tensors.storage_type import AUTO, OUTTYPES, automatic, stored
from ggufkit.errors import AdapterError, TensorTypeError, brief
from ggufkit.format.coerce import typed
from ggufkit.format.metadata import Metadata
from ggufkit.format.values import TypedValue
from ggufkit.lora.pairs import ALPHA, Pair, PairMoves, as_tensors
from ggufkit.lora.peft import SHOWN, PeftAdapter, read_peft
from ggufkit.models.model import Model, Tensor, Tensors
from ggufkit.quantization.file_keys import QUANTIZATION_VERSION
from ggufkit.system.descriptors import AnyPath, as_path
from ggufkit.system.threads import Say

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
    say: Say | None = None,
) -> Model:
    """Return the adapter in `folder` as a lazy model; `write` makes the file.

    `folder` is what PEFT's `save_pretrained` or MLX's training wrote. `base` is the folder of the
    model that it adapts, of which only config.json is read; without it, the folder that the adapter
    names is used if it exists here. `outtype` is f32, f16, bf16, q8_0 or auto. The other arguments
    are those of `convert`. Raises AdapterError, whose `problems` list everything wrong.
    """
    say_note = say or _silent
    adapter = read_peft(folder, say_note)
    try:
        return _converted(adapter, base, outtype, name, overrides, arch_path, say_note)
    except BaseException:
        adapter.file.close()
        raise


def _silent(_: str) -> None:
    """Drop a note."""


def _converted(  # noqa: PLR0913 (the arguments of `convert_lora`)
    adapter: PeftAdapter,
    base: AnyPath | None,
    outtype: str,
    name: str | None,
    overrides: Mapping[str, Any] | None,
    arch_path: Sequence[Path],
    say: Say,
) -> Model:
    home, config = _base_config(adapter, base)
    architecture = find(classes(config), arch_path)
    facts = ConfigFacts(Checkpoint(home, config, Tensors()), architecture)
    placement = place_items(adapter.items, facts, PairMoves())
    problems = [*placement.problems, *_about_head(adapter, placement.skipped)]
    if problems:
        raise AdapterError(f"{adapter.folder} cannot be converted", problems)
    if placement.skipped:
        say(f"skipped as llama.cpp does: {', '.join(placement.skipped[:SHOWN])}")
    if any(item.name.endswith(ABSORBED) for item in placement.tensors):
        say("llama.cpp does not apply an adapter to attn_k_b and attn_v_b; merge this one instead")
    kind = _wanted(outtype, adapter)
    upright = (_upright(item) for item in placement.tensors)
    made = [stored(tensor, kind) for item in upright for tensor in as_tensors(item)]
    own = Checkpoint(adapter.folder, read_json(adapter.folder, "config.json") or {}, Tensors())
    described = describe(
        own, name=name, overrides=overrides, parameters=-_parameters(made), say=say
    )
    described.pop("general.type")
    metadata = {
        "general.architecture": architecture.name,
        "general.type": "adapter",
        KIND: "lora",
        **described,
        ALPHA: np.float32(adapter.alpha),
        **_invocation(adapter.config),
        "general.quantization_version": np.uint32(QUANTIZATION_VERSION),
    }
    made_model = Model(Metadata(metadata), Tensors(made)).reading((adapter.file,))
    return made_model.made_from(made_model.inputs, own.readers_limit)


def _upright(item: Tensor | Pair) -> Tensor | Pair:
    """Return the pair of embeddings with a row for each token; PEFT has a column for each."""
    if isinstance(item, Pair) and item.name == EMBEDDING:
        return Pair(item.name, transpose(item.b), transpose(item.a))
    return item


def _base_config(adapter: PeftAdapter, base: AnyPath | None) -> tuple[Path, dict[str, Any]]:
    """Return the folder and the config.json of the model that is adapted."""
    named = as_path(base) if base is not None else Path(adapter.base or "")
    is_given = base is not None or (adapter.base and named.is_dir())
    config = read_json(named, "config.json") if is_given and named.is_dir() else None
    if config is not None:
        return named, config
    if base is not None:
        raise AdapterError(f"{named} has no config.json", remedy="Give the folder of the model")
    said = f" ({brief(adapter.base)})" if adapter.base else ""
    raise AdapterError(
        f"the adapter's base model{said} is not on this machine",
        remedy="Download its config.json, and name its folder (base=...)",
    )


def _about_head(adapter: PeftAdapter, skipped: Sequence[str]) -> Iterator[str]:
    """Yield a problem if the adapter changes a matrix that the base model has no place for."""
    adapted = {item.name for item in adapter.items if isinstance(item, Pair)}
    if HEAD in adapted.intersection(skipped):
        yield f"it adapts {HEAD}, which the base model shares with its embeddings"


def _wanted(outtype: str, adapter: PeftAdapter) -> str:
    if outtype in OUTTYPES:
        return OUTTYPES[outtype]
    if outtype == AUTO:
        pairs = (item for item in adapter.items if isinstance(item, Pair))
        return automatic(tensor for pair in pairs for tensor in (pair.a, pair.b))
    known = ", ".join((AUTO, *OUTTYPES))
    raise TensorTypeError(f"unknown outtype {outtype!r}", remedy=f"Use one of {known}")


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


def _invocation(config: Mapping[str, Any]) -> dict[str, TypedValue]:
    """Return the key of the tokens that switch an activated adapter on."""
    tokens = config.get("alora_invocation_tokens")
    return {INVOCATION: typed("array[uint32]", tokens)} if tokens else {}
