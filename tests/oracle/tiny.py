"""Make tiny random checkpoints with transformers, one for each case of `CASES`.

    python tiny.py FOLDER [CASE ...]

Runs in the environment of requirements.txt. Each case is a configuration that differs from its
class's defaults in every size, so that a swapped field shows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

TEXT = [
    "The quick brown fox jumps over the lazy dog, 12345 times, and isn't tired.",
    "Ünïcödé, 日本語, русский, العربية and 🦙🚀 are words as well.",
    "def main():\n    return {'a': 1, \"b\": [2, 3]}  # code\n\n\n\t",
    "It's we'll they've I'd 3.14 -- 100% #hash @at $5 <tag> a_b c/d e\\f",
]
BASE = {
    "vocab_size": 416, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128,
    "beta_fast": 32, "beta_slow": 1, "attention_factor": 0.9,
}  # fmt: skip


def case(
    config: str,
    *,
    dtype: str = "bfloat16",
    vocabulary: str = "bytes",
    architecture: str | None = None,
    **fields: Any,
) -> dict:
    """Describe a checkpoint: the class of its configuration and what differs from BASE.

    `architecture` is the name that checkpoints with code of their own have for the class.
    """
    return {
        "config": config,
        "dtype": dtype,
        "vocabulary": vocabulary,
        "architecture": architecture,
        "fields": fields,
    }


CASES = {
    "llama": case("LlamaConfig"),
    "llama-f16": case("LlamaConfig", dtype="float16"),
    "llama-f32": case("LlamaConfig", dtype="float32", rms_norm_eps=1e-5),
    "llama-bias": case("LlamaConfig", attention_bias=True, mlp_bias=True),
    "llama-headdim": case("LlamaConfig", head_dim=32, rope_theta=500000.0),
    "llama-sentencepiece": case("LlamaConfig", vocabulary="pieces"),
    "llama-tied": case("LlamaConfig", tie_word_embeddings=True),
    "llama-linear": case("LlamaConfig", rope_scaling={"type": "linear", "factor": 2.0}),
    "llama-yarn": case("LlamaConfig", rope_scaling=YARN),
    "llama-llama3": case("LlamaConfig", rope_scaling=LLAMA3, head_dim=64, rope_theta=500000.0),
    "llama-dynamic": case("LlamaConfig", rope_scaling={"type": "dynamic", "factor": 2.0}),
    "mistral": case("MistralConfig", sliding_window=128),
    "mistral-defaults": case("MistralConfig", num_key_value_heads=None),
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
        head_dim=32,
    ),
    "gemma": case("GemmaConfig", vocabulary="pieces", head_dim=32),
    "gemma-f16": case("GemmaConfig", vocabulary="pieces", head_dim=32, dtype="float16"),
    "gemma2": case("Gemma2Config", vocabulary="pieces", head_dim=32, sliding_window=64),
    "gemma3": case("Gemma3TextConfig", vocabulary="pieces", head_dim=32, sliding_window=64),
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
    "olmo2": case("Olmo2Config"),
    "olmoe": case("OlmoeConfig", num_experts=12, num_experts_per_tok=2),
    "granite": case("GraniteConfig", embedding_multiplier=2.0, logits_scaling=4.0,
                    residual_multiplier=0.5, attention_multiplier=0.125),
    "cohere": case("CohereConfig", logit_scale=0.25),
    "exaone4": case("Exaone4Config", sliding_window=64, sliding_window_pattern=3),
    "nemotron": case("NemotronConfig", vocabulary="pieces", partial_rotary_factor=0.5),
    "bert": case("BertConfig", vocabulary="words", type_vocab_size=2, dtype="float32"),
    "bert-f16": case("BertConfig", vocabulary="words", type_vocab_size=2, dtype="float16"),
    "granitemoe": case("GraniteMoeConfig", num_local_experts=12, num_experts_per_tok=2),
    "phimoe": case(
        "PhimoeConfig", architecture="PhiMoEForCausalLM", vocabulary="pieces",
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
        qk_rope_head_dim=8, v_head_dim=12, first_k_dense_replace=1,
    ),
    "deepseek3": case(
        "DeepseekV3Config", num_key_value_heads=4, moe_intermediate_size=32, n_routed_experts=12,
        num_experts_per_tok=2, n_shared_experts=1, first_k_dense_replace=1, kv_lora_rank=16,
        q_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12, n_group=2,
        topk_group=1, rope_scaling=YARN | {"mscale_all_dim": 1.0, "mscale": 1.0},
    ),
    "glm4": case("Glm4Config", head_dim=32, attention_bias=True),
    "falcon": case("FalconConfig", new_decoder_architecture=True, num_kv_heads=2),
    "falcon-7b": case("FalconConfig", multi_query=True, num_kv_heads=1),
    "bloom": case("BloomConfig", n_layer=3, n_head=4),
    "mpt": case(
        "MptConfig", architecture="MPTForCausalLM", d_model=64, n_heads=4, n_layers=3,
        max_seq_len=512,
    ),
}  # fmt: skip


def byte_level() -> Tokenizer:
    """Return a trained byte-level BPE tokenizer of GPT-2's rules."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=312, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=["<|begin|>", "<|end|>", "<pad>", "<|endoftext|>", "<|user|>"],
    )  # fmt: skip
    tokenizer.train_from_iterator(TEXT * 20, trainer)
    tokenizer.add_tokens([AddedToken("<added>", normalized=False)])
    return tokenizer


