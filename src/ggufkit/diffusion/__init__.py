"""Image and video models: recognize a diffusion model, and which of its tensors are special.

`architecture` reads one file of `files` for each model: the names that recognize it, the tensors
that are not quantized, those that need precision, and those that are left out.
"""
