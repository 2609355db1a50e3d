from __future__ import annotations

import importlib
import os
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import ggufkit as api
from ggufkit.cli import commands, llama_names
from ggufkit.cli.app import COMMANDS, SUMMARIES
from ggufkit.cli.options import parse_size
from ggufkit.cli.output import size
from shell import done, ggufkit, process

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.gguf"
    weights = np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32)
    api.save(path, {"x.weight": weights, "x.bias": weights[0]}, {"general.name": "small"})
    return path


@pytest.fixture
def large(tmp_path):
    """A model of 1 GiB that takes no space on disk and a while to quantize."""
    path = tmp_path / "large.gguf"
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", 8) + b"x.weight"
    head += struct.pack("<IQQIQ", 2, 1024, 1 << 19, 1, 0)
    path.write_bytes(head.ljust(96, b"\0"))
    os.truncate(path, 96 + (1 << 30))
    return path


def imported(*arguments):
    """The modules that a command imports."""
    command = [sys.executable, "-X", "importtime", "-m", "ggufkit", *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    return {line.rpartition("|")[2].strip() for line in output.splitlines()}


# The command as such.


def test_version_does_not_import_numpy():
    assert done("--version").out == f"ggufkit {api.__version__}\n"
    assert not imported("--version") & {"numpy", "rich", "ggufkit._native"}


def test_rich_is_not_imported_where_nothing_shows_progress(model):
    assert "rich" not in imported("copy", str(model), str(model.with_name("copy.gguf")))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_examples_are_valid_commands(command):
    text = done(command, "--help").out
    examples = re.findall(r"^ +ggufkit ([\w-]+)", text.partition("Examples:")[2], re.MULTILINE)
    assert examples
    assert set(examples) == {command}


COMMON = {"--help", "--quiet", "--dialect"}  # docs/commands.md explains them


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_documented(command):
    page = (DOCS / f"{command}.md").read_text(encoding="utf-8")
    options = set(re.findall(r"--[\w-]+", done(command, "--help").out))
    assert {option for option in options - COMMON if option not in page} == set()


def test_the_table_has_each_module_once():
    modules = [path.stem for path in Path(commands.__file__).parent.glob("[a-z]*.py")]
    assert list(COMMANDS) == sorted(module.replace("_", "-") for module in modules)
    assert len(set(COMMANDS)) == len(COMMANDS)


@pytest.mark.parametrize(("section", "texts"), SUMMARIES.items())
def test_help_shows_each_command_in_its_section(section, texts):
    section_text = done("--help").out.partition(f"\n{section}:\n")[2].partition("\n\n")[0]
    assert (
        section_text.split() == " ".join(f"{name} {text}" for name, text in texts.items()).split()
    )


def test_help_imports_no_command():
    assert not {name for name in imported("--help") if "ggufkit.cli.commands" in name}


def test_mistyped_command_suggests_the_nearest():
    result = ggufkit("inspct", "x")
    assert result.code == 2
    assert "did you mean inspect?" in result.err


@pytest.mark.parametrize("command", llama_names.COMMANDS)
def test_command_of_another_tool_suggests_ours(command):
    result = ggufkit(command, "x.gguf")
    assert (result.code, result.out) == (2, "")
    assert f"ggufkit has no command {command!r}; use ggufkit " in result.err


@pytest.mark.parametrize(
    ("command", "option"),
    [(command, option) for command, options in llama_names.OPTIONS.items() for option in options],
)
def test_option_of_another_tool_suggests_ours(command, option):
    group = ("imatrix",) if command in ("merge", "compute") else ()
    result = ggufkit(*group, command, option, "x")
    assert result.code == 2
    assert f"{option} is not an option here; use " in result.err


def test_suggested_commands_and_options_exist():
    suggestions = [
        (c, text) for c, options in llama_names.OPTIONS.items() for text in options.values()
    ]
    suggestions += [("", text) for text in llama_names.COMMANDS.values()]
    for command, text in suggestions:
        paths = re.findall(r"ggufkit ([a-z]+(?: (?:merge|compute|show))?)", text)
        paths = paths or [f"imatrix {command}" if command in ("merge", "compute") else command]
        texts = "".join(done(*path.split(), "--help").out for path in paths)
        for option in re.findall(r"(?<!\S)--?[a-z][\w-]*", text):
            assert option in texts, (command, text)


def test_unknown_command_lists_all_commands():
    assert ", ".join(COMMANDS) in ggufkit("zzz").err


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect",),
        ("inspect", "a", "--nope"),
        ("quantize", "a", "b", "Q9_9"),
        ("copy", "a", "b", "--shard-size", "many"),
        ("copy", "a", "b", "--endian", "middle"),
        ("copy", "a", "b", "--threads", "0"),
    ],
)
def test_wrong_usage_exits_with_2_and_points_to_help(arguments):
    result = ggufkit(*arguments)
    assert result.code == 2
    assert "--help" in result.err
    assert not result.out


