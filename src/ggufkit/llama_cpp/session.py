"""A model in llama.cpp, a context, and what they compute."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from ctypes import POINTER, c_bool, c_int8, c_int32, c_void_p
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ggufkit.errors import TensorTypeError, ValueTypeError
from ggufkit.llama_cpp.library import (
    Batch,
    ContextParameters,
    Eval,
    Library,
    ModelParameters,
    Watcher,
    library,
)
from ggufkit.models.open import open as open_model

MICRO_BATCH: Final = 512  # tokens that llama.cpp computes at once by default
LOOKUP_TABLE: Final = "tid2eid"  # DeepSeek-V4's experts by token, which llama.cpp only looks up
DATA_TOO: Final = True
_BEYOND_UNICODE: Final = re.compile(rb"(?:\xf4[\x90-\xbf]|[\xf5-\xf7][\x80-\xbf])[\x80-\xbf]{2}")


class BatchToken(NamedTuple):
    """A token to compute at a position of one or more sequences, with logits or without."""

    token: int
    position: int
    sequences: tuple[int, ...]
    is_output: bool


class Session:
    """A model in llama.cpp and a context of `sequences` texts of `length` tokens each.

    It is a context manager. `watcher` sees the nodes of the graph; what it raises comes out of
    `decode`.
    """

    def __init__(  # noqa: PLR0913 (what a context is)
        self,
        path: Path,
        *,
        length: int,
        batch: int,
        sequences: int = 1,
        micro_batch: int = MICRO_BATCH,
        threads: int,
        watcher: Watcher | None = None,
        llama: Library | None = None,
    ) -> None:
        """Load the model; GGUFError with llama.cpp's message if that fails.

        Raises TensorTypeError for matrices at whose type llama.cpp would end the process.
        """
        self.llama: Library = llama or library()
        self._model = self._context = None
        self._watcher = watcher
        self._raised: BaseException | None = None
        self._is_watched = watcher is None
        self._eval = Eval(self._watch)
        call = self.llama.functions
        self._model = call.llama_model_load_from_file(os.fsencode(path), self._model_parameters())
        if not self._model:
            raise self.llama.failure(f"cannot load {path}")
        try:
            _require_multiplied(path, self.llama)
        except BaseException:
            self.close()
            raise
        self._vocabulary = call.llama_model_get_vocab(self._model)
        self.vocabulary_size: int = call.llama_vocab_n_tokens(self._vocabulary)
        parameters = self._parameters(length, batch, sequences)
        parameters.n_ubatch = micro_batch
        self._context = call.llama_init_from_model(self._model, parameters)
        if not self._context:
            self.close()
            raise self.llama.failure(f"cannot make a context for {path}")
        call.llama_set_n_threads(self._context, threads, threads)

    def _model_parameters(self) -> ModelParameters:
        chosen: ModelParameters = self.llama.functions.llama_model_default_params()
        return chosen

    def _parameters(self, length: int, batch: int, sequences: int) -> ContextParameters:
        chosen: ContextParameters = self.llama.functions.llama_context_default_params()
        chosen.n_ctx = length * sequences
        chosen.n_batch = batch
        chosen.n_seq_max = sequences
        places = self.llama.places
        c_bool.from_buffer(chosen, places.swa_full).value = False  # as llama.cpp's tools set it
        if self._watcher:
            address = ctypes.cast(self._eval, c_void_p).value
            c_void_p.from_buffer(chosen, places.cb_eval).value = address
        return chosen

    def _watch(self, node: Any, asks: bool, _data: object) -> bool:  # noqa: ANN401, FBT001 (ctypes' own)
        """Pass a node on; exceptions must not cross C, so `decode` raises them later."""
        self._is_watched = True
        if self._raised or not self._watcher:
            return False
        try:
            return self._watcher(node.contents, asks)
        except BaseException as error:  # noqa: BLE001 (raised again in decode)
            self._raised = error
            return False

    @property
    def adds_end(self) -> bool:
        """Whether the model's tokenizer ends each text with a token."""
        return bool(self.llama.functions.llama_vocab_get_add_eos(self._vocabulary))

    @property
    def beginning(self) -> int | None:
        """The token that a text begins with, None if the model needs none."""
        if not self.llama.functions.llama_vocab_get_add_bos(self._vocabulary):
            return None
        token: int = self.llama.functions.llama_vocab_bos(self._vocabulary)
        return token

    @property
    def is_recurrent(self) -> bool:
        """Whether the model has a state instead of a cache, at least in some layers."""
        call = self.llama.functions
        return bool(call.llama_model_is_recurrent(self._model)) or bool(
            call.llama_model_is_hybrid(self._model)
        )

    def ends(self, token: int) -> bool:
        """Return whether a token ends a generated text."""
        return bool(self.llama.functions.llama_vocab_is_eog(self._vocabulary, token))

    def tokenize(self, text: bytes, *, special: bool = False, whole: bool = True) -> list[int]:
        """Return the tokens of a text; `special` parses names of special tokens.

        A `whole` text gets the tokens that the model's tokenizer adds at both ends.

        Raises ValueTypeError for characters beyond Unicode, at which llama.cpp ends the process.
        """
        if match := _BEYOND_UNICODE.search(text):
            raise ValueTypeError(
                f"the text is not UTF-8: byte {match.start()} begins a character beyond Unicode",
                remedy="Use a text file, and save it as UTF-8",
            )
        room = len(text) + 2
        tokens = (c_int32 * room)()
        count = self.llama.functions.llama_tokenize(
            self._vocabulary, text, len(text), tokens, room, whole, special
        )
        if count < 0:
            raise self.llama.failure("cannot tokenize the text")
        return tokens[:count]

    def clear(self) -> None:
        """Clear the cache of decoded tokens."""
        memory = self.llama.functions.llama_get_memory(self._context)
        self.llama.functions.llama_memory_clear(memory, DATA_TOO)

    def decode(
        self, sequences: Sequence[Sequence[int]], start: int = 0, *, first_output: int = 0
    ) -> None:
        """Compute all positions of each sequence, beginning with position `start`.

        Positions from `first_output` on get logits.
        """
        self.decode_batch(
            [
                BatchToken(token, place, (number,), place >= first_output)
                for number, sequence in enumerate(sequences)
                for place, token in enumerate(sequence, start)
            ]
        )

    def decode_batch(self, tokens: Sequence[BatchToken]) -> None:
        """Compute tokens; the outputs among them get logits, in their order."""
        count = len(tokens)
        ids = [(c_int32 * len(token.sequences))(*token.sequences) for token in tokens]
        batch = Batch(
            count,
            (c_int32 * count)(*(token.token for token in tokens)),
            None,
            (c_int32 * count)(*(token.position for token in tokens)),
            (c_int32 * count)(*map(len, ids)),
            (POINTER(c_int32) * count)(*[ctypes.cast(array, POINTER(c_int32)) for array in ids]),
            (c_int8 * count)(*(token.is_output for token in tokens)),
        )
        failed = self.llama.functions.llama_decode(self._context, batch)
        self.llama.functions.llama_synchronize(self._context)
        if self._raised:
            raise self._raised
        if failed:
            raise self.llama.failure(f"failed to compute (code {failed})")
        if not self._is_watched:
            raise self.llama.failure("does not show its graph")
        self._outputs = sum(token.is_output for token in tokens)

    def logits(self) -> npt.NDArray[np.float32]:
        """Return a copy of the logits last computed: (positions with logits, vocabulary)."""
        return np.array(self.logits_in_place(), np.float32)

    def logits_in_place(self) -> npt.NDArray[np.float32]:
        """Return the logits last computed; they are valid until the next `decode`."""
        address = self.llama.functions.llama_get_logits(self._context)
        if not address:
            raise self.llama.failure("computes no logits for this model")
        return np.ctypeslib.as_array(address, (self._outputs, self.vocabulary_size))

    def close(self) -> None:
        """Free the model."""
        if self._context:
            self.llama.functions.llama_free(self._context)
        if self._model:
            self.llama.functions.llama_model_free(self._model)
        self._context = self._model = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _require_multiplied(path: Path, llama: Library) -> None:
    """Raise TensorTypeError for a matrix that ggml cannot multiply: it would crash.

    llama.cpp must have loaded the model: ggml reads beyond its tables for a number of a type that
    it does not know.
    """
    with open_model(path) as model:
        for tensor in model.tensors.values():
            is_matrix = len(tensor.shape) > 1 and tensor.name.endswith(".weight")
            if not is_matrix or LOOKUP_TABLE in tensor.name:
                continue
            if not llama.functions.ggml_get_type_traits_cpu(tensor.type.id).contents.vec_dot:
                raise TensorTypeError(
                    f"the type of {tensor.name} is {tensor.type}, which llama.cpp cannot multiply",
                    remedy="Convert the model again",
                )
