"""Sensitivities are what llama.cpp computes with single groups changed, and repairs never lose."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ggufkit
import measured_llama
import real  # noqa: F401 (marks these tests: they run llama.cpp)
import shapes
import shell
from ggufkit.errors import FormatError, MissingTensorError, TensorTypeError, ValueTypeError
from ggufkit.evaluation.variants import Variants
from ggufkit.imatrix.compute import compute_imatrix
from ggufkit.imatrix.hessian import Hessian
from ggufkit.imatrix.matrix import Imatrix
from ggufkit.quantization.losses.sensitivities import Group, Level, Sensitivity
from ggufkit.quantization.repair import repair
from ggufkit.quantization.sensitivity import measure_sensitivity
from ggufkit.quantization.target import eligible

CONTEXT = 32
BITS = 5.0  # per weight


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sensitivity")
    measured_llama.save(folder / "model.gguf")
    measured_llama.text(folder / "text.txt")
    return folder


@pytest.fixture(scope="module")
def measured(folder):
    return measure_sensitivity(
        folder / "model.gguf", folder / "text.txt", context=CONTEXT, threads=1
    )


def changed_file(folder, types):
    """Write the model in its own types, with the values of a quantized one."""
    with ggufkit.open(folder / "model.gguf") as model:
        quantized = ggufkit.quantize(model, types=types)
        values = {name: quantized.tensors[name].numpy().astype(np.float32) for name in types}
        ggufkit.save(folder / "changed.gguf", dict(model.tensors) | values, model.metadata)
    return folder / "changed.gguf"


def divergence(folder, file):
    done = ggufkit.evaluate(
        file, folder / "text.txt", base=folder / "model.gguf", context=CONTEXT, threads=1
    )
    return done.models[0].divergence.kld.mean.value


def test_every_tensor_that_can_be_quantized_is_in_one_group(folder, measured):
    with ggufkit.open(folder / "model.gguf") as model:
        names = [tensor.name for tensor in eligible(model)]
    assert sorted(name for group in measured.groups for name in group.tensors) == sorted(names)


def test_one_section_puts_all_tensors_of_a_kind_together(folder):
    whole = measure_sensitivity(
        folder / "model.gguf", folder / "text.txt", context=CONTEXT, sections=1, threads=1
    )
    names = {group.name: group.tensors for group in whole.groups}
    assert names["blk.0-1.attn_q.weight"] == ("blk.0.attn_q.weight", "blk.1.attn_q.weight")
    with pytest.raises(ValueTypeError, match="0 sections are too few"):
        measure_sensitivity(folder / "model.gguf", folder / "text.txt", sections=0)


def test_a_level_is_the_divergence_of_a_written_file_with_these_values(folder, measured):
    resting = divergence(folder, changed_file(folder, {}))
    groups = sorted(measured.groups, key=lambda group: group.levels[-1].divergence)
    for group in (groups[0], groups[-1]):
        for level in group.levels:
            file = changed_file(folder, dict.fromkeys(group.tensors, level.type))
            expected = divergence(folder, file) - resting
            assert level.divergence == pytest.approx(expected, rel=1e-4, abs=1e-9)


def test_sensitivities_come_back_from_a_file(measured, tmp_path):
    assert Sensitivity.open(measured.save(tmp_path / "a.json")) == measured


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("divergence", float("nan")), ("divergence", 10**400), ("error", -1.0), ("error", [])),
        *(("bits", "x"), ("type", None), ("error", 5e-324), ("divergence", 1e300)),
        ("standard_error", -1.0),
    ],
)
def test_a_damaged_level_is_refused(measured, tmp_path, key, value):
    plain = json.loads(measured.to_json())
    plain["groups"][0]["levels"][0][key] = value
    path = tmp_path / "a.json"
    path.write_text(json.dumps(plain))
    with pytest.raises(FormatError, match=r"a\.json: the file has no sensitivities"):
        Sensitivity.open(path)


def test_sensitivities_without_standard_errors_are_read(measured, tmp_path):
    plain = json.loads(measured.to_json())
    for group in plain["groups"]:
        for level in group["levels"]:
            assert level.pop("standard_error") > 0
    path = tmp_path / "a.json"
    path.write_text(json.dumps(plain))
    read = Sensitivity.open(path)
    assert [group.tensors for group in read.groups] == [g.tensors for g in measured.groups]
    assert {level.standard_error for group in read.groups for level in group.levels} == {0.0}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', "[" * 100_000, "\xff"])
def test_another_file_is_refused(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(FormatError, match="the file has no sensitivities"):
        Sensitivity.open(path)


def test_sensitivities_of_another_model_are_refused_with_the_tensors(folder, measured):
    fewer = Sensitivity(measured.groups[1:], CONTEXT, 1)
    with pytest.raises(MissingTensorError, match=measured.groups[0].tensors[0]):
        ggufkit.target(folder / "model.gguf", bpw=BITS, sensitivity=fewer)
    path = fewer.save(folder / "fewer.json")
    with pytest.raises(MissingTensorError, match=r"fewer\.json: the sensitivities are of another"):
        ggufkit.target(folder / "model.gguf", bpw=BITS, sensitivity=path)


def test_quantized_weights_are_refused(folder, tmp_path):
    path = ggufkit.quantize(folder / "model.gguf", "Q8_0").write(tmp_path / "q.gguf")[0]
    with pytest.raises(TensorTypeError, match="quantized already"):
        measure_sensitivity(path, folder / "text.txt", context=CONTEXT)


@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.int16, np.int32, np.int64])
def test_types_at_which_llama_cpp_crashes_are_refused(folder, tmp_path, dtype):
    with ggufkit.open(folder / "model.gguf") as model:
        values = {"blk.0.attn_q.weight": np.ones((64, 64), dtype)}
        ggufkit.save(tmp_path / "m.gguf", dict(model.tensors) | values, model.metadata)
    for run in (measure_sensitivity, ggufkit.evaluate, compute_imatrix):
        with pytest.raises(TensorTypeError, match="cannot multiply"):
            run(tmp_path / "m.gguf", folder / "text.txt", context=CONTEXT)


def test_a_loss_follows_the_levels_and_never_falls_with_more_error():
    levels = (Level("Q8_0", 8.5, 0.1, 0.2), Level("Q5_0", 5.5, 0.2, 0.1), Level("Q4_0", 4.5, 1, 1))
    group = Group("a", ("a.0", "a.1"), levels)
    assert [group.loss(error) for error in (0, 0.05, 0.1, 0.2, 1, 2)] == pytest.approx(
        [0, 0.05, 0.1, 0.1, 0.5, 1]
    )
    assert [(a.type, b.type) for a, b in group.disagreements] == [("Q5_0", "Q8_0")]


def test_the_tensor_that_matters_most_gets_the_most_bits(folder, measured):
    name = measured.groups[3].tensors[0]
    high = [
        Group(
            g.name, g.tensors, tuple(Level(x.type, x.bits, x.error, w * x.error) for x in g.levels)
        )
        for g, w in ((g, 100.0 if name in g.tensors else 0.001) for g in measured.groups)
    ]
    types = ggufkit.target(
        folder / "model.gguf", bpw=BITS, sensitivity=Sensitivity(tuple(high), CONTEXT, 1)
    )
    with ggufkit.open(folder / "model.gguf") as model:
        bits = {n: kind.row_bytes(model.tensors[n].shape[-1]) for n, kind in types.items()}
        widths = {n: model.tensors[n].shape[-1] for n in types}
    assert bits[name] / widths[name] == max(bits[n] / widths[n] for n in types)


@pytest.fixture(scope="module")
def repaired(folder, measured):
    return repair(
        *(folder / "model.gguf", folder / "text.txt"),
        bpw=BITS,
        sensitivity=measured,
        steps=6,
        context=CONTEXT,
        threads=1,
    )


def test_a_repair_keeps_the_size_and_ends_no_worse_than_it_began(folder, repaired):
    with ggufkit.open(folder / "model.gguf") as model:
        quantized = ggufkit.quantize(model, types=repaired.types)
        nbytes = sum(tensor.nbytes for tensor in quantized.tensors.values())
        elements = sum(tensor.elements for tensor in quantized.tensors.values())
    assert nbytes * 8 / elements <= BITS
    divergences = [trial.divergence for trial in repaired.trials if trial.is_kept]
    assert divergences == sorted(divergences, reverse=True)
    assert {trial.what for trial in repaired.trials} >= {
        "measured sensitivities",
        "sensitivities by kind",
    }


def test_the_last_kept_trial_is_what_its_types_measure(folder, repaired):
    last = [trial for trial in repaired.trials if trial.is_kept][-1]
    file = changed_file(folder, repaired.types)
    assert last.divergence == pytest.approx(divergence(folder, file), rel=1e-4)


def test_a_try_makes_only_tensors_whose_types_changed(folder, measured, monkeypatch):
    changes, real_change = {}, Variants.change

    def change(variants, name, values):
        assert changes.get(name) != values.tobytes()
        changes[name] = values.tobytes()
        real_change(variants, name, values)

    monkeypatch.setattr(Variants, "change", change)
    options = {"context": CONTEXT, "chunks": 1, "threads": 1}
    done = repair(
        *(folder / "model.gguf", folder / "text.txt"),
        bpw=BITS,
        sensitivity=measured,
        steps=2,
        **options,
    )
    assert len(done.trials) > 3


def test_a_repair_reads_its_hessian_once_for_all_tries(folder, measured, tmp_path, monkeypatch):
    file, read = tmp_path / "h.gguf", []
    options = {"context": CONTEXT, "threads": 1}
    model, text = folder / "model.gguf", folder / "text.txt"
    compute_imatrix(model, text, hessian=file, batch=CONTEXT, **options)
    importance = Hessian.importance
    monkeypatch.setattr(Hessian, "importance", lambda self: read.append(self) or importance(self))
    nbytes = model.stat().st_size // 5
    options |= {"sensitivity": measured, "steps": 3, "chunks": 1}
    types = repair(model, text, nbytes=nbytes, hessian=file, **options).types
    assert len(read) == 1
    path = ggufkit.quantize(model, types=types, hessian=file).write(tmp_path / "out.gguf")[0]
    assert path.stat().st_size <= nbytes


def test_the_command_writes_what_quantize_reads(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, text = str(folder / "model.gguf"), str(folder / "text.txt")
    result = shell.ggufkit(
        "sensitivity", model, text, "-o", "s.json", "--context", "32", "--threads", "1"
    )
    assert result.code == 0, result.err
    assert "MEAN KLD" in result.out
    assert "wrote s.json" in result.out
    aim = ("quantize", model, "out.gguf", "--target-bpw", str(BITS))
    quantized = shell.ggufkit(*aim, "--sensitivity", "s.json")
    assert quantized.code == 0, quantized.err
    expected = ggufkit.target(folder / "model.gguf", bpw=BITS, sensitivity="s.json")
    with ggufkit.open("out.gguf") as out:
        assert {name: out.tensors[name].type for name in expected} == expected


@pytest.mark.parametrize(
    "options",
    [
        ("Q4_0", "--imatrix"),
        ("Q4_0", "--hessian"),
        ("Q4_0", "--tensor-type-file"),
        ("--target-bpw", "5", "--sensitivity"),
        ("--target-bpw", "5", "--sensitivity", __file__, "--repair"),
        (),
    ],
)
def test_no_input_of_quantize_is_overwritten(folder, tmp_path, options):
    read = tmp_path / "read.toml"
    read.write_text('base = "Q8_0"')
    done = shell.ggufkit("quantize", str(folder / "model.gguf"), str(read), *options, str(read))
    assert done.code == 1
    assert "read.toml is also an input" in done.err
    assert read.read_text() == 'base = "Q8_0"'


def test_no_input_of_quantize_is_overwritten_by_one_of_several_outputs(folder, tmp_path):
    read = tmp_path / "Q4_0.gguf"
    with ggufkit.open(folder / "model.gguf") as model:
        entries = shapes.importance({t.name: t.shape for t in model.tensors.values()})
    Imatrix(entries).save(read)
    before, out = read.read_bytes(), tmp_path / "{recipe}.gguf"
    options = ("Q4_0,Q8_0", "--imatrix", str(read))
    done = shell.ggufkit("quantize", str(folder / "model.gguf"), str(out), *options)
    assert done.code == 1
    assert "Q4_0.gguf is also an input" in done.err
    assert read.read_bytes() == before
    assert list(tmp_path.iterdir()) == [read]


@pytest.mark.parametrize(("out", "message"), [("", "is a folder"), ("no/a", "does not exist")])
@pytest.mark.parametrize("command", [("sensitivity",), ("imatrix", "compute")])
def test_a_place_without_room_for_a_file_is_refused_first(folder, tmp_path, command, out, message):
    text = tmp_path / "empty.txt"  # reading it would be an error too, but a later one
    text.touch()
    inputs = str(folder / "model.gguf"), str(text)
    done = shell.ggufkit(*command, *inputs, "-o", str(tmp_path / out))
    assert done.code == 1
    assert message in done.err


@pytest.mark.parametrize("kind", ["hessian", "imatrix"])
@pytest.mark.parametrize(
    "command", [("imatrix", "compute", "IN", "TEXT"), ("sensitivity", "IN", "TEXT"),
                ("eval", "IN", "--text", "TEXT")],
)  # fmt: skip
def test_what_llama_cpp_cannot_run_is_refused_by_its_name(folder, tmp_path, command, kind):
    places = {"IN": tmp_path / "in.gguf", "TEXT": folder / "text.txt"}
    ggufkit.save(places["IN"], {"x": np.ones(4, np.float32)}, {"general.type": kind})
    out = () if command[0] == "eval" else ("-o", tmp_path / "out")
    result = shell.ggufkit(*(places.get(part, part) for part in command), *out)
    assert result.code == 1
    assert "in.gguf: this file is a" in result.err
    assert f"`ggufkit quantize --{kind}`" in result.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("Q4_0", "--sensitivity", "x.json"), "--sensitivity is for --target-size"),
        (("--target-bpw", "5", "--repair", "x.json"), "Missing option '--sensitivity'"),
        (("--target-bpw", "5", "--repair-chunks", "4"), "Missing option '--repair'"),
        (("Q4_0", "--repair-chunks", "4"), "Missing option '--repair'"),
        (("--target-bpw", "nan"), "--target-bpw is not a number"),
    ],
)
def test_options_without_their_companions_are_wrong_usage(folder, tmp_path, options, message):
    (tmp_path / "x.json").write_text("{}")
    words = [str(tmp_path / option) if option == "x.json" else option for option in options]
    done = shell.ggufkit("quantize", str(folder / "model.gguf"), str(tmp_path / "o"), *words)
    assert done.code == 2
    assert message in done.err
