"""A merged tensor is the base plus the scaled product, whatever the type and the rows asked for."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit
import small_llama
from ggufkit.errors import AdapterError, TensorTypeError
from ggufkit.models.model import Model, Tensors
from ggufkit.models.sources import from_array

RNG = np.random.default_rng(6)
RANK, ALPHA = 3, 12.0
ATTENTION = "blk.1.attn_q.weight"


def model(**changes):
    arrays = small_llama.tensors() | changes
    tensors = [from_array(name, array) for name, array in arrays.items()]
    return Model(ggufkit.Metadata(small_llama.keys()), Tensors(tensors))


def adapter(*names, base=None, **keys):
    shapes = {name: tensor.shape for name, tensor in (base or model()).tensors.items()}
    tensors = []
    for name in names:
        *stacks, rows, columns = shapes[name]
        a, b = (*stacks, RANK, columns), (*stacks, rows, RANK)
        if name == "token_embd.weight":
            a, b = (rows, RANK), (columns, RANK)  # as llama.cpp wants them
        tensors += [random(f"{name}.lora_a", a), random(f"{name}.lora_b", b)]
    metadata = {
        "general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora",
        "adapter.lora.alpha": np.float32(ALPHA),
    }  # fmt: skip
    return Model(ggufkit.Metadata(metadata | keys), Tensors(tensors))


def random(name, shape):
    return from_array(name, RNG.standard_normal(shape).astype(np.float32))


def product(adapter, name):
    a, b = (
        adapter.tensors[name + factor].numpy().astype(float) for factor in (".lora_a", ".lora_b")
    )
    return a @ b.T if name == "token_embd.weight" else b @ a


def test_paths_are_merged_and_extracted_as_models_are(tmp_path):
    paths = base, added = tmp_path / "base.gguf", tmp_path / "adapter.gguf"
    for model_in_memory, path in zip((model(), adapter(ATTENTION)), paths, strict=True):
        ggufkit.write(model_in_memory, path)
    expected = ggufkit.merge_lora(model(), [ggufkit.open(added)]).tensors[ATTENTION].numpy()
    for adapters in (added, str(added), [added]):
        merged = ggufkit.merge_lora(base, adapters)
        np.testing.assert_array_equal(merged.tensors[ATTENTION].numpy(), expected)
        merged.close()
        assert all(file.closed for file in merged.inputs)
    extracted = ggufkit.extract_lora(base, ggufkit.merge_lora(base, added), rank=RANK)
    assert [tensor.name for tensor in extracted.tensors] == [ATTENTION]
    with pytest.raises(TypeError, match="adapters must be a model, a path, or several of them"):
        ggufkit.merge_lora(base, 3)


@pytest.mark.parametrize("name", [ATTENTION, "token_embd.weight"])
def test_sum_is_that_of_exact_arithmetic(name):
    base, first, second = model(), adapter(name), adapter(name)
    merged = ggufkit.merge_lora(base, [first, second], scales=[0.5, 2])
    scale = ALPHA / RANK
    expected = base.tensors[name].numpy() + scale * (
        0.5 * product(first, name) + 2 * product(second, name)
    )
    np.testing.assert_allclose(merged.tensors[name].numpy(), expected, rtol=1e-4, atol=1e-4)
    others = [tensor for tensor in base.tensors if tensor != name]
    assert all(merged.tensors[other] is base.tensors[other] for other in others)


def test_alpha_of_zero_means_the_scale_alone():
    base, added = model(), adapter(ATTENTION, **{"adapter.lora.alpha": np.float32(0)})
    merged = ggufkit.merge_lora(base, [added])
    expected = base.tensors[ATTENTION].numpy() + product(added, ATTENTION)
    np.testing.assert_allclose(merged.tensors[ATTENTION].numpy(), expected, rtol=1e-4, atol=1e-4)


def test_rows_are_the_same_whichever_are_asked_for():
    name = "blk.0.ffn_gate_exps.weight"
    base = model(**{name: RNG.standard_normal((3, 200, 64)).astype(np.float32)})
    merged = ggufkit.merge_lora(base, [adapter(name, base=base)]).tensors[name]
    whole = merged.source.read(0, 600)
    for start, stop in ((0, 1), (127, 129), (150, 450), (199, 201), (599, 600)):
        np.testing.assert_array_equal(merged.source.read(start, stop), whole[start:stop])


@pytest.mark.parametrize(("outtype", "types"), [
    ("keep", {"F16"}), ("f32", {"F32"}), ("f16", {"F16"}), ("bf16", {"BF16"}),
])  # fmt: skip
def test_type_of_changed_tensors_is_chosen(outtype, types):
    base = model(**{ATTENTION: RNG.standard_normal((64, 64)).astype(np.float16)})
    merged = ggufkit.merge_lora(base, [adapter(ATTENTION)], outtype=outtype)
    assert {merged.tensors[ATTENTION].type.name} == types


def test_quantized_tensors_are_decoded_summed_and_quantized_once():
    plain = RNG.standard_normal((64, 64)).astype(np.float32)
    packed = from_array(ATTENTION, ggufkit.quants.quantize(plain, "Q8_0"), "Q8_0")
    base = model().replace(
        tensors=[*(t for n, t in model().tensors.items() if n != ATTENTION), packed]
    )
    added = adapter(ATTENTION)
    merged = ggufkit.merge_lora(base, [added])
    exact = ggufkit.merge_lora(base, [added], outtype="f32").tensors[ATTENTION].numpy()
    expected = ggufkit.quants.quantize(exact, "Q8_0")
    np.testing.assert_array_equal(merged.tensors[ATTENTION].raw(), expected)


def test_type_that_needs_importance_data_is_refused_early():
    packed = from_array(ATTENTION, np.zeros((256, 66), np.uint8), "IQ2_XXS")
    base = model().replace(tensors=[packed])
    with pytest.raises(TensorTypeError, match="needs importance data"):
        ggufkit.merge_lora(base, [adapter(ATTENTION, base=base)])


def test_everything_that_does_not_fit_is_listed():
    other = model(
        **{ATTENTION: np.ones((32, 64), np.float32), "odd.weight": np.ones((4, 4), np.float32)}
    )
    with pytest.raises(AdapterError) as caught:
        ggufkit.merge_lora(model(), [adapter(ATTENTION, "odd.weight", base=other)])
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(("keys", "message"), [
    ({"general.type": "model"}, "not a LoRA adapter"),
    ({"adapter.type": "ia3"}, "not a LoRA adapter"),
    ({"general.architecture": "qwen2"}, "architecture is 'llama'"),
])  # fmt: skip
def test_what_is_not_an_adapter_of_the_model_is_refused(keys, message):
    with pytest.raises(AdapterError, match=message):
        ggufkit.merge_lora(model(), [adapter(ATTENTION, **keys)])


def test_lone_factor_is_refused():
    whole = adapter(ATTENTION)
    lone = whole.replace(tensors=[whole.tensors[f"{ATTENTION}.lora_a"]])
    with pytest.raises(AdapterError, match="lacks the other factor"):
        ggufkit.merge_lora(model(), [lone])


def test_scales_are_counted():
    with pytest.raises(AdapterError, match="2 scales for 1 adapter"):
        ggufkit.merge_lora(model(), [adapter(ATTENTION)], scales=[1, 2])
