"""A file, any shard of a set, or a folder opens as one model; errors name what is wrong."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ggufkit
import ggufkit._native as _native
from ggufkit.errors import FormatError, NotGGUFError, ShardError, TruncatedError
from ggufkit.models import open as open_module
from spelled import SpelledTensor, Spelling

posix = pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")
PAIRS = [("general.name", ("string", "set")), ("words", ("array", ("string", ["a", "b"])))]
TENSORS = [
    SpelledTensor(f"t{n}", (n + 1, 2), 0, struct.pack(f"<{2 * n + 2}f", *range(2 * n + 2)))
    for n in range(3)
]


def shard(number, *, count=3, total=3, tensors=None, form=None, pairs=None):
    """Return the bytes of a shard that holds one tensor, or those given."""
    split = [
        ("split.no", ("uint16", number)),
        ("split.count", ("uint16", count)),
        ("split.tensors.count", ("int32", total)),
    ]
    head = (PAIRS if number == 0 else []) if pairs is None else pairs
    infos = [TENSORS[number]] if tensors is None else tensors
    return (form or Spelling()).file([*head, *split], infos)


def write_set(folder, prefix="set", **changed):
    """Write three shards, those named in `changed` ("s1", …) with other bytes or not at all."""
    paths = []
    for number in range(3):
        path = folder / f"{prefix}-{number + 1:05d}-of-00003.gguf"
        content = changed.get(f"s{number}", shard(number))
        if content is not None:
            path.write_bytes(content)
        paths.append(path)
    return paths


def assert_is_the_set(model):
    assert list(model.metadata) == ["general.name", "words"]
    assert list(model.tensors) == ["t0", "t1", "t2"]
    for number, tensor in enumerate(model.tensors.values()):
        expected = np.arange(2 * number + 2, dtype=np.float32).reshape(2, number + 1)
        np.testing.assert_array_equal(tensor.numpy(), expected)


# Paths.


class PathEntry:
    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return str(self.path)


@pytest.fixture
def single(tmp_path):
    path = tmp_path / "single.gguf"
    path.write_bytes(Spelling().file(PAIRS, TENSORS))
    return path


@pytest.mark.parametrize(
    "kind", [Path, str, os.fsencode, PathEntry], ids=lambda kind: kind.__name__
)
def test_path_may_be_a_string_bytes_or_path_object(single, kind):
    with ggufkit.open(kind(single)) as model:
        assert_is_the_set(model)


def test_opens_relative_paths(single, monkeypatch):
    monkeypatch.chdir(single.parent)
    for path in ("single.gguf", "./single.gguf", "."):
        with ggufkit.open(path) as model:
            monkeypatch.chdir("/")
            assert_is_the_set(model)
        monkeypatch.chdir(single.parent)


@posix
def test_file_names_need_not_be_unicode(single):
    path = os.fsencode(single.parent) + b"/na\xffme.gguf"
    try:
        single.rename(os.fsdecode(path))
    except OSError:
        pytest.skip("this file system wants Unicode")
    for name in (path, os.fsdecode(path)):
        with ggufkit.open(name) as model:
            assert_is_the_set(model)


@pytest.mark.parametrize("path", ["", b"", "missing.gguf", "no/such/folder.gguf"])
def test_missing_file_raises_file_not_found(single, monkeypatch, path):
    monkeypatch.chdir(single.parent)
    with pytest.raises(FileNotFoundError):
        ggufkit.open(path)


@pytest.mark.parametrize("path", [None, 5, 1.5, ["a"]])
def test_refuses_a_path_of_the_wrong_type(path):
    with pytest.raises(TypeError):
        ggufkit.open(path)


def test_errors_in_a_file_name_the_file(single):
    content = single.read_bytes()
    cases = {
        TruncatedError: content[:-40],
        NotGGUFError: b"<html></html>",
        FormatError: content[:4] + b"\x09" + content[5:],
    }
    for error, broken in cases.items():
        single.write_bytes(broken)
        with pytest.raises(error) as caught:
            ggufkit.open(single)
        assert caught.value.path == str(single)
        assert caught.value.rule
        assert caught.value.offset is not None
        assert str(single) in str(caught.value)


OPEN_ONLY = """
import sys, ggufkit
ggufkit.open(sys.argv[1])
unwanted = {"click", "rich", "ggufkit.cli", "ggufkit.output.write", "ggufkit.checks.check"}
print(unwanted & set(sys.modules))
"""


def test_opening_imports_only_what_it_needs(single):
    command = [sys.executable, "-c", OPEN_ONLY, str(single)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "set()\n"


# Folders.


def test_folder_with_one_file_opens_that_file(single):
    (single.parent / "README.md").write_text("x")
    with ggufkit.open(single.parent) as model:
        assert_is_the_set(model)
        assert model.files[0].path == single


def test_folder_with_one_set_opens_that_set(tmp_path):
    paths = write_set(tmp_path)
    with ggufkit.open(tmp_path) as model:
        assert_is_the_set(model)
        assert [file.path for file in model.files] == paths


def test_refuses_a_folder_without_a_model(tmp_path):
    with pytest.raises(ShardError, match="holds no GGUF model"):
        ggufkit.open(tmp_path)


def test_error_for_a_folder_with_several_models_names_them(single):
    write_set(single.parent)
    with pytest.raises(ShardError, match=r"holds 2 GGUF models \(set in 3 shards, single\.gguf\)"):
        ggufkit.open(single.parent)


def test_refuses_a_folder_with_two_sets_of_one_name(tmp_path):
    write_set(tmp_path)
    (tmp_path / "set-00001-of-00002.gguf").write_bytes(shard(0, count=2))
    with pytest.raises(ShardError, match=r"set in 2 shards, set in 3 shards"):
        ggufkit.open(tmp_path)


# Sets.


@pytest.mark.parametrize("number", range(3))
def test_any_shard_opens_the_set(tmp_path, number):
    paths = write_set(tmp_path)
    with ggufkit.open(paths[number]) as model:
        assert_is_the_set(model)
        assert [file.path for file in model.files] == paths
        assert [tensor.path for tensor in model.tensors.values()] == paths
        assert model.data_nbytes == sum(file.data_nbytes for file in model.files)


def test_relative_shard_opens_the_set(tmp_path, monkeypatch):
    paths = write_set(tmp_path)
    monkeypatch.chdir(tmp_path)
    with ggufkit.open(paths[1].name) as model:
        monkeypatch.chdir("/")
        assert_is_the_set(model)


@posix
def test_shards_may_be_links_as_in_a_hub_cache(tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for number, path in enumerate(write_set(tmp_path)):
        path.rename(blobs / f"{number:064x}")
        (snapshot / path.name).symlink_to(f"../../blobs/{number:064x}")
    with ggufkit.open(snapshot / "set-00002-of-00003.gguf") as model:
        assert_is_the_set(model)
    with ggufkit.open(snapshot) as model:
        assert_is_the_set(model)
    with pytest.raises(ShardError, match="the others cannot be found"):
        ggufkit.open(blobs / f"{0:064x}")


def test_closing_a_set_closes_every_shard(tmp_path):
    paths = write_set(tmp_path)
    with ggufkit.open(paths[0]) as model:
        assert len(model.inputs) == 3
    assert all(file.closed for file in model.inputs)


def test_first_shard_may_hold_no_tensors(tmp_path):
    paths = write_set(tmp_path, s0=shard(0, tensors=[]), s1=shard(1, tensors=TENSORS[:2]))
    with ggufkit.open(paths[2]) as model:
        assert_is_the_set(model)


def test_model_ignores_metadata_of_later_shards(tmp_path):
    stray = [("general.name", ("string", "other")), ("stray", ("bool", True))]
    paths = write_set(tmp_path, s1=shard(1, pairs=stray))
    with ggufkit.open(paths[0]) as model:
        assert_is_the_set(model)
        assert model.metadata["general.name"] == "set"


def test_one_shard_can_be_opened_without_the_others(tmp_path):
    paths = write_set(tmp_path, s0=None)
    with ggufkit.open(paths[1], shards=False) as model:
        assert list(model.tensors) == ["t1"]
        assert list(model.metadata) == ["split.no", "split.count", "split.tensors.count"]
        ggufkit.write(model, tmp_path / "alone.gguf")
    assert (tmp_path / "alone.gguf").read_bytes() == shard(1)


@pytest.mark.parametrize("count", [0, 1])
def test_set_of_one_shard_may_have_any_name(tmp_path, count):
    path = tmp_path / "any.gguf"
    path.write_bytes(shard(0, count=count, total=1))
    with ggufkit.open(path) as model:
        assert list(model.tensors) == ["t0"]
        assert "split.count" in model.metadata


@pytest.mark.parametrize("number", range(3))
def test_names_a_missing_shard(tmp_path, number):
    paths = write_set(tmp_path, **{f"s{number}": None})
    for path in (tmp_path, *paths[:number], *paths[number + 1 :]):
        with pytest.raises(ShardError, match=f"set-{number + 1:05d}-of-00003.gguf") as caught:
            ggufkit.open(path)
        assert isinstance(caught.value, ValueError)


def test_counts_many_missing_shards(tmp_path):
    path = tmp_path / "big-00001-of-00900.gguf"
    path.write_bytes(shard(0, count=900))
    with pytest.raises(ShardError, match=r"899.*big-00002-of-00900.gguf.*\.\.\.") as caught:
        ggufkit.open(path)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    "name", ["renamed.gguf", "set-00001-of-00002.gguf", "set-1-of-3.gguf", "set-00001-of-00003"]
)
def test_renamed_shard_cannot_find_the_others(tmp_path, name):
    paths = write_set(tmp_path)
    paths[0].rename(tmp_path / name)
    with pytest.raises(ShardError, match="the others cannot be found"):
        ggufkit.open(tmp_path / name)


MISMATCHES = {
    "another number": (shard(2), "set-00002-of-00003.gguf"),
    "no number": (Spelling().file([], [TENSORS[1]]), "set-00002-of-00003.gguf"),
    "another count": (shard(1, count=4), "set-00002-of-00003.gguf"),
    "another byte order": (
        shard(1, form=Spelling(3, "big"), tensors=[]),
        "set-00002-of-00003.gguf",
    ),
    "a tensor of another shard": (shard(1, tensors=[TENSORS[0]]), "t0"),
    "a tensor too many": (shard(1, tensors=[TENSORS[1], TENSORS[1]._replace(name="x")]), "4"),
    "a tensor too few": (shard(1, tensors=[]), "2"),
}


@pytest.mark.parametrize("case", MISMATCHES)
def test_names_a_shard_of_another_set(tmp_path, case):
    content, name = MISMATCHES[case]
    paths = write_set(tmp_path, s1=content)
    for path in (paths[0], paths[2]):
        with pytest.raises(ShardError, match=name):
            ggufkit.open(path)


def test_names_a_broken_shard(tmp_path):
    paths = write_set(tmp_path, s2=shard(2)[:-32])
    with pytest.raises(TruncatedError) as caught:
        ggufkit.open(paths[0])
    assert caught.value.path == str(paths[2])


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_failing_to_open_a_set_leaves_no_descriptor_open(tmp_path):
    paths = write_set(tmp_path, s2=shard(2)[:-32])
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(TruncatedError) as caught:
        ggufkit.open(paths[0])
    assert len(list(Path("/proc/self/fd").iterdir())) == before, caught


def test_opens_a_large_set(tmp_path):
    for number in range(300):
        path = tmp_path / f"m-{number + 1:05d}-of-00300.gguf"
        info = TENSORS[0]._replace(name=f"t{number}")
        path.write_bytes(shard(number, count=300, total=300, tensors=[info], pairs=[]))
    with ggufkit.open(tmp_path / "m-00150-of-00300.gguf") as model:
        assert len(model.tensors) == 300
        assert model.tensors["t299"].numpy().tolist() == [[0.0], [1.0]]


# Files that change under the reader. A signal would end the process, so each has its own.

CUT = """
import os, sys
import ggufkit
from ggufkit.models import open as opening
path, size = sys.argv[1], int(sys.argv[2])
parse = opening.parse
def cut_and_parse(data, nbytes):
    os.truncate(path, size)
    return parse(data, nbytes)
