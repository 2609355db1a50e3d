"""Every command that reads a model can read it from a pipe."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading

import pytest

import ggufkit as api
import legacy_files
import small_llama
from ggufkit.cli import pipes
from shell import done, ggufkit, process

pty = pytest.importorskip("pty", reason="terminals as POSIX has them")
pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes as POSIX has them")


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.gguf"
    api.save(path, small_llama.tensors(), small_llama.keys(**{"general.name": "Piped"}))
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder that keeps data from pipes."""
    original = tmp_path / "kept"
    original.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(original))
    return original


@contextlib.contextmanager
def standard_input(descriptor):
    before = os.dup(0)
    os.dup2(descriptor, 0)
    os.close(descriptor)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


def sent(data, *words):
    """Run a command that reads `data` from a pipe, and return its result."""
    ours, theirs = os.pipe()

    def send():
        with contextlib.suppress(BrokenPipeError), os.fdopen(theirs, "wb") as pipe:
            pipe.write(data)

    sender = threading.Thread(target=send)
    with standard_input(ours):
        sender.start()
        result = ggufkit(*words)
    sender.join()
    return result


COMMANDS = {
    "inspect": ("inspect", "IN", "--key", "general.name"),
    "bytes": ("inspect", "IN", "--bytes"),
    "check": ("check", "IN"),
    "plan": ("plan", "IN", "--json"),
    "estimate": ("estimate", "IN", "--context", "64", "--json"),
    "hash": ("hash", "IN", "--name", "in", "--all", "--content"),
    "diff": ("diff", "IN", "FILE"),
    "dry run": ("quantize", "IN", "Q8_0", "--dry-run"),
    "copy": ("copy", "IN", "-", "--alignment", "64"),
    "select": ("select", "IN", "-", "--drop", "blk.1.*"),
    "graft": ("select", "FILE", "-", "--graft", "IN:blk.1.*"),
    "edit": ("edit", "IN", "--set", "general.name=y", "--output", "-"),
    "quantize": ("quantize", "IN", "-", "Q8_0"),
    "like": ("quantize", "FILE", "-", "--like", "IN"),
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_pipe_gives_the_same_result_as_a_file(source, folder, words):
    def source_for(name):
        return [word.replace("IN", name).replace("FILE", str(source)) for word in words]

    by_name, by_pipe = (
        ggufkit(*source_for(str(source))),
        sent(source.read_bytes(), *source_for("-")),
    )
    output = by_pipe.raw.replace(b"/dev/stdin", bytes(source))
    assert (by_pipe.code, by_pipe.err) == (by_name.code, by_name.err)
    assert output == by_name.raw
    assert by_name.code == (1 if words[0] == "diff" and by_name.out != "no difference\n" else 0)
    assert not list(folder.iterdir())


def test_file_redirected_to_standard_input_is_read_in_place(source, folder, monkeypatch):
    monkeypatch.setattr(pipes.tempfile, "TemporaryFile", None)
    with standard_input(os.open(source, os.O_RDONLY)):
        assert done("inspect", "-", "--key", "general.name").lines == ["Piped"]


def test_partly_read_standard_input_continues_at_its_position(source):
    descriptor = os.open(source, os.O_RDONLY)
    os.lseek(descriptor, 4, os.SEEK_SET)
    with standard_input(descriptor):
        assert "not with the magic bytes" in ggufkit("inspect", "-").err


def test_command_restores_standard_input(source):
    ours, theirs = os.pipe()
    os.write(theirs, b"text")
    os.close(theirs)
    with standard_input(ours):
        ggufkit("inspect", "-")
        assert os.read(0, 1) == b""


def test_named_pipes_are_read_in_the_order_of_the_arguments(source, tmp_path):
    script = f"ggufkit diff <(cat '{source}') <(cat '{source}')"
    shell = f'ggufkit() {{ "$PYTHON" -m ggufkit "$@"; }}; {script}'
    ran = subprocess.run(
        ["bash", "-c", shell],
        env=os.environ | {"PYTHON": os.sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "no difference\n"), ran.stderr


def test_legacy_file_comes_through_a_pipe(tmp_path, folder):
    old = tmp_path / "ggml-model-f16.bin"
    legacy_files.write(old, "GGJT", 3)
    done("convert-legacy", old, tmp_path / "a.gguf")
    assert sent(old.read_bytes(), "convert-legacy", "-", tmp_path / "b.gguf").code == 0
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


def test_several_recipes_of_a_pipe_are_named_after_it(source, tmp_path):
    result = sent(source.read_bytes(), "quantize", "-", f"{tmp_path}/out/", "Q8_0,Q4_0")
    assert result.code == 0, result.err
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "stdin-Q8_0.gguf",
        "stdin-Q4_0.gguf",
    }


def test_does_not_keep_an_endless_stream_that_is_not_a_model(folder):
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as endless:
        assert endless.stdout
        with process("check", "-", stdin=endless.stdout) as command:
            endless.stdout.close()
            out = command.communicate(timeout=60)[0].decode()
    assert command.returncode == 1
    assert "this is text that begins with" in out


def test_empty_input_is_an_empty_file():
    assert "/dev/stdin: the file is empty" in sent(b"", "inspect", "-").err


def test_full_disk_error_names_the_folder_and_a_remedy(source, folder):
    resource = pytest.importorskip("resource")

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    with process("inspect", "-", stdin=subprocess.PIPE, preexec_fn=limit) as command:
        err = command.communicate(source.read_bytes())[1].decode()
    assert command.returncode == 1
    assert "of what comes through the pipe were kept in" in err
    assert "Set TMPDIR" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("diff", "-", "-"), "Use - only once"),
        (("edit", "-", "--chat-template", "-", "--output", "x.gguf"), "Use - only once"),
        (("edit", "-", "--set", "a.b=c"), "cannot be edited in place"),
        (("check", "-", "--fix"), "cannot be edited in place"),
        (("name", "-", "--rename"), "cannot be edited in place"),
    ],
)
def test_uses_that_a_pipe_does_not_support_are_wrong_usage(source, words, message):
    result = sent(source.read_bytes(), *words)
    assert result.code == 2
    assert message in result.err


def test_refuses_to_read_a_model_from_a_terminal():
    ours, theirs = pty.openpty()
    with standard_input(theirs):
        result = ggufkit("inspect", "-")
    os.close(ours)
    assert result.code == 2
    assert "pipe a model in" in result.err


def test_killed_command_leaves_nothing_behind(source, folder):
    """SIGKILL, in the middle of a stream."""
    with process("inspect", "-", stdin=subprocess.PIPE, env={"TMPDIR": str(folder)}) as command:
        assert command.stdin
        command.stdin.write(source.read_bytes() * 64)
        command.stdin.flush()
        command.kill()
    assert not list(folder.iterdir())


def test_keeps_standard_input_under_a_name_where_it_has_no_path(source, folder, monkeypatch):
    monkeypatch.setattr(pipes, "STDIN", "/dev/nothing-of-the-kind")
    assert sent(source.read_bytes(), "inspect", "-", "--key", "general.name").lines == ["Piped"]
    assert not list(folder.iterdir())


def test_completion_does_not_read_standard_input():
    words = {"COMP_WORDS": "ggufkit\ncopy\n-\n--alig", "COMP_CWORD": "3"}
    environment = words | {"_GGUFKIT_COMPLETE": "bash_complete"}
    with process(env=environment, stdin=subprocess.PIPE) as command:
        assert command.stdout
        assert command.stdout.read() == b"plain,--alignment\n"
