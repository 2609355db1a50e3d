from __future__ import annotations

import gc
import json
from pathlib import Path

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import CheckpointError
from plain_checkpoint import ARCH, CONFIG, layer, numbers, whole
from tensors_file import safetensors_bytes, write_checkpoint


@pytest.fixture
def arch(tmp_path):
    folder = tmp_path / "arch"
    folder.mkdir()
    (folder / "plain.toml").write_text(ARCH)
    return [folder]


@pytest.fixture
def convert(tmp_path, arch):
    def converted(tensors, config=None, **options):
        folder = write_checkpoint(tmp_path / "model", CONFIG | (config or {}), model=tensors)
        return ggufkit.convert(folder, arch_path=arch, **options)

    return converted


def problems(convert, tensors, config=None):
    with pytest.raises(CheckpointError) as caught:
        convert(tensors, config)
    return caught.value.problems or (caught.value.message,)


def test_tensors_get_their_names_in_the_order_of_their_sources(convert):
    model = convert(whole())
    assert list(model.tensors)[:3] == ["token_embd.weight", "blk.0.attn_norm.weight",
                                       "blk.0.ffn_down.weight"]  # fmt: skip
    assert len(model.tensors) == 20


def test_matrices_keep_their_type_and_are_copied_by_the_kernel(convert):
    tensors = convert(whole()).tensors
    assert tensors["blk.0.ffn_up.weight"].type.name == "F16"
    assert tensors["blk.0.ffn_up.weight"].source.span is not None
    assert tensors["blk.0.attn_norm.weight"].type.name == "F32"


@pytest.mark.parametrize(
    ("outtype", "kind"), [("f32", "F32"), ("bf16", "BF16"), ("q8_0", "F16"), ("auto", "F16")]
)
def test_outtype_applies_to_matrices_whose_rows_divide_into_blocks(convert, outtype, kind):
    assert convert(whole(), outtype=outtype).tensors["blk.0.ffn_up.weight"].type.name == kind


def test_auto_picks_f16_for_a_checkpoint_of_f32(convert):
    model = convert(whole(np.float32))
    assert model.tensors["blk.0.ffn_up.weight"].type.name == "F16"
    assert model.metadata["general.file_type"] == 1


def test_refuses_an_unknown_outtype(convert):
    with pytest.raises(ggufkit.errors.TensorTypeError, match="q9_0"):
        convert(whole(), outtype="q9_0")


def test_queries_are_permuted_head_by_head(convert):
    arrays = whole()
    queries = convert(arrays).tensors["blk.0.attn_q.weight"].numpy()
    rows = arrays["model.layers.0.self_attn.q_proj.weight"]
    assert np.array_equal(queries, rows[[0, 2, 1, 3, 4, 6, 5, 7]])


def test_written_file_opens_and_matches_the_configuration(convert, tmp_path):
    out = tmp_path / "out.gguf"
    ggufkit.write(convert(whole()), out)
    model = ggufkit.open(out)
    assert ggufkit.check(out) == []
    assert model.metadata["llama.block_count"] == 2
    assert model.metadata["llama.attention.head_count_kv"] == 2
    assert model.metadata["llama.attention.layer_norm_rms_epsilon"] == np.float32(1e-5)


