"""Headers of files that are read by ranges: how many requests and bytes they take."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import ggufkit
import ggufkit._native as _native
from ggufkit.errors import LimitError
from ggufkit.models import range_header
from ggufkit.remote.remote_file import RemoteFile
from ranged_server import Served

MOST_REQUESTS = 4
MOST_BYTES = 1.45  # times those of the header
ROOM = bytes(24 << 20)  # of tensor data after a header that has none


@pytest.fixture(scope="module")
def header(tmp_path_factory):
    """A header with arrays of all kinds, and its file."""
    path = tmp_path_factory.mktemp("header") / "m.gguf"
    keys = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [f"token{n}" for n in range(300)],
        "tokenizer.ggml.token_type": np.ones(300, "i4"),
        "tokenizer.ggml.merges": [f"a b{n}" for n in range(200)],
        "other.nested": ggufkit.typed("array[array[string]]", [["a", "bc"], ["d"]]),
        "other.flag": True,
    }
    ggufkit.save(path, {f"t{n}": np.zeros(32, "f4") for n in range(9)}, keys)
    data = path.read_bytes()
    return data, ggufkit.open(path).data_offset


def test_the_scanner_says_what_each_beginning_lacks(header):
    data, data_offset = header
    end = _native.scan(data)[4]
    assert end <= data_offset
    for size in range(4, end):
        lack = _native.lack(data[:size], len(data))
        assert lack is not None
        assert size < lack[0] <= end
    for size in (end, end + 1, len(data)):
        assert _native.lack(data[:size], len(data)) is None
        assert _native.scan(data[:size], len(data))[:5] == _native.scan(data)[:5]


def test_what_is_wrong_in_a_beginning_is_not_lacking(header):
    data, _ = header
    counts = struct.pack("<QQ", 2**60, 2**60)
    forged = data[:8] + counts + data[24:]
    assert _native.lack(forged[:100], len(data)) is None
    (problem,) = _native.scan(forged[:100], len(data))[7]
    assert problem == ("count", 8, 2**60, len(data) - 24)


def test_headers_come_in_any_step(header, monkeypatch):
    data, _ = header
    monkeypatch.setattr(range_header, "FIRST_BYTES", 1)
    monkeypatch.setattr(range_header, "expected_bytes", lambda data, _: len(data) + 7)
    with Served({"/m.gguf": data}) as server:
        file = RemoteFile(server.url("/m.gguf"), first_bytes=8)
        parsed = range_header.read_header(file)
        near = range_header.parse(data, len(data))
        assert parsed.metadata == near.metadata
        assert parsed.places.starts == near.places.starts


@pytest.mark.real
def test_headers_of_known_vocabularies_take_few_requests(vocabularies, smollm2, gemma3):
    for path in (*vocabularies, smollm2, gemma3):
        content = path.read_bytes()
        end = range_header.parse(content, len(content)).end
        with Served({"/m.gguf": content[:end] + ROOM}) as server:
            file = RemoteFile(server.url("/m.gguf"))
            range_header.read_header(file)
            assert len(server.requests) <= MOST_REQUESTS, path
            assert server.sent <= max(MOST_BYTES * end, 2 << 20), path


@pytest.mark.real
def test_the_header_of_smollm2_takes_one_request(smollm2):
    with Served({"/m.gguf": smollm2.read_bytes()}) as server:
        with ggufkit.open(server.url("/m.gguf")) as far, ggufkit.open(smollm2) as near:
            assert far.metadata == near.metadata
        assert len(server.requests) == 1


def test_a_header_that_claims_too_much_costs_nothing():
    name = b"general.x"
    begin = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", len(name)) + name
    forged = begin + struct.pack("<IIQ", 9, 0, 1 << 40)  # an array of 2^40 bytes

    def claim(handler, _):
        size = len(forged)
        headers = {"Content-Range": f"bytes 0-{size - 1}/{1 << 60}", "ETag": '"1"'}
        handler.send(206, forged, headers)
        return True

    with Served({}, fault=claim) as server:
        with pytest.raises(LimitError, match="needs 1,099"):
            ggufkit.open(server.url("/m.gguf"))
        assert len(server.requests) <= 1
