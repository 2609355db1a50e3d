"""The seeds of fuzzing: one small sound file or more for each target, and some that are not sound.

    python tests/support/fuzzing/seeding.py FOLDER

writes them as FOLDER/TARGET/NAME. `tests/support/fuzzing/seeds` holds them, and mended findings; of
the forged files (`model`) the small ones that libFuzzer kept when it was asked to `-merge` them.
Those of checkpoints are made where GGUFKIT_ORACLE names what `make test-oracle` has made.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import forge
import ggufkit
import hessian_files
import legacy_files
from fuzzing import commands, documents
from ggufkit.conversion.checkpoint.safetensors import open_safetensors
from ggufkit.conversion.tokenizer.kinds import KINDS
from ggufkit.format.types import GGML_TYPES
from ggufkit.inspection.hash_manifest import Line
from ggufkit.models.caches import OLLAMA_MODEL
from ggufkit.system.hidden_files import UNDO, hidden
from ggufkit.view.serving.routes import GETS, POSTS, TILES
from pytorch_file import pytorch_bytes
from tensors_file import safetensors_bytes
from tokenizer_files import LLAMA3, PIECES, split

LARGEST: Final = 1 << 13  # of a seed: small files are changed where it matters
KERNELS: Final = 48  # more than the types that have one


def models() -> Iterator[bytes]:
    """Yield the first file of every forged case."""
    files = (next(iter(case.files.values())) for case in forge.corpus().values())
    yield from (data for data in files if len(data) <= LARGEST)


def imatrices() -> Iterator[bytes]:
    """Yield one matrix in both forms."""
    entry = ggufkit.imatrix.Entry(np.ones((2, 32), "f4"), np.array([3, 4]))
    matrix = ggufkit.Imatrix({"blk.0.ffn_up_exps.weight": entry}, ("text",), 3, 512)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("m.gguf", "m.dat"):
            yield matrix.save(Path(folder, name)).read_bytes()


def tensors() -> dict[str, np.ndarray]:
    """Return what files of checkpoints hold."""
    return {"a": np.ones((2, 3), "f4"), "b.c": np.ones(4, "f2"), "d": np.ones((1, 1), "i4")}


def legacy() -> Iterator[bytes]:
    """Yield the beginnings of files from before GGUF."""
    with tempfile.TemporaryDirectory() as folder:
        for kind, version in legacy_files.KINDS:
            path = Path(folder, f"{kind}{version}")
            legacy_files.write(path, kind, version, "Q4_0")
            yield path.read_bytes()[:LARGEST]


def blocks() -> Iterator[bytes]:
    """Yield two blocks of every type, and one byte more."""
    kinds = [kind for kind in GGML_TYPES.values() if not kind.is_opaque]
    yield from (bytes([i]) + bytes(range(65, 91)) * 20 for i, _ in enumerate(kinds))


def kernels() -> Iterator[bytes]:
    """Yield data for every kernel to decode, and some to encode."""
    yield from (bytes([i, i % 4]) + bytes(range(65, 91)) * 12 for i in range(KERNELS))
    yield from (bytes([2, how]) + np.linspace(-2, 2, 520, dtype="f4").tobytes() for how in (4, 12))


def tokenizers() -> Iterator[bytes]:
    """Yield each kind of vocabulary with few tokens and most of the rules there are."""
    texts = {text: i for i, text in enumerate(["a", "b", "ab", "<s>", "<0x0A>", "[UNK]", "##b"])}
    pairs = {"type": "BPE", "vocab": texts, "merges": ["a b"], "unk_token": "<s>"}
    scored = {"type": "Unigram", "vocab": [["<unk>", 0.0], ["▁a", -1.5]], "unk_id": 0}
    models = [pairs, {"type": "WordPiece", "vocab": texts, "unk_token": "[UNK]"}, scored]
    added = [{"id": 7, "content": "<x>", "special": False, "lstrip": True, "normalized": True}]
    end = {"special_tokens": {"<s>": {"ids": [3]}}, "type": "TemplateProcessing",
           "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]}  # fmt: skip
    for i, _ in enumerate(sorted(KINDS)):
        rules = {"added_tokens": added, "model": models[i % 3], "post_processor": end}
        rules |= {"normalizer": NORMALIZER, "pre_tokenizer": PRE_TOKENIZERS[i % 2]}
        yield bytes([i]) + json.dumps(rules).encode()


def checkpoints() -> Iterator[bytes]:
    """Yield small checkpoints as one document each: their configuration, tensors without data."""
    for name in CHECKPOINTS if "GGUFKIT_ORACLE" in os.environ else ():
        place = Path(os.environ["GGUFKIT_ORACLE"], "checkpoints", name)
        document: dict[str, Any] = {"tensors": {}, "tokenizer.json": BYTES_OF_TWO}
        for file in ("config.json", "generation_config.json", "modules.json"):
            if (place / file).exists():
                document[file] = json.loads((place / file).read_bytes())
        for path in sorted(place.glob("*.safetensors")):
            for tensor in open_safetensors(path)[1]:
                document["tensors"][tensor.name] = [tensor.type.name, list(tensor.shape)]
        yield json.dumps(document, separators=(",", ":")).encode()


def journals() -> Iterator[bytes]:
    """Yield a small file with the journal of an edit that began, and of one that is done."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        ggufkit.save(path, {"a": np.ones(2, "f4")}, {"text": "old"})
        before = path.read_bytes()
        for text in ("new", "one"):
            ggufkit.edit_in_place(path, set={"text": text})
            after = path.read_bytes()
            first = next(offset for offset, byte in enumerate(after) if byte != before[offset])
            journal = hidden(path, UNDO).read_bytes()[: -hashlib.sha256().digest_size]
            for file in (before, after[: first + 1] + before[first + 1 :], after):
                yield bytes([len(file)]) + file + journal
            before = after


