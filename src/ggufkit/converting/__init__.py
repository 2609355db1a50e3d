"""Hugging Face checkpoints to GGUF: what a checkpoint holds, and where each part of it goes."""
