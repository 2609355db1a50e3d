"""What is known of cases: which tests are not for them, and why."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import departures

# By the reference; test_computing.py runs what we make.
REFUSED = departures.FAILING
# By llama.cpp's loader: a head of two labels without names, where it wants a square matrix.
UNLOADABLE = {"bert-two-labels"}
# By llama.cpp, whoever converted them: of PLM it takes the values of all heads for one head, of
# dots3-note it does not load the layer that predicts, and of EXAONE 3 it wants the epsilon under
# another key than the converter writes.
FAILING = {"plm", "dots3-note", "exaone"}
# These it loads, and then does not compute: without attention in a layer it aborts, and PLaMo 2 of
# these few heads never ends.
UNCOMPUTABLE = {"deci-blocks", "plamo2"}
# FP8 becomes floats, which another type stores; what the reference refuses cannot be compared. The
# embeddings of models that speak are products of matrices.
# Rerankers whose head copies two rows of the embeddings are exported without it.
RERANKERS = {"qwen3-titled-reranker", "qwen3-vl-reranker-2b"}
# No tensor of a checkpoint has the scales of NVFP4 in a GGUF file.
NVFP4 = {"llama-nvfp4", "llama-nvfp4-packed", "qwen3moe-nvfp4"}
WITHOUT_EXPORT = {
    *REFUSED,
    *RERANKERS,
    *NVFP4,
    "deepseek4-fp8",
    "pocket-tts",
    "pocket-tts-voice",
    "qwen3-tts",
}
# What transformers does not load as it was: Chameleon needs a vocabulary_map, of which the GGUF
# file knows nothing; of a dynamic rotary embedding the GGUF file has the base that results, not
# its parameters; which layers of Laguna see all tokens is llama.cpp's own knowledge; the code for
# MiniMax-01's class is with its published checkpoints.
UNLOADED = {"chameleon", "hunyuan-dynamic", "laguna", "minimax-01"}
# A GGUF file has matrices that are multiplied by numbers of config.json, or rounded to three
# values; they stay so in an export.
SCALED = {"bitnet", "falcon-h1", "jais", "dots3-note", "ling-lite"}
# llama.cpp computes these otherwise than transformers, whoever converted them;
# docs/architectures.md says how. A case in `families` says it itself.
OTHERWISE = {
    "gemma-f16",  # norms in F16, to which 1 is added in F16
    "gpt-oss", "llama-yarn",  # rotary embedding
    "mamba2-groups",  # norms of groups
    "mistral", "phi3-long",  # no sliding windows
    "phimoe",  # weights of experts
    "flan-t5", "mt5", "umt5",  # GELU from a table, which deep sums of unscaled attention magnify
}  # fmt: skip


def families() -> dict[str, dict[str, Any]]:
    """Return the cases of the files in `families`."""
    cases: dict[str, dict[str, Any]] = {}
    for path in sorted(Path(__file__).with_name("families").glob("[a-z]*.py")):
        module = importlib.import_module(f"families.{path.stem}")
        cases |= module.CASES | module.RAW
    return cases


def checkpoints(folder: Path) -> set[str]:
    return {path.name for path in (folder / "checkpoints").glob("[a-z]*")}


def tokenized(folder: Path) -> list[str]:
    """Return the cases whose texts transformers has turned into ids."""
    return sorted({path.stem for path in (folder / "computed").glob("*.npz")} - UNLOADABLE)


def uncomputed(folder: Path) -> list[str]:
    """Return the cases that no version of transformers computes."""
    return sorted(checkpoints(folder) - set(tokenized(folder)) - UNLOADABLE)


def computed(folder: Path) -> list[str]:
    """Return the cases whose logits are those of transformers."""
    apart = OTHERWISE | {name for name, case in families().items() if case.get("otherwise")}
    is_head = ("-classifier", "-labels")
    return [case for case in tokenized(folder) if case not in apart and not case.endswith(is_head)]


def converted(folder: Path) -> list[str]:
    """Return the cases that the reference converts."""
    return sorted(checkpoints(folder) - REFUSED - UNLOADABLE)


def exported(folder: Path) -> list[str]:
    """Return the cases that come back unchanged from an export."""
    return sorted(checkpoints(folder) - WITHOUT_EXPORT - UNLOADABLE)


def seeing() -> set[str]:
    """Return the cases of models that see or hear; their text models are exported alone."""
    known = families().items()
    return {name for name, case in known if "text_config" in case.get("fields", {})}
