"""The passes of models over a text: the base first, then each model compared with it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from ggufkit.errors import GGUFError, ValueTypeError
from ggufkit.evaluation.base_file import (
    MORE_SPACE,
    BaseFile,
    TokenChunks,
    open_base,
    temporary_base,
)
from ggufkit.evaluation.log_probabilities import (
    encode,
    log_sum,
    surprise,
    surprise_with_codes,
)
from ggufkit.evaluation.reading import CONTEXT, Meter, Prediction, TextReader, comparing_with
from ggufkit.evaluation.scores import FIELDS, Scores, counted
from ggufkit.models.open import open as open_model
from ggufkit.models.rows import closing_on_error
from ggufkit.system.descriptors import read_at, write_at
from ggufkit.system.staging import Staging, require_space, staged
from ggufkit.system.text_file import Most, read_small
from ggufkit.system.threads import Progress

SUFFIX: Final = ".eval"


def key_of(facts: Iterable[object]) -> bytes:
    """Return a digest of all that the scores depend on."""
    return hashlib.sha256(repr(tuple(facts)).encode()).digest()


def status_of(path: Path) -> tuple[int, int]:
    """Return the size and the time of a file, which change if it is replaced."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


class EvaluationCheckpoint:
    """The scores of one model, saved while it reads a text, so that a later run can continue.

    They are in a hidden file next to the model, that of `stage`, which stays until it is discarded:
    the digest of what is measured, then for each chunk a checksum and its scores.
    """

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


ROUNDING: Final = 1e-3  # of a log probability in 16 bits: 16 / 65535, and half of that
SATURATED: Final = 15.0  # log probabilities below are cut in a base file


@dataclass(frozen=True)
class EvaluationTask:
    """The arguments of `evaluate`."""

    paths: tuple[Path, ...]
    text: Path | None
    base: Path | None
    base_logits: Path | None
    context: int | None
    chunks: int | None
    micro_batch: int
    threads: int
    resume: bool
    clobber: bool

    @property
    def all_paths(self) -> tuple[Path, ...]:
        """The models in the order of their reading."""
        return self.paths if self.base is None else (self.base, *self.paths)


