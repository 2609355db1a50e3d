from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import ggufkit as api
import llama_split
from shell import done, ggufkit, process

TENSORS = {f"blk.{i}.weight": np.full((25, 1000), i, np.float32) for i in range(6)}  # 100 000 bytes


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.gguf"
    api.save(path, TENSORS, {"general.architecture": "llama", "a.words": ["one", "two"]})
    return path


def written(result):
    """The names in the report, which must tell each file's size."""
    names = []
    for line in result.lines:
        name, _, size = line.removeprefix("wrote ").rpartition(" (")
        assert size == f"{Path(name).stat().st_size / 1000:.1f} kB)"
        names.append(Path(name).name)
    return names


def test_copy_without_options_gives_the_same_file(source):
    out = source.with_name("out.gguf")
    assert written(done("copy", source, out)) == ["out.gguf"]
    assert out.read_bytes() == source.read_bytes()


def test_split_and_merge_differ_only_by_the_keys_that_llama_cpp_leaves(source):
    merged = source.with_name("merged.gguf")
    names = written(done("copy", source, source.with_name("s.gguf"), "--shard-size", "250K"))
    assert names == [f"s-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    done("copy", source.with_name(names[2]), merged)
    with api.open(source) as before, api.open(merged) as after:
        removed = {key: after.metadata[key] for key in after.metadata if key not in before.metadata}
        assert removed == {"split.no": 0, "split.tensors.count": 6, "split.count": 0}
    assert done("diff", source, merged).code == 0


@pytest.mark.parametrize("is_first_empty", [False, True])
@pytest.mark.parametrize("limit", [{"size": 40_000_000}, {"tensors": 100}])
def test_shards_and_merged_file_match_llama_gguf_split(
    smollm2, llama_cpp, tmp_path, limit, is_first_empty
):
    ((option, number),) = limit.items()
    flags = ["--no-tensor-first-split"] if is_first_empty else []
    done("copy", smollm2, tmp_path / "s.gguf", f"--shard-{option}", number, *flags)
    paths = sorted(tmp_path.glob("s-*.gguf"))
    expected = llama_split.split(llama_cpp, smollm2, **limit, no_tensor_first_split=is_first_empty)
    assert len(paths) == len(expected)
    assert all(path.read_bytes() == data for path, data in zip(paths, expected, strict=True))
    done("copy", paths[0], tmp_path / "merged.gguf")
    assert (tmp_path / "merged.gguf").read_bytes() == llama_split.merge(llama_cpp, paths)


def test_tensors_with_leading_axes_of_one_are_split_as_by_llama_gguf_split(llama_cpp, tmp_path):
    source = tmp_path / "in.gguf"
    shapes = [(1, 1, 5), (3, 4), (1, 1), (2, 1, 7)]
    tensors = {f"t{i}": np.zeros(shape, np.float32) for i, shape in enumerate(shapes)}
    api.save(source, tensors, {"a.key": 1, "split.count": np.uint16(0), "b.key": 2})
    done("copy", source, tmp_path / "s.gguf", "--shard-tensors", 2)
    paths = sorted(tmp_path.glob("s-*.gguf"))
    assert [path.read_bytes() for path in paths] == llama_split.split(llama_cpp, source, tensors=2)
    done("copy", paths[0], tmp_path / "merged.gguf")
    assert (tmp_path / "merged.gguf").read_bytes() == llama_split.merge(llama_cpp, paths)


def test_shards_respect_the_tensor_limit(source):
    names = written(done("copy", source, source.with_name("s.gguf"), "--shard-tensors", 4))
    assert len(names) == 2
    assert len(api.open(source.with_name(names[0]), shards=False).tensors) == 4


def test_dry_run_lists_the_files_that_a_run_writes(source):
    words = ("copy", source, source.with_name("s.gguf"), "--shard-size", "250K")
    document = done(*words, "--dry-run", "--json").json()
    assert not list(source.parent.glob("s-*"))
    assert done(*words, "--json").json() == document
    assert [file["tensors"] for file in document["files"]] == [2, 2, 2]
    assert all(Path(file["path"]).stat().st_size == file["nbytes"] for file in document["files"])
    assert done(*words, "--dry-run").lines[1].split()[:2] == [document["files"][0]["path"], "2"]


def test_model_and_its_report_do_not_share_a_stream(source):
    assert ggufkit("copy", source, "-", "--json").code == 2
    assert done("copy", source, "-", "--json", "--dry-run").json()["files"][0]["path"] == "-"


@pytest.mark.parametrize(
    ("options", "attribute", "value"),
    [
        (("--alignment", 4096), "alignment", 4096),
        (("--endian", "big"), "byte_order", "big"),
        (("--version", "2"), "version", 2),
    ],
)
def test_changes_one_property_and_nothing_else(source, options, attribute, value):
    out, back = source.with_name("out.gguf"), source.with_name("back.gguf")
    done("copy", source, out, *options)
    with api.open(source) as before, api.open(out) as after:
        assert getattr(after, attribute) == value
        for name, tensor in before.tensors.items():
            assert np.array_equal(tensor.numpy(), after.tensors[name].numpy())
        assert list(after.metadata["a.words"]) == ["one", "two"]
    done("copy", out, back, "--alignment", 32, "--endian", "little", "--version", "3")
    with api.open(back) as model:
        api.write(
            model.replace(metadata=model.metadata.without("general.alignment", missing_ok=True)),
            source.with_name("plain.gguf"),
        )
    assert source.with_name("plain.gguf").read_bytes() == source.read_bytes()


def test_pipe_gets_the_same_bytes(source):
    with process("copy", source, "-") as command:
        piped, errors = command.communicate()
    assert piped == source.read_bytes()
    assert not errors


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes as POSIX has them")
def test_writes_to_a_named_pipe_without_replacing_it(source):
    fifo = source.with_name("fifo")
    os.mkfifo(fifo)
    read = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()))
    reader.start()
    done("copy", source, fifo)
    reader.join(30)
    assert read == [source.read_bytes()]
    assert fifo.is_fifo()


