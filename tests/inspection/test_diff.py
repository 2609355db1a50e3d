from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ggufkit
from ggufkit import quants
from ggufkit.errors import FormatError, ValueTypeError
from ggufkit.format.types import GGML_TYPES
from ggufkit.inspection import diff
from ggufkit.models.model import Model, Tensors
from ggufkit.models.tensors.in_memory import as_tensor

RANDOM = np.random.default_rng(66)
ARRAY = RANDOM.standard_normal((6, 512)).astype("f4")
METADATA = {"general.architecture": "llama", "a.words": ["x", "y"], "a.number": 5}


def model(tensors, metadata=METADATA):
    listed = [as_tensor(name, value) for name, value in tensors.items()]
    return Model(ggufkit.Metadata(metadata), Tensors(listed))


def only(before, after, **options):
    """The one change between two tensors of the name t."""
    (change,) = ggufkit.diff(model({"t": before}), model({"t": after}), **options).tensors
    return change


def kinds(before, after, **options):
    difference = ggufkit.diff(model(before), model(after), **options)
    return {change.name: change.kind for change in difference.tensors}


# What differs.


def test_a_model_does_not_differ_from_itself():
    same = {"a": ARRAY, "b": (ARRAY, "Q4_K"), "n": np.full(4, np.nan, "f4")}
    difference = ggufkit.diff(model(same), model(same))
    assert not difference
    assert difference == ggufkit.inspection.diff.Difference((), ())


@pytest.mark.parametrize(
    "options", [{"shard_tensors": 1}, {"byte_order": "big"}, {"alignment": 1024}, {"version": 2}]
)
def test_layout_is_not_a_difference(tmp_path, options):
    tensors = {"a": ARRAY, "b": (ARRAY, "Q4_K"), "c": (ARRAY, "Q3_K"), "d": ARRAY.astype("i2")}
    ggufkit.save(tmp_path / "a.gguf", tensors, METADATA)
    with ggufkit.open(tmp_path / "a.gguf") as before:
        first, *_ = ggufkit.write(before, tmp_path / "b.gguf", **options)
        with ggufkit.open(first) as after:
            assert not ggufkit.diff(before, after)


def test_order_is_not_a_difference():
    tensors, keys = {"a": ARRAY, "b": ARRAY[0]}, METADATA
    assert not ggufkit.diff(
        model(tensors), model(dict(reversed(tensors.items())), dict(reversed(keys.items())))
    )


def test_every_kind_of_change_is_listed_by_name():
    before = {"gone": ARRAY, "shape": ARRAY, "type": ARRAY, "data": ARRAY, "same": ARRAY}
    after = {
        "new": ARRAY,
        "data": ARRAY + 1,
        "type": (ARRAY, "F16"),
        "same": ARRAY,
        "shape": ARRAY.reshape(3, 1024),
    }
    assert kinds(before, after) == {
        "gone": "removed",
        "shape": "reshaped",
        "type": "retyped",
        "data": "changed",
        "new": "added",
    }
    assert "data" not in kinds(before, after, data=False)
    assert len(kinds(before, after, data=False)) == 4


def test_before_and_after_match_the_compared_models():
    difference = ggufkit.diff(model({"a": ARRAY}), model({"b": ARRAY}))
    assert [(c.before and c.before.name, c.after and c.after.name) for c in difference.tensors] == [
        ("a", None),
        (None, "b"),
    ]


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ({"k": 1}, {"k": 2}, "k"),
        ({"k": 1}, {"k": np.int32(1)}, "k"),
        ({"k": 1.0}, {"k": np.float64(1)}, "k"),
        ({"k": ["a"]}, {"k": ["b"]}, "k"),
        ({"k": [1]}, {"k": [1, 2]}, "k"),
        ({"k": "a"}, {}, "k"),
        ({}, {"k": True}, "k"),
    ],
)
def test_keys_differ_by_type_and_value(before, after, key):
    (change,) = ggufkit.diff(model({}, before), model({}, after)).keys
    assert change.key == key
    assert (change.before is None, change.after is None) == (not before, not after)
    if before:
        assert change.before == ggufkit.Metadata(before)[key]


