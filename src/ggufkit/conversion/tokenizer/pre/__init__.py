"""Finds the name of a pre-tokenizer by how it splits a text.

llama.cpp names pre-tokenizers by the hash of an encoded text, and this package encodes that text.
It must not read or write models.
"""
