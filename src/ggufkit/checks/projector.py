"""Check multimodal projectors: what llama.cpp's clip.cpp requires of their keys and tensors."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ggufkit.checks.model_view import ARCHITECTURE, ModelView, Violation, at_key, at_tensor
from ggufkit.checks.requirements import any_block, names_in_llama_cpp
from ggufkit.models.model import PROJECTOR

# The encoders, the beginning of the names of their tensors, and the keys that each needs.
_ENCODERS: Final = {
    "vision": ("v", ("image_size", "patch_size", "image_mean", "image_std")),
    "audio": ("a", ("num_mel_bins",)),
}
_KEYS: Final = (
    "embedding_length",
    "attention.head_count",
    "feed_forward_length",
    "block_count",
    "projection_dim",
    "attention.layer_norm_epsilon",
)
_BLOCK: Final = re.compile(r"([va])\.blk\.(\d+)\.")
_UNEVEN: Final = ("gemma3nv",)  # its blocks are groups of others, and the count is made up


def about_projector(view: ModelView) -> Iterator[Violation]:
    """Yield every rule that a projector breaks."""
    if view.architecture != PROJECTOR:
        return
    present = [name for name in _ENCODERS if view.metadata.get(f"clip.has_{name}_encoder") is True]
    if not present and not view.metadata.get("clip.has_gen_audio_encoder"):
        yield _missing("clip.has_vision_encoder")
    for encoder in present:
        yield from _about_encoder(view, encoder)
    pattern = read_names()
    unread = (own for own in view.model.tensors.values() if not pattern.fullmatch(own.name))
    for tensor in {any_block(extra.name): extra for extra in unread}.values():  # one of each name
        yield at_tensor("tensor-unread", tensor)


def _about_encoder(view: ModelView, encoder: str) -> Iterator[Violation]:
    letter, own = _ENCODERS[encoder]
    kind_key = f"clip.{encoder}.projector_type"
    if kind_key not in view.metadata:
        kind_key = "clip.projector_type"
    kind = view.text(kind_key)
    if kind_key not in view.metadata:
        yield _missing(kind_key)
    elif kind not in names_in_llama_cpp("projector_types"):
        yield at_key("projector-unknown", kind_key, kind=kind)
    for name in (*_KEYS, *own):
        if f"clip.{encoder}.{name}" not in view.metadata:
            yield _missing(f"clip.{encoder}.{name}")
    key = f"clip.{encoder}.block_count"
    blocks = view.number(key)
    matches = (_BLOCK.match(name) for name in view.model.tensors)
    layers = max((int(m[2]) + 1 for m in matches if m and m[1] == letter), default=0)
    if blocks is not None and blocks > layers and kind not in _UNEVEN:
        yield at_key("block-count", key, blocks=blocks, layers=layers)


@functools.cache
def read_names() -> re.Pattern[str]:
    """Return a pattern of the names of all tensors that llama.cpp may read of a projector."""
    text = Path(__file__).with_name("projector_tensors.txt").read_text("utf-8")
    names = (re.escape(line) for line in text.splitlines() if not line.startswith("#"))
    encoders = (re.sub("^%s", "[a-z.]+", name) for name in names)
    return re.compile("|".join(n.replace("%d", r"\d+").replace("%s", r"\w+") for n in encoders))


def _missing(key: str) -> Violation:
    return Violation("key-required", {"key": key, "architecture": PROJECTOR}, key=ARCHITECTURE)
