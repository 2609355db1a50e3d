"""Seeds of fuzzing, and changes of them, give typed errors: a short run, always the same."""

from __future__ import annotations

import random
import struct
import sys

import numpy as np
import pytest

import fuzz

if sys.platform == "win32":
    pytest.skip("the targets begin processes by fork", allow_module_level=True)

from fuzzing import targets

CHANGED = 60
NUMBERS = (0, 1, 2, 0xFF, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)


def seeds(target):
    found = sorted((fuzz.SEEDS / target).iterdir())
    return [path.read_bytes() for path in found]


def changed(seeds, draw):
    """Return a seed after one to four changes."""
    data = bytearray(draw.choice(seeds))
    for _ in range(draw.randint(1, 4)):
        at, other = draw.randint(0, len(data)), draw.choice(seeds)
        number = (draw.choice(NUMBERS) + draw.randint(-1, 1)) % 2**64
        kind = draw.randrange(4)
        if kind == 0:
            data[at : at + 1] = bytes([number % 256])
        elif kind == 1:
            field = struct.pack("<Q", number)[: draw.choice([1, 2, 4, 8])]
            data[at : at + len(field)] = field
        elif kind == 2:
            data[at:] = other[draw.randint(0, len(other)) :] if draw.random() < 0.5 else b""
        else:
            data[at:at] = data[at // 2 : at // 2 + draw.randint(0, 64)]
    return bytes(data)


def test_every_target_has_seeds_and_every_seed_a_target():
    assert {*targets.TARGETS} == {*fuzz.PYTHON}
    named = {fuzz.SEEDS_OF.get(name, name) for name in (*fuzz.NATIVE, *fuzz.PYTHON)}
    assert named == {path.name for path in fuzz.SEEDS.iterdir()}


@pytest.mark.parametrize("target", targets.TARGETS)
def test_seeds_and_what_comes_of_them_give_nothing_but_typed_errors(target, tmp_path):
    known, draw = seeds(target), random.Random(7)
    with np.errstate(all="ignore"):
        for data in known + [changed(known, draw) for _ in range(CHANGED)]:
            targets.attempt(target, data, tmp_path)


def test_what_is_no_typed_error_is_found(tmp_path, monkeypatch):
    def failing(data, folder):
        raise KeyError(data[:1])

    monkeypatch.setitem(targets.TARGETS, "broken", failing)
    with pytest.raises(KeyError):
        targets.attempt("broken", b"x", tmp_path)


def test_target_that_does_not_exist_is_named():
    with pytest.raises(SystemExit, match="no such target: nothing"):
        fuzz.main("1", "nothing")
