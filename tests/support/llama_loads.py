"""Whether llama.cpp loads files: many in one process, each in a fork that may abort.

Nothing is allocated and no tensor is read, so that files may be holes. A context is made and its
graph built, where llama.cpp finds what its loader overlooked. On request it also computes the
logits of the next token, from whole files.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

SECONDS: Final = 20  # of one file, which takes a tenth of one
MEMORY: Final = 8 << 30  # bytes of address space for what a header may promise
TOKENS: Final = 32  # of the context
PROMPT: Final = [3, 4, 5]
FAILED: Final = 3


def refusals(paths: Iterable[Path], *, computes: bool = False) -> dict[Path, str]:
    """Return the last message of llama.cpp for each file that it refused.

    With `computes` also for each that gives no numbers after a prompt.
    """
    remaining = list(paths)
    job = {"paths": [str(path) for path in remaining], "computes": computes}
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"GGML_NO_BACKTRACE": "1"},  # which takes longer than all else
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return {
        path: answer for path, answer in zip(remaining, answers, strict=True) if answer is not None
    }


def _answer(path: str, *, computes: bool) -> str | None:
    """Load one file in a fork; return the last message if it was refused."""
    with tempfile.TemporaryFile() as log:
        child = os.fork()
        if child == 0:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            with contextlib.suppress(BaseException):
                (_compute if computes else _load)(path)
            os._exit(FAILED)
        status = os.waitpid(child, 0)[1]
        if status == 0:
            return None
        log.seek(0)
        lines = log.read().decode(errors="replace").splitlines()
    telling = [
        line for line in lines if "error" in line or "GGML_ASSERT" in line or "ABORT" in line
    ]
    ended = os.waitstatus_to_exitcode(status)
    return f"{(telling or lines or [''])[0].strip()[:300]} ({ended})"


def _load(path: str) -> None:
    import resource  # a system without it has no llama.cpp to test either

    import llama_memory
    from ggufkit.llama_cpp import library as llama_cpp

    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    library = llama_cpp.library().functions
    library.llama_log_set(llama_cpp._Log(), None)  # its own, which tells all on stderr
    library.llama_model_default_params.restype = llama_memory.ModelParameters
    chosen = library.llama_model_default_params()
    chosen.no_alloc, chosen.use_extra_bufts, chosen.load_mode = True, False, 0
    library.llama_model_load_from_file.argtypes = (
        llama_memory.ctypes.c_char_p,
        llama_memory.ModelParameters,
    )
    model = library.llama_model_load_from_file(os.fsencode(path), chosen)
    if not model:
        os._exit(FAILED)
    context = library.llama_context_default_params()
    context.n_ctx = context.n_batch = context.n_ubatch = TOKENS
    os._exit(0 if library.llama_init_from_model(model, context) else FAILED)


def _compute(path: str) -> None:
    from ggufkit.llama_cpp.session import Session

    signal.alarm(SECONDS)
    with Session(Path(path), length=TOKENS, batch=TOKENS, threads=1) as session:
        session.decode([PROMPT])
        logits = session.logits()  # of Qwen 3 TTS those of words are minus infinity
        os._exit(0 if np.isfinite(logits).any() and not np.isnan(logits).any() else FAILED)


def main() -> None:
    """Answer the job on stdin, a line of JSON for each of its paths."""
    from ggufkit.llama_cpp import library as llama_cpp

    llama_cpp.library()
    job = json.load(sys.stdin)
    for path in job["paths"]:
        print(json.dumps(_answer(path, computes=job["computes"])), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
