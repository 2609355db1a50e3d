"""transformers: `load` a model and its tokenizer from a GGUF file."""

from ggufkit.frameworks.transformers import LoadedModel, load

__all__ = ["LoadedModel", "load"]
