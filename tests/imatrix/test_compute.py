"""Importance matrices computed by llama.cpp, compared with NumPy on the same layer."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from ctypes import POINTER, c_int64
from pathlib import Path

import numpy as np
import pytest

import ggufkit
import real
from ggufkit.errors import FormatError, GGUFError, MissingExtraError, ValueTypeError
from ggufkit.imatrix import compute
from ggufkit.imatrix.collector import Collector
from ggufkit.imatrix.compute import compute_imatrix
from ggufkit.imatrix.hessian import SHRINKAGE, Hessian
from ggufkit.imatrix.moments import FITTED, HELD_OUT, InputMoments
from ggufkit.imatrix.random_tokens import random_batches, usable_tokens
from ggufkit.llama_cpp import library as llama_cpp
from ggufkit.llama_cpp.session import Session

TEXT = "The quick brown fox jumps over the lazy dog, and the dog sleeps on until noon. " * 12
WIDTH, EXPERTS, USED, HIDDEN = 64, 4, 2, 96
EPSILON = 1e-5


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "fox.txt"
    path.write_text(TEXT + "\n")
    return path


def tokens_of(model, text):
    with Session(model, length=64, batch=64, threads=1) as session:
        return session.tokenize(text.read_bytes().removesuffix(b"\n"))


def embedded(model, tokens, norm):
    """Return the float64 inputs of the first layer's matrices: normalized embeddings."""
    rows = model.tensors["token_embd.weight"].numpy()[tokens].astype(np.float64)
    scale = np.sqrt((rows**2).mean(axis=1, keepdims=True) + EPSILON)
    return rows / scale * model.tensors[norm].numpy()


def close(mine, expected):
    np.testing.assert_allclose(mine, expected, rtol=1e-3, atol=1e-5 * expected.max())


def test_first_layer_matches_numpy(smollm2, text):
    matrix = compute_imatrix(smollm2, text, chunks=2, context=32, threads=1)
    with ggufkit.open(smollm2) as model:
        inputs = embedded(model, tokens_of(smollm2, text)[:64], "blk.0.attn_norm.weight")
        for name in ("attn_q", "attn_k", "attn_v"):
            entry = matrix.entries[f"blk.0.{name}.weight"]
            close(entry.sums[0], (inputs**2).sum(axis=0))
        assert set(matrix.entries) == {
            name for name in model.tensors if name.startswith("blk.") and "norm" not in name
        }
    assert all(entry.counts.tolist() == [64] for entry in matrix.entries.values())
    assert (matrix.chunk_count, matrix.chunk_size) == (2, 32)
    assert matrix.datasets == (str(text),)


def test_chunks_are_independent(experts, text):
    together = compute_imatrix(experts, text, chunks=2, context=32, threads=1)
    alone = [
        compute_imatrix(experts, text, chunks=1, context=32, batch=32, from_chunk=start, threads=1)
        for start in (0, 1)
    ]
    merged = ggufkit.imatrix.merge(alone)
    for name, entry in together.entries.items():
        close(merged.entries[name].sums, entry.sums)
        assert np.array_equal(merged.entries[name].counts, entry.counts)


def test_progress_counts_chunks(experts, text):
    seen = []
    compute_imatrix(
        experts,
        text,
        chunks=3,
        context=16,
        batch=32,
        threads=1,
        progress=lambda *both: seen.append(both),
    )
    assert seen == [(2, 3), (3, 3)]


