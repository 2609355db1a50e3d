"""The library in llama.cpp's Python binding: its structures, its functions, its errors.

The binding xllamacpp ships all of llama.cpp as one library with its C functions as symbols. The
structures below match `llama.h` and `ggml.h` of exactly that version.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import importlib.util
from collections.abc import Callable
from ctypes import (
    POINTER,
    c_bool,
    c_char,
    c_char_p,
    c_float,
    c_int,
    c_int8,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_void_p,
)
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ggufkit.errors import GGUFError, MissingExtraError, TensorTypeError
from ggufkit.models.model import Tensor

BINDING: Final = "xllamacpp"
VERSION: Final = "2026.10.11549"  # the extra in pyproject.toml names the same
LOG_ERROR: Final = 4  # ggml_log_level
SHOWN_ERRORS: Final = 3  # lines of llama.cpp's log in a message
F32: Final = 0  # ggml_type
TYPE_COUNT: Final = 43  # GGML_TYPE_COUNT
NO_OPERATION: Final = 0  # ggml_op: of weights and inputs
LOADED_WHOLE: Final = 0  # llama_load_mode: weights are in memory of their own, not mapped
MODEL_PARAMETERS_BYTES: Final = 256  # more than any version has; passed on unread
CONTEXT_RESERVE_BYTES: Final = 96


class GraphTensor(ctypes.Structure):
    """`ggml_tensor`: a node of the graph that is being computed."""


GraphTensor._fields_ = (
    ("type", c_int),
    ("buffer", c_void_p),
    ("ne", c_int64 * 4),
    ("nb", c_size_t * 4),
    ("op", c_int),
    ("op_params", c_int32 * 16),
    ("flags", c_int32),
    ("src", POINTER(GraphTensor) * 10),
    ("view_src", c_void_p),
    ("view_offs", c_size_t),
    ("data", c_void_p),
    ("name", c_char * 64),
)


class ModelParameters(ctypes.Structure):
    """`llama_model_params`; all but `load_mode` is passed on unchanged."""

    _fields_ = (
        ("lists", c_void_p * 2),
        ("devices_and_split", c_int32 * 2),
        ("load_mode", c_int),
        ("rest", c_int8 * (MODEL_PARAMETERS_BYTES - 28)),
    )


class ContextParameters(ctypes.Structure):
    """`llama_context_params`."""

    _fields_ = (
        ("n_ctx", c_uint32),
        ("n_batch", c_uint32),
        ("n_ubatch", c_uint32),
        ("n_seq_max", c_uint32),
        ("n_rs_seq", c_uint32),
        ("n_outputs_max", c_uint32),
        ("n_outputs_max_per_seq", c_uint32),
        ("n_threads", c_int32),
        ("n_threads_batch", c_int32),
        ("types", c_int * 5),
        ("rope_and_yarn", c_float * 6),
        ("yarn_orig_ctx", c_uint32),
        ("defrag_thold", c_float),
        ("cb_eval", c_void_p),
        ("cb_eval_user_data", c_void_p),
        ("type_k", c_int),
        ("type_v", c_int),
        ("abort_callback", c_void_p),
        ("abort_callback_data", c_void_p),
        ("added", c_void_p),  # not in any published header; defaults to null
        ("embeddings", c_bool),
        ("offload_kqv", c_bool),
        ("no_perf", c_bool),
        ("op_offload", c_bool),
        ("swa_full", c_bool),
        ("kv_unified", c_bool),
        ("samplers_and_more", c_void_p * 3),
        ("reserve", c_int8 * CONTEXT_RESERVE_BYTES),
    )


class TypeTraits(ctypes.Structure):
    """`ggml_type_traits_cpu`: what the processor's kernels can do with a tensor type."""

    _fields_ = (
        ("from_float", c_void_p),
        ("vec_dot", c_void_p),
        ("vec_dot_type", c_int),
        ("nrows", c_int64),
    )


class Batch(ctypes.Structure):
    """`llama_batch`."""

    _fields_ = (
        ("n_tokens", c_int32),
        ("token", POINTER(c_int32)),
        ("embd", c_void_p),
        ("pos", POINTER(c_int32)),
        ("n_seq_id", POINTER(c_int32)),
        ("seq_id", POINTER(POINTER(c_int32))),
        ("logits", POINTER(c_int8)),
    )


# Called with True to ask whether a node is needed, with False once it is computed.
Watcher = Callable[[GraphTensor, bool], bool]
Eval: type[Any] = ctypes.CFUNCTYPE(c_bool, POINTER(GraphTensor), c_bool, c_void_p)
_Log = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)

