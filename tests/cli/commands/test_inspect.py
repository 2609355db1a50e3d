from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import ggufkit as api
from ggufkit.cli import output
from shell import done, ggufkit, process

TEMPLATE = "{% for m in messages %}\n\t{{ m }}\x1b[31m{% endfor %}"
METADATA = {
    "general.architecture": "llama",
    "general.name": "Tiny",
    "general.file_type": 7,
    "llama.block_count": 2,
    "llama.context_length": 4096,
    "llama.attention.head_count": [8, 4],
    "llama.attention.head_count_kv": 2,
    "llama.expert_count": 8,
    "llama.expert_used_count": 2,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": [f"token {i}" for i in range(1000)],
    "tokenizer.chat_template": TEMPLATE,
    "a.nan": float("nan"),
    "a.bytes": b"\xff\xfe".decode("utf-8", "surrogateescape"),
    "a.long": "word " * 1000,
}
WEIGHTS = np.ones((8, 64), np.float32)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "m.gguf"
    api.save(path, {"a.weight": (WEIGHTS, "Q8_0"), "a.bias": WEIGHTS[0]}, METADATA)
    return path


@pytest.fixture
def shards(path):
    with api.open(path) as model:
        return api.write(model, path.with_name("s.gguf"), shard_tensors=1)


def facts(result):
    """The lines before the first empty one, as a mapping."""
    lines = result.out.partition("\n\n")[0].splitlines()
    return dict(re.split(r"  +", line, maxsplit=1) for line in lines)


def test_most_important_facts_come_first(path):
    assert facts(done("inspect", path)) == {
        "architecture": "llama",
        "name": "Tiny",
        "parameters": "576 (576)",
        "recipe": "Q8_0",
        "types": "Q8_0 88.9% (1), F32 11.1% (1)",
        "bits per weight": "11.11",
        "context": "4,096",
        "layers": "2",
        "heads": "4 to 8, by layer (keys and values: 2)",
        "experts": "8 (used for a token: 2)",
        "vocabulary": "1,000",
        "tokenizer": "gpt2",
        "chat template": r"{% for m in messages %}\n\t{{ m }}\x1b[31m{% endfor %}",
        "format": "GGUF version 3, little endian, aligned to 32 bytes",
        "file": f"{path} ({path.stat().st_size / 1000:.1f} kB)",
    }


def test_every_key_and_tensor_has_a_line(path):
    lines = done("inspect", path).lines
    with api.open(path) as model:
        for key in model.metadata:
            (line,) = (line for line in lines if line.startswith(f"{key} "))
            assert line.split()[1] == model.metadata.type_name(key)
        for name, tensor in model.tensors.items():
            (line,) = (line for line in lines if line.startswith(f"{name} "))
            assert line.replace(" x ", "x").split() == [
                name,
                "x".join(map(str, tensor.shape)),
                tensor.type.name,
                f"{tensor.nbytes:,}",
                f"{tensor.offset:,}",
            ]


def test_long_values_are_shortened_with_a_mark(path):
    lines = done("inspect", path).lines
    assert max(map(len, lines)) <= 120
    (tokens,) = (line for line in lines if line.startswith("tokenizer.ggml.tokens"))
    assert "'token 0', 'token 1', " in tokens
    assert tokens.endswith(", ... (1,000)")
    (text,) = (line for line in lines if line.startswith("a.long"))
    assert text.endswith("... (5,000 characters)")


def test_set_of_shards_is_one_model(path, shards):
    result = done("inspect", shards[1])
    assert facts(result)["parameters"] == facts(done("inspect", path))["parameters"]
    assert [line.split()[-1] for line in result.lines[-2:]] == [shard.name for shard in shards]
    assert done("inspect", path.with_name(shards[0].name)).out == result.out


@pytest.mark.parametrize("metadata", [{}, {"general.architecture": 1}, {"a": np.empty(0, "u1")}])
def test_shows_a_file_without_metadata(tmp_path, metadata):
    api.save(tmp_path / "bare.gguf", {}, metadata)
    assert facts(done("inspect", tmp_path / "bare.gguf"))["parameters"] == "0 (0)"


# One value.


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("general.name", "Tiny"),
        ("llama.context_length", "4096"),
        ("llama.attention.head_count", "[8, 4]"),
        ("a.nan", '"NaN"'),
    ],
)
def test_key_prints_one_value(path, key, text):
    assert done("inspect", path, "--key", key).out.rstrip("\n") == text


@pytest.mark.parametrize("key", ["tokenizer.chat_template", "a.bytes", "a.long"])
def test_key_writes_the_exact_bytes_of_a_string_to_a_pipe(path, key):
    expected = METADATA[key].encode("utf-8", "surrogateescape")  # and no newline of ours
    assert done("inspect", path, "--key", key).raw == expected


