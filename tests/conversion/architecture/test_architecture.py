from __future__ import annotations

from pathlib import Path

import pytest

import ggufkit
from ggufkit.conversion.architecture.architecture import architectures, find
from ggufkit.conversion.architecture.name_rules import NameIndex, compile_rules
from ggufkit.conversion.map_tensors import rename
from ggufkit.conversion.tokenizer.kinds import KINDS
from ggufkit.errors import CheckpointError, FormatError

ARCH = Path(ggufkit.__file__).parent / "conversion" / "architecture" / "files"


def written(folder, **files):
    folder.mkdir(exist_ok=True)
    for stem, text in files.items():
        (folder / f"{stem}.toml").write_text(text)
    return [folder]


def test_every_shipped_file_is_an_architecture_or_a_base():
    stems = {path.stem for path in ARCH.glob("*.toml")}
    assert set(architectures()) == stems - {"decoder"}


@pytest.mark.parametrize("stem", architectures())
def test_every_shipped_file_serves_classes_and_names_a_known_vocabulary(stem):
    architecture = architectures()[stem]
    assert architecture.classes
    kind, _, owner = architecture.vocabulary.rpartition(" of ")
    assert owner in KINDS or (owner == "target" and kind in ("", *KINDS))
    is_chosen = all(find([name]) == architecture for name in architecture.classes)
    assert is_chosen or architecture.convert_if


def test_no_two_shipped_files_serve_the_same_class_without_a_condition():
    every = architectures().values()
    served = [
        name
        for architecture in every
        if not architecture.convert_if
        for name in architecture.classes
    ]
    assert len(served) == len(set(served))


def test_condition_on_the_configuration_chooses_among_files_of_a_class(tmp_path):
    own = 'like = "llama"\nname = "llama"\nclasses = ["NewForCausalLM"]\n'
    folders = written(tmp_path, plain=own, with_experts=own + 'convert_if = "num_experts"')
    assert find(["NewForCausalLM"], folders).path == str(tmp_path / "plain.toml")
    nested = {"text_config": {"num_experts": 4}}
    for config in ({"num_experts": 4}, nested):
        architecture = find(["NewForCausalLM"], folders, config)
        assert architecture.path == str(tmp_path / "with_experts.toml")


def test_llama_model_class_is_converted_like_llama():
    llama = find(["LlamaModel"])
    assert llama == architectures()["llama"]
    assert rename("layers.0.mlp.up_proj.weight", llama.rename, {}.get).startswith("model.layers.")


def test_replaced_names_can_count_layers_from_a_field_on():
    fields = {"num_hidden_layers": 5}
    there = {"^mtp.layers.{i}.": "model.layers.{i + num_hidden_layers}."}
    back = {new: old.lstrip("^") for old, new in there.items()}
    assert rename("mtp.layers.2.norm", there, fields.get) == "model.layers.7.norm"
    assert rename("model.layers.7.norm", back, fields.get) == "mtp.layers.2.norm"
    for name in ("model.layers.4.norm", "a.mtp.layers.2.norm", "mtp.layers.norm"):
        assert rename(name, there | back, fields.get) == name


def test_unknown_class_suggests_the_nearest():
    with pytest.raises(
        CheckpointError, match=r"LlamaForCausalML.*nearest known is LlamaForCausalLM"
    ):
        find(["LlamaForCausalML"])
    with pytest.raises(CheckpointError, match=r"none in config\.json"):
        find([])


def test_users_folder_is_searched_first(tmp_path):
    own = 'like = "llama"\nname = "llama"\nclasses = ["LlamaForCausalLM", "NewForCausalLM"]'
    folders = written(tmp_path, mine=own)
    assert find(["NewForCausalLM"], folders).path == str(tmp_path / "mine.toml")
    assert find(["LlamaForCausalLM"], folders).path == str(tmp_path / "mine.toml")
    assert find(["Qwen2ForCausalLM"], folders).name == "qwen2"


def test_file_of_the_same_name_replaces_the_shipped_one(tmp_path):
    folders = written(tmp_path, llama='classes = ["OtherForCausalLM"]')
    assert find(["OtherForCausalLM"], folders).name == "llama"
    with pytest.raises(CheckpointError):
        find(["MistralForCausalLM"], folders)


def test_child_inherits_replaces_and_removes(tmp_path):
    base = """
        classes = ["Base"]
        skip = ["a"]
        [metadata]
        one = "x"
        two = "y"
        three = "z"
        [tensors]
        "t.{w}" = "u.{w}"
        "gone" = "gone"
    """
    child = """
        like = "base"
        classes = ["Child"]
        skip = ["b"]
        [metadata]
        two = 2
        three = "absent"
        four = "w"
        [tensors]
        "t.weight" = "v.weight"
        "gone" = "absent"
    """
    folders = written(tmp_path, base=base, child=child)
    architecture = find(["Child"], folders)
    assert architecture.name == "child"
    assert architecture.classes == ("Child",)
    assert architecture.skip[-2:] == ("a", "b")
    assert list(architecture.metadata) == [("one", "x"), ("two", "y"), ("two", 2), ("four", "w")]
    targets = {rule.pattern: rule.targets[0].name for rule in architecture.rules}
    assert targets == {"t.weight": "v.weight", "t.bias": "u.bias"}


def test_fresh_tables_are_not_inherited(tmp_path):
    base = 'classes = ["Base"]\n[metadata]\none = "x"\n[tensors]\na = "b"'
    child = 'like = "base"\nfresh = ["metadata"]\nclasses = ["Child"]'
    architecture = find(["Child"], written(tmp_path, base=base, child=child))
    assert list(architecture.metadata) == []
    assert len(architecture.rules) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("classes = [", "not valid TOML"),
        ('clases = ["X"]', "unknown word 'clases'.*classes"),
        ('classes = "X"', "classes must be a list"),
        ('like = "nothing"', "leads to no file"),
        ('like = "wrong"', "leads to no file"),
        ('[tensors]\na = "b | twist(3)"', "twist.*not an operation"),
        ('[tensors]\na = "b | permute(3 3)"', "not an expression"),
        ("[tensors]\na = 3", "must be a string"),
        ('[metadata]\na = "x if y else z"', "not allowed in an expression"),
        ('[defaults]\na = "x["', "not an expression"),
        ('required = ["x y"]', "not an expression"),
    ],
)
def test_error_in_a_file_names_its_place(tmp_path, text, message):
    with pytest.raises(FormatError, match=message) as caught:
        architectures(written(tmp_path, wrong=text))
    assert str(tmp_path / "wrong.toml") in str(caught.value)


def test_name_pattern_finds_layer_and_expert():
    rules = compile_rules({"l.{i}.e.{x}.w": "b.{i}.w", "l.{i}.n": "b.{i}.n", "s.0.w": "first"})
    index = NameIndex(tuple(rules))
    placed = index.place("l.12.e.3.w")
    assert (placed.layer, placed.expert, placed.rule.stacks) == (12, 3, True)
    assert index.place("l.7.n").layer == 7
    assert index.place("s.0.w").rule.targets[0].name == "first"
    for name in ("s.1.w", "l.x.n", "l.7.n.", "xl.7.n", "l.7", "l.-1.n", "l.1.e.3.wx"):
        assert index.place(name) is None
