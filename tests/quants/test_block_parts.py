from __future__ import annotations

import numpy as np
import pytest

from ggufkit import quants
from ggufkit.errors import ShapeError, TensorTypeError
from ggufkit.format.types import GGML_TYPES, tensor_type
from ggufkit.quants.block_fields import LOOKUP_TABLES, lookup_table
from ggufkit.quants.block_parts import block_parts

QUANTIZED = [row for row in GGML_TYPES.values() if row.is_quantized]
RANDOM = np.random.default_rng(23)


@pytest.mark.parametrize("kind", QUANTIZED, ids=str)
def test_scale_times_level_plus_offset_is_each_element(kind):
    blocks = RANDOM.integers(0, 256, (500, kind.block_bytes), np.uint8)
    expected = quants.decode_rows(blocks, kind)
    with np.errstate(all="ignore"):  # random scales may be infinite or not a number
        parts = block_parts(blocks, kind).values()
    np.testing.assert_array_equal(parts, expected)


@pytest.mark.parametrize("kind", QUANTIZED, ids=str)
def test_every_part_has_a_row_for_each_block(kind):
    parts = block_parts(np.zeros(3 * kind.block_bytes, np.uint8), kind)
    offsets = [] if parts.offsets is None else [parts.offsets]
    for part in [*parts.fields.values(), parts.scales, parts.levels, *offsets]:
        assert part.shape[0] == 3
    assert parts.levels.shape == (3, kind.block_size)
    assert kind.block_size % parts.scales.shape[1] == 0


def test_the_fields_of_a_block_are_as_stored():
    half = np.float16([0.5, 0.25]).view(np.uint8)
    # Groups 0 to 3: scales 1 to 4 and minima 5 to 8; the others: none.
    scales = np.uint8([1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0])
    block = np.concatenate((half, scales, np.full(128, 0x21, np.uint8)))
    parts = block_parts(block, tensor_type("Q4_K"))
    assert parts.fields["d"].tolist() == [[0.5]]
    assert parts.fields["dmin"].tolist() == [[0.25]]
    assert parts.fields["scales"].tolist() == [[1, 2, 3, 4, 0, 0, 0, 0]]
    assert parts.fields["mins"].tolist() == [[5, 6, 7, 8, 0, 0, 0, 0]]
    assert parts.scales[0, :2].tolist() == [0.5, 1.0]
    assert parts.offsets[0, :2].tolist() == [-1.25, -1.5]
    assert parts.levels[0, :64].tolist() == 32 * [1] + 32 * [2]


def test_a_plain_type_has_no_blocks():
    with pytest.raises(TensorTypeError, match="F32 has no blocks"):
        block_parts(np.zeros(4, np.uint8), tensor_type("F32"))


def test_part_of_a_block_is_refused():
    with pytest.raises(ShapeError, match="17 bytes do not divide into the 18 bytes"):
        block_parts(np.zeros(17, np.uint8), tensor_type("Q4_0"))


@pytest.mark.parametrize("name", LOOKUP_TABLES)
def test_lookup_tables_hold_the_whole_numbers_of_levels(name):
    table = lookup_table(name)
    if not name.endswith("scales") and name != "iq6k":
        assert (table == table.round()).all()
        assert np.abs(table).max() < 128