def test_key_sends_no_control_characters_to_a_terminal(path):
    pty = pytest.importorskip("pty")
    import os

    ours, theirs = pty.openpty()
    with process("inspect", path, "--key", "tokenizer.chat_template", stdout=theirs) as command:
        command.communicate()
    text = os.read(ours, 4096).decode()
    os.close(ours)
    os.close(theirs)
    assert text.splitlines() == TEMPLATE.replace("\t", r"\t").replace("\x1b", r"\x1b").split("\n")


def test_key_with_json_shows_the_type(path):
    result = done("inspect", path, "--key", "llama.expert_count", "--json")
    assert result.json() == {"type": "uint32", "value": 8}


def test_missing_key_suggests_the_nearest(path):
    result = ggufkit("inspect", path, "--key", "general.nam")
    assert result.code == 1
    assert "Did you mean 'general.name'?" in result.err


# JSON.


def test_json_is_one_complete_document(path):
    result = done("inspect", path, "--json")
    document = result.json()
    assert len(result.lines) == 1
    assert result.out.isascii()
    assert list(document) == [
        "version", "byte_order", "alignment", "files", "missing", "summary", "metadata",
        "tensors",
    ]  # fmt: skip
    assert document["summary"]["heads"] == [8, 4]
    values = {key: value["value"] for key, value in document["metadata"].items()}
    added = {"a.nan": "NaN", "general.quantization_version": 2}
    assert values == METADATA | added
    assert [tensor["name"] for tensor in document["tensors"]] == ["a.weight", "a.bias"]


def test_json_of_shards_gives_the_place_of_each_tensor(shards):
    document = done("inspect", shards[0], "--json").json()
    assert [file["path"] for file in document["files"]] == [str(shard) for shard in shards]
    assert [tensor["file"] for tensor in document["tensors"]] == [str(shard) for shard in shards]


def test_summary_keys_match_the_documentation(path):
    from pathlib import Path

    page = (Path(__file__).parents[3] / "docs" / "inspect.md").read_text(encoding="utf-8")
    documented = page.partition('"summary": {')[2].partition('"metadata"')[0]
    share = {"tensors", "elements", "nbytes", "type"}
    names = set(re.findall(r'"(\w+)"', documented)) - share
    assert names == set(done("inspect", path, "--json").json()["summary"])


# Bytes.


def test_bytes_show_the_header_as_stored(path):
    lines = done("inspect", path, "--bytes").lines
    assert lines[0] == f"00000000  {'47 47 55 46':47}  magic"
    content = path.read_bytes()
    for line in lines:
        if not line.startswith(" "):
            offset, row = int(line[:8], 16), bytes.fromhex(line[10:57])
            assert content[offset : offset + len(row)] == row


def test_bytes_of_a_damaged_file_end_at_the_error(path):
    path.write_bytes(path.read_bytes()[:200])
    result = ggufkit("inspect", path, "--bytes")
    assert result.code == 1
    assert any("  ERROR: " in line for line in result.lines)
    assert result.err.startswith("error: ")


def test_bytes_as_json(path):
    fields = done("inspect", path, "--bytes", "--json").json()
    assert fields[0] == {"offset": 0, "nbytes": 4, "bytes": "47475546", "meaning": "magic"}
    assert sum(field["nbytes"] for field in fields) == path.stat().st_size


def test_key_and_bytes_exclude_each_other(path):
    assert ggufkit("inspect", path, "--key", "a", "--bytes").code == 2


@pytest.mark.parametrize("ends", [("\n", ""), ("\r\n", "\r\n"), ("\r", "\n"), ("\n", "\n\n")])
def test_shown_value_can_be_stored_again_with_any_line_endings(tmp_path, ends):
    path, text = tmp_path / "m.gguf", tmp_path / "t.jinja"
    between, last = ends
    template = f"{{{{ 1 }}}}{between}{{{{ 2 }}}}{last}"
    api.save(path, {}, {"tokenizer.chat_template": template.replace("\r\n", "\n").rstrip("\n")})
    text.write_bytes(template.encode())
    result = done("edit", path, "--chat-template", text)
    with api.open(path) as model:
        assert model.metadata["tokenizer.chat_template"] == template
    assert ("line ends" in result.out) == (ends != ("\n", "") and between != "\r")
    data = done("inspect", path, "--key", "tokenizer.chat_template").raw
    assert data == template.encode()
    text.write_bytes(data)
    assert "already has these values" in done("edit", path, "--chat-template", text).out


