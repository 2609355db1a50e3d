"""Tiny checkpoints in Mistral's own format, the same bytes on every machine."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

WORDS = ["Th", "The", " q", "ui", " qui", "ck", "uick", " quick", "  ", "é", "日本", "日"]
SPECIALS = [
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "<pad>", "[IMG_BREAK]", "[IMG]", "[IMG_END]",
    "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]",
    "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]", "[ARGS]", "[CALL_ID]",
    "[PREFIX]", "[SUFFIX]", "[MIDDLE]",
]  # fmt: skip
COUNTED = 24  # special tokens of a tekken.json, listed or not
YARN = {
    "original_max_position_embeddings": 128, "factor": 4, "apply_scale": False, "beta": 32,
    "alpha": 1,
}  # fmt: skip
DENSE = {
    "dim": 64, "n_layers": 2, "head_dim": 16, "hidden_dim": 96, "n_heads": 4, "n_kv_heads": 2,
    "rope_theta": 1000000.0, "norm_eps": 1e-05, "max_position_embeddings": 512,
}  # fmt: skip
EXPERTS = {
    **DENSE, "n_kv_heads": 4, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16, "v_head_dim": 32, "yarn": YARN, "llama_4_scaling": {
        "original_max_position_embeddings": 128, "beta": 0.1,
    },
    "moe": {
        "expert_parallel": 1, "expert_model_parallel": 1, "route_every_n": 1,
        "first_k_dense_replace": 1, "num_experts": 4, "num_experts_per_tok": 2,
        "num_expert_groups": 1, "num_expert_groups_per_tok": 1, "routed_scale": 1.0,
        "expert_hidden_dim": 32, "num_shared_experts": 1,
    },
}  # fmt: skip
VISION = {
    "image_token_id": 10, "image_break_token_id": 12, "image_end_token_id": 13,
    "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "rope_theta": 10000,
    "hidden_size": 64, "patch_size": 14, "image_size": 56, "max_image_size": 56, "num_channels": 3,
    "mm_projector_id": "patch_merge", "spatial_merge_size": 2, "adapter_bias": False,
    "add_pre_mm_projector_layer_norm": True,
}  # fmt: skip
CONFIG = {
    "architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 64,
    "num_hidden_layers": 2, "head_dim": 16, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2, "rope_theta": 1000000.0, "rms_norm_eps": 1e-05,
    "max_position_embeddings": 512, "tie_word_embeddings": False,
}  # fmt: skip
HF = {  # the names of transformers
    "output.": "lm_head.", "layers.": "model.layers.", "tok_embeddings": "model.embed_tokens",
    "attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "feed_forward": "mlp", "w1.": "gate_proj.", "w2.": "down_proj.", "w3.": "up_proj.",
    **{f"attention.w{letter}": f"self_attn.{letter}_proj" for letter in "qkvo"},
}  # fmt: skip
MATRIX = re.compile(r"\.w\w\.weight$")

MistralShapes = dict[str, tuple[int, ...]]


def cases() -> dict[str, dict[str, Any]]:
    """Return params.json, shapes of tensors, and what the tokenizer is, by name.

    One case has Mistral's tokenizer in a folder with config.json.
    """
    fp8 = {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"}
    seen = {**dense(), **seeing()}
    return {
        "spm-v1": {"params": DENSE, "tensors": dense(), "pieces": ""},
        "spm-v3": {"params": DENSE, "tensors": dense(), "pieces": ".v3"},
        "spm-v7": {"params": DENSE, "tensors": dense(), "pieces": ".v7m1"},
        "tekken-v3": {"params": DENSE, "tensors": dense(), "tekken": "v3", "unlisted": True},
        "tekken-v7": {"params": {**DENSE, "yarn": YARN}, "tensors": dense(), "tekken": "v7"},
        "tied": {"params": DENSE, "tensors": dense(head=False), "tekken": "v11"},
        "template": {"params": DENSE, "tensors": dense(), "tekken": "v13", "template": "{{ 1 }}"},
        "fp8": {"params": {**DENSE, "quantization": fp8}, "tensors": dense(), "tekken": "v13"},
        "temperature": {
            "params": {
                **DENSE, "yarn": {**YARN, "apply_scale": True},
                "llama_4_scaling": EXPERTS["llama_4_scaling"],
            },
            "tensors": dense(), "tekken": "v13",
        },
        "experts": {"params": EXPERTS, "tensors": experts(), "tekken": "v13"},
        "pixtral": {"params": {**DENSE, "vision_encoder": VISION}, "tensors": seen, "tekken": "v7"},
        "pixtral-placeholder": {
            "params": {**DENSE, "vision_encoder": {**VISION, "image_break_token_id": -1}},
            "tensors": seen, "tekken": "v7",
        },
        "config": {"config": CONFIG, "tensors": dense(HF), "tekken": "v7"},
    }  # fmt: skip


def rows() -> int:
    """Return the number of tokens of every case with a tekken.json."""
    return COUNTED + 256 + len(WORDS)


def dense(renamed: dict[str, str] | None = None, *, head: bool = True) -> MistralShapes:
    """Return the tensors of a dense model, with parts of their names replaced."""
    names: MistralShapes = {"tok_embeddings.weight": (rows(), 64), "norm.weight": (64,)}
    if head:
        names["output.weight"] = (rows(), 64)
    for n in range(2):
        names |= {
            f"layers.{n}.attention.wq.weight": (64, 64),
            f"layers.{n}.attention.wk.weight": (32, 64),
            f"layers.{n}.attention.wv.weight": (32, 64),
            f"layers.{n}.attention.wo.weight": (64, 64),
            f"layers.{n}.attention_norm.weight": (64,),
            f"layers.{n}.ffn_norm.weight": (64,),
            **feed_forward(f"layers.{n}.feed_forward", 96),
        }
    for old, new in (renamed or {}).items():
        names = {name.replace(old, new): shape for name, shape in names.items()}
    if renamed:
        names["model.norm.weight"] = names.pop("norm.weight")
    return names


def feed_forward(stem: str, width: int) -> MistralShapes:
    return {f"{stem}.w1.weight": (width, 64), f"{stem}.w2.weight": (64, width),
            f"{stem}.w3.weight": (width, 64)}  # fmt: skip


def experts() -> MistralShapes:
    """Return the tensors of a model with latent attention and experts in its second layer."""
    names = {name: shape for name, shape in dense().items() if ".attention." not in name}
    names = {name: shape for name, shape in names.items() if "layers.1.feed_forward" not in name}
    for n in range(2):
        names |= {
            f"layers.{n}.attention.wq_a.weight": (32, 64),
            f"layers.{n}.attention.q_a_norm.weight": (32,),
            f"layers.{n}.attention.wq_b.weight": (128, 32),
            f"layers.{n}.attention.wkv_a_with_mqa.weight": (48, 64),
            f"layers.{n}.attention.kv_a_norm.weight": (32,),
            f"layers.{n}.attention.wkv_b.weight": (192, 32),
            f"layers.{n}.attention.wo.weight": (64, 128),
        }
    names["layers.1.gate.weight"] = (4, 64)
    for stem in ("shared_experts", *(f"experts.{x}" for x in range(4))):
        names |= feed_forward(f"layers.1.{stem}", 32)
    return names


def seeing() -> MistralShapes:
    """Return the tensors of Pixtral's encoder and projector."""
    names: MistralShapes = {
        "vision_encoder.patch_conv.weight": (64, 3, 14, 14),
        "vision_encoder.ln_pre.weight": (64,),
        "vision_language_adapter.w_in.weight": (64, 64),
        "vision_language_adapter.w_out.weight": (64, 64),
        "patch_merger.merging_layer.weight": (64, 256),
        "pre_mm_projector_norm.weight": (64,),
    }
    for n in range(2):
        stem = f"vision_encoder.transformer.layers.{n}"
        names |= {f"{stem}.attention.w{letter}.weight": (64, 64) for letter in "qkvo"}
        names |= {f"{stem}.attention_norm.weight": (64,), f"{stem}.ffn_norm.weight": (64,)}
        names |= feed_forward(f"{stem}.feed_forward", 96)
    return names


