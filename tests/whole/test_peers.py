"""The official Python package, ggml and ggufkit agree on every byte and every value."""

from __future__ import annotations

import random
import string

import gguf
import ml_dtypes
import numpy as np
import pytest

import ggufkit
from ggml_files import Ggml
from ggufkit.format.types import GGML_TYPES
from ggufkit.format.values import Arrays, Strings
from spelled import NUMBERS, SpelledTensor, Spelling

# Q8_1 and Q8_K stand in no file, and a released package may not know the newest type.
OFFICIAL = {int(number) for number in gguf.GGMLQuantizationType}
TYPES = [GGML_TYPES[number] for number in sorted(OFFICIAL - {9, 15})]
SEEDS = range(25)


@pytest.fixture
def peer(ggml):
    return Ggml(ggml)


def random_number(draw, kind):
    if kind == "bool":
        return draw.random() < 0.5
    if kind.startswith("float"):
        return float(np.float32(draw.choice([0.0, -0.0, 1.5, float("inf"), draw.gauss(0, 1e9)])))
    limits = np.iinfo(kind)
    low, high = int(limits.min), int(limits.max)
    return draw.choice([low, high, 0, 1, draw.randint(low, high)])


def random_text(draw):
    alphabet = string.ascii_letters + "äß日本\N{GRINNING FACE} \n"
    return "".join(draw.choices(alphabet, k=draw.choice([0, 1, 5, 300])))


def random_metadata(draw, *, empty_arrays):
    """Return key-values of every type except nested arrays, in random order."""
    pairs = [(f"number.{kind}", (kind, random_number(draw, kind))) for kind in NUMBERS]
    pairs.append(("text", ("string", random_text(draw).encode())))
    counts = [0, 1, 7] if empty_arrays else [1, 7]
    for kind in NUMBERS:
        items = [random_number(draw, kind) for _ in range(draw.choice(counts))]
        pairs.append((f"array.{kind}", ("array", (kind, items))))
    words = [random_text(draw).encode() for _ in range(draw.choice(counts))]
    pairs.append(("array.string", ("array", ("string", words))))
    draw.shuffle(pairs)
    return pairs[: draw.randint(0, len(pairs))]


def random_tensors(draw):
    infos = []
    for number in range(draw.choice([0, 1, 2, 9])):
        kind = draw.choice(TYPES)
        dims = [kind.block_size * draw.randint(1, 3)]
        dims += [draw.randint(1, 4) for _ in range(draw.randint(0, 3))]
        nbytes = kind.row_bytes(dims[0]) * int(np.prod(dims[1:]))
        name = "".join(draw.choices(string.ascii_letters + "._", k=draw.randint(1, 50)))
        infos.append(SpelledTensor(f"{name}{number}", tuple(dims), kind.id, draw.randbytes(nbytes)))
    return infos


def is_rewritten_the_same(path):
    copy = path.parent / "copy.gguf"
    with ggufkit.open(path) as model:
        ggufkit.write(model, copy)
    return copy.read_bytes() == path.read_bytes()


# Real files.


def same_files(first, second):
    """Whether two files hold the same bytes; mapped, for they are large."""
    maps = [np.memmap(path, np.uint8, "r") for path in (first, second)]
    return np.array_equal(*maps)


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_real_models_are_rewritten_byte_for_byte(name, request, tmp_path):
    path = request.getfixturevalue(name)
    with ggufkit.open(path) as model:
        ggufkit.write(model, tmp_path / "copy.gguf")
    assert same_files(path, tmp_path / "copy.gguf")


def test_real_model_can_be_restored_from_shards_and_other_forms(smollm2, tmp_path):
    with ggufkit.open(smollm2) as model:
        paths = ggufkit.write(model, tmp_path / "part.gguf", shard_size=40_000_000)
        ggufkit.write(model, tmp_path / "big.gguf", byte_order="big", alignment=128)
    assert len(paths) == 3
    with ggufkit.open(paths[1]) as model:
        ggufkit.write(model.replace(), tmp_path / "merged.gguf")  # as if never split
    assert same_files(smollm2, tmp_path / "merged.gguf")
    with ggufkit.open(tmp_path / "big.gguf") as model:
        plain = model.replace(metadata=model.metadata.without("general.alignment", missing_ok=True))
        ggufkit.write(plain, tmp_path / "back.gguf", byte_order="little")
    assert same_files(smollm2, tmp_path / "back.gguf")


def test_vocabularies_are_rewritten_byte_for_byte(vocabularies, tmp_path):
    for path in vocabularies:
        with ggufkit.open(path) as model:
            ggufkit.write(model, tmp_path / "copy.gguf")
        assert same_files(path, tmp_path / "copy.gguf"), path.name


# The official package.

GGUF_TYPES = {kind: gguf.GGUFValueType[kind.upper()] for kind in (*NUMBERS, "string", "array")}


