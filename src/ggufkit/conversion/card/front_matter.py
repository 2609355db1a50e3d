"""The YAML at the head of a model card: the part of YAML that cards use, every scalar a text.

Block and flow collections, quotes, folded and literal text are read. Anchors, aliases, tags and
explicit keys are not: whoever wrote them must be told, not guessed at.
"""

from __future__ import annotations

import re
from functools import partial
from itertools import takewhile
from typing import Final

from ggufkit.errors import CheckpointError

MAX_DEPTH: Final = 64  # cards nest five deep

Node = str | None | list["Node"] | dict[str, "Node"]

_FENCE: Final = "---"
_BLANK: Final = " \t\r\n"  # any other space is text
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_UNKNOWN: Final = tuple("&*!%@`?")
_BLOCK_HEAD: Final = re.compile(r"([|>])(?:([1-9])([+-]?)|([+-]?)([1-9]?))\s*(?:#.*)?", re.ASCII)
_KEY: Final = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')(?=\s*:(?:\s|$))""", re.ASCII)
_COMMENT: Final = re.compile(r"(?:^|\s)#.*", re.ASCII)
_PLAIN_END: Final = re.compile(r":(?=\s|$)|\s#", re.ASCII)
_FLOW_PLAIN: Final = re.compile(r"(?:[^,\[\]{}:#]|:(?![\s,\[\]{}]|$)|(?<!\s)#)+", re.ASCII)
_SPACE: Final = re.compile(r"(?:\s|(?<!\S)#[^\n]*)*", re.ASCII)
_QUOTED: Final = {
    '"': re.compile(r'"(?:[^"\\]|\\[\s\S])*"'),
    "'": re.compile(r"'(?:[^']|'')*'"),
}
_CLOSING: Final = {"[": "]", "{": "}", '"': '"', "'": "'"}
_ESCAPE: Final = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[\s\S])", re.ASCII)
_ESCAPES: Final = {
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "t": "\t",
    "n": "\n",
    "v": "\v",
    "f": "\f",
    "r": "\r",
    "e": "\x1b",
    " ": " ",
    '"': '"',
    "/": "/",
    "\\": "\\",
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
}


def front_matter(card: str) -> dict[str, Node]:
    """Return the mapping at the head of a card, empty where there is none.

    Raises CheckpointError, naming the line, for what is no YAML or beyond the part read here.
    """
    lines = card.removeprefix("\ufeff").splitlines()
    if not lines or lines[0] != _FENCE:
        return {}
    end = lines.index(_FENCE, 1) if _FENCE in lines[1:] else len(lines)
    reader = _YamlReader([line.replace("\t", "  ") for line in lines[1:end]])
    node = reader.block(0, 0)
    if reader.next() is not None:
        raise reader.error("this line is indented unlike those around it")
    return node if isinstance(node, dict) else {}


