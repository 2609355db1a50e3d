"""The rules about what a file means, as rows: its keys, its vocabulary, its template, its data.

The rules about how a file is built stand in `rules`, which makes rules of these rows. Most come
from what llama.cpp's loader (`llama-model.cpp`, `llama-vocab.cpp`) demands; the others say what
people regret later. A row is id, severity, whom it breaks, message and remedy.
"""

from __future__ import annotations

from typing import Final, Literal

Row = tuple[str, Literal["error", "warning", "note"], Literal["GGUF", "llama.cpp", ""], str, str]

_ANEW: Final = "Convert the checkpoint anew, or get the file from who converted it"
_SET: Final = "Set the key with `ggufkit edit`, or convert the checkpoint anew"
_DISTRUST: Final = "Do not trust the file; replace the template with `ggufkit edit --chat-template`"
_TEMPLATE: Final = "Replace the template with `ggufkit edit FILE --chat-template TEMPLATE`"
_FIX: Final = "`ggufkit check --fix` sets it right"


def _refused(id: str, message: str, remedy: str = _ANEW) -> Row:
    """A row about what llama.cpp refuses to load."""
    return (id, "warning", "llama.cpp", message, remedy)


def _odd(id: str, message: str, remedy: str) -> Row:
    """A row about what is probably a mistake."""
    return (id, "warning", "", message, remedy)


def _note(id: str, message: str, remedy: str) -> Row:
    """A row about what is worth knowing."""
    return (id, "note", "", message, remedy)


_KEYS: Final = (
    _refused(
        "architecture-unknown",
        "llama.cpp does not know the architecture {architecture!r}",
        "Correct general.architecture; if the architecture is new, update ggufkit",
    ),
    _refused("architecture-keys", "there are no keys of the architecture {architecture!r}"),
    _refused(
        "key-required",
        "the key {key!r} is missing, which llama.cpp asks of the architecture {architecture!r}",
        _SET,
    ),
    _refused("key-type", "{key} is of type {found}, and llama.cpp insists on {wanted}", _FIX),
    _refused(
        "alignment-ggml",
        "general.alignment is {number}, and tensors lie at no multiples of {least}, "
        "on which llama.cpp aborts",
        "`ggufkit copy IN OUT --alignment 32` writes a file that llama.cpp loads",
    ),
    _refused(
        "split-key",
        "split.count says that there are {count} shards, but {key} is missing",
        "`ggufkit copy IN OUT --shard-size SIZE` writes the set anew",
    ),
    _refused(
        "expert-count",
        "{used} experts are used in each step, but there are {experts}",
        "Correct expert_used_count or expert_count",
    ),
    _odd(
        "head-count",
        "{heads} heads do not divide evenly among {kv} key-value heads",
        "Correct head_count or head_count_kv",
    ),
)

_TENSORS: Final = (
    _refused(
        "tensor-required",
        "the tensor {name!r} is missing, which llama.cpp asks of the architecture {architecture!r}",
    ),
    _refused(
        "tensor-shape",
        "the tensor {name!r} has the shape {shape}, but the keys of the file make it {wanted}",
    ),
    _refused("block-count", "{key} is {blocks}, but there are tensors of {layers} blocks", _SET),
    _refused("block-arrays", "the length of {key} is {count}, but {other} is {blocks}"),
    _refused(
        "embedding-width", "{key} is {width}, but the rows of {other} have {elements} elements"
    ),
)

_VOCABULARY: Final = (
    _refused("token-rows", "the length of {key} is {count}, but {other} has {rows} rows"),
    _refused("token-arrays", "the length of {key} is {count}, but that of {other} is {tokens}"),
    _refused("tokens-missing", "there is a tokenizer of the kind {kind!r}, but {key} is missing"),
    _refused(
        "token-duplicate",
        "the token {token!r} stands at {first} and again at {second}, "
        "and {others} more are repeated",
        "Make the tokens unique with `ggufkit edit --set 'tokenizer.ggml.tokens[INDEX]=TEXT'`",
    ),
    _odd(
        "token-type",
        "{count} tokens have a type that is none of 0 to {last}, first token {index} with {type}",
        _ANEW,
    ),
    _odd(
        "token-id-range",
        "{key} is {number}, but there are {tokens} tokens",
        "Name the right token with `ggufkit edit --special-token`; llama.cpp ignores this one, "
        "and `ggufkit check --fix` removes it",
    ),
    _note(
        "token-id-type",
        "{key} is {number}, which is the token {token!r} of the type {type}",
        "Users can write it; if it is the right token, set its type to 3 (control)",
    ),
    _odd(
        "merge-unknown",
        "{count} of {total} merges name tokens that do not exist, first merge {index}: {merge!r}",
        _ANEW,
    ),
)

_CLAIMS: Final = (
    _odd(
        "quantization-version-value",
        "general.quantization_version is {number}, but ggml's quantized types are of version {now}",
        "Such blocks are decoded wrongly today; get a current version of the model",
    ),
    _odd(
        "file-type-value",
        "general.file_type is {number}, which means no recipe",
        _FIX,
    ),
    _odd(
        "file-type-mix",
        "general.file_type says {claimed}, but of the {total} matrices none is of type {base}; "
        "most are {most}",
        "`ggufkit check --fix` sets it to what most tensors are",
    ),
    _odd(
        "file-encoding",
        "the file is called {said}, but general.file_type says {claimed}",
        "`ggufkit name FILE --rename` gives it the name that its header tells",
    ),
    _note(
        "file-name",
        "the file name {file!r} is not of the naming convention's form",
        "Harmless; `ggufkit name FILE` shows a conventional name",
    ),
)

_TEMPLATES: Final = (
    _odd("template-code", "{key} holds {found!r}, as attempts to run code do", _DISTRUST),
    _odd("template-unsafe", "{key} was stopped by the sandbox: {reason}", _DISTRUST),
    _odd("template-limit", "{key} was stopped: {reason}", _DISTRUST),
    _odd("template-syntax", "{key} cannot be parsed: {reason}", _TEMPLATE),
    _odd(
        "template-render",
        "{key} fails on every conversation, first on {conversation}: {reason}",
        _TEMPLATE,
    ),
    _note("template-partial", "{key} fails on {conversation}: {reason}", "Look at the template"),
    _note(
        "template-silent",
        "{key} leaves out what the user says in {conversation}",
        "Look at the template",
    ),
    _note(
        "template-unrendered",
        "{key} was searched but not rendered, which needs jinja2",
        "`pip install ggufkit[templates]` lets it be rendered",
    ),
)

_LOST: Final = "Such weights spoil what they touch; quantize or convert the model anew"
_DATA: Final = (
    _odd("data-nan", "the tensor {name!r} has NaN, first element {index}", _LOST),
    _odd("data-infinite", "the tensor {name!r} has an infinity, first element {index}", _LOST),
    _odd(
        "data-block",
        "the tensor {name!r} of type {type} has scales that are NaN or infinite, "
        "first in block {block}",
        _LOST,
    ),
    _odd(
        "data-zero",
        "every element of the tensor {name!r} of shape {shape} is zero",
        "A download or conversion that lost data leaves zeros; compare with the source",
    ),
    _note("data-zero-vector", "every element of the vector {name!r} is zero", "Usual for a bias"),
)

ROWS: Final = (*_KEYS, *_TENSORS, *_VOCABULARY, *_CLAIMS, *_TEMPLATES, *_DATA)
