"""Converts the task adapters in a checkpoint of Jina Embeddings 3, as llama.cpp's converter does.

The checkpoint has the factors of all tasks in one tensor each. Each task becomes a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ggufkit.checks.other_models import GENERAL_TYPE, KIND
from ggufkit.conversion.architecture.architecture import classes, find
from ggufkit.conversion.architecture.config import ConfigFacts
from ggufkit.conversion.checkpoint.folder import Checkpoint
from ggufkit.conversion.convert import opened_checkpoint
from ggufkit.conversion.map_tensors import map_items, rename
from ggufkit.conversion.tensors.moves import entry
from ggufkit.conversion.tensors.storage_type import stored
from ggufkit.errors import CheckpointError, GGUFError, brief
from ggufkit.format.metadata import Metadata
from ggufkit.lora.pairs import ALPHA, PAIR_MOVES, Pair, as_tensors, checked
from ggufkit.models.model import Model, Tensors
from ggufkit.system.descriptors import AnyPath

ARCHITECTURE: Final = "jina-bert-v3"
PREFIXES: Final = "task_instructions"
TASKS: Final = "lora_adaptations"  # in config.json
_NAME: Final = re.compile(r"\w[\w.-]*")  # of a task, which becomes part of a file's name
_A: Final = ".0.lora_A"
_B: Final = ".0.lora_B"
_TYPE_TABLE: Final = "token_types.weight"
_TABLES: Final = ("embeddings.word_embeddings.weight", "embeddings.token_type_embeddings.weight")


def task_adapters(
    folder: AnyPath, *, arch_path: Sequence[Path] = (), follow_links: bool = False
) -> dict[str, Model]:
    """Return the adapters for tasks in the checkpoint `folder` as lazy models, by their tasks.

    Returns nothing unless config.json names tasks, as in Jina Embeddings 3. Closing one of the
    models closes all. The arguments work as in `convert`. Raises CheckpointError, whose
    `problems` list everything wrong.
    """
    with opened_checkpoint(folder, follow_links=follow_links) as checkpoint:
        tasks = _tasks(checkpoint.config)
        config = checkpoint.config
        facts = ConfigFacts(checkpoint, find(classes(config), arch_path, config))
        adapters = {task: _adapter(checkpoint, facts, tasks, task) for task in tasks}
        if not adapters:
            checkpoint.close()
        return adapters


def _tasks(config: Mapping[str, Any]) -> list[str]:
    tasks = config.get(TASKS) or []
    texts = [task for task in tasks if isinstance(task, str)] if isinstance(tasks, list) else []
    prefixes = config.get(PREFIXES) or dict.fromkeys(texts, "")
    problems = [
        f"{brief(task)} is not a name of a task" for task in texts if not _NAME.fullmatch(task)
    ]
    problems += [
        f"{PREFIXES} has no text for {brief(task)}"
        for task in texts
        if not isinstance(prefixes.get(task), str)
    ]
    if texts != tasks or len(set(texts)) != len(texts):
        problems.append(f"{TASKS} is not a list of different names")
    if problems:
        raise CheckpointError("the adapters for tasks cannot be converted", problems)
    return texts


def _adapter(checkpoint: Checkpoint, facts: ConfigFacts, tasks: list[str], task: str) -> Model:
    pairs, problems = _pairs(checkpoint, facts, len(tasks), tasks.index(task))
    placement = map_items(pairs, facts, PAIR_MOVES)
    problems += placement.problems
    if problems or not placement.tensors:
        problems = problems or ["the tensors lora_A and lora_B are missing"]
        raise CheckpointError(f"the adapters of {checkpoint.folder} cannot be converted", problems)
    factors = [list(as_tensors(item)) for item in placement.tensors]
    # The converter writes the second factor of the token types first.
    ordered = [own[::-1] if own[0].name.startswith(_TYPE_TABLE) else own for own in factors]
    tensors = [stored(tensor, "F32") for own in ordered for tensor in own]
    config = checkpoint.config
    alpha = config.get("lora_alpha")
    metadata: dict[str, Any] = {
        "general.architecture": facts.architecture.name,
        GENERAL_TYPE: "adapter",
        KIND: "lora",
        ALPHA: np.float32(1.0 if alpha is None else alpha),
        "adapter.lora.task_name": task,
    }
    if prefixes := config.get(PREFIXES):
        metadata["adapter.lora.prompt_prefix"] = prefixes[task]
    model = Model(Metadata(metadata), Tensors(tensors)).reading(checkpoint.files)
    return model.derived_from(model.inputs, checkpoint.readers_limit)


def _pairs(
    checkpoint: Checkpoint, facts: ConfigFacts, count: int, number: int
) -> tuple[list[Pair], list[str]]:
    names = {
        rename(name, facts.architecture.rename, facts.lookup): tensor
        for name, tensor in checkpoint.tensors.items()
    }
    pairs: list[Pair] = []
    problems: list[str] = []
    for name in [name.removesuffix(_A) for name in names if name.endswith(_A)]:
        try:
            if name + _B not in names:
                raise CheckpointError(f"{name}{_B} is missing")
            a, b = (entry(names[name + end], 0, number, count) for end in (_A, _B))
            pairs.append(checked(name, b, a) if name in _TABLES else checked(name, a, b))
        except GGUFError as error:  # noqa: PERF203 (each error is reported)
            problems.append(error.message)
    return pairs, problems
