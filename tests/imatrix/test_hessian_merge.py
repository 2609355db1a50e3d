"""Hessians of parts of a text are added up, and bands keep files small."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import FormatError, OutputError, ShapeError
from ggufkit.imatrix.hessian import Hessian
from ggufkit.imatrix.hessian_merge import is_hessian, merge_hessians
from ggufkit.imatrix.moments import FITTED, HELD_OUT
from hessian_files import inputs_of, save_hessian
from shell import done
from shell import ggufkit as run

NAME, OTHER = "blk.0.ffn_up.weight", "blk.0.ffn_up_exps.weight"
PARTS = [{NAME: inputs_of(576, 64, seed=n), OTHER: inputs_of(256, 32, 2, n)} for n in range(3)]


def saved(tmp_path, band=None, **keys):
    keys = {"model": "a", "text": "b"} | keys
    return [
        save_hessian(tmp_path / f"{band}-{n}.gguf", part, band=band, **keys)
        for n, part in enumerate(PARTS)
    ]


@pytest.mark.parametrize("band", [None, 256])
def test_merged_sums_and_counts_are_those_of_all_parts(tmp_path, band):
    paths = saved(tmp_path, band)
    merged = Hessian.open(merge_hessians(paths, tmp_path / "all.gguf"))
    parts = [Hessian.open(path) for path in paths]
    for name in (NAME, OTHER):
        moments = [hessian.entries[name] for hessian in (merged, *parts)]
        counts = [entry.tokens() for entry in moments]
        assert np.array_equal(counts[0], sum(counts[1:]))
        for part, matrix in np.ndindex(*counts[0].shape):
            total, *sums = (entry.total(matrix, part) for entry in moments)
            exact = np.sum([values.astype(np.float64) for values in sums], axis=0)
            assert np.array_equal(total, exact.astype(np.float32))
    assert merged.metadata["hessian.token_count"] == 3 * 1024
    assert merged.metadata["hessian.text"] == "b"
    assert merged.metadata.get("hessian.band") == band


def test_order_of_parts_does_not_matter(tmp_path):
    paths = saved(tmp_path, 256)
    both = [tmp_path / "1.gguf", tmp_path / "2.gguf"]
    for order, out in zip((paths, paths[::-1]), both, strict=True):
        merge_hessians(order, out)
    assert both[0].read_bytes() == both[1].read_bytes()


def test_file_grows_with_the_width_and_not_with_its_square(tmp_path):
    sizes = [
        save_hessian(tmp_path / "h.gguf", {NAME: inputs_of(width, 16)}, band=256).stat().st_size
        for width in (1024, 2048)
    ]
    assert sizes[1] < 2 * sizes[0]
    full = save_hessian(tmp_path / "h.gguf", {NAME: inputs_of(2048, 16)}).stat().st_size
    assert 7 * sizes[1] < full


def test_blocks_of_a_band_are_those_of_the_full_matrix(tmp_path):
    full, banded = (Hessian.open(saved(tmp_path, band)[0]).entries[NAME] for band in (None, 256))
    for part in (FITTED, HELD_OUT):
        whole, rows = full.mean(0, part), banded.mean(0, part)
        for start in (0, 256, 512):
            own = slice(start, start + 256)
            block = whole[own, own]
            np.testing.assert_allclose(rows[own, : len(block)], block, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(banded.squares().sums, full.squares().sums, rtol=1e-5)


@pytest.mark.parametrize("bands", [(None, 256), (256, 512)])
def test_parts_with_different_bands_are_refused(tmp_path, bands):
    paths = [saved(tmp_path, band)[0] for band in bands]
    with pytest.raises(ShapeError, match=r"bands of 256 columns") as caught:
        merge_hessians(paths, tmp_path / "all.gguf")
    assert "--band" in caught.value.remedy
    assert not (tmp_path / "all.gguf").exists()


def test_parts_of_different_models_are_refused(tmp_path):
    paths = saved(tmp_path)
    other = save_hessian(tmp_path / "o.gguf", PARTS[0], model="c")
    fewer = save_hessian(tmp_path / "f.gguf", {NAME: PARTS[0][NAME]}, model="a")
    for path in (other, fewer):
        with pytest.raises(ShapeError, match="different models"):
            merge_hessians([paths[0], path], tmp_path / "all.gguf")


def test_values_that_are_not_numbers_are_refused(tmp_path):
    paths = saved(tmp_path, 256)
    rows = PARTS[0][NAME].copy()
    rows[1, 0, 0, 300] = np.nan
    broken = {NAME: rows, OTHER: PARTS[0][OTHER]}
    bad = save_hessian(tmp_path / "b.gguf", broken, band=256, model="a", text="b")
    with pytest.raises(FormatError, match=f"moments of '{NAME}' are infinite or not numbers"):
        merge_hessians([paths[0], bad], tmp_path / "all.gguf")


def test_output_that_is_an_input_is_refused(tmp_path):
    paths = saved(tmp_path)
    for path in paths[:2]:
        with pytest.raises(OutputError):
            merge_hessians(paths, path)


def test_command_merges_hessians(tmp_path):
    paths, out = saved(tmp_path, 512), tmp_path / "all.gguf"
    done("imatrix", "merge", *paths, "-o", out)
    assert is_hessian(out)
    assert not [f for f in ggufkit.check(out) if f.severity == "error"]
    assert out.read_bytes() == merge_hessians(paths, tmp_path / "o.gguf").read_bytes()
    matrix = Hessian.open(out).importance().save(tmp_path / "imatrix.gguf")
    result = run("imatrix", "merge", paths[0], matrix, "-o", tmp_path / "no.gguf")
    assert result.code == 1
    assert "not a Hessian" in result.err
