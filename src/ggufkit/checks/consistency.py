"""Whether the keys of a model agree with one another and with its tensors, without its data.

Sources: `llama-model.cpp`, which demands keys, tensors and shapes by architecture,
`llama-model-loader.cpp`, which insists on exact types of values and lengths of arrays, and
`llama-vocab.cpp`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Final

from ggufkit.checks.demands import Demands
from ggufkit.checks.subject import (
    ARCHITECTURE,
    EMBEDDING,
    TOKENS,
    Broken,
    Subject,
    at_key,
    at_tensor,
)

GGML_ALIGNMENT: Final = 32  # ggml's TENSOR_ALIGNMENT
MAX_BLOCKS: Final = 512  # llama.cpp's LLAMA_MAX_LAYERS
_ID: Final = re.compile(r"tokenizer\.ggml\.\w+_token_id")
# One element for each token.
_PER_TOKEN: Final = ("tokenizer.ggml.scores", "tokenizer.ggml.token_type")
# Either one number, or an array with one for each block.
_PER_BLOCK: Final = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")
_TYPES: Final = (
    (re.compile(r"general\.(architecture|name)|tokenizer\.ggml\.(model|pre)"), "string"),
    (re.compile(r"general\.file_type|tokenizer\.ggml\.token_type_count"), "uint32"),
    (re.compile(r"tokenizer\.chat_template"), "string"),
    (re.compile(r"tokenizer\.ggml\.(tokens|merges)"), "array[string]"),
    (re.compile(r"tokenizer\.ggml\.token_type"), "array[int32]"),
    (re.compile(r"tokenizer\.ggml\.scores"), "array[float32]"),
    (re.compile(r"tokenizer\.ggml\.(add_\w+|remove_extra_whitespaces|normalizer\.\w+)"), "bool"),
    (_ID, "uint32"),
)
_ALSO: Final = {("tokenizer.ggml.scores", "array[int32]")}  # which llama.cpp reads as well
# Of hyperparameters that llama.cpp does not read (yet): its numbers are of two types only.
_WANTED: Final = {
    "float64": "float32",
    **dict.fromkeys(("uint8", "int8", "uint16", "int16", "int32", "uint64", "int64"), "uint32"),
}


# What an edit may break, whatever the file is.


def about_architecture(seen: Subject) -> Iterator[Broken]:
    """Look for the keys of the architecture."""
    if seen.architecture and seen.metadata and not seen.hyperparameters:
        yield Broken("architecture-keys", {"architecture": seen.architecture}, key=ARCHITECTURE)


def about_types(seen: Subject) -> Iterator[Broken]:
    """Look at the types of values."""
    for key, found, wanted in wrong_types(seen, seen.hyperparameters):
        yield at_key("key-type", key, found=found, wanted=wanted)


def wrong_types(seen: Subject, hyperparameters: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield keys, the types of their values, and those that llama.cpp reads."""
    for key in seen.metadata:
        found = seen.metadata.type_name(key)
        wanted = next((name for form, name in _TYPES if form.fullmatch(key)), found)
        if found != wanted and (key, found) not in _ALSO:
            yield key, found, wanted
    known = seen.demands
    for key in hyperparameters:
        found, name = seen.metadata.type_name(key), key.removeprefix(seen.own(""))
        is_read = known is not None and name in known.types
        wanted = known.wanted(name, found) if known and is_read else _WANTED.get(found, found)
        if found != wanted:
            yield key, found, wanted


def about_tokens(seen: Subject) -> Iterator[Broken]:
    """Compare the vocabulary with the embedding and with what each token has."""
    tokens = seen.count(TOKENS)
    if tokens is None:
        return
    if seen.embedding and seen.embedding[0] != tokens:
        rows = {"other": EMBEDDING, "rows": seen.embedding[0]}
        yield at_key("token-rows", TOKENS, count=tokens, **rows)
    for key in _PER_TOKEN:
        count = seen.count(key)
        if count not in (None, tokens):
            yield at_key("token-arrays", key, count=count, other=TOKENS, tokens=tokens)
    for key in filter(_ID.fullmatch, seen.metadata):
        number = seen.number(key)
        if number is not None and not 0 <= number < tokens:
            yield at_key("token-id-range", key, number=number, tokens=tokens)


def about_blocks(seen: Subject) -> Iterator[Broken]:
    """Compare the number of blocks with the tensors and with what each block has."""
    key = seen.own("block_count")
    blocks = seen.number(key)
    if blocks is None:
        return
    trunk = blocks - (seen.number(seen.own("nextn_predict_layers")) or 0)
    if seen.layers not in (0, blocks, trunk):
        yield at_key("block-count", key, blocks=blocks, layers=seen.layers)
    for array in map(seen.own, _PER_BLOCK):
        count = seen.count(array)
        if count not in (None, blocks):
            yield at_key("block-arrays", array, count=count, other=key, blocks=blocks)


