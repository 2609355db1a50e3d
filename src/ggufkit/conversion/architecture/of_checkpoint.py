"""Functions of architecture files that read the files and tensors of a checkpoint."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from ggufkit.conversion.architecture.layer_lists import layers
from ggufkit.conversion.checkpoint.folder import Checkpoint
from ggufkit.conversion.tensors.moves import stack
from ggufkit.models.model import Tensor

_SLOPES: Final = "transformer.relative_pe.slopes"  # of Jais, one for each head
# The layers of the text model, not of an encoder in the same checkpoint.
LAYER: Final = re.compile(r"(?:model\.)?(?:language_model\.)?(?:model\.)?layers\.(\d+)\.")


class Configuration(Protocol):
    """The part of a configuration that functions may use."""

    checkpoint: Checkpoint

    def lookup(self, name: str) -> Any:  # noqa: ANN401 (as JSON is)
        """Return a field, None if it is absent or null."""


def _vocabulary(facts: Configuration) -> Any:  # noqa: ANN401 (as JSON is)
    """Return the tokens in tokenizer.json without the added ones; None if there are none."""
    return _vocabulary_in(facts.checkpoint.json("tokenizer.json") or {})


def _vocabulary_in(rules: Mapping[str, Any]) -> Any:  # noqa: ANN401 (as JSON is)
    model = rules.get("model")
    return model.get("vocab") if isinstance(model, Mapping) else None


def word_id(facts: Configuration, text: str) -> int | None:
    """Return the id of a token, in the vocabulary or added; None if it is in neither."""
    vocabulary = _vocabulary(facts)
    number = vocabulary.get(text) if isinstance(vocabulary, Mapping) else None
    return number if isinstance(number, int) else token_id(facts, text)


def token_id(facts: Configuration, text: str) -> int | None:
    """Return the id of an added token, None if the tokenizer does not have it."""
    decoder = (facts.checkpoint.json("tokenizer_config.json") or {}).get("added_tokens_decoder")
    entries = list(decoder.items()) if isinstance(decoder, Mapping) else []
    added = (facts.checkpoint.json("tokenizer.json") or {}).get("added_tokens")
    for token in added if isinstance(added, list) else ():
        entries.append((token.get("id") if isinstance(token, Mapping) else None, token))
    numbered = (number for number, token in entries
             if isinstance(token, Mapping) and token.get("content") == text)  # fmt: skip
    special = (facts.checkpoint.json("tekken.json") or {}).get("special_tokens") or []
    numbers = (*numbered, *(token["rank"] for token in special if token["token_str"] == text))
    return next((int(number) for number in numbers if number is not None), None)


def numbers(facts: Configuration, template: str) -> list[float] | None:
    """Return the numbers of tensors with one element, one for each layer."""
    tensors = facts.checkpoint.tensors
    names = [template.replace("{i}", str(i)) for i in layers(facts.lookup("block_count") or 0)]
    scalars = [tensors[name] for name in names if name in tensors and tensors[name].elements == 1]
    return [float(scalar.numpy().reshape(-1)[0]) for scalar in scalars] or None


def integers(facts: Configuration, name: str) -> npt.NDArray[np.uint64] | None:
    """Return the numbers of an integer tensor whose name ends with `name`, None if missing."""
    tensors = facts.checkpoint.tensors.values()
    tensor = next((tensor for tensor in tensors if tensor.name.endswith(name)), None)
    return None if tensor is None else tensor.numpy().astype(np.uint64)


def zero_rows(facts: Configuration, name: str) -> list[int] | None:
    """Return the ids beyond the tokenizer's own vocabulary whose embeddings are zero."""
    vocabulary = _vocabulary(facts)
    embeddings = facts.checkpoint.tensors.get(name)
    if not vocabulary or embeddings is None:
        return None
    beyond = embeddings[len(vocabulary) :]
    rows = np.flatnonzero(~np.any(beyond.numpy(), axis=1)) if beyond.elements else ()
    return [len(vocabulary) + int(row) for row in rows]


def bias_of_slopes(facts: Configuration, heads: int) -> int | None:
    """Return the largest bias of alibi from the slope of Jais's first head, None without slopes."""
    slopes = facts.checkpoint.tensors.get(_SLOPES)
    if slopes is None or heads < 1:
        return None
    first = float(slopes.numpy().reshape(-1)[0])
    return -round(math.log2(first) * float(2 ** math.floor(math.log2(heads))))


def vocabulary_size(facts: Configuration) -> int | None:
    """Return the number of tokens in the tokenizer; the embedding may have more rows."""
    if facts.checkpoint.path("tokenizer.model"):
        size: int | None = facts.lookup("vocab_size")
        return size
    rules = facts.checkpoint.json("tokenizer.json") or {}  # tens of megabytes: parse it once
    vocabulary = _vocabulary_in(rules)
    return len(vocabulary) + len(rules.get("added_tokens") or ()) if vocabulary else None


def layers_named(facts: Configuration, prefix: str) -> int | None:
    """Return the number of layers whose tensors begin with `prefix`; None without any tensors."""
    names = facts.checkpoint.tensors
    ends = (name.removeprefix("model.").removeprefix(prefix) for name in names if prefix in name)
    counts = [int(end.split(".")[0]) + 1 for end in ends if end.split(".")[0].isdecimal()]
    return max(counts, default=0) if names else None


def tensor(facts: Configuration, name: str) -> Tensor | None:
    """Return a tensor of the checkpoint, or the tensors of all `{x}` stacked; None if missing."""
    tensors = facts.checkpoint.tensors
    if "{x}" not in name:
        return tensors.get(name)
    names = itertools.takewhile(
        tensors.__contains__, (name.replace("{x}", str(number)) for number in itertools.count())
    )
    parts = [tensors[part] for part in names]
    return stack(name, parts) if parts else None


def all_layers(facts: Configuration, layers: int, predicting: int) -> int:
    """Return the number of layers, with as many predicting ones as have tensors."""
    most = layers + predicting
    matches = (LAYER.match(name) for name in facts.checkpoint.tensors)
    numbers = [int(match[1]) + 1 for match in matches if match]
    return min(most, max(layers, *numbers)) if numbers else most


def lengths(facts: Configuration, pattern: str, axis: int) -> list[int] | None:
    """Return an axis of the checkpoint's tensors of a pattern, by number, None without any."""
    expression = re.escape(pattern).replace(r"\{i\}", r"(\d+)").replace(r"\*", ".*")
    tensors = facts.checkpoint.tensors.values()
    matches = [(re.fullmatch(expression, tensor.name), tensor) for tensor in tensors]
    lengths = {
        int(match[1]) if match.re.groups else 0: tensor.shape[axis]
        for match, tensor in matches
        if match and axis < len(tensor.shape)
    }
    return [lengths[number] for number in sorted(lengths)] or None
