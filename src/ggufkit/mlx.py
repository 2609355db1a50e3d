"""MLX: `load` a model as arrays, `save` arrays as GGUF."""

from ggufkit.frameworks.mlx import load, load_packed
from ggufkit.output.write import save

__all__ = ["load", "load_packed", "save"]
