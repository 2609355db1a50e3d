"""FP4 of checkpoints: codes and scales, two tensors, become one of ggml's blocks.

A checkpoint keeps neighbours in a byte, elements 0 and 1, 2 and 3, ...; ggml keeps an element of
the first half of a group with one of the second. MXFP4 gives 32 elements a power of two, and export
takes its blocks apart again. NVFP4 (ModelOpt, compressed-tensors) gives 16 elements a scale of FP8,
and a block of ggml has four such groups; the scales of a whole matrix and of its activations become
tensors of their own, which llama.cpp multiplies with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from ggufkit.conversion.checkpoint.folder import Checkpoint
from ggufkit.conversion.checkpoint.safetensors import F8_E4M3, F8_E8M0, U8
from ggufkit.conversion.tensors.arithmetic import compute, read_floats
from ggufkit.conversion.tensors.moves import renamed, reshape
from ggufkit.errors import CheckpointError
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.rows import Rewritten
from ggufkit.models.sources import from_array
from ggufkit.system.mapped_file import Bytes

MXFP4: Final = tensor_type("MXFP4")
_I8: Final = tensor_type("I8")
MXFP4_FORMAT: Final = "mxfp4-pack-quantized"  # of compressed-tensors
_GROUP: Final = 32  # elements that share a scale
_GROUP_BYTES: Final = _GROUP // 2
_EXPERTS: Final = "_exps.weight"
_NUMBER: Final = re.compile(r"\d+")


@dataclass(frozen=True)
class MxForm:
    """How checkpoints of one `quant_method` keep MXFP4: the ends of names, and the types."""

    method: str
    joined: str  # the end of the name that architecture files use
    codes: str
    scales: str
    codes_type: TensorType
    scales_type: TensorType
    settings: Mapping[str, Any]  # of quantization_config, for export
    grouped: bool = False  # the codes of each group have an axis of their own


_FORMS: Final = (
    MxForm(
        "mxfp4", "_mxfp4", "_blocks", "_scales", U8, U8,
        {"modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
            "lm_head",
        ]},
        grouped=True,
    ),
    MxForm(
        "compressed-tensors", ".weight", ".weight_packed", ".weight_scale", U8, U8,
        {"format": MXFP4_FORMAT},
    ),
    MxForm(
        "fp8", ".weight", ".weight", ".scale", _I8, F8_E8M0,
        {"fmt": "e4m3", "scale_fmt": "ue8m0", "weight_block_size": [128, 128]},
    ),
)  # fmt: skip
FORMS: Final = {form.method: form for form in _FORMS}


def ggml_halves(codes: Bytes, nbytes: int) -> Bytes:
    """Return half bytes of groups of `nbytes` in ggml's order, from a checkpoint's."""
    half = nbytes // 2
    first, second = codes.reshape(-1, nbytes).view(f"<u{half}").T
    lower = first.dtype.type(int.from_bytes(b"\x0f" * half, "little"))  # of each byte of a word
    pairs = (first & lower) | ((second & lower) << 4), ((first >> 4) & lower) | (second & ~lower)
    halves = np.empty((len(first), nbytes), np.uint8)
    for place, words in enumerate(pairs):
        halves[:, place::2] = words.view(np.uint8).reshape(-1, half)
    return halves


def _mxfp4_blocks(codes: Bytes, scales: Bytes) -> Bytes:
    """Return rows of MXFP4 in ggml's order: their half bytes are moved."""
    return np.concatenate([scales.reshape(-1, 1), ggml_halves(codes, _GROUP_BYTES)], axis=1)


def _codes(rows: Bytes) -> Bytes:
    """Return the codes of rows of MXFP4 in a checkpoint's order."""
    halves = rows.reshape(-1, MXFP4.block_bytes)[:, 1:]
    even, odd = halves[:, ::2], halves[:, 1::2]
    first, second = (even & 15) | (odd << 4), (even >> 4) | (odd & 0xF0)
    return np.concatenate([first, second], axis=1)


def _scales(rows: Bytes) -> Bytes:
    return np.ascontiguousarray(rows.reshape(-1, MXFP4.block_bytes)[:, 0])


def join_mxfp4(tensors: Mapping[str, Tensor], method: str) -> list[Tensor]:
    """Return a checkpoint's tensors, with one of MXFP4 for each pair of codes and scales.

    These come first, as llama.cpp's converter has them: gpt-oss' in the order of the checkpoint,
    the others layer by layer. Raises CheckpointError for a pair that does not fit.
    """
    form = FORMS[method]
    weights: list[Tensor] = []
    others = dict(tensors)
    for name, codes in tensors.items():
        if not name.endswith(form.codes) or (form.codes_type == _I8 != codes.type):
            continue  # an FP8 matrix, whose name ends so too, or another tensor
        stem = name.removesuffix(form.codes)
        weights.append(_pair(form, stem, others.pop(name), others.pop(stem + form.scales, None)))
    if not form.grouped:
        weights.sort(key=lambda tensor: [int(n) for n in _NUMBER.findall(tensor.name)[:1]])
    return [*weights, *others.values()]


