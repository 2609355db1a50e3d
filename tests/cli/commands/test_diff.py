from __future__ import annotations

import numpy as np
import pytest

import ggufkit as api
from plain_checkpoint import ARCH, CONFIG, whole
from shell import done, ggufkit
from tensors_file import write_checkpoint

ARRAY = np.random.default_rng(7).standard_normal((4, 256)).astype("f4")
TENSORS = {"x.weight": ARRAY, "y.weight": ARRAY, "z": np.zeros(3, "f4")}
TEMPLATE = "{% for message in messages %}\n{{ message.content }}\n{% endfor %}" * 3
KEYS = {
    "general.quantization_version": np.uint32(2),
    "general.architecture": "llama",
    "a.words": [str(i) for i in range(100)],
    "a.number": 5,
    "a.template": TEMPLATE,
}


@pytest.fixture
def saved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    api.save("a.gguf", TENSORS, KEYS)

    def save(tensors=None, keys=None):
        api.save("b.gguf", TENSORS | (tensors or {}), KEYS | (keys or {}))

    save()
    return save


def different(*arguments):
    result = ggufkit("diff", *arguments)
    assert result.code == 1, result.err
    return result


def test_same_models_with_different_shards_do_not_differ(saved):
    assert done("diff", "a.gguf", "b.gguf").out == "no difference\n"
    done("copy", "b.gguf", "parts.gguf", "--shard-tensors", 1, "--endian", "big")
    assert done("diff", "a.gguf", "parts-00002-of-00003.gguf").out == "no difference\n"


def test_different_tensors_are_listed_with_figures(saved):
    saved({"x.weight": (ARRAY, "Q4_0"), "y.weight": ARRAY.reshape(2, 512), "new": ARRAY})
    lines = different("a.gguf", "b.gguf").lines
    figures = {line.split()[1]: line for line in lines[1:-2]}
    assert lines[0].split() == ["TENSOR", "SHAPE", "TYPE", "RMSE", "LARGEST", "COSINE", "SNR", "dB"]
    assert "F32 -> Q4_0" in figures["x.weight"]
    rmse, largest, cosine, snr = map(float, figures["x.weight"].split()[-4:])
    assert rmse < largest < 1
    assert 0.99 < cosine < 1
    assert 15 < snr < 30
    assert "4 x 256 -> 2 x 512" in figures["y.weight"]
    assert figures["new"].startswith("+")
    assert lines[-1] == "4 tensors: 1 retyped, 1 reshaped, 1 added; 5 keys: all the same"


def test_reads_data_only_where_needed(saved):
    saved({"x.weight": ARRAY + 1})
    assert done("diff", "a.gguf", "b.gguf", "--no-data").out == "no difference\n"
    assert "x.weight" in different("a.gguf", "b.gguf").out


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (6, "~ a.number (uint32): 5 -> 6"),
        (-6, "~ a.number: uint32 5 -> int32 -6"),
        ([1], "~ a.number: uint32 5 -> array[uint32] 1 item"),
    ],
)
def test_different_keys_are_listed_with_type_and_value(saved, value, line):
    saved(keys={"a.number": value})
    lines = different("a.gguf", "b.gguf").lines
    assert lines == [line, "", "3 tensors: all the same; 5 keys: 1 differs"]


def test_keys_of_only_one_model_are_listed(saved):
    saved(keys={"b.flag": True})
    assert "+ b.flag (bool): True" in different("a.gguf", "b.gguf").lines
    assert "- b.flag (bool): True" in different("b.gguf", "a.gguf").lines


def test_long_values_are_shown_from_the_first_difference(saved):
    words = [*KEYS["a.words"][:50], "new", *KEYS["a.words"][51:]]
    saved(keys={"a.template": TEMPLATE[:100] + "!", "a.words": words})
    lines = different("a.gguf", "b.gguf").lines
    assert (
        lines[0] == "~ a.words (array[string]): 100 items, 1 differs, the first: [50] '50' -> 'new'"
    )
    assert lines[1].startswith("~ a.template (string): from character 100 on ")
    assert lines[1].endswith(' -> "!"')


