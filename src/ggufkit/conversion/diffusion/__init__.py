"""Converts image and video models to GGUF, as ComfyUI and stable-diffusion.cpp read them.

`checkpoint_files` opens what a user downloads, `convert_diffusion` makes the model of it, and
`storage` says in which type and shape each tensor is stored.
"""
