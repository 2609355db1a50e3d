"""NumPy: `load` a model as arrays, `save` arrays as GGUF."""

from ggufkit.frameworks.numpy import load, save

__all__ = ["load", "save"]