@pytest.fixture(scope="session")
def experts(vocabularies, tmp_path_factory):
    """Make a mixture of experts of one layer, whose attention adds nothing."""
    rng = np.random.default_rng(5)
    vocabulary = ggufkit.open(next(path for path in vocabularies if "llama-spm" in path.name))
    words = len(vocabulary.metadata["tokenizer.ggml.tokens"])
    metadata = vocabulary.metadata.updated(
        {
            "llama.block_count": 1,
            "llama.context_length": 256,
            "llama.embedding_length": WIDTH,
            "llama.feed_forward_length": HIDDEN,
            "llama.attention.head_count": 4,
            "llama.attention.head_count_kv": 4,
            "llama.rope.dimension_count": 16,
            "llama.expert_count": EXPERTS,
            "llama.expert_used_count": USED,
        }
    )

    def random(*shape):
        return rng.standard_normal(shape, np.float32)

    square = {f"blk.0.attn_{name}.weight": random(WIDTH, WIDTH) for name in ("q", "k", "v")}
    tensors = {
        "token_embd.weight": random(words, WIDTH),
        "output_norm.weight": np.ones(WIDTH, np.float32),
        "output.weight": random(words, WIDTH),
        "blk.0.attn_norm.weight": np.ones(WIDTH, np.float32),
        "blk.0.attn_output.weight": np.zeros((WIDTH, WIDTH), np.float32),
        "blk.0.ffn_norm.weight": 1 + rng.random(WIDTH, np.float32),
        "blk.0.ffn_gate_inp.weight": random(EXPERTS, WIDTH),
        "blk.0.ffn_gate_exps.weight": random(EXPERTS, HIDDEN, WIDTH),
        "blk.0.ffn_up_exps.weight": random(EXPERTS, HIDDEN, WIDTH),
        "blk.0.ffn_down_exps.weight": random(EXPERTS, WIDTH, HIDDEN),
        **square,
    }
    path = tmp_path_factory.mktemp("experts") / "experts.gguf"
    ggufkit.save(path, tensors, metadata)
    return path


def test_each_expert_gets_the_tokens_routed_to_it(experts, text):
    matrix = compute_imatrix(experts, text, chunks=1, context=64, threads=1)
    with ggufkit.open(experts) as model:
        weights = {name: tensor.numpy() for name, tensor in model.tensors.items()}
        inputs = embedded(model, tokens_of(experts, text)[:64], "blk.0.ffn_norm.weight")
    chosen = np.argsort(-(inputs @ weights["blk.0.ffn_gate_inp.weight"].T), axis=1)[:, :USED]
    sent = [inputs[(chosen == expert).any(axis=1)] for expert in range(EXPERTS)]
    for name in ("gate", "up"):
        entry = matrix.entries[f"blk.0.ffn_{name}_exps.weight"]
        assert entry.counts.tolist() == [len(rows) for rows in sent]
        close(entry.sums, np.array([(rows**2).sum(axis=0) for rows in sent]))
    down = matrix.entries["blk.0.ffn_down_exps.weight"]
    for expert, rows in enumerate(sent):
        gate = rows @ weights["blk.0.ffn_gate_exps.weight"][expert].T
        hidden = gate / (1 + np.exp(-gate)) * (rows @ weights["blk.0.ffn_up_exps.weight"][expert].T)
        close(down.sums[expert], (hidden**2).sum(axis=0))
    assert "output.weight" not in matrix.entries


def test_processes_the_output_tensor_on_request(experts, text):
    matrix = compute_imatrix(experts, text, chunks=1, context=64, threads=1, process_output=True)
    entry = matrix.entries["output.weight"]
    close(entry.sums.sum(), np.array(64.0 * WIDTH))  # what a norm leaves
    assert entry.counts.tolist() == [64]


class OneByOne:
    """Sums squares in llama-imatrix's order, one float32 after the other, for every matrix."""

    def __init__(self):
        self.llama, self.sums = llama_cpp.library(), {}

    def __call__(self, node, asks):
        operation = self.llama.functions.ggml_op_name(node.op)
        name = node.src[0].contents.name.decode() if node.src[0] else ""
        is_product = operation in (b"MUL_MAT", b"MUL_MAT_ID") and name.startswith("blk.")
        if asks or not is_product:
            return is_product
        activations = self.llama.array(node.src[1].contents, np.float32)[0]
        if operation == b"MUL_MAT":
            self.add(name, 0, activations[0])
        else:
            chosen = self.llama.array(node.src[2].contents, np.int32)[0, 0]
            for expert in range(EXPERTS):
                for used in range(USED):
                    rows = activations[:, used % activations.shape[1]]
                    self.add(name, expert, rows[chosen[:, used] == expert])
        return True

    def add(self, name, matrix, rows):
        for row in rows:
            self.sums[name, matrix] = self.sums.get((name, matrix), np.float32(0)) + row * row


