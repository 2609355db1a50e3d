"""Vocabularies: the tokenizer of a checkpoint as the `tokenizer.*` keys of a GGUF file."""

from ggufkit.converting.vocabularies.kinds import KINDS, vocabulary

__all__ = ["KINDS", "vocabulary"]
