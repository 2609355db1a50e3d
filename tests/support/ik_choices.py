"""The types that ik_llama.cpp's llama-quantize chooses for random models, as digests.

Run with a program that reads models from stdin and answers with the types. It consists of
`interleaved_properties`, `change_type_if_necessary`, `llama_tensor_get_type` and the choice in the
loop over tensors of ik_llama.cpp's `llama-quantize.cpp`, cut out unchanged, with a struct for the
model's parameters. The run compares COUNT models, or as many as the second argument says, and
writes ik_choices.json.
"""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import shapes
from ggufkit.format.types import tensor_type
from ggufkit.models.model import Model
from ggufkit.quantization.choice.type_choice import TypeRequests, choose, facts_of
from ggufkit.quantization.recipes import IK_ONLY, patterns_of

TABLE: Final = Path(__file__).with_name("ik_choices.json")
COUNT: Final = 24
ARCHITECTURES: Final = (
    *("llama", "llama", "falcon", "qwen2", "qwen2vl", "qwen3", "qwen3vl", "cohere2", "mistral3"),
    *("deci", "olmo", "deepseek2", "gemma3", "qwen3moe"),
)
LAYERS: Final = (*range(1, 10), 16, 17, 24, 32, 34, 36, 80)
PER_LAYER: Final = "per_layer_token_embd.weight"
MORE_TENSORS: Final = (
    *("attn_qkv.weight", "attn_q_a.weight", "attn_kv_a_mqa.weight", "attn_k_b.weight"),
    *("attn_v_b.weight", "attn_norm.weight", "ffn_up_shexp.weight", "ffn_down_shexp.weight"),
    *("ffn_gate_inp.weight", "ffn_gate_up_exps.weight", "ssm_x.weight", "ssm_dt.weight"),
    *("ssm_conv1d.weight", "ssm_in.weight", "time_mix_w1.weight", "attn_rel_b.weight"),
    *("altup_proj.weight", "attn_sinks.weight", "attn_gate.weight", "nextn.eh_proj.weight"),
)


@dataclass(frozen=True)
class Variant:
    """One set of options."""

    imatrix: bool
    pure: bool = False
    leaves_output: bool = False
    output: str | None = None
    embedding: str | None = None
    custom: tuple[tuple[str, str], ...] = ()

    def requests(self) -> TypeRequests:
        output, embedding = (
            tensor_type(kind) if kind else None for kind in (self.output, self.embedding)
        )
        return TypeRequests(
            self.pure, self.leaves_output, output, embedding, patterns_of(self.custom)
        )


def model(seed: int) -> Model:
    """Return a random model without data."""
    rng = random.Random(seed)
    architecture, layers = rng.choice(ARCHITECTURES), rng.choice(LAYERS)
    width, hidden = rng.choice([(4096, 11008), (2560, 6912), (2080, 5472), (1056, 768), (2048, 40)])
    shared, grouped = rng.choice((1, 2, 4)), rng.choice((1, 2, 3, 4, 8))
    count = rng.choice((0, 0, 0, 2, 3, 4, 8, 16))
    vocabulary = rng.choice((32000, 49152, 128256, 127999))
    metadata, tensors = shapes.dense(
        *(architecture, layers, width, shared * grouped, shared, hidden),
        **{"vocabulary": vocabulary} | ({"expert_count": count} if count else {}),
    )
    names = [name for name in MORE_TENSORS if rng.random() < 0.4]
    rows = rng.choice((64, 66, 68, 72))
    more = {name: (rows, rng.choice((width, 256, 96))) for name in names}
    tensors |= shapes.in_layers(layers, more)
    if count:
        metadata, tensors = shapes.experts((metadata, tensors), count, layers, width, hidden)
    if rng.random() < 0.4:
        del tensors["output.weight"]
    if rng.random() < 0.3:
        tensors[PER_LAYER] = (vocabulary, 512)
    tensors |= {"position_embd.weight": (512, width), "token_types.weight": (2, width)}
    ordered = list(tensors.items())
    if rng.random() < 0.5:
        rng.shuffle(ordered)
    return shapes.model_of(metadata, dict(ordered))


