"""The Hessian of `quantize`: what it changes in a model, when it is not used, what is refused."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import ggufkit
from ggufkit import quants
from ggufkit.errors import FormatError, MissingImportanceError, OutputError, ShapeError
from ggufkit.imatrix.hessian import Hessian
from ggufkit.output import execute
from ggufkit.output.chunks import Sizes
from ggufkit.output.layout import layout
from ggufkit.output.resume import digest
from ggufkit.quantization import gptq_source
from ggufkit.quantization.explain import explain
from ggufkit.quantization.gptq_source import GptqSource, outcome_text, outcomes_of
from ggufkit.quantization.quantize import decide
from ggufkit.quants.blas import thread_count
from ggufkit.quants.gptq import moment_errors
from hessian_files import inputs_of, save_hessian
from shell import done

UP, DOWN, EXPERTS = "blk.0.ffn_up.weight", "blk.0.ffn_down.weight", "blk.0.ffn_up_exps.weight"
RNG = np.random.default_rng(9)
SHAPES = {UP: (96, 256), DOWN: (64, 512), EXPERTS: (2, 48, 256)}
TENSORS = {name: RNG.standard_normal(shape, np.float32) for name, shape in SHAPES.items()}
TENSORS["token_embd.weight"] = np.ones((8, 256), np.float32)
INPUTS = {UP: inputs_of(256), DOWN: inputs_of(512, seed=1), EXPERTS: inputs_of(256, 512, 2, 2)}
KEYS = {"general.architecture": "llama"}


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.gguf"
    ggufkit.save(path, TENSORS, KEYS)
    return path


@pytest.fixture
def hessian(tmp_path):
    return save_hessian(tmp_path / "hessian.gguf", INPUTS)


def decided(source, hessian, recipe="Q4_K_M", **options):
    return decide(ggufkit.open(source), recipe, hessian=hessian, **options)


def held_out_errors(model, name):
    """Return the error of each row on the inputs held out."""
    lost = model.tensors[name].numpy() - TENSORS[name]
    rows = np.split(lost, len(lost)) if lost.ndim > 2 else [lost]
    inputs = INPUTS[name][1]
    return np.concatenate(
        [
            moment_errors(matrix.reshape(-1, matrix.shape[-1]), np.triu(x.T @ x))
            for matrix, x in zip(rows, inputs, strict=True)
        ]
    )


@pytest.mark.parametrize("recipe", ["Q2_K", "Q4_K_M", "IQ3_S", "Q4_0"])
def test_errors_on_inputs_held_out_fall_by_a_third(source, hessian, tmp_path, recipe):
    done = decided(source, hessian, recipe)
    plain = decide(ggufkit.open(source), recipe, imatrix=done_importance(hessian))
    ggufkit.write(done.model, tmp_path / "out.gguf")
    with ggufkit.open(tmp_path / "out.gguf") as written:
        assert {t.name: t.type for t in written.tensors.values()} == {
            t.name: t.type for t in plain.model.tensors.values()
        }
        for name in SHAPES:
            errors = held_out_errors(written, name)
            before = held_out_errors(plain.model, name)
            assert errors.sum() < 0.67 * before.sum()
            outcomes = outcomes_of(done.model.tensors[name])
            assert len(outcomes) == len(INPUTS[name][0])
            assert all(outcome.helps for outcome in outcomes)


def done_importance(path):
    return Hessian.open(path).importance()


def test_rows_do_not_depend_on_threads_or_pieces(source, hessian, tmp_path):
    once = decided(source, hessian).model
    ggufkit.write(decided(source, hessian).model, tmp_path / "out.gguf", threads=3)
    with ggufkit.open(tmp_path / "out.gguf") as written:
        for name in SHAPES:
            tensor = once.tensors[name]
            starts = range(0, tensor.rows, 7)
            pieces = [tensor.source.read(i, min(i + 7, tensor.rows)) for i in starts]
            joined = np.concatenate(pieces)
            assert np.array_equal(joined, written.tensors[name].raw().reshape(joined.shape))


def test_metadata_names_the_hessian_and_check_accepts_the_file(source, hessian, tmp_path):
    with ggufkit.open(source) as model:
        quantized = ggufkit.quantize(model, "Q4_K_M", hessian=hessian)
        ggufkit.write(quantized, tmp_path / "out.gguf")
    with ggufkit.open(tmp_path / "out.gguf") as written:
        assert written.metadata["quantize.hessian.file"] == str(hessian)
        assert written.metadata["quantize.hessian.dataset"] == "wiki"
        assert written.metadata["quantize.hessian.token_count"] == 1024
        assert written.metadata["quantize.imatrix.entries_count"] == 3
    assert ggufkit.check(tmp_path / "out.gguf", data=True) == ggufkit.check(source, data=True)


def test_an_output_must_not_replace_its_hessian(source, hessian):
    with pytest.raises(OutputError):
        ggufkit.write(decided(source, hessian).model, hessian)


def test_journals_keep_hessians_apart(source, hessian, tmp_path):
    other = save_hessian(tmp_path / "other.gguf", {n: 2 * x for n, x in INPUTS.items()})
    keys = {"quantize.hessian.file": "x"}
    digests = {
        digest(layout(decided(source, data, override_kv=keys).model, "o"))
        for data in (hessian, other)
    }
    assert len(digests) == 2
    assert digest(layout(decided(source, hessian).model, "o")) == digest(
        layout(decided(source, hessian).model, "o")
    )


def test_nothing_keeps_a_quantization_once_it_is_written(source, hessian, tmp_path):
    done = decided(source, hessian)
    ggufkit.write(done.model, tmp_path / "out.gguf")
    sources = [weakref.ref(d.after.source) for d in done.decisions if d.is_fed_back]
    moments = [weakref.ref(source().moments) for source in sources]
    del done
    gc.collect()
    assert not any(reference() for reference in sources + moments)


@pytest.mark.skipif(thread_count() is None, reason="NumPy has another BLAS than OpenBLAS")
def test_blas_uses_no_more_threads_than_were_asked_for(source, hessian, tmp_path, monkeypatch):
    seen = set()
    real = gptq_source.factor_of

    def factor_of(*arguments, **options):
        seen.add(thread_count().get())
        return real(*arguments, **options)

    monkeypatch.setattr(gptq_source, "factor_of", factor_of)
    ggufkit.write(decided(source, hessian).model, tmp_path / "out.gguf", threads=2)
    assert seen == {1}


def tiles_made(monkeypatch):
    """Return a list of the tiles that are made from now on."""
    tiles = []
    real = GptqSource._tile

    def tile(self, *place):
        tiles.append((self.name, *place))
        return real(self, *place)

    monkeypatch.setattr(GptqSource, "_tile", tile)
    return tiles


def test_threads_that_need_the_same_rows_make_them_once(source, hessian, monkeypatch):
    tiles = tiles_made(monkeypatch)
    tensor = decided(source, hessian).model.tensors[UP]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda row: tensor.source.read(row, row + 24), range(0, 96, 24)))
    assert tiles == [(UP, 0, 0)]


# Writes with a Hessian, and kills itself half way.
DYING = """
import os, signal, sys
import ggufkit
from ggufkit.output import execute
from ggufkit.output.chunks import Sizes

