"""Importance data and Hessians through transformers are those of llama.cpp on the same tokens."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import ggufkit
import ggufkit.transformers
from ggufkit.errors import ShapeError, ValueTypeError
from ggufkit.imatrix.hessian_file import unfolded

sys.path.insert(0, str(Path(__file__).parents[1] / "oracle"))
INSTALLED = importlib.util.find_spec("transformers") is not None
LIBRARY = int(importlib.metadata.version("transformers").partition(".")[0]) if INSTALLED else 0
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore"),  # of transformers and PEFT
    pytest.mark.skipif(LIBRARY < 5, reason="transformers renames weights since version 5"),
]
# llama.cpp rounds keys and values to 16 bits; so a few tokens choose another expert.
TOLERANCE = 3e-3
TOLERANCE_OF_EXPERTS = 1e-2
MOVED = 4  # tokens
# Mixtures have stacks of experts, those of gpt-oss transposed. GPT-2 has transposed layers and a
# fused matrix, and `convert` reorders columns of Qwen 3.5.
CASES = ("llama", "mixtral", "gpt2", "gpt-oss", "qwen35")
OPTIONS = {"context": 64, "batch": 128, "chunks": 8}
# Not the products of a layer in transformers.
WITHOUT = {"ssm_conv1d.weight", "ssm_a", "ssm_d", "ssm_norm.weight", "ssm_dt.weight",
           "attn_k_b.weight", "attn_v_b.weight"}  # fmt: skip


def saved(name, folder):
    """Return a model of a case in float32, and its GGUF file."""
    import tiny
    import transformers

    transformers.logging.set_verbosity_error()
    model, words = tiny.model_of(name).float(), folder / "words"
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.mul_(0.2)  # no expert wins by far
    words.mkdir(parents=True)
    tiny.VOCABULARIES[tiny.CASES[name]["vocabulary"]](words)
    path = folder / f"{name}.gguf"
    ggufkit.transformers.save(model, words, path, name="tiny", pre="gpt-2")
    return model, path


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    import tiny

    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(" ".join(tiny.TEXT) * 12)
    return path


@pytest.fixture(scope="module", params=CASES)
def both(request, text, tmp_path_factory):
    """Return the model, its file, and both importance matrices and Hessians."""
    folder = tmp_path_factory.mktemp(request.param)
    model, path = saved(request.param, folder)
    theirs = ggufkit.compute_imatrix(path, text, hessian=folder / "theirs.gguf", **OPTIONS)
    mine = ggufkit.transformers.compute_imatrix(
        model, text, gguf=path, hessian=folder / "mine.gguf", **OPTIONS
    )
    return path, (theirs, folder / "theirs.gguf"), (mine, folder / "mine.gguf")


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return saved("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def mixtral(tmp_path_factory):
    return saved("mixtral", tmp_path_factory.mktemp("mixtral"))


def distance(mine, theirs):
    return np.linalg.norm(mine - theirs) / np.linalg.norm(theirs)


def assert_near(mine, theirs, counts, other_counts, name):
    has_experts = counts.size > 2
    assert np.abs(counts - other_counts).max() <= (MOVED if has_experts else 0), name
    assert distance(mine, theirs) < (TOLERANCE_OF_EXPERTS if has_experts else TOLERANCE), name


def moments_of(path):
    """Return the products of each matrix's inputs: (parts, matrices, width, width)."""
    with ggufkit.open(path) as file:
        keys = file.metadata
        owners = dict(zip(keys["hessian.matrices"], keys["hessian.owners"], strict=True))
        folded = {owner: file.tensors[f"{owner}.moments"].numpy() for owner in owners.values()}
        counts = {
            name: file.tensors[f"{owner}.moment_counts"].numpy() for name, owner in owners.items()
        }
        rest = {key: keys[key] for key in keys if key not in {"hessian.matrices", "hessian.owners"}}
        rest["owners"] = len(folded)
    whole = {
        owner: np.array([unfolded(part) for part in stack.reshape(-1, *stack.shape[-2:])])
        for owner, stack in folded.items()
    }
    return {name: whole[owner] for name, owner in owners.items()}, counts, rest


def test_sums_are_those_of_llama_cpp(both):
    _, (theirs, _), (mine, _) = both
    assert mine.entries.keys() == theirs.entries.keys()
    for name, entry in theirs.entries.items():
        other = mine.entries[name]
        assert_near(other.sums, entry.sums, other.counts, entry.counts, name)
    assert (mine.datasets, mine.chunk_count) == (theirs.datasets, theirs.chunk_count)


def test_hessians_are_those_of_llama_cpp(both):
    _, (_, theirs), (_, mine) = both
    (moments, counts, keys), (others, other_counts, other_keys) = (
        moments_of(mine),
        moments_of(theirs),
    )
    assert keys == other_keys
    assert moments.keys() == others.keys()
    for name, products in others.items():
        assert_near(moments[name], products, counts[name], other_counts[name], name)


def test_quantized_outputs_have_the_same_errors(both):
    path, *computed = both
    moments = moments_of(computed[0][1])[0]
    totals = []
    for imatrix, hessian in computed:
        errors = {}
        with ggufkit.open(path) as model:
            quantized = model.quantize("Q4_0", imatrix=imatrix, hessian=hessian)
            for name, products in moments.items():
                shape = model.tensors[name].shape
                matrices = shape[0] if len(shape) == 3 else 1
                change = quantized.tensors[name].numpy() - model.tensors[name].numpy()
                change = change.reshape(matrices, -1, shape[-1]).astype(np.float64)
                upper = products.reshape(2, matrices, *products.shape[1:])[0]
                inputs = np.triu(upper) + np.triu(upper, 1).transpose(0, 2, 1)
                errors[name] = np.einsum("mri,mij,mrj->", change, inputs, change)
        totals.append(sum(errors.values()))
    assert totals[1] == pytest.approx(totals[0], rel=0.01)


