"""ggufkit: open, check, change, split, merge and quantize GGUF model files.

Names are imported when first used, so that `import ggufkit` and `ggufkit --version` stay cheap.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ggufkit._version import __version__

if TYPE_CHECKING:
    from ggufkit import errors, imatrix, quants
    from ggufkit.activations import compute_imatrix
    from ggufkit.caches import list  # noqa: A004 (the name of the command)
    from ggufkit.checking import check
    from ggufkit.coerce import typed
    from ggufkit.comparing import diff
    from ggufkit.converting.conversion import convert
    from ggufkit.converting.exporting import export
    from ggufkit.editing import edit
    from ggufkit.errors import FormatError, GGUFError
    from ggufkit.estimating import estimate
    from ggufkit.findings import Finding
    from ggufkit.hashing import hash  # noqa: A004 (the name users expect)
    from ggufkit.imatrix import Imatrix
    from ggufkit.journal import recover
    from ggufkit.labelling import name
    from ggufkit.legacy import convert_legacy
    from ggufkit.measuring import bench
    from ggufkit.metadata import Metadata
    from ggufkit.model import Model, Tensor
    from ggufkit.opening import open  # noqa: A004 (the name users expect)
    from ggufkit.patching import edit_in_place, undo
    from ggufkit.planning import plan
    from ggufkit.quantizing import quantize
    from ggufkit.selecting import select
    from ggufkit.targeting import target
    from ggufkit.types import TensorType, ValueType
    from ggufkit.writing import save, write, write_many

_HOMES = {
    "FormatError": "errors",
    "GGUFError": "errors",
    "Finding": "findings",
    "Imatrix": "imatrix",
    "Metadata": "metadata",
    "Model": "model",
    "Tensor": "model",
    "TensorType": "types",
    "ValueType": "types",
    "bench": "measuring",
    "check": "checking",
    "convert": "converting.conversion",
    "compute_imatrix": "activations",
    "convert_legacy": "legacy",
    "diff": "comparing",
    "hash": "hashing",
    "list": "caches",
    "name": "labelling",
    "edit": "editing",
    "edit_in_place": "patching",
    "estimate": "estimating",
    "export": "converting.exporting",
    "open": "opening",
    "plan": "planning",
    "quantize": "quantizing",
    "recover": "journal",
    "save": "writing",
    "select": "selecting",
    "target": "targeting",
    "typed": "coerce",
    "undo": "patching",
    "write": "writing",
    "write_many": "writing",
}
_MODULES = ("errors", "imatrix", "quants")

__all__ = [
    "Finding",
    "FormatError",
    "GGUFError",
    "Imatrix",
    "Metadata",
    "Model",
    "Tensor",
    "TensorType",
    "ValueType",
    "__version__",
    "bench",
    "check",
    "compute_imatrix",
    "convert",
    "convert_legacy",
    "diff",
    "edit",
    "edit_in_place",
    "errors",
    "estimate",
    "export",
    "hash",
    "imatrix",
    "list",
    "name",
    "open",
    "plan",
    "quantize",
    "quants",
    "recover",
    "save",
    "select",
    "target",
    "typed",
    "undo",
    "write",
    "write_many",
]


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
