"""config.json rebuilt from metadata: the tables of an architecture solved for their fields."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ggufkit.conversion.architecture import expressions
from ggufkit.conversion.architecture.architecture import Architecture, architectures
from ggufkit.conversion.architecture.config import ConfigFacts
from ggufkit.conversion.architecture.rope import llama3_factors
from ggufkit.conversion.architecture.solver import Solver, shortest
from ggufkit.conversion.checkpoint.folder import Checkpoint
from ggufkit.errors import CheckpointError, ShapeError
from ggufkit.format.coerce import plain
from ggufkit.model.model import Model, Tensors

# Names that architecture files make up for themselves.
_INTERNAL: Final = (
    "block_count", "classifier", "feed_forward_size", "file_type", "groups", "heads", "inner",
    "kv_heads", "leading", "rope", "rope_dimensions", "width",
)  # fmt: skip
# Preferred where an architecture speaks of several names and of none in particular.
_USUAL: Final = {
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "max_position_embeddings", "vocab_size", "head_dim",
}  # fmt: skip
_ROLES: Final = {
    "bos": "bos", "eos": "eos", "unk": "unknown", "sep": "seperator", "pad": "padding",
    "cls": "cls", "mask": "mask",
}  # fmt: skip
_NULL: Final = "None"  # at the end of what an architecture file has written as null
MAX_FREQUENCIES: Final = 1 << 16  # half of the elements of a head
_PASSES: Final = 4  # a field may need one that a later key tells
_LLAMA3: Final = "rope_freqs.weight"
_LONG, _SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
# What Llama's checkpoints scale with, and others made after them.
_ORIGINALS: Final = (8192, *(1 << power for power in range(5, 21)))
_BANDS: Final = ((1.0, 4.0), (1.0, 8.0), (1.0, 2.0), (2.0, 8.0), (1.0, 32.0))
_POOLING: Final = {
    1: "pooling_mode_mean_tokens", 2: "pooling_mode_cls_token", 3: "pooling_mode_lasttoken",
}  # fmt: skip


@dataclass(frozen=True)
class Draft(Checkpoint):
    """A checkpoint that is only planned: its files are in memory."""

    contents: Mapping[str, bytes] = field(default_factory=dict)

    def path(self, name: str) -> Path | None:
        """Return where the file would lie."""
        return self.folder / name if name in self.contents else None

    def content(self, name: str) -> bytes | None:
        """Return a file's bytes."""
        return self.contents.get(name)

    def names(self, folder: str, suffix: str) -> list[str]:
        """Return the names of the files in a folder that end so."""
        found = (name.removeprefix(f"{folder}/") for name in self.contents
                 if name.startswith(f"{folder}/") and name.endswith(suffix))  # fmt: skip
        return sorted(found)

    def text(self, name: str) -> str | None:
        """Return a file's text."""
        return self.contents[name].decode() if name in self.contents else None

    def json(self, name: str) -> dict[str, Any] | None:
        """Return a file's JSON object."""
        text = self.text(name)
        return None if text is None else dict(json.loads(text))


def candidates(model: Model, folders: Sequence[Path] = ()) -> list[Architecture]:
    """Return the architectures that may have made a model, the likeliest first.

    Raises CheckpointError where there is none of that name.
    """
    name = str(model.metadata.get("general.architecture", ""))
    known = architectures(folders)
    named = [(stem, each) for stem, each in known.items() if each.name == name]
    named.sort(key=lambda item: item[0] == name)  # those with a name of their own are special
    found = [each for _, each in named]
    functions = functions_of(model)
    fitting = [a for a in found if expressions.evaluate(a.export_if, lambda _: None, functions)]
    if found:
        return fitting or found
    raise CheckpointError(
        f"the architecture {name or '(none in the file)'!r} is unknown",
        remedy="`ggufkit archs` lists the known ones; a file can teach it, in a folder that you "
        "name (arch_path=...): docs/architectures.md",
    )


