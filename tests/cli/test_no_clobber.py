"""--no-clobber: no command replaces an existing output."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit as api
from ggufkit.errors import OutputError
from ggufkit.imatrix import Entry, Imatrix
from ggufkit.system import hidden_files
from ggufkit.system.staging import Staging
from shell import done
from shell import ggufkit as run
from small_llama import keys, tensors

COMMANDS = {
    "copy": ("copy", "in.gguf", "OUT"),
    "shards": ("copy", "in.gguf", "OUT", "--shard-tensors", "6"),
    "quantize": ("quantize", "in.gguf", "OUT", "Q8_0"),
    "several": ("quantize", "in.gguf", "OUT-{recipe}.gguf", "Q8_0,F16"),
    "select": ("select", "in.gguf", "OUT"),
    "edit": ("edit", "in.gguf", "--set", "general.name=x", "--output", "OUT"),
    "convert": ("imatrix", "convert", "matrix.gguf", "OUT"),
    "merge": ("imatrix", "merge", "matrix.gguf", "matrix.gguf", "-o", "OUT"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    api.save("in.gguf", tensors(), keys())
    entry = Entry(np.ones((1, 32), np.float32), np.array([1], np.int64))
    Imatrix({"blk.0.ffn_up.weight": entry}, ("t",), 1, 512).save("matrix.gguf")
    return tmp_path


@pytest.mark.parametrize("case", COMMANDS)
def test_no_clobber_stops_every_command_from_replacing_a_file(case, folder):
    words = [word.replace("OUT", "out.gguf" if word == "OUT" else "out") for word in COMMANDS[case]]
    before = set(folder.iterdir())
    done(*words, "--no-clobber")
    (output, *_) = sorted(set(folder.iterdir()) - before)
    output.write_bytes(b"mine")
    result = run(*words, "--no-clobber")
    assert result.code == 1
    assert "exists already" in result.err
    assert "leave out --no-clobber" in result.err
    assert output.read_bytes() == b"mine"
    done(*words)
    assert output.read_bytes() != b"mine"


def test_no_clobber_stops_the_library_from_replacing_a_file(folder):
    with api.open("in.gguf") as model:
        with pytest.raises(OutputError, match="exists already"):
            api.write(model, folder / "matrix.gguf", clobber=False)
        (folder / "link").symlink_to("nowhere")
        with pytest.raises(OutputError, match="exists already"):
            api.write(model, folder / "link", clobber=False)
        api.write(model, folder / "new.gguf", clobber=False)


@pytest.mark.parametrize("name", ["out.gguf", "out.dat"])
def test_importance_matrix_replaces_no_file_that_appears_during_the_write(
    folder, monkeypatch, name
):
    publish = Staging.publish

    def appears(stage):
        (folder / name).write_bytes(b"theirs")
        publish(stage)

    monkeypatch.setattr(Staging, "publish", appears)
    result = run("imatrix", "convert", "matrix.gguf", name, "--no-clobber")
    assert result.code == 1
    assert "exists already" in result.err
    assert (folder / name).read_bytes() == b"theirs"


def test_every_command_that_writes_a_model_has_no_clobber():
    for name in ("copy", "quantize", "select", "edit", "convert", "convert-legacy"):
        assert "--no-clobber" in done(name, "--help").out
    for name in ("merge", "convert", "compute"):
        assert "--no-clobber" in done("imatrix", name, "--help").out


@pytest.mark.parametrize("has_call", [True, False])
@pytest.mark.parametrize("shards", [None, 6])
def test_file_that_appears_during_the_write_is_not_replaced(folder, monkeypatch, shards, has_call):
    if not has_call:
        monkeypatch.setattr(hidden_files, "renameat2", None)
    (folder / "try").mkdir()
    with api.open("in.gguf") as model:
        name = api.write(model, folder / "try" / "out.gguf", shard_tensors=shards)[0].name
    target = folder / name

    def appears(done, total):
        target.write_bytes(b"theirs")

    options = {"clobber": False, "progress": appears, "shard_tensors": shards}
    with api.open("in.gguf") as model, pytest.raises(OutputError, match="exists already"):
        api.write(model, folder / "out.gguf", **options)
    assert target.read_bytes() == b"theirs"
    assert sorted(path.name for path in folder.iterdir()) == ["in.gguf", "matrix.gguf", name, "try"]
