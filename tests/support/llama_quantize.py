"""llama.cpp's own `llama_model_quantize`, out of a package that ships libllama whole.

It runs in a process of its own: this file, run as a program that reads what to do from stdin. What
the tool adds to the call of the library is added here.
"""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import real
from ggufkit.format.file_types import NUMBER_OF
from ggufkit.format.tensor_infos import GGML_MAX_NAME_BYTES
from ggufkit.format.types import tensor_type

_DRY_LINE = re.compile(r"\] +(\S+) +- \[.*?\], type = +(\w+), size = .*?(?:-> .*\((\w+)\))?\n")


class Override(ctypes.Structure):
    """`llama_model_kv_override` of llama.h; `value` is the union, as bytes."""

    _fields_ = (
        ("tag", ctypes.c_int),
        ("key", ctypes.c_char * 128),
        ("value", ctypes.c_int64 * 16),
    )


class Weights(ctypes.Structure):
    """`llama_model_imatrix_data` of llama.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("data", ctypes.POINTER(ctypes.c_float)),
        ("size", ctypes.c_size_t),
    )


class Pattern(ctypes.Structure):
    """`llama_model_tensor_override` of llama.h."""

    _fields_ = (("pattern", ctypes.c_char_p), ("type", ctypes.c_int))


class QuantizeParameters(ctypes.Structure):
    """`llama_model_quantize_params` of llama.h."""

    _fields_ = (
        ("threads", ctypes.c_int32),
        ("file_type", ctypes.c_int),
        ("output_tensor_type", ctypes.c_int),
        ("token_embedding_type", ctypes.c_int),
        ("allow_requantize", ctypes.c_bool),
        ("quantize_output_tensor", ctypes.c_bool),
        ("only_copy", ctypes.c_bool),
        ("pure", ctypes.c_bool),
        ("keep_split", ctypes.c_bool),
        ("dry_run", ctypes.c_bool),
        ("imatrix", ctypes.POINTER(Weights)),
        ("kv_overrides", ctypes.POINTER(Override)),
        ("tensor_overrides", ctypes.POINTER(Pattern)),
        ("prune_layers", ctypes.POINTER(ctypes.c_int32)),
        ("max_buffer_bytes", ctypes.c_size_t),
    )


def known_names() -> list[str]:
    """Return a weight name for each dotted word in llama.cpp's libraries."""
    words: set[str] = set()
    for library in ("libllama.so.0", "libmtmd.so.0"):
        content = (real.libllama() / library).read_bytes()
        words.update(
            word.decode() for word in re.findall(rb"\0([a-z]\w*[._][\w.%]+)(?=\0)", content)
        )
    stems = (word.replace("%d", "0").replace("%s", "weight") for word in words)
    names = {stem if stem.endswith("weight") else f"{stem}.weight" for stem in stems}
    return sorted(name for name in names if "%" not in name and len(name) <= GGML_MAX_NAME_BYTES)


def quantize(source: Path, target: Path, recipe: str, **options: Any) -> bool:
    """Quantize as llama-quantize does and return whether it succeeded.

    Options are the fields of `QuantizeParameters` by name, `allow_requantize` being true unless
    told otherwise; `weights` (a mapping of names to arrays) with `imatrix_keys` (file, dataset,
    chunks); `overrides` (key, type, value) and `tensor_types` (pattern, type).
    """
    return _run([_job(source, target, recipe, options)])[0][0]


def types(source: Path, *recipes: str, **options: Any) -> list[dict[str, str] | None]:
    """Return the type that each tensor would get in each recipe: dry runs, which read no data.

    None stands for a recipe that llama-quantize gives up on.
    """
    options["dry_run"] = True
    none = source.with_name("none")
    ran = _run([_job(source, none, recipe, options) for recipe in recipes])
    return [_types_in(log) if done else None for done, log in ran]


def _types_in(log: str) -> dict[str, str]:
    return {name: (after or old).upper() for name, old, after in _DRY_LINE.findall(log)}


def _job(source: Path, target: Path, recipe: str, options: Mapping[str, Any]) -> dict[str, Any]:
    weights = options.get("weights", {})
    lists = {name: np.asarray(value).ravel().tolist() for name, value in weights.items()}
    job = {"source": str(source), "target": str(target), "recipe": recipe, "weights": lists}
    return dict(options) | job


