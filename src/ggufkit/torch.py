"""PyTorch: `load` a model as a state dict, `save` one as GGUF, decode on any device."""

from ggufkit.frameworks.torch import PackedTensor, dequantize, load, load_packed, save

__all__ = ["PackedTensor", "dequantize", "load", "load_packed", "save"]