def test_a_model_in_bfloat16_gives_nearly_the_same(llama, text):
    import torch

    model, path = llama
    exact = ggufkit.transformers.compute_imatrix(model, text, gguf=path, **OPTIONS)
    half = ggufkit.transformers.compute_imatrix(
        model.to(torch.bfloat16), text, gguf=path, **OPTIONS
    )
    model.float()
    for name, entry in exact.entries.items():
        assert half.entries[name].sums.dtype == np.float32
        assert 0 < distance(half.entries[name].sums, entry.sums) < 0.03, name


def test_several_passes_give_the_same_hessian(llama, text, tmp_path):
    model, path = llama
    files = []
    for number, memory in enumerate((1 << 30, 200_000)):
        files.append(tmp_path / f"{number}.gguf")
        ggufkit.transformers.compute_imatrix(
            model, text, gguf=path, hessian=files[-1], memory=memory, **OPTIONS
        )
    assert files[0].read_bytes() == files[1].read_bytes()
    assert set(tmp_path.iterdir()) == {*files}


def test_tokens_may_be_given(llama, text):
    model, path = llama
    ids = ggufkit.tokenize(path, text.read_text()).ids
    one = ggufkit.transformers.compute_imatrix(model, text, gguf=path, **OPTIONS)
    other = ggufkit.transformers.compute_imatrix(model, ids, gguf=path, **OPTIONS)
    for name, entry in one.entries.items():
        assert np.array_equal(other.entries[name].sums, entry.sums)
    assert (one.datasets, other.datasets) == ((str(text),), ("",))


def test_adapters_offloading_and_packed_layers_change_no_names(mixtral, text):
    import accelerate
    import peft
    import torch

    class Packed(torch.nn.Module):
        """A layer whose weight has another shape and dtype, as those of bitsandbytes."""

        def __init__(self, layer):
            super().__init__()
            self.in_features, self.out_features = layer.in_features, layer.out_features
            self.weight = torch.nn.Parameter(layer.weight.data.view(torch.uint8), False)
            self.register_buffer("absmax", torch.ones(3))

        def forward(self, inputs):
            return inputs @ self.weight.view(torch.float32).reshape(self.out_features, -1).T

    model, path = mixtral
    compute = ggufkit.transformers.compute_imatrix
    expected = compute(model, text, gguf=path, **OPTIONS)
    model.model.layers[1].self_attn.o_proj = Packed(model.model.layers[1].self_attn.o_proj)
    changed = [compute(model, text, gguf=path, **OPTIONS)]
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj", "v_proj"]))
    changed.append(compute(adapted, text, gguf=path, **OPTIONS))  # adds nothing at first
    accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    changed.append(compute(adapted, text, gguf=path, **OPTIONS))
    for matrix in changed:
        assert matrix.entries.keys() == expected.entries.keys()
        for name, entry in expected.entries.items():
            np.testing.assert_allclose(matrix.entries[name].sums, entry.sums, rtol=1e-4)


def test_a_model_is_left_as_it_was(tmp_path, text):
    model, path = saved("mixtral", tmp_path)
    model.train()
    model.model.layers[0].eval()
    flags = [module.training for module in model.modules()]
    before = model.config._experts_implementation
    ggufkit.transformers.compute_imatrix(model, text, gguf=path, **OPTIONS)
    assert [module.training for module in model.modules()] == flags
    assert model.config._experts_implementation == before != "eager"
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_experts_that_are_multiplied_together_are_refused(tmp_path, text, monkeypatch):
    from ggufkit.frameworks.live import compute_imatrix

    model, path = saved("mixtral", tmp_path)
    monkeypatch.setattr(compute_imatrix, "_ONE_BY_ONE", "batched_mm")
    with pytest.raises(ValueTypeError, match=r"model\.layers\.\d\.mlp\.experts"):
        ggufkit.transformers.compute_imatrix(model, text, gguf=path, **OPTIONS)


def test_the_file_of_another_model_is_refused(llama, mixtral, text, tmp_path):
    with ggufkit.open(llama[1]) as file:
        few = ggufkit.select(file, keep=["token_embd.weight", "blk.0.attn_norm.weight"])
        few.write(tmp_path / "few.gguf")
    with pytest.raises(ShapeError, match="have no matrix of the model"):
        ggufkit.transformers.compute_imatrix(llama[0], text, gguf=tmp_path / "few.gguf")
    model, _ = saved("phi3", tmp_path)
    with pytest.raises(ShapeError, match=r"of another model: 'blk\.0\.ffn_up\.weight'"):
        ggufkit.transformers.compute_imatrix(model, text, gguf=llama[1])


@pytest.mark.parametrize("name", ["deepseek32", "gemma3n", "mamba", "nemotron-h-moe", "qwen35"])
def test_a_note_names_what_transformers_does_not_multiply(name, tmp_path):
    model, path = saved(name, tmp_path)
    notes = []
    matrix = ggufkit.transformers.compute_imatrix(
        model, [*range(40, 72)], gguf=path, context=32, say=notes.append
    )
    with ggufkit.open(path) as file:
        names = [t.name for t in file.tensors.values() if t.name.startswith("blk.") and t.ndim > 1]
    missing = {n.split(".", 2)[2] for n in names if n not in matrix.entries}
    assert missing == missing & WITHOUT
    assert len(notes) == (name in {"deepseek32", "mamba"})
    assert all("ssm_dt.weight" in note or "attn_k_b.weight" in note for note in notes)
