"""`general.file_type`, the number of a file's recipe, and the version of quantized blocks.

Source: `llama_ftype` in llama.cpp's `llama.h`. ggml has another enum with other numbers, which
files do not use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

FILE_TYPE_KEY: Final = "general.file_type"
VERSION_KEY: Final = "general.quantization_version"
QUANTIZATION_VERSION: Final = 2  # ggml's GGML_QNT_VERSION
GUESSED: Final = 1024  # LLAMA_FTYPE_GUESSED: added by a reader that counted tensor types

_LLAMA_CPP: Final = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
    39: "NVFP4",
    40: "Q1_0",
    41: "Q2_0",
}
# Of ik_llama.cpp; 38, which it calls MXFP4, is above.
_IK: Final = """
135 Q6_0; 136 IQ1_BN; 137 IQ2_BN; 138 IQ2_K; 139 IQ3_K; 140 IQ4_K; 141 IQ5_K; 142 IQ6_K
145 IQ4_KS; 146 IQ3_KL; 147 IQ2_KS; 148 IQ4_KSS; 149 Q8_KV; 150 IQ5_KS; 151 IQ2_KT; 152 IQ3_KT
153 IQ4_KT; 154 IQ3_KS; 155 IQ2_KL; 156 IQ1_KT; 202 Q4_0_R8; 207 Q8_0_R8; 208 Q5_0_R4
210 Q2_K_R4; 211 Q3_K_R4; 214 Q4_K_R4; 216 Q5_K_R4; 218 Q6_K_R4; 219 IQ2_XXS_R4; 220 IQ2_XS_R4
223 IQ3_XXS_R4; 224 IQ1_S_R4; 225 IQ4_NL_R4; 226 IQ3_S_R4; 229 IQ2_M_R4; 230 IQ4_XS_R8
231 IQ1_M_R4; 232 BF16_R16; 335 Q6_0_R4; 337 IQ2_BN_R4; 338 IQ2_K_R4; 339 IQ3_K_R4; 340 IQ4_K_R4
341 IQ5_K_R4; 345 IQ4_KS_R4; 350 IQ5_KS_R4; 351 MXFP4_R8; 398 Q8_KV_R8; 399 Q8_K_R8"""
IK_FILE_TYPES: Final = {
    int(number): name
    for number, name in map(str.split, _IK.replace("\n", ";").strip(";").split(";"))
}
FILE_TYPES: Final = _LLAMA_CPP | IK_FILE_TYPES
NUMBER_OF: Final = {name: number for number, name in FILE_TYPES.items()}


def _interleaved_names() -> Iterator[tuple[str, str]]:
    for name in IK_FILE_TYPES.values():
        stem, _, _ = name.rpartition("_R")
        plain = [stem] if stem in NUMBER_OF else [f"{stem}_{size}" for size in "SML"]
        yield from ((other, name) for other in plain if other in NUMBER_OF)


# What ik_llama.cpp calls a file of this recipe when its rows are interleaved.
INTERLEAVED: Final = dict(_interleaved_names())


def file_type_name(number: int) -> str:
    """Return the recipe that a `general.file_type` means, "unknown" for a number without one."""
    name = FILE_TYPES.get(number & ~GUESSED, "unknown")
    return f"{name} (guessed)" if number & GUESSED else name