def recipes(model: Model) -> list[str]:
    """Return the recipes to compare.

    BF16_R16 makes ik_llama.cpp interleave the embeddings of layers, which it reads row by row.
    """
    is_odd = PER_LAYER in model.tensors
    return [name for name in IK_ONLY if not (is_odd and name == "BF16_R16")]


def variants(seed: int) -> Iterator[Variant]:
    """Return options: none, importance data, and random ones."""
    yield from (Variant(False), Variant(True))
    rng = random.Random(-seed - 1)
    kinds = ("Q8_0", "IQ4_K_R4", "Q4_K_R4", "IQ2_KL", "F16", "Q5_K")
    parts = ("attn_[qk]", "ffn_.*exps", "token", "blk.[0-3]\\.", "output")
    custom = [(rng.choice(parts), kind) for kind in rng.sample(kinds, 2)]
    is_pure = rng.random() < 0.3  # ik_llama.cpp then ignores custom types
    yield Variant(
        rng.random() < 0.5,
        is_pure and PER_LAYER not in model(seed).tensors,  # which it then interleaves
        rng.random() < 0.2,
        rng.choice((None, None, "Q8_0", "F16")),
        rng.choice((None, None, "Q8_0", "Q8_0_R8")),
        () if is_pure else tuple(custom),
    )


def ours(model: Model, recipe: str, variant: Variant) -> list[str]:
    """Return the type of each tensor."""
    tensors, facts = model.tensors.values(), facts_of(model.metadata)
    chosen = choose(tensors, facts, IK_ONLY[recipe], variant.requests(), imatrix=variant.imatrix)
    return [chosen[tensor.name].type.name for tensor in tensors]


def digest(types: list[list[str]]) -> str:
    """Return the SHA-256 of the types of all tensors in all recipes."""
    return hashlib.sha256(json.dumps(types).encode()).hexdigest()


def _theirs(program: subprocess.Popen[str], model: Model, recipe: str, variant: Variant) -> Any:
    assert program.stdin
    assert program.stdout
    words = [IK_ONLY[recipe].file_type, int(variant.imatrix), int(variant.pure)]
    words += [int(variant.leaves_output), variant.output or "-", variant.embedding or "-"]
    words += [f"{pattern}={kind}" for pattern, kind in variant.custom]
    print("run", *words, file=program.stdin, flush=True)
    answer = program.stdout.readline().upper().split()
    # It aborts if rows do not divide into blocks of 32: we choose F16.
    return ["F16" if kind.endswith("!") else kind for kind in answer]


def _tell(program: subprocess.Popen[str], model: Model) -> None:
    facts, architecture = facts_of(model.metadata), model.architecture
    numbers = (
        model.metadata.get(f"{architecture}.{key}", 0)
        for key in ("attention.head_count", "attention.head_count_kv", "vocab_size")
    )
    width = model.metadata[f"{architecture}.embedding_length"]
    words = ("model", architecture, facts.layers, facts.experts, *numbers, width)
    print(*words, file=program.stdin)
    for tensor in model.tensors.values():
        axes = [*reversed(tensor.shape), 1, 1][:3]
        print("tensor", tensor.name, *axes, tensor.type.name, file=program.stdin)


def main(path: str, count: str = str(COUNT)) -> None:
    """Compare, and write the table."""
    table = {}
    with subprocess.Popen(
        [path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        for seed in range(int(count)):
            random_model = model(seed)
            _tell(program, random_model)
            rows = []
            for variant in variants(seed):
                for recipe in recipes(random_model):
                    types = _theirs(program, random_model, recipe, variant)
                    own = ours(random_model, recipe, variant)
                    for tensor, a, b in zip(random_model.tensors, own, types, strict=True):
                        assert a == b, (seed, recipe, variant, tensor, a, b)
                    rows.append(types)
            table[str(seed)] = digest(rows)
    chosen = {seed: table[seed] for seed in list(table)[:COUNT]}
    TABLE.write_text(json.dumps(chosen, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
