"""An edit that ends at any call leaves the file in its old or new state, never between."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import mortal
from ggufkit.system import disk_blocks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
PROGRAM = Path(mortal.__file__)
IMAGE_BYTES = 400 << 20  # sparse; mkfs.xfs asks for 300 MiB
MAKERS = {"xfs": ["mkfs.xfs", "-q"], "btrfs": ["mkfs.btrfs", "-q"]}


def lives(way, folder):
    paths = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, str(PROGRAM), way, str(folder)]
    environment = os.environ | {"PYTHONPATH": paths}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def moves_blocks(folder):
    path = folder / "probe"
    path.write_bytes(bytes(1 << 16))
    with path.open("r+b") as file:
        return disk_blocks.shift(file.fileno(), disk_blocks.block_bytes(file.fileno()))


@pytest.fixture(scope="module", params=MAKERS)
def sharing(request, tmp_path_factory):
    """A folder on a file system whose files can share blocks, mounted for the purpose."""
    maker = MAKERS[request.param]
    if getattr(os, "geteuid", lambda: 1)() != 0:
        pytest.skip("only root can mount a file system")
    if not shutil.which(maker[0]) or not shutil.which("mount"):
        pytest.skip(f"{maker[0]} is not installed")
    folder = tmp_path_factory.mktemp(request.param)
    image, mounted = folder / "image", folder / "mounted"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    subprocess.run([*maker, str(image)], check=True, capture_output=True)
    mount = ["mount", "-o", "loop", str(image), str(mounted)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{request.param} cannot be mounted here: {done.stderr.strip()}")
    yield mounted
    subprocess.run(["umount", str(mounted)], check=True)


def assert_all_survived(rows):
    assert {life["end"] for life in rows} == {"killed", "torn", "failed"}
    for life in rows:
        assert life["outcome"] in ("before", "after"), life
        assert life["is_shown"], life  # by reading alone, which changed nothing
        assert not life["remains"], life
        assert not life["broken"], life
        if life["content"] != "between":
            assert life["outcome"] == life["content"], life


MANY = dict.fromkeys(("patched back", "copied back"), pytest.mark.matrix)


@pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=MANY.get(way, ())) for way in mortal.WAYS if way != "cloned"],
)
def test_file_has_the_old_or_new_content_wherever_the_edit_ends(tmp_path, way):
    if way.startswith("moved") and not moves_blocks(tmp_path):
        pytest.skip("this file system cannot move blocks")
    rows = lives(way, tmp_path)
    assert_all_survived(rows)
    count = Counter(life["outcome"] for life in rows)
    assert min(count["before"], count["after"]) > 5  # ends lie on both sides of the change
    calls = {life["call"] for life in rows}
    assert {"open", "pwrite", "fsync", "replace", "flock"} <= calls
    if not way.startswith("copied"):  # a copy takes its place at once
        assert any(life["content"] == "between" for life in rows)
        assert "pwrite in recovery" in calls


@pytest.mark.parametrize("way", ["cloned", "patched", "moved"])
def test_file_that_shares_blocks_has_the_old_or_new_content_too(sharing, way):
    folder = sharing / way
    folder.mkdir()
    if way == "moved" and not moves_blocks(folder):
        pytest.skip("this file system cannot move blocks")
    assert_all_survived(lives(way, folder))