def _pair(form: MxForm, stem: str, codes: Tensor, scales: Tensor | None) -> Tensor:
    *outer, groups = scales.shape if scales is not None and scales.shape else (0,)
    flat = (*outer, _GROUP_BYTES * groups)
    needed = (*outer, groups, _GROUP_BYTES) if form.grouped else flat
    if scales is None or not scales.shape or codes.shape != needed:
        raise CheckpointError(f"{codes.name} of shape {codes.shape} lacks scales that fit")
    if codes.type not in (U8, _I8) or scales.type not in (U8, F8_E8M0):
        raise CheckpointError(f"{codes.name} and its scales must be bytes ({U8})")
    codes, shape = reshape(codes, flat), (*outer, _GROUP * groups)
    source = Rewritten(_mxfp4_blocks, (codes.source, scales.source))
    return Tensor.over(f"{stem}{form.joined}", MXFP4, shape, source)


def mxfp4_experts(tensors: Iterable[Tensor]) -> frozenset[str]:
    """Return the names of the experts if all of them are MXFP4: a checkpoint can hold these."""
    experts = [tensor for tensor in tensors if tensor.name.endswith(_EXPERTS)]
    is_whole = all(tensor.type == MXFP4 for tensor in experts)
    return frozenset(tensor.name for tensor in experts if is_whole)


def split_mxfp4(tensors: Iterable[Tensor], method: str) -> Iterator[Tensor]:
    """Yield a checkpoint's tensors, with codes and scales for each of MXFP4."""
    form = FORMS[method]
    for tensor in tensors:
        if tensor.type != MXFP4:
            yield tensor
            continue
        stem = tensor.name.removesuffix(form.joined)
        outer, groups = tensor.shape[:-1], tensor.shape[-1] // _GROUP
        flat = (*outer, groups * _GROUP_BYTES)
        source = Rewritten(_codes, (tensor.source,))
        codes = Tensor.over(f"{stem}{form.codes}", form.codes_type, flat, source)
        yield reshape(codes, (*outer, groups, _GROUP_BYTES)) if form.grouped else codes
        source = Rewritten(_scales, (tensor.source,))
        yield Tensor.over(f"{stem}{form.scales}", form.scales_type, (*outer, groups), source)


def quantization_config(method: str) -> dict[str, Any]:
    """Return the object of config.json that describes MXFP4 tensors."""
    return {"quant_method": method, **FORMS[method].settings}


NVFP4: Final = tensor_type("NVFP4")
NVFP4_FORMAT: Final = "nvfp4-pack-quantized"  # of compressed-tensors
# The ends of names for the scales of a matrix and of its activations, in architecture files.
SCALES: Final = (".scale", ".input_scale")
_ALGORITHM: Final = "NVFP4"
_PLAIN_ACTIVATIONS: Final = "W4A16_NVFP4"
_F32: Final = tensor_type("F32")
_NV_GROUP: Final = 16  # elements that share a scale
_GROUPS: Final = NVFP4.block_size // _NV_GROUP
_MAGNITUDE: Final = 0x7F  # of a scale: ggml's has no sign
_SETTINGS: Final = "hf_quant_config.json"
_EXPERT: Final = re.compile(r"\.experts\.\d+\.")
_NEARLY, _NEARLY_OF_EXPERTS = 1e-6, 1.1e-5  # how far from 1 a scale may be that is left out
# Names of compressed-tensors, whose scales of matrices divide, and of ModelOpt.
_DIVISORS: Final = {
    ".weight_global_scale": ".weight_scale_2", ".input_global_scale": ".input_scale",
}  # fmt: skip


