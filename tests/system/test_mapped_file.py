"""Files are read as they were opened, and later changes are noticed."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ggufkit._native as _native
from ggufkit.errors import ClosedError, FormatError
from ggufkit.system import descriptors, mapped_file
from ggufkit.system.mapped_file import MappedBytes, MappedFile
from platforms import CONTENT, FALLBACKS, posix


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "input"
    path.write_bytes(CONTENT)
    os.utime(path, ns=(0, 0))  # so that any change shows in the time, however quick
    return path


@pytest.fixture
def target(tmp_path):
    descriptor = os.open(tmp_path / "target", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def content_of(descriptor):
    return os.pread(descriptor, 1 << 20, 0)


@pytest.fixture(params=FALLBACKS)
def fallback(request, monkeypatch):
    for name, value in FALLBACKS[request.param].items():
        monkeypatch.setattr(descriptors, name, value)


def open_descriptors():
    return {path.name for path in Path("/proc/self/fd").iterdir() if path.exists()}


def test_view_shares_the_memory_of_the_map(path):
    file = MappedFile(path)
    view = file.view(3, 100)
    assert view.tobytes() == CONTENT[3:103]
    assert np.shares_memory(view, np.frombuffer(file.data, np.uint8))
    assert not view.flags.writeable


def test_read_returns_a_copy(path):
    file = MappedFile(path)
    copied = file.read(3, 100)
    assert copied.tobytes() == CONTENT[3:103]
    assert not np.shares_memory(copied, np.frombuffer(file.data, np.uint8))


@pytest.mark.parametrize("size", [0, 1])
def test_reading_zero_bytes_returns_no_bytes(tmp_path, size):
    (tmp_path / "small").write_bytes(b"x" * size)
    file = MappedFile(tmp_path / "small")
    assert file.nbytes == size
    assert file.view(size, 0).tobytes() == file.read(size, 0).tobytes() == b""


def test_missing_file_raises_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        MappedFile(tmp_path / "missing")


@posix
def test_refuses_what_is_not_a_regular_file_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path(os.devnull)):
        with pytest.raises(OSError, match="not a regular file"):
            MappedFile(path)


def test_closed_file_cannot_be_read(path, target):
    file = MappedFile(path)
    data = file.view(0, 10)
    file.close()
    file.close()
    for use in (
        lambda: file.view(0, 10),
        lambda: file.view(0, 0),
        lambda: file.read(0, 10),
        lambda: file.copy(0, 10, target, 0),
    ):
        with pytest.raises(ClosedError, match="was closed"):
            use()
    assert data.tobytes() == CONTENT[:10]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_closing_is_no_error_where_the_system_cannot_tell_the_size(path, monkeypatch):
    def failing(_):
        raise OSError(5, "Input/output error")

    file = MappedFile(path)
    monkeypatch.setattr(MappedBytes, "size", failing)
    file.close()
    assert file.closed


def test_the_beginning_is_copied_at_the_end_only_if_it_is_no_gigabyte(path, monkeypatch):
    monkeypatch.setattr(mapped_file, "MAX_KEPT_BYTES", 4)
    heads = []
    for kept_bytes in (4, 5):
        file = MappedFile(path)
        file.kept_bytes = kept_bytes
        file.close()
        heads.append(file.data.head)
        if kept_bytes > mapped_file.MAX_KEPT_BYTES:
            with pytest.raises(ClosedError, match="closed before"), mapped_file.view(file.data):
                pass
    assert heads == [path.read_bytes()[:4], None]


def test_closing_while_another_thread_asks_for_a_view_is_said_so(path, monkeypatch):
    file = MappedFile(path)
    monkeypatch.setattr(file, "_watch", file.close)  # at the last moment
    with pytest.raises(ClosedError, match="was closed"):
        file.view(0, 8)


def test_descriptors_are_closed_with_the_file(path):
    gc.collect()  # what earlier tests left goes now
    before = open_descriptors()
    file = MappedFile(path)
    file.read(0, 10)
    assert len(open_descriptors()) > len(before)
    file.close()
    assert open_descriptors() == before
    file = MappedFile(path)
    del file
    gc.collect()
    assert open_descriptors() == before


@posix
@pytest.mark.parametrize("lose", [Path.unlink, lambda path: path.rename(path.with_name("moved"))])
def test_deleted_file_stays_readable(path, target, lose):
    file = MappedFile(path)
    lose(path)
    path.write_bytes(b"something else")
    assert file.read(0, file.nbytes).tobytes() == CONTENT
    assert file.view(0, file.nbytes).tobytes() == CONTENT
    file.copy(0, file.nbytes, target, 0)
    assert content_of(target) == CONTENT


def test_relative_path_survives_a_change_of_folder(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    file = MappedFile(Path(path.name))
    monkeypatch.chdir("/")
    assert file.read(0, 10).tobytes() == CONTENT[:10]


def overwrite(path):
    with path.open("r+b") as file:
        file.write(b"!")


CHANGES = {
    "cut": lambda path: os.truncate(path, 10),
    "emptied": lambda path: os.truncate(path, 0),
    "grown": lambda path: os.truncate(path, len(CONTENT) + 1),
    "overwritten": overwrite,
}


@posix
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.usefixtures("fallback")
def test_notices_a_changed_file(path, target, change):
    file = MappedFile(path)
    CHANGES[change](path)
    for use in (lambda: file.read(0, 10000), lambda: file.copy(0, 10000, target, 0)):
        with pytest.raises(FormatError, match="changed while it was in use") as caught:
            use()
        assert caught.value.path == str(path)


def test_recognizes_the_same_file_under_any_name(path, tmp_path):
    (tmp_path / "soft").symlink_to(path)
    os.link(path, tmp_path / "hard")
    (tmp_path / "twin").write_bytes(CONTENT)
    file = MappedFile(path)
    assert [file.same_file(tmp_path / name) for name in ("input", "soft", "hard")] == [True] * 3
    assert [file.same_file(tmp_path / name) for name in ("twin", "none")] == [False] * 2


# Maps that are cut. A signal would end the process, so each case has its own.

PRELUDE = """
import ctypes, faulthandler, mmap, os, signal, sys
from pathlib import Path
import numpy as np
from ggufkit.system.mapped_file import MappedFile

