"""What is fuzzed: one function per kind of input, which may end in nothing but a typed error.

Each takes the bytes of a file and a folder that it may write to.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from unittest import mock

import jinja2
import numpy as np

import ggufkit
from fuzzing.checkpoints import read_checkpoint, rules_followed_here
from fuzzing.commands import run_command
from fuzzing.documents import read_adapter, read_diffusion, read_result, show_page
from ggufkit import quants
from ggufkit.checks import template_sandbox
from ggufkit.compat import gguf
from ggufkit.conversion.card.front_matter import front_matter
from ggufkit.conversion.checkpoint.folder import Checkpoint
from ggufkit.conversion.checkpoint.pytorch import read_pytorch
from ggufkit.conversion.checkpoint.safetensors import open_safetensors
from ggufkit.conversion.legacy.convert_legacy import convert_legacy
from ggufkit.conversion.tokenizer.kinds import KINDS, vocabulary
from ggufkit.conversion.tokenizer.sentencepiece_model import parse_pieces
from ggufkit.edits.recover import recover
from ggufkit.edits.undo import undo
from ggufkit.format.encoding import CANONICAL
from ggufkit.format.file_name import parse_model_id, parse_name
from ggufkit.format.types import GGML_TYPES
from ggufkit.imatrix.hessian import Hessian
from ggufkit.inspection.hash_manifest import read_manifest
from ggufkit.models.model import Tensors
from ggufkit.system import sandbox
from ggufkit.system.hidden_files import EDIT, UNDO, hidden
from ggufkit.system.mapped_file import MappedFile

MOST_BYTES: Final = 1 << 16  # of a tensor that is decoded
TEMPLATE_SECONDS: Final = 2  # for rendering, of processor time
Target = Callable[[bytes, Path], object]


def read_model(data: bytes, folder: Path) -> None:
    """Open, check, decode and write again."""
    path = _written(data, folder)
    list(ggufkit.check(path))
    with ggufkit.open(path) as model:
        for key in model.metadata:
            repr(model.metadata[key])
        model.metadata.encode(CANONICAL)
        for tensor in model.tensors.values():
            if tensor.nbytes < MOST_BYTES and not tensor.type.is_opaque:
                tensor.numpy()


def read_imatrix(data: bytes, folder: Path) -> None:
    """Read an importance matrix of either form."""
    ggufkit.Imatrix.open(_written(data, folder))


def read_safetensors(data: bytes, folder: Path) -> None:
    """Read a file of a checkpoint, and its tensors."""
    file, tensors = open_safetensors(_written(data, folder))
    with contextlib.closing(file):
        for tensor in tensors:
            tensor.source.read(0, tensor.rows)


def read_pytorch_file(data: bytes, folder: Path) -> None:
    """Read PyTorch's file of a checkpoint, and its tensors."""
    with contextlib.closing(MappedFile(_written(data, folder))) as file:
        for tensor in read_pytorch(file)[0]:
            tensor.source.read(0, tensor.rows)


def read_legacy(data: bytes, folder: Path) -> None:
    """Read a file from before GGUF."""
    convert_legacy(_written(data, folder)).close()


def read_hessian(data: bytes, folder: Path) -> None:
    """Read a Hessian file, and its importance data."""
    Hessian.open(_written(data, folder)).importance()


def read_with_compat(data: bytes, folder: Path) -> None:
    """Read a model as programs for gguf-py do: its errors are gguf-py's too."""
    with contextlib.suppress(KeyError, ValueError):
        reader = gguf.GGUFReader(_written(data, folder))
        for field in reader.fields.values():
            field.contents()
        for tensor in reader.tensors:
            repr(tensor)


def decode_blocks(data: bytes, _: Path) -> None:
    """Decode the bytes as the type that the first one names, whole or not."""
    kinds = [kind for kind in GGML_TYPES.values() if not kind.is_opaque]
    kind = kinds[data[0] % len(kinds)] if data else kinds[0]
    packed = np.frombuffer(data[1:], np.uint8)
    blocks = len(packed) // kind.block_bytes
    quants.dequantize(packed[: blocks * kind.block_bytes].reshape(1, -1), kind, threads=1)
    if len(packed) % kind.block_bytes:
        _refused(lambda: quants.dequantize(packed.reshape(1, -1), kind, threads=1))


def parse_names(data: bytes, _: Path) -> None:
    """Take the bytes for a file's name, and for a model's."""
    text = data.decode("utf-8", "surrogateescape")
    parse_name(text)
    parse_model_id(text)


def read_pieces(data: bytes, _: Path) -> None:
    """Take the bytes for SentencePiece's protobuf."""
    parse_pieces(data, "tokenizer.model")


def read_tokenizer(data: bytes, folder: Path) -> None:
    """Take the first byte for a kind of vocabulary, the rest for a tokenizer.json."""
    kinds = sorted(KINDS)
    kind = kinds[data[0] % len(kinds)] if data else kinds[0]
    for name in ("tokenizer.json", "rwkv_vocab_v20230424.txt", "tokenizer.jsonl"):
        (folder / name).write_bytes(data[1:])
    with rules_followed_here():
        vocabulary(Checkpoint(folder, {"vocab_size": 300}, Tensors([])), kind)


