"""Hands models to other libraries: NumPy, PyTorch, transformers, tokenizers, safetensors and MLX.

Each library is an extra that is imported when it is used. What reads or writes GGUF does not live
here, nor does the stand-in for gguf-py, which is `compat`.
"""
