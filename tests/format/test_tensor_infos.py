"""Places of tensors: sizes, overlaps, and truncated files as opposed to false offsets."""

from __future__ import annotations

import numpy as np
import pytest

from forging.builder import Forge, tensor
from ggufkit.format.header import parse
from ggufkit.format.tensor_infos import MAX_ELEMENTS, Places


def findings(*infos, cut=0, **fields):
    data = Forge(infos=infos, **fields).build()
    data = data[: len(data) - cut]
    return {finding.rule: finding for finding in parse(data, len(data)).findings}


def places(starts, sizes, room=1000):
    stops = [start + size for start, size in zip(starts, sizes, strict=True)]
    return Places(None, room, starts, stops, sizes, sizes)


@pytest.mark.parametrize(
    ("starts", "sizes", "pairs"),
    [
        ([], [], []),
        ([0, 32, 64], [32, 32, 32], []),
        ([64, 0, 32], [32, 32, 32], []),
        ([0, 0], [32, 32], [(0, 1)]),
        ([0, 32], [33, 32], [(0, 1)]),
        ([0, 32, 96], [200, 32, 32], [(0, 1), (0, 2)]),
        ([0, 0, 32], [32, 0, 32], []),
        ([2**64 - 32, 0], [64, 32], []),
    ],
)
def test_finds_overlaps_in_any_order(starts, sizes, pairs):
    assert list(places(starts, sizes).overlaps()) == pairs


def test_finds_tensors_beyond_the_end():
    assert places([0, 990, 2**64 - 1], [1000, 11, 5]).beyond() == [1, 2]
    assert places([0], [0], room=-5).beyond() == [0]


def test_finding_for_a_cut_file_says_how_much_is_missing():
    finding = findings(tensor("a", 8), tensor("b", 8), tensor("c", 8), cut=40)["data-truncated"]
    assert "40 bytes (" in finding.message
    assert "2 of 3 tensors are incomplete, first 'b'" in finding.message


@pytest.mark.parametrize(
    "infos",
    [
        (tensor("a", 8, offset=64), tensor("b", 8, offset=0), tensor("c", 8, offset=32)),
        (tensor("a", 8), tensor("b", 8, offset=96), tensor("c", 8, offset=128)),
    ],
    ids=["reordered", "with gaps"],
)
def test_cut_file_is_called_cut_for_unusual_tensor_offsets_too(infos):
    by_rule = findings(*infos, data=bytes(40))
    assert "data-truncated" in by_rule
    assert "tensor-beyond-end" not in by_rule


def test_false_offset_is_not_called_a_cut_file():
    by_rule = findings(tensor("a", 8), tensor("b", 8, offset=2**40))
    assert "tensor-beyond-end" in by_rule
    assert "data-truncated" not in by_rule


def test_largest_shape_is_accepted_and_the_next_is_not():
    assert "data-truncated" in findings(tensor("a", MAX_ELEMENTS, size=0))
    assert "shape-overflow" in findings(tensor("a", MAX_ELEMENTS + 1, size=0))


def test_numpy_accepts_the_largest_shape():
    assert np.empty((0, MAX_ELEMENTS), np.float64).shape == (0, MAX_ELEMENTS)
    with pytest.raises(ValueError, match="array is too big"):
        np.empty((0, MAX_ELEMENTS + 1), np.float64)


@pytest.mark.parametrize("count", range(10))
def test_file_cut_inside_an_opaque_tensor_is_refused_at_its_end(count):
    infos = (tensor("a", 9, type=77, size=32), tensor("b", 9, type=77, size=32))
    by_rule = findings(*infos, cut=32 + count)
    assert "data-truncated" in by_rule
