"""Let an installed gguf use ggufkit: `install` and `uninstall`."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final, TypeAlias

PATCHED: Final = "gguf"
STAND_IN: Final = "ggufkit.compat.gguf"  # imports gguf, so it is imported after it
NAMES: Final = (*("GGUFReader", "GGUFWriter"), *("dequantize", "get_tensor_name_map", "quantize"))
Place: TypeAlias = tuple[ModuleType, str]

# What is replaced now: where, by what, and what was there before.
_replaced: list[tuple[Place, object, object]] = []


def install() -> None:
    """Let gguf-py use ggufkit: its reader, writer, `quantize` and `dequantize` become ggufkit's.

    Applies to the installed `gguf`, at once or when a program imports it, and to modules that have
    imported these names from it before. Calling it twice changes nothing.
    """
    if _replaced or _FINDER in sys.meta_path:
        return
    if PATCHED in sys.modules:
        _replace()
    else:
        sys.meta_path.insert(0, _FINDER)


def uninstall() -> None:
    """Give gguf-py its own reader, writer and functions back."""
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)
    while _replaced:
        (module, name), ours, theirs = _replaced.pop()
        if vars(module).get(name) is ours:
            setattr(module, name, theirs)


def _replace() -> None:
    """Replace the names in all loaded modules, except in the stand-in's."""
    stand_in, patched = importlib.import_module(STAND_IN), sys.modules[PATCHED]
    ours = {id(getattr(patched, name)): getattr(stand_in, name) for name in NAMES}
    for module in list(sys.modules.values()):
        if not isinstance(module, ModuleType) or module.__name__.startswith(STAND_IN):
            continue  # some programs put other objects into `sys.modules`
        for name, value in list(vars(module).items()):
            if id(value) in ours:
                _replaced.append(((module, name), ours[id(value)], value))
                setattr(module, name, ours[id(value)])


class _Finder(importlib.abc.MetaPathFinder):
    """Finds gguf where it is, and has its names replaced as soon as it is imported."""

    _is_asking = False  # the other finders, for the module itself

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of gguf with a loader that replaces its names."""
        del path, target
        if fullname != PATCHED or self._is_asking:
            return None
        self._is_asking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_asking = False
        if spec and spec.loader:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """Loads gguf with its own loader, then replaces its names."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever the loader has)
        """Be the module's own loader in everything else."""
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, and replace its names."""
        for owner, name in ((module, "__loader__"), (module.__spec__, "loader")):
            setattr(owner, name, self._loader)  # as it would be without us
        self._loader.exec_module(module)
        if _FINDER in sys.meta_path:
            sys.meta_path.remove(_FINDER)
            _replace()


_FINDER: Final = _Finder()
