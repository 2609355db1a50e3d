"""Reads the folder of an adapter that PEFT or MLX saved: its factors by the name of the matrix."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ggufkit.conversion.checkpoint.folder import (
    CheckpointFolder,
    TensorFiles,
    opened_file,
    tensors_in,
)
from ggufkit.conversion.tensors.moves import renamed, transpose
from ggufkit.conversion.tensors.operations import perform
from ggufkit.errors import AdapterError, GGUFError, ValueTypeError, brief, first_names
from ggufkit.lora.pairs import Pair, checked
from ggufkit.models.model import Tensor
from ggufkit.models.rows import AnyFile, closing_on_error
from ggufkit.system.descriptors import AnyPath, as_path
from ggufkit.system.threads import Notify
from ggufkit.validation.patterns import compile_untrusted, matches
from ggufkit.validation.typed_values import MAX_FLOAT32, finite_number, json_object

CONFIG: Final = "adapter_config.json"
MLX: Final = "adapters.safetensors"
FILES: Final = ("adapter_model.safetensors", "adapter_model.bin", MLX)
# The factor in a name, as PEFT (with or without the adapter's name), mergekit and MLX write it.
_FACTOR: Final = re.compile(
    r"(?P<stem>.+)\.(lora_(?P<peft>[AB])(\.\w+)??\.weight|lora_embedding_(?P<embedding>[AB])(\.\w+)?"
    r"|lora_(?P<mlx>[ab]))"
)
_OF_BASE: Final = ".base_layer.weight"  # the unchanged matrix itself
_NORMS: Final = ("_layernorm", ".norm")  # kept as they are, as llama.cpp's converter does
_STACKED: Final = ".switch_mlp."  # MLX stacks experts
AlphaPatterns = Sequence[tuple[re.Pattern[str], float]]


@dataclass(frozen=True)
class PeftAdapter:
    """An adapter's folder: pairs and plain tensors in llama.cpp's order, alpha and base model."""

    folder: Path
    config: Mapping[str, Any]
    items: Sequence[Tensor | Pair]
    alpha: float
    base: str | None  # a model id or a path on the machine that trained it
    file: AnyFile = field(repr=False)


def read_peft(folder: AnyPath, say: Notify, remote_files: TensorFiles) -> PeftAdapter:
    """Open the folder of an adapter; its tensors are lazy.

    `remote_files` are files of tensors that belong to it but are on a server, by name. Raises
    AdapterError, whose `problems` list everything wrong.
    """
    place = as_path(folder)
    if not place.is_dir():
        raise AdapterError(f"{place} is not a folder", remedy="Give the folder of an adapter")
    config = CheckpointFolder(place).json(CONFIG)
    if config is None:
        raise AdapterError(f"{place} has no {CONFIG}", remedy="Give the folder of an adapter")
    paths = {n: remote_files.get(n) or CheckpointFolder(place).path(n) for n in FILES}
    name = next((name for name, path in paths.items() if path), None)
    if name is None:
        raise AdapterError(f"{place} has none of {', '.join(FILES)}", remedy="Download them")
    file = opened_file(name, paths[name])
    with closing_on_error(file.close):
        tensors, broken = tensors_in(name, file)
        items, unmatched = _items(tensors, is_mlx=name == MLX)
        problems = [f"{name}: {problem}" for problem in broken]
        problems += [*_about_config(config), *unmatched]
        if problems:
            raise AdapterError(f"the adapter {place} cannot be converted", problems)
        try:
            alpha, items = scaled(config, items, say, is_mlx=name == MLX)
        except ValueTypeError as error:
            raise AdapterError(f"{place / CONFIG}: {error.message}", remedy=error.remedy) from None
    base = config.get("base_model_name_or_path") or config.get("model")
    return PeftAdapter(place, config, items, alpha, base if isinstance(base, str) else None, file)


def _about_config(config: Mapping[str, Any]) -> Iterator[str]:
    kind = config.get("peft_type", "LORA")
    if kind != "LORA":
        yield f"peft_type is {brief(kind)}: only LORA can be converted"
    if config.get("fine_tune_type", "lora") != "lora":
        yield f"fine_tune_type is {brief(config['fine_tune_type'])}: only lora can be converted"
    if config.get("use_dora"):
        yield "use_dora is true: llama.cpp cannot apply the magnitudes of DoRA"
    if config.get("invocation_string") and not config.get("alora_invocation_tokens"):
        yield "invocation_string has no alora_invocation_tokens: save the adapter with newer PEFT"


def _items(tensors: Sequence[Tensor], *, is_mlx: bool) -> tuple[list[Tensor | Pair], list[str]]:
    """Return plain tensors, then pairs in the order of their first factor; and the problems."""
    plain: list[Tensor | Pair] = []
    factors: dict[str, dict[str, Tensor]] = {}
    unmatched: list[str] = []
    for tensor in tensors:
        match = _FACTOR.fullmatch(tensor.name)
        name = tensor.name.replace("base_model.model.", "")
        if match is None:
            if any(part in tensor.name for part in _NORMS):
                plain.append(renamed(tensor, name))
            elif _OF_BASE not in tensor.name:
                unmatched.append(tensor.name)
            continue
        stem = match["stem"].replace("base_model.model.", "") + ".weight"
        letter = (match["peft"] or match["embedding"] or match["mlx"]).upper()
        is_turned = match["mlx"] is not None and not (is_mlx and _STACKED in tensor.name)
        factors.setdefault(stem, {})[letter] = transpose(tensor) if is_turned else tensor
    problems = []
    if unmatched:
        listed = first_names([brief(name) for name in unmatched])
        problems.append(
            f"{len(unmatched)} tensors are not factors of a matrix: {listed}; merge the adapter "
            "into its model in transformers, and convert the result"
        )
    for stem, roles in factors.items():
        if len(roles) < 2:  # noqa: PLR2004 (A and B)
            problems.append(f"{brief(stem)} has only the factor {next(iter(roles))}")
            continue
        try:
            plain += _experts(checked(stem, roles["A"], roles["B"]))
        except GGUFError as error:
            problems.append(error.message)
    return plain, problems


def _experts(pair: Pair) -> Iterator[Pair]:
    if _STACKED not in pair.name or len(pair.a.shape) < 3:  # noqa: PLR2004 (a stack)
        yield pair
        return
    for number in range(pair.a.shape[0]):
        a, b = (perform(part[number : number + 1], "squeeze", [0]) for part in (pair.a, pair.b))
        yield Pair(pair.name.replace(_STACKED, f".experts.{number}."), a, b)


def scaled(
    config: Mapping[str, Any], items: Sequence[Tensor | Pair], say: Notify, *, is_mlx: bool
) -> tuple[float, list[Tensor | Pair]]:
    """Return alpha, and the items with B scaled where a matrix has an alpha of its own."""
    if is_mlx:
        parameters = json_object(config.get("lora_parameters", config), "lora_parameters")
        alpha = _number(parameters, "scale") * _number(parameters, "rank")
        return finite_number(alpha, "scale times rank", most=MAX_FLOAT32), list(items)
    alpha = _number(config, "lora_alpha")
    table = json_object(config.get("alpha_pattern") or {}, "alpha_pattern")
    alphas = [finite_number(value, "a value of alpha_pattern") for value in table.values()]
    expressions = [compile_untrusted(rf"(^|\.)({key})$") for key in table]
    patterns = list(zip(expressions, alphas, strict=True))
    is_root = bool(config.get("use_rslora"))
    if not patterns and not is_root:
        return alpha, list(items)
    if alpha == 0:
        raise AdapterError(f"{CONFIG} has the number 0 as lora_alpha, which cannot be scaled")
    if is_root and config.get("r"):
        say(
            "use_rslora: alpha is written times the root of the rank, since llama.cpp divides by it"
        )
    scaled = [_with_own_scale(item, alpha, patterns, is_root=is_root) for item in items]
    return alpha, scaled


def _with_own_scale(
    item: Tensor | Pair, alpha: float, patterns: AlphaPatterns, *, is_root: bool
) -> Tensor | Pair:
    """Return a pair whose B compensates for llama.cpp's factor alpha / rank."""
    if isinstance(item, Tensor):
        return item
    module = item.name.removesuffix(".weight")
    own_alpha = next((a for expression, a in patterns if matches(expression, module)), alpha)
    factor = own_alpha / alpha * (math.sqrt(item.rank) if is_root else 1.0)
    finite_number(factor, "alpha_pattern divided by lora_alpha", most=MAX_FLOAT32)
    return item if factor == 1 else Pair(item.name, item.a, perform(item.b, "scale", [factor]))


def _number(config: Mapping[str, Any], key: str) -> float:
    if config.get(key) is None:
        raise AdapterError(f"{CONFIG} has no number {key}", remedy="Download the adapter again")
    return finite_number(config[key], key, most=MAX_FLOAT32)