def about_width(seen: Subject) -> Iterator[Broken]:
    """Compare the width of the model with its embedding."""
    key = seen.own("embedding_length")
    width = seen.number(key)
    if width is not None and seen.embedding and seen.embedding[-1] != width:
        sizes = {"other": EMBEDDING, "elements": seen.embedding[-1]}
        yield at_key("embedding-width", key, width=width, **sizes)


LOADING: Final[tuple[Callable[[Subject], Iterator[Broken]], ...]] = (
    about_architecture,
    about_types,
    about_tokens,
    about_blocks,
    about_width,
)


# What check looks at besides, in what claims to be a model.


def inconsistencies(seen: Subject) -> Iterator[Broken]:
    """Yield every rule that the keys and tensor infos of a model break; no data is read."""
    known = seen.demands
    if known is None:
        yield Broken("architecture-unknown", {"architecture": seen.architecture}, key=ARCHITECTURE)
    read = [seen.own(name) for name in known.types] if known else []
    for key, found, wanted in wrong_types(seen, [key for key in read if key in seen.metadata]):
        yield at_key("key-type", key, found=found, wanted=wanted)
    yield from about_tokens(seen)
    yield from _about_alignment(seen)
    if not seen.model.tensors or not known:
        return
    if seen.hyperparameters:
        yield from about_blocks(seen)
        yield from about_width(seen)
        yield from _about_counts(seen)
        yield from _about_demands(seen, known)
    else:
        yield from about_architecture(seen)


def _about_alignment(seen: Subject) -> Iterator[Broken]:
    number = seen.number("general.alignment")
    if number is None or number >= GGML_ALIGNMENT:
        return
    tensors = seen.model.tensors.values()
    if any((tensor.offset or 0) % GGML_ALIGNMENT for tensor in tensors):
        yield at_key("alignment-ggml", "general.alignment", number=number, least=GGML_ALIGNMENT)


def _about_counts(seen: Subject) -> Iterator[Broken]:
    """Compare the numbers of heads, and of experts."""
    heads, kv = (seen.number(seen.own(f"attention.head_count{end}")) for end in ("", "_kv"))
    if heads and kv and heads % kv:
        yield at_key("head-count", seen.own("attention.head_count_kv"), heads=heads, kv=kv)
    used, experts = (
        seen.number(seen.own("expert_used_count")),
        seen.number(seen.own("expert_count")),
    )
    if used and used > (experts or 0):
        key = seen.own("expert_used_count")
        yield at_key("expert-count", key, used=used, experts=experts or 0)


def _about_demands(seen: Subject, known: Demands) -> Iterator[Broken]:
    architecture = seen.architecture
    for key in map(seen.own, known.keys):
        if key not in seen.metadata:
            details = {"key": key, "architecture": architecture}
            yield Broken("key-required", details, key=ARCHITECTURE)
    sizes = _sizes(seen)
    nextn = seen.number(seen.own("nextn_predict_layers")) or 0
    blocks = max((seen.number(seen.own("block_count")) or 0) - nextn, 0)
    for demand in known.tensors:
        if demand.is_dense and sizes["experts"]:
            continue
        shape = tuple(sizes.get(word, 0) for word in demand.shape)
        count = min(blocks, seen.layers, MAX_BLOCKS)
        others = _each(demand.unless, count) if demand.unless else itertools.repeat("")
        for name, other in zip(_each(demand.name, count), others, strict=False):
            if other not in seen.model.tensors:
                yield from _about_tensor(seen, name, shape)


def _each(name: str, blocks: int) -> Iterator[str]:
    if "{i}" not in name:
        yield name
        return
    for block in range(blocks):
        yield name.replace("{i}", str(block))


def _about_tensor(seen: Subject, name: str, shape: tuple[int, ...]) -> Iterator[Broken]:
    tensor = seen.model.tensors.get(name)
    if tensor is None:
        details = {"name": name, "architecture": seen.architecture}
        yield Broken("tensor-required", details, key=ARCHITECTURE)
    elif name == EMBEDDING or not shape or not all(shape):
        return
    elif _without_ones(tensor.shape) != _without_ones(shape):
        yield at_tensor("tensor-shape", tensor, shape=list(tensor.shape), wanted=list(shape))


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without leading ones, which ggml does not tell from absent axes."""
    lead = next((i for i, length in enumerate(shape) if length != 1), len(shape))
    return shape[lead:]


def _sizes(seen: Subject) -> dict[str, int]:
    """Return what the words of `demands.toml` mean in this model; 0 where that is not one number.

    Where blocks differ, a size is an array and no one number.
    """
    width, heads = (seen.number(seen.own(k)) or 0 for k in ("embedding_length", _PER_BLOCK[0]))
    head = seen.number(seen.own("attention.key_length")) or (width // heads if heads else 0)
    return {
        "embedding": width,
        "tokens": seen.count(TOKENS) or 0,
        "feed_forward": seen.number(seen.own("feed_forward_length")) or 0,
        "head": head,
        "heads": head * heads,
        "experts": seen.number(seen.own("expert_count")) or 0,
        "expert_feed_forward": seen.number(seen.own("expert_feed_forward_length")) or 0,
    }
