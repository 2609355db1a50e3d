"""A small complete Llama for tests to damage: keys and tensors as llama.cpp requires."""

from __future__ import annotations

from typing import Any

import numpy as np

from ggufkit import typed

WIDTH, HIDDEN, BLOCKS, HEADS, GROUPS = 64, 96, 2, 4, 2
TOKENS = ["<unk>", "<s>", "</s>", "a", "b", "ab", "c", "abc"]
CONTROL = [2, 3, 3, 1, 1, 1, 1, 1]
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"


def keys(**others: object) -> dict[str, Any]:
    """Return its keys with `others`, `__` being a dot; a key that is None is left out."""
    u32 = np.uint32
    whole = {
        "general.architecture": "llama",
        "general.file_type": u32(0),
        "llama.context_length": u32(128),
        "llama.embedding_length": u32(WIDTH),
        "llama.block_count": u32(BLOCKS),
        "llama.feed_forward_length": u32(HIDDEN),
        "llama.attention.head_count": u32(HEADS),
        "llama.attention.head_count_kv": u32(GROUPS),
        "llama.attention.layer_norm_rms_epsilon": np.float32(1e-5),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": typed("array[int32]", CONTROL),
        "tokenizer.ggml.merges": ["a b", "ab c"],
        "tokenizer.ggml.bos_token_id": u32(1),
        "tokenizer.ggml.eos_token_id": u32(2),
        "tokenizer.chat_template": TEMPLATE,
    }
    whole |= {key.replace("__", "."): value for key, value in others.items()}
    return {key: value for key, value in whole.items() if value is not None}


def tensors() -> dict[str, np.ndarray]:
    """Return its tensors, all nonzero."""
    narrow = WIDTH * GROUPS // HEADS
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (len(TOKENS), WIDTH),
        "output_norm.weight": (WIDTH,),
    }
    for block in range(BLOCKS):
        shapes |= {
            f"blk.{block}.{name}.weight": shape
            for name, shape in {
                "attn_norm": (WIDTH,),
                "attn_q": (WIDTH, WIDTH),
                "attn_k": (narrow, WIDTH),
                "attn_v": (narrow, WIDTH),
                "attn_output": (WIDTH, WIDTH),
                "ffn_norm": (WIDTH,),
                "ffn_gate": (HIDDEN, WIDTH),
                "ffn_up": (HIDDEN, WIDTH),
                "ffn_down": (WIDTH, HIDDEN),
            }.items()
        }
    random = np.random.default_rng(7)
    return {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}
