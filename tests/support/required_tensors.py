"""What tensors llama.cpp asks of each architecture, read out of its source: `load_arch_tensors`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from demanded import ModelSource, arguments, source_text

# Conditions under which every model needs a tensor, or every one without experts.
ALWAYS = {
    "",
    "for (int i = 0; i < n_layer; ++i)",
    "for (int i = 0; i < n_layer; i++)",
    "for (int i = 0; i < n_layer_all; ++i)",
}
DENSE = {"if (n_expert == 0)"}
# The words of known_tensors.txt for what llama.cpp counts.
WORDS = {
    "n_embd": "embedding",
    "n_vocab": "tokens",
    "n_ff": "feed_forward",
    "n_expert": "experts",
    "n_embd_head_k": "head",
    "n_embd_head_k * n_head": "heads",
    "n_head * n_embd_head_k": "heads",
}
_LOADER = re.compile(r"void (llama_model_\w+)::load_arch_tensors\([^)]*\) \{\n(.*?)\n\}", re.DOTALL)
_FLAGS = re.compile(r"\bflags\s*(\|?=)\s*([^;]+);")
# Flags that only leave out what comes after the blocks that are counted.
_STEADY = {("=", "0"), ("|=", "TENSOR_SKIP")}
_QKV = re.compile(r"create_tensor_qkv\((.*)", re.DOTALL)
# Of these llama.cpp loads what lacks both forms, and fails when it computes.
_FAIL_LATER = {"llama_model_phi3": "TENSOR_NOT_REQUIRED"}
_CREATE = re.compile(r"create_tensor\(\s*(tn\(.*)", re.DOTALL)
_NAME = re.compile(r'tn\(\s*(LLM_TENSOR_\w+)\s*,\s*(?:"(\w+)"\s*)?(?:,\s*(i|il|0)\s*)?\)')
_LEAVING = re.compile(r"\b(continue|return)\b")  # `throw` refuses the model
SET = re.compile(r"(?:int64_t|int|uint32_t|auto)\s+(?:&\s*)?(n_\w+)\s*=")


@dataclass(frozen=True)
class Created:
    """A tensor that is asked for: `conditions` are those around it, outermost first."""

    name: str
    shape: tuple[str, ...]
    is_required: bool
    conditions: tuple[str, ...]
    unless: str = ""  # another tensor that does instead

    @property
    def is_certain(self) -> bool:
        """Whether every model needs it, or every one without experts."""
        return self.is_required and {*self.conditions} <= ALWAYS | DENSE

    @property
    def is_dense(self) -> bool:
        """Whether only models without experts need it."""
        return bool({*self.conditions} & DENSE)


@dataclass
class _Scope:
    header: str
    is_left: bool = False  # something may have left it early, so that the rest is conditional
    own: set[str] = field(default_factory=set)  # counts that mean something else in here


class TensorSource:
    """The parts of llama.cpp's source that create the tensors of models."""

    def __init__(self, folder: Path, source: ModelSource) -> None:
        """Read the table of names and the functions that load tensors."""
        names = source_text(folder / "llama-arch.cpp")
        self.names = dict(re.findall(r'\{ (LLM_TENSOR_\w+),\s*"([^"]+)"', names))
        self.source = source
        files = sorted((folder / "models").glob("*.cpp"))
        self.loaders = dict(_LOADER.findall("".join(map(source_text, files))))
        self.words: Mapping[str, str] = WORDS

    @property
    def counts(self) -> set[str]:
        """The names of variables in the words' expressions."""
        return {count_name for word in self.words for count_name in re.findall(r"n_\w+", word)}

    def owner_of(self, architecture: str) -> str:
        """Return the class that loads the tensors of an architecture."""
        owner = self.source.classes[architecture]
        while owner not in self.loaders:
            owner = self.source.bases[owner]
        return owner

    def body_of(self, architecture: str) -> str:
        """Return the function that loads the tensors of an architecture."""
        return self.loaders[self.owner_of(architecture)]

    def created_by(self, architecture: str, words: Mapping[str, str] = WORDS) -> list[Created]:
        """Return the tensors that are asked for, in the order of the source."""
        owner = self.owner_of(architecture)
        self.words = words
        return list(self._created(self.loaders[owner], _FAIL_LATER.get(owner, "0")))

    def _created(self, body: str, strict: str) -> Iterator[Created]:
        firm = {"0", strict}
        if {*_FLAGS.findall(body)} <= _STEADY:
            firm.add("flags")
        scopes, closed = [_Scope("")], ""
        for statement, end in _statements(body):
            text = " ".join(statement.split())
            scopes[-1].own |= {*SET.findall(text)} & self.counts
            match = _CREATE.search(text)
            if match and (name := _NAME.match(match[1])):
                yield self._one(match[1], name, scopes, firm)
            if qkv := _QKV.search(text):
                yield from self._split(arguments(qkv[1])[-1] in firm, scopes)
            if _LEAVING.search(text):
                for scope in scopes[1:] or scopes:
                    scope.is_left = True
            if end == "{":
                other = f"not {closed}" if text == "else" else text
                scopes.append(_Scope(other))
            elif end == "}":
                closed = scopes.pop().header

    def _split(self, is_required: bool, scopes: list[_Scope]) -> Iterator[Created]:
        """Yield what takes the place of queries, keys and values in one."""
        for part in "QKV":
            name, fused = (
                f"{self.names[f'LLM_TENSOR_ATTN_{part_name}'].replace('%d', '{i}')}.weight"
                for part_name in (part, "QKV")
            )
            yield Created(name, ("?",), is_required, _conditions(scopes), fused)

    def _one(self, call: str, name: re.Match[str], scopes: list[_Scope], firm: set[str]) -> Created:
        _, shape, *flags = arguments(call)
        own = set().union(*(scope.own for scope in scopes))
        sizes = [" ".join(size.split()) for size in shape.strip("{} ").split(",")]
        words = ("?" if {*re.findall(r"\w+", size)} & own else size for size in reversed(sizes))
        full = self.names[name[1]].replace("%d", "{i}")
        return Created(
            f"{full}.{name[2]}" if name[2] else full,
            tuple(self.words.get(word, word) for word in words),
            len(flags) == 1 and flags[0] in firm,
            _conditions(scopes),
        )


def _conditions(scopes: list[_Scope]) -> tuple[str, ...]:
    condition = ("left",) if any(scope.is_left for scope in scopes) else ()
    return tuple(scope.header for scope in scopes[1:]) + condition


def _statements(body: str) -> Iterator[tuple[str, str]]:
    """Yield the pieces of a function's body, each with the `;`, `{` or `}` that ends it."""
    start = depth = 0
    for place, char in enumerate(body):
        depth += (char == "(") - (char == ")")
        if char in ";{}" and not depth:
            yield body[start:place], char
            start = place + 1