def rebuilt(model: Model, architecture: Architecture, files: Mapping[str, bytes]) -> Draft:
    """Return the checkpoint with config.json as the architecture says, and no tensors yet."""
    empty = Draft(Path("export"), {}, Tensors(), contents=files)
    bare = ConfigFacts(empty, architecture)
    functions = {**bare.functions, **functions_of(model)}
    solver = Solver(functions, architecture.defaults, _favoured(architecture))
    solver.fields.update(_token_ids(model))
    for _ in range(_PASSES):
        _solve(model, architecture, solver)
    config = _config(model, architecture, solver)
    extra = {**files, **_pooling_files(model, architecture)}
    return Draft(Path("export"), config, Tensors(), contents=extra)


def functions_of(model: Model) -> dict[str, Any]:
    """Return the functions that only the way back has: of what the file holds."""
    return {
        "has": lambda name: _has(model, name),
        "lacks": lambda name: not _has(model, name),
        "length": lambda name, axis: _length(model, name, axis),
        "tokenizer": lambda: str(model.metadata.get("tokenizer.ggml.model", "none")),
        "equals": lambda value, other: [False, True][value == other],
        "only_true": lambda value: value or None,
    }


def _has(model: Model, name: str) -> bool:
    """Whether there is a tensor of that name, or of one that ends with it."""
    return any(each == name or each.endswith(f".{name}") for each in model.tensors)


def _length(model: Model, name: str, axis: int) -> int | None:
    return model.tensors[name].shape[axis] if name in model.tensors else None


def _favoured(architecture: Architecture) -> list[set[str]]:
    """Return the names that an architecture speaks of beside its metadata, and the usual ones."""
    texts = [*architecture.shapes.values(), *architecture.required]
    texts += [t for rule in architecture.rules for target in rule.targets
              for step in target.steps for t in step.arguments]  # fmt: skip
    found = {name for text in texts if text.count(" or ") == 0 or "[" in text
             for name in expressions.names(text)}  # fmt: skip
    for table in architecture.defaults_of.values():
        found.update(table)
    return [found, _USUAL]


def _token_ids(model: Model) -> dict[str, int]:
    keys = {role: f"tokenizer.ggml.{key}_token_id" for role, key in _ROLES.items()}
    held = {role: plain(model.metadata[key]) for role, key in keys.items() if key in model.metadata}
    return {f"{role}_token_id": number for role, number in held.items() if type(number) is int}


def _solve(model: Model, architecture: Architecture, solver: Solver) -> None:
    """Solve all of the architecture's entries once."""
    for key, text in entries(architecture).items():
        value = model.metadata.get(full_key(architecture, key))
        if value is not None and not key.startswith(("general.", "tokenizer.")):
            solver.solve(text, plain(value))
    for name, text in architecture.shapes.items():
        shape = next(
            (model.tensors[n].shape for n in _layers(model, name) if n in model.tensors), ()
        )
        solver.solve(text, list(shape))
    rows = _length(model, "token_embd.weight", 0)
    if rows is not None:
        solver.fields.setdefault("vocab_size", rows)


def _layers(model: Model, name: str) -> Iterator[str]:
    """Yield the names that a template may have, by layer."""
    for layer in range(len(model.tensors) if "{i}" in name else 1):
        yield name.replace("{i}", str(layer))


def entries(architecture: Architecture) -> dict[str, Any]:
    """Return the expressions of keys as they are in the end, those of parents replaced."""
    return dict((*architecture.early, *architecture.metadata))


def full_key(architecture: Architecture, key: str) -> str:
    """Return a key of an architecture file with the prefix that it has in a GGUF file."""
    return key if key.startswith(("general.", "tokenizer.")) else f"{architecture.name}.{key}"


def _config(model: Model, architecture: Architecture, solver: Solver) -> dict[str, Any]:
    solver.fields.update(_rope(model, solver))
    for name, allowed in architecture.expects.items():
        if isinstance(allowed, list) and allowed and not _is_nothing(allowed[0]):
            solver.solve(name, allowed[0])
    for name, text in architecture.export.items():
        value = solver.value(text)
        home, _, inner = name.rpartition(".")
        fields = solver.fields.get(home) if home else solver.fields
        if value is not None and isinstance(fields, dict):
            fields[inner] = value
    found = {k: v for k, v in solver.fields.items() if k not in _INTERNAL and v is not None}
    nulls = {name: None for name, text in architecture.export.items() if _may_be_null(text)}
    found = nulls | found
    classes = found.pop("architectures", next(iter(architecture.classes), ""))
    return {"architectures": [classes], **dict(sorted(found.items()))}


