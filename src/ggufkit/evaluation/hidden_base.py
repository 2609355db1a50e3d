"""Small base files: the hidden states of the last layer and the output matrix, as GGUF.

The logits are computed from them when they are needed. A position takes one float for each column
of the model, instead of two bytes for each token of the vocabulary. The figures are the same.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

import numpy as np

from ggufkit.errors import FormatError, ValueTypeError
from ggufkit.evaluation.base_file import LEAST_CONTEXT, REMEDY, TokenChunks
from ggufkit.evaluation.log_probabilities import decode, encode
from ggufkit.evaluation.reading import Prediction, TextReader
from ggufkit.evaluation.scores import counted
from ggufkit.format.types import tensor_type
from ggufkit.llama_cpp.library import BINDING, VERSION, library
from ggufkit.llama_cpp.output_matrix import OutputMatrix
from ggufkit.models.model import Model, Tensor
from ggufkit.models.open import open as open_model
from ggufkit.models.rows import closing_on_error
from ggufkit.output.write import save
from ggufkit.quants.parallel import Floats

ARCHITECTURE: Final = "evaluation-base"
TOKENS: Final = "tokens"
HIDDEN: Final = "hidden"
OUTPUT: Final = "output.weight"
TOGETHER: Final = 16  # positions whose logits are in memory at once
TOLERANCE: Final = 1e-5  # of a logit
MISTAKEN: Final = "Name the model to compare with as the base (base=...)"


class HiddenBase:
    """A small base file, opened for reading; `close` it."""

    def __init__(self, path: Path, chunks: int | None, threads: int) -> None:
        """Open the file for at most `chunks` of its chunks; FormatError for a wrong one."""
        self.name: str = str(path)
        self._threads = threads
        self._model = open_model(path)
        with closing_on_error(self._model.close):
            self.tokens: TokenChunks = _tokens(self._model, self.name)[:chunks]
            self._hidden = self._model.tensors[HIDDEN]
            self._matrix = output_matrix(self._model.tensors[OUTPUT])
        self._lock = threading.Lock()
        self._held: tuple[int, int] | None = None
        self._logits: Floats | None = None

    @property
    def context(self) -> int:
        """The tokens of a chunk."""
        return int(self.tokens.shape[1])

    @property
    def vocabulary(self) -> int:
        """The number of tokens in the base's vocabulary."""
        return self._matrix.rows

    def log_probabilities(self, chunk: int, position: int) -> Floats:
        """Return the log probabilities at a counted position, rounded as in a base file."""
        block, row = divmod(position, TOGETHER)
        with self._lock:
            if self._logits is None or self._held != (chunk, block):
                start = position - row
                inputs = np.asarray(self._hidden[chunk])[start : start + TOGETHER]
                if not np.isfinite(inputs).all():
                    problem = f"chunk {chunk + 1} has values that are not numbers"
                    raise FormatError(problem, remedy=REMEDY, path=self.name)
                self._logits = self._matrix.logits(inputs, self._threads)
                self._held = (chunk, block)
            logits: Floats = self._logits[row]
        return decode(encode(logits), self.vocabulary)

    def close(self) -> None:
        """Close the file."""
        self._model.close()


class HiddenWriter:
    """Collects the hidden state of each position, and compares the logits of some positions."""

    def __init__(self, reader: TextReader, rows: Floats) -> None:
        """Fill `rows`: (chunks, positions, columns)."""
        self._rows = rows
        self._reader = reader
        self._matrix: OutputMatrix | None = None

    def put(self, prediction: Prediction) -> None:
        """Keep a position."""
        if prediction.inputs is None:
            raise ValueError("the reader keeps no inputs")
        self._rows[prediction.chunk, prediction.position] = prediction.inputs
        if prediction.position == 0:
            again = self.matrix().logits(prediction.inputs[np.newaxis], 1)[0]
            if not np.allclose(again, prediction.logits, rtol=0, atol=TOLERANCE):
                raise self._refusal()

    def matrix(self) -> OutputMatrix:
        """Return the model's output matrix."""
        if self._matrix is None:
            with open_model(self._reader.path) as model:
                self._matrix = output_matrix(self._weight(model))
        return self._matrix

    def save(self, target: Path, tokens: TokenChunks, *, clobber: bool) -> None:
        """Write the base file."""
        with open_model(self._reader.path) as model:
            tensors = {TOKENS: tokens, HIDDEN: self._rows, OUTPUT: self._weight(model)}
            keys = {
                "general.architecture": ARCHITECTURE,
                "general.name": model.metadata.get("general.name", ""),
                f"{ARCHITECTURE}.output_name": self._name(),
                f"{ARCHITECTURE}.{BINDING}": VERSION,
            }
            save(target, tensors, keys, clobber=clobber)

    def _name(self) -> str:
        output = self._reader.output
        if output is None or output.weight is None:
            raise self._refusal()
        return output.weight

    def _weight(self, model: Model) -> Tensor:
        name = self._name()
        if name not in model.tensors:
            raise self._refusal()
        return model.tensors[name]

    def _refusal(self) -> ValueTypeError:
        return ValueTypeError(
            f"a small base file would not give the logits of {self._reader.path}",
            remedy="Write a base file of llama-perplexity: its name does not end in .gguf",
        )


def output_matrix(tensor: Tensor) -> OutputMatrix:
    """Return a tensor as an output matrix; TensorTypeError for a type that ggml cannot multiply."""
    library().require_multiplied(tensor, REMEDY)
    rows, width = tensor.shape
    blocks = np.frombuffer(tensor.raw(), np.uint8).copy()
    return OutputMatrix(library(), tensor.type.id, rows, width, blocks)


def _tokens(model: Model, name: str) -> TokenChunks:
    tensors = model.tensors
    types = {TOKENS: "I32", HIDDEN: "F32", OUTPUT: None}
    sound = model.architecture == ARCHITECTURE and all(
        name in tensors and (kind is None or tensors[name].type == tensor_type(kind))
        for name, kind in types.items()
    )
    if not sound:
        raise FormatError("this is a model, not a base file", remedy=MISTAKEN, path=name)
    shapes = [tensors[name].shape for name in types]
    if [len(shape) for shape in shapes] != [2, 3, 2]:
        raise _wrong(name)
    (chunks, context), hidden, (rows, width) = shapes
    if not chunks or context < LEAST_CONTEXT or hidden != (chunks, counted(context), width):
        raise _wrong(name)
    tokens: TokenChunks = np.array(tensors[TOKENS].numpy(), np.int32)
    if not 0 <= tokens.min() <= tokens.max() < rows:
        raise _wrong(name)
    return tokens


def _wrong(name: str) -> FormatError:
    return FormatError(
        "the tensors of this base file do not fit together", remedy=REMEDY, path=name
    )
