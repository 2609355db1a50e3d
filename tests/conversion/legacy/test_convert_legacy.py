"""Files from before GGUF are converted without changing any element."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import ggufkit
import legacy_files
import llama_memory
from ggufkit.errors import FormatError, GGUFError, LimitError, NotGGUFError, ValueTypeError

OLD = [("GGML", 0), ("GGMF", 1), ("GGJT", 1)]
CASES = [
    *[(kind, version, name) for kind, version in legacy_files.KINDS for name in ("F32", "F16")],
    *[(*kind, name) for kind in OLD for name in ("Q4_0", "Q4_1", "Q4_2", "Q4_3")],
    *[(*kind, name) for kind in OLD for name in ("Q5_0", "Q5_1", "Q8_0")],
    *[("GGJT", v, n) for v in (2, 3) for n in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")],
]
NAMES = {
    "tok_embeddings.weight": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "output.weight": "output.weight",
    "layers.1.attention.wk.weight": "blk.1.attn_k.weight",
    "layers.0.attention.wo.weight": "blk.0.attn_output.weight",
    "layers.0.feed_forward.w1.weight": "blk.0.ffn_gate.weight",
    "layers.0.feed_forward.w2.weight": "blk.0.ffn_down.weight",
    "layers.1.feed_forward.w3.weight": "blk.1.ffn_up.weight",
    "layers.1.ffn_norm.weight": "blk.1.ffn_norm.weight",
}


@pytest.mark.parametrize(("kind", "version", "type"), CASES)
def test_every_element_keeps_its_value(kind, version, type, tmp_path):
    elements = legacy_files.write(tmp_path / "old.bin", kind, version, type)
    with ggufkit.convert_legacy(tmp_path / "old.bin") as model:
        ggufkit.write(model, tmp_path / "new.gguf")
    with ggufkit.open(tmp_path / "new.gguf") as model:
        assert len(model.tensors) == len(elements)
        for old, new in NAMES.items():
            values = model.tensors[new].numpy().astype(np.float32)
            np.testing.assert_array_equal(values, elements[old], err_msg=new)


@pytest.mark.parametrize(
    ("version", "type", "expected"),
    [
        (1, "Q4_0", "F32"),
        (1, "Q5_1", "Q5_1"),
        (1, "Q8_0", "F32"),
        (2, "Q4_1", "F32"),
        (2, "Q5_0", "Q5_0"),
        (3, "Q4_0", "Q4_0"),
        (3, "Q8_0", "Q8_0"),
    ],
)
def test_blocks_are_unchanged_where_a_current_type_holds_them(version, type, expected, tmp_path):
    legacy_files.write(tmp_path / "old.bin", "GGJT", version, type)
    with ggufkit.convert_legacy(tmp_path / "old.bin") as model:
        assert model.tensors["output.weight"].type.name == expected


@pytest.mark.real
@pytest.mark.parametrize(
    ("kind", "version", "type"),
    [
        ("GGML", 0, "F16"),
        ("GGMF", 1, "Q4_1"),
        ("GGJT", 1, "Q5_0"),
        ("GGJT", 2, "Q5_1"),
        ("GGJT", 3, "Q4_0"),
    ],
)
def test_llama_cpp_loads_the_result(kind, version, type, tmp_path):
    legacy_files.write(tmp_path / "old.bin", kind, version, type, keys=2)
    with ggufkit.convert_legacy(tmp_path / "old.bin", context_length=512) as model:
        ggufkit.write(model, tmp_path / "new.gguf")
        assert model.metadata["llama.attention.head_count_kv"] == 2
    memory = llama_memory.report(tmp_path / "new.gguf", n_ctx=256)
    assert memory["caches"]
    assert [
        finding for finding in ggufkit.check(tmp_path / "new.gguf") if finding.severity == "error"
    ] == []


def test_vocabulary_is_spelled_as_in_sentencepiece(tmp_path):
    legacy_files.write(tmp_path / "old.bin", "GGJT", 3)
    with ggufkit.convert_legacy(tmp_path / "old.bin") as model:
        tokens = list(model.metadata["tokenizer.ggml.tokens"])
        types = model.metadata["tokenizer.ggml.token_type"].tolist()
        scores = model.metadata["tokenizer.ggml.scores"].tolist()
    assert tokens[:4] == ["<unk>", "<s>", "</s>", "<0x00>"]
    assert tokens[258:263] == ["<0xFF>", "\u2581a", "ä", "b\u2581c", ""]
    assert types[:4] == [2, 3, 3, 6]
    assert types[258:263] == [6, 1, 1, 1, 3]
    assert scores[259:262] == [0, -1, -2]


def test_takes_the_vocabulary_of_another_file(tmp_path):
    legacy_files.write(tmp_path / "old.bin", "GGML", 0)
    legacy_files.write(tmp_path / "scored.bin", "GGJT", 3)
    with (
        ggufkit.convert_legacy(tmp_path / "scored.bin") as donor,
        ggufkit.convert_legacy(tmp_path / "old.bin", vocab_from=donor) as model,
    ):
        assert model.metadata["tokenizer.ggml.scores"][261] == -2
        assert model.metadata["general.description"] == "converted from GGML (unversioned)"


def test_refuses_a_vocabulary_of_another_size(tmp_path, smollm2):
    legacy_files.write(tmp_path / "old.bin", "GGML", 0)
    with (
        ggufkit.open(smollm2) as donor,
        pytest.raises(ValueTypeError, match="49152 tokens, but the model has 300"),
    ):
        ggufkit.convert_legacy(tmp_path / "old.bin", vocab_from=donor)


# Damaged and hostile files.


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """The bytes of a sound file."""
    path = tmp_path_factory.mktemp("sound") / "old.bin"
    legacy_files.write(path, "GGJT", 3)
    return path.read_bytes()


@pytest.mark.parametrize(
    "sizes",
    [
        {"tokens": 0},
        {"tokens": 2**32 - 1},
        {"layers": 2**31},
        {"layers": 0},
        {"heads": 0},
        {"heads": 7},
        {"rotated": 2**32 - 1},
    ],
)
def test_false_sizes_are_an_error(sizes, sound, tmp_path):
    forged = legacy_files.head("GGJT", 3, **sizes)
    (tmp_path / "x").write_bytes(forged + sound[len(forged) :])
    with pytest.raises(FormatError, match="at byte"):
        ggufkit.convert_legacy(tmp_path / "x")


def test_error_names_the_kind_of_another_file(tmp_path, smollm2):
    (tmp_path / "x").write_bytes(b"GGLA" * 10)
    with pytest.raises(NotGGUFError, match="not the start of a GGML"):
        ggufkit.convert_legacy(tmp_path / "x")
    with pytest.raises(NotGGUFError, match="needs no conversion"):
        ggufkit.convert_legacy(smollm2)


def test_unknown_version_is_an_error(sound, tmp_path):
    (tmp_path / "x").write_bytes(sound[:4] + struct.pack("<I", 9) + sound[8:])
    with pytest.raises(FormatError, match="version 9 never existed for GGJT"):
        ggufkit.convert_legacy(tmp_path / "x")


@pytest.mark.parametrize(
    ("kind", "version", "type", "count"),
    [
        ("GGML", 0, "F16", 2),
        ("GGML", 0, "Q4_0", 2),
        ("GGMF", 1, "F32", 4),
        ("GGMF", 1, "Q4_1", 2),
        ("GGJT", 1, "Q5_0", 2),
        ("GGMF", 1, "F16", 1),
    ],
)
def test_parts_become_one_model(kind, version, type, count, tmp_path):
    first = tmp_path / "ggml-model.bin"
    elements = legacy_files.write_parts(first, kind, version, type, count)
    with ggufkit.convert_legacy(first) as model:
        ggufkit.write(model, tmp_path / "new.gguf")
    with ggufkit.open(tmp_path / "new.gguf") as model:
        assert len(model.tensors) == len(elements)
        for old, new in NAMES.items():
            tensor = model.tensors[new]
            np.testing.assert_array_equal(tensor.numpy().astype(np.float32), elements[old], new)
        for start, stop in [(0, 1), (63, 65), (127, 128)]:  # within a part, and across two
            part = model.tensors["blk.0.ffn_gate.weight"][start:stop].numpy()
            expected = elements["layers.0.feed_forward.w1.weight"][start:stop]
            np.testing.assert_array_equal(part.astype(np.float32), expected)


def test_any_part_finds_the_others(tmp_path):
    first = tmp_path / "ggml-model.bin"
    legacy_files.write_parts(first, "GGMF", 1, "F16", 2)
    outputs = []
    for name in ("ggml-model.bin", "ggml-model.bin.1"):
        with ggufkit.convert_legacy(tmp_path / name) as model:
            ggufkit.write(model, tmp_path / "new.gguf")
        outputs.append((tmp_path / "new.gguf").read_bytes())
    assert outputs[0] == outputs[1]


def test_names_a_missing_part(tmp_path):
    legacy_files.write_parts(tmp_path / "x.bin", "GGML", 0, "F16", 4)
    (tmp_path / "x.bin.2").unlink()
    with pytest.raises(FormatError, match=r"has 4 parts, and these are missing: x\.bin\.2"):
        ggufkit.convert_legacy(tmp_path / "x.bin")


def test_refuses_a_part_of_another_model(tmp_path):
    legacy_files.write_parts(tmp_path / "a.bin", "GGML", 0, "F16", 2)
    legacy_files.write_parts(tmp_path / "b.bin", "GGML", 0, "F32", 2)
    (tmp_path / "b.bin.1").rename(tmp_path / "a.bin.1")
    with pytest.raises(FormatError, match=r"the tensor .* differs from that in the first part"):
        ggufkit.convert_legacy(tmp_path / "a.bin")
    legacy_files.write_parts(tmp_path / "c.bin", "GGMF", 1, "F16", 2)
    (tmp_path / "c.bin.1").rename(tmp_path / "a.bin.1")
    with pytest.raises(FormatError, match=r"a\.bin\.1: its sizes differ from a\.bin"):
        ggufkit.convert_legacy(tmp_path / "a.bin")


def test_number_of_parts_is_limited(tmp_path):
    legacy_files.write_parts(tmp_path / "x.bin", "GGML", 0, "F32", 16)
    with pytest.raises(LimitError, match="16 parts, more than the limit of 8"):
        ggufkit.convert_legacy(tmp_path / "x.bin")


@pytest.mark.real
def test_llama_cpp_loads_a_model_from_parts(tmp_path):
    legacy_files.write_parts(tmp_path / "x.bin", "GGML", 0, "F16", 2)
    with ggufkit.convert_legacy(tmp_path / "x.bin", context_length=512) as model:
        ggufkit.write(model, tmp_path / "new.gguf")
    assert llama_memory.report(tmp_path / "new.gguf", n_ctx=256)["caches"]


@pytest.mark.parametrize("type", ["Q4_0", "Q4_1"])
def test_first_files_store_the_scales_of_a_row_first(type, tmp_path, monkeypatch):
    usual = legacy_files.rows

    def early(kind, version, shape, draw):
        data, values = usual(kind, version, shape, draw)
        if kind == type:
            data = legacy_files.scales_first(data, shape[-1], has_minimum=type == "Q4_1")
        return data, values

    monkeypatch.setattr(legacy_files, "rows", early)
    elements = legacy_files.write(tmp_path / "old.bin", "GGML", 0, type)
    with ggufkit.convert_legacy(tmp_path / "old.bin") as model:
        for old, new in NAMES.items():
            np.testing.assert_array_equal(model.tensors[new].numpy(), elements[old], new)


def test_impossible_scales_are_an_error(tmp_path, monkeypatch):
    usual = legacy_files.rows

    def noise(kind, version, shape, draw):
        data, values = usual(kind, version, shape, draw)
        return (b"\x7f" * len(data) if kind == "Q4_0" else data), values

    monkeypatch.setattr(legacy_files, "rows", noise)
    legacy_files.write(tmp_path / "old.bin", "GGML", 0, "Q4_0")
    with pytest.raises(FormatError, match=r"scales of tensor 'tok_embeddings\.weight'"):
        ggufkit.convert_legacy(tmp_path / "old.bin")


def test_file_cut_at_any_byte_is_an_error(sound, tmp_path):
    draw = np.random.default_rng(5)
    places = [*range(40), *draw.integers(40, len(sound), 150).tolist()]
    for place in places:
        (tmp_path / "x").write_bytes(sound[:place])
        with pytest.raises(GGUFError):
            ggufkit.convert_legacy(tmp_path / "x")


def test_flipped_bytes_give_an_error_or_a_model(sound, tmp_path):
    """Flipped bytes include the header, every name and every shape."""
    draw = np.random.default_rng(6)
    starts = [sound.index(name.encode()) for name in legacy_files.shapes()]
    outcomes = set()
    for _ in range(300):
        forged = bytearray(sound)
        start = int(draw.choice([0, *starts]))
        place = int(draw.integers(max(start - 24, 0), start + 48))
        forged[place] = int(draw.integers(256))
        (tmp_path / "x").write_bytes(forged)
        try:
            with ggufkit.convert_legacy(tmp_path / "x") as model:
                outcomes.add(len(model.tensors))
        except GGUFError:
            outcomes.add(0)
    assert outcomes == {0, len(starts)}


@pytest.mark.parametrize(
    ("version", "type", "stated", "expected"),
    [
        (3, "F16", 1, 1),
        (3, "Q4_0", 2 + 2000, 2),
        (3, "Q8_0", 7, 7),
        (3, "Q8_0", 2, 7 | 1024),  # the header is wrong
        (1, "Q4_0", 2, 1024),  # decoded to F32, so that it holds no longer
    ],
)
def test_file_type_matches_the_header(version, type, stated, expected, tmp_path):
    path = tmp_path / "old.bin"
    legacy_files.write(path, "GGJT", version, type)
    data = bytearray(path.read_bytes())
    data[32:36] = stated.to_bytes(4, "little")  # behind magic, version and six sizes
    path.write_bytes(data)
    with ggufkit.convert_legacy(path) as model:
        assert model.metadata["general.file_type"] == expected
