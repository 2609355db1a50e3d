"""Every block of commands and of Python in the README and in the first steps runs."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

import ggufkit

ROOT = Path(__file__).parents[2]
FIRST_STEPS = ROOT / "docs" / "first-steps.md"


def _blocks(page):
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


BLOCKS = _blocks(ROOT / "README.md")
COMMANDS = [line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines()]


@pytest.fixture(scope="module")
def tour(smollm2, tmp_path_factory):
    """The folder of the first steps, with everything that its blocks wrote."""
    folder = tmp_path_factory.mktemp("tour")
    (folder / "model.gguf").symlink_to(smollm2)
    _run_all(_blocks(FIRST_STEPS), folder)
    return folder


def _run_all(blocks, folder):
    for kind, block in blocks:
        if kind == "python":
            _run([sys.executable, "-c", block], folder, promised=_promised_output(block))
            continue
        for command in block.splitlines():
            if command.startswith("ggufkit "):
                _run(_as_module(command), folder)


def _as_module(command):
    return [sys.executable, "-m", *command.split()]


def _promised_output(block):
    return re.findall(r"^ *print\(.*\)  # (.*)$", block, flags=re.MULTILINE)


def _run(command, folder, promised=None):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert promised is None or done.stdout.splitlines() == promised, command


def test_readme_shows_first_what_works_in_a_clone():
    assert COMMANDS[:2] == ["make demo", "make test"]
    assert COMMANDS[2:4] == [". .venv/bin/activate", "ggufkit inspect model.gguf"]


@pytest.mark.parametrize("page", [ROOT / "README.md", FIRST_STEPS], ids=lambda page: page.stem)
def test_these_tests_run_every_block_of_a_page(page):
    commands = [
        line for kind, block in _blocks(page) if kind == "sh" for line in block.splitlines()
    ]
    assert {kind for kind, _ in _blocks(page)} == {"sh", "python"}
    assert {line.split()[0] for line in commands if line} <= {"make", ".", "ggufkit"}


def test_readme_runs_from_start_to_end(smollm2, tmp_path):
    (tmp_path / "model.gguf").symlink_to(smollm2)
    _run_all(BLOCKS, tmp_path)
    with ggufkit.open(tmp_path / "q8_0.gguf") as model:
        assert model.metadata["general.name"] == "Mine"


def test_make_has_the_targets_that_the_readme_names():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert {line.split()[1] for line in COMMANDS if line.startswith("make ")} <= set(targets)


def test_pip_installed_this_clone():
    # `make` runs the README's line, with the extras that it needs. A worktree may link to the
    # environment of its clone.
    clone = (ROOT / ".venv").resolve().parent
    origin = importlib.metadata.distribution("ggufkit").read_text("direct_url.json")
    wheel = json.loads(origin)["url"]
    assert wheel.startswith(f"{clone.as_uri()}/build/wheel/"), "run the tests through make"


def test_tour_runs_from_start_to_end(tour):
    with ggufkit.open(tour / "model.gguf") as model, ggufkit.open(tour / "merged.gguf") as merged:
        assert not ggufkit.diff(model, merged)


def test_tour_splits_into_the_shards_that_it_merges(tour):
    assert len(list(tour.glob("parts-*-of-00002.gguf"))) == 2


def test_official_reader_agrees_with_the_written_example(tour):
    reader = gguf.GGUFReader(tour / "example.gguf")
    values = {name: field.contents() for name, field in reader.fields.items()}
    assert values["general.architecture"] == "llama"
    assert values["llama.block_count"] == 12
    assert values["answer"] == 42
    assert values["answer_in_float"] == 42.0
    assert values["general.alignment"] == 64 == reader.alignment
    assert reader.fields["answer"].types == [gguf.GGUFValueType.UINT32]
    assert reader.fields["answer_in_float"].types == [gguf.GGUFValueType.FLOAT32]
    assert [tensor.name for tensor in reader.tensors] == ["tensor1", "tensor2", "tensor3"]
    for tensor, size, value in zip(reader.tensors, (32, 64, 96), (100, 101, 102), strict=True):
        assert tensor.data_offset % 64 == 0
        np.testing.assert_array_equal(tensor.data, np.full(size, value, np.float32))
