"""Every function takes a model or a path, and closes what it opened."""

from __future__ import annotations

import multiprocessing
import operator
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import ClosedError
from small_llama import keys, tensors

BAD = "tokenizer.chat_template"
CALLS = {
    "check": ggufkit.check,
    "conventional_name": ggufkit.conventional_name,
    "diff": lambda model: ggufkit.diff(model, model),
    "digest": lambda model: ggufkit.digest(model, "sha256"),
    "estimate": lambda model: ggufkit.estimate(model, context=32),
    "plan": lambda model: ggufkit.plan(model, "Q8_0"),
    "target": lambda model: ggufkit.target(model, bpw=9, candidates=["Q8_0", "F16"]),
    "edit": lambda model: ggufkit.edit(model, set={"general.name": "x"}).metadata,
    "quantize": lambda model: ggufkit.quantize(model, "Q8_0").tensors.to_dicts()[0]["type"],
    "merge_lora": lambda model: repr_of(ggufkit.merge_lora(model, [])),
    "extract_lora": lambda model: ggufkit.extract_lora(model, tuned(), rank=1).tensors,
    "select": lambda model: list(ggufkit.select(model, keep="blk.*")),
}


def tuned():
    """Return the same model, with larger weights."""
    return ggufkit.model({name: 2 * array for name, array in tensors().items()}, keys())


def repr_of(value):
    """Return an id without an address."""
    return type(value).__name__


@pytest.fixture
def path(tmp_path):
    """Return the path of a small model."""
    ggufkit.save(tmp_path / "m.gguf", tensors(), keys())
    return tmp_path / "m.gguf"


@pytest.mark.parametrize("name", CALLS)
def test_path_gives_what_the_model_gives(name, path):
    with ggufkit.open(path) as model:
        expected = CALLS[name](model)
        assert not model.closed
    assert CALLS[name](path) == CALLS[name](str(path)) == expected


def test_functions_that_are_done_close_what_they_opened(path, monkeypatch):
    opened = []
    real = ggufkit.models.any_model.open_model
    monkeypatch.setattr(
        "ggufkit.models.any_model.open_model", lambda p: opened.append(real(p)) or opened[-1]
    )
    difference = ggufkit.diff(path, ggufkit.edit(path, set={"general.tags": ["a"]}))
    ggufkit.digest(path)
    ggufkit.write(path, path.with_name("copy.gguf"))
    ggufkit.write_many([(path, path.with_name("two.gguf"))])
    assert [model.closed for model in opened] == [False, True, True, True, True] or [
        model.closed for model in opened
    ] == [True, False, True, True, True]
    assert list(difference.keys[0].after) == ["a"]


def test_result_of_a_path_owns_its_file(path):
    quantized = ggufkit.quantize(path, "Q8_0")
    assert not quantized.closed
    quantized.close()
    assert quantized.closed


def test_closing_a_derived_model_does_not_close_its_parent(path):
    with ggufkit.open(path) as model:
        for derived in (
            model.replace(),
            model.edit(set={"a": 1}),
            model.quantize("Q8_0"),
            model.select(keep="blk.*"),
            model.select(graft=[(model, "output_norm.weight")]),
        ):
            derived.close()
            assert not model.closed
            assert next(iter(derived.tensors.values())).numpy().size
    with pytest.raises(ClosedError):
        next(iter(derived.tensors.values())).numpy()


def test_metadata_stays_readable_after_closing(path):
    model = ggufkit.open(path)
    tokens, expected = model.metadata["tokenizer.ggml.tokens"], model.metadata.to_dict()
    model.close()
    assert tokens.tolist() == expected["tokenizer.ggml.tokens"]
    assert model.metadata.to_dict() == expected
    assert all(tensor.shape for tensor in model.tensors.values())


@pytest.mark.parametrize("wrong", [None, 7, ["m.gguf"], object()], ids=repr_of)
@pytest.mark.parametrize("name", CALLS)
def test_another_kind_of_argument_is_named(name, wrong):
    with pytest.raises(TypeError, match=r"neither a model nor a path|must be a path or a model"):
        CALLS[name](wrong)


