"""Every tensor that llama.cpp may load for each architecture, read out of its source.

Run as a program, this writes `known_tensors.txt`, which `check` looks names and shapes up in.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import real
from demanded import ModelSource, arguments, source_text
from required_tensors import ALWAYS, SET, WORDS, Created, TensorSource

TABLE: Final = Path(__file__).parents[2] / "src" / "ggufkit" / "checks" / "known_tensors.txt"
HEAD: Final = """\
# Every tensor that llama.cpp of October 2026 may load: name, shape, and architectures that have it.
# {i} is any block. The shape is in words, or ? where it depends on more than these words. A name
# that begins with - belongs to models without experts only, one with + to models with experts only;
# with ! every model with experts has it. tests/support/known_tensors.py writes this file from
# llama.cpp's source; a test compares the two.
"""
MORE_WORDS: Final = WORDS | {
    "n_embd_k_gqa": "keys",
    "n_embd_gqa": "values",
    "n_embd_v_gqa": "values",
    "n_embd + 2*n_embd_gqa": "embedding_values",
    "n_rot/2": "rope_half",
    "n_ctx_train": "context",
    "n_token_types": "token_types",
    "1": "one",
}
EXPERTS: Final = {"if (n_expert > 0)", "if (n_expert != 0)", "not if (n_expert == 0)"}
DENSE: Final = {"if (n_expert == 0)", "not if (n_expert > 0)", "not if (n_expert != 0)"}
_NAME: Final = re.compile(r'tn\(\s*(LLM_TENSOR_\w+)\s*(?:,\s*"(\w+)")?')
_QKV: Final = ("q", "k", "v")
_GENERIC: Final = re.compile(
    r'tn\(\s*(LLM_TENSOR_\w+)\s*,\s*"(scale|input_scale)"[^)]*\), \{(\w+)\}'
)


class KnownTensors:
    """The tensors that each architecture may have: name -> (shape in words, condition)."""

    def __init__(self, folder: Path) -> None:
        """Read what all architectures share."""
        self.source = ModelSource(folder)
        self.tensors = TensorSource(folder, self.source)
        model = source_text(folder / "llama-model.cpp")
        self.scales = [
            (self._name(name, ""), kind, MORE_WORDS.get(count, "?"))
            for name, kind, count in _GENERIC.findall(model)
        ]

    def of(self, architecture: str) -> dict[str, tuple[str, str]]:
        """Return what one architecture may have."""
        forms_by_name = self._forms(architecture, self.tensors.body_of(architecture))
        tensors = {
            name: (_only(forms, 0, "?"), _only(forms, 1, ""))
            for name, forms in forms_by_name.items()
        }
        for stem, kind, shape in self.scales:
            if f"{stem}.weight" in tensors:
                tensors.setdefault(f"{stem}.{kind}", (shape, ""))
        return tensors

    def _forms(self, architecture: str, body: str) -> dict[str, set[tuple[str, str]]]:
        """Return every shape and condition in which the source asks for each tensor."""
        tensors: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for created in self.tensors.created_by(architecture, words=MORE_WORDS):
            if not created.unless:  # which the calls below tell better
                tensors[created.name].add((_shape(created), _condition(created)))
        for call in re.findall(r"create_tensor_qkv\((.*?)\);", body, re.DOTALL):
            for name, shape in self._attention(call, {*SET.findall(body)}):
                tensors[name].add((shape, ""))
        if "create_tensor_gate_up_exps" in body:
            for part in ("GATE_UP_EXPS", "GATE_EXPS", "UP_EXPS"):
                tensors[self._name(f"LLM_TENSOR_FFN_{part}", "weight")].add(("?", ""))
        for name, suffix in _NAME.findall(body):
            tensors[self._name(name, suffix)] |= set()
        return tensors

    def _name(self, name: str, suffix: str) -> str:
        full = self.tensors.names[name].replace("%d", "{i}")
        return f"{full}.{suffix}" if suffix else full

    def _attention(self, call: str, own: set[str]) -> Iterator[tuple[str, str]]:
        """Yield what one call asks for; variables in `own` mean something else there."""
        words = [" ".join(argument.split()) for argument in arguments(call)]
        words = ["?" if own & {*re.findall(r"\w+", argument)} else argument for argument in words]
        width = MORE_WORDS.get(words[2], "?")
        for part, count in zip(_QKV, words[3:6], strict=True):
            word = MORE_WORDS.get(count, "?")
            shape = "?" if "?" in (word, width) else f"{word},{width}"
            yield self._name(f"LLM_TENSOR_ATTN_{part.upper()}", "weight"), shape
            yield self._name(f"LLM_TENSOR_ATTN_{part.upper()}", "bias"), word
        yield self._name("LLM_TENSOR_ATTN_QKV", "weight"), "?"
        yield self._name("LLM_TENSOR_ATTN_QKV", "bias"), "?"


def _only(forms: set[tuple[str, str]], place: int, otherwise: str) -> str:
    """Return what all forms agree on."""
    values = {form[place] for form in forms}
    return values.pop() if len(values) == 1 else otherwise


def _shape(created: Created) -> str:
    return ",".join(created.shape) if {*created.shape} <= {*MORE_WORDS.values()} else "?"


def _condition(created: Created) -> str:
    if EXPERTS & {*created.conditions}:
        is_certain = created.is_required and {*created.conditions} <= ALWAYS | EXPERTS
        return "+!" if is_certain else "+"
    return "-" if DENSE & {*created.conditions} else ""


def table(folder: Path) -> dict[str, str]:
    """Return the whole table: `NAME SHAPE` -> architectures."""
    known = KnownTensors(folder)
    rows: dict[str, list[str]] = defaultdict(list)
    for architecture in sorted(set(known.source.classes) - {"clip"}):
        for name, (shape, when) in known.of(architecture).items():
            rows[f"{when}{name} {shape}"].append(architecture)
    return {row: " ".join(names) for row, names in sorted(rows.items())}


def written(folder: Path) -> str:
    """Return the text of the file."""
    lines = (f"{row} {names}\n" for row, names in table(folder).items())
    return HEAD + "".join(lines)


def main() -> None:
    """Write the table."""
    TABLE.write_text(written(real.llama_cpp_source() / "src"), encoding="utf-8")


if __name__ == "__main__":
    main()
