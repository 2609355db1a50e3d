from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import numpy as np
import pytest

import ggufkit
import llama_quantize
import projector_folders
import recorded
import shapes
import shell
from ggufkit.errors import (
    MissingImportanceError,
    ShapeError,
    TensorTypeError,
    ValueTypeError,
)
from ggufkit.format.types import tensor_type
from ggufkit.imatrix.matrix import Entry, Imatrix
from ggufkit.models.layers import prune_layers
from ggufkit.models.model import Tensor, Tensors
from ggufkit.models.tensors.in_memory import as_tensor
from ggufkit.quantization.quantize import decide
from ggufkit.quantization.recipes import LLAMA_CPP, RECIPES
from rule_groups import STRUCTURE
from sampled import divided

RNG = np.random.default_rng(7)
OURS_ONLY = {"NVFP4"}  # llama.cpp has the type, llama-quantize no such recipe
THEIRS = [name for name in RECIPES if name not in OURS_ONLY]
FEW = ["F16", "Q4_0", "Q4_K_M", "IQ4_XS", "MXFP4_MOE", "COPY"]
DATASET = "some/text.txt"
RECORDED = recorded.table()

# What llama.cpp must know of a model to quantize it.
HYPERPARAMETERS = {
    "llama": {
        "block_count": 1,
        "context_length": 64,
        "embedding_length": 64,
        "feed_forward_length": 64,
        "attention.head_count": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "vocab_size": 32,
    }
}
HYPERPARAMETERS["glm5-next"] = HYPERPARAMETERS["llama"] | {
    "attention.head_count_kv": 2,
    "attention.key_length_mla": 32,
    "attention.value_length_mla": 32,
    "attention.q_lora_rank": 8,
    "attention.kv_lora_rank": 8,
    "ssm.conv_kernel": 4,
    "kda.head_dim": 32,
    "expert_count": 2,
    "expert_used_count": 1,
    "expert_feed_forward_length": 64,
    "expert_shared_count": 1,
    "attention.indexer.head_count": 2,
    "attention.indexer.key_length": 32,
    "attention.indexer.top_k": 4,
    "attention.indexer.kpool": 2,
    "hyper_connection.count": 4,
    "hyper_connection.sinkhorn_iterations": 1,
    "hyper_connection.epsilon": 1e-5,
}
SHAPES = {
    "output.weight": (2, 64),
    "token_embd.weight": (2, 64),
    "blk.0.ffn_up.weight": (2, 64),
    "blk.0.ffn_gate_exps.weight": (3, 2, 64),
    "one_axis.weight": (64,),
    "one_row.weight": (1, 64),
    "one_expert_of_one_row.weight": (1, 1, 64),
    "experts_of_one_row.weight": (3, 1, 64),
    "unfit.weight": (3, 48),
    "unfit_in_f16.weight": (3, 40),
    "blk.0.ffn_up.bias": (2, 64),
    "weight": (2, 64),
    "weight.after": (2, 64),
    "short": (2, 64),
    "shorter": (2, 64),
}


def named_as(part):
    return f"blk.0.{part}" if part.endswith("weight") else f"blk.0.{part}x.weight"


def arrays():
    """Every shape and name that llama.cpp treats specially, and every name that it knows."""
    singled_out = map(named_as, LLAMA_CPP.kept_parts + LLAMA_CPP.kept_parts_of["glm5-next"])
    names = [*LLAMA_CPP.kept_names, *singled_out, *llama_quantize.known_names()]
    all_shapes = dict.fromkeys(names, (2, 64)) | SHAPES
    arrays = {name: RNG.standard_normal(shape, np.float32) for name, shape in all_shapes.items()}
    arrays["unfit_in_f16.weight"] = arrays["unfit_in_f16.weight"].astype(np.float16)
    return arrays


