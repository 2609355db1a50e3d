"""Estimates compared with the figures of llama.cpp, on real models and on shapes of others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ggufkit
import llama_memory
import projector_folders
import shapes
import small_llama
from ggufkit.errors import GGUFError, MissingKeyError, ShapeError, ValueTypeError
from ggufkit.inspection.estimate import largest_context
from ggufkit.inspection.kv_cache import cache_rules

ROUNDED = 0.011  # MiB: llama.cpp prints two decimals of each part
COMPUTE = 0.07  # how far the compute buffer may be off, as docs/estimate.md promises
DENSE = shapes.dense("llama", 4, 2048, 16, 4, 4096)


def latent():
    """DeepSeek 2: keys and values kept as one."""
    metadata, tensors = shapes.dense("deepseek2", 3, 512, 8, 1, 1024, rope__dimension_count=64)
    more = {
        "attention.key_length": 576,
        "attention.value_length": 512,
        "attention.key_length_mla": 192,
        "attention.value_length_mla": 128,
        "attention.q_lora_rank": 256,
        "attention.kv_lora_rank": 512,
        "expert_feed_forward_length": 256,
        "expert_count": 4,
        "expert_used_count": 2,
        "expert_shared_count": 1,
        "leading_dense_block_count": 3,
    }
    attention = {
        "attn_q_a_norm.weight": (256,),
        "attn_kv_a_norm.weight": (512,),
        "attn_q_a.weight": (256, 512),
        "attn_q_b.weight": (8 * 192, 256),
        "attn_kv_a_mqa.weight": (576, 512),
        "attn_k_b.weight": (8, 512, 128),
        "attn_v_b.weight": (8, 128, 512),
        "attn_output.weight": (512, 8 * 128),
    }
    remaining = shapes.without((metadata, tensors), "attn_q.", "attn_k.", "attn_v.", "attn_output")
    keyed = {f"deepseek2.{key}": value for key, value in more.items()}
    return shapes.with_tensors((metadata | keyed, remaining[1]), 3, attention)


def recurrent():
    """Mamba: no keys, no values, a state."""
    metadata = shapes.hyperparameters(
        "mamba",
        block_count=4,
        embedding_length=256,
        vocab_size=320,
        ssm__conv_kernel=4,
        ssm__inner_size=512,
        ssm__state_size=16,
        ssm__time_step_rank=16,
    )
    layer = {
        "attn_norm.weight": (256,),
        "ssm_in.weight": (1024, 256),
        "ssm_conv1d.weight": (512, 4),
        "ssm_conv1d.bias": (512,),
        "ssm_x.weight": (48, 512),
        "ssm_dt.weight": (512, 16),
        "ssm_dt.bias": (512,),
        "ssm_a": (512, 16),
        "ssm_d": (512,),
        "ssm_out.weight": (256, 512),
    }
    head = {"token_embd.weight": (320, 256), "output_norm.weight": (256,)}
    return metadata, head | shapes.in_layers(4, layer)


def hybrid():
    """LFM2: a convolution in most layers, attention in layer 1."""
    metadata, tensors = shapes.dense("lfm2", 3, 256, 4, 4, 512, shortconv__l_cache=3)
    metadata["lfm2.attention.head_count_kv"] = np.array([0, 4, 0], np.int32)
    metadata["lfm2.vocab_size"] = 32000
    remaining = shapes.without(
        (metadata, tensors), "0.attn_", "2.attn_", "1.attn_output", "output_norm", "output.weight"
    )[1]
    short = {
        "shortconv.conv.weight": (256, 3),
        "shortconv.in_proj.weight": (768, 256),
        "shortconv.out_proj.weight": (256, 256),
    }
    added = {f"blk.{i}.{name}": shape for i in (0, 2) for name, shape in short.items()}
    added |= {f"blk.{i}.attn_norm.weight": (256,) for i in (0, 2)}
    added |= {f"blk.1.attn_{x}_norm.weight": (64,) for x in "qk"}
    added["blk.1.attn_output.weight"] = (256, 256)
    added["token_embd_norm.weight"] = (256,)
    return metadata, remaining | added


def bert():
    """A BERT of the large size: no gate, no cache, no logits."""
    width, hidden = 1024, 4096
    metadata = shapes.hyperparameters(
        "bert",
        block_count=4,
        embedding_length=width,
        feed_forward_length=hidden,
        vocab_size=30522,
        attention__head_count=16,
        attention__layer_norm_epsilon=np.float32(1e-12),
        attention__causal=False,
        pooling_type=2,
    )
    metadata["tokenizer.ggml.token_type_count"] = np.uint32(2)
    metadata["bert.context_length"] = np.uint32(512)
    head = {"token_embd.weight": (30522, width), "position_embd.weight": (512, width)}
    head |= {"token_embd_norm.weight": (width,), "token_embd_norm.bias": (width,)}
    layer = {f"attn_{part}.weight": (width, width) for part in ("q", "k", "v", "output")}
    norms = ("attn_output_norm", "layer_output_norm")
    layer |= {f"{norm}.{part}": (width,) for norm in norms for part in ("weight", "bias")}
    layer |= {"ffn_up.weight": (hidden, width), "ffn_down.weight": (width, hidden)}
    return metadata, head | shapes.in_layers(4, layer)


def embedding_gemma():
    """EmbeddingGemma: most layers attend to a window."""
    metadata, tensors = shapes.dense("gemma-embedding", 6, 768, 3, 1, 1152, vocabulary=262144)
    keyed = {"key_length": 256, "value_length": 256, "sliding_window": 512}
    metadata |= {f"gemma-embedding.attention.{k}": np.uint32(v) for k, v in keyed.items()}
    metadata |= {"gemma-embedding.attention.causal": False}
    added = {"attn_q_norm": 256, "attn_k_norm": 256, "post_attention_norm": 768}
    added |= {"post_ffw_norm": 768}
    norms = shapes.in_layers(6, {f"{name}.weight": (size,) for name, size in added.items()})
    del tensors["output.weight"]
    return metadata, tensors | norms


def t5_encoder():
    """The encoder of a T5 of the base size: a bias by distance, and no mask."""
    width, hidden, heads, count = 768, 2048, 12, 4
    metadata = shapes.hyperparameters(
        "t5encoder",
        block_count=count,
        embedding_length=width,
        feed_forward_length=hidden,
        vocab_size=32128,
        attention__head_count=heads,
        attention__key_length=64,
        attention__value_length=64,
        attention__relative_buckets_count=32,
    )
    head = {"token_embd.weight": (32128, width), "enc.output_norm.weight": (width,)}
    layer = {f"attn_{part}.weight": (width, width) for part in "qkvo"}
    layer |= {"attn_norm.weight": (width,), "ffn_norm.weight": (width,)}
    layer |= {"ffn_gate.weight": (hidden, width), "ffn_up.weight": (hidden, width)}
    layer |= {"ffn_down.weight": (width, hidden), "attn_rel_b.weight": (32, heads)}
    return metadata, head | {f"enc.{k}": v for k, v in shapes.in_layers(count, layer).items()}


def t5():
    """A complete T5: an encoder, and a decoder with a cache."""
    metadata, encoder = t5_encoder()
    width, hidden, heads, count = 768, 2048, 12, 4
    metadata = {k.replace("t5encoder.", "t5."): v for k, v in metadata.items()}
    metadata |= {"general.architecture": "t5", "t5.decoder_start_token_id": np.uint32(0)}
    metadata |= {"t5.decoder_block_count": np.uint32(4)}
    layer = {
        f"{kind}_{part}.weight": (width, width)
        for kind in ("attn", "cross_attn")
        for part in "qkvo"
    }
    layer |= {f"{part}_norm.weight": (width,) for part in ("attn", "cross_attn", "ffn")}
    layer |= {"ffn_gate.weight": (hidden, width), "ffn_up.weight": (hidden, width)}
    layer |= {"ffn_down.weight": (width, hidden), "attn_rel_b.weight": (32, heads)}
    decoder = {f"dec.{k}": v for k, v in shapes.in_layers(count, layer).items()}
    return metadata, encoder | decoder | {"dec.output_norm.weight": (width,)}


def falcon():
    """Falcon 7B: one key head, and hidden units without a gate."""
    width, hidden, vocabulary = 4544, 4 * 4544, 65024
    metadata = shapes.hyperparameters(
        "falcon",
        block_count=4,
        embedding_length=width,
        feed_forward_length=hidden,
        attention__head_count=71,
        attention__head_count_kv=1,
        vocab_size=vocabulary,
    )
    head = {"token_embd.weight": (vocabulary, width), "output.weight": (vocabulary, width)}
    head |= {"output_norm.weight": (width,), "output_norm.bias": (width,)}
    layer = {"attn_norm.weight": (width,), "attn_norm.bias": (width,)}
    layer |= {"attn_qkv.weight": (width + 128, width), "attn_output.weight": (width, width)}
    layer |= {"ffn_up.weight": (hidden, width), "ffn_down.weight": (width, hidden)}
    return metadata, head | shapes.in_layers(4, layer)


def chameleon():
    """Chameleon, which holds its logits twice."""
    model = shapes.dense("chameleon", 4, 1024, 8, 4, 2816)
    norms = {"attn_q_norm.weight": (8, 128), "attn_k_norm.weight": (4, 128)}
    return shapes.with_tensors(model, 4, norms)


def grok():
    """Grok, for which llama.cpp turns flash attention off."""
    experts = {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 512}
    model = shapes.dense("grok", 4, 1024, 8, 4, 2816, **experts)
    norms = {"attn_output_norm.weight": (1024,), "post_ffw_norm.weight": (1024,)}
    return shapes.with_tensors(shapes.experts(model, 8, 4, 1024, 512), 4, norms)


ENCODERS = {
    "t5encoder": t5_encoder(),
    "llama-embed": shapes.dense("llama-embed", 4, 2048, 32, 8, 8192, vocabulary=128256),
    "bert": bert(),
    "gemma-embedding": embedding_gemma(),
}
MODELS = {
    "llama 7B": shapes.large()["llama 7B"],
    "llama 3 8B": shapes.dense("llama", 4, 4096, 32, 8, 14336, vocabulary=128256),
    "tiny llama": shapes.dense("llama", 4, 2048, 32, 4, 5632),
    "falcon 7B": falcon(),
    "chameleon": chameleon(),
    "grok": grok(),
    "llama 70B": shapes.large()["llama 70B"],
    "mixtral 8x7B": shapes.large()["mixtral 8x7B"],
    "looped": shapes.large()["looped"],
    "latent": latent(),
    "t5": t5(),
    "recurrent": recurrent(),
    "hybrid": hybrid(),
}
CALLS = {
    "short": ({"n_ctx": 256, "flash": 1}, {"context": 256}),
    "between": ({"n_ctx": 300, "flash": 1}, {"context": 300}),
    "long": ({"n_ctx": 131072, "flash": 1}, {"context": 131072}),
    "flash": ({"n_ctx": 16384, "flash": 1}, {"context": 16384}),
    "quantized": (
        {"n_ctx": 4000, "flash": 1, "type_k": 8, "type_v": 2, "n_ubatch": 128},
        {"context": 4000, "cache_type": "Q8_0", "value_cache_type": "Q4_0", "micro_batch": 128},
    ),
    "plain": ({"n_ctx": 4096, "flash": 0}, {"context": 4096, "flash_attention": False}),
    "sequences": (
        {"n_ctx": 10000, "flash": 1, "n_seq_max": 3},
        {"context": 10000, "sequences": 3},
    ),
    "unified": (
        {"n_ctx": 8192, "flash": 1, "n_seq_max": 4, "kv_unified": True},
        {"context": 8192, "sequences": 4, "unified": True},
    ),
}


def compare(path, call):
    """Assert that an estimate equals the figures of llama.cpp."""
    theirs, ours = CALLS[call]
    report = llama_memory.report(path, simulated=True, **theirs)
    with ggufkit.open(path) as model:
        estimated = ggufkit.estimate(model, **ours)
    cache, state = sum(one[0] for one in report["caches"]), sum(report["states"])
    assert estimated.cache / llama_memory.MEBIBYTE == pytest.approx(cache, abs=2 * ROUNDED)
    assert estimated.state / llama_memory.MEBIBYTE == pytest.approx(state, abs=ROUNDED)
    assert estimated.output / llama_memory.MEBIBYTE == pytest.approx(report["output"], abs=ROUNDED)
    assert estimated.compute / llama_memory.MEBIBYTE == pytest.approx(
        report["compute"], rel=COMPUTE
    )


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_memory_of_a_real_model_matches_llama_cpp(name, call, request):
    compare(request.getfixturevalue(name), call)


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_weights_match_what_llama_cpp_loads(name, request):
    path = request.getfixturevalue(name)
    report = llama_memory.report(path, n_ctx=256, n_ubatch=32)
    with ggufkit.open(path) as model:
        estimated = ggufkit.estimate(model)
    assert estimated.weights / llama_memory.MEBIBYTE == pytest.approx(report["model"], abs=ROUNDED)


@pytest.mark.parametrize("name", ["falcon 7B", "tiny llama", "llama 3 8B"])
@pytest.mark.parametrize("call", ["short", "between", "long"])
def test_memory_of_short_and_long_contexts_matches_llama_cpp(name, call, tmp_path):
    path = shapes.write_sparse(shapes.model_of(*MODELS[name]), tmp_path / "model.gguf")
    compare(path, call)


@pytest.mark.parametrize("call", ["flash", "plain"])
@pytest.mark.parametrize("name", MODELS)
def test_memory_of_models_of_every_shape_matches_llama_cpp(name, call, tmp_path):
    path = shapes.write_sparse(shapes.model_of(*MODELS[name]), tmp_path / "model.gguf")
    compare(path, call)


@pytest.mark.parametrize("flash", [True, False])
@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_need_no_logits_and_read_a_text_at_once(name, flash, tmp_path, monkeypatch):
    path = shapes.write_sparse(shapes.model_of(*ENCODERS[name]), tmp_path / "model.gguf")
    theirs = {"n_ctx": 2048, "flash": int(flash), "n_ubatch": 2048, "n_batch": 2048}
    ours = {"context": 2048, "micro_batch": 2048, "flash_attention": flash}
    monkeypatch.setitem(CALLS, "encode", (theirs, ours))
    compare(path, "encode")


@pytest.mark.parametrize(
    "pattern", [2, 3, np.array([True] * 17 + [False]), np.array([1, 0] * 9, np.uint32)]
)
def test_sliding_layers_match_the_file(gemma3, tmp_path, pattern):
    with ggufkit.open(gemma3) as model:
        key = "gemma3.attention.sliding_window_pattern"
        sources = [replace(tensor, source=shapes.Hole()) for tensor in model.tensors.values()]
        changed = model.replace(metadata=model.metadata.updated({key: pattern}), tensors=sources)
        path = shapes.write_sparse(changed, tmp_path / "model.gguf")
    compare(path, "flash")


def model_of(parts, **changes):
    """A model of shapes with other metadata."""
    return shapes.model_of(parts[0] | changes, parts[1])


def test_estimates_a_quantized_model_before_it_is_written():
    model = shapes.model_of(*shapes.large()["llama 7B"])
    smaller = ggufkit.estimate(ggufkit.quantize(model, "Q4_K_M"))
    assert smaller.weights < ggufkit.estimate(model).weights / 3
    assert smaller.cache == ggufkit.estimate(model).cache


@pytest.mark.parametrize("number", ["2147483647", "9" * 18, "9" * 5000])
def test_huge_layer_number_takes_no_time(number):
    metadata, tensors = DENSE
    model = shapes.model_of(metadata, tensors | {f"blk.{number}.x.weight": (8, 8)})
    estimated = ggufkit.estimate(model)
    assert [layer.number for layer in estimated.layers[:4]] == [0, 1, 2, 3]
    assert len(estimated.layers) <= 5


def test_layers_are_offloaded_from_the_output_on():
    estimated = ggufkit.estimate(shapes.model_of(*DENSE), context=4096)
    assert len(estimated.layers) == 4
    room = estimated.compute + estimated.output_weights + 2 * estimated.layers[0].nbytes
    assert estimated.fit(0).layers == 0
    assert estimated.fit(room - 1).layers == 2
    fit = estimated.fit(room)
    assert (fit.layers, fit.device, fit.is_whole) == (3, room, False)
    assert fit.device + fit.host == estimated.total
    assert estimated.fit(estimated.total).is_whole


def test_tied_embedding_counts_twice():
    metadata, tensors = shapes.without(DENSE, "output.weight")
    estimated = ggufkit.estimate(shapes.model_of(metadata, tensors))
    fit = estimated.fit(estimated.total * 2)
    assert fit.device + fit.host - estimated.total == estimated.twice > 0


def test_largest_context_fits_and_the_next_does_not():
    model = shapes.model_of(*DENSE)
    most = ggufkit.estimate(model, context=1 << 20).total
    context = largest_context(model, most // 2, context=1 << 20)
    assert ggufkit.estimate(model, context=context).fit(most // 2).is_whole
    assert not ggufkit.estimate(model, context=context + 256).fit(most // 2).is_whole
    assert largest_context(model, 1000) == 0


def test_encoder_has_no_cache():
    parts = shapes.dense("bert", 2, 256, 4, 4, 512)
    assert ggufkit.estimate(shapes.model_of(*parts)).cache == 0


UNKNOWN = [name for name, row in cache_rules().items() if not row.is_known and name != "clip"]


@pytest.mark.parametrize("architecture", UNKNOWN)
def test_refuses_an_architecture_with_its_own_kind_of_memory(architecture):
    with pytest.raises(ValueTypeError, match="does not know"):
        ggufkit.estimate(shapes.model_of(*shapes.dense(architecture, 2, 256, 4, 4, 512)))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"cache_type": "Q4_K"}, "no cache of type"),
        ({"cache_type": "Q8_0", "flash_attention": False}, "flash attention"),
        ({"context": 0}, "context is 0"),
        ({"sequences": -1}, "sequences is -1"),
        ({"micro_batch": 1 << 40}, "micro_batch"),
        ({"sequences": 257}, "257 texts at once"),
    ],
)
def test_refuses_what_llama_cpp_refuses(options, error):
    with pytest.raises(ValueTypeError, match=error):
        ggufkit.estimate(shapes.model_of(*DENSE), **options)


def test_cache_whose_blocks_do_not_divide_heads_is_an_error():
    model = shapes.model_of(*shapes.large()["odd width"])
    with pytest.raises(ShapeError, match="heads of 80 keys"):
        ggufkit.estimate(model, cache_type="Q8_0")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.block_count", np.uint32(1 << 31)),
        ("llama.block_count", "four"),
        ("llama.embedding_length", np.int64(-5)),
        ("llama.embedding_length", "wide"),
        ("llama.attention.head_count_kv", np.array([1, 2], np.uint32)),
        ("llama.attention.head_count_kv", np.array([1, 2, 3, -4], np.int32)),
        ("llama.attention.key_length", np.float32(7)),
    ],
)
def test_invalid_metadata_is_an_error(key, value):
    with pytest.raises(GGUFError, match=key):
        ggufkit.estimate(model_of(DENSE, **{key: value}))


def test_missing_width_is_an_error():
    metadata, tensors = DENSE
    metadata_left = {
        key: value for key, value in metadata.items() if key != "llama.embedding_length"
    }
    with pytest.raises(MissingKeyError, match=r"llama\.embedding_length"):
        ggufkit.estimate(shapes.model_of(metadata_left, tensors))


def test_projector_takes_its_weights(tmp_path):
    folder = projector_folders.make(projector_folders.cases()["gemma3"], tmp_path / "model")
    with ggufkit.convert(folder, mmproj=True) as model:
        estimate = ggufkit.estimate(model)
        assert (
            estimate.total
            == estimate.weights
            == sum(tensor.nbytes for tensor in model.tensors.values())
        )
        assert estimate.fit(estimate.total).is_whole


def test_a_context_in_words_is_refused():
    with pytest.raises(ValueTypeError, match="context must be a whole number"):
        ggufkit.estimate(ggufkit.model(small_llama.tensors(), small_llama.keys()), context="8k")


def test_estimate_shows_its_sums_in_one_line():
    estimated = ggufkit.estimate(shapes.model_of(*DENSE), context=512)
    text = repr(estimated)
    assert f"total={estimated.total:,}" in text
    assert len(text) < 250