def test_longer_array_is_listed_with_its_length(saved):
    saved(keys={"a.words": [*KEYS["a.words"], "more"]})
    line = different("a.gguf", "b.gguf").lines[0]
    assert line.endswith("100 -> 101 items, the first 100 the same")


def test_notes_elements_that_are_not_finite(saved):
    saved({"z": np.array([np.nan, 0, 1], "f4")})
    result = different("a.gguf", "b.gguf")
    assert "z: 1 element with NaN" in result.err


def test_json_holds_everything(saved):
    saved({"x.weight": (ARRAY, "Q8_0"), "z": np.ones(3, "f4")}, {"a.words": ["x"] * 100})
    document = different("a.gguf", "b.gguf", "--json").json()
    (key,) = document["keys"]
    assert key["before"] == key["after"] == {"type": "array[string]", "length": 100}
    assert key["differing"] == len(key["items"]) == 100
    assert key["items"][7] == {"index": 7, "before": "7", "after": "x"}
    first, second = document["tensors"]
    assert (first["name"], first["kind"]) == ("x.weight", "retyped")
    assert first["before"] == {"type": "F32", "shape": [4, 256]}
    assert first["deviation"]["rmse"] > 0
    assert second["deviation"]["snr_db"] is None
    assert second["deviation"]["unequal"] == 3


def test_json_without_differences(saved):
    assert done("diff", "a.gguf", "b.gguf", "--json").json() == {
        "keys": [],
        "tensors": [],
        "total": None,
    }


@pytest.mark.parametrize("names", [("a.gguf", "none.gguf"), ("none.gguf", "a.gguf")])
def test_errors_exit_with_2(saved, names):
    result = ggufkit("diff", *names)
    assert result.code == 2
    assert result.err.splitlines()[0] == "error: none.gguf: No such file or directory"
    assert "Check the path" in result.err


def test_checkpoints_are_compared_by_their_own_names(saved, tmp_path):
    name = "model.embed_tokens.weight"
    write_checkpoint(
        tmp_path / "c", {"hidden_size": 256}, model={name: ARRAY, "lm_head.weight": ARRAY}
    )
    write_checkpoint(tmp_path / "d", {"hidden_size": 512}, model={name: ARRAY + 1})
    assert done("diff", "c", "c").out == "no difference\n"
    lines = different("c", "d").lines
    assert lines[0] == '~ config.hidden_size (string): "256" -> "512"'
    assert {tuple(line.split()[:2]) for line in lines[3:5]} == {
        ("~", name),
        ("-", "lm_head.weight"),
    }


def test_checkpoint_is_compared_with_its_converted_model(saved, tmp_path):
    (tmp_path / "arch").mkdir()
    (tmp_path / "arch" / "plain.toml").write_text(ARCH)
    arch = ("--arch-path", "arch")
    write_checkpoint(tmp_path / "Tiny-Plain", CONFIG, model=whole())
    done("convert", "Tiny-Plain", "whole.gguf", *arch)
    assert done("diff", "Tiny-Plain", "whole.gguf", *arch).out == "no difference\n"
    done("convert", "Tiny-Plain", "small.gguf", "--outtype", "bf16", *arch)
    lines = different("Tiny-Plain", "small.gguf", *arch).lines
    assert any("F16 -> BF16" in line for line in lines)
    assert ggufkit("diff", "Tiny-Plain", "whole.gguf").code == 2


def test_checkpoint_of_floats_shows_what_an_f16_file_lost(saved, tmp_path):
    (tmp_path / "arch").mkdir()
    (tmp_path / "arch" / "plain.toml").write_text(ARCH)
    arch = ("--arch-path", "arch")
    write_checkpoint(tmp_path / "Tiny-Plain", CONFIG, model=whole(np.float32))
    done("convert", "Tiny-Plain", "half.gguf", *arch)
    assert any("F32 -> F16" in line for line in different("Tiny-Plain", "half.gguf", *arch).lines)
    done("convert", "Tiny-Plain", "whole.gguf", "--outtype", "f32", *arch)
    assert done("diff", "Tiny-Plain", "whole.gguf", *arch).out == "no difference\n"


