"""Load two checkpoints in transformers, and fail unless they have the same weights.

python same_weights.py ONE OTHER
"""

from __future__ import annotations

import sys

import torch
import transformers


def main(one: str, other: str) -> None:
    """Compare all weights; those of quantized experts are decoded."""
    before, after = (
        transformers.AutoModelForCausalLM.from_pretrained(folder).state_dict()
        for folder in (one, other)
    )
    assert before.keys() == after.keys()
    different = [name for name in before if not torch.equal(before[name], after[name])]
    assert not different, different


if __name__ == "__main__":
    main(*sys.argv[1:])
