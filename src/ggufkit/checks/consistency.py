"""Check that a model's keys agree with each other and with its tensors, without its data.

Sources: `llama-model.cpp`, which requires keys, tensors and shapes by architecture,
`llama-model-loader.cpp`, which requires exact types of values and lengths of arrays, and
`llama-vocab.cpp`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from ggufkit.checks.demands import Demands
from ggufkit.checks.hyperparameters import about_hyperparameters
from ggufkit.checks.subject import (
    ARCHITECTURE,
    EMBEDDING,
    TOKENS,
    Broken,
    Subject,
    at_key,
)
from ggufkit.checks.tensor_demands import about_tensors
from ggufkit.checks.vocabulary import about_tokenizer
from ggufkit.format.same_value import same_value

GGML_ALIGNMENT: Final = 32  # ggml's TENSOR_ALIGNMENT
_ID: Final = re.compile(r"tokenizer\.ggml\.\w+_token_id")
# One element for each token.
_PER_TOKEN: Final = ("tokenizer.ggml.scores", "tokenizer.ggml.token_type")
# Either one number, or an array with one for each block.
_PER_BLOCK: Final = (
    "attention.head_count",
    "attention.head_count_kv",
    "feed_forward_length",
    "expert_used_count",
)
_TYPES: Final = (
    (re.compile(r"general\.(architecture|name)|tokenizer\.ggml\.(model|pre)"), "string"),
    (re.compile(r"general\.file_type|tokenizer\.ggml\.token_type_count"), "uint32"),
    (re.compile(r"tokenizer\.chat_template"), "string"),
    (re.compile(r"tokenizer\.ggml\.tokens"), "array[string]"),
    (re.compile(r"tokenizer\.ggml\.suppress_tokens"), "array[int32]"),
    (re.compile(r"tokenizer\.ggml\.token_type"), "array[int32]"),
    (re.compile(r"tokenizer\.ggml\.scores"), "array[float32]"),
    (re.compile(r"tokenizer\.ggml\.(add_\w+|remove_extra_whitespaces|normalizer\.\w+)"), "bool"),
    (_ID, "uint32"),
)
_ALSO: Final = {("tokenizer.ggml.scores", "array[int32]")}  # llama.cpp reads this too
# Types of hyperparameters that llama.cpp does not read (yet): its numbers have two types only.
_WANTED: Final = {
    "float64": "float32",
    **dict.fromkeys(("uint8", "int8", "uint16", "int16", "int32", "uint64", "int64"), "uint32"),
}


# Rules that an edit can break, in any file.


def about_missing_architecture(seen: Subject) -> Iterator[Broken]:
    """Check that the architecture is named: its keys begin with that name."""
    is_model = seen.text("general.type") in ("", "model")
    is_empty = not seen.metadata and not seen.model.tensors
    if is_model and not is_empty and not seen.architecture:
        yield at_key("architecture-missing", ARCHITECTURE)


def about_architecture(seen: Subject) -> Iterator[Broken]:
    """Check for the keys of the architecture."""
    if seen.architecture and seen.metadata and not seen.hyperparameters:
        yield Broken("architecture-keys", {"architecture": seen.architecture}, key=ARCHITECTURE)


def about_types(seen: Subject) -> Iterator[Broken]:
    """Check the types of values."""
    for key, found, wanted in wrong_types(seen, seen.hyperparameters):
        yield wrong_type(seen, key, found, wanted)


def wrong_type(seen: Subject, key: str, found: str, wanted: str) -> Broken:
    """Return the fault of a value; `--fix` keeps the value if the right type can hold it."""
    can_be_kept = same_value(seen.metadata.typed(key), wanted) is not None
    rule = "key-type" if can_be_kept else "key-kind"
    return at_key(rule, key, found=found, wanted=wanted)


def wrong_types(seen: Subject, hyperparameters: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield keys with wrong types: the key, its type, and the type that llama.cpp reads."""
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
    """Compare the vocabulary with the embedding and with the arrays by token."""
    tokens = seen.tokens
    if tokens is None:
        return
    if seen.embedding and seen.embedding[0] != tokens:
        rows = {"other": EMBEDDING, "rows": seen.embedding[0]}
        yield at_key("token-rows", TOKENS, count=tokens, **rows)
    for key in _PER_TOKEN:
        count = seen.count(key)
        if count is not None and count != tokens:
            rule = "token-arrays" if count < tokens else "token-arrays-longer"
            yield at_key(rule, key, count=count, other=TOKENS, tokens=tokens)
    for key in filter(_ID.fullmatch, seen.metadata):
        number = seen.number(key)
        if number is not None and not 0 <= number < tokens:
            yield at_key("token-id-range", key, number=number, tokens=tokens)


def about_blocks(seen: Subject) -> Iterator[Broken]:
    """Compare the number of blocks with the tensors and with the arrays by block."""
    key = seen.own("block_count")
    blocks = seen.number(key)
    if blocks is None:
        return
    if seen.layers not in (0, blocks, blocks - seen.ahead):
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


# Further rules of `check`, for files that claim to be models.


def inconsistencies(seen: Subject) -> Iterator[Broken]:
    """Yield every rule that the keys and tensor infos of a model break; no data is read."""
    known = seen.demands
    if known is None:
        yield Broken("architecture-unknown", {"architecture": seen.architecture}, key=ARCHITECTURE)
    read = [seen.own(name) for name in known.types] if known else []
    for key, found, wanted in wrong_types(seen, [key for key in read if key in seen.metadata]):
        yield wrong_type(seen, key, found, wanted)
    yield from about_tokenizer(seen)
    yield from about_tokens(seen)
    yield from _about_alignment(seen)
    if not seen.model.tensors or not known:
        return
    if seen.hyperparameters:
        yield from about_blocks(seen)
        yield from about_width(seen)
        yield from about_hyperparameters(seen, known)
        yield from _about_required_keys(seen, known)
        yield from about_tensors(seen, known)
    else:
        yield from about_architecture(seen)


def _about_alignment(seen: Subject) -> Iterator[Broken]:
    number = seen.number("general.alignment")
    if number is None or number >= GGML_ALIGNMENT:
        return
    tensors = seen.model.tensors.values()
    if any((tensor.offset or 0) % GGML_ALIGNMENT for tensor in tensors):
        yield at_key("alignment-ggml", "general.alignment", number=number, least=GGML_ALIGNMENT)


def _about_required_keys(seen: Subject, known: Demands) -> Iterator[Broken]:
    for key in map(seen.own, known.keys):
        if key not in seen.metadata:
            details = {"key": key, "architecture": seen.architecture}
            yield Broken("key-required", details, key=ARCHITECTURE)
