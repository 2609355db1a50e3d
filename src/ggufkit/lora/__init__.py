"""LoRA adapters: convert them to GGUF, merge them into a model, extract them from two models.

An adapter changes a matrix W to W + scale * B @ A, where A and B are thin. Code for all models
lives in `models`, and the command in `cli`.
"""
