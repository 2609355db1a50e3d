"""MXFP4 of checkpoints: two tensors, codes and scales, become one of ggml's blocks, and back.

Both sides give 32 elements a power of two and 4 bits each. A checkpoint keeps neighbours in a byte,
elements 0 and 1, 2 and 3, ...; ggml puts elements 0 and 16, 1 and 17, ... behind the scale.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ggufkit.conversion.checkpoint.safetensors import F8_E8M0, U8
from ggufkit.conversion.tensors.moves import reshape
from ggufkit.errors import CheckpointError
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.rows import Rewritten
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


def _blocks(codes: Bytes, scales: Bytes) -> Bytes:
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


def joined(tensors: Mapping[str, Tensor], method: str) -> list[Tensor]:
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
    source = Rewritten(_blocks, (codes.source, scales.source))
    return Tensor.over(f"{stem}{form.joined}", MXFP4, shape, source)


def kept_experts(tensors: Iterable[Tensor]) -> frozenset[str]:
    """Return the names of the experts if all of them are MXFP4: a checkpoint can hold these."""
    experts = [tensor for tensor in tensors if tensor.name.endswith(_EXPERTS)]
    is_whole = all(tensor.type == MXFP4 for tensor in experts)
    return frozenset(tensor.name for tensor in experts if is_whole)


def parted(tensors: Iterable[Tensor], method: str) -> Iterator[Tensor]:
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
