"""Commands on models whose keys and tensors are not what a command expects.

The first byte of an input chooses the command, the rest is the model.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

import ggufkit
import shell
from ggufkit import typed
from ggufkit.errors import GGUFError

IN: Final = "input.gguf"
OUT: Final = "out"
COMMANDS: Final[tuple[tuple[str, ...], ...]] = (
    ("export", IN, OUT),
    ("export", IN, OUT, "--dry-run", "--json"),
    ("name", IN),
    ("name", IN, "--json"),
    ("estimate", IN),
    ("estimate", IN, "--memory", "1GiB", "--layers"),
    ("estimate", IN, "--context", "512", "--recipe", "Q4_K_M", "--json"),
    ("plan", IN),
    ("select", IN, "out.gguf", "--prune-layers", "0", "--threads", "1"),
    ("select", IN, "out.gguf", "--vocab-only", "--dry-run", "--json"),
    ("select", IN, "out.gguf", "--drop", "blk.0.*", "--dry-run"),
    ("quantize", IN, "out.gguf", "Q4_K_M", "--dry-run"),
    ("quantize", IN, "out.gguf", "Q8_0", "--threads", "1", "--leave-output-tensor"),
    ("quantize", IN, "out.gguf", "--target-bpw", "6", "--dry-run"),
    ("inspect", IN),
    ("inspect", IN, "--bytes"),
    ("inspect", IN, "--json"),
    ("check", IN, "--data"),
    ("check", IN, "--json"),
    ("check", "--fix", IN),
    ("edit", IN, "--set", "general.name=new", "--set", "llama.block_count=1", "--dry-run"),
    ("edit", IN, "--unset", "general.file_type", "--output", "out.gguf"),
    ("copy", IN, "out.gguf", "--endian", "big", "--shard-tensors", "2"),
    ("hash", IN, "--threads", "1"),
    ("diff", IN, IN),
    ("quantize", IN, "out.gguf", "Q4_0", "--prune-layers", "1", "--threads", "1"),
    ("select", IN, "out.gguf", "--prune-layers", "0-1", "--dry-run", "--json"),
    ("select", IN, "out.gguf", "--rename", "blk.*=layer.*", "--threads", "1"),
    ("select", IN, "out.gguf", "--no-tensors", "--drop-keys", "tokenizer.*"),
    ("name", IN, "--rename", "--dry-run"),
    ("check", IN, "--names"),
    ("estimate", IN, "--sequences", "3", "--full-window", "--no-flash-attention", "--layers"),
    ("plan", IN, "--json"),
    ("hash", IN, "--content", "--json", "--threads", "1"),
    ("edit", IN, "--special-token", "bos=1", "--append", "tokenizer.ggml.tokens=x"),
    ("edit", IN, "--rename", "general.name=general.other", "--add-tags", "a", "--json"),
    ("copy", IN, "out.gguf", "--version", "2", "--alignment", "64", "--threads", "1"),
    ("imatrix", "show", IN),
    ("imatrix", "convert", IN, "out.dat"),
    ("convert", IN, "out.gguf"),
    ("recover", IN),
)
CODES: Final = {0, 1, 2}
MOST_SAID: Final = 1 << 16  # characters of messages
MOST_BYTES: Final = 1 << 16  # of the tensors of a model that is changed


def run_command(data: bytes, folder: Path) -> None:
    """Run a command; anything but an exit code that its page names is raised."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (folder / IN).write_bytes(data[1:])
    command = COMMANDS[data[0] % len(COMMANDS)] if data else COMMANDS[0]
    files = {IN, OUT, "out.gguf", "out.dat"}
    done = shell.ggufkit(*(str(folder / word) if word in files else word for word in command))
    assert done.code in CODES, (done.code, done.err)
    assert len(done.err) < MOST_SAID, "the message is too long"
    if "--json" in command and done.out:
        json.loads(done.out)


# Seeds, and their changes.


def seeds() -> Iterator[bytes]:
    """Yield small models of several kinds, and each command once."""
    models = [_encoded(*_llama()), _encoded(*_gemma()), _encoded(*_bert()), _encoded(*_experts())]
    for number in range(len(COMMANDS)):
        yield bytes([number]) + models[number % len(models)]


