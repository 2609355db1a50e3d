"""Models that are written: one of many types, and one whose writing waits."""

from __future__ import annotations

import os
import random
import threading

import numpy as np
import pytest

import ggufkit
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import GGML_TYPES, tensor_type
from ggufkit.models.model import Model, Tensor, Tensors
from ggufkit.models.sources import from_array
from spelled import SpelledTensor, Spelling

F32 = tensor_type("F32")
LEFTOVER = ".out.gguf.ggufkit-part"
posix = pytest.mark.skipif(os.name == "nt", reason="Windows has no such files or signals")
FORMS = [
    {},
    {"version": 2},
    {"byte_order": "big"},
    {"alignment": 8},
    {"alignment": 1024},
    {"shard_tensors": 1},
    {"shard_size": 3000},
    {"version": 2, "byte_order": "big", "alignment": 64, "shard_tensors": 3},
]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def example(seed=0):
    """Return the bytes of a canonical file with tensors of many types and sizes."""
    draw = random.Random(seed)
    infos = []
    for number, kind in enumerate(draw.sample(sorted(GGML_TYPES), 12)):
        known = GGML_TYPES[kind]
        if known.is_opaque:
            continue
        dims = (known.block_size * draw.choice([1, 3]), draw.choice([0, 1, 5, 300]))
        infos.append(
            SpelledTensor(
                f"t{number}", dims, kind, draw.randbytes(known.row_bytes(dims[0]) * dims[1])
            )
        )
    pairs = [("general.name", ("string", "example")), ("numbers", ("array", ("int16", [1, -1])))]
    return Spelling().file(pairs, infos)


def write_example(folder):
    """Write the example into a folder; any change shows in its time, however quick."""
    path = folder / "in.gguf"
    path.write_bytes(example())
    os.utime(path, ns=(0, 0))
    return path


class Gate:
    """A source that waits inside `read` until it is let through, or fails."""

    byte_order = "little"
    span = None

    def __init__(self, error=None):
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.error = error

    def read(self, start, stop):
        self.reached.set()
        assert self.opened.wait(60)
        if self.error:
            raise self.error
        return np.ones((stop - start, 4), np.uint8)


def gated_model(gate):
    tensors = [from_array("before", np.zeros(1000, "f4")), Tensor.over("gate", F32, (9, 1), gate)]
    return Model(Metadata({"a": 1}), Tensors(tensors))


class Writing(threading.Thread):
    """A write that runs in a thread and waits at a gate."""

    def __init__(self, path, gate=None):
        super().__init__()
        self.gate = gate or Gate()
        self.path = path
        self.error = None
        self.start()
        assert self.gate.reached.wait(60)

    def run(self):
        try:
            ggufkit.write(gated_model(self.gate), self.path, threads=2)
        except Exception as error:  # noqa: BLE001 (handed to the test)
            self.error = error

    def finish(self):
        self.gate.opened.set()
        self.join()
        return self.error