def test_model_is_not_written_to_a_terminal(source):
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    with process("copy", source, "-", stdout=theirs) as command:
        _, errors = command.communicate()
    os.close(ours)
    os.close(theirs)
    assert command.returncode == 2
    assert b"redirect" in errors


def test_progress_is_shown_on_a_terminal(source):
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    script = (
        "import sys; from ggufkit.cli import main, progress; progress.BAR_SECONDS = 0; "
        "sys.argv = ['ggufkit', 'copy', *sys.argv[1:]]; main()"
    )
    command = [sys.executable, "-c", script, source, source.with_name("out.gguf")]
    subprocess.run(command, stderr=theirs, check=True)
    text = os.read(ours, 65536).decode()
    os.close(ours)
    os.close(theirs)
    assert "100%" in text
    assert "B/s" in text


def test_refuses_to_write_shards_to_a_pipe(source):
    with process("copy", source, "-", "--shard-tensors", 1) as command:
        piped, errors = command.communicate()
    assert command.returncode == 1
    assert not piped
    assert b"cannot hold several shards" in errors


@pytest.mark.parametrize(
    "options",
    [("--alignment", 12), ("--alignment", 4), ("--shard-tensors", 0), ("--shard-size", "0")],
)
def test_impossible_numbers_are_errors_and_write_nothing(source, options):
    result = ggufkit("copy", source, source.with_name("out.gguf"), *options)
    assert result.code == 1
    assert len(result.err.splitlines()) == 2
    assert list(source.parent.iterdir()) == [source]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_full_device_is_an_error(source):
    result = ggufkit("copy", source, "/dev/full")
    assert result.code == 1
    assert "No space left" in result.err


def test_real_model_is_split_and_merged_by_select_to_the_same_bytes(smollm2, tmp_path):
    shards = written_paths(done("copy", smollm2, tmp_path / "s.gguf", "--shard-size", "40M"))
    assert len(shards) == 3
    done("select", shards[1], tmp_path / "merged.gguf")
    assert (tmp_path / "merged.gguf").read_bytes() == smollm2.read_bytes()


def written_paths(result):
    return [line.removeprefix("wrote ").rpartition(" (")[0] for line in result.lines]


@pytest.mark.parametrize(("out", "is_made"), [("folder", True), ("folder/", False)])
def test_a_copy_into_a_folder_is_called_like_its_source(source, tmp_path, out, is_made):
    if is_made:
        (tmp_path / "folder").mkdir()
    done("copy", source, f"{tmp_path}/{out}", "--shard-tensors", 3)
    names = ["in-00001-of-00002.gguf", "in-00002-of-00002.gguf"]
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == names
    done("copy", tmp_path / "folder" / names[0], f"{tmp_path}/{out}")
    assert api.open(tmp_path / "folder" / "in.gguf")["blk.5.weight"].numpy()[0, 0] == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "in.gguf"]
