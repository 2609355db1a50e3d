"""Make tiny random checkpoints with transformers, one for each case of `CASES`.

    python tiny.py FOLDER [CASE ...]

Runs in both environments, that of requirements-5.txt first: each makes the cases of its version of
transformers, and the older one the tokenizers of all. Each case is a configuration that differs
from its class's defaults in every size, so that a swapped field shows.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import known
import own_vocabularies
import sentencepiece
import torch
import transformers
from case import ABSENT, BASE, ENCODER, LLAMA3, YARN, case
from safetensors.torch import load_file, save_file
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

try:
    from transformers.modeling_utils import no_init_weights
except ImportError:  # it moved in transformers 5
    from transformers.initialization import no_init_weights

LIBRARY = int(transformers.__version__.split(".")[0])
OLDEST = 4  # of the versions of transformers; makes the tokenizers
TEXT = [
    "The quick brown fox jumps over the lazy dog, 12345 times, and isn't tired.",
    "Ünïcödé, 日本語, русский, العربية and 🦙🚀 are words as well.",
    "def main():\n    return {'a': 1, \"b\": [2, 3]}  # code\n\n\n\t",
    "It's we'll they've I'd 3.14 -- 100% #hash @at $5 <tag> a_b c/d e\\f",
]
CASES = {
    "llama": case("LlamaConfig"),
    "llama-f16": case("LlamaConfig", dtype="float16"),
    "llama-f32": case("LlamaConfig", dtype="float32", rms_norm_eps=1e-5),
    "llama-bin": case("LlamaConfig", saved={"safe_serialization": False}),
    "llama-bin-shards": case(
        "LlamaConfig", saved={"safe_serialization": False, "max_shard_size": "100KB"}
    ),
    "llama-bin-tied": case(
        "LlamaConfig", tie_word_embeddings=True, saved={"safe_serialization": False}
    ),
    "llama-bias": case("LlamaConfig", attention_bias=True, mlp_bias=True),
    "llama-headdim": case("LlamaConfig", head_dim=32, rope_theta=500000.0),
    "llama-sentencepiece": case("LlamaConfig", vocabulary="pieces"),
    "llama-tied": case("LlamaConfig", tie_word_embeddings=True),
    "llama-linear": case("LlamaConfig", rope_scaling={"type": "linear", "factor": 2.0}),
    "llama-yarn": case("LlamaConfig", rope_scaling=YARN | {"attention_factor": 0.9}),
    "llama-llama3": case("LlamaConfig", rope_scaling=LLAMA3, head_dim=64, rope_theta=500000.0),
    "llama-llama3-real": case(
        "LlamaConfig", head_dim=128, rope_theta=500000.0,
        rope_scaling=LLAMA3 | {"factor": 32.0, "original_max_position_embeddings": 8192},
    ),
    "llama-dynamic": case("LlamaConfig", rope_scaling={"type": "dynamic", "factor": 2.0}),
    "mistral": case("MistralConfig", sliding_window=128),
    "mistral-defaults": case("MistralConfig", num_attention_heads=8, num_key_value_heads=None),
    "mixtral": case("MixtralConfig", num_local_experts=12, num_experts_per_tok=3),
    "smollm3": case("SmolLM3Config"),
    "qwen2": case("Qwen2Config"),
    "qwen2-yarn": case("Qwen2Config", rope_scaling=YARN),
    "qwen3": case("Qwen3Config", head_dim=32),
    "qwen2moe": case(
        "Qwen2MoeConfig", num_experts=12, num_experts_per_tok=2, moe_intermediate_size=32,
        shared_expert_intermediate_size=64,
    ),
    "qwen3moe": case(
        "Qwen3MoeConfig", num_experts=12, num_experts_per_tok=2, moe_intermediate_size=32,
        head_dim=32, norm_topk_prob=True,
    ),
    "gemma": case("GemmaConfig", vocabulary="gemma", head_dim=32),
    "gemma-f16": case("GemmaConfig", vocabulary="gemma", head_dim=32, dtype="float16"),
    "gemma2": case(
        "Gemma2Config", vocabulary="gemma", head_dim=32, sliding_window=64,
        query_pre_attn_scalar=32,
    ),
    "gemma3": case(
        "Gemma3TextConfig", vocabulary="gemma", head_dim=32, sliding_window=64,
        query_pre_attn_scalar=32,
    ),
    "gemma3-pictures": case(
        "Gemma3Config", vocabulary="gemma", kind="AutoModelForImageTextToText",
        text_config={"head_dim": 32, "sliding_window": 64, "query_pre_attn_scalar": 32},
        vision_config={"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
                       "num_attention_heads": 2, "image_size": 56, "patch_size": 14},
    ),
    "phi3": case("Phi3Config", vocabulary="pieces"),
    "phi3-long": case(
        "Phi3Config", vocabulary="pieces", original_max_position_embeddings=128, sliding_window=100,
        rope_scaling={
            "type": "longrope", "long_factor": [1.0 + i / 3 for i in range(8)],
            "short_factor": [1.0 + i / 7 for i in range(8)],
        },
    ),
    "phi2": case(
        "PhiConfig", intermediate_size=256, partial_rotary_factor=0.5, num_key_value_heads=4,
    ),
    "gpt2": case(
        "GPT2Config", n_embd=64, n_layer=3, n_head=4, n_positions=512, n_ctx=512,
    ),
    "gptneox": case("GPTNeoXConfig", rotary_pct=0.25, hidden_act="gelu"),
    "starcoder2": case("Starcoder2Config", use_bias=True),
    "stablelm": case("StableLmConfig", partial_rotary_factor=0.25),
    "stablelm2": case(
        "StableLmConfig", partial_rotary_factor=0.25, qk_layernorm=True,
        use_parallel_residual=True,
    ),
    "olmo2": case("Olmo2Config"),
    "olmoe": case("OlmoeConfig", num_experts=12, num_experts_per_tok=2, num_key_value_heads=4),
    "granite": case("GraniteConfig", embedding_multiplier=2.0, logits_scaling=4.0,
                    residual_multiplier=0.5, attention_multiplier=0.125),
    "cohere": case("CohereConfig", logit_scale=0.25),
    "exaone4": case(
        "Exaone4Config", sliding_window=None, layer_types=["full_attention"] * 3,
    ),
    "exaone4-sliding": case(
        "Exaone4Config", num_hidden_layers=64, sliding_window=64, sliding_window_pattern=4,
    ),
    "nemotron": case("NemotronConfig", vocabulary="pieces", partial_rotary_factor=0.5),
    "bert": case("BertConfig", vocabulary="words", type_vocab_size=2, **ENCODER, dtype="float32"),
    "bert-f16": case(
        "BertConfig", vocabulary="words", type_vocab_size=2, **ENCODER, dtype="float16",
    ),
    "granitemoe": case("GraniteMoeConfig", num_local_experts=12, num_experts_per_tok=2),
    "phimoe": case(
        "PhimoeConfig", architecture="PhiMoEForCausalLM", vocabulary="pieces", lm_head_bias=True,
        attention_bias=True,
        num_local_experts=12, num_experts_per_tok=2, original_max_position_embeddings=512,
    ),
    "cohere2": case("Cohere2Config", logit_scale=0.25, rotary_pct=1.0, sliding_window=64),
    "deepseek2": case(
        "DeepseekV2Config", num_key_value_heads=4, moe_intermediate_size=32, n_routed_experts=12,
        num_experts_per_tok=2, n_shared_experts=2, first_k_dense_replace=1, kv_lora_rank=16,
        q_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12,
        routed_scaling_factor=1.5, n_group=1, topk_group=1,
    ),
    "deepseek2-lite": case(
        "DeepseekV2Config", num_key_value_heads=4, moe_intermediate_size=32, n_routed_experts=12,
        num_experts_per_tok=2, kv_lora_rank=16, q_lora_rank=None, qk_nope_head_dim=16,
        num_hidden_layers=27,  # by which llama.cpp knows it
        qk_rope_head_dim=8, v_head_dim=12, first_k_dense_replace=1,
    ),
    "deepseek3": case(
        "DeepseekV3Config", num_key_value_heads=4, moe_intermediate_size=32, n_routed_experts=12,
        num_experts_per_tok=2, n_shared_experts=1, first_k_dense_replace=1, kv_lora_rank=16,
        q_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12, n_group=2,
        topk_group=1, rope_scaling=YARN | {"mscale_all_dim": 1.0, "mscale": 1.0},
        scoring_func="sigmoid",
    ),
    "glm4": case("Glm4Config", head_dim=32, attention_bias=True),
    "falcon": case("FalconConfig", new_decoder_architecture=True, num_kv_heads=2),
    "falcon-7b": case("FalconConfig", multi_query=True, num_kv_heads=1),
    "bloom": case("BloomConfig", n_layer=3, n_head=4),
    "distilbert": case("DistilBertConfig", vocabulary="words", dim=64, n_heads=4, n_layers=3,
                       hidden_dim=96, **ENCODER),
    "bert-classifier": case(
        "BertConfig", vocabulary="words", model="BertForSequenceClassification",
        id2label={0: "bad", 1: "so so", 2: "good"}, **ENCODER,
    ),
    "bert-two-labels": case(
        "BertConfig", vocabulary="words", model="BertForSequenceClassification",
        **ENCODER,
    ),
    "roberta": case("RobertaConfig", kind="AutoModel", **ENCODER),
    "roberta-classifier": case(
        "RobertaConfig", model="RobertaForSequenceClassification", id2label={0: "one"}, **ENCODER,
    ),
    "distilbert-classifier": case(
        "DistilBertConfig", vocabulary="words", model="DistilBertForSequenceClassification", dim=64,
        n_heads=4, n_layers=3, hidden_dim=96, id2label={0: "bad", 1: "so so", 2: "good"}, **ENCODER,
    ),
    "modernbert-classifier": case(
        "ModernBertConfig", model="ModernBertForSequenceClassification", local_attention=32,
        layer_norm_eps=1e-5, id2label={0: "bad", 1: "so so", 2: "good"}, **ENCODER,
    ),
    "xlm-roberta-classifier": case(
        "XLMRobertaConfig", vocabulary="xlm", model="XLMRobertaForSequenceClassification",
        id2label={0: "one"}, **ENCODER,
    ),
    "xlm-roberta": case("XLMRobertaConfig", vocabulary="xlm", kind="AutoModel", **ENCODER),
    "modernbert": case(
        "ModernBertConfig", kind="AutoModel", local_attention=32, layer_norm_eps=1e-5, **ENCODER,
    ),
    "t5": case("T5Config", vocabulary="unigram", kind="AutoModelForSeq2SeqLM", d_model=64, d_kv=16,
               d_ff=96, num_layers=3, num_decoder_layers=2, num_heads=4, decoder_start_token_id=0),
    "flan-t5": case(
        "T5Config", vocabulary="unigram", kind="AutoModelForSeq2SeqLM", d_model=64, d_kv=16,
        d_ff=96, num_layers=3, num_heads=4, feed_forward_proj="gated-gelu",
        tie_word_embeddings=False, decoder_start_token_id=0,
    ),
    "mt5": case(
        "MT5Config", vocabulary="unigram", kind="AutoModelForSeq2SeqLM", d_model=64, d_kv=16,
        d_ff=96, num_layers=3, num_heads=4, decoder_start_token_id=0, tie_word_embeddings=False,
    ),
    "umt5": case(
        "UMT5Config", vocabulary="unigram", kind="AutoModelForSeq2SeqLM", d_model=64, d_kv=16,
        d_ff=96, num_layers=3, num_heads=4, decoder_start_token_id=0, tie_word_embeddings=False,
    ),
    "t5encoder": case("T5Config", vocabulary="unigram", model="T5EncoderModel", d_model=64,
                      d_kv=16, d_ff=96, num_layers=3, num_heads=4),
    "lfm2": case("Lfm2Config", full_attn_idxs=[1], conv_L_cache=3, block_multiple_of=32),
    "gpt-oss": case("GptOssConfig", num_local_experts=8, num_experts_per_tok=2, head_dim=16),
    "mamba": case("MambaConfig", state_size=8, intermediate_size=128),
    "falcon-mamba": case("FalconMambaConfig", state_size=8, intermediate_size=128),
    "mamba2": case(
        "Mamba2Config", intermediate_size=128, num_heads=8, head_dim=16, state_size=16, n_groups=1,
    ),
    "mamba2-groups": case(
        "Mamba2Config", intermediate_size=128, num_heads=8, head_dim=16, state_size=16, n_groups=2,
    ),
    "mpt": case(
        "MptConfig", architecture="MPTForCausalLM", d_model=64, n_heads=4, n_layers=3,
        max_seq_len=512,
    ),
}  # fmt: skip

# Classes whose code is not in transformers: their fields, and the shapes of their tensors.
LLAMA_NAMES = {
    "model.embed_tokens.weight": (416, 64), "model.norm.weight": (64,), "lm_head.weight": (416, 64),
    "model.layers.{i}.input_layernorm.weight": (64,),
    "model.layers.{i}.self_attn.q_proj.weight": (64, 64),
    "model.layers.{i}.self_attn.k_proj.weight": (32, 64),
    "model.layers.{i}.self_attn.v_proj.weight": (32, 64),
    "model.layers.{i}.self_attn.o_proj.weight": (64, 64),
    "model.layers.{i}.post_attention_layernorm.weight": (64,),
    "model.layers.{i}.mlp.gate_proj.weight": (96, 64),
    "model.layers.{i}.mlp.up_proj.weight": (96, 64),
    "model.layers.{i}.mlp.down_proj.weight": (64, 96),
}  # fmt: skip
FP8_NAMES = dict(LLAMA_NAMES)
for _name in ("self_attn.q_proj", "mlp.up_proj", "mlp.down_proj"):
    _full = f"model.layers.{{i}}.{_name}.weight"
    FP8_NAMES[_full] = (LLAMA_NAMES[_full], "float8_e4m3fn")
BLOCKS = FP8_NAMES | {
    "model.layers.{i}.self_attn.q_proj.weight_scale_inv": ((2, 2), "float32"),
    "model.layers.{i}.mlp.up_proj.weight_scale_inv": ((3, 2), "float32"),
    "model.layers.{i}.mlp.down_proj.weight_scale_inv": ((2, 3), "float32"),
}
CHANNELS = FP8_NAMES | {
    "model.layers.{i}.self_attn.q_proj.weight_scale": ((64, 1), "bfloat16"),
    "model.layers.{i}.mlp.up_proj.weight_scale": ((96, 1), "bfloat16"),
    "model.layers.{i}.mlp.down_proj.weight_scale": ((64, 1), "bfloat16"),
}
PACKED = {"self_attn.q_proj": (64, 64), "mlp.up_proj": (96, 64), "mlp.down_proj": (64, 96)}
GROUP = 32


def gptq(bits: int, **settings: object) -> dict[str, Any]:
    """Return a case of matrices packed down, a group of 32 columns in any order each."""
    tensors = dict(LLAMA_NAMES)
    for name, (rows, width) in PACKED.items():
        stem = f"model.layers.{{i}}.{name}"
        del tensors[f"{stem}.weight"]
        tensors |= {
            f"{stem}.qweight": ((width * bits // 32, rows), "words"),
            f"{stem}.qzeros": ((width // GROUP, rows * bits // 32), "words"),
            f"{stem}.scales": ((width // GROUP, rows), "float16"),
            f"{stem}.g_idx": ((width,), "groups"),
        }
    method = {"quant_method": "gptq", "bits": bits, "group_size": GROUP, **settings}
    return {"vocabulary": "bytes", "tensors": tensors,
            "config": LLAMA | {"quantization_config": method}}  # fmt: skip


def pack_quantized(bits: int, *, zeros: bool) -> dict[str, Any]:
    """Return a case of compressed-tensors' integers in groups of 32 columns."""
    tensors, values = dict(LLAMA_NAMES), 32 // bits
    for name, (rows, width) in PACKED.items():
        stem = f"model.layers.{{i}}.{name}.weight"
        del tensors[stem]
        tensors |= {
            f"{stem}_packed": ((rows, -(-width // values)), "words"),
            f"{stem}_scale": ((rows, width // GROUP), "bfloat16"),
            f"{stem}_shape": ((rows, width), "shape"),
        }
        if zeros:
            tensors[f"{stem}_zero_point"] = ((-(-rows // values), width // GROUP), "words")
    group = {"num_bits": bits, "type": "int", "strategy": "group", "group_size": GROUP}
    method = {"quant_method": "compressed-tensors", "format": "pack-quantized",
              "config_groups": {"group_0": {"weights": group}}}  # fmt: skip
    return {"vocabulary": "bytes", "tensors": tensors,
            "config": LLAMA | {"quantization_config": method}}  # fmt: skip


LLAMA = {**BASE, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "rms_norm_eps": 1e-5,
         "hidden_act": "silu"}  # fmt: skip
RAW = {
    "llama-fp8": {
        "vocabulary": "bytes", "tensors": BLOCKS,
        "config": LLAMA | {
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [40, 40]},
        },
    },
    "llama-compressed": {
        "vocabulary": "bytes", "tensors": CHANNELS,
        "config": LLAMA | {
            "quantization_config": {
                "quant_method": "compressed-tensors", "format": "float-quantized",
                "config_groups": {"group_0": {"weights": {"strategy": "channel"}}},
            },
        },
    },
    "llama-gptq-2": gptq(2, checkpoint_format="gptq_v2"),
    "llama-gptq-4": gptq(4, desc_act=True),
    "llama-gptq-8": gptq(8, checkpoint_format="gptq"),
    "llama-packed-4": pack_quantized(4, zeros=True),
    "llama-packed-8": pack_quantized(8, zeros=False),
    "gpt-oss-mxfp4": {
        "vocabulary": "bytes",
        "config": {
            **BASE, "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss",
            "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16,
            "sliding_window": 128, "intermediate_size": 64, "rms_norm_eps": 1e-5,
            "quantization_config": {"quant_method": "mxfp4"},
        },
        "tensors": {
            "model.embed_tokens.weight": (416, 64), "model.norm.weight": (64,),
            "lm_head.weight": (416, 64),
            "model.layers.{i}.input_layernorm.weight": (64,),
            "model.layers.{i}.self_attn.q_proj.weight": (64, 64),
            "model.layers.{i}.self_attn.q_proj.bias": (64,),
            "model.layers.{i}.self_attn.k_proj.weight": (32, 64),
            "model.layers.{i}.self_attn.v_proj.weight": (32, 64),
            "model.layers.{i}.self_attn.o_proj.weight": (64, 64),
            "model.layers.{i}.self_attn.o_proj.bias": (64,),
            "model.layers.{i}.self_attn.sinks": (4,),
            "model.layers.{i}.post_attention_layernorm.weight": (64,),
            "model.layers.{i}.mlp.router.weight": (4, 64),
            "model.layers.{i}.mlp.router.bias": (4,),
            "model.layers.{i}.mlp.experts.down_proj_blocks": ((4, 64, 2, 16), "uint8"),
            "model.layers.{i}.mlp.experts.down_proj_scales": ((4, 64, 2), "exponents"),
            "model.layers.{i}.mlp.experts.down_proj_bias": (4, 64),
            "model.layers.{i}.mlp.experts.gate_up_proj_blocks": ((4, 128, 2, 16), "uint8"),
            "model.layers.{i}.mlp.experts.gate_up_proj_scales": ((4, 128, 2), "exponents"),
            "model.layers.{i}.mlp.experts.gate_up_proj_bias": (4, 128),
        },
    },
    "minicpm": {
        "vocabulary": "pieces", "tensors": LLAMA_NAMES,
        "config": {
            **BASE, "architectures": ["MiniCPMForCausalLM"], "model_type": "minicpm",
            "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 32, "hidden_act": "silu",
            "rms_norm_eps": 1e-5,
        },
    },
    "internlm2": {
        "vocabulary": "pieces",
        "config": {
            **BASE, "vocab_size": 400, "architectures": ["InternLM2ForCausalLM"],
            "model_type": "internlm2",
            "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 1000000,
        },
        "tensors": {
            "model.tok_embeddings.weight": (400, 64), "model.norm.weight": (64,),
            "output.weight": (400, 64),
            "model.layers.{i}.attention_norm.weight": (64,),
            "model.layers.{i}.attention.wqkv.weight": (128, 64),
            "model.layers.{i}.attention.wo.weight": (64, 64),
            "model.layers.{i}.ffn_norm.weight": (64,),
            "model.layers.{i}.feed_forward.w1.weight": (96, 64),
            "model.layers.{i}.feed_forward.w2.weight": (64, 96),
            "model.layers.{i}.feed_forward.w3.weight": (96, 64),
        },
    },
    "exaone": {
        "vocabulary": "bytes",
        "config": {
            **BASE, "architectures": ["ExaoneForCausalLM"], "model_type": "exaone",
            "activation_function": "silu", "layer_norm_epsilon": 1e-5, "num_layers": 3,
            "rope_theta": 1000000, "rope_scaling": LLAMA3,
        },
        "tensors": {
            "transformer.wte.weight": (416, 64), "transformer.ln_f.weight": (64,),
            "lm_head.weight": (416, 64),
            "transformer.h.{i}.ln_1.weight": (64,),
            "transformer.h.{i}.attn.attention.q_proj.weight": (64, 64),
            "transformer.h.{i}.attn.attention.k_proj.weight": (32, 64),
            "transformer.h.{i}.attn.attention.v_proj.weight": (32, 64),
            "transformer.h.{i}.attn.attention.out_proj.weight": (64, 64),
            "transformer.h.{i}.ln_2.weight": (64,),
            "transformer.h.{i}.mlp.c_fc_0.weight": (96, 64),
            "transformer.h.{i}.mlp.c_fc_1.weight": (96, 64),
            "transformer.h.{i}.mlp.c_proj.weight": (64, 96),
        },
    },
    "nomic-bert": {
        "vocabulary": "words",
        "config": {
            "architectures": ["NomicBertModel"], "model_type": "nomic_bert", "n_embd": 64,
            "n_head": 4, "n_layer": 3, "n_inner": 96, "n_positions": 8192, "vocab_size": 416,
            "max_trained_positions": 2048, "activation_function": "swiglu", "causal": False,
            "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False,
            "prenorm": False, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0,
            "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
            "layer_norm_epsilon": 1e-12, "type_vocab_size": 2,
        },
        "tensors": {
            "embeddings.word_embeddings.weight": (416, 64),
            "embeddings.token_type_embeddings.weight": (2, 64),
            "emb_ln.weight": (64,), "emb_ln.bias": (64,),
            "encoder.layers.{i}.attn.Wqkv.weight": (192, 64),
            "encoder.layers.{i}.attn.out_proj.weight": (64, 64),
            "encoder.layers.{i}.norm1.weight": (64,), "encoder.layers.{i}.norm1.bias": (64,),
            "encoder.layers.{i}.mlp.fc11.weight": (96, 64),
            "encoder.layers.{i}.mlp.fc12.weight": (96, 64),
            "encoder.layers.{i}.mlp.fc2.weight": (64, 96),
            "encoder.layers.{i}.norm2.weight": (64,), "encoder.layers.{i}.norm2.bias": (64,),
        },
    },
}  # fmt: skip

for _name, _case in known.families().items():
    (RAW if "tensors" in _case else CASES)[_name] = _case


def byte_level(text: list[str] = TEXT) -> Tokenizer:
    """Return a byte-level BPE tokenizer of GPT-2's rules, trained on a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=312, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=["<|begin|>", "<|end|>", "<pad>", "<|endoftext|>", "<|user|>"],
    )  # fmt: skip
    tokenizer.train_from_iterator(text * 20, trainer)
    tokenizer.add_tokens([AddedToken("<added>", normalized=False)])
    return tokenizer


def save_bytes(folder: Path, text: list[str] = TEXT) -> None:
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=byte_level(text),
        bos_token="<|begin|>",
        eos_token="<|end|>",
        pad_token="<pad>",
    )
    fast.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config["tokenizer_class"] = "GPT2Tokenizer"
    path.write_text(json.dumps(config, indent=2))


def save_talking(folder: Path) -> None:
    """Save the same with a chat template."""
    save_bytes(folder)
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.content }}{% endfor %}"
    )


def save_beginning(folder: Path) -> None:
    """Save the same with a token before each text."""
    save_bytes(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"add_bos_token": True}, indent=2))


def save_template(folder: Path) -> None:
    """Save the same with two templates for chats."""
    save_bytes(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": "one"}, indent=2))
    (folder / "chat_template.jinja").write_text("two")


def save_chatml(folder: Path, ends: str = "<|im_end|>") -> None:
    """Save a byte-level BPE tokenizer with the token that ends turns of ChatML, or another."""
    tokenizer = byte_level()
    tokenizer.add_special_tokens(["<|im_start|>", ends])
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|endoftext|>", pad_token="<|endoftext|>"
    ).save_pretrained(folder)


def save_glm(folder: Path) -> None:
    """Save a byte-level BPE tokenizer with GLM's special tokens."""
    tokenizer = byte_level()
    names = ("[gMASK]", "<|observation|>", "<unk>", "<|startoftext|>")
    tokenizer.add_special_tokens(list(names))
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|endoftext|>", pad_token="<|endoftext|>"
    )
    fast.save_pretrained(folder)


def train_pieces(path: Path, **settings: Any) -> None:
    """Save a SentencePiece model; it names no folder of this machine, as files for training do."""
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter("\n".join(TEXT * 20).split("\n")),
            model_writer=file,
            minloglevel=2,
            **settings,
        )


def save_pieces(folder: Path) -> None:
    """Save a SentencePiece model of bytes and a few words."""
    train_pieces(
        folder / "tokenizer.model", vocab_size=400, model_type="bpe", byte_fallback=True,
        character_coverage=0.98, bos_id=1, eos_id=2, unk_id=0, pad_id=-1,
    )  # fmt: skip
    config = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def save_gemma(folder: Path) -> None:
    """Save a SentencePiece model with Gemma's class, which puts no space before a text."""
    save_pieces(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"tokenizer_class": "GemmaTokenizer"}))


def save_arctic(folder: Path) -> None:
    """Save a SentencePiece model whose last pieces have other names in the settings."""
    save_pieces(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    names = {"0": "<unk>", "1": "<s>", "2": "</s>", "398": "<|im_start|>", "399": "<|im_end|>"}
    decoder = {n: {"content": text, "special": True} for n, text in names.items()}
    more = {"unk_token": "<unk>", "added_tokens_decoder": decoder}
    path.write_text(json.dumps(config | more))


def save_merged(folder: Path) -> None:
    """Save BPE over characters, with bytes for unknown ones and merges in the file: Gemma 4's."""
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|tool_call>"]
    learned = Tokenizer(models.BPE(unk_token="<unk>"))
    trainer = trainers.BpeTrainer(
        vocab_size=150, special_tokens=specials, show_progress=False, limit_alphabet=90
    )
    # llama.cpp keeps ends of lines apart, as no merge of Gemma's crosses one.
    lines = [line.replace(" ", "\u2581") for text in TEXT * 20 for line in re.split(r"(\n+)", text)]
    learned.train_from_iterator(lines, trainer)
    trained = json.loads(learned.to_str())["model"]
    texts = [*specials, *(f"<0x{byte:02X}>" for byte in range(256))]
    texts += [text for text in trained["vocab"] if text not in specials]
    texts += [f"unused{number}" for number in range(BASE["vocab_size"] - len(texts))]
    merges = [tuple(merge) for merge in trained["merges"]]
    pairs = models.BPE(
        {text: number for number, text in enumerate(texts)}, merges, unk_token="<unk>",
        fuse_unk=True, byte_fallback=True,
    )  # fmt: skip
    tokenizer = Tokenizer(pairs)
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_special_tokens(specials)
    names = {name: f"<{name[:3]}>" for name in ("bos_token", "eos_token", "unk_token", "pad_token")}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    fast.save_pretrained(folder)


T5_IDS = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}


def save_unigram(folder: Path, **ids: int) -> None:
    """Save a SentencePiece model of T5's kind."""
    train_pieces(
        folder / "spiece.model", vocab_size=160, model_type="unigram", hard_vocab_limit=False,
        **(ids or T5_IDS),
    )  # fmt: skip
    config = {"tokenizer_class": "T5Tokenizer", "eos_token": "</s>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def save_voice(folder: Path) -> None:
    """Save a SentencePiece model of T5's kind as Pocket TTS has it, without a configuration."""
    save_unigram(folder)
    (folder / "spiece.model").rename(folder / "tokenizer.model")
    (folder / "tokenizer_config.json").unlink()


def save_xlm(folder: Path) -> None:
    """Save a SentencePiece model under the name and with the class that XLM-R has for it."""
    save_unigram(folder, unk_id=0, bos_id=1, eos_id=2)
    (folder / "spiece.model").rename(folder / "sentencepiece.bpe.model")
    path = str(folder / "sentencepiece.bpe.model")
    transformers.XLMRobertaTokenizerFast(path).save_pretrained(folder)


def save_xlm_alone(folder: Path) -> None:
    """Save the same tokenizer in tokenizer.json alone, with the one normalizer of Jina 3."""
    save_xlm(folder)
    (folder / "sentencepiece.bpe.model").unlink()
    path = folder / "tokenizer.json"
    whole = json.loads(path.read_text())
    whole["normalizer"] = whole["normalizer"]["normalizers"][0]
    path.write_text(json.dumps(whole, ensure_ascii=False))


def save_words(folder: Path) -> None:
    """Save a WordPiece vocabulary."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words += [chr(c) for c in range(33, 127)] + [f"##{chr(c)}" for c in range(97, 123)]
    words += ["the", "quick", "brown", "##ing", "##s"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)


VOCABULARIES = {
    **own_vocabularies.OWN,
    "none": lambda _: None,
    "arctic": save_arctic,
    "answers": lambda folder: save_bytes(folder, [*TEXT, "yes\nno\n" * 9]),
    "beginning": save_beginning,
    "chatml": save_chatml,
    "turns": lambda folder: save_chatml(folder, "<|eot|>"),
    "assistant": lambda folder: save_chatml(folder, "<|endofassistant|>"),
    "glm": save_glm,
    "bytes": save_bytes,
    "template": save_template,
    "pieces": save_pieces,
    "gemma": save_gemma,
    "merged": save_merged,
    "unigram": save_unigram,
    "words": save_words,
    "talking": save_talking,
    "voice": save_voice,
    "xlm": save_xlm,
    "xlm-alone": save_xlm_alone,
}


INTEGERS = {
    "counts": (1, 2**45, torch.int64),
    "uint8": (0, 256, torch.uint8), "int8": (-128, 128, torch.int8),
    "exponents": (110, 130, torch.uint8), "few": (1, 9, torch.int64),
    "words": (-(2**31), 2**31, torch.int32), "whole": (-8, 9, torch.bfloat16),
}  # fmt: skip


def described(shape: Any) -> tuple[tuple[int, ...], str]:
    """Return shape and type of a tensor, BF16 where only the shape is given."""
    return shape if isinstance(shape[-1], str) else (shape, "bfloat16")


MADE: dict[str, Callable[[tuple[int, ...]], torch.Tensor]] = {
    # Of four experts, some for each token.
    "choices": lambda shape: torch.rand(shape[0], 4).argsort(1)[:, : shape[1]].contiguous(),
    "one": torch.ones,
    "few-ones": lambda shape: torch.randint(1, 3, shape).to(torch.float32),
    "groups": lambda shape: (torch.randperm(*shape) // GROUP).to(torch.int32),
    "powers": lambda shape: random_tensor(shape, "exponents").view(torch.float8_e8m0fnu),
    "shape": torch.tensor,
    "small": lambda shape: torch.randn(shape) / 4,
    "steps": lambda shape: random_tensor(shape, "whole") * 128,
}


def random_tensor(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    if dtype in MADE:
        return MADE[dtype](shape)
    if dtype in INTEGERS:
        least, most, kind = INTEGERS[dtype]
        return torch.randint(least, most, shape, dtype=kind)
    return torch.randn(shape).to(getattr(torch, dtype))


def make_raw(folder: Path, name: str) -> None:
    """Make a checkpoint of a class that transformers has no code for."""
    spec = RAW[name]
    folder.mkdir(parents=True)
    torch.manual_seed(len(name))
    names = each_number(spec["tensors"], "{i}", spec.get("layers", 3))
    names = each_number(names, "{x}", spec.get("experts", 1))
    tensors = {n: random_tensor(*described(shape)) for n, shape in names.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if spec["config"] is not None:
        (folder / "config.json").write_text(json.dumps(spec["config"], indent=2))


def each_number(tensors: dict[str, Any], place: str, count: int) -> dict[str, Any]:
    """Return the tensors with every number below `count` in the place of a layer or an expert."""
    return {n.replace(place, str(i)): s for n, s in tensors.items() for i in range(count)}


def fields_of(own: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a configuration, BASE and `own`; those of a text model lie deeper.

    A field of BASE that is None is left out, any other is null.
    """
    if "text_config" in own:
        return own | {"text_config": fields_of(own["text_config"])}
    fields = {name: value for name, value in BASE.items() if own.get(name, value) is not None}
    return fields | {
        name: value for name, value in own.items() if name in fields or name not in BASE
    }


def model_of(name: str) -> Any:
    """Return the random model of a case."""
    spec = CASES[name]
    config = getattr(transformers, spec["config"])(**fields_of(spec["fields"]))
    with no_init_weights():  # StableLM's own cannot initialize its norms of heads
        if spec["model"]:
            model = getattr(transformers, spec["model"])(config)
        else:
            model = getattr(transformers, spec["kind"]).from_config(config)
    model.tie_weights()
    torch.manual_seed(len(name))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.1, 0.5)
    if spec["empty_rows"]:
        model.get_input_embeddings().weight.data[-spec["empty_rows"] :] = 0
    return model.to(getattr(torch, spec["dtype"]))


def make(folder: Path, name: str) -> None:
    """Make the checkpoint of a case."""
    spec = CASES[name]
    folder.mkdir(parents=True)
    model = model_of(name)
    parameters = {name for name, _ in model.named_parameters()}
    parameters_to_save = {n: t for n, t in model.state_dict().items() if n in parameters}
    only = {"state_dict": parameters_to_save} if spec["only_parameters"] else {}
    model.save_pretrained(folder, **only, **spec["saved"])
    if spec["extra"]:
        with_extra(folder / "model.safetensors", spec)
    classes = {"architectures": [spec["architecture"]]} if spec["architecture"] else {}
    if changed := classes | spec["published"]:
        path = folder / "config.json"
        written = json.loads(path.read_text()) | changed
        parameters_to_save = {k: v for k, v in written.items() if v != ABSENT}
        path.write_text(json.dumps(parameters_to_save))


def with_extra(path: Path, spec: dict[str, Any]) -> None:
    """Write a file again with tensors that transformers does not make."""
    tensors = {n: random_tensor(shape, spec["dtype"]) for n, shape in spec["extra"].items()}
    save_file({**load_file(path), **tensors}, path, metadata={"format": "pt"})


def main(folder: str, *names: str) -> None:
    """Make the named cases, or all; those of another version of transformers are left alone."""
    for name in names or [*CASES, *RAW]:
        spec, partial = (CASES | RAW)[name], Path(folder) / f".{name}"
        if (Path(folder) / name).exists():
            continue
        if spec.get("library", OLDEST) == LIBRARY and not partial.exists():
            making = Path(folder) / f".making-{name}"
            (make_raw if name in RAW else make)(making, name)
            making.rename(partial)
        if LIBRARY == OLDEST and partial.exists():
            VOCABULARIES[spec["vocabulary"]](partial)
            for file, text in spec.get("files", {}).items():
                (partial / file).write_bytes(text.encode())
            partial.rename(Path(folder) / name)


if __name__ == "__main__":
    main(*sys.argv[1:])