execute.HERE = Sizes(1 << 14, 1 << 14)
source, hessian, out = sys.argv[1:]

def progress(done, total):
    if done > total / 2:
        os.kill(os.getpid(), signal.SIGKILL)

made = ggufkit.quantize(source, "Q4_K_M", hessian=hessian)
ggufkit.write(made, out, threads=2, progress=progress, resume=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
def test_a_killed_job_resumes_to_the_same_bytes(source, hessian, tmp_path, monkeypatch):
    ggufkit.write(decided(source, hessian).model, tmp_path / "whole.gguf")
    out = tmp_path / "out.gguf"
    command = [sys.executable, "-c", DYING, str(source), str(hessian), str(out)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert not out.exists()
    monkeypatch.setattr(execute, "HERE", Sizes(1 << 14, 1 << 14))
    tiles = tiles_made(monkeypatch)
    ggufkit.write(decided(source, hessian).model, out, threads=2, resume=True)
    assert out.read_bytes() == (tmp_path / "whole.gguf").read_bytes()
    assert len(tiles) < 4  # two of the experts, and one of each other tensor


def test_memory_does_not_grow_with_the_number_of_tensors(tmp_path):
    peaks = []
    for layers in (2, 8):
        names = [f"blk.{layer}.ffn_up.weight" for layer in range(layers)]
        ggufkit.save(tmp_path / "in.gguf", dict.fromkeys(names, TENSORS[DOWN]), KEYS)
        path = save_hessian(tmp_path / "h.gguf", dict.fromkeys(names, INPUTS[DOWN]))
        model = decided(tmp_path / "in.gguf", path).model
        tracemalloc.start()
        ggufkit.write(model, tmp_path / "out.gguf", threads=1)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


# Bands.


@pytest.mark.parametrize("recipe", ["Q4_K_M", "IQ3_S", "Q4_0"])
def test_band_as_wide_as_the_matrices_gives_the_bytes_of_a_full_hessian(source, tmp_path, recipe):
    files = []
    for band in (None, 512):
        hessian = save_hessian(tmp_path / "h.gguf", INPUTS, band=band)
        out = tmp_path / f"{band}.gguf"
        ggufkit.write(decided(source, hessian, recipe).model, out)
        files.append(out.read_bytes())
    assert files[0] == files[1]


@pytest.mark.parametrize("recipe", ["Q4_K_M", "IQ3_S", "Q4_0"])
def test_errors_are_fed_back_within_blocks_of_a_band(source, tmp_path, recipe):
    hessian = save_hessian(tmp_path / "h.gguf", INPUTS, band=256)
    model = decided(source, hessian, recipe).model
    half = save_hessian(tmp_path / "half.gguf", INPUTS | {DOWN: INPUTS[DOWN][..., 256:]}, band=256)
    gguf = ggufkit.model({DOWN: TENSORS[DOWN][:, 256:].copy()}, KEYS)
    alone = decide(gguf, recipe, hessian=half).model.tensors[DOWN]
    both = model.tensors[DOWN]
    assert both.type == alone.type
    rows = both.raw().reshape(64, 2, -1)
    assert np.array_equal(rows[:, 1], alone.raw().reshape(64, -1))
    plain = decide(ggufkit.open(source), recipe, imatrix=done_importance(hessian)).model
    assert held_out_errors(model, DOWN).sum() < 0.8 * held_out_errors(plain, DOWN).sum()


def test_few_tokens_are_damped_and_said(source, tmp_path):
    few = INPUTS | {DOWN: inputs_of(512, 100)}
    for band, tensors in ((None, 1), (256, 1)):
        path = save_hessian(tmp_path / "h.gguf", few, band=band)
        result = done("quantize", source, tmp_path / "o.gguf", "Q4_0", "--hessian", path)
        assert f"the Hessian has fewer tokens than columns in {tensors} tensor" in result.err
        assert DOWN in result.err
        assert "damped" in result.err


# When errors are not fed back.


def test_moments_that_are_not_positive_fall_back_and_say_so(source, tmp_path):
    inputs = {name: np.zeros_like(rows) for name, rows in INPUTS.items()}
    path = save_hessian(tmp_path / "flat.gguf", inputs)
    done = decided(source, path)
    tensor = done.model.tensors[UP]
    plain = quants.quantize(TENSORS[UP], tensor.type, imatrix=np.zeros(256))
    assert np.array_equal(tensor.raw().reshape(plain.shape), plain)
    assert outcome_text(tensor) == "errors not fed back: the Hessian is not positive"


def test_feedback_that_does_not_help_on_inputs_held_out_is_not_used(source, tmp_path):
    # The parts go together in opposite ways, so that feedback makes errors larger.
    turned = np.where(np.arange(256) % 2, -1, 1).astype(np.float32)
    common = RNG.standard_normal((1, 512, 1)).astype(np.float32)
    inputs = common + 0.05 * inputs_of(256)[0]
    both = np.stack([inputs, inputs * turned])
    path = save_hessian(tmp_path / "other.gguf", INPUTS | {UP: both})
    tensor = decided(source, path).model.tensors[UP]
    plain = quants.quantize(TENSORS[UP], tensor.type, imatrix=weights_of(path, UP))
    assert np.array_equal(tensor.raw().reshape(plain.shape), plain)
    assert outcome_text(tensor) == "errors not fed back: it does not help on inputs held out"


def weights_of(path, name):
    return done_importance(path).weights(name, TENSORS[name].shape)


def test_explanations_show_the_gain(source, hessian, tmp_path):
    done = decided(source, hessian)
    assert "errors fed back" in explain(done)[0].why or not done.decisions[0].is_fed_back
    ggufkit.write(done.model, tmp_path / "out.gguf")
    with ggufkit.open(tmp_path / "out.gguf") as written:
        why = {row.name: row.why for row in explain(done, written)}
    assert "% on inputs held out" in why[UP]
    assert "fed back" not in why["token_embd.weight"]


def test_excluded_tensors_are_quantized_without_it(source, tmp_path):
    path = save_hessian(tmp_path / "h.gguf", {UP: INPUTS[UP], EXPERTS: INPUTS[EXPERTS]})
    done = decided(source, path, exclude_weights=["ffn_down"])
    assert {d.after.name for d in done.decisions if d.is_fed_back} == {UP, EXPERTS}


# What is refused.


def test_hessian_of_another_model_is_refused_with_the_tensors_named(source, hessian, tmp_path):
    path = save_hessian(tmp_path / "h.gguf", INPUTS | {DOWN: inputs_of(256)})
    with pytest.raises(ShapeError, match=rf"h\.gguf' is of another model: 1 tensor \({DOWN}\)"):
        decided(source, path, imatrix=done_importance(hessian))


def test_hessian_of_another_width_is_named_where_it_is_the_importance_data(source, tmp_path):
    path = save_hessian(tmp_path / "h.gguf", INPUTS | {DOWN: inputs_of(256)})
    with pytest.raises(ShapeError, match=rf"h\.gguf' is of another model.* '{DOWN}'") as caught:
        decided(source, path)
    assert "imatrix compute --hessian" in caught.value.remedy


def test_hessian_of_other_weights_is_refused_with_the_tensors_named(source, tmp_path):
    others = {name: RNG.standard_normal(shape, np.float32) for name, shape in SHAPES.items()}
    path = save_hessian(tmp_path / "h.gguf", INPUTS, weights=others)
    with pytest.raises(MissingImportanceError, match=r"h\.gguf' is of another model.* 3 tensors"):
        decided(source, path)


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q4_0", "IQ1_S", "Q1_0"])
def test_hessian_of_the_model_in_another_type_is_accepted(source, tmp_path, kind):
    rounded = {
        name: quants.dequantize(
            quants.quantize(TENSORS[name], kind, imatrix=np.ones(shape[-1])), kind
        )
        for name, shape in SHAPES.items()
    }
    path = save_hessian(tmp_path / "h.gguf", INPUTS, weights=rounded)
    assert any(decision.is_fed_back for decision in decided(source, path).decisions)


def test_tensors_of_zeros_or_a_few_others_make_no_other_model(source, tmp_path):
    known = {UP: TENSORS[UP], DOWN: -TENSORS[DOWN], EXPERTS: 0 * TENSORS[EXPERTS]}
    path = save_hessian(tmp_path / "h.gguf", INPUTS, weights=known)
    assert any(decision.is_fed_back for decision in decided(source, path).decisions)


def test_hessian_that_lacks_a_layer_is_refused_with_the_tensors_named(source, tmp_path):
    path = save_hessian(tmp_path / "h.gguf", {UP: INPUTS[UP]})
    with pytest.raises(
        MissingImportanceError, match=rf"h\.gguf' does not cover 2 tensors \({DOWN}, {EXPERTS}\)"
    ):
        decided(source, path, imatrix=done_importance(path))


def test_moments_that_are_not_numbers_are_refused_with_the_tensor_named(source, tmp_path):
    broken = INPUTS[UP].copy()
    broken[0, 0, 0, 3] = np.nan
    path = save_hessian(tmp_path / "h.gguf", INPUTS | {UP: broken})
    with pytest.raises(FormatError, match=rf"h\.gguf: the second moments of '{UP}'"):
        decided(source, path)
    weights = {name: np.ones(shape[-1], np.float32) for name, shape in SHAPES.items()}
    entries = {name: ggufkit.imatrix.Entry(w[None], np.array([1])) for name, w in weights.items()}
    entries.pop(EXPERTS)
    done = decided(source, path, imatrix=ggufkit.Imatrix(entries))
    with pytest.raises(FormatError, match=rf"h\.gguf: the second moments of '{UP}'"):
        ggufkit.write(done.model, tmp_path / "out.gguf")
    assert not (tmp_path / "out.gguf").exists()


def test_matrices_that_no_token_reached_are_refused_with_the_tensors_named(source, tmp_path):
    path = save_hessian(tmp_path / "h.gguf", INPUTS | {DOWN: inputs_of(512, 0)})
    with pytest.raises(FormatError, match=rf"no token reached 1 tensor \({DOWN}\)"):
        decided(source, path)


@pytest.mark.parametrize("broken", ["model", "list", "data", "shape"])
def test_files_that_are_no_hessian_are_refused(source, tmp_path, broken):
    path = tmp_path / "h.gguf"
    if broken == "model":
        path = source
    elif broken == "list":
        save_hessian(path, INPUTS, owners="no list")
    elif broken == "data":
        save_hessian(path, INPUTS, owners=ggufkit.typed("array[string]", [UP, DOWN, "none"]))
    else:
        save_hessian(path, INPUTS | {UP: INPUTS[UP][:1]})
    with pytest.raises(FormatError, match="Hessian"):
        decided(source, path)


def test_provenance_carries_the_digest_of_the_hessian(source, hessian, tmp_path):
    out = tmp_path / "out.gguf"
    with ggufkit.quantize_with_provenance(source, "Q4_0", hessian=hessian) as quantized:
        ggufkit.write(quantized, out)
    moved = hessian.rename(tmp_path / "moved.gguf")
    assert ggufkit.reproduce(out, source, hessian=moved)
    with pytest.raises(MissingImportanceError, match="with a Hessian"):
        ggufkit.reproduce(out, source)
    other = save_hessian(tmp_path / "other.gguf", {n: 2 * x for n, x in INPUTS.items()})
    with pytest.raises(MissingImportanceError, match="with another Hessian"):
        ggufkit.reproduce(out, source, hessian=other)


# The command.


def test_command_writes_with_a_hessian_and_notes_what_it_left_out(source, hessian, tmp_path):
    flat = INPUTS | {UP: np.zeros_like(INPUTS[UP])}
    path = save_hessian(tmp_path / "flat.gguf", flat)
    result = done("quantize", source, tmp_path / "o.gguf", "Q4_0", "--hessian", path)
    assert f"errors are not fed back in 1 tensor ({UP}): the Hessian is not positive" in result.err
    result_of_dry_run = done("quantize", source, "Q4_0", "--hessian", hessian, "--dry-run")
    assert "errors fed back: 3 tensors" in result_of_dry_run.out
    assert "the Hessian does not cover 1 tensor (token_embd.weight)" in result_of_dry_run.err
    rules = "ffn_up=iq4_ks,ffn_down=iq5_k"
    words = ("quantize", source, "IQ4_K", "--hessian", hessian, "--dry-run", "--custom-q", rules)
    note = "tensors without feedback of errors: it cannot write IQ4_KS, IQ5_K"
    assert note in done(*words).err


@pytest.mark.parametrize("nbytes", [24_000, 26_000, 28_123, 36_000])
def test_a_target_size_counts_the_keys_of_the_hessian(source, hessian, tmp_path, nbytes):
    out = tmp_path / "out.gguf"
    done("quantize", source, out, "--hessian", hessian, "--target-size", str(nbytes))
    assert nbytes * 0.9 < out.stat().st_size <= nbytes


def test_a_target_size_uses_the_hessian_as_importance_data(source, hessian, tmp_path):
    out = tmp_path / "out.gguf"
    done("quantize", source, out, "--hessian", hessian, "--target-bpw", "2.5")
    with ggufkit.open(out) as written:
        assert any(tensor.type.name.startswith("IQ2") for tensor in written.tensors.values())