def hashes() -> Iterator[bytes]:
    """Yield manifests as they are written, and as a check of them is."""
    lines = [Line(kind, "0" * 16, "m.gguf", name) for kind in ("sha256", "xxh64") for name in "ab"]
    yield "".join(f"{line}\n" for line in lines).encode()
    yield b"sha1  00ff  m.gguf:a b  -  Ok\n\n# strange\nuuid 1 m - Not Found\n"


def caches() -> Iterator[bytes]:
    """Yield a manifest of Ollama, and a commit."""
    layer = {"mediaType": OLLAMA_MODEL, "digest": f"sha256:{'0' * 64}", "size": 1}
    yield json.dumps({"schemaVersion": 2, "layers": [layer]}).encode()
    yield b"0" * 40


def pages() -> Iterator[bytes]:
    """Yield each question of the page once."""
    models = [data[1:] for data in commands.seeds()][:4]
    for number in range(len([*GETS, *TILES, *POSTS])):
        yield bytes([number]) + models[number % 4]


def hessians() -> Iterator[bytes]:
    """Yield a small Hessian file."""
    with tempfile.TemporaryDirectory() as folder:
        inputs = {"a.weight": hessian_files.inputs_of(8, 16)}
        yield hessian_files.save_hessian(Path(folder, "h.gguf"), inputs).read_bytes()


NORMALIZER: Final = {"type": "Sequence", "normalizers": [
    *({"type": kind} for kind in ("NFKC", "Lowercase", "StripAccents", "BertNormalizer")),
    {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"},
    {"type": "Prepend", "prepend": "▁"}, {"type": "Strip", "strip_left": True}]}  # fmt: skip
PRE_TOKENIZERS: Final[tuple[Mapping[str, Any], ...]] = (
    split(LLAMA3),
    {"type": "Sequence", "pretokenizers": [
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False},
        {"type": "Digits", "individual_digits": True}, {"type": "Punctuation"},
        {"type": "Split", "pattern": {"String": "a"}, "behavior": "MergedWithNext"}]},
)  # fmt: skip
BYTES_OF_TWO: Final = {
    "added_tokens": [{"id": 2, "content": "<s>", "special": True, "single_word": False,
                      "lstrip": False, "rstrip": False, "normalized": False}],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 3}, "merges": ["a b"]},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
    "decoder": {"type": "ByteLevel"},
}  # fmt: skip
CHECKPOINTS: Final = (
    *(
        "llama",
        "llama-llama3",
        "llama-yarn",
        "phi3-long",
        "granitemoe",
        "gpt-oss-mxfp4",
        "llama-fp8",
    ),
    *("llama-gptq-4", "llama-packed-4", "bert-classifier", "nomic-bert", "mamba2", "t5", "gemma3"),
    *("lfm2", "falcon", "glm4"),
)
NAMES: Final = (
    "Mixtral-8x7B-v0.1-KQ2.gguf",
    "Phi-3-mini-3.8B-ContextLength4k-instruct-v1.0-Q4_0",
    "a-00001-of-00002.gguf",
    "Hermes-2-Pro-Llama-3-8B-F16-LoRA.gguf",
    "mmproj-Some-Model-1.5B-it-BF16.gguf",
    "org/Some_Model-x4-120k-chat-v2",
)
CARDS: Final = (
    "license: mit\nlanguage:\n- en\ntags: [a, 'b c', {x: y}]\ntext: |\n  one\n  two\n",
    'base_model: "q\\u00e9"\nn: {a: 1.5, b: null}\nfolded: >-\n  x\n\n  y\n# z\n? k\n: v\n',
)
TEMPLATES: Final = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] | trim }}\n{% endfor %}",
    "{% if tools %}{{ tools | tojson(indent=2) }}{% endif %}{{ messages[0].content }}",
    "{% set ns = namespace(n=0) %}{% macro f(x) -%}{{ x ~ bos_token }}{%- endmacro %}{{ f(1) }}",
    "{{ raise_exception('no') }}{% generation %}{{ strftime_now('%Y') }}{% endgeneration %}",
    "{% for i in range(10) %}{% if i > 2 %}{% break %}{% endif %}{{ i * 'ab' }}{% endfor %}",
    "{{ ''.__class__ }}{{ messages | map(attribute='role') | join(',') }}",
)
SEEDS: Final[Mapping[str, Callable[[], Iterable[bytes]]]] = {
    "kernels": kernels,
    "model": models,
    "imatrix": imatrices,
    "safetensors": lambda: [safetensors_bytes(tensors())],
    "pytorch": lambda: [pytorch_bytes(tensors())],
    "legacy": legacy,
    "blocks": blocks,
    "names": lambda: map(str.encode, NAMES),
    "pieces": lambda: [PIECES],
    "tokenizer": tokenizers,
    "card": lambda: map(str.encode, CARDS),
    "template": lambda: map(str.encode, TEMPLATES),
    "checkpoint": checkpoints,
    "journal": journals,
    "hashes": hashes,
    "cache": caches,
    "commands": commands.seeds,
    "diffusion": documents.diffusion_seeds,
    "adapter": documents.adapter_seeds,
    "results": documents.result_seeds,
    "page": pages,
    "compat": lambda: [data[1:] for data in commands.seeds()][:4],
    "hessian": hessians,
}


def main(folder: str) -> None:
    """Write every seed."""
    for target, seeds in SEEDS.items():
        place = Path(folder, target)
        place.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(seeds()):
            (place / f"{number:03}").write_bytes(data)


if __name__ == "__main__":
    main(*sys.argv[1:])
