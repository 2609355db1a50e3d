"""What can be wrong with a GGUF file: one row per rule.

Rules that break "GGUF" come from the specification (ggml's `docs/gguf.md`), those that break
"llama.cpp" from its reader and loader (`gguf.cpp`, `llama-model-loader.cpp`), which refuse some
files that the specification allows. All texts are here: what is wrong, then what to do. The rows
about a file's content are in `content_rules.py`.
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
_BROKEN: Final = (
    "The file is damaged or its writer is broken; "
    "download it again, or convert the checkpoint again"
)
_LOOK: Final = "; `ggufkit inspect --partial` shows what is there"
_CUT: Final = "The file is cut short or damaged; compare its size with the publisher's" + _LOOK
_REWRITE: Final = "`ggufkit copy IN OUT` writes a file that llama.cpp loads"
_CONVERT: Final = "Convert the checkpoint to GGUF first"
_ALL_SHARDS: Final = "Download all shards of one set, and keep their original names"


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
        "The server answered with a login, an error or a licence page; "
        "open the address in a browser, and download the file itself",
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
        _CONVERT + ", and do not unpickle a file that you do not trust",
    ),
    _foreign("zip", "this is a zip archive, not a GGUF file", "Unpack it first"),
    _foreign("compressed", "this is {what} data, not a GGUF file", "Decompress it first"),
    _foreign(
        "legacy-ggml",
        "this is a {what} file, a format older than GGUF",
        "Get the model as GGUF, or use `ggufkit convert-legacy` if it is of the LLaMA family",
    ),
    _foreign(
        "text",
        "this is text that begins with {found!r}, not a GGUF file",
        "The server probably answered with an error message; " + _DOWNLOAD.lower(),
    ),
    _foreign(
        "zeros",
        "the file begins with zeros: its space was reserved, but its data was never written",
        "The download did not finish; " + _DOWNLOAD.lower(),
    ),
    _foreign(
        "magic",
        "the file begins with {found!r}, not with the magic bytes b'GGUF'",
        "Check the path; if it is right, download or convert the model again",
    ),
)

# Found by the native scanner, whose details are `a` and `b`.
_SCANNED: Final = (
    _wrong(
        "version",
        "the version is {a}, but only versions 1, 2 and 3 exist",
        "If this is a newer version, update ggufkit; otherwise download the file again",
    ),
    _cut(
        "header-truncated",
        "the file ends inside its header: {a} bytes are needed here and {b} are left",
        _DOWNLOAD + _LOOK,
    ),
    _cut("count", "the header announces {a} entries, more than fit into the {b} bytes that follow"),
    _cut("key-length", "the header announces a key of {a} bytes, but only {b} bytes are left"),
    _cut(
        "name-length",
        "the header announces a tensor name of {a} bytes, but only {b} bytes are left",
    ),
    _cut(
        "string-length", "the header announces a string of {a} bytes, but only {b} bytes are left"
    ),
    _cut(
        "array-count", "the header announces an array of {a} elements, but only {b} bytes are left"
    ),
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
        "the header announces a tensor of {a} dimensions; the limit is {b}",
        error=LimitError,
    ),
    _wrong("bool-value", "a bool holds {a}, but only 0 and 1 are valid"),
)

_METADATA: Final = (
    _wrong("key-empty", "a key is empty"),
    _wrong("key-duplicate", "the key {key!r} appears twice"),
    _wrong("key-utf8", "the key {key!r} is not valid UTF-8"),
    _wrong("key-nul", "the key {key!r} contains a NUL character"),
    _wrong(
        "key-size",
        "the key {key!r} has {size} bytes; the format allows at most {limit}",
        error=LimitError,
    ),
    _note(
        "key-form",
        "the key {key!r} is not of the form lower_snake_case.lower_snake_case",
        "Harmless to readers; if you chose the key, rename it to follow the convention",
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
    _wrong(
        "alignment-value", "general.alignment is {number}, not a power of two that is 8 or larger"
    ),
    _wrong(
        "split-value",
        "{key} is {value}, not a whole number that is 0 or larger",
        _ALL_SHARDS,
        ShardError,
    ),
    _refused(
        "split-type",
        "{key} is of type {type}; llama.cpp requires {wanted}",
        "`ggufkit copy IN OUT --shard-size SIZE` writes a correct set",
    ),
    _refused(
        "array-nested",
        "the value of {key!r} is an array of arrays, and llama.cpp refuses those",
        "Remove the key if llama.cpp must load the file",
    ),
    _refused(
        "value-long",
        "the value of {key!r} contains an array or string that is too long; ggml reads {limit} at "
        "most",
        "No real model needs this; do not trust the file",
    ),
    Rule(
        "quantization-version",
        "warning",
        "GGUF",
        "tensors are quantized, but general.quantization_version is missing",
        "Readers assume the current version, 2; `ggufkit check --fix` sets the key",
    ),
)

_TENSORS: Final = (
    _wrong("name-empty", "a tensor has an empty name"),
    _wrong("name-duplicate", "the tensor name {name!r} appears twice"),
    _wrong("name-utf8", "the tensor name {name!r} is not valid UTF-8"),
    _wrong("name-nul", "the tensor name {name!r} contains a NUL character"),
    _wrong(
        "name-size",
        "the tensor name {name!r} has {size} bytes; the format allows at most {limit}",
        error=LimitError,
    ),
    _wrong(
        "shape-overflow",
        "the tensor {name!r} of shape {shape} is too large: its size in bytes overflows 64 bits",
        error=LimitError,
    ),
    _wrong(
        "row-width",
        "the rows of tensor {name!r} have {width} elements, "
        "not a multiple of {block}, the block size of {type}",
    ),
    _wrong(
        "offset-alignment",
        "the tensor {name!r} starts at {start} in the data, not at a multiple of {alignment}",
    ),
    _cut(
        "data-truncated",
        "the file is cut short: it has {size} bytes, its tensors need {needed}; {missing} bytes "
        "({percent:.1f} %) are missing, and {count} of {total} tensors are incomplete, "
        "first {name!r}",
        "The download or copy did not finish; resume it, or download the file again" + _LOOK,
    ),
    _cut(
        "tensor-beyond-end",
        "the header places the tensor {name!r} at bytes {start} to {stop}; the file has {nbytes}",
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
        "Its bytes can be copied but not decoded; download a current version of the model",
    ),
    _refused(
        "name-size-ggml",
        "the tensor name {name!r} has {size} bytes; ggml reads at most {limit}",
        "Rename the tensor with `ggufkit select --rename` if llama.cpp must load the file",
    ),
    _refused(
        "dims-ggml",
        "the tensor {name!r} has {dims} dimensions; ggml knows at most {limit}",
        "Convert the checkpoint again; llama.cpp cannot load such a tensor",
    ),
    _refused(
        "tensor-order",
        "the tensor {name!r} starts at {start} in the data, but llama.cpp requires {expected}: "
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
        "the file is big endian and of version {version}, but only version 3 allows big endian",
        "`ggufkit copy IN OUT --version 3` writes a file that follows the specification",
        "GGUF",
    ),
    _note(
        "padding",
        "the padding between tensors contains bytes other than zero",
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
        "Harmless to llama.cpp; some other readers need it, and `ggufkit copy IN OUT` writes it",
    ),
    _wrong(
        "shard-missing",
        "{count} of the {total} shards are not in the folder {folder}: {names}",
        "Download the missing files into that folder, under these names",
        error=ShardError,
    ),
    _wrong(
        "shard-number",
        "{file!r} says that it is shard {number} of {count}, but its file name says {place} of "
        "{total}",
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
        "the tensor {name!r} is both in {file!r} and in {other!r}",
        _ALL_SHARDS,
        ShardError,
    ),
    _wrong(
        "shard-total",
        "the set should have {expected} tensors, but its shards have {count}",
        _ALL_SHARDS,
        ShardError,
    ),
    _wrong(
        "shard-name",
        "{file!r} is one of {count} shards, but its name is not of the form "
        "PREFIX-00001-of-{count:05d}.gguf, so the others cannot be found",
        "Give it its published name, and put the other shards into the same folder",
        ShardError,
    ),
    Rule("unreadable", "error", "", "{reason}", "Check the path and its permissions"),
    _note(
        "omitted",
        "{count} more findings of the rule {of} are not listed",
        "Repair the listed ones first, then check again",
    ),
)

_ALL: Final = (*_FOREIGN, *_SCANNED, *_METADATA, *_TENSORS, *_FILES)
STRUCTURE: Final = {rule.id: rule for rule in _ALL}
RULES: Final = STRUCTURE | {row[0]: Rule(*row) for row in content_rules.ROWS}
