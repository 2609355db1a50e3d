"""The sizes of tensors tell which program's layout a type number means; nothing is guessed."""

from __future__ import annotations

import json
import os
import pickle

import numpy as np
import pytest

import ggufkit
from forging import builder
from forging.builder import Forge, tensor
from ggufkit import quants
from ggufkit.errors import TensorTypeError, ValueTypeError
from ggufkit.format import dialects
from ggufkit.format.types import DIALECTS, PRISM, tensor_type
from ggufkit.models.open import part_of
from ggufkit.models.sources import from_array
from shell import done
from shell import ggufkit as run

ROWS, WIDTH = 16, 512
RANDOM = np.random.default_rng(3)


def packed(kind, rows=ROWS, width=WIDTH):
    """Return random blocks of a type, with scales that are finite and no zeros at their ends."""
    row = tensor_type(kind)
    blocks = RANDOM.integers(1, 256, (rows, width // row.block_size, row.block_bytes), np.uint8)
    place = row.block_bytes - 2 if row == "PTQ1_0" else 0
    scales = RANDOM.uniform(0.5, 2, blocks.shape[:2]).astype("<f2")
    blocks[..., place : place + 2] = scales[..., None].view(np.uint8)
    return blocks.reshape(rows, -1)


def write(path, *kinds, **options):
    tensors = [from_array(kind, packed(kind, **options), kind) for kind in kinds]
    head = from_array("norm", np.ones((1, 8), np.float32), "F32")
    ggufkit.write(ggufkit.model({"a": [1.0]}).replace(tensors=[*tensors, head]), path)
    return path


def expected(kind, data):
    """Decode blocks bit by bit, as PrismML's documentation of the layouts says."""
    row = tensor_type(kind)
    values = []
    for block in data.reshape(-1, row.block_bytes):
        if kind == "PTQ1_0":
            d, digits = block[26:].view("<f2")[0], np.zeros(128)
            for byte, stored in enumerate(block[:26].tolist()):
                count, step, first = (5, 16, byte) if byte < 16 else (5, 8, 64 + byte)
                if byte >= 24:
                    count, step, first = 4, 2, 96 + byte
                for n in range(count):
                    digits[first + n * step] = (stored * 3**n % 256) * 3 // 256 - 1
            values += [float(d) * digit for digit in digits]
            continue
        d, bits = float(block[:2].view("<f2")[0]), 1 if kind == "Q1_0_G32" else 2
        for byte in block[2:].tolist():
            for shift in range(0, 8, bits):
                code = byte >> shift & (1 << bits) - 1
                values.append(d * (2 * code - 1 if bits == 1 else code - 1))
    return np.array(values, np.float32).reshape(len(data), -1)


@pytest.mark.parametrize("kind", ["PQ2_0", "PTQ1_0", "Q2_0_G128", "Q1_0_G32"])
def test_elements_are_those_of_the_layout(kind):
    data = packed(kind)
    assert np.array_equal(quants.dequantize(data, kind), expected(kind, data))
    with pytest.raises(TensorTypeError, match="cannot be encoded"):
        quants.quantize(np.ones((1, 512), np.float32), kind)


@pytest.mark.parametrize("kind", ["PQ2_0", "PTQ1_0", "Q2_0_G128", "Q1_0_G32"])
def test_torch_decodes_the_same(kind):
    torch = pytest.importorskip("torch")
    from ggufkit.frameworks.torch_blocks import decode

    data = packed(kind)
    assert np.array_equal(decode(torch.from_numpy(data), tensor_type(kind)), expected(kind, data))


@pytest.mark.parametrize(
    ("kind", "dialect", "program"),
    [
        ("Q2_0", "llama.cpp", None),
        ("Q1_0", "llama.cpp", None),
        ("NVFP4", "llama.cpp", None),
        ("Q2_0_G128", "prism-v5", "before prism-v7"),
        ("Q1_0_G32", "prism-v5", "before prism-v7"),
        ("PQ2_0", None, PRISM),
        ("PTQ1_0", None, PRISM),
    ],
)
@pytest.mark.parametrize("rows", [3, ROWS])
def test_sizes_tell_the_layout(tmp_path, kind, dialect, program, rows):
    path = write(tmp_path / "m.gguf", kind, rows=rows)
    with ggufkit.open(path) as model:
        assert model[kind].type == kind
        assert np.array_equal(model[kind].numpy(), quants.dequantize(model[kind].raw(), kind))
        again = pickle.loads(pickle.dumps(model))
        assert again[kind].type == kind
    facts = json.loads(done("inspect", path, "--json").out)
    assert facts["summary"]["dialect"] == dialect
    assert (facts["summary"]["program"] or "").endswith(program or "")
    messages = [f.message for f in ggufkit.check(path, data=True) if f.rule == "type-program"]
    assert [program in message for message in messages] == ([True] if program else [])


def test_the_last_tensor_of_a_file_tells_too(tmp_path):
    data = packed("Q2_0_G128")
    model = ggufkit.model({"a": [1.0]}).replace(tensors=[from_array("x", data, "Q2_0_G128")])
    ggufkit.write(model, tmp_path / "m.gguf")
    with ggufkit.open(tmp_path / "m.gguf") as model:
        assert model["x"].type == "Q2_0_G128"
    (tmp_path / "m.gguf").write_bytes((tmp_path / "m.gguf").read_bytes() + b"\1" * 1000)
    with ggufkit.open(tmp_path / "m.gguf") as model:  # what follows may be anything
        assert model["x"].type == "TYPE_42"
    (finding,) = (f for f in ggufkit.check(tmp_path / "m.gguf") if f.rule == "type-dialect")
    assert "fit no layout" in finding.message
    assert "llama.cpp refuses" not in finding.message  # it loads such a file


def test_sizes_of_an_unknown_layout_leave_the_type_opaque(tmp_path):
    size = 512 * 25 // 32  # MXFP6, which forks of llama.cpp had under several numbers
    for number in (40, 41, 42, 142):
        infos = (tensor("x.weight", 512, 2, type=number, size=2 * size), tensor("y", 8))
        path = tmp_path / "m.gguf"
        path.write_bytes(Forge(infos=infos).build())
        with ggufkit.open(path) as model:
            assert model["x.weight"].type == f"TYPE_{number}"
            assert model["x.weight"].nbytes >= 2 * size
            with pytest.raises(TensorTypeError, match="cannot be decoded"):
                model["x.weight"].numpy()
            ggufkit.write(model, tmp_path / "copy.gguf")
        rules = {finding.rule: finding for finding in ggufkit.check(path)}
        assert "fit no layout, so llama.cpp refuses" in rules["type-dialect"].message
        assert "--dialect" in rules["type-dialect"].remedy
        assert not rules.keys() & {"type-unknown", "type-removed"}
        result = run("quantize", path, tmp_path / "q.gguf", "Q8_0", "--allow-requantize")
        assert result.code == 1
        assert f"TYPE_{number}" in result.err


def test_sizes_that_fit_two_layouts_need_a_choice(tmp_path, monkeypatch):
    path = tmp_path / "m.gguf"
    infos = (tensor("x", 256, type=42, size=72), tensor("y", 8))  # 72 and 68 bytes: 96 with padding
    data = bytearray(Forge(infos=infos).build())
    start = len(data) - 128
    data[start : start + 96] = bytes(96)
    with ggufkit.open(data) as model:  # all bytes are zero, which is zero in both layouts
        assert model["x"].type == "Q2_0"
    data[start] = 1
    path.write_bytes(data)
    (finding,) = (f for f in ggufkit.check(path) if f.rule == "type-dialect")
    assert "fit several layouts" in finding.message
    with ggufkit.open(path) as model, pytest.raises(TensorTypeError, match="cannot be decoded"):
        model["x"].numpy()
    for dialect, kind in (("llama.cpp", "Q2_0"), ("prism-v5", "Q2_0_G128")):
        with ggufkit.open(path, dialect=dialect) as model:
            assert model["x"].type == kind
        assert kind in done("inspect", path, "--dialect", dialect).out
        monkeypatch.setenv("GGUFKIT_DIALECT", dialect)
        assert "type-dialect" not in {f.rule for f in ggufkit.check(path)}
        monkeypatch.delenv("GGUFKIT_DIALECT")
    data[start + 71] = 1  # where the smaller layout has padding, which is zero
    with ggufkit.open(data) as model:
        assert model["x"].type == "Q2_0"


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        (tensor("o", 256, 4, type=36, size=600), "TYPE_36"),  # fits any layout
        (tensor("o", 128, 4, type=41, size=72), "Q1_0"),  # the same in all programs
    ],
)
def test_bytes_after_the_last_tensor_do_not_tell_the_layout(first, kind):
    last = tensor("x", 128, 40, type=42, size=40 * 34)  # PrismML's; llama.cpp's takes 80 more
    data = bytearray(Forge(infos=(first, last), pad_end=False, tail=b"\1" * 200).build())
    with ggufkit.open(data) as model:
        assert [model[name].type.name for name in "ox"] == [kind, "TYPE_42"]
    data[-200 - 40 * 34 :] = packed("Q2_0_G128", 40, 128).tobytes() + b"\1" * 200
    with ggufkit.open(data) as model:
        assert model["x"].type == "TYPE_42"
        with pytest.raises(TensorTypeError, match="cannot be decoded"):
            model["x"].numpy()


