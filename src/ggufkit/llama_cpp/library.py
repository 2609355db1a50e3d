"""The library in llama.cpp's Python binding: its structures, its functions, its errors.

The binding xllamacpp ships all of llama.cpp as one library with its C functions as symbols. The
structures below match `llama.h` and `ggml.h`; what differs between versions is found in llama.cpp's
default parameters. A version without the functions that are needed is refused, and so is one whose
tensors or parameters are laid out in an unknown way.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import importlib.util
import re
import struct
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
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ggufkit.errors import GGUFError, MissingExtraError

BINDING: Final = "xllamacpp"
LOG_ERROR: Final = 4  # ggml_log_level
SHOWN_ERRORS: Final = 3  # lines of llama.cpp's log in a message
F32: Final = 0  # ggml_type
F16: Final = 1
NO_OPERATION: Final = 0  # ggml_op: of weights and inputs
LOADED_WHOLE: Final = 0  # llama_load_mode: weights are in memory of their own, not mapped
PARAMETERS_BYTES: Final = 256  # more than any version has; passed on unread
FIRST_DEFAULTS: Final = (512, 2048, 512, 1)  # n_ctx, n_batch, n_ubatch, n_seq_max
PROBE_BYTES: Final = 1 << 16  # for the tensors of `Library._has_known_tensors`


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
    """`llama_model_params`; until August 2026 it had `use_mmap` and no `load_mode`."""

    _fields_ = (
        ("lists", c_void_p * 2),
        ("layers_and_split", c_int32 * 2),
        ("load_mode", c_int),
        ("devices_and_callbacks", c_int8 * 37),
        ("use_mmap", c_bool),
        ("rest", c_int8 * PARAMETERS_BYTES),
    )


class ContextParameters(ctypes.Structure):
    """`llama_context_params`: what all versions have first, and more at places that differ."""

    _fields_ = (
        ("n_ctx", c_uint32),
        ("n_batch", c_uint32),
        ("n_ubatch", c_uint32),
        ("n_seq_max", c_uint32),
        ("rest", c_int8 * PARAMETERS_BYTES),
    )


class ContextPlaces(NamedTuple):
    """The offsets of members of `llama_context_params` in a version of llama.cpp."""

    cb_eval: int
    swa_full: int
    kv_unified: int

    @classmethod
    def find(cls, defaults: bytes) -> ContextPlaces | None:
        """Find the offsets in the default parameters; None if they are laid out otherwise.

        `cb_eval` and its data, both null, lie behind `defrag_thold`, -1.0, and before the types of
        the cache, F16 both. The first flags after them are `embeddings`, `offload_kqv`, `no_perf`,
        `op_offload`, `swa_full` and `kv_unified`.
        """
        if struct.unpack_from("4I", defaults) != FIRST_DEFAULTS:
            return None
        callback = re.search(rb"(?s)\x80\xbf(?:....)?(\x00{16}\x01\x00{3}\x01\x00{3})", defaults)
        flags = callback and re.search(rb"\x00\x01{4}\x00", defaults[callback.end() :])
        if not callback or not flags:
            return None
        last = callback.end() + flags.end() - 1
        return cls(callback.start(1), last - 1, last)


class TypeTraits(ctypes.Structure):
    """`ggml_type_traits_cpu`: what the processor's kernels can do with a tensor type."""

    _fields_ = (
        ("from_float", c_void_p),
        ("vec_dot", c_void_p),
        ("vec_dot_type", c_int),
        ("nrows", c_int64),
    )


class InitParameters(ctypes.Structure):
    """`ggml_init_params`."""

    _fields_ = (("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool))


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
    "ggml_free": (None, (c_void_p,)),
    "ggml_get_data": (c_void_p, (POINTER(GraphTensor),)),
    "ggml_get_type_traits_cpu": (POINTER(TypeTraits), (c_int,)),
    "ggml_init": (c_void_p, (InitParameters,)),
    "ggml_mul_mat": (POINTER(GraphTensor), (c_void_p, *[POINTER(GraphTensor)] * 2)),
    "ggml_nbytes": (c_size_t, (POINTER(GraphTensor),)),
    "ggml_new_tensor_3d": (POINTER(GraphTensor), (c_void_p, c_int, *[c_int64] * 3)),
    "ggml_op_name": (c_char_p, (c_int,)),
    "ggml_set_name": (POINTER(GraphTensor), (POINTER(GraphTensor), c_char_p)),
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
    "llama_set_n_threads": (None, (c_void_p, c_int32, c_int32)),
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
        """Load the library; OSError if that fails, AttributeError if it lacks a function."""
        self.functions: ctypes.CDLL = ctypes.CDLL(str(path))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self.functions, name)
            function.restype, function.argtypes = result, arguments
        places = ContextPlaces.find(bytes(self.functions.llama_context_default_params()))
        if not places:
            raise AttributeError("its parameters of a context are laid out in an unknown way")
        if not self._has_known_tensors():
            raise AttributeError("its tensors are laid out in an unknown way")
        self.places: ContextPlaces = places
        self.errors: list[str] = []
        self._log = _Log(self._keep)  # kept alive as long as llama.cpp may call it
        self.functions.llama_log_set(self._log, None)
        self.functions.llama_backend_init()

    def _has_known_tensors(self) -> bool:
        """Whether a product that ggml makes reads as a GraphTensor."""
        call = self.functions
        context = call.ggml_init(InitParameters(PROBE_BYTES, None, no_alloc=False))
        weight = call.ggml_new_tensor_3d(context, F16, 32, 3, 5)
        inputs = call.ggml_new_tensor_3d(context, F32, 32, 7, 5)
        product = call.ggml_mul_mat(context, weight, inputs)
        call.ggml_set_name(weight, b"weight")
        node, source, other = product.contents, product.contents.src[0], product.contents.src[1]
        is_known = (
            tuple(node.ne) == (3, 7, 5, 1)
            and tuple(node.nb) == (4, 12, 84, 420)
            and call.ggml_op_name(node.op) == b"MUL_MAT"
            and node.data == call.ggml_get_data(product)
            and ctypes.cast(other, c_void_p).value == ctypes.cast(inputs, c_void_p).value
            and ctypes.cast(source, c_void_p).value == ctypes.cast(weight, c_void_p).value
            and (weight.contents.type, weight.contents.name) == (F16, b"weight")
        )
        call.ggml_free(context)
        return is_known

    def _keep(self, level: int, text: bytes, _data: object) -> None:
        if level == LOG_ERROR:
            self.errors = [*self.errors, text.decode(errors="replace").strip()][-SHOWN_ERRORS:]

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


def version() -> str | None:
    """Return the version of the installed binding, None if there is none."""
    return importlib.metadata.version(BINDING) if importlib.util.find_spec(BINDING) else None


@functools.cache
def library() -> Library:
    """Return llama.cpp from the binding; MissingExtraError unless it has what is needed."""
    spec = importlib.util.find_spec(BINDING)
    if spec is None or spec.origin is None:
        raise _missing(f"{BINDING} is missing")
    files = sorted(Path(spec.origin).parent.glob(f"{BINDING}*.so"))
    files += sorted(Path(spec.origin).parent.glob(f"{BINDING}*.pyd"))
    if not files:
        raise _missing(f"the package {BINDING} contains no library")
    try:
        return Library(files[0])
    except AttributeError as error:
        raise _missing(f"{BINDING} {version()} cannot be used: {error}") from None


def _missing(problem: str) -> MissingExtraError:
    return MissingExtraError(
        f"this needs llama.cpp, but {problem}", remedy="pip install 'ggufkit[llama]'"
    )
