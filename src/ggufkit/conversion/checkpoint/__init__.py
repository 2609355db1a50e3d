"""Reads and writes the files of a Hugging Face folder.

Covers safetensors, PyTorch files and packed weights. The meaning of tensors belongs in
`architecture`.
"""