def _nvfp4_blocks(codes: Bytes, scales: Bytes) -> Bytes:
    """Return rows of NVFP4 in ggml's order: their half bytes are moved."""
    halves = ggml_halves(codes, _NV_GROUP // 2)
    sizes = scales.reshape(-1, _GROUPS) & _MAGNITUDE
    return np.concatenate([sizes, halves.reshape(len(sizes), -1)], axis=1)


def with_modelopt_settings(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint with ModelOpt's own file of settings in its `quantization_config`."""
    settings = checkpoint.config.get("quantization_config")
    settings = settings if isinstance(settings, Mapping) else {}
    is_named = bool(settings.get("quant_algo"))
    modelopt = None if is_named else (checkpoint.json(_SETTINGS) or {}).get("quantization")
    if not isinstance(modelopt, Mapping):
        return checkpoint
    merged = {"quant_method": "modelopt", **settings, **modelopt}
    return replace(checkpoint, config={**checkpoint.config, "quantization_config": merged})


def is_nvfp4(settings: Mapping[str, Any]) -> bool:
    """Whether the settings of a checkpoint name NVFP4; CheckpointError for an unknown kind."""
    algorithms = _fields_of(settings.get("quantized_layers"), "quant_algo")
    algorithms.append(settings.get("quant_algo"))
    if _PLAIN_ACTIVATIONS in algorithms:
        raise CheckpointError(
            f"ggufkit cannot convert {_PLAIN_ACTIVATIONS}",
            remedy="Use the original, unquantized checkpoint, or one of NVFP4",
        )
    formats = {str(form) for form in _fields_of(settings.get("config_groups"), "format")}
    is_mixed = settings.get("format") == "mixed-precision" and formats == {NVFP4_FORMAT}
    return _ALGORITHM in algorithms or settings.get("format") == NVFP4_FORMAT or is_mixed


def _fields_of(parts: object, key: str) -> list[Any]:
    values = parts.values() if isinstance(parts, Mapping) else ()
    return [part.get(key) for part in values if isinstance(part, Mapping)]


def nvfp4_blocks(tensors: Mapping[str, Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Return NVFP4 matrices, each before its scales, and all other tensors by name.

    Raises CheckpointError for codes and scales that do not fit.
    """
    rest = _as_modelopt(tensors)
    weights: list[Tensor] = []
    for name in [name for name in rest if name.endswith(".weight")]:
        stem = name.removesuffix(".weight")
        scales = rest.get(f"{stem}.weight_scale")
        if scales is None or len(scales.shape) < 2:  # noqa: PLR2004 (of FP8)
            continue
        weights.append(_nvfp4(rest.pop(name), rest.pop(f"{stem}.weight_scale")))
        for end, stored in zip(SCALES, (".weight_scale_2", ".input_scale"), strict=True):
            weights.append(_number(f"{stem}{end}", rest.pop(f"{stem}{stored}", None)))
    # Scales of 1 are left out; of experts only if all scales of a layer are 1.
    needed = {joined_name(tensor.name) for tensor in weights if not _is_one(tensor)}
    return [tensor for tensor in weights if joined_name(tensor.name) in needed], rest


def _as_modelopt(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors under ModelOpt's names; tensors of compressed-tensors come last."""
    others: dict[str, Tensor] = {}
    packed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        end = next((end for end in _DIVISORS if name.endswith(end)), None)
        if end:
            packed[name.removesuffix(end) + _DIVISORS[end]] = compute(tensor, np.reciprocal)
        elif name.endswith(".weight_packed"):
            weight = name.removesuffix("_packed")
            packed[weight] = renamed(tensor, weight)
        else:
            others[name] = tensor
    return {**others, **packed}


def _nvfp4(codes: Tensor, scales: Tensor) -> Tensor:
    width = 2 * sum(codes.shape[-1:])
    needed = (*codes.shape[:-1], width // _NV_GROUP)
    if codes.type != U8 or scales.type != F8_E4M3 or scales.shape != needed:
        raise CheckpointError(f"{codes.name} of shape {codes.shape} lacks scales of NVFP4 that fit")
    if width % NVFP4.block_size:
        raise CheckpointError(
            f"{codes.name} has {width} columns, which blocks of {NVFP4.block_size} do not divide"
        )
    shape = (*codes.shape[:-1], width)
    source = Rewritten(_nvfp4_blocks, (codes.source, scales.source))
    return Tensor.over(codes.name, NVFP4, shape, source)


def _number(name: str, scale: Tensor | None) -> Tensor:
    """Return a scale as a vector of one number, 1 where the checkpoint has none."""
    if scale is None:
        return from_array(name, np.ones(1, np.float32))
    if scale.elements != 1:
        raise CheckpointError(f"{scale.name} of shape {scale.shape} is not one number")
    return renamed(reshape(scale, (1,)), name)


def joined_name(name: str) -> str:
    """Return one name for the weights of all experts, which become one tensor."""
    return _EXPERT.sub(".experts.", name)


def _is_one(tensor: Tensor) -> bool:
    if tensor.type == NVFP4:
        return False
    number = float(read_floats(tensor, _F32, 0, 1).reshape(-1)[0])
    return abs(number - 1.0) < (_NEARLY_OF_EXPERTS if _EXPERT.search(tensor.name) else _NEARLY)
