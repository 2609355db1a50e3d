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
    "Finding": "rules.findings",
    "FormatError": "errors",
    "GGUFError": "errors",
    "Imatrix": "imatrix.matrix",
    "Metadata": "format.metadata",
    "Model": "models.model",
    "Tensor": "models.model",
    "TensorType": "format.types",
    "ValueType": "format.types",
    "bench": "quants.bench",
    "check": "checks.check",
    "compute_imatrix": "imatrix.compute",
    "convert": "conversion.convert",
    "convert_legacy": "conversion.legacy.convert_legacy",
    "diff": "inspection.diff",
    "edit": "edits.edit",
    "edit_in_place": "edits.in_place",
    "estimate": "inspection.estimate",
    "export": "conversion.export",
    "hash": "inspection.hash",
    "list": "models.caches",
    "name": "edits.name",
    "open": "models.open",
    "plan": "quantization.plan",
    "quantize": "quantization.quantize",
    "recover": "edits.recover",
    "save": "output.write",
    "select": "edits.select",
    "target": "quantization.target",
    "typed": "format.coerce",
    "undo": "edits.undo",
    "redo": "edits.undo",
    "write": "output.write",
    "write_many": "output.write",
}
_MODULES: Final = ("errors", "imatrix", "quants", "torch")

__all__ = ["__version__", *_MODULES, *_HOMES]  # noqa: PLE0604 (they are strings)


def __getattr__(name: str) -> Any:  # noqa: ANN401 (as the language has it)
    """Import a public name from its home."""
    if name in _MODULES:
        return importlib.import_module(f"ggufkit.{name}")
    if name not in _HOMES:
        message = f"module 'ggufkit' has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(importlib.import_module(f"ggufkit.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> Iterable[str]:
    """List the public names."""
    return sorted(__all__)
