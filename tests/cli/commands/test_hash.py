from __future__ import annotations

import hashlib
import socket

import numpy as np
import pytest

import ggufkit as api
from platforms import posix
from ranged_server import Served
from shell import done, ggufkit

# SHA-256 of all that `llama-gguf-hash --all --uuid model.gguf` (October 2026) prints for SmolLM2.
PRINTED = "387b4bf9fb802de65774c7a77ca0ac654fab928fc1ca89641fb62d4b9eea40ff"


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arrays = {"x.weight": np.arange(64, dtype="f4").reshape(2, 32), "y": np.zeros(3, "i1")}
    api.save("model.gguf", arrays, {"general.name": "small"})
    return tmp_path / "model.gguf"


def test_lines_match_llama_gguf_hash(smollm2):
    printed = done("hash", smollm2, "--all", "--uuid", "--name", "model.gguf").raw
    assert printed.startswith(b"xxh64     ")
    assert hashlib.sha256(printed).hexdigest() == PRINTED


def test_columns_and_order_match_a_manifest(model):
    lines = done("hash", "model.gguf", "--all", "--uuid", "--content").lines
    assert [(line[:10], line.split("  ")[-1]) for line in lines] == [
        (f"{kind:<10}", name)
        for name in ("model.gguf:x.weight", "model.gguf:y")
        for kind in ("xxh64", "sha1", "sha256")
    ] + [(f"{kind:<10}", "model.gguf") for kind in ("xxh64", "sha1", "sha256", "uuid", "content")]
    assert f"sha256    {hashlib.sha256(bytes(3)).hexdigest()}  model.gguf:y" in lines


def test_xxh64_is_the_default(model):
    lines = done("hash", "model.gguf").lines
    assert [line.split()[0] for line in lines] == ["xxh64"] * 3
    assert done("hash", "model.gguf", "--no-layer").lines == lines[-1:]


def test_shard_set_has_the_digests_of_the_single_file(model):
    done("copy", "model.gguf", "parts.gguf", "--shard-tensors", 1)
    whole = done("hash", "model.gguf", "--all", "--content")
    parts = done("hash", "parts-00002-of-00002.gguf", "--all", "--content", "--name", "model.gguf")
    assert parts.out == whole.out


def test_json_holds_every_digest(model):
    document = done("hash", "model.gguf", "--sha1", "--uuid", "--json").json()
    lines = done("hash", "model.gguf", "--sha1", "--uuid").lines
    assert document["name"] == "model.gguf"
    assert [
        f"{d['algorithm']:<8}  {d['digest']}  model.gguf" + (f":{d['tensor']}" * bool(d["tensor"]))
        for d in document["digests"]
    ] == lines


# Checks.


@pytest.fixture
def manifest(model):
    path = model.with_name("model.manifest")
    path.write_bytes(done("hash", "model.gguf", "--all", "--content").raw)
    return path


def test_accepts_a_model_that_matches_its_manifest(model, manifest):
    lines = done("hash", "model.gguf", "--check", manifest).lines
    digest = hashlib.sha256(bytes(3)).hexdigest()
    assert lines[0] == f"manifest  {manifest}  sha256  sha1  xxh64  content"
    assert lines[2] == f"sha256    {digest}  model.gguf:y  -  Ok"
    assert lines[-2:] == ["", f"Verification results for {manifest} - Success"]
    assert len(lines) == 6


def test_checks_the_chosen_hashes(model, manifest):
    lines = done("hash", "model.gguf", "--xxh64", "--content", "-c", manifest).lines
    assert [line.split()[0] for line in lines[1:-2]] == ["xxh64", "xxh64", "xxh64", "content"]
    assert all(line.endswith("  -  Ok") for line in lines[1:-2])


def test_changed_tensor_is_reported_and_fails(model, manifest):
    data = bytearray(model.read_bytes())
    data[api.open(model).tensors["y"].offset] = 1
    model.write_bytes(data)
    result = ggufkit("hash", "model.gguf", "--check", manifest)
    assert result.code == 1
    assert [line.rpartition("  ")[2] for line in result.lines[1:4]] == [
        "Ok",
        "Mismatch",
        "Mismatch",
    ]
    assert result.lines[-1].endswith("- Failure")


def test_change_in_one_tensor_fails_too(model, manifest):
    changed = manifest.read_text().replace(hashlib.sha256(bytes(3)).hexdigest(), "00")
    manifest.write_text(changed)
    assert ggufkit("hash", "model.gguf", "--check", manifest).code == 1
    assert ggufkit("hash", "model.gguf", "--no-layer", "--check", manifest).code == 0


def test_manifest_of_another_model_has_no_matching_entry(model, manifest):
    result = ggufkit("hash", "./model.gguf", "--check", manifest)
    assert result.code == 3
    assert "Not Found" not in result.out
    assert result.lines[-1].endswith("- Manifest Missing Entry")
    assert done("hash", "./model.gguf", "--name", "model.gguf", "--check", manifest)


def test_refuses_a_manifest_without_known_hashes(model, manifest):
    manifest.write_text("md5  00  model.gguf\n")
    result = ggufkit("hash", "model.gguf", "--check", manifest)
    assert result.code == 4
    assert "no known hash" in result.err


def test_refuses_a_missing_manifest(model):
    result = ggufkit("hash", "model.gguf", "--check", "none")
    assert result.code == 5
    assert "none: No such file" in result.err


def test_missing_model_is_a_plain_error(model, manifest):
    assert ggufkit("hash", "none.gguf", "--check", manifest).code == 1


