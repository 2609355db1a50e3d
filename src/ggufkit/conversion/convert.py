"""Converts a Hugging Face checkpoint to a model, as llama.cpp's converter does, but lazily."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import numpy as np

from ggufkit.conversion.added_tensors import with_dense_modules, with_mask_embedding
from ggufkit.conversion.architecture.architecture import Architecture, classes, find
from ggufkit.conversion.architecture.config import ConfigFacts, parameters
from ggufkit.conversion.architecture.generated import generate
from ggufkit.conversion.architecture.name_rules import scale_rules
from ggufkit.conversion.card.describe import describe
from ggufkit.conversion.checkpoint.dequantize import Dequantized, dequantize
from ggufkit.conversion.checkpoint.folder import (
    FORMS,
    MISTRAL_FORMS,
    PARAMS,
    Checkpoint,
    checking_types,
    open_checkpoint,
    shown_as,
)
from ggufkit.conversion.checkpoint.fp4 import SCALES, is_nvfp4, with_modelopt_settings
from ggufkit.conversion.checkpoint.grouped_blocks import about_kept
from ggufkit.conversion.checkpoint.local_folder import local_folder
from ggufkit.conversion.checkpoint.state_dict import saved_parts, tensors_of
from ggufkit.conversion.choices import Choices
from ggufkit.conversion.diffusion.checkpoint_files import (
    COMFYUI,
    SD_CPP,
    folder_of_part,
    is_diffusion_source,
    place_of,
)
from ggufkit.conversion.diffusion.convert_diffusion import convert_diffusion, convert_for_sd_cpp
from ggufkit.conversion.fuse import fused_experts, fused_qkv
from ggufkit.conversion.ggufkit_json import restored
from ggufkit.conversion.map_tensors import in_file_order, map_tensors, with_fields
from ggufkit.conversion.prediction import drafting, only_prediction, without_prediction
from ggufkit.conversion.problems import about_layers, about_missing, about_shapes, require_loadable
from ggufkit.conversion.projector import projected
from ggufkit.conversion.tensors.storage_type import (
    AUTO,
    SOURCE,
    automatic,
    file_type,
    outtype_type,
    stored_each,
)
from ggufkit.conversion.tokenizer.kinds import vocabulary
from ggufkit.errors import (
    MAX_PROBLEM,
    CheckpointError,
    ValueTypeError,
    brief,
    first_names,
    shortened,
)
from ggufkit.format.file_types import QUANTIZATION_VERSION
from ggufkit.format.metadata import Metadata
from ggufkit.format.values import TypedValue
from ggufkit.models.hub.names import is_hub_name
from ggufkit.models.model import Model, Tensor, Tensors
from ggufkit.remote.url import UrlPath
from ggufkit.system.descriptors import AnyPath
from ggufkit.system.threads import Notify

DEFAULTS: Final = Choices()
TARGET: Final = "target"  # of a draft model: the model whose tokens it drafts
ADAPTERS: Final = ("*.lora_A", "*.lora_B")  # for tasks: models of their own


def convert(  # noqa: PLR0913 (one argument for each choice of a user)
    folder: AnyPath | Mapping[str, Any],
    *,
    config: object = None,
    tokenizer: object = None,
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
    keep_quantized: bool = False,
    dense_modules: bool = False,
    target: AnyPath | None = None,
    dspark: bool = False,
    mistral_format: bool = False,
    no_community_template: bool = False,
    arch: str | None = None,
    part: str | None = None,
    loader: str = COMFYUI,
    strict: bool = False,
    exactly: bool = False,
    say: Notify | None = None,
) -> Model:
    """Return the checkpoint in `folder` as a lazy model; `write` makes the file.

    `folder` may also be a state dict: tensors of NumPy or PyTorch by their names in a checkpoint,
    or a model that `ggufkit.safetensors.load` gives. `config` is then config.json as a mapping or
    a configuration of transformers, `tokenizer` a tokenizer of transformers or the folder of one.

    `folder` may also be an image or video model: a file of tensors (.safetensors, .ckpt, .pth) or a
    folder of diffusers. Of the arguments, only these four concern it: `outtype`; `arch` names its
    architecture, which is otherwise recognized by the names and shapes of its tensors; `part` names
    the part of a pipeline to convert, such as "text_encoder_2" or "vae"; `loader` is the program
    that will read the file, "comfyui" or "sd.cpp" (stable-diffusion.cpp, which wants no keys).

    `folder` may also be a repository on the Hub, "hf://org/repo", or the safetensors file of an
    image model there or at a URL: tensors are read from there while the file is written. `outtype`
    is auto, f32, f16, bf16, q8_0, tq1_0 or tq2_0. `name` and `overrides` (of `general.*`) replace
    the checkpoint's own values, `pre` names the pre-tokenizer. Architecture files in the folders
    `arch_path` come before ours. `follow_links` reads files that links in the folder lead to,
    wherever they are. With `mmproj` the model is the projector of the checkpoint, which makes
    embeddings of pictures or sound.

    `vocab_only` leaves out all tensors. `mtp` is True for only the layers that predict further
    tokens, False for a model without them. `fuse_qkv` and `fuse_gate_up_exps` join tensors that
    llama.cpp reads as one. `fp8_as_q8` stores matrices that are FP8 in the checkpoint as Q8_0.
    `keep_quantized` keeps weights of GPTQ, AWQ and compressed-tensors in Q4_0, Q4_1 or Q8_0 if that
    is exact. `dense_modules` adds the dense layers of sentence-transformers. `target` is the folder
    of the model that a draft model (EAGLE-3, DFlash) drafts for: it has the tokenizer. `dspark`
    converts the draft model that a checkpoint of DeepSeek V4 contains. `mistral_format` reads
    Mistral's own files: params.json, consolidated*.safetensors, and tekken.json or a SentencePiece
    model.
    `strict` refuses fields of config.json that nothing reads although their names suggest that they
    change the model; otherwise a note lists them. `exactly` makes what llama.cpp's converter makes
    even where ggufkit departs from it on purpose; the table in docs/convert.md says in which cases.
    With `no_community_template` these files do not get the name of a template that llama.cpp has
    built in.

    `say` is called with each note for the user. Raises CheckpointError before anything is written;
    its `problems` list everything wrong.
    """
    choices = Choices(
        outtype, name, overrides, pre, arch_path, vocab_only, fuse_qkv, fuse_gate_up_exps,
        fp8_as_q8, keep_quantized, dense_modules, mtp, target, dspark, no_community_template,
        strict, exactly,
    )  # fmt: skip
    if isinstance(folder, Mapping):
        if config is None:
            raise ValueTypeError("a state dict has no configuration", remedy="Give config=...")
        with saved_parts(config, tokenizer) as parts:
            return convert_folder(parts, choices, state=folder, mmproj=mmproj, say=say)
    if config is not None or tokenizer is not None:
        raise ValueTypeError("a folder has its own files", remedy="Leave out config and tokenizer")
    place = place_of(folder)
    if isinstance(place, UrlPath) or not is_hub_name(os.fsdecode(folder)):
        if part is not None and place.is_dir():
            folder = place = folder_of_part(place, part)
            part = None
        if is_diffusion_source(place, loader):
            if loader == SD_CPP:
                return convert_for_sd_cpp(place, part, outtype=outtype, follow_links=follow_links)
            return convert_diffusion(
                place, part, outtype=outtype, arch=arch, follow_links=follow_links
            )
        if part is not None:
            raise ValueTypeError(
                f"{place} has no parts", remedy="Give a pipeline or its checkpoint"
            )
    return convert_folder(
        folder, choices, follow_links=follow_links, mistral_format=mistral_format, mmproj=mmproj,
        say=say,
    )  # fmt: skip


def convert_folder(  # noqa: PLR0913 (where a checkpoint is, and how it is read)
    folder: AnyPath,
    choices: Choices,
    *,
    state: Mapping[str, Any] | None = None,
    follow_links: bool = False,
    mistral_format: bool = False,
    mmproj: bool = False,
    say: Notify | None = None,
) -> Model:
    """Return a checkpoint as a lazy model, with the tensors of `state` if it is given."""
    with (
        shown_as("config.json", PARAMS if mistral_format else "config.json"),
        shown_as(str(folder), str(folder) if state is None else "the state dict"),
        opened_checkpoint(
            folder, choices, follow_links=follow_links, mistral_format=mistral_format, state=state
        ) as checkpoint,
    ):
        # Names in files may have a million characters.
        say_note = (lambda note: say(shortened(note, MAX_PROBLEM))) if say else (lambda _: None)
        if mmproj:
            model = projected(checkpoint, choices, say_note)
        else:
            model = converted(checkpoint, choices, say_note)
            model = restored(checkpoint, model, choices.keys, say_note)
            if not (choices.vocab_only or choices.mtp or choices.dspark):
                require_loadable(model, checkpoint.folder, say_note, exactly=choices.exactly)
        if isinstance(state, Model):
            return model.derived_from(state.inputs, checkpoint.readers_limit, state.readers_limit)
        return model.derived_from(model.inputs, checkpoint.readers_limit)


def placed_tensors(folder: AnyPath, choices: Choices, state: Mapping[str, Any]) -> list[Tensor]:
    """Return the tensors of `state` that can be converted, as F32; `folder` needs a config.json."""
    with opened_checkpoint(folder, choices, follow_links=False, state=state) as checkpoint:
        facts = ConfigFacts(checkpoint, _chosen(checkpoint, choices), exactly=choices.exactly)
        plain = dequantize(checkpoint.tensors.values(), checkpoint.config)
        return _placed(plain, facts, choices, "F32", lambda _: None)[0]


@contextlib.contextmanager
def opened_checkpoint(
    folder: AnyPath, choices: Choices = DEFAULTS, *, follow_links: bool,
    mistral_format: bool = False, state: Mapping[str, Any] | None = None,
) -> Iterator[Checkpoint]:  # fmt: skip
    """Provide a checkpoint; its tensors stay readable afterwards, unless there is an error."""
    with contextlib.ExitStack() as small_files:
        forms = MISTRAL_FORMS if mistral_format else FORMS
        folder, files = local_folder(small_files, folder, forms)
        checkpoint = open_checkpoint(
            folder, files, follow_links=follow_links, mistral_format=mistral_format,
            may_lack_tensors=choices.vocab_only and not files,
            tensors=None if state is None else tensors_of(state),
        )  # fmt: skip
        try:
            if choices.dense_modules:
                checkpoint = with_dense_modules(checkpoint)
            if choices.target is not None:
                target, _ = local_folder(small_files, choices.target)
                checkpoint = replace(checkpoint, target=open_checkpoint(target, tensors=Tensors()))
                checkpoint = with_mask_embedding(checkpoint)
            elif choices.dspark:  # the draft model is in the folder of its target
                checkpoint = replace(checkpoint, target=checkpoint)
            with checking_types(
                f"config.json in {checkpoint.folder} contradicts its format", "Download it again"
            ):
                yield checkpoint
        except BaseException:
            checkpoint.close()
            raise


def converted(
    checkpoint: Checkpoint, choices: Choices = DEFAULTS, say: Notify = lambda _: None
) -> Model:
    """Return an opened checkpoint as a lazy model, from all its files except ggufkit.json."""
    checkpoint = with_modelopt_settings(checkpoint)
    architecture = _chosen(checkpoint, choices)
    home, tokenizer, late = _tokenizer(checkpoint, architecture, choices.arch_path)
    if choices.mtp is False:
        checkpoint = without_prediction(checkpoint, architecture)
    facts = ConfigFacts(checkpoint, architecture, exactly=choices.exactly)
    plain = dequantize(
        checkpoint.tensors.values(), checkpoint.config, keep_quantized=choices.keep_quantized
    )
    kind = outtype_type(choices.outtype) or automatic(checkpoint.tensors.values())
    facts.fields["file_type"] = file_type(
        kind, [] if choices.vocab_only else plain.tensors, architecture.mxfp4
    )
    if choices.keep_quantized:
        say(about_kept(plain.tensors))
    tensors: list[Tensor] = []
    problems: list[str] = []
    if not choices.vocab_only:
        tensors, problems = _placed(plain, facts, choices, kind, say)
    early, wrong_early = parameters(facts, architecture.early)
    later, wrong_later = parameters(facts, architecture.metadata)
    problems += [*wrong_early, *wrong_later]
    if not choices.vocab_only:
        problems += facts.problems(say=say)
        problems = problems or list(_about_unread(facts, choices, say))
    if problems:
        raise CheckpointError(f"{checkpoint.folder} cannot be converted", problems)
    metadata = {
        "general.architecture": architecture.name,
        **early,
        **describe(checkpoint, **choices.of_description, tensors=tensors, say=say),
        **later,
        "general.quantization_version": np.uint32(QUANTIZATION_VERSION),
        **_vocabulary(facts, choices, home, tokenizer, say),
    }
    metadata |= late | parameters(facts, architecture.late)[0]
    model = Model(Metadata(metadata), Tensors(tensors))
    if not choices.vocab_only and not choices.mtp and (problems := about_missing(model, facts)):
        raise CheckpointError(f"{checkpoint.folder} cannot be converted", problems)
    return model.reading(checkpoint.files)


def _chosen(checkpoint: Checkpoint, choices: Choices) -> Architecture:
    names = classes(checkpoint.config)
    described = {
        **checkpoint.config,
        "only_prediction": choices.mtp,
        "folder": str(checkpoint.folder).lower(),
        "card": (checkpoint.text("README.md") or "").lower(),
    }
    architecture = find(drafting(names) if choices.dspark else names, choices.arch_path, described)
    settings = checkpoint.config.get("quantization_config")
    if not isinstance(settings, Mapping) or not is_nvfp4(settings):
        return architecture
    scales = tuple(scale_rules(architecture.rules, SCALES))
    uneven = (*architecture.uneven, *(rule.targets[0].name for rule in scales))
    return replace(architecture, rules=(*architecture.rules, *scales), uneven=uneven, stacks=())


def _tokenizer(
    checkpoint: Checkpoint, architecture: Architecture, arch_path: Sequence[Path]
) -> tuple[Checkpoint, str, dict[str, TypedValue]]:
    """Return the checkpoint that has the tokenizer, the kind of tokenizer, and its target's keys.

    A draft model has the tokenizer of its target, read as its target's class reads it ("target"),
    or as a kind ("llama of target"). Raises CheckpointError if the target is not given.
    """
    kind, _, whose = architecture.vocabulary.rpartition(" of ")
    if whose != TARGET:
        home = replace(checkpoint, folder=checkpoint.tokenizer_folder)
        return home, architecture.vocabulary, {}
    target = checkpoint.target
    if target is None:
        raise CheckpointError(
            f"{checkpoint.folder} is a draft model, and needs the tokenizer of its target",
            remedy="Give the target's folder: `ggufkit convert --target-model-dir`",
        )
    if kind:
        return target, kind, {}
    owner = find(classes(target.config), arch_path, target.config)
    late = parameters(ConfigFacts(target, owner), owner.late)[0] if owner.late else {}
    return target, owner.vocabulary, late


def _vocabulary(
    facts: ConfigFacts, choices: Choices, home: Checkpoint, tokenizer: str, say: Notify
) -> dict[str, TypedValue]:
    return vocabulary(
        home,
        tokenizer,
        facts.architecture.name,
        rows=facts.value(facts.architecture.rows),
        pre=choices.pre,
        appended=facts.value(facts.architecture.appended),
        names_template=not choices.no_community_template,
        say=say,
    )


def _placed(
    plain: Dequantized, facts: ConfigFacts, choices: Choices, kind: str, say: Notify
) -> tuple[list[Tensor], list[str]]:
    placement = map_tensors(plain.tensors, facts)
    packed = [tensor.name for tensor in placement.tensors if tensor.type.name == "NVFP4"]
    ends = (".weight", *SCALES)
    first = {f"{name.removesuffix('.weight')}{end}" for name in packed for end in ends}
    # The converter writes NVFP4 matrices and their scales before all others.
    tensors = sorted(
        [*generate(facts), *placement.tensors], key=lambda tensor: tensor.name not in first
    )
    problems = [*placement.problems, *about_layers(facts, placement), *about_shapes(facts, tensors)]
    tensors = in_file_order(tensors, facts.architecture)
    types = {with_fields(name, facts): k for name, k in facts.architecture.types.items()}
    is_q8 = choices.fp8_as_q8 or SOURCE in types.values()
    fp8 = plain.fp8 if is_q8 else ()
    from_fp8 = {name for name, last in placement.sources.items() if last in fp8}
    name = facts.architecture.name
    if choices.mtp:
        tensors = only_prediction(tensors, facts)
    if choices.fuse_gate_up_exps:
        tensors = fused_experts(tensors, name)
    if choices.fuse_qkv:
        tensors = fused_qkv(tensors, name)
    outputs, unstored = stored_each(tensors, kind, types, from_fp8, numpy_nan=choices.exactly)
    if not problems:
        # The numbers of some tensors are in keys.
        in_keys = [re.sub(r"\{\w+\}", "*", pattern) for pattern in facts.architecture.from_keys]
        skipped = [name for name in (*placement.skipped, *plain.skipped)
                   if not any(fnmatchcase(name, p) for p in (*in_keys, *ADAPTERS))]  # fmt: skip
        if skipped:
            say(f"skipped as llama.cpp does: {len(skipped)} tensors ({first_names(skipped, 3)})")
    return outputs, [*problems, *unstored]


def _about_unread(facts: ConfigFacts, choices: Choices, say: Notify) -> Iterator[str]:
    if unread := facts.unread():
        listed = ", ".join(f"{name} = {brief(facts.fields.get(name))}" for name in unread)
        if choices.strict:
            yield f"not read of config.json: {listed}"
        else:
            say(f"not read of config.json: {listed}; a model that uses it gives different output")
