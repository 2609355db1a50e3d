"""Vocabularies in formats that no library of tokenizers reads.

Each module reads one kind of file as `tokenizer.*` keys, and writes it for export if the keys have
all of it. The package above has the code that several kinds of tokenizers share.
"""
