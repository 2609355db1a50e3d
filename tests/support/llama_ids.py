"""Have llama.cpp tokenize texts in a separate process, because it aborts on unexpected input.

`ids` returns the ids of each text, with the special tokens in it recognized; `special` also adds
those that llama.cpp puts around a text. `pieces` and `texts` are the way back.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ggufkit.llama_cpp import library as llama_cpp
from llama_memory import ModelParameters


def ids(path: Path, texts: list[str], *, special: bool = False) -> list[list[int]]:
    """Return the ids that llama.cpp gives to texts."""
    return _answer({"model": str(path), "texts": texts, "special": special})


def pieces(path: Path) -> list[bytes]:
    """Return the bytes that llama.cpp gives for each token."""
    return [bytes.fromhex(piece) for piece in _answer({"model": str(path), "pieces": True})]


def texts(path: Path, ids: list[list[int]]) -> list[bytes]:
    """Return the texts that llama.cpp makes of ids."""
    return [bytes.fromhex(piece) for piece in _answer({"model": str(path), "ids": ids})]


def _answer(job: dict[str, object]) -> list[Any]:
    done = subprocess.run(
        [sys.executable, __file__], input=json.dumps(job), capture_output=True, text=True,
        check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Answer the job on standard input."""
    job = json.load(sys.stdin)
    call = llama_cpp.library().functions
    call.llama_model_default_params.restype = ModelParameters
    call.llama_model_load_from_file.argtypes = (ctypes.c_char_p, ModelParameters)
    chosen = call.llama_model_default_params()
    chosen.vocab_only = True
    model = call.llama_model_load_from_file(os.fsencode(job["model"]), chosen)
    vocabulary = call.llama_model_get_vocab(model)
    answers: list[object] = []
    pointer = ctypes.c_void_p(vocabulary)
    buffer = ctypes.create_string_buffer(1 << 20)
    for number in range(call.llama_vocab_n_tokens(vocabulary)) if "pieces" in job else ():
        size = call.llama_token_to_piece(pointer, number, buffer, len(buffer), 0, True)
        answers.append(ctypes.string_at(buffer, size).hex())
    for ids in job.get("ids", []):
        ids_of_text = (ctypes.c_int32 * len(ids))(*ids)
        size = call.llama_detokenize(
            pointer, ids_of_text, len(ids), buffer, len(buffer), False, True
        )
        answers.append(ctypes.string_at(buffer, size).hex())
    for text in job.get("texts", []):
        data = text.encode()
        room = (ctypes.c_int32 * (4 * len(data) + 9))()
        count = call.llama_tokenize(
            vocabulary, data, len(data), room, len(room), job["special"], True
        )
        answers.append(room[:count])
    print("\n" + json.dumps(answers), flush=True)  # noqa: T201
    os._exit(0)


if __name__ == "__main__":
    main()
