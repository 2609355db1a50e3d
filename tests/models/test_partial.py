"""Incomplete models can be inspected: a single shard, or a file truncated after its header."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import FormatError, ShardError, TruncatedError
from shell import done
from shell import ggufkit as run
from small_llama import keys, tensors


@pytest.fixture
def whole(tmp_path):
    return ggufkit.save(tmp_path / "whole.gguf", tensors(), keys())[0]


@pytest.fixture
def shards(whole, tmp_path):
    with ggufkit.open(whole) as model:
        return ggufkit.write(model, tmp_path / "s" / "s.gguf", shard_tensors=6)


@pytest.fixture
def cut(whole, tmp_path):
    with ggufkit.open(whole) as model:
        end = model.data_offset + 1000
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole.read_bytes()[:end])
    return path


@pytest.fixture(autouse=True)
def folder(tmp_path):
    (tmp_path / "s").mkdir()


def test_truncated_file_lists_all_tensors_and_reports_what_is_missing(cut, whole):
    with pytest.raises(TruncatedError):
        ggufkit.open(cut)
    with ggufkit.open(cut, partial=True) as model, ggufkit.open(whole) as full:
        assert list(model.tensors) == list(full.tensors)
        assert [finding.rule for finding in model.missing] == ["data-truncated"]
        *_, last = model.tensors.values()
        with pytest.raises(FormatError, match="the file ends at byte"):
            last.raw()
        with pytest.raises(FormatError):
            ggufkit.write(model, whole.with_name("never.gguf"))
    assert not whole.with_name("never.gguf").exists()


def test_single_shard_shows_what_it_holds(shards):
    first, *others = shards
    for path in others:
        path.unlink()
    with pytest.raises(ShardError):
        ggufkit.open(first)
    with ggufkit.open(first, partial=True) as model:
        assert len(model.tensors) == 6
        (missing,) = model.missing
    assert str(first.parent) in missing.message
    assert all(path.name in missing.message for path in others)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(
    "words",
    [("inspect",), ("inspect", "--json"), ("inspect", "--bytes"), ("plan",), ("name",)],
)
def test_commands_that_need_only_headers_work_on_an_incomplete_set_with_a_note(
    shards, words, place
):
    file = shards[place]
    for path in shards:
        if path != file:
            path.unlink()
    result = run(*words, file)
    assert result.code == 0
    if words != ("inspect", "--bytes"):
        assert f"{len(shards) - 1} of the {len(shards)} shards are not in the folder" in result.err


@pytest.mark.parametrize(
    "words",
    [
        ("inspect",),
        ("inspect", "--key", "general.architecture"),
        ("estimate",),
        ("plan",),
        ("name",),
    ],
)
def test_commands_that_need_only_the_header_read_a_truncated_file(cut, whole, words):
    result = done(words[0], cut, *words[1:])
    assert "note:" in result.err
    assert "the file is cut short" in result.err
    if words[0] in ("estimate", "plan"):
        assert result.out == done(words[0], whole, *words[1:]).out


def test_check_names_the_files_to_download_and_the_folder(shards):
    for path in shards[1:]:
        path.unlink()
    result = run("check", shards[0])
    assert result.code == 1
    assert shards[1].name in result.out
    assert "Download the missing files into that folder, under these names" in result.out
    assert "incomplete: shards are missing" in result.lines[-1]


def test_renaming_needs_the_whole_set(shards):
    shards[-1].unlink()
    assert run("name", shards[0], "--rename").code == 1
    assert np.all([path.exists() for path in shards[:-1]])


# Files that end inside their header.


@pytest.fixture
def header_end(whole):
    with ggufkit.open(whole) as model:
        return model.data_offset


def beginning(whole, nbytes):
    path = whole.with_name("head.gguf")
    path.write_bytes(whole.read_bytes()[:nbytes])
    return path


def test_every_beginning_of_a_file_opens_with_what_it_holds(whole, header_end):
    seen = set()
    with ggufkit.open(whole) as full:
        for nbytes in range(4, header_end, 7):
            with ggufkit.open(beginning(whole, nbytes), partial=True) as model:
                assert list(model.metadata) == list(full.metadata)[: len(model.metadata)]
                assert list(model.tensors) == list(full.tensors)[: len(model.tensors)]
                assert len(model.missing) == 1
                assert not any(tensor.is_whole for tensor in model.tensors.values())
                for name, tensor in model.tensors.items():
                    assert tensor.shape == full.tensors[name].shape
                    with pytest.raises(TruncatedError, match="ends in its header"):
                        tensor.numpy()
                seen.add((len(model.metadata), len(model.tensors)))
    assert len(seen) > len(full.tensors)


def test_a_broken_download_tells_which_tensors_are_whole(whole):
    data = whole.read_bytes()
    with ggufkit.open(whole) as full:
        middle = list(full.tensors.values())[10]
        expected = [
            tensor.offset + tensor.nbytes <= middle.offset for tensor in full.tensors.values()
        ]
        with ggufkit.open(beginning(whole, middle.offset + 1), partial=True) as model:
            assert [tensor.is_whole for tensor in model.tensors.values()] == expected
            whole_names = [name for name, tensor in model.tensors.items() if tensor.is_whole]
            for name in whole_names:
                np.testing.assert_array_equal(model.tensors[name].raw(), full.tensors[name].raw())
    assert any(expected)
    assert len(data) > middle.offset


def test_inspect_offers_to_show_a_cut_header_and_shows_it(whole, header_end):
    path = beginning(whole, header_end - 200)
    result = run("inspect", path)
    assert result.code == 1
    assert "`ggufkit inspect --partial` shows what is there" in result.err
    result = done("inspect", path, "--partial")
    assert "16 of 16 keys and 16 of 20 tensor infos are there" in result.err
    assert "incomplete" in result.out
    assert "? (missing)" in result.out
    document = done("inspect", path, "--partial", "--json").json()
    assert {tensor["whole"] for tensor in document["tensors"]} == {False}
    assert len(document["missing"]) == 1
    for words in (("plan",), ("estimate",), ("name",)):  # whose answer would be wrong
        assert run(*words, path).code == 1


def test_check_offers_to_show_a_cut_file(whole, cut, header_end):
    for path in (cut, beginning(whole, header_end - 100)):
        result = run("check", path)
        assert result.code == 1
        assert "`ggufkit inspect --partial` shows what is there" in result.out
