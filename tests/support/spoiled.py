"""Models with one thing wrong, to hold what check says of them to what llama.cpp does with them.

Each base is sound; each case sets one key to a wrong value, or takes, adds or reshapes a tensor.
Real models are cut to their first tokens and have holes for data: a case takes milliseconds.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

import ggufkit
import real
import shapes
import small_llama
from ggufkit import typed
from ggufkit.checks.requirements import requirements
from ggufkit.format.metadata import Metadata
from ggufkit.format.values import Strings
from ggufkit.models.model import Model, Tensor, Tensors

KEPT_TOKENS: Final = 600  # of a real vocabulary: with the bytes and the special ones
TOKENS: Final = "tokenizer.ggml.tokens"
TOKENIZER: Final = {
    "model": "string",
    "pre": "string",
    "scores": "array[float32]",
    "token_type": "array[int32]",
    "merges": "array[string]",
    "bos_token_id": "uint32",
    "unknown_token_id": "uint32",
    "padding_token_id": "uint32",
    "add_bos_token": "bool",
    "add_space_prefix": "bool",
    "precompiled_charsmap": "array[uint8]",
    "suppress_tokens": "array[int32]",
    "token_type_count": "uint32",
}
_CARD: Final = re.compile(r"general\.(?!architecture|file_type|type|name|quantization|alignment)")
_ITEMS: Final = {"string": "x", "bool": True, "float32": 1.5, "uint8": 3, "int32": 3, "uint32": 3}


@dataclass(frozen=True)
class Spoiled:
    """A model and what is wrong with it."""

    base: str
    what: str
    model: Model


# The sound ones.


def _cut(model: Model) -> Model:
    """Return a real model with its first tokens only, and without its chat template."""
    metadata = model.metadata
    tokens = metadata[TOKENS].tolist()
    tokens_kept = dict.fromkeys(tokens[:KEPT_TOKENS])
    count = len(tokens_kept)
    changed: dict[str, object] = {TOKENS: Strings(list(tokens_kept))}
    for key in ("tokenizer.ggml.scores", "tokenizer.ggml.token_type"):
        if key in metadata:
            changed[key] = metadata[key][:count]
    if "tokenizer.ggml.merges" in metadata:
        merges = metadata["tokenizer.ggml.merges"].tolist()
        known = [m for m in merges if {*m.split(" "), m.replace(" ", "")} <= tokens_kept.keys()]
        changed["tokenizer.ggml.merges"] = Strings(known)
    for key in metadata:
        if key.endswith("_token_id") and int(metadata[key]) >= count:
            changed[key] = np.uint32(0)
    templates = [key for key in metadata if key.startswith("tokenizer.chat_template")]
    tensors = [_hole(t, len(tokens), count) for t in model.tensors.values()]
    return Model(metadata.updated(changed).without(*templates, missing_ok=True), Tensors(tensors))


def _hole(tensor: Tensor, tokens: int, count: int) -> Tensor:
    shape = tuple(count if length == tokens else length for length in tensor.shape)
    return Tensor.over(tensor.name, tensor.type, shape, shapes.Hole())


def _small(**others: object) -> Model:
    arrays = small_llama.tensors()
    return shapes.model_of(
        small_llama.keys(tokenizer__chat_template=None, **others),
        {name: data.shape for name, data in arrays.items()},
        "F32",
    )


def _experts() -> Model:
    """Return a small Llama with experts, as Mixtral has them."""
    count, width, hidden = 4, small_llama.WIDTH, small_llama.HIDDEN
    shapes_by_name: dict[str, tuple[int, ...]] = {}
    for name, data in small_llama.tensors().items():
        if ".ffn_" not in name or "norm" in name:
            shapes_by_name[name] = data.shape
    for block in range(small_llama.BLOCKS):
        shapes_by_name[f"blk.{block}.ffn_gate_inp.weight"] = (count, width)
        shapes_by_name[f"blk.{block}.ffn_gate_exps.weight"] = (count, hidden, width)
        shapes_by_name[f"blk.{block}.ffn_up_exps.weight"] = (count, hidden, width)
        shapes_by_name[f"blk.{block}.ffn_down_exps.weight"] = (count, width, hidden)
    keys = small_llama.keys(
        tokenizer__chat_template=None,
        llama__expert_count=np.uint32(count),
        llama__expert_used_count=np.uint32(2),
    )
    return shapes.model_of(keys, shapes_by_name, "F32")


def _opened(path: Callable[[], Any]) -> Model:
    return _cut(ggufkit.open(path()))


def _vocabulary(name: str) -> Model:
    return _opened(lambda: next(p for p in real.vocabularies() if name in p.name))


def _minilm() -> Model:
    return _cut(ggufkit.convert(real.minilm()))


BASES: Final[dict[str, Callable[[], Model]]] = {
    "small": _small,
    "experts": _experts,
    "smollm2": lambda: _opened(real.smollm2),
    "gemma3": lambda: _opened(real.gemma3),
    "minilm": _minilm,
}


@functools.cache
def base(name: str) -> Model:
    """Return a sound model."""
    return BASES[name]()


# What is wrong with them.


def cases(name: str) -> Iterator[Spoiled]:
    """Yield all cases of one base, the sound one first."""
    sound = base(name)
    yield Spoiled(name, "sound", sound)
    for key, what, value in _values(sound):
        metadata = sound.metadata
        changed = (
            metadata.without(key, missing_ok=True)
            if value is None
            else metadata.updated({key: value})
        )
        yield Spoiled(name, f"{key} {what}", sound.replace(metadata=changed))
    for what, tensors in _tensors(sound):
        yield Spoiled(name, what, sound.replace(tensors=tensors))


def _values(sound: Model) -> Iterator[tuple[str, str, Any]]:
    metadata = sound.metadata
    architecture = metadata["general.architecture"]
    for key in metadata:
        yield key, "unset", None
        if _CARD.match(key):  # which llama.cpp does not read
            continue
        kind = metadata.type_name(key)
        for value in _wrong(kind, metadata[key]):
            yield key, f"= {_text_of(value)}", value
    known = requirements(architecture)
    optional = {f"{architecture}.{key}": kind for key, kind in known.types.items()}
    optional |= {f"tokenizer.ggml.{key}": kind for key, kind in TOKENIZER.items()}
    for key, kind in optional.items():
        if key not in metadata:
            for value in _others(kind):
                yield key, f"added {_text_of(value)}", value


def _text_of(value: Any) -> str:
    text = Metadata({"x": value}).type_name("x")
    plain = value.tolist() if hasattr(value, "tolist") else value
    return f"{text} {plain!r}"[:60]


def _others(kind: str) -> list[Any]:
    """Return values of a type, and of others."""
    item = kind.removeprefix("array[").removesuffix("]")
    one = _ITEMS[item]
    if item != kind:
        return [typed(kind, [one]), typed(kind, [one] * 2), typed("array[int64]", [1]), "x"]
    values = {
        "string": ["none", "linear", "yarn", "longrope", "nosuch", "", np.uint32(7)],
        "bool": [True, False, np.uint8(1), "true"],
        "float32": [np.float32(0), np.float32(2.5), np.float32(-1), np.float64(1), np.uint32(1)],
        "uint32": [*map(np.uint32, (0, 1, 2, 3, 16, 32, 64, 2**31, 2**32 - 1)), np.int32(1)],
    }[item]
    return [*values, typed(f"array[{item}]", [one])]


def _wrong(kind: str, value: Any) -> Iterator[Any]:
    if kind == "string":
        yield from ("", "nosuch", "llama", "gpt2", "bert", "t5", "rwkv", "none", "gemma2", "qwen2")
        yield from (np.uint32(7), typed("array[string]", [value]))
    elif kind == "bool":
        yield from (not value, np.uint8(1), "true", typed("array[bool]", [value]))
    elif kind.startswith("array"):
        item = kind.removeprefix("array[").removesuffix("]")
        items = value.tolist()
        yield from (typed(kind, []), typed(kind, items[:-1]), typed(kind, [*items, items[-1]]))
        yield from (typed(kind, items[:1] * len(items)), _ITEMS.get(item, 3))
        yield typed("array[string]", ["x"]) if item != "string" else typed("array[int32]", [1])
        yield typed("array[array[int32]]", [[1]])
    elif kind.startswith("float"):
        yield from map(np.float32, (0, -1, 1e30, np.nan))
        yield from (np.float64(value), np.uint32(1), "1.0", typed("array[float32]", [value]))
    else:
        number = int(value)
        near = {0, 1, number - 1, number + 1, number * 2, number // 2, 2**31 - 1, 2**32 - 1}
        yield from (np.uint32(n) for n in sorted(near - {number}) if 0 <= n < 2**32)
        yield from (np.int32(number), np.uint64(number), np.float32(number), str(number), True)
        yield typed("array[uint32]", [number])


def _tensors(sound: Model) -> Iterator[tuple[str, list[Tensor]]]:
    tensors_of_model = list(sound.tensors.values())
    seen = set()
    for index, tensor in enumerate(tensors_of_model):
        name = tensor.name
        role = "blk" + name.partition("blk.")[2].lstrip("0123456789") if "blk." in name else name
        if role in seen:
            continue
        seen.add(role)
        yield f"without {name}", tensors_of_model[:index] + tensors_of_model[index + 1 :]
        for shape in {
            (*tensor.shape[:-1], tensor.shape[-1] * 2),
            (tensor.shape[0] * 2, *tensor.shape[1:]),
            (tensor.shape[0] - tensor.shape[0] // 2, *tensor.shape[1:]),
            (2, *tensor.shape),
        } - {tensor.shape}:
            if shape[-1] % tensor.type.block_size == 0:
                other = Tensor.over(name, tensor.type, shape, shapes.Hole())
                yield (
                    f"{name} {shape}",
                    [*tensors_of_model[:index], other, *tensors_of_model[index + 1 :]],
                )
    donor = tensors_of_model[-1]
    for name in (
        "nosuch.weight", "blk.0.attn_k_norm.weight", "blk.0.nosuch.weight", "blk.0.attn_q.bias",
        "blk.99.attn_q.weight", "output.weight", "rope_freqs.weight", "blk.0.ffn_gate_inp.weight",
        "blk.0.attn_qkv.weight", "blk.0.attn_sinks.weight", "mm.0.weight", "token_types.weight",
        "blk.0.attn_q.scale", "blk.0.attn_post_norm.weight", "position_embd.weight",
    ):  # fmt: skip
        if name not in sound.tensors:
            other = Tensor.over(name, donor.type, donor.shape, shapes.Hole())
            yield f"with {name}", [*tensors_of_model, other]
