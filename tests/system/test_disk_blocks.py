"""Special operations of file systems work, or report that they are not supported."""

from __future__ import annotations

import os

import pytest

from ggufkit.system import disk_blocks

CONTENT = bytes(range(256)) * 100


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def descriptor(path):
    number = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
    yield number
    os.close(number)


def test_content_moves_on_and_back_by_whole_blocks(path, descriptor):
    step = disk_blocks.block_bytes(descriptor)
    if not disk_blocks.shift(descriptor, 2 * step):
        pytest.skip("this file system cannot move blocks")
    assert path.read_bytes() == bytes(2 * step) + CONTENT
    assert disk_blocks.shift(descriptor, -step)
    assert path.read_bytes() == bytes(step) + CONTENT


@pytest.mark.parametrize("nbytes", [1, -1, 100, -(1 << 40)])
def test_blocks_that_cannot_move_stay(path, descriptor, nbytes):
    assert not disk_blocks.shift(descriptor, nbytes)
    assert path.read_bytes() == CONTENT


def test_nothing_moves_without_the_call(path, descriptor, monkeypatch):
    monkeypatch.setattr(disk_blocks, "fallocate", None)
    assert disk_blocks.shift(descriptor, 0)
    assert not disk_blocks.shift(descriptor, disk_blocks.block_bytes(descriptor))
    assert path.read_bytes() == CONTENT


def test_block_is_a_power_of_two(descriptor, monkeypatch):
    size = disk_blocks.block_bytes(descriptor)
    assert size >= 512
    assert size & (size - 1) == 0
    monkeypatch.delattr(os, "fstatvfs", raising=False)
    assert disk_blocks.block_bytes(descriptor) == disk_blocks.USUAL_BLOCK


def test_clone_shares_blocks_or_reports_that_it_cannot(path, descriptor, tmp_path):
    other = tmp_path / "other"
    with other.open("w+b") as file:
        file.truncate(len(CONTENT))
        if disk_blocks.clone(descriptor, 0, file.fileno(), 0):
            assert other.read_bytes() == CONTENT
        else:
            assert other.read_bytes() == bytes(len(CONTENT))


def test_notices_other_readers(path, descriptor):
    with disk_blocks.sole_use(descriptor) as alone:
        if alone is None:
            pytest.skip("this system cannot tell who reads a file")
        assert alone
    with path.open("rb"), disk_blocks.sole_use(descriptor) as alone:
        assert alone is False
    with disk_blocks.sole_use(descriptor) as alone:
        assert alone


@pytest.mark.parametrize("data_end", [0, 5, 3 << 20, 64 << 20])
def test_hole_at_the_end_begins_after_the_last_data(data_end, tmp_path):
    path = tmp_path / "sparse"
    with path.open("w+b") as file:
        file.truncate(64 << 20)
        if data_end:
            os.pwrite(file.fileno(), b"x", data_end - 1)
        begin = disk_blocks.begin_of_hole(file.fileno(), 0, 64 << 20)
    assert data_end <= begin
    if path.stat().st_blocks < 1 << 10:  # the file system has holes
        assert begin <= data_end + disk_blocks.HOLE_BYTES
