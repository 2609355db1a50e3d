"""What can be wrong with a GGUF file: one row per rule.

Rules that break "GGUF" come from the specification (ggml's `docs/gguf.md`), those that break
"llama.cpp" from its reader and loader (`gguf.cpp`, `llama-model-loader.cpp`), which refuse some
files that the specification allows. Texts stand here and nowhere else: what is wrong, then what
to do. The rows about what a file means stand in `meanings`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ggufkit.errors import FormatError, LimitError, NotGGUFError, ShardError, TruncatedError
from ggufkit.rules import content_rules

Severity = Literal["error", "warning", "note"]
Authority = Literal["GGUF", "llama.cpp", ""]


@dataclass(frozen=True)
class Rule:
    """A rule: stable `id`, `severity`, who asks for it (`breaks`), texts, and its exception.

    `message` is a format string over the details of a finding.
    """

    id: str
    severity: Severity
    breaks: Authority
    message: str
    remedy: str
    error: type[FormatError] = FormatError


_DOWNLOAD: Final = "Download the file again and compare its size with the publisher's"
_BROKEN: Final = "The file is damaged or its writer is broken; get it again or convert it anew"
_CUT: Final = "The file is cut short or damaged; compare its size with the publisher's"
_REWRITE: Final = "`ggufkit copy IN OUT` writes a file that llama.cpp loads"
_CONVERT: Final = "Convert the checkpoint to GGUF first"
_ALL_SHARDS: Final = "Get all shards of one set, under their original names"


def _foreign(id: str, message: str, remedy: str) -> Rule:
    """A rule for a file that is not GGUF at all."""
    return Rule(id, "error", "GGUF", message, remedy, NotGGUFError)


def _wrong(
    id: str, message: str, remedy: str = _BROKEN, error: type[FormatError] = FormatError
) -> Rule:
    """A rule of the specification."""
    return Rule(id, "error", "GGUF", message, remedy, error)


def _cut(id: str, message: str, remedy: str = _CUT) -> Rule:
    """A rule about a file that ends before what it announces."""
    return Rule(id, "error", "GGUF", message, remedy, TruncatedError)


def _refused(id: str, message: str, remedy: str) -> Rule:
    """A rule about valid GGUF that llama.cpp refuses to load."""
    return Rule(id, "warning", "llama.cpp", message, remedy)


def _note(id: str, message: str, remedy: str, breaks: Authority = "") -> Rule:
    """A rule about something odd and harmless."""
    return Rule(id, "note", breaks, message, remedy)


_FOREIGN: Final = (
    _foreign("empty", "the file is empty", _DOWNLOAD),
    _foreign(
        "html",
        "this is a web page (HTML or XML), not a GGUF file",
        "The download was answered with a login, an error or a licence to accept; "
        "open its address in a browser, and download the file itself",
    ),
    _foreign(
        "git-lfs-pointer",
        "this is a Git LFS pointer, not the file that it points to ({size})",
        "Run `git lfs pull` in the repository, or download the file itself",
    ),
    _foreign("safetensors", "this is a safetensors file, not GGUF", _CONVERT),
    _foreign("pytorch", "this is a PyTorch checkpoint, not GGUF", _CONVERT),
    _foreign(
        "pickle",
        "this is a Python pickle (an old PyTorch checkpoint?), not GGUF",
        _CONVERT + ", and do not unpickle a stranger's file",
    ),
    _foreign("zip", "this is a zip archive, not a GGUF file", "Unpack it first"),
    _foreign("compressed", "this is {what} data, not a GGUF file", "Decompress it first"),
    _foreign(
        "legacy-ggml",
        "this is a {what} file, from before GGUF",
        "Get the model as GGUF, or use `ggufkit convert-legacy` if it is of the LLaMA family",
    ),
    _foreign(
        "text",
        "this is text that begins with {found!r}, not a GGUF file",
        "The download was probably answered with an error message; " + _DOWNLOAD.lower(),
    ),
    _foreign(
        "zeros",
        "the file begins with zeros: room was made for it, but it was never written",
        "The download did not finish; " + _DOWNLOAD.lower(),
    ),
    _foreign(
        "magic",
        "the file begins with {found!r}, not with the magic bytes b'GGUF'",
        "This is not a GGUF file; get the right file",
    ),
)

# Found by the native scanner, whose details are `a` and `b`.
_SCANNED: Final = (
    _wrong(
        "version",
        "the version is {a}, but versions 1, 2 and 3 exist",
        "If this is a newer version, update ggufkit; else get the file again",
    ),
    _cut(
        "header-truncated",
        "the file ends inside its header: {a} bytes are needed here and {b} are left",
        _DOWNLOAD,
    ),
    _cut("count", "{a} entries are announced, more than the {b} bytes that follow can hold"),
    _cut("key-length", "a key of {a} bytes is announced where {b} bytes are left"),
    _cut("name-length", "a tensor name of {a} bytes is announced where {b} bytes are left"),
    _cut("string-length", "a string of {a} bytes is announced where {b} bytes are left"),
    _cut("array-count", "an array of {a} elements is announced where {b} bytes are left"),
    _wrong("value-type", "value type {a} does not exist, only 0 to 12 do"),
    _wrong("element-type", "array element type {a} does not exist, only 0 to 12 do"),
    _wrong(
        "array-depth",
        "arrays are nested deeper than {a} levels",
        "No real model does this; do not trust the file",
        LimitError,
    ),
    _wrong(
        "dims-count",
        "a tensor of {a} dimensions is announced, beyond the limit of {b}",
        error=LimitError,
    ),
    _wrong("bool-value", "a bool holds {a}, but only 0 and 1 are valid"),
)

_METADATA: Final = (
    _wrong("key-empty", "a key is empty"),
    _wrong("key-duplicate", "the key {key!r} stands twice"),
    _wrong("key-utf8", "the key {key!r} is not valid UTF-8"),
    _wrong("key-nul", "the key {key!r} holds a NUL character"),
    _wrong(
        "key-size",
        "the key {key!r} has {size} bytes, more than the {limit} that the format allows",
        error=LimitError,
    ),
    _note(
        "key-form",
        "the key {key!r} is not of the form lower_snake_case.lower_snake_case",
        "Harmless to readers; name the key by the convention if you made it",
        "GGUF",
    ),
    Rule(
        "string-utf8",
        "warning",
        "GGUF",
        "{where} {key!r} is not valid UTF-8",
        "The bytes are kept as they are; other tools may fail on them",
    ),
    _wrong("alignment-type", "general.alignment is of type {type}, not uint32"),
    _wrong("alignment-value", "general.alignment is {number}, not a power of two from 8 on"),
    _wrong(
        "split-value",
        "{key} is {value}, and not a whole number from 0 on",
        _ALL_SHARDS,
        ShardError,
    ),
    _refused(
        "split-type",
        "{key} is of type {type}; llama.cpp insists on {wanted}",
        "`ggufkit copy IN OUT --shard-size SIZE` writes the set anew",
    ),
    _refused(
        "array-nested",
        "the value of {key!r} is an array of arrays, which llama.cpp refuses",
        "Remove the key for llama.cpp",
    ),
    _refused(
        "value-long",
        "the value of {key!r} holds an array or string longer than the {limit} that ggml reads",
        "No real model needs this; do not trust the file",
    ),
    Rule(
        "quantization-version",
        "warning",
        "GGUF",
        "tensors are quantized, but general.quantization_version is missing",
        "Readers take the current version, 2; set the key when the file is written again",
    ),
)

_TENSORS: Final = (
    _wrong("name-empty", "a tensor has an empty name"),
    _wrong("name-duplicate", "the tensor name {name!r} stands twice"),
    _wrong("name-utf8", "the tensor name {name!r} is not valid UTF-8"),
    _wrong("name-nul", "the tensor name {name!r} holds a NUL character"),
    _wrong(
        "name-size",
        "the tensor name {name!r} has {size} bytes, more than the {limit} that the format allows",
        error=LimitError,
    ),
    _wrong(
        "shape-overflow",
        "the tensor {name!r} of shape {shape} has more elements than can be counted in bytes",
        error=LimitError,
    ),
    _wrong(
        "row-width",
        "the rows of tensor {name!r} have {width} elements, "
        "not a multiple of the {block} in a block of {type}",
    ),
    _wrong(
        "offset-alignment",
        "the tensor {name!r} begins at {start} in the data, not at a multiple of {alignment}",
    ),
    _cut(
        "data-truncated",
        "the file is cut short: it has {size} bytes, its tensors need {needed}; {missing} bytes "
        "({percent:.1f} %) are missing, and {count} of {total} tensors are not whole, "
        "first {name!r}",
        "The download or copy did not finish; resume it or get the file again",
    ),
    _cut(
        "tensor-beyond-end",
        "the tensor {name!r} is said to lie from byte {start} to {stop}; the file has {nbytes}",
        _BROKEN,
    ),
    _wrong("tensor-overlap", "the tensors {name!r} and {other!r} overlap in the data"),
    _refused(
        "type-unknown",
        "the tensor {name!r} has type {id}, which this version does not know",
        "Its bytes can be copied but not decoded; if the type is new, update ggufkit",
    ),
    _refused(
        "type-removed",
        "the tensor {name!r} has type {id} ({type}), which was removed from ggml",
        "Its bytes can be copied but not decoded; get a current version of the model",
    ),
    _refused(
        "name-size-ggml",
        "the tensor name {name!r} has {size} bytes; ggml reads at most {limit}",
        "Rename the tensor for llama.cpp",
    ),
    _refused(
        "dims-ggml",
        "the tensor {name!r} has {dims} dimensions; ggml knows at most {limit}",
        "Reshape the tensor for llama.cpp",
    ),
    _refused(
        "tensor-order",
        "the tensor {name!r} begins at {start} in the data, but llama.cpp insists on {expected}: "
        "no gaps, and the order of the tensor infos",
        _REWRITE,
    ),
    _note(
        "tensor-empty",
        "the tensor {name!r} of shape {shape} has no elements",
        "Harmless here; some programs divide by such a dimension",
    ),
)

_FILES: Final = (
    _refused("version-1", "llama.cpp no longer loads version 1", _REWRITE),
    _refused(
        "big-endian",
        "the file is big endian; llama.cpp on a little-endian machine refuses it",
        "`ggufkit copy IN OUT --endian little` converts it",
    ),
    _note(
        "version-byte-order",
        "a big-endian file of version {version}, but big endian came with version 3",
        "`ggufkit copy IN OUT --version 3` writes it as the specification has it",
        "GGUF",
    ),
    _note(
        "padding",
        "padding that should be zero is not",
        "Harmless; `ggufkit copy IN OUT` writes zeros",
        "GGUF",
    ),
    _note(
        "trailing-bytes",
        "{count} bytes follow the last tensor",
        "Harmless; `ggufkit copy IN OUT` leaves them out",
    ),
    _note(
        "end-padding",
        "the padding after the last tensor is missing",
        "Harmless to llama.cpp's model loader, though not to every reader",
    ),
    _wrong("shard-missing", "{count} of {total} shards are missing: {names}", error=ShardError),
    _wrong(
        "shard-number",
        "{file!r} says that it is shard {number} of {count}, but stands as {place} of {total}",
        _ALL_SHARDS,
        ShardError,
    ),
    _wrong(
        "shard-byte-order",
        "{file!r} is {byte_order} endian, unlike the first shard",
        _ALL_SHARDS,
        ShardError,
    ),
    _wrong(
        "shard-tensor",
        "the tensor {name!r} stands in {file!r} and in {other!r}",
        _ALL_SHARDS,
        ShardError,
    ),
    _wrong(
        "shard-total",
        "the set should hold {expected} tensors, but its shards hold {count}",
        _ALL_SHARDS,
        ShardError,
    ),
    _wrong(
        "shard-name",
        "{file!r} is one of {count} shards, but its name is not of the form "
        "PREFIX-00001-of-{count:05d}.gguf, so the others cannot be found",
        "Give it the name that it was published under, and put the other shards beside it",
        ShardError,
    ),
    Rule("unreadable", "error", "", "{reason}", "Check the path and its permissions"),
    _note(
        "omitted",
        "{count} more findings of the rule {of} are not listed",
        "Repair the others first",
    ),
)

_ALL: Final = (*_FOREIGN, *_SCANNED, *_METADATA, *_TENSORS, *_FILES)
STRUCTURE: Final = {rule.id: rule for rule in _ALL}
RULES: Final = STRUCTURE | {row[0]: Rule(*row) for row in content_rules.ROWS}
