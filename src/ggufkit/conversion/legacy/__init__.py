"""GGML, GGMF and GGJT files from before GGUF.

Reads the old containers into a Model. Nothing else may depend on it.
"""
