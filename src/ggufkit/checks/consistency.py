"""Check that a model's keys agree with each other and with its tensors, without its data.

Sources: `llama-model.cpp`, which requires keys, tensors and shapes by architecture,
`llama-model-loader.cpp`, which requires exact types of values and lengths of arrays, and
`llama-vocab.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ggufkit.checks.model_view import ARCHITECTURE, EMBEDDING, TOKENS, ModelView, Violation, at_key
from ggufkit.checks.requirements import Requirements, known_tensors
from ggufkit.checks.tensor_requirements import MAX_BLOCKS, about_tensors, sizes
from ggufkit.checks.vocabulary import about_tokenizer
from ggufkit.format.key_types import TOKEN_ID, known_type, same_value

GGML_ALIGNMENT: Final = 32  # ggml's TENSOR_ALIGNMENT
MAX_EXPERTS: Final = 1024  # llama.cpp's LLAMA_MAX_EXPERTS
ROPE_SCALINGS: Final = ("none", "linear", "yarn", "longrope")
# One element for each token.
_PER_TOKEN: Final = ("tokenizer.ggml.scores", "tokenizer.ggml.token_type")
# Either one number, or an array with one for each block.
_PER_BLOCK: Final = (
    "attention.head_count",
    "attention.head_count_kv",
    "feed_forward_length",
    "expert_used_count",
)
_ALSO: Final = {("tokenizer.ggml.scores", "array[int32]")}  # llama.cpp accepts this type too
# Types of hyperparameters that llama.cpp does not read (yet): its numbers have two types only.
_READ_AS: Final = {
    "float64": "float32",
    **dict.fromkeys(("uint8", "int8", "uint16", "int16", "int32", "uint64", "int64"), "uint32"),
}


def about_missing_architecture(view: ModelView) -> Iterator[Violation]:
    """Check that the architecture is named: its keys begin with that name."""
    is_model = view.text("general.type") in ("", "model")
    is_empty = not view.metadata and not view.model.tensors
    if is_model and not is_empty and not view.architecture:
        yield at_key("architecture-missing", ARCHITECTURE)


def about_architecture(view: ModelView) -> Iterator[Violation]:
    """Check for the keys of the architecture."""
    if view.architecture and view.metadata and not view.hyperparameters:
        yield at_key("architecture-keys", ARCHITECTURE, architecture=view.architecture)


def about_types(view: ModelView) -> Iterator[Violation]:
    """Check the types of values."""
    for key, actual, expected in wrong_types(view, view.hyperparameters):
        yield wrong_type(view, key, actual, expected)


def wrong_type(view: ModelView, key: str, actual: str, expected: str) -> Violation:
    """Return the fault of a value; `--fix` keeps the value if the right type can hold it."""
    can_be_kept = same_value(view.metadata.typed(key), expected) is not None
    rule = "key-type" if can_be_kept else "key-kind"
    return at_key(rule, key, found=actual, wanted=expected)


def wrong_types(view: ModelView, hyperparameters: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield keys with wrong types: the key, its type, and the type that llama.cpp reads."""
    for key in view.metadata:
        actual = view.metadata.type_name(key)
        expected = known_type(key) or actual
        if actual != expected and (key, actual) not in _ALSO:
            yield key, actual, expected
    requirements = view.requirements
    for key in hyperparameters:
        actual, name = view.metadata.type_name(key), key.removeprefix(view.own(""))
        if requirements is not None and name in requirements.types:
            expected = requirements.expected(name, actual)
        else:
            expected = _READ_AS.get(actual, actual)
        if actual != expected:
            yield key, actual, expected


def about_tokens(view: ModelView) -> Iterator[Violation]:
    """Compare the vocabulary with the embedding and with the arrays by token."""
    tokens = view.tokens
    if tokens is None:
        return
    if view.embedding and view.embedding[0] != tokens:
        rows = {"other": EMBEDDING, "rows": view.embedding[0]}
        yield at_key("token-rows", TOKENS, count=tokens, **rows)
    for key in _PER_TOKEN:
        count = view.count(key)
        if count is not None and count != tokens:
            rule = "token-arrays" if count < tokens else "token-arrays-longer"
            yield at_key(rule, key, count=count, other=TOKENS, tokens=tokens)
    for key in filter(TOKEN_ID.fullmatch, view.metadata):
        number = view.number(key)
        if number is not None and not 0 <= number < tokens:
            yield at_key("token-id-range", key, number=number, tokens=tokens)


def about_blocks(view: ModelView) -> Iterator[Violation]:
    """Compare the number of blocks with the tensors and with the arrays by block."""
    key = view.own("block_count")
    blocks = view.number(key)
    if blocks is None:
        return
    if view.layers not in (0, blocks, blocks - view.ahead):
        yield at_key("block-count", key, blocks=blocks, layers=view.layers)
    for array in map(view.own, _PER_BLOCK):
        count = view.count(array)
        if count not in (None, blocks):
            yield at_key("block-arrays", array, count=count, other=key, blocks=blocks)


