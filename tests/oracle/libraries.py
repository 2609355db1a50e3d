"""Quantize random weights with bitsandbytes, and keep what the library itself makes of them.

    python libraries.py OUT

writes OUT/NAME.safetensors, whose tensors are those of a checkpoint, and, dequantized, the same
weight as OUT/NAME-wanted.safetensors. Runs in the environment of requirements.txt.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import torch
from bitsandbytes import functional
from safetensors.torch import save_file

KINDS = ("nf4", "fp4")
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
# Blocks of 64 follow each other in the flat weight. Where a row is even and no whole number of
# them, bitsandbytes 0.50 with AVX-512 takes wrong scales, and its error is thrice what it is
# elsewhere; odd rows it decodes as it should.
SHAPES = ((48, 128), (5, 51))


def main(folder: str) -> None:
    torch.manual_seed(5)
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    cases = itertools.product(KINDS, (False, True), DTYPES, SHAPES)
    for number, (kind, is_nested, dtype, shape) in enumerate(cases):
        weight = torch.randn(shape).to(dtype)
        codes, state = functional.quantize_4bit(
            weight, blocksize=64, compress_statistics=is_nested, quant_type=kind
        )
        parts = {f"x.weight.{key}": part for key, part in state.as_dict(packed=True).items()}
        save(out / f"{kind}-{number}", {"x.weight": codes, **parts},
             functional.dequantize_4bit(codes, state))  # fmt: skip
    codes, scales, _ = functional.int8_vectorwise_quant(torch.randn(24, 40).half())
    save(out / "int8", {"x.weight": codes, "x.SCB": scales},
         functional.int8_vectorwise_dequant(codes, scales))  # fmt: skip


def save(path: Path, parts: dict[str, torch.Tensor], expected: torch.Tensor) -> None:
    save_file({name: part.contiguous() for name, part in parts.items()}, f"{path}.safetensors")
    save_file({"x.weight": expected.contiguous()}, f"{path}-wanted.safetensors")


if __name__ == "__main__":
    main(*sys.argv[1:])
