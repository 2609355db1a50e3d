"""Statistics of importance matrices, compared with the same formulas in double precision."""

from __future__ import annotations

import numpy as np
import pytest

from ggufkit.imatrix.matrix import Entry, Imatrix
from ggufkit.imatrix.statistics import by_layer, statistics


def of(**entries):
    rows = {}
    for name, (sums, counts) in entries.items():
        values = np.array(sums, np.float32).reshape(len(counts), -1)
        rows[name.replace("_", ".")] = Entry(values, np.array(counts, np.int64))
    return Imatrix(rows)


def test_statistics_use_means_of_the_columns_that_tokens_reached():
    (one,) = statistics(of(blk_3_up_weight=([8, 0, 16, 4, 99, 99, 99, 99], [4, 0])))
    assert (one.layer, one.tensor, one.elements) == ("3", "up", 4)
    assert (one.total, one.minimum, one.maximum, one.mean) == (7, 0, 4, 1.75)
    assert one.deviation == pytest.approx(np.std([2, 0, 4, 1]))
    assert one.active == 0.75
    shares = np.array([2, 4, 1]) / 7
    assert one.entropy == pytest.approx(-(shares * np.log2(shares)).sum())
    assert one.evenness == pytest.approx(one.entropy / 2)
    assert one.z_density == 0.25


def test_similarity_is_the_cosine_to_the_previous_layer():
    rows = statistics(
        of(
            blk_0_up_weight=([1, 2], [1]),
            blk_1_up_weight=([2, 1], [1]),
            output_weight=([1, 1], [1]),
        )
    )
    assert {one.name: one.similarity for one in rows} == {
        "blk.0.up.weight": 0,
        "blk.1.up.weight": pytest.approx(0.8),
        "output.weight": 0,
    }


def test_layers_of_different_widths_have_no_similarity():
    rows = statistics(of(blk_0_up_weight=([1, 2, 3], [1]), blk_1_up_weight=([2, 1], [1])))
    assert [one.similarity for one in rows] == [0, 0]


def test_tensors_of_a_kind_are_sorted_by_activation():
    rows = statistics(
        of(
            blk_0_up_weight=([1], [1]),
            blk_1_up_weight=([3], [1]),
            blk_0_down_weight=([2], [1]),
            odd=([1], [1]),
        )
    )
    assert [one.name for one in rows] == [
        "blk.0.down.weight",
        "odd",
        "blk.1.up.weight",
        "blk.0.up.weight",
    ]
    assert [one.layer for one in rows] == ["0", "-", "1", "0"]


def test_leaves_out_tensors_that_no_token_reached():
    assert statistics(of(a_weight=([1, 2], [0]))) == []


def test_even_activations_have_no_outliers_and_full_entropy():
    (one,) = statistics(of(a_weight=([3] * 8, [3])))
    assert (one.deviation, one.z_density, one.entropy, one.evenness) == (0, 0, 3, 1)


def test_silent_inputs_have_no_entropy():
    (one,) = statistics(of(a_weight=([0, 0], [1])))
    assert (one.entropy, one.active) == (0, 0)


def test_layer_averages_are_weighted_by_elements():
    rows = statistics(of(blk_2_a_weight=([1, 1, 4], [1]), blk_2_b_weight=([10], [1])))
    (layer,) = by_layer(rows)
    assert (layer.layer, layer.total) == (2, (3 * 6 + 10) / 4)
    assert layer.z_density == pytest.approx(1 / 4)


def test_legacy_and_gguf_files_give_the_same_statistics(tmp_path):
    rng = np.random.default_rng(1)
    matrix = Imatrix(
        {
            f"blk.{i}.up.weight": Entry(rng.random((1, 9), np.float32), np.array([512]))
            for i in (0, 1)
        },
        (),
        1,
    )
    again = Imatrix.open(matrix.save(tmp_path / "x.dat"))
    assert again.is_legacy
    assert statistics(again) == statistics(matrix)
