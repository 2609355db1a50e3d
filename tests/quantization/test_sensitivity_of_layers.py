"""Each layer of a quant costs what llama.cpp computes for a file with this layer alone."""

from __future__ import annotations

import shutil
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import ggufkit
import measured_llama
import real  # noqa: F401 (marks these tests: they run llama.cpp)
import shell
from ggufkit.quantization.sensitivity import measure_sensitivity

CONTEXT = 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("layers")
    measured_llama.save(folder / "model.gguf")
    measured_llama.text(folder / "text.txt")
    return folder


def mean_kld(folder, file):
    options = {"base": folder / "model.gguf", "context": CONTEXT, "threads": 1}
    done = ggufkit.evaluate(file, folder / "text.txt", **options)
    return done.models[0].divergence.kld.mean


def quant_file(folder, values=(), drop=""):
    """Write the model with other values in some tensors, and without one tensor."""
    with ggufkit.open(folder / "model.gguf") as model:
        tensors = {n: tensor for n, tensor in model.tensors.items() if n != drop} | dict(values)
        ggufkit.save(folder / "quant.gguf", tensors, model.metadata)
    return folder / "quant.gguf"


def by_layer(folder, quant):
    options = {"context": CONTEXT, "threads": 1, "quant": quant}
    measured = measure_sensitivity(folder / "model.gguf", folder / "text.txt", **options)
    return {group.name: group for group in measured.groups}


@pytest.mark.parametrize(("base", "dtype"), [("F32", np.float32), ("F16", np.float16)])
def test_a_layer_of_a_quant_costs_what_a_file_with_this_layer_costs(folder, tmp_path, base, dtype):
    measured_llama.text(tmp_path / "text.txt")
    model = ggufkit.quantize(folder / "model.gguf", base).write(tmp_path / "model.gguf")[0]
    quant = ggufkit.quantize(folder / "model.gguf", "Q4_0").write(tmp_path / "q.gguf")[0]
    layers = by_layer(tmp_path, quant)
    assert [*layers] == ["token_embd.weight", "blk.0", "blk.1"]
    resting = mean_kld(tmp_path, shutil.copy(model, tmp_path / "copy.gguf")).value
    for group in layers.values():
        with ggufkit.open(model) as own, ggufkit.open(quant) as other:
            values = {n: other.tensors[n].numpy().astype(dtype) for n in group.tensors}
            ggufkit.save(tmp_path / "one.gguf", dict(own.tensors) | values, own.metadata)
            bits = [other.tensors[n].nbytes * 8 for n in group.tensors]
            elements = [other.tensors[n].elements for n in group.tensors]
        mean = mean_kld(tmp_path, tmp_path / "one.gguf")
        [level] = group.levels
        assert level.divergence == pytest.approx(mean.value - resting, rel=1e-4, abs=1e-9)
        assert mean.error > 0
        assert level.standard_error == pytest.approx(mean.error, rel=1e-4)
        assert level.bits == pytest.approx(sum(bits) / sum(elements))


def test_weights_are_their_own_again_after_each_layer(folder):
    same = by_layer(folder, folder / "model.gguf")
    assert {(g.levels[0].divergence, g.levels[0].error) for g in same.values()} == {(0.0, 0.0)}
    with ggufkit.open(folder / "model.gguf") as model:
        name = "blk.0.ffn_norm.weight"  # which no recipe quantizes
        doubled = model.tensors[name].numpy() * 2
    layers = by_layer(folder, quant_file(folder, {name: doubled}))
    assert name in layers["blk.0"].tensors
    assert layers["blk.0"].levels[0].divergence > 0
    assert layers["blk.1"].levels == same["blk.1"].levels


@pytest.mark.parametrize(
    ("values", "drop"),
    [({"blk.0.attn_q.weight": np.ones((32, 64), np.float32)}, ""), ({}, "blk.0.attn_q.weight")],
)
def test_a_quant_of_another_model_is_refused_first(folder, tmp_path, values, drop):
    text = tmp_path / "empty.txt"  # reading it would be an error too, but a later one
    text.touch()
    words = ("sensitivity", str(folder / "model.gguf"), str(text), "-o", str(tmp_path / "s.json"))
    done = shell.ggufkit(*words, "--quant", str(quant_file(folder, values, drop)))
    assert done.code == 1
    assert "the quant is of another model" in done.err
    assert "blk.0.attn_q.weight" in done.err
    assert not (tmp_path / "s.json").exists()


def test_the_command_measures_the_layers_of_a_quant_and_draws_them(folder, tmp_path):
    quant = ggufkit.quantize(folder / "model.gguf", "Q4_0").write(tmp_path / "q.gguf")[0]
    inputs = ("sensitivity", str(folder / "model.gguf"), str(folder / "text.txt"))
    options = ("--quant", str(quant), "--context", "32", "--threads", "1")
    done = shell.ggufkit(*inputs, *options, "-o", str(tmp_path / "layers.svg"))
    assert done.code == 0, done.err
    layers = by_layer(folder, quant)
    worst = max(layers, key=lambda name: layers[name].levels[0].divergence)
    first = done.out.splitlines()[1].split()
    assert first[0] == worst
    level = layers[worst].levels[0]
    assert first[-3:] == [f"{level.divergence:.6f}", "±", f"{level.standard_error:.6f}"]
    drawing = ET.parse(tmp_path / "layers.svg")  # noqa: S314 (our own file)
    bars = drawing.findall("{*}rect")
    labels = [text.text for text in drawing.findall("{*}text")][::2]
    assert labels == [f"{name} {group.levels[0].type}" for name, group in layers.items()]
    widths = dict(zip(layers, (float(bar.get("width")) for bar in bars), strict=True))
    assert max(widths, key=widths.__getitem__) == worst
    for more, code in ((("--sections", "2"), 2), (("-o", str(quant)), 1)):
        assert shell.ggufkit(*inputs, *options, *more).code == code
