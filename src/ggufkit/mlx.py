"""MLX: `load` a model as arrays, `save` arrays as GGUF."""

from ggufkit.frameworks.mlx import load
from ggufkit.frameworks.numpy import save

__all__ = ["load", "save"]
