from __future__ import annotations

import json

import numpy as np
import pytest

import ggufkit as api
from ggufkit.cli.output import size
from ggufkit.imatrix import Entry, Imatrix
from ggufkit.quantization.recipes import ALL_RECIPES
from shell import done, ggufkit, process

RNG = np.random.default_rng(3)
TENSORS = {
    "blk.0.ffn_up.weight": RNG.standard_normal((64, 96), np.float32),
    "norm.bias": np.ones(96, np.float32),
    "odd.weight": RNG.standard_normal((4, 40), np.float32),
}
KEYS = {"general.architecture": "llama", "general.name": "x"}


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in-F16.gguf"
    api.save(path, TENSORS, KEYS)
    return path


def types(path):
    with api.open(path) as model:
        return {tensor.name: tensor.type.name for tensor in model.tensors.values()}


@pytest.mark.parametrize("recipe", ["Q8_0", "q4_k_m", "Q5_K", "7", "F16"])
def test_quantized_file_matches_what_the_library_writes(source, recipe):
    out, library = source.with_name("out.gguf"), source.with_name("library.gguf")
    done("quantize", source, out, recipe, "--threads", 2)
    with api.open(source) as model:
        api.write(api.quantize(model, recipe), library)
    assert out.read_bytes() == library.read_bytes()


def test_report_is_one_line_with_name_and_size(source):
    out = source.with_name("out.gguf")
    result = done("quantize", source, out, "Q8_0")
    assert result.out == f"wrote {out} ({out.stat().st_size / 1000:.1f} kB)\n"


def test_notes_a_fallback(source):
    result = done("quantize", source, source.with_name("out.gguf"), "Q4_0")
    assert result.err == (
        "note: the base type Q4_0 has 4.50 bits per weight, this model gets 5.20: rows of 40 "
        "columns do not divide into the blocks of the recipe's types\n"
        "note: 1 tensor with rows that do not divide into blocks: F16 instead of Q4_0, "
        "230 bytes more\n"
    )
    assert list(types(source.with_name("out.gguf")).values()) == ["F32", "F16", "Q4_0"]


def test_requantizing_needs_an_option_and_is_noted(source):
    once, twice = source.with_name("once.gguf"), source.with_name("twice.gguf")
    assert "quality" not in done("quantize", source, once, "Q8_0").err
    refused = ggufkit("quantize", once, twice, "Q4_0")
    assert refused.code == 1
    assert "--allow-requantize" in refused.err
    assert not twice.exists()
    dry = done("quantize", once, twice, "Q4_0", "--dry-run").err
    assert "without --allow-requantize it is refused" in dry
    allowed = done("quantize", once, twice, "Q4_0", "--allow-requantize")
    assert "1 tensor quantized already (Q8_0): " in allowed.err
    assert "--requantize-smaller" not in allowed.err
    assert "(from 8.50 to 4.50 bits per weight)" in allowed.err
    assert "quality" not in done("quantize", once, twice, "Q8_0").err


def test_nothing_becomes_larger_or_is_only_rounded_again_if_asked(source):
    once, twice = source.with_name("once.gguf"), source.with_name("twice.gguf")
    done("quantize", source, once, "Q4_0")
    for recipe in ("Q8_0", "IQ4_NL"):
        result = done("quantize", once, twice, recipe, "--requantize-smaller")
        assert f"1 tensor kept as Q4_0: {recipe} would not be smaller" in result.err
        assert types(twice) == types(once)
        with api.open(once) as before, api.open(twice) as after:
            assert all(
                np.array_equal(t.raw(), after[t.name].raw()) for t in before.tensors.values()
            )
    larger = done("quantize", once, twice, "Q8_0", "--allow-requantize")
    with api.open(once) as before, api.open(twice) as after:
        extra = sum(after.tensors[t.name].nbytes - t.nbytes for t in before.tensors.values())
    note = f"1 tensor of these would not become smaller, {size(extra)} more: --requantize-smaller"
    assert note in larger.err
    done("quantize", source, once, "Q8_0")
    done("quantize", once, twice, "Q4_0", "--requantize-smaller")
    allowed = source.with_name("allowed.gguf")
    done("quantize", once, allowed, "Q4_0", "--allow-requantize")
    assert twice.read_bytes() == allowed.read_bytes()


