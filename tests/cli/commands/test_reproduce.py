from __future__ import annotations

import numpy as np
import pytest

import ggufkit as api
from ggufkit.imatrix import Entry, Imatrix
from shell import done, ggufkit

RNG = np.random.default_rng(5)
TENSORS = {f"blk.{n}.ffn_up.weight": RNG.standard_normal((4, 256), np.float32) for n in range(3)}
KEYS = {"general.architecture": "llama", "llama.block_count": 3}


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    api.save("in.gguf", TENSORS, KEYS)
    api.save("other.gguf", {**TENSORS, "blk.1.ffn_up.weight": TENSORS["blk.0.ffn_up.weight"]}, KEYS)
    return tmp_path / "in.gguf"


def test_usage_shows_the_required_source():
    assert "reproduce --source MODEL [OPTIONS] FILE" in done("reproduce", "--help").out


def test_file_of_quantize_is_proven(source):
    done("quantize", "in.gguf", "out.gguf", "Q4_K_M", "--provenance", "--keep-order")
    text = done("reproduce", "out.gguf", "--source", "in.gguf").out
    assert text == "out.gguf derives from in.gguf byte for byte: 3 tensors, recipe Q4_K_M\n"
    document = done("reproduce", "out.gguf", "--source", "in.gguf", "--json").json()
    assert (document["derives"], document["has_same_layout"], document["first"]) == (
        True,
        True,
        None,
    )
    assert document["settings"]["keep_order"] is True
    assert done("hash", "--content", "in.gguf").out.split()[1] == document["source"]


def test_first_tensor_of_another_source_is_named(source):
    done("quantize", "in.gguf", "out.gguf", "Q8_0", "--provenance")
    failed = ggufkit("reproduce", "out.gguf", "--source", "other.gguf")
    assert failed.code == 1
    assert "1 of 3 tensors differ; the first is blk.1.ffn_up.weight" in failed.out
    assert "the source is another one" in failed.out
    document = ggufkit("reproduce", "out.gguf", "--source", "other.gguf", "--json").json()
    assert document["tensors"] == [{"name": "blk.1.ffn_up.weight", "difference": "changed"}]


def test_importance_matrix_is_asked_for_and_may_have_moved(source):
    entries = {name: Entry(RNG.random((1, 256), np.float32), np.array([3])) for name in TENSORS}
    Imatrix(entries).save("a.imatrix")
    Imatrix(entries).save("b.gguf")
    done("quantize", "in.gguf", "out.gguf", "IQ2_XS", "--provenance", "--imatrix", "a.imatrix")
    failed = ggufkit("reproduce", "out.gguf", "--source", "in.gguf")
    assert (failed.code, "--imatrix FILE" in failed.err) == (1, True)
    assert (
        "byte for byte"
        in done("reproduce", "out.gguf", "--source", "in.gguf", "--imatrix", "b.gguf").out
    )


def test_several_recipes_and_target_sizes_carry_their_provenance(source):
    done("quantize", "in.gguf", "{recipe}.gguf", "Q4_0,Q8_0", "--provenance")
    done("quantize", "in.gguf", "aimed.gguf", "--target-bpw", "6", "--provenance")
    for file in ("Q4_0.gguf", "Q8_0.gguf", "aimed.gguf"):
        assert "byte for byte" in done("reproduce", file, "--source", "in.gguf").out


def test_dry_run_shows_the_size_of_the_file_and_reads_no_data(source):
    words = ("in.gguf", "out.gguf", "Q8_0", "--provenance", "--json")
    planned = done("quantize", *words, "--dry-run").json()["file_nbytes"]
    done("quantize", *words)
    assert source.with_name("out.gguf").stat().st_size == planned


def test_file_without_provenance_is_an_error_with_a_remedy(source):
    failed = ggufkit("reproduce", "in.gguf", "--source", "in.gguf")
    assert failed.code == 1
    assert failed.lines == []
    assert "`quantize --provenance` writes files that do" in failed.err
