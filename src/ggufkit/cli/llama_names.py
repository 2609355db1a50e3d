"""Maps names from llama.cpp's tools to ggufkit's names for the same thing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Commands of other tools, and the command to use instead.
COMMANDS: Final[Mapping[str, str]] = {
    "split": "ggufkit copy IN OUT --shard-size 2G",
    "gguf-split": "ggufkit copy IN OUT --shard-size 2G, or ggufkit copy SHARD OUT to merge",
    "merge": "ggufkit copy SHARD OUT; for importance matrices ggufkit imatrix merge IN... -o OUT",
    "dump": "ggufkit inspect FILE",
    "gguf-dump": "ggufkit inspect FILE",
    "info": "ggufkit inspect FILE",
    "show": "ggufkit inspect FILE",
    "verify": "ggufkit check FILE, or ggufkit hash FILE --check MANIFEST",
    "validate": "ggufkit check FILE",
    "gguf-hash": "ggufkit hash FILE",
    "set-metadata": "ggufkit edit FILE --set KEY=VALUE",
    "gguf-set-metadata": "ggufkit edit FILE --set KEY=VALUE",
    "new-metadata": "ggufkit edit IN --output OUT --set KEY=VALUE",
    "gguf-new-metadata": "ggufkit edit IN --output OUT --set KEY=VALUE",
    "convert-endian": "ggufkit copy IN OUT --endian little",
    "gguf-convert-endian": "ggufkit copy IN OUT --endian little",
    "llama-quantize": "ggufkit quantize IN OUT RECIPE",
    "llama-imatrix": "ggufkit imatrix compute MODEL TEXT -o OUT",
    "llama-perplexity": "ggufkit eval MODEL --text FILE",
    "perplexity": "ggufkit eval MODEL --text FILE",
    "convert-hf-to-gguf": "ggufkit convert FOLDER OUT",
    "rename": "ggufkit name FILE --rename",
    "undo": "ggufkit edit FILE --undo",
    "fix": "ggufkit check FILE --fix",
    "repair": "ggufkit check FILE --fix",
}
# Options of llama.cpp's tools by the command that gets them, and what to write instead.
OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "copy": {
        "--split": "--shard-size SIZE or --shard-tensors N",
        "--merge": "no option: copying a shard merges its set",
        "--split-max-size": "--shard-size SIZE",
        "--split-max-tensors": "--shard-tensors N",
    },
    "convert": {
        "--outfile": "the argument OUT, or -o OUT",
    },
    "quantize": {
        "--allow-requantization": "--allow-requantize",
        "--nthread": "--threads N",
    },
    "estimate": {
        "--ctx-size": "--context N",
        "-c": "--context N",
        "--n-gpu-layers": "--memory SIZE, which tells how many layers fit",
        "--cache-type-k": "--cache-type TYPE",
        "--cache-type-v": "--value-cache-type TYPE",
        "--ubatch-size": "--micro-batch N",
        "--parallel": "--sequences N",
        "--kv-unified": "--unified",
        "--flash-attn": "--no-flash-attention, if it is off",
        "--swa-full": "--full-window",
    },
    "eval": {
        "--model": "the argument MODEL",
        "-m": "the argument MODEL",
        "--file": "--text FILE",
        "-f": "--text FILE",
        "--ctx-size": "--context N",
        "-c": "--context N",
        "--ubatch-size": "--micro-batch N",
        "--kl-divergence": "no option: it is measured with --base-logits FILE",
        "--kl-divergence-base": "--base-logits FILE; with --base MODEL it is written",
        "--save-all-logits": "--base MODEL --base-logits FILE",
    },
    "imatrix": {
        "--in-file": "ggufkit imatrix merge IN... -o OUT",
        "--show-statistics": "ggufkit imatrix show IN",
        "--output-file": "-o OUT",
    },
    "merge": {
        "--in-file": "the arguments IN...",
        "--output-file": "-o OUT",
        "--ctx-size": "--context N",
    },
    "compute": {
        "--ctx-size": "--context N",
        "-c": "--context N",
        "--model": "the argument MODEL",
        "--file": "the argument TEXT",
        "--output-file": "-o OUT",
        "--chunk": "--from-chunk N",
        "--batch-size": "--batch N",
    },
    "inspect": {"--markdown": "--json"},
}