def cut(path):
    os.truncate(path, 0)

def address_of(file):
    return np.frombuffer(file.data, np.uint8).ctypes.data

def last_byte(file):
    try:
        with file.unchanged():
            return file.data[-1]
    except Exception as error:
        return type(error).__name__

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_size_t]

def another_library_maps(address, nbytes, path):
    open(path, "wb").write(bytes(nbytes))
    descriptor = os.open(path, os.O_RDONLY)
    fixed = 0x10  # MAP_FIXED on Linux and macOS
    made = libc.mmap(address, nbytes, mmap.PROT_READ, mmap.MAP_SHARED | fixed, descriptor, 0)
    assert made == address
    cut(path)

path, other = map(Path, sys.argv[1:])
"""
CASES = {
    # The code, how the process ends, what it prints, and what it says on the way.
    "another handler comes after the map": (
        "file = MappedFile(path); faulthandler.enable(); cut(path); print(last_byte(file))",
        (0, "FormatError", ""),
    ),
    "another handler was there before": (
        "faulthandler.enable(); file = MappedFile(path); cut(path); print(last_byte(file))",
        (0, "FormatError", ""),
    ),
    "a handler goes and takes ours with it": (
        (
            "faulthandler.enable(); file = MappedFile(path); faulthandler.disable(); cut(path);"
            "print(last_byte(file))"
        ),
        (0, "FormatError", ""),
    ),
    "handlers take turns": (
        (
            "files = [MappedFile(path)]\n"
            "for _ in range(5):\n"
            "    faulthandler.enable(); files.append(MappedFile(path)); faulthandler.disable()\n"
            "    faulthandler.enable(); files[0].view(0, 1)\n"
            "cut(path); print(*{last_byte(file) for file in files})"
        ),
        (0, "FormatError", ""),
    ),
    "a closed map is not ours any more": (
        (
            "file = MappedFile(path); at = address_of(file); file.close();"
            "another_library_maps(at, file.nbytes, other); print(ctypes.string_at(at, 1))"
        ),
        (-signal.SIGBUS, "", ""),
    ),
    "a forgotten map is not ours any more": (
        (
            "file = MappedFile(path); at, size = address_of(file), file.nbytes; del file;"
            "another_library_maps(at, size, other); print(ctypes.string_at(at, 1))"
        ),
        (-signal.SIGBUS, "", ""),
    ),
    "a map that arrays look into stays guarded when it is closed": (
        (
            "file = MappedFile(path); view = file.view(0, file.nbytes); file.close(); cut(path);"
            "print(view[-1])"
        ),
        (0, "0", ""),
    ),
    "a fault elsewhere goes to the handler from before": (
        (
            "faulthandler.enable(); file = MappedFile(path); kept = mmap.mmap(-1, 1 << 16);"
            "at = np.frombuffer(kept, np.uint8).ctypes.data;"
            "another_library_maps(at, 1 << 16, other);"
            "print(ctypes.string_at(at, 1))"
        ),
        (-signal.SIGBUS, "", "Bus error"),
    ),
    "a fault elsewhere goes to the handler that came after": (
        (
            "file = MappedFile(path); faulthandler.enable(); file.view(0, 1);"
            "kept = mmap.mmap(-1, 1 << 16); at = np.frombuffer(kept, np.uint8).ctypes.data;"
            "another_library_maps(at, 1 << 16, other); print(ctypes.string_at(at, 1))"
        ),
        (-signal.SIGBUS, "", "Bus error"),
    ),
    "a bus error that is sent ends the process": (
        "file = MappedFile(path); os.kill(os.getpid(), signal.SIGBUS); print(1)",
        (-signal.SIGBUS, "", ""),
    ),
}


@pytest.mark.skipif(not hasattr(_native, "MapGuard"), reason="maps are not guarded here")
@pytest.mark.parametrize("case", CASES)
def test_handles_only_bus_errors_of_our_maps(path, tmp_path, case):
    code, (ended, printed, errors) = CASES[case]
    command = [sys.executable, "-c", PRELUDE + code, str(path), str(tmp_path / "other")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (ended, printed), done.stderr
    assert done.stderr.count("Fatal Python error") == bool(errors)
    assert errors in done.stderr


def test_map_that_outlives_python_leaks_no_guard(path):
    code = (
        "import ctypes, pathlib, ggufkit.system.mapped_file as m\n"
        f"data = m.MappedFile(pathlib.Path({str(path)!r})).private()\n"
        "ctypes.pythonapi.Py_IncRef(ctypes.py_object(data))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