def metadata(architecture, **more):
    hyper = HYPERPARAMETERS[architecture] | more
    known = {"general.architecture": architecture, "tokenizer.ggml.model": "none"}
    return known | {f"{architecture}.{key}": value for key, value in hyper.items()}


def model_of(tensors, **more):
    listed = (as_tensor(name, value) for name, value in tensors.items())
    return ggufkit.Model(ggufkit.Metadata(metadata("llama") | more), Tensors(listed))


# Models whose every matrix matters: layers of real ones, and one with experts.


@pytest.fixture(scope="session")
def few_layers(smollm2, tmp_path_factory):
    """The first two layers of SmolLM2 and its last two, as F16: 96 rows of 576 or 1536 of each."""
    path = tmp_path_factory.mktemp("few") / "smollm2.gguf"
    with ggufkit.open(smollm2) as model:
        pruned = prune_layers(model, range(2, 28))
        cut = pruned.replace(
            tensors=[t[:96] if len(t.shape) > 1 else t for t in pruned.tensors.values()]
        )
        ggufkit.write(ggufkit.quantize(cut, "F16", allow_requantize=True), path)
    return path


@pytest.fixture(scope="session")
def experts(tmp_path_factory):
    """A model of eight experts in nine layers, as F32, with rows of 256 and 512."""
    path = tmp_path_factory.mktemp("experts") / "experts.gguf"
    layer = {
        "attn_norm.weight": (256,),
        "attn_q.weight": (32, 256),
        "attn_k.weight": (16, 256),
        "attn_v.weight": (16, 256),
        "attn_output.weight": (32, 256),
        "ffn_gate_inp.weight": (8, 256),
        "ffn_gate_exps.weight": (8, 5, 256),
        "ffn_up_exps.weight": (8, 5, 256),
        "ffn_down_exps.weight": (8, 3, 512),
    }
    shapes_by_name = shapes.in_layers(9, layer)
    shapes_by_name |= {"token_embd.weight": (32, 256), "output.weight": (32, 256)}
    tensors = {
        name: RNG.standard_normal(shape, np.float32) for name, shape in shapes_by_name.items()
    }
    more = {"expert_count": 8, "expert_used_count": 2, "attention.head_count_kv": 1}
    ggufkit.save(path, tensors, metadata("llama", block_count=9, **more))
    return path


def importance(path):
    """Importance data of every matrix, as llama-imatrix would have computed it."""
    with ggufkit.open(path) as model:
        matrices = {t.name: t.shape for t in model.tensors.values() if len(t.shape) > 1}
    return Imatrix(shapes.importance(matrices), (DATASET,), 3)


def weighted(imatrix, file):
    """Return what llama-quantize would make of an importance matrix in `file`."""
    keys = {"file": file, "dataset": DATASET, "chunks": 3}
    weights = {name: imatrix.weights(name) for name in imatrix.entries}
    return {"weights": weights, "imatrix_keys": keys}


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def assert_same_file(source, recipe, folder, theirs=None, **ours):
    """Quantize on both sides, refuse on both or compare the whole files."""
    done = llama_quantize.quantize(source, folder / "theirs.gguf", recipe, **(theirs or {}))
    assert done, "llama-quantize gave up"
    with ggufkit.open(source) as model:
        quantized = ggufkit.quantize(model, recipe, allow_requantize=True, **ours)
        ggufkit.write(quantized, folder / "ours.gguf")
    assert digest(folder / "ours.gguf") == digest(folder / "theirs.gguf")


def assert_same_in_recipe(source, recipe, folder, *, with_imatrix):
    imatrix = importance(source)
    file = folder / "data.gguf"
    imatrix.save(file)
    theirs = weighted(imatrix, str(file)) if with_imatrix else {}
    ours = {"imatrix": str(file)} if with_imatrix else {}
    types = llama_quantize.types(source, recipe, **theirs)[0]
    with ggufkit.open(source) as model:
        lacking = decide(model, recipe, **ours).uncovered
    if types is None:
        pytest.skip("llama-quantize has no fallback for this type")
    if lacking:
        assert not llama_quantize.quantize(source, folder / "theirs.gguf", recipe, **theirs)
        return
    assert_same_file(source, recipe, folder, theirs, **ours)


