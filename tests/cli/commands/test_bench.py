"""`ggufkit bench`: a line for each type, or JSON."""

from __future__ import annotations

import pytest

import shell
from ggufkit import quants
from ggufkit.quants import bench


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(bench, "ELEMENTS", 1 << 18)


def test_prints_headings_and_a_line_for_each_type():
    done = shell.ggufkit("bench", "--types", "Q8_0,q4_k", "--threads", "2")
    assert done.code == 0
    assert f"instruction set {quants.instruction_set()}" in done.lines[0]
    assert done.lines[1].split() == [
        "TYPE",
        "BITS",
        "ENCODE",
        "ENCODE",
        "x2",
        "DECODE",
        "DECODE",
        "x2",
    ]
    assert [line.split()[:2] for line in done.lines[2:]] == [["Q8_0", "8.5"], ["Q4_K", "4.5"]]
    assert all(len(line.split()) == 6 for line in done.lines[2:])


def test_one_thread_omits_the_columns_for_several():
    done = shell.ggufkit("bench", "--types", "Q8_0", "--threads", "1")
    assert done.lines[1].split() == ["TYPE", "BITS", "ENCODE", "DECODE"]
    assert len(done.lines[2].split()) == 4


def test_prints_elements_per_second_as_json():
    document = shell.ggufkit("bench", "--types", "Q8_0", "--threads", "1", "--json").json()
    assert document["instruction_set"] == quants.instruction_set()
    (rate,) = document["rates"]
    assert rate.pop("type") == "Q8_0"
    assert rate.pop("threads") == 1
    assert set(rate) == {"encode", "encode_threaded", "decode", "decode_threaded"}
    assert all(value > 0 for value in rate.values())


@pytest.mark.parametrize("types", ["Q9", "Q8_0,Q4_2", ""])
def test_unknown_types_are_wrong_usage(types):
    done = shell.ggufkit("bench", "--types", types)
    assert done.code == 2
    assert "--types" in done.err
    assert "Q8_0" in done.err


def test_types_of_whole_numbers_are_wrong_usage():
    done = shell.ggufkit("bench", "--types", "I8,Q8_0")
    assert done.code == 2
    assert "I8: types of whole numbers" in done.err


def test_names_an_instruction_set_that_cannot_run(monkeypatch):
    monkeypatch.setenv("GGUFKIT_ISA", "v9")
    done = shell.ggufkit("bench", "--types", "Q8_0")
    assert done.code == 1
    assert "GGUFKIT_ISA" in done.err
    assert "portable" in done.err
