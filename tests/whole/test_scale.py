"""Twice as many tensors or shards cost at most twice the work and memory, in exact counts."""

from __future__ import annotations

import gc
import itertools
import sys
import tracemalloc

import pytest

import ggufkit
from ggufkit.checks import tensor_data
from ggufkit.format.types import tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.rows import Unplaced

EXPERTS = 1000
MOST = 2.2  # times the work for twice the count


def sparse(folder, tensors, shape, **options):
    """Write only the headers of a model of F16 matrices; its data takes no space on the disk."""
    names = [
        f"blk.{i // 3}.ffn_{('up', 'gate', 'down')[i % 3]}_exps.weight" for i in range(tensors)
    ]
    kind = tensor_type("F16")
    model = ggufkit.model(
        {name: Tensor.over(name, kind, shape, Unplaced("none")) for name in names},
        {"general.architecture": "llama"},
    )
    folder.mkdir()
    files = ggufkit.layout(model, "model.gguf", **options).files
    for file in files:
        with (folder / file.name).open("wb") as output:
            output.write(file.head)
            output.truncate(file.nbytes)
    return folder / files[0].name


def look(path):
    with ggufkit.open(path) as model:
        ggufkit.plan(model, ["Q4_K_M"])
        ggufkit.layout(ggufkit.quantize(model, "Q4_K_M"), "out.gguf")


def calls(act, path):
    """Return the calls of functions, of Python and of C."""
    count = itertools.count()
    sys.setprofile(lambda _frame, event, _: next(count) if "call" in event else None)
    try:
        act(path)
    finally:
        sys.setprofile(None)
    return next(count)


def memory(act, path):
    """Return the peak of Python's memory in bytes."""
    gc.collect()
    tracemalloc.start()
    try:
        act(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cost", [calls, memory])
@pytest.mark.parametrize("act", [look, ggufkit.check])
@pytest.mark.parametrize("options", [{}, {"shard_tensors": 1}], ids=["tensors", "shards"])
def test_cost_grows_in_proportion(options, act, cost, tmp_path):
    small, large = (
        sparse(tmp_path / str(count), count, (EXPERTS, 2, 256), **options) for count in (60, 120)
    )
    act(small)  # what is loaded once does not count
    assert cost(act, large) <= MOST * cost(act, small)


def test_check_skips_the_holes_of_a_terabyte(tmp_path, monkeypatch):
    path = sparse(tmp_path / "model", 20, (EXPERTS, 1 << 13, 1 << 12))
    read = []

    def all_zero(data, start, stop):
        read.append(stop - start)
        return native(data, start, stop)

    native = tensor_data._native.all_zero
    monkeypatch.setattr(tensor_data._native, "all_zero", all_zero)
    findings = {finding.rule for finding in ggufkit.check(path)}
    assert "unfinished" in findings
    assert path.stat().st_size > 1 << 40
    assert sum(read) <= 4 << 20
