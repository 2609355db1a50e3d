"""Change sound and forged files at random, and read them: only typed errors may come of it.

    python tests/fuzz.py SECONDS [TARGET...]

Runs each target for so many seconds, from another seed every time. A finding is printed with the
file that holds it, for a case in `tests/forging`; so is what ends the whole process.
"""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

import forge
import ggufkit
from ggufkit import quants
from ggufkit.converting.checkpoint import Checkpoint
from ggufkit.converting.front_matter import front_matter
from ggufkit.converting.vocabularies import vocabulary
from ggufkit.converting.vocabularies.pieces import parse_pieces
from ggufkit.errors import GGUFError
from ggufkit.model import Tensors
from ggufkit.naming import parse_model_id, parse_name
from ggufkit.notation import CANONICAL
from ggufkit.safetensors import open_safetensors
from ggufkit.types import TENSOR_TYPES
from tensors_file import safetensors_bytes
from tokenizer_files import PIECES, bpe

LARGEST: Final = 1 << 16  # of a seed: small files are changed where it matters
NUMBERS: Final = (0, 1, 2, 0xFF, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)
Target = Callable[[bytes, Path], object]


# What is read, and how.


def read_model(data: bytes, path: Path) -> None:
    """Open, check, decode and write again."""
    path.write_bytes(data)
    list(ggufkit.check(path))
    with ggufkit.open(path) as model:
        for key in model.metadata:
            repr(model.metadata[key])
        model.metadata.encode(CANONICAL)
        for tensor in model.tensors.values():
            if tensor.nbytes < LARGEST and not tensor.type.is_opaque:
                tensor.numpy()


def read_imatrix(data: bytes, path: Path) -> None:
    """Read an importance matrix of either form."""
    path.write_bytes(data)
    ggufkit.Imatrix.open(path)


def read_checkpoint(data: bytes, path: Path) -> None:
    """Read a file of a checkpoint, and its tensors."""
    path.write_bytes(data)
    file, tensors = open_safetensors(path)
    for tensor in tensors:
        tensor.source.read(0, tensor.rows)
    file.close()


def decode_blocks(data: bytes, _: Path) -> None:
    """Decode the bytes as every type that takes their number."""
    packed = np.frombuffer(data, np.uint8)
    for kind in TENSOR_TYPES.values():
        if kind.is_opaque:
            continue
        blocks = len(packed) // kind.block_bytes
        quants.dequantize(packed[: blocks * kind.block_bytes].reshape(1, -1), kind, threads=1)


def parse_text(data: bytes, _: Path) -> None:
    """Take the bytes for a file's name, and for a model's."""
    parse_name(data.decode("utf-8", "surrogateescape"))
    parse_model_id(data.decode("utf-8", "surrogateescape"))


def read_pieces(data: bytes, _: Path) -> None:
    """Take the bytes for SentencePiece's protobuf."""
    parse_pieces(data, "tokenizer.model")


def read_tokenizer(data: bytes, path: Path) -> None:
    """Take the bytes for a tokenizer.json, and make the vocabulary of it."""
    (path.parent / "tokenizer.json").write_bytes(data)
    vocabulary(Checkpoint(path.parent, {"vocab_size": 300}, Tensors([])), "bpe")


def read_card(data: bytes, _: Path) -> None:
    """Take the bytes for the YAML of a model card."""
    front_matter(data.decode("utf-8", "replace"))


def model_seeds() -> list[bytes]:
    """Return the first file of every forged case."""
    files = (next(iter(case.files.values())) for case in forge.corpus().values())
    return [data for data in files if len(data) <= LARGEST]


def imatrix_seeds() -> list[bytes]:
    """Return one matrix in both forms."""
    entry = ggufkit.imatrix.Entry(np.ones((2, 32), "f4"), np.array([3, 4]))
    matrix = ggufkit.Imatrix({"blk.0.ffn_up_exps.weight": entry}, ("text",), 3, 512)
    with tempfile.TemporaryDirectory() as folder:
        paths = [matrix.save(Path(folder, name)) for name in ("m.gguf", "m.dat")]
        return [path.read_bytes() for path in paths]


def checkpoint_seeds() -> list[bytes]:
    """Return one sound file."""
    return [safetensors_bytes({"a": np.ones((2, 3), "f4"), "b": np.ones(4, "f2")})]


def block_seeds() -> list[bytes]:
    """Return bytes of several lengths."""
    return [bytes(range(256)) * 4, bytes(2000), b"\xff" * 1111]


