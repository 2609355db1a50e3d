"""How much the predictions of a model suffer from the error of each of its tensors.

By the kind of tensor, from a table; or as measured on one model, from a file.
"""

from __future__ import annotations

import itertools
import json
import operator
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from ggufkit.errors import MISFORMED, FormatError, MissingTensorError
from ggufkit.models.layers import tensor_names
from ggufkit.system.descriptors import AnyPath, as_path
from ggufkit.system.readers_limit import NO_LIMIT, ReadersLimit
from ggufkit.system.staging import write_whole
from ggufkit.system.text_file import Most, read_small
from ggufkit.validation.typed_values import (
    finite_number,
    integer,
    json_list,
    json_object,
    short_text,
)

MOST: Final = 1e12  # of a figure, and of a divergence by its error: no measurement comes near
FORMAT: Final = "ggufkit sensitivity 1"  # of the file
# The loss of a tensor by its relative error.
Losses = Mapping[str, Callable[[float], float]]

# The loss in a model's predictions from the same relative error in all tensors of a kind together;
# the first part that occurs in a name counts. Measured: benchmarks/results/target-sizes.md.
SENSITIVITY: Final = (
    ("attn_qkv", 8.0),
    ("attn_q", 1.8),
    ("attn_kv", 4.1),
    ("attn_k", 2.1),
    ("attn_v", 4.1),
    ("attn_output", 2.2),
    ("ffn_gate", 2.9),
    ("ffn_up", 4.7),
    ("ffn_down", 7.7),
    ("token_embd", 0.6),
    ("output", 4.8),
    ("", 3.5),
)
EMBEDDINGS: Final = "token_embd.weight"
OUTPUT: Final = "output.weight"


def sensitivities(names: Collection[str]) -> dict[str, float]:
    """Return the sensitivity of predictions to the relative error of each tensor.

    Tensors of a kind share its sensitivity; tied embeddings add the output's.
    """
    members = Counter(map(kind_of, names))
    weights = {name: _of_kind(name) / members[kind_of(name)] for name in names}
    if EMBEDDINGS in weights and OUTPUT not in weights:
        weights[EMBEDDINGS] += _of_kind(OUTPUT)
    return weights


def losses_by_kind(names: Collection[str]) -> Losses:
    """Return the loss of each tensor by its relative error, from the table of kinds."""
    return {name: partial(operator.mul, weight) for name, weight in sensitivities(names).items()}


def kind_of(name: str) -> str:
    """Return what the names of all tensors of a kind have in common."""
    return re.sub(r"\d+", "", name)


def _of_kind(name: str) -> float:
    return next(value for part, value in SENSITIVITY if part in name)


@dataclass(frozen=True)
class Level:
    """A group as one type: the mean relative error of its tensors, the bits, and the divergence.

    `standard_error` is the standard error of the divergence, as `evaluate` computes it.
    """

    type: str
    bits: float
    error: float
    divergence: float
    standard_error: float = 0.0


@dataclass(frozen=True)
class Group:
    """Tensors that were quantized together, and the levels at which they were.

    It has no levels if llama.cpp computes nothing with its tensors.
    """

    name: str
    tensors: tuple[str, ...]
    levels: tuple[Level, ...]

    def loss(self, error: float) -> float:
        """Return the divergence for a relative error of one tensor: its part of the group's.

        It is interpolated between the measured levels, and extrapolated from zero beyond the last.
        More error never loses less.
        """
        errors = [0.0, *(level.error for level in self.levels)]
        losses = [0.0, *np.maximum.accumulate([level.divergence for level in self.levels])]
        if error <= errors[-1] or errors[-1] == 0:
            whole = float(np.interp(error, errors, losses))
        else:
            whole = losses[-1] * error / errors[-1]
        return whole / len(self.tensors)

    @property
    def disagreements(self) -> list[tuple[Level, Level]]:
        """Pairs of levels in which the larger type does not diverge less."""
        ordered = sorted(self.levels, key=operator.attrgetter("bits"))
        pairs = itertools.pairwise(ordered)
        return [pair for pair in pairs if pair[1].divergence >= pair[0].divergence > 0]