def _encoded(keys: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        tensors = {name: np.ones(shape, "f2") for name, shape in shapes.items()}
        return ggufkit.save(Path(folder, "m.gguf"), tensors, keys)[0].read_bytes()


def _numbers(arch: str, **others: Any) -> dict[str, Any]:
    numbers = {
        "context_length": 64, "embedding_length": 8, "block_count": 2, "feed_forward_length": 12,
        "attention.head_count": 2, "attention.head_count_kv": 1,
    } | others  # fmt: skip
    keys: dict[str, Any] = {"general.architecture": arch, "general.file_type": np.uint32(1)}
    keys |= {f"{arch}.{key}": np.uint32(n) if type(n) is int else n for key, n in numbers.items()}
    return keys


def _pieces(model: str, count: int = 8) -> dict[str, Any]:
    tokens = ["<unk>", "<s>", "</s>", "a", "b", "ab", "c", "abc"][:count]
    prefix = "tokenizer.ggml."
    keys: dict[str, Any] = {
        f"{prefix}model": model,
        f"{prefix}tokens": tokens,
        f"{prefix}token_type": typed("array[int32]", [2, 3, 3, 1, 1, 1, 1, 1][:count]),
        f"{prefix}bos_token_id": np.uint32(1),
        f"{prefix}eos_token_id": np.uint32(2),
    }
    if model == "gpt2":
        return keys | {f"{prefix}merges": ["a b", "ab c"], f"{prefix}pre": "llama-bpe"}
    scores = [0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -4.0, -5.0][:count]
    return keys | {f"{prefix}scores": typed("array[float32]", scores)}


def _blocks(shapes_in_layer: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    shapes_by_name = {
        f"blk.{n}.{name}.weight": shape for n in (0, 1) for name, shape in shapes_in_layer.items()
    }
    return {"token_embd.weight": (8, 8), "output_norm.weight": (8,)} | shapes_by_name


_ATTENTION: Final = {
    "attn_norm": (8,), "attn_q": (8, 8), "attn_k": (4, 8), "attn_v": (4, 8),
    "attn_output": (8, 8), "ffn_norm": (8,),
}  # fmt: skip
_FEED: Final = {"ffn_gate": (12, 8), "ffn_up": (12, 8), "ffn_down": (8, 12)}


def _llama() -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    epsilon = {"attention.layer_norm_rms_epsilon": np.float32(1e-5), "vocab_size": 8}
    keys = _numbers("llama", **epsilon) | _pieces("gpt2")
    return keys | {"tokenizer.chat_template": "{{ messages }}"}, _blocks(_ATTENTION | _FEED)


def _gemma() -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    more = {"attention.layer_norm_rms_epsilon": np.float32(1e-6), "attention.key_length": 4,
            "attention.value_length": 4, "attention.sliding_window": 16}  # fmt: skip
    norms = {"attn_q_norm": (4,), "attn_k_norm": (4,), "post_attention_norm": (8,),
             "post_ffw_norm": (8,)}  # fmt: skip
    keys = _numbers("gemma3", **more) | _pieces("llama")
    return keys, _blocks(_ATTENTION | _FEED | norms)


def _bert() -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    more = {"attention.causal": False, "pooling_type": 1,
            "attention.layer_norm_epsilon": np.float32(1e-6)}  # fmt: skip
    norms = {"attn_output_norm": (8,), "layer_output_norm": (8,)}
    return _numbers("bert", **more) | _pieces("bert"), _blocks(_ATTENTION | _FEED | norms)


def _experts() -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    more = {"expert_count": 2, "expert_used_count": 1, "expert_feed_forward_length": 4,
            "attention.layer_norm_rms_epsilon": np.float32(1e-6)}  # fmt: skip
    feed = {"ffn_gate_inp": (2, 8), "ffn_gate_exps": (2, 4, 8), "ffn_up_exps": (2, 4, 8),
            "ffn_down_exps": (2, 8, 4)}  # fmt: skip
    return _numbers("qwen3moe", **more) | _pieces("gpt2"), _blocks(_ATTENTION | feed)


WORDS: Final = (
    *("", "a", "llama", "gemma3", "bert", "gpt2", "qwen3moe", "no such", "9" * 30, "../x"),
    *("\ud7ff", "{% if %}", "\0", "yarn", "llama-bpe", "x" * 3000),
)
NUMBERS: Final = (
    *(0, 1, 2, 3, 255, 2**15, 2**16 - 1, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1),
    *(-1, -2, -(2**31), -(2**63), 2**64 - 1),
)
FLOATS: Final = (0.0, 1e-5, -1.0, float("inf"), float("nan"), 1e308)
KINDS: Final = {
    "uint8": (0, 8), "int8": (-7, 7), "uint16": (0, 16), "int16": (-15, 15), "uint32": (0, 32),
    "int32": (-31, 31), "uint64": (0, 64), "int64": (-63, 63),
}  # fmt: skip


def _value(draw: random.Random, depth: int = 0) -> object:
    """Return a value of a kind that is drawn."""
    what = draw.randrange(6 if depth < 2 else 4)
    if what == 0:
        return typed("string", draw.choice(WORDS))
    if what == 1:
        return typed(draw.choice(["float32", "float64"]), draw.choice(FLOATS[:5]))
    if what == 2:
        return typed("bool", draw.random() < 0.5)
    if what == 3:
        return _integer(draw)
    return _array(draw)


def _integer(draw: random.Random) -> object:
    name, (low, high) = draw.choice(list(KINDS.items()))
    number = draw.choice(NUMBERS)
    least = -(2**-low) if low else 0
    return typed(name, min(max(number, least), 2**high - 1))


def _array(draw: random.Random) -> object:
    count = draw.choice([0, 1, 2, 7, 8, 9, 300])
    what = draw.randrange(3)
    if what == 0:
        return typed("array[string]", [draw.choice(WORDS) for _ in range(count)])
    if what == 1:
        return typed("array[float32]", [draw.choice(FLOATS[:5]) for _ in range(count)])
    return typed("array[int32]", [draw.choice([-1, 0, 1, 2, 3, 2**31 - 1]) for _ in range(count)])


def changed_model(data: bytes, draw: random.Random) -> bytes | None:
    """Return the command with a few keys or tensors changed; None for what does not open."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.gguf")
        path.write_bytes(data[1:])
        try:
            with ggufkit.open(path) as model:
                if sum(tensor.nbytes for tensor in model.tensors.values()) > MOST_BYTES:
                    return None
                changed = _rewritten(model, draw, Path(folder, "n.gguf"))
        except GGUFError:
            return None
    command = draw.randrange(len(COMMANDS)) if draw.random() < 0.5 else data[0]
    return bytes([command]) + changed


def _rewritten(model: ggufkit.Model, draw: random.Random, path: Path) -> bytes:
    keys = dict(model.metadata.items())
    tensors = {name: tensor.numpy() for name, tensor in model.tensors.items()}
    for _ in range(draw.randint(1, 3)):
        _change(keys, tensors, draw)
    return ggufkit.save(path, tensors, keys)[0].read_bytes()


def _change(keys: dict[str, Any], tensors: dict[str, Any], draw: random.Random) -> None:
    what = draw.randrange(10)
    if what < 6 and keys:
        keys[draw.choice(list(keys))] = _value(draw)
    elif what == 6 and keys:
        del keys[draw.choice(list(keys))]
    elif what == 7 and tensors:
        name = draw.choice(list(tensors))
        tensors[draw.choice(NAMES)] = tensors.pop(name)
    elif what == 8 and tensors:
        shape = draw.choice([(), (1,), (8,), (0, 8), (8, 8), (12, 8), (2, 2, 4), (1, 1, 1, 2)])
        tensors[draw.choice(list(tensors))] = np.ones(shape, draw.choice(["f4", "f2", "i4", "i1"]))
    elif tensors:
        tensors.pop(draw.choice(list(tensors)))


NAMES: Final = (
    *("blk.2147483647.attn_q.weight", "blk.-1.x", "blk.0", "blk..x", "blk.99999999999.x.weight"),
    *("token_embd.weight", "output.weight", "rope_freqs.weight", "blk.1.attn_norm.bias", "a\nb"),
    *("blk.7.ffn_gate_exps.weight", "cls.weight", "v.blk.0.x", "mm.0.weight"),
)
