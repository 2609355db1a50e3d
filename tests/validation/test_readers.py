"""Readers of files that anyone may have made give a result or a typed error for every value."""

from __future__ import annotations

import ast
import contextlib
import copy
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adapters
import ggufkit
import plain_checkpoint
import tensors_file
from ggufkit.errors import GGUFError
from ggufkit.evaluation.quality_rows import read_evaluation
from ggufkit.imatrix.hessian import Hessian
from ggufkit.quantization.losses.sensitivities import FORMAT, Sensitivity
from ggufkit.quantization.provenance import options_of
from ggufkit.quantization.recipe_files import read_recipe, read_tensor_types
from ggufkit.reports.drawings import quality_drawing

ROOT = Path(ggufkit.__file__).parent
ODD = [
    None, True, -1, 0, 1, 2**63, 10**400, 0.5, -0.0, 5e-324, 1e300, math.nan, math.inf, "", "x",
    "(", r"(\w|[a-z._0-9]|.)+!", "9" * 5000, [], [[]], {}, {"": None}, ["x"], [1], "../..",
]  # fmt: skip
FIVE_THOUSAND = "9" * 5000  # as a number, which Python refuses to parse


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in a JSON document."""
    yield path
    items = document.items() if isinstance(document, dict) else ()
    items = enumerate(document) if isinstance(document, list) else items
    for key, value in items:
        yield from places(value, (*path, key))


def changed(document: Any, path: tuple[Any, ...], value: object) -> Any:
    """Return a copy with another value at a place."""
    if not path:
        return value
    copied = copy.deepcopy(document)
    inner = copied
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return copied


def variants(document: Any) -> Iterator[str]:
    """Yield the text of the document with an odd value at each place, and without each."""
    for path in places(document):
        for value in ODD:
            yield json.dumps(changed(document, path, value))
        marked = json.dumps(changed(document, path, "here"))
        yield marked.replace('"here"', FIVE_THOUSAND)


MEASURED = {"value": 1.5, "error": 0.1}
EVALUATION = {
    "base": {"name": "a", "nbytes": 9, "perplexity": MEASURED, "divergence": None},
    "models": [
        {
            "name": "b", "nbytes": 7, "perplexity": MEASURED,
            "divergence": {"kld": {"mean": MEASURED}},
        }
    ],
}  # fmt: skip
LEVEL = {"type": "Q4_K", "bits": 4.5, "error": 0.1, "divergence": 0.2}
SENSITIVITIES = {
    "format": FORMAT, "context": 512, "predictions": 9,
    "groups": [{"name": "g", "tensors": ["a.weight"], "levels": [LEVEL]}],
}  # fmt: skip
SETTINGS = {
    "ggufkit": "1", "recipe": "Q8_0", "recipe_name": "x", "patterns": [["a", "Q4_0"]],
    "tensor_types": [["b", "F16"]], "override_kv": {"k": ["uint32", 1]}, "layers": [0],
    "types": {"a.weight": "F16"}, "output_tensor_type": "Q6_K", "search": "best",
}  # fmt: skip
PEFT = {
    "peft_type": "LORA", "r": 4, "lora_alpha": 8, "use_rslora": True, "alpha_pattern": {"q": 16},
    "base_model_name_or_path": "a/b", "alora_invocation_tokens": [1],
}  # fmt: skip


def read_qualities(path: Path) -> None:
    quality_drawing(read_evaluation(path))


def read_losses(path: Path) -> None:
    losses = Sensitivity.open(path).losses(["a.weight"])
    losses["a.weight"](0.5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("document", "read"), [(EVALUATION, read_qualities), (SENSITIVITIES, read_losses)]
)
def test_a_json_file_with_an_odd_value_gives_a_typed_error(
    tmp_path: Path, document: object, read: Callable[[Path], object]
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document))
    read(path)
    for text in variants(document):
        path.write_text(text)
        with contextlib.suppress(GGUFError):
            read(path)


def test_odd_provenance_gives_a_typed_error(tmp_path: Path) -> None:
    tensors = {"a.weight": np.ones((4, 32), np.float32), "b.weight": np.ones((4, 32), np.float32)}
    keys = {"general.architecture": "llama", "llama.block_count": 1}
    ggufkit.save(tmp_path / "a.gguf", tensors, keys)
    with ggufkit.open(tmp_path / "a.gguf") as model:
        for path in places(SETTINGS):
            for value in ODD:
                settings = changed(SETTINGS, path, value)
                changed_model = model.replace(metadata=model.metadata.updated(provenance(settings)))
                with contextlib.suppress(GGUFError):
                    ggufkit.reproduce(changed_model, model)
    assert options_of(SETTINGS)[0].name == "x"


def provenance(settings: object) -> dict[str, str]:
    return {"ggufkit.provenance.source": "0", "ggufkit.provenance.settings": json.dumps(settings)}


def test_an_odd_adapter_gives_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "arch").mkdir()
    (tmp_path / "arch" / "plain.toml").write_text(plain_checkpoint.ARCH)
    weights = plain_checkpoint.whole(np.float32)
    base = tensors_file.write_checkpoint(tmp_path / "base", plain_checkpoint.CONFIG, model=weights)
    arrays = adapters.factors({name: array.shape for name, array in weights.items()})
    folder = adapters.write_adapter(tmp_path / "adapter", arrays)
    for text in variants(PEFT):
        (folder / "adapter_config.json").write_text(text)
        with contextlib.suppress(GGUFError):
            ggufkit.convert_lora(folder, base=base, arch_path=[tmp_path / "arch"]).close()


SHAPES = [(0,), (2,), (2, 1), (2, 1, 1), (2, 1, 2), (2, 32, 32), (2, 16, 33), (2, 3, 16, 33)]


@pytest.mark.parametrize("sums", SHAPES, ids=str)
def test_an_odd_hessian_gives_a_typed_error(tmp_path: Path, sums: tuple[int, ...]) -> None:
    model, path = tmp_path / "m.gguf", tmp_path / "h.gguf"
    ggufkit.save(model, {"w": np.ones((8, 32), np.float32)}, {"general.architecture": "llama"})
    keys = {"general.type": "hessian", "general.architecture": "x"}
    keys |= {"hessian.matrices": ["w"], "hessian.owners": ["w"]}
    for counts in ((0,), (2,), (2, 1), (2, 3)):
        for first, tokens in (((32,), 5), ((31,), "x"), ((2, 32), np.uint64(2**64 - 1))):
            tensors = {
                "w.moments": np.ones(sums, np.float32),
                "w.moment_counts": np.full(counts, 5),
                "w.first_row": np.ones(first, np.float32),
            }
            ggufkit.save(path, tensors, keys | {"hessian.token_count": tokens})
            with contextlib.suppress(GGUFError):
                Hessian.open(path).importance()
            with contextlib.suppress(GGUFError), ggufkit.quantize(model, "Q4_0", hessian=path) as q:
                q.tensors["w"].raw()


@pytest.mark.parametrize("rows", [(0, 32), (8, 0), (0, 0), (2, 0, 32), (0, 8, 32), (8, 32)])
@pytest.mark.parametrize("alpha", [np.float32("nan"), np.float64(1e300), "x", 3])
def test_an_odd_adapter_file_gives_a_typed_error(
    tmp_path: Path, rows: tuple[int, ...], alpha: object
) -> None:
    *outer, height, width = rows
    model, path = tmp_path / "m.gguf", tmp_path / "a.gguf"
    ggufkit.save(model, {"w": np.ones(rows, np.float32)}, {"general.architecture": "x"})
    factors = {
        "w.lora_a": np.ones((*outer, 4, width), np.float32),
        "w.lora_b": np.ones((*outer, height, 4), np.float32),
    }
    keys = {"general.architecture": "x", "general.type": "adapter", "adapter.type": "lora"}
    ggufkit.save(path, factors, keys | {"adapter.lora.alpha": alpha})
    with contextlib.suppress(GGUFError), ggufkit.merge_lora(model, path) as merged:
        merged.tensors["w"].numpy()


@pytest.mark.parametrize("value", ["1", "-1", FIVE_THOUSAND, "nan", "inf", "[]", '""', "{}"])
def test_an_odd_recipe_gives_a_typed_error(tmp_path: Path, value: str) -> None:
    path = tmp_path / "a.toml"
    for text in (f"base = {value}", f"types = {value}", f'[types]\n"a" = {value}', f"x = {value}"):
        path.write_text(text)
        with contextlib.suppress(GGUFError):
            read_recipe(path)
    path.write_text(f"a={value} ({value}=Q4_0")
    with pytest.raises(GGUFError):
        read_tensor_types(path)
    with pytest.raises(GGUFError):
        ggufkit.quantize(path, 10**5000)


@pytest.mark.parametrize("number", [-1, 2**32, 2**63, "x"])
def test_an_odd_number_of_a_recipe_is_replaced_by_a_guess(tmp_path: Path, number: object) -> None:
    keys = {"general.architecture": "llama", "general.file_type": number}
    ggufkit.save(tmp_path / "m.gguf", {"w": np.ones((8, 32), np.float32)}, keys)
    with ggufkit.quantize(tmp_path / "m.gguf", "COPY") as copied:
        assert copied.metadata["general.file_type"] == 1024  # guessed: F32


# Files of which every value comes in through a typed door: these, and all that parse a document.
PARSERS = {"json.loads", "_toml.loads", "yaml.parse", "ast.literal_eval"}
NAMED = {
    "lora/peft.py", "lora/pairs.py", "reports/drawings.py", "quantization/file_keys.py",
    "conversion/architecture/generated.py", "conversion/checkpoint/bitsandbytes.py",
    "view/memory_page.py",
}  # fmt: skip
# Calls of what was checked before, by a pattern or by a type.
CHECKED = {
    "quantization/losses/sensitivities.py": {"float(np.interp(error, errors, losses))"},
    "conversion/architecture/generated.py": {"int(length * _share(share))"},
    "cli/commands/edit.py": {
        "float(text)", "int(text)", "int(text, 16 if 'x' in text.lower() else 10)",
    },
    "conversion/checkpoint/packed_weights.py": {"int(sizes[1])"},
    "conversion/diffusion/checkpoint_files.py": {"int(match['count'] or 1)", "int(count[1])"},
    "diffusion/architecture.py": {"int(block[2])"},
    "inspection/kv_cache.py": {"int(item)"},
    "conversion/tokenizer/own/lines.py": {"float(score)", "int(match['length'])"},
    "lora/image_adapter.py": {"float(alpha.numpy().reshape(-1)[0])"},
    "quantization/recipe_files.py": {"float(written)", "int(written)"},
    "release/settings.py": {"float(rung[:-3])"},
    "view/serving/routes.py": {"int(text)"},
}  # fmt: skip


def calls_in(path: Path, names: set[str]) -> set[str]:
    calls = (n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.Call))
    return {ast.unparse(call) for call in calls if ast.unparse(call.func) in names}


PARSING = {
    path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if calls_in(path, PARSERS)
}


@pytest.mark.parametrize("name", sorted(NAMED | PARSING))
def test_values_come_in_through_typed_doors(name: str) -> None:
    calls = calls_in(ROOT / name, {"int", "float"})
    assert calls == CHECKED.get(name, set()), "use finite_number or integer of typed_values"


# Fields of a parsed document are read where errors of its form are caught; these files are ours.
OWN_DOCUMENTS = {"diffusion/architecture.py", "rules/rules.py"}


def uncaught_fields(tree: ast.AST) -> set[str]:
    """Return the fields of parsed documents that are read outside a `try` for MISFORMED."""
    documents = {
        ast.unparse(node.targets[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and any(ast.unparse(c.func) in PARSERS for c in ast.walk(node.value) if is_call(c))
    }
    caught = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.Try) and any("MISFORMED" in ast.unparse(h) for h in node.handlers)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    return {
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Load)
        and ast.unparse(node.value) in documents
        and id(node) not in caught
    }


def is_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call)


@pytest.mark.parametrize("name", sorted(PARSING - OWN_DOCUMENTS))
def test_fields_of_documents_are_read_where_errors_of_form_are_caught(name: str) -> None:
    assert uncaught_fields(ast.parse((ROOT / name).read_text("utf-8"))) == set()


def test_a_field_that_is_read_without_a_net_is_noticed() -> None:
    code = "x = json.loads(t)\ny = x['a']\ntry:\n    z = x['b']\nexcept MISFORMED:\n    pass"
    assert uncaught_fields(ast.parse(code)) == {"x['a']"}
