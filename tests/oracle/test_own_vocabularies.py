"""llama.cpp tokenizes with converted vocabularies of their own as the models' code does."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import tiktoken
import tiktoken.load

sys.path.insert(0, str(Path(__file__).resolve().parent))
import own_vocabularies
import running

import ggufkit

pytestmark = pytest.mark.oracle

FOLDER = Path(os.environ.get("GGUFKIT_ORACLE", ""))
TEXTS = [
    "The quick brown fox 日本語 é \n\n don't \\n\" 🦙",
    "x'The It'S  THE   quick\tthe 1234 日日 Thequick, \r\n\r\n  x",
    "Ünïcödé русский العربية 語日本 aaee  ",
]
# The rule for words of Qwen 1 and Hunyuan, from their published code.
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LAST_BYTE = 255
UNKNOWN = 10**7  # what a character without a token costs, in 10,000ths


def longest_tokens(data):
    """Return the ids of the longest tokens, one after the other; the first token has the id 1."""
    numbers = {token: number for number, token in enumerate(own_vocabularies.pieces(), 1)}
    ids = []
    while data:
        size = max(n for n in range(1, len(data) + 1) if data[:n] in numbers)
        ids.append(numbers[data[:size]])
        data = data[size:]
    return ids


def best_tokens(text, rows):
    """Return the ids of the tokens with the largest sum of scores, as PLaMo's code chooses them.

    A character that no token has becomes its bytes. Of equal sums the one with the longer first
    token counts.
    """
    scores = {row[0]: round(float(np.float32(row[1])) * 1e4) for row in rows if row[2] != "BYTE"}
    numbers = {row[0]: number for number, row in enumerate(rows)}
    best = [(0, [])] * (len(text) + 1)
    for start in reversed(range(len(text))):
        candidates = [
            (best[stop][0] + scores[text[start:stop]], [numbers[text[start:stop]], *best[stop][1]])
            for stop in range(len(text), start, -1)
            if text[start:stop] in scores
        ]
        data = [numbers[f"<0x{byte:02X}>"] for byte in text[start].encode()]
        sum_after, after = best[start + 1]
        candidates.append((sum_after - UNKNOWN, data + after))
        best[start] = max(candidates, key=lambda candidate: candidate[0])
    return best[0][1]


def llama_tokens(case, folder, pre=None):
    """Return the ids of the texts that llama.cpp finds with a converted vocabulary."""
    out = folder / "tiny.gguf"
    with ggufkit.convert(FOLDER / "checkpoints" / case, pre=pre, vocab_only=True) as model:
        ggufkit.write(model, out)
    ids = running.run(out, folder / "found.npy", do="tokens", texts=TEXTS).tolist()
    ends = [place for place, number in enumerate(ids) if number == running.END]
    return [ids[place + 1 : end] for place, end in zip([-1, *ends], ends, strict=False)]


def test_llama_cpp_takes_rwkvs_longest_tokens(tmp_path):
    expected = [longest_tokens(text.encode()) for text in TEXTS]
    assert llama_tokens("rwkv7", tmp_path) == expected


@pytest.mark.parametrize(
    ("case", "file", "pre"),
    [("qwen", "qwen.tiktoken", "qwen2"), ("hunyuan-moe", "hy.tiktoken", "hunyuan")],
)
def test_llama_cpp_merges_ranks_as_tiktoken_does(case, file, pre, tmp_path):
    ranks = tiktoken.load.load_tiktoken_bpe(str(FOLDER / "checkpoints" / case / file))
    known = tiktoken.Encoding(case, pat_str=QWEN, mergeable_ranks=ranks, special_tokens={})
    expected = [known.encode_ordinary(text) for text in TEXTS]
    assert llama_tokens(case, tmp_path, pre) == expected
    assert any(number > LAST_BYTE for number in expected[0])


@pytest.mark.parametrize("case", ["plamo2", "plamo3"])
def test_llama_cpp_takes_plamos_best_tokens(case, tmp_path):
    lines = (FOLDER / "checkpoints" / case / "tokenizer.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in lines.splitlines()]
    assert llama_tokens(case, tmp_path) == [best_tokens(text, rows) for text in TEXTS]