@pytest.mark.parametrize("fixture", ["smollm2", "experts"])
def test_sums_are_added_in_the_order_of_llama_imatrix(request, text, fixture):
    model, expected = request.getfixturevalue(fixture), OneByOne()
    options = {"length": 32, "batch": 64, "sequences": 2, "threads": 1}
    tokens = tokens_of(model, text)
    with Session(model, **options, watcher=expected) as session:
        for first in (0, 64, 128):
            group = [tokens[start : start + 32] for start in range(first, first + 64, 32)]
            compute._compute_group(session, group, 64)
    matrix = compute_imatrix(model, text, chunks=6, context=32, batch=64, threads=1)
    stacked = {
        (name, number): sums
        for name, entry in matrix.entries.items()
        for number, sums in enumerate(entry.sums)
    }
    assert stacked.keys() == expected.sums.keys()
    for key, sums in stacked.items():
        assert np.array_equal(sums, expected.sums[key]), key


def test_llama_cpp_stops_once_per_inputs_and_before_the_output_matrix(smollm2, text, monkeypatch):
    read = []
    watching = Collector.__call__

    def watch(collector, node, asks):
        answer = watching(collector, node, asks)
        if not asks:
            read.append((node.src[0].contents.name.decode(), answer))
        return answer

    monkeypatch.setattr(Collector, "__call__", watch)
    matrix = compute_imatrix(smollm2, text, chunks=1, context=32, threads=1)
    kinds = ("attn_q", "attn_output", "ffn_gate", "ffn_down")
    inputs = [f"blk.{layer}.{kind}.weight" for layer in range(30) for kind in kinds]
    assert [name for name, goes_on in read if goes_on] == inputs
    assert len(read) == len(inputs) + 1
    assert not read[-1][1]  # of the last norm
    layer = {name: matrix.entries[f"blk.7.{name}.weight"] for name in ("attn_q", "attn_v")}
    assert layer["attn_q"] is layer["attn_v"]
    assert len(matrix.entries) == 30 * 7


# Second moments.


