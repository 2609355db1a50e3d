"""Vocabularies in formats of their own, which no library of tokenizers reads.

Each module reads one kind of file as `tokenizer.*` keys, and writes it for export where the keys
tell all of it. What several kinds of tokenizers share is in the package above.
"""
