"""Have llama.cpp compute in a separate process, because it aborts on unexpected input.

    python running.py < JOB

JOB names a `model`, what to `do`, and where the array goes (`out`). llama.cpp computes in F32
throughout: its cache of keys and values would be F16.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ggufkit.llama_cpp import library as llama_cpp
from ggufkit.llama_cpp.session import Session

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from llama_memory import ContextParameters, ModelParameters

F32 = 0
OFF = 0  # of flash attention
POOLING = {"none": 0, "mean": 1, "cls": 2, "rank": 4, "the model's": -1}
LENGTH = 512
END = -1  # of the ids of a text


def run(model: Path, out: Path, **job: Any) -> np.ndarray:
    """Return what llama.cpp computes."""
    job_text = json.dumps({"model": str(model), "out": str(out), **job})
    done = subprocess.run(
        [sys.executable, __file__], input=job_text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return np.load(out)


class Exact(Session):
    """A session that keeps F32 what it keeps, and can give embeddings."""

    def __init__(self, path: Path, *, pooling: str | None = None) -> None:
        self._pooling = pooling
        super().__init__(path, length=LENGTH, batch=LENGTH, threads=1)

    def _parameters(self, length: int, batch: int, sequences: int) -> Any:
        chosen = super()._parameters(length, batch, sequences)
        fields = ContextParameters.from_buffer(chosen)
        fields.type_k = fields.type_v = F32
        fields.types[4] = OFF
        fields.embeddings = self._pooling is not None
        fields.types[2] = POOLING[self._pooling or "the model's"]
        return chosen

    def encode(self, tokens: list[int]) -> None:
        """Have the encoder of a model read a text."""
        call, decode = self.llama.functions, self.llama.functions.llama_decode
        call.llama_encode.restype, call.llama_encode.argtypes = decode.restype, decode.argtypes
        call.llama_decode = call.llama_encode
        try:
            self.decode([tokens])
        finally:
            call.llama_decode = decode

    def adapt(self, path: str, scale: float) -> None:
        """Apply an adapter."""
        call = self.llama.functions
        call.llama_adapter_lora_init.restype = ctypes.c_void_p
        call.llama_adapter_lora_init.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
        adapter = call.llama_adapter_lora_init(self._model, path.encode())
        if not adapter:
            raise self.llama.failure("cannot load the adapter")
        adapters, strength = (ctypes.c_void_p * 1)(adapter), (ctypes.c_float * 1)(scale)
        call.llama_set_adapters_lora.argtypes = (
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p,
        )  # fmt: skip
        assert call.llama_set_adapters_lora(self._context, adapters, 1, strength) == 0

    def embeddings(self, count: int) -> np.ndarray:
        """Return what the last layer holds of each token, or of the text where that is pooled."""
        call, width = self.llama.functions, self.llama.functions.llama_model_n_embd
        width.argtypes = (ctypes.c_void_p,)
        get = (
            call.llama_get_embeddings if self._pooling == "none" else call.llama_get_embeddings_seq
        )
        get.restype, get.argtypes = ctypes.POINTER(ctypes.c_float), (ctypes.c_void_p, ctypes.c_int)
        return np.array(np.ctypeslib.as_array(get(self._context, 0), (count, width(self._model))))


def logits(job: dict[str, Any]) -> np.ndarray:
    with Exact(Path(job["model"])) as session:
        if "adapter" in job:
            session.adapt(job["adapter"], job["scale"])
        if "encoded" in job:
            session.encode(job["encoded"])
        session.decode([job["prompt"]])
        return session.logits()


def tokens(job: dict[str, Any]) -> np.ndarray:
    """Return the ids of the texts in one array, -1 behind each text."""
    library = llama_cpp.library()
    call = library.functions
    call.llama_model_default_params.restype = ModelParameters
    call.llama_model_load_from_file.argtypes = (ctypes.c_char_p, ModelParameters)
    chosen = call.llama_model_default_params()
    chosen.vocab_only = True
    model = call.llama_model_load_from_file(os.fsencode(job["model"]), chosen)
    if not model:
        raise library.failure("cannot load the vocabulary")
    vocabulary = call.llama_model_get_vocab(model)
    ids: list[int] = []
    for text in job["texts"]:
        room = (ctypes.c_int32 * (4 * len(text.encode()) + 9))()
        data = text.encode()
        count = call.llama_tokenize(vocabulary, data, len(data), room, len(room), False, False)
        ids += [*room[:count], END]
    return np.array(ids)


def embeddings(job: dict[str, Any]) -> np.ndarray:
    with Exact(Path(job["model"]), pooling=job["pooling"]) as session:
        session.encode(job["prompt"])
        return session.embeddings(len(job["prompt"]) if job["pooling"] == "none" else 1)


if __name__ == "__main__":
    job = json.loads(sys.stdin.read())
    np.save(
        job["out"],
        {"logits": logits, "embeddings": embeddings, "tokens": tokens}[job["do"]](job),
    )
    sys.stdout.flush()
    os._exit(0)
