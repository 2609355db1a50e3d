"""File names by GGUF's naming convention, and the parts of model names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

# The convention's own expression, unrolled: no name takes exponential time. Base names and
# fine-tunes may have the dots that llama.cpp's own names have ("Llama-3.2").
_CONVENTION: Final = (
    r"(?a)(?:(?P<sidecar>mmproj|mtp)-)?"
    r"(?P<basename>[A-Za-z0-9\s.]*(?:-(?:[A-Za-z\s.][A-Za-z0-9\s.]*|[0-9][0-9\s.]*)?)*)-"
    r"(?:(?P<size_label>(?:\d+x)?(?:\d+\.)?\d+[A-Za-z](?:-[A-Za-z]+(?:\d+\.)?\d+[A-Za-z]+)?)"
    r"(?:-(?P<finetune>[A-Za-z0-9\s.-]+))?)?"
    r"-(?P<version>v\d+(?:\.\d+)*)"
    r"(?:-(?P<encoding>(?!LoRA|vocab)\w+))?"
    r"(?:-(?P<type>LoRA|vocab))?"
    r"(?:-(?P<shard>\d{5}-of-\d{5}))?\.gguf"
)
_SHARD: Final = r"(?as)(.*)-(\d{5})-of-(\d{5})"
_TYPE: Final = r"(?is)(.+)[-.](LoRA|vocab)"
_SIDECAR: Final = r"(?is)(mmproj|mtp)(?:-model)?[-_.](.+)"
_SIDECAR_BEHIND: Final = r"(?is)(.+)[-_.](mmproj)"
_ENCODING: Final = (
    r"(?is)(.*?)(?:^|[-._])(?:i1-)?"
    r"((?:UD-)?(?:I?Q\d+(?:_\w+)?|TQ\d_\w+|(?:MX|NV)FP\d\w*|BF16|FP?(?:16|32|64)))"
)
_TYPES: Final = {"lora": "LoRA", "vocab": "vocab"}

_VERSION_PART: Final = r"(?i)(v|iter)?\d+([.]\d+)*"
_TYPE_PART: Final = r"(?i)i?q\d(_\w)*|b?fp?(16|32)"
_SIZE_PART: Final = r"(?i)(([A]|\d+[x])?\d+([._]\d+)?[KMBT][\d]?|small|mini|medium|large|x?xl)"
_TUNE_PART: Final = r"(?i)chat|instruct|vision|lora"
_NO_TITLE: Final = r"(v\d+(?:\.\d+)*|\d.*)$"
_NUMBERED_SIZE: Final = r"(?:(\d+)x)?(\d+(?:\.\d+)?)([KMBT])"
_MARK: Final = "UD-"  # precedes encodings whose types were chosen by hand
_NUMBER: Final = r"(?a)\d+(\.\d+)*"
NO_BASENAME: Final = "ggml-model"  # llama.cpp's name of a model without one
# What each part of a conventional name must look like, in words and for `re`; in their order.
PART_FORMS: Final = {
    "sidecar": ("mmproj or mtp", r"(mmproj|mtp)?"),
    "basename": ("letters, digits, dots and dashes", r"[A-Za-z0-9\s./-]+"),
    "size_label": (
        "a size such as 8B, 8x7B or 3.8B-ContextLength4k",
        r"(?a)((\d+x)?(\d+\.)?\d+[A-Za-z](-[A-Za-z]+(\d+\.)?\d+[A-Za-z]+)?)?",
    ),
    "finetune": ("letters, digits, dots and dashes", r"[A-Za-z0-9\s./-]*"),
    "version": ("a version such as v1.0", r"(?a)v?\d+(\.\d+)*"),
    "encoding": ("a recipe or tensor type such as Q4_K_M", r"(?a)\w*"),
    "type": ("LoRA or vocab", r"(LoRA|vocab)?"),
}
_SCALES: Final = ((1e12, 1e-12, "T"), (1e9, 1e-9, "B"), (1e6, 1e-6, "M"), (-1, 1e-3, "K"))

Role = Literal["version", "type", "size_label", "finetune"]


@dataclass(frozen=True)
class FileName:
    """The parts of a file's name; a missing part is empty (`shard`: None).

    `conventional` tells whether the name follows the convention to the letter, version included.
    """

    basename: str
    size_label: str = ""
    finetune: str = ""
    version: str = ""
    encoding: str = ""
    type: str = ""
    sidecar: str = ""
    shard: tuple[int, int] | None = None
    conventional: bool = False


@dataclass(frozen=True)
class ModelId:
    """The parts of a model's name; None for a missing part."""

    name: str | None = None
    organization: str | None = None
    basename: str | None = None
    finetune: str | None = None
    version: str | None = None
    size_label: str | None = None


