from __future__ import annotations

import hashlib
import uuid

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ggufkit
import ggufkit._native as _native
from ggufkit.errors import FormatError, ValueTypeError
from ggufkit.inspection import digest as digest_module
from ggufkit.inspection.digest import ALGORITHMS
from ggufkit.models.model import Tensors
from ggufkit.models.tensors.in_memory import as_tensor

RANDOM = np.random.default_rng(6)
TENSORS = {
    "b.weight": RANDOM.standard_normal((6, 512)).astype("f4"),
    "a.weight": (RANDOM.standard_normal((4, 512)).astype("f4"), "Q4_K"),
    "c.scales": ggufkit.packed(RANDOM.integers(0, 256, (3, 110), dtype="u1"), "Q3_K"),
    "empty": np.zeros((0, 32), "f2"),
    "one": np.float64(3).reshape(1),
}
METADATA = {"general.architecture": "llama", "a.words": ["x", "y"], "a.number": 5}


@pytest.fixture
def path(tmp_path):
    ggufkit.save(tmp_path / "model.gguf", TENSORS, METADATA)
    return tmp_path / "model.gguf"


def hashes(path, algorithms=ALGORITHMS, **options):
    with ggufkit.open(path) as model:
        return ggufkit.digest(model, algorithms, **options)


# XXH64, which Python lacks.


def sanity_bytes(count):
    """The bytes that xxHash's own tests hash."""
    data, state = [], 2654435761
    for _ in range(count):
        data.append(state >> 56)
        state = state * 11400714785074694797 % 2**64
    return np.array(data, np.uint8)


def xxh64(*pieces):
    hasher = _native.Xxh64()
    for piece in pieces:
        hasher.update(piece)
    return f"{hasher.digest():016x}"


@pytest.mark.parametrize(
    ("count", "digest"),
    [
        (0, "ef46db3751d8e999"),
        (1, "e934a84adb052768"),
        (4, "9136a0dca57457ee"),
        (14, "8282dcc4994e35c8"),
        (31, "299b39a290e6d783"),
        (32, "18b216492bb44b70"),
        (39, "b888caf07592b1b3"),
        (222, "b641ae8cb691c174"),
        (4096, "ab77f4af85f4e70b"),
    ],
)
def test_xxh64_matches_xxhash(count, digest):
    assert xxh64(sanity_bytes(count)) == digest


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_xxh64_of_pieces_equals_xxh64_of_the_whole(data, cuts):
    whole = np.frombuffer(data, np.uint8)
    pieces = np.split(whole, sorted(min(cut, len(whole)) for cut in cuts))
    assert xxh64(*pieces) == xxh64(whole)


# Digests of data.


def sha1(data):
    return hashlib.sha1(data, usedforsecurity=False)


def test_digests_cover_the_bytes_of_tensors_in_file_order(path):
    with ggufkit.open(path) as model:
        data = {name: tensor.raw().tobytes() for name, tensor in model.tensors.items()}
    digests = hashes(path)
    everything = b"".join(data.values())
    assert list(data) == list(TENSORS)
    assert digests.model["sha256"] == hashlib.sha256(everything).hexdigest()
    assert digests.model["sha1"] == sha1(everything).hexdigest()
    assert digests.model["xxh64"] == xxh64(np.frombuffer(everything, np.uint8))
    for name, own in data.items():
        assert digests.tensors[name]["sha1"] == sha1(own).hexdigest()
        assert digests.tensors[name]["sha256"] == hashlib.sha256(own).hexdigest()
        assert digests.tensors[name]["xxh64"] == xxh64(np.frombuffer(own, np.uint8))


def test_uuid_is_version_5_in_the_namespace_of_llama_cpp(path):
    with ggufkit.open(path) as model:
        everything = b"".join(tensor.raw().tobytes() for tensor in model.tensors.values())
    namespace = uuid.uuid5(uuid.NAMESPACE_URL, "en.wikipedia.org/wiki/Llama.cpp")
    digest = sha1(namespace.bytes + everything).digest()
    assert hashes(path).model["uuid"] == str(uuid.UUID(bytes=digest[:16], version=5))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("algorithms", [ALGORITHMS, ("content",)])
def test_digests_do_not_depend_on_tiles_or_threads(path, monkeypatch, threads, algorithms):
    expected = hashes(path, algorithms)
    monkeypatch.setattr(digest_module, "TILE_BYTES", 100)
    assert hashes(path, algorithms, threads=threads) == expected


@pytest.mark.parametrize(
    "options", [{"shard_tensors": 2}, {"byte_order": "big"}, {"alignment": 512}, {"version": 2}]
)
def test_digests_do_not_depend_on_layout(path, options):
    with ggufkit.open(path) as model:
        first, *_ = ggufkit.write(model, path.with_name("other.gguf"), **options)
    assert hashes(first) == hashes(path)


def test_computed_tensors_have_the_digests_of_the_written_file(path):
    with ggufkit.open(path) as model:
        quantized = ggufkit.quantize(model, "Q8_0", allow_requantize=True)
        expected = ggufkit.digest(quantized, ALGORITHMS)
        ggufkit.write(quantized, path.with_name("q8.gguf"))
    assert hashes(path.with_name("q8.gguf")) == expected


