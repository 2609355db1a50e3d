"""PyTorch: `load` a model as a state dict, `save` one as GGUF, keep weights packed."""

from typing import TYPE_CHECKING, Any

from ggufkit.frameworks.torch import dequantize, load, load_packed, safe_open, save

if TYPE_CHECKING:
    from ggufkit.frameworks.torch_packed import PackedTensor, embedding, linear

__all__ = [
    "PackedTensor",
    "dequantize",
    "embedding",
    "linear",
    "load",
    "load_packed",
    "safe_open",
    "save",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 (as the language has it)
    """Import what needs torch when it is used."""
    if name in {"PackedTensor", "embedding", "linear"}:
        from ggufkit.frameworks import torch_packed  # noqa: PLC0415 (it imports torch)

        return getattr(torch_packed, name)
    message = f"module 'ggufkit.torch' has no attribute {name!r}"
    raise AttributeError(message)
