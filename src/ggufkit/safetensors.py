"""safetensors: `load` a file as a lazy model, `save` a model's tensors to one."""

from ggufkit.frameworks.safetensors import load, save

__all__ = ["load", "save"]