@pytest.mark.parametrize("algorithms", [ALGORITHMS, ["content"]])
def test_progress_counts_all_bytes_once(path, algorithms):
    steps = []
    hashes(path, algorithms, progress=lambda *counts: steps.append(counts))
    with ggufkit.open(path) as model:
        total = sum(tensor.nbytes for tensor in model.tensors.values())
    assert steps[-1] == (total, total)
    assert steps == sorted(steps)


def test_returns_only_requested_digests(path):
    assert set(hashes(path, ["sha1"]).model) == {"sha1"}
    assert hashes(path, ["uuid"]).tensors == hashes(path, ["content"]).tensors == {}
    assert hashes(path, ["sha1"], tensors=False).tensors == {}
    both = hashes(path, ["content", "sha1"])
    assert {kind for own in both.tensors.values() for kind in own} == {"sha1"}


@pytest.mark.parametrize("algorithms", [["md5"], []])
def test_refuses_unknown_algorithms(path, algorithms):
    with pytest.raises(ValueTypeError, match="unknown hash"):
        hashes(path, algorithms)


def test_refuses_zero_threads(path):
    with pytest.raises(ValueTypeError, match="threads"):
        hashes(path, threads=0)


@pytest.mark.parametrize("algorithms", [["sha1"], ["content"]])
def test_file_truncated_meanwhile_is_an_error(path, algorithms):
    with ggufkit.open(path) as model:
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(FormatError, match="changed"):
            ggufkit.digest(model, algorithms)


# The digest of content.


def content(tensors, metadata=METADATA):
    listed = Tensors(as_tensor(name, value) for name, value in tensors.items())
    return ggufkit.digest(ggufkit.Model(ggufkit.Metadata(metadata), listed), ["content"]).model


def test_content_digest_ignores_the_order_of_tensors_and_keys():
    def reversed_(items):
        return dict(reversed(items.items()))

    assert content(reversed_(TENSORS), reversed_(METADATA)) == content(TENSORS)


@pytest.mark.parametrize(
    ("tensors", "metadata"),
    [
        (TENSORS | {"one": np.float64(4).reshape(1)}, METADATA),
        (TENSORS | {"one": np.float64(3).reshape(1, 1)}, METADATA),
        (TENSORS | {"one": np.float64(3).view("i8").reshape(1)}, METADATA),
        ({"other" if k == "one" else k: v for k, v in TENSORS.items()}, METADATA),
        ({k: v for k, v in TENSORS.items() if k != "empty"}, METADATA),
        (TENSORS, METADATA | {"a.number": 6}),
        (TENSORS, METADATA | {"a.number": np.int32(5)}),
        (TENSORS, METADATA | {"b.number": 5}),
        (TENSORS, {"general.architecture": "llama", "a.words": ["x", "y"]}),
    ],
)
def test_content_digest_covers_everything_else(tensors, metadata):
    assert content(tensors, metadata) != content(TENSORS)


def test_content_digest_matches_its_documentation():
    hasher = hashlib.sha256(b"ggufkit content 1\0" + bytes([2]) + bytes(7) + bytes([1]) + bytes(7))
    for key, kind, value in ((b"a", 4, b"\5\0\0\0"), (b"b", 4, b"\6\0\0\0")):
        hasher.update(bytes([1]) + bytes(7) + key + bytes([kind, 0, 0, 0]) + value)
    hasher.update(bytes([1]) + bytes(7) + b"t" + bytes([2, 0, 0, 0]))
    hasher.update(bytes([3]) + bytes(7) + bytes([2]) + bytes(7) + bytes([24, 0, 0, 0]))
    hasher.update(hashlib.sha256(bytes(6)).digest())
    keys = {"general.alignment": np.uint32(64), "ggufkit.reserved": 0, "b": 6, "a": 5}
    assert content({"t": np.zeros((2, 3), "i1")}, keys) == {"content": hasher.hexdigest()}


# Real models: what llama-gguf-hash of October 2026 prints for them.

PRINTED = {
    "smollm2": {
        "xxh64": "2daf7f49af3d2a34",
        "sha1": "08e074893a0d53d3c64f47dec5f446bcbbebd071",
        "sha256": "98aff3b9d040705869dfca86f7f5593311bbb77090bcde9dff3b7d5f9d933d7b",
        "uuid": "12993fa6-082e-53f2-8c6c-cb9e756774e0",
    },
    "gemma3": {
        "xxh64": "4e56ea4d7ef2fef2",
        "sha1": "b0a4e005ead348ddffaed1b7df47af3e0604685e",
        "sha256": "f6c5edb9500ce23fdc8e99b58e784a64747d73a83a2f04cc0f128bccaf544239",
        "uuid": "06be4175-2480-531a-b6df-7f4c7bc3a62c",
    },
}


@pytest.mark.parametrize("name", PRINTED)
def test_digests_of_real_models_match_llama_gguf_hash(name, request):
    path = request.getfixturevalue(name)
    assert hashes(path, PRINTED[name], tensors=False).model == PRINTED[name]
