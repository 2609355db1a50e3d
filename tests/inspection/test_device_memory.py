"""The memory of the devices of this machine, as programs and files of drivers say it."""

from __future__ import annotations

import os

import pytest

from ggufkit.errors import GGUFError
from ggufkit.inspection import device_memory
from ggufkit.inspection.device_memory import device_memories

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has none of this")
MACHINE = 7 * 1000**3 // os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(autouse=True)
def bare(tmp_path, monkeypatch):
    """A machine with 7 GB, without cards, programs and limits."""
    sizes = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": MACHINE // 4096}
    monkeypatch.setattr(device_memory.os, "sysconf", sizes.__getitem__)
    monkeypatch.setattr(device_memory, "AMD_CARDS", tmp_path / "drm")
    monkeypatch.setattr(device_memory, "GROUP_LIMIT", tmp_path / "memory.max")
    monkeypatch.setenv("PATH", str(tmp_path))


def program(folder, text):
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def amd_card(folder, number, text):
    path = folder / "drm" / f"card{number}" / "device" / "mem_info_vram_total"
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_cards_of_nvidia_are_asked_for_their_memory(tmp_path):
    program(tmp_path, '[ "$1" = --query-gpu=memory.total ] && echo 24564 && echo 81559')
    amd_card(tmp_path, 0, "1")
    assert device_memories() == (24564 << 20, 81559 << 20)


@pytest.mark.parametrize("text", ["echo 24564; exit 9", "echo '[N/A]'", "exit 0", "kill -9 $$"])
def test_a_program_that_says_nothing_sure_is_ignored(tmp_path, text):
    program(tmp_path, text)
    assert device_memories() == (MACHINE,)


def test_a_program_that_hangs_is_ignored(tmp_path, monkeypatch):
    monkeypatch.setattr(device_memory, "ANSWER_SECONDS", 0.2)
    program(tmp_path, "while :; do :; done")
    assert device_memories() == (MACHINE,)


def test_cards_of_amd_have_a_file(tmp_path):
    amd_card(tmp_path, 1, "17163091968\n")
    amd_card(tmp_path, 0, "8573157376\n")
    amd_card(tmp_path, 2, "broken")
    assert device_memories() == (8573157376, 17163091968)


@pytest.mark.parametrize(("text", "expected"), [("max\n", MACHINE), ("1073741824\n", 1 << 30)])
def test_the_memory_of_a_machine_is_at_most_that_of_its_container(tmp_path, text, expected):
    (tmp_path / "memory.max").write_text(text)
    assert device_memories() == (expected,)


def test_a_system_that_does_not_say_is_an_error(monkeypatch):
    monkeypatch.delattr(device_memory.os, "sysconf")
    with pytest.raises(GGUFError, match="does not say"):
        device_memories()
