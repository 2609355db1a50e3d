"""`check` lists what is wrong: header, values, padding, and the other shards."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

import ggufkit
from forging import sets
from forging.builder import (
    ARCHITECTURE,
    ARRAY,
    Q8_0,
    STRING,
    U32,
    Array,
    Forge,
    Pair,
    array,
    number,
    string,
    tensor,
    text,
)
from ggufkit.checks.check import MAX_GAP

VERSION_2 = number("general.quantization_version", U32, 2)


@pytest.fixture
def check(tmp_path):
    """Check files given by name and content, and return the findings of the first."""

    def check(content, **others):
        for name, content_of_file in {"model.gguf": content, **others}.items():
            data = (
                content_of_file if isinstance(content_of_file, bytes) else content_of_file.build()
            )
            (tmp_path / name).write_bytes(data)
        return ggufkit.check(tmp_path / "model.gguf")

    return check


def rules(findings):
    return [finding.rule for finding in findings]


def write_set(folder: Path, *shards: Forge) -> list[Path]:
    paths = [folder / name for name in sets.names(len(shards))]
    for path, shard in zip(paths, shards, strict=True):
        path.write_bytes(shard.build())
    return paths


# Files.


def test_finds_no_fault_in_real_models(smollm2, gemma3, vocabularies):
    for path in (smollm2, gemma3, *vocabularies):
        faults = [finding for finding in ggufkit.check(path) if finding.severity != "note"]
        assert faults == [], path.name


def test_missing_file_raises_an_oserror(tmp_path):
    with pytest.raises(FileNotFoundError):
        ggufkit.check(tmp_path / "none.gguf")


def test_path_may_be_a_string(check, tmp_path):
    findings = check(Forge(tail=b"x"))
    assert ggufkit.check(str(tmp_path / "model.gguf")) == findings


def test_findings_carry_the_path_and_are_sorted_by_offset(check, tmp_path):
    forge = Forge((string("a.b", b"\xff"), number("B", 0, 1)), padding=b"x", tail=b"tail")
    findings = check(forge)
    assert {finding.path for finding in findings} == {tmp_path / "model.gguf"}
    assert [finding.offset for finding in findings] == sorted(f.offset for f in findings)
    assert len(findings) >= 4


def test_header_errors_do_not_hide_one_another(check):
    pairs = (number("general.alignment", U32, 3), number("a\0b", 0, 1), string("c.d", b"\xff"))
    infos = (tensor("", 4), tensor("x", 33, type=Q8_0, size=34))
    expected = {"alignment-value", "key-nul", "string-utf8", "name-empty", "row-width"}
    assert expected <= set(rules(check(Forge(pairs, infos))))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
def test_check_leaves_no_file_open(check, tmp_path):
    write_set(tmp_path, sets.ONE, sets.TWO, sets.THREE)
    opened = Path("/proc/self/fd")
    before = len(list(opened.iterdir()))
    check(Forge())
    ggufkit.check(tmp_path)
    assert len(list(opened.iterdir())) == before


# Values.


@pytest.mark.parametrize("mark", "<>")
@pytest.mark.parametrize("version", [1, 3])
def test_names_an_item_that_is_not_utf8(check, version, mark):
    pairs = (array("a.b", STRING, ["fine", "été", b"\xc3", b"\xff"]),)
    findings = check(Forge(pairs, version=version, mark=mark))
    messages = [finding.message for finding in findings if finding.rule == "string-utf8"]
    assert messages == ["item 2 of 'a.b' is not valid UTF-8"]


def test_checks_items_of_inner_arrays(check):
    inner = Array(ARRAY, [Array(ARRAY, [Array(STRING, [text("a"), text(b"\xff")])])])
    findings = check(Forge((Pair(text("a.b"), ARRAY, inner),)))
    assert "item 1 of 'a.b' is not valid UTF-8" in [finding.message for finding in findings]


def test_missing_quantization_version_is_reported_once_per_set(tmp_path):
    infos = [tensor(f"t{i}", 32, type=Q8_0) for i in range(2)]
    paths = write_set(tmp_path, *(sets.shard(i, 2, 2, infos[i]) for i in range(2)))
    findings = ggufkit.check(paths[1])
    assert rules(findings) == ["quantization-version"]
    assert findings[0].path == paths[0]


def test_plain_tensors_need_no_quantization_version(check):
    assert check(Forge()) == []
    assert check(Forge((ARCHITECTURE, VERSION_2), (tensor("a", 32, type=Q8_0),))) == []


# Padding.


def test_finds_dirty_padding_at_each_place(check):
    infos = (tensor("a", 3), tensor("b", 3), tensor("c", 3))
    forge = Forge(infos=infos, padding=b"\x01")
    findings = check(forge)
    assert rules(findings) == ["padding"] * 4
    begin = -(-len(forge.header()) // 32) * 32
    ends = [begin + 12, begin + 32 + 12, begin + 64 + 12]
    assert [finding.offset for finding in findings] == [len(forge.header()), *ends]


def test_gaps_are_checked_up_to_a_limit(check):
    infos = (tensor("a", 8), tensor("b", 8, offset=4 * MAX_GAP))
    for place, is_found in ((MAX_GAP // 2, True), (2 * MAX_GAP, False)):
        data = bytearray(4 * MAX_GAP + 32)
        data[place] = 1
        findings = check(Forge(infos=infos, data=bytes(data)))
        assert ("padding" in rules(findings)) == is_found


def test_opaque_tensors_do_not_count_as_padding(check):
    infos = (tensor("a", 5, type=77, size=5), tensor("b", 3))
    forge = Forge(infos=infos, padding=b"\x01", pad_end=False)
    offsets = [finding.offset for finding in check(forge) if finding.rule == "padding"]
    assert offsets == [len(forge.header())]


def test_counts_bytes_after_the_end(check):
    findings = check(Forge(tail=bytes(1000)))
    assert [finding.message for finding in findings] == ["1000 bytes follow the last tensor"]


@pytest.mark.parametrize("size", [24, 25, 31, 32])
def test_file_without_tensors_may_end_before_its_alignment(check, size):
    assert check(Forge((), ()).build().ljust(size, b"\0")) == []


# Sets and folders.


def test_any_shard_names_its_whole_set(tmp_path):
    cut = sets.THREE.build()[:-32]
    paths = write_set(tmp_path, sets.ONE, sets.TWO, sets.THREE)
    paths[2].write_bytes(cut)
    for path in paths:
        findings = ggufkit.check(path)
        assert rules(findings) == ["data-truncated"]
        assert findings[0].path == paths[2]


def test_checks_the_remaining_shards_of_a_set(tmp_path):
    paths = write_set(tmp_path, sets.ONE, sets.TWO, sets.THREE)
    paths[1].unlink()
    paths[2].write_bytes(b"")
    findings = ggufkit.check(paths[0])
    assert rules(findings) == ["shard-missing", "empty"]
    assert paths[1].name in findings[0].message


def test_shard_that_cannot_be_read_is_a_finding(tmp_path):
    paths = write_set(tmp_path, sets.ONE, sets.TWO, sets.THREE)
    paths[1].unlink()
    paths[1].mkdir()
    findings = ggufkit.check(paths[0])
    assert rules(findings) == ["unreadable"]
    assert findings[0].path == paths[1]


def test_folder_means_all_files_in_it(tmp_path):
    write_set(tmp_path, sets.ONE, sets.TWO, sets.THREE)
    (tmp_path / "cut.gguf").write_bytes(Forge().build()[:-60])
    (tmp_path / "page.gguf").write_bytes(b"<html></html>")
    (tmp_path / "notes.txt").write_bytes(b"no model")
    (tmp_path / "folder.gguf").mkdir()
    findings = ggufkit.check(tmp_path)
    names = {(finding.path.name, finding.rule) for finding in findings}
    assert names == {
        ("cut.gguf", "data-truncated"),
        ("page.gguf", "html"),
        ("folder.gguf", "unreadable"),
    }


def test_folder_reports_a_missing_shard_once(tmp_path):
    write_set(tmp_path, sets.ONE, sets.TWO, sets.THREE)[1].unlink()
    assert rules(ggufkit.check(tmp_path)) == ["shard-missing"]


def test_folder_without_a_model_is_a_finding(tmp_path):
    findings = ggufkit.check(tmp_path)
    assert rules(findings) == ["unreadable"]
    assert findings[0].path == tmp_path


def test_sound_set_has_no_findings(tmp_path):
    paths = write_set(tmp_path, sets.ONE, sets.TWO, sets.THREE)
    assert ggufkit.check(paths[1]) == []
    assert ggufkit.check(tmp_path) == []


def test_file_that_holds_anything_needs_an_architecture(check):
    assert check(Forge((), ())) == check(Forge(pairs=(ARCHITECTURE,))) == []
    assert [finding.rule for finding in check(Forge(pairs=()))] == ["architecture-missing"]


@pytest.mark.parametrize("value", ["", 7, ["llama"], True, 1.5])
def test_architecture_must_be_a_name(tmp_path, value):
    path = tmp_path / "model.gguf"
    ggufkit.save(path, {}, {"general.architecture": value, "my.key": 1})
    assert "architecture-missing" in [finding.rule for finding in ggufkit.check(path)]


def test_a_long_text_is_not_copied_to_be_checked(tmp_path):
    path, size = tmp_path / "a.gguf", 64 << 20
    keys = {"general.architecture": "x", "x.text": "a" * size}
    ggufkit.save(path, {}, keys)
    del keys
    tracemalloc.start()
    ggufkit.check(path)
    assert tracemalloc.get_traced_memory()[1] < 1.5 * size
    tracemalloc.stop()
