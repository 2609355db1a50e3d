"""What carries its provenance can be proven to derive from its source, and nothing else can."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import FormatError, MissingImportanceError, ValueTypeError
from ggufkit.imatrix import Entry, Imatrix
from ggufkit.models import any_model
from ggufkit.quantization.provenance import SETTINGS, SOURCE, provenance_of
from ggufkit.quantization.quantize import QuantizeOptions
from ggufkit.quantization.recipe_files import read_recipe
from ggufkit.quantization.recipes import KEEP_ALL

RNG = np.random.default_rng(22)
NAMES = [f"blk.{layer}.{kind}.weight" for layer in range(2) for kind in ("attn_v", "ffn_down")]
TENSORS = {name: RNG.standard_normal((8, 256)).astype(np.float32) for name in NAMES}
TENSORS |= {"output.weight": TENSORS[NAMES[0]] + 1, "odd.weight": np.ones((3, 40), np.float32)}
KEYS = {"general.architecture": "llama", "llama.block_count": 2, "general.name": "x"}

SETTINGS_TRIED = {
    "recipe": ("Q4_K_M", {}),
    "number": (15, {}),
    "pure": ("q4_0", {"pure": True}),
    "types": ("Q8_0", {"types": {"output.weight": "F16"}, "keep_order": True}),
    "patterns": ("Q4_0", {"tensor_types": [("attn_v", "Q5_1"), ("ffn", "Q8_0")]}),
    "special": ("Q4_0", {"output_tensor_type": "Q6_K", "token_embedding_type": "q8_0"}),
    "pruned": ("Q8_0", {"layers": [1]}),
    "keys": ("Q8_0", {"override_kv": {"a": np.float32(0.1), "b": ["x", "ü"], "c": np.int8(-3)}}),
    "importance": ("IQ2_XS", {"promote_uncovered": True, "exclude_weights": "ffn"}),
    "search": ("Q4_0", {"search": "better"}),
    "kept": (None, {"types": {NAMES[0]: "Q4_K"}}),
    "smaller": ("Q8_0", {"requantize_smaller": True}),
}  # fmt: skip


@pytest.fixture
def source(tmp_path):
    ggufkit.save(tmp_path / "source.gguf", TENSORS, KEYS)
    return tmp_path / "source.gguf"


@pytest.fixture
def imatrix(tmp_path):
    sums = {name: RNG.random((1, 256)).astype(np.float32) + 0.1 for name in NAMES}
    entries = {name: Entry(total, np.array([7])) for name, total in sums.items()}
    return Imatrix(entries, ("wiki",), 3).save(tmp_path / "data.imatrix")


def written(source, recipe="Q8_0", **options):
    """Return the path of a file with its provenance."""
    options.setdefault("types", {"odd.weight": "F16"} if recipe == KEEP_ALL else {})
    out = source.with_name("out.gguf")
    with ggufkit.quantize_with_provenance(source, recipe, **options) as quantized:
        ggufkit.write(quantized, out)
    return out


@pytest.mark.parametrize("name", SETTINGS_TRIED)
def test_file_with_provenance_is_reproduced_byte_for_byte(source, imatrix, name):
    recipe, options = SETTINGS_TRIED[name]
    if recipe is None:
        options = {**options, "like": source}
    data = imatrix if name == "importance" else None
    out = written(source, recipe, imatrix=data, **options)
    moved = data and data.rename(data.with_name("moved.imatrix"))
    report = ggufkit.reproduce(out, source, imatrix=moved)
    assert report
    assert (report.has_same_layout, report.has_same_source, report.first) == (True, True, None)
    with ggufkit.open(out) as quantized, ggufkit.open(source) as origin:
        plain = ggufkit.quantize(origin, recipe, imatrix=moved, **options)
        assert [t.raw().tobytes() for t in plain.tensors.values()] == [
            t.raw().tobytes() for t in quantized.tensors.values()
        ]


def test_tensors_that_keep_their_bits_are_reproduced(source):
    small = source.with_name("small.gguf")
    with ggufkit.open(source) as model:
        ggufkit.write(ggufkit.quantize(model, "Q5_0", types={"output.weight": "Q8_0"}), small)
    out = written(small, "Q5_1", requantize_smaller=True)
    assert ggufkit.reproduce(out, small)
    with ggufkit.open(out) as model:
        kinds = {name: tensor.type.name for name, tensor in model.tensors.items()}
    assert kinds == dict.fromkeys(NAMES, "Q5_0") | {"output.weight": "Q6_K", "odd.weight": "F16"}


def test_every_option_of_quantize_is_tried_or_recorded_in_another_way():
    tried = {key for _, options in SETTINGS_TRIED.values() for key in options}
    recorded_otherwise = {"imatrix", "hessian", "like"}  # digests, and types
    same_form = {"include_weights", "leave_output_tensor", "keep_split"}
    assert QuantizeOptions.__annotations__.keys() - same_form <= tried | recorded_otherwise


def test_recipe_file_is_recorded_with_its_name_and_patterns(source):
    toml = source.with_name("mine.toml")
    toml.write_text('base = "Q4_0"\n[types]\nffn = "Q8_0"\n')
    out = written(source, read_recipe(toml))
    with ggufkit.open(out) as quantized:
        settings = provenance_of(quantized.metadata).settings
    assert settings["recipe"] == "Q4_0"
    assert settings["recipe_name"] == "mine"
    assert settings["patterns"] == [["ffn", "Q8_0"]]
    assert ggufkit.reproduce(out, source)


def test_recipe_made_in_python_cannot_be_recorded(source):
    own = replace(ggufkit.quantization.recipes.find_recipe("Q4_0"), rules={})
    with pytest.raises(ValueTypeError, match="rules of its own"):
        ggufkit.quantize_with_provenance(source, own)


def test_first_tensor_that_does_not_derive_is_named(source):
    out = written(source)
    changed = {**TENSORS, NAMES[1]: TENSORS[NAMES[1]] + 1, NAMES[3]: TENSORS[NAMES[3]] * 2}
    other = source.with_name("other.gguf")
    ggufkit.save(other, changed, KEYS)
    report = ggufkit.reproduce(out, other)
    assert not report
    assert not report.has_same_source
    assert report.first == NAMES[1]
    assert [tensor.name for tensor in report.tensors] == [NAMES[1], NAMES[3]]


def test_one_changed_byte_of_a_file_is_found_wherever_it_is(source):
    out = written(source)
    whole, broken = out.read_bytes(), out.with_name("broken.gguf")
    with ggufkit.open(out) as quantized:
        tensors = {tensor.offset: name for name, tensor in quantized.tensors.items()}
        ends = {tensor.offset + tensor.nbytes for tensor in quantized.tensors.values()}
    for offset, name in tensors.items():
        broken.write_bytes(whole[:offset] + bytes([whole[offset] ^ 1]) + whole[offset + 1 :])
        assert ggufkit.reproduce(broken, source).first == name
    gap = next(end for end in ends if end < len(whole) and end not in tensors)
    broken.write_bytes(whole[:gap] + b"\1" + whole[gap + 1 :])
    report = ggufkit.reproduce(broken, source)
    assert report
    assert not report.has_same_layout


def test_changed_keys_are_named(source):
    out = written(source)
    with ggufkit.open(out) as quantized:
        ggufkit.write(quantized.edit(set={"general.name": "y"}), out.with_name("edited.gguf"))
    report = ggufkit.reproduce(out.with_name("edited.gguf"), source)
    assert not report
    assert [key.key for key in report.keys] == ["general.name"]
    assert report.first is None


def test_false_digest_of_the_source_is_found(source):
    out = written(source)
    with ggufkit.open(out) as quantized:
        ggufkit.write(quantized.edit(set={SOURCE: "0" * 64}), out.with_name("edited.gguf"))
    report = ggufkit.reproduce(out.with_name("edited.gguf"), source)
    assert (bool(report), report.has_same_source, report.first) == (False, False, None)


def test_shards_of_a_file_have_its_content_in_another_layout(source):
    out = written(source)
    with ggufkit.open(out) as quantized:
        first, *_ = ggufkit.write(quantized, out.with_name("split.gguf"), shard_tensors=2)
    report = ggufkit.reproduce(first, source)
    assert report
    assert not report.has_same_layout


def test_kept_shards_are_reproduced_byte_for_byte(source):
    with ggufkit.open(source) as whole:
        first, *_ = ggufkit.write(whole, source.with_name("split.gguf"), shard_tensors=2)
    quantized = ggufkit.quantize_with_provenance(first, "Q8_0", keep_split=True)
    counts = [2] * 3
    out, *_ = ggufkit.write(quantized, source.with_name("q.gguf"), shard_counts=counts)
    report = ggufkit.reproduce(out, first)
    assert report
    assert report.has_same_layout


def test_importance_data_must_be_that_of_the_file(source, imatrix):
    out = written(source, imatrix=imatrix)
    other = Imatrix.open(imatrix)
    entries = {**other.entries, NAMES[0]: Entry(np.ones((1, 256), np.float32), np.array([7]))}
    with pytest.raises(MissingImportanceError, match="made with importance data"):
        ggufkit.reproduce(out, source)
    with pytest.raises(MissingImportanceError, match="other importance data"):
        ggufkit.reproduce(out, source, imatrix=Imatrix(entries))
    with pytest.raises(ValueTypeError, match="without importance data"):
        ggufkit.reproduce(written(source), source, imatrix=imatrix)


def test_file_without_provenance_is_refused(source):
    with pytest.raises(ValueTypeError, match="--provenance"):
        ggufkit.reproduce(source, source)


def test_source_that_lacks_tensors_is_refused(source):
    out = written(source, types={"output.weight": "F16"})
    other = source.with_name("other.gguf")
    ggufkit.save(other, {"a.weight": np.ones((2, 256), np.float32)}, KEYS)
    with pytest.raises(ValueTypeError, match=r"do not fit this source.*output\.weight"):
        ggufkit.reproduce(out, other)


@pytest.mark.parametrize(
    "settings",
    ["", "{", "[]", "3", '{"recipe": "Q99"}', '{"recipe": []}', "{}",
     '{"recipe": "Q8_0", "future": 1}', '{"recipe": "Q8_0", "tensor_types": 3}',
     '{"recipe": "Q8_0", "override_kv": {"a": 1}}', '{"recipe": "Q8_0", "patterns": [["("]]}',
     '{"recipe": "Q8_0", "layers": "abc"}', '{"recipe": "Q8_0", "types": [1]}',
     '{"recipe": "Q8_0", "layers": [' + "9" * 400 + "]}", '{"recipe": "Q8_0", "search": {}}',
     r'{"recipe": "Q8_0", "tensor_types": [["(a)\\1", "F16"]]}',
     '{"recipe": "Q8_0", "types": {"a": NaN}}',
     '{"recipe": "Q8_0", "patterns": [["(a*)*b", "F16"]]}',
     "[" * 100_000, 3],
)  # fmt: skip
def test_damaged_settings_are_an_error_that_says_so(source, settings):
    out = written(source)
    with ggufkit.open(out) as quantized:
        edited = quantized.replace(
            metadata=quantized.metadata.without(SETTINGS).updated({SETTINGS: settings})
        )
        ggufkit.write(edited, out.with_name("edited.gguf"))
    with pytest.raises(ValueError, match=r"provenance of this file|settings in the file"):
        ggufkit.reproduce(out.with_name("edited.gguf"), source)


@pytest.mark.parametrize("key", ["like", "imatrix", "hessian"])
def test_settings_of_a_file_cannot_name_files(source, key, monkeypatch):
    out = written(source)
    with ggufkit.open(out) as quantized, ggufkit.open(source) as origin:
        settings = json.loads(quantized.metadata[SETTINGS]) | {key: "/elsewhere/secret.gguf"}
        edited = quantized.replace(
            metadata=quantized.metadata.updated({SETTINGS: json.dumps(settings)})
        )
        monkeypatch.setattr(any_model, "open_model", lambda _: pytest.fail("it was opened"))
        with pytest.raises(FormatError, match=f"does not know the setting '{key}': '/elsewhere"):
            ggufkit.reproduce(edited, origin)
