from __future__ import annotations

import json

import numpy as np
import pytest

import ggufkit as library
from plain_checkpoint import CONFIG, whole
from shell import ggufkit
from tensors_file import write_checkpoint

ARCH = 'like = "llama"\nname = "plain"\nclasses = ["PlainForCausalLM"]\nvocabulary = "none"\n'


@pytest.fixture
def model(tmp_path):
    (tmp_path / "arch").mkdir()
    (tmp_path / "arch" / "plain.toml").write_text(ARCH)
    folder = write_checkpoint(tmp_path / "tiny", CONFIG, model=whole())
    with library.convert(folder, arch_path=[tmp_path / "arch"]) as converted:
        return library.write(converted, tmp_path / "tiny.gguf")[0]


def run(model, out, *options):
    return ggufkit("export", model, out, "--arch-path", model.parent / "arch", *options)


def test_export_writes_a_folder(model, tmp_path):
    done = run(model, tmp_path / "out")
    assert done.code == 0, done.err
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"model.safetensors", "config.json", "README.md", "ggufkit.json"}
    assert all(name in done.out for name in names)


def test_dry_run_shows_the_files_and_writes_none(model, tmp_path):
    done = run(model, tmp_path / "out", "--dry-run", "--shard-size", "600")
    assert "model-00001-of-0000" in done.out
    assert not (tmp_path / "out").exists()


def test_json_is_one_document(model, tmp_path):
    document = json.loads(run(model, tmp_path / "out", "--json").out)
    assert document["path"] == str(tmp_path / "out")
    assert sum(file["tensors"] for file in document["files"]) == 20


def test_nonempty_folder_exits_with_1_and_wrong_type_with_2(model, tmp_path):
    done = run(model, tmp_path / "arch")
    assert done.code == 1
    assert "not empty" in done.err
    assert run(model, tmp_path / "out", "--dtype", "q4").code == 2


@pytest.mark.parametrize("out", [".", "..", ""])
def test_current_folder_is_not_replaced(model, tmp_path, monkeypatch, out):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    done = run(model, out)
    assert done.code == 1, done.err
    assert "error: " in done.err
    assert "Traceback" not in done.err
    assert list((tmp_path / "empty").iterdir()) == []


def test_reports_text_that_is_not_utf_8(model, tmp_path):
    with library.open(model) as opened:
        changed = opened.replace(metadata=opened.metadata.updated({"general.description": "QQQQ"}))
        broken = library.write(changed, tmp_path / "broken.gguf")[0]
    broken.write_bytes(broken.read_bytes().replace(b"QQQQ", b"Q\xff\xfeQ"))
    done = ggufkit("export", broken, tmp_path / "out", "--arch-path", tmp_path / "arch")
    assert done.code == 1
    assert "not UTF-8" in done.err
    assert not (tmp_path / "out").exists()


def test_reports_a_value_that_no_operation_can_undo(model, tmp_path):
    with library.open(model) as opened:
        heads = {"plain.attention.head_count": np.float32(2)}
        changed = opened.replace(metadata=opened.metadata.updated(heads))
        odd = library.write(changed, tmp_path / "odd.gguf")[0]
    done = ggufkit("export", odd, tmp_path / "out", "--arch-path", tmp_path / "arch")
    assert done.code == 1
    assert "cannot be undone" in done.err
