"""Scores saved while a model reads a text, so that a later run can continue.

They are in a hidden file next to the model: the digest of what is measured, then for each chunk a
checksum and its scores.
"""

from __future__ import annotations

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
        shape = (counted(context), len(FIELDS))
        self._record = np.dtype([("checksum", "<u4"), ("values", "<f8", shape)])
        self.stage: Staging = Staging(model.with_name(model.name + SUFFIX), resumable=True)
        self._key = key
        content = read_at(self.stage.descriptor, os.fstat(self.stage.descriptor).st_size, 0)
        stored = len(content.removeprefix(key)) // self._record.itemsize
        count = min(stored, chunks) if content.startswith(key) else 0
        records = np.frombuffer(content, self._record, count, len(key) if count else 0)
        sound = [zlib.crc32(record["values"]) == record["checksum"] for record in records]
        self.count: int = (*sound, False).index(False)
        self._scores = Scores(records["values"][: self.count])

    def truncated(self, chunks: int) -> Scores:
        """Drop all but the first chunks, to which `add` appends, and return their scores."""
        self.count = chunks
        return Scores(self._scores.values[:chunks])

    def add(self, scores: Scores) -> None:
        """Append the scores of the next chunks."""
        records = np.empty(len(scores.values), self._record)
        records["values"] = scores.values
        records["checksum"] = [zlib.crc32(values) for values in scores.values]
        if not self.count:
            os.ftruncate(self.stage.descriptor, 0)
            write_at(self.stage.descriptor, self._key, 0)
        place = len(self._key) + self.count * self._record.itemsize
        write_at(self.stage.descriptor, records.tobytes(), place)
        self.count += len(records)