@dataclass(frozen=True)
class Sensitivity:
    """The result of `measure_sensitivity`, which explains the terms.

    `context` is in tokens; `predictions` is the number of tokens that were predicted; `limit` says
    who may read outputs made from the model, `path` is the file that was read.
    """

    groups: tuple[Group, ...]
    context: int
    predictions: int
    limit: ReadersLimit = field(default=NO_LIMIT, compare=False, repr=False)
    path: Path | None = field(default=None, compare=False)

    @classmethod
    def open(cls, path: AnyPath) -> Sensitivity:
        """Read a file; FormatError unless it is one of `ggufkit sensitivity`."""
        location = as_path(path)
        raw = read_small(location, Most.VALUES)
        try:
            document = json_object(json.loads(raw), "the file")
            if document["format"] != FORMAT:
                raise ValueError(document["format"])
            groups = tuple(map(_group, json_list(document["groups"], "groups")))
            context, predictions = (
                integer(document[key], key) for key in ("context", "predictions")
            )
            return replace(Sensitivity(groups, context, predictions), path=location)
        except MISFORMED:
            raise FormatError(
                "the file has no sensitivities",
                remedy="Name a file that `ggufkit sensitivity` wrote",
                path=str(location),
            ) from None

    def to_json(self) -> str:
        """Return what `open` reads."""
        plain = {
            "format": FORMAT,
            "context": self.context,
            "predictions": self.predictions,
            "groups": [asdict(group) for group in self.groups],
        }
        return json.dumps(plain, indent=1) + "\n"

    def save(self, path: AnyPath, *, clobber: bool = True) -> Path:
        """Write a file, whole or not at all; OutputError for an existing one without `clobber`."""
        target, text = as_path(path), self.to_json().encode()
        write_whole(target, text, limit=self.limit, clobber=clobber)
        return target

    def losses(self, names: Collection[str]) -> Losses:
        """Return the loss of each tensor by its relative error.

        Tensors that llama.cpp computes nothing with get the loss of their kind, on the scale of the
        others. Raises MissingTensorError for tensors that were not there when this was measured.
        """
        group_of = {name: group for group in self.groups for name in group.tensors}
        missing = [name for name in names if name not in group_of]
        if missing:
            place = f"{self.path}: " if self.path else ""
            raise MissingTensorError(
                f"{place}the sensitivities are of another model: they lack {tensor_names(missing)}",
                remedy="Measure this model: `ggufkit sensitivity`",
            )
        by_kind = sensitivities(names)
        measured = {n: g.loss(1.0) for n, g in group_of.items() if n in by_kind and g.levels}
        scale = sum(measured.values()) / (sum(by_kind[name] for name in measured) or 1)
        return {
            name: group_of[name].loss
            if name in measured
            else partial(operator.mul, scale * by_kind[name])
            for name in names
        }


def _group(value: object) -> Group:
    row = json_object(value, "a group")
    tensors = tuple(short_text(name, "a tensor") for name in json_list(row["tensors"], "tensors"))
    if not tensors:
        raise ValueError("a group without tensors")
    levels = map(_level, json_list(row["levels"], "levels"))
    name = short_text(row["name"], "name")
    return Group(name, tensors, tuple(sorted(levels, key=operator.attrgetter("error"))))


def _level(value: object) -> Level:
    row = {"standard_error": 0.0, **json_object(value, "a level")}  # which older files lack
    bits, error, divergence, standard_error = (
        finite_number(row[key], key, least=0, most=MOST)
        for key in ("bits", "error", "divergence", "standard_error")
    )
    if divergence > MOST * error > 0:
        raise ValueError(divergence)
    return Level(short_text(row["type"], "type"), bits, error, divergence, standard_error)
