"""Vocabularies: the tokenizer of a checkpoint as the `tokenizer.*` keys of a GGUF file.

Nothing is imported here: `preparing` runs in a process of its own, which begins with this package.
"""
