"""A file whose space was reserved and whose end was never written."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit
from shell import ggufkit as run

ROWS, WIDTH = 512, 512  # a MiB of float32
NAMES = [f"blk.{i}.weight" for i in range(6)]


@pytest.fixture
def path(tmp_path):
    random = np.random.default_rng(1)
    arrays = {name: random.standard_normal((ROWS, WIDTH), np.float32) for name in NAMES}
    arrays["output_norm.weight"] = np.ones(WIDTH, np.float32)
    ggufkit.save(tmp_path / "model.gguf", arrays, {"general.architecture": "none"})
    return tmp_path / "model.gguf"


def zeroed(path, offset):
    """Write zeros from `at` to the end of the file, as in an unfinished download."""
    nbytes = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(offset)
        file.truncate(nbytes)


def about_data(path, **options):
    findings = ggufkit.check(path, **options)
    return [finding for finding in findings if finding.rule.startswith(("unfinished", "data"))]


@pytest.mark.parametrize("data", [False, True])
@pytest.mark.parametrize("part", [0.01, 0.3, 0.5, 0.77])
def test_reports_an_unfinished_download_as_one_finding(path, part, data):
    with ggufkit.open(path) as model:
        begin, nbytes = model.data_offset, path.stat().st_size
    offset = begin + int(part * (nbytes - begin)) // 4 * 4 + 1
    zeroed(path, offset)
    (finding,) = about_data(path, data=data)
    assert (finding.rule, finding.severity) == ("unfinished", "error")
    assert offset - 4 <= finding.offset <= offset
    assert run("check", path).code == 1


def test_command_prints_the_outcome_and_whether_data_was_read(path):
    whole = run("check", path).lines[-1]
    assert whole.endswith("tensor data was not read (--data)")
    zeroed(path, path.stat().st_size // 2)
    last = run("check", path, "--data").lines[-1]
    assert "incomplete: part of its data was never written (1 error," in last
    assert "not read" not in last


def test_intended_zeros_are_not_an_unfinished_download(tmp_path):
    random = np.random.default_rng(1)
    padded = random.standard_normal((2 * ROWS, WIDTH)).astype(np.float32)
    padded[-700:] = 0  # as a vocabulary is padded
    adapter = {"a": np.ones((ROWS, WIDTH), np.float32), "b": np.zeros((2 * ROWS, WIDTH))}
    biased = {"a": np.ones((9, WIDTH), np.float32), "b": np.zeros(1 << 20, np.float32)}
    for tensors in ({"output.weight": padded}, adapter, biased):
        ggufkit.save(tmp_path / "model.gguf", tensors)
        assert "unfinished" not in {
            finding.rule for finding in ggufkit.check(tmp_path / "model.gguf")
        }


def test_reports_a_norm_of_zeros(tmp_path):
    tensors = {"output_norm.weight": np.zeros(9, np.float32), "x.bias": np.zeros(9, np.float32)}
    ggufkit.save(tmp_path / "model.gguf", tensors)
    assert [finding.rule for finding in about_data(tmp_path / "model.gguf", data=True)] == [
        "data-zero",
        "data-zero-vector",
    ]