with_and_without = pytest.mark.parametrize("with_imatrix", [False, True], ids=["plain", "imatrix"])


@with_and_without
@pytest.mark.parametrize("recipe", FEW)
def test_layers_of_a_real_model_match_llama_quantize(few_layers, recipe, with_imatrix, tmp_path):
    assert_same_in_recipe(few_layers, recipe, tmp_path, with_imatrix=with_imatrix)


@with_and_without
@pytest.mark.parametrize("recipe", FEW)
def test_experts_match_llama_quantize(experts, recipe, with_imatrix, tmp_path):
    assert_same_in_recipe(experts, recipe, tmp_path, with_imatrix=with_imatrix)


@pytest.mark.parametrize("recipe", ["Q8_0", "Q4_K_M", "BF16"])
@pytest.mark.parametrize("case", ["gemma3", "qwen3vl", "voxtral"])
def test_projector_matches_llama_quantize(case, recipe, tmp_path):
    folder = projector_folders.make(projector_folders.cases()[case], tmp_path / case)
    with ggufkit.convert(folder, mmproj=True, outtype="f16") as model:
        ggufkit.write(model, tmp_path / "f16.gguf")
    assert_same_file(tmp_path / "f16.gguf", recipe, tmp_path, {})


# Of each recipe, one model is for the matrix with importance data, and the other one without.
@pytest.mark.parametrize(
    ("recipe", "source", "with_imatrix"),
    divided(
        itertools.product(
            [name for name in THEIRS if name not in FEW],
            ["few_layers", "experts"],
            [False, True],
        ),
        lambda number: number % 4 in ((0, 3) if number // 4 % 2 else (1, 2)),
    ),
)
def test_every_recipe_gives_the_file_of_llama_quantize(
    request, source, recipe, with_imatrix, tmp_path
):
    path = request.getfixturevalue(source)
    assert_same_in_recipe(path, recipe, tmp_path, with_imatrix=with_imatrix)


# Four follow each other in each recipe: one of them is for the matrix.
@pytest.mark.parametrize(
    "case",
    divided(
        ([case] for case in recorded.cases() if case.name in RECORDED),
        lambda number: number % 4 == number // 4 % 4,
    ),
)
def test_whole_real_model_matches_llama_quantize(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = recorded.SOURCES[case.source]()
    recorded.importance(source).save(recorded.IMATRIX)
    ours = {"imatrix": recorded.IMATRIX} if case.with_imatrix else {}
    with ggufkit.open(source) as model:
        try:
            quantized = ggufkit.quantize(model, case.recipe, allow_requantize=True, **ours)
        except MissingImportanceError:
            assert RECORDED[case.name] is None
            return
        ggufkit.write(quantized, "ours.gguf")
    assert recorded.digest(Path("ours.gguf")) == RECORDED[case.name]


# Flags.


def test_real_model_in_a_common_recipe_matches_llama_quantize(smollm2, tmp_path):
    assert_same_file(smollm2, "Q4_K_M", tmp_path)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"pure": True}, {"pure": True}),
        ({"leave_output_tensor": True}, {"leave_output_tensor": True}),
        ({"output_tensor_type": "Q8_0"}, {"output_tensor_type": "Q8_0"}),
        ({"token_embedding_type": "Q5_0"}, {"token_embedding_type": "Q5_0"}),
        (
            {
                "tensor_types": [
                    ("attn_v", "Q8_0"),
                    (r"blk\.[12]\.attn_", "Q3_K"),
                    ("attn", "IQ4_XS"),
                ]
            },
            {
                "tensor_types": [
                    ("attn_v", "Q8_0"),
                    (r"blk\.[12]\.attn_", "Q3_K"),
                    ("attn", "IQ4_XS"),
                ]
            },
        ),
        ({"layers": [0, 3, 4]}, {"prune_layers": [0, 3, 4]}),
        (
            {"override_kv": {"general.name": "Mine", "x.y": 7, "x.z": 0.5, "x.b": True}},
            {
                "overrides": [
                    ("general.name", "str", "Mine"),
                    ("x.y", "int", 7),
                    ("x.z", "float", 0.5),
                    ("x.b", "bool", True),
                ]
            },
        ),
        (
            {"override_kv": {"llama.expert_count": 4}},
            {"overrides": [("llama.expert_count", "int", 4)]},
        ),
    ],
    ids=lambda value: "+".join(value) if "overrides" not in value else "theirs",
)
@pytest.mark.parametrize("recipe", ["Q4_K_M", "F16"])
def test_flag_does_the_same_as_in_llama_quantize(experts, recipe, ours, theirs, tmp_path):
    assert_same_file(experts, recipe, tmp_path, theirs, **ours)


