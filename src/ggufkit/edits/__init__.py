"""Models with other metadata, names or tensors, and files changed in place.

Every verb that changes a model and keeps its numbers lives here. Other types belong in
`quantization`, other formats in `conversion`.
"""
