"""A key of an unusual type or shape gives a result or a typed error in every command."""

from __future__ import annotations

import random

import numpy as np
import pytest

import ggufkit as api
from ggufkit import typed
from shell import ggufkit
from small_llama import TOKENS, keys, tensors

RUNS = 25  # of each command, with a key of another kind each
COMMANDS = {
    "inspect": ("inspect", "IN"),
    "inspect as JSON": ("inspect", "IN", "--json"),
    "check": ("check", "IN", "--names"),
    "repair": ("check", "IN", "--fix", "--dry-run"),
    "name": ("name", "IN"),
    "plan": ("plan", "IN"),
    "estimate": ("estimate", "IN"),
    "estimate a recipe": ("estimate", "IN", "--recipe", "Q4_K_M", "--memory", "1GiB"),
    "quantize": ("quantize", "IN", "OUT", "Q4_K_M", "--dry-run"),
    "quantize by size": ("quantize", "IN", "OUT", "--target-size", "1M", "--dry-run"),
    "quantize less": ("quantize", "IN", "OUT", "Q8_0", "--prune-layers", "0", "--dry-run"),
    "prune": ("select", "IN", "OUT", "--prune-layers", "1", "--dry-run"),
    "vocabulary": ("select", "IN", "OUT", "--vocab-only", "--dry-run"),
    "graft": ("select", "IN", "OUT", "--graft", "SOUND:blk.*", "--dry-run"),
    "graft from": ("select", "SOUND", "OUT", "--graft", "IN:blk.*", "--dry-run"),
    "diff": ("diff", "IN", "SOUND"),
    "hash": ("hash", "IN"),
    "edit": ("edit", "IN", "--set", "general.name=x", "--dry-run"),
    "special token": ("edit", "IN", "--special-token", "eos=</s>", "--dry-run"),
    "tags": ("edit", "IN", "--add-tags", "x", "--dry-run"),
    "copy": ("copy", "IN", "OUT", "--dry-run"),
    "shards": ("copy", "IN", "OUT", "--shard-size", "30K", "--dry-run"),
}
MORE = {
    "general.type": "model",
    "general.name": "Small Llama",
    "general.basename": "Small",
    "general.size_label": "1M",
    "general.version": "v1.0",
    "general.finetune": "Chat",
    "general.tags": ["a"],
    "general.quantization_version": np.uint32(2),
    "general.parameter_count": np.uint64(7),
    "adapter.type": "lora",
    "split.count": np.uint16(1),
    "split.no": np.uint16(0),
    "split.tensors.count": np.int32(20),
    "llama.vocab_size": np.uint32(8),
    "llama.expert_count": np.uint32(0),
    "llama.expert_used_count": np.uint32(0),
    "llama.nextn_predict_layers": np.uint32(0),
    "llama.attention.key_length": np.uint32(16),
    "llama.attention.value_length": np.uint32(16),
    "llama.attention.sliding_window": np.uint32(8),
    "llama.attention.sliding_window_pattern": np.uint32(2),
    "llama.rope.dimension_count": np.uint32(16),
    "llama.rope.scaling.type": "linear",
    "llama.rope.scaling.factor": np.float32(2),
    "llama.leading_dense_block_count": np.uint32(0),
    "tokenizer.ggml.pre": "default",
    "tokenizer.ggml.scores": typed("array[float32]", [0.0] * len(TOKENS)),
    "tokenizer.ggml.add_bos_token": True,
    "tokenizer.ggml.token_type_count": np.uint32(2),
}
WRONG = (
    "",
    "x",
    "\u0000",
    "9" * 5000,
    True,
    np.int8(-1),
    np.uint8(255),
    np.int64(-(2**63)),
    np.uint64(2**64 - 1),
    np.uint32(0),
    np.uint32(2**32 - 1),
    np.float32("nan"),
    np.float64("inf"),
    np.float64(1e300),
    typed("array[string]", []),
    typed("array[string]", ["x", ""]),
    typed("array[uint32]", [2**32 - 1] * 2),
    typed("array[int64]", [-1]),
    typed("array[float64]", [float("nan")] * 8),
    typed("array[bool]", [True, False]),
    typed("array[array[string]]", [["x"], []]),
    typed("array[array[uint8]]", []),
)
SOUND = keys(tokenizer__chat_template=None) | MORE


@pytest.fixture(scope="module")
def attempt(tmp_path_factory):
    """Run a command on a model with one key of another kind."""
    folder = tmp_path_factory.mktemp("kinds")
    api.save(folder / "sound.gguf", tensors(), SOUND)
    paths = {"IN": folder / "in.gguf", "OUT": folder / "out.gguf", "SOUND": folder / "sound.gguf"}

    def place(word):
        name, colon, rest = word.partition(":")
        return f"{paths[name]}{colon}{rest}" if name in paths else word

    def attempt(command, key, value):
        api.save(paths["IN"], tensors(), SOUND | {key: value})
        return ggufkit(*map(place, COMMANDS[command]))

    return attempt


@pytest.mark.parametrize("command", COMMANDS)
def test_key_of_another_type_gives_a_typed_error(attempt, command):
    draw = random.Random(command)
    for _ in range(RUNS):
        key, value = draw.choice(list(SOUND)), draw.choice(WRONG)
        assert attempt(command, key, value).code in (0, 1, 2), (key, value)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_succeed_on_a_sound_model(attempt, command):
    result = attempt(command, "general.name", "Small Llama")
    assert result.code in ((0, 1) if command == "diff" else (0,)), result.err


DIGITS = "9" * 5000  # more than Python reads as one integer


@pytest.mark.parametrize(
    "words",
    [
        ("quantize", "SOUND", "OUT", DIGITS),
        ("quantize", "SOUND", "OUT", "Q4_K_M", "--target-size", DIGITS),
        ("quantize", "SOUND", "OUT", "Q4_K_M", "--prune-layers", DIGITS),
        ("quantize", "SOUND", "OUT", "Q4_K_M", "--override-kv", f"my.key=int:{DIGITS}"),
        ("select", "SOUND", "OUT", "--prune-layers", f"0-{DIGITS}"),
        ("copy", "SOUND", "OUT", "--shard-size", f"{DIGITS}G"),
        ("estimate", "SOUND", "--recipe", DIGITS),
        ("estimate", "SOUND", "--memory", DIGITS),
        ("estimate", "SOUND", "--context", DIGITS),
        ("edit", "SOUND", "--set", f"my.key={DIGITS}"),
        ("edit", "SOUND", "--set", f"my.key=[{DIGITS}]"),
        ("edit", "SOUND", "--special-token", f"eos={DIGITS}"),
        ("edit", "SOUND", "--reserve", DIGITS),
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_number_of_thousands_of_digits_ends_in_a_message(tmp_path, words):
    api.save(tmp_path / "sound.gguf", tensors(), SOUND)
    paths = {"SOUND": tmp_path / "sound.gguf", "OUT": tmp_path / "out.gguf"}
    result = ggufkit(*(paths.get(word, word) for word in words))
    assert result.code in (1, 2)
    assert "Error" in result.err or "error" in result.err