def test_pruned_layers_keep_their_own_importance_data(experts, tmp_path):
    imatrix = importance(experts)
    imatrix.save(tmp_path / "data.gguf")
    theirs = weighted(imatrix, str(tmp_path / "data.gguf")) | {"prune_layers": [2, 5]}
    ours = {"imatrix": str(tmp_path / "data.gguf"), "layers": [2, 5]}
    assert_same_file(experts, "Q4_K_M", tmp_path, theirs, **ours)


@pytest.mark.parametrize("architecture", HYPERPARAMETERS)
@pytest.mark.parametrize("recipe", ["Q8_0", "Q4_1", "BF16"])
def test_keeps_the_same_tensors_as_llama_quantize(architecture, recipe, tmp_path):
    ggufkit.save(tmp_path / "in.gguf", arrays(), metadata(architecture))
    assert_same_file(tmp_path / "in.gguf", recipe, tmp_path, {"pure": True}, pure=True)


def test_keeps_the_shards_of_the_input_like_llama_quantize(experts, tmp_path):
    with ggufkit.open(experts) as model:
        ggufkit.write(model, tmp_path / "in.gguf", shard_tensors=30)
    first = tmp_path / "in-00001-of-00003.gguf"
    assert llama_quantize.quantize(first, tmp_path / "theirs", "Q4_K_M", keep_split=True)
    with ggufkit.open(first) as model:
        done = decide(model, "Q4_K_M", keep_split=True)
        paths = ggufkit.write(done.model, tmp_path / "ours.gguf", shard_counts=done.shard_counts)
    assert len(paths) == 3
    for path in paths:
        assert digest(path) == digest(path.with_name(path.name.replace("ours", "theirs")))


def test_merges_shards_by_default(experts, tmp_path):
    with ggufkit.open(experts) as model:
        ggufkit.write(model, tmp_path / "in.gguf", shard_tensors=30)
    assert_same_file(tmp_path / "in-00001-of-00003.gguf", "Q5_K_M", tmp_path)


def test_recipe_may_be_a_number_of_general_file_type():
    model = model_of({"blk.0.ffn_up.weight": np.ones((2, 256), np.float32)})
    assert str(ggufkit.quantize(model, 10).tensors["blk.0.ffn_up.weight"].type) == "Q2_K"


# What llama-quantize gets wrong.


def test_keeps_the_alignment_of_the_input(tmp_path):
    tensors = {"blk.0.ffn_up.weight": np.ones((3, 32), np.float32), "b.weight": np.ones((2, 32))}
    ggufkit.save(tmp_path / "in.gguf", tensors, metadata("llama"), alignment=128)
    with ggufkit.open(tmp_path / "in.gguf") as model:
        ggufkit.write(ggufkit.quantize(model, "Q8_0"), tmp_path / "out.gguf")
    assert not [
        finding for finding in ggufkit.check(tmp_path / "out.gguf") if finding.rule in STRUCTURE
    ]
    with ggufkit.open(tmp_path / "out.gguf") as model:
        assert model.alignment == 128


