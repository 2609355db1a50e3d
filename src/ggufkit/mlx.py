"""MLX: `load` a model as arrays, `save` arrays as GGUF."""

from ggufkit.frameworks.mlx import load
from ggufkit.output.write import save

__all__ = ["load", "save"]
