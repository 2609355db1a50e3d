"""What is known of a checkpoint when its architecture is: fields, class defaults, functions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from ggufkit.checks.consistency import MAX_BLOCKS
from ggufkit.conversion.architecture import expressions, rope
from ggufkit.conversion.architecture.architecture import Architecture
from ggufkit.conversion.checkpoint.folder import Checkpoint
from ggufkit.errors import CheckpointError, GGUFError, brief

# Fields that change what a model computes wherever they occur. An architecture reads such a field
# or says what it expects of it; where it does neither, a value is an error and not lost in silence.
CHANGING: Final = (
    "alibi", "alibi_bias_max", "attention_multiplier", "attn_logit_softcapping", "clip_qkv",
    "embedding_multiplier", "final_logit_softcapping", "hidden_act", "hidden_activation",
    "kv_lora_rank", "layer_types", "logit_scale", "logits_scaling", "moe_intermediate_size",
    "n_routed_experts", "no_rope_layers", "num_experts", "num_local_experts",
    "partial_rotary_factor", "query_pre_attn_scalar", "residual_multiplier", "rope_scaling",
    "rope_theta", "rotary_pct", "scale_depth", "scale_emb", "sliding_window", "use_qk_norm",
    "use_parallel_residual",
)  # fmt: skip
# Any other field that is called like this may change it too. It is named where nothing reads it and
# it says something, unless it is of training, or the tensors or other fields tell the same.
COMPUTING: Final = re.compile(
    r"act(_|$|ivation)|alibi|attention|attn|clip|conv|expert|gat(e|ed|ing)|head|interleave|logit|mlp"
    r"|moe|multipl|norm|parallel|pattern|position|rank|residual|rope|rotary|router|scal|top_?k|window"
)
TRAINING: Final = re.compile(
    r"aux|dropout|flash|fp32|grad|implementation|init|jitter|loss|pdrop|^rescale"
)
TOLD_OTHERWISE: Final = re.compile(
    r"bias|^classifier|^summary_|^_?sliding_window_pattern$|^max_window_layers$|^dense_act_fn$"
    r"|^(max_position_embeddings|n_positions|num_attention_heads|num_key_value_heads|num_heads)$"
    r"|^(is_gated_act|num_ln_in_parallel_attn|parallel_attn|qk_head_dim|qk_layernorm|rms_norm)$"
    r"|^(rope_interleave|scale_attn_weights|sliding_window_size|time_step_rank|topk_method)$"
)
IGNORED: Final = "ignored"  # how `expects` says that llama.cpp computes without a field
_GATING: Final = {"softmax": 1, "sigmoid": 2, "sqrtsoftplus": 4}  # llama.cpp's gating functions
_POOLING_FIELDS: Final = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
}
_POOLING: Final = {"mean": 1, "cls": 2, "lasttoken": 3}  # llama.h's llama_pooling_type


class ConfigFacts:
    """The fields of a configuration, defaults of its class included, and the functions on them."""

    def __init__(self, checkpoint: Checkpoint, architecture: Architecture) -> None:
        """Lay defaults under the configuration; CheckpointError where it contradicts itself."""
        self.checkpoint = checkpoint
        self.architecture = architecture
        self.fields = merged(checkpoint.config, architecture.config)
        self.read: set[str] = {"rope_parameters"}
        self.functions: dict[str, Callable[..., Any]] = {
            "adjusted_size": _adjusted_size,
            "alibi_bias": lambda alibi, most: most if alibi else 0.0,
            "bool": bool,
            "by_layer": _by_layer,
            "ceil_div": lambda number, by: -(-number // by),
            "equals": lambda value, other: [False, True][value == other],
            "float": _as_float,
            "gating": _gating,
            "int": int,
            "max": max,
            "min": min,
            "labels": _labels,
            "long_rope_attention": rope.long_rope_attention,
            "nonzero": lambda number: number or None,
            "only_false": lambda value: None if value else False,
            "only_true": lambda value: value or None,
            "pooling": self._pooling,
            "each": lambda layers, value: [value for _ in _layers(layers)],
            "pattern": lambda layers, period: [(i + 1) % period != 0 for i in _layers(layers)],
            "sliding": lambda types: [kind == "sliding_attention" for kind in types],
            "pooling_mode": _pooling_mode,
            "trained_positions": _trained_positions,
            "unless": lambda value, other, then: None if value == other else then,
            "vocabulary_size": self._vocabulary_size,
            "with_": lambda _, value: value,
        }
        self._rope: dict[str, Any] | None = None
        self._lay_defaults()

    def _lay_defaults(self) -> None:
        model_type = str(self.fields.get("model_type", ""))
        table = {
            **self.architecture.defaults,
            **self.architecture.defaults_of.get(model_type, {}),
        }
        for name, value in table.items():
            if not isinstance(value, str):
                self.fields.setdefault(name, value)
            elif self.fields.get(name) is None:
                self.fields[name] = self.value(value)

    def lookup(self, name: str) -> Any:  # noqa: ANN401 (as JSON is)
        """Return a field of the configuration, None where it is absent or null."""
        if name == "rope":
            if self._rope is None:
                self._rope = rope.facts(self.fields)
                self.read.update(rope.FIELDS)
            return self._rope
        self.read.add(name)
        return self.fields.get(name)

    def value(self, expression: Any) -> Any:  # noqa: ANN401 (as TOML is)
        """Return the value of an expression, or of a constant of an architecture file."""
        if not isinstance(expression, str):
            return expression
        return expressions.evaluate(expression, self.lookup, self.functions)

    def problems(self) -> Iterator[str]:
        """Yield what the configuration lacks, and what llama.cpp would not compute as it says."""
        for text in self.architecture.required:
            if self._quietly(text) is None:
                yield f"config.json lacks {text}"
        for name, allowed in self.architecture.expects.items():
            value = self._quietly(name)
            values = allowed if isinstance(allowed, list) else [self._quietly(allowed)]
            if value is not None and allowed != IGNORED and value not in values:
                told = " or ".join(repr(each) for each in values if each is not None) or "nothing"
                yield f"{name} is {brief(value)}, and llama.cpp computes with {told}"
        for name in self._unread():
            yield (
                f"{name} is {brief(self.fields[name])}, which the architecture "
                f"{self.architecture.name} has no place for"
            )

    def unread(self) -> list[str]:
        """Return which fields nothing read although by their names they may change the model."""
        told = self.read | self.architecture.expects.keys()
        return [
            name
            for name, value in merged(self.checkpoint.config, self.architecture.config).items()
            if COMPUTING.search(name)
            and not TRAINING.search(name)
            and not TOLD_OTHERWISE.search(name)
            and name not in told
            and (value is True or value not in (None, False, 0, 1, "", [], {}))
        ]

    def _quietly(self, text: str) -> Any:  # noqa: ANN401
        """Return a value, None where it cannot be computed: that is told where it is used."""
        try:
            return self.value(text)
        except GGUFError:
            return None

    def _unread(self) -> list[str]:
        told = self.read | self.architecture.expects.keys()
        return [n for n in CHANGING if n not in told and self.fields.get(n) not in (None, False)]

    def _vocabulary_size(self) -> int | None:
        """Return how many tokens the tokenizer has, which may be fewer than the embedding."""
        if self.checkpoint.path("tokenizer.model"):
            size: int | None = self.lookup("vocab_size")
            return size
        tokenizer = self.checkpoint.json("tokenizer.json") or {}
        vocabulary = _at(tokenizer, "model", "vocab")
        return len(vocabulary) + len(tokenizer.get("added_tokens") or ()) if vocabulary else None

    def _pooling(self) -> int | None:
        """Return how sentence-transformers pools, None where no module says it."""
        text = self.checkpoint.text("modules.json")
        modules = [] if text is None else _parsed(text)
        homes = [_at(m, "path") for m in modules if str(_at(m, "type")).endswith("Pooling")]
        if not homes:
            return None
        pooling = self.checkpoint.json(f"{homes[0]}/config.json") or {}
        said = [mode for field, mode in _POOLING_FIELDS.items() if pooling.get(field)]
        mode = said[0] if said else pooling.get("pooling_mode")
        if mode not in _POOLING:
            raise CheckpointError("pooling is none of mean, cls and last token")
        return _POOLING[mode]


def _at(value: Any, *path: str) -> Any:  # noqa: ANN401 (as JSON is)
    """Return what lies at a path of objects, None where there is nothing."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _parsed(text: str) -> list[Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"modules.json is no JSON: {error}") from None
    return found if isinstance(found, list) else []