def test_negative_override_stays_negative():
    quantized = ggufkit.quantize(model_of({}), "Q8_0", override_kv={"x.y": -5})
    assert quantized.metadata["x.y"] == -5


def test_pruning_layers_updates_arrays_by_layer():
    tensors = {f"blk.{i}.ffn_up.weight": np.ones((2, 32), np.float32) for i in range(4)}
    more = {"llama.block_count": 4, "llama.attention.head_count_kv": [1, 2, 3, 4]}
    quantized = ggufkit.quantize(model_of(tensors, **more), "Q8_0", layers=[1])
    assert quantized.metadata["llama.attention.head_count_kv"].tolist() == [1, 3, 4]
    assert list(quantized.tensors) == [f"blk.{i}.ffn_up.weight" for i in range(3)]


def test_recipes_without_a_fallback_in_llama_cpp_have_one():
    tensors = {"blk.0.ffn_up.weight": np.ones((2, 96), np.float32)}
    for recipe in ("Q1_0", "NVFP4"):
        quantized = ggufkit.quantize(model_of(tensors), recipe)
        assert str(quantized.tensors["blk.0.ffn_up.weight"].type) == "Q4_0"


# Importance data.


def test_refuses_a_recipe_at_once_and_lists_all_tensors_that_lack_data(experts):
    imatrix = importance(experts)
    bare = imatrix.selected(exclude=["blk.3.attn_q", "blk.4.attn_q", "blk.7.ffn_up"])
    with ggufkit.open(experts) as model:
        with pytest.raises(MissingImportanceError) as caught:
            ggufkit.quantize(model, "IQ2_XXS", imatrix=bare)
        assert "3 tensors (blk.3-4.attn_q.weight, blk.7.ffn_up_exps.weight)" in str(caught.value)
        assert "promote_uncovered=True" in caught.value.remedy


def test_tensors_without_data_are_promoted_to_a_type_that_needs_none(experts, tmp_path):
    bare = importance(experts).selected(exclude=["blk.3.attn_q", "blk.7.ffn_up"])
    with ggufkit.open(experts) as model:
        done = decide(model, "IQ2_XXS", imatrix=bare, promote_uncovered=True)
        ggufkit.write(done.model, tmp_path / "out.gguf")
    promoted = {d.after.name: str(d.after.type) for d in done.decisions if d.promoted_from}
    assert promoted == {"blk.3.attn_q.weight": "Q2_K", "blk.7.ffn_up_exps.weight": "Q2_K"}


@pytest.mark.parametrize("recipe", RECIPES)
def test_promotion_leaves_no_tensor_that_lacks_data(experts, recipe):
    with ggufkit.open(experts) as model:
        assert not decide(model, recipe, promote_uncovered=True).uncovered


def test_refuses_an_embedding_without_data_where_ggml_would_abort(experts):
    wish = {"token_embedding_type": "IQ2_XS"}
    with ggufkit.open(experts) as model, pytest.raises(MissingImportanceError):
        ggufkit.quantize(model, "Q4_K_M", **wish)


def test_includes_and_excludes_weights_by_parts_of_names(experts):
    imatrix = importance(experts)
    with ggufkit.open(experts) as model:
        included = decide(model, "Q4_K_M", imatrix=imatrix, include_weights=["attn_q", "ffn_up"])
        excluded = decide(model, "Q4_K_M", imatrix=imatrix, exclude_weights=["attn_q", "ffn_up"])
    with_data = {d.after.name for d in included.decisions if d.weights is not None}
    assert len(with_data) == 18
    assert all("attn_q" in name or "ffn_up" in name for name in with_data)
    assert with_data.isdisjoint(d.after.name for d in excluded.decisions if d.weights is not None)
    assert included.model.metadata["quantize.imatrix.entries_count"] == 18


