# Native core of ggufkit: the header scanner and the quantization kernels.

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

# Scanner (native/bind_scan.cpp). `wide` tells 8-byte from 4-byte lengths.
MAX_ARRAY_DEPTH: int
MAX_SCAN_DIMS: int
MAX_PROBLEMS: int

def scan(
    data: Buffer,
) -> tuple[int, bool, int, int, int, bytes, bytes, list[tuple[str, int, int, int]]]: ...
def strings(data: Buffer, at: int, count: int, wide: bool, big_endian: bool) -> list[str]: ...
def string_index(data: Buffer, at: int, count: int, wide: bool, big_endian: bool) -> bytes: ...
def array_index(data: Buffer, at: int, count: int, wide: bool, big_endian: bool) -> bytes: ...
def utf8_problem(data: Buffer, at: int, count: int, wide: bool, big_endian: bool) -> int: ...
def all_zero(data: Buffer, start: int, stop: int) -> bool: ...

# Kernels (native/bind_quants.cpp). Arrays are flat and contiguous.
def instruction_sets() -> list[str]: ...
def codecs(isa: str) -> list[tuple[int, str, int, int, bool, int]]: ...
def encode(
    id: int,
    src: npt.NDArray[np.float32],
    dst: npt.NDArray[np.uint8],
    width: int,
    weights: npt.NDArray[np.float32] | None,
    isa: str,
) -> int: ...
def decode(
    id: int,
    src: npt.NDArray[np.uint8],
    dst: npt.NDArray[np.float32],
    streaming: bool,
    isa: str,
) -> None: ...
def validate(id: int, src: npt.NDArray[np.uint8], isa: str) -> int: ...
def last_level_cache_bytes() -> int: ...
