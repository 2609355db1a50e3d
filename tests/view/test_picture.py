"""Tiles show stored values, and decode only their blocks."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit
from forging.builder import Forge, tensor
from ggufkit.errors import FormatError, TensorTypeError
from ggufkit.format.types import GGML_TYPES
from ggufkit.models.tensors.in_memory import as_tensor
from ggufkit.view import picture
from ggufkit.view.picture import (
    TILE,
    TilePlace,
    difference_tile,
    picture_facts,
    places,
    sample_statistics,
    values_at,
)
from ranged_server import Served

VALUES = np.random.default_rng(1).standard_normal((700, 1536)).astype(np.float32)


def matrix(tensor):
    return tensor.numpy().reshape(-1, tensor.shape[-1] if tensor.shape else 1).astype(np.float32)


def tile(tensor, place):
    """Return the values of a tile, which are in the rows and columns that it names."""
    image = picture.tile(tensor, place)
    if image.values.size:
        expected = matrix(tensor)[np.ix_(image.rows, image.columns)]
        assert np.array_equal(image.values, expected, equal_nan=True)
    return image.values


def shown_by(tensor, place):
    values = matrix(tensor)
    rows = places(values.shape[0], place.level, place.row)
    columns = places(values.shape[1], place.level, place.column)
    return values[np.ix_(rows, columns)]


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_K", "Q6_K", "IQ4_XS"])
@pytest.mark.parametrize("place", [TilePlace(0, 0, 0), TilePlace(0, 1, 2), TilePlace(1, 0, 1)])
def test_a_tile_shows_the_values_that_numpy_gives(model_page, kind, place):
    tensor = model_page({"a": (VALUES, kind)}).model["a"]
    assert np.array_equal(tile(tensor, place), shown_by(tensor, place))


def test_a_forged_offset_beyond_all_files_is_said_so():
    infos = (
        tensor("unclear", 256, 2, type=143, offset=0, size=0),  # reaches to the other
        tensor("far", 256, 2, offset=1 << 63, size=0),
    )
    with ggufkit.open(Forge(infos=infos, data=b"").build(), partial=True) as model:
        for show in (sample_statistics, lambda far: picture.tile(far, TilePlace(0, 0, 0))):
            with pytest.raises(FormatError, match="the file ends at byte"):
                show(model["far"])


def test_tiles_of_every_real_tensor_show_its_values(gemma3_page):
    for name in ("blk.0.ffn_up.weight", "blk.0.attn_q.weight", "output_norm.weight"):
        tensor = gemma3_page.model[name]
        for level in range(picture_facts(tensor)["levels"]):
            place = TilePlace(level, 0, 0)
            assert np.array_equal(tile(tensor, place), shown_by(tensor, place)), (name, level)


def test_the_last_level_shows_the_whole_matrix_in_one_tile(model_page):
    for shape in ((1, 1), (1, 5000), (5000, 1), (513, 512), (512, 512), (1025, 700)):
        tensor = as_tensor("a", np.zeros(shape, np.float32))
        facts = picture_facts(tensor)
        image = tile(tensor, TilePlace(facts["levels"] - 1, 0, 0))
        assert max(image.shape) <= TILE
        assert tile(tensor, TilePlace(facts["levels"] - 1, 1, 0)).size == 0
        assert facts["levels"] == 1 + max(facts["row_level"], facts["column_level"])


def test_a_narrow_matrix_keeps_all_its_columns():
    tensor = as_tensor("a", np.zeros((100_000, 64), np.float32))
    assert tile(tensor, TilePlace(99, 0, 0)).shape[1] == 64


def test_a_tile_outside_the_matrix_is_empty():
    tensor = as_tensor("a", VALUES)
    assert tile(tensor, TilePlace(0, 9, 0)).size == 0
    assert tile(tensor, TilePlace(0, 10**12, 10**12)).size == 0


def test_rows_so_wide_that_pixels_share_blocks_show_stored_values(model_page):
    wide = np.arange(1 << 18, dtype=np.float32)[np.newaxis].repeat(2, 0)
    tensor = model_page({"a": (wide, "Q8_0")}).model["a"]
    image = tile(tensor, TilePlace(9, 0, 0))
    assert image.shape == (2, 512)
    assert np.isin(image, tensor.numpy()).all()
    assert np.all(np.diff(image[0]) >= 0)


def test_a_big_endian_tensor_shows_the_same_values(tmp_path):
    model = ggufkit.model({"a": (VALUES[:64, :512], "Q4_K")})
    model.write(tmp_path / "big.gguf", byte_order="big")
    model.write(tmp_path / "little.gguf")
    big, little = (ggufkit.open(tmp_path / f"{name}.gguf")["a"] for name in ("big", "little"))
    assert np.array_equal(tile(big, TilePlace(0, 0, 0)), tile(little, TilePlace(0, 0, 0)))


def test_a_tensor_that_is_computed_shows_its_values():
    tensor = as_tensor("a", (VALUES, "Q8_0"))
    image = tile(tensor, TilePlace(0, 0, 0))
    assert np.isin(image, matrix(tensor)).all()
    assert np.array_equal(values_at(tensor, np.arange(3), np.arange(40)), matrix(tensor)[:3, :40])


def test_a_remote_tensor_is_read_by_few_requests(tmp_path):
    path = tmp_path / "a.gguf"
    ggufkit.model({"a": (VALUES, "Q4_K")}).write(path)
    with Served({"/a.gguf": path.read_bytes()}) as served:
        model = ggufkit.open(served.url("/a.gguf"))
        image = tile(model["a"], TilePlace(1, 0, 0))
        assert image.shape == (350, 512)
        assert np.isin(image, matrix(ggufkit.open(path)["a"])).all()
        assert picture_facts(model["a"])["is_sampled_by_rows"]


def test_a_difference_reads_both_tensors_in_the_same_places(tmp_path, model_page):
    path = tmp_path / "a.gguf"
    ggufkit.model({"a": (VALUES, "Q4_K")}).write(path)
    near = model_page({"a": VALUES}).model["a"]
    with Served({"/a.gguf": path.read_bytes()}) as served:
        far = ggufkit.open(served.url("/a.gguf"))["a"]
        image = difference_tile(near, far, TilePlace(1, 0, 0))
        expected = (matrix(ggufkit.open(path)["a"]) - VALUES)[np.ix_(image.rows, image.columns)]
        assert np.array_equal(image.values, expected)


def test_an_opaque_type_has_no_picture():
    kind = next(row for row in GGML_TYPES.values() if row.is_opaque)
    tensor = ggufkit.Tensor("a", kind, (4, 4), 16, as_tensor("a", VALUES).source)
    with pytest.raises(TensorTypeError, match="cannot be decoded"):
        tile(tensor, TilePlace(0, 0, 0))


def test_a_sample_leaves_out_what_is_not_finite():
    tensor = as_tensor("a", np.array([[1.0, np.nan, -3.0, np.inf, 0.0]], np.float32))
    document = sample_statistics(tensor)
    assert (document["count"], document["largest"]) == (3, 3.0)
    assert document["zeros"] == pytest.approx(1 / 3)
    assert sample_statistics(as_tensor("a", np.full((2, 2), np.nan, np.float32))) == {"count": 0}
