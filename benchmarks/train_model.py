"""Train a small language model to quantize, with weights that no quantization has touched.

Run it with a Python that has torch, transformers and tokenizers, such as the oracle environment's:

    .cache/oracle/venv5/bin/python benchmarks/train_model.py folder/ [--experts 4]
    ggufkit convert folder/ model.gguf --outtype f32 --pre gpt-2

The text is the training part of `benchmarks/texts.py`. The vocabulary is a byte-level BPE of 2048
tokens, trained on the same text. Rows are multiples of 256, so that every type applies. One core
trains it in half an hour; with bfloat16 in hardware the matrices take little of that. The same
seed, versions and processor give the same weights. The last lines printed are the losses on
held-out text and the digest of the weights.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from texts import DOMAINS, HELD_OUT, TRAINING, documents
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedTokenizerFast,
)

VOCABULARY: Final = 2048
END: Final = "<|endoftext|>"
LENGTH: Final = 256  # tokens of a sequence
BATCH: Final = 8
PEAK: Final = 3e-3  # the highest learning rate
WARMUP: Final = 100
SHAPE: Final[dict[str, Any]] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "tie_word_embeddings": True,
}


def vocabulary(texts: list[str]) -> Tokenizer:
    """Return a byte-level BPE tokenizer for the texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=[END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return tokenizer


def encoded(tokenizer: Tokenizer, texts: list[str]) -> torch.Tensor:
    """Return the tokens of all texts, in sequences of equal length; the end of a text is marked."""
    end = tokenizer.token_to_id(END)
    ids = [np.array([*one.ids, end]) for one in tokenizer.encode_batch(texts)]
    joined = np.concatenate(ids)
    whole = len(joined) // LENGTH * LENGTH
    return torch.from_numpy(joined[:whole].reshape(-1, LENGTH))


def new_model(experts: int) -> torch.nn.Module:
    """Return a Llama, or a Mixtral with this many experts of which two count, untrained."""
    if experts:
        config = MixtralConfig(
            **SHAPE, intermediate_size=512, num_local_experts=experts, num_experts_per_tok=2
        )
        return MixtralForCausalLM(config)
    return LlamaForCausalLM(LlamaConfig(**SHAPE, intermediate_size=1024))


def loss_of(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Return the mean surprise about the next token, in nats."""
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(input_ids=batch).logits
    return torch.nn.functional.cross_entropy(
        logits[:, :-1].reshape(-1, VOCABULARY).float(), batch[:, 1:].reshape(-1)
    )


def train(model: torch.nn.Module, sequences: torch.Tensor, options: argparse.Namespace) -> None:
    """Train with AdamW; the learning rate rises at first and then falls along a cosine."""
    order = torch.Generator().manual_seed(options.seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=PEAK, betas=(0.9, 0.95), weight_decay=0.05, fused=True
    )
    begin, shuffled = time.monotonic(), torch.empty(0, dtype=torch.long)
    for step in range(options.steps):
        if len(shuffled) < BATCH:
            shuffled = torch.randperm(len(sequences), generator=order)
        chosen, shuffled = shuffled[:BATCH], shuffled[BATCH:]
        along = max(step - WARMUP, 0) / (options.steps - WARMUP)
        rate = min(1, (step + 1) / WARMUP) * (0.05 + 0.95 * (1 + math.cos(math.pi * along)) / 2)
        optimizer.param_groups[0]["lr"] = PEAK * rate
        loss = loss_of(model, sequences[chosen])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            print(f"{step:>6} {time.monotonic() - begin:>6.0f} s  {loss.item():.3f}", flush=True)


@torch.no_grad()
def held_out_loss(model: torch.nn.Module, sequences: torch.Tensor) -> float:
    """Return the mean loss on at most 64 sequences."""
    parts = sequences[:64].split(BATCH)
    return sum(loss_of(model, part).item() * len(part) for part in parts) / len(sequences[:64])


def main(arguments: Iterable[str] | None = None) -> None:
    """Train and save a model."""
    parser = argparse.ArgumentParser(description="Train a small language model to quantize.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--experts", type=int, default=0, help="experts of a layer; 0 is dense")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)  # the order of sums must not depend on the machine
    texts = {domain: documents(domain, TRAINING) for domain in DOMAINS}
    tokenizer = vocabulary([text for some in texts.values() for text in some])
    sequences = torch.cat([encoded(tokenizer, some) for some in texts.values()])
    model = new_model(options.experts)
    weights = sum(parameter.numel() for parameter in model.parameters())
    print(f"{weights:,} weights, {sequences.numel():,} tokens of text", flush=True)
    train(model, sequences, options)
    for domain in DOMAINS:
        tokens = encoded(tokenizer, documents(domain, HELD_OUT))
        print(f"loss on held-out {domain}: {held_out_loss(model, tokens):.3f}")
    model.save_pretrained(options.folder)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END)
    wrapped.save_pretrained(options.folder)
    saved = (options.folder / "model.safetensors").read_bytes()
    print(f"sha256 of the weights: {hashlib.sha256(saved).hexdigest()}")


if __name__ == "__main__":
    main()