def merged(config: Mapping[str, Any], inner: str) -> dict[str, Any]:
    """Return a configuration with the one of its text model laid over it."""
    text = config.get(inner)
    return {**config, **text} if isinstance(text, Mapping) else dict(config)


def _as_float(value: Any) -> np.generic:  # noqa: ANN401
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{brief(value)} is no number")
    with np.errstate(over="ignore"):
        single: np.generic = np.float32(value)
    return single


def _gating(name: Any) -> int:  # noqa: ANN401
    if name not in _GATING:
        raise CheckpointError(f"experts are chosen by {brief(name)}, which llama.cpp cannot")
    return _GATING[name]


def _labels(names: Any) -> list[str] | None:  # noqa: ANN401
    """Return a classifier's labels by number, None where they are those of no classifier."""
    if not isinstance(names, Mapping):
        raise CheckpointError(f"id2label is {brief(names)}, and no object")
    by_number = sorted(names.items(), key=lambda item: int(item[0]))
    labels = [str(label) for _, label in by_number]
    dummies = labels[:1] == ["LABEL_0"] and len(labels) == 2  # noqa: PLR2004 (transformers' own)
    return None if dummies or not labels else labels


def _by_layer(types: Any, kind: str, there: int, elsewhere: int) -> list[int]:  # noqa: ANN401
    """Return one number for the layers of a kind and another for the rest."""
    if not isinstance(types, list):
        raise CheckpointError(f"layer_types is {brief(types)}, and no list")
    return [there if each == kind else elsewhere for each in types]


def _adjusted_size(size: int, adjust: bool, factor: float, multiple: int) -> int:  # noqa: FBT001
    """Return the size of a feed-forward as LFM2 makes it: two thirds, scaled, rounded up."""
    if not adjust:
        return size
    return multiple * -(-int(factor * int(2 * size / 3)) // multiple)


def _trained_positions(positions: int, trained: int) -> int:
    """Return for how many positions Nomic's models were trained, which they say in a code."""
    known = {(8192, 2048): 2048, (2048, 2048): 512}
    if (positions, trained) not in known:
        raise CheckpointError(f"n_positions {positions} with max_trained_positions {trained}")
    return known[positions, trained]


def _layers(count: int) -> range:
    """Return the numbers of layers, as many as llama.cpp can compute."""
    if count > MAX_BLOCKS:
        raise CheckpointError(f"there are {count:,} layers, and llama.cpp takes {MAX_BLOCKS}")
    return range(count)


def _pooling_mode(name: Any) -> int:  # noqa: ANN401
    if name not in ("cls", "mean"):
        raise CheckpointError(f"a classifier pools by {brief(name)}, not by cls or mean")
    return _POOLING[name]
