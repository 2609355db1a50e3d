"""What llama.cpp reports of its memory, out of the package that runs it whole.

It runs in a process of its own, this file run as a program: llama.cpp aborts where it is surprised.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from ggufkit.llama_cpp import library as llama_cpp

MEBIBYTE: Final = 1 << 20
_CACHE = re.compile(
    r"size = +([\d.]+) MiB \( *(\d+) cells, +(\d+) layers.*K \(\w+\): +([\d.]+) MiB, "
    r"V \(\w+\): +([\d.]+) MiB"
)
_STATE = re.compile(r"size = +([\d.]+) MiB \( *(\d+) cells.*R \(\w+\): +([\d.]+) MiB")
_BUFFER = re.compile(r"(\w+) +(model|output|compute) buffer size = +([\d.]+) MiB")


class ModelParameters(ctypes.Structure):
    """`llama_model_params` of llama.h."""

    _fields_ = (
        ("lists", ctypes.c_void_p * 2),
        ("n_gpu_layers", ctypes.c_int32),
        ("split_mode", ctypes.c_int),
        ("load_mode", ctypes.c_int),
        ("lazy_mode", ctypes.c_int),
        ("main_gpu", ctypes.c_int32),
        ("pointers", ctypes.c_void_p * 4),
        ("vocab_only", ctypes.c_bool),
        ("check_tensors", ctypes.c_bool),
        ("use_extra_bufts", ctypes.c_bool),
        ("no_host", ctypes.c_bool),
        ("no_alloc", ctypes.c_bool),
        ("load_mtp", ctypes.c_bool),
        ("reserve", ctypes.c_int8 * 128),
    )


class ContextParameters(ctypes.Structure):
    """`llama_context_params` of llama.h, in the version that the tests install."""

    _fields_ = (
        ("n_ctx", ctypes.c_uint32),
        ("n_batch", ctypes.c_uint32),
        ("n_ubatch", ctypes.c_uint32),
        ("n_seq_max", ctypes.c_uint32),
        ("counts", ctypes.c_uint32 * 5),
        ("types", ctypes.c_int * 5),
        ("rope_and_yarn", ctypes.c_float * 6),
        ("yarn_orig_ctx", ctypes.c_uint32),
        ("defrag_thold", ctypes.c_float),
        ("cb_eval", ctypes.c_void_p * 2),
        ("type_k", ctypes.c_int),
        ("type_v", ctypes.c_int),
        ("abort_callback", ctypes.c_void_p * 3),
        ("embeddings", ctypes.c_bool),
        ("offload_kqv", ctypes.c_bool),
        ("no_perf", ctypes.c_bool),
        ("op_offload", ctypes.c_bool),
        ("swa_full", ctypes.c_bool),
        ("kv_unified", ctypes.c_bool),
    )


def report(path: Path, **options: Any) -> dict[str, Any]:
    """Return what llama.cpp says when it makes a context for a model, in MiB.

    `options` are fields of `llama_context_params`; `flash` its flash attention, and `simulated`
    allocates nothing, so that the tensors may be holes.
    """
    job = json.dumps({"path": str(path), **options})
    done = subprocess.run(
        [sys.executable, __file__], input=job, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise AssertionError(done.stderr[-3000:])
    return read(done.stderr)


def read(log: str) -> dict[str, Any]:
    """Return the figures of a log."""
    caches = [tuple(map(float, figures)) for figures in _CACHE.findall(log)]
    states = [float(figures[0]) for figures in _STATE.findall(log)]
    buffers: dict[str, float] = {}
    for _, kind, size in _BUFFER.findall(log):
        buffers[kind] = buffers.get(kind, 0) + float(size)
    return {"caches": caches, "states": states, **buffers, "log": log}


def main() -> None:
    """Do the job on stdin; llama.cpp's log goes to stderr."""
    job = json.loads(sys.stdin.read())
    library = llama_cpp.library().functions
    log = llama_cpp._Log(lambda _level, text, _data: sys.stderr.write(text.decode()))
    library.llama_log_set(log, None)
    library.llama_model_default_params.restype = ModelParameters
    library.llama_model_load_from_file.argtypes = (ctypes.c_char_p, ModelParameters)
    chosen = library.llama_model_default_params()
    chosen.no_alloc = bool(job.pop("simulated", False))
    chosen.vocab_only = bool(job.pop("vocab_only", False))
    chosen.use_extra_bufts = False  # which repack weights, as some processors like them
    if chosen.no_alloc:
        chosen.load_mode = 0
    model = library.llama_model_load_from_file(os.fsencode(job.pop("path")), chosen)
    parameters = library.llama_context_default_params()
    context = ContextParameters.from_buffer(parameters)
    context.types[4] = int(job.pop("flash", -1))
    context.swa_full = False
    for name, value in job.items():
        setattr(context, name, value)
    context_pointer = model
    if model and not chosen.vocab_only:
        context_pointer = library.llama_init_from_model(model, parameters)
    sys.stderr.flush()
    os._exit(0 if context_pointer else 1)


if __name__ == "__main__":
    main()
