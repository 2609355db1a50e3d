"""What can be wrong with a GGUF file: one row per rule, and the findings made from them.

The parser collects findings and does not throw; `open` raises the first error among them as a
typed exception, `check` lists them all. Rules marked `"GGUF"` come from the specification
(ggml's `docs/gguf.md`), those marked `"llama.cpp"` from ggml's own reader (`gguf.cpp`), which
refuses some files that the specification allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Literal

from ggufkit.errors import FormatError, LimitError, NotGGUFError, TruncatedError

Severity = Literal["error", "warning", "note"]
Authority = Literal["GGUF", "llama.cpp", ""]


@dataclass(frozen=True)
class Rule:
    """A rule: stable `id`, `severity`, who asks for it (`breaks`), texts, and its exception.

    `message` and `remedy` are format strings over the details of a finding.
    """

    id: str
    severity: Severity
    breaks: Authority
    message: str
    remedy: str
    error: type[FormatError] = FormatError


@dataclass(frozen=True)
class Finding:
    """One thing found in a file.

    `rule` is the rule's id, `severity` "error", "warning" or "note", `offset` the byte position
    in `path`, `breaks` whose rule it breaks: "GGUF" (the specification), "llama.cpp" (valid GGUF
    that llama.cpp refuses to load) or "" (neither).
    """

    rule: str
    severity: Severity
    offset: int
    message: str
    remedy: str
    breaks: Authority = ""
    path: str = field(default="", compare=False)

    def exception(self) -> FormatError:
        """Return the typed exception that says the same."""
        error = RULES[self.rule].error
        return error(
            self.message, remedy=self.remedy, rule=self.rule, offset=self.offset, path=self.path
        )

    def at(self, path: str) -> Finding:
        """Return the same finding, placed in the file `path`."""
        return replace(self, path=path)


_DOWNLOAD: Final = "Download the file again and compare its size with the publisher's"
_MAKER: Final = "The file is damaged or its writer is broken; get it again or convert it anew"
_REWRITE: Final = "`ggufkit copy IN OUT` writes a file that llama.cpp loads"

_ROWS: Final = (
    # What the file is, when it is not GGUF.
    Rule("empty", "error", "GGUF", "the file is empty", _DOWNLOAD, NotGGUFError),
    Rule(
        "html",
        "error",
        "GGUF",
        "this is an HTML page, not a GGUF file",
        "The download was answered with a web page (a login, an error or a licence to accept); "
        "download the file itself",
        NotGGUFError,
    ),
    Rule(
        "git-lfs-pointer",
        "error",
        "GGUF",
        "this is a Git LFS pointer, not the file it points to{size}",
        "Run `git lfs pull` in the repository, or download the file itself",
        NotGGUFError,
    ),
    Rule(
        "safetensors",
        "error",
        "GGUF",
        "this is a safetensors file, not GGUF",
        "Convert the checkpoint to GGUF first",
        NotGGUFError,
    ),
    Rule(
        "pytorch",
        "error",
        "GGUF",
        "this is a PyTorch checkpoint, not GGUF",
        "Convert the checkpoint to GGUF first",
        NotGGUFError,
    ),
    Rule(
        "pickle",
        "error",
        "GGUF",
        "this is a Python pickle (an old PyTorch checkpoint?), not GGUF",
        "Convert the checkpoint to GGUF first, and do not unpickle a file of a stranger",
        NotGGUFError,
    ),
    Rule(
        "zip",
        "error",
        "GGUF",
        "this is a zip archive, not a GGUF file",
        "Unpack it first",
        NotGGUFError,
    ),
    Rule(
        "compressed",
        "error",
        "GGUF",
        "this is {what} data, not a GGUF file",
        "Decompress it first",
        NotGGUFError,
    ),
    Rule(
        "legacy-ggml",
        "error",
        "GGUF",
        "this is a legacy {what} file, from before GGUF",
        "Get the model as GGUF, or convert its original checkpoint",
        NotGGUFError,
    ),
    Rule(
        "zeros",
        "error",
        "GGUF",
        "the file begins with zeros: it was allocated but never written",
        "The download did not finish; " + _DOWNLOAD.lower(),
        NotGGUFError,
    ),
    Rule(
        "magic",
        "error",
        "GGUF",
        "the file begins with {found}, not with the magic bytes 'GGUF'",
        "This is not a GGUF file; get the right file",
        NotGGUFError,
    ),
    # The header, found by the native scanner (details a and b).
    Rule(
        "version",
        "error",
        "GGUF",
        "the version is {a}, but versions 1, 2 and 3 exist",
        "If this is a newer version, update ggufkit; else " + _MAKER.lower(),
    ),
    Rule(
        "header-truncated",
        "error",
        "GGUF",
        "the file ends inside its header: {a} bytes are needed here and {b} are left",
        _DOWNLOAD,
        TruncatedError,
    ),
    Rule(
        "count",
        "error",
        "GGUF",
        "the header announces {a} entries, more than the {b} bytes that follow can hold",
        _MAKER,
    ),
    Rule(
        "key-length",
        "error",
        "GGUF",
        "a key of {a} bytes is announced where {b} bytes are left",
        _MAKER,
    ),
    Rule(
        "name-length",
        "error",
        "GGUF",
        "a tensor name of {a} bytes is announced where {b} bytes are left",
        _MAKER,
    ),
    Rule(
        "string-length",
        "error",
        "GGUF",
        "a string of {a} bytes is announced where {b} bytes are left",
        _MAKER,
    ),
    Rule(
        "value-type", "error", "GGUF", "value type {a} does not exist (0 to 12 do)", _MAKER
    ),
    Rule(
        "element-type", "error", "GGUF", "array element type {a} does not exist (0 to 12 do)", _MAKER
    ),
    Rule(
        "array-count",
        "error",
        "GGUF",
        "an array of {a} elements is announced where {b} bytes are left",
        _MAKER,
    ),
    Rule(
        "array-depth",
        "error",
        "GGUF",
        "arrays are nested deeper than {a} levels",
        "No real model does this; do not trust the file",
        LimitError,
    ),
    Rule(
        "dims-count",
        "error",
        "GGUF",
        "a tensor of {a} dimensions is announced, beyond the limit of {b}",
        _MAKER,
        LimitError,
    ),
    Rule("bool-value", "error", "GGUF", "a bool holds {a}, but only 0 and 1 are valid", _MAKER),
    # Keys and values.
    Rule("key-empty", "error", "GGUF", "a key is empty", _MAKER),
    Rule("key-duplicate", "error", "GGUF", "the key {key!r} stands twice", _MAKER),
    Rule("key-utf8", "error", "GGUF", "the key {key!r} is not valid UTF-8", _MAKER),
    Rule(
        "key-size",
        "error",
        "GGUF",
        "a key has {size} bytes, more than the {limit} that the format allows",
        _MAKER,
        LimitError,
    ),
    Rule("key-nul", "error", "GGUF", "the key {key!r} holds a NUL character", _MAKER),
    Rule(
        "key-form",
        "note",
        "GGUF",
        "the key {key!r} is not of the form lower_snake_case.lower_snake_case",
        "Harmless to readers; name the key by the convention if you made it",
    ),
    Rule(
        "string-utf8",
        "warning",
        "GGUF",
        "{where} is not valid UTF-8",
        "ggufkit keeps the bytes as they are; other tools may fail on them",
    ),
    Rule(
        "alignment-type",
        "error",
        "GGUF",
        "general.alignment is of type {type}, not uint32",
        _MAKER,
    ),
    Rule(
        "alignment-value",
        "error",
        "GGUF",
        "general.alignment is {alignment}, not a power of two from 8 on",
        _MAKER,
    ),
    # Tensor infos.
    Rule("name-empty", "error", "GGUF", "a tensor has an empty name", _MAKER),
    Rule("name-duplicate", "error", "GGUF", "the tensor name {name!r} stands twice", _MAKER),
    Rule("name-utf8", "error", "GGUF", "the tensor name {name!r} is not valid UTF-8", _MAKER),
    Rule("name-nul", "error", "GGUF", "the tensor name {name!r} holds a NUL character", _MAKER),
    Rule(
        "name-size",
        "error",
        "GGUF",
        "the tensor name {name!r} has {size} bytes, more than the {limit} that the format allows",
        _MAKER,
        LimitError,
    ),
    Rule(
        "shape-overflow",
        "error",
        "GGUF",
        "the tensor {name!r} of shape {shape} has more bytes than 63 bits can count",
        _MAKER,
        LimitError,
    ),
    Rule(
        "row-width",
        "error",
        "GGUF",
        "the rows of tensor {name!r} have {width} elements, "
        "not a multiple of the {block} in a block of {type}",
        _MAKER,
    ),
    Rule(
        "type-unknown",
        "warning",
        "llama.cpp",
        "the tensor {name!r} has the type {type}, which this version does not know",
        "Its bytes can be copied but not decoded; if the type is new, update ggufkit",
    ),
    Rule(
        "type-removed",
        "warning",
        "llama.cpp",
        "the tensor {name!r} has the type {type}, which was removed from ggml",
        "Its bytes can be copied but not decoded; get a current version of the model",
    ),
    Rule(
        "offset-alignment",
        "error",
        "GGUF",
        "the tensor {name!r} begins at {start} in the data, not a multiple of {alignment}",
        _MAKER,
    ),
    Rule(
        "data-truncated",
        "error",
        "GGUF",
        "the file is cut short: it has {size} bytes, its tensors need {needed}; {missing} bytes "
        "({percent}) are missing, and {count} of {total} tensors are not whole, first {name!r}",
        "The download or copy did not finish; resume it or get the file again",
        TruncatedError,
    ),
    Rule(
        "tensor-beyond-end",
        "error",
        "GGUF",
        "the tensor {name!r} is said to begin {start} bytes into the data, far beyond the end",
        _MAKER,
    ),
    Rule(
        "tensor-overlap",
        "error",
        "GGUF",
        "the tensors {name!r} and {other!r} overlap in the data",
        _MAKER,
    ),
    # Valid GGUF that llama.cpp refuses.
    Rule("version-1", "warning", "llama.cpp", "llama.cpp no longer loads version 1", _REWRITE),
    Rule(
        "big-endian",
        "warning",
        "llama.cpp",
        "the file is big endian; llama.cpp on a little-endian machine refuses it",
        "`ggufkit copy IN OUT --endian little` converts it",
    ),
    Rule(
        "version-byte-order",
        "note",
        "GGUF",
        "a big-endian file of version {version}: big endian came with version 3",
        "`ggufkit copy IN OUT --version 3` writes it as the specification has it",
    ),
    Rule(
        "array-nested",
        "warning",
        "llama.cpp",
        "the value of {key!r} is an array of arrays, which llama.cpp refuses",
        "Remove the key for llama.cpp",
    ),
    Rule(
        "array-long",
        "warning",
        "llama.cpp",
        "the value of {key!r} is longer than the {limit} entries that ggml reads",
        "No real model needs this; do not trust the file",
    ),
    Rule(
        "name-size-ggml",
        "warning",
        "llama.cpp",
        "the tensor name {name!r} has {size} bytes; ggml reads at most {limit}",
        "Rename the tensor for llama.cpp",
    ),
    Rule(
        "dims-ggml",
        "warning",
        "llama.cpp",
        "the tensor {name!r} has {dims} dimensions; ggml knows at most {limit}",
        "Reshape the tensor for llama.cpp",
    ),
    Rule(
        "tensor-order",
        "warning",
        "llama.cpp",
        "the tensor {name!r} begins at {start} in the data, but llama.cpp insists on {expected}: "
        "no gaps, and in the order of the tensor infos",
        _REWRITE,
    ),
    # Untidy, and harmless.
    Rule(
        "quantization-version",
        "warning",
        "GGUF",
        "tensors are quantized but general.quantization_version is missing",
        "`ggufkit quantize` writes it; readers take version 2",
    ),
    Rule(
        "padding",
        "note",
        "GGUF",
        "padding that should be zero is not",
        "Harmless; `ggufkit copy IN OUT` writes zeros",
    ),
    Rule(
        "trailing-bytes",
        "note",
        "",
        "{count} bytes follow the last tensor",
        "Harmless; `ggufkit copy IN OUT` leaves them out",
    ),
    Rule(
        "end-padding",
        "note",
        "",
        "the padding after the last tensor is missing",
        "Harmless; `ggufkit copy IN OUT` writes it",
    ),
    Rule(
        "tensor-empty",
        "note",
        "",
        "the tensor {name!r} of shape {shape} has no elements",
        "Harmless here; some programs divide by such a dimension",
    ),
    # Shard sets.
    Rule("shard-missing", "error", "GGUF", "{detail}", "Get the missing shard"),
    Rule(
        "shard-mismatch",
        "error",
        "GGUF",
        "{detail}",
        "Get all shards of one set; do not rename them",
    ),
    Rule(
        "shard-name",
        "warning",
        "llama.cpp",
        "split.count is {count}, but the name {name!r} is not of the form "
        "PREFIX-00001-of-0000N.gguf, so the other shards cannot be found",
        "Give the file its original name",
    ),
    Rule("unreadable", "error", "", "{detail}", "Check the path and its permissions"),
)

RULES: Final = {rule.id: rule for rule in _ROWS}


def finding(rule: str, offset: int, **details: object) -> Finding:
    """Make the finding of `rule` at byte `offset`, its texts filled with `details`."""
    row = RULES[rule]
    return Finding(
        rule, row.severity, offset, row.message.format(**details), row.remedy, row.breaks
    )


def first_error(findings: list[Finding]) -> Finding | None:
    """Return the first finding that `open` would raise, if any."""
    return next((found for found in findings if found.severity == "error"), None)