# Errors.


def test_error_has_one_message_and_a_remedy_on_its_own_line(model):
    model.write_bytes(model.read_bytes()[:-1000])
    result = ggufkit("hash", model)
    assert result.code == 1
    assert not result.out
    message, remedy = result.err.splitlines()
    assert message.startswith("error: ")
    assert "cut short" in message
    assert remedy.startswith("  ")


def test_missing_file_gives_one_error_and_a_remedy(tmp_path):
    result = ggufkit("inspect", tmp_path / "none.gguf")
    assert result.code == 1
    error, remedy = result.err.splitlines()
    assert error == f"error: {tmp_path / 'none.gguf'}: No such file or directory"
    assert remedy == "  Check the path; `ggufkit list` shows the models in the caches"


def test_control_characters_in_a_file_do_not_reach_the_terminal(tmp_path):
    evil = "\x1b]0;title\x07\x1b[2J\u202e"
    path = tmp_path / "evil.gguf"
    api.save(path, {f"{evil}.weight": np.zeros(4, np.float32)}, {"general.name": evil * 3})
    text = done("inspect", path).out + done("inspect", path, "--bytes").out
    text += ggufkit("inspect", path, "--key", evil).err
    text += done("quantize", path, path.with_name("out"), "Q8_0", "--dry-run").out
    assert r"\x1b]0;title\x07\x1b[2J\u202e" in text
    assert all(char.isprintable() or char == "\n" for char in text)


def test_no_color_is_respected(model):
    pty = pytest.importorskip("pty")
    for value, expects in (("1", False), ("", True)):
        ours, theirs = pty.openpty()
        with process("inspect", "none", stderr=theirs, env={"NO_COLOR": value}) as command:
            command.communicate()
        assert (b"\x1b[" in os.read(ours, 4096)) is expects
        os.close(ours)
        os.close(theirs)


def test_escapes_characters_that_the_terminal_cannot_show(tmp_path):
    api.save(tmp_path / "m.gguf", {}, {"general.name": "Ġ模型"})
    western = {"PYTHONIOENCODING": "cp1252"}
    out, err = process("inspect", tmp_path / "m.gguf", env=western).communicate()
    assert rb"\u0120\u6a21\u578b" in out
    assert not err


# Being stopped.


def staged(folder):
    return list(folder.glob(".*part*"))


def stop(command, folder, number):
    """Send a signal as soon as the command writes: its staging file has its size."""
    while not any(path.stat().st_size for path in staged(folder)):
        assert command.poll() is None, "it was done too soon"
        time.sleep(0.001)
    command.send_signal(number)
    return command.communicate(timeout=30)[1].decode()


@pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopping_leaves_nothing_behind(large, number, code):
    target = large.with_name("out.gguf")
    command = process("quantize", large, target, "Q8_0", "--threads", "1")
    errors = stop(command, large.parent, number)
    assert command.returncode == code
    assert "Traceback" not in errors
    assert list(large.parent.iterdir()) == [large]


@pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them")
def test_next_run_removes_what_a_killed_run_left(large, model):
    command = process("quantize", large, large.with_name("out.gguf"), "Q8_0", "--threads", "1")
    stop(command, large.parent, signal.SIGKILL)
    assert staged(large.parent)
    done("copy", model, model.with_name("copy.gguf"))
    assert not staged(large.parent)


def test_no_error_message_when_the_reader_closes_the_pipe(large):
    with process("copy", large, "-") as command:
        assert command.stdout.read(4) == b"GGUF"
        command.stdout.close()
        assert command.stderr.read() == b""
    assert command.returncode == 1


# Sizes.


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("1000", 1000),
        ("500M", 500_000_000),
        ("2G", 2_000_000_000),
        ("2g", 2_000_000_000),
        ("1.5GB", 1_500_000_000),
        ("512MiB", 512 << 20),
        ("2 GiB", 2 << 30),
        ("1T", 10**12),
        ("7KiB", 7 << 10),
        ("10b", 10),
    ],
)
def test_reads_a_size(text, nbytes):
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "M", "-1", "1e9", "5X", "5iB", "1,000", "1.M"])
def test_refuses_text_that_is_not_a_size(text):
    with pytest.raises(Exception, match="500M"):
        parse_size(text)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (98_362_368, "98.4 MB"),
        (4_661_212_000, "4.7 GB"),
        (10**13, "10.0 TB"),
    ],
)
def test_prints_a_size(nbytes, text):
    assert size(nbytes) == text


# The page of them all.


def test_exit_codes_match_the_documentation():
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    codes = re.findall(r"^\| (\d+) \|", page, re.MULTILINE)
    assert codes == ["0", "1", "2", str(128 + signal.SIGINT), str(128 + signal.SIGTERM)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_offers_completion_for_each_shell(shell):
    with process(env={"_GGUFKIT_COMPLETE": f"{shell}_source"}) as command:
        script, errors = command.communicate()
    if shell == "bash" and b"Bash version" in errors:
        pytest.skip("this bash is too old for completion")
    assert b"_GGUFKIT_COMPLETE" in script


@pytest.mark.parametrize("words", [(), ("imatrix",)])
def test_prints_the_help_if_no_command_is_given(words):
    result = ggufkit(*words)
    assert result.code in (0, 2)  # as the version of click has it
    lines = (result.out + result.err).splitlines()
    assert any(line.startswith("Usage: ggufkit") for line in lines)
    assert "\\n" not in result.err


@pytest.mark.parametrize("command", ["convert", "quantize"])
def test_help_shows_options_in_groups(command):
    groups = importlib.import_module(f"ggufkit.cli.commands.{command}").command.groups
    text = done(command, "--help").out
    for heading, options in groups.items():
        section = text.partition(f"\n{heading}:\n")[2].partition("\n\n")[0]
        assert all(f"{option}" in section for option in options)
    rest = text.partition("\nOptions:\n")[2].partition("\n\n")[0]
    assert re.findall(r"^  -(\w)", rest, re.MULTILINE) == ["q", "h"]  # all others are in a group


def test_an_output_is_an_argument_or_an_option(tmp_path):
    api.save(tmp_path / "in.gguf", {"a.weight": np.ones((2, 32), np.float32)}, {})
    for number, option in enumerate(("-o", "--output")):
        out = tmp_path / f"out{number}.gguf"
        done("copy", tmp_path / "in.gguf", option, out)
        assert out.read_bytes() == (tmp_path / "in.gguf").read_bytes()
    done("quantize", tmp_path / "in.gguf", "Q8_0", "-o", tmp_path / "q.gguf", "--pure")
    assert api.open(tmp_path / "q.gguf")["a.weight"].type.name == "Q8_0"
    result = ggufkit("copy", tmp_path / "in.gguf", tmp_path / "x.gguf", "-o", tmp_path / "y.gguf")
    assert (result.code, (tmp_path / "x.gguf").exists()) == (2, False)
