"""ggufkit.json keeps what a checkpoint cannot hold, and counts while that is unchanged."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ggufkit
from ggufkit.errors import CheckpointError
from ggufkit.format.coerce import plain
from plain_checkpoint import CONFIG, whole
from tensors_file import write_checkpoint

ARCH = """like = "llama"
name = "plain"
classes = ["PlainForCausalLM"]
vocabulary = "none"

[export]
architectures = "'PlainForCausalLM'"
"""
KEPT = "ggufkit.json"
FLOATS = st.floats(width=32, allow_nan=False)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=9)
VALUES = st.one_of(
    st.booleans(), TEXTS, FLOATS.map(np.float32), st.integers(0, 2**64 - 1).map(np.uint64),
    st.integers(-128, 127).map(np.int8),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=9).map(lambda n: np.array(n, np.int32)),
    st.lists(FLOATS, max_size=9).map(lambda n: np.array(n, np.float32)),
    st.lists(TEXTS, max_size=9).map(lambda texts: ggufkit.typed("array[string]", texts)),
)  # fmt: skip
NAMES = st.text("abcdef._", min_size=1, max_size=9)
KEYS = st.builds("{}{}".format, st.sampled_from(["plain.", "tokenizer.", "general.", ""]), NAMES)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keeping")
    (folder / "arch").mkdir()
    (folder / "arch" / "plain.toml").write_text(ARCH)
    checkpoint = write_checkpoint(folder / "tiny", CONFIG, model=whole())
    with ggufkit.convert(checkpoint, arch_path=[folder / "arch"]) as model:
        ggufkit.write(model, folder / "tiny.gguf")
    return folder


@pytest.fixture
def exported(home, tmp_path):
    """Export a file with some keys added or removed; return that file and the folder."""

    def export_folder(name="made", *without, **more):
        with ggufkit.open(home / "tiny.gguf") as model:
            metadata = model.metadata.without(*without, missing_ok=True).updated(more)
            ggufkit.write(model.replace(metadata=metadata), tmp_path / f"{name}.gguf")
        with ggufkit.open(tmp_path / f"{name}.gguf") as model:
            ggufkit.export(model, tmp_path / name, arch_path=[home / "arch"])
        return tmp_path / f"{name}.gguf", tmp_path / name

    return export_folder


@pytest.fixture
def again(home, tmp_path):
    def convert_again(folder, **options):
        with ggufkit.convert(folder, arch_path=[home / "arch"], **options) as model:
            return ggufkit.write(model, tmp_path / "again.gguf")[0]

    return convert_again


def metadata_of(path):
    with ggufkit.open(path) as model:
        return {key: plain(value) for key, value in model.metadata.items()}


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(more=st.dictionaries(KEYS, VALUES, max_size=4), random=st.randoms(use_true_random=False))
def test_round_trip_restores_any_key_and_any_order(home, tmp_path_factory, more, random):
    work = tmp_path_factory.mktemp("any")
    with ggufkit.open(home / "tiny.gguf") as model:
        metadata = model.metadata.updated(
            {k: v for k, v in more.items() if k not in model.metadata}
        )
        keys = [*metadata][1:]
        random.shuffle(keys)
        names = list(model.tensors)
        random.shuffle(names)
        changed = model.replace(
            metadata=metadata.arranged(["general.architecture", *keys]),
            tensors=[model.tensors[name] for name in names],
        )
        ggufkit.write(changed, work / "made.gguf")
    with ggufkit.open(work / "made.gguf") as model:
        ggufkit.export(model, work / "back", arch_path=[home / "arch"])
    with ggufkit.convert(work / "back", arch_path=[home / "arch"]) as model:
        ggufkit.write(model, work / "again.gguf")
    assert (work / "again.gguf").read_bytes() == (work / "made.gguf").read_bytes()


def test_round_trip_adds_no_keys_that_the_file_lacks(exported, again):
    path, folder = exported("Known-7B-Chat-v2", "general.name", "general.quantization_version")
    assert again(folder).read_bytes() == path.read_bytes()


def test_changes_to_an_exported_checkpoint_are_used_and_noted(exported, again):
    _, folder = exported()
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    assert metadata_of(again(folder))["general.license"] == "mit"

    _, folder = exported("odd", **{"plain.context_length": np.uint64(64)})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 32}))
    notes = []
    assert metadata_of(again(folder, say=notes.append))["plain.context_length"] == 32
    assert any("plain.context_length" in note and KEPT in note for note in notes)


def test_options_of_the_user_win(exported, again):
    _, folder = exported("made", "general.name")
    assert metadata_of(again(folder, name="Mine"))["general.name"] == "Mine"
    overrides = {"general.url": "https://example.org"}
    assert metadata_of(again(folder, overrides=overrides))["general.url"] == "https://example.org"


def test_ggufkit_json_omits_what_the_checkpoint_holds(exported):
    content = json.loads((exported()[1] / KEPT).read_text())
    assert set(content) == {"about", "format"}


MISFORMED = [
    [], {"format": 2}, {"metadata": []}, {"format": 1, "metadata": {}},
    {"format": 1, "metadata": [7]}, {"format": 1, "metadata": [{"key": 7}]},
    {"format": 1, "metadata": [{"key": "general.architecture", "type": None}]},
    {"format": 1, "metadata": [{"key": "split.count", "type": "uint16", "value": 2}]},
    {"format": 1, "metadata": [{"key": "a", "type": "uint8", "value": 256}]},
    {"format": 1, "metadata": [{"key": "a", "type": "uint7", "value": 1}]},
    {"format": 1, "metadata": [{"key": "a", "type": ["uint8"], "value": 1}]},
    {"format": 1, "metadata": [{"key": "a", "type": "array[uint8]", "items": {"0": 1}}]},
    {"format": 1, "metadata": [{"key": "a", "type": "array[uint8]", "items": [1]}]},
    {"format": 1, "metadata": [{"key": "a\0", "type": "uint8", "value": 1}]},
    {"format": 1, "metadata": [{"key": "general.alignment", "type": "uint32", "value": 7}]},
    {"format": 1, "keys": "all"}, {"format": 1, "tensors": [1]},
]  # fmt: skip


@pytest.mark.parametrize("content", MISFORMED, ids=json.dumps)
def test_malformed_content_gives_a_typed_error(exported, again, content, tmp_path):
    _, folder = exported()
    (folder / KEPT).write_text(json.dumps(content))
    with pytest.raises(ggufkit.GGUFError) as caught:
        again(folder)
    assert not (tmp_path / "again.gguf").exists()
    if "alignment" not in str(content):  # whose value is looked at by whoever lays out the file
        assert isinstance(caught.value, CheckpointError)
        assert KEPT in caught.value.message


def test_long_lists_of_unmatched_keys_take_linear_time(exported, again):
    """A list searched for each of its items would take minutes."""
    _, folder = exported()
    entry = {"type": "bool", "value": True, "instead_of": None}
    entries = [{"key": f"x.{number}", **entry} for number in range(30_000)]
    (folder / KEPT).write_text(json.dumps({"format": 1, "metadata": entries}))
    with ggufkit.open(again(folder)) as model:
        assert "x.29999" in model.metadata


def test_text_that_is_not_utf_8_gives_a_typed_error(home, exported, tmp_path):
    path, _ = exported(**{"x.y": "QQQQ"})
    path.write_bytes(path.read_bytes().replace(b"QQQQ", b"Q\xff\xfeQ"))
    with (
        ggufkit.open(path) as model,
        pytest.raises(CheckpointError, match="not UTF-8"),
    ):
        ggufkit.export(model, tmp_path / "again", arch_path=[home / "arch"])
    assert not (tmp_path / "again").exists()


def test_ignores_an_order_of_other_names(exported, again):
    path, folder = exported()
    (folder / KEPT).write_text(json.dumps({"format": 1, "keys": ["a"], "tensors": ["b", "b"]}))
    assert again(folder).read_bytes() == path.read_bytes()
