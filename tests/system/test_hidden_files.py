"""Hidden files are used only if this user made them, and links in their place are not followed."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from ggufkit.errors import OutputError
from ggufkit.system import folders, hidden_files
from ggufkit.system.folders import HiddenFolder
from ggufkit.system.hidden_files import (
    SUFFIXES,
    ForeignFileError,
    create,
    hidden,
    open_own,
)
from ggufkit.system.readers_limit import NO_LIMIT, ReadersLimit
from neighbours import POSSIBLE, place
from platforms import posix


@pytest.fixture
def path(tmp_path):
    return tmp_path / ".model.gguf.ggufkit-part"


def test_hidden_names_differ_but_share_a_prefix():
    assert len(set(SUFFIXES)) == len(SUFFIXES)
    assert all(suffix.startswith(".ggufkit-") for suffix in SUFFIXES)


@posix
def test_creates_a_private_file_only_where_none_exists(path):
    os.close(create(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        create(path)
    os.close(open_own(path, os.O_RDWR))


@posix
@pytest.mark.parametrize("kind", POSSIBLE)
def test_refuses_a_neighbour_of_any_other_kind_and_leaves_it(path, kind):
    neighbour = place(path, kind)
    with pytest.raises(ForeignFileError, match=neighbour.reason) as caught:
        open_own(path, os.O_RDWR)
    assert "Remove it" in caught.value.remedy
    with pytest.raises(FileExistsError):
        create(path)
    assert neighbour.is_untouched()


@posix
def test_refuses_a_link_that_replaces_a_file_before_it_is_opened(path, monkeypatch):
    path.write_bytes(b"ours")
    precious = path.with_name("precious")
    precious.write_bytes(b"keep me")
    status = Path.lstat

    def swapped(path):
        state = status(path)
        path.unlink()
        path.symlink_to(precious)
        return state

    monkeypatch.setattr(Path, "lstat", swapped)
    with pytest.raises(ForeignFileError):
        open_own(path, os.O_RDWR)


def test_folders_appear_whole_where_they_have_no_descriptors(tmp_path, monkeypatch):
    monkeypatch.setattr(hidden_files, "has_folder_descriptors", False)
    (hidden(tmp_path / "made", hidden_files.FOLDER) / "leftover").mkdir(parents=True)
    with HiddenFolder(tmp_path / "made") as hidden_folder:
        (hidden_folder.path / "sub").mkdir()
        (hidden_folder.path / "sub" / "file").write_bytes(b"x")
        hidden_folder.publish()
    assert (tmp_path / "made" / "sub" / "file").read_bytes() == b"x"


# Folders.


@posix
@pytest.mark.parametrize("kind", ["link", "file", "pipe"])
def test_never_empties_a_folder_through_a_link(tmp_path, kind):
    precious = tmp_path / "precious"
    (precious / "sub").mkdir(parents=True)
    (precious / "sub" / "file").write_bytes(b"keep me")
    path = hidden(tmp_path / "out", hidden_files.FOLDER)
    makers = {"link": lambda: path.symlink_to(precious), "file": path.touch}
    makers.get(kind, lambda: os.mkfifo(path))()
    with pytest.raises(ForeignFileError, match="not a folder"), HiddenFolder(tmp_path / "out"):
        pass
    assert (precious / "sub" / "file").read_bytes() == b"keep me"
    assert os.path.lexists(path)


@posix
def test_links_in_a_leftover_folder_are_removed_and_not_followed(tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_bytes(b"keep me")
    leftover = hidden(tmp_path / "out", hidden_files.FOLDER)
    (leftover / "deep" / "deeper").mkdir(parents=True)
    (leftover / "deep" / "deeper" / "file").touch()
    (leftover / "link").symlink_to(precious)
    with HiddenFolder(tmp_path / "out") as folder:
        assert list(folder.path.iterdir()) == []
        folder.publish()
    assert (precious / "file").read_bytes() == b"keep me"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["out", "precious"]


@posix
def test_does_not_remove_a_folder_that_replaced_ours(tmp_path):
    path = hidden(tmp_path / "out", hidden_files.FOLDER)

    def replaced_meanwhile():
        with HiddenFolder(tmp_path / "out"):
            path.rename(tmp_path / "ours")
            path.mkdir()
            (path / "file").write_bytes(b"keep me")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replaced_meanwhile()
    assert (path / "file").read_bytes() == b"keep me"


@posix
def test_folder_with_private_sources_is_private(tmp_path):
    limit = ReadersLimit(((0o100600, os.geteuid(), os.getegid()),))
    with HiddenFolder(tmp_path / "out", limit) as folder:
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        folder.publish()
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o700
    with HiddenFolder(tmp_path / "plain", NO_LIMIT) as folder:
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o755
    assert not (tmp_path / "plain").exists()


@posix
def test_removes_its_folder_if_the_system_cannot_say_whose_it_is(tmp_path, monkeypatch):
    def failing(*_):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(folders, "is_at", failing)
    with pytest.raises(OSError, match="broken"), HiddenFolder(tmp_path / "out"):
        pass
    assert not list(tmp_path.iterdir())


@posix
def test_does_not_replace_a_folder_that_another_process_published_meanwhile(tmp_path, monkeypatch):
    lock = folders.lock

    def late(descriptor):
        path = hidden(tmp_path / "out", hidden_files.FOLDER)
        (path / "file").write_bytes(b"keep me")
        path.rename(tmp_path / "out")
        return lock(descriptor)

    monkeypatch.setattr(folders, "lock", late)
    with pytest.raises(OutputError, match="another process"), HiddenFolder(tmp_path / "out"):
        pass
    assert (tmp_path / "out" / "file").read_bytes() == b"keep me"