if sys.argv[3] == "scanned":
    opening.parse = cut_and_parse
try:
    model = ggufkit.open(path)
    kept = model.tensors["t"].raw()
    words = model.metadata["words"]
    os.truncate(path, size)
    reads = (words.tolist, lambda: words[9999], model.tensors["t"].raw, model.tensors["t"].numpy,
             lambda: model.metadata.encode(ggufkit.format.encoding.CANONICAL))
    for read in reads:
        try:
            print(read())
        except ggufkit.errors.FormatError as error:
            assert "while it was in use" in str(error), error
    assert kept[-1, -1] == 0
except ggufkit.errors.FormatError as error:
    assert "while it was in use" in str(error), error
"""
guarded = pytest.mark.skipif(not hasattr(_native, "MapGuard"), reason="maps are not guarded here")


@guarded
@pytest.mark.parametrize("size", [0, 10, 5000, 100_000])
@pytest.mark.parametrize("when", ["scanned", "opened"])
def test_file_truncated_while_mapped_gives_an_error_and_not_a_signal(tmp_path, when, size):
    path = tmp_path / "model.gguf"
    tensors = {"t": np.ones((64, 4096), np.float32)}
    ggufkit.save(path, tensors, {"words": [f"word {n}" for n in range(10_000)]})
    command = [sys.executable, "-c", CUT, str(path), str(size), when]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@guarded
def test_unrelated_bus_error_still_ends_the_process(tmp_path):
    path = tmp_path / "model.gguf"
    ggufkit.save(path, {"t": np.ones(8, np.float32)})
    code = "import os, sys, ggufkit; ggufkit.open(sys.argv[1]); os.kill(os.getpid(), 7)"
    code = code.replace("7", str(int(signal.SIGBUS)))
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == -signal.SIGBUS


@posix
def test_opens_a_set_of_more_shards_than_the_soft_limit_of_open_files(tmp_path):
    code = """
import resource, sys
import numpy as np
import ggufkit
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
tensors = {f"t{n}": np.full(8, n, "f4") for n in range(100)}
paths = ggufkit.save(sys.argv[1] + "/set.gguf", tensors, shard_tensors=1)
with ggufkit.open(sys.argv[1]) as model:
    ggufkit.write(model, sys.argv[1] + "/one.gguf")
print(len(paths), ggufkit.open(sys.argv[1] + "/one.gguf").tensors["t99"].numpy()[7])
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("100 99.0\n", "")


def test_tensors_are_created_once_and_on_demand(tmp_path, monkeypatch):
    write_set(tmp_path)
    created = []
    make = open_module.Tensor
    monkeypatch.setattr(open_module, "Tensor", lambda *facts: created.append(facts) or make(*facts))
    with ggufkit.open(tmp_path) as model:
        assert list(model.tensors) == ["t0", "t1", "t2"]
        assert "t2" in model.tensors
        assert not created
        assert model.tensors["t1"] is model.tensors["t1"]
        assert len(created) == 1
        assert_is_the_set(model)
