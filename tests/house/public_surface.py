"""The public names of ggufkit with their signatures; `--write` records them.

python tests/house/public_surface.py --write
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import sys
from pathlib import Path

import ggufkit

RECORD = Path(__file__).with_suffix(".txt")
MODULES = (
    *("errors", "imatrix", "mlx", "numpy", "quants", "results", "safetensors", "torch"),
    "transformers",
)


def surface():
    """Return a line for each public name, and for each public method of a class."""
    lines = []
    for module in ("ggufkit", *(f"ggufkit.{name}" for name in MODULES)):
        package = importlib.import_module(module)
        names = {*_listed(package), *(("open",) if package is ggufkit else ())}
        for name in sorted(names - {"__version__"}):
            try:
                lines += described(f"{module}.{name}", getattr(package, name))
            except ImportError:  # a class of a library that the environment of tests lacks
                lines.append(f"{module}.{name}")
    # Versions of Python quote annotations in their own ways.
    return [re.sub(r"ForwardRef\('([^']*)'.*?\)", r"\1", line).replace("'", "") for line in lines]


def _listed(package):
    if package is ggufkit.errors:
        return [name for name, _ in inspect.getmembers(package, _is_error)]
    public = (name for name in vars(package) if not name.startswith("_"))
    return getattr(package, "__all__", None) or sorted(public)


def _is_error(value):
    return inspect.isclass(value) and value.__module__ == "ggufkit.errors"


def described(path, value):
    if inspect.ismodule(value):
        return []
    if not inspect.isclass(value):
        return [f"{path}{signature(value)}"]
    if issubclass(value, enum.Enum):
        return [f"class {path}: {' '.join(value.__members__)}"]
    lines = [f"class {path}({', '.join(base.__name__ for base in value.__bases__)})"]
    if not issubclass(value, Exception):
        lines[0] += f": {signature(value)}"
    for kind in value.__mro__:
        if kind.__module__.startswith("ggufkit"):
            lines += members(path, kind, {line.partition("(")[0] for line in lines})
    return [lines[0], *sorted(lines[1:])]


def members(path, kind, known):
    for name, member in vars(kind).items():
        function = getattr(member, "__func__", member)
        place = f"  {path}.{name}"
        if name.startswith("_") or place in known:
            continue
        if isinstance(member, property):
            yield f"{place}: {inspect.signature(member.fget).return_annotation}"
        elif callable(function):
            yield f"{place}{signature(function)}"


def signature(value):
    return str(inspect.signature(value)) if callable(value) else f": {value.__class__.__name__}"


if __name__ == "__main__":
    text = "\n".join(surface()) + "\n"
    if "--write" in sys.argv:
        RECORD.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