def test_several_keys_are_all_shown(path):
    keys = ("--key", "general.name", "--key", "llama.block_count", "--key", "general.name")
    assert done("inspect", path, *keys).out == "Tiny\n2\n"
    document = done("inspect", path, *keys, "--json").json()
    assert {key: one["value"] for key, one in document.items()} == {
        "general.name": "Tiny",
        "llama.block_count": 2,
    }


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize("width", [80, 100, 200])
def test_values_use_the_width_of_the_terminal(path, width):
    theirs, ours = os.openpty()
    size = {"COLUMNS": str(width), "LINES": "999", "NO_COLOR": "1"}
    with process("inspect", path, stdout=ours, env=size) as command:
        os.close(ours)
        output = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while piece := os.read(theirs, 1 << 16):
                output += piece
        os.close(theirs)
        assert command.wait() == 0
    (line,) = (line for line in output.decode().splitlines() if line.startswith("a.long"))
    assert width - 20 < len(line) <= width


@pytest.mark.skipif(sys.platform == "win32", reason="there is no bash")
def test_closed_pipe_is_not_a_failure(tmp_path):
    tensors = {f"blk.{i}.weight": np.ones(1, np.float32) for i in range(5000)}
    api.save(tmp_path / "m.gguf", tensors)
    line = f"set -o pipefail; {sys.executable} -m ggufkit inspect {tmp_path}/m.gguf | head -1"
    ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("parameters")


# Several files, and some tensors.


def test_several_files_are_shown_one_after_the_other(path):
    lines = done("inspect", path, path).lines
    places = [number for number, line in enumerate(lines) if line == f"{path}:"]
    assert places[0] == 0
    assert lines[places[1] - 1] == ""
    once = done("inspect", path).lines
    assert lines[1 : places[1] - 1] == once == lines[places[1] + 1 :]


def test_several_files_are_a_list_in_json(path):
    assert done("inspect", path, path, "--json").json() == 2 * [
        done("inspect", path, "--json").json()
    ]


def test_keys_of_several_files_stand_under_their_names(path):
    result = done("inspect", path, path, "--key", "general.name")
    assert result.lines == [f"{path}:", "Tiny", f"{path}:", "Tiny"]


def test_the_list_of_tensors_can_be_left_out(path):
    result = done("inspect", path, "--no-tensors")
    assert "a.weight" not in result.out
    assert "general.architecture" in result.out
    document = done("inspect", path, "--json").json()
    del document["tensors"]
    assert done("inspect", path, "--no-tensors", "--json").json() == document


@pytest.mark.parametrize("pattern", ["a.w*", "re:weight$", "a.weight"])
def test_only_tensors_that_match_are_listed(path, pattern):
    result = done("inspect", path, "--tensors", pattern)
    assert [line.split()[0] for line in result.lines] == ["TENSOR", "a.weight"]
    everything = done("inspect", path, "--json").json()["tensors"]
    document = done("inspect", path, "--tensors", pattern, "--json").json()
    assert document == [tensor for tensor in everything if tensor["name"] == "a.weight"]


def test_several_patterns_keep_the_order_of_the_file(path):
    lines = done("inspect", path, "--tensors", "a.b*", "--tensors", "*").lines
    assert [line.split()[0] for line in lines[1:]] == ["a.weight", "a.bias"]


def test_a_pattern_that_matches_nothing_is_an_error(path):
    result = ggufkit("inspect", path, "--tensors", "a.wait")
    assert (result.code, result.out) == (1, "")
    assert "no tensor matches 'a.wait'\n  Did you mean 'a.weight'?" in result.err


@pytest.mark.parametrize(
    "options",
    [
        ("--no-tensors", "--tensors", "*"),
        ("--key", "general.name", "--no-tensors"),
        ("--bytes", "--tensors", "*"),
    ],
)
def test_options_that_exclude_each_other_are_refused(path, options):
    result = ggufkit("inspect", path, *options)
    assert result.code == 2
    assert "not both" in result.err


def test_a_table_fits_the_terminal(path, monkeypatch):
    name = "blk.0." + 8 * "long_" + "name.weight"
    api.save(path, {name: WEIGHTS}, {})
    monkeypatch.setattr(output, "_terminal_columns", lambda: 70)
    lines = done("inspect", path, "--tensors", "*").lines
    assert max(map(len, lines)) <= 70
    assert "".join(line.split()[0] for line in lines[1:3]) == name
    monkeypatch.undo()
    assert name in done("inspect", path, "--tensors", "*").out


def test_json_of_a_long_text_is_whole_and_takes_little_memory(monkeypatch):
    text = 'ab"\n\u00e9\U0001f600\udcff' * (output.PIECE // 4)
    document = {"a": {"x": text, "y": [1, text[:9]]}, "b": {}, "c": None}
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stdout", printed)
    output.emit(document)
    assert printed.getvalue() == json.dumps(document) + "\n"
    with Path(os.devnull).open("w", encoding="utf-8") as null:
        monkeypatch.setattr(sys, "stdout", null)
        long_text = "a" * (64 << 20)
        tracemalloc.start()
        output.emit({"x": long_text})
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        tracemalloc.stop()
