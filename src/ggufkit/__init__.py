"""ggufkit: open, check, change, split, merge and quantize GGUF model files.

Names are imported when first used, so that `import ggufkit` and `ggufkit --version` stay cheap.
Type checkers read the same names from `__init__.pyi`; a test binds the two lists.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any, Final

from ggufkit._version import __version__

# The module of each public name.
_HOMES: Final = {
    "GGUFError": "errors",
    "Imatrix": "imatrix.matrix",
    "Metadata": "format.metadata",
    "Model": "models.model",
    "Tensor": "models.model",
    "TensorType": "format.types",
    "ValueType": "format.types",
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
_MODULES: Final = ("errors", "imatrix", "quants", "results")
# Public too, but `from ggufkit import *` must not replace these libraries, nor the builtin `open`.
_FRAMEWORKS: Final = ("mlx", "numpy", "safetensors", "torch", "transformers")

__all__ = ["__version__", *_MODULES, *(name for name in _HOMES if name != "open")]  # noqa: PLE0604 (strings)


def __getattr__(name: str) -> Any:  # noqa: ANN401 (as the language has it)
    """Import a public name from its home."""
    if name in _MODULES or name in _FRAMEWORKS:
        return importlib.import_module(f"ggufkit.{name}")
    if name not in _HOMES:
        message = f"module 'ggufkit' has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(importlib.import_module(f"ggufkit.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> Iterable[str]:
    """List the public names."""
    return sorted([*__all__, *_FRAMEWORKS, "open"])
