"""Exports a model as a Hugging Face checkpoint: the inverse of `convert`."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from ggufkit.conversion.architecture.architecture import Architecture, full_key
from ggufkit.conversion.architecture.config import ConfigFacts, parameters
from ggufkit.conversion.architecture.config_json import Draft, candidates, entries, rebuilt
from ggufkit.conversion.architecture.functions import MODEL, bound
from ggufkit.conversion.card.front_matter import model_card
from ggufkit.conversion.checkpoint.folder import EXTRAS
from ggufkit.conversion.checkpoint.fp4 import MXFP4, mxfp4_experts, quantization_config, split_mxfp4
from ggufkit.conversion.checkpoint.safetensors import as_json, lay_folder
from ggufkit.conversion.choices import Choices
from ggufkit.conversion.convert import converted
from ggufkit.conversion.diffusion.rename import with_diffusers_names, with_original_shapes
from ggufkit.conversion.ggufkit_json import json_content
from ggufkit.conversion.invert_mapping import invert_mapping
from ggufkit.conversion.map_tensors import with_fields
from ggufkit.conversion.tokenizer.export import tokenizer_files, tokenizer_texts
from ggufkit.conversion.tokenizer.keys import VocabularyKeys
from ggufkit.diffusion.architecture import is_diffusion
from ggufkit.errors import (
    MISFORMED,
    CheckpointError,
    GGUFError,
    TensorTypeError,
    ValueTypeError,
    brief,
    first_names,
)
from ggufkit.format.coerce import plain
from ggufkit.format.types import tensor_type
from ggufkit.models.any_model import takes_model
from ggufkit.models.model import Model, Tensor, Tensors
from ggufkit.models.sources import from_array, retyped
from ggufkit.output.execute import Order, execute_all
from ggufkit.output.layout import Layout
from ggufkit.system.cancellation import shield
from ggufkit.system.descriptors import AnyPath, as_path, sync_folder
from ggufkit.system.folders import HiddenFolder
from ggufkit.system.threads import Notify, Progress

AUTO: Final = "auto"
PUBLISHED: Final = "publisher"
DIFFUSERS: Final = "diffusers"
DIFFUSERS_STEM: Final = "diffusion_pytorch_model"  # of files of tensors
DTYPES: Final = {"bf16": "BF16", "f16": "F16", "f32": "F32"}
_WORDS: Final = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
_FLOATS: Final = tuple(_WORDS)
_HEAD: Final = "cls.output.weight"
_RETYPED: Final = ("general.file_type",)  # describes a quantization that the export no longer has


@dataclass
class _Attempt:
    """The result of exporting a model by one architecture."""

    model: Model
    draft: Draft  # with its tensors
    problems: list[str]
    lost: list[str]

    @property
    def faults(self) -> tuple[int, int]:
        return len(self.problems), len(self.lost)


@takes_model
def export(  # noqa: PLR0913 (one argument for each choice of a user)
    model: Model,
    folder: AnyPath,
    *,
    dtype: str = AUTO,
    shard_size: int | None = None,
    names: str = PUBLISHED,
    arch_path: Sequence[Path] = (),
    threads: int | None = None,
    progress: Progress | None = None,
    say: Notify | None = None,
) -> list[Path]:
    """Write `model` as a checkpoint into `folder`, which must be new or empty; return its files.

    `dtype` (auto, bf16, f16, f32) is the type that quantized tensors get; all but auto also apply
    to all other matrices. `shard_size` limits the bytes of a safetensors file. `arch_path`,
    `threads` and `progress` are as for `convert` and `write`. `say` is called with each note for
    the user. An image or video model becomes safetensors files alone, with the names
    of its "publisher" or of "diffusers".

    Raises CheckpointError before anything is written, with `problems` that list everything that
    cannot be exported, and OutputError if the folder is not empty. The folder appears only when
    it is complete.
    """
    target = as_path(folder)
    plan = plan_export(
        model, dtype=dtype, shard_size=shard_size, names=names, arch_path=arch_path, say=say
    )
    return write_export(plan, target, threads=threads, progress=progress)


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except GGUFError:
        raise
    except UnicodeEncodeError:
        raise CheckpointError(
            "the model contains text that is not UTF-8, which a checkpoint requires",
            remedy="`ggufkit check` shows which key it is, and `ggufkit edit` changes it",
        ) from None
    except (*MISFORMED, struct.error, MemoryError) as error:
        what = brief(f"{error.__class__.__name__}: {error}")
        raise CheckpointError(
            f"the model cannot be exported: a key or a tensor is of another kind than it must be "
            f"({what})",
            remedy="`ggufkit check` lists the keys and tensors that are wrong",
        ) from error


@_explained()
def plan_export(  # noqa: PLR0913 (the arguments of `export`)
    model: Model,
    *,
    dtype: str = AUTO,
    shard_size: int | None = None,
    names: str = PUBLISHED,
    arch_path: Sequence[Path] = (),
    say: Notify | None = None,
) -> Layout:
    """Return the plan of all files of the checkpoint; `export` documents the arguments."""
    note = say or (lambda _: None)
    model = _without_copied_head(model, note)
    tensors = model.tensors.values()
    is_image_model = is_diffusion(model.architecture, model.tensors)
    if names != PUBLISHED and not (names == DIFFUSERS and is_image_model):
        raise ValueTypeError(
            f"a model of this kind cannot be exported with the names {brief(names)}",
            remedy=f"Use {PUBLISHED}, or {DIFFUSERS} for an image or video model",
        )
    if is_image_model:
        plainer = _plain(tensors, _kind(tensors, dtype), all_of_them=dtype != AUTO)
        plain_model = model.replace(tensors=plainer)
        renamed = with_diffusers_names if names == DIFFUSERS else with_original_shapes
        stem = DIFFUSERS_STEM if names == DIFFUSERS else "model"
        layout = lay_folder([renamed(plain_model)], {}, shard_size, stem)
        return replace(layout, limit=model.readers_limit)
    packed = mxfp4_experts(tensors) if dtype == AUTO else frozenset()
    kind = _kind([tensor for tensor in tensors if tensor.name not in packed], dtype)

    def prepared(architecture: Architecture) -> Model:
        packed_names = packed if architecture.mxfp4 else frozenset()
        plainer = _plain(tensors, kind, packed_names, all_of_them=dtype != AUTO)
        return model.replace(tensors=plainer)

    texts = {**_tokenizer(model, note), "README.md": model_card(model.metadata)}
    best = _best(model, prepared, texts, arch_path)
    config = {**best.draft.config, "torch_dtype": _WORDS[kind]}
    files = {"config.json": as_json(config), **best.draft.contents}
    draft = replace(best.draft, config=config, contents={**files, EXTRAS: b""})
    is_decoded = any(
        t.type.is_quantized and best.model.tensors[t.name].type != t.type for t in tensors
    )
    may_differ = _RETYPED if is_decoded else ()
    files[EXTRAS] = as_json(_extras(best.model, draft, kind, arch_path, may_differ, note))
    if best.lost:
        keys = first_names(best.lost)
        note(f"config.json cannot store these keys exactly, only {EXTRAS} can: {keys}")
    layout = lay_folder([[*draft.tensors.values()]], files, shard_size)
    return replace(layout, limit=model.readers_limit)


@_explained()
def checkpoint_in_memory(
    model: Model,
    dtype: str,
    *,
    packed: Container[str] = (),
    arch_path: Sequence[Path] = (),
    say: Notify | None = None,
) -> Draft:
    """Return the checkpoint of `model`: its configuration, tensors, and small files that are text.

    Quantized tensors get `dtype` (bf16, f16, f32), except those called in `packed`, and all others
    keep theirs. Nothing is read from
    tensors before the result is. Raises CheckpointError as `export` does.
    """
    note = say or (lambda _: None)
    model = _without_copied_head(model, note)
    kind = _kind(model.tensors.values(), dtype)
    plainer = model.replace(tensors=_plain(model.tensors.values(), kind, packed, all_of_them=False))
    texts = {}
    if _has_vocabulary(model):
        written = tokenizer_texts(VocabularyKeys(model.metadata), note)
        texts = {name: text.encode() for name, text in written.items()}
    return _best(plainer, lambda _: plainer, texts, arch_path).draft


def _without_copied_head(model: Model, say: Notify) -> Model:
    """Return the model without a head that copies rows of its output matrix, as rerankers have."""
    keys = [f"{model.architecture}.{key}" for key in ("classifier.output_labels", "pooling_type")]
    head, labels = model.tensors.get(_HEAD), plain(model.metadata.get(keys[0], ""))
    output = model.tensors.get("output.weight", model.tensors.get("token_embd.weight"))
    tokens = plain(model.metadata.get("tokenizer.ggml.tokens", ""))
    if head is None or output is None or not {*labels} <= {*tokens}:
        return model
    rows = [output[row : row + 1].numpy() for row in map(tokens.index, labels)]
    if (
        head.shape != (len(rows), *output.shape[1:])
        or not (np.concatenate(rows) == head.numpy()).all()
    ):
        return model
    say(
        f"left out: {_HEAD}, which copies the rows of {output.name} for {', '.join(labels)}. In a "
        "folder whose name contains qwen3-reranker, `ggufkit convert` makes it again"
    )
    metadata = model.metadata.without(*keys, missing_ok=True)
    return model.replace(
        metadata=metadata, tensors=[t for t in model.tensors.values() if t is not head]
    )


def _extras(  # noqa: PLR0913 (the arguments of `export`)
    model: Model,
    draft: Draft,
    kind: str,
    arch_path: Sequence[Path],
    may_differ: Sequence[str],
    say: Notify,
) -> dict[str, object]:
    """Return the content of ggufkit.json: what converting the checkpoint would not give."""
    try:
        back = converted(draft, Choices(kind.lower(), arch_path=arch_path))
    except GGUFError as error:
        why = "; ".join(getattr(error, "problems", ())) or error.message
        say(
            f"ggufkit convert will refuse this folder: {why}"
            if model.tensors
            else "the file has no tensors: the folder holds its tokenizer and keys, and "
            "`ggufkit convert` cannot make a model of it"
        )
        return json_content(model, model)  # no differences are known
    return json_content(model, back, may_differ)


def _tokenizer(model: Model, say: Notify) -> dict[str, bytes]:
    if _has_vocabulary(model):
        return tokenizer_files(model.metadata, say)
    say("the file has no vocabulary, so no tokenizer files are written")
    return {}


def _has_vocabulary(model: Model) -> bool:
    return str(model.metadata.get("tokenizer.ggml.model", "none")) != "none"


def write_export(
    plan: Layout, target: Path, *, threads: int | None = None, progress: Progress | None = None
) -> list[Path]:
    """Write a planned checkpoint; return the paths of its files."""
    with shield(), HiddenFolder(target, plan.limit) as hidden:
        orders = []
        for place in sorted({Path(file.name).parent for file in plan.files}):
            files = tuple(f for f in plan.files if Path(f.name).parent == place)
            (hidden.path / place).mkdir(exist_ok=True)
            local = tuple(replace(file, name=Path(file.name).name) for file in files)
            orders.append(Order(replace(plan, files=local), hidden.path / place))
        execute_all(orders, threads=threads, progress=progress)
        sync_folder(hidden.path)
        hidden.publish()
    return [target / file.name for file in plan.files]


def _kind(tensors: Iterable[Tensor], dtype: str) -> str:
    """Return the type that quantized tensors get: for auto the type of the matrices, or BF16."""
    if dtype in DTYPES:
        return DTYPES[dtype]
    if dtype != AUTO:
        names = ", ".join((AUTO, *DTYPES))
        raise TensorTypeError(f"unknown dtype {dtype!r}", remedy=f"Use one of {names}")
    matrices = [t for t in tensors if len(t.shape) > 1]
    if any(tensor.type.is_quantized for tensor in matrices):
        return DTYPES["bf16"]
    kinds = [t.type.name for t in matrices if t.name.endswith("weight")]
    return next((k for k in kinds if k in ("BF16", "F16")), "F32")


def _plain(
    tensors: Iterable[Tensor], kind: str, packed: Container[str] = (), *, all_of_them: bool
) -> Iterator[Tensor]:
    for tensor in tensors:
        is_converted = all_of_them and len(tensor.shape) > 1 and tensor.type.name in _FLOATS
        if (tensor.type.is_quantized and tensor.name not in packed) or is_converted:
            yield retyped(tensor, tensor_type(kind))
        else:
            yield tensor


def _best(
    model: Model,
    plain_for: Callable[[Architecture], Model],
    texts: dict[str, bytes],
    arch_path: Sequence[Path],
) -> _Attempt:
    attempts: list[_Attempt] = []
    errors: list[GGUFError] = []
    for architecture in candidates(model, arch_path):
        try:
            attempts.append(_attempt(plain_for(architecture), architecture, texts))
        except GGUFError as error:
            errors.append(error)
            continue
        if attempts[-1].faults == (0, 0):
            break
    if not attempts:
        raise errors[0]
    best = min(attempts, key=lambda attempt: attempt.faults)
    if best.problems:
        raise CheckpointError("the model cannot be exported", best.problems)
    return best


def _attempt(model: Model, architecture: Architecture, texts: dict[str, bytes]) -> _Attempt:
    draft = rebuilt(model, architecture, texts)
    facts = ConfigFacts(draft, architecture)
    facts.functions.update(bound(MODEL, model))
    tensors, problems = invert_mapping(model.tensors, facts)
    tensors += _from_keys(model, facts)
    tensors.sort(key=lambda tensor: tensor.name)
    if architecture.mxfp4 and any(t.type == MXFP4 for t in model.tensors.values()):
        settings = quantization_config(architecture.mxfp4)
        draft = replace(draft, config={**draft.config, "quantization_config": settings})
        tensors = [*split_mxfp4(tensors, architecture.mxfp4)]
    draft = replace(draft, tensors=Tensors(tensors))
    number = model.metadata.get("general.file_type")
    facts.fields["file_type"] = None if number is None else plain(number)
    return _Attempt(model, draft, problems, list(_lost_keys(model, facts)))


def _from_keys(model: Model, facts: ConfigFacts) -> Iterator[Tensor]:
    """Yield tensors whose numbers a key holds: for each layer one number, or all of a tensor."""
    for pattern, text in facts.architecture.from_keys.items():
        key, _, kind = text.partition(" as ")
        values = model.metadata.get(full_key(facts.architecture, key))
        items = [] if values is None else plain(values)
        if kind == "integers" and items:
            yield from_array(with_fields(pattern, facts), np.array(items, np.int64))
            continue
        is_plain = kind == "number"
        for layer, number in enumerate(items if isinstance(items, list) else [items]):
            array = np.array(number if is_plain else [number], np.float32)
            yield from_array(pattern.replace("{i}", str(layer)), array)


def _lost_keys(model: Model, facts: ConfigFacts) -> Iterator[str]:
    architecture = facts.architecture
    tables = (parameters(facts, t)[0] for t in (architecture.early, architecture.metadata))
    fields = {key: value for table in tables for key, value in table.items()}
    written = {full_key(architecture, key) for key in entries(architecture)}
    inverted = {full_key(architecture, text.split()[0]) for text in architecture.from_keys.values()}
    for key in dict.fromkeys([*model.metadata, *fields]):
        if key in inverted:
            continue
        if key.startswith(f"{architecture.name}.") or key in written:
            before, after = model.metadata.get(key), fields.get(key)
            if before is None or after is None or plain(before) != plain(after):
                yield key
