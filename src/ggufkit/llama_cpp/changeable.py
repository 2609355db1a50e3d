"""A model in llama.cpp whose weights can be replaced between computations."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from ggufkit.errors import MissingTensorError, ShapeError
from ggufkit.llama_cpp.library import LOADED_WHOLE, NO_OPERATION, GraphTensor, ModelParameters
from ggufkit.llama_cpp.session import Session


class ChangeableSession(Session):
    """A session with a copy of the weights in memory that can be written.

    `replace` finds weights in the last graph, so something must have been computed before.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.weights: dict[str, dict[int, GraphTensor]] = {}
        super().__init__(*arguments, **options, watcher=self._find)

    def _model_parameters(self) -> ModelParameters:
        chosen = super()._model_parameters()
        if chosen.load_mode:
            chosen.load_mode = LOADED_WHOLE
        else:
            chosen.use_mmap = False
        return chosen

    def _find(self, node: GraphTensor, _asks: bool) -> bool:  # noqa: FBT001 (as Watcher has it)
        """Note the weights that a node uses; a tied matrix may have two copies."""
        for source in node.src:
            if not source:
                break
            weight = source.contents
            if weight.op == NO_OPERATION and weight.name:
                name = weight.name.decode(errors="replace")
                self.weights.setdefault(name, {})[ctypes.addressof(weight)] = weight
        return False

    def replace(self, blocks: Mapping[str, bytes]) -> None:
        """Overwrite weights with blocks of the same tensor type."""
        call = self.llama.functions
        for name, data in blocks.items():
            if name not in self.weights:
                raise MissingTensorError(
                    f"llama.cpp computes nothing with {name!r}",
                    remedy="Name a weight that the model uses",
                )
            for weight in self.weights[name].values():
                if call.ggml_nbytes(weight) != len(data):
                    raise ShapeError(
                        f"{name!r} has {call.ggml_nbytes(weight):,} bytes, not {len(data):,}"
                    )
                call.ggml_backend_tensor_set(weight, data, 0, len(data))