def make(case: dict[str, Any], folder: Path) -> Path:
    """Write the checkpoint of a case into a new folder."""
    folder.mkdir(parents=True)
    is_own = "params" in case
    params = {**(case["params"] if is_own else case["config"]), "vocab_size": rows()}
    (folder / ("params.json" if is_own else "config.json")).write_text(json.dumps(params))
    if "tekken" in case:
        (folder / "tekken.json").write_text(json.dumps(tekken(case)))
    else:
        (folder / f"tokenizer.model{case['pieces']}").write_bytes(pieces())
    if "template" in case:
        (folder / "chat_template.jinja").write_text(case["template"])
    is_fp8 = bool(params.get("quantization"))
    stem = "consolidated" if is_own else "model"
    (folder / f"{stem}.safetensors").write_bytes(_safetensors(case["tensors"], fp8=is_fp8))
    return folder


def tekken(case: dict[str, Any]) -> dict[str, Any]:
    """Return a tekken.json; its last token is beyond the vocabulary."""
    learned = [*(word.encode() for word in WORDS[:-2]), "日".encode()[:2], "日".encode(), b"Qu"]
    tokens = [*(bytes([byte]) for byte in range(256)), *learned]
    vocab = [
        {"rank": n, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for n, token in enumerate(tokens)
    ]
    config = {
        "pattern": "\\w+|\\W", "num_vocab_tokens": len(vocab), "default_vocab_size": rows(),
        "default_num_special_tokens": COUNTED, "version": case["tekken"],
    }  # fmt: skip
    listed = [] if case.get("unlisted") else SPECIALS
    special = [{"rank": n, "token_str": text, "is_control": True} for n, text in enumerate(listed)]
    return {"config": config, "vocab": vocab, "special_tokens": special or None}


def pieces() -> bytes:
    """Return a SentencePiece model, BPE with bytes, as protobuf."""
    rows_of_pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), ("[INST]", 0.0, 4)]
    rows_of_pieces += [(text, 0.0, 3) for text in ("[/INST]", "[IMG]", "[IMG_BREAK]", "[IMG_END]")]
    rows_of_pieces += [(f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)]
    rows_of_pieces += [(f"word{n}", -float(n), 1) for n in range(rows() - len(rows_of_pieces))]
    rows_of = (
        (_field(1, text.encode()), struct.pack("<f", x), kind) for text, x, kind in rows_of_pieces
    )
    fields = (_field(1, text + b"\x15" + x + bytes([0x18, kind])) for text, x, kind in rows_of)
    return b"".join(fields) + _field(
        2, b"\x18\x02\x98\x02\x01"
    )  # the kind, and that bytes are pieces


