"""`ggufkit quantize` to a target size."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ggufkit as api
from ggufkit.imatrix.matrix import Entry, Imatrix
from shell import done, ggufkit

NAMES = [f"blk.{layer}.{kind}.weight" for layer in (0, 1) for kind in ("attn_q", "ffn_up")]


@pytest.fixture
def source(tmp_path):
    rng = np.random.default_rng(6)
    tensors = {name: rng.standard_normal((64, 256), np.float32) for name in NAMES}
    path = tmp_path / "in.gguf"
    api.save(path, tensors, {"general.architecture": "llama", "llama.block_count": 2})
    return path


@pytest.fixture
def matrix(tmp_path):
    rng = np.random.default_rng(7)
    entries = {name: Entry(rng.random((1, 256), np.float32), np.array([1])) for name in NAMES}
    return Imatrix(entries, ("text",), 1).save(tmp_path / "imatrix.gguf")


def types(path):
    with api.open(path) as model:
        return {name: tensor.type.name for name, tensor in model.tensors.items()}


def test_output_meets_the_target_size_and_matches_the_library(source, tmp_path):
    out = tmp_path / "out.gguf"
    done("quantize", source, out, "--target-size", "40k")
    assert 38_000 < out.stat().st_size <= 40_000
    with api.open(source) as model:
        chosen = api.target(model, nbytes=40_000)
    assert types(out) == {name: kind.name for name, kind in chosen.items()}


def test_importance_data_is_used_and_reported(source, matrix, tmp_path):
    out = tmp_path / "out.gguf"
    done("quantize", source, out, "--target-bpw", 2.4, "--imatrix", matrix)
    assert any(kind.startswith("IQ2") for kind in types(out).values())
    with api.open(out) as model:
        assert model.metadata["quantize.imatrix.entries_count"] == 4


def test_size_includes_keys_that_are_set(source, tmp_path):
    out = tmp_path / "out.gguf"
    note = "x" * 5000
    done(*("quantize", source, out, "--target-size", "45k"), "--override-kv", f"a.note=str:{note}")
    assert 43_000 < out.stat().st_size <= 45_000


@pytest.mark.parametrize("nbytes", [37_000, 41_000, 55_000, 70_000])
def test_size_includes_the_keys_of_the_provenance(source, matrix, tmp_path, nbytes):
    out = tmp_path / "out.gguf"
    done(
        *("quantize", source, out, "--target-size", nbytes, "--imatrix", matrix),
        *("--provenance", "--override-kv", f"a.note=str:{'x' * 3000}"),
    )
    assert nbytes * 0.9 < out.stat().st_size <= nbytes
    assert api.reproduce(out, source, imatrix=matrix)


def test_excluded_weights_are_not_used(source, matrix, tmp_path):
    out = tmp_path / "out.gguf"
    done(
        *("quantize", source, out, "--target-bpw", 3.0, "--imatrix", matrix),
        *("--exclude-weights", "attn_q"),
    )
    bare = [kind for name, kind in types(out).items() if "attn_q" in name]
    assert not any(kind.startswith("IQ2") for kind in bare)


def test_dry_run_shows_the_types_and_writes_nothing(source):
    result = done("quantize", source, "--target-bpw", 5, "--dry-run", "--json")
    document = result.json()
    assert document["new_bits_per_weight"] <= 5
    assert {tensor["name"] for tensor in document["tensors"]} == set(NAMES)
    assert [path.name for path in source.parent.iterdir()] == ["in.gguf"]


def test_explanations_say_that_types_are_chosen_for_the_target_size(source, tmp_path):
    result = done("quantize", source, tmp_path / "out.gguf", "--target-bpw", 5, "--explain")
    assert result.out.count("chosen for the target size") == len(NAMES)
    assert "given for its name" not in result.out


def test_error_says_how_much_larger_the_target_must_be(source, tmp_path):
    result = ggufkit("quantize", source, tmp_path / "out.gguf", "--target-size", "10k")
    assert result.code == 1
    least = int(re.search(r"smallest model has ([\d,]+) bytes", result.err)[1].replace(",", ""))
    assert "with an importance matrix there are smaller types" in result.err
    done("quantize", source, tmp_path / "out.gguf", "--target-size", least)
    (tmp_path / "out.gguf").unlink()
    result = ggufkit("quantize", source, tmp_path / "out.gguf", "--target-size", least - 1)
    assert f"{least:,} bytes, 1 more than asked for" in result.err
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["out", "Q8_0", "--target-bpw", 4], "remove Q8_0"),
        (["out", "--target-bpw", 4, "--target-size", "1M"], "not both"),
        (["out", "--target-bpw", 4, "--pure"], "remove --pure"),
        (["out", "--target-bpw", 4, "--tensor-type", "a=Q8_0"], "remove --tensor-type"),
        (["out", "--target-bpw", 4, "--prune-layers", "1"], "remove --prune-layers"),
        (["out", "--target-bpw", 0], "--target-bpw"),
        (["out", "--target-size", "much"], "is not a size"),
        (["--target-bpw", 4], "Name the output"),
    ],
)
def test_options_that_exclude_each_other_are_wrong_usage(source, arguments, message):
    result = ggufkit("quantize", source, *arguments)
    assert result.code == 2
    assert message in result.err
    assert "Traceback" not in result.err
