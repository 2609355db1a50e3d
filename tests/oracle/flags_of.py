"""Record what llama.cpp's converter makes with its other flags, as digests in flag_digests.json.

    python flags_of.py LLAMA_CPP CHECKPOINTS [CASE ...]

converts the cases in the folder CHECKPOINTS, or only those that are named. Runs in the environment
of requirements.txt. A file without tensors has no padding in the converter's form: `digest` takes
it away.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import shutil
import struct
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import drafts

RECORD = Path(__file__).with_name("flag_digests.json")
PRE_TOKENIZER = "gpt-2"
DENSE = "embedding-gemma"
PREDICTING = (
    "glm4moe", "glm4moelite", "glmdsa", "deepseek32", "mimo-v2", "qwen35-pictures", "qwen35moe",
    "qwen3next", "step35",
)  # fmt: skip
# These have their predicting layers in a file of their own only.
APART = ("deepseek4", "deepseek4-fp8")
DOTS = "dots3-note"  # llama.cpp does not load the whole model, neither ours nor the converter's
NEMOTRON = "nemotron-h-predicting"
DSPARK = "deepseek4-dspark"  # a draft model in its target's folder
SPLIT = ("llama", "mamba2")  # the latter with tensors whose leading axes are 1


class Flag(NamedTuple):
    """A flag of the converter, ours in Python, and the cases that are converted with it.

    `ours` is for `convert`, `written` for `write`.
    """

    flag: str
    ours: dict[str, Any]
    cases: tuple[str, ...]
    written: Mapping[str, Any] = MappingProxyType({})


FLAGS = (
    Flag("--vocab-only", {"vocab_only": True}, (
        "llama", "llama-sentencepiece", "bert", "bloom", "qwen35", "t5", "gpt2", "gemma3", "phi2",
        "glm4moe", "falcon-h1", "gpt-oss-mxfp4",
    )),
    Flag("--fuse-qkv", {"fuse_qkv": True}, (
        "llama", "llama-bias", "llama-fp8", "llama-gptq-4", "llama-compressed", "qwen2", "qwen3moe",
        "qwen3next", "bert", "modernbert", "gemma3", "gpt-oss", "glm4moe", "cohere2", "deepseek2",
        "bailing", "falcon-h1", "internlm2", "refact", "phi2", "granitehybrid", "laguna", "llama4",
        "starcoder2", "olmo2", "t5",
    )),
    Flag("--fuse-gate-up-exps", {"fuse_gate_up_exps": True}, (
        "qwen35moe", "qwen3next", "cohere2-moe", "deepseek-ocr", "gemma4-moe", "granite-swa",
    )),
    Flag("--fp8-as-q8", {"fp8_as_q8": True}, ("llama-fp8", "llama-compressed")),
    Flag("--mtp", {"mtp": True}, (*PREDICTING, DOTS, NEMOTRON, *APART)),
    Flag("--no-mtp", {"mtp": False}, (*PREDICTING, DOTS, "glm4vmoe", *APART)),
    Flag("--dspark", {"dspark": True}, (DSPARK,)),
    Flag("--sentence-transformers-dense-modules", {"dense_modules": True}, (DENSE,)),
    Flag("--bigendian", {}, ("llama-f32", "llama-f16"), {"byte_order": "big"}),
    Flag("--split-max-size 40K", {}, SPLIT, {"shard_size": 40_000, "converter_shards": True}),
    Flag("--split-max-tensors 7 --no-tensor-first-split", {}, SPLIT, {
        "shard_tensors": 7, "no_tensor_first_split": True, "converter_shards": True,
    }),
    Flag("--no-tensor-first-split", {}, SPLIT[:1], {
        "no_tensor_first_split": True, "converter_shards": True,
    }),
    Flag("--target-model-dir", {}, tuple(drafts.DRAFTS)),
)  # fmt: skip


def checkpoint_for(flag: str, case: str, checkpoints: Path, place: Path) -> Path:
    """Return the folder to convert: a draft model, or a copy with dense modules for their flag."""
    if "target" in flag:
        return drafts.make(case, place / case, checkpoints)
    if "dense" not in flag:
        return checkpoints / case
    folder = shutil.copytree(checkpoints / case, place / case)
    modules = [
        {"path": name, "type": f"sentence_transformers.models.{name[2:]}"}
        for name in ("1_Pooling", "2_Dense", "3_Dense")
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": true}')
    for name, width, height in (("2_Dense", 64, 128), ("3_Dense", 128, 64)):
        (folder / name).mkdir()
        sizes = {"in_features": width, "out_features": height}
        (folder / name / "config.json").write_text(json.dumps(sizes))
        numbers = struct.pack(
            f"<{width * height}f", *(i % 251 / 251 for i in range(width * height))
        )
        entry = {"dtype": "F32", "shape": [height, width], "data_offsets": [0, len(numbers)]}
        header = json.dumps({"linear.weight": entry}).encode()
        whole = len(header).to_bytes(8, "little") + header + numbers
        (folder / name / "model.safetensors").write_bytes(whole)
    return folder


def target_of(case: str, checkpoints: Path) -> Path | None:
    """Return the folder of the target of a draft model, None for another case."""
    draft = drafts.DRAFTS.get(case)
    name = draft.target if draft else DSPARK if case == DSPARK else None
    return name and checkpoints / name


def digest(path: Path, flag: str) -> str:
    """Return the digest of a file, or of the shards with its name."""
    files = [path] if path.exists() else sorted(path.parent.glob(f"{path.stem}-*-of-*.gguf"))
    data = b"".join(path.read_bytes() for path in files)
    return hashlib.sha256(data.rstrip(b"\0") if "vocab" in flag else data).hexdigest()[:16]


def main(llama_cpp: str, checkpoints: str, *only: str) -> None:
    """Write the record; the digests of cases that are not named stay."""
    sys.path[:0] = [llama_cpp, f"{llama_cpp}/gguf-py"]
    import convert_hf_to_gguf as converter
    from conversion.base import ModelBase, TextModel
    from conversion.gemma import EmbeddingGemma
    from gguf.tensor_mapping import TensorNameMap

    TextModel.get_vocab_base_pre = lambda *_: PRE_TOKENIZER
    logging.disable(logging.WARNING)
    # The map of an architecture changes that of all others for the rest of the process.
    names = dict(TensorNameMap.block_mappings_cfg)
    old = json.loads(RECORD.read_text())
    record: dict[str, dict[str, str]] = {}
    # transformers looks for names of models in the path of a checkpoint that names no type.
    neutral = Path(tempfile.gettempdir(), "zz")
    for flag, _, cases, _ in FLAGS:
        for case in cases:
            if only and case not in only:
                record.setdefault(flag, {})[case] = old[flag][case]
                continue
            with empty(neutral) as place:
                folder = checkpoint_for(flag, case, Path(checkpoints), place)
                out = place / "out.gguf"
                sys.argv = ["convert", str(folder), "--outfile", str(out), *flag.split()]
                if target := target_of(case, Path(checkpoints)):
                    sys.argv += ["--target-model-dir"] * ("target" not in flag) + [str(target)]
                TensorNameMap.block_mappings_cfg = dict(names)
                try:
                    converter.main()
                finally:  # it keeps choices in its classes
                    for class_ in _classes(ModelBase):
                        class_.mtp_only = class_.no_mtp = False
                    EmbeddingGemma.module_paths = []
                record.setdefault(flag, {})[case] = digest(out, flag)
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


@contextlib.contextmanager
def empty(folder: Path) -> Iterator[Path]:
    """Provide a folder that is removed afterwards."""
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _classes(base: type) -> list[type]:
    return [base, *(inner for derived in base.__subclasses__() for inner in _classes(derived))]


if __name__ == "__main__":
    main(*sys.argv[1:])
