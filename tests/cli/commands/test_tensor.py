from __future__ import annotations

import numpy as np
import pytest

import ggufkit as api
from shell import done, ggufkit

ARRAY = np.arange(2 * 3 * 64, dtype="f4").reshape(2, 3, 64) - 100


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("tensor") / "m.gguf"
    vector = np.float32([1, np.nan, -2])
    api.save(path, {"plain": ARRAY, "packed": (ARRAY, "Q8_0"), "vector": vector}, {})
    return path


def test_facts_and_the_first_rows_are_shown(path):
    result = done("tensor", path, "plain")
    assert result.lines[:3] == ["name   plain", "shape  2 x 3 x 64", "type   F32"]
    assert result.lines[5].split() == ["ROW", *map(str, range(8)), "..."]
    assert result.lines[6].split() == ["0", *map(str, range(-100, -92)), "..."]
    assert len(result.lines) == 6 + 6


def test_rows_are_counted_through_all_axes(path):
    result = done("tensor", path, "plain", "--rows", "3:5")
    assert [line.split()[:2] for line in result.lines[6:]] == [["3", "92"], ["4", "156"]]


def test_rows_in_json_have_all_their_values(path):
    document = done("tensor", path, "packed", "--rows", "4:", "--json").json()
    with api.open(path) as model:
        expected = model["packed"].numpy()[1, 1:]
    np.testing.assert_array_equal(np.float32(document["values"]), expected)
    assert (document["type"], document["shape"]) == ("Q8_0", [2, 3, 64])


def test_json_names_numbers_that_are_not_finite(path):
    document = done("tensor", path, "vector", "--rows", ":", "--json").json()
    assert document["values"] == [[1.0, "NaN", -2.0]]


def test_json_without_rows_has_no_values(path):
    assert "values" not in done("tensor", path, "plain", "--json").json()


def test_statistics_are_those_of_the_library(path):
    statistics = done("tensor", path, "packed", "--stats", "--json").json()["statistics"]
    with api.open(path) as model:
        assert statistics == api.tensor_statistics(model["packed"]).to_dict()


def test_a_figure_beyond_all_doubles_is_null_in_json(tmp_path):
    path = tmp_path / "m.gguf"
    api.save(path, {"huge": np.float64([1e300, -1])}, {})
    statistics = done("tensor", path, "huge", "--stats", "--json").json()["statistics"]
    assert (statistics["norm"], statistics["max"]) == (None, 1e300)


def test_statistics_in_text_have_histograms_of_values_scales_and_levels(path):
    result = done("tensor", path, "packed", "--stats")
    assert {"min", "max", "norm", "zeros"} <= {line.split(" ")[0] for line in result.lines}
    for title in ("VALUES", "SCALES", "LEVEL"):
        assert [line for line in result.lines if line.split()[:1] == [title]]
    assert max(map(len, result.lines)) <= 120


def test_statistics_of_rows_are_of_these_rows_only(path):
    document = done("tensor", path, "plain", "--stats", "--rows", "0:1", "--json").json()
    assert (document["statistics"]["min"], document["statistics"]["max"]) == (-100, -37)


def test_numbers_that_are_not_finite_are_counted(path):
    assert "not a number        1" in done("tensor", path, "vector", "--stats").lines


def test_a_block_is_shown_field_by_field(path):
    result = done("tensor", path, "packed", "--block", "5,40")
    assert "block  row 5, columns 32 to 63" in result.lines
    with api.open(path) as model:
        block = api.tensor_block(model["packed"], 5, 40)
    assert f"d      {block.fields['d'][0]:.4g}" in result.lines
    assert result.lines[-1].split()[2:5] == [str(level) for level in block.levels[:3]]
    assert done("tensor", path, "packed", "--block", "5,40", "--json").json() == {
        "name": "packed",
        "type": "Q8_0",
        **block.to_dict(),
    }


@pytest.mark.parametrize("ending", ["npy", "csv"])
def test_rows_are_saved(path, tmp_path, ending):
    out = tmp_path / f"a.{ending}"
    assert done("tensor", path, "packed", "--rows", "1:3", "-o", out).lines[0].startswith("wrote ")
    loaded = np.load(out) if ending == "npy" else np.loadtxt(out, "f4", delimiter=",")
    with api.open(path) as model:
        np.testing.assert_array_equal(loaded, model["packed"].numpy().reshape(6, 64)[1:3])


def test_a_whole_tensor_keeps_its_shape(path, tmp_path):
    done("tensor", path, "plain", "-o", tmp_path / "a.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), ARRAY)


def test_no_clobber_keeps_an_existing_file(path, tmp_path):
    (tmp_path / "a.npy").write_text("mine")
    assert ggufkit("tensor", path, "plain", "-o", tmp_path / "a.npy", "--no-clobber").code == 1
    assert (tmp_path / "a.npy").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plain", "--rows", "3"), "'3' is not a range of rows; write it as 10:20"),
        (("plain", "--rows", "5:99"), "'5:99' is not a range of the 6 rows of plain"),
        (("plain", "--rows", "3:3"), "'3:3' is not a range of the 6 rows of plain"),
        (("packed", "--block", "x"), "'x' is not a place; write it as ROW,COLUMN"),
        (("packed", "--block", "6"), "tensor 'packed' has 6 rows of 64, no element 6, 0"),
        (("packed", "--block", "0", "--stats"), "use it without --rows, --stats and -o"),
    ],
)
def test_wrong_usage_says_what_to_write(path, arguments, message):
    result = ggufkit("tensor", path, *arguments)
    assert (result.code, result.out) == (2, "")
    assert message in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plane",), "the model has no tensor 'plane'\n  Did you mean 'plain'?"),
        (("plain", "--block", "0,0"), "tensor 'plain' is of type F32, which has no blocks"),
        (("plain", "-o", "x.txt"), "x.txt does not end in .npy or .csv"),
    ],
)
def test_what_a_tensor_lacks_is_an_error(path, arguments, message):
    result = ggufkit("tensor", path, *arguments)
    assert (result.code, result.out) == (1, "")
    assert message in result.err