def test_a_vast_alignment_makes_no_vast_reads(tmp_path, monkeypatch):
    path, step = tmp_path / "m.gguf", 1 << 30
    infos = tuple(
        tensor(n, 128, 1 << 18, type=42, size=0, offset=i * step) for i, n in enumerate("xy")
    )
    alignment = builder.number("general.alignment", builder.U32, step)
    pairs = (builder.string("general.architecture", "llama"), alignment)
    path.write_bytes(Forge(pairs, infos, data=b"", pad_end=False).build())
    os.truncate(path, 3 * step)  # sparse: both layouts fit, and all is zero
    reads = []

    def counted(data, *arguments):
        content = bytes(data, *arguments)
        reads.append(len(content))
        return content

    monkeypatch.setattr(dialects, "bytes", counted, raising=False)
    with ggufkit.open(path) as model:
        assert model["x"].type == "TYPE_42"
    assert 0 < sum(reads) < 1 << 16


def test_an_unknown_dialect_is_refused(tmp_path):
    path = write(tmp_path / "m.gguf", "Q2_0")
    with pytest.raises(ValueTypeError, match="unknown dialect 'x'"):
        ggufkit.open(path, dialect="x")
    assert dialects.chosen() is None
    result = run("inspect", path, "--dialect", "x")
    assert (result.code, "prism-v5" in result.err) == (2, True)


