"""The vocabularies of llama.cpp by name: a few quick ones, and all others."""

from __future__ import annotations

import pytest

QUICK = {"bert-bge", "gpt-2", "llama-spm"}
OTHERS = {
    *("aquila", "baichuan", "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4"),
    *("gpt-neox", "llama-bpe", "mpt", "nomic-bert-moe", "phi-3", "qwen2", "qwen35", "refact"),
    "starcoder",
}
NAMES = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.matrix)
    for name in sorted(QUICK | OTHERS)
]


def path_of(name, vocabularies):
    return next(path for path in vocabularies if path.stem == f"ggml-vocab-{name}")
