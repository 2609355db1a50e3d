"""LoRA adapters: convert them to GGUF, merge them into a model, extract them from two models.

An adapter changes a matrix W to W + scale * B @ A, where A and B are thin. What holds for all
models lives in `models`; the command lives in `cli`.
"""
