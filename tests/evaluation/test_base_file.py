"""Base files: what is written is read, and damage has a message."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from ggufkit.errors import FormatError, NotGGUFError, TruncatedError
from ggufkit.evaluation.base_file import HEADER, MAGIC, BaseFile, open_base
from ggufkit.evaluation.log_probabilities import encode, log_sum

VOCABULARY, CONTEXT, CHUNKS = 7, 8, 2


def codes_of(logits):
    return encode(logits, log_sum(logits))


@pytest.fixture
def logits():
    return np.random.default_rng(1).normal(0, 3, (CHUNKS, 3, VOCABULARY)).astype(np.float32)


@pytest.fixture
def path(tmp_path, logits):
    path = tmp_path / "base.kld"
    tokens = np.arange(CHUNKS * CONTEXT, dtype=np.int32).reshape(CHUNKS, CONTEXT) % VOCABULARY
    with path.open("w+b") as file:
        base = BaseFile("base", file.fileno(), tokens, VOCABULARY)
        base.begin()
        for chunk, position in np.ndindex(*logits.shape[:2]):
            base.put(chunk, position, codes_of(logits[chunk, position]))
    assert path.stat().st_size == base.nbytes
    return path


def opened(path, chunks=None):
    with path.open("rb") as file:
        return open_base(path, file, chunks)


def test_log_probabilities_come_back_within_half_a_step(path, logits):
    with path.open("rb") as file:
        base = open_base(path, file)
        for chunk, position in np.ndindex(*logits.shape[:2]):
            row = logits[chunk, position].astype(np.float64)
            expected = row - np.log(np.exp(row).sum())
            step = min(row.max() - row.min(), 16) / 65535
            values = base.log_probabilities(chunk, position)
            assert values == pytest.approx(expected, abs=0.51 * step + 1e-6)


def test_log_probabilities_far_below_the_highest_are_cut():
    codes = codes_of(np.array([0, -10, -40], np.float32))
    assert codes[-2] == 0
    assert codes[4] == 65535


def test_equal_logits_have_codes_of_zero_and_no_scale():
    codes = codes_of(np.full(4, 2, np.float32))
    assert codes[:4].view(np.float32) == pytest.approx([0, -np.log(4)])
    assert not codes[4:].any()


def test_the_first_chunks_are_read_where_they_are(path):
    with path.open("rb") as file:
        part, whole = open_base(path, file, 1), open_base(path, file_again(file))
        assert part.tokens.tolist() == whole.tokens[:1].tolist()
        assert np.array_equal(part.log_probabilities(0, 2), whole.log_probabilities(0, 2))


def file_again(file):
    file.seek(0)
    return file


@pytest.mark.parametrize(
    ("header", "error", "message"),
    [
        (b"GGUF" + bytes(30), NotGGUFError, "this is not a base file of llama-perplexity"),
        (MAGIC + b"\x08\0\0", TruncatedError, "the header ends early"),
        (HEADER.pack(MAGIC, 8, 7, 1000), TruncatedError, "the tokens end early"),
        (HEADER.pack(MAGIC, 0, 7, 1), FormatError, "the header is wrong: .*context 0"),
        (HEADER.pack(MAGIC, 8, -7, 1), FormatError, "the header is wrong: .*vocabulary -7"),
        (HEADER.pack(MAGIC, 8, 7, -1), FormatError, "the header is wrong: chunks -1"),
        (HEADER.pack(MAGIC, 1 << 31, 7, 1 << 30), FormatError, "the header is wrong"),
        (HEADER.pack(MAGIC, 8, 3, 1) + b"\x07" * 4000, FormatError, "a token is outside"),
    ],
)
def test_a_damaged_header_has_a_message(tmp_path, header, error, message):
    path = tmp_path / "base.kld"
    path.write_bytes(header)
    with pytest.raises(error, match=message):
        opened(path)


def test_every_shorter_file_is_refused_or_has_whole_chunks(path):
    content = path.read_bytes()
    for nbytes in range(len(content)):
        path.write_bytes(content[:nbytes])
        with pytest.raises(FormatError):
            opened(path)


def test_a_scale_that_is_no_number_is_refused(path):
    start = HEADER.size + 4 * CHUNKS * CONTEXT
    content = bytearray(path.read_bytes())
    content[start : start + 4] = np.float32(np.nan).tobytes()
    path.write_bytes(content)
    with path.open("rb") as file, pytest.raises(FormatError, match="chunk 1, position 1"):
        open_base(path, file).log_probabilities(0, 0)


def test_a_file_that_is_cut_while_it_is_read_is_an_error(path):
    with path.open("rb") as file:
        base = open_base(path, file)
        os.truncate(path, 100)
        with pytest.raises(OSError, match="cut while it was read"):
            base.log_probabilities(1, 2)


def test_a_file_of_holes_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "sparse.kld"
    path.write_bytes(HEADER.pack(MAGIC, 1 << 24, 1, 1 << 6))
    os.truncate(path, 1 << 33)
    tracemalloc.start()
    with pytest.raises(FormatError, match="the header is wrong"):
        opened(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_names_the_place():
    with Path("/dev/full").open("wb", buffering=0) as file:
        base = BaseFile("folder", file.fileno(), np.zeros((1, CONTEXT), np.int32), VOCABULARY)
        with pytest.raises(OSError, match="No space left on device: 'folder'"):
            base.put(0, 0, codes_of(np.zeros(VOCABULARY, np.float32)))
