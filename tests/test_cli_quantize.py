from __future__ import annotations

import numpy as np
import pytest

import ggufkit as api
from ggufkit.quantizing import TARGETS
from shell import done, ggufkit, process

RNG = np.random.default_rng(3)
TENSORS = {
    "blk.0.ffn_up.weight": RNG.standard_normal((64, 96), np.float32),
    "odd.weight": RNG.standard_normal((4, 40), np.float32),
    "norm.bias": np.ones(96, np.float32),
}


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.gguf"
    api.save(path, TENSORS, {"general.architecture": "llama", "general.name": "x"})
    return path


def types(path):
    with api.open(path) as model:
        return [tensor.type.name for tensor in model.tensors.values()]


@pytest.mark.parametrize("target", TARGETS)
def test_quantized_file_is_what_the_library_writes(source, target):
    out, library = source.with_name("out.gguf"), source.with_name("library.gguf")
    done("quantize", source, out, target.lower(), "--threads", 2)
    with api.open(source) as model:
        api.write(api.quantize(model, target), library)
    assert out.read_bytes() == library.read_bytes()


def test_report_is_one_line_with_name_and_size(source):
    out = source.with_name("out.gguf")
    result = done("quantize", source, out, "Q8_0")
    assert result.out == f"wrote {out} ({out.stat().st_size / 1000:.1f} kB)\n"


def test_fallback_is_noted(source):
    result = done("quantize", source, source.with_name("out.gguf"), "Q4_0")
    assert result.err == (
        "note: 1 tensor with rows that do not divide into blocks: F16 instead of Q4_0\n"
    )
    assert types(source.with_name("out.gguf")) == ["Q4_0", "F16", "F32"]


def test_quantizing_again_is_noted(source):
    once, twice = source.with_name("once.gguf"), source.with_name("twice.gguf")
    assert "quality" not in done("quantize", source, once, "Q8_0").err
    assert "1 tensor quantized already (Q8_0): " in done("quantize", once, twice, "Q4_0").err
    assert "quality" not in done("quantize", once, twice, "Q8_0").err


# Before doing it.


def test_dry_run_shows_each_tensor_and_writes_nothing(source):
    result = done("quantize", source, source.with_name("out.gguf"), "Q8_0", "--dry-run")
    rows = [line.replace(" x ", "x").split() for line in result.lines[1:4]]
    assert rows == [
        ["blk.0.ffn_up.weight", "64x96", "F32", "Q8_0", "24,576", "6,528"],
        ["odd.weight", "4x40", "F32", "F16", "640", "320"],
        ["norm.bias", "96", "F32", "384", "384"],
    ]
    assert result.lines[-2:] == [
        "now   25.6 kB, 32.00 bits per weight",
        "then  7.2 kB, 9.04 bits per weight",
    ]
    assert list(source.parent.iterdir()) == [source]


def test_dry_run_promises_what_is_then_written(source):
    out = source.with_name("out.gguf")
    promised = done("quantize", source, out, "Q5_1", "--dry-run", "--json").json()
    written = done("quantize", source, out, "Q5_1", "--json").json()
    assert promised["files"] == []
    assert written.pop("files") == [{"path": str(out), "nbytes": out.stat().st_size}]
    assert promised | {"files": None} == written | {"files": None}
    with api.open(out) as model:
        assert [
            (t["name"], t["after"]["type"], t["after"]["nbytes"]) for t in written["tensors"]
        ] == [(tensor.name, tensor.type.name, tensor.nbytes) for tensor in model.tensors.values()]
        assert written["after"]["nbytes"] == sum(t.nbytes for t in model.tensors.values())


def test_dry_run_works_on_a_model_without_tensors(tmp_path):
    api.save(tmp_path / "none.gguf", {}, {"a": 1})
    result = done("quantize", tmp_path / "none.gguf", "x", "Q8_0", "--dry-run")
    assert result.lines[-2:] == ["now   0 bytes", "then  0 bytes"]


# To a pipe.


def test_pipe_gets_the_same_bytes(source):
    out = source.with_name("out.gguf")
    done("quantize", source, out, "Q4_1")
    with process("quantize", source, "-", "Q4_1") as command:
        piped, _ = command.communicate()
    assert piped == out.read_bytes()


def test_model_and_json_cannot_share_a_pipe(source):
    assert ggufkit("quantize", source, "-", "Q8_0", "--json").code == 2


# What cannot be done.


def test_model_is_never_written_over_itself(source):
    before = source.read_bytes()
    result = ggufkit("quantize", source, source, "Q8_0")
    assert result.code == 1
    assert "also an input" in result.err
    assert source.read_bytes() == before


def test_folder_that_does_not_exist_is_an_error(source):
    result = ggufkit("quantize", source, source.with_name("none") / "out.gguf", "Q8_0")
    assert result.code == 1
    assert "does not exist" in result.err


def test_unknown_type_is_answered_with_all_types(source):
    result = ggufkit("quantize", source, "out.gguf", "Q9_9")
    assert result.code == 2
    assert ", ".join(TARGETS) in " ".join(result.err.split())


def test_types_are_completed_by_the_shell():
    completion = {"_GGUFKIT_COMPLETE": "bash_complete", "COMP_CWORD": "4"}
    words = {"COMP_WORDS": "ggufkit quantize in out q5"}
    with process(env=completion | words) as command:
        out, _ = command.communicate()
    assert out.decode().split() == ["plain,Q5_1", "plain,Q5_0"]