def about_width(view: ModelView) -> Iterator[Violation]:
    """Compare the width of the model with its embedding."""
    key = view.own("embedding_length")
    width = view.number(key)
    if width is not None and view.embedding and view.embedding[-1] != width:
        columns = {"other": EMBEDDING, "elements": view.embedding[-1]}
        yield at_key("embedding-width", key, width=width, **columns)


LOADING: Final[tuple[Callable[[ModelView], Iterator[Violation]], ...]] = (
    about_architecture,
    about_types,
    about_tokens,
    about_blocks,
    about_width,
)


def inconsistencies(view: ModelView) -> Iterator[Violation]:
    """Yield every rule that the keys and tensor infos of a model break; no data is read."""
    requirements = view.requirements
    if requirements is None:
        yield at_key("architecture-unknown", ARCHITECTURE, architecture=view.architecture)
    checks = [view.own(name) for name in requirements.types] if requirements else []
    for key, actual, expected in wrong_types(view, [key for key in checks if key in view.metadata]):
        yield wrong_type(view, key, actual, expected)
    yield from about_tokenizer(view)
    yield from about_tokens(view)
    yield from _about_alignment(view)
    if not view.model.tensors or not requirements:
        return
    if view.hyperparameters:
        yield from about_blocks(view)
        yield from about_width(view)
        yield from about_hyperparameters(view, requirements)
        for key in map(view.own, requirements.keys):
            if key not in view.metadata:
                details = {"key": key, "architecture": view.architecture}
                yield Violation("key-required", details, key=ARCHITECTURE)
        yield from about_tensors(view, requirements)
    else:
        yield from about_architecture(view)


def _about_alignment(view: ModelView) -> Iterator[Violation]:
    number = view.number("general.alignment")
    if number is None or number >= GGML_ALIGNMENT:
        return
    tensors = view.model.tensors.values()
    if any((tensor.offset or 0) % GGML_ALIGNMENT for tensor in tensors):
        yield at_key("alignment-ggml", "general.alignment", number=number, least=GGML_ALIGNMENT)


def about_hyperparameters(view: ModelView, requirements: Requirements) -> Iterator[Violation]:
    """Check single numbers and names, and numbers that depend on each other."""
    yield from _about_limits(view)
    yield from _about_heads(view)
    yield from _about_experts(view)
    yield from _about_rope(view, requirements)
    key, value = sizes(view)[0]["head"], sizes(view)[0]["value_head"]
    if None not in (key, value) and key != value and requirements.has_equal_heads:
        yield at_key("head-lengths", view.own("attention.key_length"), keys=key, values=value)


def _about_limits(view: ModelView) -> Iterator[Violation]:
    blocks = view.number(view.own("block_count"))
    yield from _within(view, "block_count", blocks, (1, MAX_BLOCKS))
    yield from _within(view, "nextn_predict_layers", view.ahead, (0, blocks or 0))
    loads_ahead = any(".nextn." in name for name in known_tensors(view.architecture))
    if 0 < view.ahead <= (blocks or 0) and view.layers == blocks and not loads_ahead:
        yield from _within(view, "nextn_predict_layers", view.ahead, (0, 0))
    yield from _within(view, "expert_count", view.size("expert_count"), (0, MAX_EXPERTS))


def _within(
    view: ModelView, name: str, number: int | None, limits: tuple[int, int]
) -> Iterator[Violation]:
    least, most = limits
    if number is not None and not least <= number <= most:
        yield at_key("value-limit", view.own(name), number=number, least=least, most=most)


def _about_heads(view: ModelView) -> Iterator[Violation]:
    heads, kv = (view.number(view.own(f"attention.head_count{end}")) for end in ("", "_kv"))
    if heads and kv and heads % kv:
        yield at_key("head-count", view.own("attention.head_count_kv"), heads=heads, kv=kv)


def _about_experts(view: ModelView) -> Iterator[Violation]:
    used, experts = view.size("expert_used_count"), view.size("expert_count")
    if used is None or experts is None:
        return
    if used > experts or (experts and not used):
        yield at_key("expert-count", view.own("expert_used_count"), used=used, experts=experts)
    groups, active = (view.size(f"expert_group{name}_count") for name in ("", "_used"))
    if groups is None or active is None or not _is_wrong_grouping(experts, groups, active):
        return
    details = {"groups": groups, "used": active, "experts": experts}
    yield at_key("expert-groups", view.own("expert_group_count"), **details)


def _is_wrong_grouping(experts: int, groups: int, active: int) -> bool:
    if not experts or groups >= experts:
        return groups > 0
    return groups > 1 and (experts % groups > 0 or not 0 < active < groups)


def _about_rope(view: ModelView, requirements: Requirements) -> Iterator[Violation]:
    key = view.own("rope.scaling.type")
    scaling = view.metadata.get(key)
    if isinstance(scaling, str) and scaling not in ROPE_SCALINGS:
        yield at_key("rope-scaling", key, found=scaling, known=", ".join(ROPE_SCALINGS))
    key = view.own("rope.dimension_count")
    count, head = view.number(key), sizes(view)[0]["head"]
    if count is not None and head and count != head and requirements.rotates_whole_heads:
        yield at_key("rope-dimensions", key, count=count, head=head)