def _may_be_null(text: Any) -> bool:  # noqa: ANN401 (as TOML is)
    return isinstance(text, str) and text.endswith(_NULL)


def _is_nothing(value: Any) -> bool:  # noqa: ANN401 (as TOML is)
    """Whether a value stands for a field that is not there."""
    return value == 0 and not isinstance(value, bool)


# Rotary embedding.


def _rope(model: Model, solver: Solver) -> dict[str, Any]:
    """Return the fields of config.json for what the tables call `rope`."""
    rope = solver.fields["rope"]
    names = {
        "rope_theta": "theta",
        "rope_local_base_freq": "local_theta",
        "partial_rotary_factor": "partial_rotary_factor",
    }
    found = {field: rope[name] for field, name in names.items() if name in rope}
    scaling = _scaling(rope) or _long(model) or _llama3(model, found.get("rope_theta"))
    if scaling:
        found["rope_scaling"] = scaling
    if "original" in rope and rope.get("scaling") != "yarn":
        found["original_max_position_embeddings"] = rope["original"]
    if "sections" in rope:
        found["rope_scaling"] = {"rope_type": "default", "mrope_section": rope["sections"]}
    return found


def _scaling(rope: Mapping[str, Any]) -> dict[str, Any] | None:
    kind = rope.get("scaling")
    if kind not in ("linear", "yarn"):
        return None
    names = {
        "factor": rope.get("scaling_factor", rope.get("factor")),
        "attention_factor": rope.get("yarn_attention"),
        "mscale_all_dim": rope.get("mscale_all_dim"),
        "mscale": rope.get("mscale_all_dim"),  # llama.cpp takes them for the same
    }
    said = {name: value for name, value in names.items() if value is not None}
    return {"rope_type": kind, **said, **rope.get("yarn", {})}


def _long(model: Model) -> dict[str, Any] | None:
    if _LONG not in model.tensors or _SHORT not in model.tensors:
        return None
    long, short = ([shortest(float(n)) for n in _factors(model, name)] for name in (_LONG, _SHORT))
    return {"type": "longrope", "long_factor": long, "short_factor": short}


def _factors(model: Model, name: str) -> npt.NDArray[np.float32]:
    """Return the factors of a few frequencies: nobody has more, and they are read at once."""
    tensor = model.tensors[name]
    if len(tensor.shape) != 1 or not 0 < tensor.elements <= MAX_FREQUENCIES:
        raise ShapeError(f"{name} of shape {tensor.shape} holds no factors of frequencies")
    return np.asarray(tensor.numpy(), np.float32)


def _llama3(model: Model, base: object) -> dict[str, Any] | None:
    """Return the parameters that give the factors in the file, bit for bit."""
    if _LLAMA3 not in model.tensors:
        return None
    factors = _factors(model, _LLAMA3)
    theta = base if isinstance(base, int | float) else 10000.0
    for (low, high), original in itertools.product(_BANDS, _ORIGINALS):
        said = {
            "rope_type": "llama3",
            "factor": shortest(float(factors.max())),
            "low_freq_factor": low,
            "high_freq_factor": high,
            "original_max_position_embeddings": original,
        }
        made = llama3_factors({**said, "rope_theta": theta}, 2 * len(factors))
        if made is not None and np.array_equal(made, factors):
            return said
    raise CheckpointError(
        f"{_LLAMA3} holds factors of no known scaling",
        remedy="config.json can only say them by their parameters, and none that is in use fits",
    )


# Pooling, as sentence-transformers has it.


def _pooling_files(model: Model, architecture: Architecture) -> dict[str, bytes]:
    value = model.metadata.get(f"{architecture.name}.pooling_type")
    number = None if value is None else plain(value)
    mode = _POOLING.get(number) if isinstance(number, int) else None
    if mode is None:
        return {}
    width = model.metadata.get(f"{architecture.name}.embedding_length")
    home = "sentence_transformers.models"
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{home}.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{home}.Pooling"},
    ]
    modes = {name: name == mode for name in _POOLING.values()}
    pooling = {"word_embedding_dimension": None if width is None else plain(width), **modes}
    return {"modules.json": as_json(modules), "1_Pooling/config.json": as_json(pooling)}


def as_json(content: object) -> bytes:
    """Return the text of a JSON file."""
    return (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode()
