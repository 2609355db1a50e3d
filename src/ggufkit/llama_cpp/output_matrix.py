"""The last product of a model's graph: its output matrix times the hidden states of a text.

The hidden states take far less space than the logits. Logits that the same kernel computes from
them are the same to the last bit.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ggufkit.llama_cpp.library import F32, GraphMemory, GraphTensor, Library
from ggufkit.quants.parallel import Floats

OUTPUT_NODE: Final = b"result_output"
SPARE_BYTES: Final = 16 << 20  # bytes for the graph itself and ggml's work


class OutputInputs:
    """Watches the last product of each computation, and keeps its inputs."""

    def __init__(self, llama: Library) -> None:
        self.weight: str | None = None
        self.values: Floats | None = None
        self._llama = llama

    def __call__(self, node: GraphTensor, asks: bool) -> bool:  # noqa: FBT001 (as Watcher has it)
        """Say whether a node is the last (`asks`), or read its inputs."""
        if asks:
            return bool(node.name == OUTPUT_NODE)
        self.weight = self.values = None
        if self._llama.functions.ggml_op_name(node.op) == b"MUL_MAT":
            inputs = node.src[1].contents
            if inputs.type == F32 and inputs.ne[2] == inputs.ne[3] == 1:
                self.weight = node.src[0].contents.name.decode(errors="replace")
                self.values = self._llama.array(inputs, np.float32)[0, 0].copy()
        return True


@dataclass(frozen=True)
class OutputMatrix:
    """An output matrix in the blocks of its tensor type: `rows` rows of `width` elements."""

    llama: Library
    type: int
    rows: int
    width: int
    blocks: npt.NDArray[np.uint8]

    def logits(self, inputs: Floats, threads: int) -> Floats:
        """Return the product with inputs (count, width): (count, rows)."""
        call, count = self.llama.functions, len(inputs)
        nbytes = SPARE_BYTES + 4 * inputs.nbytes + 4 * count * self.rows
        memory = call.ggml_init(GraphMemory(nbytes, None, False))  # noqa: FBT003 (a structure)
        try:
            call.ggml_set_no_alloc(memory, True)  # noqa: FBT003 (a C function)
            weight = call.ggml_new_tensor_2d(memory, self.type, self.width, self.rows)
            call.ggml_set_no_alloc(memory, False)  # noqa: FBT003 (a C function)
            weight.contents.data = self.blocks.ctypes.data
            input_node = call.ggml_new_tensor_2d(memory, F32, self.width, count)
            whole = np.ascontiguousarray(inputs, np.float32)
            ctypes.memmove(input_node.contents.data, whole.ctypes.data, whole.nbytes)
            product = call.ggml_mul_mat(memory, weight, input_node)
            graph = call.ggml_new_graph(memory)
            call.ggml_build_forward_expand(graph, product)
            if call.ggml_graph_compute_with_ctx(memory, graph, threads):
                raise self.llama.failure("failed to multiply with the output matrix")
            address = ctypes.cast(product.contents.data, ctypes.POINTER(ctypes.c_float))
            logits: Floats = np.ctypeslib.as_array(address, (count, self.rows)).copy()
        finally:
            call.ggml_free(memory)
        return logits