def test_ternary_files_of_bitnet_are_named_and_not_decoded(tmp_path):
    infos = (tensor("x", 256, 4, type=36, size=256 + 32), tensor("y", 8))
    (tmp_path / "m.gguf").write_bytes(Forge(infos=infos).build())
    with ggufkit.open(tmp_path / "m.gguf") as model:
        assert model["x"].type == "I2_S"
        with pytest.raises(TensorTypeError, match="cannot be decoded"):
            model["x"].numpy()
    assert "bitnet.cpp" in done("inspect", tmp_path / "m.gguf").out


def test_all_shards_together_tell_the_layout(tmp_path):
    short = packed("Q2_0_G128", 1, 256)  # with padding, it has as many bytes as Q2_0
    long, head = packed("Q2_0_G128"), np.ones((1, 8), np.float32)
    tensors = [from_array(n, x, "Q2_0_G128") for n, x in (("x", short), ("y", long))]
    tensors += [from_array(f"norm_{n}", head, "F32") for n in "xy"]
    model = ggufkit.model({"a": [1.0]}).replace(tensors=[tensors[i] for i in (0, 2, 1, 3)])
    paths = ggufkit.write(model, tmp_path / "m.gguf", shard_tensors=2)
    with ggufkit.open(paths[0], shards=False) as alone:
        assert alone["x"].type == "TYPE_42"
    for path in paths:
        with ggufkit.open(path) as model:
            assert [model[name].type for name in "xy"] == ["Q2_0_G128", "Q2_0_G128"]
            assert np.array_equal(model["x"].numpy(), expected("Q2_0_G128", short)[0])
    assert "type-dialect" not in {finding.rule for finding in ggufkit.check(paths[0])}


def test_files_that_contradict_each_other_agree_on_no_layout(tmp_path):
    files = []
    for kind in ("Q2_0", "Q2_0_G128"):
        part = part_of(write(tmp_path / f"{kind}.gguf", kind))
        files.append(part.header.places.infos)
        part.file.close()
    assert dialects.of_all_files(files) is None
    assert dialects.of_all_files(2 * files[1:]) == "prism-v5"
    assert dialects.of_all_files(files[1:]) is None  # its own sizes decide


def test_a_file_has_one_layout_for_a_number(tmp_path):
    kinds = ("Q2_0", "Q2_0_G128")
    tensors = [from_array(kind, packed(kind), kind) for kind in kinds]
    model = ggufkit.model({"a": [1.0]}).replace(tensors=tensors)
    with pytest.raises(TensorTypeError, match="type 42 is Q2_0 in another"):
        ggufkit.write(model, tmp_path / "m.gguf")


@pytest.mark.parametrize("kinds", [("Q2_0_G128", "NVFP4"), ("Q1_0_G32", "Q2_0")])
def test_a_file_has_the_types_of_one_program(tmp_path, kinds):
    with pytest.raises(TensorTypeError, match="no program reads tensors of all these types"):
        write(tmp_path / "m.gguf", *kinds)
    assert not list(tmp_path.iterdir())
    write(tmp_path / "m.gguf", "Q2_0_G128", "Q1_0", "PQ2_0", "Q8_0")  # numbers that differ nowhere


def test_a_model_of_another_dialect_becomes_one_of_llama_cpp(tmp_path):
    data = packed("Q2_0_G128")
    tensors = [from_array("x.weight", data, "Q2_0_G128")]
    ggufkit.write(ggufkit.model({"a": [1.0]}).replace(tensors=tensors), tmp_path / "m.gguf")
    paths = (tmp_path / "m.gguf", tmp_path / "q.gguf")
    done("quantize", *paths, "Q8_0", "--allow-requantize", "--pure")
    with ggufkit.open(paths[1]) as model:
        elements = expected("Q2_0_G128", data)
        assert np.array_equal(model["x.weight"].raw(), quants.quantize(elements, "Q8_0"))


def test_each_dialect_names_types_of_shared_numbers():
    rows = [row for rows in DIALECTS.values() for row in rows]
    assert {row.id for row in rows} < dialects.SHARED
    assert all(tensor_type(row.name) is row and row.program for row in rows)