_SIGNATURES: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "ggml_backend_buffer_is_host": (c_bool, (c_void_p,)),
    "ggml_backend_tensor_set": (None, (POINTER(GraphTensor), c_char_p, c_size_t, c_size_t)),
    "ggml_backend_tensor_get": (None, (POINTER(GraphTensor), c_void_p, c_size_t, c_size_t)),
    "ggml_get_type_traits_cpu": (POINTER(TypeTraits), (c_int,)),
    "ggml_nbytes": (c_size_t, (POINTER(GraphTensor),)),
    "ggml_op_name": (c_char_p, (c_int,)),
    "llama_backend_init": (None, ()),
    "llama_context_default_params": (ContextParameters, ()),
    "llama_decode": (c_int32, (c_void_p, Batch)),
    "llama_free": (None, (c_void_p,)),
    "llama_get_logits": (POINTER(c_float), (c_void_p,)),
    "llama_get_memory": (c_void_p, (c_void_p,)),
    "llama_init_from_model": (c_void_p, (c_void_p, ContextParameters)),
    "llama_log_set": (None, (_Log, c_void_p)),
    "llama_memory_clear": (None, (c_void_p, c_bool)),
    "llama_model_is_hybrid": (c_bool, (c_void_p,)),
    "llama_model_is_recurrent": (c_bool, (c_void_p,)),
    "llama_model_default_params": (ModelParameters, ()),
    "llama_model_free": (None, (c_void_p,)),
    "llama_model_get_vocab": (c_void_p, (c_void_p,)),
    "llama_model_load_from_file": (c_void_p, (c_char_p, ModelParameters)),
    "llama_synchronize": (None, (c_void_p,)),
    "llama_tokenize": (
        c_int32,
        (c_void_p, c_char_p, c_int32, POINTER(c_int32), c_int32, c_bool, c_bool),
    ),
    "llama_vocab_bos": (c_int32, (c_void_p,)),
    "llama_vocab_get_add_bos": (c_bool, (c_void_p,)),
    "llama_vocab_get_add_eos": (c_bool, (c_void_p,)),
    "llama_vocab_is_eog": (c_bool, (c_void_p, c_int32)),
    "llama_vocab_n_tokens": (c_int32, (c_void_p,)),
}


class Library:
    """The functions of llama.cpp, and the last errors that it logged."""

    def __init__(self, path: Path) -> None:
        """Load the library; OSError if that fails."""
        self.functions: ctypes.CDLL = ctypes.CDLL(str(path))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self.functions, name)
            function.restype, function.argtypes = result, arguments
        self.errors: list[str] = []
        self._log = _Log(self._keep)  # kept alive as long as llama.cpp may call it
        self.functions.llama_log_set(self._log, None)
        self.functions.llama_backend_init()

    def _keep(self, level: int, text: bytes, _data: object) -> None:
        if level == LOG_ERROR:
            self.errors = [*self.errors, text.decode(errors="replace").strip()][-SHOWN_ERRORS:]

    def require_multiplied(self, tensor: Tensor, remedy: str) -> None:
        """Raise TensorTypeError for a matrix that ggml cannot multiply: it would crash."""
        traits = self.functions.ggml_get_type_traits_cpu
        if tensor.type.id >= TYPE_COUNT or not traits(tensor.type.id).contents.vec_dot:
            raise TensorTypeError(
                f"the type of {tensor.name} is {tensor.type.name}, which llama.cpp cannot multiply",
                remedy=remedy,
            )

    def array(self, tensor: GraphTensor, dtype: type[Any]) -> npt.NDArray[Any]:
        """Return a node's elements in NumPy's order of axes; only device memory is copied."""
        call = self.functions
        nbytes = call.ggml_nbytes(tensor)
        if tensor.data and call.ggml_backend_buffer_is_host(tensor.buffer):
            memory = (c_char * nbytes).from_address(tensor.data)
        else:
            memory = (c_char * nbytes)()
            call.ggml_backend_tensor_get(tensor, memory, 0, nbytes)
        shape = tuple(reversed(tensor.ne))
        array: npt.NDArray[Any] = np.ndarray(shape, dtype, memory, 0, tuple(reversed(tensor.nb)))
        return array

    def failure(self, what: str) -> GGUFError:
        """Return the error that llama.cpp failed to do `what`, with its log."""
        reasons = "; ".join(self.errors) or "llama.cpp gave no reason"
        self.errors = []
        return GGUFError(f"llama.cpp {what}: {reasons}")


@functools.cache
def library() -> Library:
    """Return llama.cpp from the binding; MissingExtraError unless its known version is there."""
    spec = importlib.util.find_spec(BINDING)
    version = importlib.metadata.version(BINDING) if spec else None
    if spec is None or spec.origin is None or version != VERSION:
        problem = (
            f"{BINDING} {version} is in an unknown layout" if version else f"{BINDING} is missing"
        )
        raise MissingExtraError(
            f"this needs llama.cpp, but {problem}",
            remedy=f"pip install 'ggufkit[llama]', which takes {BINDING} {VERSION}",
        )
    files = sorted(Path(spec.origin).parent.glob(f"{BINDING}*.so"))
    files += sorted(Path(spec.origin).parent.glob(f"{BINDING}*.pyd"))
    if not files:
        raise MissingExtraError(f"the package {BINDING} contains no library")
    return Library(files[0])
