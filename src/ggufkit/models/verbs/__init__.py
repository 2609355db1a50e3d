"""The verbs of a model: `model.quantize("Q4_K_M")` is `ggufkit.quantize(model, "Q4_K_M")`.

The functions are in packages on higher floors, so a verb imports its function when it is first
used, by name. Type checkers read the same table from the stub beside this file; a test binds the
two.
"""

from __future__ import annotations

import importlib
from types import MethodType
from typing import Any


class Verb:
    """A method that is a function of another module, imported when used."""

    def __init__(self, module: str) -> None:
        """Remember the module below `ggufkit`; the function has the name of the verb."""
        self.module = f"ggufkit.{module}"

    def __set_name__(self, owner: type, name: str) -> None:
        """Learn the name."""
        self.name = name

    def __get__(self, model: object, owner: type) -> Any:  # noqa: ANN401 (see the stub)
        """Return the function, bound to the model if there is one."""
        function = getattr(importlib.import_module(self.module), self.name)
        return function if model is None else MethodType(function, model)


class ModelVerbs:
    """The functions that take a model first, as methods."""

    check = Verb("checks.check")
    conventional_name = Verb("edits.conventional_name")
    diff = Verb("inspection.diff")
    digest = Verb("inspection.digest")
    edit = Verb("edits.edit")
    estimate = Verb("inspection.estimate")
    export = Verb("conversion.export")
    plan = Verb("quantization.plan")
    quantize = Verb("quantization.quantize")
    select = Verb("edits.select")
    target = Verb("quantization.target")
    write = Verb("output.write")