def _run(jobs: list[dict[str, Any]]) -> list[tuple[bool, str]]:
    """Return whether each job succeeded, and what llama.cpp said meanwhile."""
    command = [sys.executable, __file__]
    done = subprocess.run(
        command, check=False, input=json.dumps(jobs).encode(), capture_output=True
    )
    ran: list[tuple[bool, str]] = json.loads(done.stdout or "[]")
    return ran or [(False, done.stderr.decode(errors="replace"))] * len(jobs)


def main() -> None:
    """Do the jobs read from stdin; write the outcomes to stdout."""
    library = ctypes.CDLL(str(real.libllama() / "libllama.so.0"))
    library.llama_model_quantize_default_params.restype = QuantizeParameters
    messages: list[bytes] = []
    log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(
        lambda _level, text, _data: messages.append(text)
    )
    library.llama_log_set(log, None)
    outcomes = []
    for job in json.load(sys.stdin):
        messages.clear()
        done = _do(library, job)
        outcomes.append((done, b"".join(messages).decode(errors="replace")))
    json.dump(outcomes, sys.stdout)


def _do(library: ctypes.CDLL, job: dict[str, Any]) -> bool:
    chosen = library.llama_model_quantize_default_params()
    # What llama.h says of the defaults: these would not be so were the structure another.
    assert (chosen.file_type, chosen.quantize_output_tensor) == (NUMBER_OF["Q8_0"], True)
    assert chosen.max_buffer_bytes == 8 << 30
    source, target = job.pop("source").encode(), job.pop("target").encode()
    alive = _fill(chosen, job)
    failed: int = library.llama_model_quantize(source, target, ctypes.byref(chosen))
    del alive
    return failed == 0


def _fill(chosen: QuantizeParameters, job: dict[str, Any]) -> list[Any]:
    """Set the parameters; return what must stay alive meanwhile."""
    recipe = job.pop("recipe")
    chosen.only_copy = recipe == "COPY"
    chosen.file_type = NUMBER_OF.get(recipe, 0)
    chosen.threads = 2
    chosen.allow_requantize = job.pop("allow_requantize", True)
    weights = job.pop("weights")
    overrides = job.pop("overrides", [])
    if weights:
        overrides += _imatrix_keys(len(weights), **job.pop("imatrix_keys", {}))
    arrays = [np.array(value, np.float32) for value in weights.values()]
    pointers = [a.ctypes.data_as(ctypes.POINTER(ctypes.c_float)) for a in arrays]
    sized = zip(weights, pointers, arrays, strict=True)
    data = [Weights(name.encode(), offset, array.size) for name, offset, array in sized]
    patterns = [
        Pattern(text.lower().encode(), tensor_type(kind).id)
        for text, kind in job.pop("tensor_types", [])
    ]
    pruned = sorted(job.pop("prune_layers", []))
    alive = [arrays]
    for field, kind, rows, end in (
        ("imatrix", Weights, data, Weights()),
        ("kv_overrides", Override, [_override(*row) for row in overrides], Override()),
        ("tensor_overrides", Pattern, patterns, Pattern()),
        ("prune_layers", ctypes.c_int32, pruned, -1),
    ):
        if rows:
            array = (kind * (len(rows) + 1))(*rows, end)
            setattr(chosen, field, array)
            alive.append(array)
    for field in ("output_tensor_type", "token_embedding_type"):
        if field in job:
            setattr(chosen, field, tensor_type(job.pop(field)).id)
    chosen.quantize_output_tensor = not job.pop("leave_output_tensor", False)
    for field, value in job.items():
        assert field in dict(QuantizeParameters._fields_), field
        setattr(chosen, field, value)
    return alive


def _imatrix_keys(entries: int, file: str, dataset: str, chunks: int) -> list[tuple[str, str, Any]]:
    """Return the overrides that llama-quantize appends for an importance matrix."""
    return [
        ("quantize.imatrix.file", "str", file),
        ("quantize.imatrix.dataset", "str", dataset),
        ("quantize.imatrix.entries_count", "int", entries),
        ("quantize.imatrix.chunks_count", "int", chunks),
    ]


def _override(key: str, kind: str, value: Any) -> Override:
    override = Override(("int", "float", "bool", "str").index(kind), key.encode())
    address = ctypes.addressof(override) + Override.value.offset
    if kind == "str":
        ctypes.memmove(address, value.encode()[:127] + b"\0", len(value.encode()[:127]) + 1)
        return override
    form = {"int": ctypes.c_int64, "float": ctypes.c_double, "bool": ctypes.c_bool}[kind]
    form.from_address(address).value = value
    return override


if __name__ == "__main__":
    main()
