"""Finds what is wrong with a conversion before anything is written."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from ggufkit.checks.consistency import inconsistencies
from ggufkit.checks.model_view import ModelView, Violation
from ggufkit.conversion.architecture.architecture import classes
from ggufkit.conversion.architecture.config import ConfigFacts
from ggufkit.conversion.map_tensors import TensorMapping
from ggufkit.errors import CheckpointError
from ggufkit.format.types import MAX_DIMS
from ggufkit.models.model import Model, Tensor
from ggufkit.rules.findings import finding
from ggufkit.system.threads import Notify

_LAYERED: Final = re.compile(r"(.*?blk\.)(\d+)\.(.*)")
_QUOTED: Final = re.compile(r"'[^']*\.[^']*'")
_CAUSAL: Final = ("ForCausalLM", "LMHeadModel")  # classes that have a head
# Rules of `check` that every sound checkpoint keeps: llama.cpp would not load the result otherwise.
REFUSED: Final = {
    *("tensor-required", "tensor-shape", "key-type", "key-kind"),
    *("head-count", "expert-count"),
}


def about_layers(facts: ConfigFacts, placement: TensorMapping[Tensor]) -> Iterator[str]:
    """Yield problems if the configuration counts other layers than have tensors."""
    count = facts.lookup("stored_layers") or facts.lookup("block_count")
    if not isinstance(count, int) or isinstance(count, bool) or placement.problems:
        return
    beyond = sorted(layer for layer in placement.layers if layer >= count)
    if beyond:
        yield f"tensors of layer {beyond[-1]}, but the configuration counts {count} layers"
    absent = count - len(placement.layers) + len(beyond)
    if absent > 0 and placement.layers:
        first = next(n for n in range(count) if n not in placement.layers)
        yield f"{absent} of {count} layers have no tensors, the first of them layer {first}"


def about_shapes(facts: ConfigFacts, tensors: Sequence[Tensor]) -> Iterator[str]:
    """Yield problems with shapes that the architecture computes differently."""
    shapes = facts.architecture.shapes
    for tensor in tensors:
        if len(tensor.shape) > MAX_DIMS:
            yield f"{tensor.name} has {len(tensor.shape)} axes, but GGUF allows {MAX_DIMS}"
        parts = tensor.name.split(".")
        text = shapes.get(".".join("{i}" if part.isdecimal() else part for part in parts))
        number = next((int(part) for part in parts if part.isdecimal()), None)
        expected = facts.value(text, number) if text else None
        if expected is not None and list(tensor.shape) != expected:
            yield (
                f"{tensor.name} has the shape {list(tensor.shape)}, "
                f"and config.json says {expected} ({text})"
            )


def require_loadable(model: Model, folder: Path, say: Notify, *, exactly: bool = False) -> None:
    """Raise CheckpointError if a model breaks a known requirement of llama.cpp's loader.

    A missing key is only a note, for the converter writes such files too; so is all `exactly`.
    """
    broken = list(inconsistencies(ModelView(model)))
    if (problems := _messages(broken, REFUSED)) and not exactly:
        raise CheckpointError(f"{folder} cannot be converted", problems)
    for problem in problems:
        say(f"{problem}: llama.cpp does not load the file")
    for message in _messages(broken, {"key-required"}):
        say(f"{message}. Set it with `ggufkit edit --set`")


def _messages(broken: Iterable[Violation], rules: Collection[str]) -> list[str]:
    return [finding(e.rule, 0, **e.details).message for e in broken if e.rule in rules]


def about_missing(model: Model, facts: ConfigFacts) -> list[str]:
    """Return problems: tensors that the checkpoint's other layers or config.json imply."""
    absent = _lacking(model.tensors, facts.architecture.uneven)
    missing = [f"the tensor {name!r} is missing: {why}" for name, why in absent]
    if _has_own_head(facts) and not facts.exactly and "output.weight" not in model.tensors:
        missing.append("output.weight is missing, but config.json says tie_word_embeddings: false")
    if not missing:
        return []
    listed = " ".join(missing)
    refusals = _messages(inconsistencies(ModelView(model)), REFUSED)
    refused = [text for text in refusals if not any(n in listed for n in _QUOTED.findall(text))]
    return [*missing, *refused]


def _has_own_head(facts: ConfigFacts) -> bool:
    is_untied = facts.checkpoint.config.get("tie_word_embeddings") is False
    targets = {target.name for rule in facts.architecture.rules for target in rule.targets}
    is_causal = any(name.endswith(_CAUSAL) for name in classes(facts.checkpoint.config)[:1])
    return is_untied and is_causal and "output.weight" in targets


def _lacking(names: Iterable[str], uneven: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield tensors that a layer lacks, compared with a layer that has all its kinds and more."""
    layers: dict[str, dict[str, set[str]]] = {}
    for name in names:
        match = _LAYERED.fullmatch(name)
        if match and f"{match[1]}{{i}}.{match[3]}" not in uneven:
            layers.setdefault(match[1], {}).setdefault(match[2], set()).add(match[3])
    for stem, stems in layers.items():
        kinds = {frozenset(names): number for number, names in stems.items()}
        for number, present in stems.items():
            fuller = min((names for names in kinds if names > present), key=len, default=present)
            for kind in sorted(fuller - present):
                why = f"layer {kinds[frozenset(fuller)]} has such a tensor, and all that this has"
                yield f"{stem}{number}.{kind}", why