def test_file_that_is_not_a_model_exits_with_2(saved, tmp_path):
    (tmp_path / "c.gguf").write_text("<html>")
    assert ggufkit("diff", "a.gguf", "c.gguf").code == 2


def test_keys_of_the_layout_are_not_counted(saved):
    saved(keys={"general.name": "other"})
    before = different("a.gguf", "b.gguf").lines[-1]
    done("edit", "b.gguf", "--reserve", "5000")
    assert different("a.gguf", "b.gguf").lines[-1] == before


# Sorted, cut, and of several models.

NOISY = ARRAY + np.float32(0.3)


@pytest.fixture
def quants(saved):
    """A, B with little and C with more damage, and in another order."""
    saved({"x.weight": (ARRAY, "Q8_0"), "y.weight": (NOISY, "Q4_0")})
    api.save("c.gguf", TENSORS | {"x.weight": (NOISY, "Q4_0")}, KEYS | {"a.number": 6})


def names(lines):
    return [line.split()[1] for line in lines if line.startswith("~  ")]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("rmse", ["y.weight", "x.weight"]),
        ("largest", ["y.weight", "x.weight"]),
        ("cosine", ["y.weight", "x.weight"]),
        ("snr", ["y.weight", "x.weight"]),
        ("size", ["x.weight", "y.weight"]),
        ("name", ["x.weight", "y.weight"]),
    ],
)
def test_tensors_are_sorted_with_the_worst_first(quants, order, expected):
    assert names(different("a.gguf", "b.gguf", "--sort", order).lines) == expected
    rows = different("a.gguf", "b.gguf", "--sort", order, "--json").json()["tensors"]
    assert [row["name"] for row in rows] == expected


def test_only_the_first_tensors_are_shown(quants):
    result = different("a.gguf", "b.gguf", "--sort", "snr", "--top", 1)
    assert names(result.lines) == ["y.weight"]
    assert "... and 1 tensor more" in result.lines
    assert result.lines[-1].startswith("3 tensors: 2 retyped")


def test_one_row_sums_up_all_tensors(quants):
    line = next(line for line in different("a.gguf", "b.gguf").lines if "all of these" in line)
    with api.open("a.gguf") as before, api.open("b.gguf") as after:
        both = [
            np.concatenate([model[name].numpy().reshape(-1) for name in ("x.weight", "y.weight")])
            for model in (before, after)
        ]
        total = api.diff(before, after).total
    error = both[1].astype("f8") - both[0]
    assert total.rmse == pytest.approx(np.sqrt(np.mean(error**2)))
    assert line.split()[-4] == f"{total.rmse:.3g}"


def test_several_models_are_shown_side_by_side(quants):
    lines = different("a.gguf", "b.gguf", "c.gguf").lines
    assert lines[:3] == ["A  a.gguf", "B  b.gguf", "C  c.gguf"]
    assert "C ~ a.number (uint32): 5 -> 6" in lines
    rows = {line.split()[0]: line.split()[1:] for line in lines if ".weight" in line}
    assert [rows["x.weight"][0], rows["x.weight"][1], rows["x.weight"][4]] == [
        "F32",
        "Q8_0",
        "Q4_0",
    ]
    assert rows["y.weight"][-1] == "F32"  # equal in C
    assert lines[-2].startswith("B  3 tensors: 2 retyped")
    assert lines[-1].startswith("C  3 tensors: 1 retyped")


def test_each_of_several_models_is_compared_with_the_first(quants):
    document = different("a.gguf", "b.gguf", "c.gguf", "--json").json()
    assert document["before"] == "a.gguf"
    for model in document["models"]:
        alone = different("a.gguf", model.pop("path"), "--json").json()
        assert model == alone


def test_several_equal_models_do_not_differ(saved):
    result = done("diff", "a.gguf", "b.gguf", "b.gguf")
    assert result.lines[-1] == "C  no difference"


def test_a_missing_third_model_is_an_error(saved):
    assert ggufkit("diff", "a.gguf", "b.gguf", "nosuch.gguf").code == 2
