"""Scores saved while a model reads a text, so that a later run can continue.

They are in a hidden file next to the model: the digest of what is measured, then for each chunk a
checksum and its scores.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

from ggufkit.evaluation.scores import FIELDS, Scores, counted
from ggufkit.system.descriptors import read_at, write_at
from ggufkit.system.staging import Staging

SUFFIX: Final = ".eval"
_CHECK_BYTES: Final = 4
_VALUE_BYTES: Final = 8


def key_of(facts: Iterable[object]) -> bytes:
    """Return a digest of all that the scores depend on."""
    return hashlib.sha256(repr(tuple(facts)).encode()).digest()


def status_of(path: Path) -> tuple[int, int]:
    """Return the size and the time of a file, which change if it is replaced."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


class EvaluationCheckpoint:
    """The scores of one model in the file of `stage`, which stays until it is discarded."""

    def __init__(self, model: Path, key: bytes, chunks: int, context: int) -> None:
        self._shape = (counted(context), len(FIELDS))
        self._record = _CHECK_BYTES + counted(context) * len(FIELDS) * _VALUE_BYTES
        self.stage: Staging = Staging(model.with_name(model.name + SUFFIX), resumable=True)
        self._key, self._start = key, len(key)
        records: list[bytes] = []
        with contextlib.suppress(OSError):
            descriptor = self.stage.descriptor
            is_same = read_at(descriptor, len(key), 0) == key
            count = (os.fstat(descriptor).st_size - self._start) // self._record
            for chunk in range(min(count, chunks) if is_same else 0):
                record = read_at(descriptor, self._record, self._start + chunk * self._record)
                if _check(record[_CHECK_BYTES:]) != record[:_CHECK_BYTES]:
                    break
                records.append(record[_CHECK_BYTES:])
        values = np.frombuffer(b"".join(records), np.float64)
        self._scores = Scores(values.reshape(len(records), *self._shape))
        self.count: int = len(self._scores.values)

    def first(self, chunks: int) -> Scores:
        """Return the scores of the first chunks; `add` appends to them."""
        self.count = chunks
        return Scores(self._scores.values[:chunks])

    def add(self, scores: Scores) -> None:
        """Append the scores of the next chunks."""
        records = [values.tobytes() for values in scores.values]
        data = b"".join(_check(record) + record for record in records)
        if not self.count:
            self.stage.resize(0)
            write_at(self.stage.descriptor, self._key, 0)
        write_at(self.stage.descriptor, data, self._start + self.count * self._record)
        self.count += len(records)


def _check(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(_CHECK_BYTES, "little")