# Several at once.


def test_several_recipes_are_written_to_a_folder_under_their_names(source):
    folder = source.with_name("folder")
    done("quantize", source, f"{folder}/", "Q4_0,Q8_0,q4_0")
    assert sorted(path.name for path in folder.iterdir()) == ["in-Q4_0.gguf", "in-Q8_0.gguf"]
    for recipe in ("Q4_0", "Q8_0"):
        alone = source.with_name("alone.gguf")
        done("quantize", source, alone, recipe)
        assert (folder / f"in-{recipe}.gguf").read_bytes() == alone.read_bytes()


def test_several_recipes_fill_the_field_in_a_file_name(source):
    result = done("quantize", source, source.with_name("my-{recipe}.gguf"), "Q4_0,Q8_0", "--json")
    files = [output["files"][0]["path"] for output in result.json()["outputs"]]
    assert files == [str(source.with_name(f"my-{recipe}.gguf")) for recipe in ("Q4_0", "Q8_0")]


def test_several_recipes_cannot_share_one_file(source):
    result = ggufkit("quantize", source, source.with_name("out.gguf"), "Q4_0,Q8_0")
    assert result.code == 2
    assert "{recipe}" in result.err
    assert list(source.parent.iterdir()) == [source]


# Recipes of one's own.


def test_toml_file_gives_types_to_patterns_in_order(source):
    mine = source.with_name("mine.toml")
    mine.write_text('base = "Q8_0"\n[types]\n"ffn_up" = "q5_1"\n"ffn" = "Q4_0"\n')
    done("quantize", source, source.with_name("out.gguf"), mine)
    assert types(source.with_name("out.gguf"))["blk.0.ffn_up.weight"] == "Q5_1"
    with api.open(source.with_name("out.gguf")) as model:
        assert model.metadata["general.file_type"] == 7


def test_toml_file_without_a_base_keeps_the_other_types(source):
    mine = source.with_name("mine.toml")
    mine.write_text('[types]\n"ffn_up" = "Q5_1"\n')
    done("quantize", source, source.with_name("out.gguf"), mine)
    assert types(source.with_name("out.gguf")) == {
        "blk.0.ffn_up.weight": "Q5_1",
        "norm.bias": "F32",
        "odd.weight": "F32",
    }


@pytest.mark.parametrize(
    "text",
    [
        "base = 1",
        'base = "Q9"',
        "[types]\na = 1",
        '[types]\na = "Q9"',
        '[types]\n"(" = "Q8_0"',
        "no toml",
        "other = 1",
        "\udcff",
    ],
)
def test_error_in_a_recipe_file_names_the_file(source, text):
    mine = source.with_name("mine.toml")
    mine.write_bytes(text.encode("utf-8", "surrogateescape"))
    result = ggufkit("quantize", source, source.with_name("out.gguf"), mine)
    assert result.code == 2
    assert "mine.toml" in result.err


def test_types_are_taken_from_another_model(source):
    other, out = source.with_name("other.gguf"), source.with_name("out.gguf")
    done("quantize", source, other, "Q4_0", "--tensor-type", "FFN_UP=Q5_0")
    done("quantize", source, out, "--like", other)
    assert out.read_bytes() == other.read_bytes()


def test_types_in_a_file_are_separated_by_spaces_or_lines(source):
    listed = source.with_name("types.txt")
    listed.write_text("odd=F16 ffn_up=Q5_0\nffn=Q4_0\n")
    done("quantize", source, source.with_name("out.gguf"), "Q4_0", "--tensor-type-file", listed)
    assert types(source.with_name("out.gguf"))["blk.0.ffn_up.weight"] == "Q5_0"


