"""What llama.cpp asks of each architecture, read out of its source: `src/models` and beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TYPES = {"float": "float32", "bool": "bool", "std::string": "string", "uint32_t": "uint32"}
TYPES |= {"int": "uint32", "enum llama_pooling_type": "uint32"}
_CALL = re.compile(r"(get_key|get_key_or_arr|get_arr)\(\s*(LLM_KV_\w+)\s*,\s*([^;{]*)")
# The keys that only wavtokenizer-dec needs are among those read for all.
OF_ONE = {"features_length", "posnet.embedding_length", "posnet.block_count"}
OF_ONE |= {"convnext.embedding_length", "convnext.block_count"}
_ABSENT = {"false", "0", "0.0f"}  # the last argument of a key that may be missing
_OWNER = re.compile(r"(?:struct|class) (llama_model_\w+) : public (llama_model_\w+)")
_LOADER = re.compile(r"void (llama_model_\w+)::load_arch_hparams\([^)]*\) \{\n(.*?)\n\}", re.DOTALL)
_GRAPH = re.compile(r"(llama_model_\w+)::build_arch_graph")
_MEMBER = re.compile(
    r"^\s+(?:std::(?:array|vector)<)?\s*((?:enum )?\w+)(?:,[^>]*>|>)?\s+([a-z]\w*[^;()]*);",
    re.MULTILINE,
)


@dataclass(frozen=True)
class KeyRead:
    """A key that is read: below the architecture's name, of which type ("" not told), and how."""

    key: str
    type: str
    is_required: bool
    how: str
    depth: int  # of braces: what is at 1 is read for every file


class ModelSource:
    """The source of llama.cpp's model loader."""

    def __init__(self, folder: Path) -> None:
        """Read the tables of names, and which class loads which architecture."""
        names = source_text(folder / "llama-arch.cpp")
        self.keys = dict(re.findall(r'\{ (LLM_KV_\w+),\s*"([^"]+)"', names))
        architectures = dict(re.findall(r'\{ (LLM_ARCH_\w+),\s*"([^"]+)"', names))
        model = source_text(folder / "llama-model.cpp")
        self.common = re.search(r"::load_hparams\(.*?\n\}", model, re.DOTALL)[0]
        self.classes: dict[str, str] = {}
        waiting: list[str] = []
        for match in re.finditer(r"case (LLM_ARCH_\w+):|return new (llama_model_\w+)", model):
            if match[1]:
                waiting.append(match[1])
                continue
            for name in waiting:
                self.classes.setdefault(architectures[name], match[2])
            waiting = []
        self.bases = dict(_OWNER.findall(source_text(folder / "models" / "models.h")))
        self.files = files = sorted((folder / "models").glob("*.cpp"))
        self.loaders = dict(_LOADER.findall("".join(map(source_text, files))))
        members = _MEMBER.findall(source_text(folder / "llama-hparams.h"))
        self.members = {
            re.split(r"[ =\[]", name.strip())[0]: kind
            for kind, listed in members
            for name in listed.split(",")
        }

    def asserted_by(self, pattern: str) -> set[str]:
        """Return the architectures whose graph asserts something."""
        graphs: dict[str, str] = {}
        for text in map(source_text, self.files):
            graphs |= dict.fromkeys(_GRAPH.findall(text), text)
        architectures_found = set()
        for architecture, own in self.classes.items():
            owner = own
            while owner not in graphs and owner in self.bases:
                owner = self.bases[owner]
            if re.search(pattern, graphs.get(owner, "")):
                architectures_found.add(architecture)
        return architectures_found

    def read_by_all(self) -> list[KeyRead]:
        """Return what is read of every architecture, below its name."""
        own = self._reads(self.common)
        return [r for r in own if not r.key.startswith("general.") and r.key not in OF_ONE]

    def read_by(self, architecture: str) -> list[KeyRead]:
        """Return what is read of one architecture besides."""
        owner = self.classes[architecture]
        while owner not in self.loaders:
            owner = self.bases[owner]
        return list(self._reads(self.loaders[owner]))

    def _reads(self, body: str) -> Iterator[KeyRead]:
        depth = 0 if body.startswith("::") else 1
        for line in body.splitlines():
            for how, key, rest in _CALL.findall(line):
                arguments_of_call = arguments(rest)
                kind = self._type(arguments_of_call[0], body)
                name = self.keys[key].removeprefix("%s.")
                is_required = arguments_of_call[-1] not in _ABSENT
                yield KeyRead(name, kind, is_required, how, depth)
            depth += line.count("{") - line.count("}")

    def _type(self, target: str, body: str) -> str:
        member = re.fullmatch(r"hparams\.(?:\w+\.)*(\w+)", target)
        if member:
            return TYPES.get(self.members[member[1]], "")
        local = re.search(rf"(std::string|float|bool|uint32_t)\s+{re.escape(target)}\b", body)
        return TYPES[local[1]] if local else ""


def source_text(path: Path) -> str:
    """Return a file without its comments."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def arguments(text: str) -> list[str]:
    """Return what stands between commas up to the bracket that closes the call."""
    depth, parts = 0, [""]
    for char in text:
        depth += (char in "({<") - (char in ")}>")
        if depth < 0:
            break
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def typed(reads: list[KeyRead]) -> dict[str, str]:
    """Return the types of what is read as one number or text, and perhaps as an array."""
    return {read.key: read.type for read in reads if read.how != "get_arr" and read.type}
