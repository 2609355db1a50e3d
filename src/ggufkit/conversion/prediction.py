"""Leaves out the layers that predict further tokens (MTP, also called NextN), or all others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from ggufkit.conversion.architecture.architecture import Architecture
from ggufkit.conversion.architecture.config import ConfigFacts
from ggufkit.conversion.architecture.of_checkpoint import LAYER
from ggufkit.conversion.checkpoint.folder import Checkpoint
from ggufkit.errors import CheckpointError
from ggufkit.models.model import Tensor, Tensors

KEY: Final = "nextn_predict_layers"
COUNTS: Final = ("num_nextn_predict_layers", "mtp_num_hidden_layers")  # fields of config.json
MTP: Final = "mtp.*"  # in `skip`: these layers are never in a file with the others
_DSPARK: Final = "DeepseekV4DSparkModel"
_LAYERS: Final = ("num_hidden_layers", "n_layers", "n_layer", "num_layers")
_NAMED: Final = ("mtp.", "model.mtp.")
_BLOCK: Final = re.compile(r"blk\.(\d+)\.")
# Tensors that these layers share with the rest of the model.
SHARED: Final = ("token_embd.weight", "output_norm.weight", "output.weight", "rope_freqs.weight")
# Tensors of such a layer of DeepSeek V4 whose names have no number of a layer.
_OWN: Final = ("output_hc_base.weight", "output_hc_fn.weight", "output_hc_scale.weight")


def drafting(classes: Sequence[str]) -> list[str]:
    """Return the only class of the DSpark draft model in a checkpoint of these classes.

    Raises CheckpointError for another class.
    """
    if "DeepseekV4ForCausalLM" not in classes and _DSPARK not in classes:
        raise CheckpointError(
            f"a checkpoint of {', '.join(classes) or 'no class'} contains no DSpark draft model",
            remedy="Convert it without DSpark, which only DeepSeek V4 has in the same folder",
        )
    return [_DSPARK]


def without_prediction(checkpoint: Checkpoint, architecture: Architecture) -> Checkpoint:
    """Return a checkpoint without the layers that predict further tokens.

    Raises CheckpointError for an architecture that has no such layers.
    """
    _require(architecture)
    # The files of some architectures state the number themselves, and look at `only_prediction`.
    config = {**_without_counts(checkpoint.config), "only_prediction": False}
    inner = config.get(architecture.config)
    if isinstance(inner, dict):
        config[architecture.config] = inner = _without_counts(inner)
    fields = {**config, **(inner if isinstance(inner, dict) else {})}
    count = next((fields[name] for name in _LAYERS if name in fields), None)
    tensors = [t for t in checkpoint.tensors.values() if not _predicts(t.name, count)]
    return replace(checkpoint, config=config, tensors=Tensors(tensors))


def only_prediction(tensors: Iterable[Tensor], facts: ConfigFacts) -> list[Tensor]:
    """Return the tensors of layers that predict further tokens, and tensors that they share.

    Raises CheckpointError if there are no such layers.
    """
    _require(facts.architecture)
    main = facts.lookup("num_hidden_layers")
    count = main if isinstance(main, int) else 0
    outside = (*SHARED, *_OWN)
    blocks = {t.name: _BLOCK.match(t.name) for t in tensors}
    outputs = [t for t in tensors if t.name in outside
               or ((block := blocks[t.name]) and int(block[1]) >= count)]  # fmt: skip
    if all(t.name in outside for t in outputs):
        raise CheckpointError(
            "the checkpoint has no layers that predict further tokens (MTP)",
            remedy="Fetch the checkpoint that has them, or convert the whole model",
        )
    return outputs


def _require(architecture: Architecture) -> None:
    if KEY not in dict(architecture.metadata) and MTP not in architecture.skip:
        raise CheckpointError(
            f"the architecture {architecture.name} has no layers that predict further tokens (MTP)",
            remedy="Convert the whole model",
        )


def _without_counts(config: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in COUNTS}


def _predicts(name: str, main_layers: object) -> bool:
    match = LAYER.match(name)
    is_beyond = match and isinstance(main_layers, int) and int(match[1]) >= main_layers
    return name.startswith(_NAMED) or bool(is_beyond)