def test_refuses_to_include_and_exclude_at_once(experts):
    options = {"include_weights": ["a"], "exclude_weights": ["b"]}
    with ggufkit.open(experts) as model, pytest.raises(ValueTypeError):
        ggufkit.quantize(model, "Q4_K_M", imatrix=importance(experts), **options)


def test_refuses_importance_data_of_another_model(experts):
    entries = {"blk.0.attn_q.weight": Entry(np.ones((1, 8), np.float32), np.ones(1, np.int64))}
    with ggufkit.open(experts) as model, pytest.raises(ShapeError, match="importance data"):
        ggufkit.quantize(model, "Q4_K_M", imatrix=Imatrix(entries))


def test_shortened_imatrix_path_ends_between_characters(experts):
    imatrix = importance(experts)
    long = "é" * 100
    model = ggufkit.open(experts)
    imatrix_of_path = Imatrix(imatrix.entries, (long,), 3)
    quantized = ggufkit.quantize(model, "Q4_K_M", imatrix=imatrix_of_path)
    assert quantized.metadata["quantize.imatrix.dataset"] == "é" * 63


# Types of the user's own.


def test_types_by_name_win_over_the_recipe():
    tensors = {n: np.ones((2, 256), np.float32) for n in ("a.weight", "b.weight", "c_norm.weight")}
    types = {"a.weight": "Q6_K", "c_norm.weight": "F16"}
    quantized = ggufkit.quantize(model_of(tensors), "Q4_0", types=types)
    assert [str(t.type) for t in quantized.tensors.values()] == ["Q6_K", "Q4_0", "F16"]


def test_types_without_a_recipe_leave_everything_else_unchanged():
    tensors = {n: np.ones((2, 256), np.float32) for n in ("a.weight", "b.weight")}
    quantized = ggufkit.quantize(model_of(tensors), types={"a.weight": "Q6_K"})
    assert [str(t.type) for t in quantized.tensors.values()] == ["Q6_K", "F32"]
    assert quantized.metadata["general.file_type"] == 18 | 1024


def test_model_quantized_like_another_has_the_same_types(experts, tmp_path):
    with ggufkit.open(experts) as model:
        mixed = ggufkit.quantize(model, "Q3_K_M", tensor_types=[("ffn_up", "Q5_1")])
        ggufkit.write(mixed, tmp_path / "mixed.gguf")
        with ggufkit.open(tmp_path / "mixed.gguf") as other:
            ggufkit.write(ggufkit.quantize(model, like=other), tmp_path / "like.gguf")
    assert digest(tmp_path / "like.gguf") == digest(tmp_path / "mixed.gguf")


# What quantizing promises everyone.


def test_reads_no_tensor_before_writing():
    tensor = Tensor.over("x.weight", tensor_type("F32"), (2, 64), shapes.Hole())
    quantized = ggufkit.quantize(model_of({"x.weight": tensor}), "Q8_0")
    assert quantized.tensors["x.weight"].nbytes == 2 * 68
    with pytest.raises(AssertionError):
        quantized.tensors["x.weight"].raw()


def test_tensors_have_the_order_of_llama_cpp_unless_it_is_kept():
    names = ["blk.10.a.weight", "blk.9.a.weight", "output.weight", "blk.x.weight", "a.bias"]
    model = model_of(dict.fromkeys(names, np.ones((2, 32), np.float32)))
    assert list(ggufkit.quantize(model, "Q4_0", keep_order=True).tensors) == names
    assert list(ggufkit.quantize(model, "Q4_0").tensors) == [
        "a.bias",
        "blk.x.weight",
        "output.weight",
        "blk.9.a.weight",
        "blk.10.a.weight",
    ]