# Keys.


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le-bom"])
def test_files_with_windows_line_endings_keep_every_rule(source, encoding):
    mark, name = ("\ufeff", "utf-16-le") if encoding.endswith("bom") else ("", encoding)
    listed, recipe = source.with_name("types.txt"), source.with_name("r.toml")
    listed.write_bytes((mark + "ffn_up=Q8_0").encode(name))
    recipe.write_bytes((mark + '[types]\nffn_up = "Q8_0"\n').encode(name))
    for words in (("Q4_1", "--tensor-type-file", listed), (recipe,)):
        result = done("quantize", source, "--dry-run", "--json", *words)
        kinds = {one["name"]: one["new_type"] for one in result.json()["tensors"]}
        assert kinds["blk.0.ffn_up.weight"] == "Q8_0"
        assert "changes nothing" not in result.err


def test_file_of_types_may_be_shared_by_models_that_lack_some_names(source):
    listed, out = source.with_name("types.txt"), source.with_name("out.gguf")
    listed.write_text("ffn_up=Q8_0 ssm_out=Q8_0 ffn_gate=Q5_0")
    result = done("quantize", source, out, "Q4_0", "--tensor-type-file", listed)
    assert f"note: {listed}: no tensor name contains 'ssm_out', 'ffn_gate'\n" in result.err
    assert types(out)["blk.0.ffn_up.weight"] == "Q8_0"
    failed = ggufkit("quantize", source, out, "Q4_0", "--tensor-type", "ssm_out=Q8_0")
    assert (failed.code, "ssm_out" in failed.err) == (1, True)


def test_notes_a_pattern_that_matches_nothing(source):
    recipe = source.with_name("mine.toml")
    recipe.write_text('base = "F16"\n[types]\n"never" = "Q4_0"\n"ffn" = "Q8_0"\n')
    result = done("quantize", source, recipe, "--dry-run", "--json")
    assert result.json()["unmatched"] == ["never"]
    assert "note: 'never' changes nothing: no tensor name contains it" in result.err
    wrong = ggufkit("quantize", source, "Q8_0", "--dry-run", "--tensor-type", "nosuch=Q4_0")
    assert (wrong.code, "'nosuch'" in wrong.err) == (1, True)
    idle = done("quantize", source, "F16", "--dry-run", "--tensor-type", "ffn_up=Q8_0")
    assert "note: 'ffn_up' changes nothing" in idle.err


def test_notes_name_parts_without_importance_data(source, tmp_path):
    entry = Entry(np.ones((1, 96), np.float32), np.array([1.0], np.float32))
    matrix = Imatrix({"blk.0.ffn_up.weight": entry}, ("t",), 1, 512).save(tmp_path / "m.gguf")
    words = ("quantize", source, "Q4_0", "--dry-run", "--imatrix", matrix)
    assert "'nope' changes nothing" in done(*words, "--include-weights", "nope").err
    assert "changes nothing" not in done(*words, "--exclude-weights", "ffn").err


def test_notes_name_the_recipe_they_are_about(source):
    err = done("quantize", source, "Q4_0,F16", "--dry-run").err
    assert err.startswith("note: Q4_0: the base type Q4_0 has 4.50 bits per weight")
    assert "note: Q4_0: 1 tensor with rows that do not divide" in err


def test_keys_are_set_with_their_types(source):
    overrides = {
        "general.name=str:a=b:c": ("string", "a=b:c"),
        "x.count=int:-5": ("int32", -5),
        "x.large=int:5000000000": ("uint64", 5000000000),
        "x.rate=float:0.5": ("float32", 0.5),
        "x.on=bool:true": ("bool", True),
        "x.list=array[int32]:[1, -2]": ("array[int32]", [1, -2]),
        'x.words=array[string]:["a", "b"]': ("array[string]", ["a", "b"]),
    }
    flags = [part for text in overrides for part in ("--override-kv", text)]
    done("quantize", source, source.with_name("out.gguf"), "Q8_0", *flags)
    with api.open(source.with_name("out.gguf")) as model:
        for text, (kind, value) in overrides.items():
            key = text.partition("=")[0]
            assert model.metadata.type_name(key) == kind
            stored = model.metadata[key]
            assert (list(stored) if isinstance(value, list) else stored) == value


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "x=1",
        "=int:1",
        "x=int:",
        "x=int:1.5",
        "x=bool:yes",
        "x=float:one",
        "x=uint8:300",
        "x=strange:1",
        "x=array[int32]:1",
        "x=array[int32]:[1",
        "x=array[int8]:[300]",
    ],
)
def test_impossible_override_is_wrong_usage(source, text):
    result = ggufkit("quantize", source, "out.gguf", "Q8_0", "--override-kv", text)
    assert result.code == 2
    assert "--override-kv" in result.err


