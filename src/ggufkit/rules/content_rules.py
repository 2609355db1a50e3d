"""The rules about a file's content, as rows: keys, vocabulary, template, data.

The rules about a file's structure are in `rules.py`, which also turns these rows into rules. Most
come from llama.cpp's loader (`llama-model.cpp`, `llama-vocab.cpp`); the others warn about likely
mistakes. A row is id, severity, whom it breaks, message and remedy.
"""

from __future__ import annotations

from typing import Final, Literal

Row = tuple[str, Literal["error", "warning", "note"], Literal["GGUF", "llama.cpp", ""], str, str]

_ANEW: Final = "Convert the checkpoint again, or get the file from whoever converted it"
_SET: Final = "Set the key with `ggufkit edit`, or convert the checkpoint again"
_DISTRUST: Final = "Do not trust the file; replace the template with `ggufkit edit --chat-template`"
_TEMPLATE: Final = "Replace the template with `ggufkit edit FILE --chat-template TEMPLATE`"
_FIX: Final = "`ggufkit check --fix` corrects it"


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
        "architecture-missing",
        "{key} is missing, empty or not a string, so llama.cpp does not know the kind of model",
        _SET,
    ),
    _refused(
        "architecture-unknown",
        "llama.cpp does not know the architecture {architecture!r}",
        "Correct general.architecture; if the architecture is new, update ggufkit",
    ),
    _refused("architecture-keys", "the file has no keys for the architecture {architecture!r}"),
    _refused(
        "key-required",
        "the key {key!r} is missing; llama.cpp requires it for the architecture {architecture!r}",
        _SET,
    ),
    _refused("key-type", "{key} is of type {found}, but llama.cpp requires {wanted}", _FIX),
    _refused(
        "key-kind",
        "{key} is of type {found}, but llama.cpp requires {wanted}, which cannot hold the value",
        _SET,
    ),
    _refused(
        "alignment-ggml",
        "general.alignment is {number}, and some tensor does not start at a multiple of {least}, "
        "so llama.cpp aborts",
        "`ggufkit copy IN OUT --alignment 32` writes a file that llama.cpp loads",
    ),
    _refused(
        "split-key",
        "split.count says that there are {count} shards, but {key} is missing",
        "`ggufkit copy IN OUT --shard-size SIZE` writes a correct set",
    ),
    _odd(
        "split-total",
        "split.tensors.count is {expected}, but the file holds {count} tensors",
        "Correct split.tensors.count with `ggufkit edit`, or compare the file with the publisher's",
    ),
    _refused(
        "adapter-kind",
        "the file is an adapter, but {key} is {found!r}; llama.cpp loads only 'lora'",
        "Convert the adapter again with `ggufkit lora convert`",
    ),
    _refused(
        "adapter-tensor",
        "the adapter's tensor {name!r} {what}",
        "Convert the adapter again with `ggufkit lora convert`",
    ),
    _refused(
        "expert-count",
        "each token uses {used} experts, but the model has {experts}",
        "Correct expert_used_count or expert_count",
    ),
    _refused(
        "expert-groups",
        "{experts} experts cannot be in {groups} groups, {used} of them in use",
        "Correct expert_group_count or expert_group_used_count",
    ),
    _refused(
        "value-limit", "{key} is {number}; llama.cpp accepts {least} to {most} for this model", _SET
    ),
    _refused("rope-scaling", "{key} is {found!r}; llama.cpp knows {known}", _SET),
    _refused(
        "rope-dimensions",
        "{key} is {count}, but each head has {head} elements, and this architecture rotates all",
        _SET,
    ),
    _refused(
        "head-lengths",
        "each head has {keys} elements for keys and {values} for values; llama.cpp requires the "
        "same number for this architecture",
        "Correct attention.key_length or attention.value_length",
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
        "the tensor {name!r} is missing; llama.cpp requires it for the architecture "
        "{architecture!r}",
    ),
    _refused(
        "tensor-shape",
        "the tensor {name!r} has the shape {shape}, but the keys of the file imply {wanted}",
    ),
    _refused(
        "tensor-unknown",
        "llama.cpp does not load the tensor {name!r} for this {architecture!r} model, and refuses "
        "files with tensors that it does not load",
        "`ggufkit select IN OUT --drop NAME` writes a file without it",
    ),
    _note(
        "tensor-unread",
        "llama.cpp does not read the tensor {name!r} of a projector",
        "Harmless if llama.cpp loads the file; `ggufkit select IN OUT --rename OLD=NEW` gives a "
        "tensor another name",
    ),
    _refused("projector-unknown", "{key} is {kind!r}, a projector that llama.cpp does not know"),
    _refused("block-count", "{key} is {blocks}, but the file has tensors of {layers} blocks", _SET),
    _refused("block-arrays", "the length of {key} is {count}, but {other} is {blocks}"),
    _refused(
        "embedding-width", "{key} is {width}, but the rows of {other} have {elements} elements"
    ),
)