def test_types_do_not_depend_on_the_order_of_the_input(experts):
    with ggufkit.open(experts) as model:
        backwards = model.replace(tensors=reversed(list(model.tensors.values())))
        quantized = ggufkit.quantize(backwards, "Q4_K_M", keep_order=True)
        sorted_ = ggufkit.quantize(model, "Q4_K_M")
    assert list(quantized.tensors) == list(backwards.tensors)
    types = {tensor.name: tensor.type for tensor in quantized.tensors.values()}
    assert types == {tensor.name: tensor.type for tensor in sorted_.tensors.values()}


def test_recipe_and_version_replace_old_ones():
    old = {"general.file_type": 15, "general.quantization_version": 1, "split.count": 0}
    quantized = ggufkit.quantize(model_of({}, **old), "Q5_1")
    assert list(quantized.metadata)[-2:] == ["general.quantization_version", "general.file_type"]
    assert quantized.metadata["general.file_type"] == 9
    assert quantized.metadata.type_name("general.file_type") == "uint32"
    assert quantized.metadata["general.quantization_version"] == 2
    assert "split.count" not in quantized.metadata


def test_refuses_to_requantize_unless_allowed(smollm2):
    with ggufkit.open(smollm2) as model:
        with pytest.raises(TensorTypeError, match="quantized already \\(Q4_1\\)"):
            ggufkit.quantize(model, "Q4_K_M")
        ggufkit.quantize(model, "Q4_K_M", allow_requantize=True)


def test_keeps_what_would_not_become_smaller(smollm2):
    with ggufkit.open(smollm2) as model:
        quantized = ggufkit.quantize(model, "Q4_K_M", requantize_smaller=True)
        smaller = ggufkit.quantize(model, "Q2_K", requantize_smaller=True, pure=True)
        forced = ggufkit.quantize(model, "Q2_K", allow_requantize=True, pure=True)
        for name, tensor in model.tensors.items():
            after = quantized[name]
            assert after.nbytes <= tensor.nbytes
            assert after.type == tensor.type or after.nbytes < tensor.nbytes
            assert smaller[name].type == forced[name].type
        decisions = decide(model, "Q5_K_M", requantize_smaller=True).decisions
    same = [d for d in decisions if d.kept_from]
    assert same
    assert all(d.after is d.before and "not smaller" in d.why for d in same)


def test_does_not_requantize_a_tensor_of_the_right_type(smollm2):
    wish = {"token_embedding_type": "Q8_0"}
    with ggufkit.open(smollm2) as model:
        copied = ggufkit.quantize(model, "Q4_1", pure=True, **wish)
    assert [t.type for t in copied.tensors.values()].count(tensor_type("Q4_1")) == 210


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("recipe", ["Q8_0", "Q4_K_M"])
def test_refuses_nan_like_llama_quantize_and_names_its_place(recipe, value, tmp_path):
    rows = np.ones((40, 256), np.float32)
    rows[33, 7] = value
    ggufkit.save(tmp_path / "in.gguf", {"blk.0.ffn_up.weight": rows}, metadata("llama"))
    with ggufkit.open(tmp_path / "in.gguf") as model:
        quantized = ggufkit.quantize(model, recipe)
        with pytest.raises(ValueTypeError, match=r"ffn_up.weight.* in row 33, column 7"):
            ggufkit.write(quantized, tmp_path / "out.gguf")
    assert not llama_quantize.quantize(tmp_path / "in.gguf", tmp_path / "theirs.gguf", recipe)
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize("shape", [(0, 256), (3, 0, 256)])
def test_empty_tensors_stay_empty(shape, tmp_path):
    name = "blk.0.ffn_up.weight"
    width = np.ones((max(shape[0], 1), shape[-1]), np.float32)
    data = Imatrix({name: Entry(width if len(shape) > 2 else width[:1], np.ones(1, np.int64))})
    model = model_of({name: np.ones(shape, np.float32)})
    quantized = ggufkit.quantize(model, "Q4_K_M", types={name: "Q4_K"}, imatrix=data)
    assert quantized.tensors[name].raw().size == 0


