"""Reads GGML, GGMF and GGJT files from before GGUF into a Model.

No other part of `conversion` may depend on it.
"""