def parse_name(file_name: str, parameters: int = 0) -> FileName:
    """Return the parts of a GGUF file's name: by the convention, else by common usage.

    Names in the wild leave parts out ("Qwen2.5-7B-Instruct-Q4_K_M.gguf"), write the encoding
    in lower case or after a dot ("phi-2.q4_k_m.gguf") or mark it ("UD-Q4_K_XL", "i1-Q4_K_M"). No
    name is refused: whatever remains is the base name. `parameters` is the number of
    the model's parameters, 0 where unknown.
    """
    match = re.fullmatch(_CONVENTION, file_name)
    if not match:
        return _wild_name(file_name, parameters)
    parts = {key: text or "" for key, text in match.groupdict().items()}
    shard = parts.pop("shard")
    return FileName(
        **parts, shard=(int(shard[:5]), int(shard[-5:])) if shard else None, conventional=True
    )


def as_written(parts: FileName) -> FileName:
    """Return the parts as their file name has them; a version that is only a number gets a "v"."""
    written = _plainly(parts)
    is_bare = re.fullmatch(_NUMBER, written.version)
    return replace(written, version=f"v{written.version}") if is_bare else written


def _plainly(parts: FileName) -> FileName:
    """Return the parts with dashes for spaces and slashes, and the encoding in capitals."""
    texts: dict[str, Any] = {part: _dashed(getattr(parts, part)) for part in PART_FORMS}
    basename, encoding = texts.pop("basename") or NO_BASENAME, texts.pop("encoding").upper()
    return replace(parts, basename=basename, encoding=encoding, **texts)


def wrong_part(part: str, text: str) -> str:
    """Return what a part of a conventional name looks like; nothing if `text` is one."""
    expected, form = PART_FORMS[part]
    return "" if re.fullmatch(form, text) else expected


def build_name(parts: FileName) -> str:
    """Return the file name that the convention gives to `parts`.

    Spaces and slashes become dashes and the encoding is written in capitals.
    """
    parts = _plainly(parts)
    shard = f"{parts.shard[0]:05}-of-{parts.shard[1]:05}" if parts.shard else ""
    texts = (*(getattr(parts, part) for part in PART_FORMS), shard)
    return "-".join(filter(None, texts)) + ".gguf"


def plain_encoding(encoding: str) -> str:
    """Return an encoding without its prefix, which the convention does not have."""
    return encoding[len(_MARK) :] if encoding.upper().startswith(_MARK) else encoding


def parse_spoken(name: str, parameters: int = 0) -> ModelId:
    """Return what a model's name says, as `parse_model_id` does, with the largest size as its size.

    A much smaller size ("128K" after "7B") is the length of a context.
    """
    sizes = re.findall(_NUMBERED_SIZE, parse_model_id(name).size_label or "")
    counts = (
        int(count or 1) * float(size) * 1000 ** " KMBT".find(unit) for count, size, unit in sizes
    )
    return parse_model_id(name, max(parameters, *map(int, counts), 0))


def parse_model_id(model_id: str, parameters: int = 0) -> ModelId:
    """Return what `model_id` ("organization/name" or a name) says, as llama.cpp's converter does.

    `parameters` is the number of the model's parameters, 0 where unknown and negative for an
    adapter. A size far from it is taken for the length of a context.
    """
    if " " in model_id:
        return ModelId(name=model_id)
    organization, slash, rest = model_id.partition("/")
    name = rest if slash else organization
    parts = _annotated([part for part in name.split("-") if part], parameters)
    parsed = ModelId(
        name=name,
        organization=organization if slash and organization[:1] != "." else None,
        basename="-".join(part.text for part in parts if part.is_base) or None,
        finetune=_joined(parts, "finetune"),
        version=_joined(parts, "version"),
        size_label=_joined(dict.fromkeys(parts), "size_label"),
    )
    if parsed.size_label is None and parsed.finetune is None and parsed.version is None:
        return replace(parsed, basename=None)
    return parsed


def title(name: str) -> str:
    """Return a model's name as words: "smollm2-360m-v1" becomes "Smollm2 360m v1"."""
    words = name.strip().replace("-", " ").split()
    return " ".join(w.title() if w.islower() and not re.match(_NO_TITLE, w) else w for w in words)


def size_label(parameters: int, *, shared: int = 0, expert: int = 0, experts: int = 0) -> str:
    """Return the size as the convention writes it: "360M", "8x7B".

    `shared` counts the parameters outside experts, `expert` the ones in each of `experts`.
    """
    if experts > 0:
        return f"{experts}x{_rounded(abs(shared) + abs(expert))}"
    return _rounded(abs(parameters))


def _rounded(count: int) -> str:
    """Return a count with two significant digits where it has no more before the point."""
    scale, unit = next((scale, unit) for least, scale, unit in _SCALES if count > least)
    scaled = count * scale
    digits = max(2 - len(str(round(scaled)).lstrip("0")), 0)
    return f"{scaled:.{digits}f}{unit}"


def _dashed(text: str) -> str:
    return re.sub(r"[\x00-\x20/\\\x7f]", "-", text.strip())