def test_converts_and_quantizes_in_one_pass(convert, tmp_path):
    config = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
    widths = {8: 32, 12: 64, 10: 10}
    wide = {name: numbers(*map(widths.get, array.shape)) for name, array in whole().items()}
    once = ggufkit.quantize(convert(wide, config), "Q8_0")
    ggufkit.write(once, tmp_path / "one-pass.gguf")
    ggufkit.write(convert(wide, config), tmp_path / "f16.gguf")
    twice = ggufkit.quantize(ggufkit.open(tmp_path / "f16.gguf"), "Q8_0")
    ggufkit.write(twice, tmp_path / "two-pass.gguf")
    files = [tmp_path / name for name in ("one-pass.gguf", "two-pass.gguf")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_stacked_experts_take_the_place_of_the_last_expert(convert):
    config = {"num_local_experts": 11, "num_experts_per_tok": 2, "num_hidden_layers": 1}
    moe = {
        f"model.layers.0.block_sparse_moe.experts.{x}.{w}.weight": numbers(*shape)
        for x in range(11)
        for w, shape in (("w1", (12, 8)), ("w2", (8, 12)), ("w3", (12, 8)))
    }
    arrays = {name: a for name, a in (whole() | moe).items() if ".mlp." not in name}
    arrays = {name: array for name, array in arrays.items() if ".layers.1." not in name}
    arrays["model.layers.0.block_sparse_moe.gate.weight"] = numbers(11, 8)
    tensors = convert(arrays, config).tensors
    names = [name for name in tensors if "ffn" in name]
    assert names == ["blk.0.ffn_gate_exps.weight", "blk.0.ffn_down_exps.weight",
                     "blk.0.ffn_up_exps.weight", "blk.0.ffn_gate_inp.weight",
                     "blk.0.ffn_norm.weight"]  # fmt: skip
    stacked = tensors["blk.0.ffn_down_exps.weight"].numpy()
    for x in (0, 2, 10):
        expert = moe[f"model.layers.0.block_sparse_moe.experts.{x}.w2.weight"]
        assert np.array_equal(stacked[x], expert)
    del arrays["model.layers.0.block_sparse_moe.experts.3.w1.weight"]
    assert "experts" in problems(convert, arrays, config)[0]


def test_huge_expert_number_takes_no_memory(convert):
    far = f"model.layers.0.block_sparse_moe.experts.{10**15}.w1.weight"
    messages = problems(convert, whole() | {far: numbers(12, 8)})
    assert any(f"needs {10**15 + 1} experts" in text for text in messages)


def test_lists_all_problems_at_once(convert):
    arrays = whole() | {"model.odd.weight": numbers(3), "model.strange": numbers(2)}
    arrays["model.layers.0.mlp.up_proj.weight"] = numbers(13, 8)
    messages = problems(convert, arrays, {"hidden_act": "gelu"})
    for part in ("model.odd.weight", "model.strange", "blk.0.ffn_up.weight", "hidden_act"):
        assert any(part in text for text in messages), part


def test_names_fields_that_nothing_reads_and_refuses_them_if_strict(convert):
    notes = []
    convert(whole(), {"logit_scale": 0.5}, say=notes.append)
    assert any("logit_scale = 0.5" in note for note in notes)
    with pytest.raises(CheckpointError, match=r"not read of config\.json: logit_scale = 0\.5"):
        convert(whole(), {"logit_scale": 0.5}, strict=True)


def test_notes_what_it_refuses_if_it_follows_the_converter_exactly(convert):
    notes = []
    fields = {"hidden_act": "gelu", "tie_word_embeddings": False}
    arrays = {name: array for name, array in whole().items() if name != "lm_head.weight"}
    with pytest.raises(CheckpointError, match="hidden_act"):
        convert(arrays, fields)
    assert convert(arrays, fields, exactly=True, say=notes.append).tensors
    assert any("hidden_act is 'gelu'" in note for note in notes)


def test_reports_a_missing_layer(convert):
    arrays = {name: a for name, a in whole().items() if ".layers.0." not in name}
    assert any("first of them layer 0" in problem for problem in problems(convert, arrays))


@pytest.mark.parametrize("part", ["mlp.up_proj", "self_attn.o_proj", "post_attention_layernorm"])
def test_reports_a_missing_tensor_that_llama_cpp_needs(convert, part):
    arrays = {name: a for name, a in whole().items() if f"layers.1.{part}" not in name}
    (message,) = problems(convert, arrays)
    assert "'blk.1." in message
    assert "is missing" in message


@pytest.mark.parametrize("part", "qkv")
def test_reports_a_layer_without_queries_keys_or_values(convert, part):
    arrays = {name: a for name, a in whole().items() if f"layers.0.self_attn.{part}_" not in name}
    (message,) = problems(convert, arrays)
    assert f"'blk.0.attn_{part}.weight' is missing" in message


def test_reports_a_tensor_that_only_one_layer_lacks(convert):
    biases = {f"model.layers.{i}.self_attn.{p}_proj.bias": numbers(8) for i in (0, 1) for p in "qk"}
    assert len(convert(whole() | biases).tensors) == 24
    del biases["model.layers.1.self_attn.k_proj.bias"]
    (message,) = problems(convert, whole() | biases)
    assert "'blk.1.attn_k.bias' is missing: layer 0 has" in message


def test_does_not_report_a_missing_optional_tensor(tmp_path):
    (tmp_path / "plain.toml").write_text(ARCH + 'uneven = ["blk.{i}.attn_q.bias"]\n')
    bias = {"model.layers.0.self_attn.q_proj.bias": numbers(8)}
    folder = write_checkpoint(tmp_path / "model", CONFIG, model=whole() | bias)
    assert "blk.0.attn_q.bias" in ggufkit.convert(folder, arch_path=[tmp_path]).tensors


VOICE = """
like = "llama"
name = "voiced"
classes = ["PlainForCausalLM"]
vocabulary = "none"
rows = "vocab_size + 1"
appended = "['<|sound|>']"
skip = ["layer"]
[tensors]
"model.embed_tokens.weight" = "token_embd.weight part 1 | floats"
"start" = "token_embd.weight part 2 | reshape(1, -1) | floats"
"sound" = "token_embd.weight part 3 | reshape(1, -1) | linear(tensor('layer'))"
[shapes]
"token_embd.weight" = "absent"
"""


def test_part_without_a_count_joins_the_parts_that_there_are(tmp_path):
    (tmp_path / "plain.toml").write_text(VOICE)
    voice = {"sound": numbers(3), "layer": numbers(8, 3)}
    expected = voice["layer"].astype("f8") @ voice["sound"]
    for start in ({}, {"start": numbers(8)}):
        folder = tmp_path / f"model-{len(start)}"
        write_checkpoint(folder, CONFIG, model=whole() | voice | start)
        model = ggufkit.convert(folder, arch_path=[tmp_path])
        embedded = model.tensors["token_embd.weight"].numpy()
        assert len(embedded) == 11 + len(start)
        assert np.array_equal(embedded[-1], expected.astype(embedded.dtype))
        with pytest.raises(CheckpointError, match="does not show where the tensors in it begin"):
            ggufkit.export(model, tmp_path / "out", arch_path=[tmp_path])


def test_output_head_that_is_not_tied_must_be_present(convert):
    assert "output.weight" not in convert(whole()).tensors
    (message,) = problems(convert, whole(), {"tie_word_embeddings": False})
    assert message.startswith("output.weight is missing")
    head = {"lm_head.weight": numbers(10, 8)}
    assert "output.weight" in convert(whole() | head, {"tie_word_embeddings": False}).tensors


def test_reports_all_missing_tensors_that_llama_cpp_needs_at_once(convert):
    arrays = {name: a for name, a in whole().items() if ".mlp." not in name}
    assert len(problems(convert, arrays)) == 6


def test_tensors_of_another_class_give_one_problem(convert):
    unknown = {f"encoder.layer.{n}.weight": numbers(2) for n in range(30)}
    (message,) = problems(convert, whole() | unknown)
    assert message.startswith("30 tensors are unknown to llama: ")
    assert len(message) < 300


def test_reports_a_layer_beyond_the_count(convert):
    assert any("layer 2" in problem for problem in problems(convert, whole() | layer(2)))


@pytest.mark.parametrize(
    "config",
    [{"num_attention_heads": 3}, {"num_attention_heads": 0}, {"hidden_size": "8"},
     {"hidden_size": None}, {"rms_norm_eps": "small"}, {"num_hidden_layers": 1.5},
     {"rope_scaling": {"type": "warp"}}, {"rope_scaling": {"type": "yarn", "factor": 2}},
     {"rope_scaling": [1]}, {"max_position_embeddings": -1}, {"vocab_size": 10**30},
     {"num_key_value_heads": [1, 2]}, {"head_dim": 5}, {"num_hidden_layers": "two"}],
)  # fmt: skip
def test_impossible_configuration_gives_an_error_and_no_traceback(convert, config):
    assert problems(convert, whole(), config)


def test_reports_a_tensor_without_its_scales(convert, tmp_path, arch):
    arrays = whole()
    name = "model.layers.0.mlp.up_proj.weight"
    arrays[name] = np.zeros((12, 8), np.uint8)
    data = safetensors_bytes(arrays, **{name: {"dtype": "F8_E4M3"}})
    folder = write_checkpoint(tmp_path / "f8", CONFIG)
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(CheckpointError, match="F8_E4M3"):
        ggufkit.convert(folder, arch_path=arch)


def test_unknown_class_suggests_the_nearest(convert):
    messages = problems(convert, whole(), {"architectures": ["PlainForCausalML"]})
    assert "PlainForCausalML" in messages[0]


@pytest.mark.parametrize("classes", [None, [], [3], "PlainForCausalLM", {"a": 1}])
def test_reports_a_configuration_without_classes(convert, classes):
    assert problems(convert, whole(), {"architectures": classes})


def open_files():
    """Count this process's descriptors, where the system shows them, without garbage."""
    gc.collect()
    descriptors = Path("/proc/self/fd")
    return len(list(descriptors.iterdir())) if descriptors.is_dir() else 0


def test_failed_conversion_closes_its_files(convert):
    before = open_files()
    problems(convert, whole() | {"odd": numbers(1)})
    assert open_files() == before


def test_refuses_an_output_that_is_an_input(convert, tmp_path):
    model = convert(whole())
    with pytest.raises(ggufkit.errors.OutputError, match="also an input"):
        ggufkit.write(model, tmp_path / "model" / "model.safetensors")


def test_metadata_of_the_caller_replaces_that_of_the_checkpoint(convert):
    model = convert(whole(), name="A Name", overrides={"general.author": "Somebody"})
    assert model.metadata["general.name"] == "A Name"
    assert model.metadata["general.author"] == "Somebody"


def test_notes_keys_without_which_llama_cpp_does_not_load_the_file(convert):
    notes = []
    convert(whole(), {"rms_norm_eps": None, "layer_norm_epsilon": 1e-5}, say=notes.append)
    assert any("'llama.attention.layer_norm_rms_epsilon' is missing" in line for line in notes)


def test_notes_skipped_tensors(convert):
    notes = []
    arrays = whole() | {"model.layers.0.self_attn.rotary_emb.inv_freq": numbers(2)}
    convert(arrays, say=notes.append)
    assert any("rotary_emb.inv_freq" in line for line in notes)


def test_skip_rules_may_contain_a_config_field(convert, arch):
    own = ARCH.replace("vocabulary", 'skip = ["model.layers.{num_hidden_layers}.*"]\nvocabulary')
    (arch[0] / "plain.toml").write_text(own)
    assert len(convert(whole() | layer(2)).tensors) == 20


def test_llama3_frequencies_come_first(convert):
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 64}  # fmt: skip
    model = convert(whole(), {"rope_scaling": scaling})
    assert next(iter(model.tensors)) == "rope_freqs.weight"
    assert model.tensors["rope_freqs.weight"].numpy()[0] == 1


