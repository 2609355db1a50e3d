"""Tokenizer files to `tokenizer.*` keys, and back.

Reads every kind of tokenizer file into token lists and writes them again. Naming a pre-tokenizer is
the work of `pre`.
"""
