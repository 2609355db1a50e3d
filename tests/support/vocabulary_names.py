"""The vocabularies of llama.cpp by name: a few quick ones, those of the matrix, and all others."""

from __future__ import annotations

import pytest

QUICK = {"bert-bge", "gpt-2", "llama-spm"}
# With `QUICK`, one of each kind and of each way to split text before the merges.
MATRIX = {
    *("deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "llama-bpe", "nomic-bert-moe"),
    *("phi-3", "qwen35", "refact"),
}
# These are split as one of the others is.
SIMILAR = {"aquila", "baichuan", "command-r", "gpt-neox", "mpt", "qwen2", "starcoder"}
NAMES = [
    *sorted(QUICK),
    *(pytest.param(name, marks=pytest.mark.matrix) for name in sorted(MATRIX)),
    *(pytest.param(name, marks=pytest.mark.exhaustive) for name in sorted(SIMILAR)),
]


def path_of(name, vocabularies):
    return next(path for path in vocabularies if path.stem == f"ggml-vocab-{name}")