# Before doing it.


def test_dry_run_shows_each_tensor_and_writes_nothing(source):
    result = done("quantize", source, "Q8_0", "--dry-run")
    rows = [line.replace(" x ", "x").split() for line in result.lines[1:4]]
    assert rows == [
        ["norm.bias", "96", "F32", "384", "384"],
        ["odd.weight", "4x40", "F32", "F16", "640", "320"],
        ["blk.0.ffn_up.weight", "64x96", "F32", "Q8_0", "24,576", "6,528"],
    ]
    assert result.lines[-2:] == [
        "now   25.6 kB, 32.00 bits per weight",
        "then  7.2 kB, 9.04 bits per weight",
    ]
    assert list(source.parent.iterdir()) == [source]


def test_dry_run_shows_what_is_then_written(source):
    out = source.with_name("out.gguf")
    promised = done("quantize", source, out, "Q5_1", "--dry-run", "--json").json()
    written = done("quantize", source, out, "Q5_1", "--json").json()
    assert promised["files"] == []
    assert written.pop("files") == [{"path": str(out), "nbytes": out.stat().st_size}]
    assert promised | {"files": None} == written | {"files": None}
    assert written["file_nbytes"] == out.stat().st_size
    assert written["fallbacks"] == ["odd.weight"]
    with api.open(out) as model:
        assert [(t["name"], t["new_type"], t["new_nbytes"]) for t in written["tensors"]] == [
            (tensor.name, tensor.type.name, tensor.nbytes) for tensor in model.tensors.values()
        ]
        assert written["new_nbytes"] == sum(t.nbytes for t in model.tensors.values())


def test_dry_run_shows_the_old_types(source):
    document = done("quantize", source, "Q8_0", "--dry-run", "--json").json()
    before = {t["name"]: (t["type"], t["nbytes"]) for t in document["tensors"]}
    with api.open(source) as model:
        assert before == {t.name: (t.type.name, t.nbytes) for t in model.tensors.values()}


def test_dry_run_shows_what_would_be_refused(tmp_path):
    path = tmp_path / "in.gguf"
    tensors = {f"blk.{i}.attn_q.weight": np.ones((2, 256), np.float32) for i in range(3)}
    api.save(path, tensors, KEYS | {"llama.block_count": 3})
    result = done("quantize", path, "IQ2_XXS", "--dry-run")
    assert "3 tensors (blk.0-2.attn_q.weight)" in result.err
    document = done("quantize", path, "IQ2_XXS", "--dry-run", "--json").json()
    assert document["uncovered"] == list(tensors)
    refused = ggufkit("quantize", path, tmp_path / "out.gguf", "IQ2_XXS")
    assert refused.code == 1
    assert "3 tensors (blk.0-2.attn_q.weight)" in refused.err
    promoted = done("quantize", path, tmp_path / "out.gguf", "IQ2_XXS", "--promote-uncovered")
    assert "3 tensors without importance data: Q2_K instead of IQ2_XXS" in promoted.err


def test_dry_run_works_on_a_model_without_tensors(tmp_path):
    api.save(tmp_path / "none.gguf", {}, {"a": 1})
    result = done("quantize", tmp_path / "none.gguf", "Q8_0", "--dry-run")
    assert result.lines[-2:] == ["now   0 bytes", "then  0 bytes"]


