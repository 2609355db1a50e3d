"""Tensor and Model, where their bytes come from, and opening files.

A model is lazy: nothing here reads tensor data before it is asked for. Writing belongs in
`output`, and whatever makes another model in `edits`, `quantization` or `conversion`.
"""
