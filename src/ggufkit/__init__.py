"""ggufkit: open, check, change, split, merge and quantize GGUF model files.

Names are imported when first used, so that `import ggufkit` and `ggufkit --version` stay cheap.
Type checkers read the same names from `__init__.pyi`; a test binds the two lists.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from typing import Any, Final

from ggufkit._version import __version__

# The module of each public name.
_HOMES: Final = {
    "AdapterError": "errors",
    "Arrays": "format.values",
    "CachedModel": "models.hub.repository",
    "Change": "edits.changes",
    "ChatTemplate": "frameworks.chat_template",
    "ChatTemplateError": "errors",
    "CheckpointError": "errors",
    "ClosedError": "errors",
    "ClusterError": "errors",
    "Comparison": "evaluation.statistics",
    "Deviation": "inspection.diff",
    "Difference": "inspection.diff",
    "Digests": "inspection.digest",
    "DiskSpaceError": "errors",
    "Distribution": "evaluation.statistics",
    "Divergence": "evaluation.statistics",
    "Edited": "edits.in_place",
    "Estimate": "inspection.estimate",
    "Evaluation": "evaluation.evaluate",
    "FileName": "format.file_name",
    "Finding": "rules.findings",
    "FormatError": "errors",
    "GGUFError": "errors",
    "Histogram": "inspection.histogram",
    "Imatrix": "imatrix.matrix",
    "InterruptedEditWarning": "errors",
    "KeyChange": "inspection.diff",
    "Layout": "output.layout",
    "LimitError": "errors",
    "Measurement": "evaluation.statistics",
    "Metadata": "format.metadata",
    "MissingExtraError": "errors",
    "MissingImportanceError": "errors",
    "MissingKeyError": "errors",
    "MissingModelError": "errors",
    "MissingTensorError": "errors",
    "Model": "models.model",
    "ModelFile": "models.model",
    "NoRangesError": "errors",
    "NotGGUFError": "errors",
    "OutputError": "errors",
    "Plan": "quantization.plan",
    "PlannedMemory": "quantization.plan_memory",
    "Provenance": "quantization.provenance",
    "Quality": "evaluation.evaluate",
    "Rate": "quants.bench",
    "RemoteDeniedError": "errors",
    "RemoteError": "errors",
    "RemoteMissingError": "errors",
    "Repaired": "quantization.repair",
    "Reproduction": "quantization.reproduce",
    "Sensitivity": "quantization.losses.sensitivities",
    "ShapeError": "errors",
    "ShardError": "errors",
    "Strings": "format.values",
    "Tensor": "models.model",
    "TensorBlock": "inspection.tensor_block",
    "TensorChange": "inspection.diff",
    "TensorStatistics": "inspection.tensor_statistics",
    "TensorType": "format.types",
    "TensorTypeError": "errors",
    "Tensors": "models.model",
    "TokenizedText": "frameworks.tokenize",
    "Trial": "quantization.repair",
    "TruncatedError": "errors",
    "ValueType": "format.types",
    "ValueTypeError": "errors",
    "WaitingWarning": "errors",
    "bench": "quants.bench",
    "bf16": "models.tensors.in_memory",
    "chat_template": "frameworks.chat_template",
    "check": "checks.check",
    "cluster": "system.cluster",
    "compute_imatrix": "imatrix.compute",
    "conventional_name": "edits.conventional_name",
    "convert": "conversion.convert",
    "convert_legacy": "conversion.legacy.convert_legacy",
    "convert_lora": "lora.convert_lora",
    "detokenize": "frameworks.tokenize",
    "diff": "inspection.diff",
    "digest": "inspection.digest",
    "edit": "edits.edit",
    "edit_in_place": "edits.in_place",
    "estimate": "inspection.estimate",
    "evaluate": "evaluation.evaluate",
    "export": "conversion.export",
    "extract_lora": "lora.extract_lora",
    "find_models": "models.caches",
    "largest_recipe": "quantization.plan_memory",
    "layout": "output.layout",
    "measure_sensitivity": "quantization.sensitivity",
    "merge_lora": "lora.merge_lora",
    "model": "models.tensors.in_memory",
    "open": "models.open",
    "packed": "models.tensors.in_memory",
    "plan": "quantization.plan",
    "plan_memory": "quantization.plan_memory",
    "quantize": "quantization.quantize",
    "quantize_with_provenance": "quantization.provenance",
    "recover": "edits.recover",
    "redo": "edits.undo",
    "repair": "quantization.repair",
    "report": "reports.report",
    "reproduce": "quantization.reproduce",
    "save": "output.write",
    "save_array": "output.save_array",
    "select": "edits.select",
    "target": "quantization.target",
    "task_adapters": "lora.task_adapters",
    "tensor_block": "inspection.tensor_block",
    "tensor_statistics": "inspection.tensor_statistics",
    "tokenize": "frameworks.tokenize",
    "tokenizer": "frameworks.tokenizer",
    "typed": "format.coerce",
    "undo": "edits.undo",
    "write": "output.write",
    "write_many": "output.write",
}
_MODULES: Final = ("errors", "imatrix", "quants")
_OLD_NAMES: Final = {"PlannedSize": "Plan"}  # docs/stability.md: they work for one minor version
# Public too, but `from ggufkit import *` must not replace these libraries, nor the builtin `open`.
_FRAMEWORKS: Final = ("mlx", "numpy", "safetensors", "torch", "transformers")

__all__ = ["__version__", *_MODULES, *(name for name in _HOMES if name != "open")]  # noqa: PLE0604 (strings)


def __getattr__(name: str) -> Any:  # noqa: ANN401 (as the language has it)
    """Import a public name from its home."""
    if name in _MODULES or name in _FRAMEWORKS:
        return importlib.import_module(f"ggufkit.{name}")
    if name in _OLD_NAMES:
        errors = importlib.import_module("ggufkit.errors")
        errors.deprecated(f"ggufkit.{name} is called ggufkit.{_OLD_NAMES[name]} now")
        return getattr(sys.modules[__name__], _OLD_NAMES[name])
    if name not in _HOMES:
        message = f"module 'ggufkit' has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(importlib.import_module(f"ggufkit.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> Iterable[str]:
    """List the public names."""
    return sorted([*__all__, *_FRAMEWORKS, "open"])
