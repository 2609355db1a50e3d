# Native core of ggufkit: the header scanner, the quantization kernels, and a hash.

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

# Scanner (native/bind_scan.cpp). `wide` tells 8-byte from 4-byte lengths.
MAX_ARRAY_DEPTH: int
MAX_SCAN_DIMS: int
MAX_PROBLEMS: int

def scan(
    data: Buffer, total: int = 0
) -> tuple[int, bool, int, int, int, bytes, bytes, list[tuple[str, int, int, int]]]: ...
def lack(data: Buffer, total: int) -> tuple[int, int, int, int, int, int, int] | None: ...
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
    effort: int = 0,
) -> int: ...
def level_tables() -> dict[str, tuple[bytes, int]]: ...
def refinable() -> list[int]: ...
def decode(
    id: int,
    src: npt.NDArray[np.uint8],
    dst: npt.NDArray[np.float32],
    streaming: bool,
    isa: str,
) -> None: ...
def requantize(
    id: int,
    src: npt.NDArray[np.uint8],
    target: int,
    dst: npt.NDArray[np.uint8],
    width: int,
    weights: npt.NDArray[np.float32] | None,
    tile: npt.NDArray[np.float32],
    isa: str,
    effort: int = 0,
) -> bool: ...
def validate(id: int, src: npt.NDArray[np.uint8], isa: str) -> int: ...
def choose_levels(
    exact: npt.NDArray[np.float32],
    targets: npt.NDArray[np.float32],
    errors: npt.NDArray[np.float32],
    costs: npt.NDArray[np.float32],
    places: npt.NDArray[np.uint8],
    scales: npt.NDArray[np.float32],
    shifts: npt.NDArray[np.float32],
    shares: npt.NDArray[np.float32],
    weights: npt.NDArray[np.float32],
    levels: npt.NDArray[np.float32],
    bounds: npt.NDArray[np.float32],
    isa: str,
) -> None: ...
def last_level_cache_bytes() -> int: ...

# Codes of other programs' quantization (native/bind_unpack.cpp). Arrays are contiguous.
def unpack(
    words: npt.NDArray[np.uint32],
    codes: npt.NDArray[np.uint8],
    bits: int,
    words_of_group: int,
    order: list[int],
    down: bool,
) -> None: ...
def center(
    codes: npt.NDArray[np.uint8],
    zeros: npt.NDArray[np.int16],
    scales: npt.NDArray[np.float32],
    numbers: npt.NDArray[np.float32],
    size: int,
    index: npt.NDArray[np.int64] | None,
) -> None: ...
def look_up(
    codes: npt.NDArray[np.uint8],
    table: npt.NDArray[np.float32],
    scales: npt.NDArray[np.float32],
    places: npt.NDArray[np.int64],
    numbers: npt.NDArray[np.float32],
    size: int,
) -> None: ...
def look_up_pairs(
    pairs: npt.NDArray[np.uint8],
    table: npt.NDArray[np.float32],
    scales: npt.NDArray[np.float32],
    numbers: npt.NDArray[np.float32],
    begin: int,
    into: int,
    block: int,
) -> None: ...

# The hash (native/bind_xxh64.cpp). One thread at a time may call one object.
class Xxh64:
    def __init__(self) -> None: ...
    def update(self, data: npt.NDArray[np.uint8]) -> None: ...
    def digest(self) -> int: ...

# Maps of files that may be cut (native/bind_guard.cpp); not on Windows.
class MapGuard:
    def __init__(self, data: Buffer) -> None: ...
    def release(self) -> None: ...
    def renew(self) -> None: ...
    @property
    def lost(self) -> bool: ...