def name_seeds() -> list[bytes]:
    """Return names of models and shards."""
    return [b"Mixtral-8x7B-v0.1-KQ2.gguf", b"Phi-3-mini-3.8B-ContextLength4k-instruct-v1.0-Q4_0",
            b"a-00001-of-00002.gguf", b"Hermes-2-Pro-Llama-3-8B-F16-LoRA.gguf"]  # fmt: skip


def piece_seeds() -> list[bytes]:
    """Return one model."""
    return [PIECES]


def tokenizer_seeds() -> list[bytes]:
    """Return one tokenizer of two forms."""
    return [json.dumps(bpe(added=("<s>",))).encode(), json.dumps(bpe(pre={"type": "x"})).encode()]


def card_seeds() -> list[bytes]:
    """Return a card that has most of what YAML has."""
    return [b"license: mit\nlanguage:\n- en\ntags: [a, 'b c', {x: y}]\ntext: |\n  one\n  two\n",
            b'base_model: "q\\u00e9"\nn: {a: 1.5, b: null}\nfolded: >\n  x\n\n  y\n']  # fmt: skip


TARGETS: Final[dict[str, tuple[Target, Callable[[], list[bytes]]]]] = {
    "model": (read_model, model_seeds),
    "imatrix": (read_imatrix, imatrix_seeds),
    "safetensors": (read_checkpoint, checkpoint_seeds),
    "blocks": (decode_blocks, block_seeds),
    "names": (parse_text, name_seeds),
    "pieces": (read_pieces, piece_seeds),
    "tokenizer": (read_tokenizer, tokenizer_seeds),
    "cards": (read_card, card_seeds),
}


# How it is changed.


def changed(seeds: list[bytes], draw: random.Random) -> bytes:
    """Return a seed after one to four changes."""
    data = bytearray(draw.choice(seeds))
    for _ in range(draw.randint(1, 4)):
        draw.choice((_flip, _number, _cut, _join, _repeat))(data, seeds, draw)
    return bytes(data[:LARGEST])


def _flip(data: bytearray, _: list[bytes], draw: random.Random) -> None:
    if data:
        data[draw.randrange(len(data))] = draw.randrange(256)


def _number(data: bytearray, _: list[bytes], draw: random.Random) -> None:
    number = (draw.choice(NUMBERS) + draw.randint(-1, 1)) % 2**64
    form = draw.choice("BHIQ")
    field = struct.pack(draw.choice("<>") + form, number % 2 ** (8 * struct.calcsize(form)))
    at = draw.randint(0, len(data))
    data[at : at + len(field)] = field


def _cut(data: bytearray, _: list[bytes], draw: random.Random) -> None:
    del data[draw.randint(0, len(data)) :]


def _join(data: bytearray, seeds: list[bytes], draw: random.Random) -> None:
    other = draw.choice(seeds)
    data[draw.randint(0, len(data)) :] = other[draw.randint(0, len(other)) :]


def _repeat(data: bytearray, _: list[bytes], draw: random.Random) -> None:
    start, at = draw.randint(0, len(data)), draw.randint(0, len(data))
    data[at:at] = data[start : start + draw.randint(0, 64)]


# The loop.


def fuzz(name: str, seed: int, path: Path, done: Callable[[int], bool]) -> int:
    """Run a target until `done(count)`; what is no typed error is raised, `path.last` its input."""
    read, make = TARGETS[name]
    seeds, draw = make(), random.Random(seed)
    count = 0
    while not done(count):
        data = changed(seeds, draw)
        path.with_suffix(".last").write_bytes(data)
        with np.errstate(all="ignore"):
            _attempt(read, data, path)
        count += 1
    return count


def _attempt(read: Target, data: bytes, path: Path) -> Any:
    try:
        read(data, path)
    except GGUFError:
        return


def main(seconds: str, *names: str) -> int:
    """Run targets, each in a process of its own; return how many had a finding."""
    found = 0
    for name in names or TARGETS:
        seed = random.SystemRandom().randrange(2**32)
        kept = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"), "input.gguf")
        command = [sys.executable, __file__, "--one", name, str(seed), seconds, str(kept)]
        code = subprocess.run(command, check=False).returncode
        if code:
            place = kept.with_suffix(".last")
            sys.stdout.write(f"FOUND by {name}, seed {seed}, exit code {code}: {place}\n")
            found += 1
    return found


def one(name: str, seed: str, seconds: str, path: str) -> None:
    """Run one target for its time."""
    end = time.monotonic() + float(seconds)
    count = fuzz(name, int(seed), Path(path), lambda _: time.monotonic() >= end)
    sys.stdout.write(f"{name}: {count} inputs, nothing found\n")


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        one(*sys.argv[2:])
    else:
        sys.exit(main(*sys.argv[1:]) > 0)