# Names in the wild.


def _wild_name(file_name: str, parameters: int) -> FileName:
    stem = file_name[:-5] if file_name.lower().endswith(".gguf") else file_name
    shard, kind, sidecar, encoding = None, "", "", ""
    if match := re.fullmatch(_SHARD, stem):
        stem, shard = match[1], (int(match[2]), int(match[3]))
    if match := re.fullmatch(_TYPE, stem):
        stem, kind = match[1], _TYPES[match[2].lower()]
    if match := re.fullmatch(_SIDECAR, stem):
        sidecar, stem = match[1].lower(), match[2]
    if match := re.fullmatch(_ENCODING, stem):
        stem, encoding = match[1], match[2]
    if match := re.fullmatch(_SIDECAR_BEHIND, stem):
        stem, sidecar = match[1], match[2].lower()
    parsed = parse_spoken(stem, parameters)
    if parsed.basename is None:
        parsed = ModelId(basename=stem)
    parts: dict[str, Any] = {"encoding": encoding, "type": kind, "sidecar": sidecar}
    parts |= {part: getattr(parsed, part) or "" for part in ("size_label", "finetune", "version")}
    return FileName(str(parsed.basename), **parts, shard=shard)


@dataclass(frozen=True)
class _NamePart:
    text: str
    role: Role | None = None
    is_base: bool = False


def _joined(parts: Iterable[_NamePart], role: Role) -> str | None:
    return "-".join(part.text for part in parts if part.role == role and not part.is_base) or None


def _annotated(texts: list[str], parameters: int) -> list[_NamePart]:
    parts = [_part(text, is_first=i == 0, parameters=parameters) for i, text in enumerate(texts)]
    sizes = [part.text for part in parts if part.role == "size_label"]
    if any(char.isdecimal() for text in sizes for char in text):
        parts = [_without_worded_size(part) for part in parts]
    start = 0
    while start < len(parts) and _may_begin(parts[start]):
        start += 1
    base = start
    while base and parts[base - 1].role == "version" and start == len(parts):
        base -= 1
    marked = [replace(part, is_base=True) for part in parts[:base]]
    tuned = [replace(part, role=part.role or "finetune") for part in parts[start:]]
    return marked + parts[base:start] + tuned


def _without_worded_size(part: _NamePart) -> _NamePart:
    """Return the part, not as a size if it is a word such as "mini": another part has a number."""
    if part.role == "size_label" and all(char.isalpha() for char in part.text):
        return replace(part, role=None)
    return part


def _may_begin(part: _NamePart) -> bool:
    return part.role == "version" or (part.role is None and part.text[0].isalpha())


def _part(text: str, *, is_first: bool, parameters: int) -> _NamePart:
    if re.fullmatch(_VERSION_PART, text):
        return _NamePart(text, "version")
    if re.fullmatch(_TYPE_PART, text):
        return _NamePart(text.upper(), "type")
    if is_first:
        return _NamePart(text)
    if re.fullmatch(_SIZE_PART, text):
        return _size_part(_normal_size(text), parameters)
    if not re.fullmatch(_TUNE_PART, text):
        return _NamePart(text)
    is_redundant = parameters < 0 and text.lower() == "lora"
    return _NamePart(text, "type" if is_redundant else "finetune")


def _normal_size(text: str) -> str:
    """Return a size with a point and a capital unit: "1_6b" is 1.6B, and so is Bloom's "1b6"."""
    text = text.replace("_", ".")
    if text[-1].isdecimal():
        text = f"{text[:-2]}.{text[-1]}{text[-2]}"
    if len(text) > 1 and text[-2].isdecimal() and text[-1] in "kmbt":
        return text[:-1] + text[-1].upper()
    return text


def _size_part(text: str, parameters: int) -> _NamePart:
    try:
        size = float(text[:-1]) * pow(1000, " KMBT".find(text[-1]))
    except ValueError:
        return _NamePart(text, "size_label")
    # A context is far from the parameter count; the size of an adapter's model may be larger.
    limit = -parameters // 8 if parameters < 0 else 7 * parameters // 8
    if parameters and (size < limit if parameters < 0 else abs(size - parameters) > limit):
        return _NamePart(text[:-1] + text[-1].lower(), "finetune")
    return _NamePart(text, "size_label")


def shard_name(prefix: str, number: int, count: int) -> str:
    """Return the name of shard `number` (from 0) of `count`, as llama.cpp writes it."""
    return f"{prefix}-{number + 1:05d}-of-{count:05d}.gguf"


def parse_shard_name(name: str) -> tuple[str, int, int] | None:
    """Return prefix, number (from 0) and count of a shard's name; None if it is not one."""
    match = re.fullmatch(_SHARD, name.removesuffix(".gguf")) if name.endswith(".gguf") else None
    return (match[1], int(match[2]) - 1, int(match[3])) if match and match[1] else None
