from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import ggufkit as api
from shell import done, ggufkit

DOCS = Path(__file__).parents[3] / "docs"
LAYERS = 47
KEYS = {
    "general.architecture": "llama",
    "llama.block_count": np.uint32(LAYERS),
    "llama.nextn_predict_layers": np.uint32(1),
    "llama.attention.head_count_kv": np.arange(LAYERS, dtype=np.uint32),
    "clip.projector_type": "mlp",
}
NAMES = (
    "token_embd.weight",
    *(f"blk.{i}.attn_q.weight" for i in range(LAYERS)),
    "blk.46.nextn.eh_proj.weight",
    "output_norm.weight",
    "v.patch_embd.weight",
    "mm.0.weight",
)


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    api.save("model.gguf", {n: np.full(4, i, "f4") for i, n in enumerate(NAMES)}, KEYS)
    return tmp_path / "model.gguf"


def content(path):
    return done("hash", path, "--content").out.split()[1]


def commands(section):
    """The commands of a section of the page."""
    text = (DOCS / "select.md").read_text(encoding="utf-8").partition(f"## {section}")[2]
    commands_of_page = re.findall(
        r"^ {4}ggufkit (select .*)$", text.partition("\n## ")[0], re.MULTILINE
    )
    return [shlex.split(command) for command in commands_of_page]


def test_mtp_head_can_be_split_off_and_put_back_as_documented(model):
    for command in commands("Remove and restore a multi-token-prediction head"):
        done(*command)
    with api.open("trunk.gguf") as trunk, api.open("mtp-model.gguf") as head:
        assert trunk.metadata["llama.block_count"] == len(trunk.metadata[list(KEYS)[3]]) == 46
        assert list(head.tensors) == [n for n in NAMES if re.match(r"token|blk\.46|output", n)]
        assert head.metadata == api.open(model).metadata
    assert content("whole.gguf") == content("model.gguf")


def test_projector_can_be_split_off_and_put_back_as_documented(model):
    model.rename("both.gguf")
    before = content("both.gguf")
    first, second, third = commands("Separate and join a projector")
    done(*first)
    done(*second)
    Path("both.gguf").unlink()
    done(*third)
    assert list(api.open("text.gguf").tensors) == list(NAMES[:-2])
    assert list(api.open("mmproj.gguf").metadata) == ["general.architecture", "clip.projector_type"]
    assert content("both.gguf") == before


def test_dry_run_shows_what_would_change_and_writes_nothing(model):
    options = ("--keep", "blk.4?.*", "--prune-layers", "0-42,46", "--rename", "blk.0.*=b.*")
    options += ("--graft", "model.gguf:v.*", "--drop-keys", "clip.*", "--dry-run")
    lines = done("select", "model.gguf", "out.gguf", *options).lines
    assert set(lines) >= {
        "- token_embd.weight",
        "- blk.46.attn_q.weight",
        "~ v.patch_embd.weight",
        "  blk.43.attn_q.weight -> b.attn_q.weight",
        "  blk.45.attn_q.weight -> blk.2.attn_q.weight",
        "- clip.projector_type (key)",
        "~ llama.block_count (key)",
        "~ llama.attention.head_count_kv (key)",
    }
    assert lines[-1] == "3 tensors kept"
    assert list(model.parent.iterdir()) == [model]


def test_json_lists_what_changed(model):
    options = ("--rename", "mm.0.weight=mm.1.weight", "--drop", "v.*", "--json")
    document = done("select", "model.gguf", "out.gguf", *options).json()
    tensors = document["tensors"]
    assert tensors["renamed"] == {"mm.0.weight": "mm.1.weight"}
    assert tensors["dropped"] == ["v.patch_embd.weight"]
    assert tensors["kept"] == len(NAMES) - 1 == len(api.open("out.gguf").tensors)
    assert document["keys"] == {"dropped": [], "added": [], "changed": []}
    assert [Path(file["path"]).name for file in document["files"]] == ["out.gguf"]


def test_vocab_only_and_header_only_outputs_have_no_tensors(model):
    done("select", "model.gguf", "vocabulary.gguf", "--vocab-only")
    done("select", "model.gguf", "header.gguf", "--no-tensors")
    assert list(api.open("vocabulary.gguf").metadata) == ["general.architecture"]
    assert list(api.open("header.gguf").metadata) == list(KEYS)
    assert not api.open("vocabulary.gguf").tensors
    assert not api.open("header.gguf").tensors


def test_graft_from_a_name_with_colons(model):
    folder = model.with_name("a:b")
    folder.mkdir()
    model.rename(folder / "c.gguf")
    done("select", "a:b/c.gguf", "a:b/text.gguf", "--drop", "v.*", "--drop", "mm.*")
    done("select", "a:b/text.gguf", "out.gguf", "--graft", "a:b/c.gguf:re:^(?:v|mm)")
    done("select", "a:b/text.gguf", "again.gguf", "--graft", ".:v.*")
    assert content("out.gguf") == content("a:b/c.gguf")
    assert list(api.open("again.gguf").tensors) == list(NAMES[:-1])


@pytest.mark.parametrize(
    "options",
    [
        ("--keep", "re:("),
        ("--rename", "a"),
        ("--rename", r"re:a=\2"),
        ("--prune-layers", "seven"),
        ("--graft", "model.gguf"),
        ("--graft", ":v.*"),
        ("--graft", "model.gguf:"),
    ],
)
def test_wrong_usage_error_names_what_is_expected(model, options):
    result = ggufkit("select", "model.gguf", "out.gguf", *options)
    assert result.code == 2
    assert result.err.startswith("error: ")
    assert "\n  Usage: ggufkit select" in result.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--keep", "mm.0.wait"), "Did you mean 'mm.0.weight'?"),
        (("--prune-layers", "47"), "layers 0 to 46"),
        (("--prune-layers", "0-46"), "Keep at least one layer"),
        (("--rename", "blk.*=x"), "two tensors"),
        (("--graft", "none.gguf:*"), "none.gguf: No such file"),
    ],
)
def test_failure_gives_the_reason_and_writes_nothing(model, options, message):
    result = ggufkit("select", "model.gguf", "out.gguf", *options)
    assert result.code == 1
    assert message in result.err
    assert list(model.parent.iterdir()) == [model]


def test_grafted_tensor_in_the_place_of_another_is_shown_as_replaced(model):
    options = ("select", "model.gguf", "out.gguf", "--graft", "model.gguf:v.*", "--dry-run")
    assert "~ v.patch_embd.weight" in done(*options).lines
    tensors = done(*options, "--json").json()["tensors"]
    assert tensors["replaced"] == ["v.patch_embd.weight"]
    assert tensors["dropped"] == tensors["grafted"] == []