def save_bytes(folder: Path) -> None:
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=byte_level(), bos_token="<|begin|>", eos_token="<|end|>", pad_token="<pad>"
    )
    fast.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config["tokenizer_class"] = "GPT2Tokenizer"
    path.write_text(json.dumps(config, indent=2))


def save_pieces(folder: Path) -> None:
    """Save a SentencePiece model of bytes and a few words."""
    (folder / "text.txt").write_text("\n".join(TEXT * 20))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text.txt"), model_prefix=str(folder / "tokenizer"), vocab_size=400,
        model_type="bpe", byte_fallback=True, character_coverage=0.98, bos_id=1, eos_id=2, unk_id=0,
        pad_id=-1, minloglevel=2,
    )  # fmt: skip
    for name in ("text.txt", "tokenizer.vocab"):
        (folder / name).unlink()
    config = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def save_words(folder: Path) -> None:
    """Save a WordPiece vocabulary."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words += [chr(c) for c in range(33, 127)] + [f"##{chr(c)}" for c in range(97, 123)]
    words += ["the", "quick", "brown", "##ing", "##s"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)


VOCABULARIES = {"bytes": save_bytes, "pieces": save_pieces, "words": save_words}


def make(folder: Path, name: str) -> None:
    """Make the checkpoint of a case."""
    spec = CASES[name]
    folder.mkdir(parents=True)
    fields = {k: v for k, v in {**BASE, **spec["fields"]}.items() if v is not None}
    config = getattr(transformers, spec["config"])(**fields)
    torch.manual_seed(len(name))
    kind = transformers.AutoModel if spec["vocabulary"] == "words" else None
    model = (kind or transformers.AutoModelForCausalLM).from_config(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.1, 0.5)
    model.to(getattr(torch, spec["dtype"])).save_pretrained(folder)
    if spec["architecture"]:
        path = folder / "config.json"
        written = json.loads(path.read_text())
        path.write_text(json.dumps(written | {"architectures": [spec["architecture"]]}))
    VOCABULARIES[spec["vocabulary"]](folder)


def main(folder: str, *names: str) -> None:
    """Make the named cases, or all."""
    for name in names or CASES:
        if not (Path(folder) / name).exists():
            partial = Path(folder) / f".{name}"
            make(partial, name)
            partial.rename(Path(folder) / name)


if __name__ == "__main__":
    main(*sys.argv[1:])
