"""The verbs of a model: `model.quantize("Q4_K_M")` is `ggufkit.quantize(model, "Q4_K_M")`."""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any

import ggufkit


class ModelVerbs:
    """The functions that take a model first, as methods."""

    if TYPE_CHECKING:
        chat_template = ggufkit.chat_template
        check = ggufkit.check
        conventional_name = ggufkit.conventional_name
        diff = ggufkit.diff
        digest = ggufkit.digest
        edit = ggufkit.edit
        estimate = ggufkit.estimate
        export = ggufkit.export
        plan = ggufkit.plan
        quantize = ggufkit.quantize
        report = ggufkit.report
        select = ggufkit.select
        target = ggufkit.target
        tokenizer = ggufkit.tokenizer
        write = ggufkit.write


class _Verb:
    """The public function of a name as a method; it is imported when it is looked up."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, model: object, _owner: type) -> Any:  # noqa: ANN401 (any function)
        function = getattr(ggufkit, self.name)
        return function if model is None else MethodType(function, model)


for _name in (
    *("chat_template", "check", "conventional_name", "diff", "digest", "edit", "estimate"),
    *("export", "plan", "quantize", "report", "select", "target", "tokenizer", "write"),
):
    setattr(ModelVerbs, _name, _Verb(_name))
