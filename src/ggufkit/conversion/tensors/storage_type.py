"""Chooses the type that each converted tensor is stored in, as llama.cpp's converter does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from ggufkit.conversion.tensors.arithmetic import Computed, compute, same
from ggufkit.errors import GGUFError, TensorTypeError
from ggufkit.format.file_types import NUMBER_OF
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.sources import retyped

_TERNARY: Final = ("TQ1_0", "TQ2_0")
OUTTYPES: Final = {kind.lower(): kind for kind in ("F32", "F16", "BF16", "Q8_0", *_TERNARY)}
AUTO: Final = "auto"
NARROW: Final = "F16 in F16"  # of `types`: F16 in F16 files, F32 in all others
SOURCE: Final = "source"  # of `types`: F32 and BF16 stay so, and FP8 becomes Q8_0
FILE: Final = "file"  # of `types`: the type of the file's matrices
_FLOATS: Final = ("F32", "F16", "BF16")
KEPT: Final = ("Q4_0", "Q4_1", "Q8_0")  # of weights that keep their codes

# Always F32, like norms and vectors: small tensors whose precision matters.
_PRECISE: Final = re.compile(
    r"(position_embd|token_types|blk\.\d+\.(ffn_gate_inp|ffn_gate_inp_shexp|ssm_conv1d"
    r"|shortconv\.conv|time_mix_(first|w1|w2|decay_w1|decay_w2|lerp_fused)|ssm_conv1d_[qkv]"
    r"|indexer\.proj|altup_(correct|predict)_coef))\.weight"
)

_INTEGERS: Final = ("d2t",)  # ids of tokens
# F16 in ternary files: three values are too few for these.
_NOT_TERNARY: Final = re.compile(
    r"(token_embd|per_layer_token_embd|output|blk\.\d+\.(altup_router|laurel_[lr]))\.weight"
)


def automatic(tensors: Iterable[Tensor]) -> str:
    """Return the type of the first matrix that is BF16 or F16, else F16."""
    kinds = (tensor.type.name for tensor in tensors if len(tensor.shape) > 1)
    return next((kind for kind in kinds if kind in ("BF16", "F16")), "F16")


def outtype_type(outtype: str) -> str | None:
    """Return the type of matrices that an outtype names, None for `auto`."""
    if outtype == AUTO or outtype in OUTTYPES:
        return OUTTYPES.get(outtype)
    names = ", ".join((AUTO, *OUTTYPES))
    raise TensorTypeError(f"unknown outtype {outtype!r}", remedy=f"Use one of {names}")


def file_type(kind: str, tensors: Iterable[Tensor], mxfp4: str) -> int:
    """Return the number for general.file_type of a file whose matrices become `kind`.

    Weights in blocks set it: kept ones by the type that most have, NVFP4 but not with Q8_0, and
    MXFP4, but not with Q8_0 if the method `mxfp4` is gpt-oss'.
    """
    kinds = Counter(tensor.type.name for tensor in tensors)
    if names := [name for name, _ in kinds.most_common() if name in KEPT]:
        return NUMBER_OF[names[0]]
    if kinds["NVFP4"] and kind != "Q8_0":
        return NUMBER_OF["NVFP4"]
    is_kept = kind == "Q8_0" and mxfp4 == "mxfp4"
    return NUMBER_OF["MXFP4_MOE" if kinds["MXFP4"] and not is_kept else kind]


def lossless(tensors: Iterable[Tensor]) -> str:
    """Return the outtype that keeps every element: the type of all matrices, F32 if they differ."""
    kinds = {tensor.type.name for tensor in tensors if len(tensor.shape) > 1}
    names = (outtype for outtype, name in OUTTYPES.items() if {name} == kinds)
    return next(names, "f32")


def stored(
    tensor: Tensor,
    outtype: str,
    types: Mapping[str, str] | None = None,
    *,
    from_fp8: bool = False,
    numpy_nan: bool = False,
) -> Tensor:
    """Return the tensor as stored in a file whose matrices are `outtype`.

    `types` are patterns of names, and the types of such tensors in every file, instead of the usual
    types. A matrix `from_fp8` becomes Q8_0. With `numpy_nan` NaNs are as in llama.cpp's converter:
    NaNs of BF16 become quiet, and NaNs that become F16 keep bits.
    """
    kind = _kind(tensor, outtype, types or {}, from_fp8=from_fp8)
    if numpy_nan and tensor.type == kind and kind.name == "BF16":
        tensor = compute(tensor)
    if tensor.type == kind or tensor.type.is_quantized or tensor.name in _INTEGERS:
        return tensor
    if tensor.type.name not in _FLOATS:
        if tensor.type.dtype is None:
            raise TensorTypeError(f"{tensor.name!r} is of type {tensor.type}, but has no scales")
        tensor = compute(tensor)
    if numpy_nan and kind.name == "F16":
        return Tensor.over(tensor.name, kind, tensor.shape, Computed(tensor, kind, same))
    return retyped(tensor, kind)


def _kind(tensor: Tensor, outtype: str, types: Mapping[str, str], *, from_fp8: bool) -> TensorType:
    name = tensor.name
    if len(tensor.shape) < 2 or name.endswith("_norm.weight"):  # noqa: PLR2004 (vectors)
        return tensor_type("F32")
    if from_fp8:
        return _fixed(tensor, outtype, "Q8_0")
    matching = [pattern for pattern in types if fnmatchcase(name, pattern)]
    if matching:
        return _fixed(tensor, outtype, types[max(matching, key=len)])
    if not name.endswith((".weight", ".lora_a", ".lora_b")) or _PRECISE.fullmatch(name):
        return tensor_type("F32")
    if outtype in _TERNARY and _NOT_TERNARY.fullmatch(name):
        return tensor_type("F16")
    return _fixed(tensor, outtype, FILE)


def _fixed(tensor: Tensor, outtype: str, fixed: str) -> TensorType:
    if fixed == NARROW:
        return tensor_type("F16" if outtype == "F16" else "F32")
    if fixed == SOURCE:
        fixed = tensor.type.name if tensor.type.name in ("F32", "BF16") else FILE
    kind = tensor_type(outtype if fixed == FILE else fixed)
    is_divisible = tensor.shape[-1] % kind.block_size == 0
    return kind if is_divisible else tensor_type("F16")


def stored_each(
    tensors: Sequence[Tensor],
    kind: str,
    types: Mapping[str, str] | None = None,
    from_fp8: Collection[str] = (),
    *,
    numpy_nan: bool = False,
) -> tuple[list[Tensor], list[str]]:
    """Return the tensors in the types of the file, and the problems of the others.

    `from_fp8` are the names of matrices to store as Q8_0; `numpy_nan` as for `stored`.
    """
    outputs: dict[str, Tensor] = {}
    problems: list[str] = []
    for tensor in tensors:
        if tensor.name in outputs:
            problems.append(f"two tensors become {tensor.name}")
        try:
            outputs[tensor.name] = stored(
                tensor, kind, types, from_fp8=tensor.name in from_fp8, numpy_nan=numpy_nan
            )
        except GGUFError as error:
            problems.append(f"{tensor.name}: {error.message}")
    return list(outputs.values()), problems