def test_layout_keys_are_not_a_difference():
    after = {"general.alignment": np.uint32(64), "split.count": np.uint16(1)}
    after["ggufkit.reserved"] = np.zeros(9, np.uint8)
    assert not ggufkit.diff(model({}, {}), model({}, after))


# By how much.


def expected(before, after):
    """The deviation by its definition, in NumPy."""
    old, new = (np.asarray(array, np.float64).reshape(-1) for array in (before, after))
    error = new - old
    with np.errstate(divide="ignore"):
        return {
            "rmse": np.sqrt(np.mean(error**2)),
            "max_abs": np.abs(error).max(),
            "cosine": old @ new / np.linalg.norm(old) / np.linalg.norm(new),
            "snr_db": 10 * np.log10(old @ old / (error @ error)),
            "unequal": np.count_nonzero(error),
            "not_finite": 0,
        }


@pytest.mark.parametrize("type", [t.name for t in GGML_TYPES.values() if not t.is_opaque])
def test_deviation_of_any_type_is_computed_from_its_elements(type):
    if type.startswith("I") and not type.startswith("IQ"):
        array, other = np.round(ARRAY * 9).astype(f"i{int(type[1:]) // 8}"), np.round(ARRAY * 8)
    else:
        rows = RANDOM.integers(0, 60, (6, 4 * block_bytes(type)), dtype="u1")
        array, other = ggufkit.packed(rows, type), ARRAY
    tensor = as_tensor("t", array)
    other = np.resize(other, tensor.shape).astype("f4")
    change = only(array, other)
    known = expected(tensor.numpy(), other)
    for name, figure in known.items():
        assert getattr(change.deviation, name) == pytest.approx(figure, rel=1e-9), name


def block_bytes(name):
    return next(t.block_bytes for t in GGML_TYPES.values() if t.name == name)


def test_quantized_tensor_is_compared_with_its_decoded_copy():
    change = only(ARRAY, (ARRAY, "Q4_K"))
    decoded = quants.dequantize(quants.quantize(ARRAY, "Q4_K"), "Q4_K")
    assert change.kind == "retyped"
    assert change.deviation.rmse == pytest.approx(expected(ARRAY, decoded)["rmse"])
    assert 20 < change.deviation.snr_db < 40


@pytest.mark.parametrize("threads", [1, 4])
def test_result_does_not_depend_on_tiles_or_threads(monkeypatch, threads):
    whole = only(ARRAY, (ARRAY, "Q4_0")).deviation
    monkeypatch.setattr(diff, "TILE_ELEMENTS", 256)
    monkeypatch.setattr(diff, "TILE_BYTES", 100)
    tiled = only(ARRAY, (ARRAY, "Q4_0"), threads=threads).deviation
    assert tiled.rmse == pytest.approx(whole.rmse, rel=1e-12)
    assert (tiled.max_abs, tiled.unequal) == (whole.max_abs, whole.unequal)
    assert tiled == only(ARRAY, (ARRAY, "Q4_0"), threads=1).deviation


def test_finds_one_changed_element_in_a_long_row(monkeypatch):
    monkeypatch.setattr(diff, "TILE_BYTES", 1024)
    changed = ARRAY.reshape(-1).copy()
    changed[-1] += 1
    deviation = only(ARRAY.reshape(-1), changed).deviation
    assert (deviation.unequal, deviation.max_abs) == (1, pytest.approx(1))


@given(st.lists(st.floats(width=32), min_size=1, max_size=8), st.randoms())
def test_counts_elements_that_are_not_finite_separately(numbers, random):
    before = np.array(numbers, "f4")
    after = before.copy()
    random.shuffle(after)
    tensors = ggufkit.diff(model({"t": before}), model({"t": after})).tensors
    same = (before == after) | (np.isnan(before) & np.isnan(after))
    finite = np.isfinite(before) & np.isfinite(after)
    if tensors:
        deviation = tensors[0].deviation
        assert deviation.unequal == np.count_nonzero(~same)
        assert deviation.not_finite == np.count_nonzero(~same & ~finite)
        assert math.isfinite(deviation.rmse)
        assert deviation.max_abs == np.abs(
            after[finite].astype("f8") - before[finite].astype("f8")
        ).max(initial=0)


