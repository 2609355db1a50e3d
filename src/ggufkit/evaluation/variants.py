"""Measure what changes to single tensors do, in one model that stays loaded.

For choices that need many measurements: the model is loaded once, and reads the text once unchanged
and once for each change. A file with the same values gives the same figures.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ggufkit.errors import MissingTensorError, ShapeError
from ggufkit.evaluation.base_file import temporary_base
from ggufkit.evaluation.log_probabilities import encode, log_sum, surprise
from ggufkit.evaluation.reading import CONTEXT, Meter, Prediction, TextReader, comparing_with
from ggufkit.evaluation.scores import Scores
from ggufkit.llama_cpp.changeable import ChangeableSession
from ggufkit.llama_cpp.session import MICRO_BATCH
from ggufkit.models.open import open as open_model
from ggufkit.quants.codec import quantize
from ggufkit.system.cpu import worker_count
from ggufkit.system.descriptors import AnyPath, as_path
from ggufkit.system.text_file import Most, read_small


class Variants(contextlib.AbstractContextManager["Variants"]):
    """A loaded model, its log probabilities on a text, and its variants; a context manager.

    `scores` describe the unchanged model.
    """

    def __init__(
        self,
        model: AnyPath,
        text: AnyPath,
        *,
        context: int = CONTEXT,
        chunks: int | None = None,
        threads: int | None = None,
    ) -> None:
        """Load the model, and read the text with it unchanged. Raises as `evaluate` does."""
        content = read_small(as_path(text), Most.CALIBRATION).removesuffix(b"\n")
        with contextlib.ExitStack() as opened:
            self._model = opened.enter_context(open_model(model))
            self._reader = opened.enter_context(
                TextReader(
                    as_path(model),
                    context,
                    micro_batch=MICRO_BATCH,
                    threads=worker_count(threads),
                    kind=ChangeableSession,
                )
            )
            assert isinstance(self._reader.session, ChangeableSession)  # noqa: S101 (for mypy)
            self._session = self._reader.session
            self._changed: set[str] = set()
            tokens = self._reader.tokenize(content, chunks)
            self._base = temporary_base(tokens, self._session.vocabulary_size, opened)
            self.scores: Scores = self._read(self._write)
            self._opened = opened.pop_all()

    def measure(self, tensors: Mapping[str, npt.ArrayLike]) -> Scores:
        """Return the scores of the model with these tensors, compared with the unchanged model.

        Values are stored in the types of the model's tensors, so it should be F32, F16 or BF16.
        """
        try:
            for name, values in tensors.items():
                self.change(name, values)
            return self.predict()
        finally:
            self.restore()

    def uses(self, name: str) -> bool:
        """Whether llama.cpp computes anything with a tensor."""
        return name in self._session.weights

    def change(self, name: str, values: npt.ArrayLike) -> None:
        """Give a tensor other values until `restore`."""
        if name not in self._model.tensors:
            raise MissingTensorError(f"the model has no tensor {name!r}")
        tensor, array = self._model.tensors[name], np.asarray(values)
        if array.shape != tensor.shape:
            raise ShapeError(f"{name!r} has the shape {tensor.shape}, not {array.shape}")
        blocks = quantize(array.astype(np.float32), tensor.type).tobytes()
        self._session.replace({name: blocks})
        self._changed.add(name)

    def restore(self) -> None:
        """Give all changed tensors their own values again."""
        while self._changed:
            name = self._changed.pop()
            self._session.replace({name: bytes(self._model.tensors[name].raw())})

    def predict(self) -> Scores:
        """Return the scores of the model with all changes, compared with the unchanged model."""
        return self._read(comparing_with(self._base))

    def _read(self, meter: Meter) -> Scores:
        parts = [scores.values for _, scores in self._reader.read(self._base.tokens, meter)]
        return Scores(np.concatenate(parts))

    def _write(self, prediction: Prediction) -> tuple[float, ...]:
        self._base.put(
            prediction.chunk,
            prediction.position,
            encode(prediction.logits, log_sum(prediction.logits)),
        )
        return (surprise(prediction.logits, prediction.token),)

    def __exit__(self, *_: object) -> None:
        self._opened.close()
