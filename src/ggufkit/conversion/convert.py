"""Converts a Hugging Face checkpoint to a model, as llama.cpp's converter does, but lazily."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import numpy as np

from ggufkit.conversion.architecture.architecture import Architecture, classes, find
from ggufkit.conversion.architecture.config import ConfigFacts
from ggufkit.conversion.architecture.generated import generate
from ggufkit.conversion.architecture.parameters import parameters
from ggufkit.conversion.card.describe import describe
from ggufkit.conversion.checkpoint.dequantize import Dequantized, decoded
from ggufkit.conversion.checkpoint.folder import (
    FORMS,
    MISTRAL_FORMS,
    PARAMS,
    Checkpoint,
    open_checkpoint,
    opened_config,
    shown_as,
)
from ggufkit.conversion.checkpoint.hub_folder import fetched
from ggufkit.conversion.choices import Choices
from ggufkit.conversion.dense_modules import with_dense_modules
from ggufkit.conversion.fuse import fused_experts, fused_qkv
from ggufkit.conversion.ggufkit_json import restored
from ggufkit.conversion.mask_embedding import with_mask_embedding
from ggufkit.conversion.place import in_file_order, place, with_fields
from ggufkit.conversion.prediction import drafting, only_prediction, without_prediction
from ggufkit.conversion.problems import about_layers, about_missing, about_shapes, loadable
from ggufkit.conversion.projector import projected
from ggufkit.conversion.tensors.storage_type import (
    AUTO,
    SOURCE,
    automatic,
    outtype_type,
    stored_each,
)
from ggufkit.conversion.tokenizer.kinds import vocabulary
from ggufkit.errors import (
    MAX_PROBLEM,
    MISFORMED,
    CheckpointError,
    GGUFError,
    brief,
    shortened,
)
from ggufkit.format.file_types import NUMBER_OF
from ggufkit.format.metadata import Metadata
from ggufkit.format.values import TypedValue
from ggufkit.models.hub.names import is_hub_name
from ggufkit.models.model import Model, Tensor, Tensors
from ggufkit.quantization.file_keys import QUANTIZATION_VERSION
from ggufkit.system.descriptors import AnyPath
from ggufkit.system.threads import Say

SHOWN: Final = 3  # names in a note
DEFAULTS: Final = Choices()
TARGET: Final = "target"  # of a draft model: the model whose tokens it drafts
ADAPTERS: Final = ("*.lora_A", "*.lora_B")  # for tasks: models of their own


def convert(  # noqa: PLR0913 (one argument for each choice of a user)
    folder: AnyPath,
    *,
    outtype: str = AUTO,
    name: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    pre: str | None = None,
    arch_path: Sequence[Path] = (),
    follow_links: bool = False,
    mmproj: bool = False,
    vocab_only: bool = False,
    mtp: bool | None = None,
    fuse_qkv: bool = False,
    fuse_gate_up_exps: bool = False,
    fp8_as_q8: bool = False,
    dense_modules: bool = False,
    target: AnyPath | None = None,
    dspark: bool = False,
    mistral_format: bool = False,
    no_community_template: bool = False,
    say: Say | None = None,
) -> Model:
    """Return the checkpoint in `folder` as a lazy model; `write` makes the file.

    `folder` may also be a repository on the Hub, "hf://org/repo": its tensors are read from there
    while the file is written. `outtype` is auto, f32, f16, bf16, q8_0, tq1_0 or tq2_0. `name` and
    `overrides` (of `general.*`) replace the checkpoint's own values, `pre` names the pre-tokenizer.
    Architecture files in the folders `arch_path` come before ours. `follow_links` reads files that
    links in the folder lead to, wherever they are. With `mmproj` the model is the projector of the
    checkpoint: what makes embeddings of pictures or sound.

    `vocab_only` leaves out all tensors. `mtp` is True for only the layers that predict further
    tokens, False for a model without them. `fuse_qkv` and `fuse_gate_up_exps` join tensors that
    llama.cpp reads as one. `fp8_as_q8` stores matrices that are FP8 in the checkpoint as Q8_0.
    `dense_modules` adds the dense layers of sentence-transformers. `target` is the folder of the
    model that a draft model (EAGLE-3, DFlash) drafts for: it has the tokenizer. `dspark` converts
    the draft model that a checkpoint of DeepSeek V4 contains. `mistral_format` reads Mistral's own
    files: params.json, consolidated*.safetensors, and tekken.json or a SentencePiece model.
    With `no_community_template` these files do not get the name of a template that llama.cpp has
    built in.

    `say` is called with each note for the user. Raises CheckpointError before anything is written;
    its `problems` list everything wrong.
    """
    choices = Choices(
        outtype, name, overrides, pre, arch_path, vocab_only, fuse_qkv, fuse_gate_up_exps,
        fp8_as_q8, dense_modules, mtp, target, dspark, no_community_template,
    )  # fmt: skip
    with (
        shown_as("config.json", PARAMS if mistral_format else "config.json"),
        opened_checkpoint(
            folder, choices, follow_links=follow_links, mistral_format=mistral_format
        ) as checkpoint,
    ):
        say_note = _short(say) if say else _silent
        if mmproj:
            made = projected(checkpoint, outtype, name, overrides, arch_path, say_note)
            return made.made_from(made.inputs, checkpoint.readers_limit)
        model = converted(checkpoint, choices, say_note)
        whole = restored(checkpoint, model, choices.keys, say_note)
        if not (vocab_only or mtp or dspark):
            whole = loadable(whole, checkpoint.folder, say_note)
        return whole.made_from(whole.inputs, checkpoint.readers_limit)


@contextlib.contextmanager
def opened_checkpoint(
    folder: AnyPath, choices: Choices = DEFAULTS, *, follow_links: bool,
    mistral_format: bool = False,
) -> Iterator[Checkpoint]:  # fmt: skip
    """Provide a checkpoint; its tensors stay readable afterwards, unless there is an error."""
    with contextlib.ExitStack() as small_files:
        is_remote = isinstance(folder, str) and is_hub_name(folder)
        forms = MISTRAL_FORMS if mistral_format else FORMS
        found = small_files.enter_context(fetched(str(folder), forms)) if is_remote else (folder,)
        checkpoint = open_checkpoint(
            *found, follow_links=follow_links, mistral_format=mistral_format,
            may_lack_tensors=choices.vocab_only and not is_remote,
        )  # fmt: skip
        try:
            if choices.dense_modules:
                checkpoint = with_dense_modules(checkpoint)
            if choices.target is not None:
                checkpoint = replace(checkpoint, target=opened_config(choices.target))
                checkpoint = with_mask_embedding(checkpoint)
            elif choices.dspark:  # the draft model is in the folder of its target
                checkpoint = replace(checkpoint, target=checkpoint)
            with _naming_config(checkpoint.folder):
                yield checkpoint
        except BaseException:
            checkpoint.close()
            raise


@contextlib.contextmanager
def _naming_config(folder: Path) -> Iterator[None]:
    """Turn errors from wrongly typed config.json values into a CheckpointError with the folder."""
    try:
        yield
    except GGUFError:
        raise
    except MISFORMED as error:
        what = f"{error.__class__.__name__}: {error}"
        raise CheckpointError(
            f"config.json in {folder} contradicts its format ({what})", remedy="Download it again"
        ) from error


def _short(say: Say) -> Say:
    """Return a `say` that shortens notes: names in files may have a million characters."""
    return lambda note: say(shortened(note, MAX_PROBLEM))


def _silent(_: str) -> None:
    """Drop a note."""


def converted(checkpoint: Checkpoint, choices: Choices = DEFAULTS, say: Say = _silent) -> Model:
    """Return an opened checkpoint as a lazy model, from all its files except ggufkit.json."""
    names = drafting(classes(checkpoint.config)) if choices.dspark else classes(checkpoint.config)
    described = {**checkpoint.config, "only_prediction": choices.mtp}
    architecture = find(names, choices.arch_path, described)
    home, tokenizer, late = _tokenizer(checkpoint, architecture, choices.arch_path)
    if choices.mtp is False:
        checkpoint = without_prediction(checkpoint, architecture)
    facts = ConfigFacts(checkpoint, architecture)
    plain = decoded(checkpoint.tensors.values(), checkpoint.config)
    kind = outtype_type(choices.outtype) or automatic(checkpoint.tensors.values())
    facts.fields["file_type"] = _file_type(
        kind, [] if choices.vocab_only else plain.tensors, architecture
    )
    tensors: list[Tensor] = []
    problems: list[str] = []
    if not choices.vocab_only:
        tensors, problems = _placed(plain, facts, choices, kind, say)
    early, wrong_early = parameters(facts, architecture.early)
    later, wrong_later = parameters(facts, architecture.metadata)
    problems += [*wrong_early, *wrong_later]
    if not choices.vocab_only:
        problems += facts.problems()
    if problems:
        raise CheckpointError(f"{checkpoint.folder} cannot be converted", problems)
    if not choices.vocab_only:
        _note_unread(facts, say)
    name = choices.name
    metadata = {
        "general.architecture": architecture.name,
        **early,
        **describe(checkpoint, name=name, overrides=choices.overrides, tensors=tensors, say=say),
        **later,
        "general.quantization_version": np.uint32(QUANTIZATION_VERSION),
        **_vocabulary(facts, choices, home, tokenizer, say),
    }
    metadata |= late | parameters(facts, architecture.late)[0]
    model = Model(Metadata(metadata), Tensors(tensors))
    if not choices.vocab_only and not choices.mtp and (problems := about_missing(model, facts)):
        raise CheckpointError(f"{checkpoint.folder} cannot be converted", problems)
    return model.reading(checkpoint.files)


def _tokenizer(
    checkpoint: Checkpoint, architecture: Architecture, arch_path: Sequence[Path]
) -> tuple[Checkpoint, str, dict[str, TypedValue]]:
    """Return the checkpoint that has the tokenizer, the kind of tokenizer, and its target's keys.

    A draft model has the tokenizer of its target, read as its target's class reads it ("target"),
    or as a kind ("llama of target"). Raises CheckpointError if the target is not given.
    """
    kind, _, whose = architecture.vocabulary.rpartition(" of ")
    if whose != TARGET:
        return checkpoint, architecture.vocabulary, {}
    target = checkpoint.target
    if target is None:
        raise CheckpointError(
            f"{checkpoint.folder} is a draft model, and its tokenizer is that of its target",
            remedy="Give the target's folder: `ggufkit convert --target-model-dir`",
        )
    if kind:
        return target, kind, {}
    owner = find(classes(target.config), arch_path, target.config)
    late = parameters(ConfigFacts(target, owner), owner.late)[0] if owner.late else {}
    return target, owner.vocabulary, late


def _vocabulary(
    facts: ConfigFacts, choices: Choices, home: Checkpoint, tokenizer: str, say: Say
) -> dict[str, TypedValue]:
    """Return the keys of the tokenizer in `home`."""
    architecture = facts.architecture
    return vocabulary(
        home,
        tokenizer,
        architecture.name,
        rows=facts.value(architecture.rows),
        pre=choices.pre,
        appended=facts.value(architecture.appended),
        names_template=not choices.no_community_template,
        say=say,
    )


def _placed(
    plain: Dequantized, facts: ConfigFacts, choices: Choices, kind: str, say: Say
) -> tuple[list[Tensor], list[str]]:
    """Return the tensors of the file, and the problems with them."""
    placement = place(plain.tensors, facts)
    made = [*generate(facts), *placement.tensors]
    problems = [*placement.problems, *about_layers(facts, placement), *about_shapes(facts, made)]
    made = in_file_order(made, facts.architecture)
    types = {with_fields(each, facts): kept for each, kept in facts.architecture.types.items()}
    is_q8 = choices.fp8_as_q8 or SOURCE in types.values()
    fp8 = plain.fp8 if is_q8 else ()
    from_fp8 = {name for name, last in placement.sources.items() if last in fp8}
    arranged = _arranged(made, facts, choices)
    kept, unstored = stored_each(arranged, kind, types, from_fp8)
    if not problems:
        _note_skipped([*placement.skipped, *plain.skipped], facts, say)
    return kept, [*problems, *unstored]


def _arranged(made: list[Tensor], facts: ConfigFacts, choices: Choices) -> list[Tensor]:
    """Return the tensors that the user chose, joined as the user chose."""
    name = facts.architecture.name
    if choices.mtp:
        made = only_prediction(made, facts)
    if choices.fuse_gate_up_exps:
        made = fused_experts(made, name)
    return fused_qkv(made, name) if choices.fuse_qkv else made


def _file_type(kind: str, tensors: Sequence[Tensor], architecture: Architecture) -> int:
    """Return the number for general.file_type: MXFP4 experts set it, of gpt-oss not with Q8_0."""
    is_mxfp4 = any(tensor.type.name == "MXFP4" for tensor in tensors)
    is_kept = kind == "Q8_0" and architecture.mxfp4 == "mxfp4"
    return NUMBER_OF["MXFP4_MOE" if is_mxfp4 and not is_kept else kind]


def _note_unread(facts: ConfigFacts, say: Say) -> None:
    if unread := facts.unread():
        listed = ", ".join(f"{name} = {brief(facts.fields[name])}" for name in unread)
        say(f"not read of config.json: {listed}; a model that computes with it answers otherwise")


def _note_skipped(names: list[str], facts: ConfigFacts, say: Say) -> None:
    # The numbers of some tensors are in keys.
    in_keys = [re.sub(r"\{\w+\}", "*", pattern) for pattern in facts.architecture.from_keys]
    elsewhere = (*in_keys, *ADAPTERS)
    skipped = [name for name in names if not any(fnmatchcase(name, each) for each in elsewhere)]
    if skipped:
        shown = ", ".join(skipped[:SHOWN])
        more = ", ..." if len(skipped) > SHOWN else ""
        say(f"skipped as llama.cpp does: {len(skipped)} tensors ({shown}{more})")
