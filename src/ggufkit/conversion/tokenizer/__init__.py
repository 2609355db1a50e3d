"""Converts tokenizer files to `tokenizer.*` keys, and back.

Reads every kind of tokenizer file into token lists, and writes them for export. `pre` finds the
name of the pre-tokenizer.
"""
