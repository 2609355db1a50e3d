"""MLX: `load` a model as arrays, `save` arrays as GGUF."""

from ggufkit.frameworks.mlx import load, save

__all__ = ["load", "save"]
