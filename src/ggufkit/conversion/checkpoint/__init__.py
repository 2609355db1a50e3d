"""A Hugging Face folder: files in, files out.

Readers and writers of safetensors, PyTorch files and packed weights. What the tensors mean belongs
in `architecture`.
"""