_VOCABULARY: Final = (
    _refused("tokenizer-missing", "{key} is missing, so llama.cpp cannot read the vocabulary"),
    _refused("tokenizer-unknown", "{key} is {found!r}, a tokenizer that llama.cpp does not know"),
    _refused(
        "pre-unknown", "{key} is {found!r}, a pre-tokenizer that llama.cpp does not know", _SET
    ),
    _refused("merges-missing", "the tokenizer is of the kind {kind!r}, but {key} is missing"),
    _refused("token-rows", "the length of {key} is {count}, but {other} has {rows} rows"),
    _refused("token-arrays", "the length of {key} is {count}, but that of {other} is {tokens}"),
    _odd(
        "token-arrays-longer",
        "the length of {key} is {count}, but that of {other} is {tokens}",
        _ANEW,
    ),
    _refused(
        "tokens-missing", "the file has a tokenizer of the kind {kind!r}, but {key} is missing"
    ),
    _refused(
        "token-duplicate",
        "the token {token!r} has the ids {first} and {second}, "
        "and {others} more tokens are repeated",
        "Make the tokens unique with `ggufkit edit --set 'tokenizer.ggml.tokens[INDEX]=TEXT'`",
    ),
    _odd(
        "token-type",
        "{count} tokens have a type outside 0 to {last}, first token {index} with {type}",
        _ANEW,
    ),
    _odd(
        "token-id-range",
        "{key} is {number}, but the vocabulary has {tokens} tokens",
        "Name the right token with `ggufkit edit --special-token`; llama.cpp ignores this one, "
        "and `ggufkit check --fix` removes it",
    ),
    _note(
        "token-id-type",
        "{key} is {number}: the token {token!r}, whose type is {type}",
        "Users can type this token; if it is the right one, set its type to 3 (control)",
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
        "general.quantization_version is {number}, but ggml's quantized types have version {now}",
        "Current programs decode such blocks wrongly; download a current version of the model",
    ),
    _odd(
        "file-type-value",
        "general.file_type is {number}, and no recipe has that number",
        _FIX,
    ),
    _odd(
        "file-type-mix",
        "general.file_type says {claimed}, but none of the {total} matrices is of type {base}; "
        "most are {most}",
        "`ggufkit check --fix` sets it by the type of most tensors",
    ),
    _odd(
        "file-encoding",
        "the file is called {said}, but general.file_type says {claimed}",
        "`ggufkit name FILE --rename` renames it to what its header says",
    ),
    _note(
        "file-name",
        "the file name {file!r} does not follow the naming convention",
        "Harmless; `ggufkit name FILE` proposes a name that does",
    ),
)

_TEMPLATES: Final = (
    _odd(
        "template-code",
        "{key} contains {found!r}, which is typical of attempts to run code",
        _DISTRUST,
    ),
    _odd("template-unsafe", "the sandbox stopped {key}: {reason}", _DISTRUST),
    _odd("template-limit", "{key} exceeded a limit: {reason}", _DISTRUST),
    _odd("template-syntax", "{key} cannot be parsed: {reason}", _TEMPLATE),
    _odd(
        "template-render",
        "{key} fails on every conversation, first on {conversation}: {reason}",
        _TEMPLATE,
    ),
    _note(
        "template-partial",
        "{key} fails on {conversation}: {reason}",
        "Read the template: programs may need what it does not support",
    ),
    _note(
        "template-silent",
        "{key} leaves out what the user says in {conversation}",
        "Read the template: programs may need what it does not support",
    ),
    _note(
        "template-unrendered",
        "{key} was searched but not rendered: rendering needs jinja2",
        "Run `pip install ggufkit[templates]` and check again",
    ),
)

_LOST: Final = "Such weights spoil every result; quantize or convert the model again"
_DATA: Final = (
    (
        "unfinished",
        "error",
        "",
        (
            "all bytes from {at:,} to the end of the file are zero: {count:,} bytes of tensor data "
            "({percent} %) were never written, and {tensors} tensors are incomplete"
        ),
        "The download did not finish; resume it, or download the file again",
    ),
    _odd("data-nan", "the tensor {name!r} contains NaN, first at element {index}", _LOST),
    _odd(
        "data-infinite", "the tensor {name!r} contains an infinity, first at element {index}", _LOST
    ),
    _odd(
        "data-block",
        "the tensor {name!r} of type {type} has a scale that is NaN or infinite, "
        "first in block {block}",
        _LOST,
    ),
    _odd(
        "data-zero",
        "every element of the tensor {name!r} of shape {shape} is zero",
        "A download or conversion that lost data leaves zeros; compare with the source",
    ),
    _note(
        "data-zero-vector",
        "every element of the vector {name!r} is zero",
        "Usual for a bias",
    ),
)

ROWS: Final = (*_KEYS, *_TENSORS, *_VOCABULARY, *_CLAIMS, *_TEMPLATES, *_DATA)