def test_integers_stay_integers():
    tensors = {"t.weight": np.ones((2, 32), np.int32)}
    quantized = ggufkit.quantize(model_of(tensors), "Q8_0", types={"t.weight": "Q4_0"})
    assert quantized.tensors["t.weight"].type == tensor_type("I32")


@pytest.mark.parametrize("recipe", ["I32", "Q8_1", "TYPE_4711", "Q4_2", 4711, -1])
def test_unknown_recipe_error_lists_all_recipes(recipe):
    with pytest.raises(TensorTypeError) as caught:
        ggufkit.quantize(model_of({}), recipe)
    assert "Q4_K_M" in caught.value.remedy


def test_refuses_a_tensor_of_unknown_type():
    tensor = Tensor("x.weight", tensor_type(4711), (2, 64), 136, shapes.Hole())
    with pytest.raises(TensorTypeError):
        ggufkit.quantize(model_of({"x.weight": tensor}), "Q8_0")


@pytest.mark.parametrize("kind", ["hessian", "imatrix"])
@pytest.mark.parametrize(
    "command",
    [
        ("quantize", "IN", "OUT", "Q4_0"),
        ("quantize", "IN", "OUT", "--target-bpw", "5"),
        ("plan", "IN"),
    ],
)
def test_what_was_computed_from_a_model_is_refused_by_its_name(tmp_path, command, kind):
    source, out = tmp_path / "in.gguf", tmp_path / "out.gguf"
    ggufkit.save(
        source, {"blk.0.ffn_up.weight": np.ones((2, 64), np.float32)}, {"general.type": kind}
    )
    result = shell.ggufkit(*({"IN": source, "OUT": out}.get(part, part) for part in command))
    assert result.code == 1
    assert f"in.gguf: this file is a{'n importance matrix' * (kind == 'imatrix')}" in result.err
    assert f"`ggufkit quantize --{kind}`" in result.err
    assert not out.exists()


@pytest.mark.parametrize("kind", ["adapter", "mmproj", "vocab", "theirs"])
def test_other_types_of_files_are_quantized(kind):
    model = ggufkit.model(
        {"blk.0.ffn_up.weight": np.ones((2, 64), np.float32)}, {"general.type": kind}
    )
    quantized = ggufkit.quantize(model, "Q8_0")
    assert quantized.metadata["general.type"] == kind


def test_refuses_an_unknown_option_and_names_it():
    with pytest.raises(TypeError, match="no option 'pur'"):
        ggufkit.quantize(model_of({}), "Q8_0", pur=True)


@pytest.mark.parametrize("pattern", ["a(", "[", "(?P<", "a{99999999999}"])
def test_refuses_a_pattern_that_is_not_a_regular_expression(pattern):
    with pytest.raises(ValueTypeError, match="regular expression"):
        ggufkit.quantize(model_of({}), "Q8_0", tensor_types=[(pattern, "Q8_0")])


def test_big_endian_model_quantizes_to_the_same_numbers(tmp_path):
    values = RNG.standard_normal((4, 64), np.float32)
    for order in ("little", "big"):
        ggufkit.save(tmp_path / order, {"x.weight": values}, byte_order=order)
        with ggufkit.open(tmp_path / order) as model:
            ggufkit.write(ggufkit.quantize(model, "Q4_1"), tmp_path / f"{order}.q")
    little, big = (ggufkit.open(tmp_path / f"{order}.q") for order in ("little", "big"))
    assert big.byte_order == "big"
    assert np.array_equal(little.tensors["x.weight"].numpy(), big.tensors["x.weight"].numpy())
    assert not np.array_equal(little.tensors["x.weight"].raw(), big.tensors["x.weight"].raw())