def _field(number: int, content: bytes) -> bytes:
    assert len(content) < 128, "one byte tells the length"
    return bytes([number << 3 | 2, len(content)]) + content


def _safetensors(shapes: MistralShapes, *, fp8: bool) -> bytes:
    stored = {}
    for name, shape in sorted(shapes.items()):
        if fp8 and MATRIX.search(name):
            stored[name] = ("F8_E4M3", shape, (_words(name, shape) % 120).astype(np.uint8))
            for scale in ("qscale_weight", "qscale_act"):
                single = np.array([0.75 + len(name) / 64], np.float32)
                stored[name.removesuffix("weight") + scale] = ("F32", (), single)
        else:
            floats = (_words(name, shape) / 87381 - 0.375).astype(np.float32)
            stored[name] = ("BF16", shape, (floats.view(np.uint32) >> 16).astype(np.uint16))
    header: dict[str, Any] = {}
    data = b""
    for name, (dtype, shape, numbers) in stored.items():
        content = numbers.tobytes()
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def _words(name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return numbers below 65536 that follow from a tensor's name."""
    count = int(np.prod(shape))
    mixed = (np.arange(count, dtype=np.uint64) + zlib.crc32(name.encode())) * 2654435761
    return (mixed >> np.uint64(7)) % 65536