def write_officially(path, metadata, infos, *, alignment, big):
    order = gguf.GGUFEndian.BIG if big else gguf.GGUFEndian.LITTLE
    writer = gguf.GGUFWriter(path, "llama", endianess=order)
    if alignment != 32:
        writer.add_custom_alignment(alignment)
    for key, (kind, value) in metadata:
        if kind == "array":
            writer.add_key_value(key, value[1], GGUF_TYPES[kind], GGUF_TYPES[value[0]])
        else:
            writer.add_key_value(key, value, GGUF_TYPES[kind])
    for info in infos:
        kind = GGML_TYPES[info.type]
        shape = (*info.dims[:0:-1], kind.row_bytes(info.dims[0]))
        data = np.frombuffer(info.data, np.uint8).reshape(shape)
        writer.add_tensor(info.name, data, raw_dtype=gguf.GGMLQuantizationType(info.type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_files_of_the_official_writer_are_rewritten_byte_for_byte(tmp_path, seed):
    draw = random.Random(seed)
    metadata = random_metadata(draw, empty_arrays=False)  # which it leaves out
    big = seed % 3 == 0
    infos = [] if big else random_tensors(draw)  # it swaps quantized bytes as if they were plain
    alignment = draw.choice([32, 64, 8])
    write_officially(tmp_path / "in.gguf", metadata, infos, alignment=alignment, big=big)
    with ggufkit.open(tmp_path / "in.gguf") as model:
        assert model.alignment == alignment
        assert list(model.tensors) == [info.name for info in infos]
        for info in infos:
            assert model.tensors[info.name].raw().tobytes() == info.data
    assert is_rewritten_the_same(tmp_path / "in.gguf")


def values_of_all_types():
    numbers = {f"scalar.{np.dtype(d).name}": np.dtype(d).type(3) for d in "bBhHiIqQfd"}
    arrays = {f"array.{np.dtype(d).name}": np.arange(1, 5).astype(d) for d in "bBhHiIqQfd"}
    return {
        **numbers,
        **arrays,
        "extreme.low": np.int64(-(2**63)),
        "extreme.high": np.uint64(2**64 - 1),
        "extreme.float": np.float64(5e-324),
        "yes": True,
        "no": False,
        "yes.no": [True, False],
        "text": "Grüße 日本",
        "text.empty": "",
        "words": ["a", "", "日本"],
    }


def tensors_of_all_types():
    arrays = {}
    for dtype in (np.float32, np.float16, np.float64, np.int8, np.int16, np.int32, np.int64):
        arrays[np.dtype(dtype).name] = np.arange(24).reshape(2, 3, 4).astype(dtype)
    arrays["bfloat16"] = np.arange(8).astype(ml_dtypes.bfloat16)
    arrays["scalar"] = np.float32(7)
    random_bytes = np.random.default_rng(0).bytes
    for kind in TYPES:
        if kind.dtype is None and kind.name != "BF16":
            data = np.frombuffer(random_bytes(6 * kind.block_bytes), np.uint8)
            arrays[kind.name] = ggufkit.packed(data.reshape(2, -1), kind)
    return arrays


@pytest.mark.parametrize("alignment", [32, 64])
def test_official_reader_agrees_with_every_saved_value(tmp_path, alignment):
    values, tensors = values_of_all_types(), tensors_of_all_types()
    path = tmp_path / "all.gguf"
    ggufkit.save(path, tensors, values, alignment=alignment)
    reader = gguf.GGUFReader(path)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    for key, value in values.items():
        expected = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        assert fields[key] == expected, key
    assert reader.alignment == alignment
    assert [tensor.name for tensor in reader.tensors] == list(tensors)
    with ggufkit.open(path) as model:
        for theirs, ours in zip(reader.tensors, model.tensors.values(), strict=True):
            assert theirs.tensor_type == ours.type.id
            assert theirs.data_offset == ours.offset
            assert (
                tuple(reversed(theirs.shape.tolist())) == (ours.shape or (1,))[: theirs.shape.size]
            )
            assert theirs.data.tobytes() == ours.raw().tobytes()
        types = {key: model.metadata.type_name(key) for key in values}
    for key, field in reader.fields.items():
        if key in types:
            names = [kind.name.lower() for kind in field.types]
            assert types[key] == (names[0] if len(names) == 1 else f"array[{names[-1]}]")


def test_example_of_the_official_writer_gives_the_same_bytes(tmp_path):
    """The well-known example writer.py of the official package, here and there."""
    tensors = {
        "tensor1": np.ones((32,), np.float32) * 100,
        "tensor2": np.ones((64,), np.float32) * 101,
        "tensor3": np.ones((96,), np.float32) * 102,
    }
    writer = gguf.GGUFWriter(tmp_path / "theirs.gguf", "llama")
    writer.add_block_count(12)
    writer.add_uint32("answer", 42)
    writer.add_float32("answer_in_float", 42.0)
    writer.add_custom_alignment(64)
    for name, array in tensors.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ggufkit.save(
        tmp_path / "ours.gguf",
        tensors,
        {
            "general.architecture": "llama",
            "llama.block_count": 12,
            "answer": 42,
            "answer_in_float": 42.0,
            "general.alignment": 64,
        },
    )
    assert (tmp_path / "ours.gguf").read_bytes() == (tmp_path / "theirs.gguf").read_bytes()
    reader = gguf.GGUFReader(tmp_path / "ours.gguf")
    contents = {key: field.contents() for key, field in reader.fields.items()}
    assert contents["general.architecture"] == "llama"
    assert contents["llama.block_count"] == 12
    assert contents["answer"] == 42
    assert contents["answer_in_float"] == 42.0
    assert contents["general.alignment"] == reader.alignment == 64
    for tensor in reader.tensors:
        np.testing.assert_array_equal(tensor.data, tensors[tensor.name])


# ggml.


@pytest.mark.parametrize("seed", SEEDS)
def test_files_of_ggml_are_rewritten_byte_for_byte(tmp_path, peer, seed):
    draw = random.Random(seed)
    metadata, infos = random_metadata(draw, empty_arrays=True), random_tensors(draw)
    path = tmp_path / "in.gguf"
    peer.write(path, metadata, infos)
    expected = Spelling().file(metadata, [info._replace(dims=shortened(info)) for info in infos])
    assert path.read_bytes() == expected
    assert is_rewritten_the_same(path)


def shortened(info):
    """Return the dims without the last that are 1, which ggml does not count."""
    dims = list(info.dims)
    while len(dims) > 1 and dims[-1] == 1:
        dims.pop()
    return tuple(dims)


@pytest.mark.parametrize("seed", SEEDS)
def test_ggml_reads_every_written_value(tmp_path, peer, seed):
    draw = random.Random(seed)
    metadata, infos = random_metadata(draw, empty_arrays=True), random_tensors(draw)
    (tmp_path / "v2.gguf").write_bytes(Spelling(2, "little").file(metadata, infos))
    path = tmp_path / "out.gguf"
    with ggufkit.open(tmp_path / "v2.gguf") as model:
        ggufkit.write(model, path, version=3, alignment=64)
        offsets = [tensor.offset - model.data_offset for tensor in model.tensors.values()]
    read = peer.read(path)
    assert (read.version, read.alignment) == (3, 64)
    assert read.metadata == [*metadata, ("general.alignment", ("uint32", 64))]
    assert [tensor[:2] for tensor in read.tensors] == [(i.name, i.type) for i in infos]
    assert [tensor[3] for tensor in read.tensors] == [len(info.data) for info in infos]
    assert len(offsets) == len(read.tensors)
    with ggufkit.open(path) as model:
        places = [model.data_offset, *(tensor.offset for tensor in model.tensors.values())]
    theirs = [read.data_offset, *(read.data_offset + tensor[2] for tensor in read.tensors)]
    assert places[1:] == theirs[1:]
    if infos:
        assert places[0] == theirs[0]


def test_ggml_reads_all_saved_types(tmp_path, peer):
    values, tensors = values_of_all_types(), tensors_of_all_types()
    ggufkit.save(tmp_path / "all.gguf", tensors, values)
    read = peer.read(tmp_path / "all.gguf")
    assert [key for key, _ in read.metadata] == [*values, "general.quantization_version"]
    with ggufkit.open(tmp_path / "all.gguf") as model:
        for key, (kind, value) in read.metadata:
            name = f"array[{value[0]}]" if kind == "array" else kind
            assert model.metadata.type_name(key) == name
        assert [(t.name, t.type.id, t.nbytes) for t in model.tensors.values()] == [
            (name, number, nbytes) for name, number, _, nbytes in read.tensors
        ]


def test_ggml_reads_each_shard(tmp_path, peer):
    tensors = {f"t{n}": np.full(n + 1, n, np.float32) for n in range(5)}
    paths = ggufkit.save(tmp_path / "m.gguf", tensors, {"a": 1}, shard_tensors=2, alignment=64)
    for number, path in enumerate(paths):
        read = peer.read(path)
        split = dict(read.metadata)
        assert split["split.no"] == ("uint16", number)
        assert split["split.count"] == ("uint16", 3)
        assert split["split.tensors.count"] == ("int32", 5)
        assert read.alignment == 64
        assert [name for name, *_ in read.tensors] == list(tensors)[2 * number : 2 * number + 2]


def test_check_warns_of_what_ggml_refuses(tmp_path, peer):
    """Valid GGUF that llama.cpp does not load: written on request, and reported."""
    cases = {
        "nested": ({}, {"general.architecture": "llama", "nested": Arrays([Strings(["a"])])}),
        "long name": ({"x" * 64: np.zeros(2, np.float32)}, {}),
    }
    for name, (tensors, values) in cases.items():
        path = tmp_path / f"{name}.gguf"
        ggufkit.save(path, tensors, values)
        assert peer.read(path) is None, name
        assert {finding.breaks for finding in ggufkit.check(path)} == {"llama.cpp"}, name