class Passes(contextlib.AbstractContextManager["Passes"]):
    """All passes of a task; a context manager."""

    def __init__(self, task: EvaluationTask, progress: Progress | None) -> None:
        """Read the text, and open the base file if there is one."""
        self._task = task
        self._stack = contextlib.ExitStack()
        self._progress, self._chunks_before = progress, 0
        self._checkpoints: list[EvaluationCheckpoint] = []
        self._tokens: TokenChunks | None = None
        self.base: BaseFile | None = None
        self._text: bytes | None = None
        if task.text is not None:
            self._text = read_small(task.text, Most.CALIBRATION).removesuffix(b"\n")

    def __exit__(self, *_: object) -> None:
        """Close all files; saved scores stay."""
        for checkpoint in self._checkpoints:
            checkpoint.stage.leave()
        self._stack.close()

    @property
    def tokens(self) -> TokenChunks:
        """The tokens of the text: (chunks, context)."""
        if self._tokens is None:
            raise ValueError("no model has read the text yet")
        return self._tokens

    def finish(self) -> None:
        """Remove the scores saved for a later run."""
        for checkpoint in self._checkpoints:
            checkpoint.stage.discard()

    def read_base(self) -> Scores | None:
        """Read the base file, or the base model; return scores only if a model was read."""
        task = self._task
        if task.base is not None:
            return self._read_base_model(task.base)
        if task.base_logits is not None:
            base = self._open_base(task.base_logits, task.chunks)
            if task.context not in (None, base.context):
                raise ValueTypeError(
                    f"the base file has chunks of {base.context} tokens, not {task.context}",
                    remedy="Leave out the context, or write another base file",
                )
            self._tokens = base.tokens
        return None

    def read(self, path: Path) -> Scores:
        """Return the scores of a model, compared with the base if there is one."""
        base = self.base
        with self._reader(path) as reader:
            if base is None:
                return self._pass(reader, _surprise, None)
            return self._pass(reader, comparing_with(base), status_of(Path(base.name)))

    def _read_base_model(self, path: Path) -> Scores:
        target = self._task.base_logits
        with self._reader(path) as reader:
            if target is not None:
                return self._write_base(reader, target)
            size = reader.session.vocabulary_size
            self.base = temporary_base(self.tokens, size, self._stack)
            return self._pass(reader, _writing(self.base), None)

    def _write_base(self, reader: TextReader, target: Path) -> Scores:
        """Write the base file; with `resume` use a finished one, or continue a partial one."""
        finished = self._finished_base(reader, target)
        if finished is not None:
            return finished

        def fill(stage: Staging) -> Scores:
            base = BaseFile(
                str(target), stage.descriptor, self.tokens, reader.session.vocabulary_size
            )
            if stage.is_new or not base.is_begun():
                require_space(target.parent, base.nbytes, MORE_SPACE)
                os.ftruncate(stage.descriptor, 0)
                base.begin()
            return self._pass(reader, _writing(base), _identity_of(stage.descriptor), base)

        scores = staged(target, fill, resumable=self._task.resume, clobber=self._task.clobber)
        self._open_base(target)
        return scores

    def _finished_base(self, reader: TextReader, target: Path) -> Scores | None:
        if not self._task.resume or not target.exists():
            return None
        with target.open("rb") as file:
            checkpoint = self._checkpoint_for(reader, _identity_of(file.fileno()))
        if checkpoint.count < len(self.tokens):
            checkpoint.stage.leave()
            return None
        self._checkpoints.append(checkpoint)
        self._open_base(target)
        return checkpoint.truncated(checkpoint.count)

    def _open_base(self, target: Path, chunks: int | None = None) -> BaseFile:
        file = self._stack.enter_context(target.open("rb"))
        self.base = open_base(target, file, chunks)
        return self.base

    def _reader(self, path: Path) -> TextReader:
        context = self._task.context or CONTEXT
        if self._tokens is not None:
            context = self._tokens.shape[1]
        reader = TextReader(
            path, context, micro_batch=self._task.micro_batch, threads=self._task.threads
        )
        with closing_on_error(reader.session.close):
            self._fit_tokens(reader)
        return reader

    def _fit_tokens(self, reader: TextReader) -> None:
        size = reader.session.vocabulary_size
        if self.base is not None and self.base.vocabulary != size:
            raise ValueTypeError(
                f"{reader.path} has {size:,} tokens in its vocabulary, and the base has "
                f"{self.base.vocabulary:,}",
                remedy="Compare models with the same tokenizer",
            )
        if self._text is None:
            return
        tokens = reader.tokenize(self._text, self._task.chunks)
        if self._tokens is None:
            self._tokens = tokens
        elif not np.array_equal(tokens[: len(self._tokens)], self._tokens):
            raise ValueTypeError(
                f"{reader.path} does not split the text into the tokens of the base or first model",
                remedy="Use the text of the base file, and models with the same tokenizer",
            )

    def _pass(
        self, reader: TextReader, meter: Meter, base_identity: object, base: BaseFile | None = None
    ) -> Scores:
        tokens, sequences = self.tokens, reader.sequences
        parts: list[Scores] = []
        checkpoint = self._checkpoint_for(reader, base_identity) if self._task.resume else None
        start = 0
        if checkpoint:
            self._checkpoints.append(checkpoint)
            start = checkpoint.count
            start = start if base is None else _agreeing(base, checkpoint.truncated(start))
            start = start if start == len(tokens) else start // sequences * sequences
            parts.append(checkpoint.truncated(start))
        self._report(start)
        for chunk, scores in reader.read(tokens, meter, start):
            parts.append(scores)
            if checkpoint:
                checkpoint.add(scores)
            self._report(chunk)
        self._chunks_before += len(tokens)
        return Scores(np.concatenate([part.values for part in parts]))

    def _report(self, passed: int) -> None:
        if self._progress:
            total = len(self._task.all_paths) * len(self.tokens)
            self._progress(self._chunks_before + passed, total)

    def _checkpoint_for(self, reader: TextReader, base_identity: object) -> EvaluationCheckpoint:
        with open_model(reader.path) as model:
            files = [status_of(file.path) for file in model.files]
        tokens = self.tokens
        key = key_of((files, tokens.shape, tokens.tobytes(), self._task.micro_batch, base_identity))
        return EvaluationCheckpoint(reader.path, key, len(tokens), tokens.shape[1])


def _surprise(prediction: Prediction) -> tuple[float, ...]:
    return (surprise(prediction.logits, prediction.token),)


def _writing(base: BaseFile) -> Meter:
    def write(prediction: Prediction) -> tuple[float, ...]:
        total = log_sum(prediction.logits)
        base.put(prediction.chunk, prediction.position, encode(prediction.logits, total))
        return (surprise_with_codes(prediction.logits, prediction.token, total),)

    return write


def _identity_of(descriptor: int) -> object:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _agreeing(base: BaseFile, scores: Scores) -> int:
    """Return how many chunks of a partial base file belong to these scores.

    Another model may have started the same file since the scores were saved.
    """
    first = base.context // 2
    for chunk, surprises in enumerate(scores.field("surprise")):
        token = base.tokens[chunk, first + 1]
        try:
            stored = -float(base.log_probabilities(chunk, 0)[token])
        except (GGUFError, OSError):
            return chunk
        if surprises[0] < SATURATED and abs(stored - surprises[0]) > ROUNDING:
            return chunk
    return len(scores.values)