def test_text_config_overrides_the_outer_config(convert):
    inner = {"text_config": {**CONFIG, "rms_norm_eps": 1e-3}, "hidden_size": 99}
    model = convert(whole(), inner)
    assert model.metadata["llama.attention.layer_norm_rms_epsilon"] == np.float32(1e-3)
    assert json.loads(json.dumps(inner))["hidden_size"] == 99


def test_names_fields_of_text_config_that_nothing_reads(convert):
    notes = []
    convert(whole(), {"text_config": {**CONFIG, "moe_shift": 2}}, say=notes.append)
    assert any("moe_shift = 2;" in text for text in notes)


LLAMA3 = {"rope_type": "llama3", "factor": 8.0}


def test_names_an_unread_field_that_may_change_the_model(convert):
    notes = []
    convert(
        whole(),
        {"moe_shift": 2, "rope_twist": 0.5, "dropout": 0.1, "attn_shift": 0},
        say=notes.append,
    )
    texts = [text for text in notes if "config.json" in text]
    assert len(texts) == 1
    assert "moe_shift = 2, rope_twist = 0.5;" in texts[0]
    assert "dropout" not in texts[0]
    assert "attn_shift" not in texts[0]


@pytest.mark.parametrize(
    "config",
    [
        {"rope_scaling": LLAMA3 | {"factor": "x"}},
        {"rope_scaling": LLAMA3 | {"low_freq_factor": []}},
        {"rope_scaling": LLAMA3, "head_dim": 10**9},
        {"rope_scaling": LLAMA3, "head_dim": "x"},
        {"rope_scaling": {"rope_type": "default", "mrope_section": 5}},
        {"rope_scaling": {"full_attention": 5}},
        {"rope_scaling": {"full_attention": {}, "sliding_attention": 5}},
        {"quantization_config": {"quant_method": [[]] * 9}},
        {"num_attention_heads": 10**30},
        {"num_hidden_layers": 1e300},
        {"head_dim": float("inf")},
    ],
)
def test_configuration_of_wrong_types_gives_a_typed_error(convert, config):
    with pytest.raises(CheckpointError):
        convert(whole(), config)


@pytest.mark.parametrize("shape", [(10**9, 0, 4), (0,), (10**6, 10**6, 0)])
def test_refuses_a_tensor_without_elements_of_any_shape(tmp_path, arch, shape):
    folder = write_checkpoint(tmp_path / "model", CONFIG, model=whole())
    name = "model.layers.0.self_attn.q_proj.weight"
    arrays = {k: v for k, v in whole().items() if k != name} | {name: np.zeros(0, "f4")}
    data = safetensors_bytes(arrays, **{name: {"shape": list(shape)}})
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(CheckpointError, match="no elements"):
        ggufkit.convert(folder, arch_path=arch)


def test_reports_a_scalar_in_the_place_of_a_matrix(convert):
    tensors = whole() | {"model.layers.0.self_attn.q_proj.weight": np.float16(1).reshape(())}
    assert "cannot be done" in "".join(problems(convert, tensors))


def test_layer_number_of_thousands_of_digits_gives_a_typed_error(convert):
    name = f"model.layers.{'9' * 5000}.self_attn.q_proj.weight"
    with pytest.raises(CheckpointError):
        convert(whole() | {name: numbers(8, 8)})