def test_moments_of_the_first_layer_match_numpy_and_are_stored_once(experts, text, tmp_path):
    file = tmp_path / "h.gguf"
    options = {"chunks": 4, "context": 32, "batch": 32, "threads": 1}
    matrix = compute_imatrix(experts, text, hessian=file, **options)
    hessian = Hessian.open(file)
    tokens = np.array(tokens_of(experts, text)[:128])
    tokens[::32] = tokens[0]  # each chunk begins as a text does
    with ggufkit.open(experts) as model:
        batch = [tokens_of(experts, text)[:32]]
        ((added,),) = random_batches(usable_tokens(model.metadata), [(0, batch)])
        tokens = np.concatenate((tokens[:96], tokens[:1], added[1:], tokens[96:]))
        inputs = embedded(model, tokens, "blk.0.attn_norm.weight")
    moments = hessian.entries["blk.0.attn_q.weight"]
    for part, rows in ((FITTED, inputs[:128]), (HELD_OUT, inputs[128:])):
        close(moments.mean(0, part), np.triu(rows.T @ rows / len(rows)))
    assert moments.sums.shape == (2, WIDTH // 2, WIDTH + 1)
    assert (
        moments is hessian.entries["blk.0.attn_v.weight"] is hessian.entries["blk.0.attn_k.weight"]
    )
    assert moments.tokens().tolist() == [[128], [32]]
    plain = compute_imatrix(experts, text, **options)
    importance = hessian.importance()
    for name, entry in matrix.entries.items():
        assert np.array_equal(entry.sums, plain.entries[name].sums)
        assert np.array_equal(entry.counts, plain.entries[name].counts)
        squares = importance.entries[name]  # with those of the random tokens
        assert squares.sums.sum() > entry.sums.sum()
        assert squares.counts.sum() * 4 == entry.counts.sum() * 5
    assert hessian.metadata["hessian.token_count"] == 160
    with ggufkit.open(experts) as model:
        assert (
            hessian.metadata["hessian.model"] == ggufkit.digest(model, "content").model["content"]
        )
        up = model.tensors["blk.0.ffn_up_exps.weight"].numpy()[0, 0]
        assert np.array_equal(hessian.source["blk.0.ffn_up_exps.weight.first_row"].numpy(), up)
    assert not [finding for finding in ggufkit.check(file) if finding.severity == "error"]


def test_moments_of_experts_are_those_of_the_tokens_routed_to_them(
    experts, text, tmp_path, monkeypatch
):
    file = tmp_path / "h.gguf"
    options = {"chunks": 2, "context": 64, "batch": 64, "threads": 1}
    monkeypatch.setattr(compute, "random_batches", lambda *_: [])
    matrix = compute_imatrix(experts, text, hessian=file, **options)
    moments = Hessian.open(file).entries["blk.0.ffn_down_exps.weight"]
    entry = matrix.entries["blk.0.ffn_down_exps.weight"]
    assert moments.tokens().sum(axis=0).tolist() == entry.counts.tolist()
    squares = np.array(
        [[np.diag(moments.total(expert, part)) for expert in range(EXPERTS)] for part in (0, 1)]
    )
    close(squares.sum(axis=0), entry.sums)
    added, counts = SHRINKAGE * HIDDEN, moments.tokens()[FITTED]
    shared = added * squares[FITTED].sum(axis=0) / counts.sum()
    for expert, count in enumerate(counts):
        mean = (squares[FITTED, expert] + shared) / (count + added)
        close(np.diag(moments.mean(expert, FITTED, moments.pooled(FITTED))), mean)


def test_file_quantized_with_its_hessian_runs_in_llama_cpp(experts, text, tmp_path):
    file, out = tmp_path / "h.gguf", tmp_path / "out.gguf"
    options = {"context": 32, "batch": 32, "threads": 1}
    before = compute_imatrix(experts, text, chunks=4, hessian=file, **options)
    with ggufkit.open(experts) as model:
        ggufkit.write(ggufkit.quantize(model, "Q4_0", hessian=file), out)
    after = compute_imatrix(out, text, chunks=4, **options)
    sums = [matrix.entries["blk.0.ffn_up_exps.weight"].sums.sum() for matrix in (before, after)]
    assert sums[1] == pytest.approx(sums[0], rel=0.05)


def test_little_memory_takes_several_passes_with_the_same_result(experts, text, tmp_path):
    seen, files = [], [tmp_path / "one.gguf", tmp_path / "more.gguf"]
    options = {"chunks": 2, "context": 32, "batch": 32, "threads": 1}
    compute_imatrix(experts, text, hessian=files[0], **options)
    matrix = compute_imatrix(
        *(experts, text),
        **options,
        hessian=files[1],
        memory=1,
        progress=lambda *both: seen.append(both),
    )
    assert files[0].read_bytes() == files[1].read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["more.gguf", "one.gguf"]
    passes = len(set(Hessian.open(files[1]).entries.values()))
    assert passes > 3
    assert seen[-1] == (3 * passes, 3 * passes)  # two chunks of the text, one of random tokens
    plain = compute_imatrix(experts, text, **options)
    for name, entry in plain.entries.items():
        assert np.array_equal(matrix.entries[name].sums, entry.sums)
        assert np.array_equal(matrix.entries[name].counts, entry.counts)


def test_memory_bounds_the_sums_of_a_pass():
    moments = InputMoments(shapes={"a": (1, 64), "b": (1, 64), "c": (4, 64), "d": (1, 32)})
    one = 2 * 64 * 64 * 4
    assert moments.passes(2 * one) == [{"a", "b"}, {"c"}, {"d"}]
    assert moments.passes(7 * one) == [{"a", "b", "c", "d"}]


def test_band_takes_memory_that_grows_with_the_width():
    moments = InputMoments(256, shapes={"a": (1, 512), "b": (1, 1024)})
    row = 2 * 256 * 4
    assert moments.passes(1536 * row) == [{"a", "b"}]
    assert moments.passes(1535 * row) == [{"a"}, {"b"}]


def test_sums_of_a_band_are_kept_and_restored():
    rows = np.random.default_rng(3).standard_normal((64, 576), np.float32)
    both = [InputMoments(256, shapes={"a": (1, 576)}) for _ in range(2)]
    for moments in both:
        moments.begin(frozenset("a"))
    both[0].add("a", 0, rows)
    both[1].restore({tensor.name: tensor for tensor in both[0].tensors()})
    for moments in both:
        for start in (0, 256, 512):
            part = rows[:, start : start + 256]
            block = moments.sums["a"][0, 0, start : start + 256, : part.shape[1]]
            close(np.triu(block), np.triu(part.T @ part))
        assert moments.counts["a"].tolist() == [[64], [0]]


def test_band_as_wide_as_the_matrices_stores_them_whole(experts, text, tmp_path):
    files = [tmp_path / "full.gguf", tmp_path / "band.gguf"]
    options = {"chunks": 2, "context": 32, "batch": 32, "threads": 1}
    for file, band in zip(files, (None, 256), strict=True):
        compute_imatrix(experts, text, hessian=file, band=band, **options)
    full, banded = map(ggufkit.open, files)
    assert banded.metadata["hessian.band"] == 256
    assert full.metadata == banded.metadata.without("hessian.band")
    for tensor in full.tensors.values():
        assert np.array_equal(tensor.raw(), banded.tensors[tensor.name].raw())


@pytest.mark.parametrize("band", [0, 100, -256])
def test_band_that_would_cut_blocks_of_types_is_refused(experts, text, tmp_path, band):
    with pytest.raises(ValueTypeError, match=f"a band of {band} columns") as caught:
        compute_imatrix(experts, text, hessian=tmp_path / "h.gguf", band=band)
    assert "multiple of 256" in caught.value.remedy


def test_one_batch_leaves_nothing_to_hold_out(experts, text, tmp_path):
    with pytest.raises(ValueTypeError, match="a part that is held out"):
        compute_imatrix(experts, text, chunks=2, context=32, hessian=tmp_path / "h.gguf")
    assert not list(tmp_path.iterdir())


# What cannot be.


def test_refuses_a_short_text(smollm2, tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("Too short.")
    with pytest.raises(ValueTypeError, match=r"the text has \d tokens, but a chunk needs 512"):
        compute_imatrix(smollm2, path)


@pytest.mark.parametrize("character", [b"\xf4\x90\x80\x80", b"\xf7\xbf\xbf\xbf"])
def test_refuses_characters_that_llama_cpp_would_abort_on(smollm2, tmp_path, character):
    path = tmp_path / "binary.txt"
    path.write_bytes(b"a text \xff \xf4\x8f\xbf\xbf" + character)
    with pytest.raises(ValueTypeError, match="not UTF-8: byte 13 begins a character beyond"):
        compute_imatrix(smollm2, path)


def test_refuses_what_is_not_a_model_before_llama_cpp_opens_it(text):
    with pytest.raises(FormatError):
        compute_imatrix(text, text)


def test_reports_the_error_of_llama_cpp_for_a_refused_model(text, tmp_path):
    path = tmp_path / "x.gguf"
    ggufkit.save(path, {"a": np.ones(4, np.float32)}, {"general.architecture": "no-such"})
    with pytest.raises(GGUFError, match=r"llama\.cpp cannot load .*unknown model architecture"):
        compute_imatrix(path, text)


def test_reports_overflowing_activations(experts, text, tmp_path):
    with ggufkit.open(experts) as model:
        tensors = dict(model.tensors)
        tensors["blk.0.ffn_norm.weight"] = np.full(WIDTH, 3e38, np.float32)
        ggufkit.save(tmp_path / "x.gguf", tensors, model.metadata)
    with pytest.raises(ValueTypeError, match="infinite or not numbers"):
        compute_imatrix(tmp_path / "x.gguf", text, chunks=1, context=32, threads=1)


def test_error_for_a_missing_binding_names_the_extra(monkeypatch):
    monkeypatch.setattr(llama_cpp.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"ggufkit\[llama\]"):
        llama_cpp.library.__wrapped__()


def test_error_for_a_binding_that_lacks_a_function_names_it(monkeypatch):
    monkeypatch.setitem(llama_cpp._SIGNATURES, "llama_brew_tea", (None, ()))
    with pytest.raises(MissingExtraError, match="llama_brew_tea"):
        llama_cpp.library.__wrapped__()


def test_parameters_that_are_laid_out_in_an_unknown_way_are_refused():
    defaults = bytes(llama_cpp.library().functions.llama_context_default_params())
    places = llama_cpp.ContextPlaces.find(defaults)
    for changed in (0, 12, places.cb_eval, places.cb_eval + 16, places.swa_full):
        other = bytearray(defaults)
        other[changed] ^= 3
        assert llama_cpp.ContextPlaces.find(bytes(other)) is None


@pytest.mark.parametrize("member", ["type", "ne", "nb", "op", "src", "data", "name"])
def test_tensors_that_are_laid_out_in_an_unknown_way_are_refused(monkeypatch, member):
    class OtherTensor(ctypes.Structure):
        pass

    names = [name for name, _ in llama_cpp.GraphTensor._fields_]
    fields = [
        (name, POINTER(OtherTensor) * 10 if name == "src" else kind)
        for name, kind in llama_cpp.GraphTensor._fields_
    ]
    OtherTensor._fields_ = [
        *fields[: names.index(member)],
        ("new", c_int64),
        *fields[names.index(member) :],
    ]
    tensor = POINTER(OtherTensor)
    known = (POINTER(llama_cpp.GraphTensor), llama_cpp.GraphTensor)
    signatures = {
        name: (
            tensor if result in known else result,
            tuple(tensor if argument in known else argument for argument in arguments),
        )
        for name, (result, arguments) in llama_cpp._SIGNATURES.items()
    }
    monkeypatch.setattr(llama_cpp, "_SIGNATURES", signatures)
    with pytest.raises(MissingExtraError, match="its tensors are laid out in an unknown way"):
        llama_cpp.library.__wrapped__()


@pytest.mark.parametrize(
    "version",
    [
        pytest.param("0.2.14", marks=pytest.mark.matrix),  # the oldest
        pytest.param("2026.6.9538", marks=pytest.mark.exhaustive),
        pytest.param("2026.8.10229", marks=pytest.mark.exhaustive),
    ],
)
def test_other_versions_of_the_binding_pass_the_same_tests(version):
    here = Path(__file__).parents[1]
    program = f"""if True:
        import sys, pytest
        from ggufkit.llama_cpp.library import version
        assert version() == {version!r}
        sys.exit(pytest.main(sys.argv[1:]))"""
    tests = (__file__, str(here / "evaluation"), "-q", "-p", "no:cacheprovider")
    paths = os.pathsep.join([str(real.older_binding(version)), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", program, *tests],
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "passed" in done.stdout
