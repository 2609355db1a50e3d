"""The name of a pre-tokenizer, by what it does to a text.

llama.cpp names pre-tokenizers by the hash of an encoded text: this package encodes it. Nothing here
reads or writes a model.
"""
