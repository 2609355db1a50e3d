"""Run llama.cpp's own converter on checkpoints, many in one process.

    python reference.py LLAMA_CPP FOLDER OUT [TYPE ...]

converts each checkpoint in FOLDER to OUT/NAME-TYPE.gguf, except those that digests.json knows
(the environment variable GGUFKIT_ORACLE_ANEW asks for these too). Runs in the environment of
requirements.txt. The converter knows pre-tokenizers by hashes of real vocabularies, so that of a
tiny one is said here: its rules are GPT-2's.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from digests import TYPES, is_recorded

PRE_TOKENIZER = "gpt-2"
EAGER = {"llama-bitnet"}  # the converter fails on it if it reads tensors late


def main(llama_cpp: str, folder: str, out: str, *types: str) -> None:
    convert = converter(llama_cpp)
    Path(out).mkdir(parents=True, exist_ok=True)
    for checkpoint in sorted(Path(folder).glob("[a-z]*")):
        if is_recorded(checkpoint.name, Path(folder)):
            continue
        for kind in types or TYPES:
            target = Path(out) / f"{checkpoint.name}-{kind}.gguf"
            if not target.exists() and (error := convert(checkpoint, target, kind)):
                target.with_suffix(".error").write_text(error)
                print(f"{target.name}: {error.splitlines()[-1]}", file=sys.stderr)


def converter(llama_cpp: str) -> Callable[[Path, Path, str], str]:
    """Return a function that converts a checkpoint to a file, and returns the error or nothing."""
    forget = prepared(llama_cpp)
    import convert_hf_to_gguf as converter

    def convert(checkpoint: Path, target: Path, kind: str) -> str:
        forget()
        sys.argv = ["convert", str(checkpoint), "--outfile", str(target), "--outtype", kind]
        sys.argv += ["--no-lazy"] * (checkpoint.name in EAGER)
        try:
            converter.main()
        except (Exception, SystemExit):
            target.unlink(missing_ok=True)
            return traceback.format_exc()
        return ""

    return convert


def prepared(llama_cpp: str) -> Callable[[], None]:
    """Mend llama.cpp's Python code; return a function that lets it forget converted models."""
    sys.path[:0] = [llama_cpp, f"{llama_cpp}/gguf-py"]
    from conversion.base import TextModel
    from conversion.bert import XLMRobertaModel
    from conversion.rwkv import Rwkv6Model, Rwkv7Model
    from gguf.tensor_mapping import TensorNameMap

    # The map of an architecture changes that of all others for the rest of the process.
    names = dict(TensorNameMap.block_mappings_cfg)
    TextModel.get_vocab_base_pre = lambda *_: PRE_TOKENIZER
    mend_baichuan()
    mend_qwen()
    logging.disable(logging.WARNING)

    def forget() -> None:
        TensorNameMap.block_mappings_cfg = dict(names)
        Rwkv6Model.lerp_weights, Rwkv7Model.lerp_weights = {}, {}  # of the whole process too
        XLMRobertaModel._lora_files = {}

    return forget


def mend_baichuan() -> None:
    """Let Baichuan's class pass other tensors on to its base instead of to itself, without end."""
    from conversion.baichuan import BaichuanModel
    from conversion.base import TextModel

    unpacked = BaichuanModel.modify_tensors

    def modify_tensors(self, data, name, number):
        own = unpacked if name.endswith(".W_pack.weight") else TextModel.modify_tensors
        yield from own(self, data, name, number)

    BaichuanModel.modify_tensors = modify_tensors


def mend_qwen() -> None:
    """Have Qwen 1's class write a key without which llama.cpp does not load the file."""
    from conversion.base import TextModel
    from conversion.qwen import QwenModel

    def set_gguf_parameters(self):
        TextModel.set_gguf_parameters(self)
        self.gguf_writer.add_layer_norm_rms_eps(self.hparams["layer_norm_epsilon"])

    QwenModel.set_gguf_parameters = set_gguf_parameters


if __name__ == "__main__":
    main(*sys.argv[1:])
