"""Compute with transformers what llama.cpp is to compute from the converted files.

    python computing.py FOLDER OUT

writes OUT/NAME.npz for each checkpoint in FOLDER that transformers has code for: the numbers of a
prompt's tokens and, from weights in F32, the logits of every position, or the last layer where the
model has no head; and, for a checkpoint with a tokenizer, the ids of `TEXTS`. Runs in both
environments, each for the cases that its version of transformers made.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import tiny
import tokenizers
import torch
import transformers

CASES = tiny.CASES | tiny.RAW
LENGTH = 160  # tokens of the prompt: more than the sliding windows and short contexts of the cases
STARTS = 4  # ids below are special tokens
TEXTS = [
    *tiny.TEXT,
    "Grüße, 你好世界, привет, مرحبا, สวัสดี, नमस्ते, 한국어, é vs e\u0301, ﬁ ½ ²",
    "👩‍👩‍👧‍👦 🇪🇺 👍🏽 🦙",
    "for (int i = 0; i < 10; ++i) { a[i] *= 0x1F; }  // 1,234,567.89e-10\r\n\t\treturn;\n",
    "\x01\x02\x1b[0m\x7f\u200b\u00a0\u2028\ufeff\x85 end",
    "   leading, trailing   \n\n\n",
    "",
]


def model_of(folder: Path, name: str) -> torch.nn.Module:
    """Load the model of a case as the class that it was made of."""
    spec = CASES[name]
    kind = getattr(transformers, spec.get("model") or spec.get("kind", "AutoModelForCausalLM"))
    loaded = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return loaded.eval()


def prompt_of(name: str) -> torch.Tensor:
    rows = 99 if CASES[name]["vocabulary"] in ("words", "unigram") else 400
    return torch.randint(STARTS, rows, (1, LENGTH), generator=torch.Generator().manual_seed(3))


def computed(folder: Path, name: str) -> dict[str, np.ndarray]:
    model, prompt = model_of(folder, name), prompt_of(name)
    more = {"decoder_input_ids": prompt.flip(1)} if model.config.is_encoder_decoder else {}
    with torch.inference_mode():
        out = model(prompt, **more)
    values = out.logits if hasattr(out, "logits") else out.last_hidden_state
    return {"prompt": prompt[0].numpy(), "values": values[0].numpy()}


def ids(folder: Path) -> list[list[int]]:
    path = folder / "tokenizer.json"
    if tiny.LIBRARY > tiny.OLDEST and path.exists():  # it would put a model's own rules in place
        whole = tokenizers.Tokenizer.from_file(str(path))
        return [whole.encode(text, add_special_tokens=False).ids for text in TEXTS]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]


def main(folder: str, out: str, *names: str) -> None:
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    Path(out).mkdir(parents=True, exist_ok=True)
    failed = {}
    for name in names or sorted(CASES):
        target = Path(out) / f"{name}.npz"
        spec = CASES[name]
        library = spec.get("computed", spec.get("library"))
        if library == tiny.LIBRARY and not target.exists():
            try:
                write(target, Path(folder) / name, name)
            except Exception as error:  # all that fail are named at once
                failed[name] = f"{type(error).__name__}: {str(error)[-300:]}"
    if failed:
        sys.exit(json.dumps(failed, indent=1))


def write(target: Path, checkpoint: Path, name: str) -> None:
    record = {"ids": json.dumps(ids(checkpoint)), "texts": json.dumps(TEXTS)}
    record["library"] = tiny.LIBRARY
    np.savez(target, **computed(checkpoint, name), **record)


if __name__ == "__main__":
    main(*sys.argv[1:])