# To a pipe.


def test_pipe_gets_the_same_bytes(source):
    out = source.with_name("out.gguf")
    done("quantize", source, out, "Q4_1")
    with process("quantize", source, "-", "Q4_1") as command:
        piped, _ = command.communicate()
    assert piped == out.read_bytes()


def test_model_and_json_cannot_share_a_pipe(source):
    assert ggufkit("quantize", source, "-", "Q8_0", "--json").code == 2


# What cannot be done.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Name a recipe"),
        (["Q8_0"], "Name the output"),
        (["out.gguf", "Q9_9"], "Q4_K_M"),
        (["out.gguf", "Q8_0", "--tensor-type", "ffn"], "attn_v=Q6_K"),
        (["out.gguf", "Q8_0", "--tensor-type", "ffn=Q9"], "unknown tensor type"),
        (["out.gguf", "Q8_0", "--output-tensor-type", "Q9"], "unknown tensor type"),
        (["out.gguf", "Q8_0", "--prune-layers", "x"], "3,5-7"),
        (["out.gguf", "Q8_0", "--include-weights", "a", "--exclude-weights", "b"], "not both"),
    ],
)
def test_wrong_usage_error_shows_right_usage(source, arguments, message):
    result = ggufkit("quantize", source, *arguments)
    assert result.code == 2
    assert message in " ".join(result.err.split())
    assert list(source.parent.iterdir()) == [source]


def test_model_is_never_written_over_itself(source):
    before = source.read_bytes()
    result = ggufkit("quantize", source, source, "Q8_0")
    assert result.code == 1
    assert "also an input" in result.err
    assert source.read_bytes() == before


def test_missing_folder_is_an_error(source):
    result = ggufkit("quantize", source, source.with_name("none") / "out.gguf", "Q8_0")
    assert result.code == 1
    assert "does not exist" in result.err


def test_shell_completes_recipes():
    completion = {"_GGUFKIT_COMPLETE": "bash_complete", "COMP_CWORD": "4"}
    words = {"COMP_WORDS": "ggufkit\nquantize\nin\nout\nQ8_0,q5_k"}
    with process(env=completion | words) as command:
        out, _ = command.communicate()
    expected = [f"plain,Q8_0,{name}" for name in ALL_RECIPES if name.startswith("Q5_K")]
    assert out.decode().split() == expected


def test_json_is_one_document(source):
    assert json.loads(done("quantize", source, "F16", "--dry-run", "--json").out)["recipe"] == "F16"


def test_search_is_shown_with_the_types_that_have_none(source):
    dry_run = done("quantize", source, "Q4_0", "--dry-run", "--search", "better")
    assert "search better: 1 tensor" in dry_run.out
    mixed = ["--tensor-type", "ffn_up=Q8_0", "--search", "best"]
    result = done("quantize", source, "Q4_0", "--dry-run", "--json", *mixed)
    assert "1 tensor without a search: Q8_0 has none" in result.err
    document = json.loads(result.out)
    assert document["search"] == "best"
    assert {tensor["search"] for tensor in document["tensors"]} == {None}


def test_explain_shows_reasons_errors_and_shares(source):
    out = source.with_name("out.gguf")
    planned = done("quantize", source, "Q4_0", "--dry-run", "--explain").out
    assert "base type of the recipe" in planned
    assert "%" not in planned
    text = done("quantize", source, out, "Q4_0", "--explain").out
    assert "base type of the recipe" in text
    assert "100.0%" in text
    assert f"wrote {out}" in text
    explanations = done("quantize", source, out, "Q4_0", "--explain", "--json").json()[
        "explanations"
    ]
    assert {row["name"] for row in explanations} == set(TENSORS)
    assert sum(row["share"] for row in explanations) == pytest.approx(1)


def test_explain_needs_a_file_to_measure(source):
    failed = ggufkit("quantize", source, "-", "Q4_0", "--explain")
    assert (failed.code, "--explain" in failed.err) == (2, True)
