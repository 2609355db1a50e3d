"""Checkpoints as repositories spell them: the tiny checkpoint of each case, changed by a seed.

A spelling is a change that published checkpoints have: rope parameters of transformers 4 or 5,
absent and null fields, fields of other classes, nested objects, names in other places, tied heads,
several ends of text, padded vocabularies. `write_spelled` makes the same files of the same seed.
"""

from __future__ import annotations

import copy
import functools
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ALIASES: Final[dict[str, dict[str, str]]] = json.loads(
    Path(__file__).with_name("aliases.json").read_text(encoding="utf-8")
)
MOST: Final = 3  # spellings at once
INNER: Final = ("text_config", "llm_config", "language_config", "lm_config", "thinker_config")
KEPT: Final = ("architectures", "model_type")
# Fields that many published checkpoints have and their classes do not need.
EXTRA: Final[dict[str, Any]] = {
    "_name_or_path": "org/model", "attention_bias": False, "attention_dropout": 0.0,
    "auto_map": {"AutoModelForCausalLM": "modeling.Model"}, "bos_token_id": 1,
    "head_dim": None, "initializer_range": 0.02, "max_window_layers": 3, "mlp_bias": False,
    "norm_topk_prob": None, "pad_token_id": None, "pretraining_tp": 1, "quantization_config": None,
    "rope_interleaved": False, "rope_scaling": None, "rope_theta": None, "sliding_window": None,
    "transformers_version": "4.45.0", "unsloth_fixed": True, "use_cache": True,
    "use_sliding_window": False, "layer_types": None, "num_experts_per_tok": None,
    "partial_rotary_factor": None, "sep_token_id": None, "use_bfloat16": False, "is_decoder": True,
    "use_flash_attn": True, "output_router_logits": False, "router_aux_loss_coef": 0.001,
    "text_config": None, "vision_config": None, "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token_id": 1, "use_qk_norm": None, "num_nextn_predict_layers": 0, "ep_size": 1,
    "seq_length": 2048, "torch_dtype": "bfloat16", "model_max_length": 4096, "n_group": None,
    "max_sequence_length": 2048, "scoring_func": None, "sliding_window_pattern": None,
}  # fmt: skip
SCALINGS: Final[tuple[dict[str, Any], ...]] = (
    {"type": "linear", "factor": 2.0},
    {"rope_type": "linear", "factor": 4.0},
    {"type": "dynamic", "factor": 2.0},
    {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128,
     "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 64},
    {"rope_type": "default"},
)  # fmt: skip
PREFIXES: Final = ("model.", "transformer.", "language_model.", "model.language_model.", "llm.")
BUFFERS: Final = (
    "model.layers.0.self_attn.rotary_emb.inv_freq", "transformer.h.0.attn.masked_bias",
    "transformer.h.0.attn.bias", "rotary_emb.inv_freq",
)  # fmt: skip
HEADS: Final = ("lm_head.weight", "model.lm_head.weight", "language_model.lm_head.weight")
EMBEDDINGS: Final = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight")
CARDS: Final = (
    "# A model\n\nText.\n",
    "---\nlicense: mit\nlanguage:\n- en\ntags:\n- text-generation\n---\n# Model\n",
    "---\nlicense: other\nlicense_name: own\nlicense_link: LICENSE\nbase_model: org/Base-7B\n---\n",
    (
        "---\nbase_model:\n- org/A-7B\n- org/B\ndatasets: org/data\n"
        "pipeline_tag: text-generation\n---\n"
    ),
    "---\nlicense: [apache-2.0]\nlanguage: en\nlibrary_name: transformers\n---\n",
)
TEMPLATES: Final = (
    "{{ messages[0]['content'] }}",
    [{"name": "default", "template": "{{ a }}"}, {"name": "tool_use", "template": "{{ b }}"}],
)


@dataclass
class Checkpoint:
    """The parts of a checkpoint that a spelling changes."""

    numbers: random.Random
    config: dict[str, Any]
    files: dict[str, Any]  # JSON objects by the name of their file, None without it; texts too
    tensors: dict[str, tuple[str, list[int], bytes]]  # dtype, shape and bytes by name
    others: Callable[[], dict[str, Any]]  # the configuration of another case
    is_renamed: bool = False  # whether the tensors have to be written again

    @property
    def text(self) -> dict[str, Any]:
        """The object that describes the text model."""
        for name in INNER:
            inner = self.config.get(name)
            if isinstance(inner, dict):
                text = inner.get("text_config")
                return text if isinstance(text, dict) else inner
        return self.config

    def field(self) -> str:
        """Return a field of the text model."""
        fields = sorted(self.text.keys() - set(KEPT))
        return self.numbers.choice(fields)


def rope_of_5(it: Checkpoint) -> None:
    fields = it.text
    old = fields.pop("rope_scaling", None)
    rope = dict(old) if isinstance(old, dict) else {}
    for name in ("rope_theta", "partial_rotary_factor"):
        if fields.get(name) is not None:
            rope[name] = fields.pop(name)
    if rope and "rope_parameters" not in fields:
        kind = rope.pop("type", None)
        fields["rope_parameters"] = {"rope_type": kind or "default", **rope}


def rope_of_4(it: Checkpoint) -> None:
    rope = it.text.get("rope_parameters")
    if isinstance(rope, dict) and not any(isinstance(value, dict) for value in rope.values()):
        del it.text["rope_parameters"]
        for name in ("rope_theta", "partial_rotary_factor"):
            if name in rope:
                it.text[name] = rope.pop(name)
        it.text["rope_scaling"] = rope if rope.get("rope_type") != "default" else None


def rope_scaled(it: Checkpoint) -> None:
    if not it.text.keys() & {"rope_theta", "rope_scaling", "rope_parameters"}:
        return
    scaling = dict(it.numbers.choice(SCALINGS))
    if isinstance(old := it.text.get("rope_parameters"), dict):
        it.text["rope_parameters"] = {**old, **scaling}
    else:
        it.text["rope_scaling"] = scaling


def dtype(it: Checkpoint) -> None:
    old, new = it.numbers.sample(("torch_dtype", "dtype"), 2)
    for fields in (it.config, it.text):
        if old in fields:
            fields[new] = fields.pop(old)
    if it.numbers.random() < 0.3:
        it.config.pop(new, None)


def absent(it: Checkpoint) -> None:
    it.text.pop(it.field())


def null(it: Checkpoint) -> None:
    it.text[it.field()] = None


def extra(it: Checkpoint) -> None:
    for name in it.numbers.sample(sorted(EXTRA), 4):
        it.text.setdefault(name, EXTRA[name])


def foreign(it: Checkpoint) -> None:
    """Fields of another class, both of decoders."""
    other = it.others()
    if not all(str(c.get("architectures")).endswith("ForCausalLM']") for c in (it.config, other)):
        return
    inner = next((other[name] for name in INNER if isinstance(other.get(name), dict)), other)
    fields = sorted(inner.keys() - set(KEPT))
    for name in it.numbers.sample(fields, min(2, len(fields))):
        it.text.setdefault(name, inner[name])


def nested(it: Checkpoint) -> None:
    if it.text is not it.config or "architectures" not in it.config:
        return
    outer = {"architectures": it.config.pop("architectures"), "model_type": "wrapped"}
    name = it.numbers.choice(INNER)
    inner = {"text_config": it.config} if name == "thinker_config" else it.config
    it.config = {**outer, name: inner}


def flat(it: Checkpoint) -> None:
    """The text model alone, as if it was saved without the encoder of pictures."""
    it.config = {**it.text, "architectures": it.config.get("architectures")}


def doubled(it: Checkpoint) -> None:
    """Fields of the text model that the outer object has too, with another value."""
    if it.text is not it.config:
        for name in it.numbers.sample(sorted(it.text), min(3, len(it.text))):
            it.config.setdefault(name, it.text[name] if it.numbers.random() < 0.5 else None)


def prefixed(it: Checkpoint) -> None:
    prefix = it.numbers.choice(PREFIXES)
    if any(name.startswith(prefix) for name in it.tensors) and it.numbers.random() < 0.5:
        it.tensors = {name.removeprefix(prefix): entry for name, entry in it.tensors.items()}
    else:
        it.tensors = {prefix + name: entry for name, entry in it.tensors.items()}
    it.is_renamed = True


def buffers(it: Checkpoint) -> None:
    it.tensors[it.numbers.choice(BUFFERS)] = ("F32", [8], bytes(32))
    it.is_renamed = True


def tied(it: Checkpoint) -> None:
    head = next((name for name in HEADS if name in it.tensors), None)
    embedding = next((name for name in it.tensors if name.endswith(EMBEDDINGS)), None)
    choice = it.numbers.choice(("says so", "says not", "says nothing"))
    if choice == "says nothing":
        it.text.pop("tie_word_embeddings", None)
        it.config.pop("tie_word_embeddings", None)
    else:
        it.text["tie_word_embeddings"] = choice == "says so"
    if it.numbers.random() < 0.5:
        it.is_renamed = True
        if head:
            del it.tensors[head]
        elif embedding:
            it.tensors["lm_head.weight"] = it.tensors[embedding]


def ends(it: Checkpoint) -> None:
    eos = it.numbers.choice(([1, 2], [1], [3, 1, 2], 1, None, 5))
    for fields in it.numbers.sample(
        (it.config, it.text, it.files.setdefault("generation_config.json", {})), 2
    ):
        if fields is not None:
            fields["eos_token_id"] = eos


def special(it: Checkpoint) -> None:
    name = it.numbers.choice(("bos", "eos", "pad", "unk", "sep", "cls", "mask", "decoder_start"))
    it.config[f"{name}_token_id"] = it.numbers.choice((0, 2, 3, None, -1))


def padded(it: Checkpoint) -> None:
    """More rows of embeddings than tokens."""
    size = it.text.get("vocab_size")
    more = it.numbers.choice((8, 32, 96))
    if not isinstance(size, int):
        return
    for name, (kind, shape, data) in list(it.tensors.items()):
        if shape and shape[0] == size and (name.endswith(EMBEDDINGS) or name in HEADS):
            row = len(data) // size
            it.tensors[name] = (kind, [size + more, *shape[1:]], data + bytes(more * row))
            it.is_renamed = True
    it.text["vocab_size"] = size + more


def alias(it: Checkpoint) -> None:
    """A field by the other name that transformers has for it."""
    names = ALIASES.get(str(it.text.get("model_type")), {})
    pairs = [*names.items(), *((new, old) for old, new in names.items())]
    present = [(old, new) for old, new in pairs if old in it.text and new not in it.text]
    for old, new in it.numbers.sample(present, min(2, len(present))):
        it.text[new] = it.text.pop(old)


def unlisted(it: Checkpoint) -> None:
    """Without a file that a tokenizer may lack."""
    name = it.numbers.choice(
        ("special_tokens_map.json", "generation_config.json", "added_tokens.json")
    )
    it.files[name] = None


def template(it: Checkpoint) -> None:
    chosen = it.numbers.choice(TEMPLATES)
    if isinstance(chosen, str) and it.numbers.random() < 0.5:
        it.files["chat_template.jinja"] = chosen
    elif "tokenizer_config.json" in it.files:
        it.files["tokenizer_config.json"]["chat_template"] = chosen


def tokenizer_options(it: Checkpoint) -> None:
    fields = it.files.get("tokenizer_config.json")
    if fields:
        name = it.numbers.choice(("add_bos_token", "add_eos_token", "add_prefix_space", "legacy"))
        fields[name] = it.numbers.choice((True, False, None))
        if it.numbers.random() < 0.3:
            fields.pop("added_tokens_decoder", None)


def card(it: Checkpoint) -> None:
    it.files["README.md"] = it.numbers.choice(CARDS)


SPELLINGS: Final = (
    rope_of_5, rope_of_4, rope_scaled, dtype, absent, absent, absent, null, null, extra, extra,
    foreign, foreign, nested, flat, doubled, prefixed, buffers, tied, ends, special, padded, alias,
    alias, unlisted, template, tokenizer_options, card,
)  # fmt: skip


def as_it_is(it: Checkpoint) -> None:
    pass


def marked_card(it: Checkpoint) -> None:
    """A model card after a byte order mark."""
    it.files["README.md"] = "\ufeff---\nlicense: mit\n---\n"


def licensed(it: Checkpoint) -> None:
    """The file for `--metadata`."""
    it.files[OVERRIDES] = {"general.license": "mit", "general.author": "Someone"}


def signalling_nan(it: Checkpoint) -> None:
    """A signalling NaN as the first element of a matrix."""
    name = next(name for name, (_, shape, _) in it.tensors.items() if len(shape) > 1)
    kind, shape, data = it.tensors[name]
    first = {"BF16": b"\x81\x7f", "F16": b"\x01\x7d", "F32": b"\x01\x00\x80\x7f"}[kind]
    it.tensors[name] = (kind, shape, first + data[len(first) :])
    it.is_renamed = True


def mixed_experts(it: Checkpoint) -> None:
    """One expert in F32, the others in BF16."""
    name = next(name for name in it.tensors if ".experts." in name)
    _, shape, data = it.tensors[name]
    wide = b"".join(b"\0\0" + data[place : place + 2] for place in range(0, len(data), 2))
    it.tensors[name] = ("F32", shape, wide)
    it.is_renamed = True


OVERRIDES: Final = "metadata.json"
# What no seed makes, by the name that stands for the seed.
NAMED: Final = {
    change.__name__: change
    for change in (as_it_is, marked_card, licensed, signalling_nan, mixed_experts)
}


def write_spelled(checkpoints: Path, case: str, seed: str, out: Path) -> list[str]:
    """Write the checkpoint of a case, changed by a seed, to `out/CASE`; return the spellings."""
    source, folder = checkpoints / case, out / case
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    it = _opened(source, random.Random(f"{case} {seed}"))
    change = NAMED.get(seed)
    chosen = [change] if change else it.numbers.sample(SPELLINGS, it.numbers.randint(1, MOST))
    for spelling in chosen:
        spelling(it)
    files = {**it.files, "config.json": it.config}
    for path in filter(Path.is_file, source.iterdir()):
        if path.name not in files and not (it.is_renamed and path.suffix == ".safetensors"):
            shutil.copyfile(path, folder / path.name)
    for name, content in files.items():
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content, indent=2)
            (folder / name).write_text(text, encoding="utf-8")
    if it.is_renamed:
        _write_tensors(folder / "model.safetensors", it.tensors)
    return [spelling.__name__ for spelling in chosen]