def test_models_pickle_by_path(path):
    with ggufkit.open(path) as model:
        data = pickle.dumps(model)
        assert len(data) < 1000 + len(str(path))
        for original in (model, model.edit(set={"a": 1}), ggufkit.quantize(model, "Q8_0")):
            with pickle.loads(pickle.dumps(original)) as again:
                assert not ggufkit.diff(original, again)
                assert again.metadata == original.metadata
    path.write_bytes(path.read_bytes() + bytes(32))
    with pytest.raises(ValueError, match="replaced"):
        pickle.loads(data)


def test_nothing_leaks_at_exit(path):
    code = (
        "import sys, pickle, threading, ggufkit; model = ggufkit.open(sys.argv[1]);"
        "tensor = next(iter(model.tensors.values())); rows = tensor[[0, 1]]; array = tensor.raw();"
        "sys.kept = model; copy = pickle.loads(pickle.dumps(model)); again = pickle.loads("
        "pickle.dumps(tensor)); loop = [model]; loop.append(loop); word = model.metadata['tokenizer"
        ".ggml.tokens']; thread = threading.Thread(target=lambda: tensor.numpy()); thread.start()"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")


# Models in memory.


def test_model_of_rows_that_a_function_yields(tmp_path):
    requests = []

    def rows(start, stop):
        requests.append((start, stop))
        yield from np.arange(start * 64, stop * 64, dtype=np.float32).reshape(-1, 64)

    whole = np.arange(40000 * 64, dtype=np.float32).reshape(40000, 64)
    model = ggufkit.model({"a": ((40000, 64), "Q8_0", rows), "b": ((50, 800, 64), "F32", rows)})
    assert not requests
    model.write(tmp_path / "m.gguf")
    with ggufkit.open(tmp_path / "m.gguf") as written:
        expected = ggufkit.quants.quantize(whole, "Q8_0")
        assert np.array_equal(written["a"].raw(), expected)
        assert np.array_equal(written["b"].numpy(), whole.reshape(50, 800, 64))
    assert max(stop - start for start, stop in requests) < 40000


def test_function_may_return_packed_rows():
    packed = ggufkit.quants.quantize(np.ones((4, 64), np.float32), "Q4_0")
    model = ggufkit.model({"t": ((4, 64), "Q4_0", lambda start, stop: packed[start:stop])})
    assert np.array_equal(model["t"].raw(), packed)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (((4, 64), "Q8_0", lambda *_: np.zeros(3)), "returned an array of"),
        (("a", "Q8_0", lambda *_: 0), "is not a shape"),
        (((4, 60), "Q8_0", lambda *_: 0), "do not divide into the blocks"),
        (([1, 2], 3, 4), "a tuple is a pair"),
        ([[1], [1, 2]], "is not an array"),
    ],
)
def test_tensor_of_another_form_is_named(value, message):
    with pytest.raises(ValueError, match=f"tensor 't'.*{message}"):
        ggufkit.model({"t": value})["t"].numpy()


def test_model_is_a_mapping_of_its_tensors():
    model = ggufkit.model({"a": np.ones((2, 3), np.float32)}, {"general.architecture": "llama"})
    assert (list(model), list(model.keys()), "a" in model, "b" in model) == (
        *(["a"], ["a"], True),
        False,
    )
    assert dict(model) == {"a": model["a"]}
    assert (model.architecture, model.parameters, model.nbytes, model.path, model.closed) == (
        *("llama", 6, 24, None),
        False,
    )


def test_opened_model_knows_its_path(path):
    with ggufkit.open(path) as model:
        assert model.path == Path(path)


