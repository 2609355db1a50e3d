"""Fuzzing seeds and their mutations give typed errors: a short, reproducible run."""

from __future__ import annotations

import json
import random
import struct
import sys

import numpy as np
import pytest

import fuzz

if sys.platform == "win32":
    pytest.skip("the targets begin processes by fork", allow_module_level=True)

from fuzzing import changing, targets

CHANGED = 60
NUMBERS = (0, 1, 2, 0xFF, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)


def seeds(target):
    seeds = sorted((fuzz.SEEDS / target).iterdir())
    return [path.read_bytes() for path in seeds]


def changed(seeds, draw):
    """Return a seed after one to four changes."""
    data = bytearray(draw.choice(seeds))
    for _ in range(draw.randint(1, 4)):
        start, other = draw.randint(0, len(data)), draw.choice(seeds)
        number = (draw.choice(NUMBERS) + draw.randint(-1, 1)) % 2**64
        kind = draw.randrange(4)
        if kind == 0:
            data[start : start + 1] = bytes([number % 256])
        elif kind == 1:
            field = struct.pack("<Q", number)[: draw.choice([1, 2, 4, 8])]
            data[start : start + len(field)] = field
        elif kind == 2:
            data[start:] = other[draw.randint(0, len(other)) :] if draw.random() < 0.5 else b""
        else:
            data[start:start] = data[start // 2 : start // 2 + draw.randint(0, 64)]
    return bytes(data)


def test_every_target_has_seeds_and_every_seed_a_target():
    assert {*targets.TARGETS} == {*fuzz.PYTHON}
    target_names = {fuzz.SEEDS_OF.get(name, name) for name in (*fuzz.NATIVE, *fuzz.PYTHON)}
    assert target_names == {path.name for path in fuzz.SEEDS.iterdir()}


def changes(target, known, draw):
    """Yield mutations of the seeds: random ones, and ones that keep a file readable."""
    yield from (changed(known, draw) for _ in range(CHANGED))
    if target in changing.CHANGES:
        inputs = (changing.CHANGES[target](draw.choice(known), draw) for _ in range(CHANGED))
        yield from filter(None, inputs)


@pytest.mark.parametrize("target", targets.TARGETS)
def test_seeds_and_their_mutations_give_only_typed_errors(target, tmp_path):
    known, draw = seeds(target), random.Random(7)
    with np.errstate(all="ignore"):
        for data in (*known, *changes(target, known, draw)):
            targets.attempt(target, data, tmp_path)


def test_finds_an_error_that_is_not_typed(tmp_path, monkeypatch):
    def failing(data, folder):
        raise KeyError(data[:1])

    monkeypatch.setitem(targets.TARGETS, "broken", failing)
    with pytest.raises(KeyError):
        targets.attempt("broken", b"x", tmp_path)


def test_json_and_header_seeds_can_be_mutated():
    for target, change in changing.CHANGES.items():
        outputs = [change(seed, random.Random(1)) for seed in seeds(target)]
        assert any(outputs)
    known = json.loads(seeds("checkpoint")[0])
    assert json.loads(changing.changed_json(seeds("checkpoint")[0], random.Random(1))) != known


@pytest.mark.parametrize(
    "arguments", [["1", "nothing"], ["x"], ["0"], ["1", "names", "--jobs", "0"]]
)
def test_impossible_runs_are_usage_errors(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        fuzz.main(*arguments)
    assert ended.value.code == 2
    assert "fuzz.py: error" in capsys.readouterr().err


def test_report_shows_inputs_and_coverage(monkeypatch, tmp_path, capsys):
    report = (
        "#3\tINITED cov: 9 ft: 10\n#8\tDONE   cov: 12 ft: 15\nstat::number_of_executed_units: 8\n"
    )
    code = f"import sys; sys.stderr.write({report!r}); sys.exit('names' in sys.argv)"
    monkeypatch.setattr(fuzz, "program_of", lambda name: [sys.executable, "-c", code, name])
    monkeypatch.setattr(fuzz, "KEPT", tmp_path)
    monkeypatch.setattr(fuzz, "FINDINGS", tmp_path)
    assert fuzz.main("1", "names", "card", "--jobs", "2") == 1
    lines = capsys.readouterr().out
    assert "card: 8 inputs, coverage 9 to 12, 15 features, nothing found" in lines
    assert "names: 8 inputs, coverage 9 to 12, 15 features, FOUND; again: " in lines
    assert lines.endswith("found something: names\n")
