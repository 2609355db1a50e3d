"""ggufkit decodes weights to the same numbers as bitsandbytes.

Not bits: where the table in the file says 0, the library's own table of fp4 says -0.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from ggufkit import quants
from ggufkit.conversion.checkpoint.dequantize import dequantize
from ggufkit.conversion.checkpoint.safetensors import open_safetensors

pytestmark = pytest.mark.oracle

FOLDER = Path(os.environ.get("GGUFKIT_ORACLE", "")) / "libraries"
WANTED = "-wanted.safetensors"
CASES = sorted(path.name.removesuffix(WANTED) for path in FOLDER.glob(f"*{WANTED}"))
METHOD = {"quantization_config": {"quant_method": "bitsandbytes"}}


def test_there_are_cases():
    assert CASES, "make test-oracle makes the weights and sets GGUFKIT_ORACLE"


@pytest.mark.parametrize("case", CASES)
def test_weight_matches_the_library(case):
    (ours,) = dequantize(open_safetensors(FOLDER / f"{case}.safetensors")[1], METHOD).tensors
    (theirs,) = open_safetensors(FOLDER / f"{case}{WANTED}")[1]
    assert (ours.name, ours.type, ours.shape) == (theirs.name, theirs.type, theirs.shape)
    numbers = [quants.dequantize(tensor.raw(), tensor.type) for tensor in (ours, theirs)]
    assert np.array_equal(*numbers)