def test_uuid_is_checked_against_its_own_entry(model):
    model.with_name("m").write_bytes(done("hash", "model.gguf", "--uuid", "--sha256").raw)
    lines = done("hash", "model.gguf", "--uuid", "--check", "m").lines
    assert lines[1].endswith("  -  Ok")


def test_reads_names_with_spaces_and_output_of_a_check(model):
    model.rename(model.with_name("my model.gguf"))
    named_m = model.with_name("m")
    named_m.write_bytes(done("hash", "my model.gguf", "--sha1").raw)
    named_m.write_bytes(done("hash", "my model.gguf", "--check", named_m).raw)
    assert done("hash", "my model.gguf", "--check", named_m).lines[1].endswith("  -  Ok")


def test_json_of_a_check_holds_results_and_verdict(model, manifest):
    manifest.write_text(manifest.read_text().replace("model.gguf:y", "model.gguf:z"))
    document = done("hash", "model.gguf", "--check", manifest, "--json").json()
    assert [d["result"] for d in document["digests"]] == ["Ok", "Not Found", "Ok"]
    assert document["verdict"] == "Success"


def test_notes_a_renamed_file_once(model):
    manifest = model.with_name("m")
    manifest.write_text(done("hash", "model.gguf").out)
    model.rename(model.with_name("other.gguf"))
    result = ggufkit("hash", "other.gguf", "--check", manifest)
    assert result.code == 3
    assert "Not Found" not in result.out
    assert result.err == (
        "note: the manifest is about model.gguf, not about other.gguf; "
        "if the file was renamed, say the old name with --name\n"
    )
    done("hash", "other.gguf", "--name", "model.gguf", "--check", manifest)


# Whole files.


def test_whole_files_are_hashed_and_checked(model):
    (model.parent / "notes").write_bytes(b"abc")
    result = done("hash", "--sha256sum", "model.gguf", "notes")
    assert result.lines[1] == f"{hashlib.sha256(b'abc').hexdigest()}  notes"
    (model.parent / "SHA256SUMS").write_bytes(result.raw)
    checked = done("hash", "--sha256sum", "--check", "SHA256SUMS")
    assert checked.lines == ["model.gguf: OK", "notes: OK"]
    (model.parent / "notes").write_bytes(b"abd")
    checked = ggufkit("hash", "--sha256sum", "--check", "SHA256SUMS")
    assert (checked.code, checked.lines[1]) == (1, "notes: FAILED")
    only = done("hash", "--sha256sum", "--check", "SHA256SUMS", model)
    assert only.lines == [f"{model}: OK"]


def test_whole_files_that_are_missing_or_not_listed_fail(model):
    (model.parent / "SHA256SUMS").write_text(f"{'0' * 64}  gone\n")
    checked = ggufkit("hash", "--sha256sum", "--check", "SHA256SUMS")
    assert (checked.code, checked.lines) == (1, ["gone: FAILED open or read"])
    assert "gone: No such file" in checked.err
    checked = ggufkit("hash", "--sha256sum", "--check", "SHA256SUMS", "model.gguf", "--json")
    assert checked.code == 1
    assert checked.json()[0]["result"] == "NOT LISTED"


def test_a_file_on_a_server_is_read_and_hashed(model):
    with Served({"/model.gguf": model.read_bytes()}) as server:
        url = server.url("/model.gguf")
        digest = done("hash", "--sha256sum", "model.gguf").out.split()[0]
        assert done("hash", "--sha256sum", url).lines == [f"{digest}  {url}"]
        result = ggufkit("hash", "--sha256sum", server.url("/none.gguf"))
        assert (result.code, result.out) == (1, "")
        assert "does not exist" in result.err


@pytest.mark.parametrize("option", ["--no-layer", "--xxh64", "--all", "--content"])
def test_options_about_tensors_do_not_fit_whole_files(model, option):
    result = ggufkit("hash", "--sha256sum", "model.gguf", option)
    assert result.code == 2
    assert f"leave out {option}" in result.err


def test_a_manifest_in_utf16_or_with_a_mark_is_read(model):
    text = done("hash", "model.gguf").out
    for encoding in ("utf-16", "utf-8-sig"):
        (model.parent / "manifest").write_bytes(text.encode(encoding))
        assert done("hash", "model.gguf", "--check", "manifest").out.endswith("Success\n")


def test_several_models_need_sha256sum(model):
    result = ggufkit("hash", "model.gguf", "model.gguf")
    assert result.code == 2
    assert "only --sha256sum takes several" in result.err


def test_notes_a_manifest_without_the_chosen_hash(model):
    model.with_name("one").write_text(done("hash", "model.gguf").out)
    result = ggufkit("hash", "model.gguf", "--content", "--check", "one")
    assert result.code == 3
    assert "no digests of content" in result.err
    assert "leave out --content" in result.err


def test_a_list_never_decides_what_is_fetched(tmp_path, monkeypatch):
    monkeypatch.setattr(socket, "socket", None)
    names = ("http://127.0.0.1:9/x.gguf", "hf://a/b/c.gguf", "s3://a/b.gguf", "a/b:Q4_K_M")
    listed = tmp_path / "SHA256SUMS"
    listed.write_text("".join(f"{'0' * 64}  {name}\n" for name in names))
    done = ggufkit("hash", "--sha256sum", "--check", listed)
    assert done.code == 1
    assert done.lines == [f"{name}: FAILED open or read" for name in names]


@posix
def test_a_list_names_no_devices(tmp_path):
    listed = tmp_path / "SHA256SUMS"
    listed.write_text(f"{'0' * 64}  /dev/zero\n")
    done = ggufkit("hash", "--sha256sum", "--check", listed)
    assert done.code == 1
    assert "/dev/zero" in done.err