def read_card(data: bytes, _: Path) -> None:
    """Take the bytes for the YAML of a model card."""
    front_matter(data.decode("utf-8", "replace"))


def follow_journal(data: bytes, folder: Path) -> None:
    """Take the first byte for the size of a file, the next for the file, the rest for its journal.

    The journal's digest is made good, for nothing would get past it.
    """
    size = data[0] if data else 0
    path = _written(data[1 : 1 + size], folder)
    content = data[1 + size :]
    start = content.find(b"\n") + 1
    number = path.stat().st_ino.to_bytes(8, "little")
    content = content[:start] + (number + number + content[start + 16 :] if start else b"")
    content += hashlib.sha256(content).digest()
    remains = [hidden(path, name) for name in (EDIT, UNDO)]
    for act, place in ((recover, remains[0]), (undo, remains[1])):
        place.write_bytes(content)
        with contextlib.suppress(ggufkit.GGUFError):
            act(path)
        place.unlink(missing_ok=True)
    for place in remains:
        place.unlink(missing_ok=True)


def read_hashes(data: bytes, folder: Path) -> None:
    """Read a manifest of digests."""
    read_manifest(_written(data, folder))


def list_cache(data: bytes, folder: Path) -> None:
    """Take the bytes for whatever the caches of other programs have in their small files."""
    names = ("models/manifests/registry.ollama.ai/library/a/b", "hub/models--a--b/refs/main",
             "home/.lmstudio-home-pointer")  # fmt: skip
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(data)
    places = {"HOME": "home", "OLLAMA_MODELS": "models", "HF_HUB_CACHE": "hub"}
    with mock.patch.dict(os.environ, {key: str(folder / to) for key, to in places.items()}):
        ggufkit.find_models()


def render_template(data: bytes, _: Path) -> None:
    """Compile a chat template here, and judge it in a process with limits, as `check` does."""
    text = data.decode("utf-8", "replace")
    try:
        template_sandbox.environment().from_string(text)  # where coverage sees it
    except (jinja2.TemplateError, RecursionError):
        return
    except SyntaxError:  # of Python, which jinja2 does not foresee
        pass
    job = {"template": text, "is_special": False, "bos_token": "<s>", "eos_token": "</s>"}
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        _render(job, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        output = pipe.read(2 * template_sandbox.MAX_CHARACTERS)
    _, status, used = os.wait4(child, 0)
    assert len(output) <= template_sandbox.MAX_CHARACTERS, "the child says too much"
    assert used.ru_utime + used.ru_stime < TEMPLATE_SECONDS + 1, "the child takes too long"
    assert status or isinstance(json.loads(output), list), "the child says something else"


def _render(job: dict[str, Any], writing: int) -> None:
    """Be the child that `templates` would begin, and end; where it is stopped, say nothing."""
    import resource

    try:
        resource.setrlimit(resource.RLIMIT_CPU, (TEMPLATE_SECONDS, TEMPLATE_SECONDS))
        sandbox.limit(sandbox.MAX_BYTES)
        os.write(writing, json.dumps(template_sandbox.answer(job)).encode())
        os._exit(0)
    except MemoryError:
        os._exit(1)
    except Exception as error:  # noqa: BLE001 (the parent tells)
        os.write(writing, repr(error).encode())
        os._exit(0)
    finally:
        os._exit(1)


def _refused(attempt: Callable[[], object]) -> None:
    try:
        attempt()
    except ggufkit.GGUFError:
        return
    raise AssertionError("what is not whole was decoded")


def _written(data: bytes, folder: Path) -> Path:
    path = folder / "input.gguf"
    path.unlink(missing_ok=True)  # cutting a file that was mapped takes ten times as long
    path.write_bytes(data)
    return path


TARGETS: Final[Mapping[str, Target]] = {
    "model": read_model,
    "imatrix": read_imatrix,
    "safetensors": read_safetensors,
    "pytorch": read_pytorch_file,
    "legacy": read_legacy,
    "blocks": decode_blocks,
    "names": parse_names,
    "pieces": read_pieces,
    "tokenizer": read_tokenizer,
    "card": read_card,
    "template": render_template,
    "checkpoint": read_checkpoint,
    "journal": follow_journal,
    "hashes": read_hashes,
    "cache": list_cache,
    "commands": run_command,
    "diffusion": read_diffusion,
    "adapter": read_adapter,
    "results": read_result,
    "page": show_page,
    "compat": read_with_compat,
    "hessian": read_hessian,
}


def attempt(name: str, data: bytes, folder: Path) -> None:
    """Run a target on some bytes; what is no typed error is raised."""
    with contextlib.suppress(ggufkit.GGUFError):
        TARGETS[name](data, folder)