def test_model_that_is_not_in_a_file_is_checked_as_the_file_that_it_would_become(path):
    broken = {"output.weight": np.full((3, 32), np.nan, np.float32)}
    keys = {"general.architecture": "llama", BAD: "{{"}
    for model in (
        ggufkit.model(broken, keys),
        ggufkit.open(path).edit(set={BAD: "{{"}, force=True),
    ):
        written = path.with_name("written.gguf")
        ggufkit.write(model, written)
        expected = ggufkit.check(written, data=True)
        assert expected
        assert model.check(data=True) == expected
        assert {finding.path.name for finding in model.check()} == {"<model>"}
        with written.open("rb") as opened:
            for content in (written.read_bytes(), opened):
                assert ggufkit.check(ggufkit.open(content), data=True) == expected


def test_spawned_processes_read_models_metadata_and_tensors(path):
    with (
        ggufkit.open(path) as model,
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes,
    ):
        name = next(iter(model))
        for mapping in (model, model.edit(set={"a": 1}).tensors, model.tensors):
            tensor = processes.submit(operator.getitem, mapping, name).result()
            assert (tensor.raw() == model[name].raw()).all()
        assert processes.submit(len, model.metadata).result() == len(model.metadata)


def test_what_is_neither_path_nor_model_is_not_checked():
    with pytest.raises(TypeError, match="argument path must be a path or a model"):
        ggufkit.check(3)


def test_notebook_shows_plans_findings_and_metadata_as_tables(path):
    edited = ggufkit.edit(
        path, set={"general.name": "<b>", BAD: "{{", "words": ["a"] * 1000}, force=True
    )
    plan = ggufkit.layout(edited, "m.gguf", shard_tensors=2)
    tables = [value._repr_html_() for value in (plan, edited.check(), edited.metadata)]
    assert "m-00002-of-" in tables[0]
    assert "template-syntax" in tables[1]
    assert "&lt;b&gt;" in tables[2]
    assert all(text.count("<table ") == text.count("</table>") > 0 for text in tables)
    assert all("<b><" not in text and len(text) < 10_000 for text in tables)
    assert ggufkit.check(path)._repr_html_() == "<p>no findings</p>"


def test_notebook_shows_a_difference_escaped(path):
    difference = ggufkit.diff(path, ggufkit.edit(path, set={"general.name": "<script>"}))
    assert "&lt;script&gt;" in difference._repr_html_()


WRONG_ARGUMENTS = {
    "algorithms": lambda m: ggufkit.digest(m, [1]),
    "keep": lambda m: ggufkit.select(m, keep=7),
    "prune": lambda m: ggufkit.select(m, prune=["a"]),
    "graft": lambda m: ggufkit.select(m, graft=["blk.*"]),
    "add_tags": lambda m: ggufkit.edit(m, add_tags=[1]),
    "drop_keys": lambda m: ggufkit.edit(m, drop_keys=1),
    "set": lambda m: ggufkit.edit(m, set=["a"]),
    "types": lambda m: ggufkit.quantize(m, types=["Q8_0"]),
    "layers": lambda m: ggufkit.quantize(m, "Q8_0", layers="1"),
    "override_kv": lambda m: ggufkit.quantize(m, "Q8_0", override_kv="a=1"),
    "alignment": lambda m: ggufkit.write(m, "no.gguf", alignment=7),
}


@pytest.mark.parametrize("name", WRONG_ARGUMENTS)
def test_wrong_argument_is_named(name, path):
    with pytest.raises(TypeError, match=name) as wrong:
        WRONG_ARGUMENTS[name](path)
    assert not isinstance(wrong.value, ggufkit.errors.FormatError)


def test_one_string_is_one_item(path):
    assert ggufkit.edit(path, add_tags="abc", force=True).metadata.texts("general.tags")[-1:] == [
        "abc"
    ]
    assert [one.recipe for one in ggufkit.plan(path, "Q8_0")] == ["Q8_0"]


@pytest.mark.parametrize(
    "options", [{"types": {"typo": "Q8_0"}}, {"tensor_types": [("nosuch", "Q8_0")]}], ids=str
)
def test_name_that_matches_no_tensor_is_an_error(options, path):
    with pytest.raises(KeyError, match="no tensor has the name"):
        ggufkit.quantize(path, "Q4_0", **options)
