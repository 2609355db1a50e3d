"""How ggml reads a block, field by field: taken from its source, not from ggufkit's tables.

`ggml-common.h` declares the members of each block. `ggml-quants.c` has the decoders, which read
some arrays of bytes as words of the machine: through `memcpy` into a word, or through a cast.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

WIDTHS: Final = {"ggml_half": 2, "float": 4} | {
    f"{sign}int{8 * width}_t": width for sign in ("", "u") for width in (1, 2, 4)
}
_COMMENT: Final = re.compile(r"//[^\n]*")
_STRUCT: Final = re.compile(r"typedef struct \{(.*?)\} block_(\w+);", re.DOTALL)
_UNION: Final = re.compile(r"GGML_EXTENSION union \{\s*struct \{(.*?)\}.*?\} \w+;", re.DOTALL)
_MEMBER: Final = re.compile(r"(\w+)\s+(\w+)(?:\[(.*)\])?\s*$")
_DEFINE: Final = re.compile(r"^#define (\w+) +([\w/*+() -]+?)\s*$", re.MULTILINE)
_DECODER: Final = re.compile(
    r"^void dequantize_row_(\w+)\(.*?\{\n(.*?)^\}", re.DOTALL | re.MULTILINE
)
_ALIAS: Final = re.compile(
    r"const u?int(\d+)_t\s*\* (?:GGML_RESTRICT )?(\w+) = (\((?:const )?\w+ \*\))?(.*)$"
)
_COPIED: Final = re.compile(r"memcpy\(&?(\w+), (.*), (.*)\)$")
_PLACE: Final = re.compile(r"(x\[i\]\.)?(\w+)(.*)$")
_BYTE_VIEW: Final = r"\(const u?int8_t ?\*\) ?{}\b"


class UnknownReadError(Exception):
    """A decoder reads in a way that this module does not know: extend it."""


@dataclass(frozen=True)
class Words:
    """What a decoder reads as words: from where in which member, and which words are numbers."""

    member: str
    start: int  # bytes
    width: int
    numbers: tuple[bool, ...]
    repeats: bool  # up to the end of the member


def field_widths(folder: Path) -> dict[str, list[int]]:
    """Return the widths in bytes of all fields of each type's block, by ggml's name of the type."""
    header = _COMMENT.sub("", (folder / "ggml-common.h").read_text("utf-8"))
    defined = dict(_DEFINE.findall(header))
    decoders = dict(
        _DECODER.findall(_COMMENT.sub("", (folder / "ggml-quants.c").read_text("utf-8")))
    )
    fields = {}
    for text, name in _STRUCT.findall(header):
        members = dict(_members(text, defined))
        offsets = _offsets(members)
        widths = [width for width, count in members.values() for _ in range(count)]
        for words in _wide_reads(decoders.get(name, ""), members, defined):
            widths = _with(widths, words, offsets[words.member], members[words.member])
        fields[name] = widths
    return fields


def _members(text: str, defined: dict[str, str]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield name, width and count of each member of a block; of a union, of its first form."""
    for line in _UNION.sub(r"\1", text).split(";"):
        if line.strip():
            match = _MEMBER.search(line.strip())
            if not match:
                raise UnknownReadError(line)
            kind, name, count = match.groups()
            yield name, (WIDTHS[kind], _number(count or "1", defined))


def _number(text: str, defined: dict[str, str]) -> int:
    """Return the value of a constant expression."""
    while names := [name for name in re.findall(r"[A-Za-z]\w*", text) if name in defined]:
        text = re.sub(rf"\b{names[0]}\b", f"({defined[names[0]]})", text)
    code = compile(ast.parse(text.replace("/", "//").strip(), mode="eval"), "constant", "eval")
    return int(eval(code, {"__builtins__": {}}))  # noqa: S307 (numbers of a pinned source)


def _offsets(members: dict[str, tuple[int, int]]) -> dict[str, int]:
    offset, offsets = 0, {}
    for name, (width, count) in members.items():
        offsets[name] = offset
        offset += width * count
    return offsets