def _opened(source: Path, numbers: random.Random) -> Checkpoint:
    small = ("generation_config.json", "tokenizer_config.json")
    files = {name: json.loads((source / name).read_text("utf-8")) for name in small
             if (source / name).exists()}  # fmt: skip
    tensors = {}
    for path in sorted(source.glob("*.safetensors")):
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        for name, entry in json.loads(content[8 : 8 + length]).items():
            if name != "__metadata__":
                begin, end = (8 + length + offset for offset in entry["data_offsets"])
                tensors[name] = (entry["dtype"], entry["shape"], content[begin:end])
    config = _configs(source.parent)[source.name]

    def others() -> dict[str, Any]:
        return copy.deepcopy(
            _configs(source.parent)[numbers.choice(sorted(_configs(source.parent)))]
        )

    return Checkpoint(numbers, copy.deepcopy(config), files, tensors, others)


@functools.cache
def _configs(checkpoints: Path) -> dict[str, dict[str, Any]]:
    paths = checkpoints.glob("*/config.json")
    return {path.parent.name: json.loads(path.read_text("utf-8")) for path in paths}


def _write_tensors(path: Path, tensors: dict[str, tuple[str, list[int], bytes]]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (kind, shape, data) in tensors.items():
        ends = [offset, offset + len(data)]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": ends}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.writelines(data for _, _, data in tensors.values())