class _YamlReader:
    """Lines, and how far they are read."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.at = 0
        self.looked_at = 0

    def error(self, what: str) -> CheckpointError:
        # One for counting from 1, one for the fence.
        return CheckpointError(f"README.md, line {self.looked_at + 2}: {what}")

    def next(self) -> str | None:
        """Return the next line that is neither blank nor a comment, and stand on it."""
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.strip(_BLANK) and not line.lstrip(_BLANK).startswith("#"):
                self.looked_at = self.at
                return line
            self.at += 1
        return None

    # Blocks.

    def block(self, least: int, depth: int) -> Node:
        """Return the node whose lines are indented by `least` or more."""
        line = self.next()
        if line is None or _indent(line) < least:
            return None
        if depth > MAX_DEPTH:
            raise self.error(f"more than {MAX_DEPTH} levels")
        indent = _indent(line)
        if _is_item(line):
            return self.sequence(indent, depth)
        if self.key(line) is not None:
            return self.mapping(indent, depth)
        text = line[indent:]
        self.at += 1
        if head := _BLOCK_HEAD.fullmatch(text.rstrip(_BLANK)):
            return self.literal(head, least - 1)
        return self.inline(text, least - 1, depth)

    def sequence(self, indent: int, depth: int) -> list[Node]:
        items: list[Node] = []
        while (line := self.next()) is not None and _indent(line) == indent and _is_item(line):
            rest = line[indent + 1 :]
            if not _COMMENT.sub("", rest).strip(_BLANK):
                self.at += 1
                items.append(self.block(indent + 1, depth + 1))
                continue
            self.lines[self.at] = " " * (indent + 1) + rest  # what follows may be a block itself
            items.append(self.block(indent + 1, depth + 1))
        return items

    def mapping(self, indent: int, depth: int) -> dict[str, Node]:
        found: dict[str, Node] = {}
        while (line := self.next()) is not None and _indent(line) == indent:
            parts = self.key(line)
            if parts is None:
                raise self.error("this is neither a key nor an item")
            self.at += 1
            found[parts[0]] = self.value(parts[1], indent, depth)
        return found

    def value(self, rest: str, indent: int, depth: int) -> Node:
        """Return the value of a key: behind it, or in the lines below."""
        if block := _BLOCK_HEAD.fullmatch(rest):
            return self.literal(block, indent)
        if rest and not rest.startswith("#"):
            return self.inline(rest, indent, depth)
        line = self.next()
        if line is not None and _indent(line) == indent and _is_item(line):
            return self.sequence(indent, depth + 1)
        return self.block(indent + 1, depth + 1)

    def key(self, line: str) -> tuple[str, str] | None:
        """Return the key of a line and what follows, None where it has none."""
        text = line.strip(_BLANK)
        if quoted := _KEY.match(text):
            rest = text[quoted.end() :].lstrip(_BLANK)[1:]
            return str(self.unquoted(quoted[0])), rest.strip(_BLANK)
        if text[:1] in {'"', "'", "[", "{"}:
            return None
        end = _PLAIN_END.search(text)
        if end is None or end[0] != ":":
            return None
        if text.startswith(_UNKNOWN):
            raise self.error(f"{text[0]!r} has a meaning that is not read here")
        return text[: end.start()].rstrip(_BLANK), text[end.end() :].strip(_BLANK)

    def literal(self, head: re.Match[str], indent: int) -> str:
        """Return the text of a block scalar, literal ("|") or folded (">")."""
        chomp, size = head[3] or head[4] or "", head[2] or head[5]
        start = self.at
        while self.at < len(self.lines) and (
            not self.lines[self.at].strip(_BLANK) or _indent(self.lines[self.at]) > indent
        ):
            self.at += 1
        held = self.lines[start : self.at]
        first = next((_indent(line) for line in held if line.strip(_BLANK)), indent + 1)
        margin = indent + int(size) if size else first
        body = [line[margin:] if line.strip(_BLANK) else line[margin:].rstrip(" ") for line in held]
        return _chomped(body, folds=head[1] == ">", chomp=chomp)

    # Scalars and flow collections.

    def inline(self, text: str, indent: int, depth: int) -> Node:
        """Return a scalar or a flow collection that may go on in lines indented further."""
        if text.startswith(_UNKNOWN) and not text.startswith(("%", "?")):
            raise self.error(f"{text[0]!r} has a meaning that is not read here")
        if text[0] not in "\"'[{":
            return self.plain(text, indent)
        parser = _Flow(self, text)
        node = parser.node(depth)
        while parser.is_short:
            parser.more(indent)
            node = parser.node(depth)
        parser.finish()
        rest = parser.rest()
        if rest and not rest.startswith("#"):
            raise self.error(f"nothing may follow here, {rest[:20]!r} does")
        return node

    def plain(self, text: str, indent: int) -> str | None:
        """Return a plain scalar, its lines folded."""
        lines = [self.bare(text)]
        open_ended = not _COMMENT.search(text)
        while open_ended and self.at < len(self.lines):
            line = self.lines[self.at]
            bare = line.strip(_BLANK)
            if bare and (_indent(line) <= indent or bare.startswith("#")):
                break
            lines.append(self.bare(bare))
            open_ended = not _COMMENT.search(line)
            self.at += 1
        while not lines[-1] and len(lines) > 1:
            lines.pop()
        text = _folded(lines)
        return None if text in _NULLS else text

    def bare(self, text: str) -> str:
        if (end := _PLAIN_END.search(text)) and end[0] == ":":
            raise self.error("a key stands where no key may be")
        return _COMMENT.sub("", text).strip(_BLANK)

    def unquoted(self, text: str) -> str:
        """Return the text between quotes, its lines folded and its escapes undone."""
        if text[0] == "'":
            return _folded(text[1:-1].split("\n")).replace("''", "'")
        joined = re.sub(r"\\\n[ \t]*", "", text[1:-1])
        return _ESCAPE.sub(self.unescaped, _folded(joined.split("\n")))

    def unescaped(self, found: re.Match[str]) -> str:
        code = found[1]
        if code[0] in "xuU" and len(code) > 1:
            number = int(code[1:], 16)
            if number <= 0x10FFFF:  # noqa: PLR2004 (Unicode's end)
                return chr(number)
        if code not in _ESCAPES:
            raise self.error(f"\\{code} is no escape")
        return _ESCAPES[code]


class _Flow:
    """A quoted text or a collection in brackets, parsed again when a line was too little of it."""

    def __init__(self, reader: _YamlReader, text: str) -> None:
        self.reader = reader
        self.text = text
        self.at = 0
        self.is_short = False

    def more(self, indent: int) -> None:
        """Take twice as many lines, those of the node or beyond it, and begin anew."""
        reader = self.reader
        stop = min(reader.at + self.text.count("\n") + 1, len(reader.lines))
        taken = [*takewhile(partial(_continues, indent), reader.lines[reader.at : stop])]
        if not taken:
            raise reader.error(f"{_CLOSING[self.text[0]]!r} is missing")
        reader.at += len(taken)
        self.text = "\n".join([self.text, *(line.strip(_BLANK) for line in taken)])
        self.at, self.is_short = 0, False

    def finish(self) -> None:
        """Give the lines behind the node back."""
        end = self.text.find("\n", self.at)
        if end >= 0:
            self.reader.at -= self.text.count("\n", end)
            self.text = self.text[:end]

    def rest(self) -> str:
        return self.text[self.at :].strip(_BLANK)

    def node(self, depth: int) -> Node:
        """Return the node at this place; `is_short` tells that the text ends within it."""
        if depth > MAX_DEPTH:
            raise self.reader.error(f"more than {MAX_DEPTH} levels")
        self.skip()
        char = self.text[self.at : self.at + 1]
        if char in {'"', "'"}:
            return self.quoted(char)
        if char == "[":
            return self.sequence(depth)
        if char == "{":
            return self.mapping(depth)
        if char in _UNKNOWN and char:
            raise self.reader.error(f"{char!r} has a meaning that is not read here")
        found = _FLOW_PLAIN.match(self.text, self.at)
        if not found:
            self.is_short = self.is_short or not char
            return None
        self.at = found.end()
        text = _folded(found[0].split("\n")).strip(_BLANK)
        return None if text in _NULLS else text

    def skip(self) -> None:
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def quoted(self, quote: str) -> str:
        found = _QUOTED[quote].match(self.text, self.at)
        if not found:
            self.is_short, self.at = True, len(self.text)
            return ""
        self.at = found.end()
        return self.reader.unquoted(found[0])

    def sequence(self, depth: int) -> list[Node]:
        items: list[Node] = []
        self.at += 1
        while not self.ends("]"):
            node = self.node(depth + 1)
            if self.takes(":"):
                node = {self.key(node): self.node(depth + 1)}
            items.append(node)
            self.separator("]")
        return items

    def mapping(self, depth: int) -> dict[str, Node]:
        found: dict[str, Node] = {}
        self.at += 1
        while not self.ends("}"):
            key = self.key(self.node(depth + 1))
            found[key] = self.node(depth + 1) if self.takes(":") else None
            self.separator("}")
        return found

    def key(self, node: Node) -> str:
        """Return a scalar as a key; collections nested as keys would be spelled without end."""
        if isinstance(node, list | dict):
            raise self.reader.error("a list or mapping stands where a key must be a text")
        return str(node)

    def takes(self, char: str) -> bool:
        self.skip()
        if not self.text.startswith(char, self.at):
            return False
        self.at += 1
        return True

    def ends(self, closing: str) -> bool:
        self.skip()
        if self.at >= len(self.text):
            self.is_short = True
        return self.is_short or self.takes(closing)

    def separator(self, closing: str) -> None:
        self.skip()
        if self.at >= len(self.text):
            self.is_short = True
        elif not self.takes(",") and not self.text.startswith(closing, self.at):
            raise self.reader.error(f"{closing!r} or a comma is missing")


def _continues(indent: int, line: str) -> bool:
    """Whether a line may belong to a node that began in one indented by `indent`."""
    return not line.strip(_BLANK) or _indent(line) > indent or line.lstrip(_BLANK)[:1] in {"]", "}"}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _is_item(line: str) -> bool:
    text = line.lstrip(" ")
    return text == "-" or text.startswith("- ")


def _folded(lines: list[str]) -> str:
    """Join lines as YAML folds them: by a space, and by one line end less than there are blanks."""
    text, blanks = lines[0].rstrip(_BLANK) if len(lines) > 1 else lines[0], 0
    for i, line in enumerate(lines[1:], 1):
        is_last = i == len(lines) - 1
        part = line.lstrip(_BLANK) if is_last else line.strip(_BLANK)
        if not part and not is_last:
            blanks += 1
            continue
        text += ("\n" * blanks or " ") + part
        blanks = 0
    return text


def _chomped(body: list[str], *, folds: bool, chomp: str) -> str:
    """Return the text of a block scalar: folded if so, with the line ends that it keeps."""
    kept = len(body)
    while kept and not body[kept - 1]:
        kept -= 1
    text = _folded_block(body[:kept]) if folds else "\n".join(body[:kept])
    if chomp == "-" or (not kept and chomp != "+"):
        return text
    return text + "\n" * (1 if chomp != "+" else len(body) - kept + bool(kept))


def _folded_block(lines: list[str]) -> str:
    """Fold lines of a block: those indented further, and the line ends around them, are kept."""
    text, blanks, was_more = "", 0, True
    for i, line in enumerate(lines):
        if not line:
            blanks += 1
            continue
        is_more = line.startswith(" ")
        if i == blanks and not text:
            text = "\n" * blanks + line
        elif was_more or is_more:
            text += "\n" * (blanks + 1) + line
        else:
            text += ("\n" * blanks or " ") + line
        blanks, was_more = 0, is_more
    return text