def _wide_reads(
    body: str, members: dict[str, tuple[int, int]], defined: dict[str, str]
) -> Iterator[Words]:
    """Yield what a decoder reads as words that are no members."""
    statements = [part.strip() for part in re.split(r"[;{}]", body)]
    aliases: dict[str, str] = {}
    for statement in statements:
        if match := _COPIED.search(statement):
            name, place, size = match.groups()
            width = _declared(name, statements)
            number = _number(
                re.sub(r"sizeof\((\w+)\)", lambda of: _size(of[1], statements), size), {}
            )
            count = number // width
            member, start, repeats = _place(place, aliases, members, defined)
            yield Words(member, start, width, _numbers(name, count, statements), repeats)
        elif match := _ALIAS.search(statement):
            bits, name, cast, place = match.groups()
            if not re.match(r"x\[i\]|\w+( \+ .*)?$", place):
                continue  # a table's
            aliases[name] = place
            if cast and int(bits) > 8 and place.startswith("x[i]"):
                member, start, _ = _place(place, aliases, members, defined)
                yield Words(member, start, int(bits) // 8, (True,), repeats=True)
        elif "memcpy" in statement:
            raise UnknownReadError(statement)


def _declared(name: str, statements: list[str]) -> int:
    """Return the width of the word or words called `name`."""
    for statement in statements:
        if match := re.match(rf"uint(\d+)_t {name}(\[\d+\])?$", statement):
            return int(match[1]) // 8
    raise UnknownReadError(name)


def _size(name: str, statements: list[str]) -> str:
    return str(WIDTHS[name] if name in WIDTHS else _declared(name, statements))


def _place(
    place: str,
    aliases: dict[str, str],
    members: dict[str, tuple[int, int]],
    defined: dict[str, str],
) -> tuple[str, int, bool]:
    """Return the member that a pointer points into, how many bytes behind its start, and whether
    it goes on in a loop.
    """
    match = _PLACE.match(place.strip())
    if not match:
        raise UnknownReadError(place)
    of_block, name, rest = match.groups()
    member, start, repeats = (name, 0, False) if of_block else _place(
        aliases[name], aliases, members, defined
    )  # fmt: skip
    for term in filter(None, rest.split("+")):
        if re.search(r"\bi[bs]?\w*\b", term):
            repeats = True
        elif term.strip():
            start += _number(term, defined) * members[member][0]
    return member, start, repeats


def _numbers(name: str, count: int, statements: list[str]) -> tuple[bool, ...]:
    """Tell which of the words copied to `name` are read as numbers.

    Words that are only put together again from words, byte by byte, and then read as bytes, are
    bytes: masks whose four bytes are equal do that.
    """
    numbers = [False] * count
    shared = [s for s in statements if re.match(rf"({name}\[\d\]|uint32_t \w+) = .*\b{name}\[", s)]
    if shared and not all(_is_bytewise(mask) for mask in _masks(statements)):
        raise UnknownReadError(shared[0])
    for statement in statements:
        read = re.sub(_BYTE_VIEW.format(name), "", statement)
        if statement in shared or "memcpy" in read or re.match(rf"uint\d+_t {name}\b", read):
            continue
        for index in re.findall(rf"\b{name}\b(?:\[(\w+)\])?", read):
            numbers[int(index or 0)] = True
    return tuple(numbers)


def _masks(statements: list[str]) -> list[str]:
    return [
        match[1] for s in statements if (match := re.match(r"const uint32_t \w+ = (0x\w+)$", s))
    ]


def _is_bytewise(mask: str) -> bool:
    return len({*int(mask, 16).to_bytes(4, "big")}) == 1


def _with(widths: list[int], words: Words, offset: int, member: tuple[int, int]) -> list[int]:
    """Return `widths` with what a decoder reads as words in the place of what is declared."""
    end = offset + member[0] * member[1]
    start = offset + words.start
    once = len(words.numbers) * words.width
    many = (end - start) // once if words.repeats else 1
    one = [
        w
        for is_number in words.numbers
        for w in ([words.width] if is_number else [1] * words.width)
    ]
    before, after = [], []
    bit = 0
    for width in widths:
        if bit < start:
            before.append(width)
        elif bit >= start + many * once:
            after.append(width)
        bit += width
    return before + one * many + after
