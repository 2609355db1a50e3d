"""Embeddings of sentences from files made with and without a search or a Hessian, by llama.cpp.

The model is all-MiniLM-L6-v2 in F32. Its rows of 384 have no blocks of 256, so only types with
blocks of 32 apply. Importance data are given only where a Hessian is. A sentence loses one minus
the cosine of its embedding with that of the F32 file.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from searched_files import (
    RULE,
    calibrated,
    change,
    is_layer_matrix,
    text_of_all_domains,
    treatment,
)
from texts import DOMAINS, HELD_OUT, documents

import ggufkit

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import real

SENTENCES: Final = 40  # of each domain
LEAST, LENGTH = 40, 300  # characters
TYPES: Final = ("Q4_0", "Q5_0", "IQ4_NL")


def sentences(domain: str) -> list[str]:
    """Return the first paragraph of some length in each document, then the second, and so on."""
    parts = [
        [part for part in text.split("\n\n") if len(part) > LEAST]
        for text in documents(domain, HELD_OUT)
    ]
    paragraphs = [part[turn] for turn in range(20) for part in parts if turn < len(part)]
    return [text[:LENGTH] for text in paragraphs[:SENTENCES]]


def embeddings(path: Path, texts: list[str], threads: int) -> npt.NDArray[np.float64]:
    """Return the embeddings of texts, of length one."""
    import xllamacpp  # noqa: PLC0415 (only this table needs it)

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.embedding = True
    parameters.n_parallel, parameters.n_ctx = 1, 512
    parameters.n_batch = parameters.n_ubatch = 512
    parameters.cpuparams.n_threads = threads
    server = xllamacpp.Server(parameters)
    answers: Any = [server.handle_embeddings({"input": text})["data"][0] for text in texts]
    vectors = np.array([np.ravel(answer["embedding"]) for answer in answers])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def table(options: argparse.Namespace, folder: Path) -> Iterator[str]:
    """Yield the lines of the table."""
    source = folder / "minilm.gguf"
    if not source.exists():
        ggufkit.write(ggufkit.convert(real.minilm(), outtype="f32"), source)
    texts = [text for domain in DOMAINS for text in sentences(domain)]
    base = embeddings(source, texts, options.threads)
    imatrix = None
    if options.hessian:
        imatrix = calibrated(source, options, folder, text_of_all_domains(options))

    def lost(kind: str, search: str) -> list[float]:
        path = folder / "minilm-quantized.gguf"
        with ggufkit.open(source) as model:
            names = [t.name for t in model.tensors.values() if is_layer_matrix(t)]
            types = dict.fromkeys(names, kind)
            chosen = treatment(search, folder)
            ggufkit.write(ggufkit.quantize(model, types=types, imatrix=imatrix, **chosen), path)
        vectors = embeddings(path, texts, options.threads)
        return [float(loss) for loss in 1 - (vectors * base).sum(axis=1)]

    yield f"| type | 1 - cosine | {' | '.join(options.searches)} |"
    yield "|---" * (2 + len(options.searches)) + "|"
    for kind in options.types or TYPES:
        rule = lost(kind, RULE)
        cells = [str(change(rule, lost(kind, search))) for search in options.searches]
        yield f"| {kind} | {statistics.fmean(rule):.5f} | {' | '.join(cells)} |"
