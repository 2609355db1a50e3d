"""Converts model cards to `general.*` keys, and back.

Reads and writes README.md of a checkpoint. Keys of the architecture or the tokenizer do not belong
here.
"""