@pytest.mark.parametrize(
    ("before", "after", "cosine", "snr_db"),
    [
        ([0, 0], [-0.0, 0], math.nan, math.inf),
        ([0, 0], [1, 0], math.nan, -math.inf),
        ([1, 0], [0, 0], math.nan, 0.0),
        ([1, 2], [2, 4], 1.0, 0.0),
        ([1, 0], [0, 1], 0.0, 10 * math.log10(1 / 2)),
    ],
)
def test_figures_at_their_limits(before, after, cosine, snr_db):
    deviation = only(np.array(before, "f4"), np.array(after, "f4")).deviation
    assert deviation.cosine == pytest.approx(cosine, nan_ok=True)
    assert deviation.snr_db == pytest.approx(snr_db)


def test_lossless_change_of_type_has_no_error():
    deviation = only(np.arange(64, dtype="f4"), np.arange(64, dtype="f2")).deviation
    assert (deviation.rmse, deviation.unequal, deviation.snr_db) == (0, 0, math.inf)


def test_compares_unknown_types_by_their_bytes(tmp_path):
    ggufkit.save(tmp_path / "a.gguf", {"t": np.zeros(8, "f4"), "u": np.zeros(8, "f4")})
    data = (tmp_path / "a.gguf").read_bytes()
    with ggufkit.open(tmp_path / "a.gguf") as opened:
        offset = opened.tensors["t"].offset
    info = data.index(b"\1\0\0\0\0\0\0\0t") + 9 + 4 + 8
    unknown = data[:info] + b"\xe7\3\0\0" + data[info + 4 :]
    changed = unknown[:offset] + b"\1" + unknown[offset + 1 :]
    for name, content in (("b", unknown), ("c", changed)):
        (tmp_path / f"{name}.gguf").write_bytes(content)
    with ggufkit.open(tmp_path / "b.gguf") as b, ggufkit.open(tmp_path / "c.gguf") as c:
        assert not ggufkit.diff(b, b)
        (change,) = ggufkit.diff(b, c).tensors
        assert (change.name, change.kind, change.deviation) == ("t", "changed", None)
        (change,) = ggufkit.diff(ggufkit.open(tmp_path / "a.gguf"), c).tensors
        assert (change.kind, change.deviation) == ("retyped", None)


# Its manners.


def test_progress_ends_at_the_total():
    steps = []
    only(ARRAY, ARRAY + 1, progress=lambda *counts: steps.append(counts))
    assert steps[-1] == (2 * ARRAY.nbytes, 2 * ARRAY.nbytes)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)


def test_refuses_zero_threads():
    with pytest.raises(ValueTypeError, match="threads"):
        ggufkit.diff(model({}), model({}), threads=0)


def test_file_truncated_meanwhile_is_an_error(tmp_path):
    path = tmp_path / "a.gguf"
    ggufkit.save(path, {"t": ARRAY})
    with ggufkit.open(path) as opened:
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(FormatError, match="changed"):
            ggufkit.diff(opened, model({"t": ARRAY}))


def test_real_model_quantized_again_deviates_a_little(smollm2):
    with ggufkit.open(smollm2) as opened:
        part = opened.replace(tensors=[t for n, t in opened.tensors.items() if "blk.0." in n])
        difference = ggufkit.diff(part, ggufkit.quantize(part, "Q8_0", allow_requantize=True))
    assert {change.key for change in difference.keys} == {"general.file_type"}
    assert {change.kind for change in difference.tensors} == {"retyped"}
    for change in difference.tensors:
        assert 40 < change.deviation.snr_db < 50
        assert change.deviation.cosine > 0.9999
